//! Originals that are rewritten: so that they can be long, and no compressor with a long memory
//! knows them by heart.

use dwell_base::Rng;
use dwell_lab::corpus;

/// Texts one after the other, over and over, each time with other letters in place of the letters.
/// To a compressor each time is as hard as the first: nothing of the times before comes again.
#[derive(Debug)]
pub(super) struct FreshText {
    originals: Vec<u8>,
}

/// Some of this program's sources.
const SOURCES: [&str; 12] = [
    include_str!("../ceiling.rs"),
    include_str!("../idle.rs"),
    include_str!("../link.rs"),
    include_str!("../messages.rs"),
    include_str!("../record.rs"),
    include_str!("../report.rs"),
    include_str!("../trial.rs"),
    include_str!("../verdict.rs"),
    include_str!("../../../dwell/src/commands/demo/measure.rs"),
    include_str!("../../../dwell/src/commands/demo/summary.rs"),
    include_str!("../../../dwell/src/commands/trace/replay.rs"),
    include_str!("../../../dwell/src/commands/proxy/options.rs"),
];

impl FreshText {
    /// Two English books, of 0.9 MB.
    pub(super) fn books() -> Self {
        Self { originals: [&corpus::BOOK[..], corpus::ALICE].concat() }
    }

    /// Program text.
    pub(super) fn sources() -> Self {
        Self { originals: SOURCES.concat().into_bytes() }
    }

    /// Returns `len` bytes, the same for the same seed.
    pub(super) fn bytes(&self, len: usize, seed: u64) -> Vec<u8> {
        let mut rng = Rng::from_seed(seed);
        let mut out = Vec::with_capacity(len);
        while out.len() < len {
            let letters = exchanged(&mut rng);
            let rest = len - out.len();
            out.extend(self.originals.iter().take(rest).map(|&byte| letters[usize::from(byte)]));
        }
        out
    }
}

/// Another letter for each, small and capital alike; all other bytes stay.
fn exchanged(rng: &mut Rng) -> [u8; 256] {
    let mut order: [u8; 26] = std::array::from_fn(|at| at as u8);
    for at in (1..order.len()).rev() {
        order.swap(at, rng.below(at as u64 + 1) as usize);
    }
    std::array::from_fn(|at| {
        let byte = at as u8;
        let first = if byte.is_ascii_uppercase() { b'A' } else { b'a' };
        if byte.is_ascii_alphabetic() { first + order[usize::from(byte - first)] } else { byte }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn it_is_the_same_for_the_same_seed_and_does_not_repeat_itself() {
        for text in [FreshText::books(), FreshText::sources()] {
            let len = 3 * text.originals.len();
            let bytes = text.bytes(len, 1);
            assert!(bytes == text.bytes(len, 1) && bytes != text.bytes(len, 2));
            // What the first time is made of, in the times after it.
            let (first, later) = bytes.split_at(text.originals.len());
            let known: HashSet<&[u8]> = first.windows(24).collect();
            let passages: Vec<&[u8]> = later.chunks_exact(24).collect();
            let again = passages.iter().filter(|&&passage| known.contains(passage)).count();
            assert!(again * 50 < passages.len(), "{again} of {}", passages.len());
        }
    }

    #[test]
    fn letters_are_exchanged_one_for_one() {
        let letters = exchanged(&mut Rng::from_seed(1));
        let different: HashSet<u8> = letters.into_iter().collect();
        assert_eq!(different.len(), 256);
        assert_eq!(letters[usize::from(b' ')], b' ');
        assert_eq!(letters[usize::from(b'A')].to_ascii_lowercase(), letters[usize::from(b'a')]);
    }
}
