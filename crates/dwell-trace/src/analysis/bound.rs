//! The least that packets can become, whatever relays do.
//!
//! A link makes packets wait, and packets that wait together are compressed together. The bound
//! takes this to its end: whole stretches of one direction are compressed at once, by a codec that
//! is stronger than those of relays and with a memory that is longer than their blocks, in four
//! orders of which the best counts; and the same stretch with all of the direction before it, by a
//! context that is longer than those of relays ([`Running`]). The datagrams with the result are full.
//! No scheme of a replay has more to refer to or less overhead, so that none saves more bytes.

use dwell_codec::{Base, CONTEXT_BATCH_LEN_MAX, CodecError, ContextEncoder, ContextSpec};
use dwell_wire::columnar::{PACKETS_MAX, columnar, grown_bytes_max};
use zstd_safe::{CCtx, CParameter, FrameFormat};

use super::batch::{Batch, InBatch};
use super::directions::DirectionSums;
use crate::replay::link::{bare_bytes, least_bytes};

/// Stretches up to this length are compressed by the strongest level.
const STRONGEST_BYTES_MAX: usize = 256 << 10;
const STRONGEST_LEVEL: i32 = 19;
/// The number of batches of a capture that are compressed by a strong level if they are longer ...
const STRONG_BATCHES: u64 = 16;
const STRONG_LEVEL: i32 = 12;
/// ... and all others by this one, which still has a hundred times the memory of a relay's block.
const OTHER_LEVEL: i32 = 6;

/// Compresses stretches of packets.
pub(super) struct Bound {
    context: CCtx<'static>,
    stretch: Stretch,
    out: Vec<u8>,
}

/// The packets of a stretch, one behind the other.
struct Stretch {
    joined: Vec<u8>,
    columns: Vec<u8>,
}

impl Bound {
    pub(super) fn new() -> Self {
        Self { context: CCtx::create(), stretch: Stretch::new(), out: Vec::new() }
    }

    /// Adds the bytes of a batch's packets on a link without relays, and the least that they can
    /// become.
    pub(super) fn batch(&mut self, batch: &Batch, sums: &mut [DirectionSums; 2]) {
        for (direction, sums) in sums.iter_mut().enumerate() {
            let mut packets = of_direction(batch, direction);
            if packets.is_empty() {
                continue;
            }
            let captured: usize = packets.iter().map(|packet| packet.bytes.len()).sum();
            let level = match captured {
                ..=STRONGEST_BYTES_MAX => STRONGEST_LEVEL,
                _ if batch.number < STRONG_BATCHES => STRONG_LEVEL,
                _ => OTHER_LEVEL,
            };
            let mut least = captured.min(batch.least_after[direction].unwrap_or(captured));
            for _ in 0..2 {
                least = least.min(self.joined(&packets, level)).min(self.columns(&packets, level));
                // Flows one after the other, each in its order.
                packets.sort_by_key(|packet| packet.info.flow_hash);
            }
            let on_wire: u64 = packets.iter().map(|packet| packet.info.total_len as u64).sum();
            // Bytes missing in the capture count as incompressible, as in a replay.
            let missing = on_wire.saturating_sub(captured as u64);
            sums.least_bytes += least_bytes(least as u64 + missing);
            sums.link_bytes += packets.iter().map(|packet| bare_bytes(packet.info)).sum::<u64>();
        }
    }

    fn joined(&mut self, packets: &[InBatch<'_>], level: i32) -> usize {
        self.stretch.join(packets);
        self.compress(level)
    }

    /// Compresses the packets with equal fields of the headers beside each other.
    fn columns(&mut self, packets: &[InBatch<'_>], level: i32) -> usize {
        self.stretch.join_columns(packets);
        self.compress(level)
    }

    /// Returns the compressed length of the stretch; its own length if the codec fails.
    fn compress(&mut self, level: i32) -> usize {
        let joined = &self.stretch.joined;
        let bytes = joined.len();
        self.out.resize(zstd_safe::compress_bound(bytes), 0);
        let context = &mut self.context;
        let parameters = [
            CParameter::CompressionLevel(level),
            CParameter::Format(FrameFormat::Magicless),
            CParameter::ContentSizeFlag(false),
        ];
        let is_set =
            parameters.into_iter().all(|parameter| context.set_parameter(parameter).is_ok());
        let result = context.compress2(&mut self.out[..], joined);
        result.ok().filter(|_| is_set).map_or(bytes, |len| len.min(bytes))
    }
}

impl Stretch {
    fn new() -> Self {
        let columns = vec![0; PACKETS_MAX * (usize::from(u16::MAX) + 64)];
        Self { joined: Vec::new(), columns }
    }

    fn join(&mut self, packets: &[InBatch<'_>]) {
        self.joined.clear();
        packets.iter().for_each(|packet| self.joined.extend_from_slice(packet.bytes));
    }

    /// Puts equal fields of the headers beside each other.
    fn join_columns(&mut self, packets: &[InBatch<'_>]) {
        self.joined.clear();
        for group in packets.chunks(PACKETS_MAX) {
            let bytes: Vec<&[u8]> = group.iter().map(|packet| packet.bytes).collect();
            let room = bytes.iter().map(|bytes| bytes.len()).sum::<usize>();
            let room = (room + grown_bytes_max(bytes.len())).min(self.columns.len());
            match columnar(&bytes, &mut self.columns[..room]) {
                Some(len) => self.joined.extend_from_slice(&self.columns[..len]),
                None => bytes.iter().for_each(|bytes| self.joined.extend_from_slice(bytes)),
            }
        }
    }
}

/// The packets of a direction.
fn of_direction(batch: &Batch, direction: usize) -> Vec<InBatch<'_>> {
    batch.all().filter(|packet| packet.direction.index() == Some(direction)).collect()
}

/// The level of contexts that are asked for the least.
const RUNNING_LEVEL: i32 = 12;

/// Compresses stretches with all that went before them in their direction: a context for each
/// direction, and one for its packets in columns.
pub(super) struct Running {
    contexts: [[ContextEncoder; 2]; 2],
    stretch: Stretch,
    out: Vec<u8>,
}

impl Running {
    /// Makes the contexts.
    ///
    /// # Errors
    /// If there is no memory.
    pub(super) fn new() -> Result<Self, CodecError> {
        let new = || ContextEncoder::new(Self::SPEC, Self::SPEC.window_log);
        let contexts = [[new()?, new()?], [new()?, new()?]];
        Ok(Self { contexts, stretch: Stretch::new(), out: Vec::new() })
    }

    const SPEC: ContextSpec = ContextSpec { level: RUNNING_LEVEL, window_log: 21 };

    /// Begins another capture.
    ///
    /// # Errors
    /// If the codec fails.
    pub(super) fn begin(&mut self) -> Result<(), CodecError> {
        let mut contexts = self.contexts.as_flattened_mut().iter_mut();
        contexts.try_for_each(|context| context.begin(Self::SPEC, Base::default()))
    }

    /// Notes in the batch what its packets become.
    ///
    /// # Errors
    /// If the codec fails.
    pub(super) fn batch(&mut self, batch: &mut Batch) -> Result<(), CodecError> {
        for direction in 0..2 {
            let packets = of_direction(batch, direction);
            if packets.is_empty() {
                continue;
            }
            let [plain, columns] = &mut self.contexts[direction];
            self.stretch.join(&packets);
            let least = stretch_len(plain, &self.stretch, &mut self.out)?;
            self.stretch.join_columns(&packets);
            let least = least.min(stretch_len(columns, &self.stretch, &mut self.out)?);
            batch.least_after[direction] = Some(least);
        }
        Ok(())
    }
}

/// Returns the length of a stretch in a context.
fn stretch_len(
    context: &mut ContextEncoder,
    stretch: &Stretch,
    out: &mut Vec<u8>,
) -> Result<usize, CodecError> {
    out.clear();
    for part in stretch.joined.chunks(CONTEXT_BATCH_LEN_MAX) {
        context.compress(part, out)?;
    }
    Ok(out.len())
}
