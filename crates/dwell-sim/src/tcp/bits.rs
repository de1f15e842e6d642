//! One bit for each packet of a window that moves up.

const WORD_BITS: u64 = 64;

/// A ring of bits, addressed by sequence number.
///
/// It holds a window of sequence numbers that is no longer than its capacity; the owner knows where
/// the window is. Bits outside of the window are clear: a caller that moves the lower end up clears
/// the bits that fall out.
#[derive(Clone, Debug)]
pub(super) struct RingBits {
    words: Vec<u64>,
}

impl RingBits {
    /// Room for one word's worth of packets; [`Self::reserve`] makes more.
    pub(super) fn new() -> Self {
        Self { words: vec![0] }
    }

    /// Makes room for the window `[start, end)`, of which `[start, used_end)` is in use.
    pub(super) fn reserve(&mut self, start: u64, used_end: u64, end: u64) {
        // One word more, so that the first and the last word of a window never share one.
        let words_needed = (end - start) / WORD_BITS + 2;
        if words_needed <= self.words.len() as u64 {
            return;
        }
        let grown = vec![0; (words_needed as usize).next_power_of_two()];
        let old = Self { words: std::mem::replace(&mut self.words, grown) };
        for seq in (start..used_end).filter(|&seq| old.get(seq)) {
            self.set_range(seq, seq + 1);
        }
    }

    pub(super) fn get(&self, seq: u64) -> bool {
        self.word(seq) >> (seq % WORD_BITS) & 1 != 0
    }

    /// Sets the bits of `[start, end)`; returns how many of them were clear.
    pub(super) fn set_range(&mut self, start: u64, end: u64) -> u64 {
        let mut newly = 0;
        for_words(start, end, |seq, mask| {
            let word = self.word_mut(seq);
            newly += u64::from((mask & !*word).count_ones());
            *word |= mask;
        });
        newly
    }

    /// Clears the bits of `[start, end)`; returns how many of them were set.
    pub(super) fn clear_range(&mut self, start: u64, end: u64) -> u64 {
        let mut cleared = 0;
        for_words(start, end, |seq, mask| {
            let word = self.word_mut(seq);
            cleared += u64::from((mask & *word).count_ones());
            *word &= !mask;
        });
        cleared
    }

    /// The first clear bit of `[start, end)`, or `end`.
    pub(super) fn first_clear(&self, start: u64, end: u64) -> u64 {
        let mut seq = start;
        while seq < end {
            let ones = u64::from((self.word(seq) >> (seq % WORD_BITS)).trailing_ones());
            let room = WORD_BITS - seq % WORD_BITS;
            if ones < room {
                return (seq + ones).min(end);
            }
            seq += room;
        }
        end
    }

    /// Returns the start of the run of set bits that ends before `end`, but no lower than `start`.
    pub(super) fn run_start(&self, start: u64, end: u64) -> u64 {
        let mut seq = end;
        while seq > start {
            // The bits up to and with `seq - 1`, moved to the top of the word.
            let below = (seq - 1) % WORD_BITS + 1;
            let ones = u64::from((self.word(seq - 1) << (WORD_BITS - below)).leading_ones());
            if ones < below {
                return (seq - ones).max(start);
            }
            seq -= below.min(seq - start);
        }
        start
    }

    /// Returns the number of set bits in `[start, end)`.
    pub(super) fn ones(&self, start: u64, end: u64) -> u64 {
        let mut ones = 0;
        for_words(start, end, |seq, mask| ones += u64::from((self.word(seq) & mask).count_ones()));
        ones
    }

    /// The set bit of `[start, end)` above which `nth - 1` others are; `nth` is at least 1.
    pub(super) fn nth_highest(&self, start: u64, end: u64, nth: u32) -> Option<u64> {
        let mut missing = nth;
        let mut top = end;
        while top > start {
            let bottom = ((top - 1) / WORD_BITS * WORD_BITS).max(start);
            let mask = (u64::MAX >> (WORD_BITS - (top - bottom))) << (bottom % WORD_BITS);
            let mut word = self.word(bottom) & mask;
            while word != 0 {
                let highest = 63 - u64::from(word.leading_zeros());
                missing -= 1;
                if missing == 0 {
                    return Some(bottom / WORD_BITS * WORD_BITS + highest);
                }
                word &= !(1 << highest);
            }
            top = bottom;
        }
        None
    }

    fn word(&self, seq: u64) -> u64 {
        self.words[self.index(seq)]
    }

    fn word_mut(&mut self, seq: u64) -> &mut u64 {
        let index = self.index(seq);
        &mut self.words[index]
    }

    fn index(&self, seq: u64) -> usize {
        (seq / WORD_BITS) as usize & (self.words.len() - 1)
    }
}

/// Calls `each` for every word that `[start, end)` touches, with a sequence number in it and
/// the mask of the bits that belong to the range.
fn for_words(start: u64, end: u64, mut each: impl FnMut(u64, u64)) {
    let mut seq = start;
    while seq < end {
        let offset = seq % WORD_BITS;
        let count = (WORD_BITS - offset).min(end - seq);
        each(seq, (u64::MAX >> (WORD_BITS - count)) << offset);
        seq += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_set_of_numbers(
            base in 0u64..1000,
            steps in proptest::collection::vec((0u64..400, 0u64..150, any::<bool>()), 1..40),
        ) {
            let mut bits = RingBits::new();
            let mut model = vec![false; 2000];
            let mut end = base;
            for (offset, len, set) in steps {
                let (from, to) = (base + offset, base + offset + len);
                bits.reserve(base, end, to.max(end));
                end = end.max(to);
                let range = &mut model[from as usize..to as usize];
                let differ = range.iter().filter(|&&b| b != set).count() as u64;
                range.fill(set);
                let changed =
                    if set { bits.set_range(from, to) } else { bits.clear_range(from, to) };
                prop_assert_eq!(changed, differ);
                for seq in base..end {
                    prop_assert_eq!(bits.get(seq), model[seq as usize]);
                }
                let clear = (from..end).find(|&s| !model[s as usize]).unwrap_or(end);
                prop_assert_eq!(bits.first_clear(from, end), clear);
                let run = (base..to).rev().find(|&s| !model[s as usize]).map_or(base, |s| s + 1);
                prop_assert_eq!(bits.run_start(base, to), run);
                let ones = (from..end).filter(|&s| model[s as usize]);
                prop_assert_eq!(bits.ones(from, end), ones.clone().count() as u64);
                prop_assert_eq!(bits.nth_highest(from, end, 3), ones.rev().nth(2));
            }
        }
    }
}
