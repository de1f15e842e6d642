//! Whether all of the thread's time is taken.

use dwell_base::Instant;
use dwell_base::time::MILLI_NS;

/// It is judged over at least this long.
const WINDOW_NS: u64 = 10 * MILLI_NS;
/// A thread that sleeps less than one part in so many of its time has none to spare.
const SLEEP_PART: u64 = 16;

/// How much the thread that drives a node sleeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saturation {
    awake_since: Instant,
    window_from: Instant,
    slept_ns: u64,
    is_saturated: bool,
    /// For how long the thread has compressed lately, but for the time for which links idled because of it.
    blamable_ns: u64,
    /// For how long links have idled because of it.
    starved_ns: u64,
}

/// What a peer knows of that.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    starved_ns: u64,
}

impl Saturation {
    /// A driver that never says when it sleeps is never too busy, and one that has just begun is not
    /// yet.
    pub(super) const fn new() -> Self {
        Self {
            awake_since: Instant::FAR_FUTURE,
            window_from: Instant::ZERO,
            slept_ns: 0,
            is_saturated: false,
            blamable_ns: 0,
            starved_ns: 0,
        }
    }

    /// It had nothing to do between these two.
    pub(super) fn slept(&mut self, from: Instant, until: Instant) {
        self.slept_ns += until.since_ns(from);
        self.awake_since = until;
    }

    /// It compressed for this long.
    pub(super) fn compressed(&mut self, ns: u64) {
        self.blamable_ns = self.blamable_ns.saturating_add(ns).min(WINDOW_NS);
    }

    /// A peer's link idled for `idled_ns` while the thread had no rest. Returns for how long links have done
    /// so, as far as the peer does not know yet, because the thread compressed instead of bringing them
    /// what waits: never for longer than it did, since less would not help. The links of others count as
    /// well: it is one thread for all of them.
    pub(super) fn starved_ns(&mut self, seen: &mut Seen, idled_ns: u64) -> u64 {
        let blamed_ns = idled_ns.min(self.blamable_ns);
        self.blamable_ns -= blamed_ns;
        self.starved_ns = self.starved_ns.saturating_add(blamed_ns);
        let starved_ns = self.starved_ns - seen.starved_ns;
        seen.starved_ns = self.starved_ns;
        starved_ns.min(WINDOW_NS)
    }

    /// Returns since when it has had no rest, if it hardly has any.
    pub(super) fn busy_since(&mut self, now: Instant) -> Option<Instant> {
        let elapsed_ns = now.since_ns(self.window_from);
        if elapsed_ns >= WINDOW_NS {
            let is_first = self.window_from == Instant::ZERO;
            self.is_saturated = !is_first && self.slept_ns < elapsed_ns / SLEEP_PART;
            self.window_from = now;
            self.slept_ns = 0;
        }
        self.is_saturated.then_some(self.awake_since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant::from_ns(1_000_000_000 + us * 1_000)
    }

    #[test]
    fn who_hardly_sleeps_is_busy_since_he_last_did() {
        let mut thread = Saturation::new();
        for us in (0..20_000).step_by(1_000) {
            thread.slept(at(us), at(us + 30));
            let _ = thread.busy_since(at(us + 900));
        }
        assert_eq!(thread.busy_since(at(20_000)), Some(at(19_030)));
    }

    #[test]
    fn who_sleeps_now_and_then_is_not() {
        let mut thread = Saturation::new();
        for us in (0..50_000).step_by(1_000) {
            thread.slept(at(us), at(us + 100));
            assert_eq!(thread.busy_since(at(us + 900)), None);
        }
    }

    #[test]
    fn the_thread_that_compresses_for_one_link_starves_all_of_them() {
        let mut thread = Saturation::new();
        let [mut compresses, mut starves] = [Seen::default(); 2];
        thread.compressed(400_000);
        assert_eq!(thread.starved_ns(&mut compresses, 0), 0);
        assert_eq!(thread.starved_ns(&mut starves, 300_000), 300_000);
        assert_eq!(thread.starved_ns(&mut compresses, 0), 300_000);
        // No longer than it compressed, however long they idle: less would not help.
        assert_eq!(thread.starved_ns(&mut starves, 300_000), 100_000);
        assert_eq!(thread.starved_ns(&mut starves, 300_000), 0);
        assert_eq!(thread.starved_ns(&mut compresses, 0), 100_000);
        // What was long ago is no reason.
        (0..100).for_each(|_| thread.compressed(1_000_000));
        assert_eq!(thread.starved_ns(&mut starves, 50_000_000), 10_000_000);
        assert_eq!(thread.starved_ns(&mut starves, 50_000_000), 0);
    }

    #[test]
    fn who_says_nothing_never_waits_for_himself() {
        let mut thread = Saturation::new();
        for us in (0..50_000).step_by(100) {
            let since = thread.busy_since(at(us)).unwrap_or(Instant::FAR_FUTURE);
            assert_eq!(at(us).since_ns(since), 0);
        }
    }
}
