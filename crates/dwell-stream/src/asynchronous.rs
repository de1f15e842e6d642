//! The pair over tokio's `AsyncRead` and `AsyncWrite` (feature `tokio`).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use dwell_base::Instant;
use dwell_policy::rate::LinkReport;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::compress::Compressors;
use crate::config::Config;
use crate::error::{AbortReason, ConfigError};
use crate::io::Intake;
use crate::receiver::{Limits, Receiver};
use crate::sender::Sender;
use crate::stats::{ReceiverStats, SenderStats};

/// Writes a stream to a transport; compresses while the transport takes no more.
///
/// It compresses in the task that writes, at most one block at each poll while the transport is
/// busy: give streams beyond some 100 Mbit/s a runtime thread of their own. Bytes that the
/// transport does not take at once are sent by later polls only: flush when nothing more is to be
/// written for the time being, as with any buffered writer. `poll_flush` is done when the transport
/// has taken everything; `poll_shutdown` announces the end first, and then shuts the transport
/// down.
#[derive(Debug)]
pub struct AsyncStreamWriter<W, C> {
    transport: W,
    clock: C,
    sender: Sender,
    compressors: Compressors,
}

impl<W: AsyncWrite + Unpin, C: FnMut() -> Instant + Unpin> AsyncStreamWriter<W, C> {
    /// Makes a writer at the beginning of its stream.
    ///
    /// # Errors
    /// If the configuration is not possible.
    pub fn new(transport: W, config: &Config, clock: C) -> Result<Self, ConfigError> {
        Ok(Self { transport, clock, sender: Sender::new(config)?, compressors: Compressors::new() })
    }

    /// Gives the stream up: drops what waits, and notifies the receiver of the reason. Then flush.
    pub fn abort(&mut self, reason: AbortReason) {
        self.sender.abort(reason);
    }

    /// Returns the most bytes that the transport should hold unsent: see [`Sender::not_sent_len`].
    pub fn not_sent_len(&self) -> u32 {
        self.sender.not_sent_len()
    }

    /// Sets the most bytes that the transport holds: see [`Sender::transport_holds`].
    pub fn transport_holds(&mut self, len: u32) {
        self.sender.transport_holds(len);
    }

    /// Notes what the transport says of its link: see [`Sender::reported`].
    pub fn reported(&mut self, report: &LinkReport) {
        self.sender.reported((self.clock)(), report);
    }

    /// Returns the transport, for instance to set its options.
    pub fn transport(&self) -> &W {
        &self.transport
    }

    /// Returns the counters so far.
    pub fn stats(&self) -> &SenderStats {
        self.sender.stats()
    }

    /// Gives the transport back.
    pub fn into_transport(self) -> W {
        self.transport
    }

    /// Sends until there is nothing more to send; pending while the transport takes no more.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let now = (self.clock)();
            let wire = self.sender.wire(now);
            if wire.is_empty() {
                self.sender.unblocked();
                if self.sender.compress(&mut self.compressors, &mut self.clock).is_none() {
                    return Poll::Ready(Ok(()));
                }
                continue;
            }
            match Pin::new(&mut self.transport).poll_write(cx, wire) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(len)) => self.sender.wrote((self.clock)(), len),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    self.sender.blocked((self.clock)());
                    if self.sender.compress(&mut self.compressors, &mut self.clock).is_none() {
                        return Poll::Pending;
                    }
                }
            }
        }
    }
}

impl<W: AsyncWrite + Unpin, C: FnMut() -> Instant + Unpin> AsyncWrite for AsyncStreamWriter<W, C> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let taken = this.sender.accept(bytes);
        match this.poll_send(cx) {
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            // Full, and the transport will wake us.
            Poll::Pending if taken == 0 && !bytes.is_empty() => {
                return match this.sender.accept(bytes) {
                    0 => Poll::Pending,
                    taken => Poll::Ready(Ok(taken)),
                };
            }
            Poll::Ready(Ok(())) if taken == 0 => {
                return Poll::Ready(Ok(this.sender.accept(bytes)));
            }
            _ => {}
        }
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_send(cx))?;
        Pin::new(&mut this.transport).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.sender.finish();
        ready!(this.poll_send(cx))?;
        Pin::new(&mut this.transport).poll_shutdown(cx)
    }
}

/// Reads a stream from a transport. Ends only after the stream's own end; a stream that is damaged
/// gives `InvalidData`, one that was cut off `UnexpectedEof`.
#[derive(Debug)]
pub struct AsyncStreamReader<R> {
    transport: R,
    intake: Intake,
}

impl<R: AsyncRead + Unpin> AsyncStreamReader<R> {
    /// Makes a reader at the beginning of its stream.
    pub fn new(transport: R, limits: Limits) -> Self {
        Self { transport, intake: Intake::new(Receiver::new(limits)) }
    }

    /// Returns the counters so far.
    pub fn stats(&self) -> &ReceiverStats {
        self.intake.receiver.stats()
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for AsyncStreamReader<R> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while !this.intake.restore()? {
            let mut buf = ReadBuf::new(this.intake.room());
            ready!(Pin::new(&mut this.transport).poll_read(cx, &mut buf))?;
            let len = buf.filled().len();
            this.intake.was_read(len)?;
            if len == 0 {
                return Poll::Ready(Ok(()));
            }
        }
        let receiver = &mut this.intake.receiver;
        let len = receiver.data().len().min(out.remaining());
        out.put_slice(&receiver.data()[..len]);
        receiver.consume(len);
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::strategy::Strategy;

    #[test]
    fn a_pair_over_a_narrow_pipe() {
        let data = b"Through a pipe that holds little. ".repeat(30_000);
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
                reader.read_to_end(&mut got).await.unwrap();
                got
            };
            let (got, ()) = runtime.block_on(async { tokio::join!(read, write) });
            assert!(got == data, "{strategy}");
        }
    }
}
