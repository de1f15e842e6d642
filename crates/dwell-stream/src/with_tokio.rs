//! The pair over tokio's `AsyncRead` and `AsyncWrite` (feature `tokio`).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use dwell_base::Instant;
use dwell_policy::rate::LinkReport;
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

use crate::asynchronous::{Outlet, reader_methods, writer_methods};
use crate::config::Config;
use crate::error::{AbortReason, ConfigError};
use crate::io::Intake;
use crate::receiver::{Limits, Receiver};
#[cfg(doc)]
use crate::sender::Sender;
use crate::stats::{ReceiverStats, SenderStats};

/// Writes a stream to a transport of tokio's; compresses while the transport takes no more.
///
/// It compresses in the task that writes, at most one block at each poll: other tasks have their turn before the next one.
/// Give streams beyond some 100 Mbit/s a runtime thread of their own. Bytes that the transport does not take at once, and blocks behind the first that was compressed, are
/// sent by later polls only: flush when nothing more is to be written for the time being, as with any buffered writer.
/// `poll_flush` is done when the transport has taken everything; `poll_shutdown` announces the end first, and then shuts the transport down.
#[derive(Debug)]
pub struct AsyncStreamWriter<W, C> {
    transport: W,
    outlet: Outlet<C>,
}

impl<W: AsyncWrite + Unpin, C: FnMut() -> Instant + Unpin> AsyncStreamWriter<W, C> {
    /// Makes a writer at the beginning of its stream.
    ///
    /// # Errors
    /// If the configuration is not possible.
    pub fn new(transport: W, config: &Config, clock: C) -> Result<Self, ConfigError> {
        Ok(Self { transport, outlet: Outlet::new(config, clock)? })
    }

    writer_methods!();

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let transport = &mut self.transport;
        self.outlet.poll_send(cx, |cx, wire| Pin::new(&mut *transport).poll_write(cx, wire))
    }
}

impl<W: AsyncWrite + Unpin, C: FnMut() -> Instant + Unpin> AsyncWrite for AsyncStreamWriter<W, C> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Self { transport, outlet } = self.get_mut();
        outlet.poll_accept(cx, bytes, |cx, wire| Pin::new(&mut *transport).poll_write(cx, wire))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_send(cx))?;
        Pin::new(&mut this.transport).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.outlet.sender.finish();
        ready!(this.poll_send(cx))?;
        Pin::new(&mut this.transport).poll_shutdown(cx)
    }
}

/// Reads a stream from a transport of tokio's. Ends only after the stream's own end; a stream that is damaged
/// gives `InvalidData`, one that was cut off `UnexpectedEof`.
#[derive(Debug)]
pub struct AsyncStreamReader<R> {
    transport: R,
    intake: Intake,
}

impl<R: AsyncRead + Unpin> AsyncStreamReader<R> {
    reader_methods!();

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let transport = &mut self.transport;
        self.intake.poll_fill(|room| {
            let mut buf = ReadBuf::new(room);
            ready!(Pin::new(&mut *transport).poll_read(cx, &mut buf))?;
            Poll::Ready(Ok(buf.filled().len()))
        })
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for AsyncStreamReader<R> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_data(cx))?;
        let receiver = &mut this.intake.receiver;
        let len = receiver.data().len().min(out.remaining());
        out.put_slice(&receiver.data()[..len]);
        receiver.consume(len);
        Poll::Ready(Ok(()))
    }
}

/// Gives restored data where they are, without another buffer.
impl<R: AsyncRead + Unpin> AsyncBufRead for AsyncStreamReader<R> {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        ready!(this.poll_data(cx))?;
        Poll::Ready(Ok(this.intake.receiver.data()))
    }

    fn consume(self: Pin<&mut Self>, len: usize) {
        self.get_mut().intake.receiver.consume(len);
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::builder::Builder;
    use crate::strategy::Strategy;

    #[test]
    fn a_pair_over_a_narrow_pipe() {
        let data = b"Through a pipe that holds little.\n".repeat(30_000);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for strategy in [Strategy::Hull, Strategy::All, Strategy::TcpComp] {
            let (near, far) = tokio::io::duplex(3000);
            let config = Config::new(strategy);
            let write = async {
                let mut writer = AsyncStreamWriter::new(near, &config, || Instant::ZERO).unwrap();
                writer.write_all(&data).await.unwrap();
                writer.shutdown().await.unwrap();
                assert!(writer.stats().wire_bytes < data.len() as u64);
            };
            let read = async {
                let mut got = Vec::new();
                let mut reader = AsyncStreamReader::new(far, Limits::default());
                reader.read_until(b'\n', &mut got).await.unwrap();
                assert_eq!(got, b"Through a pipe that holds little.\n");
                reader.read_to_end(&mut got).await.unwrap();
                assert!(reader.is_finished());
                got
            };
            let (got, ()) = runtime.block_on(async { tokio::join!(read, write) });
            assert!(got == data, "{strategy}");
        }
    }

    /// Its reader expected a preamble, and called the first bytes no stream.
    #[test]
    fn a_plain_pair_is_made_with_the_same_settings() {
        let builder = Builder::new().strategy(Strategy::Plain);
        let (near, far) = tokio::io::duplex(3000);
        let write = async {
            let mut writer = builder.tokio_writer(near, || Instant::ZERO).unwrap();
            writer.write_all(b"as it is").await.unwrap();
            writer.shutdown().await.unwrap();
        };
        let read = async {
            let mut got = Vec::new();
            builder.tokio_reader(far).unwrap().read_to_end(&mut got).await.unwrap();
            got
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let ((), got) = runtime.block_on(async { tokio::join!(write, read) });
        assert_eq!(got, b"as it is");
    }
}
