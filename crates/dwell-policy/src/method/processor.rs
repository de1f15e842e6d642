//! The processor time that compressing may take, and what a link carries with it.

use super::CodecPoint;

/// The share of a processor that compressing may take where nothing else is known: the rest is for all else that a packet
/// costs, and for what measurements don't see.
const USUAL_SHARE: f64 = 0.7;

/// The processor time for what is compressed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Processor {
    /// The share of one processor that compressing may take; more than one where several compress at the same time.
    pub share: f64,
    /// All that is done with a packet comes out of this, where less than a processor may be had for it.
    pub budget: Option<Budget>,
}

/// Processor time for all that is done, as a quota allows it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// The number of processors that may be had: a quarter, say.
    pub processors: f64,
    /// What a byte costs that comes in, beside compressing, in nanoseconds.
    pub in_ns: f64,
    /// What a byte costs that goes out to the link, in nanoseconds.
    pub out_ns: f64,
}

/// What a link carries at best.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Carried {
    /// Original bytes in a second.
    pub rate: f64,
    /// Those of them that are compressed.
    pub compressed: f64,
}

impl Default for Processor {
    fn default() -> Self {
        Self { share: USUAL_SHARE, budget: None }
    }
}

impl Processor {
    /// Makes one of which compressing may take a part of its usual share: it takes so many times longer than the processor
    /// works at it, for that has others to serve.
    pub fn slowed(times: f64) -> Self {
        Self { share: USUAL_SHARE / times.max(1.0), budget: None }
    }

    /// Returns the number of processors that compressing may take at most.
    pub fn processors(&self) -> f64 {
        self.budget.map_or(self.share, |budget| budget.processors.min(self.share))
    }

    /// Returns how many times longer compressing takes than where it has its usual share, or more: one batch is compressed by
    /// one processor.
    pub fn slowdown(&self) -> f64 {
        (USUAL_SHARE / self.processors().max(1e-6)).max(1.0)
    }

    /// Returns the solution of the linear programme: the most original bytes that a link of `link` bytes a second carries
    /// if x of them go raw and y are compressed to R y at a cost of c each, with x + R y ≤ link, c y within the share, and
    /// within the budget all that the bytes cost: in (x + y) + out (x + R y) + c y.
    ///
    /// ```
    /// use dwell_policy::method::{Budget, CodecPoint, Processor};
    ///
    /// // A link of 25 MB/s, and a codec of 10 ns a byte that leaves .4: more than the link takes is compressed.
    /// let codec = CodecPoint::new(10.0, 0.4);
    /// assert_eq!(Processor::default().carried(25e6, codec).rate, 62.5e6);
    /// // A quarter of a processor is not even enough for the link: compressing would cost more than it saves.
    /// let budget = Budget { processors: 0.25, in_ns: 8.0, out_ns: 8.0 };
    /// let weak = Processor { budget: Some(budget), ..Processor::default() }.carried(25e6, codec);
    /// assert_eq!((weak.rate, weak.compressed), (0.25e9 / 16.0, 0.0));
    /// ```
    pub fn carried(&self, link: f64, codec: CodecPoint) -> Carried {
        let CodecPoint { cost_ns, ratio } = codec;
        let (total_ns, raw_ns, compressed_ns) = match self.budget {
            None => (f64::INFINITY, 0.0, cost_ns),
            Some(Budget { processors, in_ns, out_ns }) => {
                (1e9 * processors, in_ns + out_ns, in_ns + cost_ns + ratio * out_ns)
            }
        };
        let most = (1e9 * self.share / cost_ns).min(link / ratio).min(total_ns / compressed_ns);
        // The budget, and the link, to the last.
        let both = (total_ns - raw_ns * link) / (compressed_ns - raw_ns * ratio);
        let mut best = Carried { rate: 0.0, compressed: 0.0 };
        for compressed in [0.0, most, both.min(most)] {
            let raw = (link - ratio * compressed)
                .min((total_ns - compressed_ns * compressed) / raw_ns.max(1e-9));
            let rate = raw.max(0.0) + compressed;
            if compressed >= 0.0 && rate.is_finite() && rate > best.rate {
                best = Carried { rate, compressed };
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::method::Bound;

    const WEAK: Budget = Budget { processors: 0.25, in_ns: 6.0, out_ns: 8.0 };

    #[test]
    fn without_a_budget_it_is_the_bound_of_raw_and_a_codec() {
        let usual = Processor::default();
        for (link, cost_ns, ratio) in
            [(1e6, 100.0, 0.3), (1e7, 100.0, 0.3), (1e8, 10.0, 0.9), (1e9, 500.0, 0.5)]
        {
            let slow = CodecPoint::new(cost_ns / USUAL_SHARE, ratio);
            let bound = Bound::of(link, &[CodecPoint::RAW, slow]).rate;
            let carried = usual.carried(link, CodecPoint::new(cost_ns, ratio)).rate;
            assert!((carried / bound - 1.0).abs() < 1e-9, "{carried} {bound}");
        }
    }

    #[test]
    fn a_small_budget_compresses_as_much_as_the_link_needs_and_no_more() {
        let weak = Processor { budget: Some(WEAK), ..Processor::default() };
        let codec = CodecPoint::new(10.0, 0.4);
        // All is compressed for a thin link; some for one that the budget fills just so; nothing beyond.
        let part = |link: f64| {
            let carried = weak.carried(link, codec);
            (carried.compressed / carried.rate * 100.0).round()
        };
        assert_eq!([1e6, 10e6, 16e6, 25e6].map(part), [100.0, 54.0, 11.0, 0.0]);
        // A codec that saves more than it costs is worth it at any rate.
        let cheap = CodecPoint::new(2.0, 0.3);
        let carried = weak.carried(25e6, cheap);
        assert!((carried.rate - carried.compressed).abs() < 1.0);
        assert!(carried.rate > weak.carried(25e6, codec).rate);
    }

    proptest! {
        /// It keeps to all limits, is never below raw alone, and no other mix carries more.
        #[test]
        fn nothing_carries_more(
            link in 1e3..1e10_f64, cost_ns in 0.0..1e4_f64, ratio in 0.001..1.2_f64,
            share in 0.001..1.0_f64, processors in 0.001..4.0_f64,
            (in_ns, out_ns) in (0.0..100.0_f64, 0.0..100.0_f64), mix in 0.0..1.0_f64,
        ) {
            let budget = Budget { processors, in_ns, out_ns };
            let processor = Processor { share, budget: Some(budget) };
            let best = processor.carried(link, CodecPoint::new(cost_ns, ratio));
            let spent = |rate: f64, compressed: f64| {
                let out = rate - compressed + ratio * compressed;
                [out / link, cost_ns * compressed / 1e9 / share,
                    (in_ns * rate + out_ns * out + cost_ns * compressed) / 1e9 / processors]
            };
            prop_assert!(best.compressed <= best.rate * (1.0 + 1e-9));
            prop_assert!(spent(best.rate, best.compressed).iter().all(|&it| it < 1.0 + 1e-6));
            // As much as a mix of this kind can be.
            let most = spent(1.0, mix).into_iter().fold(0.0, f64::max);
            prop_assert!(best.rate * (1.0 + 1e-6) >= 1.0 / most, "{best:?} {}", 1.0 / most);
        }

        #[test]
        fn odd_numbers_do_no_harm(
            numbers in prop::array::uniform7(prop::sample::select(vec![f64::NAN, -1.0, 0.0, 1e-300, 1.0, 1e300, f64::INFINITY])),
        ) {
            let [link, cost_ns, ratio, share, processors, in_ns, out_ns] = numbers;
            let budget = Some(Budget { processors, in_ns, out_ns });
            let carried = Processor { share, budget }.carried(link, CodecPoint::new(cost_ns, ratio));
            prop_assert!(carried.rate.is_finite() && carried.compressed.is_finite());
        }
    }
}
