//! How often each byte occurs.

/// So many bytes at a time: no sum of counters of 16 bits overflows.
const PART_BYTES: usize = 1 << 15;

/// Returns how often each byte occurs.
pub(crate) fn frequencies(bytes: &[u8]) -> [u32; 256] {
    let mut sums = [0u32; 256];
    for part in bytes.chunks(PART_BYTES) {
        // In four tables, since a counter that was just written can't be read at once: the same byte often comes again.
        let mut tables = [[0u16; 256]; 4];
        let mut words = part.chunks_exact(4);
        for word in &mut words {
            for (table, &byte) in tables.iter_mut().zip(word) {
                table[usize::from(byte)] += 1;
            }
        }
        words.remainder().iter().for_each(|&byte| tables[0][usize::from(byte)] += 1);
        for (byte, sum) in sums.iter_mut().enumerate() {
            *sum +=
                u32::from(tables[0][byte] + tables[1][byte] + tables[2][byte] + tables[3][byte]);
        }
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
            let counts = frequencies(&bytes);
            for byte in 0..=255u8 {
                let there = bytes.iter().filter(|&&it| it == byte).count();
                prop_assert_eq!(counts[usize::from(byte)] as usize, there);
            }
        }
    }
}
