//! The name of a run: equal for equal runs, whenever and wherever.

use std::fmt;
use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128 as _, SipHasher24};

/// Changes if the way in which keys are made does.
const FORMAT: &str = "dwell run 1";

/// The hash of everything that a run's result follows from: the scenario's values at its point,
/// the files that it names, the version of the code, and the seed. 128 bits of SipHash-2-4 with
/// a key of zeros, so that the chance that two of a billion runs share a key is below 10⁻²⁰.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunKey(u128);

impl RunKey {
    /// The key of the run with these values ([canonical](super::Value::canonical)), code and
    /// seed.
    pub fn new(values: &str, code: &str, seed: u64) -> Self {
        let mut hasher = SipHasher24::new();
        for part in [FORMAT, values, code] {
            // With lengths, so that no two lists of parts run into each other.
            hasher.write(&(part.len() as u64).to_le_bytes());
            hasher.write(part.as_bytes());
        }
        hasher.write(&seed.to_le_bytes());
        Self(hasher.finish128().as_u128())
    }
}

/// 32 hexadecimal digits.
impl fmt::Display for RunKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A hash of bytes, to tell versions of a program apart.
pub fn fingerprint(bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher24::new();
    hasher.write(bytes);
    hasher.finish128().h1
}

/// The hash of a text, to tell files apart and to spread seeds.
pub(super) fn hash64(text: &str, more: u64) -> u64 {
    let mut hasher = SipHasher24::new();
    hasher.write(text.as_bytes());
    hasher.write(&more.to_le_bytes());
    hasher.finish128().h1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_same_for_ever() {
        let key = RunKey::new("{\"a\":1,}", "0.1.0", 7);
        assert_eq!(key, RunKey::new("{\"a\":1,}", "0.1.0", 7));
        assert_eq!(key.to_string().len(), 32);
    }

    #[test]
    fn everything_counts() {
        let key = RunKey::new("ab", "c", 1);
        assert_ne!(key, RunKey::new("a", "bc", 1));
        assert_ne!(key, RunKey::new("ab", "c", 2));
        assert_ne!(key, RunKey::new("ab", "d", 1));
        assert_ne!(hash64("a", 0), hash64("a", 1));
    }
}
