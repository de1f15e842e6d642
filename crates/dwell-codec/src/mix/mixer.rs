//! Weighted sums, in whole numbers only, so that both ends have the same on every machine.
//!
//! A probability *p* is mixed as its logit, ln(p / (1 − p)) · 256, here *stretched*; a sum becomes a probability
//! again by the inverse, *squashed*.

/// The number of what is mixed.
pub(super) const INPUTS: usize = 16;
/// The largest sum, and with a minus the smallest.
pub(super) const SUM_MAX: i32 = 3_071;
/// The largest stretched probability, and with a minus the smallest.
const STRETCHED_MAX: i32 = 2_047;
/// The binary logarithm of a weight of one.
const WEIGHT_LOG: u32 = 14;
/// The binary logarithm of the distance between two points.
const POINT_LOG: u32 = 7;

/// Squashed numbers from −3,072 on, each 128 more: 2^16 / (1 + e^(−x / 256)), rounded, and neither 0 nor 2^16.
const POINTS: [u16; 49] = [
    1, 1, 1, 2, 3, 5, 8, 13, 22, 36, 60, 98, 162, 267, 439, 720, 1_179, 1_921, 3_108, 4_971, 7_812,
    11_955, 17_625, 24_743, 32_768, 40_793, 47_911, 53_581, 57_724, 60_565, 62_428, 63_615, 64_357,
    64_816, 65_097, 65_269, 65_374, 65_438, 65_476, 65_500, 65_514, 65_523, 65_528, 65_531, 65_533,
    65_534, 65_535, 65_535, 65_535,
];

#[inline(always)]
const fn between_points(sum: i32) -> u16 {
    let from = (sum + SUM_MAX + 1) as u32;
    let (point, part) = ((from >> POINT_LOG) as usize, from & ((1 << POINT_LOG) - 1));
    let (low, high) = (POINTS[point] as u32, POINTS[point + 1] as u32);
    ((low * ((1 << POINT_LOG) - part) + high * part) >> POINT_LOG) as u16
}

/// By the probability, of 2^12: the smallest number whose squashed one is not less than its middle.
static STRETCHED: [i16; 4_096] = {
    let mut stretched = [STRETCHED_MAX as i16; 4_096];
    let (mut probability, mut sum) = (0, -STRETCHED_MAX);
    while probability < stretched.len() {
        while sum < STRETCHED_MAX && (between_points(sum) as usize) < 16 * probability + 8 {
            sum += 1;
        }
        stretched[probability] = sum as i16;
        probability += 1;
    }
    stretched
};

/// Returns the probability, of 2^16, of a sum.
#[inline(always)]
pub(super) fn squash(sum: i32) -> u32 {
    between_points(sum.clamp(-SUM_MAX, SUM_MAX)).into()
}

/// Returns what is mixed of a probability of 2^12.
#[inline(always)]
pub(super) fn stretch(probability: u32) -> i16 {
    STRETCHED[probability as usize & 0xfff]
}

/// What is mixed.
pub(super) type Inputs = [i16; INPUTS];

/// The weights of one set.
#[derive(Clone, Copy)]
pub(super) struct Weights([i16; INPUTS]);

impl Weights {
    /// The stretched probabilities count, each two fifths or so; all else has to show that it says something.
    pub(super) const FIRST: Self = {
        let mut weights = [0; INPUTS];
        let mut at = 0;
        while at < INPUTS - 2 {
            weights[at] = 5_000;
            at += 2;
        }
        Self(weights)
    };

    #[inline(always)]
    pub(super) fn sum(&self, inputs: &Inputs) -> i32 {
        let products =
            self.0.iter().zip(inputs).map(|(&weight, &input)| i32::from(weight) * i32::from(input));
        // Sixteen products of 2^26 at most.
        let sum = products.fold(0, i32::wrapping_add);
        (sum >> WEIGHT_LOG).clamp(-SUM_MAX, SUM_MAX)
    }

    /// Moves the weights to where the sum would have said more of the bit that came.
    #[inline(always)]
    pub(super) fn train(&mut self, inputs: &Inputs, error: i32) {
        let error = error.clamp(-32_767, 32_767) as i16;
        for (weight, &input) in self.0.iter_mut().zip(inputs) {
            let change = ((i32::from(input) * i32::from(error)) >> 16) as i16;
            *weight = weight.saturating_add((change + 1) >> 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squashed_and_stretched_are_inverse_and_rise() {
        assert!((-SUM_MAX..=SUM_MAX).map(squash).is_sorted() && STRETCHED.is_sorted());
        assert_eq!((squash(0), squash(i32::MAX), squash(-9_999)), (32_768, 65_535, 1));
        assert_eq!((stretch(0), stretch(4_095)), (-2_047, 2_047));
        for probability in 100..3_996 {
            let back = squash(stretch(probability).into()) / 16;
            assert!(back.abs_diff(probability) <= 4, "{probability} became {back}");
        }
    }

    #[test]
    fn weights_learn_which_input_is_right() {
        let mut weights = Weights::FIRST;
        let mut inputs = [0; INPUTS];
        for round in 0..2_000 {
            let bit = round % 3 % 2;
            inputs[0] = if bit == 1 { 500 } else { -500 };
            inputs[2] = -inputs[0];
            let error = bit * 65_535 - squash(weights.sum(&inputs)) as i32;
            weights.train(&inputs, error);
        }
        assert!(weights.0[0] > 10_000 && weights.0[2] < 0, "{:?}", weights.0);
    }
}
