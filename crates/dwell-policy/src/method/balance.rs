//! A correction of the measured link rate: finds out which of the link and the processor is idle.

use dwell_base::Instant;

/// The speed of the correction while one of the two is idle: a factor of e in 1/GAIN seconds.
const GAIN: f64 = 4.0;
/// The same at the beginning, and how soon it falls to GAIN: as SLOWING/t after t seconds.
const GAIN_FIRST: f64 = 15.0;
const SLOWING: f64 = 2.0;
/// If the transport has taken everything for this long, in nanoseconds, the link could carry more.
const UNREFUSED_NS: u64 = 20_000_000;
/// The most time that one wait counts for, in nanoseconds: the other end may have stopped reading.
const WAIT_NS_MAX: u64 = 20_000_000;
/// The change of the correction by a single event.
const STEP: f64 = 0.02;
const CORRECTION_MIN: f64 = 0.5;
const CORRECTION_MAX: f64 = 2.5;
/// Below this it rises while what is planned leaves the least that there is, to where it makes a difference.
const CORRECTION_MOST: f64 = 0.9;

/// The factor by which the link is taken to be faster than measured. The estimates are never quite
/// right. At the optimum link and processor are both full, so the one that is not shows the
/// direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Balance {
    correction: f64,
    began_at: Option<Instant>,
    /// Since when there is nothing to do but to wait for the link.
    waiting_since: Option<Instant>,
    /// Since when the transport has refused nothing, although there was always more; moved on as
    /// that is taken account of.
    unrefused_since: Option<Instant>,
}

impl Balance {
    pub(super) const fn new() -> Self {
        Self { correction: 1.0, began_at: None, waiting_since: None, unrefused_since: None }
    }

    pub(super) const fn correction(self) -> f64 {
        self.correction
    }

    /// Notes that there is nothing to do before the link takes more: the processor is idle.
    pub(super) fn waits(&mut self, now: Instant) {
        self.waiting_since.get_or_insert(now);
    }

    /// Notes that something is done. `write_blocked` if the application has more than there is room
    /// for. `drained_ns` is the time for which the transport should have had nothing left to send. `is_most` if nothing that is
    /// planned could leave less: then it makes no difference how slow the link is taken to be, and nothing would show when that is
    /// too slow.
    pub(super) fn works(
        &mut self,
        now: Instant,
        write_blocked: bool,
        (drained_ns, is_most): (u64, bool),
    ) {
        let gain = self.gain(now);
        if let Some(since) = self.waiting_since.take() {
            let ns = now.since_ns(since).min(WAIT_NS_MAX);
            match is_most && self.correction < CORRECTION_MOST {
                true => self.move_for(ns, gain),
                false => self.move_for(ns, -gain),
            }
        }
        if !write_blocked {
            self.unrefused_since = None;
            return;
        }
        let since = *self.unrefused_since.get_or_insert(now);
        let ns = now.since_ns(since);
        if ns >= UNREFUSED_NS {
            // While it has something to send, the absence of refusals is no information.
            self.move_for((ns - UNREFUSED_NS).min(drained_ns), gain);
            self.unrefused_since = Some(since + (ns - UNREFUSED_NS));
        }
    }

    /// Notes that the transport takes no more.
    pub(super) fn refused(&mut self) {
        self.unrefused_since = None;
    }

    /// Notes that something was sent against the plan, because the link would have become idle.
    pub(super) fn link_idle(&mut self) {
        self.set(self.correction * (1.0 + STEP));
    }

    fn gain(&mut self, now: Instant) -> f64 {
        let began_at = *self.began_at.get_or_insert(now);
        (SLOWING * 1e9 / now.since_ns(began_at) as f64).clamp(GAIN, GAIN_FIRST)
    }

    fn move_for(&mut self, ns: u64, gain: f64) {
        self.set(self.correction * (gain * ns as f64 / 1e9).exp());
    }

    fn set(&mut self, correction: f64) {
        self.correction = correction.clamp(CORRECTION_MIN, CORRECTION_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Instant {
        Instant::from_ns(ms * 1_000_000)
    }

    #[test]
    fn a_link_that_takes_everything_is_given_more() {
        let mut balance = Balance::new();
        balance.works(at(0), false, (u64::MAX, false));
        for ms in 1000..=1020 {
            balance.works(at(ms), true, (u64::MAX, false));
        }
        assert_eq!(balance.correction(), 1.0);
        for ms in 1020..=1120 {
            balance.works(at(ms), true, (u64::MAX, false));
        }
        assert!((balance.correction() - 0.4f64.exp()).abs() < 1e-9, "{balance:?}");
        // The transport has sent everything that the application had.
        balance.works(at(1200), false, (u64::MAX, false));
        balance.works(at(1300), true, (u64::MAX, false));
        assert!((balance.correction() - 0.4f64.exp()).abs() < 1e-9, "{balance:?}");
    }

    #[test]
    fn who_waits_for_the_link_compresses_more() {
        let mut balance = Balance::new();
        for cycle in 0..20 {
            balance.works(at(100 * cycle), true, (u64::MAX, false));
            balance.refused();
            balance.waits(at(100 * cycle + 80));
            balance.waits(at(100 * cycle + 90));
        }
        assert_eq!(balance.correction(), CORRECTION_MIN);
    }
    #[test]
    fn what_was_sent_against_the_plan_asks_for_two_per_cent_more() {
        let mut balance = Balance::new();
        balance.link_idle();
        assert_eq!(balance.correction(), 1.02);
        (0..100).for_each(|_| balance.link_idle());
        assert_eq!(balance.correction(), CORRECTION_MAX);
    }

    /// At first nothing is known of how wrong the estimates are.
    #[test]
    fn it_moves_fast_at_first_and_slower_later() {
        // 10 ms of waiting, this long after the beginning.
        let after = |ms: u64| {
            let mut balance = Balance::new();
            balance.works(at(0), false, (0, false));
            balance.waits(at(ms));
            balance.works(at(ms + 10), false, (0, false));
            -balance.correction().ln() / 0.01
        };
        assert!((after(40) - 15.0).abs() < 1e-9, "{}", after(40));
        assert!((after(190) - 10.0).abs() < 1e-9, "2/t after 0.2 s: {}", after(190));
        assert!((after(990) - 4.0).abs() < 1e-9, "{}", after(990));
    }

    /// A plan that leaves the least anyway is the same however slow the link is taken to be.
    #[test]
    fn it_does_not_fall_where_that_changes_nothing() {
        let mut balance = Balance::new();
        let wait = |balance: &mut Balance, seconds: std::ops::Range<u64>, is_most| {
            for ms in (1000 * seconds.start..1000 * seconds.end).step_by(10) {
                balance.waits(at(ms));
                balance.works(at(ms + 8), false, (0, is_most));
            }
            balance.correction()
        };
        assert_eq!(wait(&mut balance, 0..2, false), CORRECTION_MIN);
        let most = CORRECTION_MOST - 0.1..CORRECTION_MOST + 0.1;
        assert!(most.contains(&wait(&mut balance, 2..4, true)), "{balance:?}");
        assert!(most.contains(&wait(&mut balance, 4..6, true)), "{balance:?}");
        assert_eq!(wait(&mut balance, 6..8, false), CORRECTION_MIN);
    }

    /// The other end may have stopped reading: that says nothing of the link.
    #[test]
    fn a_long_wait_counts_for_twenty_milliseconds() {
        let after = |ms: u64| {
            let mut balance = Balance::new();
            balance.works(at(0), false, (0, false));
            balance.waits(at(5_000));
            balance.works(at(5_000 + ms), false, (0, false));
            balance.correction()
        };
        assert!((after(20).ln() + 0.08).abs() < 1e-9 && after(19) > after(20));
        assert_eq!((after(21), after(2_000)), (after(20), after(20)));
    }

    #[test]
    fn a_transport_that_has_something_to_send_need_not_refuse() {
        // It was empty for the last 10 of 50 ms.
        let mut balance = Balance::new();
        balance.works(at(0), false, (0, false));
        balance.works(at(1_000), true, (0, false));
        balance.works(at(1_050), true, (10_000_000, false));
        assert!((balance.correction().ln() - 0.04).abs() < 1e-9, "{balance:?}");
        // A refusal begins the time again.
        balance.refused();
        balance.works(at(1_060), true, (u64::MAX, false));
        balance.works(at(1_080), true, (u64::MAX, false));
        assert!((balance.correction().ln() - 0.04).abs() < 1e-9, "{balance:?}");
    }
}
