//! Medians and what lies around them.

/// The summary of several runs of the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Summary {
    /// The number of runs.
    pub(super) runs: usize,
    pub(super) min: f64,
    /// A quarter of the runs is at most this.
    pub(super) low: f64,
    pub(super) median: f64,
    /// A quarter of the runs is at least this.
    pub(super) high: f64,
    pub(super) max: f64,
    pub(super) mean: f64,
}

impl Summary {
    /// Of finite numbers; `None` of nothing.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        Some(Self {
            runs: sorted.len(),
            min: *sorted.first()?,
            low: quantile(&sorted, 0.25)?,
            median: quantile(&sorted, 0.5)?,
            high: quantile(&sorted, 0.75)?,
            max: *sorted.last()?,
            mean: sorted.iter().sum::<f64>() / sorted.len() as f64,
        })
    }
}

/// The median of finite numbers; `None` of nothing.
pub(super) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    Summary::of(values).map(|summary| summary.median)
}

/// Between two neighbours in proportion, so that the median of an even number is the middle
/// of the two.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let place = share * (sorted.len().checked_sub(1)?) as f64;
    let (below, above) = (*sorted.get(place as usize)?, *sorted.get(place.ceil() as usize)?);
    Some(below + (above - below) * place.fract())
}

/// The value that this share (0 to 1) of all does not exceed.
pub(super) fn rank(sorted: &[u64], share: f64) -> Option<u64> {
    let rank = (share.clamp(0.0, 1.0) * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_odd_number_has_a_run_in_the_middle() {
        let summary = Summary::of([5.0, 1.0, 3.0, 2.0, 4.0]).unwrap();
        assert_eq!((summary.min, summary.low, summary.median), (1.0, 2.0, 3.0));
        assert_eq!((summary.high, summary.max, summary.runs), (4.0, 5.0, 5));
    }

    #[test]
    fn an_even_number_has_two() {
        let summary = Summary::of([4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((summary.low, summary.median, summary.high), (1.75, 2.5, 3.25));
    }

    #[test]
    fn one_is_its_own_median_and_nothing_has_none() {
        let (low, high) = (7.0, 7.0);
        let one = Summary { runs: 1, min: 7.0, low, median: 7.0, high, max: 7.0, mean: 7.0 };
        assert_eq!(Summary::of([7.0]), Some(one));
        assert_eq!(Summary::of([]), None);
        assert_eq!(Summary::of([f64::NAN, f64::INFINITY]), None);
        assert_eq!(median([f64::NAN, 2.0]), Some(2.0));
    }

    #[test]
    fn ranks_are_values_that_occurred() {
        let sorted: Vec<u64> = (1..=100).collect();
        assert_eq!(rank(&sorted, 0.5), Some(50));
        assert_eq!(rank(&sorted, 0.99), Some(99));
        assert_eq!(rank(&sorted, 1.0), Some(100));
        assert_eq!(rank(&sorted, 0.0), Some(1));
        assert_eq!(rank(&[], 0.5), None);
    }
}
