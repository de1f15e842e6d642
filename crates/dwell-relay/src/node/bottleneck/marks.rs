//! When datagrams were sent: a mark for each that follows the last mark by a while.

use std::collections::VecDeque;

use dwell_base::Instant;
use dwell_base::time::MILLI_NS;

/// Marks to keep.
const MARKS_MAX: usize = 512;
/// Marks are at least this far from each other, ...
const SPACING_NS_MIN: u64 = MILLI_NS;
/// ... no further than this, ...
const SPACING_NS_MAX: u64 = 40 * MILLI_NS;
/// ... and so far that this many are enough until a report comes.
const MARKS_IN_LAG: u64 = 128;

#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) number: u64,
    pub(super) at: Instant,
    /// All bytes of the session up to this datagram, and all of its time that was lost.
    pub(super) bytes: u64,
    pub(super) lost_ns: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Marks {
    marks: VecDeque<Mark>,
    bytes: u64,
    lost_ns: u64,
    next_at: Instant,
    spacing_ns: u64,
}

impl Marks {
    #[inline]
    pub(super) fn sent(&mut self, now: Instant, number: u64, (link_bytes, lost_ns): (u64, u64)) {
        self.bytes += link_bytes;
        self.lost_ns += lost_ns;
        if now >= self.next_at {
            self.mark(now, number);
        }
    }

    fn mark(&mut self, now: Instant, number: u64) {
        if self.marks.len() == MARKS_MAX {
            self.thin();
        }
        self.marks.push_back(Mark { number, at: now, bytes: self.bytes, lost_ns: self.lost_ns });
        self.next_at = now + self.spacing_ns.max(SPACING_NS_MIN);
    }

    /// No report named any of them yet: the path is long, or its queue is. Every second one is
    /// enough then, and they must reach further back.
    fn thin(&mut self) {
        let mut keep = true;
        self.marks.retain(|_| {
            keep = !keep; // the newest stays
            keep
        });
        self.spacing_ns = (2 * self.spacing_ns.max(SPACING_NS_MIN)).min(SPACING_NS_MAX);
    }

    /// The mark at this number, or the latest before it.
    pub(super) fn at(&self, number: u64) -> Option<Mark> {
        // What comes from the peer may be any number; beyond the last mark there are a few.
        let behind = self.marks.partition_point(|mark| mark.number <= number);
        self.marks.get(behind.checked_sub(1)?).copied()
    }

    /// The time from the sending of a datagram to the report of it.
    pub(super) fn set_lag(&mut self, lag_ns: u64) {
        self.spacing_ns = (lag_ns / MARKS_IN_LAG).min(SPACING_NS_MAX);
    }

    pub(super) fn clear(&mut self) {
        self.marks.clear();
        (self.bytes, self.lost_ns) = (0, 0);
        self.next_at = Instant::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first report may be of what was sent long ago, however much was sent since.
    #[test]
    fn marks_reach_back_before_any_report_came() {
        let mut marks = Marks::default();
        for number in 1..=10_000 {
            marks.sent(Instant::from_ns(number * MILLI_NS), number, (1_000, 0));
            assert!(marks.marks.len() <= MARKS_MAX);
        }
        for number in [4_000, 5_000, 9_000, 9_999] {
            let mark = marks.at(number).expect("there is a mark");
            assert!(number - mark.number <= 40, "{number}: {mark:?}");
            assert_eq!(
                (mark.at, mark.bytes / 1_000),
                (Instant::from_ns(mark.number * MILLI_NS), mark.number)
            );
        }
        // Reports came, and their lag is short.
        marks.set_lag(10 * MILLI_NS);
        marks.sent(Instant::from_ns(11_000 * MILLI_NS), 11_000, (1_000, 0));
        marks.sent(Instant::from_ns(11_001 * MILLI_NS), 11_001, (1_000, 0));
        assert_eq!(marks.at(11_000).map(|mark| mark.number), Some(11_000));
    }
}
