//! How long packets of a flow may keep waiting: CoDel (RFC 8289, section 5).

use dwell_base::Instant;

/// A flow that stopped being slowed down less than this many intervals ago goes on where it was.
const REMEMBERED_INTERVALS: u64 = 16;

/// What waiting is granted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Grant {
    /// The waiting time that packets may have all the time.
    pub(super) target_ns: u64,
    /// For how long they may have more.
    pub(super) interval_ns: u64,
    /// What waits of a flow always may, in bytes: it is not enough to fill a frame.
    pub(super) floor_bytes: u64,
}

impl Grant {
    /// Returns what is granted over a path with this round trip: who is notified slows down that much later, and would be notified
    /// again and again meanwhile. So the interval is no shorter than that, and the target the same part of it (RFC 8289, sections 4.2
    /// and 4.3).
    pub(super) fn over(self, round_trip_ns: u64) -> Self {
        if round_trip_ns <= self.interval_ns || self.interval_ns == 0 {
            return self;
        }
        let times = round_trip_ns as f64 / self.interval_ns as f64;
        let target_ns = (self.target_ns as f64 * times) as u64;
        Self { target_ns, interval_ns: round_trip_ns, ..self }
    }
}

/// The state of one flow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CoDel {
    /// When waiting will have been too long for an interval.
    above_until: Option<Instant>,
    is_dropping: bool,
    drop_next: Instant,
    count: u32,
    last_count: u32,
}

impl CoDel {
    /// Returns true if the flow's first packet, which has waited for `sojourn_ns` with
    /// `waiting_bytes` of its flow, itself included, is to be dropped or marked.
    pub(super) fn wants_drop(
        &mut self,
        now: Instant,
        (sojourn_ns, waiting_bytes): (u64, u64),
        grant: &Grant,
    ) -> bool {
        let is_above = self.is_above(now, (sojourn_ns, waiting_bytes), grant);
        if !self.is_dropping {
            self.is_dropping = is_above;
            if is_above {
                self.begin(now, grant.interval_ns);
            }
            return is_above;
        }
        self.is_dropping = is_above;
        if !is_above || now < self.drop_next {
            return false;
        }
        self.count = self.count.saturating_add(1);
        self.drop_next = after(self.drop_next, self.count, grant.interval_ns);
        true
    }

    fn is_above(&mut self, now: Instant, (sojourn_ns, bytes): (u64, u64), grant: &Grant) -> bool {
        if sojourn_ns < grant.target_ns || bytes <= grant.floor_bytes {
            self.above_until = None;
            return false;
        }
        now >= *self.above_until.get_or_insert(now + grant.interval_ns)
    }

    fn begin(&mut self, now: Instant, interval_ns: u64) {
        let grown = self.count.saturating_sub(self.last_count);
        let is_recent =
            now.since_ns(self.drop_next) < interval_ns.saturating_mul(REMEMBERED_INTERVALS);
        self.count = if grown > 1 && is_recent { grown } else { 1 };
        self.last_count = self.count;
        self.drop_next = after(now, self.count, interval_ns);
    }
}

/// The next drop after one: the interval divided by the square root of their number.
fn after(at: Instant, count: u32, interval_ns: u64) -> Instant {
    // The square root of a number that a double holds exactly is the same everywhere.
    at + (interval_ns as f64 / f64::from(count.max(1)).sqrt()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const GRANT: Grant = Grant { target_ns: 5 * MS, interval_ns: 100 * MS, floor_bytes: 1_500 };

    /// Counts the drops of a second in which each packet has waited for `sojourn_ns`.
    fn drops(codel: &mut CoDel, from_ms: u64, waiting: (u64, u64)) -> usize {
        let at = |ms| Instant::from_ns(ms * MS);
        (from_ms..from_ms + 1_000).filter(|&ms| codel.wants_drop(at(ms), waiting, &GRANT)).count()
    }

    #[test]
    fn over_a_long_path_as_much_as_over_a_short_one_by_its_round_trips() {
        let over = |ms: u64| {
            let Grant { target_ns, interval_ns, floor_bytes } = GRANT.over(ms * MS);
            assert_eq!(floor_bytes, GRANT.floor_bytes);
            (target_ns / MS, interval_ns / MS)
        };
        assert_eq!([0, 1, 100].map(over), [(5, 100); 3]);
        assert_eq!([300, 600].map(over), [(15, 300), (30, 600)]);
        let none = Grant { interval_ns: 0, ..GRANT };
        assert_eq!(
            none.over(300 * MS).target_ns,
            GRANT.target_ns,
            "it drops at once, whatever the path"
        );
        // Nothing is, before the first has had its effect.
        let mut codel = CoDel::default();
        let grant = GRANT.over(300 * MS);
        let at = |ms: u64| Instant::from_ns(ms * MS);
        let is_dropped = |&ms: &u64| codel.wants_drop(at(ms), (20 * MS, 9_000), &grant);
        let dropped: Vec<_> = (0..1_000).filter(is_dropped).collect();
        assert_eq!(dropped, [300, 600, 813, 986]);
    }

    #[test]
    fn a_short_queue_is_left_alone() {
        assert_eq!(drops(&mut CoDel::default(), 0, (4 * MS, 100_000)), 0);
        assert_eq!(drops(&mut CoDel::default(), 0, (400 * MS, 1_500)), 0, "one packet may wait");
    }

    #[test]
    fn the_longer_a_queue_stands_the_more_is_dropped() {
        let mut codel = CoDel::default();
        let first = drops(&mut codel, 0, (20 * MS, 100_000));
        let second = drops(&mut codel, 1_000, (20 * MS, 100_000));
        // After n drops the next comes 100 ms / sqrt(n) later: n of them take 200 ms * sqrt(n) - 146 ms.
        assert!((26..=28).contains(&first), "{first}");
        assert!(second > first * 2, "{second} after {first}");
        // It stops at once when the queue is short, and goes on where it was when it is long again.
        assert_eq!(drops(&mut codel, 2_000, (MS, 100_000)), 0);
        assert!(drops(&mut codel, 3_000, (20 * MS, 100_000)) > second / 2);
    }

    #[test]
    fn drops_come_at_the_times_of_the_control_law() {
        let mut codel = CoDel::default();
        let at = |ms| Instant::from_ns(ms * MS);
        // A packet that has waited for the target exactly waits for too long.
        let is_dropped = |&ms: &u64| codel.wants_drop(at(ms), (5 * MS, 1_501), &GRANT);
        // 100 ms, and from there on 100 ms / sqrt(n) after the one before.
        let times: Vec<_> = (0..400).filter(is_dropped).collect();
        assert_eq!(times, [100, 200, 271, 329, 379]);
    }

    #[test]
    fn what_was_slowed_down_long_ago_begins_again() {
        for (early_ns, second_ns) in [(0, 100 * MS), (1, 70_710_678)] {
            let mut codel = CoDel::default();
            let at = |ms| Instant::from_ns(ms * MS);
            let is_dropped = |&ms: &u64| codel.wants_drop(at(ms), (20 * MS, 9_000), &GRANT);
            assert_eq!((0..300).filter(is_dropped).count(), 3);
            assert!(!codel.wants_drop(at(300), (MS, 9_000), &GRANT));
            // Three were dropped, two of them more than at the beginning. It is above again for an
            // interval, sixteen intervals after the next would have been, or a little less.
            let again = codel.drop_next + 1_600 * MS;
            let above = again.before_ns(100 * MS + early_ns);
            assert!(!codel.wants_drop(above, (20 * MS, 9_000), &GRANT));
            let first = above + 100 * MS;
            assert!(codel.wants_drop(first, (20 * MS, 9_000), &GRANT));
            assert!(!codel.wants_drop(first + (second_ns - 1), (20 * MS, 9_000), &GRANT));
            assert!(codel.wants_drop(first + second_ns, (20 * MS, 9_000), &GRANT));
        }
    }
}
