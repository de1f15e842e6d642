//! How much longer compressing takes than the processor works at it.

use dwell_base::Instant;
use dwell_base::time::{MILLI_NS, SECOND_NS};

/// What was measured is forgotten at this rate: after so long a third of it is left.
const FADE_NS: f64 = 2.0 * SECOND_NS as f64;
/// So much work without a delay is assumed beside what was measured: one job that had to wait says little, and what was
/// measured long ago nothing.
const ASSUMED_NS: f64 = 20.0 * MILLI_NS as f64;

/// How many times longer jobs take than the processor works at them: it has others to serve, or a quota. What was
/// measured is forgotten with time, so that nothing which was so once keeps jobs from being begun.
///
/// ```
/// use dwell_base::Instant;
/// use dwell_policy::method::Slowdown;
///
/// let (mut slowdown, now) = (Slowdown::default(), Instant::from_ns(1));
/// slowdown.worked(now, 80_000_000, 480_000_000);
/// assert_eq!(slowdown.factor(now), 5.0);
/// assert!(slowdown.factor(now + 20_000_000_000) < 1.01);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Slowdown {
    cpu_ns: f64,
    waited_ns: f64,
    at: Instant,
}

impl Default for Slowdown {
    fn default() -> Self {
        Self { cpu_ns: 0.0, waited_ns: 0.0, at: Instant::ZERO }
    }
}

impl Slowdown {
    /// Jobs have taken so much of the processor's time, and so long in all, in nanoseconds.
    pub fn worked(&mut self, now: Instant, cpu_ns: u64, elapsed_ns: u64) {
        let left = self.left(now);
        self.cpu_ns = left * self.cpu_ns + cpu_ns as f64;
        self.waited_ns = left * self.waited_ns + elapsed_ns.saturating_sub(cpu_ns) as f64;
        self.at = self.at.max(now);
    }

    /// Returns how many times longer they take: at least 1.
    pub fn factor(&self, now: Instant) -> f64 {
        let left = self.left(now);
        1.0 + left * self.waited_ns / (left * self.cpu_ns + ASSUMED_NS)
    }

    /// The part of what was measured that still counts.
    fn left(&self, now: Instant) -> f64 {
        (-(now.since_ns(self.at) as f64) / FADE_NS).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_ns(ms * MILLI_NS)
    }

    #[test]
    fn jobs_that_have_to_wait_count_and_those_that_do_not_make_up_for_them() {
        let mut slowdown = Slowdown::default();
        assert_eq!(slowdown.factor(at(0)), 1.0);
        for ms in (0..2_000).step_by(10) {
            slowdown.worked(at(ms), 4 * MILLI_NS, 16 * MILLI_NS);
        }
        let slow = slowdown.factor(at(2_000));
        assert!((3.7..4.0).contains(&slow), "{slow}");
        for ms in (2_000..8_000).step_by(10) {
            slowdown.worked(at(ms), 4 * MILLI_NS, 4 * MILLI_NS);
        }
        let fast = slowdown.factor(at(8_000));
        assert!(fast < 1.2, "{fast}");
    }

    #[test]
    fn one_that_had_to_wait_says_little_and_nothing_after_a_while() {
        let mut slowdown = Slowdown::default();
        slowdown.worked(at(0), 100_000, 75 * MILLI_NS);
        assert!((3.0..6.0).contains(&slowdown.factor(at(0))));
        assert!(slowdown.factor(at(15_000)) < 1.01);
        slowdown.worked(at(20_000), u64::MAX, 0);
        assert!(slowdown.factor(at(20_000)) < 1.01);
        slowdown.worked(at(20_000), 0, u64::MAX);
        assert!(slowdown.factor(at(u64::MAX / MILLI_NS)).is_finite());
    }
}
