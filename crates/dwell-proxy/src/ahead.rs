//! A connection from which as much is read at once as there is, however little its reader asks for.
//!
//! TLS asks for 4 KiB at a time, so that a record of 16 KiB took five system calls. What has come beyond what was asked for waits here,
//! and holds nothing once it was taken.
//!
//! While a handshake is under way, what goes and comes early is put between TLS's records here, and taken out ([`early_data`](crate::early_data)).

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::early_data::Splitter;

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
    /// What waits to be written, in whole records.
    queue: Vec<u8>,
    /// All that is written goes there at first.
    queues: bool,
    /// Takes out what comes early.
    splitter: Option<Box<Splitter>>,
}

impl Ahead {
    pub(crate) const fn new(tcp: TcpStream) -> Self {
        Self { tcp, bytes: Vec::new(), taken: 0, queue: Vec::new(), queues: false, splitter: None }
    }

    /// Takes whatever TLS writes at once, so that no other record comes amid one of its own.
    pub(crate) const fn queueing(tcp: TcpStream) -> Self {
        let mut ahead = Self::new(tcp);
        ahead.queues = true;
        ahead
    }

    /// Takes out what comes early.
    pub(crate) fn splitting(tcp: TcpStream, splitter: Splitter) -> Self {
        let mut ahead = Self::new(tcp);
        ahead.splitter = Some(Box::new(splitter));
        ahead
    }

    /// Has something written behind all that was written before.
    pub(crate) fn queue(&mut self, bytes: &[u8]) {
        self.queue.extend_from_slice(bytes);
    }

    /// What is written from now on goes to the kernel when the rest of the queue has.
    pub(crate) const fn queue_no_more(&mut self) {
        self.queues = false;
    }

    /// Ready when the queue is empty.
    pub(crate) fn poll_queue(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.queue.is_empty() {
            let len = ready!(Pin::new(&mut self.tcp).poll_write(cx, &self.queue))?;
            if len == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.queue.drain(..len);
        }
        if !self.queues && self.queue.capacity() > 0 {
            self.queue = Vec::new();
        }
        Poll::Ready(Ok(()))
    }

    /// Returns true if something has come early.
    pub(crate) fn has_early_data(&self) -> bool {
        self.splitter.as_ref().is_some_and(|splitter| splitter.has_begun())
    }

    /// Takes nothing out from now on; what did that, with what has come early.
    pub(crate) fn split_no_more(&mut self) -> Option<Splitter> {
        let splitter = *self.splitter.take()?;
        if splitter.has_begun() {
            return Some(splitter);
        }
        self.bytes.extend_from_slice(&splitter.into_rest());
        None
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
            if let Some(splitter) = &mut this.splitter {
                while this.bytes.is_empty() {
                    come.clear();
                    ready!(Pin::new(&mut this.tcp).poll_read(cx, &mut come))?;
                    if come.filled().is_empty() {
                        return Poll::Ready(Ok(()));
                    }
                    splitter.feed(come.filled(), &mut this.bytes);
                }
                this.give(buf);
                return Poll::Ready(Ok(()));
            }
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
        let this = &mut *self;
        if this.queues {
            this.queue(bytes);
            let _ = this.poll_queue(cx)?;
            return Poll::Ready(Ok(bytes.len()));
        }
        ready!(this.poll_queue(cx))?;
        Pin::new(&mut this.tcp).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.queues {
            slices.iter().for_each(|slice| this.queue(slice));
            let _ = this.poll_queue(cx)?;
            return Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()));
        }
        ready!(this.poll_queue(cx))?;
        Pin::new(&mut this.tcp).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_queue(cx))?;
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_queue(cx))?;
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
