//! From records to packets: what came compressed is restored, and handed to the TUN.

use dwell_base::Instant;
use dwell_codec::CodecId;
use dwell_wire::columnar::Restored;
use dwell_wire::record::BLOCK_PACKETS_MAX;
use dwell_wire::{Block, BlockPackets, Compressed, Fragment, PacketInfo, Record, Records, Unit};

use super::contexts::Origin;
use super::env::Env;
use super::outbound::clamp;
use super::peer::Peer;
use super::turns::PACKET_NS;
use super::{LEN_MAX, Node};
use crate::config::class_of;

impl Node {
    /// A record with packets, of the present session or not.
    pub(super) fn take_in(
        &mut self,
        env: &mut impl Env,
        (now, origin): (Instant, Origin),
        index: usize,
        record: &Record<'_>,
    ) {
        self.peers[index].data_records += 1;
        match record {
            Record::Fragment(fragment) => {
                self.fragment(env, (now, origin), index, fragment);
            }
            whole => {
                self.whole(env, (now, origin), index, whole);
            }
        }
    }

    /// A record that is no part of one; false if it holds no packets.
    fn whole(
        &mut self,
        env: &mut impl Env,
        (now, origin): (Instant, Origin),
        index: usize,
        record: &Record<'_>,
    ) -> bool {
        match record {
            Record::Context(record) => self.of_context(env, (now, origin), index, record),
            Record::Raw(packet) => self.raw(env, index, packet),
            Record::Compressed(compressed) => self.restore_packet(env, index, compressed),
            Record::Block(block) => {
                self.peers[index].contexts.incoming.came_outside();
                self.restore_block(env, index, block);
            }
            Record::Carried(carried) if self.forward_unopened(env, index, carried) => {}
            Record::Carried(carried) => match &carried.unit {
                Unit::Compressed(compressed) => self.restore_packet(env, index, compressed),
                Unit::Block(block) => self.restore_block(env, index, block),
            },
            _ => return false,
        }
        true
    }

    fn fragment(
        &mut self,
        env: &mut impl Env,
        (now, origin): (Instant, Origin),
        index: usize,
        fragment: &Fragment<'_>,
    ) {
        let is_present = origin.is_present;
        let peer = &mut self.peers[index];
        peer.rx.fragments += 1;
        let Some(joined) = peer.reassembly.insert(now, is_present, fragment) else { return };
        let mut records = Records::new(&joined);
        let (Some(Ok(record)), None) = (records.next(), records.next()) else {
            peer.rx.malformed += 1;
            return;
        };
        // The datagrams before this one brought most of it.
        peer.turn.packets_left.add(joined.len());
        if is_present && record.is_kept() {
            peer.reorder.activate(now);
        }
        if matches!(record, Record::Fragment(_)) || !self.whole(env, (now, origin), index, &record)
        {
            self.peers[index].rx.malformed += 1;
        }
    }

    pub(super) fn raw(&mut self, env: &mut impl Env, index: usize, packet: &[u8]) {
        if !self.may_hold_another(index) {
            return;
        }
        let Some(info) = self.accept(index, packet) else { return };
        self.peers[index].rx.raw += 1;
        if !info.tcp_syn && !self.transit {
            self.count_in(index, packet);
            env.deliver(packet);
            return;
        }
        // A copy is changed.
        let mut scratch = std::mem::take(&mut self.scratch);
        let copy = &mut scratch[..packet.len()];
        copy.copy_from_slice(packet);
        self.hand_over(env, index, copy, &info);
        self.scratch = scratch;
    }

    fn restore_packet(&mut self, env: &mut impl Env, index: usize, compressed: &Compressed<'_>) {
        if !self.may_hold_another(index) {
            return;
        }
        let codec = if compressed.epoch == 0 { Some(compressed.codec) } else { None };
        let Some(len) = self.decompress(index, codec, compressed.data, compressed.original_len)
        else {
            self.peers[index].rx.decode_failed += 1;
            return;
        };
        let mut scratch = std::mem::take(&mut self.scratch);
        self.restored(env, index, &mut scratch[..len]);
        self.scratch = scratch;
    }

    fn restore_block(&mut self, env: &mut impl Env, index: usize, block: &Block<'_>) {
        if self.peers[index].turn.packets_left.left() == 0 {
            self.peers[index].rx.too_many_packets += 1;
            return;
        }
        let codec = if block.is_of_later_version() { None } else { Some(block.codec) };
        let Some(len) = self.decompress(index, codec, block.data, block.original_len) else {
            self.peers[index].rx.decode_failed += 1;
            return;
        };
        let mut scratch = std::mem::take(&mut self.scratch);
        if block.is_columnar() {
            self.columnar(env, index, &scratch[..len]);
        } else {
            self.one_after_another(env, index, &mut scratch[..len]);
        }
        self.scratch = scratch;
    }

    /// The packets of a block that was not rearranged.
    pub(super) fn one_after_another(
        &mut self,
        env: &mut impl Env,
        index: usize,
        mut rest: &mut [u8],
    ) {
        self.peers[index].rx.blocks += 1;
        let mut packets = 0;
        while !rest.is_empty() {
            let Some(Ok(len)) = BlockPackets::new(rest).next().map(|found| found.map(<[u8]>::len))
            else {
                self.peers[index].rx.malformed += 1;
                break;
            };
            if packets == BLOCK_PACKETS_MAX {
                self.peers[index].rx.too_many_packets += 1;
                break;
            }
            packets += 1;
            if !self.may_hold_another(index) {
                break;
            }
            let (packet, behind) = std::mem::take(&mut rest).split_at_mut(len);
            self.restored(env, index, packet);
            rest = behind;
        }
    }

    /// The packets of a block that was rearranged.
    pub(super) fn columnar(&mut self, env: &mut impl Env, index: usize, rearranged: &[u8]) {
        self.restore_batch(env, index, |_, packets| {
            dwell_wire::columnar::restore(rearranged, packets).ok()
        });
    }

    /// The packets of a batch of a context whose headers are predicted.
    pub(super) fn predicted(
        &mut self,
        env: &mut impl Env,
        index: usize,
        context: u8,
        batch: &[u8],
    ) {
        self.restore_batch(env, index, |peer, packets| {
            peer.contexts.incoming.restore_headers(context, batch, packets)
        });
    }

    /// The packets that this restores, if it can.
    fn restore_batch(
        &mut self,
        env: &mut impl Env,
        index: usize,
        restore: impl FnOnce(&mut Peer, &mut [u8]) -> Option<Restored>,
    ) {
        let mut packets = std::mem::take(&mut self.block);
        packets.resize(LEN_MAX, 0);
        match restore(&mut self.peers[index], &mut packets) {
            None => self.peers[index].rx.decode_failed += 1,
            Some(restored) => {
                self.peers[index].rx.blocks += 1;
                let mut rest = &mut packets[..restored.bytes()];
                for &len in restored.lens() {
                    if !self.may_hold_another(index) {
                        break;
                    }
                    let (packet, behind) = std::mem::take(&mut rest).split_at_mut(len.into());
                    self.restored(env, index, packet);
                    rest = behind;
                }
            }
        }
        self.block = packets;
    }

    /// Returns true if the datagram may hold one packet more; counts it.
    fn may_hold_another(&mut self, index: usize) -> bool {
        let peer = &mut self.peers[index];
        if !peer.turn.packets_left.take() {
            peer.rx.too_many_packets += 1;
            return false;
        }
        peer.turn.charge(PACKET_NS);
        true
    }

    /// Restores compressed bytes into the scratch; `None` if that can't be done.
    fn decompress(
        &mut self,
        index: usize,
        codec: Option<u8>,
        data: &[u8],
        original_len: u16,
    ) -> Option<usize> {
        // It costs as much if it fails.
        self.peers[index].turn.charge_bytes(original_len.into());
        let codec = CodecId::from_wire(codec?)?;
        let len = usize::from(original_len);
        // The decoder can't write beyond what the record declares.
        let out = &mut self.scratch[..len];
        let decoded = self.decompressor.decompress(codec, None, data, out);
        (decoded == Ok(len)).then_some(len)
    }

    /// Hands over a packet that came compressed.
    fn restored(&mut self, env: &mut impl Env, index: usize, packet: &mut [u8]) {
        let Some(info) = self.accept(index, packet) else { return };
        self.peers[index].rx.compressed += 1;
        self.hand_over(env, index, packet, &info);
    }

    /// Hands a packet to the peer that it is for, if this node is on its path; else to the TUN.
    fn hand_over(
        &mut self,
        env: &mut impl Env,
        index: usize,
        packet: &mut [u8],
        info: &PacketInfo,
    ) {
        self.count_in(index, packet);
        if self.forward(env, index, packet, info) {
            return;
        }
        if info.tcp_syn {
            clamp(packet, self.tun_mtu);
        }
        env.deliver(packet);
    }

    fn count_in(&mut self, index: usize, packet: &[u8]) {
        let packets = &mut self.peers[index].rx.packets;
        packets.packets += 1;
        packets.bytes += packet.len() as u64;
    }

    /// Only whole IP packets from addresses that belong to the peer come in.
    fn accept(&mut self, index: usize, packet: &[u8]) -> Option<PacketInfo> {
        let info = PacketInfo::parse(packet, self.flow_seed);
        let Some(info) = info.ok().filter(|info| info.total_len == packet.len()) else {
            self.peers[index].rx.malformed += 1;
            return None;
        };
        if self.inbound.peer_of(info.src) != Some(index) {
            self.peers[index].rx.not_allowed += 1;
            self.peers[index].delivery.not_allowed(info.src);
            return None;
        }
        if !self.classes.is_empty() {
            let class = class_of(&self.classes, &info);
            self.peers[index].classes.received(class, packet.len());
        }
        Some(info)
    }
}
