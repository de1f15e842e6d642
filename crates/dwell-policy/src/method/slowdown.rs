//! How much longer compressing takes than the processor works at it.

use dwell_base::Instant;
use dwell_base::time::{MILLI_NS, SECOND_NS};

/// What was measured is forgotten at this rate: after so long a third of it is left, ...
const FADE_NS: f64 = 2.0 * SECOND_NS as f64;
/// ... and more slowly, down to this rate, if it was little, less than so much work, ...
const FADE_OF_LITTLE_NS: f64 = 8.0 * SECOND_NS as f64;
const ENOUGH_NS: f64 = 50.0 * MILLI_NS as f64;
/// ... and later jobs confirm it, waiting for at least this part of what was expected ...
const CONFIRMED_PART: f64 = 0.5;
/// ... again and again: with nothing new for so long, it is forgotten as fast as all else. (What keeps jobs from being
/// begun must not last because of that.)
const SILENCE_NS: f64 = 0.5 * SECOND_NS as f64;
/// So much work without a delay is assumed beside what was measured if jobs had to wait once, and the less the more often
/// they had to: one wait says little, and what was measured long ago nothing. (As much for any number of waits would make
/// a processor seem the faster the less is asked of it, and who believes that asks for more.)
const ASSUMED_NS: f64 = 20.0 * MILLI_NS as f64;
/// A wait of this length, or longer, is one; shorter ones are a part of one.
const WAIT_NS: f64 = 5.0 * MILLI_NS as f64;

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
    /// How often that was.
    waits: f64,
    at: Instant,
}

impl Default for Slowdown {
    fn default() -> Self {
        Self { cpu_ns: 0.0, waited_ns: 0.0, waits: 0.0, at: Instant::ZERO }
    }
}

impl Slowdown {
    /// Jobs have taken so much of the processor's time, and so long in all, in nanoseconds.
    pub fn worked(&mut self, now: Instant, cpu_ns: u64, elapsed_ns: u64) {
        let waited_ns = elapsed_ns.saturating_sub(cpu_ns) as f64;
        let expected_ns = (self.factor(now) - 1.0) * cpu_ns as f64;
        let left = self.left(now, waited_ns >= CONFIRMED_PART * expected_ns);
        self.cpu_ns = left * self.cpu_ns + cpu_ns as f64;
        self.waited_ns = left * self.waited_ns + waited_ns;
        self.waits = left * self.waits + (waited_ns / WAIT_NS).min(1.0);
        self.at = self.at.max(now);
    }

    /// Returns how many times longer they take: at least 1.
    pub fn factor(&self, now: Instant) -> f64 {
        let left = self.left(now, true);
        let assumed_ns = ASSUMED_NS / (left * self.waits).max(1.0);
        1.0 + left * self.waited_ns / (left * self.cpu_ns + assumed_ns)
    }

    /// The part of what was measured that still counts, if what came since then confirms it or not.
    fn left(&self, now: Instant, is_confirmed: bool) -> f64 {
        let since_ns = now.since_ns(self.at) as f64;
        let little = (1.0 - self.cpu_ns / ENOUGH_NS).max(0.0);
        let slowly_ns = if is_confirmed { little * since_ns.min(SILENCE_NS) } else { 0.0 };
        (-slowly_ns / FADE_OF_LITTLE_NS - (since_ns - slowly_ns) / FADE_NS).exp()
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
    fn a_slow_processor_seems_as_slow_however_little_is_asked_of_it() {
        let slow = |cpu_ns: u64| {
            let mut slowdown = Slowdown::default();
            for ms in (0..8_000).step_by(20) {
                slowdown.worked(at(ms), cpu_ns, 50 * cpu_ns);
            }
            slowdown.factor(at(8_000))
        };
        // From .0005 to .02 of a processor.
        let factors = [10_000, 50_000, 400_000].map(slow);
        assert!(factors.iter().all(|it| (25.0..=50.0).contains(it)), "{factors:?}");
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
