//! The sender's knowledge of packets beyond the first gap.

use super::bits::RingBits;
use super::segment::SackBlock;

/// The packets that the receiver has reported beyond the cumulative acknowledgement, and the gaps
/// between them that were retransmitted.
#[derive(Clone, Debug)]
pub(super) struct Scoreboard {
    /// The cumulative acknowledgement: nothing below is of interest.
    start: u64,
    /// One past the highest reported packet, or `start`.
    end: u64,
    reported: RingBits,
    reported_len: u64,
    /// The gaps below it were retransmitted.
    filled_to: u64,
}

impl Scoreboard {
    pub(super) fn new() -> Self {
        Self { start: 0, end: 0, reported: RingBits::new(), reported_len: 0, filled_to: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.reported_len == 0
    }

    /// Forgets everything; all before `start` is acknowledged.
    pub(super) fn clear(&mut self, start: u64) {
        if !self.is_empty() {
            self.reported.clear_range(self.start, self.end);
            self.reported_len = 0;
        }
        self.start = start;
        self.end = start;
        self.filled_to = start;
    }

    /// All before `start` is acknowledged now.
    pub(super) fn advance(&mut self, start: u64) {
        if start <= self.start {
            return;
        }
        self.reported_len -= self.reported.clear_range(self.start, start.min(self.end));
        self.start = start;
        self.end = self.end.max(start);
        self.filled_to = self.filled_to.max(start);
    }

    /// Takes in a block, of which nothing lies at or above `limit`; returns the number of its
    /// packets that are news.
    pub(super) fn report(&mut self, block: SackBlock, limit: u64) -> u64 {
        let start = block.start.max(self.start);
        let end = block.end.min(limit);
        if start >= end {
            return 0;
        }
        self.reported.reserve(self.start, self.end, self.end.max(end));
        self.end = self.end.max(end);
        let news = self.reported.set_range(start, end);
        self.reported_len += news;
        news
    }

    /// Notes that `seq` is retransmitted, and with it all gaps below.
    pub(super) fn fill(&mut self, seq: u64) {
        self.filled_to = self.filled_to.max(seq + 1);
    }

    /// Returns true if `seq` was retransmitted, provided that it was a gap.
    pub(super) fn filled(&self, seq: u64) -> bool {
        seq < self.filled_to
    }

    /// Marks all gaps as not filled.
    pub(super) fn unfill(&mut self) {
        self.filled_to = self.start;
    }

    /// The first gap that was not filled, with a reported packet above it.
    pub(super) fn next_gap(&self) -> Option<u64> {
        self.first_gap(self.end)
    }

    /// The first packet below `limit` that was neither reported nor filled.
    pub(super) fn first_gap(&self, limit: u64) -> Option<u64> {
        if self.filled_to >= limit {
            return None;
        }
        let known_end = self.end.min(limit);
        let gap = if self.filled_to < known_end && !self.is_empty() {
            self.reported.first_clear(self.filled_to, known_end)
        } else {
            self.filled_to
        };
        (gap < limit).then_some(gap)
    }

    /// Returns the number of packets below `limit` that were neither reported nor filled.
    pub(super) fn gaps_len(&self, limit: u64) -> u64 {
        if self.filled_to >= limit {
            return 0;
        }
        let known_end = self.end.min(limit).max(self.filled_to);
        limit - self.filled_to - self.reported.ones(self.filled_to, known_end)
    }

    /// Returns the reported packet above which `nth - 1` others are, if there are enough.
    pub(super) fn nth_highest(&self, nth: u32) -> Option<u64> {
        if self.reported_len < u64::from(nth) {
            return None;
        }
        self.reported.nth_highest(self.start, self.end, nth)
    }

    pub(super) fn reported_len(&self) -> u64 {
        self.reported_len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(start: u64, end: u64) -> SackBlock {
        SackBlock { start, end }
    }

    #[test]
    fn gaps_are_filled_from_below_and_once() {
        let mut board = Scoreboard::new();
        board.clear(10);
        assert_eq!(board.next_gap(), None);
        assert_eq!(board.report(block(12, 14), 100), 2);
        assert_eq!(board.report(block(15, 16), 100), 1);
        for gap in [10, 11, 14] {
            assert_eq!(board.next_gap(), Some(gap));
            board.fill(gap);
        }
        assert_eq!(board.next_gap(), None);
        assert_eq!(board.report(block(17, 18), 100), 1);
        assert_eq!(board.next_gap(), Some(16));
    }

    #[test]
    fn only_news_count() {
        let mut board = Scoreboard::new();
        assert_eq!(board.report(block(5, 8), 100), 3);
        assert_eq!(board.report(block(4, 9), 100), 2);
        assert_eq!(board.report(block(4, 9), 100), 0);
        assert_eq!(board.report(block(90, 200), 100), 10);
        board.advance(7);
        assert_eq!(board.report(block(3, 9), 100), 0);
        assert_eq!(board.next_gap(), Some(9));
        board.clear(7);
        assert!(board.is_empty());
        assert_eq!(board.report(block(7, 9), 100), 2);
    }
}
