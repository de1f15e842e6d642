//! Batches of packets to compress.

use dwell_wire::PacketInfo;

use super::pairs::Pair;
use crate::datagram::Datagram;
use crate::replay::content::{Begun, ContentClass};
use crate::sides::Direction;

/// The number of packets of a batch, if they are not too long. Blocks are made within a batch, so
/// that this is also the longest queue that they are measured for.
pub const BATCH_PACKETS: usize = 2000;
/// The bytes beyond which a batch is full before it has all its packets.
const BATCH_BYTES: usize = 1 << 20;

/// Packets, one behind the other, with their results. Those that were not captured whole are
/// compressed only for the bound.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    packets: Vec<Item>,
    /// True if blocks are to be made of these packets.
    pub with_blocks: bool,
    /// The number of the batch in its capture.
    pub(super) number: u64,
    /// The least that the packets of each direction become with what came before them to refer to,
    /// if that was found out.
    pub(super) least_after: [Option<usize>; 2],
}

#[derive(Clone, Copy, Debug)]
struct Item {
    end: usize,
    info: PacketInfo,
    pair: Pair,
    direction: Direction,
    begun: Option<Begun>,
    way: Option<u32>,
}

/// What a packet was counted under.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    pub(super) pair: Pair,
    pub(super) direction: Direction,
    /// The place of its way, if directions are not known yet.
    pub(super) way: Option<u32>,
}

/// A packet of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct InBatch<'b> {
    pub(super) bytes: &'b [u8],
    pub(super) info: &'b PacketInfo,
    pub(super) pair: Pair,
    pub(super) direction: Direction,
    /// The place of its way, if directions are not known yet.
    pub(super) way: Option<u32>,
    begun: Option<Begun>,
}

impl InBatch<'_> {
    /// Returns true if all of it was captured.
    pub(super) fn is_whole(&self) -> bool {
        self.bytes.len() == self.info.total_len
    }

    /// Returns the class of its content, if it is to be sorted. `is_even`: whether its payload is, asked only where it
    /// matters.
    pub(super) fn content(&self, is_even: impl FnOnce(&[u8]) -> bool) -> Option<ContentClass> {
        Some(self.begun?.class(self.bytes, self.info, !self.is_whole(), is_even))
    }

    /// Returns the payload behind the headers of IP and of TCP or UDP.
    pub(super) fn payload(&self) -> &[u8] {
        self.bytes.get(usize::from(self.info.header_len)..).unwrap_or_default()
    }
}

impl Batch {
    /// Adds a packet that was counted. Returns true if the batch is full. `begun`: what is known of its flow, if it is to be
    /// sorted by content.
    pub(super) fn push(
        &mut self,
        datagram: &Datagram<'_>,
        counted: Counted,
        begun: Option<Begun>,
    ) -> bool {
        let Counted { pair, direction, way } = counted;
        self.bytes.extend_from_slice(datagram.bytes);
        let info = datagram.info;
        self.packets.push(Item { end: self.bytes.len(), info, pair, direction, begun, way });
        self.packets.len() >= BATCH_PACKETS || self.bytes.len() >= BATCH_BYTES
    }

    /// Empties it, and keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.packets.clear();
        self.least_after = [None; 2];
    }

    /// Returns true if it has no packet.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Returns the number of its packets.
    pub fn packets(&self) -> usize {
        self.packets.len()
    }

    /// Returns the packets that were captured whole.
    pub(super) fn iter(&self) -> impl Iterator<Item = InBatch<'_>> {
        self.all().filter(InBatch::is_whole)
    }

    /// Returns all packets, with the captured part of each.
    pub(super) fn all(&self) -> impl Iterator<Item = InBatch<'_>> {
        let starts = std::iter::once(0).chain(self.packets.iter().map(|item| item.end));
        self.packets.iter().zip(starts).map(|(item, start)| InBatch {
            bytes: &self.bytes[start..item.end],
            info: &item.info,
            pair: item.pair,
            direction: item.direction,
            begun: item.begun,
            way: item.way,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }
}
