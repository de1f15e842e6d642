//! How often each byte occurs.

/// The longest payload whose counts are [`Frequencies::Short`], in bytes.
const SHORT_BYTES_MAX: usize = i16::MAX as usize;
/// So many bytes at a time: no sum of counters of 16 bits overflows.
const PART_BYTES: usize = 1 << 15;

/// How often each byte occurs in a payload.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "nearly all are short, and none is kept")]
pub(crate) enum Frequencies {
    /// In at most 32,767 bytes: twice as many counts go through a processor's registers at once, and their products are
    /// quicker still.
    Short([u16; 256]),
    /// In more.
    Long(Box<[u32; 256]>),
}

impl Frequencies {
    /// Counts the bytes of a payload.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        if bytes.len() <= SHORT_BYTES_MAX {
            return Self::Short(part(bytes));
        }
        let mut sums = Box::new([0u32; 256]);
        for bytes in bytes.chunks(PART_BYTES) {
            sums.iter_mut().zip(part(bytes)).for_each(|(sum, count)| *sum += u32::from(count));
        }
        Self::Long(sums)
    }

    /// Returns the sum of the squares of all counts.
    pub(crate) fn squares(&self) -> u64 {
        match self {
            Self::Short(counts) => {
                let signed = counts.iter().map(|&count| i32::from(count as i16));
                // At most the square of their sum, which is that of 15 bits.
                signed.map(|count| count * count).sum::<i32>() as u64
            }
            Self::Long(counts) => counts.iter().map(|&n| u64::from(n) * u64::from(n)).sum(),
        }
    }

    /// Adds each count to a sum.
    pub(crate) fn add_to(&self, sums: &mut [u64]) {
        match self {
            Self::Short(counts) => {
                sums.iter_mut().zip(counts).for_each(|(sum, &count)| *sum += u64::from(count));
            }
            Self::Long(counts) => {
                sums.iter_mut().zip(&**counts).for_each(|(sum, &count)| *sum += u64::from(count));
            }
        }
    }

    /// Returns all counts, in the order of bytes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> + Clone {
        (0..256).map(|byte| match self {
            Self::Short(counts) => u64::from(counts[byte]),
            Self::Long(counts) => u64::from(counts[byte]),
        })
    }
}

/// Counts at most [`PART_BYTES`].
fn part(bytes: &[u8]) -> [u16; 256] {
    // In four tables, since a counter that was just written can't be read at once: the same byte often comes again.
    let mut tables = [[0u16; 256]; 4];
    let mut words = bytes.chunks_exact(4);
    for word in &mut words {
        for (table, &byte) in tables.iter_mut().zip(word) {
            table[usize::from(byte)] += 1;
        }
    }
    words.remainder().iter().for_each(|&byte| tables[0][usize::from(byte)] += 1);
    let [mut sums, others @ ..] = tables;
    for other in others {
        sums.iter_mut().zip(other).for_each(|(sum, count)| *sum += count);
    }
    sums
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_byte_is_counted(bytes in prop::collection::vec(0u8..8, 0..40), repeated in 0usize..3_000) {
            let bytes = bytes.repeat(repeated);
            let counts = Frequencies::of(&bytes);
            let there = |byte: u8| bytes.iter().filter(|&&it| it == byte).count() as u64;
            let mut sums = [1; 256];
            counts.add_to(&mut sums);
            for (byte, (count, sum)) in (0..=255u8).zip(counts.iter().zip(sums)) {
                prop_assert_eq!((count, sum), (there(byte), there(byte) + 1));
            }
            prop_assert_eq!(counts.squares(), counts.iter().map(|count| count * count).sum::<u64>());
        }
    }

    #[test]
    fn the_longest_short_one_is_exact() {
        for bytes in [SHORT_BYTES_MAX, SHORT_BYTES_MAX + 1, 100_000] {
            let counts = Frequencies::of(&vec![7; bytes]);
            assert_eq!(counts.squares(), (bytes * bytes) as u64);
            assert_eq!(matches!(counts, Frequencies::Short(_)), bytes <= SHORT_BYTES_MAX);
        }
    }
}
