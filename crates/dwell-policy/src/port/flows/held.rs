//! Gathering: what waits goes when it fills a frame, or when a packet may wait no longer.

use dwell_base::Instant;

use crate::config::Objective;

/// CPU time that is saved up for compressing, at most, in nanoseconds.
const CREDIT_NS_MAX: u64 = 20_000_000;
const SHARE_ONE_PPM: u64 = 1_000_000;

/// For how long packets are held, and what compressing them may take.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Held {
    /// How long packets may wait; none if they are not held.
    max_wait_ns: Option<u64>,
    cpu_ppm: u32,
    /// When the first of them may wait no longer.
    due_at: Option<Instant>,
    /// All that waits goes.
    goes: bool,
    credit_ns: i64,
    refilled_at: Instant,
}

impl Held {
    pub(super) fn configure(&mut self, objective: Objective) {
        match objective {
            Objective::Time => *self = Self::default(),
            Objective::Bytes { max_wait_ns, cpu_ppm } => {
                (self.max_wait_ns, self.cpu_ppm) = (Some(max_wait_ns), cpu_ppm);
            }
        }
    }

    /// True if packets are gathered.
    pub(super) fn gathers(&self) -> bool {
        self.max_wait_ns.is_some()
    }

    /// A packet came that may wait for `own_ns`; zero if it has no limit of its own.
    pub(super) fn arrived(&mut self, now: Instant, own_ns: u64) {
        let Some(max_wait_ns) = self.max_wait_ns else { return };
        let due_at = now + if own_ns > 0 { own_ns } else { max_wait_ns };
        self.due_at = Some(self.due_at.map_or(due_at, |at| at.min(due_at)));
    }

    /// Nothing waits any more.
    pub(super) fn emptied(&mut self) {
        (self.due_at, self.goes) = (None, false);
    }

    /// True if what waits is to wait for more; it `is_full` if it fills a frame.
    pub(super) fn holds(&mut self, now: Instant, is_full: bool) -> bool {
        self.goes |= is_full || self.due_at() <= now;
        !self.goes
    }

    /// When the first packet may wait no longer.
    pub(super) fn due_at(&self) -> Instant {
        self.due_at.unwrap_or(Instant::ZERO)
    }

    /// True if a batch may be compressed that takes `cost_ns`, though it arrives later for it.
    pub(super) fn grants(&mut self, now: Instant, cost_ns: u64) -> bool {
        let Some(max_wait_ns) = self.max_wait_ns else { return false };
        let elapsed_ns = now.since_ns(self.refilled_at).min(u64::from(u32::MAX));
        let earned_ns = elapsed_ns * u64::from(self.cpu_ppm) / SHARE_ONE_PPM;
        if earned_ns > 0 {
            self.refilled_at = now;
            let credit_ns = self.credit_ns.saturating_add_unsigned(earned_ns);
            self.credit_ns = credit_ns.min(CREDIT_NS_MAX as i64);
        }
        cost_ns <= max_wait_ns && self.credit_ns > 0
    }

    /// Pays for a batch.
    pub(super) fn spend(&mut self, cost_ns: u64) {
        let least_ns = -(CREDIT_NS_MAX as i64);
        self.credit_ns = self.credit_ns.saturating_sub_unsigned(cost_ns).max(least_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(cpu_ppm: u32) -> Held {
        let mut held = Held::default();
        held.configure(Objective::Bytes { max_wait_ns: 10_000, cpu_ppm });
        held
    }

    #[test]
    fn nothing_is_granted_before_it_is_earned_however_often_it_is_asked_for() {
        // A nanosecond in ten microseconds.
        let mut held = held(100);
        let at = |us: u64| Instant::from_ns(us * 1_000);
        assert!((0..10).all(|us| !held.grants(at(us), 5)));
        assert!(held.grants(at(10), 5));
        assert!(!held.grants(at(10), 10_001), "it may not wait for so long");
        assert!(held.grants(at(10), 10_000));
        held.spend(1);
        assert!(!held.grants(at(10), 5));
    }

    #[test]
    fn what_is_saved_up_and_what_is_owed_have_bounds() {
        let mut held = held(1_000_000);
        let now = Instant::from_ns(1_000_000_000);
        assert!(held.grants(now, 5));
        held.spend(CREDIT_NS_MAX - 1);
        assert!(held.grants(now, 5));
        held.spend(1);
        assert!(!held.grants(now, 5));
        held.spend(u64::MAX);
        assert!(!held.grants(now + CREDIT_NS_MAX, 5));
        assert!(held.grants(now + (CREDIT_NS_MAX + 1), 5));
    }
}
