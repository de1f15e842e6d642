//! The end that programs connect to.

use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use dwell_stream::{AbortReason, Sender};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::calls::{Call, Calls, PATIENCE, REFUSED_PATIENCE};
use crate::carrier::{Carrier, CarrierError};
use crate::client::{self, Client, Wish, close_politely, is_gone};
use crate::config::{Ingress, Listener, Reload};
use crate::engine::{self, About, Engine, Prepared, RunError, StopSignals};
use crate::hello::{Hello, Purpose};
use crate::kept::{Kept, Whose};
use crate::listen::{is_own, listen};
use crate::local::{Local, reset_on_close};
use crate::message::{Message, Opening, Reason};
use crate::metrics::Present;
use crate::pool::Pool;
use crate::pump::{FAREWELL, Moved};
use crate::security::{self, Security};
use crate::socks::{Reply, Users};
use crate::target::{Host, Target};
use crate::udp::Association;
use crate::uplink;

/// So many connections are made for the pool at a time, once one was made: eight programs that come at once leave it half empty, and each
/// connection takes some round trips.
const WARMING_MAX: usize = 8;
/// The pause after failures to connect: the first and the longest.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(15));

/// Why a client is turned away that says nothing for too long.
const LATE: &str = "it took too long";
/// The pause before a stream's next attempt to connect: the first and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

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
        let (mut hangup, mut stop) = (signal(SignalKind::hangup())?, StopSignals::new()?);
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
        this.engine.until_stopped(&mut stop).await;
        tasks.shutdown().await;
        this.engine.drain(&mut stop).await;
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

/// How a program has said where it wants to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// By the listener that it has connected to: it need not know whether that has worked.
    Listener,
    /// By SOCKS: it waits for the answer.
    Socks,
}

/// A stream that is open at the egress.
struct Opened {
    carrier: Carrier,
    /// The egress' address towards the target.
    bound: Target,
    prepared: Prepared,
}

impl From<CarrierError> for NoStream {
    fn from(error: CarrierError) -> Self {
        Self::Carrier(error)
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
        let mut client = Client::new(local, from, at);
        let time = self.engine.common.limits.handshake;
        if self.accepts_proxy {
            match tokio::time::timeout(time, client::read_proxy_header(&mut client)).await {
                Ok(Ok(())) => {}
                Ok(Err(why)) => return self.turn_away(client, &why, Way::Listener).await,
                Err(_) => return self.turn_away(client, LATE, Way::Listener).await,
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
                match tokio::time::timeout(time, client::negotiate(&mut client, &users)).await {
                    Ok(Ok(Wish::Stream(target))) => {
                        self.connect(client, &target, Way::Socks).await;
                    }
                    Ok(Ok(Wish::Datagrams(from))) => {
                        // Streams are many and live long: what only these need is no part of them.
                        Box::pin(self.associate(client, from)).await;
                    }
                    Ok(Err(why)) => self.turn_away(client, &why, Way::Socks).await,
                    Err(_) => self.turn_away(client, LATE, Way::Socks).await,
                }
            }
        }
    }

    /// Closes without a stream. What a client of SOCKS was answered still arrives; any other program must not take
    /// this for the end of a stream without bytes.
    async fn turn_away(&self, client: Client, why: &str, way: Way) {
        let Client { local, from, .. } = client;
        self.engine.metrics.client_errors.add(1);
        self.engine.complain(|| format!("the client {from} is turned away: {why}"));
        if way == Way::Socks {
            close_politely(local).await;
        }
    }

    /// Opens a stream to a target and runs it; a SOCKS client is notified how that went.
    async fn connect(&self, mut client: Client, target: &Target, way: Way) {
        let _lent = self.pool.lend();
        let about = About { from: client.from, client: None, target: Some(target) };
        let mut opening = Opening::new(target.clone());
        opening.client = Some((client.from, client.listener));
        opening.is_eager = way == Way::Listener;
        // What opening holds is no part of a stream that is open.
        let opened = match Box::pin(self.open(Some(&mut client), &opening)).await {
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
            return self.gone(&about);
        }
        self.run(Local::Tcp(client.local), about, Box::new(opened)).await;
    }

    /// Moves a client's datagrams.
    async fn associate(&self, client: Client, from: Option<SocketAddr>) {
        let _lent = self.pool.lend();
        let about = About { from: client.from, client: None, target: None };
        let mut opening = Opening::new(Target { host: Host::Ip([0; 4].into()), port: 1 });
        opening.client = Some((client.from, client.listener));
        opening.is_datagrams = true;
        let (mut association, address) = match Association::new(client.local, client.from, from)
            .await
        {
            Ok(made) => made,
            Err((mut control, error)) => {
                self.engine
                    .complain(|| format!("no socket for datagrams of {}: {error}", client.from));
                if control.write_all(&Reply::Failure.bytes(None)).await.is_ok() {
                    close_politely(control).await;
                }
                return;
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
        match association.control().write_all(&reply).await {
            Ok(()) => {
                let local = Local::Association(Box::new(association));
                self.run(local, about, Box::new(opened)).await;
            }
            Err(_) => self.gone(&about),
        }
    }

    /// Runs a stream that is open. (A box, since arguments of asynchronous functions are held twice.)
    async fn run(&self, local: Local, about: About<'_>, opened: Box<Opened>) {
        let Opened { mut carrier, prepared, .. } = *opened;
        let is_over = self.engine.stream(local, about, Ok(prepared), &mut carrier).await;
        if is_over && self.pool.size() > 0 {
            self.pool.give_back(carrier);
        }
    }

    /// Counts a stream whose program reset its connection before it was open here, as it may be at the egress.
    fn gone(&self, about: &About<'_>) {
        self.engine.metrics.streams_opened.add(1);
        self.engine.metrics.reset.add(1);
        self.engine.log_stream(about, "reset", Duration::ZERO, Moved::default());
    }

    /// Notes why there is no stream, and returns the reply for a SOCKS client; nothing if it has gone.
    fn explain(&self, about: &About<'_>, why: NoStream) -> Option<Reply> {
        let (name, reply) = match why {
            NoStream::Gone => {
                self.gone(about);
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
                self.engine.metrics.failed(&error);
                let egress = &self.egress;
                self.engine.complain(|| format!("no connection to the egress {egress}: {error}"));
                (self.engine.metrics.unconnected(&error), Reply::Failure)
            }
        };
        self.engine.log_stream(about, name, Duration::ZERO, Moved::default());
        Some(reply)
    }

    /// A connection on which the stream has been opened. An egress that is overloaded, or starts again, is
    /// asked again for a while.
    async fn open(
        &self,
        mut client: Option<&mut Client>,
        opening: &Opening,
    ) -> Result<Opened, NoStream> {
        let since = Instant::now();
        let mut pause = PAUSE.0;
        let whose = self.whose(client.as_deref(), opening);
        loop {
            let connection = self.connection(since, whose.as_ref());
            let why = match unless_gone(client.as_deref(), connection).await? {
                Ok((carrier, is_new)) => {
                    let asking = client.as_deref_mut();
                    let asked = self.ask(carrier, opening, asking, whose.as_ref()).await;
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

    /// Whose streams this one may refer to; none if that is no matter.
    fn whose(&self, client: Option<&Client>, opening: &Opening) -> Option<Whose> {
        let client = client?;
        let earlier = self.engine.common.compressing.earlier;
        earlier.whose(client.from.ip(), client.user.as_deref(), &opening.target)
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
    async fn connection(
        &self,
        since: Instant,
        whose: Option<&Whose>,
    ) -> Result<(Carrier, bool), CarrierError> {
        if self.pool.size() == 0 {
            return self.call(since).await.map(|carrier| (carrier, true));
        }
        let turn = tokio::select! {
            biased;
            carrier = self.pool.wait(whose) => return Ok((carrier, false)),
            turn = self.calls.turn(since) => turn,
        };
        self.call_in_turn(turn).await.map(|carrier| (carrier, true))
    }

    async fn ask(
        &self,
        mut carrier: Carrier,
        opening: &Opening,
        client: Option<&mut Client>,
        whose: Option<&Whose>,
    ) -> Result<Opened, NoStream> {
        let knows_openings = carrier.theirs.features & Hello::OPENING != 0;
        if opening.is_datagrams && !knows_openings {
            self.pool.put(carrier);
            return Err(NoStream::Unable);
        }
        let early = client.as_ref().map_or(&[][..], |client| &client.early[..]);
        let from = client.as_ref().map(|client| (client.from.ip(), client.user.as_deref()));
        let topic = self.engine.topics.of(from, &opening.target);
        let goes_on = |kept: &Kept| !opening.is_datagrams && kept.whose.as_ref() == whose;
        let mut prepared =
            self.engine.prepare(&mut carrier, early, topic, goes_on).map_err(CarrierError::Io)?;
        let (is_held, goes_on) = (prepared.holds_history(), prepared.goes_on);
        let may_keep = !opening.is_datagrams && self.pool.size() > 0;
        let asks_to_keep = may_keep && self.engine.may_keep(&carrier, &prepared);
        let message = match knows_openings {
            true => Message::Opening(Opening {
                is_held,
                goes_on,
                is_kept: asks_to_keep,
                ..opening.clone()
            }),
            false => Message::Open(opening.target.clone()),
        };
        let limits = &self.engine.common.limits;
        let is_eager = opening.is_eager && knows_openings;
        let mut is_asked = false;
        let asking = async {
            match client {
                Some(client) if is_eager => {
                    let sender = &mut prepared.sender;
                    self.engine.report(&mut carrier, sender);
                    ask_eagerly(&mut carrier, &message, client, sender, &mut is_asked).await
                }
                client => Ok(unless_gone(client.as_deref(), carrier.ask(&message)).await??),
            }
        };
        // The egress has its own limit, and says what it was that took too long.
        let answer = tokio::time::timeout(limits.connect + limits.handshake, asking).await;
        let answer = answer.unwrap_or(Err(CarrierError::Expired.into()));
        match answer {
            Err(NoStream::Gone) if is_asked => abort(&mut carrier, &mut prepared.sender).await,
            // The connection is as it was.
            Err(NoStream::Gone) if is_eager => {
                self.pool.put(carrier);
                return Err(NoStream::Gone);
            }
            _ => {}
        }
        match answer? {
            Message::Opened { bound, is_held, is_kept } => {
                if is_held {
                    prepared.other_end_holds();
                }
                if is_kept && asks_to_keep {
                    prepared.keep(whose.cloned());
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
        let begun = Instant::now();
        let made = Carrier::connect(&self.egress, tls, &self.engine.hello, time).await;
        match &made {
            Ok(_) => {
                self.pool.made(begun.elapsed());
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
            while warming.len() < warming_max.min(self.pool.missing()) {
                warming.spawn(Arc::clone(&self).warm());
            }
            let made = tokio::select! {
                Some(made) = warming.join_next() => made,
                _ = tokio::time::timeout(self.pool.next_look(), self.pool.taken()) => continue,
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
                self.engine.metrics.failed(&error);
                Err(error.to_string())
            }
        }
    }
}

/// Something between a half and the whole, so that those who failed together don't come back
/// together.
fn jittered(time: Duration) -> Duration {
    let random = RandomState::new().hash_one(0) % 1024;
    time / 2 + time * random as u32 / 2048
}

/// Asks for a stream, and sends what its program says meanwhile. So the first bytes arrive with the request,
/// and an answer to them takes one round trip. `is_asked` says whether any of it may be on its way.
async fn ask_eagerly(
    carrier: &mut Carrier,
    message: &Message,
    client: &mut Client,
    sender: &mut Sender,
    is_asked: &mut bool,
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
            *is_asked = true;
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
        std::io::Result::Ok(())
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
        biased;
        () = gone => Err(NoStream::Gone),
        done = awaited => Ok(done),
    }
}
