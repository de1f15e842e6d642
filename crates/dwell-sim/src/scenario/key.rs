//! The name of a run: equal for equal runs, whenever and wherever.

use std::fmt;
use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128 as _, SipHasher24};

use crate::plan::Plan;

/// The version of the key format.
const FORMAT: &str = "dwell run 1";

/// The hash of everything that determines a run's result: the plan (all values of the scenario that
/// matter, and the files that it names), the version of the code, and the seed. 128 bits of
/// SipHash-2-4 with a key of zeros, so that the chance that two of a billion runs share a key is
/// below 10⁻²⁰.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunKey(u128);

impl RunKey {
    /// The key of the run of a plan with this hash, by this code, with this seed.
    pub fn new(plan_hash: u128, code: &str, seed: u64) -> Self {
        let mut hasher = SipHasher24::new();
        // The code's length closes it off: no two lists of parts run into each other.
        hasher.write(FORMAT.as_bytes());
        hasher.write(&plan_hash.to_le_bytes());
        hasher.write(&(code.len() as u64).to_le_bytes());
        hasher.write(code.as_bytes());
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

/// The hash of a plan: of its values as Rust shows them, which names every field.
pub(super) fn plan_hash(plan: &Plan) -> u128 {
    struct Sink(SipHasher24);
    impl fmt::Write for Sink {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.write(text.as_bytes());
            Ok(())
        }
    }
    let mut sink = Sink(SipHasher24::new());
    // Nothing in a plan, nor the sink, refuses to be written.
    let _ = fmt::write(&mut sink, format_args!("{plan:?}"));
    sink.0.finish128().as_u128()
}

/// A seed of a plan's own.
pub(super) fn mixed(plan_hash: u128, seed: u64) -> u64 {
    let mut hasher = SipHasher24::new();
    hasher.write(&plan_hash.to_le_bytes());
    hasher.write(&seed.to_le_bytes());
    hasher.finish128().h1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_same_for_ever() {
        let key = RunKey::new(7, "0.1.0", 1);
        assert_eq!(key.to_string(), RunKey::new(7, "0.1.0", 1).to_string());
        assert_eq!(key.to_string().len(), 32);
    }

    #[test]
    fn everything_counts() {
        let key = RunKey::new(7, "c", 1);
        assert_ne!(key, RunKey::new(8, "c", 1));
        assert_ne!(key, RunKey::new(7, "c", 2));
        assert_ne!(key, RunKey::new(7, "d", 1));
        assert_ne!(mixed(1, 0), mixed(0, 1));
        let plan = Plan::default();
        assert_eq!(plan_hash(&plan), plan_hash(&plan.clone()));
        assert_ne!(plan_hash(&plan), plan_hash(&Plan { bin_ns: Some(1), ..plan }));
    }
}
