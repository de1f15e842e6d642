//! Prose that does not repeat itself: compressors with long memories would know it by heart.

use std::collections::HashMap;

use dwell_base::Rng;
use dwell_testkit::corpus;

/// Text whose every word follows the two before it somewhere in the corpus's books. Long passages
/// do not come twice, so that a window of megabytes finds little more than one of 64 KiB.
pub(super) fn prose(len: usize, seed: u64) -> Vec<u8> {
    let words: Vec<&[u8]> = [corpus::BOOK, corpus::ALICE]
        .into_iter()
        .flat_map(|book| book.split_inclusive(|byte| byte.is_ascii_whitespace()))
        .collect();
    let mut followers: HashMap<[&[u8]; 2], Vec<usize>> = HashMap::new();
    for (at, pair) in words.windows(2).enumerate() {
        followers.entry([pair[0], pair[1]]).or_default().push(at + 2);
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_same_for_the_same_seed_and_does_not_repeat_itself() {
        let text = prose(1 << 20, 1);
        assert_eq!(text.len(), 1 << 20);
        assert!(text == prose(1 << 20, 1) && text != prose(1 << 20, 2));
        let passages: std::collections::HashSet<&[u8]> = text.chunks(400).collect();
        assert_eq!(passages.len(), text.len().div_ceil(400));
    }
}
