//! The content class of a block or packet, by a few of its bytes, before anything is tried.

/// The content class of a block or packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentClass {
    /// Some bytes are more frequent than others: nearly all compressible data.
    Uneven,
    /// All bytes are about as frequent: encrypted or compressed data. They may still contain
    /// repetitions.
    Random,
}

/// The bytes of a sample come in runs of this length, from everywhere in the data.
const RUN_LEN: usize = 16;
/// The number of bytes in the sample of a block, and in that of a packet.
const BLOCK_SAMPLE_LEN: usize = 512;
const PACKET_SAMPLE_LEN: usize = 128;

/// Classifies a block. One of fewer than 512 bytes is taken to be uneven.
pub fn classify(block: &[u8]) -> ContentClass {
    classify_by(block, BLOCK_SAMPLE_LEN)
}

/// Classifies the payload of a packet by fewer bytes. One of fewer than 128 bytes is taken to be
/// uneven.
pub fn classify_packet(payload: &[u8]) -> ContentClass {
    classify_by(payload, PACKET_SAMPLE_LEN)
}

/// The number of pairs of equal bytes in a sample from which on they are no chance: with random
/// bytes, one time in some millions. A sample of n bytes has n (n - 1) / 2 pairs, each equal with
/// p = 1/256, and so a variance of n (n - 1) / 2 · p (1 - p); five standard deviations are added.
const fn pairs_min(sample_len: usize) -> u32 {
    let expected = (sample_len * (sample_len - 1) / 2 / 256) as u32;
    expected + 5 * (expected.isqrt() + 1)
}

fn classify_by(data: &[u8], sample_len: usize) -> ContentClass {
    if data.len() < sample_len {
        return ContentClass::Uneven;
    }
    let mut counts = [0u8; 256];
    let mut pairs = 0;
    let runs = sample_len / RUN_LEN;
    for run in data.chunks_exact(data.len() / runs).take(runs) {
        for &byte in &run[..RUN_LEN] {
            let count = &mut counts[usize::from(byte)];
            pairs += u32::from(*count);
            *count = count.saturating_add(1);
        }
        // Of text a third of the sample says it.
        if pairs >= pairs_min(sample_len) {
            return ContentClass::Uneven;
        }
    }
    ContentClass::Random
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
                assert_eq!(classify_packet(&noise[..len]), ContentClass::Random, "{len}");
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
        for packet in book.chunks_exact(1400).chain(digits.chunks_exact(200)).take(500) {
            assert_eq!(classify_packet(packet), ContentClass::Uneven);
        }
        assert_eq!(classify(b"short"), ContentClass::Uneven);
    }
}
