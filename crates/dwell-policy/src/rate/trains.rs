//! What messages that are sent at once show of a link.

use dwell_base::Instant;

use super::LinkReport;

/// The length from which a message shows the link's rate, in bytes: three packets, of which the other end
/// confirms the first two at once, and not when it is minded to.
const TRAIN_BYTES_MIN: u64 = 4 << 10;
/// With less than this to wait, nothing is to be won, and it is the machines' doing rather than the link's, in
/// nanoseconds.
const QUEUE_NS_MIN: u64 = 500_000;
/// The bytes of a message for each confirmation by the other end, two packets, of which each is a measurement of the round
/// trip.
const CONFIRMED_BYTES: u64 = 2 * 1_448;
/// The part that each of these measurements is of the smoothed round trip (RFC 6298, section 2.3).
const SMOOTHING: f64 = 1.0 / 8.0;
/// With fewer, what the average has changed by would count many times, and it changes by chance, too.
const CONFIRMATIONS_MIN: u64 = 3;
/// More of them leave nothing of what was before.
const CONFIRMATIONS_MAX: u64 = 64;
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
/// what the link carries, or less if something else made it wait. Where the transport never is full, and only says what it
/// carried at least, nothing else shows that a link is slow.
///
/// The transport has an average of round trips: what that was before is taken off. Those of a handshake are as long as the
/// other end computes, and would pass for a slow link long after it.
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
    /// How much longer a round trip was than the shortest when the transport had nothing to send the last time, in
    /// nanoseconds.
    before_ns: Option<u64>,
}

impl Default for Trains {
    fn default() -> Self {
        Self { written: 0, rates: [0.0; TRAINS], count: 0, at: Instant::ZERO, before_ns: None }
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
            let before_ns = self.before_ns.replace(report.queue_ns).unwrap_or(report.queue_ns);
            if len >= TRAIN_BYTES_MIN && report.is_least {
                self.at = now;
                let queue_ns = own_queue_ns(len, before_ns, report.queue_ns);
                let is_slow = queue_ns >= QUEUE_NS_MIN as f64;
                let rate = len as f64 * 1e9 / queue_ns;
                self.rates[self.count % TRAINS] = if is_slow { rate } else { f64::INFINITY };
                self.count += 1;
            }
        }
        let most = self.rates.iter().copied().fold(0.0, f64::max);
        report.train_rate = if most.is_finite() { most } else { 0.0 };
    }
}

/// How much longer round trips were in a message of this length, if their average was so much longer before it and after it.
fn own_queue_ns(len: u64, before_ns: u64, after_ns: u64) -> f64 {
    let confirmations = len / CONFIRMED_BYTES;
    let confirmations = confirmations.clamp(CONFIRMATIONS_MIN, CONFIRMATIONS_MAX) as i32;
    let left = (1.0 - SMOOTHING).powi(confirmations);
    (after_ns as f64 - left * before_ns as f64) / (1.0 - left)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After a message in which round trips were so much longer.
    fn after(trains: &mut Trains, len: usize, queue_ns: u64, pending_bytes: u64) -> f64 {
        let before_ns = trains.before_ns.unwrap_or(queue_ns) as f64;
        let confirmations = (trains.written + len as u64) / CONFIRMED_BYTES;
        let step = |average: f64, _| average + (queue_ns as f64 - average) * SMOOTHING;
        let queue_ns = (0..confirmations).fold(before_ns, step).round() as u64;
        let rate = at(trains, 0, len, LinkReport { queue_ns, pending_bytes, ..least() });
        (rate / 10.0).round() * 10.0
    }

    #[test]
    fn round_trips_of_before_are_not_those_of_a_message() {
        let mut trains = Trains::default();
        // A handshake's, and small messages'.
        let mut queue_ns = 5_000_000;
        for len in [1_000, 300, 300] {
            assert_eq!(at(&mut trains, 0, len, LinkReport { queue_ns, ..least() }), 0.0);
            queue_ns = queue_ns * 7 / 8;
        }
        for _ in 0..20 {
            assert_eq!(after(&mut trains, 10_000, 100_000, 0), 0.0, "{trains:?}");
        }
        // Of a link that is slow the first message shows as much as later ones do.
        let mut trains = Trains { before_ns: Some(0), ..Trains::default() };
        assert_eq!(after(&mut trains, 10_000, 10_000_000, 0), 1e6);
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
        let later = LinkReport { queue_ns: 1_000_000, ..least() };
        let short = |trains: &mut _, ns| at(trains, ns, 2_000, later);
        assert_eq!(short(&mut trains, FORGOTTEN_NS - 1), 1e6);
        assert_eq!(short(&mut trains, FORGOTTEN_NS), 0.0);
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
        assert_eq!(after(&mut trains, 5_000, 50_000_000, 1), 0.0);
        assert_eq!(after(&mut trains, 5_000, 10_000_000, 0), 1e6);
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
