//! The relay on a machine: one thread that drives a [`Node`] with a TUN, sockets and signals.
//!
//! One thread, because the order of packets within a flow must be kept, and because at the
//! rates that dwell is for the work per packet is small against a wake-up. Only codecs that
//! take long work elsewhere, on as many threads as there are processors.

mod account;
mod control;
mod detours;
mod error;
mod events;
mod fair_queue;
mod http;
mod journal;
mod metrics;
mod os_env;
mod outbox;
mod rate_doubts;
mod reading;
mod resolver;
mod route_plan;
mod routes;
mod sockets;
mod status;
mod trials;
mod web;
mod workers;

pub use detours::route_warnings;
pub use error::{RunError, StatusError};

use std::net::TcpListener;
use std::path::{Path, PathBuf};

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use dwell_base::Instant;
use dwell_base::time::SECOND_NS;
use dwell_confine::memory;
use dwell_confine::privilege::{self, User};
use dwell_confine::seccomp;
use dwell_report::status::ConfigurationStatus;
use dwell_wire::CloseReason;

use crate::config::{Config, MTU_MIN, MtuConfig, NodeConfig, WebConfig};
use crate::io::cgroup::{CpuAllowance, CpuGroup};
use crate::io::clock::Clock;
use crate::io::poller::{Interest, Poller, Readiness, Token, Waker};
use crate::io::route::{LinkSettings, RouteGuard, RouteWatch, Routes};
use crate::io::signal::Signals;
use crate::io::tun::{PacketBatch, Tun, TunOptions, TunWriteBatch};
use crate::io::udp::{RecvBatch, UdpPort};
use crate::node::{CpuTimes, Node};
use crate::trust::RandomSource;
use account::Account;
use events::Chronicle;
use journal::Journals;
use metrics::MetricsServer;
use os_env::{OsEnv, TunCount};
use rate_doubts::RateDoubts;
use resolver::Resolver;
use routes::{RouteCare, adopt_routes};
use sockets::{addresses, narrow, peer_token, unsent};
use status::StatusSocket;
use trials::Trials;
use web::WebServer;
use workers::{Job, Workers};

const TUN: Token = Token(0);
const LISTENER: Token = Token(1);
const SIGNALS: Token = Token(2);
const WAKER: Token = Token(3);
const STATUS: Token = Token(4);
const ROUTES: Token = Token(5);
/// Peers' sockets come after the others.
const FIRST_PEER: u16 = 8;

/// Bursts from a fast network wait here while a packet is compressed.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;
/// The kernel's queue in front of the TUN; it is drained into our own at once.
const TUN_QUEUE_PACKETS: u32 = 4_096;
/// When the relay is asked to stop, waiting packets may leave for this long.
const DRAIN_NS: u64 = 2 * SECOND_NS;
/// A TUN that vanished is made again this often.
const TUN_RETRY_NS: u64 = SECOND_NS;

/// Runs a relay until it is asked to stop by SIGTERM or SIGINT. SIGHUP reads the
/// configuration at `path` again. What the cores of the peers decide is noted in the directory
/// `journal`, if there is one. The machine has so many bytes of memory.
///
/// # Errors
/// If the TUN, a socket, an address or a route can't be set up. Nothing is left behind.
pub fn run(
    path: &Path,
    config: Config,
    journal: Option<&Path>,
    machine_bytes: u64,
) -> Result<(), RunError> {
    if let Err(error) = Clock::sharpen_timers() {
        tracing::warn!("timers are blunt: {error}");
    }
    memory::give_back_large();
    let mut engine = Engine::new(path, config, journal)?;
    engine.set_memory(machine_bytes);
    engine.confine();
    // Threads are started only now, after privileges were dropped: what a thread may do is its own.
    engine.look_up_names();
    engine.serve_metrics()?;
    engine.serve_web()?;
    engine.routes.outlive();
    let result = engine.serve();
    match &result {
        Ok(()) => engine.stop(),
        Err(_) => engine.report_routes_left(),
    }
    result
}

struct Engine {
    path: PathBuf,
    config: Config,
    /// What became of its file since the start.
    configuration: ConfigurationStatus,
    account: Account,
    rate_doubts: RateDoubts,
    node: Node,
    env: OsEnv,
    poller: Poller,
    waker: Waker,
    signals: Signals,
    status: Option<StatusSocket>,
    metrics_listener: Option<TcpListener>,
    metrics: Option<MetricsServer>,
    web_listener: Option<TcpListener>,
    web: Option<WebServer>,
    chronicle: Chronicle,
    routes: RouteGuard,
    route_watch: RouteWatch,
    route_care: RouteCare,
    from_tun: PacketBatch,
    from_net: RecvBatch,
    read: TunCount,
    started: Instant,
    tun_mtu: u16,
    tun_retry_at: Instant,
    resolver: Resolver,
    /// The status socket is not watched until then: no descriptor was left for its readers.
    status_retry_at: Instant,
    /// When peers, paths and routes are looked after.
    look_after_at: Instant,
    /// When broken sockets are made again at the earliest.
    reopen_at: Instant,
    stopping: bool,
    journals: Option<Journals>,
    /// Only the system calls that a relay needs are allowed.
    confined: bool,
    /// The machine's memory.
    machine_bytes: u64,
    /// Where the kernel says how much of the processors this process may have, if it does.
    cpu_group: Option<CpuGroup>,
    /// Peers whose ports may have something to do.
    touched: Vec<usize>,
}

impl Engine {
    fn new(path: &Path, config: Config, journal: Option<&Path>) -> Result<Self, RunError> {
        let endpoints = addresses(&config);
        let mut node = Node::new(&config, &endpoints, &mut random_source)?;
        let poller = Poller::new().map_err(RunError::system("make an epoll instance"))?;
        let waker = Waker::new().map_err(RunError::system("make an eventfd"))?;
        let signals = Signals::new().map_err(RunError::system("watch signals"))?;
        let resolver = Resolver::new(waker.clone());
        let workers = Workers::new(waker.clone(), config.node.threads);
        node.set_threads(workers.threads_max());
        let trials = Trials::new(waker.clone());
        let status = match &config.node.status {
            None => None,
            Some(path) => Some(StatusSocket::bind(path)?),
        };
        let metrics_listener = match config.node.metrics {
            None => None,
            Some(address) => Some(
                TcpListener::bind(address)
                    .map_err(|source| RunError::Metrics { address, source })?,
            ),
        };
        let web_listener = match &config.node.web {
            None => None,
            Some(WebConfig { listen, .. }) => Some(
                TcpListener::bind(listen)
                    .map_err(|source| RunError::Web { address: *listen, source })?,
            ),
        };
        let mut routes = RouteGuard::new(Routes::new()?);
        let route_watch = RouteWatch::new()?;
        let tun = make_tun(&config.node, &node, routes.routes())?;
        let journals = journal.map(|directory| {
            Journals::open(directory, &mut node)
                .map_err(|source| RunError::Journal { directory: directory.to_owned(), source })
        });
        let journals = journals.transpose()?;
        let account = Account::open(&config.savings, Clock::now());
        drop_privileges(&config.node, status.as_ref())?;
        // Sockets share a port only with those of the same user: this one, from now on.
        let listener = listen(config.node.listen)
            .map_err(|source| RunError::Listen { address: config.node.listen, source })?;
        // Not before the interface is there: a relay that runs already has it.
        adopt_routes(&mut routes, &config.node)?;
        let env = OsEnv {
            peer_sockets: Vec::new(),
            listener,
            tun: None,
            came_at: None,
            to_tun: TunWriteBatch::new(),
            written: TunCount::default(),
            workers,
            trials,
            events: Vec::new(),
            tun_gone: false,
        };
        let mut engine = Self {
            path: path.to_owned(),
            config,
            configuration: ConfigurationStatus {
                path: std::path::absolute(path).unwrap_or(path.to_owned()).display().to_string(),
                ..ConfigurationStatus::default()
            },
            account,
            rate_doubts: RateDoubts::default(),
            node,
            env,
            poller,
            waker,
            signals,
            status,
            metrics_listener,
            metrics: None,
            web_listener,
            web: None,
            chronicle: Chronicle::default(),
            routes,
            route_watch,
            route_care: RouteCare::default(),
            from_tun: PacketBatch::new(0, u16::MAX),
            from_net: RecvBatch::new(4),
            read: TunCount::default(),
            started: Clock::now(),
            tun_mtu: 0,
            tun_retry_at: Instant::FAR_FUTURE,
            resolver,
            status_retry_at: Instant::FAR_FUTURE,
            look_after_at: Clock::now() + SECOND_NS,
            reopen_at: Instant::ZERO,
            stopping: false,
            journals,
            confined: false,
            machine_bytes: 0,
            cpu_group: CpuGroup::find(),
            touched: Vec::new(),
        };
        engine.register()?;
        engine.connect_peers();
        engine.take_tun(tun)?;
        engine.sync_routes()?;
        engine.look_at_counters();
        Ok(engine)
    }

    /// The machine has so much memory.
    fn set_memory(&mut self, machine_bytes: u64) {
        self.machine_bytes = machine_bytes;
        self.node.set_history_memory(self.config.node.history_memory_max(machine_bytes));
    }

    fn serve_metrics(&mut self) -> Result<(), RunError> {
        if let Some(listener) = self.metrics_listener.take() {
            let server = MetricsServer::start(listener, self.waker.clone());
            self.metrics = Some(server.map_err(RunError::system("start the thread for metrics"))?);
        }
        Ok(())
    }

    fn serve_web(&mut self) -> Result<(), RunError> {
        if let (Some(listener), Some(config)) = (self.web_listener.take(), &self.config.node.web) {
            let server = WebServer::start(listener, self.waker.clone(), config.clone());
            self.web = Some(server.map_err(RunError::system("start the thread for the web page"))?);
        }
        Ok(())
    }

    /// Forbids this thread, and those that it starts, what no relay needs.
    fn confine(&mut self) {
        if !self.config.node.seccomp {
            return;
        }
        match seccomp::confine() {
            Ok(()) => self.confined = true,
            Err(error) => tracing::warn!("system calls are not filtered: {error}"),
        }
    }

    fn register(&mut self) -> Result<(), RunError> {
        let watch = RunError::system("watch a descriptor");
        (|| {
            self.poller.register(&self.env.listener, LISTENER, Interest::Read)?;
            self.poller.register(&self.signals, SIGNALS, Interest::Read)?;
            self.poller.register(&self.waker, WAKER, Interest::Read)?;
            self.poller.register(&self.route_watch, ROUTES, Interest::Read)?;
            match &self.status {
                Some(status) => self.poller.register(status, STATUS, Interest::Read),
                None => Ok(()),
            }
        })()
        .map_err(watch)
    }

    fn open_tun(&mut self) -> Result<(), RunError> {
        let tun = make_tun(&self.config.node, &self.node, self.routes.routes())?;
        self.take_tun(tun)
    }

    fn take_tun(&mut self, tun: Tun) -> Result<(), RunError> {
        self.poller
            .register(&tun, TUN, Interest::Read)
            .map_err(RunError::system("watch the TUN"))?;
        self.tun_mtu = self.wanted_mtu();
        tun.set_mtu(self.tun_mtu)?;
        self.node.set_tun_mtu(self.tun_mtu);
        let packet_max = self.node.packet_max();
        if self.tun_mtu > packet_max {
            tracing::warn!(
                "an MTU of {} is more than the path takes ({packet_max}): larger packets that \
                 may be cut are dropped; leave mtu at \"auto\"",
                self.tun_mtu
            );
        }
        tracing::info!(
            "{} is up: MTU {}, offload {}",
            tun.name(),
            self.tun_mtu,
            if tun.offload() { "on" } else { "off" }
        );
        self.env.tun = Some(tun);
        self.env.tun_gone = false;
        Ok(())
    }

    fn wanted_mtu(&self) -> u16 {
        wanted_mtu(&self.config.node, &self.node)
    }

    fn serve(&mut self) -> Result<(), RunError> {
        let mut ready: Vec<Readiness> = Vec::new();
        let mut stop_at = Instant::FAR_FUTURE;
        loop {
            self.settle();
            let now = Clock::now();
            if self.stopping {
                stop_at = stop_at.min(now + DRAIN_NS);
                let empty = self.node.is_empty()
                    && !self.node.is_behind()
                    && self
                        .env
                        .peer_sockets
                        .iter()
                        .all(|peer_socket| peer_socket.outbox.is_empty());
                if empty || now >= stop_at {
                    return Ok(());
                }
            }
            let deadline = self.node.deadline().min(stop_at).min(self.tun_retry_at);
            let deadline = deadline.min(self.look_after_at).min(self.reopen_due());
            let deadline = deadline.min(self.route_care.due()).min(self.status_retry_at);
            let deadline = if self.node.is_behind() { now } else { deadline };
            let has_waited = self
                .poller
                .wait(Some(deadline), now, &mut ready)
                .map_err(RunError::system("wait for events"))?;
            if has_waited {
                self.node.slept(now, Clock::now());
            }
            for event in &ready {
                match event.token {
                    TUN => self.read_tun(),
                    LISTENER => self.read_socket(None),
                    SIGNALS => self.on_signals()?,
                    WAKER => self.on_woken(),
                    STATUS => self.tell_status(now),
                    ROUTES => self.on_route_events(),
                    Token(number) => {
                        let peer = usize::from(number - FIRST_PEER);
                        if event.readable || event.failed {
                            self.read_socket(Some(peer));
                        }
                        if event.writable {
                            self.on_writable(peer);
                        }
                    }
                }
            }
        }
    }

    /// Does everything that can be done without waiting.
    fn settle(&mut self) {
        self.node.take_turns(&mut self.env);
        let now = Clock::now();
        if now >= self.node.deadline() {
            self.node.serve_due(&mut self.env);
        }
        for peer in std::mem::take(&mut self.touched) {
            self.node.pump(&mut self.env, peer);
            self.fit_send_buffer(peer);
        }
        self.node.pump_handed(&mut self.env);
        self.flush();
        if now >= self.route_care.due() {
            self.care_for_routes(now);
        }
        if !self.env.events.is_empty() {
            self.on_events();
            self.flush();
        }
        if self.env.tun_gone {
            self.lose_tun(now);
        }
        if now >= self.tun_retry_at {
            self.retry_tun(now);
        }
        if now >= self.status_retry_at {
            self.watch_status();
        }
        if now >= self.look_after_at {
            self.look_after(now);
        }
        if self.node.is_look_due(now) {
            self.node.look_at_processors(now, self.cpu_times());
        }
        if now >= self.reopen_due() {
            self.reopen(now);
        }
        if let Some(journals) = &mut self.journals {
            journals.write(&mut self.node);
        }
    }

    /// What this process has used of the processors, and may use, if the kernel says so.
    fn cpu_times(&self) -> Option<CpuTimes> {
        let CpuAllowance { processors, withheld_ns } = self.cpu_group.as_ref()?.read();
        Some(CpuTimes { used_ns: Clock::process_cpu_ns(), withheld_ns, quota: processors })
    }

    fn flush(&mut self) {
        self.env.flush_tun();
        // What is for a peer whose address was unknown until now waits for the socket that an event brings.
        let are_events = !self.env.events.is_empty();
        for (peer, peer_socket) in self.env.peer_sockets.iter_mut().enumerate() {
            let waits = peer_socket.blocked || (are_events && peer_socket.socket.is_none());
            if !waits && !peer_socket.outbox.is_empty() && !peer_socket.flush() {
                self.node.link_blocked(Clock::now(), peer);
            }
            if let Some(socket) = &peer_socket.socket {
                let interest = match (peer_socket.blocked, self.node.is_clogged(peer)) {
                    (true, true) => Interest::Write,
                    (true, false) => Interest::ReadWrite,
                    (false, true) => Interest::Idle,
                    (false, false) => Interest::Read,
                };
                if let Err(error) = self.poller.set_interest(socket, peer_token(peer), interest) {
                    tracing::error!("cannot watch the socket of a peer: {error}");
                }
            }
            if let Some(mtu) = peer_socket.narrowed.take() {
                narrow(&mut self.node, peer, peer_socket, mtu);
            }
        }
        self.take_errors();
        self.follow_mtu();
    }

    /// Notes the errors that the system returned instead of sending: they are why a peer may not
    /// answer.
    fn take_errors(&mut self) {
        for peer in 0..self.env.peer_sockets.len() {
            if let Some(error) = self.env.peer_sockets[peer].unsent.take() {
                self.node.unsent(&mut self.env, peer, unsent(&error));
            }
        }
    }

    /// The paths may have changed, or peers have come that take less.
    fn follow_mtu(&mut self) {
        let mtu = self.wanted_mtu();
        let Some(tun) = &self.env.tun else { return };
        if mtu == self.tun_mtu {
            return;
        }
        match tun.set_mtu(mtu) {
            Ok(()) => tracing::info!("{}: MTU {mtu}", tun.name()),
            Err(error) => tracing::warn!("{error}"),
        }
        self.tun_mtu = mtu;
        self.node.set_tun_mtu(mtu);
    }

    /// The worker or the resolver has something for us.
    fn on_woken(&mut self) {
        self.waker.drain();
        self.take_results();
        self.take_names();
        if let Some(metrics) = &self.metrics {
            metrics.answer(|| dwell_report::metrics_text(&self.present()));
        }
        if self.web.as_ref().is_some_and(WebServer::is_watched) {
            self.node.watch_flows(Clock::now());
        }
        if let Some(web) = &self.web {
            web.answer(|| self.present());
        }
    }

    /// Takes what workers have done; false if that is nothing.
    fn take_results(&mut self) -> bool {
        while let Some(trial) = self.env.trials.finished() {
            self.node.tried(Clock::now(), &trial);
        }
        let mut is_any = false;
        while let Some(job) = self.env.workers.finished() {
            is_any = true;
            match job {
                Job::Batch(done) => {
                    let peer = done.ticket.peer;
                    self.node.compressed_in_context(Clock::now(), *done);
                    self.touch(peer);
                }
                Job::Decode(done) => self.node.decoded_in_context(&mut self.env, done),
                Job::Packet(job) => {
                    let result = job.result.map(|len| len.map(|len| &job.out[..len]));
                    self.node.compressed(Clock::now(), job.ticket, result, job.took_ns);
                    self.touch(job.ticket.peer);
                    self.env.workers.recycle(*job);
                }
            }
        }
        is_any
    }

    fn touch(&mut self, peer: usize) {
        if !self.touched.contains(&peer) {
            self.touched.push(peer);
        }
    }

    fn lose_tun(&mut self, now: Instant) {
        self.env.tun_gone = false;
        let Some(tun) = self.env.tun.take() else { return };
        tracing::error!("interface {} was deleted: making it again", tun.name());
        let _ = self.poller.deregister(&tun, TUN);
        // Its routes went with it; those that refuse what it should carry stay.
        self.routes.forget_interface();
        self.tun_retry_at = now;
    }

    fn retry_tun(&mut self, now: Instant) {
        self.tun_retry_at = Instant::FAR_FUTURE;
        if let Err(error) = self.open_tun() {
            tracing::error!("{error}");
            self.tun_retry_at = now + TUN_RETRY_NS;
        } else if let Err(error) = self.sync_routes() {
            tracing::error!("{error}");
        }
    }

    fn stop(&mut self) {
        self.node.close(&mut self.env, CloseReason::ShuttingDown);
        self.flush();
        if let Some(journals) = &mut self.journals {
            journals.finish(&mut self.node);
        }
        self.log_report();
        let status = self.node.status(Clock::now());
        self.account.look(&status, Clock::now());
        self.account.write();
        tracing::info!("stopped");
    }
}

/// Makes the interface as the configuration wants it.
fn make_tun(config: &NodeConfig, node: &Node, routes: &Routes) -> Result<Tun, RunError> {
    let options = TunOptions {
        name: config.tun.clone(),
        mtu: wanted_mtu(config, node),
        addresses: config.addresses.clone(),
        offload: config.offload,
    };
    let tun = Tun::open(&options)?;
    let queue = LinkSettings { txqueuelen: Some(TUN_QUEUE_PACKETS), ..Default::default() };
    routes.set_link(tun.ifindex(), &queue)?;
    Ok(tun)
}

fn wanted_mtu(config: &NodeConfig, node: &Node) -> u16 {
    match config.mtu {
        MtuConfig::Auto => node.packet_max().max(MTU_MIN),
        MtuConfig::Fixed(mtu) => mtu,
    }
}

/// Becomes the user that the relay remains, and keeps no more privileges than it needs later.
fn drop_privileges(node: &NodeConfig, status: Option<&StatusSocket>) -> Result<(), RunError> {
    let user = match &node.user {
        Some(name) if privilege::is_root() => {
            Some(User::named(name).map_err(RunError::system("become another user"))?)
        }
        Some(name) => {
            tracing::warn!("only root can become \"{name}\": this goes on as it is");
            None
        }
        None => None,
    };
    if let (Some(user), Some(status)) = (user, status) {
        status.give_to(user).map_err(RunError::system("hand the status over"))?;
    }
    privilege::give_up(node.listen.port(), user).map_err(RunError::system("drop privileges"))
}

/// Opens the port that receives from everybody.
fn listen(address: std::net::SocketAddr) -> std::io::Result<UdpPort> {
    // Our own sockets share the port, and two relays would share it too, each with a part of
    // the datagrams: a socket that shares with nobody finds out.
    drop(std::net::UdpSocket::bind(address)?);
    UdpPort::bind(address, None, Some(RECEIVE_BUFFER_BYTES))
}

/// A generator of the operating system's randomness.
fn random_source() -> RandomSource {
    let system = SystemRandom::new();
    Box::new(move |bytes| {
        // The kernel's generator does not fail once it is seeded; keys without randomness
        // would be worse than no relay.
        system.fill(bytes).expect("the operating system has randomness");
    })
}
