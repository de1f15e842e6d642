//! A stream's own side: a connection to a program, or sockets for its datagrams.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio::net::TcpStream;

use crate::udp::{Association, Outlet};

/// What a stream reads from and writes to.
#[derive(Debug)]
pub(crate) enum Local {
    /// A program's connection.
    Tcp(TcpStream),
    /// A SOCKS client's datagrams, at the ingress.
    Association(Box<Association>),
    /// The same at the egress.
    Outlet(Box<Outlet>),
}

impl Local {
    /// Sets what a connection needs to move bytes.
    pub(crate) fn tune(&self) -> io::Result<()> {
        match self {
            Self::Tcp(tcp) => {
                crate::carrier::tune(tcp, false)?;
                self.reset_on_close(true)
            }
            Self::Association(_) | Self::Outlet(_) => Ok(()),
        }
    }

    /// Sets whether closing resets it.
    pub(crate) fn reset_on_close(&self, resets: bool) -> io::Result<()> {
        match self {
            Self::Tcp(tcp) => reset_on_close(tcp, resets),
            Self::Association(_) | Self::Outlet(_) => Ok(()),
        }
    }

    /// Ready if there may be something to read.
    pub(crate) fn poll_read_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Tcp(tcp) => tcp.poll_read_ready(cx).map(drop),
            Self::Association(association) => association.poll_read_ready(cx),
            Self::Outlet(outlet) => outlet.poll_read_ready(cx),
        }
    }

    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(tcp) => Pin::new(tcp).poll_read(cx, buffer),
            Self::Association(association) => association.poll_read(cx, buffer),
            Self::Outlet(outlet) => outlet.poll_read(cx, buffer),
        }
    }

    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Self::Association(association) => association.poll_write(bytes),
            Self::Outlet(outlet) => outlet.poll_write(cx, bytes),
        }
    }

    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Association(association) => association.shut_down(),
            Self::Outlet(outlet) => outlet.shut_down(),
        }
    }

    /// Returns the bytes that it holds of what came from the other end.
    pub(crate) fn held(&self) -> usize {
        match self {
            Self::Tcp(_) => 0,
            Self::Association(association) => association.held(),
            Self::Outlet(outlet) => outlet.held(),
        }
    }

    /// Takes the error that occurred without anybody reading or writing.
    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        match self {
            Self::Tcp(tcp) => tcp.take_error(),
            Self::Association(_) | Self::Outlet(_) => Ok(None),
        }
    }
}

/// Returns true if closing a connection resets it (SO_LINGER with a time of zero).
pub(crate) fn reset_on_close(tcp: &TcpStream, resets: bool) -> io::Result<()> {
    socket2::SockRef::from(tcp).set_linger(resets.then_some(Duration::ZERO))
}
