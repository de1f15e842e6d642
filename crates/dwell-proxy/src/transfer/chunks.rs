//! What a receiver has of a file already, as the hashes of chunks that end where the content says so. The sender finds
//! them wherever it has the same bytes, also behind something that was inserted, where aligned blocks differ.
//!
//! A chunk ends behind a byte where the hash of the last 64 bytes (Gear, as in `repeats`) has as many zeros at its top as
//! the chunks' length says. Both ends must cut alike: docs/proxy.md says how, and what is changed here changes the format.

use std::io::{self, Read};

use super::blocks::{BlockHash, HASH_BYTES, HASHED_MIN, HASHES_MAX, Have, hash};
use super::repeats::{GEAR, HASHED_LEN};

/// Coarse chunks grow with the file, so that it has about this many at most,
const CHUNKS_WANTED: u64 = 8192;
/// and fine ones with its square root, to about this many,
const FINE_WANTED: u64 = 1 << 17;
/// coarse ones from 8 KiB, as a binary logarithm, which is what lies between two ends that could be,
const COARSE_LOG2_MIN: u8 = 13;
/// and fine ones from 2 KiB,
const CHUNK_LOG2_MIN: u8 = 11;
/// to 512 KiB.
const CHUNK_LOG2_MAX: u8 = 19;
/// None is shorter than a quarter of that, but for the last one, and none is longer than four times as much.
const SPREAD_LOG2: u8 = 2;
/// More than this many chunks are not compared.
const CHUNKS_MAX: usize = 1 << 19;
/// Fewer zeros are no gap.
const GAP_BYTES_MIN: usize = 64;
/// Longer files are compared by aligned blocks, of which they have fewer; in bytes.
const FILE_BYTES_MAX: u64 = 256 << 30;
/// Files that are compared with one: its part, what has its name, and bases.
const FILES_MAX: u64 = 2 + super::bases::BASES_MAX as u64;
/// The length of a chunk, and its hash.
const ENTRY_BYTES: usize = 4 + HASH_BYTES;
/// The chunks in one message, which is no longer than one of blocks.
const ENTRIES_MAX: usize = HASHES_MAX * HASH_BYTES / ENTRY_BYTES;

/// A chunk of what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Its length in bytes.
    pub bytes: u32,
    /// BLAKE3 of it, cut to 16 bytes.
    pub hash: [u8; HASH_BYTES],
}

/// Returns the longest of these chunks, in bytes.
const fn len_max(log2: u8) -> usize {
    1 << (log2 + SPREAD_LOG2)
}

/// Returns the shortest of these chunks but for the last, in bytes.
const fn len_min(log2: u8) -> usize {
    1 << (log2 - SPREAD_LOG2)
}

/// How long chunks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grain {
    /// As every end that knows chunks reads them.
    Coarse,
    /// A third of the square root of the file's length, or up to twice as long, so that neither hashes nor what is sent again around a
    /// change are most of it.
    Fine,
}

impl Grain {
    /// The binary logarithm of the usual length of the chunks of a file of so many bytes.
    fn log2(self, bytes: u64) -> u8 {
        let (wanted, min) = match self {
            Self::Coarse => (bytes.div_ceil(CHUNKS_WANTED), COARSE_LOG2_MIN),
            Self::Fine => ((bytes.isqrt() / 3).max(bytes.div_ceil(FINE_WANTED)), CHUNK_LOG2_MIN),
        };
        let wanted = wanted.max(1).next_power_of_two().trailing_zeros();
        (wanted as u8).clamp(min, CHUNK_LOG2_MAX)
    }
}

/// How many bytes of a file are compared with one of `wanted` bytes; none if that is left to aligned blocks. At most twice its length:
/// the beginning may have been removed.
pub(super) fn compared(there: u64, wanted: u64) -> Option<u64> {
    let bytes = there.min(wanted.saturating_mul(2));
    (bytes <= FILE_BYTES_MAX).then_some(bytes)
}

/// How many bytes of several files together are compared with one of `wanted` bytes.
pub(super) fn compared_together(wanted: u64) -> u64 {
    wanted.saturating_mul(4).min(FILE_BYTES_MAX)
}

/// The most hashes that may come in answer to a question about a file of so many bytes.
pub(super) fn hashes_max(wanted: u64) -> u64 {
    let bytes = compared_together(wanted);
    // A shorter file may have more of them than a longer one.
    let most = |number: u64| number << SPREAD_LOG2;
    let coarse = (bytes >> (COARSE_LOG2_MIN - SPREAD_LOG2)).min(most(CHUNKS_WANTED));
    let by_root = most(3 * bytes.isqrt() + 9).min(most(FINE_WANTED));
    let fine = (bytes >> (CHUNK_LOG2_MIN - SPREAD_LOG2)).min(by_root);
    let long = (bytes >> (CHUNK_LOG2_MAX - SPREAD_LOG2)).min(CHUNKS_MAX as u64);
    let aligned = wanted >> super::blocks::log2(wanted);
    // The last chunk of each file may be shorter than all others.
    coarse.max(fine).max(long).max(aligned) + FILES_MAX
}

/// Appends the body of an answer.
pub(super) fn put(log2: u8, more: bool, chunks: &[Chunk], body: &mut Vec<u8>) {
    body.extend([log2, u8::from(more)]);
    for chunk in chunks {
        body.extend(chunk.bytes.to_be_bytes());
        body.extend(chunk.hash);
    }
}

/// Reads what [`put`] appends; none if it is malformed.
pub(super) fn read(body: &[u8]) -> Option<Have> {
    let [log2 @ CHUNK_LOG2_MIN..=CHUNK_LOG2_MAX, more @ 0..=1, rest @ ..] = body else {
        return None;
    };
    let (entries, rest) = rest.as_chunks::<ENTRY_BYTES>();
    if !rest.is_empty() || entries.len() > ENTRIES_MAX {
        return None;
    }
    let chunk = |entry: &[u8; ENTRY_BYTES]| {
        let (bytes, hash) = entry.split_first_chunk()?;
        let bytes = u32::from_be_bytes(*bytes);
        let fits = (1..=len_max(*log2)).contains(&(bytes as usize));
        Some(Chunk { bytes, hash: hash.try_into().ok().filter(|_| fits)? })
    };
    let chunks = entries.iter().map(chunk).collect::<Option<_>>()?;
    Some(Have::Chunks { log2: *log2, more: *more == 1, chunks })
}

/// Returns how many of these bytes the next chunk has. They are [`len_max`] at least, or the last ones.
fn cut(bytes: &[u8], log2: u8) -> usize {
    let (min, max) = (len_min(log2), len_max(log2));
    let bytes = &bytes[..bytes.len().min(max)];
    if bytes.len() <= min {
        return bytes.len();
    }
    let roll = |hash: u64, byte: &u8| (hash << 1).wrapping_add(GEAR[usize::from(*byte)]);
    let (before, rest) = bytes.split_at(min - 1);
    let mut hash = before[before.len() - (HASHED_LEN - 1)..].iter().fold(0, roll);
    let shift = u64::BITS - u32::from(log2);
    for (byte, len) in rest.iter().zip(min..) {
        hash = roll(hash, byte);
        if hash >> shift == 0 {
            return len;
        }
    }
    bytes.len()
}

/// Cuts what can be read into chunks.
pub(super) struct Cutter<R> {
    from: R,
    log2: u8,
    /// Twice as long as the longest chunk, so that little is moved within it.
    buffer: Vec<u8>,
    /// Where the next chunk begins, and where that ends which was read.
    at: usize,
    end: usize,
    is_over: bool,
}

impl<R: Read> Cutter<R> {
    pub(super) fn new(from: R, log2: u8) -> Self {
        let buffer = vec![0; 2 * len_max(log2)];
        Self { from, log2, buffer, at: 0, end: 0, is_over: false }
    }

    /// The next chunk; empty at the end.
    pub(super) fn chunk(&mut self) -> io::Result<&[u8]> {
        let max = len_max(self.log2);
        if self.end - self.at < max && !self.is_over {
            self.buffer.copy_within(self.at..self.end, 0);
            (self.at, self.end) = (0, self.end - self.at);
            while self.end < max && !self.is_over {
                self.read()?;
            }
        }
        let len = cut(&self.buffer[self.at..self.end], self.log2);
        Ok(self.take(len))
    }

    /// The next chunk of what has gaps: first the zeros at its beginning, if they are many, so that it begins as it did where there were
    /// none.
    fn chunk_or_gap(&mut self) -> io::Result<&[u8]> {
        let len = self.chunk()?.len();
        let begin = self.at - len;
        let zeros = self.buffer[begin..self.at].iter().take_while(|&&byte| byte == 0).count();
        if (GAP_BYTES_MIN..len).contains(&zeros) {
            self.at = begin + zeros;
        }
        Ok(&self.buffer[begin..self.at])
    }

    /// The next bytes as soon as there are any, however many; empty at the end.
    pub(super) fn some(&mut self) -> io::Result<&[u8]> {
        while self.at == self.end && !self.is_over {
            (self.at, self.end) = (0, 0);
            self.read()?;
        }
        Ok(self.take(self.end - self.at))
    }

    fn read(&mut self) -> io::Result<()> {
        match self.from.read(&mut self.buffer[self.end..]) {
            Ok(0) => self.is_over = true,
            Ok(len) => self.end += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn take(&mut self, len: usize) -> &[u8] {
        let begin = self.at;
        self.at += len;
        &self.buffer[begin..self.at]
    }
}

/// The chunks that are there, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Chunks {
    log2: u8,
    list: Vec<Chunk>,
}

impl Chunks {
    /// None yet, of what has so many bytes in all.
    pub(super) fn new(grain: Grain, bytes: u64) -> Self {
        Self { log2: grain.log2(bytes), list: Vec::new() }
    }

    /// Those of the first so many bytes of what can be read.
    pub(super) fn read(grain: Grain, from: &mut impl Read, bytes: u64) -> io::Result<Self> {
        let mut chunks = Self::new(grain, bytes);
        chunks.add(from, bytes, false)?;
        Ok(chunks)
    }

    /// Appends those of the first so many bytes of another file, as far as there is room for them.
    fn add(&mut self, from: &mut impl Read, bytes: u64, has_gaps: bool) -> io::Result<()> {
        let mut cutter = Cutter::new(from.take(bytes), self.log2);
        while self.list.len() < CHUNKS_MAX {
            let chunk = if has_gaps { cutter.chunk_or_gap()? } else { cutter.chunk()? };
            if chunk.is_empty() {
                break;
            }
            self.list.push(Chunk { bytes: chunk.len() as u32, hash: hash(chunk) });
        }
        Ok(())
    }

    /// Appends those of another file, but for a last one that says too much (`is_cut` as for [`without_end`](Self::without_end)); how
    /// many bytes they have. A part has gaps, where something was copied that is not left in it.
    pub(super) fn append(
        &mut self,
        from: &mut impl Read,
        bytes: u64,
        (is_cut, has_gaps): (bool, bool),
    ) -> io::Result<u64> {
        let first = self.list.len();
        if let Err(error) = self.add(from, bytes, has_gaps) {
            self.list.truncate(first);
            return Err(error);
        }
        if self.list.len() > first {
            self.leave_out_end(is_cut);
        }
        Ok(self.list[first..].iter().map(|chunk| u64::from(chunk.bytes)).sum())
    }

    /// Their lengths, in order.
    pub(super) fn lengths(&self) -> impl Iterator<Item = u64> {
        self.list.iter().map(|chunk| u64::from(chunk.bytes))
    }

    /// The length of all of them.
    pub(super) fn bytes(&self) -> u64 {
        self.lengths().sum()
    }

    /// True if these are the first of them.
    #[cfg(test)]
    pub(super) fn starts_with(&self, others: &Self) -> bool {
        self.log2 == others.log2 && self.list.starts_with(&others.list)
    }

    /// Leaves out a last chunk that says too much, as [`Blocks::without_end`](super::blocks::Blocks::without_end) does.
    pub(super) fn without_end(mut self, is_cut: bool) -> Self {
        self.leave_out_end(is_cut);
        self
    }

    fn leave_out_end(&mut self, is_cut: bool) {
        self.list.pop_if(|last| is_cut || u64::from(last.bytes) < HASHED_MIN);
    }

    /// The answers that say so, one at least.
    pub(super) fn answers(&self) -> Vec<Have> {
        if self.list.is_empty() {
            return vec![Have::Nothing];
        }
        let parts = self.list.len().div_ceil(ENTRIES_MAX);
        let answer = |(at, chunks): (usize, &[Chunk])| Have::Chunks {
            log2: self.log2,
            more: at + 1 < parts,
            chunks: chunks.to_vec(),
        };
        self.list.chunks(ENTRIES_MAX).enumerate().map(answer).collect()
    }

    /// Appends the chunks of the next answer about the same file. False if it does not go with those before.
    pub(super) fn extend(&mut self, log2: u8, chunks: &[Chunk]) -> bool {
        let fits = self.list.is_empty() || self.log2 == log2;
        self.log2 = log2;
        self.list.extend(chunks);
        fits && self.list.len() <= CHUNKS_MAX
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// The chunks that are there, to be looked up: some 32 bytes for each.
#[derive(Debug)]
pub(super) struct Table {
    log2: u8,
    chunks: Vec<Chunk>,
    /// Where each of them begins.
    offsets: Vec<u64>,
    /// Their numbers by hash, and of the same ones in order.
    by_hash: Vec<u32>,
    /// The number of the chunk behind the last one that was found.
    next: usize,
    /// The length of all of them.
    bytes: u64,
}

impl Table {
    pub(super) fn new(chunks: Chunks) -> Self {
        let Chunks { log2, list } = chunks;
        let mut bytes = 0;
        let mut offset = |chunk: &Chunk| {
            let begin = bytes;
            bytes += u64::from(chunk.bytes);
            begin
        };
        let offsets = list.iter().map(&mut offset).collect();
        let mut by_hash: Vec<u32> = (0..list.len() as u32).collect();
        by_hash.sort_unstable_by_key(|&number| (list[number as usize].hash, number));
        Self { log2, chunks: list, offsets, by_hash, next: 0, bytes }
    }

    /// The binary logarithm of the chunks' usual length.
    pub(super) const fn log2(&self) -> u8 {
        self.log2
    }

    /// The length of what is there, in bytes.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where such a chunk is, if it is: rather behind the last one that was found than elsewhere.
    pub(super) fn find(&mut self, chunk: &[u8]) -> Option<u64> {
        let hash: BlockHash = hash(chunk);
        let is_it = |found: &Chunk| found.hash == hash && found.bytes as usize == chunk.len();
        if !self.chunks.get(self.next).is_some_and(is_it) {
            let at = self.by_hash.partition_point(|&at| self.chunks[at as usize].hash < hash);
            let number = *self.by_hash.get(at)? as usize;
            if !is_it(&self.chunks[number]) {
                return None;
            }
            self.next = number;
        }
        let offset = self.offsets[self.next];
        self.next += 1;
        Some(offset)
    }
}

#[cfg(test)]
mod tests;
