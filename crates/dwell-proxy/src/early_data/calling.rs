//! A connection whose handshake is under way, and what goes early on it.

use std::io;
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

/// The end that connects, until TLS's handshake has ended.
pub(crate) struct Calling {
    connect: Connect<Ahead>,
    /// The same connection: TLS's library keeps the other one if the handshake fails.
    tcp: TcpStream,
    sealer: Option<Sealer>,
    ends: Pin<Box<Sleep>>,
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
        let ahead = Ahead::queueing(tcp);
        Ok(Self {
            connect: TlsConnector::from(config).connect(name, ahead),
            tcp: TcpStream::from_std(same)?,
            sealer: Sealer::new(secret),
            ends: Box::pin(tokio::time::sleep(time)),
        })
    }

    pub(crate) const fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    /// Returns true if something has gone early.
    pub(crate) fn has_begun(&self) -> bool {
        self.sealer.as_ref().is_some_and(Sealer::has_begun)
    }

    /// Goes on with the handshake. Ready once, with the connection if it has ended well.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<TlsStream<Ahead>>> {
        let Poll::Ready(connected) = Pin::new(&mut self.connect).poll(cx) else {
            let late = || Err(io::ErrorKind::TimedOut.into());
            return self.ends.as_mut().poll(cx).map(|()| late());
        };
        let mut stream = connected?;
        let mut end = Vec::new();
        if let Some(sealer) = self.sealer.take()
            && let Some(claim) = sealer.end(&mut end).map_err(io::Error::other)?
        {
            // Both are queued at once, and in this order.
            stream.get_mut().0.queue(&end);
            let claimed = Pin::new(&mut stream).poll_write(cx, &claim)?;
            if claimed != Poll::Ready(claim.len()) {
                return Poll::Ready(Err(io::Error::other("TLS takes no bytes")));
            }
        }
        stream.get_mut().0.queue_no_more();
        Poll::Ready(Ok(stream))
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
        match self.connect.get_mut() {
            Some(ahead) => ahead.poll_queue(cx),
            None => Poll::Ready(Ok(())),
        }
    }
}
