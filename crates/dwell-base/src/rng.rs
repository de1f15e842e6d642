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
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a uniform number in `0..below`; zero if `below` is zero.
    #[inline]
    pub fn below(&mut self, below: u64) -> u64 {
        // Lemire's multiplication; the bias is under 2^-32 for every bound used here.
        ((u128::from(self.next_u64()) * u128::from(below)) >> 64) as u64
    }

    /// Returns a uniform number in `[0, 1)`.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns true with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Returns an exponentially distributed number with this mean.
    #[inline]
    pub fn exponential(&mut self, mean: f64) -> f64 {
        // Not the machine's own logarithm: that differs in the last bit between machines.
        -mean * libm::log(1.0 - self.unit())
    }

    /// Fills a buffer.
    pub fn fill(&mut self, out: &mut [u8]) {
        self.0.fill_bytes(out);
    }
}

/// Logarithms that are taken at once. One alone keeps a processor waiting for its last digit; those of
/// a batch overlap.
const BATCH: usize = 16;

/// The exponentially distributed numbers of a generator that has no other use: the very numbers that
/// [`Rng::exponential`] gives, in the same order, for less time.
#[derive(Clone, Debug)]
pub struct Exponentials {
    rng: Rng,
    logs: [f64; BATCH],
    used: usize,
}

impl Exponentials {
    /// Takes the generator over.
    pub fn new(rng: Rng) -> Self {
        Self { rng, logs: [0.0; BATCH], used: BATCH }
    }

    /// Returns the next number, with this mean.
    #[inline]
    pub fn draw(&mut self, mean: f64) -> f64 {
        if self.used == BATCH {
            self.refill();
        }
        let log = self.logs[self.used];
        self.used += 1;
        -mean * log
    }

    #[inline(never)]
    fn refill(&mut self) {
        let rests: [f64; BATCH] = std::array::from_fn(|_| 1.0 - self.rng.unit());
        self.logs = rests.map(libm::log);
        self.used = 0;
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

    #[test]
    fn a_batch_has_the_numbers_that_single_draws_have() {
        let mut single = Rng::stream(3, 1);
        let mut batches = Exponentials::new(Rng::stream(3, 1));
        for n in 0..10 * BATCH {
            let mean = 1.0 + n as f64;
            assert_eq!(batches.draw(mean).to_bits(), single.exponential(mean).to_bits());
        }
    }
}
