use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// A path whose router queues for all, as a TCP sees it that always has data to send and keeps so many bytes on their way. Of bytes as a
/// fluid, in steps of a millisecond.
struct Path {
    /// In bytes a second.
    rate: f64,
    round_trip_ms: usize,
    window_bytes: f64,
    /// What is in the queue, and of that what others put there again and again.
    queue_bytes: f64,
    foreign_bytes: f64,
    /// What left the queue in each millisecond of the last round trip, with what waited then, in nanoseconds.
    left: VecDeque<(f64, f64)>,
    smoothed_queue_ns: f64,
    /// To which the stream is paced.
    limit: Option<f64>,
    now: Instant,
}

impl Path {
    /// With twice what the path holds on its way, as BBR has it.
    fn new(rate: f64, round_trip_ms: usize) -> Self {
        Self {
            rate,
            round_trip_ms,
            window_bytes: 2.0 * rate * round_trip_ms as f64 / 1e3,
            queue_bytes: 0.0,
            foreign_bytes: 0.0,
            left: [(0.0, 0.0)].into_iter().cycle().take(round_trip_ms).collect(),
            smoothed_queue_ns: 0.0,
            limit: None,
            now: Instant::ZERO,
        }
    }

    /// A millisecond passes.
    fn passes(&mut self) -> LinkReport {
        let on_its_way = self.queue_bytes + self.left.iter().map(|(bytes, _)| bytes).sum::<f64>();
        let paced = self.limit.unwrap_or(f64::INFINITY) / 1e3;
        self.queue_bytes += paced.min((self.window_bytes - on_its_way).max(0.0));
        let leaves = self.queue_bytes.min(self.rate / 1e3);
        let waits_ns = (self.queue_bytes + self.foreign_bytes) / self.rate * 1e9;
        self.queue_bytes -= leaves;
        self.left.push_back((leaves, waits_ns));
        let (_, seen_ns) = self.left.pop_front().unwrap_or_default();
        self.smoothed_queue_ns += (seen_ns - self.smoothed_queue_ns) / 4.0;
        self.now = self.now + MILLI_NS;
        let arrived: f64 = self.left.iter().map(|(bytes, _)| bytes).sum();
        LinkReport {
            delivered_rate: arrived * 1e3 / self.round_trip_ms as f64,
            round_trip_ns: self.round_trip_ms as u64 * MILLI_NS,
            queue_ns: self.smoothed_queue_ns as u64,
            ..LinkReport::default()
        }
    }

    /// So long with small streams beside. Returns the mean wait in the queue, in ms, and the mean part of the rate that was used.
    fn runs(&mut self, yielding: &mut Yielding, ms: u32) -> (f64, f64) {
        let (mut waited_ms, mut used) = (0.0, 0.0);
        for _ in 0..ms {
            let report = self.passes();
            self.limit = yielding.limit(self.now, &report, true);
            waited_ms += self.queue_bytes / self.rate * 1e3;
            used += self.left.back().map_or(0.0, |(bytes, _)| bytes * 1e3) / self.rate;
        }
        (waited_ms / f64::from(ms), used / f64::from(ms))
    }

    /// The mean wait, in ms, without any limit.
    fn runs_free(&mut self, ms: u32) -> f64 {
        let mut waited_ms = 0.0;
        for _ in 0..ms {
            self.passes();
            waited_ms += self.queue_bytes / self.rate * 1e3;
        }
        waited_ms / f64::from(ms)
    }
}

#[test]
fn little_waits_behind_a_large_stream_and_the_link_stays_full() {
    for (mbps, round_trip_ms) in [(1.0, 40), (5.0, 10), (20.0, 20), (100.0, 20), (20.0, 300)] {
        let mut path = Path::new(mbps * 1e6 / 8.0, round_trip_ms);
        let mut yielding = Yielding::default();
        path.runs(&mut yielding, 40 * round_trip_ms as u32);
        let (waited_ms, used) = path.runs(&mut yielding, 3_000);
        let alone_ms = Path::new(path.rate, round_trip_ms).runs_free(3_000);
        let most_ms = 1.3 * (QUEUE_PART * round_trip_ms as f64).max(QUEUE_NS_MIN / 1e6);
        let figures =
            format!("{mbps} Mbit/s, {round_trip_ms} ms: {waited_ms} of {alone_ms}, {used}");
        assert!(waited_ms < most_ms && waited_ms < 0.6 * alone_ms && used > 0.97, "{figures}");
    }
}

#[test]
fn a_link_that_becomes_faster_is_used() {
    let mut path = Path::new(1e6, 20);
    let mut yielding = Yielding::default();
    path.runs(&mut yielding, 1_000);
    path.rate *= 4.0;
    path.window_bytes *= 4.0;
    path.runs(&mut yielding, 1_000);
    let (_, used) = path.runs(&mut yielding, 1_000);
    assert!(used > 0.97, "{used}");
}

#[test]
fn a_long_link_that_becomes_much_faster_is_used_soon() {
    let mut path = Path::new(1e6, 300);
    path.window_bytes = 0.4e6;
    let mut yielding = Yielding::default();
    path.runs(&mut yielding, 20_000);
    (path.rate, path.window_bytes) = (5e6, 2e6);
    path.runs(&mut yielding, 5_000);
    let (_, used) = path.runs(&mut yielding, 1_000);
    assert!(used > 0.97, "{used}");
}

#[test]
fn one_that_becomes_slower_is_left_alone_for_a_while() {
    let mut path = Path::new(4e6, 20);
    let mut yielding = Yielding::default();
    path.runs(&mut yielding, 1_000);
    path.rate /= 5.0;
    path.window_bytes /= 5.0;
    path.runs(&mut yielding, 15_000);
    let (waited_ms, used) = path.runs(&mut yielding, 1_000);
    assert!(waited_ms < 10.0 && used > 0.97, "{waited_ms}, {used}");
}

#[test]
fn nobody_yields_to_a_queue_that_is_of_others() {
    let mut path = Path::new(2e6, 20);
    let mut yielding = Yielding::default();
    path.foreign_bytes = 2e6 * 0.05;
    let limited = |path: &mut Path, yielding: &mut Yielding, ms: u32| {
        let (mut count, mut spared_ms) = (0, 0.0);
        for _ in 0..ms {
            let report = path.passes();
            path.limit = yielding.limit(path.now, &report, true);
            count += u32::from(path.limit.is_some());
            spared_ms += path.limit.map_or(0.0, |limit| (1.0 - limit / 2e6).max(0.0));
            assert!(path.limit.is_none_or(|limit| limit >= DRAIN_PART * 2e6), "{:?}", path.limit);
        }
        assert!(spared_ms < 0.04 * f64::from(ms), "{spared_ms}");
        count
    };
    // Half a second or one, and again after ten.
    let counts = [8_000, 8_000].map(|ms| limited(&mut path, &mut yielding, ms));
    assert!(counts.iter().all(|count| (200..1_500).contains(count)), "{counts:?}");
    path.foreign_bytes = 0.0;
    path.runs(&mut yielding, 12_000);
    assert!(path.runs(&mut yielding, 1_000).0 < 8.0);
}

/// A TCP that always has data to send: its window grows by a segment in each round trip, and is halved when the router has no room.
struct Flow {
    window_bytes: f64,
    queue_bytes: f64,
    /// What left the queue in each millisecond of the last round trip.
    left: VecDeque<f64>,
    halved_ms: u32,
}

impl Flow {
    fn new(window_bytes: f64) -> Self {
        let left = [0.0].into_iter().cycle().take(20).collect();
        Self { window_bytes, queue_bytes: 0.0, left, halved_ms: 0 }
    }

    fn on_its_way(&self) -> f64 {
        self.left.iter().sum()
    }

    /// Sends in a millisecond, and loses something if the router `is_full`.
    fn sends(&mut self, ms: u32, limit: Option<f64>, is_full: bool) {
        let room = (self.window_bytes - self.queue_bytes - self.on_its_way()).max(0.0);
        self.queue_bytes += limit.map_or(room, |limit| room.min(limit / 1e3));
        self.window_bytes += 1448.0 / 50.0;
        if is_full && ms >= self.halved_ms + 100 {
            (self.window_bytes, self.halved_ms) = (self.window_bytes / 2.0, ms);
        }
    }

    /// So much of what is in the queue leaves it.
    fn leaves(&mut self, part: f64) {
        let bytes = self.queue_bytes * part;
        self.queue_bytes -= bytes;
        self.left.push_back(bytes);
        self.left.pop_front();
    }
}

/// Returns the part of 20 Mbit/s that one of two flows has after twenty seconds and after a minute, where the router queues for so long.
/// There are small streams for two thirds of the time.
fn parts_beside_others(router_ms: f64, yields: bool) -> [f64; 2] {
    let (mut own, mut others) = (Flow::new(60e3), Flow::new(60e3));
    let (mut yielding, mut limit, mut queue_ns) = (Yielding::default(), None, 0.0);
    let mut parts = [0.0; 2];
    for ms in 0..70_000 {
        let queue_bytes = own.queue_bytes + others.queue_bytes;
        let is_full = queue_bytes > router_ms * 2.5e3;
        own.sends(ms, limit, is_full);
        others.sends(ms, None, is_full);
        let queue_bytes = own.queue_bytes + others.queue_bytes;
        let part = (2.5e3 / queue_bytes).min(1.0);
        own.leaves(part);
        others.leaves(part);
        queue_ns += (queue_bytes / 2.5e6 * 1e9 - queue_ns) / 8.0;
        let report = LinkReport {
            delivered_rate: own.on_its_way() * 50.0,
            round_trip_ns: 20 * MILLI_NS,
            queue_ns: queue_ns as u64,
            ..LinkReport::default()
        };
        let now = Instant::from_ns(u64::from(ms) * MILLI_NS);
        limit = yielding.limit(now, &report, yields && ms % 1_500 < 1_000);
        let of_all = report.delivered_rate / 2.5e6 / 10_000.0;
        match ms {
            20_000..30_000 => parts[0] += of_all,
            60_000.. => parts[1] += of_all,
            _ => {}
        }
    }
    parts
}

#[test]
fn a_flow_of_others_does_not_take_the_path_step_by_step() {
    for router_ms in [100.0, 250.0, 500.0] {
        let [_, without] = parts_beside_others(router_ms, false);
        let [early, late] = parts_beside_others(router_ms, true);
        assert!(late > 0.92 * without, "{router_ms} ms: {without}: {early}, {late}");
    }
}

#[test]
fn a_path_that_stood_still_is_no_slow_one() {
    let mut yielding = Yielding::default();
    // What comes late, all at once: a window in the time for which it stood still.
    let late = LinkReport {
        delivered_rate: 8e4,
        round_trip_ns: 20 * MILLI_NS,
        queue_ns: 150 * MILLI_NS,
        ..LinkReport::default()
    };
    let usual = LinkReport { delivered_rate: 2.5e6, ..late };
    let at = |ms: u64| Instant::from_ns(ms * MILLI_NS);
    for ms in 0..100 {
        let report = if ms < 20 { &late } else { &usual };
        assert_eq!(yielding.limit(at(ms), report, true), None);
    }
    let limit = (100..400).find_map(|ms| yielding.limit(at(ms), &usual, true)).unwrap();
    assert_eq!(limit, DRAIN_PART * 2.5e6);
}

#[test]
fn what_waits_when_small_streams_come_is_gone_soon_without_idling() {
    for queue_ms in [20, 60, 100] {
        let mut path = Path::new(2.5e6, 20);
        path.window_bytes = 2.5e3 * f64::from(20 + queue_ms);
        let mut yielding = Yielding::default();
        for _ in 0..1_000 {
            let report = path.passes();
            assert_eq!(yielding.limit(path.now, &report, false), None);
        }
        let (_, used) = path.runs(&mut yielding, 2 * queue_ms + 20);
        let waits_ms = path.queue_bytes / 2.5e3;
        assert!(waits_ms < 10.0 && used > 0.97, "{queue_ms}: {waits_ms}, {used}");
        // And it comes to rest.
        path.runs(&mut yielding, 1_000);
        for _ in 0..2_000 {
            let (_, used) = path.runs(&mut yielding, 1);
            let waits_ms = path.queue_bytes / 2.5e3;
            assert!((2.0..7.0).contains(&waits_ms) && used > 0.97, "{waits_ms}, {used}");
        }
    }
}

/// A path with a window that fills a router's queue of 100 ms.
fn full_path(rate: f64) -> (Path, Yielding) {
    let mut path = Path::new(rate, 20);
    path.window_bytes = rate * 0.12;
    let mut yielding = Yielding::default();
    for _ in 0..1_000 {
        let report = path.passes();
        yielding.limit(path.now, &report, false);
    }
    (path, yielding)
}

#[test]
fn what_others_send_for_a_moment_is_no_reason_to_fill_the_queue() {
    for (part, window_s) in [(0.76, 0.06), (0.78, 0.06), (0.76, 0.12), (0.84, 0.1)] {
        let (mut path, mut yielding) = full_path(2.5e6);
        path.window_bytes = window_s * 2.5e6;
        for _ in 0..1_000 {
            let report = path.passes();
            yielding.limit(path.now, &report, false);
        }
        // A hundred clients connect, and have the rest.
        path.rate = part * 2.5e6;
        path.runs(&mut yielding, 700);
        path.rate = 2.5e6;
        path.runs(&mut yielding, 300);
        for _ in 0..3_000 {
            path.runs(&mut yielding, 1);
            let waits_ms = path.queue_bytes / 2.5e3;
            assert!(waits_ms < 6.0 && path.limit.is_some(), "{part}, {window_s}: {waits_ms}");
        }
    }
}

#[test]
fn a_path_that_is_a_little_slower_is_not_taken_for_others_queue() {
    for times in [0.95, 0.9, 0.8] {
        let (mut path, mut yielding) = full_path(2.5e6);
        path.runs(&mut yielding, 2_000);
        path.rate *= times;
        path.runs(&mut yielding, 2_500);
        let (waited_ms, used) = path.runs(&mut yielding, 4_000);
        assert!(waited_ms < 10.0 && used > 0.97, "{times}: {waited_ms}, {used}");
    }
}

#[test]
fn who_stood_still_spared_nothing() {
    let (mut path, mut yielding) = full_path(2.5e6);
    path.runs(&mut yielding, 20);
    // The receiver stops, and nobody reports: what waited is still there.
    path.now = path.now + 5 * SECOND_NS;
    path.runs(&mut yielding, 1_500);
    let (waited_ms, _) = path.runs(&mut yielding, 3_000);
    assert!(waited_ms < 10.0, "{waited_ms}: {yielding:?}");
}

#[test]
fn a_slow_link_is_not_idle_until_the_next_report() {
    for rate in [62.5e3, 125e3, 625e3] {
        let (mut path, mut yielding) = full_path(rate);
        // TCP asks for more when it has sent so much.
        let (mut sent, mut used, mut idle_ms) = (0.0, 0.0, 0);
        for _ in 0..2_000 {
            let report = path.passes();
            let left = path.left.back().map_or(0.0, |(bytes, _)| *bytes);
            (sent, used) = (sent + left, used + left);
            idle_ms += u32::from(left < 0.5 * rate / 1e3);
            if sent >= 16_384.0 {
                sent = 0.0;
                path.limit = yielding.limit(path.now, &report, true);
            }
        }
        let used = used / (2.0 * rate);
        assert!(used > 0.97 && idle_ms < 100, "{rate}: {used}, {idle_ms} ms");
    }
}

#[test]
fn what_late_machines_make_of_a_round_trip_costs_little() {
    let mut path = Path::new(2e6, 20);
    let mut yielding = Yielding::default();
    // As long as the queue that may be, and half again.
    path.foreign_bytes = 2e6 * 0.0075;
    path.runs(&mut yielding, 2_000);
    let (_, used) = path.runs(&mut yielding, 8_000);
    assert!(used > 0.97, "{used}");
}

#[test]
fn a_limit_rises_little_while_there_is_too_little_to_send() {
    let mut yielding = Yielding::default();
    let mut report = LinkReport {
        delivered_rate: 1e6,
        is_least: true,
        round_trip_ns: 20 * MILLI_NS,
        queue_ns: 20 * MILLI_NS,
        ..LinkReport::default()
    };
    let at = |step: u64| Instant::from_ns(step * SECOND_NS);
    assert_eq!(yielding.limit(at(0), &report, true), None);
    assert!(yielding.limit(at(1), &report, true).unwrap() < 1e6);
    report.queue_ns = 0;
    let limits: Vec<_> =
        (2..61).filter_map(|step| yielding.limit(at(step), &report, true)).collect();
    assert!(limits.is_sorted() && limits.len() == 59 && limits[58] == 1.25e6, "{limits:?}");
    // Once there is enough again it follows what is delivered.
    report.is_least = false;
    for step in 100..150 {
        report.delivered_rate = yielding.limit(at(step), &report, true).unwrap();
    }
    assert!(report.delivered_rate > 10e6, "{yielding:?}");
}

proptest! {
    #[test]
    fn a_limit_is_a_rate_whatever_is_reported(
        reports in prop::collection::vec(
            (any::<u64>(), any::<f64>(), any::<bool>(), any::<u64>(), any::<u64>(), any::<bool>()),
            0..50,
        )
    ) {
        let mut yielding = Yielding::default();
        for (at, delivered_rate, is_least, round_trip_ns, queue_ns, beside) in reports {
            let report = LinkReport {
                delivered_rate, is_least, round_trip_ns, queue_ns, ..LinkReport::default()
            };
            let limit = yielding.limit(Instant::from_ns(at), &report, beside);
            prop_assert!(limit.is_none_or(|limit| limit >= 0.0 && !limit.is_nan()), "{limit:?}");
            prop_assert!(beside || limit.is_none());
        }
    }
}
