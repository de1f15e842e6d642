//! Values of which there are few different ones, by their places in a list.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// Recently used values, by their low hash bits: most packets belong to few flows.
const RECENT: usize = 256;

/// Values that are kept once each.
pub(super) struct Words<K> {
    places: Vec<i32>,
    values: Vec<K>,
    known: HashMap<K, i32, BuildHasherDefault<Mix>>,
    recent: Box<[Option<(K, i32)>; RECENT]>,
}

impl<K: Copy + Eq + Hash> Words<K> {
    pub(super) fn new(rows: usize) -> Self {
        Self {
            places: Vec::with_capacity(rows),
            values: Vec::new(),
            known: HashMap::default(),
            recent: Box::new([None; RECENT]),
        }
    }

    /// Adds a value.
    #[inline]
    pub(super) fn push(&mut self, value: K) {
        let mut hasher = Mix::default();
        value.hash(&mut hasher);
        let slot = hasher.finish() as usize >> 7 & (RECENT - 1);
        if let Some((known, place)) = self.recent[slot]
            && known == value
        {
            self.places.push(place);
            return;
        }
        let place = self.place(value);
        self.recent[slot] = Some((value, place));
        self.places.push(place);
    }

    #[cold]
    fn place(&mut self, value: K) -> i32 {
        let values = &mut self.values;
        *self.known.entry(value).or_insert_with(|| {
            values.push(value);
            // There are no more values than rows, and these are fewer.
            (values.len() - 1) as i32
        })
    }

    /// Returns the place of each, and the values.
    pub(super) fn finish(self) -> (Vec<i32>, Vec<K>) {
        (self.places, self.values)
    }
}

/// A hash for a table of one batch, which nobody can fill with more than a batch's values.
#[derive(Default)]
pub(super) struct Mix(u64);

impl Mix {
    #[inline]
    fn add(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
}

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.add(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.add(word);
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.add(u64::from(word));
    }

    #[inline]
    fn write_usize(&mut self, word: usize) {
        self.add(word as u64);
    }

    #[inline]
    fn write_isize(&mut self, word: isize) {
        self.add(word as u64);
    }
}
