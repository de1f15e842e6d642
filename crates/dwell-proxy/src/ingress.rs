//! The end that programs connect to.

use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::calls::{Call, Calls, PATIENCE, REFUSED_PATIENCE};
use crate::carrier::{Carrier, CarrierError};
use crate::config::{Ingress, Listener};
use crate::engine::{self, Engine, RunError};
use crate::hello::Purpose;
use crate::message::{Message, Reason};
use crate::metrics::Present;
use crate::pool::Pool;
use crate::pump::reset_on_close;
use crate::security;
use crate::socks::{CLIENT_BYTES_MAX, Negotiation, Reply, SocksStep, Users};
use crate::target::{Host, Target};

/// The pool is tidied this often.
const TIDY: Duration = Duration::from_secs(15);
/// The pause after failures to connect: the first and the longest.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(15));

/// The pause before a stream's next attempt to connect: the first and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// As many clients as the kernel lets wait may wait to be accepted.
const QUEUE: i32 = 65_535;

/// Runs an ingress until the process is asked to stop. `ready` is notified where it listens, and for what.
///
/// # Errors
/// It can't start.
pub fn run_ingress(config: Ingress, ready: impl FnOnce(&[String])) -> Result<(), RunError> {
    config.check()?;
    let host = match &config.egress.host {
        Host::Ip(ip) => ip.to_string(),
        Host::Name(name) => name.clone(),
    };
    let tls = security::client(&config.common.security, Purpose::Streams, &host)?;
    let sockets = config.listeners.iter().map(listen).collect::<Result<Vec<_>, _>>()?;
    // Whoever finds it knows that the listeners are open.
    let status = engine::status_socket(&config.common)?;
    let confined = engine::confine(&config.common, status.as_ref())?;
    engine::run(async move {
        let engine = Engine::new(config.common, confined)?;
        let mut listeners = Vec::new();
        for (listener, socket) in config.listeners.into_iter().zip(sockets) {
            listeners.push((listener.at(socket.local_addr()?), TcpListener::from_std(socket)?));
        }
        let shown: Vec<_> = listeners.iter().map(|(listener, _)| listener.to_string()).collect();
        ready(&shown);
        let this = Arc::new(Running {
            room: Semaphore::new(engine.streams_max),
            pool: Pool::new(config.pool.min(engine.streams_max)),
            calls: Calls::new(),
            egress: config.egress,
            shown,
            engine,
            tls,
        });
        let mut tasks = tokio::task::JoinSet::new();
        for (listener, socket) in listeners {
            tasks.spawn(Arc::clone(&this).serve(Arc::new(listener), socket));
        }
        tasks.spawn(Arc::clone(&this).keep_warm());
        if let Some(status) = status {
            let this = Arc::clone(&this);
            tasks.spawn(async move { status.serve(|| this.status()).await });
        }
        this.engine.until_stopped().await?;
        tasks.shutdown().await;
        this.engine.drain().await;
        Ok(())
    })
}

/// An ingress at work.
struct Running {
    engine: Engine,
    egress: Target,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// A permit for each stream that may be open.
    room: Semaphore,
    pool: Pool,
    calls: Calls,
    shown: Vec<String>,
}

/// Why there is no stream for a program.
enum NoStream {
    Refused(Reason, String),
    Carrier(CarrierError),
    /// Its program has reset its connection.
    Gone,
}

impl Running {
    fn status(&self) -> dwell_report::ProxyStatus {
        let warm = self.pool.len();
        let mut status = self.engine.status("ingress", warm);
        status.connections.open += warm as u64;
        status.listens.clone_from(&self.shown);
        status.egress = Some(self.egress.to_string());
        status
    }

    /// Takes programs in at one listener, as long as there is room for their streams: one more waits
    /// here, others in the kernel's queue. A listener at which nobody waits takes no room from the
    /// others.
    async fn serve(self: Arc<Self>, listener: Arc<Listener>, socket: TcpListener) {
        loop {
            let (local, from) = self.engine.accept(&socket).await;
            // Until a stream is open a close means that there was none: it is to look like that, also
            // while it waits.
            if reset_on_close(&local, true).is_err() {
                continue;
            }
            let Some(permit) = self.engine.room(&self.room, None).await else { return };
            // It is returned by the task, which can't borrow it.
            permit.forget();
            let (this, listener) = (Arc::clone(&self), Arc::clone(&listener));
            tokio::spawn(async move {
                let _room = Room(&this.room);
                this.welcome(&listener, local, from).await;
                this.engine.descriptor_freed();
            });
        }
    }

    async fn welcome(&self, listener: &Listener, mut local: TcpStream, from: SocketAddr) {
        match listener {
            Listener::Forward { to, .. } => {
                self.connect((local, from), Vec::new(), to, false).await;
            }
            Listener::Transparent { listen } => match local.local_addr() {
                // Who connects to the listener itself would be sent round in circles.
                Ok(to) if to.port() != listen.port() || !is_own(to, *listen) => {
                    self.connect((local, from), Vec::new(), &Target::at(to), false).await;
                }
                _ => {
                    self.engine.metrics.client_errors.add(1);
                    self.engine.complain(|| {
                        format!("{from} connected to {listen} itself, and not to a target")
                    });
                }
            },
            Listener::Socks { users, .. } => {
                let time = self.engine.common.limits.handshake;
                match tokio::time::timeout(time, negotiate(&mut local, users)).await {
                    Ok(Ok((target, early))) => {
                        self.connect((local, from), early, &target, true).await;
                    }
                    Ok(Err(why)) => self.turn_away(local, from, &why).await,
                    Err(_) => self.turn_away(local, from, "it took too long").await,
                }
            }
        }
    }

    async fn turn_away(&self, local: TcpStream, from: SocketAddr, why: &str) {
        self.engine.metrics.client_errors.add(1);
        self.engine.complain(|| format!("the client {from} is turned away: {why}"));
        close_politely(local).await;
    }

    /// Opens a stream to a target and runs it; a SOCKS client is notified how that went.
    async fn connect(
        &self,
        (mut local, from): (TcpStream, SocketAddr),
        early: Vec<u8>,
        target: &Target,
        socks: bool,
    ) {
        let opened = tokio::select! {
            opened = self.open(target) => opened,
            () = is_gone(&local) => Err(NoStream::Gone),
        };
        let (mut carrier, bound) = match opened {
            Ok(opened) => opened,
            Err(why) => {
                let reply = match &why {
                    NoStream::Gone => return,
                    NoStream::Refused(reason, text) => {
                        self.engine.metrics.refused(*reason);
                        self.engine.complain(|| format!("no stream to {target}: {text}"));
                        reason.reply()
                    }
                    NoStream::Carrier(error) => {
                        self.engine.metrics.connections_failed.add(1);
                        let egress = &self.egress;
                        self.engine
                            .complain(|| format!("no connection to the egress {egress}: {error}"));
                        Reply::Failure
                    }
                };
                if socks && local.write_all(&reply.bytes(None)).await.is_ok() {
                    close_politely(local).await;
                }
                return;
            }
        };
        let _open = Present::new(&self.engine.metrics.connections_open);
        let bound = match bound.host {
            Host::Ip(ip) => Some(SocketAddr::new(ip, bound.port)),
            Host::Name(_) => None,
        };
        if socks && local.write_all(&Reply::Succeeded.bytes(bound)).await.is_err() {
            return;
        }
        if self.engine.stream(local, from.ip(), &early, &mut carrier).await && self.pool.size() > 0
        {
            self.pool.put(carrier);
        }
    }

    /// A connection on which the stream to `target` has been opened, and the egress' address
    /// there. An egress that is overloaded, or starts again, is asked again for a while.
    async fn open(&self, target: &Target) -> Result<(Carrier, Target), NoStream> {
        let since = Instant::now();
        let mut pause = PAUSE.0;
        loop {
            let why = match self.connection(since).await {
                Ok((carrier, is_new)) => match self.ask(carrier, target).await {
                    // It was closed while it waited, which nobody noticed before.
                    Err(NoStream::Carrier(CarrierError::Io(_) | CarrierError::Closed))
                        if !is_new =>
                    {
                        continue;
                    }
                    Err(NoStream::Carrier(error)) if is_new => error,
                    other => {
                        self.engine.metrics.connections_reused.add(u64::from(!is_new));
                        return other;
                    }
                },
                Err(error) => error,
            };
            let patience = if why.is_refused() { REFUSED_PATIENCE } else { PATIENCE };
            let next = Instant::now() + jittered(pause);
            if !why.may_pass() || next > self.calls.deadline(since, patience) {
                return Err(NoStream::Carrier(why));
            }
            self.engine.metrics.connections_retried.add(1);
            tokio::time::sleep_until(next.into()).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// A connection to the egress, and whether it is a new one: one that is ready, that another
    /// stream gives back meanwhile, or that is made when it is its turn.
    async fn connection(&self, since: Instant) -> Result<(Carrier, bool), CarrierError> {
        if self.pool.size() == 0 {
            return self.call(since).await.map(|carrier| (carrier, true));
        }
        let turn = tokio::select! {
            biased;
            carrier = self.pool.wait() => return Ok((carrier, false)),
            turn = self.calls.turn(since) => turn,
        };
        self.call_in_turn(turn).await.map(|carrier| (carrier, true))
    }

    async fn ask(
        &self,
        mut carrier: Carrier,
        target: &Target,
    ) -> Result<(Carrier, Target), NoStream> {
        let limits = &self.engine.common.limits;
        let asking = async {
            carrier.say(&Message::Open(target.clone())).await?;
            carrier.read_message().await
        };
        // The egress has its own limit, and says what it was that took too long.
        let answer = tokio::time::timeout(limits.connect + limits.handshake, asking).await;
        match answer.unwrap_or(Err(CarrierError::Expired)).map_err(NoStream::Carrier)? {
            Message::Opened(bound) => Ok((carrier, bound)),
            Message::Refused(reason, text) => {
                self.pool.put(carrier);
                Err(NoStream::Refused(reason, text))
            }
            _ => Err(NoStream::Carrier(crate::message::MessageError::Body.into())),
        }
    }

    /// A new connection to the egress, when it is its turn.
    async fn call(&self, since: Instant) -> Result<Carrier, CarrierError> {
        let turn = self.calls.turn(since).await;
        self.call_in_turn(turn).await
    }

    async fn call_in_turn(&self, turn: Option<Call<'_>>) -> Result<Carrier, CarrierError> {
        let turn = turn.ok_or(CarrierError::Expired)?;
        let time = self.engine.common.limits.handshake;
        let made = Carrier::connect(&self.egress, self.tls.clone(), &self.engine.hello, time).await;
        match &made {
            Ok(_) => {
                turn.succeeded();
                self.engine.metrics.connections_made.add(1);
            }
            Err(error) if error.may_pass() && !error.is_refused() => turn.overloaded(),
            Err(_) => drop(turn),
        }
        made
    }

    /// Keeps the pool full, and its connections alive.
    async fn keep_warm(self: Arc<Self>) {
        let mut pause = RETRY.0;
        loop {
            self.pool.tidy();
            while self.pool.len() < self.pool.size() {
                let why = match self.call(Instant::now()).await {
                    Ok(carrier) => {
                        if self.pool.put(carrier) {
                            pause = RETRY.0;
                            continue;
                        }
                        "the other end closes it as soon as it is made".to_owned()
                    }
                    Err(error) => {
                        self.engine.metrics.connections_failed.add(1);
                        error.to_string()
                    }
                };
                let egress = &self.egress;
                self.engine.complain(|| format!("no connection to the egress {egress}: {why}"));
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(RETRY.1);
            }
            tokio::time::sleep(TIDY).await;
        }
    }
}

/// Until a program has reset its connection. (Its end may be that of its request.)
async fn is_gone(local: &TcpStream) {
    if local.ready(Interest::ERROR).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Something between a half and the whole, so that those who failed together don't come back
/// together.
fn jittered(time: Duration) -> Duration {
    let random = RandomState::new().hash_one(0) % 1024;
    time / 2 + time * random as u32 / 2048
}

/// Gives a permit back.
struct Room<'a>(&'a Semaphore);

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.0.add_permits(1);
    }
}

/// Asks a SOCKS client where it wants to go. What it has sent beyond that belongs to the stream.
async fn negotiate(local: &mut TcpStream, users: &Users) -> Result<(Target, Vec<u8>), String> {
    let mut negotiation = Negotiation::new(users);
    let mut input = Vec::new();
    loop {
        match negotiation.step(&mut input) {
            SocksStep::Connect(target) => return Ok((target, input)),
            SocksStep::Say(bytes) => {
                local.write_all(&bytes).await.map_err(|error| error.to_string())?;
            }
            SocksStep::Refuse(bytes, why) => {
                // It may be gone already.
                let _ = local.write_all(&bytes).await;
                return Err(why.to_string());
            }
            SocksStep::More => {
                let mut piece = [0; 512];
                let room = CLIENT_BYTES_MAX.saturating_sub(input.len()).clamp(1, piece.len());
                let len = local.read(&mut piece[..room]).await.map_err(|e| e.to_string())?;
                if len == 0 {
                    return Err("it went away".to_owned());
                }
                input.extend_from_slice(&piece[..len]);
            }
        }
    }
}

/// Closes so that what was written last still arrives: without a reset, and after the client has
/// had a moment to read.
async fn close_politely(mut local: TcpStream) {
    const MOMENT: Duration = Duration::from_secs(1);
    if reset_on_close(&local, false).is_err() || local.shutdown().await.is_err() {
        return;
    }
    // Closing with something unread would reset.
    let mut sink = [0; 512];
    let reading = async { while matches!(local.read(&mut sink).await, Ok(1..)) {} };
    let _ = tokio::time::timeout(MOMENT, reading).await;
}

/// Returns true if a connection was meant for the listener itself.
fn is_own(to: SocketAddr, listen: SocketAddr) -> bool {
    to.ip() == listen.ip() || to.ip().is_loopback() || listen.ip().is_unspecified()
}

fn listen(listener: &Listener) -> Result<StdTcpListener, RunError> {
    let transparent = matches!(listener, Listener::Transparent { .. });
    let help = match transparent {
        true => " (a transparent listener needs the capability CAP_NET_ADMIN; the others do not)",
        false => "",
    };
    bind_std(listener.listen(), transparent).map_err(|error| RunError::Listen {
        what: listener.to_string(),
        error,
        help,
    })
}

/// A listener for the runtime.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::from_std(bind_std(address, false)?)
}

/// A listening socket; a transparent one accepts what TPROXY brings, whatever address it was for. That
/// needs a capability now, and none later.
pub(crate) fn bind_std(address: SocketAddr, transparent: bool) -> io::Result<StdTcpListener> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    if transparent && address.is_ipv6() {
        socket.set_ip_transparent_v6(true)?;
    } else if transparent {
        socket.set_ip_transparent_v4(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(QUEUE)?;
    Ok(socket.into())
}
