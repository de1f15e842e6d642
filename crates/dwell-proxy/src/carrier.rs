//! A connection between the two proxies: TCP, TLS around it if it is protected, and after the
//! hellos one message or stream after the other.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use dwell_base::Secret;
use dwell_stream::{LinkReport, Trains};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream, server};

use crate::ahead::Ahead;
use crate::congestion::{self, Pauses};
use crate::early_data::calling::Calling;
use crate::early_data::{CLAIM_BYTES, EarlyDataError, Splitter};
use crate::hello::{HELLO_BYTES_MAX, Hello, HelloError};
use crate::kept::Kept;
use crate::message::{Message, MessageError};
use crate::security::Acceptor;
use crate::target::{Host, Target};

/// Whoever is refused has this long to read why.
const LINGER: Duration = Duration::from_secs(1);
/// A handshake over a shorter way is waited for: what goes early is less well protected. (No way of a test is so long.)
const EARLY_ROUND_TRIP_NS: u64 = if cfg!(test) { 0 } else { 5_000_000 };
/// Another pace is set if it differs by so much: each time is a system call.
const PACE_STEP: f64 = 0.01;

/// Why a connection between the two proxies can't be had, or used any longer.
#[derive(Debug, Error)]
pub(crate) enum CarrierError {
    #[error("{0}")]
    Io(io::Error),
    #[error(
        "the keys of the two ends differ: copy the --psk file of one machine to the other, and use \
         it at both"
    )]
    OtherKey,
    #[error(
        "the two ends are protected in different ways: both need the shared key (--psk), or both \
         need certificates (--cert, --cert-key and --ca)"
    )]
    OtherProtection,
    #[error(
        "it does not speak TLS: it is no dwell proxy, or one that runs without --psk and \
         certificates"
    )]
    Unprotected,
    #[error("no address is known for {0}")]
    NoAddress(Host),
    #[error("the other end did not answer in time")]
    Expired,
    #[error("the other end closed the connection")]
    Closed,
    /// Known, as it has shown the key, or somebody has from where it is.
    #[error("it went away before it was served")]
    Left,
    #[error(transparent)]
    EarlyData(#[from] EarlyDataError),
    #[error("too many have connected that did not show that they know the key")]
    Evicted,
    #[error(transparent)]
    Hello(#[from] HelloError),
    #[error(transparent)]
    Message(#[from] MessageError),
}

impl CarrierError {
    /// Returns true if another attempt may succeed: the other end is overloaded, restarts, or the
    /// link was cut.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Io(error) => error.kind() != io::ErrorKind::InvalidData,
            Self::Expired | Self::Closed => true,
            _ => false,
        }
    }

    /// Returns true if the other end has gone, and has said nothing that is wrong.
    pub(crate) fn is_cut(&self) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        let is_cut = |kind| matches!(kind, BrokenPipe | ConnectionReset | UnexpectedEof);
        matches!(self, Self::Closed) || matches!(self, Self::Io(error) if is_cut(error.kind()))
    }

    /// Returns true if nobody listens there.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused)
    }
}

/// TLS reports its errors as I/O errors; those that an operator can do something about have words
/// of their own.
impl From<io::Error> for CarrierError {
    fn from(error: io::Error) -> Self {
        use rustls::{AlertDescription, CertificateError, InvalidMessage, PeerIncompatible};
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match tls {
            // The end that finds another public key than that of the shared key sends this alert to
            // the other one; nothing else does.
            Some(
                rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)
                | rustls::Error::AlertReceived(AlertDescription::AccessDenied),
            ) => Self::OtherKey,
            Some(
                rustls::Error::PeerIncompatible(
                    PeerIncompatible::IncorrectCertificateTypeExtension
                    | PeerIncompatible::UnsolicitedCertificateTypeExtension,
                )
                | rustls::Error::AlertReceived(AlertDescription::HandshakeFailure),
            ) => Self::OtherProtection,
            Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
                Self::Unprotected
            }
            _ => Self::Io(error),
        }
    }
}

/// A connection that is ready for messages.
#[derive(Debug)]
pub(crate) struct Carrier {
    io: Io,
    /// Bytes that were read and belong to what comes next.
    pub(crate) rest: Vec<u8>,
    /// The hello of the other end.
    pub(crate) theirs: Hello,
    /// Its address.
    pub(crate) peer: SocketAddr,
    /// What its streams have shown of the link, one after another.
    trains: Trains,
    pauses: Pauses,
    /// The rate to which it is paced, in bytes a second, if it is.
    pace: Option<f64>,
    /// The kernel spreads what is written since it was paced once, and will for good.
    spreads: bool,
    /// What is written waits for more.
    is_holding: bool,
    /// What its last stream has left for the next.
    pub(crate) kept: Option<Kept>,
    /// Something may have gone before the handshake had ended.
    went_early: bool,
    /// Something has come from the other end.
    has_answered: bool,
    /// Why it is no connection, after something was written to it.
    failed: Option<NotEstablished>,
}

/// Why a connection was written to and is none, after all.
#[derive(Debug)]
pub(crate) struct NotEstablished {
    pub(crate) error: CarrierError,
    /// Something may have gone early: the other end may be an earlier program.
    pub(crate) was_early: bool,
}

/// What may go before the handshake has ended.
#[derive(Debug)]
pub(crate) struct Early {
    pub(crate) secret: Secret,
    /// The longest time for the handshake.
    pub(crate) time: Duration,
}

#[derive(Debug)]
enum Io {
    Plain(TcpStream),
    Tls(Box<TlsStream<Ahead>>),
    /// TLS's handshake is under way.
    Calling(Box<Calling>),
}

impl Carrier {
    /// Whose other end has not said its hello yet.
    fn of(io: Io, peer: SocketAddr, ours: &Hello) -> Self {
        Self {
            io,
            rest: Vec::new(),
            theirs: ours.clone(),
            peer,
            trains: Trains::default(),
            pauses: Pauses::default(),
            pace: None,
            spreads: false,
            is_holding: false,
            kept: None,
            went_early: false,
            has_answered: false,
            failed: None,
        }
    }

    /// Connects to an egress.
    pub(crate) async fn connect(
        to: &Target,
        tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
        ours: &Hello,
        time: Duration,
    ) -> Result<Self, CarrierError> {
        let connecting = async {
            let mut carrier = Self::begin(to, tls, None, ours, &[]).await?;
            carrier.meet(ours).await?;
            Ok(carrier)
        };
        tokio::time::timeout(time, connecting).await.map_err(|_| CarrierError::Expired)?
    }

    /// Connects, and says a hello and what is to follow it at once, without waiting for the other end's:
    /// [`Carrier::meet`] does that. The other end has shown the key already, unless all that may go early and the round trip
    /// is long: then the handshake goes on while the connection is used.
    pub(crate) async fn begin(
        to: &Target,
        tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
        early: Option<Early>,
        ours: &Hello,
        first: &[u8],
    ) -> Result<Self, CarrierError> {
        let tcp = connect(to).await?;
        let peer = tcp.peer_addr()?;
        tune(&tcp, true)?;
        let round_trip_ns =
            || Some(crate::tcp_info::link_report(tcp.as_fd(), false)?.round_trip_ns);
        let early = early.filter(|_| round_trip_ns() >= Some(EARLY_ROUND_TRIP_NS));
        let io = match (tls, early) {
            (None, _) => Io::Plain(tcp),
            (Some(tls), Some(Early { secret, time })) => {
                Io::Calling(Box::new(Calling::new(tcp, tls, &secret, time)?))
            }
            (Some((config, name)), None) => {
                let stream = TlsConnector::from(config).connect(name, Ahead::new(tcp)).await?;
                Io::Tls(Box::new(TlsStream::Client(stream)))
            }
        };
        let mut carrier = Self::of(io, peer, ours);
        match carrier.write(&[&ours.encode(), first].concat()).await {
            // Who uses it finds out why.
            Err(_) if carrier.failed.is_some() => Ok(carrier),
            written => Ok(written.map(|()| carrier)?),
        }
    }

    /// Reads the other end's hello.
    pub(crate) async fn meet(&mut self, ours: &Hello) -> Result<(), CarrierError> {
        self.theirs = self.read_hello().await?;
        Ok(ours.agree(&self.theirs)?)
    }

    /// The same of what has been read already; false if it is not whole yet.
    pub(crate) fn meets(&mut self, ours: &Hello) -> Result<bool, CarrierError> {
        let Some((hello, used)) = Hello::decode(&self.rest)? else { return Ok(false) };
        self.rest.drain(..used);
        self.theirs = hello;
        ours.agree(&self.theirs)?;
        Ok(true)
    }

    /// Takes in whoever has connected. Without the key nobody gets further than TLS's handshake.
    pub(crate) async fn accept(
        tcp: TcpStream,
        peer: SocketAddr,
        tls: Option<Acceptor>,
        ours: &Hello,
        time: Duration,
    ) -> Result<Self, CarrierError> {
        let accepting = async {
            tune(&tcp, true)?;
            let (io, has_key, rest) = match tls {
                None => (Io::Plain(tcp), false, Vec::new()),
                Some(acceptor) => {
                    let stream = shake(tcp, acceptor).await?;
                    let (stream, rest) = known(claimed(stream).await)?;
                    (Io::Tls(Box::new(stream)), true, rest)
                }
            };
            let mut carrier = Self::of(io, peer, ours);
            carrier.rest = rest;
            let answered = carrier.answer(ours).await.map(|()| carrier);
            if has_key { known(answered) } else { answered }
        };
        tokio::time::timeout(time, accepting).await.map_err(|_| CarrierError::Expired)?
    }

    /// Reads the hello of who has connected, and answers it.
    async fn answer(&mut self, ours: &Hello) -> Result<(), CarrierError> {
        self.theirs = self.read_hello().await?;
        if let Err(error) = ours.agree(&self.theirs) {
            let refusal = Hello::refusal(ours.purpose, &error.to_string());
            self.write(&refusal.encode()).await?;
            // Files may follow at once: closed with them unread, the refusal would be lost.
            let _ = tokio::time::timeout(LINGER, self.drain()).await;
            return Err(error.into());
        }
        Ok(self.write(&ours.encode()).await?)
    }

    async fn read_hello(&mut self) -> Result<Hello, CarrierError> {
        loop {
            if let Some((hello, used)) = Hello::decode(&self.rest)? {
                self.rest.drain(..used);
                return Ok(hello);
            }
            self.read_more(HELLO_BYTES_MAX).await?;
        }
    }

    /// The next message.
    pub(crate) async fn read_message(&mut self) -> Result<Message, CarrierError> {
        loop {
            if let Some((message, used)) = Message::decode(&self.rest)? {
                self.rest.drain(..used);
                return Ok(message);
            }
            self.read_more(crate::message::MESSAGE_BYTES_MAX).await?;
        }
    }

    /// Reads something behind what is there already.
    async fn read_more(&mut self, bytes_max: usize) -> Result<(), CarrierError> {
        let mut piece = [0; 4096];
        let room = bytes_max.saturating_sub(self.rest.len()).clamp(1, piece.len());
        let len = self.read(&mut piece[..room]).await?;
        if len == 0 {
            return Err(CarrierError::Closed);
        }
        self.rest.extend_from_slice(&piece[..len]);
        Ok(())
    }

    /// Writes a message and reads the answer.
    pub(crate) async fn ask(&mut self, message: &Message) -> Result<Message, CarrierError> {
        self.say(message).await?;
        self.read_message().await
    }

    /// Reads whatever comes, until the other end closes.
    pub(crate) async fn drain(&mut self) {
        let mut piece = [0; 4096];
        while matches!(self.read(&mut piece).await, Ok(1..)) {}
    }

    /// Writes a message.
    pub(crate) async fn say(&mut self, message: &Message) -> Result<(), CarrierError> {
        Ok(self.write(&message.encode()).await?)
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes).await?;
        self.flush().await
    }

    /// Ready if the connection takes bytes at present, and holds none of those that it took
    /// before.
    pub(crate) fn poll_free(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.settle(cx)?;
        match &mut self.io {
            Io::Plain(tcp) => tcp.poll_write_ready(cx),
            Io::Calling(calling) => calling.poll_free(cx),
            Io::Tls(tls) => {
                ready!(Pin::new(&mut **tls).poll_flush(cx))?;
                tls.get_ref().0.tcp().poll_write_ready(cx)
            }
        }
    }

    /// Ready if something may have come that was not read yet. Only for who has read until there was nothing.
    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.tcp().poll_read_ready(cx)
    }

    /// Sets how many bytes the kernel holds at most that it has not sent: the rest waits where it can
    /// still be compressed.
    pub(crate) fn hold_unsent(&self, len: u32) -> io::Result<()> {
        SockRef::from(self.tcp()).set_tcp_notsent_lowat(len)
    }

    /// Has the kernel send at most so many bytes a second.
    pub(crate) fn pace(&mut self, rate: Option<f64>) {
        let is_close = |(rate, before): (f64, f64)| (rate - before).abs() <= PACE_STEP * before;
        if rate.is_none() && self.pace.is_none() || rate.zip(self.pace).is_some_and(is_close) {
            return;
        }
        self.pace = rate;
        self.spreads |= !congestion::paces(self.tcp());
        if let Err(error) = crate::pace::set(self.tcp().as_fd(), rate) {
            tracing::debug!("a connection can't be paced: {error}");
        }
    }

    /// Has the kernel keep what does not fill a segment until there is more, or [`Carrier::release`] is called.
    pub(crate) fn hold(&mut self) {
        self.is_holding = SockRef::from(self.tcp()).set_tcp_cork(true).is_ok();
    }

    /// Has it sent.
    pub(crate) fn release(&mut self) -> io::Result<()> {
        match std::mem::take(&mut self.is_holding) {
            true => SockRef::from(self.tcp()).set_tcp_cork(false),
            false => Ok(()),
        }
    }

    pub(crate) const fn is_holding(&self) -> bool {
        self.is_holding
    }

    /// Returns what TCP says of the link.
    pub(crate) fn link_report(&mut self) -> Option<LinkReport> {
        let mut report = crate::tcp_info::link_report(self.tcp().as_fd(), self.is_holding)?;
        // What is not sent at once shows nothing.
        if !self.spreads {
            self.trains.reported(crate::clock::now(), &mut report);
        }
        Some(report)
    }

    /// Returns the bytes that wait here for TCP to send them, or were not confirmed yet.
    pub(crate) fn pending_bytes(&self) -> Option<u64> {
        Some(crate::tcp_info::link_report(self.tcp().as_fd(), self.is_holding)?.pending_bytes)
    }

    /// Has TCP look for the link's rate as if the connection were new, if nothing is on its way.
    fn begin_again(&self, pause_ns: u64) {
        let report = crate::tcp_info::link_report(self.tcp().as_fd(), self.is_holding);
        let is_due = |report: LinkReport| {
            report.pending_bytes == 0 && congestion::is_out_of_date(pause_ns, report.round_trip_ns)
        };
        if report.is_some_and(is_due)
            && let Err(error) = congestion::begin_again(self.tcp())
        {
            tracing::debug!("a connection can't look for the rate of its link again: {error}");
        }
    }

    pub(crate) fn tcp(&self) -> &TcpStream {
        match &self.io {
            Io::Plain(tcp) => tcp,
            Io::Tls(tls) => tls.get_ref().0.tcp(),
            Io::Calling(calling) => calling.tcp(),
        }
    }

    /// Goes on with a handshake that is under way.
    fn settle(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.failed.is_some() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let Io::Calling(calling) = &mut self.io else { return Ok(()) };
        self.went_early = true;
        match calling.poll(cx) {
            Poll::Pending => Ok(()),
            Poll::Ready(Ok(stream)) => {
                self.io = Io::Tls(Box::new(TlsStream::Client(stream)));
                Ok(())
            }
            Poll::Ready(Err(error)) => Err(self.fails(error)),
        }
    }

    fn fails(&mut self, error: io::Error) -> io::Error {
        let error = match error.kind() {
            io::ErrorKind::TimedOut => CarrierError::Expired,
            _ => error.into(),
        };
        self.failed = Some(NotEstablished { error, was_early: self.went_early });
        io::ErrorKind::NotConnected.into()
    }

    /// It has come to an end, or to an error. If nothing has come from the other end, it may know no early data, and have
    /// found them behind its own part of the handshake.
    fn ends_early(&mut self, end: io::Result<()>) -> io::Result<()> {
        if !self.went_early || self.has_answered || self.failed.is_some() {
            return end;
        }
        Err(self.fails(end.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into())))
    }

    /// Returns why it is no connection, if its handshake has failed while it was written to.
    pub(crate) const fn take_failed(&mut self) -> Option<NotEstablished> {
        self.failed.take()
    }

    /// Takes the error that occurred without anybody reading or writing.
    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.tcp().take_error()
    }

    /// Makes the other end notice at once when this one is dropped, whatever waits before it.
    pub(crate) fn reset_on_close(&self) {
        if let Err(error) = crate::local::reset_on_close(self.tcp(), true) {
            tracing::debug!("a connection can't be reset: {error}");
        }
    }

    /// Returns true if nothing has come from the other end, not even its end: so it can be used
    /// again.
    pub(crate) fn is_quiet(&mut self) -> bool {
        let mut byte = [0];
        let mut buffer = ReadBuf::new(&mut byte);
        let mut cx = Context::from_waker(Waker::noop());
        self.rest.is_empty() && Pin::new(self).poll_read(&mut cx, &mut buffer).is_pending()
    }
}

impl AsyncRead for Carrier {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.settle(cx)?;
        let (filled, went_early) = (buf.filled().len(), self.went_early);
        match &mut self.io {
            Io::Plain(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Io::Calling(_) => Poll::Pending,
            Io::Tls(tls) => match Pin::new(&mut **tls).poll_read(cx, buf) {
                // Who waits for an answer may have asked, and TLS holds it.
                Poll::Pending if went_early => match Pin::new(tls).poll_flush(cx) {
                    Poll::Ready(Err(error)) => Poll::Ready(self.ends_early(Err(error))),
                    _ => Poll::Pending,
                },
                Poll::Pending => Poll::Pending,
                Poll::Ready(Ok(())) if buf.filled().len() > filled => {
                    self.has_answered = true;
                    Poll::Ready(Ok(()))
                }
                Poll::Ready(end) => Poll::Ready(self.ends_early(end)),
            },
        }
    }
}

impl AsyncWrite for Carrier {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(pause_ns) = self.pauses.writes(crate::clock::now()) {
            self.begin_again(pause_ns);
        }
        self.settle(cx)?;
        let wrote = match &mut self.io {
            Io::Plain(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Io::Tls(tls) => Pin::new(tls).poll_write(cx, bytes),
            Io::Calling(calling) => calling.poll_write(cx, bytes),
        };
        if let Poll::Ready(Ok(len)) = wrote {
            self.trains.wrote(len);
        }
        wrote
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.settle(cx)?;
        match &mut self.io {
            Io::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Io::Tls(tls) => Pin::new(tls).poll_flush(cx),
            Io::Calling(calling) => calling.poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.settle(cx)?;
        match &mut self.io {
            Io::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Io::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
            Io::Calling(_) => Poll::Pending,
        }
    }
}

/// What has become of a connection that has shown the key.
fn known<T>(outcome: Result<T, CarrierError>) -> Result<T, CarrierError> {
    outcome.map_err(|error| if error.is_cut() { CarrierError::Left } else { error })
}

/// TLS's handshake at the end that listens.
async fn shake(
    tcp: TcpStream,
    Acceptor { config, early }: Acceptor,
) -> Result<server::TlsStream<Ahead>, CarrierError> {
    let ahead = match early {
        Some(secret) => Ahead::splitting(tcp, Splitter::new(secret)),
        None => Ahead::new(tcp),
    };
    Ok(TlsAcceptor::from(config).accept(ahead).await?)
}

/// A connection whose handshake has ended, and what has come before.
async fn claimed(
    mut stream: server::TlsStream<Ahead>,
) -> Result<(TlsStream<Ahead>, Vec<u8>), CarrierError> {
    let mut claim = [0; CLAIM_BYTES];
    if stream.get_ref().0.has_early_data() {
        stream.read_exact(&mut claim).await?;
    }
    let rest = match stream.get_mut().0.split_no_more() {
        Some(splitter) => splitter.claimed(&claim)?,
        None => Vec::new(),
    };
    Ok((TlsStream::Server(stream), rest))
}

async fn connect(to: &Target) -> Result<TcpStream, CarrierError> {
    match &to.host {
        Host::Ip(ip) => Ok(TcpStream::connect((*ip, to.port)).await?),
        Host::Name(name) => {
            let mut error = CarrierError::NoAddress(to.host.clone());
            for address in tokio::net::lookup_host((name.as_str(), to.port)).await? {
                match TcpStream::connect(address).await {
                    Ok(tcp) => return Ok(tcp),
                    Err(refused) => error = refused.into(),
                }
            }
            Err(error)
        }
    }
}

/// Without delay, and with probes, so that a peer that is gone without a word is noticed within
/// two minutes; a connection between the proxies also keeps little in the kernel,
/// at first.
pub(crate) fn tune(tcp: &TcpStream, between_proxies: bool) -> io::Result<()> {
    let socket = SockRef::from(tcp);
    socket.set_tcp_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(60))
        .with_interval(Duration::from_secs(15))
        .with_retries(4);
    socket.set_tcp_keepalive(&keepalive)?;
    if between_proxies {
        // So the rest waits where it can still be compressed. All streams have the usual buffer.
        socket.set_tcp_notsent_lowat(dwell_stream::Config::default().not_sent_len())?;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A connection, and its other end.
    pub(crate) async fn pair() -> (Carrier, TcpStream) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (far, peer) = listener.accept().await.unwrap();
        tune(&near, true).unwrap();
        let hello = Hello::new(crate::hello::Purpose::Streams, 65_536, "");
        (Carrier::of(Io::Plain(near), peer, &hello), far)
    }

    #[tokio::test]
    async fn a_pace_is_set_if_it_differs_and_lifted_for_the_next_stream() {
        let (mut carrier, _far) = pair().await;
        let set = |carrier: &mut Carrier, rate| {
            carrier.pace(rate);
            crate::tcp_info::pacing_rate_max(carrier.tcp().as_fd()).unwrap()
        };
        let none = set(&mut carrier, None);
        assert!(!carrier.spreads);
        let rates = [1e6, 1.005e6, 1.02e6].map(|rate| set(&mut carrier, Some(rate)));
        assert_eq!(rates, [1_000_000, 1_000_000, 1_020_000]);
        assert!(set(&mut carrier, None) >= u64::from(u32::MAX) && none >= u64::from(u32::MAX));
        assert_eq!(carrier.spreads, !congestion::paces(carrier.tcp()));
    }

    #[tokio::test]
    async fn what_is_held_goes_with_what_comes_next_or_when_it_is_released() {
        let (mut carrier, mut far) = pair().await;
        let mut bytes = [0; 16];
        for is_followed in [true, false] {
            carrier.hold();
            carrier.write(b"opened").await.unwrap();
            assert!(carrier.is_holding());
            tokio::time::sleep(Duration::from_millis(30)).await;
            let early = far.try_read(&mut bytes);
            assert!(early.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock));
            let report = carrier.link_report().unwrap();
            assert_eq!(report.pending_bytes, 0, "it waits for no link");
            if is_followed {
                carrier.write(b", data").await.unwrap();
            }
            carrier.release().unwrap();
            let len = far.read(&mut bytes).await.unwrap();
            assert_eq!(&bytes[..len], if is_followed { &b"opened, data"[..] } else { b"opened" });
        }
    }
}
