//! The end that programs connect to.

use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use dwell_stream::{AbortReason, Sender};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::calls::{Call, Calls, PATIENCE, REFUSED_PATIENCE};
use crate::carrier::{Carrier, CarrierError};
use crate::config::{Ingress, Listener, Reload};
use crate::engine::{self, About, Engine, Prepared, RunError};
use crate::hello::{Hello, Purpose};
use crate::local::{Local, reset_on_close};
use crate::message::{Message, Opening, Reason};
use crate::metrics::Present;
use crate::pool::Pool;
use crate::proxy_header::{self, HEADER_BYTES_MAX};
use crate::pump::{FAREWELL, Moved};
use crate::security::{self, Security};
use crate::socks::{CLIENT_BYTES_MAX, Negotiation, Reply, SocksStep, Users};
use crate::target::{Host, Target};
use crate::udp::Association;
use crate::uplink;

/// So many connections are made for the pool at a time, once one was made: eight programs that come at once leave it half empty, and each
/// connection takes some round trips.
const WARMING_MAX: usize = 8;
/// The pool is tidied this often.
const TIDY: Duration = Duration::from_secs(15);
/// The pause after failures to connect: the first and the longest.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(15));

/// The pause before a stream's next attempt to connect: the first and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// What a program sends before its stream is open goes with the request for it, up to so many bytes.
const EARLY_BYTES_MAX: usize = 16 << 10;
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
    let users = config.listeners.iter().find_map(|listener| match listener {
        Listener::Socks { users, .. } => Some(users.clone()),
        Listener::Forward { .. } | Listener::Transparent { .. } => None,
    });
    let users = Arc::new(users.unwrap_or_default());
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
            accepts_proxy: config.accepts_proxy,
            fresh: RwLock::new(Fresh { tls, users }),
            reload: config.reload,
            host,
            engine,
        });
        let mut hangup = signal(SignalKind::hangup())?;
        let mut tasks = JoinSet::new();
        for (listener, socket) in listeners {
            tasks.spawn(Arc::clone(&this).serve(Arc::new(listener), socket));
        }
        tasks.spawn(Arc::clone(&this).keep_warm());
        if let Some(status) = status {
            let this = Arc::clone(&this);
            tasks.spawn(async move { status.serve(|| this.status()).await });
        }
        let watched = Arc::clone(&this);
        tasks.spawn(async move { watched.engine.watch_memory().await });
        let reloading = Arc::clone(&this);
        tasks.spawn(async move {
            loop {
                engine::asked_to_reload(&mut hangup).await;
                reloading.reload();
            }
        });
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
    /// Its host, which its certificate must bear unless another name was set.
    host: String,
    fresh: RwLock<Fresh>,
    reload: Reload<(Security, Option<Users>)>,
    accepts_proxy: bool,
    /// A permit for each stream that may be open.
    room: Semaphore,
    pool: Pool,
    calls: Calls,
    shown: Vec<String>,
}

/// What can be read again.
#[derive(Clone)]
struct Fresh {
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    users: Arc<Users>,
}

/// A program that wants a stream.
struct Client {
    local: TcpStream,
    /// Its address.
    from: SocketAddr,
    /// The address that it has connected to.
    listener: SocketAddr,
    /// What it has sent already.
    early: Vec<u8>,
    /// True if it has no more.
    has_ended: bool,
    /// True if it has reset its connection. The socket says that once: who reads it must not lose it, or the
    /// stream would take the cut for an end.
    has_reset: bool,
    /// True if some of that has been sent to the egress, which may have acted on it.
    is_committed: bool,
}

/// How a program has said where it wants to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// By the listener that it has connected to: it need not know whether that has worked.
    Listener,
    /// By SOCKS: it waits for the answer.
    Socks,
}

/// A stream that is open at the egress.
struct Opened<'a> {
    carrier: Carrier,
    /// The egress' address towards the target.
    bound: Target,
    prepared: Prepared<'a>,
}

impl From<CarrierError> for NoStream {
    fn from(error: CarrierError) -> Self {
        Self::Carrier(error)
    }
}

impl Client {
    /// Reads what has come, as much as may be held before the stream is open.
    fn read_now(&mut self) {
        let mut piece = [0; 4096];
        while self.reads_early() {
            let room = (EARLY_BYTES_MAX - self.early.len()).min(piece.len());
            match self.local.try_read(&mut piece[..room]) {
                Ok(0) => self.has_ended = true,
                Ok(len) => self.early.extend_from_slice(&piece[..len]),
                Err(error) => {
                    self.has_reset = error.kind() != io::ErrorKind::WouldBlock;
                    return;
                }
            }
        }
    }

    fn reads_early(&self) -> bool {
        !self.has_ended && !self.has_reset && self.early.len() < EARLY_BYTES_MAX
    }
}

/// Why there is no stream for a program.
enum NoStream {
    Refused(Reason, String),
    Carrier(CarrierError),
    /// The egress does not know what it is.
    Unable,
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

    async fn welcome(&self, listener: &Listener, local: TcpStream, from: SocketAddr) {
        let Ok(at) = local.local_addr() else { return };
        let mut client = Client {
            local,
            from,
            listener: at,
            early: Vec::new(),
            has_ended: false,
            has_reset: false,
            is_committed: false,
        };
        let time = self.engine.common.limits.handshake;
        if self.accepts_proxy {
            match tokio::time::timeout(time, read_proxy_header(&mut client)).await {
                Ok(Ok(())) => {}
                Ok(Err(why)) => return self.turn_away(client, &why).await,
                Err(_) => return self.turn_away(client, "it took too long").await,
            }
        }
        match listener {
            Listener::Forward { to, .. } => self.connect(client, to, Way::Listener).await,
            Listener::Transparent { listen } => {
                // Who connects to the listener itself would be sent round in circles.
                if at.port() != listen.port() || !is_own(at, *listen) {
                    return self.connect(client, &Target::at(at), Way::Listener).await;
                }
                self.engine.metrics.client_errors.add(1);
                self.engine.complain(|| {
                    format!("{from} connected to {listen} itself, and not to a target")
                });
            }
            Listener::Socks { .. } => {
                let users = self.fresh().users;
                match tokio::time::timeout(time, negotiate(&mut client, &users)).await {
                    Ok(Ok(Some(target))) => self.connect(client, &target, Way::Socks).await,
                    Ok(Ok(None)) => self.associate(client).await,
                    Ok(Err(why)) => self.turn_away(client, &why).await,
                    Err(_) => self.turn_away(client, "it took too long").await,
                }
            }
        }
    }

    async fn turn_away(&self, client: Client, why: &str) {
        let Client { local, from, .. } = client;
        self.engine.metrics.client_errors.add(1);
        self.engine.complain(|| format!("the client {from} is turned away: {why}"));
        close_politely(local).await;
    }

    /// Opens a stream to a target and runs it; a SOCKS client is notified how that went.
    async fn connect(&self, mut client: Client, target: &Target, way: Way) {
        let about = About { from: client.from, client: None, target: Some(target) };
        let mut opening = Opening::new(target.clone());
        opening.client = Some((client.from, client.listener));
        opening.is_eager = way == Way::Listener;
        let opened = match self.open(Some(&mut client), &opening).await {
            Ok(opened) => opened,
            Err(why) => {
                let reply = self.explain(&about, why);
                if let (Way::Socks, Some(reply)) = (way, reply)
                    && client.local.write_all(&reply.bytes(None)).await.is_ok()
                {
                    close_politely(client.local).await;
                }
                return;
            }
        };
        let _open = Present::new(&self.engine.metrics.connections_open);
        let reply = Reply::Succeeded.bytes(opened.bound.address());
        if way == Way::Socks && client.local.write_all(&reply).await.is_err() {
            return;
        }
        self.run(Local::Tcp(client.local), about, opened).await;
    }

    /// Moves a client's datagrams.
    async fn associate(&self, client: Client) {
        let about = About { from: client.from, client: None, target: None };
        let mut opening = Opening::new(Target { host: Host::Ip([0; 4].into()), port: 1 });
        opening.client = Some((client.from, client.listener));
        opening.is_datagrams = true;
        let (mut association, address) = match Association::new(client.local, client.from).await {
            Ok(made) => made,
            Err(error) => {
                return self
                    .engine
                    .complain(|| format!("no socket for datagrams of {}: {error}", client.from));
            }
        };
        let opened = tokio::select! {
            opened = self.open(None, &opening) => opened,
            () = is_gone(association.control()) => Err(NoStream::Gone),
        };
        let opened = match opened {
            Ok(opened) => opened,
            Err(why) => {
                let reply = self.explain(&about, why);
                let mut control = association.into_control();
                if let Some(reply) = reply
                    && control.write_all(&reply.bytes(None)).await.is_ok()
                {
                    close_politely(control).await;
                }
                return;
            }
        };
        let _open = Present::new(&self.engine.metrics.connections_open);
        let reply = Reply::Succeeded.bytes(Some(address));
        if association.control().write_all(&reply).await.is_ok() {
            self.run(Local::Association(Box::new(association)), about, opened).await;
        }
    }

    async fn run(&self, local: Local, about: About<'_>, opened: Opened<'_>) {
        let Opened { mut carrier, prepared, .. } = opened;
        let is_over = self.engine.stream(local, about, Ok(prepared), &mut carrier).await;
        if is_over && self.pool.size() > 0 {
            self.pool.put(carrier);
        }
    }

    /// Notes why there is no stream, and returns the reply for a SOCKS client; nothing if it has gone.
    fn explain(&self, about: &About<'_>, why: NoStream) -> Option<Reply> {
        let (name, reply) = match why {
            NoStream::Gone => {
                self.engine.metrics.reset.add(1);
                self.engine.log_stream(about, "reset", Duration::ZERO, Moved::default());
                return None;
            }
            NoStream::Unable => {
                self.engine.complain(|| {
                    let egress = &self.egress;
                    format!("the egress {egress} is an earlier version, and takes no datagrams")
                });
                (Reason::Other.name(), Reply::CommandNotSupported)
            }
            NoStream::Refused(reason, text) => {
                self.engine.metrics.refused(reason);
                self.engine.complain(|| match about.target {
                    Some(target) => format!("no stream to {target}: {text}"),
                    None => format!("no stream of datagrams: {text}"),
                });
                (reason.name(), reason.reply())
            }
            NoStream::Carrier(error) => {
                self.engine.metrics.connections_failed.add(1);
                let egress = &self.egress;
                self.engine.complain(|| format!("no connection to the egress {egress}: {error}"));
                ("no_connection", Reply::Failure)
            }
        };
        self.engine.log_stream(about, name, Duration::ZERO, Moved::default());
        Some(reply)
    }

    /// A connection on which the stream has been opened. An egress that is overloaded, or starts again, is
    /// asked again for a while.
    async fn open<'a>(
        &'a self,
        mut client: Option<&mut Client>,
        opening: &Opening,
    ) -> Result<Opened<'a>, NoStream> {
        let since = Instant::now();
        let mut pause = PAUSE.0;
        loop {
            let why = match unless_gone(client.as_deref(), self.connection(since)).await? {
                Ok((carrier, is_new)) => {
                    let asked = self.ask(carrier, opening, client.as_deref_mut()).await;
                    let is_committed = client.as_ref().is_some_and(|client| client.is_committed);
                    match asked {
                        // It was closed while it waited, which nobody noticed before.
                        Err(NoStream::Carrier(CarrierError::Io(_) | CarrierError::Closed))
                            if !is_new && !is_committed =>
                        {
                            continue;
                        }
                        // What the program has said may have arrived: it must not arrive twice.
                        Err(NoStream::Carrier(error)) if is_new && !is_committed => error,
                        other => {
                            self.engine.metrics.connections_reused.add(u64::from(!is_new));
                            return other;
                        }
                    }
                }
                Err(error) => error,
            };
            let patience = if why.is_refused() { REFUSED_PATIENCE } else { PATIENCE };
            let next = Instant::now() + jittered(pause);
            if !why.may_pass() || next > self.calls.deadline(since, patience) {
                return Err(NoStream::Carrier(why));
            }
            self.engine.metrics.connections_retried.add(1);
            unless_gone(client.as_deref(), tokio::time::sleep_until(next.into())).await?;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// What holds for connections and clients that come now.
    fn fresh(&self) -> Fresh {
        self.fresh.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads keys and users again. What is open goes on.
    fn reload(&self) {
        let read = self.reload.read().and_then(|(security, users)| {
            let tls = security::client(&security, Purpose::Streams, &self.host);
            let tls = tls.map_err(|error| error.to_string())?;
            Ok(Fresh { tls, users: users.map_or_else(|| self.fresh().users, Arc::new) })
        });
        match read {
            Ok(fresh) => {
                *self.fresh.write().unwrap_or_else(PoisonError::into_inner) = fresh;
                // They were made with the keys of before.
                self.pool.clear();
                tracing::warn!("keys and users were read again");
            }
            Err(error) => {
                tracing::error!("keys and users stay as they are: {error}");
            }
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

    async fn ask<'a>(
        &'a self,
        mut carrier: Carrier,
        opening: &Opening,
        client: Option<&mut Client>,
    ) -> Result<Opened<'a>, NoStream> {
        let knows_openings = carrier.theirs.features & Hello::OPENING != 0;
        if opening.is_datagrams && !knows_openings {
            self.pool.put(carrier);
            return Err(NoStream::Unable);
        }
        let early = client.as_ref().map_or(&[][..], |client| &client.early[..]);
        let mut prepared = self.engine.prepare(&carrier.theirs, early).map_err(CarrierError::Io)?;
        let is_held = prepared.holds_history();
        let message = match knows_openings {
            true => Message::Opening(Opening { is_held, ..opening.clone() }),
            false => Message::Open(opening.target.clone()),
        };
        let limits = &self.engine.common.limits;
        let is_eager = opening.is_eager && knows_openings;
        let asking = async {
            match client {
                Some(client) if is_eager => {
                    ask_eagerly(&mut carrier, &message, client, &mut prepared.sender).await
                }
                client => Ok(unless_gone(client.as_deref(), carrier.ask(&message)).await??),
            }
        };
        // The egress has its own limit, and says what it was that took too long.
        let answer = tokio::time::timeout(limits.connect + limits.handshake, asking).await;
        let answer = answer.unwrap_or(Err(CarrierError::Expired.into()));
        if is_eager && matches!(answer, Err(NoStream::Gone)) {
            abort(&mut carrier, &mut prepared.sender).await;
        }
        match answer? {
            Message::Opened { bound, is_held } => {
                if is_held {
                    prepared.other_end_holds();
                }
                Ok(Opened { carrier, bound, prepared })
            }
            Message::Refused(reason, text) => {
                if !is_eager {
                    self.pool.put(carrier);
                }
                Err(NoStream::Refused(reason, text))
            }
            _ => Err(CarrierError::from(crate::message::MessageError::Body).into()),
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
        let tls = self.fresh().tls;
        let made = Carrier::connect(&self.egress, tls, &self.engine.hello, time).await;
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
        let (mut warming, mut warming_max) = (JoinSet::new(), 1);
        loop {
            self.pool.tidy();
            while warming.len() < warming_max && self.pool.len() + warming.len() < self.pool.size()
            {
                warming.spawn(Arc::clone(&self).warm());
            }
            let made = tokio::select! {
                Some(made) = warming.join_next() => made,
                _ = tokio::time::timeout(TIDY, self.pool.taken()) => continue,
            };
            let Err(why) = made.unwrap_or_else(|error| Err(error.to_string())) else {
                (pause, warming_max) = (RETRY.0, WARMING_MAX);
                continue;
            };
            // The others are likely to fail as well. Were they cut off, the egress would complain of that, and not of what
            // is wrong.
            while warming.join_next().await.is_some() {}
            warming_max = 1;
            let egress = &self.egress;
            self.engine.complain(|| format!("no connection to the egress {egress}: {why}"));
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY.1);
        }
    }

    /// Makes one more connection for the pool.
    async fn warm(self: Arc<Self>) -> Result<(), String> {
        match self.call(Instant::now()).await {
            Ok(carrier) => match self.pool.put(carrier) {
                true => Ok(()),
                false => Err("the other end closes it as soon as it is made".to_owned()),
            },
            Err(error) => {
                self.engine.metrics.connections_failed.add(1);
                Err(error.to_string())
            }
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

/// Asks for a stream, and sends what its program says meanwhile. So the first bytes arrive with the request,
/// and an answer to them takes one round trip.
async fn ask_eagerly(
    carrier: &mut Carrier,
    message: &Message,
    client: &mut Client,
    sender: &mut Sender,
) -> Result<Message, NoStream> {
    let mut bytes = message.encode();
    let mut known = client.early.len();
    client.read_now();
    loop {
        if client.has_reset {
            return Err(NoStream::Gone);
        }
        sender.accept(&client.early[known..]);
        known = client.early.len();
        client.is_committed |= known > 0;
        uplink::collect(sender, &mut bytes);
        if !bytes.is_empty() {
            carrier.write(&bytes).await.map_err(CarrierError::from)?;
            bytes.clear();
        }
        tokio::select! {
            answer = carrier.read_message() => return Ok(answer?),
            () = is_gone(&client.local) => return Err(NoStream::Gone),
            _ = client.local.readable(), if client.reads_early() => client.read_now(),
        }
    }
}

/// Says to an egress, which may have opened the stream already, that its program has reset its connection. An
/// egress that takes nothing hears it by a reset.
async fn abort(carrier: &mut Carrier, sender: &mut Sender) {
    sender.abort(AbortReason::Reset);
    let mut bytes = Vec::new();
    uplink::collect(sender, &mut bytes);
    let saying = async {
        carrier.write(&bytes).await?;
        // Closing with an answer unread would discard it.
        carrier.drain().await;
        io::Result::Ok(())
    };
    if !matches!(tokio::time::timeout(FAREWELL, saying).await, Ok(Ok(()))) {
        carrier.reset_on_close();
    }
}

/// Gives a permit back.
struct Room<'a>(&'a Semaphore);

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.0.add_permits(1);
    }
}

/// Waits for something, unless the program has gone before.
async fn unless_gone<T>(
    client: Option<&Client>,
    awaited: impl Future<Output = T>,
) -> Result<T, NoStream> {
    let gone = async {
        match client {
            Some(client) => is_gone(&client.local).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        done = awaited => Ok(done),
        () = gone => Err(NoStream::Gone),
    }
}

/// Reads more of what a client says before its stream. `max` is the longest that makes sense.
async fn read_more(client: &mut Client, max: usize) -> Result<(), String> {
    let mut piece = [0; 512];
    let room = max.saturating_sub(client.early.len()).clamp(1, piece.len());
    let len = client.local.read(&mut piece[..room]).await.map_err(|error| error.to_string())?;
    if len == 0 {
        return Err("it went away".to_owned());
    }
    client.early.extend_from_slice(&piece[..len]);
    Ok(())
}

/// Reads for whom a connection is.
async fn read_proxy_header(client: &mut Client) -> Result<(), String> {
    loop {
        if let Some((ends, used)) =
            proxy_header::decode(&client.early).map_err(|error| error.to_string())?
        {
            client.early.drain(..used);
            if let Some((from, listener)) = ends {
                (client.from, client.listener) = (from, listener);
            }
            return Ok(());
        }
        read_more(client, HEADER_BYTES_MAX).await?;
    }
}

/// Asks a SOCKS client where it wants to go; nowhere if it has datagrams. What it has sent beyond that belongs to
/// the stream.
async fn negotiate(client: &mut Client, users: &Users) -> Result<Option<Target>, String> {
    let mut negotiation = Negotiation::new(users);
    loop {
        match negotiation.step(&mut client.early) {
            SocksStep::Connect(target) => return Ok(Some(target)),
            SocksStep::Associate => return Ok(None),
            SocksStep::Say(bytes) => {
                client.local.write_all(&bytes).await.map_err(|error| error.to_string())?;
            }
            SocksStep::Refuse(bytes, why) => {
                // It may be gone already.
                let _ = client.local.write_all(&bytes).await;
                return Err(why.to_string());
            }
            SocksStep::More => read_more(client, CLIENT_BYTES_MAX).await?,
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
