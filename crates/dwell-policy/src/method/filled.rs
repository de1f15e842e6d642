//! Whether the link is known to be what a stream waits for, and not the transport, which begins slowly.

use dwell_base::Instant;

use crate::rate::LinkReport;

/// A queue before the link is one from this length on, in nanoseconds, and from this part of a round trip on: while a
/// transport's window grows, what it sends at once waits for some milliseconds, too.
const QUEUE_NS_MIN: u64 = 2_000_000;
const QUEUE_PART: u64 = 16;
/// It must have been there for so long without a break, in nanoseconds and in round trips: what the other end computed for
/// the first answers, and that it confirms late, makes round trips longer for a while.
const STANDING_NS: u64 = 250_000_000;
const STANDING_ROUND_TRIPS: u64 = 5;
/// After that it counts for this long, in nanoseconds.
const QUEUE_NS: u64 = 1_000_000_000;
/// A rate that was measured for so long needs no queue to be believed, in nanoseconds and in round trips.
const LONG_NS: u64 = 1_000_000_000;
const LONG_ROUND_TRIPS: u64 = 16;
/// Over a thin link it takes a while from one measurement to the next, in nanoseconds.
const GAP_NS: u64 = 2_000_000_000;

/// What is known of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Filled {
    queued_since: Option<Instant>,
    /// The time at which it had been there for long enough.
    stood_at: Option<Instant>,
    measured_since: Option<Instant>,
    measured_at: Instant,
    round_trip_ns: u64,
    is_full: bool,
}

impl Filled {
    /// Notes what the transport says of the link.
    pub(super) fn reported(&mut self, now: Instant, report: &LinkReport) {
        self.round_trip_ns = report.round_trip_ns;
        let is_queue = report.queue_ns >= QUEUE_NS_MIN.max(report.round_trip_ns / QUEUE_PART);
        self.queued_since = is_queue.then(|| self.queued_since.unwrap_or(now));
        let long_ns = STANDING_NS.max(STANDING_ROUND_TRIPS * report.round_trip_ns);
        if self.queued_since.is_some_and(|since| now.since_ns(since) >= long_ns) {
            self.stood_at = Some(now);
        }
    }

    /// Notes the time, and whether the rate is one that was measured now.
    pub(super) fn at(&mut self, now: Instant, is_measured: bool) {
        let goes_on = now.since_ns(self.measured_at) < GAP_NS;
        let since = self.measured_since.filter(|_| goes_on);
        self.measured_since = if is_measured { since.or(Some(now)) } else { since };
        if is_measured {
            self.measured_at = now;
        }
        let long_ns = LONG_NS.max(LONG_ROUND_TRIPS * self.round_trip_ns);
        let is_long = self.measured_since.is_some_and(|since| now.since_ns(since) >= long_ns);
        let is_queued = self.stood_at.is_some_and(|at| now.since_ns(at) < QUEUE_NS);
        self.is_full = is_queued || is_long;
    }

    /// Returns true if the link's rate is what counts.
    pub(super) const fn is_full(&self) -> bool {
        self.is_full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn at(ms: u64) -> Instant {
        Instant::from_ns(ms * MS)
    }

    #[test]
    fn a_queue_shows_that_the_link_is_full() {
        let mut filled = Filled::default();
        let mut reported = |ms, round_trip_ms, queue_ms| {
            let (round_trip_ns, queue_ns) = (round_trip_ms * MS, queue_ms * MS);
            let report = LinkReport { round_trip_ns, queue_ns, ..LinkReport::default() };
            filled.reported(at(ms), &report);
            filled.at(at(ms), false);
            filled.is_full()
        };
        assert!(!reported(1, 48, 3) && !reported(100, 48, 3) && !reported(200, 48, 2));
        assert!(!reported(201, 48, 3) && !reported(450, 48, 3) && reported(451, 48, 3));
        assert!(reported(1400, 48, 0), "it counts for a while");
        assert!(!reported(1451, 48, 0));
        assert!(!reported(1500, 1, 1) && !reported(1501, 1, 2) && reported(1751, 1, 2));
        assert!(!reported(2760, 160, 0), "a break");
        assert!(!reported(2800, 160, 10) && !reported(3599, 160, 10) && reported(3600, 160, 10));
    }

    #[test]
    fn what_was_measured_for_long_needs_no_queue() {
        let mut filled = Filled::default();
        let mut full_at = |ms, is_measured| {
            filled.at(at(ms), is_measured);
            filled.is_full()
        };
        assert!(!full_at(0, true) && !full_at(999, true) && full_at(1000, true));
        assert!(
            full_at(1001, false) && full_at(2999, false),
            "a thin link is measured now and then"
        );
        assert!(!full_at(3000, false) && !full_at(3001, true) && full_at(4001, true));
    }
}
