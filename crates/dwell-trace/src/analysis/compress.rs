//! Measures the effect of compressing packets.

use dwell_codec::{CodecError, Compressor, SRC_LEN_MAX};

use super::batch::{Batch, InBatch};
use super::blocks;
use super::bound::Bound;
use super::pairs::CodecSums;
use super::record::{Analysis, size_class};
use super::{Over, Settings};
use crate::frequencies::Frequencies;
use crate::replay::content::{Composition, is_even};

/// A clock; this crate has none.
pub trait Clock {
    /// Nanoseconds since any moment, never going back.
    fn now_ns(&mut self) -> u64;
}

/// The size of a packet that zstd would store: its bytes, and the three of a block's header (RFC
/// 8878 3.1.1.2).
const STORED_HEADER_BYTES: usize = 3;

/// Compresses batches; each thread has its own.
pub struct Analyzer<C> {
    clock: C,
    over: Over,
    codecs: Vec<Compressor>,
    blocks: Option<blocks::Analyzer>,
    bound: Option<Bound>,
    out: Vec<u8>,
    analysis: Analysis,
    /// The results of the present batch, for each packet by the first codec, then by the next.
    results: Vec<Measured>,
    /// The content of the packets of each way, if directions are not known yet.
    ways: Vec<Composition>,
}

/// The results of a packet, by codec.
#[derive(Clone, Copy)]
struct Measured {
    original: usize,
    compressed: usize,
    ns: u64,
}

impl<C: Clock> Analyzer<C> {
    /// Makes the compressors.
    ///
    /// # Errors
    /// If the build lacks a codec or a level.
    pub fn new(settings: &Settings, clock: C) -> Result<Self, CodecError> {
        let compressor = |spec| Compressor::new(spec, None);
        let codecs = settings.codecs.iter().map(|&spec| compressor(spec));
        let codecs = codecs.collect::<Result<_, _>>()?;
        let blocks = settings.block_codec.map(compressor).transpose()?.map(blocks::Analyzer::new);
        Ok(Self {
            clock,
            over: settings.over,
            codecs,
            blocks,
            bound: settings.has_bound().then(Bound::new),
            out: vec![0; 2 * SRC_LEN_MAX],
            analysis: Analysis::new(settings.clone()),
            results: Vec::new(),
            ways: Vec::new(),
        })
    }

    /// Compresses all packets of a batch, which a
    /// [`HistoryAnalyzer`](super::HistoryAnalyzer) may have seen before.
    ///
    /// # Errors
    /// If a library fails in a way that it should not.
    pub fn batch(&mut self, batch: &Batch) -> Result<(), CodecError> {
        self.look(batch);
        self.measure(batch)?;
        if let Some(bound) = &mut self.bound {
            bound.batch(batch, &mut self.analysis.directions.sums);
        }
        Ok(())
    }

    /// Compresses the packets of a batch one by one and in blocks: the part of [`batch`](Self::batch) that needs
    /// nothing of the capture but this batch.
    ///
    /// # Errors
    /// If a library fails in a way that it should not.
    pub fn measure(&mut self, batch: &Batch) -> Result<(), CodecError> {
        self.results.clear();
        for at in 0..self.codecs.len() {
            self.measure_with(batch, at)?;
        }
        self.add(batch);
        if let Some(blocks) = self.blocks.as_mut().filter(|_| batch.with_blocks) {
            let mut now_ns = || self.clock.now_ns();
            blocks.batch(batch, &mut self.analysis.blocks, &mut now_ns)?;
        }
        Ok(())
    }

    /// Returns the sums of all batches.
    pub fn finish(self) -> Analysis {
        self.analysis
    }

    /// Returns the sums of all batches, and what [`Accounts::found`](super::Accounts::found) asks for.
    pub fn finish_ways(self) -> (Analysis, Vec<Composition>) {
        (self.analysis, self.ways)
    }

    /// Sorts packets by content, and measures their entropy: both follow from how often each byte occurs. It is the part
    /// of [`batch`](Self::batch) that follows from how flows began, and compresses nothing.
    pub fn look(&mut self, batch: &Batch) {
        for packet in batch.all() {
            let mut counts = None;
            let content = packet
                .content(|payload| is_even(counts.insert(Frequencies::of(payload)), payload.len()));
            if let Some(content) = content
                && let Some(composition) = self.composition(&packet)
            {
                composition.add(content, packet.info.total_len as u64);
            }
            if packet.is_whole() {
                self.analysis.entropy.record(packet.payload(), counts.as_ref());
            }
        }
    }

    /// Returns the sums that a packet belongs to by its content.
    fn composition(&mut self, packet: &InBatch<'_>) -> Option<&mut Composition> {
        let Some(way) = packet.way else {
            let direction = packet.direction.index()?;
            return Some(&mut self.analysis.directions.sums[direction].composition);
        };
        let way = way as usize;
        if way >= self.ways.len() {
            self.ways.resize(way + 1, Composition::default());
        }
        self.ways.get_mut(way)
    }

    fn measure_with(&mut self, batch: &Batch, codec: usize) -> Result<(), CodecError> {
        self.results.reserve(batch.len());
        // One codec after the other, so that its tables stay in the cache as they do in a relay;
        // and one reading of the clock between two packets.
        let mut before_ns = self.clock.now_ns();
        for packet in batch.iter() {
            let bytes = match self.over {
                Over::Packet => packet.bytes,
                Over::Payload => packet.payload(),
            };
            // There are a few longer ones, made by network cards that put packets together.
            let original = if bytes.len() > SRC_LEN_MAX { 0 } else { bytes.len() };
            let compressed = match original {
                0 => 0,
                len => self.codecs[codec]
                    .compress(bytes, &mut self.out)?
                    .unwrap_or(len + STORED_HEADER_BYTES),
            };
            let now_ns = self.clock.now_ns();
            self.results.push(Measured {
                original,
                compressed,
                ns: now_ns.saturating_sub(before_ns),
            });
            before_ns = now_ns;
        }
        Ok(())
    }

    fn add(&mut self, batch: &Batch) {
        let count = self.codecs.len();
        let packets = self.results.len() / count.max(1);
        for (at, packet) in batch.iter().take(packets).enumerate() {
            let original = self.results[at].original;
            if original == 0 {
                continue;
            }
            let pair = self.analysis.pairs.entry(packet.pair);
            let size = &mut self.analysis.sizes[size_class(original)];
            for part in [pair, size] {
                part.codecs.resize(count, CodecSums::default());
                part.measured_packets += 1;
                part.measured_bytes += original as u64;
                let measured = self.results[at..].iter().step_by(packets);
                measured
                    .zip(&mut part.codecs)
                    .for_each(|(measured, sums)| sums.add(&measured.sums()));
            }
        }
    }
}

impl Measured {
    fn sums(&self) -> CodecSums {
        CodecSums {
            compressed: self.compressed as u64,
            sent: self.compressed.min(self.original) as u64,
            expanded: u64::from(self.compressed > self.original),
            ns: self.ns,
        }
    }
}
