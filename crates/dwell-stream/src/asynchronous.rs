//! The sending half of the asynchronous writers, for any kind of asynchronous transport.

use std::io;
use std::task::Poll;

use dwell_base::Instant;

use crate::compress::Compressors;
use crate::config::Config;
use crate::error::ConfigError;
use crate::sender::Sender;

/// A sender, and what it needs to be driven by polls.
#[derive(Debug)]
pub(crate) struct Outlet<C> {
    pub(crate) sender: Sender,
    pub(crate) clock: C,
    compressors: Compressors,
}

impl<C: FnMut() -> Instant> Outlet<C> {
    pub(crate) fn new(config: &Config, clock: C) -> Result<Self, ConfigError> {
        Ok(Self { sender: Sender::new(config)?, clock, compressors: Compressors::new() })
    }

    /// Sends until there is nothing more to send; pending while the transport takes no more.
    pub(crate) fn poll_send(
        &mut self,
        mut write: impl FnMut(&[u8]) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<()>> {
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
            match write(wire) {
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

    /// Takes some of the bytes and sends; pending while there is no room.
    pub(crate) fn poll_accept(
        &mut self,
        bytes: &[u8],
        write: impl FnMut(&[u8]) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let taken = self.sender.accept(bytes);
        match self.poll_send(write) {
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            // Full, and the transport will wake us.
            Poll::Pending if taken == 0 && !bytes.is_empty() => {
                return match self.sender.accept(bytes) {
                    0 => Poll::Pending,
                    taken => Poll::Ready(Ok(taken)),
                };
            }
            Poll::Ready(Ok(())) if taken == 0 => {
                return Poll::Ready(Ok(self.sender.accept(bytes)));
            }
            _ => {}
        }
        Poll::Ready(Ok(taken))
    }
}

/// Writes the methods that the asynchronous writers have in common.
macro_rules! writer_methods {
    () => {
        /// Gives the stream up: drops what waits, and notifies the receiver of the reason. Then flush.
        pub fn abort(&mut self, reason: AbortReason) {
            self.outlet.sender.abort(reason);
        }

        /// Returns the most bytes that the transport should hold unsent: see [`Sender::not_sent_len`].
        pub fn not_sent_len(&self) -> u32 {
            self.outlet.sender.not_sent_len()
        }

        /// Sets the most bytes that the transport holds: see [`Sender::transport_holds`].
        pub fn transport_holds(&mut self, len: u32) {
            self.outlet.sender.transport_holds(len);
        }

        /// Notes what the transport says of its link: see [`Sender::reported`].
        pub fn reported(&mut self, report: &LinkReport) {
            self.outlet.sender.reported((self.outlet.clock)(), report);
        }

        /// Returns the transport, for instance to set its options.
        pub fn transport(&self) -> &W {
            &self.transport
        }

        /// Returns the counters so far.
        pub fn stats(&self) -> &SenderStats {
            self.outlet.sender.stats()
        }

        /// Gives the transport back.
        pub fn into_transport(self) -> W {
            self.transport
        }
    };
}

/// Writes the methods that the asynchronous readers have in common.
macro_rules! reader_methods {
    () => {
        /// Makes a reader at the beginning of its stream.
        pub fn new(transport: R, limits: Limits) -> Self {
            Self::with_receiver(transport, Receiver::new(limits))
        }

        /// Makes a reader with a receiver that was made otherwise.
        pub fn with_receiver(transport: R, receiver: Receiver) -> Self {
            Self { transport, intake: Intake::new(receiver) }
        }

        /// Returns true if the whole stream was read.
        pub fn is_finished(&self) -> bool {
            self.intake.receiver.is_finished() && self.intake.receiver.data().is_empty()
        }

        /// Returns the transport, for instance to set its options.
        pub fn transport(&self) -> &R {
            &self.transport
        }

        /// Returns the counters so far.
        pub fn stats(&self) -> &ReceiverStats {
            self.intake.receiver.stats()
        }
    };
}

pub(crate) use {reader_methods, writer_methods};
