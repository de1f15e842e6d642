//! ChuMQ, section 4.2: a buffer for each class.
//!
//! Each buffer i has a timer T_i. A packet goes to the buffer with the largest T_i that is not
//! longer than its W; if even T_1 is longer, to the first, without a promise. The timer of a
//! buffer runs from the arrival of the packet at its head, and is taken again from the next
//! head after each chunk.
//!
//! When the link is free, the first buffer whose timer has expired is served; only if there is
//! none, the first that holds more than a frame. (Serving full buffers before expired ones
//! does not give the paper's Table IV.)
//!
//! Packets that are never held have a last buffer whose timer is zero. So they go after the
//! classes whose timers have expired, and before those that merely have a full frame.
//!
//! With CEA, section 4.4, a chunk that is made by the timer and not full takes more packets
//! from the other buffers, the first buffer first, from each as long as its head fits.

use dwell_base::Instant;

use super::Entry;
use super::fifo::{Chunk, Fifo, Limits};
use crate::action::SendCause;
use crate::scheme::ClassTimers;

#[derive(Clone, Debug)]
pub(super) struct Buffers {
    classes: Classes,
    buffers: Vec<Buffer>,
    /// Bit i: buffer i holds more than a chunk takes.
    over: u32,
    /// When the first timer expires.
    earliest: Instant,
    limits: Limits,
    fill: bool,
}

#[derive(Clone, Debug)]
struct Buffer {
    fifo: Fifo,
    timer_ns: u64,
    /// [`Instant::FAR_FUTURE`] if it is empty.
    expires: Instant,
}

impl Buffer {
    fn new(timer_ns: u64) -> Self {
        Self { fifo: Fifo::default(), timer_ns, expires: Instant::FAR_FUTURE }
    }

    fn is_expired(&self, now: Instant) -> bool {
        self.expires <= now && self.fifo.len() > 0
    }

    fn expiry(&self) -> Instant {
        self.fifo.head().map_or(Instant::FAR_FUTURE, |head| head.arrived + self.timer_ns)
    }
}

/// Which queue a packet goes to: one for each class, and a last for those that are never held.
#[derive(Clone, Copy, Debug)]
pub(super) struct Classes(ClassTimers);

impl Classes {
    pub(super) fn new(timers: &ClassTimers) -> Self {
        Self(*timers)
    }

    /// The timers of all queues.
    pub(super) fn timers_ns(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.as_slice().iter().copied().chain([0])
    }

    /// The queue of a packet with this W.
    pub(super) fn of(&self, max_wait_ns: u64) -> usize {
        let timers_ns = self.0.as_slice();
        if max_wait_ns == 0 {
            return timers_ns.len();
        }
        // They ascend. Counted to the end, because a branch here is taken at random.
        let not_longer: usize = timers_ns.iter().map(|&ns| usize::from(ns <= max_wait_ns)).sum();
        not_longer.max(1) - 1
    }
}

impl Buffers {
    pub(super) fn new(timers: &ClassTimers, limits: Limits, fill: bool) -> Self {
        let classes = Classes::new(timers);
        let buffers = classes.timers_ns().map(Buffer::new).collect();
        Self { classes, buffers, over: 0, earliest: Instant::FAR_FUTURE, limits, fill }
    }

    pub(super) fn packets_before(&self, max_wait_ns: u64) -> usize {
        self.buffers[self.classes.of(max_wait_ns)].fifo.len()
    }

    pub(super) fn arrive(&mut self, entry: Entry) {
        let at = self.classes.of(entry.max_wait_ns());
        let buffer = &mut self.buffers[at];
        if buffer.fifo.len() == 0 {
            buffer.expires = entry.arrived + buffer.timer_ns;
            self.earliest = self.earliest.min(buffer.expires);
        }
        buffer.fifo.push(entry);
        self.over |= u32::from(buffer.fifo.is_over(&self.limits)) << at;
    }

    pub(super) fn take(&mut self, now: Instant, chunk: &mut Chunk) -> bool {
        let Some(at) = self.due(now) else { return false };
        let full = self.over & (1 << at) != 0;
        let held = at + 1 < self.buffers.len();
        chunk.clear();
        chunk.buffer = at as u8;
        chunk.cause = match (full, held) {
            (true, _) => SendCause::Full,
            (false, true) => SendCause::Timer,
            (false, false) => SendCause::Ready,
        };
        self.buffers[at].fifo.move_prefix(chunk);
        self.rearm(at);
        if self.fill && !full {
            self.fill_up(chunk);
        }
        self.earliest =
            self.buffers.iter().map(|buffer| buffer.expires).min().unwrap_or(Instant::FAR_FUTURE);
        true
    }

    /// The buffer to serve.
    fn due(&self, now: Instant) -> Option<usize> {
        if self.earliest <= now {
            return self.buffers.iter().position(|buffer| buffer.is_expired(now));
        }
        (self.over != 0).then(|| self.over.trailing_zeros() as usize)
    }

    /// CEA. The buffer that the chunk is from is empty by now.
    fn fill_up(&mut self, chunk: &mut Chunk) {
        for at in 0..self.buffers.len() {
            if self.buffers[at].fifo.move_prefix(chunk) > 0 {
                self.rearm(at);
            }
        }
    }

    /// Sets timer and fullness of a buffer again after packets left it.
    fn rearm(&mut self, at: usize) {
        let buffer = &mut self.buffers[at];
        buffer.expires = buffer.expiry();
        let over = u32::from(buffer.fifo.is_over(&self.limits));
        self.over = (self.over & !(1 << at)) | over << at;
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        (self.earliest < Instant::FAR_FUTURE).then_some(self.earliest)
    }

    pub(super) fn drain(&mut self, to: &mut dyn FnMut(Entry)) {
        for at in 0..self.buffers.len() {
            while let Some(entry) = self.buffers[at].fifo.pop() {
                to(entry);
            }
            self.rearm(at);
        }
        self.earliest = Instant::FAR_FUTURE;
    }

    pub(super) fn for_each(&self, visit: &mut dyn FnMut(&Entry)) {
        self.buffers.iter().flat_map(|buffer| buffer.fifo.iter()).for_each(visit);
    }

    pub(super) fn assert_invariants(&self) {
        for (at, buffer) in self.buffers.iter().enumerate() {
            assert_eq!(buffer.expires, buffer.expiry(), "the timer of buffer {at}");
            let over = self.over & (1 << at) != 0;
            assert_eq!(over, buffer.fifo.is_over(&self.limits), "the fullness of buffer {at}");
        }
        let earliest = self.buffers.iter().map(Buffer::expiry).min();
        assert_eq!(Some(self.earliest), earliest, "the earliest timer");
    }
}
