//! The pair over the `AsyncRead` and `AsyncWrite` of `futures` (feature `futures`).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use dwell_base::Instant;
use dwell_policy::rate::LinkReport;
use futures_io::{AsyncBufRead, AsyncRead, AsyncWrite};

use crate::asynchronous::{Outlet, reader_methods, writer_methods};
use crate::config::Config;
use crate::error::{AbortReason, ConfigError};
use crate::io::Intake;
use crate::receiver::{Limits, Receiver};
#[cfg(doc)]
use crate::sender::Sender;
use crate::stats::{ReceiverStats, SenderStats};

/// Writes a stream to a transport that has the traits of `futures`; compresses while the transport takes no more.
///
/// It compresses in the task that writes, at most one block at each poll: other tasks have their turn before the next one.
/// Give streams beyond some 100 Mbit/s an executor's thread of their own. Bytes that the transport does not take at once, and blocks behind the first that was compressed, are
/// sent by later polls only: flush when nothing more is to be written for the time being, as with any buffered writer.
/// `poll_flush` is done when the transport has taken everything; `poll_close` announces the end first, and then closes the transport.
#[derive(Debug)]
pub struct FuturesStreamWriter<W, C> {
    transport: W,
    outlet: Outlet<C>,
}

impl<W: AsyncWrite + Unpin, C: FnMut() -> Instant + Unpin> FuturesStreamWriter<W, C> {
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

impl<W: AsyncWrite + Unpin, C: FnMut() -> Instant + Unpin> AsyncWrite
    for FuturesStreamWriter<W, C>
{
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

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.outlet.sender.finish();
        ready!(this.poll_send(cx))?;
        Pin::new(&mut this.transport).poll_close(cx)
    }
}

/// Reads a stream from a transport that has the traits of `futures`. Ends only after the stream's own end; a stream that is damaged
/// gives `InvalidData`, one that was cut off `UnexpectedEof`.
#[derive(Debug)]
pub struct FuturesStreamReader<R> {
    transport: R,
    intake: Intake,
}

impl<R: AsyncRead + Unpin> FuturesStreamReader<R> {
    reader_methods!();

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let transport = &mut self.transport;
        self.intake.poll_fill(|room| Pin::new(&mut *transport).poll_read(cx, room))
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for FuturesStreamReader<R> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_data(cx))?;
        Poll::Ready(Ok(this.intake.receiver.take(out)))
    }
}

/// Gives restored data where they are, without another buffer.
impl<R: AsyncRead + Unpin> AsyncBufRead for FuturesStreamReader<R> {
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
    use futures_util::io::{AsyncReadExt as _, AsyncWriteExt as _, Cursor};
    use futures_util::{AsyncBufReadExt as _, FutureExt as _};

    use super::*;
    use crate::builder::Builder;
    use crate::strategy::Strategy;

    /// A transport that takes little at a time, and nothing each second time.
    #[derive(Debug, Default)]
    struct Narrow {
        got: Vec<u8>,
        turn: bool,
        is_closed: bool,
    }

    impl AsyncWrite for Narrow {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.turn = !self.turn;
            if !self.turn {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let len = bytes.len().min(700);
            self.got.extend_from_slice(&bytes[..len]);
            Poll::Ready(Ok(len))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_close(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.is_closed = true;
            Poll::Ready(Ok(()))
        }
    }

    /// Polls until it is done: whatever is not wakes at once here.
    fn finish<T>(future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        loop {
            if let Some(done) = future.as_mut().now_or_never() {
                return done;
            }
        }
    }

    #[test]
    fn what_is_written_can_be_read() {
        let data = b"Through a transport that takes little.\n".repeat(20_000);
        for strategy in [Strategy::Hull, Strategy::All, Strategy::TcpComp] {
            let config = Config::new(strategy);
            let clock = || Instant::ZERO;
            let mut writer = FuturesStreamWriter::new(Narrow::default(), &config, clock).unwrap();
            finish(writer.write_all(&data)).unwrap();
            finish(writer.flush()).unwrap();
            finish(writer.close()).unwrap();
            assert!(writer.stats().wire_bytes < data.len() as u64, "{strategy}");
            let transport = writer.into_transport();
            assert!(transport.is_closed);
            let mut reader =
                FuturesStreamReader::new(Cursor::new(transport.got), Limits::default());
            let mut got = Vec::new();
            finish(reader.read_until(b'\n', &mut got)).unwrap();
            assert_eq!(got, b"Through a transport that takes little.\n");
            finish(reader.read_to_end(&mut got)).unwrap();
            assert!(got == data && reader.is_finished(), "{strategy}");
        }
    }

    #[test]
    fn a_stream_that_was_cut_off_is_an_error_of_its_kind() {
        let mut reader = FuturesStreamReader::new(Cursor::new(b"dw"), Limits::default());
        let error = finish(reader.read_to_end(&mut Vec::new())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    /// Its reader expected a preamble, and called the first bytes no stream.
    #[test]
    fn a_plain_pair_is_made_with_the_same_settings() {
        let builder = Builder::new().strategy(Strategy::Plain);
        let mut writer = builder.futures_writer(Narrow::default(), || Instant::ZERO).unwrap();
        finish(writer.write_all(b"as it is")).unwrap();
        finish(writer.close()).unwrap();
        let mut reader = builder.futures_reader(Cursor::new(writer.into_transport().got)).unwrap();
        let mut got = Vec::new();
        finish(reader.read_to_end(&mut got)).unwrap();
        assert_eq!(got, b"as it is");
    }
}
