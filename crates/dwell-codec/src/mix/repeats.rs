//! The longest repetition: where the last bytes were before, and what came then.

use super::contexts::hash;

/// The last so many bytes are looked up.
const LOOKED_UP: u32 = 7;
/// More are not compared.
const COMPARED_MAX: u64 = 32;
const LEN_MAX: u32 = 65_535;
/// Where so many were repeated, it is not looked for a later place.
const LONG: u32 = 10;
/// A repetition goes on behind so many other bytes: in lines that are alike one number is another, and what is behind it is
/// the same.
const MISSED_MAX: u32 = 7;
const NOTHING: u32 = MISSED_MAX + 1;

/// The last bytes, and where what is like their end was before.
pub(super) struct Repeats {
    /// The last bytes: of length 2^n, each at its place modulo that.
    bytes: Vec<u8>,
    /// By the hash of the bytes before: the number of the byte behind them, modulo 2^32. What it says is compared before it
    /// counts, so that what was there before [`clear`](Self::clear) does nothing.
    places: Vec<u32>,
    places_log: u32,
    /// How many bytes there were.
    end: u64,
    /// What is expected next is the byte of this number.
    next: u64,
    /// So many were as expected, up to the last one.
    len: u32,
    /// So many were not, since the repetition was found.
    missed: u32,
}

impl Repeats {
    pub(super) fn new(history_log: u32, places_log: u32) -> Self {
        let (bytes, places) = (vec![0; 1 << history_log], vec![0; 1 << places_log]);
        Self { bytes, places, places_log, end: 0, next: 0, len: 0, missed: NOTHING }
    }

    pub(super) fn clear(&mut self) {
        (self.end, self.next, self.len, self.missed) = (0, 0, 0, NOTHING);
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.places)
    }

    #[inline(always)]
    fn at(&self, number: u64) -> u8 {
        self.bytes[number as usize & (self.bytes.len() - 1)]
    }

    /// Returns what comes next if the repetition goes on, and how many bytes before were as expected.
    #[inline(always)]
    pub(super) fn expected(&self) -> Option<(u8, u32)> {
        (self.missed <= MISSED_MAX).then(|| (self.at(self.next), self.len))
    }

    /// Takes the byte that came, the last of these.
    #[inline(always)]
    pub(super) fn push(&mut self, last: u64) {
        let byte = last as u8;
        if self.missed <= MISSED_MAX {
            let is_right = self.at(self.next) == byte;
            self.len = if is_right { (self.len + 1).min(LEN_MAX) } else { 0 };
            self.missed += u32::from(!is_right);
            self.next += 1;
        }
        let at = self.end as usize & (self.bytes.len() - 1);
        self.bytes[at] = byte;
        self.end += 1;
        let last = last & (u64::MAX >> (64 - 8 * LOOKED_UP));
        let place = (hash(last as u32, (last >> 32) as u32) >> (32 - self.places_log)) as usize;
        if self.len < LONG {
            self.look(self.places[place]);
        }
        self.places[place] = self.end as u32;
    }

    /// Compares what is before this place with what is at the end.
    fn look(&mut self, place: u32) {
        let distance = u64::from((self.end as u32).wrapping_sub(place));
        if distance == 0 || distance > (self.end).min(self.bytes.len() as u64 - COMPARED_MAX) {
            return;
        }
        let next = self.end - distance;
        let mut len = 0;
        while len < COMPARED_MAX.min(next) && self.at(next - 1 - len) == self.at(self.end - 1 - len)
        {
            len += 1;
        }
        if len >= LOOKED_UP.into() {
            (self.next, self.len, self.missed) = (next, len as u32, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(repeats: &mut Repeats, text: &[u8]) {
        let mut last = 0;
        for &byte in text {
            last = last << 8 | u64::from(byte);
            repeats.push(last);
        }
    }

    #[test]
    fn what_was_there_before_is_expected_again() {
        let mut repeats = Repeats::new(10, 8);
        push(&mut repeats, b"one two three, one two");
        assert_eq!(repeats.expected(), Some((b' ', 7)));
        push(&mut repeats, b"x");
        assert_eq!(repeats.expected(), Some((b't', 0)));
        push(&mut repeats, b"th");
        assert_eq!(repeats.expected(), Some((b'r', 2)));
        push(&mut repeats, b"xxxxxxx");
        assert_eq!(repeats.expected(), None);
        repeats.clear();
        push(&mut repeats, b"one two");
        assert_eq!(repeats.expected(), None, "all of before is forgotten");
        push(&mut repeats, &[b'x'; 5_000]);
        let (byte, len) = repeats.expected().unwrap();
        assert_eq!((byte, len > 4_900), (b'x', true));
    }
}
