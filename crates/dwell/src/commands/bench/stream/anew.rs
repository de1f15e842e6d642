//! Text that does not repeat itself: compressors with long memories would know it by heart.

use std::collections::HashMap;

use dwell_base::Rng;
use dwell_testkit::corpus;

/// Text whose every word follows the two before it somewhere in the originals. Long passages do
/// not come twice, so that a window of megabytes finds little more than one of 64 KiB.
#[derive(Debug)]
pub(super) struct Mixture {
    words: Vec<&'static [u8]>,
    /// Where a pair of words is followed by what.
    followers: HashMap<[&'static [u8]; 2], Vec<usize>>,
}

/// Some of this program's sources, to mix others from.
const SOURCES: [&str; 12] = [
    include_str!("../ceiling.rs"),
    include_str!("../idle.rs"),
    include_str!("../link.rs"),
    include_str!("../messages.rs"),
    include_str!("../record.rs"),
    include_str!("../report.rs"),
    include_str!("../trial.rs"),
    include_str!("../verdict.rs"),
    include_str!("../../demo/measure.rs"),
    include_str!("../../demo/summary.rs"),
    include_str!("../../trace/replay.rs"),
    include_str!("../../proxy/options.rs"),
];

impl Mixture {
    /// English prose.
    pub(super) fn of_books() -> Self {
        let books = [corpus::BOOK, corpus::ALICE];
        Self::of(books.into_iter().flat_map(|book| book.split_inclusive(u8::is_ascii_whitespace)))
    }

    /// Program text: a word ends with whatever is no letter.
    pub(super) fn of_sources() -> Self {
        let is_end = |byte: &u8| !byte.is_ascii_alphanumeric() && *byte != b'_' && *byte != b' ';
        Self::of(SOURCES.into_iter().flat_map(|text| text.as_bytes().split_inclusive(is_end)))
    }

    fn of(words: impl Iterator<Item = &'static [u8]>) -> Self {
        let words: Vec<&[u8]> = words.collect();
        let mut followers: HashMap<[&[u8]; 2], Vec<usize>> = HashMap::new();
        for (at, pair) in words.windows(2).enumerate() {
            followers.entry([pair[0], pair[1]]).or_default().push(at + 2);
        }
        Self { words, followers }
    }

    /// So many bytes; the same for the same seed.
    pub(super) fn bytes(&self, len: usize, seed: u64) -> Vec<u8> {
        let Self { words, followers } = self;
        let mut rng = Rng::from_seed(seed);
        let mut out = Vec::with_capacity(len + 64);
        let mut at = rng.below(words.len() as u64 - 2) as usize;
        while out.len() < len {
            out.extend_from_slice(words[at]);
            let next = followers.get(&[words[at], words.get(at + 1).copied().unwrap_or_default()]);
            // From the place after the pair, somewhere where the same pair stands.
            let choice = next.map(|places| places[rng.below(places.len() as u64) as usize] - 1);
            at = choice.filter(|&at| at + 1 < words.len()).unwrap_or(0);
        }
        out.truncate(len);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_same_for_the_same_seed_and_does_not_repeat_itself() {
        for mixture in [Mixture::of_books(), Mixture::of_sources()] {
            let text = mixture.bytes(1 << 20, 1);
            assert_eq!(text.len(), 1 << 20);
            assert!(text == mixture.bytes(1 << 20, 1) && text != mixture.bytes(1 << 20, 2));
            let passages: std::collections::HashSet<&[u8]> = text.chunks(400).collect();
            assert!(passages.len() * 100 > text.len().div_ceil(400) * 99);
        }
    }
}
