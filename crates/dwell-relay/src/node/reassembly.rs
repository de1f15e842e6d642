//! Records that came in fragments (`docs/wire.md` section 8.2).

use std::collections::VecDeque;

use dwell_base::Instant;
use dwell_base::time::SECOND_NS;
use dwell_wire::Fragment;

/// Records of one peer that may be incomplete at a time, ...
const RECORDS_MAX: usize = 64;
/// ... their bytes, ...
const BYTES_MAX: usize = 512 << 10;
/// ... and for how long one is waited for.
const WAIT_NS: u64 = 2 * SECOND_NS;
/// No record is longer than a packet can be, and its headers.
const RECORD_BYTES_MAX: usize = super::LEN_MAX + super::RECORD_ROOM;

/// Why a record that came in fragments was dropped; how many of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReassemblyDrops {
    /// Fragments of it did not come in time.
    pub(crate) timed_out: u64,
    /// There were too many others, or too many bytes.
    pub(crate) crowded_out: u64,
    /// Its fragments contradict each other.
    pub(crate) malformed: u64,
}

#[derive(Debug)]
struct Partial {
    id: u32,
    /// When its latest part came.
    latest: Instant,
    /// By index; those that are not there yet are empty.
    parts: Vec<Vec<u8>>,
    missing: usize,
    bytes: usize,
}

/// The incomplete records of one session, in the order of their beginnings.
#[derive(Debug, Default)]
struct Reassembly {
    records: VecDeque<Partial>,
    bytes: usize,
    drops: ReassemblyDrops,
}

/// The incomplete records of two sessions: what is in transit when a session is renewed is
/// completed all the same, and never with parts of the other one.
#[derive(Debug, Default)]
pub(crate) struct Reassemblies {
    present: Reassembly,
    before: Reassembly,
}

impl Reassemblies {
    /// Takes a fragment in; gives the record if it was the last that was missing.
    pub(crate) fn insert(
        &mut self,
        now: Instant,
        is_present: bool,
        fragment: &Fragment<'_>,
    ) -> Option<Vec<u8>> {
        let of_session = if is_present { &mut self.present } else { &mut self.before };
        of_session.insert(now, fragment)
    }

    /// A new session begins.
    pub(crate) fn begin(&mut self) {
        let mut drops = self.drops();
        drops.timed_out += self.before.records.len() as u64;
        self.before = std::mem::take(&mut self.present);
        self.before.drops = ReassemblyDrops::default();
        self.present.drops = drops;
    }

    /// Drops records that were incomplete for too long.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.present.expire(now);
        self.before.expire(now);
    }

    /// Returns the number of dropped records, over all sessions.
    pub(crate) fn drops(&self) -> ReassemblyDrops {
        let (present, before) = (self.present.drops, self.before.drops);
        ReassemblyDrops {
            timed_out: present.timed_out + before.timed_out,
            crowded_out: present.crowded_out + before.crowded_out,
            malformed: present.malformed + before.malformed,
        }
    }

    /// Records that are incomplete now.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.present.len() + self.before.len()
    }
}

impl Reassembly {
    /// Takes a fragment in; gives the record if it was the last that was missing.
    fn insert(&mut self, now: Instant, fragment: &Fragment<'_>) -> Option<Vec<u8>> {
        self.expire(now);
        let at = match self.records.iter().position(|record| record.id == fragment.id) {
            Some(at) => at,
            None => self.begin(now, fragment),
        };
        let record = &mut self.records[at];
        let count = record.parts.len();
        let Some(part) = record.parts.get_mut(usize::from(fragment.index)) else {
            return self.refuse(at);
        };
        if count != usize::from(fragment.last) + 1 {
            return self.refuse(at);
        }
        if !part.is_empty() {
            return None; // it came twice
        }
        part.extend_from_slice(fragment.data);
        record.latest = now;
        record.missing -= 1;
        record.bytes += fragment.data.len();
        self.bytes += fragment.data.len();
        if record.bytes > RECORD_BYTES_MAX {
            return self.refuse(at);
        }
        if record.missing == 0 {
            return self.take(at).map(|record| record.parts.concat());
        }
        while self.bytes > BYTES_MAX {
            self.drops.crowded_out += 1;
            self.take(0);
        }
        None
    }

    /// Drops records that were incomplete for too long.
    fn expire(&mut self, now: Instant) {
        let is_late = |record: &Partial| now.since_ns(record.latest) > WAIT_NS;
        while let Some(at) = self.records.iter().position(is_late) {
            self.drops.timed_out += 1;
            self.take(at);
        }
    }

    /// Records that are incomplete now.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.records.len()
    }

    fn begin(&mut self, now: Instant, fragment: &Fragment<'_>) -> usize {
        if self.records.len() == RECORDS_MAX {
            self.drops.crowded_out += 1;
            self.take(0);
        }
        let count = usize::from(fragment.last) + 1; // at most 64
        self.records.push_back(Partial {
            id: fragment.id,
            latest: now,
            parts: vec![Vec::new(); count],
            missing: count,
            bytes: 0,
        });
        self.records.len() - 1
    }

    fn refuse(&mut self, at: usize) -> Option<Vec<u8>> {
        self.drops.malformed += 1;
        self.take(at);
        None
    }

    fn take(&mut self, at: usize) -> Option<Partial> {
        let record = self.records.remove(at)?;
        self.bytes -= record.bytes;
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fragment(id: u32, index: u8, last: u8, data: &[u8]) -> Fragment<'_> {
        Fragment { id, index, last, data }
    }

    #[test]
    fn parts_come_in_any_order_and_more_than_once() {
        let mut joined = Reassembly::default();
        let now = Instant::ZERO;
        assert_eq!(joined.insert(now, &fragment(1, 2, 2, b"c")), None);
        assert_eq!(joined.insert(now, &fragment(2, 0, 1, b"x")), None);
        assert_eq!(joined.insert(now, &fragment(1, 0, 2, b"aa")), None);
        assert_eq!(joined.insert(now, &fragment(1, 0, 2, b"aa")), None);
        assert_eq!(joined.insert(now, &fragment(1, 1, 2, b"bb")), Some(b"aabbc".to_vec()));
        assert_eq!(joined.insert(now, &fragment(2, 1, 1, b"y")), Some(b"xy".to_vec()));
        assert_eq!((joined.len(), joined.bytes), (0, 0));
        assert_eq!(joined.drops, ReassemblyDrops::default());
    }

    #[test]
    fn sessions_are_not_mixed_and_the_one_before_is_completed() {
        let mut joined = Reassemblies::default();
        let now = Instant::ZERO;
        assert_eq!(joined.insert(now, true, &fragment(1, 0, 1, b"old")), None);
        joined.begin();
        // The same name in the new session, as after a restart.
        assert_eq!(joined.insert(now, true, &fragment(1, 1, 1, b" packet")), None);
        let old = joined.insert(now, false, &fragment(1, 1, 1, b" one"));
        assert_eq!(old, Some(b"old one".to_vec()));
        let new = joined.insert(now, true, &fragment(1, 0, 1, b"new"));
        assert_eq!(new, Some(b"new packet".to_vec()));
        // Two sessions later nothing comes any more.
        assert_eq!(joined.insert(now, true, &fragment(2, 0, 1, b"old")), None);
        joined.begin();
        assert_eq!((joined.len(), joined.drops().timed_out), (1, 0));
        joined.begin();
        assert_eq!((joined.len(), joined.drops().timed_out), (0, 1));
    }

    #[test]
    fn what_stays_incomplete_is_forgotten_and_counted() {
        let mut joined = Reassembly::default();
        joined.insert(Instant::ZERO, &fragment(1, 0, 1, b"a"));
        joined.insert(Instant::from_ns(3 * SECOND_NS), &fragment(2, 0, 1, b"a"));
        assert_eq!((joined.len(), joined.drops.timed_out), (1, 1));
        // Fragments that contradict each other.
        joined.insert(Instant::from_ns(3 * SECOND_NS), &fragment(2, 1, 2, b"a"));
        assert_eq!((joined.len(), joined.drops.malformed), (0, 1));
    }

    proptest! {
        /// Whatever comes: bounded, and counted.
        #[test]
        fn memory_is_bounded(
            fragments in prop::collection::vec((0u32..200, 0u8..64, 1u8..64, 1usize..20_000), 0..400),
        ) {
            let mut joined = Reassembly::default();
            let data = [7; 20_000];
            for (at, (id, index, last, len)) in fragments.into_iter().enumerate() {
                let fragment = fragment(id, index.min(last), last, &data[..len]);
                joined.insert(Instant::from_ns(at as u64 * 1_000_000), &fragment);
                let bytes: usize = joined.records.iter().map(|record| record.bytes).sum();
                prop_assert_eq!(bytes, joined.bytes);
                prop_assert!(bytes <= BYTES_MAX && joined.len() <= RECORDS_MAX);
            }
        }
    }
}
