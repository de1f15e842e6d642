//! From the TUN to the link.

use dwell_base::Instant;
use dwell_policy::{Action, Admission, ClassKey, Outcome, Packet, PacketId};
use dwell_report::status::PeerState;
use dwell_wire::header::{DATA_HEADER_LEN, PRESSED_HEADER_LEN};
use dwell_wire::icmp::{ICMP_V6_LEN_MAX, packet_too_big};
use dwell_wire::mss::clamp_mss;
use dwell_wire::{BodyWriter, CloseReason, Control, PacketInfo};

use super::env::{Destination, Env, NodeEvent, PressJob, Pressing, Ticket};
use super::pacer::Pacing;
use super::peer::Peer;
use super::store::{Pressed, Store};
use super::{Node, enter};
use crate::config::Config;
use crate::trust::HELLO_LEN_MAX;

/// Bytes of IP and TCP headers without options.
const TCP_V4_BYTES: u16 = 40;
const TCP_V6_BYTES: u16 = 60;

impl Node {
    /// A packet came out of the TUN. Returns the peer that it now waits for, if any; the
    /// driver calls [`Node::pump`] for that peer when it has read what there was.
    pub fn packet(&mut self, env: &mut impl Env, packet: &mut [u8]) -> Option<usize> {
        let Ok(info) = PacketInfo::parse(packet, self.flow_seed) else {
            self.drops.malformed_packet += 1;
            return None;
        };
        let packet = &mut packet[..info.total_len];
        let Some(index) = self.outbound.peer_of(info.dst) else {
            self.drops.no_route += 1;
            return None;
        };
        let peer = &mut self.peers[index];
        if peer.handshake.current().is_none() || peer.state != PeerState::Up {
            peer.extra.unconnected += 1;
            return None;
        }
        let packet_max = peer.packet_max();
        if packet.len() > usize::from(packet_max) {
            peer.extra.too_big += 1;
            refuse_too_big(env, packet, &info, packet_max);
            return None;
        }
        if info.tcp_syn {
            clamp(packet, self.tun_mtu.min(packet_max));
        }
        let id = self.store.insert(packet);
        let arrival = Packet {
            id,
            bytes: packet.len() as u32,
            source: ClassKey::new(info.protocol, info.src_port),
            destination: ClassKey::new(info.protocol, info.dst_port),
            flow: info.flow_hash,
            group: info.flow_hash,
            hold_ns: Packet::NEVER_HELD,
            pressed: false,
        };
        if let Admission::Dropped(_) = peer.port.arrive(env.now(), arrival) {
            self.store.remove(id);
            return None;
        }
        Some(index)
    }

    /// Lets a peer's port press and send what it can.
    ///
    /// With a paced link a packet should be pumped before the next one arrives; without
    /// pacing, pumping after a batch lets its small packets share datagrams.
    pub fn pump(&mut self, env: &mut impl Env, index: usize) {
        let peer = &mut self.peers[index];
        peer.port.set_rate(peer.pacer.rate());
        let paced = matches!(peer.pacer.pacing(), Pacing::Fixed(_));
        loop {
            let now = env.now();
            if paced {
                offer_link(peer, now);
            }
            let mut action = peer.port.poll(now);
            // Without pacing, packets that are not to be pressed are moved before the link is
            // offered: they came in one batch, and the small ones share datagrams.
            if !paced && !matches!(action, Some(Action::Send)) {
                offer_link(peer, now);
                while let Some(Action::Send) = peer.port.poll(now) {
                    send_frame(peer, index, &mut self.store, env, now);
                    offer_link(peer, now);
                }
                peer.port.link_busy();
            }
            match action.take() {
                Some(Action::Send) => send_frame(peer, index, &mut self.store, env, now),
                Some(Action::Press(id)) => {
                    press(peer, index, id, &mut self.store, &mut self.scratch, env);
                }
                Some(Action::PressBlock) => refuse_block(peer),
                Some(Action::Drop(id, _)) => self.store.remove(id),
                None => break,
            }
        }
        if peer.port.is_empty() && !peer.pacer.is_blocked() {
            peer.pacer.idle(env.now());
        }
        peer.port.link_busy();
    }

    /// [`Node::pump`] for every peer.
    pub fn pump_all(&mut self, env: &mut impl Env) {
        for index in 0..self.peers.len() {
            self.pump(env, index);
        }
    }

    /// A worker is done with a [`PressJob`] that was [`Pressing::Pending`]: `result` is the
    /// compressed packet, or nothing if it did not become smaller.
    pub fn pressed(&mut self, ticket: Ticket, result: Result<Option<&[u8]>, ()>, took_ns: u64) {
        let Ticket { peer, generation, id } = ticket;
        let peer = &mut self.peers[peer];
        if peer.removed || peer.generation != generation {
            self.store.remove(id); // the port that waited for it is gone
            return;
        }
        let outcome = match result {
            Ok(Some(bytes)) => keep_pressed(peer, id, &mut self.store, bytes),
            Ok(None) => Outcome::NotSmaller,
            Err(()) => Outcome::Failed,
        };
        peer.port.pressed(id, outcome, took_ns);
    }

    /// The socket refused a datagram that was flushed after [`Env::commit`].
    pub fn link_blocked(&mut self, now: Instant, peer: usize) {
        self.peers[peer].pacer.blocked(now);
    }

    /// The socket takes datagrams again. The driver pumps next.
    pub fn link_writable(&mut self, peer: usize) {
        self.peers[peer].pacer.writable();
    }

    /// The kernel has sent all that it was given before we gave it more: see
    /// [`Pacer::ran_dry`](super::Pacer::ran_dry).
    pub fn link_ran_dry(&mut self, peer: usize) {
        self.peers[peer].pacer.ran_dry();
    }

    /// Does what time asks for: hellos, probes, reports, and giving up on silent peers.
    pub fn timers(&mut self, env: &mut impl Env) {
        let now = env.now();
        for index in 0..self.peers.len() {
            let peer = &mut self.peers[index];
            if peer.removed {
                continue;
            }
            if peer.handshake.expire(now) {
                self.give_up(env, index);
            }
            let peer = &mut self.peers[index];
            say_hello(peer, index, env, now);
            let due = peer.due(now, self.patience);
            if due.dead {
                self.give_up(env, index);
                continue;
            }
            let peer = &mut self.peers[index];
            if due.probe {
                peer.probed(now);
                peer.spoke(now);
                let probe = Control::Probe { sender_time_ns: now.as_ns(), id: index as u32 };
                send_control(peer, index, env, &probe);
            }
            if due.report {
                let report = Control::Report(peer.report(now));
                send_control(peer, index, env, &report);
            }
        }
    }

    /// Tells every peer that this node is going.
    pub fn close(&mut self, env: &mut impl Env, reason: CloseReason) {
        for (index, peer) in self.peers.iter_mut().enumerate() {
            send_control(peer, index, env, &Control::Close { reason });
        }
    }

    /// Tells the peers that `config` does not have any more, or has with another key, that
    /// their sessions end. To be called before [`Node::reconfigure`].
    pub fn farewell(&mut self, env: &mut impl Env, config: &Config) {
        for (index, peer) in self.peers.iter_mut().enumerate() {
            let stays = config
                .peers
                .iter()
                .any(|new| new.name == peer.config.name && new.security == peer.config.security);
            if !peer.removed && !stays {
                send_control(peer, index, env, &Control::Close { reason: CloseReason::Reload });
            }
        }
    }

    /// The peer is dead: its sessions and what waits for it are forgotten, and a new
    /// handshake begins.
    pub(super) fn give_up(&mut self, env: &mut impl Env, index: usize) {
        let peer = &mut self.peers[index];
        peer.handshake.forget();
        peer.port.clear(|id| self.store.remove(id));
        if enter(&mut peer.state, PeerState::Down) {
            env.event(NodeEvent::Down(index));
        }
    }
}

/// Tells the sender how long its packets can be.
///
/// The answer comes in the name of the packet's destination: a kernel takes what arrives in
/// one of its own names for forged, and the destination is where the TUN leads to, so that
/// filters on the reverse path pass it.
fn refuse_too_big(env: &mut impl Env, packet: &[u8], info: &PacketInfo, max: u16) {
    let mut out = [0; ICMP_V6_LEN_MAX];
    if !info.dont_fragment {
        return;
    }
    if let Some(len) = packet_too_big(packet, max, info.dst, &mut out) {
        env.deliver(&out[..len]);
    }
}

/// Keeps a TCP connection's segments within `mtu`.
pub(super) fn clamp(packet: &mut [u8], mtu: u16) {
    clamp_mss(packet, mtu.saturating_sub(TCP_V4_BYTES), mtu.saturating_sub(TCP_V6_BYTES));
}

fn offer_link(peer: &mut Peer, now: Instant) {
    // Without a session there is nobody to send to; what came out of the press meanwhile waits.
    if peer.handshake.current().is_some() && peer.pacer.ready(now) {
        peer.port.link_ready();
    } else {
        peer.port.link_busy();
    }
}

fn say_hello(peer: &mut Peer, index: usize, env: &mut impl Env, now: Instant) {
    let mut out = [0; HELLO_LEN_MAX];
    let known = peer.endpoint.is_some();
    if let Some(len) = peer.handshake.initial(now, env.unix_ns(), &mut out).filter(|_| known) {
        env.hello(Destination::Peer(index), &out[..len]);
        peer.sent_control(now, len);
    }
}

/// Sends a control record in a datagram of its own, ahead of what waits in the port.
pub(super) fn send_control(peer: &mut Peer, index: usize, env: &mut impl Env, control: &Control) {
    let now = env.now();
    let Some(session) = peer.handshake.session() else { return };
    let datagram = env.datagram(index);
    let mut body = BodyWriter::new(&mut datagram[DATA_HEADER_LEN..]);
    if body.control(control).is_err() {
        return; // the room is larger than any control record
    }
    let body_len = body.len();
    let len = session.seal(datagram, body_len);
    if !env.commit(index, len, peer.pacer.burst_bytes()) {
        peer.pacer.blocked(now);
    }
    peer.sent_control(now, len);
}

fn send_frame(peer: &mut Peer, index: usize, store: &mut Store, env: &mut impl Env, now: Instant) {
    peer.spoke(now);
    peer.handshake.carried(now);
    let Peer { port, handshake, pacer, sojourn, extra, .. } = peer;
    let frame = port.frame();
    let Some(session) = handshake.session() else {
        debug_assert!(false, "the link is offered only while there is a session");
        return;
    };
    let datagram = env.datagram(index);
    let mut body = BodyWriter::new(&mut datagram[DATA_HEADER_LEN..]);
    for unit in &frame.units {
        let (bytes, pressed) = store.get(unit.id);
        let written = match pressed {
            Some(p) => body.pressed(p.codec, p.epoch, p.original_len, bytes),
            None => body.raw(bytes),
        };
        debug_assert!(written.is_ok(), "the core knows what a frame has room for");
        extra.unwritten += u64::from(written.is_err());
        store.remove(unit.id);
        sojourn.record(unit.sojourn_ns);
    }
    let body_len = body.len();
    let len = session.seal(datagram, body_len);
    pacer.sent(now, frame.link_bytes);
    if !env.commit(index, len, pacer.burst_bytes()) {
        pacer.blocked(now);
    }
}

fn press(
    peer: &mut Peer,
    index: usize,
    id: PacketId,
    store: &mut Store,
    scratch: &mut [u8],
    env: &mut impl Env,
) {
    let (packet, _) = store.get(id);
    let bytes = packet.len();
    // One byte less than the packet, headers counted: what doesn't fit is not smaller.
    let room = bytes.saturating_sub(PRESSED_HEADER_LEN + 1);
    let reply = env.press(PressJob {
        ticket: Ticket { peer: index, generation: peer.generation, id },
        codec: peer.config.codec,
        packet,
        out: &mut scratch[..room],
        cost_ns: peer.port.press_cost_ns(),
    });
    let (outcome, took_ns) = match reply {
        Pressing::Pending => return,
        Pressing::Done { len: Some(len), took_ns } => {
            (keep_pressed(peer, id, store, &scratch[..len]), took_ns)
        }
        Pressing::Done { len: None, took_ns } => (Outcome::NotSmaller, took_ns),
        Pressing::Failed => (Outcome::Failed, 0),
    };
    peer.port.pressed(id, outcome, took_ns);
}

/// There is no record for blocks, and the configuration has no scheme that makes them; should
/// one come all the same, its packets go raw.
fn refuse_block(peer: &mut Peer) {
    debug_assert!(false, "the configuration knows no scheme that makes blocks");
    if let Some(&first) = peer.port.block().first() {
        peer.port.pressed(first, Outcome::Failed, 0);
    }
}

/// Puts a press result into the packet's place, if it is smaller with its header.
fn keep_pressed(peer: &Peer, id: PacketId, store: &mut Store, bytes: &[u8]) -> Outcome {
    let (packet, _) = store.get(id);
    let original_len = packet.len();
    if bytes.len() + PRESSED_HEADER_LEN >= original_len {
        return Outcome::NotSmaller;
    }
    let pressed =
        Pressed { codec: peer.config.codec.id as u8, epoch: 0, original_len: original_len as u16 };
    store.press(id, pressed, bytes);
    Outcome::Smaller(bytes.len() as u32)
}
