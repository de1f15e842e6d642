//! The building blocks of all chunking schemes: queues, and the chunk that is being made.

use std::collections::VecDeque;

use dwell_base::Instant;

use super::Entry;
use crate::action::SendCause;

/// The limits of one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Most bytes, headers of units included.
    pub(super) bytes_max: u64,
    /// Most packets.
    pub(super) units_max: usize,
    /// A unit of more bytes than this must be the last.
    pub(super) unit_bytes_named: u32,
}

impl Limits {
    /// Room for nothing.
    pub(super) const NONE: Self = Self { bytes_max: 0, units_max: 0, unit_bytes_named: 0 };
}

/// A chunk that is being made, or has been. Its storage is reused.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    entries: Vec<Entry>,
    bytes: u64,
    /// The smallest deadline.
    deadline: Instant,
    limits: Limits,
    /// Nothing may come after what is in it.
    ended: bool,
    /// Why it is sent.
    pub(super) cause: SendCause,
    /// Which buffer it came from.
    pub(super) buffer: u8,
}

impl Chunk {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            entries: Vec::new(),
            bytes: 0,
            deadline: Instant::FAR_FUTURE,
            limits,
            ended: false,
            cause: SendCause::Ready,
            buffer: 0,
        }
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// True if nothing may come after what is in it.
    pub(super) fn is_ended(&self) -> bool {
        self.ended
    }

    pub(super) fn room_bytes(&self) -> u64 {
        self.limits.bytes_max.saturating_sub(self.bytes)
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.bytes = 0;
        self.deadline = Instant::FAR_FUTURE;
        self.ended = false;
    }

    /// True if a unit of this size may come next.
    #[inline]
    pub(super) fn takes(&self, unit_bytes: u32) -> bool {
        let fits = u64::from(unit_bytes) <= self.room_bytes();
        (fits && !self.ended) || self.is_empty()
    }

    #[inline]
    pub(super) fn push(&mut self, entry: Entry) {
        self.bytes += u64::from(entry.unit_bytes);
        self.deadline = self.deadline.min(entry.deadline);
        self.entries.push(entry);
        self.ended = self.entries.len() >= self.limits.units_max
            || entry.unit_bytes > self.limits.unit_bytes_named
            || self.bytes > self.limits.bytes_max;
    }
}

/// A queue, first in, first out.
#[derive(Clone, Debug, Default)]
pub(super) struct Fifo {
    entries: VecDeque<Entry>,
    bytes: u64,
}

impl Fifo {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn head(&self) -> Option<&Entry> {
        self.entries.front()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// True if it holds more than a chunk takes.
    #[inline]
    pub(super) fn is_over(&self, limits: &Limits) -> bool {
        self.bytes > limits.bytes_max || self.entries.len() > limits.units_max
    }

    #[inline]
    pub(super) fn push(&mut self, entry: Entry) {
        self.bytes += u64::from(entry.unit_bytes);
        self.entries.push_back(entry);
    }

    pub(super) fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        self.bytes -= u64::from(entry.unit_bytes);
        Some(entry)
    }

    /// Moves its head, if the chunk takes it.
    #[inline]
    pub(super) fn move_head(&mut self, chunk: &mut Chunk) -> bool {
        let fits = self.entries.front().is_some_and(|head| chunk.takes(head.unit_bytes));
        if let Some(entry) = fits.then(|| self.pop()).flatten() {
            chunk.push(entry);
        }
        fits
    }

    /// Moves as many as the chunk takes, and says how many.
    pub(super) fn move_prefix(&mut self, chunk: &mut Chunk) -> usize {
        let (mut moved, before) = (0, chunk.bytes);
        for entry in &self.entries {
            if !chunk.takes(entry.unit_bytes) {
                break;
            }
            chunk.push(*entry);
            moved += 1;
        }
        self.entries.drain(..moved);
        self.bytes -= chunk.bytes - before;
        moved
    }
}
