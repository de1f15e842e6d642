//! Distributions of times that cost next to nothing to record.

/// The bits that a value keeps below its highest one.
const KEPT_BITS: u32 = 7;
/// Buckets of one width: as many as values share their highest bit.
const WIDTH: usize = 1 << KEPT_BITS;
/// The values that count exactly are below twice this many; there are so many doublings above.
const DOUBLINGS: usize = 36;

/// The greatest error of a value that a distribution gives back, as a share of it: half the width of a bucket.
pub const ERROR_MAX: f64 = 0.5 / WIDTH as f64;

/// How often each time occurred, in nanoseconds: exact below 256 ns, and in buckets narrower than 0.8 % of their values
/// from there to almost five hours, which is what all longer times count as. The middle of its bucket stands for a
/// value, so that it is at most 0.4 % off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    /// Empty until something is recorded.
    counts: Vec<u64>,
    count: u64,
    min_ns: u64,
    max_ns: u64,
}

impl Distribution {
    /// Records a time.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        let index = index(ns);
        match self.counts.get_mut(index) {
            Some(count) => *count += 1,
            None => self.grow(index),
        }
        self.min_ns = if self.count == 0 { ns } else { self.min_ns.min(ns) };
        self.max_ns = self.max_ns.max(ns);
        self.count += 1;
    }

    #[cold]
    fn grow(&mut self, index: usize) {
        // In whole doublings, so that it happens seldom.
        self.counts.resize((index / WIDTH + 1) * WIDTH, 0);
        self.counts[index] += 1;
    }

    /// Returns the number of times recorded.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the time that the share `quantile` (0 to 1) did not exceed, at most [`ERROR_MAX`] off; zero if nothing was
    /// recorded.
    pub fn quantile_ns(&self, quantile: f64) -> u64 {
        let wanted = (quantile * self.count as f64).ceil().max(1.0) as u64;
        let mut sum = 0;
        let reached = |&(_, count): &(u64, u64)| {
            sum += count;
            sum >= wanted
        };
        self.recorded().find(reached).map_or(0, |(ns, _)| ns)
    }

    /// Returns the times recorded in ascending order with their numbers, each at most [`ERROR_MAX`] off.
    pub fn recorded(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let counts = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        counts.map(|(index, &count)| (middle(index).clamp(self.min_ns, self.max_ns), count))
    }
}

/// Returns the bucket of a value.
#[inline]
fn index(ns: u64) -> usize {
    let doublings = (u64::BITS - ns.leading_zeros()).saturating_sub(KEPT_BITS + 1);
    let index = doublings as usize * WIDTH + (ns >> doublings) as usize;
    index.min((DOUBLINGS + 2) * WIDTH - 1)
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
        assert_eq!(index(u64::MAX), (DOUBLINGS + 2) * WIDTH - 1);
        assert!(middle(index(u64::MAX)) > 9_000_000_000_000);
    }

    proptest! {
        #[test]
        fn quantiles_are_those_of_the_sorted_values_but_for_the_error(
            mut times in prop::collection::vec(0u64..1_000_000_000_000, 1..300),
            quantile in 0.0..=1.0f64,
        ) {
            let mut distribution = Distribution::default();
            times.iter().for_each(|&ns| distribution.record(ns));
            times.sort_unstable();
            for q in [quantile, 0.5, 0.9, 0.99, 0.999] {
                let place = ((q * times.len() as f64).ceil() as usize).max(1) - 1;
                let (exact, found) = (times[place], distribution.quantile_ns(q));
                let error = exact.abs_diff(found) as f64;
                prop_assert!(error <= exact as f64 * ERROR_MAX, "{} for {} at {}", found, exact, q);
            }
            prop_assert_eq!(distribution.count(), times.len() as u64);
            prop_assert_eq!(distribution.recorded().map(|(_, n)| n).sum::<u64>(), times.len() as u64);
        }
    }

    #[test]
    fn nothing_recorded_is_zero() {
        assert_eq!(Distribution::default().quantile_ns(0.5), 0);
        assert_eq!(Distribution::default().recorded().count(), 0);
    }
}
