//! How many processors compressing for one peer can make use of: a context is compressed in its order, by one thread at a
//! time, and others beside it.

use dwell_base::Instant;
use dwell_base::time::SECOND_NS;

use super::Outgoing;

/// What went through a context counts for a third after so long, in nanoseconds.
const FADE_NS: f64 = SECOND_NS as f64;

/// The bytes that went through a context of late.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lately {
    bytes: f64,
    at: Instant,
}

impl Lately {
    /// So many more went through it.
    pub(super) fn add(&mut self, now: Instant, bytes: u64) {
        *self = Self { bytes: self.bytes(now) + bytes as f64, at: now };
    }

    fn bytes(&self, now: Instant) -> f64 {
        self.bytes * (-(now.since_ns(self.at) as f64) / FADE_NS).exp()
    }
}

impl Outgoing {
    /// Returns how many times more than one processor could compress what went through the contexts of late, in their
    /// present proportion: what they all have had to what the largest has. At least 1.
    pub(in crate::node) fn parallel(&self, now: Instant) -> f64 {
        parallel(self.contexts.iter().map(|it| it.lately.bytes(now)))
    }
}

fn parallel(each: impl Iterator<Item = f64>) -> f64 {
    let (all, largest) = each
        .fold((0.0, 0.0), |(all, largest): (f64, f64), bytes| (all + bytes, largest.max(bytes)));
    // Less than a byte is nothing.
    if largest < 1.0 { 1.0 } else { all / largest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_context_is_the_measure() {
        let of = |each: &[f64]| parallel(each.iter().copied());
        assert_eq!([of(&[]), of(&[0.0, 0.0]), of(&[7e6])], [1.0; 3]);
        assert_eq!(of(&[3e6, 3e6, 3e6]), 3.0);
        assert_eq!(of(&[4e6, 1e6, 1e6]), 1.5);
    }

    #[test]
    fn what_went_through_long_ago_counts_for_nothing() {
        let mut lately = Lately::default();
        lately.add(Instant::from_ns(SECOND_NS), 1_000_000);
        lately.add(Instant::from_ns(2 * SECOND_NS), 1_000_000);
        let after = |seconds: u64| lately.bytes(Instant::from_ns(seconds * SECOND_NS)).round();
        assert_eq!([after(2), after(3)], [1_367_879.0, 503_215.0]);
        assert!(after(20) < 1.0);
    }
}
