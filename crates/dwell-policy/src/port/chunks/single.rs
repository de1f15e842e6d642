//! BasiCQ, section 4.1: one queue for all.
//!
//! The chunk is due when more than a frame is queued, or when the smallest deadline of *all*
//! queued packets has come, wherever in the queue that packet stands. A packet that is never
//! held makes it due at once; those before it go with it or before it, so order is kept among
//! all packets.

use std::collections::VecDeque;

use dwell_base::Instant;

use super::Entry;
use super::fifo::{Chunk, Fifo, Limits};
use crate::action::SendCause;

#[derive(Clone, Debug)]
pub(super) struct Single {
    fifo: Fifo,
    deadlines: Deadlines,
    limits: Limits,
}

impl Single {
    pub(super) fn new(limits: Limits) -> Self {
        Self { fifo: Fifo::default(), deadlines: Deadlines::default(), limits }
    }

    pub(super) fn packets(&self) -> usize {
        self.fifo.len()
    }

    pub(super) fn arrive(&mut self, entry: Entry) {
        self.deadlines.push(entry.deadline);
        self.fifo.push(entry);
    }

    pub(super) fn take(&mut self, now: Instant, chunk: &mut Chunk) -> bool {
        let full = self.fifo.is_over(&self.limits);
        let expired = || self.next_deadline().is_some_and(|deadline| deadline <= now);
        if !full && !expired() {
            return false;
        }
        chunk.clear();
        chunk.buffer = 0;
        chunk.cause = if full { SendCause::Full } else { SendCause::Timer };
        let moved = self.fifo.move_prefix(chunk);
        self.deadlines.pop(moved);
        true
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.smallest()
    }

    pub(super) fn drain(&mut self, to: &mut dyn FnMut(Entry)) {
        self.deadlines.pop(self.fifo.len());
        while let Some(entry) = self.fifo.pop() {
            to(entry);
        }
    }

    pub(super) fn for_each(&self, visit: &mut dyn FnMut(&Entry)) {
        self.fifo.iter().for_each(visit);
    }

    pub(super) fn assert_invariants(&self) {
        let smallest = self.fifo.iter().map(|entry| entry.deadline).min();
        assert_eq!(self.deadlines.smallest(), smallest, "the timer is not the smallest deadline");
    }
}

/// The smallest of the deadlines in a queue, in constant time on average.
///
/// Kept are only those deadlines that will be the smallest at some time: those smaller than
/// all that come after them in the queue. They grow from front to back.
#[derive(Clone, Debug, Default)]
struct Deadlines {
    /// With the number, counted from the first packet ever, of the packet that it is of.
    growing: VecDeque<(Instant, u64)>,
    /// Packets that ever joined the queue, and that ever left it.
    joined: u64,
    left: u64,
}

impl Deadlines {
    fn smallest(&self) -> Option<Instant> {
        self.growing.front().map(|&(deadline, _)| deadline)
    }

    fn push(&mut self, deadline: Instant) {
        while self.growing.back().is_some_and(|&(last, _)| last >= deadline) {
            self.growing.pop_back();
        }
        self.growing.push_back((deadline, self.joined));
        self.joined += 1;
    }

    /// Removes this many packets from the head of the queue.
    fn pop(&mut self, packets: usize) {
        self.left += packets as u64;
        while self.growing.front().is_some_and(|&(_, number)| number < self.left) {
            self.growing.pop_front();
        }
    }
}
