//! Seeded randomness: the same seed gives the same numbers on every machine.

use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A seeded generator (xoshiro256++). Not for secrets.
#[derive(Clone, Debug)]
pub struct Rng(Xoshiro256PlusPlus);

impl Rng {
    /// Makes the generator for `seed`.
    pub fn from_seed(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Makes an independent generator for the part of an experiment that `stream` names.
    pub fn stream(seed: u64, stream: u64) -> Self {
        // The odd constant spreads small stream numbers over all the bits of the seed.
        Self::from_seed(seed ^ stream.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Returns 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a uniform number in `0..below`; zero if `below` is zero.
    pub fn below(&mut self, below: u64) -> u64 {
        // Lemire's multiplication; the bias is under 2^-32 for every bound used here.
        ((u128::from(self.next_u64()) * u128::from(below)) >> 64) as u64
    }

    /// Returns a uniform number in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns true with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Returns an exponentially distributed number with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        // Not the machine's own logarithm: that differs in the last bit between machines.
        -mean * libm::log(1.0 - self.unit())
    }

    /// Fills a buffer.
    pub fn fill(&mut self, out: &mut [u8]) {
        self.0.fill_bytes(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_numbers_other_stream_other_numbers() {
        let draw = |mut r: Rng| [r.next_u64(), r.next_u64()];
        assert_eq!(draw(Rng::from_seed(7)), draw(Rng::from_seed(7)));
        assert_ne!(draw(Rng::stream(7, 0)), draw(Rng::stream(7, 1)));
    }

    #[test]
    fn moments_are_right() {
        let mut rng = Rng::from_seed(1);
        let n = 100_000;
        let uniform: f64 = (0..n).map(|_| rng.unit()).sum::<f64>() / f64::from(n);
        let exponential: f64 = (0..n).map(|_| rng.exponential(3.0)).sum::<f64>() / f64::from(n);
        assert!((uniform - 0.5).abs() < 0.01, "{uniform}");
        assert!((exponential - 3.0).abs() < 0.05, "{exponential}");
        assert!((0..1000).all(|_| rng.below(7) < 7));
        assert_eq!(rng.below(0), 0);
    }
}
