//! What messages that are sent at once show of a link.

use dwell_base::Instant;

use super::LinkReport;

/// The length from which a message shows the link's rate, in bytes: three packets, of which the other end
/// confirms the first two at once, and not when it is minded to.
const TRAIN_BYTES_MIN: u64 = 4 << 10;
/// With less than this to wait, nothing is to be won, and it is the machines' doing rather than the link's, in
/// nanoseconds.
const QUEUE_NS_MIN: u64 = 500_000;
/// So many messages count, and of them the one that was carried fastest: in the time of others may be some of
/// the other end's.
const TRAINS: usize = 4;
/// What they have shown is forgotten after this time without another one, in nanoseconds. What is known makes messages
/// short, and short ones show nothing: a link that has become faster would never be seen to be.
const FORGOTTEN_NS: u64 = 10_000_000_000;

/// The rate of a link by the messages that found it idle.
///
/// A message whose packets are sent at once arrives no faster than the link carries it, and the last of its packets
/// waits for all before it. So its length by how much longer the round trip was than without it says
/// what the link carries: too much at first, as the transport averages round trips, and less if something else
/// made it wait. Where the transport never is full, and only says what it carried at least, nothing else shows
/// that a link is slow.
///
/// ```
/// use dwell_base::Instant;
/// use dwell_policy::rate::{LinkReport, Trains};
///
/// let mut trains = Trains::default();
/// trains.wrote(10_000);
/// let mut report = LinkReport { is_least: true, queue_ns: 16_000_000, ..LinkReport::default() };
/// trains.reported(Instant::ZERO, &mut report);
/// assert_eq!(report.train_rate, 625_000.0);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Trains {
    /// Bytes since the transport had nothing to send.
    written: u64,
    /// The latest, infinite where nothing had to wait.
    rates: [f64; TRAINS],
    count: usize,
    /// The time of the latest.
    at: Instant,
}

impl Default for Trains {
    fn default() -> Self {
        Self { written: 0, rates: [0.0; TRAINS], count: 0, at: Instant::ZERO }
    }
}

impl Trains {
    /// Notes that the transport was given `len` bytes.
    pub fn wrote(&mut self, len: usize) {
        self.written = self.written.saturating_add(len as u64);
    }

    /// Learns from a report that was made before anything more is given, and adds to it what is known.
    pub fn reported(&mut self, now: Instant, report: &mut LinkReport) {
        // What a long message has shown is no guess, and all before it is of the past.
        if !report.is_least || now.since_ns(self.at) >= FORGOTTEN_NS {
            self.rates = [0.0; TRAINS];
        }
        if report.pending_bytes == 0 {
            let len = std::mem::take(&mut self.written);
            if len >= TRAIN_BYTES_MIN && report.is_least {
                self.at = now;
                let is_slow = report.queue_ns >= QUEUE_NS_MIN;
                let rate = len as f64 * 1e9 / report.queue_ns as f64;
                self.rates[self.count % TRAINS] = if is_slow { rate } else { f64::INFINITY };
                self.count += 1;
            }
        }
        let most = self.rates.iter().copied().fold(0.0, f64::max);
        report.train_rate = if most.is_finite() { most } else { 0.0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(trains: &mut Trains, len: usize, queue_ns: u64, pending_bytes: u64) -> f64 {
        at(trains, 0, len, LinkReport { queue_ns, pending_bytes, ..least() })
    }

    fn least() -> LinkReport {
        LinkReport { is_least: true, ..LinkReport::default() }
    }

    fn at(trains: &mut Trains, ns: u64, len: usize, mut report: LinkReport) -> f64 {
        trains.wrote(len);
        trains.reported(Instant::from_ns(ns), &mut report);
        report.train_rate
    }

    #[test]
    fn a_link_that_has_become_faster_is_seen_again() {
        let mut trains = Trains::default();
        assert_eq!(after(&mut trains, 10_000, 10_000_000, 0), 1e6);
        // Compressed, they are too short to show anything.
        let short = |trains: &mut _, ns| at(trains, ns, 2_000, least());
        assert_eq!(short(&mut trains, FORGOTTEN_NS - 1), 1e6);
        assert_eq!(short(&mut trains, FORGOTTEN_NS), 0.0);
        let later = LinkReport { queue_ns: 1_000_000, ..least() };
        assert_eq!(at(&mut trains, FORGOTTEN_NS + 1, 10_000, later), 1e7);
        // A long message shows what the link carries.
        let long = LinkReport { delivered_rate: 1e8, is_least: false, ..later };
        assert_eq!(at(&mut trains, FORGOTTEN_NS + 2, 500_000, long), 0.0);
        assert_eq!(short(&mut trains, FORGOTTEN_NS + 3), 0.0);
    }

    #[test]
    fn the_fastest_of_the_latest_counts() {
        let mut trains = Trains::default();
        assert_eq!(after(&mut trains, 10_000, 10_000_000, 0), 1e6);
        for _ in 0..3 {
            assert_eq!(after(&mut trains, 10_000, 20_000_000, 0), 1e6);
        }
        assert_eq!(after(&mut trains, 10_000, 20_000_000, 0), 5e5, "the first is forgotten");
        assert_eq!(after(&mut trains, 10_000, 5_000_000, 0), 2e6);
    }

    #[test]
    fn short_messages_say_nothing_and_unfinished_ones_later() {
        let mut trains = Trains::default();
        assert_eq!(after(&mut trains, 2_000, 50_000_000, 0), 0.0);
        assert_eq!(after(&mut trains, 3_000, 50_000_000, 1), 0.0);
        assert_eq!(after(&mut trains, 3_000, 6_000_000, 0), 1e6);
    }

    #[test]
    fn a_link_that_makes_nobody_wait_is_as_fast_as_it_says() {
        let mut trains = Trains::default();
        assert_eq!(after(&mut trains, 10_000, 10_000_000, 0), 1e6);
        assert_eq!(after(&mut trains, 10_000, 400_000, 0), 0.0);
        for _ in 0..3 {
            assert_eq!(after(&mut trains, 10_000, 10_000_000, 0), 0.0);
        }
        assert_eq!(after(&mut trains, 10_000, 10_000_000, 0), 1e6);
    }
}
