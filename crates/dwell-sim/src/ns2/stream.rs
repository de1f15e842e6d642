//! MRG32k3a in streams and substreams.

/// Modulus of the first component, 2^32 − 209.
const M1: u64 = 4_294_967_087;
/// Modulus of the second component, 2^32 − 22853.
const M2: u64 = 4_294_944_443;

/// x(n) = 1403580·x(n−2) − 810728·x(n−3) mod `M1`.
const A12: i64 = 1_403_580;
const A13_NEGATIVE: i64 = 810_728;
/// y(n) = 527612·y(n−1) − 1370589·y(n−3) mod `M2`.
const A21: i64 = 527_612;
const A23_NEGATIVE: i64 = 1_370_589;

/// Streams are 2^127 numbers apart.
const STREAM_LOG2: u32 = 127;
/// Substreams of a stream are 2^76 numbers apart.
const SUBSTREAM_LOG2: u32 = 76;

/// The largest seed that ns-2 takes.
const SEED_MAX: u64 = (1 << 31) - 2;

/// One of ns-2's streams of random numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// The last three values of either component, oldest first.
    first: [u64; 3],
    second: [u64; 3],
    /// The state at the beginning of the current substream.
    substream: ([u64; 3], [u64; 3]),
}

impl Stream {
    /// The stream that ns-2's `number`-th `new RNG` draws from after `$defaultRNG seed N`;
    /// number 0 is the default generator's own.
    ///
    /// ns-2's seeds are 1 to 2^31 − 2. Others, which ns-2 refuses, are folded into that range.
    pub fn new(seed: u64, number: u64) -> Self {
        let seed = if (1..=SEED_MAX).contains(&seed) { seed } else { seed % SEED_MAX + 1 };
        let first = Matrix::FIRST.power_of_two(STREAM_LOG2).power(number).apply([seed; 3]);
        let second = Matrix::SECOND.power_of_two(STREAM_LOG2).power(number).apply([seed; 3]);
        Self { first, second, substream: (first, second) }
    }

    /// Goes to the beginning of the next substream.
    pub fn next_substream(&mut self) {
        self.first = Matrix::FIRST.power_of_two(SUBSTREAM_LOG2).apply(self.substream.0);
        self.second = Matrix::SECOND.power_of_two(SUBSTREAM_LOG2).apply(self.substream.1);
        self.substream = (self.first, self.second);
    }

    /// The state that determines all further numbers: the last three values of either component.
    pub fn state(&self) -> [u64; 6] {
        let ([a, b, c], [d, e, f]) = (self.first, self.second);
        [a, b, c, d, e, f]
    }

    /// Uniform in (0, 1), a multiple of 1 / (2^32 − 208).
    #[inline]
    pub fn uniform(&mut self) -> f64 {
        const NORM: f64 = 1.0 / (M1 as f64 + 1.0);
        let [x3, x2, x1] = self.first;
        let x = (A12 * x2 as i64 - A13_NEGATIVE * x3 as i64).rem_euclid(M1 as i64);
        self.first = [x2, x1, x as u64];
        let [y3, y2, y1] = self.second;
        let y = (A21 * y1 as i64 - A23_NEGATIVE * y3 as i64).rem_euclid(M2 as i64);
        self.second = [y2, y1, y as u64];
        // Never zero: equal components give the modulus.
        let difference = if x > y { x - y } else { x - y + M1 as i64 };
        difference as f64 * NORM
    }

    /// Uniform in `0..2^31`.
    pub fn integer(&mut self) -> u32 {
        (self.uniform() * f64::from(1u32 << 31)) as u32
    }

    /// Exponentially distributed with this mean.
    #[inline]
    pub fn exponential(&mut self, mean: f64) -> f64 {
        mean * -libm::log(self.uniform())
    }
}

/// A 3 × 3 matrix modulo `modulus`: the effect of some number of steps on a component.
#[derive(Clone, Copy)]
struct Matrix {
    cells: [[u64; 3]; 3],
    modulus: u64,
}

impl Matrix {
    /// One step of the first component.
    const FIRST: Self = Self {
        cells: [[0, 1, 0], [0, 0, 1], [M1 - A13_NEGATIVE as u64, A12 as u64, 0]],
        modulus: M1,
    };
    /// One step of the second component.
    const SECOND: Self = Self {
        cells: [[0, 1, 0], [0, 0, 1], [M2 - A23_NEGATIVE as u64, 0, A21 as u64]],
        modulus: M2,
    };

    fn times(&self, other: &Self) -> Self {
        let cell = |row: usize, column: usize| {
            (0..3).fold(0, |sum, k| {
                // Each product is below 2^64, each remainder below 2^32.
                (sum + self.cells[row][k] * other.cells[k][column] % self.modulus) % self.modulus
            })
        };
        let cells = std::array::from_fn(|row| std::array::from_fn(|column| cell(row, column)));
        Self { cells, modulus: self.modulus }
    }

    /// The 2^`log2`-th power.
    fn power_of_two(&self, log2: u32) -> Self {
        (0..log2).fold(*self, |power, _| power.times(&power))
    }

    fn power(&self, mut exponent: u64) -> Self {
        let mut result = Self { cells: [[1, 0, 0], [0, 1, 0], [0, 0, 1]], modulus: self.modulus };
        let mut square = *self;
        while exponent > 0 {
            if exponent & 1 == 1 {
                result = result.times(&square);
            }
            square = square.times(&square);
            exponent >>= 1;
        }
        result
    }

    fn apply(&self, vector: [u64; 3]) -> [u64; 3] {
        self.cells.map(|row| {
            row.iter()
                .zip(vector)
                .fold(0, |sum, (a, b)| (sum + a * b % self.modulus) % self.modulus)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The output of `ns validate/rng.tcl seed=1` with ns-2.35.
    const STATES: [(u64, [u64; 6], [u32; 5]); 3] = [
        (0, [1; 6], [729_236, 1_193_744_747, 30_504_276, 189_241_995, 947_412_623]),
        (
            1,
            [2_662_865_579, 741_857_976, 4_206_142_246, 3_352_832_365, 2_519_202_871, 655_500_294],
            [357_444_843, 1_769_133_972, 1_620_178_641, 1_156_507_977, 579_117_207],
        ),
        (
            2,
            [3_784_663_252, 802_042_081, 160_569_404, 3_391_851_556, 2_150_317_468, 54_240_022],
            [879_475_696, 425_326_903, 1_865_161_732, 1_220_670_888, 1_388_510_600],
        ),
    ];

    #[test]
    fn streams_are_those_of_ns2() {
        for (number, state, integers) in STATES {
            let mut stream = Stream::new(1, number);
            assert_eq!(stream.state(), state);
            assert_eq!(integers.map(|_| stream.integer()), integers);
        }
    }

    #[test]
    fn substreams_are_those_of_ns2() {
        let mut stream = Stream::new(1, 2);
        stream.integer(); // a substream begins at its own beginning, wherever the last one was
        stream.next_substream();
        assert_eq!(
            stream.state(),
            [962_007_450, 3_711_877_157, 937_067_356, 2_697_647_349, 1_312_878_952, 1_636_072_893]
        );
        let integers = [2_027_006_521, 1_503_377_171, 1_793_861_126, 198_461_313, 166_143_768];
        assert_eq!(integers.map(|_| stream.integer()), integers);
    }

    #[test]
    fn exponential_draws_are_those_of_ns2() {
        let mut stream = Stream::new(1, 3);
        for expected in [1.914905, 0.1141120, 0.1439163, 1.765692, 0.5569739] {
            let drawn = stream.exponential(1.0);
            assert!((drawn / expected - 1.0).abs() < 1e-6, "{drawn}, ns-2 printed {expected}");
        }
    }

    #[test]
    fn jumps_are_as_published() {
        // L'Ecuyer et al. print A1^(2^76) and A1^(2^127) in their package.
        let a = Matrix::FIRST.power_of_two(76).cells[0];
        assert_eq!(a, [82_758_667, 1_871_391_091, 4_127_413_238]);
        let b = Matrix::SECOND.power_of_two(127).cells[0];
        assert_eq!(b, [1_464_411_153, 277_697_599, 1_610_723_613]);
    }

    proptest! {
        #[test]
        fn a_power_is_that_many_steps(seed in 1..SEED_MAX, steps in 0u64..500) {
            let mut stream = Stream::new(seed, 0);
            let jumped = Matrix::FIRST.power(steps).apply([seed; 3]);
            for _ in 0..steps {
                let uniform = stream.uniform();
                prop_assert!(0.0 < uniform && uniform < 1.0);
            }
            prop_assert_eq!(stream.first, jumped);
        }

        #[test]
        fn any_seed_has_a_stream(seed in any::<u64>(), number in 0u64..1000) {
            let mut stream = Stream::new(seed, number);
            prop_assert!((0..10).all(|_| (0.0..1.0).contains(&stream.uniform())));
        }
    }
}
