//! Messages over virtual links, as TCP reports them.

use dwell_base::time::SECOND_NS;

use super::*;
use crate::method::{Offer, Prior, Referring, Rule, Steering};

/// A connection that had nothing to wait for yet.
fn begun() -> Trains {
    Trains { before_ns: Some(0), ..Trains::default() }
}

fn least() -> LinkReport {
    LinkReport { is_least: true, ..LinkReport::default() }
}

fn at(trains: &mut Trains, ns: u64, len: usize, mut report: LinkReport) -> f64 {
    trains.wrote(len);
    trains.reported(Instant::from_ns(ns), &mut report);
    report.train_rate
}

/// After a message whose last round trip was so much longer, and of which each pair of packets was confirmed.
fn after(trains: &mut Trains, len: usize, queue_ns: u64, pending_bytes: u64) -> f64 {
    let before_ns = trains.before_ns.unwrap_or(queue_ns) as f64;
    let confirmations = (trains.written + len as u64) / (CONFIRMED_SEGMENTS * SEGMENT_BYTES);
    let part = |at: u64| queue_ns as f64 * at as f64 / confirmations as f64;
    let step = |average: f64, at| average + (part(at) - average) * SMOOTHING;
    let queue_ns = (1..=confirmations).fold(before_ns, step).round() as u64;
    let rate = at(trains, 0, len, LinkReport { queue_ns, pending_bytes, ..least() });
    (rate / 100.0).round() * 100.0
}

#[test]
fn round_trips_of_before_are_not_those_of_a_message() {
    // A handshake's, and small messages'; and then answers whose packets are joined, so that each is confirmed once.
    let (mut trains, mut queue_ns, mut confirmations) = (Trains::default(), 8_750_000, 3);
    for len in [59, 22, 10_017, 10_017, 10_017, 10_017, 10_017] {
        let report = LinkReport { queue_ns, confirmations, ..least() };
        assert_eq!(at(&mut trains, 0, len, report), 0.0, "{trains:?}");
        (queue_ns, confirmations) = (queue_ns * 7 / 8 + 1_000, confirmations + 1);
    }
    // Of a link that is slow the first message shows as much as later ones do.
    assert_eq!(after(&mut begun(), 10_000, 10_000_000, 0), 1e6);
    // Without a state before there is nothing to compare with.
    assert_eq!(at(&mut Trains::default(), 0, 10_000, LinkReport { queue_ns, ..least() }), 0.0);
}

#[test]
fn a_link_that_has_become_faster_is_seen_again() {
    let mut trains = begun();
    assert_eq!(after(&mut trains, 10_000, 10_000_000, 0), 1e6);
    // Compressed, they are too short to show anything.
    let later = LinkReport { queue_ns: 1_000_000, confirmations: 1, ..least() };
    let short = |trains: &mut _, ns| (at(trains, ns, 2_000, later) / 100.0).round() * 100.0;
    assert_eq!(short(&mut trains, FORGOTTEN_NS - 1), 1e6);
    assert_eq!(short(&mut trains, FORGOTTEN_NS), 0.0);
    assert_eq!(at(&mut trains, FORGOTTEN_NS + 1, 10_000, later), 1e7);
}

#[test]
fn several_messages_that_had_not_to_wait_are_no_long_one() {
    let (ms, fast) = (1_000_000, LinkReport { confirmations: 1, ..least() });
    for (apart_ns, is_one) in [(ms, true), (2 * ms, false)] {
        let mut trains = begun();
        at(&mut trains, 0, 0, fast);
        at(&mut trains, apart_ns, 2_500, LinkReport { pending_bytes: 1_448, ..fast });
        at(&mut trains, 50 * ms, 2_500, fast);
        assert_eq!(trains.count, usize::from(is_one), "{trains:?}");
    }
}

#[test]
fn what_a_long_message_shows_counts_alone() {
    let mut trains = begun();
    assert_eq!(after(&mut trains, 10_000, 10_000_000, 0), 1e6);
    let long = LinkReport { delivered_rate: 1e8, is_least: false, ..least() };
    assert_eq!(at(&mut trains, 2, 500_000, long), 0.0);
    assert_eq!(at(&mut trains, 3, 2_000, least()), 0.0);
}

#[test]
fn the_fastest_of_the_latest_counts() {
    let mut trains = begun();
    assert_eq!(after(&mut trains, 10_000, 10_000_000, 0), 1e6);
    for _ in 0..3 {
        assert_eq!(after(&mut trains, 10_000, 20_000_000, 0), 1e6);
    }
    assert_eq!(after(&mut trains, 10_000, 20_000_000, 0), 5e5, "the first is forgotten");
    assert_eq!(after(&mut trains, 10_000, 5_000_000, 0), 2e6);
}

#[test]
fn short_messages_say_nothing_and_unfinished_ones_later() {
    let mut trains = begun();
    assert_eq!(after(&mut trains, 2_000, 50_000_000, 0), 0.0);
    trains.before_ns = Some(0);
    assert_eq!(after(&mut trains, 5_000, 50_000_000, 1), 0.0);
    assert_eq!(after(&mut trains, 5_000, 10_000_000, 0), 1e6);
}

/// Two segments are confirmed at once, however long they are: more than that has to be sent, and is counted by what they hold.
#[test]
fn the_length_of_segments_is_the_transports() {
    let rate = |segment_bytes, len| {
        let report = LinkReport { segment_bytes, queue_ns: 5_000_000, ..least() };
        at(&mut begun(), 0, len, report)
    };
    assert_eq!(rate(0, 4_095), 0.0);
    assert!(rate(0, 4_096) > 0.0 && rate(0, 4_096) == rate(1_448, 4_096));
    assert_eq!(rate(8_948, 10_000), 0.0, "two, of which one is short");
    assert!(rate(536, 2_272) > 0.0);
    // 20 kB are 37 small ones, of which each pair is confirmed, or 14: the more often that is, the less is left of before.
    assert!(rate(536, 20_000) > 1.2 * rate(1_448, 20_000));
}

#[test]
fn a_single_message_that_passes_at_once_makes_no_link_fast_and_two_do() {
    let mut trains = begun();
    assert_eq!(after(&mut trains, 10_000, 10_000_000, 0), 1e6);
    assert_eq!(after(&mut trains, 10_000, 200_000, 0), 1e6);
    assert_eq!(after(&mut trains, 10_000, 200_000, 0), 0.0);
    for _ in 0..2 {
        assert_eq!(after(&mut trains, 10_000, 10_000_000, 0), 0.0);
    }
    assert_eq!(after(&mut trains, 10_000, 10_000_000, 0), 1e6);
}

#[test]
fn what_no_message_had_to_wait_for_is_the_least_that_a_link_carries() {
    let mut trains = begun();
    let mut least_after = |queue_ns| {
        let mut report = LinkReport { queue_ns, confirmations: 1, ..least() };
        trains.wrote(10_000);
        trains.reported(Instant::ZERO, &mut report);
        report.train_least
    };
    // So many, and the one that shows least; what can't be distinguished from nothing took some time, too.
    assert_eq!([(); 3].map(|()| least_after(0)), [0.0; 3]);
    assert_eq!(least_after(0), 10_000.0 * 1e9 / NOISE_NS);
    assert!((3e7..2e8).contains(&least_after(60_000)), "{trains:?}");
    // One had to wait: neither is known.
    assert_eq!(after(&mut trains, 10_000, 60_000_000, 0), 0.0);
    let mut report = least();
    trains.reported(Instant::ZERO, &mut report);
    assert_eq!(report.train_least, 0.0);
}

/// A link as TCP sees it.
struct Link {
    /// In bytes a second.
    rate: f64,
    round_trip_ns: f64,
    /// The bytes that a shaper lets pass at once, after a pause.
    burst_bytes: f64,
    /// True if packets are joined on their way, and confirmed once.
    joins: bool,
    tokens: f64,
    idle_since_ns: u64,
    average_ns: f64,
    shortest_ns: f64,
    confirmations: u64,
    delivered_rate: f64,
    chance: dwell_base::Rng,
}

impl Link {
    /// After a handshake in which the other end computed for 8 ms.
    fn new(mbit: f64, delay_ns: f64, burst_bytes: f64) -> Self {
        Self {
            rate: mbit * 125_000.0,
            round_trip_ns: 2.0 * delay_ns + 8_000.0,
            burst_bytes,
            joins: mbit > 2_000.0,
            tokens: burst_bytes,
            idle_since_ns: 0,
            average_ns: 2.0 * delay_ns + 8e6,
            shortest_ns: 2.0 * delay_ns + 8_000.0,
            confirmations: 3,
            delivered_rate: 0.0,
            chance: dwell_base::Rng::from_seed(7),
        }
    }

    /// Sends a message at once, and returns the time at which all of it is confirmed.
    fn send(&mut self, now_ns: u64, len: usize) -> u64 {
        let pause_ns = now_ns.saturating_sub(self.idle_since_ns) as f64;
        self.tokens = (self.tokens + self.rate * pause_ns / 1e9).min(self.burst_bytes);
        let (mut sent, mut free_ns, mut last_ns) = (0, 0.0, 0.0);
        while sent < len {
            let packet = (len - sent).min(1_448);
            sent += packet;
            let paid = self.tokens.min(packet as f64);
            self.tokens -= paid;
            free_ns += (packet as f64 - paid) / self.rate * 1e9;
            let is_confirmed = sent == len || (!self.joins && sent % 2_896 == 0);
            if is_confirmed {
                // Interrupts, and now and then a processor that is busy otherwise.
                let chance = self.chance.below(100);
                let late_ns = if chance == 0 { 1e6 } else { 300.0 * chance as f64 };
                last_ns = self.round_trip_ns + free_ns + late_ns;
                self.average_ns += SMOOTHING * (last_ns - self.average_ns);
                self.shortest_ns = self.shortest_ns.min(last_ns);
                self.confirmations += 1;
                self.delivered_rate = self.delivered_rate.max(sent as f64 * 1e9 / last_ns);
            }
        }
        self.idle_since_ns = now_ns + free_ns as u64;
        now_ns + last_ns as u64
    }

    fn report(&self) -> LinkReport {
        LinkReport {
            delivered_rate: self.delivered_rate,
            is_least: true,
            window_rate: 14_480.0 * 1e9 / self.average_ns,
            confirmations: self.confirmations,
            round_trip_ns: self.shortest_ns as u64,
            queue_ns: ((self.average_ns - self.shortest_ns).max(0.0) / 1e3) as u64 * 1_000,
            ..LinkReport::default()
        }
    }
}

/// The share of answers of 10 kB that are compressed, each some time after the one before, once ten have gone.
fn compressed(link: &mut Link, pause_ns: u64) -> f64 {
    let prior = |codec, cost_ns, saving| Prior { codec, cost_ns, saving, refers: Referring::Never };
    let codecs = vec![prior("lz4", 2.3, 0.6), prior("zstd:1", 5.5, 0.7)];
    let mut steering = Steering::new(Rule::Hull(codecs), 128 << 10);
    let (mut trains, mut now_ns, mut count) = (Trains::default(), 1_000_000_000, 0);
    for (number, len) in [60, 30].into_iter().chain([10_000; 210]).enumerate() {
        let now = Instant::from_ns(now_ns);
        let mut report = link.report();
        trains.reported(now, &mut report);
        steering.reported(now, &report);
        let offer = Offer { len, history_len: 0, is_full: false, more: false };
        let is_raw = steering.lets_raw_go(now, offer);
        count += usize::from(!is_raw && number >= 12);
        let wire_len = if is_raw { len } else { len / 3 };
        steering.link.wrote(now, wire_len);
        trains.wrote(wire_len);
        now_ns = link.send(now_ns, wire_len) + pause_ns;
        steering.link.starved(Instant::from_ns(now_ns));
    }
    count as f64 / 200.0
}

#[test]
fn answers_over_slow_links_are_compressed_and_over_fast_ones_not() {
    for delay_ns in [0.0, 1e5, 1e7] {
        // A shaper's burst of two packets, as long a pause as a program takes.
        for mbit in [5.0, 20.0, 100.0] {
            let share = compressed(&mut Link::new(mbit, delay_ns, 3_028.0), 200_000);
            assert!(share > 0.9, "{mbit} Mbit/s, {delay_ns} ns: {share}");
        }
        // Over a longer round trip the window in each is all that is known of what is compressed from the beginning.
        for mbit in [20_000.0, 100_000.0].into_iter().filter(|_| delay_ns == 0.0) {
            let share = compressed(&mut Link::new(mbit, delay_ns, 0.0), 200_000);
            assert!(share < 0.1, "{mbit} Mbit/s, {delay_ns} ns: {share}");
        }
    }
}

/// 10 kB take 80 µs there, of which compressing saves 10 at best: either will do.
#[test]
fn a_gigabit_is_no_slow_link() {
    for delay_ns in [0.0, 1e5, 1e7] {
        let mut link = Link::new(1_000.0, delay_ns, 125_000.0);
        compressed(&mut link, 200_000);
        let mut trains = Trains::default();
        for number in 0..20 {
            let mut report = link.report();
            trains.reported(Instant::ZERO, &mut report);
            // One confirmation in a hundred is a millisecond late.
            let is_fast = report.train_rate == 0.0 || report.train_rate > 2e7;
            assert!(is_fast, "{delay_ns} ns: {trains:?}");
            trains.wrote(10_000);
            link.send(1_000_000_000 * (100 + number), 10_000);
        }
    }
}

/// A shaper with a large burst lets an answer pass at once after each longer pause: there it is not the limit. When they
/// come one after the other it is, and the one after a pause must not hide that.
#[test]
fn what_passes_at_once_after_a_pause_hides_no_slow_link() {
    let mut link = Link::new(20.0, 0.0, 32_000.0);
    assert!(compressed(&mut link, 100_000_000) < 0.1, "each after 100 ms");
    let mut link = Link::new(20.0, 0.0, 32_000.0);
    let share = compressed(&mut link, 0);
    assert!(share > 0.8, "one after the other: {share}");
}

#[test]
fn what_a_shaper_lets_pass_at_once_is_no_rate() {
    let mut trains = Trains::default();
    let says = |trains: &mut Trains, rate, pending_bytes| {
        let mut report =
            LinkReport { delivered_rate: rate, is_least: false, pending_bytes, ..least() };
        trains.reported(Instant::from_ns(1), &mut report);
        (report.delivered_rate, report.is_least)
    };
    trains.wrote(200_000);
    assert_eq!(says(&mut trains, 1e8, 180_000), (0.0, true), "its first 20 kB");
    assert_eq!(says(&mut trains, 2.5e6, 100_000), (2.5e6, false));
    assert_eq!(says(&mut trains, 2.4e6, 0), (2.4e6, false));
    // The next one begins with a burst, too.
    trains.wrote(200_000);
    assert_eq!(says(&mut trains, 1e8, 180_000), (2.4e6, false));
    assert_eq!(
        says(&mut trains, 1e6, 180_000),
        (1e6, false),
        "what is slower than before is no burst"
    );
    assert_eq!(says(&mut trains, 1e8, 100_000), (1e8, false));
}

/// A moment in which many shared the link is not all that there will ever be: what is short never confirms enough to show
/// that it carries more again.
#[test]
fn a_rate_that_only_short_messages_contradict_is_forgotten() {
    let mut trains = Trains::default();
    let mut says = |at_s: u64, rate, len| {
        let mut report =
            LinkReport { delivered_rate: rate, is_least: false, pending_bytes: 0, ..least() };
        trains.wrote(len);
        trains.reported(Instant::from_ns(at_s * SECOND_NS), &mut report);
        (report.delivered_rate, report.is_least)
    };
    assert_eq!(says(100, 1e6, 200_000), (1e6, false));
    for at_s in 101..110 {
        assert_eq!(says(at_s, 1e7, 20_000), (1e6, false), "{at_s} s");
    }
    // It is the least that is known then, so that messages count again.
    assert_eq!(says(110, 1e7, 20_000), (0.0, true));
    // The same of what the transport only repeats.
    assert_eq!(says(120, 1e6, 200_000), (1e6, false));
    assert_eq!(says(125, 1e6, 20_000), (1e6, false));
    assert_eq!(says(131, 1e6, 20_000), (0.0, true));
}
