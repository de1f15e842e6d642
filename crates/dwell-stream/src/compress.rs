//! Compression and decompression, separate from the decisions.

use std::fmt;

use dwell_base::Instant;
use dwell_codec::{CodecId, CodecSpec, Compressor, Decompressor};
use dwell_policy::method::{Choice, Measured, TriedAside};

use crate::aside::Trial;
use crate::context::Lent;
use crate::error::StreamError;
use crate::frame::ROOM;

/// The compressors of one thread. Each is made when it is first used, and serves any number of
/// senders: no state of a stream stays in it.
#[derive(Debug, Default)]
pub struct Compressors {
    compressors: Vec<Compressor>,
    scratch: Vec<u8>,
    /// For results of running contexts.
    running: Vec<u8>,
}

impl Compressors {
    /// Makes an empty set of compressors. Each codec and level takes memory from its first use on:
    /// 16 KiB for lz4, 0.9 to 5 MiB for zstd (of which only the used part becomes resident).
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns true if a compressor of this kind was used here before.
    fn has(&self, spec: CodecSpec) -> bool {
        self.compressors.iter().any(|known| known.spec() == spec)
    }

    /// Compresses `src` into at most `len_max` bytes, after `ROOM` bytes for a header. If there is
    /// a history, the result refers to it.
    pub(crate) fn compress(
        &mut self,
        spec: CodecSpec,
        history: &[u8],
        src: &[u8],
        len_max: usize,
    ) -> Option<Vec<u8>> {
        let at = match self.compressors.iter().position(|known| known.spec() == spec) {
            Some(at) => at,
            None => {
                // The codec was checked with the configuration; the only other error is lack of
                // memory, and then the data are sent uncompressed.
                self.compressors.push(Compressor::with_history(spec).ok()?);
                self.compressors.len() - 1
            }
        };
        if self.scratch.len() < len_max {
            self.scratch.resize(len_max, 0);
        }
        let (compressor, dst) = (&mut self.compressors[at], &mut self.scratch[..len_max]);
        let len = match history {
            [] => compressor.compress(src, dst),
            history => compressor.compress_after(history, src, dst),
        };
        let len = len.ok()??;
        // Allocated with its true length, because results wait in the sender's buffer and are
        // counted there.
        let mut payload = Vec::with_capacity(ROOM + len);
        payload.resize(ROOM, 0);
        payload.extend_from_slice(&self.scratch[..len]);
        Some(payload)
    }
}

/// The decoders of one thread; serves any number of receivers. It holds about 240 KiB, and 160 more
/// once a block has referred to earlier ones.
#[derive(Debug)]
pub struct Decompressors {
    pub(crate) decompressor: Decompressor,
    pub(crate) scratch: Vec<u8>,
}

impl Decompressors {
    /// Makes the decoders.
    pub fn new() -> Self {
        Self { decompressor: Decompressor::new(), scratch: Vec::new() }
    }

    /// Returns room for data of this length, which was checked to be small.
    pub(crate) fn room(&mut self, len: usize) -> &mut [u8] {
        if self.scratch.len() < len {
            self.scratch.resize(len, 0);
        }
        &mut self.scratch[..len]
    }

    /// Restores a payload to data of exactly this length, which was checked to be small.
    pub(crate) fn restore(
        &mut self,
        codec: CodecId,
        payload: &[u8],
        original_len: usize,
    ) -> Result<&[u8], StreamError> {
        exactly(self.restore_up_to(codec, payload, original_len)?, original_len)
    }

    /// Restores a payload that refers to `history` to data of exactly this length.
    pub(crate) fn restore_after(
        &mut self,
        codec: CodecId,
        history: &[u8],
        payload: &[u8],
        original_len: usize,
    ) -> Result<&[u8], StreamError> {
        self.room(original_len);
        let dst = &mut self.scratch[..original_len];
        let len = self.decompressor.decompress_after(codec, history, payload, dst)?;
        exactly(&self.scratch[..len], original_len)
    }

    /// Restores a payload to data of at most this length, which was checked to be small.
    pub(crate) fn restore_up_to(
        &mut self,
        codec: CodecId,
        payload: &[u8],
        len_max: usize,
    ) -> Result<&[u8], StreamError> {
        self.room(len_max);
        let dst = &mut self.scratch[..len_max];
        let len = self.decompressor.decompress(codec, None, payload, dst)?;
        Ok(&self.scratch[..len])
    }
}

fn exactly(data: &[u8], len: usize) -> Result<&[u8], StreamError> {
    if data.len() != len {
        return Err(StreamError::Header("a block that restores to less than it should"));
    }
    Ok(data)
}

impl Default for Decompressors {
    fn default() -> Self {
        Self::new()
    }
}

/// A block to compress, taken out of a sender so that another thread can do it.
///
/// Give the result back with [`Sender::done`](crate::Sender::done); a job that is dropped leaves
/// its sender waiting for ever, as the job holds the bytes.
#[must_use = "the sender waits for its result"]
pub struct Job {
    pub(crate) index: u64,
    pub(crate) spec: CodecSpec,
    /// `ROOM` bytes, and the bytes to compress.
    pub(crate) block: Vec<u8>,
    pub(crate) looks_random: bool,
    /// The data before it, if the result may refer to them.
    pub(crate) history: Vec<u8>,
    /// The running context, if it goes on with that.
    pub(crate) context: Option<Box<Lent>>,
    /// The length above which a result is of no use.
    pub(crate) len_max: usize,
    /// What is tried beside.
    pub(crate) trial: Option<Trial>,
    /// The blocks behind it, which go on with the same context.
    pub(crate) rest: Box<[Behind]>,
}

/// A block of a job that goes on with the context of the one before it.
pub(crate) struct Behind {
    pub(crate) index: u64,
    /// `ROOM` bytes, and the bytes to compress.
    pub(crate) block: Vec<u8>,
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("index", &self.index)
            .field("codec", &self.spec)
            .field("original_len", &self.original_len())
            .finish_non_exhaustive()
    }
}

impl Job {
    /// Returns the codec with which it is to be compressed.
    pub fn codec(&self) -> CodecSpec {
        self.spec
    }

    /// Returns the number of bytes to be compressed. Never zero.
    pub fn original_len(&self) -> usize {
        let rest = self.rest.iter().map(|behind| behind.block.len() - ROOM);
        self.block.len() - ROOM + rest.sum::<usize>()
    }

    /// Returns the number of blocks: more than one only of a stream that has much more to send
    /// ([`Sender::expect_bulk`](crate::Sender::expect_bulk)).
    pub fn blocks(&self) -> usize {
        1 + self.rest.len()
    }

    /// Returns true if the result will refer to earlier blocks.
    pub fn refers(&self) -> bool {
        !self.history.is_empty() || self.context.is_some()
    }

    /// Returns true if it may take a twentieth of a second or more: then it should be done where nobody waits behind it.
    pub fn is_slow(&self) -> bool {
        self.spec.id == CodecId::Mix || self.trial.is_some()
    }

    /// Compresses, and measures the time by the given clock.
    pub fn run(
        mut self,
        compressors: &mut Compressors,
        mut clock: impl FnMut() -> Instant,
    ) -> Done {
        let is_first = self.context.is_none() && !compressors.has(self.spec);
        let begin = clock();
        let src = &self.block[ROOM..];
        let payload = match &mut self.context {
            Some(context) => context.compress(src, &mut compressors.running),
            None => compressors.compress(self.spec, &self.history, src, self.len_max),
        };
        let behind = |behind: &Behind| {
            let context = self.context.as_mut()?;
            context.compress(&behind.block[ROOM..], &mut compressors.running)
        };
        let rest = self.rest.iter().map(behind).collect();
        let took_ns = clock().since_ns(begin);
        let tried = self.trial.and_then(|trial| trial.run(&self.block[ROOM..], clock));
        Done { job: self, payload, rest, took_ns, away_ns: took_ns, is_first, tried }
    }
}

/// A job that was done, to be given back to its sender.
#[derive(Debug)]
#[must_use = "the sender waits for it"]
pub struct Done {
    pub(crate) job: Job,
    pub(crate) payload: Option<Vec<u8>>,
    /// The same of the blocks behind it.
    pub(crate) rest: Vec<Option<Vec<u8>>>,
    pub(crate) took_ns: u64,
    pub(crate) away_ns: u64,
    pub(crate) is_first: bool,
    pub(crate) tried: Option<TriedAside<CodecSpec>>,
}

impl Done {
    /// Says that the sender had it back so long after it had given the job away: waiting for a thread, and to be taken up
    /// again, are a part of what compressing costs it, if not of what the codec does.
    pub fn back_after(&mut self, ns: u64) {
        match &mut self.tried {
            None => self.away_ns = self.took_ns.max(ns),
            // Most of it was the trial. On a processor that others use, too, a slow codec takes as much longer.
            Some(tried) => {
                let trial_ns = ns.saturating_sub(self.took_ns) as f64;
                let len = self.job.original_len() as f64;
                tried.cost_ns = tried.cost_ns.max(trial_ns / len);
            }
        }
    }

    /// The length of each block before, and after if it could be compressed.
    fn lens(&self) -> impl Iterator<Item = (usize, Option<usize>)> {
        let blocks = self.job.rest.iter().map(|behind| &behind.block);
        let blocks = std::iter::once(&self.job.block).chain(blocks);
        let payloads = std::iter::once(&self.payload).chain(&self.rest);
        let len = |payload: &Option<Vec<u8>>| Some(payload.as_ref()?.len() - ROOM);
        blocks.zip(payloads).map(move |(block, payload)| (block.len() - ROOM, len(payload)))
    }

    /// None if nothing could be compressed; what could not be counts as it is.
    fn compressed_len(&self) -> Option<usize> {
        self.payload.as_ref()?;
        Some(self.lens().map(|(before, after)| after.unwrap_or(before)).sum())
    }

    /// Returns what each block has shown; the time is theirs by their lengths.
    pub(crate) fn measured(&self) -> Vec<Measured<CodecSpec>> {
        let all = self.compression().measured();
        let part = |ns: u64, len: usize| (ns as f64 * len as f64 / all.original_len as f64) as u64;
        let measured = self.lens().map(|(before, after)| Measured {
            original_len: before,
            used_len: after.unwrap_or(before),
            took_ns: part(all.took_ns, before),
            away_ns: part(all.away_ns, before),
            ..all
        });
        measured.collect()
    }

    /// Returns the result, as numbers.
    pub fn compression(&self) -> Compression {
        Compression {
            codec: self.job.spec,
            refers: self.job.refers(),
            history_len: self.job.history.len(),
            blocks: self.job.blocks(),
            original_len: self.job.original_len(),
            compressed_len: self.compressed_len(),
            took_ns: self.took_ns,
            away_ns: self.away_ns,
            is_first: self.is_first,
        }
    }
}

/// The numbers of one compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compression {
    /// The codec.
    pub codec: CodecSpec,
    /// True if the result refers to earlier blocks.
    pub refers: bool,
    /// The length of the earlier data that it could refer to.
    pub history_len: usize,
    /// The number of blocks; what follows is of all of them.
    pub blocks: usize,
    /// The length before.
    pub original_len: usize,
    /// The length after; none if the result is of no use and the data are sent uncompressed. In a running context it
    /// may be a little more than before.
    pub compressed_len: Option<usize>,
    /// The time that compressing took, in nanoseconds.
    pub took_ns: u64,
    /// The time until the sender had it back, in nanoseconds, as far as it was said ([`Done::back_after`]).
    pub away_ns: u64,
    /// True if the compressor was made for it, which takes several times as long, once.
    pub is_first: bool,
}

impl Compression {
    /// Returns the length of what is sent, compressed or not.
    pub(crate) fn used_len(&self) -> usize {
        self.compressed_len.unwrap_or(self.original_len)
    }

    /// Returns it as the core takes it in.
    pub(crate) fn measured(&self) -> Measured<CodecSpec> {
        Measured {
            choice: Choice { codec: self.codec, refers: self.refers },
            original_len: self.original_len,
            history_len: self.history_len,
            used_len: self.used_len(),
            took_ns: self.took_ns,
            away_ns: self.away_ns,
            is_first: self.is_first,
        }
    }
}
