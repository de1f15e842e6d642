//! Tables with keys that are numbers.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A table with a key of 64 bits. Its places depend on nothing but the keys.
pub(super) type NumberMap<V> = HashMap<u64, V, BuildHasherDefault<NumberHasher>>;

/// One multiplication: the keys are counted, not guarded, and tables are bounded.
#[derive(Default)]
pub(super) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte) ^ self.0));
    }

    fn write_u64(&mut self, number: u64) {
        let product = u128::from(number ^ 0x243f_6a88_85a3_08d3) * 0x9e37_79b9_7f4a_7c15;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}
