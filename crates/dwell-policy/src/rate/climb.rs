//! How much is believed of a link of which only the least is known, at the beginning of much.

use dwell_base::Instant;

use super::LinkReport;

/// For a round trip is looked at what a link carries, but no shorter or longer than this, in nanoseconds: on a thin link packets come in
/// twos and threes, and in the first round trips all at once.
const WINDOW_NS_MIN: u64 = 2_000_000;
const WINDOW_NS_MAX: u64 = 500_000_000;
/// It is believed to carry so many times as much as it did.
const FACTOR: f64 = 2.0;
/// The same if packets wait for it: for so long, in nanoseconds, and for such a part of the shortest round trip. Then it is full, however
/// much the transport would send.
const FACTOR_FULL: f64 = 1.25;
const QUEUE_NS_MIN: u64 = 2_000_000;
const QUEUE_PART: u64 = 4;

/// The most that is believed of a link, in bytes a second.
///
/// A transport whose window is not full says only what the link carries at least, and what its window would allow: that is twenty times
/// the truth where a shaper lets some packets pass at once. So no more is believed than some times what the other end has confirmed,
/// until more is: that takes a few round trips. Once packets wait for the link it may be less again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Climb {
    most: f64,
    since: Instant,
    /// The bytes that were confirmed then.
    confirmed: i64,
}

impl Climb {
    /// From this rate on, when so many bytes were confirmed.
    pub(super) const fn new(now: Instant, rate: f64, confirmed: i64) -> Self {
        Self { most: rate, since: now, confirmed }
    }

    /// Notes that so many bytes are confirmed in all, and what the transport says, and returns the most to believe.
    pub(super) fn confirmed(&mut self, now: Instant, confirmed: i64, report: &LinkReport) -> f64 {
        let ns = now.since_ns(self.since);
        if ns < report.round_trip_ns.clamp(WINDOW_NS_MIN, WINDOW_NS_MAX) {
            return self.most;
        }
        let carried = confirmed.saturating_sub(self.confirmed).max(0) as f64 * 1e9 / ns as f64;
        let queue_ns = QUEUE_NS_MIN.max(report.round_trip_ns / QUEUE_PART);
        let seen = carried.max(report.delivered_rate);
        self.most = match report.queue_ns >= queue_ns && seen > 0.0 {
            true => FACTOR_FULL * seen,
            false => self.most.max(FACTOR * carried),
        };
        (self.since, self.confirmed) = (now, confirmed);
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_ns(ms * 1_000_000)
    }

    const REPORT: LinkReport = LinkReport {
        delivered_rate: 0.0,
        is_least: true,
        window_rate: 0.0,
        path_rate: 0.0,
        train_rate: 0.0,
        train_least: 0.0,
        prudent_rate: 0.0,
        goes_raw: false,
        segment_bytes: 0,
        confirmations: 0,
        round_trip_ns: 0,
        queue_ns: 0,
        receiver_wait_ns: 0,
        busy_ns: 0,
        pending_bytes: 0,
    };

    #[test]
    fn what_is_confirmed_lets_more_be_believed_and_without_a_queue_never_less() {
        let mut climb = Climb::new(at(1), 1e6, 5_000);
        assert_eq!(climb.confirmed(at(2), 500_000, &REPORT), 1e6, "too soon");
        assert_eq!(climb.confirmed(at(3), 9_000, &REPORT), 4e6);
        assert_eq!(climb.confirmed(at(5), 10_000, &REPORT), 4e6);
        // A link of any rate is found in a few windows.
        let rates: Vec<f64> = (1..=4)
            .map(|n| climb.confirmed(at(5 + 2 * n), 10_000 + ((n as i64) << 20), &REPORT))
            .collect();
        assert!(rates[0] > 1e9 && rates.is_sorted(), "{rates:?}");
        assert!(climb.confirmed(at(99), 0, &REPORT) >= rates[3], "less is no news");
    }

    #[test]
    fn a_link_that_packets_wait_for_carries_what_it_does() {
        let mut climb = Climb::new(at(1), 1e6, 0);
        let report = LinkReport { round_trip_ns: 20_000_000, ..REPORT };
        assert_eq!(climb.confirmed(at(20), 1 << 20, &report), 1e6, "not yet a round trip");
        assert_eq!(climb.confirmed(at(21), 400_000, &report), 4e7, "two times as much");
        let full = LinkReport { queue_ns: 5_000_000, ..report };
        assert_eq!(climb.confirmed(at(41), 640_000, &full), 1.5e7, "a quarter more");
        // Packets come in bursts: what the transport has seen counts, too.
        let burst = LinkReport { delivered_rate: 1.2e7, ..full };
        assert_eq!(climb.confirmed(at(61), 640_000, &burst), 1.5e7);
        // Of a short round trip it is none that comes late by a millisecond.
        let short = LinkReport { round_trip_ns: 100_000, queue_ns: 1_000_000, ..REPORT };
        assert_eq!(climb.confirmed(at(63), 640_000, &short), 1.5e7);
    }
}
