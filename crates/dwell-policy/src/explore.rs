//! Exploring: compressions that the rules advise against, so that no rule locks itself out.
//!
//! A rule that refuses on the strength of an estimate never corrects that estimate. So a small
//! share of the CPU's time goes to what is unknown or was given up. With known costs (fixed
//! estimates, as in the papers) there is nothing to find out and nothing is explored.

use dwell_base::Instant;
use dwell_base::time::MICRO_NS;

/// The most CPU time that is saved up for exploring, in nanoseconds.
const CREDIT_NS_MAX: u64 = 1_000 * MICRO_NS;
/// Traffic that is known already is explored again only while at least this much is left.
const KNOWN_NS_MIN: u64 = CREDIT_NS_MAX / 2;
const SHARE_ONE_PPM: u64 = 1_000_000;

/// The budget of CPU time for exploring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Explorer {
    /// The share of the time, in parts per million; zero explores nothing.
    share_ppm: u32,
    /// Time that may be spent; below zero after an exploration that took longer than expected.
    credit_ns: i64,
    refilled_at: Instant,
}

impl Explorer {
    /// An explorer with a full budget.
    pub(crate) const fn new(share_ppm: u32) -> Self {
        Self { share_ppm, credit_ns: CREDIT_NS_MAX as i64, refilled_at: Instant::ZERO }
    }

    /// Changes the share, and keeps the budget.
    pub(crate) const fn set_share_ppm(&mut self, share_ppm: u32) {
        self.share_ppm = share_ppm;
    }

    /// Returns true if it has a share.
    pub(crate) const fn is_on(&self) -> bool {
        self.share_ppm > 0
    }

    /// Returns true if something that was refused may be compressed all the same. The budget that
    /// is left over after the unknown goes to the known.
    pub(crate) fn may_explore(&mut self, now: Instant, is_known: bool) -> bool {
        if self.share_ppm == 0 {
            return false;
        }
        let elapsed_ns = now.since_ns(self.refilled_at);
        let earned_ns = elapsed_ns.min(u64::from(u32::MAX)) * u64::from(self.share_ppm);
        let earned_ns = (earned_ns / SHARE_ONE_PPM).min(CREDIT_NS_MAX * 2);
        if earned_ns > 0 {
            self.refilled_at = now;
            self.credit_ns = (self.credit_ns + earned_ns as i64).min(CREDIT_NS_MAX as i64);
        }
        let least_ns = if is_known { KNOWN_NS_MIN as i64 } else { 0 };
        self.credit_ns > least_ns
    }

    /// Pays for an exploration that took `took_ns`.
    pub(crate) fn spend(&mut self, took_ns: u64) {
        let took_ns = i64::try_from(took_ns).unwrap_or(i64::MAX);
        // However long one took, the next comes within a bounded time.
        self.credit_ns = self.credit_ns.saturating_sub(took_ns).max(-(CREDIT_NS_MAX as i64));
    }
}

#[cfg(test)]
mod tests {
    use dwell_base::time::SECOND_NS;

    use super::*;

    #[test]
    fn exploring_takes_its_share_of_the_time_and_no_more() {
        let mut explorer = Explorer::new(10_000);
        let (mut spent_ns, took_ns) = (0, 8_000);
        for step in 0..100_000u64 {
            if explorer.may_explore(Instant::from_ns(step * 10_000), true) {
                explorer.spend(took_ns);
                spent_ns += took_ns;
            }
        }
        // One second, one per cent of it, and what was saved up in the beginning.
        let expected_ns = SECOND_NS / 100;
        assert!((expected_ns..=expected_ns + CREDIT_NS_MAX).contains(&spent_ns), "{spent_ns}");
    }

    #[test]
    fn the_unknown_comes_before_the_known() {
        let mut explorer = Explorer::new(10_000);
        explorer.spend(CREDIT_NS_MAX / 2);
        assert!(!explorer.may_explore(Instant::ZERO, true));
        assert!(explorer.may_explore(Instant::ZERO, false));
        explorer.spend(u64::MAX);
        assert!(!explorer.may_explore(Instant::ZERO, false));
        // However much was spent, the next one comes after a while.
        assert!(explorer.may_explore(Instant::from_ns(SECOND_NS), true));
    }

    #[test]
    fn without_a_share_nothing_is_explored() {
        let mut explorer = Explorer::new(0);
        assert!(!explorer.may_explore(Instant::from_ns(SECOND_NS), false));
    }

    #[test]
    fn what_is_earned_in_small_steps_is_not_lost() {
        // A nanosecond in ten microseconds.
        let mut explorer = Explorer::new(100);
        explorer.spend(CREDIT_NS_MAX);
        let at = |us: u64| Instant::from_ns(us * 1_000);
        assert!((0..10).all(|us| !explorer.may_explore(at(us), false)));
        assert!(explorer.may_explore(at(10), false));
    }
}
