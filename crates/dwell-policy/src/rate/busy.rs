//! The part of the time for which a link has had something to do.

use dwell_base::Instant;

use super::LinkReport;

/// So long is looked at it, in nanoseconds: Linux counts it by ticks of up to 10 ms.
const WINDOW_NS: u64 = 60_000_000;
/// With less than this in a window, in bytes, nothing is said: what is kept back by a shaper may have gone at once.
const WINDOW_BYTES: i64 = 2 << 20;
/// Above this it is taken for all of it, ...
const PART_MAX: f64 = 0.7;
/// ... and it is never taken for less than this.
const PART_MIN: f64 = 0.1;

/// How much of the time a link that carries much is busy.
///
/// Who is slower than his link makes its transport refuse, too, if that holds little: it had nothing to send for most of the time, and what
/// is measured between two refusals is how fast it was given something. That is no reason to compress: the time for which
/// the transport has had something on its way says what the link carries.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Busy {
    since: Instant,
    confirmed: i64,
    busy_ns: u64,
    part: Option<f64>,
}

impl Busy {
    /// Returns the part of the time for which the link is busy, from 0.1 to 1.
    pub(super) fn part(self, now: Instant) -> f64 {
        let is_old = now.since_ns(self.since) >= 2 * WINDOW_NS;
        self.part.filter(|_| !is_old).unwrap_or(1.0)
    }

    /// Notes what the transport says, and how many bytes are confirmed in all.
    pub(super) fn reported(&mut self, now: Instant, confirmed: i64, report: &LinkReport) {
        let ns = now.since_ns(self.since);
        if report.busy_ns == 0 || ns < WINDOW_NS {
            return;
        }
        // That includes waiting for the other end's window: over a long way it is what limits, and fewer bytes help.
        let is_new = self.since == Instant::ZERO;
        let bytes = confirmed.saturating_sub(self.confirmed);
        let part = report.busy_ns.saturating_sub(self.busy_ns) as f64 / ns as f64;
        let is_known = !is_new && ns < 2 * WINDOW_NS && bytes >= WINDOW_BYTES;
        self.part = (is_known && part < PART_MAX).then_some(part.max(PART_MIN));
        (self.since, self.confirmed, self.busy_ns) = (now, confirmed, report.busy_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_ns(ms * 1_000_000)
    }

    /// The part after windows of so many bytes, each with so many milliseconds busy.
    fn part(bytes: i64, busy_ms: u64) -> f64 {
        let mut busy = Busy::default();
        for n in 1..5 {
            let report = LinkReport { busy_ns: n * busy_ms * 1_000_000, ..LinkReport::default() };
            busy.reported(at(60 * n), bytes * n as i64, &report);
        }
        busy.part(at(250))
    }

    #[test]
    fn what_is_idle_for_most_of_the_time_carries_more() {
        assert_eq!(part(8 << 20, 15), 0.25);
        assert_eq!(part(8 << 20, 1), 0.1);
        assert_eq!(part(8 << 20, 58), 1.0, "nearly always busy");
        assert_eq!(part(1 << 20, 15), 1.0, "a shaper may have let it pass at once");
        assert_eq!(part(8 << 20, 0), 1.0, "not known");
    }

    #[test]
    fn after_a_pause_nothing_is_known() {
        let mut busy = Busy::default();
        let report = |ms: u64| LinkReport { busy_ns: ms * 1_000_000, ..LinkReport::default() };
        busy.reported(at(100), 0, &report(10));
        busy.reported(at(160), 8 << 20, &report(20));
        assert!(busy.part(at(200)) < 0.2);
        assert_eq!(busy.part(at(400)), 1.0);
        busy.reported(at(1000), 9 << 20, &report(30));
        assert_eq!(busy.part(at(1000)), 1.0);
    }
}
