//! How much is believed of a link of which only the least is known, at the beginning of much.

use dwell_base::Instant;

/// So long is looked at what a link carries, in nanoseconds.
const WINDOW_NS: u64 = 2_000_000;
/// It is believed to carry so many times as much as it did.
const FACTOR: f64 = 2.0;

/// The most that is believed of a link, in bytes a second.
///
/// A transport whose window is not full says only what the link carries at least, and what its window would allow: that is twenty times
/// the truth where a shaper lets some packets pass at once. So no more is believed than some times what the other end has confirmed,
/// until more is: that takes a few milliseconds, and a link that is faster idles for less than one of them.
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

    /// Notes that so many bytes are confirmed in all, and returns the most to believe.
    pub(super) fn confirmed(&mut self, now: Instant, confirmed: i64) -> f64 {
        let ns = now.since_ns(self.since);
        if ns >= WINDOW_NS {
            let carried = confirmed.saturating_sub(self.confirmed).max(0) as f64 * 1e9 / ns as f64;
            self.most = self.most.max(FACTOR * carried);
            (self.since, self.confirmed) = (now, confirmed);
        }
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_ns(ms * 1_000_000)
    }

    #[test]
    fn what_is_confirmed_lets_more_be_believed_and_never_less() {
        let mut climb = Climb::new(at(1), 1e6, 5_000);
        assert_eq!(climb.confirmed(at(2), 500_000), 1e6, "too soon");
        assert_eq!(climb.confirmed(at(3), 9_000), 4e6);
        assert_eq!(climb.confirmed(at(5), 10_000), 4e6);
        // A link of any rate is found in a few windows.
        let rates: Vec<f64> =
            (1..=4).map(|n| climb.confirmed(at(5 + 2 * n), 10_000 + ((n as i64) << 20))).collect();
        assert!(rates[0] > 1e9 && rates.is_sorted(), "{rates:?}");
        assert!(climb.confirmed(at(99), 0) >= rates[3], "less is no news");
    }
}
