//! The content class of a block, before anything is tried.

/// The content class of a block, by a few of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentClass {
    /// Some bytes are more frequent than others: nearly all compressible data.
    Uneven,
    /// All bytes are about as frequent: encrypted or compressed data. They may still contain
    /// repetitions.
    Random,
}

/// The number of bytes in the sample, in runs from everywhere in the block.
const SAMPLE_LEN: usize = 512;
const RUN_LEN: usize = 16;
/// The number of pairs of equal bytes in a sample of random bytes, ...
const PAIRS_OF_RANDOM: u32 = (SAMPLE_LEN * (SAMPLE_LEN - 1) / 2 / 256) as u32;
/// ... plus or minus 22. From this number on, it is no chance (one time in ten million).
const PAIRS_MIN: u32 = PAIRS_OF_RANDOM + 5 * 22;

/// Classifies a block.
pub(crate) fn classify(block: &[u8]) -> ContentClass {
    if block.len() < SAMPLE_LEN {
        return ContentClass::Uneven;
    }
    let mut counts = [0u32; 256];
    let mut pairs = 0;
    let step = block.len() / (SAMPLE_LEN / RUN_LEN);
    for run in block.chunks_exact(step).take(SAMPLE_LEN / RUN_LEN) {
        for &byte in &run[..RUN_LEN] {
            let count = &mut counts[usize::from(byte)];
            pairs += *count;
            *count += 1;
        }
    }
    if pairs >= PAIRS_MIN { ContentClass::Uneven } else { ContentClass::Random }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_and_films_look_random() {
        let mut rng = dwell_base::Rng::from_seed(11);
        let mut noise = vec![0; 64 << 10];
        for len in [512, 513, 1000, 4096, 65_535, 65_536] {
            for _ in 0..200 {
                rng.fill(&mut noise[..len]);
                assert_eq!(classify(&noise[..len]), ContentClass::Random, "{len}");
            }
        }
        let film = include_bytes!("../../../data/media/elf.webm");
        let random =
            film.chunks(64 << 10).filter(|block| classify(block) == ContentClass::Random).count();
        assert!(random >= 4, "{random} of {}", film.len().div_ceil(64 << 10));
    }

    #[test]
    fn what_can_be_compressed_does_not() {
        let book = include_bytes!("../../../data/text/book1.txt");
        let digits: Vec<u8> = book.iter().map(|byte| b'0' + byte % 10).collect();
        // Five bits of chance in each byte.
        let mut rng = dwell_base::Rng::from_seed(12);
        let five_bits: Vec<u8> = (0..100_000).map(|_| rng.below(32) as u8 * 8).collect();
        for data in [&book[..], &digits, &five_bits, &[0; 4096]] {
            for len in [512, 4096, 65_536] {
                assert!(
                    data.chunks_exact(len).all(|block| classify(block) == ContentClass::Uneven)
                );
            }
        }
        assert_eq!(classify(b"short"), ContentClass::Uneven);
    }
}
