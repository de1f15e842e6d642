//! The parts that both ends share while they run: counters, compressors, limits, the status.

use std::future::Future;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use dwell_base::time::duration_ns;
use dwell_confine::{memory, privilege, seccomp};
use dwell_report::ProxyStatus;
use dwell_stream::{BLOCK_LEN_MAX, Limits, Receiver, Sender};
use rustix::io::Errno;
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::carrier::{Carrier, CarrierError};
use crate::clock;
use crate::compress::CompressorPool;
use crate::config::{Common, ConfigError, EarlierStreams};
use crate::contexts::Contexts;
use crate::hello::{Hello, Purpose};
use crate::kept::{Kept, Topics, Whose};
use crate::local::Local;
use crate::memory::Memory;
use crate::metrics::{Metrics, Present};
use crate::path::Paths;
use crate::pump::{End, Left, Moved, Pump, Shared};
use crate::rooms::Shortage;
use crate::security::SecurityError;
use crate::stalls::Stalls;
use crate::status::StatusSocket;
use crate::stream_log::StreamRecord;
use crate::target::Target;

/// Why a proxy does not start, or had to stop.
#[derive(Debug, Error)]
pub enum RunError {
    /// Its settings contradict each other.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Keys or certificates.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// It can't listen there.
    #[error("{what} can't be listened at: {error}{help}")]
    Listen {
        /// The address or path.
        what: String,
        /// The system's error.
        error: io::Error,
        /// The remedy.
        help: String,
    },
    /// The status socket can't be made.
    #[error(
        "the status socket {path} can't be made: {error}. If another proxy of this kind runs here, give this one \
         a --name of its own, another path (--status PATH), or none (--no-status)"
    )]
    Status {
        /// The path.
        path: String,
        /// The error.
        error: dwell_confine::directory::DirectoryError,
    },
    /// It can't become less than it was.
    #[error("privileges can't be given up: {0}")]
    Privileges(io::Error),
    /// Threads, signals.
    #[error("the system gives no threads or signals: {0}")]
    System(#[from] io::Error),
}

/// The longest that streams are waited for when the proxy is asked to stop.
const GRACE: Duration = Duration::from_secs(3);
/// Complaints of one kind are logged at most this often.
const COMPLAINTS: Duration = Duration::from_secs(1);
/// The pause after a connection that could not be accepted: the first and the longest.
const ACCEPT_PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// A stream that waits for room checks this often whether another one may make it.
const ROOM_LOOK: Duration = Duration::from_millis(500);
/// When so many streams more or fewer are open than at the latest time, and few come or go any more, what is free is given back
/// to the system: what opening them took lies between them.
const TIDY_STREAMS: u64 = 256;
const TIDY_CALM_STREAMS: u64 = 32;
/// The kernel's queues of connections should be as long at least.
const QUEUE_MIN: u32 = 1024;

/// Both ends of a stream before it runs, and its room for what it may refer to while it is idle.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) sender: Sender,
    receiver: Receiver,
    history: Option<OwnedSemaphorePermit>,
    /// True if they go on with what another stream has left.
    pub(crate) goes_on: bool,
    /// True if what they leave is kept, ...
    is_kept: bool,
    /// ... for whom.
    whose: Option<Whose>,
    /// What it is about, if what codecs bring is shared with others.
    topic: Option<u64>,
}

impl Prepared {
    /// Returns true if there is room here for what both directions refer to while they are idle.
    pub(crate) const fn holds_history(&self) -> bool {
        self.history.is_some()
    }

    /// Notes that the other end has that room, too.
    pub(crate) fn other_end_holds(&mut self) {
        if self.holds_history() {
            self.sender.hold_idle_history();
        }
    }

    /// Keeps what the stream leaves for the next one on its connection, as the other end does.
    pub(crate) fn keep(&mut self, whose: Option<Whose>) {
        (self.is_kept, self.whose) = (true, whose);
        self.sender.keep_for_next();
    }
}

/// What is known of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About<'a> {
    /// Who opened it.
    pub(crate) from: SocketAddr,
    /// For whom that was, as far as the other end has said it.
    pub(crate) client: Option<SocketAddr>,
    /// Where it goes; none if each of its datagrams has a target.
    pub(crate) target: Option<&'a Target>,
}

#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) common: Common,
    pub(crate) metrics: Metrics,
    pub(crate) hello: Hello,
    pub(crate) streams_max: usize,
    compress: CompressorPool,
    paths: Paths,
    stalls: Stalls,
    memory: Memory,
    /// Tells parties apart that share the memory.
    parties: RandomState,
    pub(crate) topics: Topics,
    started: dwell_base::Instant,
    /// True if system calls are filtered.
    confined: bool,
    complained: Mutex<Option<Instant>>,
    /// True if it has been logged that no descriptor is free.
    exhausted: AtomicBool,
    /// A connection has ended, so that a descriptor is free.
    freed: Notify,
}

impl Engine {
    pub(crate) fn new(common: Common, confined: bool) -> io::Result<Self> {
        mind_short_queues();
        let stall_ns = duration_ns(common.limits.stall);
        let wish = common.compressing.wish_name();
        let hello = Hello::new(Purpose::Streams, BLOCK_LEN_MAX as u32, wish);
        Ok(Self {
            metrics: Metrics::default(),
            hello: match common.compressing.earlier {
                EarlierStreams::None => hello,
                EarlierStreams::Client | EarlierStreams::All => hello.with_keeping(),
            },
            streams_max: common.limits.streams(),
            compress: CompressorPool::new()?,
            paths: Paths::default(),
            stalls: Stalls::new(stall_ns),
            memory: Memory::new(&common.limits),
            parties: RandomState::new(),
            topics: Topics::new(common.compressing.earlier),
            started: clock::now(),
            confined,
            complained: Mutex::new(None),
            exhausted: AtomicBool::new(false),
            freed: Notify::new(),
            common,
        })
    }

    /// The next connection at a listener. Without a free descriptor clients wait in the kernel's
    /// queue until there is one.
    pub(crate) async fn accept(&self, listener: &TcpListener) -> (TcpStream, SocketAddr) {
        let mut pause = ACCEPT_PAUSE.0;
        loop {
            let error = match listener.accept().await {
                Ok(accepted) => {
                    if self.exhausted.swap(false, Relaxed) {
                        tracing::warn!("connections are accepted again");
                    }
                    return accepted;
                }
                Err(error) => error,
            };
            if is_exhaustion(&error) {
                self.metrics.no_descriptors.add(1);
                if !self.exhausted.swap(true, Relaxed) {
                    tracing::warn!(
                        "no connection can be accepted until one ends: {error}. Raise the limit of \
                         file descriptors (`ulimit -n`, or LimitNOFILE= in a systemd unit), or \
                         lower --streams-max"
                    );
                }
                let _ = tokio::time::timeout(pause, self.freed.notified()).await;
                pause = (pause * 2).min(ACCEPT_PAUSE.1);
            } else {
                // One that went away at once.
                self.complain(|| format!("a connection can't be accepted: {error}"));
                tokio::time::sleep(ACCEPT_PAUSE.0).await;
            }
        }
    }

    /// A connection has been closed.
    pub(crate) fn descriptor_freed(&self) {
        self.freed.notify_waiters();
    }

    /// Waits for a permit of a stream, at most for `time`. If there is none at once, a stream whose
    /// program has not read for too long has to make room, and after each [`ROOM_LOOK`] another one.
    pub(crate) async fn room<'a>(
        &self,
        streams: &'a Semaphore,
        time: Option<Duration>,
    ) -> Option<SemaphorePermit<'a>> {
        let end = time.map(|time| Instant::now() + time);
        if let Ok(permit) = streams.try_acquire() {
            return Some(permit);
        }
        let permit = streams.acquire();
        let mut permit = std::pin::pin!(permit);
        loop {
            self.stalls.make_room(clock::now());
            let look = Instant::now() + ROOM_LOOK;
            let until = end.map_or(look, |end| end.min(look));
            if let Ok(permit) = tokio::time::timeout_at(until.into(), permit.as_mut()).await {
                return permit.ok();
            }
            if end.is_some_and(|end| end <= Instant::now()) {
                return None;
            }
        }
    }

    /// While streams wait for room to move anything, has those make way whose programs do not read; gives back what a burst
    /// has left.
    pub(crate) async fn watch_memory(&self) {
        let (mut open_before, mut tidied) = (0, 0);
        loop {
            tokio::time::sleep(ROOM_LOOK).await;
            let open = self.metrics.connections_open.get();
            let is_calm = open.abs_diff(open_before) < TIDY_CALM_STREAMS;
            if is_calm && open.abs_diff(tidied) >= TIDY_STREAMS {
                tidied = open;
                let _ = tokio::task::spawn_blocking(memory::give_back_free).await;
            }
            open_before = open;
            for shortage in self.memory.shortages() {
                match shortage {
                    Shortage::None => (),
                    Shortage::OfAll => drop(self.stalls.make_room(clock::now())),
                    // There is room for others: only its own streams are in its way.
                    Shortage::Of(parties) => parties.into_iter().for_each(|party| {
                        self.stalls.make_room_of(party, clock::now());
                    }),
                }
            }
        }
    }

    /// Makes both ends of the next stream on a connection, with what its program has sent already. What the stream before has
    /// left is dropped unless it `goes_on` with that.
    pub(crate) fn prepare(
        &self,
        carrier: &mut Carrier,
        early: &[u8],
        topic: Option<u64>,
        goes_on: impl FnOnce(&Kept) -> bool,
    ) -> io::Result<Prepared> {
        let kept = carrier.kept.take().filter(goes_on);
        let goes_on = kept.is_some();
        let (sender, receiver, history) = match kept {
            Some(Kept { sender, receiver, room, .. }) => (sender, receiver, Some(room)),
            None => (None, Receiver::new(limits()), self.memory.history()),
        };
        let mut sender = match sender {
            Some(sender) => sender,
            None => {
                let mut sender = self.sender(&carrier.theirs)?;
                let path = self.paths.to(carrier.peer.ip());
                if let Some(learned) = topic.and_then(|topic| path.lesson(clock::now(), topic)) {
                    sender.learn(&learned);
                }
                sender
            }
        };
        if goes_on {
            sender.hold_idle_history();
        }
        if sender.accept(early) < early.len() {
            return Err(io::Error::other("a client sent too much before it was answered"));
        }
        Ok(Prepared { sender, receiver, history, goes_on, is_kept: false, whose: None, topic })
    }

    /// Makes a sender to an end that says `theirs`.
    fn sender(&self, theirs: &Hello) -> io::Result<Sender> {
        let mut config = self.common.compressing.sender_config(theirs);
        // Some streams may hold what they refer to while they are idle, if both ends have room for it; of many
        // each holds little.
        config.idle_history = false;
        config.may_get_context = theirs.features & Hello::CONTEXTS != 0;
        Sender::new(&config).map_err(io::Error::other)
    }

    /// Notifies the sender of a stream that does not run yet of its link: what goes with the request for it is decided by that.
    pub(crate) fn report(&self, carrier: &mut Carrier, sender: &mut Sender) {
        let Some(mut report) = carrier.link_report() else { return };
        let (now, mut share) = (clock::now(), self.paths.to(carrier.peer.ip()).share());
        report.path_rate = share.path_rate(now, &report);
        share.outlook(now, sender.held()).add_to(&mut report);
        sender.reported(now, &report);
    }

    /// Returns true if what this stream leaves may be kept here for the next one on its connection.
    pub(crate) fn may_keep(&self, carrier: &Carrier, prepared: &Prepared) -> bool {
        let both = self.hello.features & carrier.theirs.features;
        both & Hello::KEEPING != 0 && prepared.holds_history() && self.memory.has_spare_histories()
    }

    /// Runs a stream to its end, and says whether the connection can be used again.
    pub(crate) async fn stream(
        &self,
        local: Local,
        about: About<'_>,
        prepared: io::Result<Prepared>,
        carrier: &mut Carrier,
    ) -> bool {
        let _open = Present::new(&self.metrics.streams_open);
        self.metrics.streams_opened.add(1);
        let begin = Instant::now();
        let pumped = match prepared {
            Ok(prepared) => self.pump(local, &about, prepared, carrier).await,
            Err(error) => Err(error),
        };
        let (end, moved) = pumped.unwrap_or_else(|error| (End::Cut(error), Moved::default()));
        let (counter, name) = match &end {
            End::Finished => (&self.metrics.finished, "finished"),
            End::Reset => (&self.metrics.reset, "reset"),
            End::Idle => (&self.metrics.idle, "idle"),
            End::Stalled => {
                self.complain(|| {
                    format!(
                        "a stream of {} is reset: its program has not read for {:?}, and \
                         others wait for room. Raise --memory-max or --streams-max if there are \
                         too many streams",
                        about.from.ip(),
                        self.common.limits.stall
                    )
                });
                (&self.metrics.stalled, "stalled")
            }
            End::Cut(error) => {
                tracing::debug!("a stream was cut: {error}");
                (&self.metrics.cut, "cut")
            }
            End::Damaged(error) => {
                self.complain(|| format!("what {} sends is damaged: {error}", carrier.peer));
                (&self.metrics.damaged, "damaged")
            }
        };
        counter.add(1);
        self.log_stream(&about, name, begin.elapsed(), moved);
        matches!(end, End::Finished)
    }

    /// Notes what a stream did, if somebody wants to know.
    pub(crate) fn log_stream(
        &self,
        about: &About<'_>,
        end: &'static str,
        time: Duration,
        moved: Moved,
    ) {
        let Some(log) = &self.common.stream_log else { return };
        log.note(&StreamRecord {
            from: about.from,
            client: about.client,
            target: about.target.map_or_else(|| "datagrams".to_owned(), Target::to_string),
            end,
            time,
            sent_bytes: moved.sent_bytes,
            sent_link_bytes: moved.sent_link_bytes,
            received_bytes: moved.received_bytes,
            received_link_bytes: moved.received_link_bytes,
        });
    }

    async fn pump(
        &self,
        local: Local,
        about: &About<'_>,
        prepared: Prepared,
        carrier: &mut Carrier,
    ) -> io::Result<(End, Moved)> {
        let Prepared { sender, receiver, history, is_kept, whose, topic, .. } = prepared;
        let idle = self.common.limits.idle;
        // Keyed, so that nobody can find a target that is taken for somebody else's.
        let party = self.parties.hash_one(about.target);
        let shared = Shared {
            compress: &self.compress,
            metrics: &self.metrics,
            path: self.paths.to(carrier.peer.ip()),
            stall: self.stalls.enter(about.from.ip(), party),
            sending: self.memory.sending(party),
            receiving: self.memory.receiving(party),
            history,
            topic,
            contexts: Contexts::new(&self.memory, &self.metrics),
        };
        let pump = Pump::new(local, carrier, (sender, receiver), shared, idle)?;
        let (end, moved, left) = pump.run().await;
        let left = left.filter(|_| is_kept);
        carrier.kept =
            left.map(|Left { sender, receiver, room }| Kept { sender, receiver, room, whose });
        Ok((end, moved))
    }

    /// Warns of something that unknown peers can cause as often as they like.
    pub(crate) fn complain(&self, what: impl FnOnce() -> String) {
        let mut complained = self.complained.lock().unwrap_or_else(PoisonError::into_inner);
        if complained.is_none_or(|at| at.elapsed() >= COMPLAINTS) {
            *complained = Some(Instant::now());
            tracing::warn!("{}", what());
        }
    }

    /// Logs the reason why a connection was not made, as a complaint or in silence.
    pub(crate) fn unknown_peer(&self, who: std::net::SocketAddr, error: &CarrierError) {
        self.metrics.rejected(error);
        self.complain(|| format!("{who} is rejected: {error}"));
    }

    /// The status, but for what only the role knows.
    pub(crate) fn status(&self, role: &str, warm: usize) -> ProxyStatus {
        ProxyStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            name: self.common.name.clone(),
            role: role.to_owned(),
            security: self.common.security.name().to_owned(),
            uptime_ns: clock::now().since_ns(self.started),
            cpu_ns: clock::process_cpu_ns(),
            seccomp: self.confined,
            streams: self.metrics.streams(self.streams_max),
            connections: self.metrics.connections(warm),
            tx: self.metrics.tx(),
            rx: self.metrics.rx(),
            ..ProxyStatus::default()
        }
    }

    /// Waits until the process is asked to stop, and then for the streams that are open, a little.
    pub(crate) async fn until_stopped(&self, signals: &mut StopSignals) {
        signals.recv().await;
        tracing::info!("stopping: no new streams");
    }

    /// Gives open streams a little time to end; a second signal ends that.
    pub(crate) async fn drain(&self, signals: &mut StopSignals) {
        let ended = async {
            while self.metrics.streams_open.get() > 0 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::select! {
            _ = tokio::time::timeout(GRACE, ended) => {}
            () = signals.recv() => {}
        }
        let left = self.metrics.streams_open.get();
        if left > 0 {
            tracing::warn!("{left} streams are reset");
        }
    }
}

/// Returns the limits of receivers of streams: a context that they grant may be a model of any kind.
fn limits() -> Limits {
    let mut limits = Limits::in_order();
    limits.mixed_models = true;
    limits
}

/// Returns true if the process, or the system, is out of descriptors or of memory for sockets.
fn is_exhaustion(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM))
}

/// Warns if the kernel lets only few clients wait: what comes beyond is retried by them after
/// seconds.
fn mind_short_queues() {
    let text = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap_or_default();
    if let Ok(max) = text.trim().parse::<u32>()
        && max < QUEUE_MIN
    {
        tracing::warn!(
            "at most {max} clients at once can wait to be accepted, and others have to connect again: \
             raise it by `sysctl net.core.somaxconn=4096`"
        );
    }
}

/// Binds the status socket, if there is to be one.
pub(crate) fn status_socket(common: &Common) -> Result<Option<StatusSocket>, RunError> {
    let Some(path) = &common.status else { return Ok(None) };
    StatusSocket::bind(path)
        .map(Some)
        .map_err(|error| RunError::Status { path: path.display().to_string(), error })
}

/// Gives up what is not needed once sockets are bound and keys are read: the user, all
/// capabilities, system calls. Whether calls are filtered. To be called before threads start: what a
/// thread may do is its own.
pub(crate) fn confine(common: &Common, status: Option<&StatusSocket>) -> Result<bool, RunError> {
    if let (Some(user), Some(status)) = (common.user, status) {
        status.give_to(user).map_err(RunError::Privileges)?;
    }
    privilege::keep_none(common.user).map_err(RunError::Privileges)?;
    if !common.seccomp {
        return Ok(false);
    }
    match seccomp::confine() {
        Ok(()) => Ok(true),
        Err(error) => {
            tracing::warn!("system calls are not filtered: {error}");
            Ok(false)
        }
    }
}

/// Until SIGHUP comes.
pub(crate) async fn asked_to_reload(hangup: &mut Signal) {
    if hangup.recv().await.is_none() {
        std::future::pending::<()>().await;
    }
}

/// SIGTERM and SIGINT. They are made before anybody knows that the process is ready: what comes just while they are made
/// may be lost.
#[derive(Debug)]
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    pub(crate) fn new() -> io::Result<Self> {
        let [terminate, interrupt] =
            [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?];
        Ok(Self { terminate, interrupt })
    }

    /// Until one of them comes.
    pub(crate) async fn recv(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Runs `main` on as many threads as there are processors, up to a few: those that compress are
/// others.
pub(crate) fn run<T>(main: impl Future<Output = Result<T, RunError>>) -> Result<T, RunError> {
    const THREADS_MAX: usize = 8;
    crate::security::seed_early();
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("dwell-proxy")
        .enable_all()
        .build()?;
    let result = runtime.block_on(main);
    // Streams that are left are dropped, and so reset.
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}
