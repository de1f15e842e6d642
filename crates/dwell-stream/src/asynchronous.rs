//! The sending half of the asynchronous writers, for any kind of asynchronous transport.

use std::io;
use std::task::{Context, Poll, ready};

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
    /// True if a block was compressed since the task that polls was last pending because of it: others have their turn before
    /// anything more is done.
    owes_turn: bool,
}

impl<C: FnMut() -> Instant> Outlet<C> {
    pub(crate) fn new(config: &Config, clock: C) -> Result<Self, ConfigError> {
        let (sender, compressors) = (Sender::new(config)?, Compressors::new());
        Ok(Self { sender, clock, compressors, owes_turn: false })
    }

    /// Sends until there is nothing more to send; pending while the transport takes no more, and once behind each block that
    /// was compressed.
    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnMut(&mut Context<'_>, &[u8]) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_turn(cx));
        let sent = self.send(cx, write);
        if sent.is_pending() {
            ready!(self.poll_turn(cx));
        }
        sent
    }

    /// Takes some of the bytes and sends; pending while there is no room, and once behind each block that was compressed.
    pub(crate) fn poll_accept(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        write: impl FnMut(&mut Context<'_>, &[u8]) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_turn(cx));
        let mut taken = self.sender.accept(bytes);
        let is_pending = self.send(cx, write)?.is_pending();
        if taken == 0 {
            taken = self.sender.accept(bytes);
        }
        // Full; unless something was compressed the transport will wake us.
        if taken == 0 && !bytes.is_empty() && is_pending {
            ready!(self.poll_turn(cx));
            return Poll::Pending;
        }
        Poll::Ready(Ok(taken))
    }

    /// Pending once, and woken at once, if a block was compressed.
    fn poll_turn(&mut self, cx: &Context<'_>) -> Poll<()> {
        if std::mem::take(&mut self.owes_turn) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// Sends as far as it goes with one block compressed at most: one may take a twentieth of a second, in which nothing
    /// else of this thread gets on. It is pending then, too, and a turn is owed: whoever is pending by that has to be woken.
    fn send(
        &mut self,
        cx: &mut Context<'_>,
        mut write: impl FnMut(&mut Context<'_>, &[u8]) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<()>> {
        loop {
            let now = (self.clock)();
            let wire = self.sender.wire(now);
            let is_busy = !wire.is_empty();
            if is_busy {
                match write(cx, wire) {
                    Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    Poll::Ready(Ok(len)) => {
                        self.sender.wrote((self.clock)(), len);
                        continue;
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => self.sender.blocked((self.clock)()),
                }
            } else {
                self.sender.unblocked();
            }
            if !self.owes_turn {
                if self.sender.compress(&mut self.compressors, &mut self.clock).is_none() {
                    return if is_busy { Poll::Pending } else { Poll::Ready(Ok(())) };
                }
                self.owes_turn = true;
                if !is_busy {
                    continue;
                }
            }
            return Poll::Pending;
        }
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use super::*;
    use crate::strategy::Strategy;

    /// Counts how often a task was woken.
    #[derive(Debug, Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A task that writes all of this and flushes, as long as it is not pending.
    fn poll_task(
        outlet: &mut Outlet<fn() -> Instant>,
        cx: &mut Context<'_>,
        rest: &mut &[u8],
        room: &mut usize,
    ) -> Poll<()> {
        let mut write = |_: &mut Context<'_>, wire: &[u8]| match wire.len().min(*room) {
            0 => Poll::Pending,
            len => {
                *room -= len;
                Poll::Ready(Ok(len))
            }
        };
        while !rest.is_empty() {
            let taken = ready!(outlet.poll_accept(cx, rest, &mut write)).unwrap();
            assert_ne!(taken, 0);
            *rest = &rest[taken..];
        }
        outlet.poll_send(cx, write).map(Result::unwrap)
    }

    /// Polls the task as long as it is woken; never may it compress more than a block at a time. Returns the number of polls,
    /// and of blocks that were compressed.
    fn run(strategy: Strategy, data: &[u8], mut room: usize) -> (usize, u64) {
        let config = Config { block_len: 4 << 10, buffer_len: 64 << 10, ..Config::new(strategy) };
        let clock: fn() -> Instant = || Instant::ZERO;
        let mut outlet = Outlet::new(&config, clock).unwrap();
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        let mut cx = Context::from_waker(&waker);
        let compressed = |outlet: &Outlet<_>| -> u64 {
            outlet.sender.stats().by_codec.values().map(|codec| codec.blocks).sum()
        };
        let mut rest = data;
        for polls in 1.. {
            let before = (compressed(&outlet), wakes.0.load(Ordering::Relaxed));
            let polled = poll_task(&mut outlet, &mut cx, &mut rest, &mut room);
            let blocks = compressed(&outlet) - before.0;
            assert!(blocks <= 1, "{strategy}: {blocks} blocks in poll {polls}");
            let is_woken = wakes.0.load(Ordering::Relaxed) > before.1;
            if polled.is_ready() || !is_woken {
                return (polls, compressed(&outlet));
            }
        }
        unreachable!("it was polled for ever")
    }

    /// All that waited was compressed in one poll, and of a long write as much as the buffer holds when it is compressed.
    #[test]
    fn a_poll_compresses_one_block() {
        let data = b"What waits in a task, while others of its thread do, too. ".repeat(5000);
        for strategy in [Strategy::Mix, Strategy::Hull, Strategy::All] {
            let (polls, blocks) = run(strategy, &data, 0);
            assert!(blocks >= 15, "{strategy}: {blocks} blocks");
            // Nobody is woken for nothing: a poll more for what was returned, and the last one.
            assert!(polls as u64 <= 2 * blocks + 2, "{strategy}: {polls} polls, {blocks} blocks");
            let (_, blocks) = run(strategy, &data, 40_000);
            assert!(blocks >= 15, "{strategy}: {blocks} blocks");
        }
        // Nothing goes as it is, so that there is as much to do for a transport that takes everything.
        let (_, blocks) = run(Strategy::All, &data, usize::MAX);
        assert_eq!(blocks as usize, data.len().div_ceil(4 << 10));
    }
}
