//! A node on the path between two others: what came compressed goes on unopened, and what came raw goes
//! on without the kernel, so that the packets of a flow keep their order.
//!
//! Shimamura et al., section 3: nodes between the ends forward packets, and compress those that nobody
//! compressed before them. What can't be forwarded so goes through the TUN, as in a node without transit.

use std::hash::{DefaultHasher, Hash, Hasher};

use dwell_policy::{ClassKey, Event, Gather, Packet};
use dwell_report::status::Count;
use dwell_wire::carried::carried_extra_len;
use dwell_wire::record::carried_record_len;
use dwell_wire::{Carried, Label, PacketInfo, Unit, hop};

use super::Node;
use super::env::Env;
use super::store::{Compressed, Onward, Treatment};

impl Node {
    /// Gives what came compressed to the peer that all its packets are for, unopened. False if that
    /// can't be done, and it is to be restored.
    pub(super) fn forward_unopened(
        &mut self,
        env: &mut impl Env,
        from: usize,
        carried: &Carried<'_>,
    ) -> bool {
        let Some(to) = self.next_hop(from, &carried.label) else { return false };
        if !self.peers[to].can_forward(carried) {
            return false;
        }
        let record_bytes = carried_record_len(carried) as u64;
        let rx = &mut self.peers[from].rx;
        let Some(hop_limit) = carried.hop_limit.checked_sub(1).filter(|limit| *limit > 0) else {
            rx.hop_limit += 1;
            return true;
        };
        add(&mut rx.forwarded_compressed, record_bytes);
        let onward =
            self.peers[to].forwards().then_some(Onward { hop_limit, label: carried.label });
        let (data, _) = carried.data();
        let extra = onward.map_or(0, |onward| carried_extra_len(&onward.label));
        // Nobody knows its classes: it is compressed already, and may be sent again.
        let treatment = Treatment::default();
        let id = self.store.insert_compressed(data, compressed_of(carried, onward), treatment);
        let mut hasher = DefaultHasher::new();
        (self.flow_seed, carried.label).hash(&mut hasher);
        let arrival = Packet {
            id,
            bytes: (data.len() + extra) as u32,
            source: ClassKey::default(),
            destination: ClassKey::default(),
            flow: hasher.finish(),
            group: self.group_of_label(to, &carried.label),
            max_wait_ns: Packet::NEVER_HELD,
            batch_bytes_max: u32::MAX,
            looks_random: false,
            takes_mark: false,
            compressed: true,
        };
        let peer = &mut self.peers[to];
        add(&mut peer.extra.forwarded_compressed, record_bytes);
        peer.port.handle(env.now(), Event::Arrive(arrival));
        self.handed_to(to);
        true
    }

    /// Gives a packet that came from one peer to another one, as a router does. False, and nothing is
    /// changed, if it is for this node, or the kernel has more to do with it.
    pub(super) fn forward(
        &mut self,
        env: &mut impl Env,
        from: usize,
        packet: &mut [u8],
        info: &PacketInfo,
    ) -> bool {
        let Some(to) = self.next_hop(from, &Label::host(info.dst)) else { return false };
        let peer = &self.peers[to];
        // The kernel cuts those that are too long, or notifies their senders.
        let fits = packet.len() <= usize::from(peer.packet_max());
        if !peer.is_connected() || !fits || !hop::forward(packet) {
            return false;
        }
        add(&mut self.peers[from].rx.forwarded, packet.len() as u64);
        self.enqueue(env, to, packet, info);
        self.handed_to(to);
        true
    }

    /// Returns the peer that all addresses of a label lead to, if this node is on their path.
    fn next_hop(&mut self, from: usize, label: &Label) -> Option<usize> {
        if !self.transit {
            return None;
        }
        self.routes.peer_of(label).filter(|to| *to != from)
    }

    /// With which packets a unit may share a block, and so an order: see
    /// [`group_key`](dwell_drive::group_key).
    fn group_of_label(&self, to: usize, label: &Label) -> u64 {
        let peer = &self.peers[to];
        match (peer.port.config().scheme.gather(), peer.forwards()) {
            (Gather::Edge, false) => 0,
            (Gather::Edge, true) => {
                let entry = self.outbound.entry_of_all(label);
                entry.map_or(Packet::ANY_GROUP, |entry| entry as u64)
            }
            _ => Packet::ANY_GROUP,
        }
    }

    fn handed_to(&mut self, to: usize) {
        if !self.handed.contains(&to) {
            self.handed.push(to);
        }
    }

    /// Pumps the peers that were handed something by other peers.
    pub fn pump_handed(&mut self, env: &mut impl Env) {
        while let Some(to) = self.handed.pop() {
            self.pump(env, to);
        }
    }

    /// The same for peers whose links are paced: each datagram's worth separately.
    pub(super) fn pump_paced(&mut self, env: &mut impl Env) {
        while let Some(at) = self.handed.iter().position(|&to| self.is_paced(to)) {
            let to = self.handed.swap_remove(at);
            self.pump(env, to);
        }
    }
}

fn add(count: &mut Count, bytes: u64) {
    count.packets += 1;
    count.bytes += bytes;
}

fn compressed_of(carried: &Carried<'_>, onward: Option<Onward>) -> Compressed {
    match carried.unit {
        Unit::Compressed(compressed) => Compressed {
            codec: compressed.codec,
            epoch: compressed.epoch,
            original_len: compressed.original_len,
            is_block: false,
            is_columnar: false,
            onward,
        },
        Unit::Block(block) => Compressed {
            codec: block.codec,
            epoch: 0,
            original_len: block.original_len,
            is_block: true,
            is_columnar: block.is_columnar(),
            onward,
        },
    }
}
