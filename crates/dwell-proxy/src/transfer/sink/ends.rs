//! Where that ends of which a sender has the hashes. It may have whole chunks and blocks copied and nothing less, so that no bytes get into a
//! file that it could guess by a hash of them and of others that it knows.

use crate::transfer::blocks::Blocks;
use crate::transfer::chunks::Chunks;

/// The ends of what was answered about a file, from its first byte on.
#[derive(Debug)]
pub(super) enum Ends {
    /// Of blocks: a multiple of their length, as a binary logarithm, or the last byte.
    Blocks { log2: u8, bytes: u64 },
    /// Of chunks, in order.
    Chunks(Vec<u64>),
}

impl Default for Ends {
    fn default() -> Self {
        Self::Chunks(Vec::new())
    }
}

impl Ends {
    pub(super) const fn of_blocks(blocks: &Blocks) -> Self {
        Self::Blocks { log2: blocks.log2, bytes: blocks.bytes }
    }

    pub(super) fn of_chunks(chunks: &Chunks) -> Self {
        let end = |end: &mut u64, bytes: u64| {
            *end += bytes;
            Some(*end)
        };
        Self::Chunks(chunks.lengths().scan(0, end).collect())
    }

    /// How many of them are held.
    pub(super) const fn held(&self) -> usize {
        match self {
            Self::Blocks { .. } => 0,
            Self::Chunks(ends) => ends.len(),
        }
    }

    /// Returns the first one from there on.
    pub(super) fn next(&self, at: u64) -> Option<u64> {
        match self {
            Self::Blocks { log2, bytes } => {
                let end = at.checked_next_multiple_of(1 << log2).map(|end| end.min(*bytes));
                end.filter(|&end| end >= at)
            }
            Self::Chunks(ends) if at > 0 => {
                ends.get(ends.partition_point(|&end| end < at)).copied()
            }
            Self::Chunks(_) => Some(0),
        }
    }

    /// Returns true if something ends here, and something else begins.
    pub(super) fn has(&self, at: u64) -> bool {
        match self {
            Self::Blocks { log2, bytes } => {
                at == *bytes || (at < *bytes && at & ((1 << log2) - 1) == 0)
            }
            Self::Chunks(ends) => at == 0 || ends.binary_search(&at).is_ok(),
        }
    }
}
