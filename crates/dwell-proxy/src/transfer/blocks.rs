//! What a receiver has of a file already, as the hashes of its blocks.

use std::io::{self, Read};

use super::chunks::{self, Chunk};

/// BLAKE3, cut to 16 bytes: at the end the whole file is compared anyway.
pub(super) const HASH_BYTES: usize = 16;
/// The hash of a block.
pub(super) type BlockHash = [u8; HASH_BYTES];
/// Blocks grow with the file, so that it has this many at most,
const BLOCKS_WANTED: u64 = 2048;
/// from 64 KiB
const BLOCK_LOG2_MIN: u8 = 16;
/// to 4 MiB.
const BLOCK_LOG2_MAX: u8 = 22;
/// More than this many blocks are not compared, of files of terabytes.
pub(super) const BLOCKS_MAX: usize = 1 << 20;
/// Fewer bytes of what is there are not hashed.
pub(super) const HASHED_MIN: u64 = 64;
/// The hashes in one message.
pub(super) const HASHES_MAX: usize = 2048;

/// An answer to "what is there?".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Have {
    /// Nothing.
    Nothing,
    /// The same file: it need not be sent.
    Same,
    /// Another one that is to stay: it should not be sent.
    Stays,
    /// These bytes, by blocks; more of them may follow.
    Blocks {
        /// The binary logarithm of the length of a block.
        log2: u8,
        /// True if another answer about the same file follows.
        more: bool,
        /// The length of all of it.
        bytes: u64,
        /// The hashes of some of its blocks, in order.
        hashes: Vec<[u8; HASH_BYTES]>,
    },
    /// These bytes, by chunks that end where the content says so; more of them may follow.
    Chunks {
        /// The binary logarithm of the usual length of a chunk.
        log2: u8,
        /// True if another answer about the same file follows.
        more: bool,
        /// Some of its chunks, in order.
        chunks: Vec<Chunk>,
    },
}

impl Have {
    /// Its bytes, for a message.
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Nothing => vec![0],
            Self::Same => vec![1],
            Self::Stays => vec![2],
            Self::Blocks { log2, more, bytes, hashes } => {
                let mut body = vec![3, *log2, u8::from(*more)];
                body.extend(bytes.to_be_bytes());
                body.extend(hashes.as_flattened());
                body
            }
            Self::Chunks { log2, more, chunks } => {
                let mut body = vec![4];
                chunks::put(*log2, *more, chunks, &mut body);
                body
            }
        }
    }

    /// None if it is malformed.
    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        match body {
            [0] => Some(Self::Nothing),
            [1] => Some(Self::Same),
            [2] => Some(Self::Stays),
            [3, log2 @ BLOCK_LOG2_MIN..=BLOCK_LOG2_MAX, more @ 0..=1, rest @ ..] => {
                let (bytes, hashes) = rest.split_first_chunk()?;
                let (hashes, rest) = hashes.as_chunks();
                let fits = rest.is_empty() && hashes.len() <= HASHES_MAX;
                fits.then(|| Self::Blocks {
                    log2: *log2,
                    more: *more == 1,
                    bytes: u64::from_be_bytes(*bytes),
                    hashes: hashes.to_vec(),
                })
            }
            [4, rest @ ..] => chunks::read(rest),
            _ => None,
        }
    }

    /// The longest encoded form.
    pub(crate) const BYTES_MAX: usize = 11 + HASHES_MAX * HASH_BYTES;
}

/// The blocks that are there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Blocks {
    pub(super) log2: u8,
    pub(super) bytes: u64,
    pub(super) hashes: Vec<BlockHash>,
}

impl Blocks {
    /// Those of what can be read.
    pub(super) fn read(from: &mut impl Read, bytes: u64) -> io::Result<Self> {
        let log2 = log2(bytes);
        let mut blocks = Self { log2, bytes: 0, hashes: Vec::new() };
        let mut buffer = vec![0; 1 << log2];
        while blocks.bytes < bytes && blocks.hashes.len() < BLOCKS_MAX {
            let left = usize::try_from(bytes - blocks.bytes).unwrap_or(usize::MAX);
            let len = left.min(buffer.len());
            let len = read_full(from, &mut buffer[..len])?;
            if len == 0 {
                break;
            }
            blocks.hashes.push(hash(&buffer[..len]));
            blocks.bytes += len as u64;
        }
        Ok(blocks)
    }

    /// Leaves out a last block that says too much: one that ends where the sender has said (`is_cut`), who could ask for each length in
    /// turn, and find out byte by byte what is there; and one so short that its bytes can be guessed.
    pub(super) fn without_end(mut self, is_cut: bool) -> Self {
        let partial = self.bytes & ((1 << self.log2) - 1);
        if partial > 0 && (is_cut || partial < HASHED_MIN) {
            self.hashes.pop();
            self.bytes -= partial;
        }
        self
    }

    /// The answers that say so, one at least.
    pub(super) fn answers(&self) -> Vec<Have> {
        if self.bytes == 0 {
            return vec![Have::Nothing];
        }
        let parts = self.hashes.len().div_ceil(HASHES_MAX);
        let answer = |(at, hashes): (usize, &[BlockHash])| Have::Blocks {
            log2: self.log2,
            more: at + 1 < parts,
            bytes: self.bytes,
            hashes: hashes.to_vec(),
        };
        self.hashes.chunks(HASHES_MAX).enumerate().map(answer).collect()
    }

    /// Appends the hashes of the next answer about the same file. False if it does not go with those before.
    pub(super) fn extend(&mut self, log2: u8, bytes: u64, hashes: &[BlockHash]) -> bool {
        let fits = self.hashes.is_empty() || (self.log2, self.bytes) == (log2, bytes);
        (self.log2, self.bytes) = (log2, bytes);
        self.hashes.extend(hashes);
        fits && self.hashes.len() <= BLOCKS_MAX
    }

    /// The length of a block.
    pub(super) const fn block_len(&self) -> usize {
        1 << self.log2
    }

    /// True if the block with this number, which begins so and may be shorter than others, is there.
    pub(super) fn has(&self, number: usize, block: &[u8]) -> bool {
        let Some(expected) = self.hashes.get(number) else { return false };
        let begin = (number as u64) << self.log2;
        begin + block.len() as u64 <= self.bytes && hash(block) == *expected
    }
}

pub(super) fn hash(block: &[u8]) -> BlockHash {
    let mut cut = [0; HASH_BYTES];
    cut.copy_from_slice(&blake3::hash(block).as_bytes()[..HASH_BYTES]);
    cut
}

/// The binary logarithm of the length of the blocks of a file.
pub(super) fn log2(bytes: u64) -> u8 {
    let wanted = bytes.div_ceil(BLOCKS_WANTED).max(1).next_power_of_two().trailing_zeros();
    (wanted as u8).clamp(BLOCK_LOG2_MIN, BLOCK_LOG2_MAX)
}

/// Fills the buffer, if there is as much.
pub(super) fn read_full(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match from.read(&mut buffer[len..]) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_grow_with_the_file() {
        let known = [0, 1, 1 << 27, (1 << 27) + 1, 1 << 30, 1 << 40].map(log2);
        assert_eq!(known, [16, 16, 16, 17, 19, 22]);
    }

    #[test]
    fn blocks_that_are_there_are_found() {
        let bytes: Vec<u8> = (0..200_000u32).map(|n| (n / 256) as u8).collect();
        let blocks = Blocks::read(&mut &bytes[..], 1 << 20).unwrap();
        assert_eq!((blocks.bytes, blocks.hashes.len(), blocks.block_len()), (200_000, 4, 65_536));
        for (number, block) in bytes.chunks(blocks.block_len()).enumerate() {
            assert!(blocks.has(number, block));
            assert!(!blocks.has(number, &block[1..]));
        }
        assert!(!blocks.has(4, &[]));
        // What was cut off, or another length was asked for.
        assert_eq!(Blocks::read(&mut &bytes[..], 65_536).unwrap().hashes, blocks.hashes[..1]);
        assert_eq!(Blocks::default().answers(), [Have::Nothing]);
    }

    #[test]
    fn answers_come_back() {
        let hashes: Vec<BlockHash> = (0..5000u32).map(|n| hash(&n.to_be_bytes())).collect();
        let blocks = Blocks { log2: 22, bytes: 5000 << 22, hashes };
        let answers = blocks.answers();
        assert_eq!(answers.len(), 3);
        for answer in answers.into_iter().chain([Have::Nothing, Have::Same, Have::Stays]) {
            let bytes = answer.encode();
            assert!(bytes.len() <= Have::BYTES_MAX);
            assert_eq!(Have::decode(&bytes), Some(answer));
        }
        for odd in [&[][..], &[4], &[5], &[3, 15, 0], &[3, 16, 2, 0, 0, 0, 0, 0, 0, 0, 0], &[1, 1]]
        {
            assert_eq!(Have::decode(odd), None);
        }
    }
}
