//! Parts of large blocks that wait for a paced link.
//!
//! A block of 8 KiB is a second on a link of 64 kbit/s. If all of its parts left at once, a queue that is shorter than that
//! would lose the end of every block, and nothing would ever arrive.

use std::collections::VecDeque;

use dwell_wire::Fragment;
use dwell_wire::block::FRAGMENTS_MAX;

/// A block that is being sent.
#[derive(Clone, Debug)]
struct Cut {
    id: u32,
    record: Vec<u8>,
    part_len: usize,
    next: u8,
    last: u8,
    keep: bool,
    copy: bool,
}

/// What waits of blocks that have begun to leave. It goes before all that waits in the port.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    /// The name of the latest record that was cut.
    latest_id: u32,
    cuts: VecDeque<Cut>,
    bytes: u64,
}

/// A part, and how it is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'a> {
    pub(super) fragment: Fragment<'a>,
    pub(super) keep: bool,
    pub(super) copy: bool,
}

impl Parts {
    /// Nothing waits, and this was the latest name.
    pub(crate) fn new(latest_id: u32) -> Self {
        Self { latest_id, cuts: VecDeque::new(), bytes: 0 }
    }

    /// The name of the next record that is cut.
    pub(super) fn next_id(&mut self) -> u32 {
        self.latest_id = self.latest_id.wrapping_add(1);
        self.latest_id
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.cuts.is_empty()
    }

    /// The bytes of them.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A block waits from part `first.index` on, of which `record` is all.
    pub(super) fn push(&mut self, first: &Part<'_>, record: &[u8], part_len: usize) {
        let Fragment { id, index: next, last, .. } = first.fragment;
        self.bytes += record.len().saturating_sub(usize::from(next) * part_len) as u64;
        let (keep, copy) = (first.keep, first.copy);
        self.cuts.push_back(Cut { id, record: record.to_vec(), part_len, next, last, keep, copy });
    }

    /// The part that goes next.
    pub(super) fn first(&self) -> Option<Part<'_>> {
        let Cut { id, record, part_len, next, last, keep, copy } = self.cuts.front()?;
        let data = record.chunks(*part_len).nth(usize::from(*next))?;
        let fragment = Fragment { id: *id, index: *next, last: *last, data };
        Some(Part { fragment, keep: *keep, copy: *copy })
    }

    /// That has gone.
    pub(super) fn remove_first(&mut self) {
        let len = self.first().map_or(0, |part| part.fragment.data.len());
        self.bytes = self.bytes.saturating_sub(len as u64);
        let Some(cut) = self.cuts.front_mut() else { return };
        cut.next += 1;
        if cut.next > cut.last {
            self.cuts.pop_front();
        }
    }

    /// A session begins, in which nothing of them has come, and parts may be this long. What would have to be cut into too many is lost.
    pub(crate) fn begin_session(&mut self, part_len: usize) {
        let mut cuts = std::mem::take(&mut self.cuts);
        cuts.retain_mut(|cut| {
            cut.part_len = cut.part_len.min(part_len.max(1));
            let parts = cut.record.len().div_ceil(cut.part_len);
            (cut.id, cut.next, cut.last) = (self.next_id(), 0, parts.saturating_sub(1) as u8);
            (2..=FRAGMENTS_MAX).contains(&parts)
        });
        self.bytes = cuts.iter().map(|cut| cut.record.len() as u64).sum();
        self.cuts = cuts;
    }

    pub(crate) fn clear(&mut self) {
        self.cuts.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(id: u32, index: u8, last: u8) -> Part<'static> {
        Part { fragment: Fragment { id, index, last, data: &[] }, keep: true, copy: false }
    }

    #[test]
    fn a_block_begins_again_in_another_session() {
        let mut parts = Parts::new(7);
        parts.push(&part(7, 1, 2), &[1; 250], 100);
        let first = |parts: &Parts| {
            let Fragment { id, index, last, data } = parts.first().expect("it waits").fragment;
            (id, index, last, data.len(), parts.bytes())
        };
        parts.begin_session(1_000);
        assert_eq!(first(&parts), (8, 0, 2, 100, 250));
        parts.begin_session(50);
        assert_eq!(first(&parts), (9, 0, 4, 50, 250));
        parts.begin_session(1);
        assert!(parts.is_empty() && parts.bytes() == 0);
    }

    #[test]
    fn parts_come_in_order_and_whole() {
        let mut parts = Parts::new(6);
        assert_eq!(parts.next_id(), 7);
        let record: Vec<u8> = (0..=249).collect();
        parts.push(&part(7, 1, 2), &record, 100);
        parts.push(&part(8, 0, 0), &record[..30], 100);
        assert_eq!(parts.bytes(), 180);
        let mut seen = Vec::new();
        while let Some(part) = parts.first() {
            assert!(part.keep && !part.copy);
            let Fragment { id, index, last, data } = part.fragment;
            seen.push((id, index, last, data.to_vec()));
            parts.remove_first();
        }
        let expected =
            [(7, 1, 2, &record[100..200]), (7, 2, 2, &record[200..]), (8, 0, 0, &record[..30])];
        assert_eq!(seen, expected.map(|(id, index, last, data)| (id, index, last, data.to_vec())));
        assert!(parts.is_empty() && parts.bytes() == 0);
    }
}
