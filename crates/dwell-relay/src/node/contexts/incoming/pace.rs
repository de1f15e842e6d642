//! How fast records come.

use dwell_base::Instant;
use dwell_base::time::{MILLI_NS, SECOND_NS};

/// Times are so long at least, ...
const TIME_NS: u64 = 200 * MILLI_NS;
/// ... and if they are longer than this, nothing came for a while.
const TIME_NS_MAX: u64 = SECOND_NS;

/// The bytes of records that came in the latest time that has passed, and in the one before if more did then.
#[derive(Debug, Default)]
pub(super) struct Pace {
    since: Option<Instant>,
    bytes: u64,
    /// Bytes in a second.
    latest: [u64; 2],
}

impl Pace {
    /// A record of so many bytes came.
    pub(super) fn came(&mut self, now: Instant, bytes: usize) {
        let since = *self.since.get_or_insert(now);
        let passed_ns = now.since_ns(since);
        if passed_ns >= TIME_NS {
            let rate = u128::from(self.bytes) * u128::from(SECOND_NS) / u128::from(passed_ns);
            let is_old = passed_ns > TIME_NS_MAX;
            let before = if is_old { 0 } else { self.latest[0] };
            self.latest = [u64::try_from(rate).unwrap_or(u64::MAX), before];
            (self.since, self.bytes) = (Some(now), 0);
        }
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }

    /// Returns the bytes that come in such a time.
    pub(super) fn bytes_in_ns(&self, ns: u64) -> usize {
        let rate = self.latest[0].max(self.latest[1]);
        let bytes = u128::from(rate) * u128::from(ns) / u128::from(SECOND_NS);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_of_late_says_what_comes() {
        let (mut pace, at) = (Pace::default(), |ms: u64| Instant::ZERO + ms * MILLI_NS);
        assert_eq!(pace.bytes_in_ns(SECOND_NS), 0, "nothing is known");
        for ms in 0..1_000 {
            pace.came(at(ms), 1_000);
        }
        assert_eq!(pace.bytes_in_ns(SECOND_NS), 1_000_000);
        assert_eq!(pace.bytes_in_ns(300 * MILLI_NS), 300_000);
        // A gap in what comes lowers it only when it has lasted.
        pace.came(at(1_210), 1_000);
        assert_eq!(pace.bytes_in_ns(SECOND_NS), 1_000_000);
        pace.came(at(9_000), 1_000);
        assert!(pace.bytes_in_ns(SECOND_NS) < 1_000);
    }
}
