//! How much of the time trials may take.

use dwell_base::Instant;

/// A part of the time, which is saved up for a while: where things change now and then a trial need not wait, and
/// where they do all the time trials take that part and no more.
///
/// ```
/// use dwell_base::Instant;
/// use dwell_policy::method::TrialBudget;
///
/// let mut budget = TrialBudget::new(10, 300);
/// budget.spend(Instant::from_ns(1_000), 250);
/// assert!(!budget.allows(Instant::from_ns(1_000), 100));
/// assert!(budget.allows(Instant::from_ns(1_500), 100));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TrialBudget {
    /// One part in so many of the time.
    part: u64,
    /// The most that is saved up, in nanoseconds.
    saved_ns_max: i64,
    saved_ns: i64,
    earned_until: Instant,
}

impl TrialBudget {
    /// Makes a budget of one part in `part` of the time, which has saved as much as it can.
    pub const fn new(part: u64, saved_ns_max: u64) -> Self {
        let saved_ns = saved_ns_max as i64;
        Self { part, saved_ns_max: saved_ns, saved_ns, earned_until: Instant::ZERO }
    }

    fn earn(&mut self, now: Instant) {
        let earned_ns = now.since_ns(self.earned_until) / self.part.max(1);
        if earned_ns > 0 {
            let earned_ns = i64::try_from(earned_ns).unwrap_or(i64::MAX);
            self.saved_ns = self.saved_ns.saturating_add(earned_ns).min(self.saved_ns_max);
            self.earned_until = now;
        }
    }

    /// From now on no more than this is saved up.
    pub fn limit(&mut self, now: Instant, saved_ns_max: u64) {
        self.earn(now);
        self.saved_ns_max = i64::try_from(saved_ns_max).unwrap_or(i64::MAX);
        self.saved_ns = self.saved_ns.min(self.saved_ns_max);
    }

    /// Returns true if there is time for a trial that takes so long, in nanoseconds. One that takes longer than can be
    /// saved up needs all of that.
    pub fn allows(&mut self, now: Instant, needed_ns: u64) -> bool {
        self.earn(now);
        let needed_ns = i64::try_from(needed_ns).unwrap_or(i64::MAX);
        self.saved_ns >= needed_ns.min(self.saved_ns_max)
    }

    /// Pays for a trial, however long it took.
    pub fn spend(&mut self, now: Instant, took_ns: u64) {
        self.earn(now);
        let took_ns = i64::try_from(took_ns).unwrap_or(i64::MAX);
        self.saved_ns = self.saved_ns.saturating_sub(took_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_trials_are_made_at_once_and_then_their_part_of_the_time() {
        let mut budget = TrialBudget::new(64, 500_000_000);
        let mut at_ms = Vec::new();
        for ms in 1..60_000 {
            let now = Instant::from_ns(ms * 1_000_000);
            if budget.allows(now, 120_000_000) {
                budget.spend(now, 120_000_000);
                at_ms.push(ms);
            }
        }
        assert_eq!(at_ms[..4], [1, 2, 3, 4]);
        assert_eq!(at_ms[5] - at_ms[4], 120 * 64);
        assert_eq!(at_ms.len(), 4 + 7);
    }

    #[test]
    fn less_may_be_saved_up_and_more_again() {
        let mut budget = TrialBudget::new(10, 1_000);
        budget.limit(Instant::from_ns(1), 100);
        budget.spend(Instant::from_ns(1), 90);
        assert!(budget.allows(Instant::from_ns(1), 10) && !budget.allows(Instant::from_ns(1), 11));
        budget.limit(Instant::from_ns(1), 1_000);
        assert!(!budget.allows(Instant::from_ns(801), 91), "it is earned first");
        assert!(budget.allows(Instant::from_ns(9_901), 1_000));
    }

    #[test]
    fn one_trial_that_takes_long_is_paid_for_and_not_the_last() {
        let mut budget = TrialBudget::new(10, 100);
        budget.spend(Instant::from_ns(1_000), 10_000);
        assert!(!budget.allows(Instant::from_ns(50_000), 1));
        // It needs no more than can be saved up.
        assert!(budget.allows(Instant::from_ns(102_010), u64::MAX));
    }
}
