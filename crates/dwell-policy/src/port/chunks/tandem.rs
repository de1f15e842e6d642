//! ChuTQ, section 4.3: a queue for each class, and behind them one chunking buffer.
//!
//! Packets are classed as in ChuMQ. The head with the largest α ([`super::alpha`]), at a tie
//! the one of the first queue, moves to the chunking buffer, and so on; the first that does
//! not fit closes the buffer. It is sent when it is closed and the link is free, or when the
//! smallest deadline in it has come.
//!
//! The paper leaves open when packets move: *eager* is as long as the buffer is not closed,
//! *lazy* only while the link is free. Nor does it say what CEA, section 4.4, does when a
//! packet does not fit: here other heads are added that do, the first queue first, and either
//! the buffer is closed, or (*hold*) it stays open for later packets that fit, until it has no
//! room for the smallest packet, or more than a frame waits behind it.
//!
//! Packets that are never held have a last queue. Their residual is never positive, so they
//! are pulled after all that are not overdue; but none of them ever waits behind a buffer that
//! is held open, and one that is in the buffer makes it due.

use dwell_base::Instant;

use super::Entry;
use super::alpha::Alpha;
use super::buffers::Classes;
use super::fifo::{Chunk, Fifo, Limits};
use crate::action::SendCause;
use crate::scheme::{ClassTimers, Pull};

/// A buffer with less room than this has none: no IP packet with a transport header is smaller.
const ROOM_BYTES_MIN: u64 = 40;

#[derive(Clone, Debug)]
pub(super) struct Tandem {
    classes: Classes,
    queues: Vec<Fifo>,
    /// Bit i: queue i is not empty.
    filled: u32,
    /// Bytes in the queues, without those in the chunking buffer.
    behind_bytes: u64,
    /// The chunking buffer.
    chunk: Chunk,
    state: State,
    pull: Pull,
    limits: Limits,
    fill: bool,
}

/// The packets that may still enter the chunking buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The head with the largest α.
    Open,
    /// That did not fit; what fits.
    Held,
    /// Nothing: it goes when the link is free.
    Closed,
}

impl Tandem {
    pub(super) fn new(timers: &ClassTimers, pull: Pull, limits: Limits, fill: bool) -> Self {
        let classes = Classes::new(timers);
        Self {
            classes,
            queues: classes.timers_ns().map(|_| Fifo::default()).collect(),
            filled: 0,
            behind_bytes: 0,
            chunk: Chunk::new(limits),
            state: State::Open,
            pull,
            limits,
            fill,
        }
    }

    pub(super) fn packets_before(&self, max_wait_ns: u64) -> usize {
        self.queues[self.classes.of(max_wait_ns)].len()
    }

    pub(super) fn arrive(&mut self, now: Instant, entry: Entry) {
        let at = self.classes.of(entry.max_wait_ns());
        self.behind_bytes += u64::from(entry.unit_bytes);
        self.queues[at].push(entry);
        self.filled |= 1 << at;
        if self.pull.eager {
            self.pull(now);
        }
    }

    pub(super) fn take(&mut self, now: Instant, chunk: &mut Chunk) -> bool {
        self.pull(now);
        let closed = self.state == State::Closed;
        let due = closed || (!self.chunk.is_empty() && self.chunk.deadline() <= now);
        if !due {
            return false;
        }
        std::mem::swap(&mut self.chunk, chunk);
        chunk.cause = if closed { SendCause::Full } else { SendCause::Timer };
        chunk.buffer = 0;
        self.chunk.clear();
        self.state = State::Open;
        if self.pull.eager {
            self.pull(now);
        }
        true
    }

    /// Moves into the chunking buffer what may come.
    fn pull(&mut self, now: Instant) {
        while self.state == State::Open {
            let Some(best) = self.best(now) else { return };
            if !self.move_head(best) {
                self.state = if self.fill { State::Held } else { State::Closed };
            } else if self.chunk.is_ended() {
                self.state = State::Closed;
            }
        }
        if self.state == State::Held {
            self.top_up();
        }
    }

    /// The queue whose head has the largest α.
    fn best(&self, now: Instant) -> Option<usize> {
        let mut left = self.filled;
        if left & left.wrapping_sub(1) == 0 {
            return (left != 0).then(|| left.trailing_zeros() as usize);
        }
        let mut best: Option<(usize, Alpha)> = None;
        while left != 0 {
            let at = left.trailing_zeros() as usize;
            left &= left - 1;
            let Some(head) = self.queues[at].head() else { continue };
            let alpha = Alpha::new(now, head.deadline, head.bytes, self.pull.clamp_ns);
            if best.is_none_or(|(_, best)| alpha.is_above(&best, self.pull.policy)) {
                best = Some((at, alpha));
            }
        }
        best.map(|(at, _)| at)
    }

    fn move_head(&mut self, at: usize) -> bool {
        let fifo = &mut self.queues[at];
        let before = fifo.bytes();
        let moved = fifo.move_head(&mut self.chunk);
        self.behind_bytes -= before - fifo.bytes();
        self.filled &= !(u32::from(fifo.len() == 0) << at);
        moved
    }

    /// CEA: adds what fits, and closes the buffer unless it is to be held open.
    fn top_up(&mut self) {
        let mut left = self.filled;
        while left != 0 {
            let at = left.trailing_zeros() as usize;
            left &= left - 1;
            while self.move_head(at) {}
        }
        let never_held = 1 << (self.queues.len() - 1);
        let keep = self.pull.hold
            && !self.chunk.is_ended()
            && self.chunk.room_bytes() >= ROOM_BYTES_MIN
            && self.behind_bytes <= self.limits.bytes_max
            && self.filled & never_held == 0;
        if !keep {
            self.state = State::Closed;
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        (!self.chunk.is_empty()).then(|| self.chunk.deadline())
    }

    pub(super) fn drain(&mut self, to: &mut dyn FnMut(Entry)) {
        self.chunk.entries().iter().copied().for_each(&mut *to);
        self.chunk.clear();
        self.state = State::Open;
        for queue in &mut self.queues {
            while let Some(entry) = queue.pop() {
                to(entry);
            }
        }
        (self.filled, self.behind_bytes) = (0, 0);
    }

    pub(super) fn for_each(&self, visit: &mut dyn FnMut(&Entry)) {
        let queued = self.queues.iter().flat_map(|queue| queue.iter());
        self.chunk.entries().iter().chain(queued).for_each(visit);
    }

    pub(super) fn assert_invariants(&self) {
        let deadline = self.chunk.entries().iter().map(|entry| entry.deadline).min();
        assert_eq!(self.next_deadline(), deadline, "the timer of the chunking buffer");
        for (at, queue) in self.queues.iter().enumerate() {
            let filled = self.filled & (1 << at) != 0;
            assert_eq!(filled, queue.len() > 0, "queue {at}");
        }
        let behind: u64 = self.queues.iter().map(|queue| queue.bytes()).sum();
        assert_eq!(behind, self.behind_bytes, "bytes behind the chunking buffer");
        assert!(self.state == State::Open || !self.chunk.is_empty(), "closed and empty");
        assert!(self.state != State::Held || self.fill && self.pull.hold, "held for nothing");
    }
}
