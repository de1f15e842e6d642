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
        corpus::rewritten(&self.originals, len, &mut Rng::from_seed(seed))
    }
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
}
