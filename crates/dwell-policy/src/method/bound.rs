//! The best possible rate of a link and a processor, for codecs of known speed and ratio.

use serde::{Deserialize, Serialize};

/// The cost and ratio of a codec, for some kind of data.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CodecPoint {
    /// Processor time for each byte of the original, in nanoseconds; not negative.
    pub cost_ns: f64,
    /// Compressed length / original length; above 0.
    pub ratio: f64,
}

impl CodecPoint {
    /// Sending data as they are, at no cost.
    pub const RAW: Self = Self { cost_ns: 0.0, ratio: 1.0 };

    /// What can't be used: the programme ignores it.
    pub(super) const IMPOSSIBLE: Self = Self { cost_ns: f64::NAN, ratio: f64::NAN };

    /// Makes a point.
    pub const fn new(cost_ns: f64, ratio: f64) -> Self {
        Self { cost_ns, ratio }
    }

    /// Returns the most original bytes in a second that this codec alone gets through the link.
    fn rate_alone(self, link: f64) -> f64 {
        (link / self.ratio).min(1e9 / self.cost_ns)
    }
}

/// The solution of a linear programme: the highest rate T of original bytes through a link of B
/// bytes a second with one processor, where the codec k of cost c_k and ratio R_k gets the share
/// f_k: Σ f_k = 1, T · Σ f_k R_k ≤ B, T · Σ f_k c_k ≤ 1.
///
/// With one codec and [`CodecPoint::RAW`] this is the Estimated Maximum of Pu and Singaravelu,
/// section 4.2: the codec's input rate + link − the codec's output rate, or all compressed if the
/// link is the bottleneck even then.
///
/// ```
/// use dwell_policy::method::{Bound, CodecPoint};
///
/// // A codec that takes 90.9 ns a byte (11 MB/s) and halves what it is given.
/// let zip = CodecPoint::new(1e9 / 11e6, 0.5);
/// // Over 5.5 MB/s all is compressed; over 12.5 MB/s three fifths, and the rest goes as it is.
/// assert_eq!(Bound::of(5.5e6, &[CodecPoint::RAW, zip]).rate, 11e6);
/// let bound = Bound::of(12.5e6, &[CodecPoint::RAW, zip]);
/// assert!((bound.rate - 18e6).abs() < 1.0);
/// assert!((bound.shares[1] - 11.0 / 18.0).abs() < 1e-9);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bound {
    /// Original bytes in a second; infinite only if link and processor are.
    pub rate: f64,
    /// The share of each codec, in the order in which they were given. At most two are not zero,
    /// as there are two limits.
    pub shares: Vec<f64>,
}

impl Bound {
    /// Solves for a link of `link` bytes a second. Without points the rate is zero; points with
    /// impossible numbers are ignored.
    pub fn of(link: f64, points: &[CodecPoint]) -> Self {
        let mut best = Self { rate: 0.0, shares: vec![0.0; points.len()] };
        let possible = |p: &CodecPoint| p.cost_ns >= 0.0 && p.ratio > 0.0 && p.ratio.is_finite();
        for (i, a) in points.iter().enumerate().filter(|(_, p)| possible(p)) {
            let alone = a.rate_alone(link);
            if alone > best.rate {
                best.set(alone, &[(i, 1.0)]);
            }
            for (j, b) in points.iter().enumerate().skip(i + 1).filter(|(_, p)| possible(p)) {
                if let Some((x, y)) = both_limits(link, *a, *b)
                    && x + y > best.rate
                {
                    best.set(x + y, &[(i, x / (x + y)), (j, y / (x + y))]);
                }
            }
        }
        best
    }

    fn set(&mut self, rate: f64, shares: &[(usize, f64)]) {
        self.rate = rate;
        self.shares.fill(0.0);
        for &(at, share) in shares {
            self.shares[at] = share;
        }
    }
}

/// Returns the rates x and y of two codecs which together use the link and the processor exactly,
/// if there are any: x R_a + y R_b = B, x c_a + y c_b = 1.
fn both_limits(link: f64, a: CodecPoint, b: CodecPoint) -> Option<(f64, f64)> {
    let determinant = a.ratio * b.cost_ns - b.ratio * a.cost_ns;
    // Without a solution, or over a link without a limit, they are infinite or no numbers.
    let x = (link * b.cost_ns - b.ratio * 1e9) / determinant;
    let y = (a.ratio * 1e9 - link * a.cost_ns) / determinant;
    (x >= 0.0 && y >= 0.0 && (x + y).is_finite()).then_some((x, y))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MBIT: f64 = 125_000.0;

    #[test]
    fn one_codec_gives_the_trapezoid() {
        // Output of 44 Mbit/s at factor 2, as in the paper's figure 1.
        let zip = CodecPoint::new(1e9 / (88.0 * MBIT), 0.5);
        let rate = |mbit: f64| Bound::of(mbit * MBIT, &[CodecPoint::RAW, zip]).rate / MBIT;
        for (link, expected) in [(10.0, 20.0), (44.0, 88.0), (50.0, 94.0), (100.0, 144.0)] {
            assert!((rate(link) - expected).abs() < 1e-6, "{link}: {}", rate(link));
        }
    }

    #[test]
    fn odd_numbers_give_no_panic() {
        let odd = [f64::NAN, -1.0, 0.0, f64::INFINITY, 1.0];
        for cost in odd {
            for ratio in odd {
                for link in odd {
                    Bound::of(link, &[CodecPoint::new(cost, ratio), CodecPoint::RAW]);
                }
            }
        }
        assert_eq!(Bound::of(1.0, &[]).rate, 0.0);
    }

    #[test]
    fn impossible_numbers_are_ignored() {
        const CODECS: [CodecPoint; 2] = [CodecPoint::RAW, CodecPoint::new(10.0, 0.5)];
        let expected = Bound { rate: 1.5e8, shares: vec![1.0 / 3.0, 2.0 / 3.0, 0.0] };
        let odd = [f64::NAN, f64::NEG_INFINITY, -1.0];
        let costs = odd.map(|cost_ns| CodecPoint::new(cost_ns, 0.4));
        let ratios = odd.map(|ratio| CodecPoint::new(1.0, ratio));
        let others = [0.0, f64::INFINITY].map(|ratio| CodecPoint::new(1.0, ratio));
        for point in [&costs[..], &ratios, &others].concat() {
            assert_eq!(Bound::of(1e8, &[&CODECS[..], &[point]].concat()), expected, "{point:?}");
        }
    }

    #[test]
    fn of_those_that_carry_the_same_the_first_is_taken() {
        // Nothing is saved.
        let useless = CodecPoint::new(10.0, 1.0);
        assert_eq!(Bound::of(1e6, &[CodecPoint::RAW, useless]).shares, [1.0, 0.0]);
        // These three are on one line of the hull, and all figures exact.
        let line = [CodecPoint::RAW, CodecPoint::new(4.0, 0.75), CodecPoint::new(8.0, 0.5)];
        let bound = Bound::of(4.375e8, &line);
        assert_eq!((bound.rate, bound.shares), (5e8, vec![0.5, 0.5, 0.0]));
    }

    #[test]
    fn over_a_link_without_a_limit_the_cheapest_is_used() {
        let points = [CodecPoint::new(2.0, 0.5), CodecPoint::new(1.0, 0.8)];
        let expected = Bound { rate: 1e9, shares: vec![0.0, 1.0] };
        assert_eq!(Bound::of(f64::INFINITY, &points), expected);
    }

    fn points() -> impl Strategy<Value = Vec<CodecPoint>> {
        let point = (0.01f64..200.0, 0.01f64..1.2).prop_map(|(c, r)| CodecPoint::new(c, r));
        prop::collection::vec(point, 1..8)
    }

    proptest! {
        #[test]
        fn the_solution_keeps_both_limits(points in points(), link in 1e3f64..1e10) {
            let bound = Bound::of(link, &points);
            let sum = |of: fn(&CodecPoint) -> f64| -> f64 {
                points.iter().zip(&bound.shares).map(|(p, f)| of(p) * f * bound.rate).sum()
            };
            prop_assert!((bound.shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            prop_assert!(sum(|p| p.ratio) <= link * (1.0 + 1e-9));
            prop_assert!(sum(|p| p.cost_ns) <= 1e9 * (1.0 + 1e-9));
            prop_assert!(bound.shares.iter().filter(|&&f| f > 0.0).count() <= 2);
        }

        #[test]
        fn no_mixture_is_better(
            points in points(),
            link in 1e3f64..1e10,
            weights in prop::collection::vec(0.0f64..1.0, 8),
        ) {
            let total: f64 = weights[..points.len()].iter().sum();
            prop_assume!(total > 0.0);
            let mean = |of: fn(&CodecPoint) -> f64| -> f64 {
                points.iter().zip(&weights).map(|(p, w)| of(p) * w / total).sum()
            };
            let rate = (link / mean(|p| p.ratio)).min(1e9 / mean(|p| p.cost_ns));
            prop_assert!(rate <= Bound::of(link, &points).rate * (1.0 + 1e-9));
        }

        #[test]
        fn more_codecs_and_more_link_never_hurt(points in points(), link in 1e3f64..1e10) {
            let bound = Bound::of(link, &points).rate;
            prop_assert!(Bound::of(link, &points[1..]).rate <= bound * (1.0 + 1e-9));
            prop_assert!(Bound::of(link * 1.1, &points).rate >= bound * (1.0 - 1e-9));
        }
    }
}
