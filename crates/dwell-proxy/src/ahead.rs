//! A connection from which as much is read at once as there is, however little its reader asks for.
//!
//! TLS asks for 4 KiB at a time, so that a record of 16 KiB took five system calls. What has come beyond what was asked for waits here,
//! and holds nothing once it was taken.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Read at once at most: two records and what is around them.
const READ_BYTES: usize = 34 << 10;

thread_local! {
    /// Where all connections of a thread read to, in turns.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// The connection, and what was read ahead.
#[derive(Debug)]
pub(crate) struct Ahead {
    tcp: TcpStream,
    bytes: Vec<u8>,
    /// So much of that was taken.
    taken: usize,
}

impl Ahead {
    pub(crate) const fn new(tcp: TcpStream) -> Self {
        Self { tcp, bytes: Vec::new(), taken: 0 }
    }

    pub(crate) const fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    /// Gives what was read ahead, as far as there is room for it.
    fn give(&mut self, buf: &mut ReadBuf<'_>) {
        let rest = &self.bytes[self.taken..];
        let len = rest.len().min(buf.remaining());
        buf.put_slice(&rest[..len]);
        self.taken += len;
        if self.taken == self.bytes.len() {
            (self.bytes, self.taken) = (Vec::new(), 0);
        }
    }
}

impl AsyncRead for Ahead {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.bytes.is_empty() {
            this.give(buf);
            return Poll::Ready(Ok(()));
        }
        SCRATCH.with_borrow_mut(|scratch| {
            let mut come = ReadBuf::new(scratch);
            ready!(Pin::new(&mut this.tcp).poll_read(cx, &mut come))?;
            let (now, later) = come.filled().split_at(come.filled().len().min(buf.remaining()));
            buf.put_slice(now);
            this.bytes.extend_from_slice(later);
            Poll::Ready(Ok(()))
        })
    }
}

impl AsyncWrite for Ahead {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn whatever_was_asked_for_comes_in_order_and_nothing_is_held_afterwards() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut far = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut near = Ahead::new(listener.accept().await.unwrap().0);
        let sent: Vec<u8> = (0..200_000u32).map(|number| (number % 251) as u8).collect();
        let (mut got, mut piece) = (Vec::new(), [0; 5000]);
        let sending = async { far.write_all(&sent).await.unwrap() };
        let receiving = async {
            while got.len() < 200_000 {
                let asked = 1 + got.len() % 5000;
                let len = near.read(&mut piece[..asked]).await.unwrap();
                assert!((1..=asked).contains(&len));
                got.extend_from_slice(&piece[..len]);
            }
        };
        tokio::join!(sending, receiving);
        assert!(got == sent);
        assert_eq!((near.bytes.capacity(), near.taken), (0, 0));
        drop(far);
        assert_eq!(near.read(&mut piece).await.unwrap(), 0);
    }
}
