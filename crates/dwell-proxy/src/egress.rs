//! The end that connects onward.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;

use crate::allow::{Access, AllowList};
use crate::carrier::{Carrier, CarrierError};
use crate::config::{Egress, Reload};
use crate::engine::{self, About, Engine, RunError, StopSignals};
use crate::hello::Purpose;
use crate::local::{Local, reset_on_close};
use crate::message::{Message, MessageError, Opening, Reason};
use crate::metrics::Present;
use crate::names;
use crate::pool::WARM_TIME;
use crate::proxy_header;
use crate::pump::{FAREWELL, Moved};
use crate::reception::{Admitted, Reception};
use crate::security::{self, Acceptor, Security};
use crate::target::{Host, Target};
use crate::udp::Outlet;

/// A stream waits this long for room: at the ingress one may have ended a moment before it does
/// here.
const ROOM_TIME: Duration = Duration::from_secs(1);

/// Runs an egress until the process is asked to stop. `ready` is notified where it listens.
///
/// # Errors
/// It can't start.
pub fn run_egress(config: Egress, ready: impl FnOnce(&[String])) -> Result<(), RunError> {
    config.check()?;
    let tls = security::server(&config.common.security, Purpose::Streams)?;
    let listener = crate::listen::bind_listen(config.listen)?;
    // Whoever finds it knows that the port is open.
    let status = engine::status_socket(&config.common)?;
    let confined = engine::confine(&config.common, status.as_ref())?;
    engine::run(async move {
        let listener = TcpListener::from_std(listener)?;
        let engine = Engine::new(config.common, confined)?;
        let shown = vec![listener.local_addr()?.to_string()];
        let (mut hangup, mut stop) = (signal(SignalKind::hangup())?, StopSignals::new()?);
        ready(&shown);
        let descriptors = engine.common.limits.descriptors_max;
        let this = Arc::new(Running {
            reception: Reception::new(Egress::handshakes_max(descriptors)),
            // Besides those with a stream there are warm ones.
            connections: Semaphore::new(engine.streams_max + Egress::warm_max(descriptors)),
            streams: Semaphore::new(engine.streams_max),
            fresh: RwLock::new(Fresh { tls, allow: Arc::new(config.allow) }),
            send_proxy: config.send_proxy,
            reload: config.reload,
            shown,
            engine,
        });
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(Arc::clone(&this).serve(listener));
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

/// An egress at work.
struct Running {
    engine: Engine,
    fresh: RwLock<Fresh>,
    send_proxy: AllowList,
    reload: Reload<(Security, AllowList)>,
    reception: Reception,
    connections: Semaphore,
    streams: Semaphore,
    shown: Vec<String>,
}

/// What can be read again.
#[derive(Clone)]
struct Fresh {
    tls: Option<Acceptor>,
    allow: Arc<AllowList>,
}

impl Running {
    /// What holds for connections and streams that begin now.
    fn fresh(&self) -> Fresh {
        self.fresh.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads keys and targets again. What is open goes on.
    fn reload(&self) {
        let read = self.reload.read().and_then(|(security, allow)| {
            let tls = security::server(&security, Purpose::Streams).map_err(|e| e.to_string())?;
            if allow.is_empty() {
                return Err("nothing would be allowed".to_owned());
            }
            Ok(Fresh { tls, allow: Arc::new(allow) })
        });
        match read {
            Ok(fresh) => {
                *self.fresh.write().unwrap_or_else(PoisonError::into_inner) = fresh;
                tracing::warn!("keys and targets were read again");
            }
            Err(error) => {
                tracing::error!("keys and targets stay as they are: {error}");
            }
        }
    }

    fn status(&self) -> dwell_report::ProxyStatus {
        let open = self.engine.metrics.connections_open.get();
        let busy = self.engine.metrics.streams_open.get();
        let warm = usize::try_from(open.saturating_sub(busy)).unwrap_or_default();
        let mut status = self.engine.status("egress", warm);
        status.listens.clone_from(&self.shown);
        status.connections.handshakes = self.reception.len() as u64;
        status
    }

    async fn serve(self: Arc<Self>, listener: TcpListener) {
        loop {
            let (tcp, peer) = self.engine.accept(&listener).await;
            let admitted = self.reception.admit(peer).await;
            let this = Arc::clone(&self);
            tokio::spawn(async move {
                this.welcome(admitted, tcp, peer).await;
                this.engine.descriptor_freed();
            });
        }
    }

    async fn welcome(&self, admitted: Admitted, tcp: TcpStream, peer: SocketAddr) {
        let time = self.engine.common.limits.handshake;
        let tls = self.fresh().tls;
        let accepted =
            self.reception.welcome(admitted, tcp, peer, tls, &self.engine.hello, time).await;
        match accepted {
            Ok(carrier) => {
                let Ok(_place) = self.connections.try_acquire() else {
                    // It has shown the key.
                    self.engine.complain(|| format!("{peer} is rejected: too many connections"));
                    return;
                };
                let _open = Present::new(&self.engine.metrics.connections_open);
                self.engine.metrics.connections_made.add(1);
                if let Err(error) = self.serve_streams(carrier).await {
                    self.engine.complain(|| format!("{peer} is cut off: {error}"));
                }
            }
            // Whoever only looks whether somebody listens is no unknown peer, and an ingress whose program goes neither.
            Err(error @ (CarrierError::Closed | CarrierError::Left)) => {
                tracing::debug!("{peer}: {error}");
            }
            Err(error) => {
                if matches!(error, CarrierError::Evicted) {
                    self.engine.metrics.evicted.add(1);
                }
                self.engine.unknown_peer(peer, &error);
            }
        }
    }

    /// One stream after the other, until the ingress closes the connection.
    async fn serve_streams(&self, mut carrier: Carrier) -> Result<(), CarrierError> {
        let mut streams = 0u64;
        loop {
            // Longer than the ingress keeps it.
            let next = tokio::time::timeout(2 * WARM_TIME, carrier.read_message()).await;
            let opening = match next {
                Ok(Ok(Message::Open(target))) => Opening::new(target),
                Ok(Ok(Message::Opening(opening))) => opening,
                Ok(Ok(_)) => return Err(MessageError::Body.into()),
                Ok(Err(CarrierError::Message(error))) => return Err(error.into()),
                // The ingress has closed it, or is gone.
                Ok(Err(_)) | Err(_) => return Ok(()),
            };
            if streams > 0 {
                self.engine.metrics.connections_reused.add(1);
            }
            streams += 1;
            if !self.serve_stream(&mut carrier, &opening).await? {
                return Ok(());
            }
        }
    }

    /// Returns true if there may be another stream after it.
    async fn serve_stream(
        &self,
        carrier: &mut Carrier,
        opening: &Opening,
    ) -> Result<bool, CarrierError> {
        let Some(_room) = self.engine.room(&self.streams, Some(ROOM_TIME)).await else {
            let text =
                format!("the egress has {} streams, and may have no more", self.engine.streams_max);
            return self.refuse(carrier, opening, Reason::Full, &text).await;
        };
        let opened = match opening.is_datagrams {
            true => Ok(self.outlet()),
            false => self.connect(opening).await,
        };
        match opened {
            Ok((local, bound)) => {
                let topic = self.engine.topics.of_opening(opening);
                let mut prepared = self.engine.prepare(carrier, &[], topic, |_| opening.goes_on);
                let (mut is_held, mut is_kept) = (false, false);
                if let (true, Ok(prepared)) = (opening.is_held, &mut prepared) {
                    prepared.other_end_holds();
                    is_held = prepared.holds_history();
                    is_kept = opening.is_kept && self.engine.may_keep(carrier, prepared);
                    if is_kept {
                        // The ingress knows whose it is.
                        prepared.keep(None);
                    }
                    if opening.goes_on && !prepared.goes_on {
                        return Err(MessageError::Body.into());
                    }
                }
                if opening.is_eager {
                    // Nobody waits for this: it goes with the first bytes of the target, if they are there soon.
                    carrier.hold();
                }
                if !is_heard(
                    carrier
                        .say(&Message::Opened { bound: Target::at(bound), is_held, is_kept })
                        .await,
                )? {
                    return Ok(false);
                }
                let about = About {
                    from: carrier.peer,
                    client: opening.client.map(|(client, _)| client),
                    target: (!opening.is_datagrams).then_some(&opening.target),
                };
                Ok(self.engine.stream(local, about, prepared, carrier).await)
            }
            Err((reason, text)) => self.refuse(carrier, opening, reason, &text).await,
        }
    }

    /// Sockets for datagrams, which have a target each; there is none yet.
    fn outlet(&self) -> (Local, SocketAddr) {
        // The ingress takes an address only with a port.
        let nowhere = SocketAddr::from(([0; 4], 1));
        (Local::Outlet(Box::new(Outlet::new(self.fresh().allow))), nowhere)
    }

    /// Connects to a stream's target, and says there whom it is for, if that is wanted.
    async fn connect(&self, opening: &Opening) -> Result<(Local, SocketAddr), Refusal> {
        let (target, allow) = (&opening.target, self.fresh().allow);
        let time = self.engine.common.limits.connect;
        let connected = tokio::time::timeout(time, connect(target, &allow)).await;
        let late = || (Reason::Expired, format!("{target} did not answer within {time:?}"));
        let mut local = connected.unwrap_or_else(|_| Err(late()))?;
        // A stream that does not come about is no stream without bytes.
        reset_on_close(&local, true).map_err(|error| explain(target, &error))?;
        let bound = local.local_addr().map_err(|error| explain(target, &error))?;
        if self.wants_proxy_header(&local, target) {
            // An ingress that does not know it opens streams of its own.
            let ends = opening.client.unwrap_or((bound, bound));
            let header = proxy_header::encode(ends);
            local.write_all(&header).await.map_err(|error| explain(target, &error))?;
        }
        Ok((Local::Tcp(local), bound))
    }

    fn wants_proxy_header(&self, local: &TcpStream, target: &Target) -> bool {
        match self.send_proxy.check(&target.host, target.port) {
            Access::Yes => true,
            Access::No => false,
            Access::IfAddress => local
                .peer_addr()
                .is_ok_and(|peer| self.send_proxy.allows_address(peer.ip(), peer.port())),
        }
    }

    /// Returns true if the connection can be used again.
    async fn refuse(
        &self,
        carrier: &mut Carrier,
        opening: &Opening,
        reason: Reason,
        text: &str,
    ) -> Result<bool, CarrierError> {
        let target = &opening.target;
        // The ingress does not go on with it any more.
        carrier.kept = None;
        self.engine.metrics.refused(reason);
        tracing::info!("no stream to {target} for {}: {text}", carrier.peer);
        let client = opening.client.map(|(client, _)| client);
        let about = About { from: carrier.peer, client, target: Some(target) };
        self.engine.log_stream(&about, reason.name(), Duration::ZERO, Moved::default());
        if !is_heard(carrier.say(&Message::Refused(reason, text.to_owned())).await)? {
            return Ok(false);
        }
        if opening.is_eager {
            // Bytes of a stream that there is not are on their way. Closing now would reset the connection,
            // and the reason with it.
            let _ = tokio::time::timeout(FAREWELL, carrier.drain()).await;
        }
        Ok(!opening.is_eager)
    }
}

/// Returns false if an ingress went away before it had its answer, as one does whose program did.
fn is_heard(said: Result<(), CarrierError>) -> Result<bool, CarrierError> {
    match said {
        Ok(()) => Ok(true),
        Err(CarrierError::Io(_) | CarrierError::Closed) => Ok(false),
        Err(error) => Err(error),
    }
}

type Refusal = (Reason, String);

/// Connects to a target, if it is allowed.
async fn connect(target: &Target, allow: &AllowList) -> Result<TcpStream, Refusal> {
    let not_allowed = || {
        (Reason::NotAllowed, format!("{target} is not among the targets that the egress allows"))
    };
    let access = allow.check(&target.host, target.port);
    let addresses: Vec<SocketAddr> = match (&target.host, access) {
        (_, Access::No) => return Err(not_allowed()),
        (Host::Ip(ip), _) => vec![SocketAddr::new(*ip, target.port)],
        (Host::Name(name), _) => names::look_up(name.clone(), target.port)
            .await
            .map_err(|error| (Reason::NoSuchHost, format!("{name} has no address: {error}")))?
            .into_iter()
            .filter(|address| {
                access == Access::Yes || allow.allows_address(address.ip(), target.port)
            })
            .collect(),
    };
    let mut refusal = not_allowed();
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(tcp) => return Ok(tcp),
            Err(error) => refusal = explain(target, &error),
        }
    }
    Err(refusal)
}

fn explain(target: &Target, error: &io::Error) -> Refusal {
    let reason = match error.kind() {
        io::ErrorKind::ConnectionRefused => Reason::Refused,
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Reason::Unreachable,
        io::ErrorKind::TimedOut => Reason::Expired,
        _ => Reason::Other,
    };
    (reason, format!("{target} can't be connected to: {error}"))
}
