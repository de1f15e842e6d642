//! A connection whose handshake is under way, and what goes early on it.

use std::io;
use std::os::fd::AsFd as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use dwell_base::Secret;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use socket2::SockRef;
use tokio::io::AsyncWrite as _;
use tokio::net::TcpStream;
use tokio::time::Sleep;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{Connect, TlsConnector};

use super::Sealer;
use crate::ahead::Ahead;

/// For TLS's first flight, and what is around early data.
const FLIGHT_BYTES: usize = 2 << 10;

/// The end that connects, until TLS's handshake has ended.
pub(crate) struct Calling {
    connect: Connect<Ahead>,
    /// The same connection: TLS's library keeps the other one if the handshake fails.
    tcp: TcpStream,
    sealer: Option<Sealer>,
    ends: Pin<Box<Sleep>>,
    /// The handshake has ended, and what follows it at once is not in the kernel yet.
    stream: Option<TlsStream<Ahead>>,
}

impl std::fmt::Debug for Calling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Calling").field("tcp", &self.tcp).finish_non_exhaustive()
    }
}

impl Calling {
    /// `time` is how long the handshake may take.
    pub(crate) fn new(
        tcp: TcpStream,
        (config, name): (Arc<ClientConfig>, ServerName<'static>),
        secret: &Secret,
        time: Duration,
    ) -> io::Result<Self> {
        let same: std::net::TcpStream = SockRef::from(&tcp).try_clone()?.into();
        // More than TCP sends before it is answered would only be in the way of the handshake.
        let room = crate::tcp_info::window_bytes(tcp.as_fd()).saturating_sub(FLIGHT_BYTES);
        let ahead = Ahead::queueing(tcp);
        Ok(Self {
            connect: TlsConnector::from(config).connect(name, ahead),
            tcp: TcpStream::from_std(same)?,
            sealer: Sealer::new(secret, room),
            ends: Box::pin(tokio::time::sleep(time)),
            stream: None,
        })
    }

    pub(crate) const fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    /// Goes on with the handshake. Ready once, with the connection if it has ended well.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<TlsStream<Ahead>>> {
        if self.stream.is_none() {
            let Poll::Ready(connected) = Pin::new(&mut self.connect).poll(cx) else {
                return self.late(cx);
            };
            self.stream = Some(connected?);
            self.claim(cx)?;
        }
        match self.poll_flush(cx)? {
            Poll::Ready(()) => {}
            Poll::Pending => return self.late(cx),
        }
        let stream = self.stream.take().map(|mut stream| {
            stream.get_mut().0.queue_no_more();
            stream
        });
        Poll::Ready(stream.ok_or_else(|| io::ErrorKind::NotConnected.into()))
    }

    /// Ready when the time is over.
    fn late<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        self.ends.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Ends what goes early, and claims it inside of TLS.
    fn claim(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let (Some(stream), Some(sealer)) = (&mut self.stream, self.sealer.take()) else {
            return Ok(());
        };
        let mut end = Vec::new();
        let Some(claim) = sealer.end(&mut end).map_err(io::Error::other)? else { return Ok(()) };
        // Both are queued at once, and in this order.
        stream.get_mut().0.queue(&end);
        match Pin::new(stream).poll_write(cx, &claim)? {
            Poll::Ready(len) if len == claim.len() => Ok(()),
            _ => Err(io::Error::other("TLS takes no bytes")),
        }
    }

    /// Ready if something may go early now.
    pub(crate) fn poll_free(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_flush(cx))?;
        // Who has called is woken when the handshake goes on.
        match self.sealer.as_ref().is_some_and(|sealer| sealer.room() > 0) {
            true => self.tcp.poll_write_ready(cx),
            false => Poll::Pending,
        }
    }

    /// Takes bytes that go early, while the handshake is under way and there is room for them.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_flush(cx))?;
        let (Some(sealer), Some(ahead)) = (&mut self.sealer, self.connect.get_mut()) else {
            return Poll::Pending;
        };
        let mut record = Vec::new();
        match sealer.seal(bytes, &mut record).map_err(io::Error::other)? {
            // Who has called is woken when the handshake goes on.
            0 => Poll::Pending,
            len => {
                ahead.queue(&record);
                let _ = ahead.poll_queue(cx)?;
                Poll::Ready(Ok(len))
            }
        }
    }

    /// Ready when all was handed to the kernel.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match (&mut self.stream, self.connect.get_mut()) {
            (Some(stream), _) => stream.get_mut().0.poll_queue(cx),
            (None, Some(ahead)) => ahead.poll_queue(cx),
            (None, None) => Poll::Ready(Ok(())),
        }
    }
}
