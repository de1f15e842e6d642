//! Batches that were lost with their running generation are encoded again, in the next one.
//!
//! Where a generation ends, the peer says up to which byte it has decoded: what was written of that generation
//! behind this byte it has not and will not deliver. It is in the encoder's ring yet, until the next generation
//! cuts that. So mostly no copies are kept of what is sent, only where in the ring each batch is; what is lost is copied
//! when that is known. Only of batches whose headers are predicted from those before there are copies: the ring
//! alone does not say what they were. Each packet is given this second chance once: a path that loses this one, too, would carry
//! little else.

use std::collections::VecDeque;

use dwell_base::time::{MILLI_NS, SECOND_NS};
use dwell_base::{Instant, Rate};
use dwell_codec::ContextEncoder;
use dwell_wire::block::BlockPackets;
use dwell_wire::{Headers, PacketInfo, columnar};

use crate::node::env::Env;
use crate::node::store::InContext;
use crate::node::{LEN_MAX, Node};

/// Bytes of batches of all contexts of a peer that are remembered, the latest of each, and as many that were lost and
/// wait to be encoded again: what can be on its way, within these.
const BYTES_MIN: usize = 1 << 20;
const BYTES_MAX: usize = 16 << 20;
/// Until it is known what came of a batch the link carries others for so many round trips, and so much longer, ...
const ROUND_TRIPS: u64 = 3;
const MARGIN_NS: u64 = 100 * MILLI_NS;
/// ... and what becomes a quarter of itself is as much more before.
const RATIO: u64 = 4;
/// The number of batches of one context: no more have numbers that the peer can tell from others.
const BATCHES_MAX: usize = 1 << 14;
/// They do so while the link needs less time than this for what waits already, ...
const BACKLOG_NS: u64 = 20 * MILLI_NS;
/// ... and at most so many at once.
const AT_ONCE_MAX: usize = 8;
/// Nobody waits any more for what was sent longer ago than a round trip and this.
const OLD_NS: u64 = 2 * SECOND_NS;

/// Returns how many bytes of batches are remembered for a link of this rate to a peer with this round trip.
pub(super) fn remembered_bytes(rate: Option<Rate>, rtt_ns: Option<u64>) -> usize {
    let for_ns = rtt_ns.unwrap_or(0).saturating_mul(ROUND_TRIPS).saturating_add(MARGIN_NS);
    let carried = rate.map_or(0, |rate| rate.bytes_in_ns(for_ns)).saturating_mul(RATIO);
    usize::try_from(carried).unwrap_or(BYTES_MAX).clamp(BYTES_MIN, BYTES_MAX)
}

/// Which packets of a batch were lost before, by their places in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Again(u128);

impl Again {
    /// A batch has no more packets than this has bits; if one had, they would count as lost before.
    pub(super) fn set(&mut self, at: usize, again: bool) {
        self.0 |= u128::from(again) << at.min(127);
    }

    fn is(self, at: usize) -> bool {
        at > 127 || self.0 >> at & 1 == 1
    }
}

/// A batch that was written, by its place in the ring.
#[derive(Clone, Debug)]
struct Original {
    offset: u64,
    len: u16,
    is_columnar: bool,
    /// Its packets, if the ring has them in a form that can't be undone without those before.
    packets: Vec<u8>,
    written_at: Instant,
    again: Again,
}

impl Original {
    /// The bytes for which it counts.
    fn cost(&self) -> usize {
        self.packets.len().max(self.len.into())
    }
}

/// What was written of the present running generation of a context, and may not have come.
#[derive(Debug, Default)]
pub(super) struct Originals {
    /// In the order of their offsets.
    batches: VecDeque<Original>,
    bytes: usize,
    /// The peer has lost all from this offset on, but the encoder was not here when it said so.
    lost_from: Option<u64>,
}

impl Originals {
    /// A batch is written.
    pub(super) fn keep(&mut self, now: Instant, place: &InContext, again: Again, packets: Vec<u8>) {
        if place.start.is_some() {
            self.forget();
        }
        if place.alone.is_some() {
            return;
        }
        let &InContext { offset, original_len: len, headers, .. } = place;
        let is_columnar = headers == Headers::Columnar;
        let original = Original { offset, len, is_columnar, packets, written_at: now, again };
        self.bytes += original.cost();
        self.batches.push_back(original);
        if self.batches.len() > BATCHES_MAX {
            self.forget_first();
        }
    }

    /// Returns the bytes of all batches.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Forgets the oldest batches until they are by so many bytes fewer, or there are none.
    pub(super) fn forget_bytes(&mut self, bytes: usize) {
        let least = self.bytes.saturating_sub(bytes);
        while self.bytes > least {
            self.forget_first();
        }
    }

    /// Returns the bytes of the copies of packets that are held.
    pub(super) fn held_bytes(&self) -> usize {
        self.batches.iter().map(|it| it.packets.capacity()).sum()
    }

    /// The peer has all up to this offset.
    pub(super) fn confirm(&mut self, offset: u64) {
        while self.batches.front().is_some_and(|it| it.offset < offset) {
            self.forget_first();
        }
    }

    /// The peer has lost all from this offset on. Copies it out of the ring, if the encoder is there.
    pub(super) fn lose(
        &mut self,
        offset: u64,
        encoder: Option<&ContextEncoder>,
        lost: &mut LostBatches,
    ) {
        self.confirm(offset);
        let Some(encoder) = encoder else {
            self.lost_from = Some(offset);
            return;
        };
        for original in &mut self.batches {
            let &mut Original { offset, len, is_columnar, written_at, again, .. } = original;
            let mut bytes = std::mem::take(&mut original.packets);
            if !bytes.is_empty() || encoder.read(offset, len.into(), &mut bytes) {
                lost.push(LostBatch { bytes, is_columnar, written_at, again });
            }
        }
        self.forget();
    }

    /// The encoder is here again, with the ring as it was.
    pub(super) fn returned(&mut self, encoder: &ContextEncoder, lost: &mut LostBatches) {
        if let Some(offset) = self.lost_from.take() {
            self.lose(offset, Some(encoder), lost);
        }
    }

    fn forget_first(&mut self) {
        if let Some(first) = self.batches.pop_front() {
            self.bytes -= first.cost();
        }
    }

    /// Nothing of it is in the ring any more, or the peer will never say what it has of it.
    pub(super) fn forget(&mut self) {
        self.batches.clear();
        (self.bytes, self.lost_from) = (0, None);
    }
}

/// A batch that the peer will not deliver, as it was before compression.
#[derive(Clone, Debug)]
pub(super) struct LostBatch {
    pub(super) bytes: Vec<u8>,
    is_columnar: bool,
    written_at: Instant,
    again: Again,
}

impl LostBatch {
    /// Returns its packets that were not lost before, if it is not too old; for tests, of batches of one packet.
    #[cfg(test)]
    pub(super) fn is_first_time(&self) -> bool {
        !self.again.is(0)
    }

    fn is_old(&self, now: Instant, rtt_ns: Option<u64>) -> bool {
        now.since_ns(self.written_at) > OLD_NS.saturating_add(rtt_ns.unwrap_or(0))
    }
}

/// The batches that were lost in any context of a peer, until the link has time for them.
#[derive(Debug, Default)]
pub(super) struct LostBatches {
    batches: VecDeque<LostBatch>,
    bytes: usize,
    /// See [`remembered_bytes`].
    bytes_max: usize,
}

impl LostBatches {
    pub(super) fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// Returns how many bytes may be remembered, and how many may wait.
    pub(super) fn bytes_max(&self) -> usize {
        self.bytes_max.max(BYTES_MIN)
    }

    /// Returns the bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Puts one behind the others. If there are too many, the oldest are lost for good.
    pub(super) fn push(&mut self, batch: LostBatch) {
        self.bytes += batch.bytes.len();
        self.batches.push_back(batch);
        while self.bytes > self.bytes_max() {
            self.pop();
        }
    }

    pub(super) fn pop(&mut self) -> Option<LostBatch> {
        let first = self.batches.pop_front()?;
        self.bytes -= first.bytes.len();
        Some(first)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.batches.clear();
        self.bytes = 0;
    }
}

impl Node {
    /// Puts packets of batches that were lost into the peer's port again, as far as the link has time for them:
    /// all at once they would be more than may wait there.
    pub(in crate::node) fn encode_again(&mut self, env: &mut impl Env, index: usize) {
        let peer = &mut self.peers[index];
        if !peer.contexts.outgoing.has_lost() {
            return;
        }
        if !peer.is_connected() {
            peer.contexts.outgoing.forget_lost();
            return;
        }
        let mut packets = std::mem::take(&mut self.block);
        let now = env.now();
        for _ in 0..AT_ONCE_MAX {
            let peer = &mut self.peers[index];
            if peer.port.waiting_ns() >= BACKLOG_NS {
                break;
            }
            let Some(batch) = peer.contexts.outgoing.take_lost() else { break };
            if !batch.is_old(now, peer.rtt_ns) {
                self.take_apart(env, index, &batch, &mut packets);
            }
        }
        self.block = packets;
    }

    fn take_apart(
        &mut self,
        env: &mut impl Env,
        index: usize,
        batch: &LostBatch,
        packets: &mut Vec<u8>,
    ) {
        let len = if batch.is_columnar {
            packets.resize(LEN_MAX, 0);
            let Ok(restored) = columnar::restore(&batch.bytes, packets) else {
                debug_assert!(false, "it was gathered here");
                return;
            };
            restored.bytes()
        } else {
            packets.clear();
            packets.extend_from_slice(&batch.bytes);
            packets.len()
        };
        let mut rest = &mut packets[..len];
        let mut at = 0;
        while let Some(Ok(len)) = BlockPackets::new(rest).next().map(|it| it.map(<[u8]>::len)) {
            let (packet, behind) = std::mem::take(&mut rest).split_at_mut(len);
            if !batch.again.is(at) {
                self.enqueue_again(env, index, packet);
            }
            (rest, at) = (behind, at + 1);
        }
    }

    fn enqueue_again(&mut self, env: &mut impl Env, index: usize, packet: &mut [u8]) {
        let Ok(info) = PacketInfo::parse(packet, self.flow_seed) else { return };
        let peer = &mut self.peers[index];
        // The path may have become narrower since.
        if packet.len() > usize::from(peer.packet_max()) {
            peer.extra.too_big += 1;
            return;
        }
        peer.contexts.outgoing.counts.encoded_again += 1;
        self.enqueue_as(env, index, packet, (&info, true));
    }
}
