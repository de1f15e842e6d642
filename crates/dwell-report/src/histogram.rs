//! Distributions of times, in bounded memory.

use std::fmt;

use dwell_base::time::SECOND_NS;

use crate::status::HistogramSummary;

/// Longer times count as this one: an hour in a queue is as good as forever.
pub const HISTOGRAM_MAX_NS: u64 = 3600 * SECOND_NS;

/// The bounds of [`HistogramSummary::at_most`], in nanoseconds: from 0.1 ms, where timers end, to
/// 10 s, where patience does.
pub const BUCKETS_NS: [u64; 16] = {
    const TENTH_MS: u64 = SECOND_NS / 10_000;
    let (mut bounds, mut n, mut decade) = ([0; 16], 0, TENTH_MS);
    while n < bounds.len() {
        bounds[n] = decade * [1, 2, 5][n % 3];
        n += 1;
        if n % 3 == 0 {
            decade *= 10;
        }
    }
    bounds
};

impl HistogramSummary {
    /// Returns roughly the time that the share `quantile` (0 to 1) of what was recorded since `before` did
    /// not exceed: known are only the bounds of [`BUCKETS_NS`], and between two of them it is taken to be spread
    /// evenly. None if nothing was recorded since, or the counts began again.
    pub fn quantile_since_ns(&self, before: &Self, quantile: f64) -> Option<u64> {
        let count = self.count.checked_sub(before.count).filter(|count| *count > 0)?;
        let wanted = (count as f64 * quantile).ceil().max(1.0);
        let (mut below, mut floor_ns) = (0, 0);
        for (at, ns) in BUCKETS_NS.into_iter().enumerate() {
            let up_to = self.at_most[at].checked_sub(before.at_most[at])?;
            if up_to as f64 >= wanted {
                let inside = up_to.saturating_sub(below).max(1) as f64;
                let part = (wanted - below as f64) / inside;
                return Some(floor_ns + ((ns - floor_ns) as f64 * part) as u64);
            }
            (below, floor_ns) = (up_to, ns);
        }
        Some(self.max_ns.max(floor_ns))
    }
}

/// Two digits: a quantile is off by less than 1 %, and a histogram takes 37 kB. With three
/// digits it would be 262 kB for each peer.
const SIGNIFICANT_DIGITS: u8 = 2;

/// A distribution of times in nanoseconds. Recording is cheap and allocates nothing.
#[derive(Clone)]
pub struct Histogram {
    buckets: hdrhistogram::Histogram<u64>,
    // The buckets know these only roughly.
    min_ns: u64,
    max_ns: u64,
    sum_ns: u128,
}

impl Histogram {
    /// Makes an empty histogram.
    pub fn new() -> Self {
        let buckets =
            hdrhistogram::Histogram::new_with_bounds(1, HISTOGRAM_MAX_NS, SIGNIFICANT_DIGITS)
                .expect("the bounds are constants that make sense");
        Self { buckets, min_ns: u64::MAX, max_ns: 0, sum_ns: 0 }
    }

    /// Records a time.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.record_many(ns, 1);
    }

    /// Records the same time `count` times.
    #[inline]
    pub fn record_many(&mut self, ns: u64, count: u64) {
        if count == 0 {
            return;
        }
        let ns = ns.min(HISTOGRAM_MAX_NS);
        self.buckets.saturating_record_n(ns, count);
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
        self.sum_ns += u128::from(ns) * u128::from(count);
    }

    /// Adds everything recorded in `other`.
    pub fn merge(&mut self, other: &Self) {
        // All histograms have the same bounds, so that everything fits.
        let added = self.buckets.add(&other.buckets);
        debug_assert!(added.is_ok());
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.sum_ns += other.sum_ns;
    }

    /// Removes everything recorded.
    pub fn clear(&mut self) {
        self.buckets.clear();
        (self.min_ns, self.max_ns, self.sum_ns) = (u64::MAX, 0, 0);
    }

    /// Returns the number of times recorded.
    pub fn count(&self) -> u64 {
        self.buckets.len()
    }

    /// Returns the sum of all times recorded, in nanoseconds.
    pub fn sum_ns(&self) -> u128 {
        self.sum_ns
    }

    /// Returns the time that the share `quantile` (0 to 1) did not exceed; zero if nothing was
    /// recorded.
    pub fn quantile_ns(&self, quantile: f64) -> u64 {
        if self.buckets.is_empty() {
            return 0;
        }
        self.buckets.value_at_quantile(quantile).clamp(self.min_ns, self.max_ns)
    }

    /// Returns the times recorded in ascending order, with their numbers; each is off by less than 1 %.
    pub fn recorded(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let buckets = self.buckets.iter_recorded();
        buckets
            .map(|it| (it.value_iterated_to().clamp(self.min_ns, self.max_ns), it.count_at_value()))
    }

    /// Returns the distribution in a few numbers.
    pub fn summary(&self) -> HistogramSummary {
        let count = self.count();
        if count == 0 {
            return HistogramSummary::default();
        }
        let mean_ns = self.sum_ns / u128::from(count);
        HistogramSummary {
            count,
            min_ns: self.min_ns,
            mean_ns: u64::try_from(mean_ns).unwrap_or(u64::MAX),
            p50_ns: self.quantile_ns(0.5),
            p90_ns: self.quantile_ns(0.9),
            p99_ns: self.quantile_ns(0.99),
            max_ns: self.max_ns,
            at_most: self.at_most(),
        }
    }

    /// Returns the number of times that did not exceed each of [`BUCKETS_NS`], within the precision
    /// of the buckets.
    fn at_most(&self) -> [u64; BUCKETS_NS.len()] {
        let mut counts = [0; BUCKETS_NS.len()];
        for recorded in self.buckets.iter_recorded() {
            // A bucket may begin below a bound and end above it: its times count at its beginning.
            let ns = self.buckets.lowest_equivalent(recorded.value_iterated_to());
            let from = BUCKETS_NS.partition_point(|&bound| bound < ns);
            counts[from..].iter_mut().for_each(|count| *count += recorded.count_at_value());
        }
        counts
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Histogram").field(&self.summary()).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_recorded_is_all_zero() {
        assert_eq!(Histogram::new().summary(), HistogramSummary::default());
    }

    #[test]
    fn a_distribution_in_a_few_numbers() {
        let mut histogram = Histogram::new();
        (1..=1000).for_each(|us| histogram.record(us * 1000));
        let summary = histogram.summary();
        assert_eq!((summary.count, summary.min_ns, summary.max_ns), (1000, 1000, 1_000_000));
        assert_eq!(summary.mean_ns, 500_500);
        for (quantile_ns, exact_ns) in
            [(summary.p50_ns, 500_000), (summary.p90_ns, 900_000), (summary.p99_ns, 990_000)]
        {
            assert!(quantile_ns.abs_diff(exact_ns) * 100 < exact_ns, "{quantile_ns}");
        }
    }

    #[test]
    fn the_extremes_fit() {
        let mut histogram = Histogram::new();
        histogram.record(0);
        histogram.record(u64::MAX);
        let summary = histogram.summary();
        assert_eq!((summary.min_ns, summary.max_ns), (0, HISTOGRAM_MAX_NS));
        histogram.clear();
        assert_eq!(histogram.summary(), HistogramSummary::default());
    }

    proptest! {
        #[test]
        fn merging_is_recording_both(
            a in prop::collection::vec(any::<u64>(), 0..50),
            b in prop::collection::vec(0u64..1_000_000, 0..50),
        ) {
            let of = |times: &[u64]| {
                let mut histogram = Histogram::new();
                times.iter().for_each(|&ns| histogram.record(ns));
                histogram
            };
            let mut merged = of(&a);
            merged.merge(&of(&b));
            prop_assert_eq!(merged.summary(), of(&[a, b].concat()).summary());
        }

        #[test]
        fn quantiles_are_in_order(times in prop::collection::vec(any::<u64>(), 1..50)) {
            let mut histogram = Histogram::new();
            times.iter().for_each(|&ns| histogram.record(ns));
            let s = histogram.summary();
            let order = [s.min_ns, s.p50_ns, s.p90_ns, s.p99_ns, s.max_ns];
            prop_assert!(order.is_sorted(), "{order:?}");
        }
    }

    #[test]
    fn quantiles_of_what_came_since_are_near() {
        let ms = SECOND_NS / 1_000;
        let mut histogram = Histogram::new();
        histogram.record_many(400 * ms, 1_000);
        let before = histogram.summary();
        assert_eq!(before.quantile_since_ns(&before, 0.99), None, "nothing since");
        histogram.record_many(3 * ms, 98);
        histogram.record_many(15 * ms, 2);
        let now = histogram.summary();
        let p50 = now.quantile_since_ns(&before, 0.5).unwrap();
        assert!((2 * ms..=5 * ms).contains(&p50), "{p50}");
        let p99 = now.quantile_since_ns(&before, 0.99).unwrap();
        assert!((10 * ms..=20 * ms).contains(&p99), "{p99}");
        assert_eq!(before.quantile_since_ns(&now, 0.5), None, "the counts began again");
        histogram.record(60 * SECOND_NS);
        assert_eq!(histogram.summary().quantile_since_ns(&now, 0.99), Some(60 * SECOND_NS));
    }
}
