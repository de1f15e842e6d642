//! Distributions of times that cost next to nothing to record.

use crate::outcome::Tally;

/// The bits that a value keeps below its highest one.
const KEPT_BITS: u32 = 7;
/// Buckets of one width: as many as values share their highest bit.
const WIDTH: usize = 1 << KEPT_BITS;
/// The values that count exactly are below twice the width; there are so many doublings above.
const DOUBLINGS: usize = 36;
/// All buckets: the last one has what is longer, too.
const BUCKETS_MAX: usize = (DOUBLINGS + 2) * WIDTH;

/// The greatest error of a value that a distribution gives back, as a share of it: half the width of a bucket.
pub const ERROR_MAX: f64 = 0.5 / WIDTH as f64;

/// How often each time occurred, in nanoseconds: exact below 256 ns, and in buckets narrower than 0.8 % of their values
/// from there to almost five hours, which is what all longer times count as. The middle of its bucket stands for a
/// value, so that it is at most 0.4 % off. Beside each there is a [`Tally`] of the same times, which knows their ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    /// Empty until something is recorded.
    counts: Vec<u64>,
}

impl Distribution {
    /// Records a time. It is done for each packet: all that can wait is done when the times are asked for.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        let index = index(ns);
        match self.counts.get_mut(index) {
            Some(count) => *count += 1,
            None => self.grow(index),
        }
    }

    #[cold]
    fn grow(&mut self, index: usize) {
        let index = index.min(BUCKETS_MAX - 1);
        if index >= self.counts.len() {
            // In whole doublings, so that it happens seldom.
            self.counts.resize((index / WIDTH + 1) * WIDTH, 0);
        }
        self.counts[index] += 1;
    }

    /// Returns the number of times recorded.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the time that the share `quantile` (0 to 1) did not exceed, at most [`ERROR_MAX`] off; zero if nothing was
    /// recorded. `tally` is of the same times.
    pub fn quantile_ns(&self, quantile: f64, tally: &Tally) -> u64 {
        let wanted = (quantile * self.count() as f64).ceil().max(1.0) as u64;
        let mut sum = 0;
        let reached = |&(_, count): &(u64, u64)| {
            sum += count;
            sum >= wanted
        };
        self.recorded(tally).find(reached).map_or(0, |(ns, _)| ns)
    }

    /// Returns the times recorded in ascending order with their numbers, each at most [`ERROR_MAX`] off. `tally` is of the
    /// same times.
    pub fn recorded(&self, tally: &Tally) -> impl Iterator<Item = (u64, u64)> + '_ {
        let (min_ns, max_ns) = (tally.min_ns.min(tally.max_ns), tally.max_ns);
        let counts = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        counts.map(move |(index, &count)| (middle(index).clamp(min_ns, max_ns), count))
    }
}

/// Returns the bucket of a value.
#[inline]
fn index(ns: u64) -> usize {
    // With the lowest of the highest bits set, there is one to be found, and no case of its own.
    let doublings = (ns | WIDTH as u64).ilog2() - KEPT_BITS;
    doublings as usize * WIDTH + (ns >> doublings) as usize
}

/// Returns the middle of a bucket.
fn middle(index: usize) -> u64 {
    let doublings = (index / WIDTH).saturating_sub(1);
    let lowest = ((index - doublings * WIDTH) as u64) << doublings;
    lowest + ((1 << doublings) - 1) / 2
}

#[cfg(test)]
mod tests {
    use dwell_base::Rng;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_value_is_in_one_bucket_near_it() {
        let mut rng = Rng::from_seed(1);
        let any = (0..100_000).map(|_| rng.next_u64() >> (rng.below(43) + 21));
        for ns in (0..3_000).chain(any) {
            let found = middle(index(ns));
            let error = found.abs_diff(ns);
            assert!(error as f64 <= ns as f64 * ERROR_MAX, "{ns} counts as {found}");
            assert!(ns >= 256 || error == 0, "{ns} counts as {found}");
        }
        let indices: Vec<usize> = (0..100_000).map(index).collect();
        assert!(indices.windows(2).all(|pair| pair[1] == pair[0] || pair[1] == pair[0] + 1));
        assert!(middle(BUCKETS_MAX - 1) > 9_000_000_000_000);
        let (mut longest, mut tally) = (Distribution::default(), Tally::default());
        for ns in [u64::MAX, u64::MAX >> 1, 7] {
            longest.record(ns);
            tally.add(ns >> 1);
        }
        assert_eq!((longest.counts.len(), longest.counts[BUCKETS_MAX - 1]), (BUCKETS_MAX, 2));
        assert_eq!(longest.recorded(&tally).count(), 2);
    }

    proptest! {
        #[test]
        fn quantiles_are_those_of_the_sorted_values_but_for_the_error(
            mut times in prop::collection::vec(0u64..1_000_000_000_000, 1..300),
            quantile in 0.0..=1.0f64,
        ) {
            let (mut distribution, mut tally) = (Distribution::default(), Tally::default());
            for &ns in &times {
                distribution.record(ns);
                tally.add(ns);
            }
            times.sort_unstable();
            for q in [quantile, 0.5, 0.9, 0.99, 0.999] {
                let place = ((q * times.len() as f64).ceil() as usize).max(1) - 1;
                let (exact, found) = (times[place], distribution.quantile_ns(q, &tally));
                let error = exact.abs_diff(found) as f64;
                prop_assert!(error <= exact as f64 * ERROR_MAX, "{} for {} at {}", found, exact, q);
            }
            prop_assert_eq!(distribution.count(), times.len() as u64);
            prop_assert_eq!(distribution.recorded(&tally).map(|(_, n)| n).sum::<u64>(), times.len() as u64);
        }
    }

    #[test]
    fn nothing_recorded_is_zero() {
        let none = Tally::default();
        assert_eq!(Distribution::default().quantile_ns(0.5, &none), 0);
        assert_eq!(Distribution::default().recorded(&none).count(), 0);
    }
}
