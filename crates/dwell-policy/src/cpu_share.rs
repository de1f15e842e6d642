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
    /// Time that may be spent; below zero after a compression that took longer than that.
    credit_ns: i64,
    refilled_at: Instant,
    window_from: Instant,
    starved_ns: u64,
}

impl CpuShare {
    /// All of the time.
    pub(crate) const fn new() -> Self {
        Self {
            share_ppm: ONE_PPM,
            credit_ns: CREDIT_NS_MAX,
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

    /// Returns true if there is time to compress something.
    #[inline]
    pub(crate) fn allows(&mut self, now: Instant) -> bool {
        self.share_ppm == ONE_PPM || self.has_credit(now)
    }

    fn has_credit(&mut self, now: Instant) -> bool {
        self.adjust(now);
        let elapsed_ns = now.since_ns(self.refilled_at).min(u64::from(u32::MAX));
        let earned_ns = elapsed_ns * self.share_ppm / ONE_PPM;
        if earned_ns > 0 {
            self.refilled_at = now;
            self.credit_ns = (self.credit_ns + earned_ns as i64).min(CREDIT_NS_MAX);
        }
        self.credit_ns > 0
    }

    /// Pays for a compression that took `took_ns`.
    #[inline]
    pub(crate) fn spend(&mut self, took_ns: u64) {
        if self.share_ppm < ONE_PPM {
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
}
