//! Whether this end has the processor time that models take.
//!
//! A model decodes as slowly as it encodes, and a hub decodes for all its peers. If more comes than its threads can
//! decode, what waits for them would wait ever longer and at last be lost. So if a peer's batches wait for
//! long, no models are offered to it for a while, and it sends what takes a tenth of the time to
//! decode, or less. How long that is doubles each time, up to an hour, and halves again with each such time that passes
//! without.

use dwell_base::Instant;
use dwell_base::time::{MILLI_NS, SECOND_NS};

/// Batches that wait for threads for so long, ...
const LATE_NS: u64 = 250 * MILLI_NS;
/// ... all of the time for so long: the threads don't keep up.
const PATIENCE_NS: u64 = 2 * SECOND_NS;
/// No models are offered for so long at first, and at last.
const FIRST_HOLD_NS: u64 = 60 * SECOND_NS;
const LAST_HOLD_NS: u64 = 3_600 * SECOND_NS;

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing.
    AsBefore,
    /// Offer no models for so long, in nanoseconds, from now on.
    Withdraw { for_ns: u64 },
    /// Offer them again.
    Offer,
}

/// What one peer's batches have waited for.
#[derive(Debug, Default)]
pub(super) struct Overload {
    late_since: Option<Instant>,
    withdrawn_until: Option<Instant>,
    hold_ns: u64,
    /// When they were offered again.
    offered_at: Instant,
}

impl Overload {
    /// Returns true if models must not be offered now.
    pub(super) fn is_withdrawn(&self) -> bool {
        self.withdrawn_until.is_some()
    }

    /// Looks at the time for which the oldest batch has waited, in nanoseconds. Only if it `may` begin models are
    /// withdrawn.
    pub(super) fn review(&mut self, now: Instant, waited_ns: u64, may: bool) -> Verdict {
        if let Some(until) = self.withdrawn_until {
            if now < until {
                return Verdict::AsBefore;
            }
            (self.withdrawn_until, self.late_since) = (None, None);
            self.offered_at = now;
            return Verdict::Offer;
        }
        if waited_ns < LATE_NS {
            self.late_since = None;
            return Verdict::AsBefore;
        }
        let since = *self.late_since.get_or_insert(now);
        if !may || now.since_ns(since) < PATIENCE_NS {
            return Verdict::AsBefore;
        }
        let before_ns = self.remembered_ns(now);
        self.hold_ns = (2 * before_ns).clamp(FIRST_HOLD_NS, LAST_HOLD_NS);
        self.withdrawn_until = Some(now + self.hold_ns);
        Verdict::Withdraw { for_ns: self.hold_ns }
    }

    /// What is left of the time for which they were withdrawn before: what was long ago says nothing of now.
    fn remembered_ns(&self, now: Instant) -> u64 {
        let (mut hold_ns, mut calm_ns) = (self.hold_ns, now.since_ns(self.offered_at));
        while hold_ns >= FIRST_HOLD_NS && calm_ns >= hold_ns {
            calm_ns -= hold_ns;
            hold_ns /= 2;
        }
        hold_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + ms * MILLI_NS
    }

    #[test]
    fn a_machine_that_stood_still_is_not_overloaded() {
        let mut overload = Overload::default();
        assert_eq!(overload.review(at(60_000), 9 * SECOND_NS, true), Verdict::AsBefore);
        assert_eq!(overload.review(at(60_100), LATE_NS - 1, true), Verdict::AsBefore);
        assert_eq!(overload.review(at(63_000), LATE_NS, true), Verdict::AsBefore);
        assert!(!overload.is_withdrawn());
    }

    #[test]
    fn who_stays_behind_withdraws_and_tries_again_ever_later() {
        let (mut overload, mut now, mut holds) = (Overload::default(), 0, Vec::new());
        for _ in 0..20_000 {
            now += 500;
            match overload.review(at(now), LATE_NS, true) {
                Verdict::Withdraw { for_ns } => holds.push(for_ns / SECOND_NS),
                Verdict::Offer => assert!(!overload.is_withdrawn()),
                Verdict::AsBefore => {}
            }
        }
        assert_eq!(holds, [60, 120, 240, 480, 960, 1_920, 3_600, 3_600]);
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let mut overload = Overload::default();
        // Returns for how long they are withdrawn by the first that begins at this time.
        let mut withdraw = |mut ms: u64| loop {
            if let Verdict::Withdraw { for_ns } = overload.review(at(ms), LATE_NS, true) {
                let offered_ms = ms + for_ns / MILLI_NS;
                assert_eq!(overload.review(at(offered_ms), 0, true), Verdict::Offer);
                break (for_ns / SECOND_NS, offered_ms);
            }
            ms += 500;
        };
        let (mut holds, mut now) = (Vec::new(), 0);
        // Three in a row, one after the time that the latest took, one after a day.
        for calm_ms in [0, 0, 0, 240_000, 86_400_000] {
            let (hold, offered) = withdraw(now + calm_ms);
            holds.push(hold);
            now = offered;
        }
        assert_eq!(holds, [60, 120, 240, 240, 60]);
    }

    #[test]
    fn only_one_at_a_time() {
        let mut overload = Overload::default();
        for ms in (0..10_000).step_by(100) {
            assert_eq!(overload.review(at(ms), LATE_NS, false), Verdict::AsBefore);
        }
        let for_ns = FIRST_HOLD_NS;
        assert_eq!(overload.review(at(10_000), LATE_NS, true), Verdict::Withdraw { for_ns });
    }
}
