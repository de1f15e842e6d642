//! Tables for keys of a few words that captures name, as addresses: quick, and nobody can foretell their places.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

/// A table whose order follows from chance.
pub(crate) type KeyedMap<K, V> = HashMap<K, V, Keyed>;

/// The chance of one table. Packets look into several of these, and the standard library's hash of an address takes as
/// long as to take a packet apart.
#[derive(Clone, Debug)]
pub(crate) struct Keyed {
    begin: u64,
    factor: u64,
}

impl Default for Keyed {
    fn default() -> Self {
        let chance = RandomState::new();
        Self { begin: chance.hash_one(0), factor: chance.hash_one(1) | 1 }
    }
}

impl BuildHasher for Keyed {
    type Hasher = KeyedHasher;

    #[inline]
    fn build_hasher(&self) -> KeyedHasher {
        KeyedHasher { state: self.begin, factor: self.factor }
    }
}

/// A multiplication for each word, with a factor that is not known.
pub(crate) struct KeyedHasher {
    state: u64,
    factor: u64,
}

impl Hasher for KeyedHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.state
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.state ^ word) * u128::from(self.factor);
        self.state = (product as u64 ^ (product >> 64) as u64).rotate_left(23);
    }

    #[inline]
    fn write_u8(&mut self, word: u8) {
        self.write_u64(u64::from(word));
    }

    #[inline]
    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use super::*;

    /// Neighbouring addresses, as networks have them, are spread, and other tables have other places for them.
    #[test]
    fn addresses_are_spread() {
        let (one, two) = (Keyed::default(), Keyed::default());
        let v4 = |n: u32| IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 | n));
        let v6 = |n: u32| IpAddr::V6(Ipv6Addr::from_bits((0xfd00 << 112) | u128::from(n)));
        for address in [&v4 as &dyn Fn(u32) -> IpAddr, &v6] {
            let hashes: HashSet<u64> =
                (0..4096).map(|n| one.hash_one((address(n), address(n + 1)))).collect();
            assert_eq!(hashes.len(), 4096);
            let mut places = [0u32; 256];
            hashes.iter().for_each(|hash| places[(hash % 256) as usize] += 1);
            // 16 each on average.
            assert!(places.iter().all(|&count| count < 64), "{places:?}");
            let same = (0..4096).filter(|&n| one.hash_one(address(n)) == two.hash_one(address(n)));
            assert_eq!(same.count(), 0);
        }
    }
}
