//! The share of the time that compressing may take while the processor is what the link waits for.
//!
//! Waiting time and cost (Eq. (2) of Shimamura et al.) tell that a packet is ready before the link gets to
//! it. They don't tell that whoever compresses has other packets to fetch meanwhile: where all of its time
//! is taken, each compression is paid for with packets that the link idles for. Then compressing gives
//! way, until the link is busy again.

use dwell_base::Instant;
use dwell_base::time::MILLI_NS;

/// The share is changed at most this often.
const WINDOW_NS: u64 = 10 * MILLI_NS;
/// Less of the time than one part in so many does not count.
const STARVED_PART: u64 = 64;
/// No more than one part in so many is taken away at once.
const CUT_PART_MIN: u64 = 4;
const ONE_PPM: u64 = 1_000_000;
/// Some is always tried: nothing else shows that there is time again.
const SHARE_PPM_MIN: u64 = ONE_PPM / 64;
/// How much of it comes back in each window.
const STEP_PPM: u64 = ONE_PPM / 64;
/// The most time that is saved up.
const CREDIT_NS_MAX: i64 = MILLI_NS as i64;

/// The share, which is all of the time unless the link starves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuShare {
    share_ppm: u64,
    /// It may not be more than this.
    limit_ppm: u64,
    /// Time that may be spent; below zero after a compression that took longer than that.
    credit_ns: i64,
    /// What jobs under way are expected to take.
    reserved_ns: i64,
    refilled_at: Instant,
    window_from: Instant,
    starved_ns: u64,
}

impl CpuShare {
    /// All of the time.
    pub(crate) const fn new() -> Self {
        Self {
            share_ppm: ONE_PPM,
            limit_ppm: ONE_PPM,
            credit_ns: CREDIT_NS_MAX,
            reserved_ns: 0,
            refilled_at: Instant::ZERO,
            window_from: Instant::ZERO,
            starved_ns: 0,
        }
    }

    /// The link idled for this long because nobody had the time to bring it what waited.
    pub(crate) fn starved(&mut self, now: Instant, ns: u64) {
        self.adjust(now);
        self.starved_ns = self.starved_ns.saturating_add(ns);
    }

    /// No more than this is worth it; all may be if nothing is said.
    pub(crate) fn limit(&mut self, now: Instant, ppm: Option<u32>) {
        // What was earned before was earned by the limit of before.
        let _ = self.has_credit(now);
        self.limit_ppm = ppm.map_or(ONE_PPM, u64::from).min(ONE_PPM);
    }

    fn is_limited(&self) -> bool {
        self.share_ppm.min(self.limit_ppm) < ONE_PPM
    }

    /// Returns true if there is time to compress something.
    #[inline]
    pub(crate) fn allows(&mut self, now: Instant) -> bool {
        !self.is_limited() || self.has_credit(now)
    }

    fn has_credit(&mut self, now: Instant) -> bool {
        self.adjust(now);
        let elapsed_ns = now.since_ns(self.refilled_at).min(u64::from(u32::MAX));
        let earned_ns = elapsed_ns * self.share_ppm.min(self.limit_ppm) / ONE_PPM;
        if earned_ns > 0 {
            self.refilled_at = now;
            self.credit_ns = (self.credit_ns + earned_ns as i64).min(CREDIT_NS_MAX);
        }
        // A link that starved for once is no limit to how many work at the same time.
        let reserved_ns = if self.limit_ppm < ONE_PPM { self.reserved_ns } else { 0 };
        self.credit_ns > reserved_ns
    }

    /// A job begins that is expected to take so long: while it is under way that is spoken for.
    pub(crate) fn reserve(&mut self, cost_ns: u64) {
        self.reserved_ns =
            self.reserved_ns.saturating_add(i64::try_from(cost_ns).unwrap_or(i64::MAX));
    }

    /// It is over.
    pub(crate) fn release(&mut self, cost_ns: u64) {
        let cost_ns = i64::try_from(cost_ns).unwrap_or(i64::MAX);
        self.reserved_ns = self.reserved_ns.saturating_sub(cost_ns).max(0);
    }

    /// Pays for a compression that took `took_ns`.
    #[inline]
    pub(crate) fn spend(&mut self, took_ns: u64) {
        if self.is_limited() {
            let took_ns = i64::try_from(took_ns).unwrap_or(i64::MAX);
            // However long one took, the next comes within a bounded time.
            self.credit_ns = self.credit_ns.saturating_sub(took_ns).max(-8 * CREDIT_NS_MAX);
        }
    }

    /// Takes away the part of the time for which the link starved, and gives a step back.
    fn adjust(&mut self, now: Instant) {
        let elapsed_ns = now.since_ns(self.window_from);
        if elapsed_ns < WINDOW_NS {
            return;
        }
        let windows = (elapsed_ns / WINDOW_NS).min(ONE_PPM / STEP_PPM);
        if self.starved_ns > elapsed_ns / STARVED_PART {
            let starved_ns = self.starved_ns.min(elapsed_ns / CUT_PART_MIN);
            let cut_ppm =
                u128::from(self.share_ppm) * u128::from(starved_ns) / u128::from(elapsed_ns);
            self.share_ppm = (self.share_ppm - cut_ppm as u64).max(SHARE_PPM_MIN);
        } else {
            self.share_ppm = (self.share_ppm + STEP_PPM * windows).min(ONE_PPM);
        }
        self.window_from = now;
        self.starved_ns = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compresses for 50 µs whenever it may, in steps of 100 µs, on a link that idles for what
    /// compressing takes beyond `free_ns` in each step. Returns the share that was spent in each of a
    /// number of windows.
    fn shares(share: &mut CpuShare, from_ns: u64, free_ns: u64, windows: u64) -> Vec<f64> {
        let step_ns = WINDOW_NS / 100;
        let window = |window: u64| {
            let mut spent_ns = 0u32;
            for step in 0..100 {
                let now = Instant::from_ns(from_ns + window * WINDOW_NS + step * step_ns);
                if share.allows(now) {
                    share.spend(50_000);
                    spent_ns += 50_000;
                    share.starved(now, 50_000_u64.saturating_sub(free_ns));
                }
            }
            f64::from(spent_ns) / WINDOW_NS as f64
        };
        (0..windows).map(window).collect()
    }

    #[test]
    fn a_link_that_never_starves_gives_all_of_the_time() {
        let mut share = CpuShare::new();
        assert!(shares(&mut share, 0, 50_000, 100).iter().all(|&spent| spent == 0.5));
        assert_eq!(share.share_ppm, ONE_PPM);
    }

    #[test]
    fn a_link_that_starves_gets_the_time_and_gives_it_back() {
        let mut share = CpuShare::new();
        let starved = shares(&mut share, 0, 0, 100);
        assert_eq!(starved[0], 0.5);
        let late = starved[50..].iter().sum::<f64>() / 50.0;
        assert!((0.01..0.10).contains(&late), "{late}");
        let fed = shares(&mut share, 100 * WINDOW_NS, 50_000, 100);
        assert_eq!(*fed.last().unwrap(), 0.5, "{fed:?}");
        assert_eq!(share.share_ppm, ONE_PPM);
    }

    #[test]
    fn now_and_then_does_not_count() {
        let mut share = CpuShare::new();
        for second in 1..100 {
            share.starved(Instant::from_ns(second * 1_000_000_000), 10_000_000);
        }
        assert_eq!(share.share_ppm, ONE_PPM);
    }

    fn at(ns: u64) -> Instant {
        Instant::from_ns(ns)
    }

    /// The share after a window of `elapsed_ns`, of which the link starved for `starved_ns`.
    fn share_after(elapsed_ns: u64, starved_ns: u64) -> u64 {
        let mut share = CpuShare::new();
        share.starved(at(1), starved_ns);
        assert_eq!(share.share_ppm, ONE_PPM, "a window is not over before its end");
        share.starved(at(elapsed_ns), 0);
        share.share_ppm
    }

    #[test]
    fn the_part_that_starved_is_taken_away_from_a_64th_up_to_a_quarter() {
        assert_eq!(share_after(10_000_000, 156_250), ONE_PPM);
        assert_eq!(share_after(10_000_000, 156_251), ONE_PPM - 15_625);
        assert_eq!(share_after(10_000_000, 1_000_000), ONE_PPM - 100_000);
        assert_eq!(share_after(10_000_000, 2_500_000), ONE_PPM - 250_000);
        assert_eq!(share_after(10_000_000, 9_000_000), ONE_PPM - 250_000);
        // What counts is the time that passed, even if it was more than a window.
        assert_eq!(share_after(20_000_000, 300_000), ONE_PPM);
        assert_eq!(share_after(20_000_000, 1_000_000), ONE_PPM - 50_000);
        assert_eq!(share_after(9_999_999, 9_000_000), ONE_PPM, "too early");
    }

    #[test]
    fn it_never_gets_all_of_the_time_and_takes_it_back_in_steps() {
        let mut share = CpuShare::new();
        for window in 0..100 {
            share.starved(at(window * WINDOW_NS + 1), WINDOW_NS);
        }
        let end_ns = 100 * WINDOW_NS + 1;
        share.starved(at(end_ns), 0);
        assert_eq!(share.share_ppm, 15_625);
        let mut after = |ms| {
            share.starved(at(end_ns + ms * MILLI_NS), 0);
            share.share_ppm
        };
        assert_eq!(after(9), 15_625);
        assert_eq!(after(10), 2 * 15_625);
        // Windows that nobody looked at count, too; a part of one does not.
        assert_eq!(after(45), 5 * 15_625);
        assert_eq!(after(54), 5 * 15_625);
        assert_eq!(after(55), 6 * 15_625);
        assert_eq!(after(100_000), ONE_PPM);
    }

    /// Three quarters of the time from 10 ms on.
    fn three_quarters() -> CpuShare {
        let mut share = CpuShare::new();
        share.starved(at(1), WINDOW_NS);
        share.starved(at(WINDOW_NS), 0);
        assert_eq!(share.share_ppm, 750_000);
        share
    }

    #[test]
    fn a_part_of_the_time_is_earned_and_saved_up_to_a_millisecond() {
        let mut share = three_quarters();
        assert!(share.allows(at(WINDOW_NS)));
        share.spend(MILLI_NS);
        assert!(!share.allows(at(WINDOW_NS)));
        // Less than a nanosecond was earned; it is not forgotten.
        assert!(!share.allows(at(WINDOW_NS + 1)));
        assert!(share.allows(at(WINDOW_NS + 2)));
        share.spend(1);
        assert!(!share.allows(at(WINDOW_NS + 2)));
        // 1.5 ms are earned, and 1 ms of them kept.
        assert!(share.allows(at(WINDOW_NS + 2 * MILLI_NS)));
        share.spend(MILLI_NS - 1);
        assert!(share.allows(at(WINDOW_NS + 2 * MILLI_NS)));
        share.spend(1);
        assert!(!share.allows(at(WINDOW_NS + 2 * MILLI_NS)));
    }

    #[test]
    fn a_limit_holds_whatever_share_there_is_and_is_lifted() {
        let mut share = CpuShare::new();
        share.limit(at(0), Some(100_000));
        let spent = shares(&mut share, 0, 50_000, 100);
        let mean = spent[10..].iter().sum::<f64>() / 90.0;
        assert!((0.08..0.12).contains(&mean), "{mean}");
        assert_eq!(share.share_ppm, ONE_PPM, "the link has not starved");
        share.limit(at(100 * WINDOW_NS), None);
        let spent = shares(&mut share, 100 * WINDOW_NS, 50_000, 10);
        assert!(spent[1..].iter().all(|&spent| spent == 0.5), "{spent:?}");
    }

    #[test]
    fn however_long_a_compression_took_the_next_comes_within_a_bounded_time() {
        let mut share = three_quarters();
        assert!(share.allows(at(WINDOW_NS)));
        share.spend(u64::MAX);
        // 8 ms are owed, of which three quarters of each millisecond are earned.
        assert!(!share.allows(at(WINDOW_NS + 8 * MILLI_NS)));
        assert!(!share.allows(at(2 * WINDOW_NS - 1)));
        assert!(share.allows(at(2 * WINDOW_NS + MILLI_NS)));
    }

    #[test]
    fn what_was_spent_while_there_was_time_is_not_owed_later() {
        let mut share = CpuShare::new();
        share.spend(10 * MILLI_NS);
        share.starved(at(1), WINDOW_NS);
        share.starved(at(WINDOW_NS), 0);
        assert!(share.allows(at(WINDOW_NS)));
        share.spend(MILLI_NS - 1);
        assert!(share.allows(at(WINDOW_NS)), "a whole millisecond was saved up");
    }
}
