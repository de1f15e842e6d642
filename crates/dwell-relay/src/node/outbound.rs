//! From the TUN to the link.

use dwell_base::Instant;
use dwell_codec::content::{ContentClass, classify_packet};
use dwell_drive::group_key;
use dwell_policy::{ClassKey, Event, Gather, History, Outcome, Packet, Scheme};
use dwell_report::status::PeerState;
use dwell_wire::ecn;
use dwell_wire::icmp::{ICMP_V6_LEN_MAX, packet_too_big};
use dwell_wire::mss::clamp_mss;
use dwell_wire::{CloseReason, Control, PacketInfo};

use super::compress::{keep_compressed, note_alone};
use super::contexts::{CodecTrial, ContextJob, finish};
use super::diagnosis::Parting;
use super::env::{Destination, Env, NodeEvent, Ticket};
use super::flow_watch::FlowWatch;
use super::inbound::repeat_late_final;
use super::link::{send_control, send_controls};
use super::peer::{NEVER_COMPRESSED, Peer};
use super::pump::note_work;
use super::repair::repairs;
use super::store::{Store, Treatment};
use super::{Node, enter};
use crate::config::{ClassConfig, Config, class_of};
use crate::trust::HELLO_LEN_MAX;

/// Bytes of IP and TCP headers without options.
const TCP_V4_BYTES: u16 = 40;
const TCP_V6_BYTES: u16 = 60;
/// Makes another group of packets that are not compressed with those that have contexts.
const ALONE: u64 = 0x616c_6f6e_6500_0000;

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
        if self.flow_watch.is_on() {
            self.flow_watch.count(env.now(), index, &info);
        }
        self.enqueue(env, index, packet, &info);
        Some(index)
    }

    /// Puts a packet into a peer's port. It fits a datagram to the peer, which is connected.
    pub(super) fn enqueue(
        &mut self,
        env: &mut impl Env,
        index: usize,
        packet: &mut [u8],
        info: &PacketInfo,
    ) {
        self.enqueue_as(env, index, packet, (info, false));
    }

    /// The same; it may have been sent before, and be lost.
    pub(super) fn enqueue_as(
        &mut self,
        env: &mut impl Env,
        index: usize,
        packet: &mut [u8],
        (info, again): (&PacketInfo, bool),
    ) {
        let peer = &self.peers[index];
        if info.tcp_syn {
            clamp(packet, self.tun_mtu.min(peer.packet_max()));
        }
        let class = class_of(&self.classes, info);
        let source = ClassKey::new(info.protocol, info.src_port);
        let destination = ClassKey::new(info.protocol, info.dst_port);
        let repairs = repairs(info.protocol);
        let treatment = treatment(&self.classes, class, info.flow_hash);
        let treatment = Treatment { again, repairs, ..treatment };
        let is_exempt = class.is_some_and(|class| !self.classes[class].compress);
        // Where all goes raw, nobody asks.
        let leaves_raw = peer.leaves_raw;
        let looks_random = !leaves_raw && looks_random(&peer.port.config().scheme, packet, info);
        let group = self.group(index, info, &treatment);
        let peer = &mut self.peers[index];
        peer.classes.arrived(class, packet.len());
        peer.repair.came(repairs, packet.len());
        let has_scope = class.is_some_and(|class| self.classes[class].history.is_some());
        let has_no_own = treatment.once || has_scope || is_exempt || looks_random || leaves_raw;
        let group = if has_no_own {
            group
        } else {
            let bytes = packet.len() as u32;
            peer.contexts.flows.group_of(env.now(), group, info.flow_hash, bytes)
        };
        // Of what is not sent again, any lost piece loses all.
        let is_lost_whole = treatment.once || repairs && !peer.sends_again_in_time();
        let id = self.store.insert(packet, treatment);
        let arrival = Packet {
            id,
            bytes: packet.len() as u32,
            source: if is_exempt { NEVER_COMPRESSED } else { source },
            destination,
            flow: info.flow_hash,
            group,
            max_wait_ns: peer.deadlines.deadline_ns(class),
            batch_bytes_max: if is_lost_whole { peer.config.blocks.bytes } else { u32::MAX },
            looks_random,
            takes_mark: ecn::takes_mark(packet),
            compressed: false,
        };
        peer.port.handle(env.now(), Event::Arrive(arrival));
    }

    /// The packets that this one may be compressed with, by the scope that is configured.
    fn group(&mut self, index: usize, info: &PacketInfo, treatment: &Treatment) -> u64 {
        let peer = &self.peers[index];
        let scheme = &peer.port.config().scheme;
        let class = treatment.class.and_then(|class| self.classes.get(usize::from(class)));
        let own = class.and_then(|class| class.history).filter(|_| scheme.has_contexts());
        let gather = own.and_then(History::gather).unwrap_or(scheme.gather());
        // A node can forward a block only if all its packets have the same next hop from there.
        let by_prefix = gather == Gather::Edge && peer.forwards() && !peer.has_contexts();
        let edge = self.outbound.entry_of(info.dst).filter(|_| by_prefix).unwrap_or_default();
        let group = group_key(gather, info, self.flow_seed, edge as u64);
        match treatment {
            _ if !scheme.has_contexts() => group,
            // What is not sent again can't be in a context with what must be.
            Treatment { once: true, .. } => !group,
            Treatment { alone: true, .. } => group ^ ALONE,
            _ => group,
        }
    }

    /// A worker is done with a [`CompressJob`](super::CompressJob) that was [`Compression::Pending`](super::Compression::Pending): `result` is the
    /// compressed packet, or nothing if it did not become smaller.
    pub fn compressed(
        &mut self,
        now: Instant,
        ticket: Ticket,
        result: Result<Option<&[u8]>, ()>,
        took_ns: u64,
    ) {
        let Ticket { peer, generation, id, job, .. } = ticket;
        let peer = &mut self.peers[peer];
        if peer.removed || peer.generation != generation {
            self.store.remove(id); // the port that waited for it is gone
            return;
        }
        if let Ok(left) = result {
            note_alone(peer, ticket, &self.store, (now, left.map(<[u8]>::len)), took_ns);
        }
        let outcome = match result {
            Ok(Some(bytes)) => keep_compressed(peer, ticket, &mut self.store, bytes),
            Ok(None) => Outcome::NotSmaller,
            Err(()) => Outcome::Failed,
        };
        peer.port.handle(now, Event::Compressed { job, outcome, took_ns });
    }

    /// A worker is done with a job that [`Env::compress_in_context`] gave it.
    pub fn compressed_in_context(&mut self, now: Instant, job: ContextJob) {
        let Ticket { peer: index, generation, id, job: name, .. } = job.ticket;
        let peer = &mut self.peers[index];
        if peer.removed || peer.generation != generation {
            self.store.remove(id); // the port that waited for it is gone
            return;
        }
        let (took_ns, begins) = (job.took_ns, job.begins());
        let outcome = finish(peer, job, &mut self.store, now);
        peer.port.handle(now, Event::Compressed { job: name, outcome, took_ns });
        note_work(peer, &mut self.processors.slowdown, now);
        if begins {
            self.history_grew(now, index);
        }
    }

    /// Codecs were tried, by a trial that [`Env::try_codecs`] gave to somebody.
    pub fn tried(&mut self, now: Instant, trial: &CodecTrial) {
        let processor = self.processors.of_peer(now, trial.peer);
        self.processors.trial_ended(now, trial.took_ns(), processor);
        let Some(peer) = self.peers.get_mut(trial.peer) else { return };
        if !peer.removed && peer.generation == trial.generation {
            peer.contexts.tried(now, trial);
        }
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
    pub fn link_ran_dry(&mut self, now: Instant, peer: usize) {
        self.peers[peer].pacer.ran_dry(now);
    }

    /// Does what time asks for, and pumps those for whom it is time: with many peers these are few.
    pub fn serve_due(&mut self, env: &mut impl Env) {
        let now = env.now();
        self.tend_node(env, now);
        for index in 0..self.peers.len() {
            if self.peers[index].due_at(self.patience) <= now {
                self.tend_peer(env, now, index);
                self.pump(env, index);
            }
        }
    }

    /// Does what time asks for, for all peers.
    pub fn timers(&mut self, env: &mut impl Env) {
        let now = env.now();
        self.tend_node(env, now);
        for index in 0..self.peers.len() {
            self.tend_peer(env, now, index);
        }
    }

    fn tend_node(&mut self, env: &mut impl Env, now: Instant) {
        self.forget_unknown_peers(env, now);
        self.watch_history(now);
    }

    /// Hellos, probes, reports, and giving up on a silent peer.
    fn tend_peer(&mut self, env: &mut impl Env, now: Instant, index: usize) {
        let peer = &mut self.peers[index];
        if peer.removed {
            return;
        }
        if peer.handshake.expire(now) {
            self.give_up(env, index, Parting::Expired);
        }
        let peer = &mut self.peers[index];
        say_hello(peer, index, env, now);
        self.review_if_due(env, now, index);
        let peer = &mut self.peers[index];
        peer.reassembly.expire(now);
        peer.retransmit_buffer.expire(now, peer.rtt_ns);
        if peer.gives_up_scheme(now) {
            clear((peer, index), &mut self.store, &mut self.flow_watch, now);
            peer.take_up_scheme();
        }
        self.chase_missing(env, now, index);
        self.tend_before(env, now, index);
        self.tend_contexts(env, now, index);
        self.probe_path(env, now, index);
        self.watch_delivery(env, now, index);
        let peer = &mut self.peers[index];
        let due = peer.due(now, self.patience);
        if due.dead {
            let for_ns = peer.last_received_at.map_or(0, |at| now.since_ns(at));
            self.give_up(env, index, Parting::Silent { for_ns });
            return;
        }
        let peer = &mut self.peers[index];
        if due.probe {
            peer.first_sent_at = due.is_first.then_some(now);
            probe(peer, index, env, now);
        }
        if due.report {
            let model_bps = self.model_bps(index);
            let peer = &mut self.peers[index];
            peer.note_tail_report(now);
            let report = Control::Report(peer.report(now, model_bps));
            // What came is known one by one before the report is looked at.
            match peer.reports.arrivals().map(Control::Arrivals) {
                Some(arrivals) => send_controls(peer, index, env, &[arrivals, report]),
                None => send_control(peer, index, env, &report),
            }
        }
    }

    /// Notifies the peer that this node has another address now. A peer with keys knows us by any sealed
    /// datagram; one without by hellos only.
    pub fn moved_away(&mut self, env: &mut impl Env, index: usize) {
        let now = env.now();
        let Some(peer) = self.peers.get_mut(index).filter(|peer| !peer.removed) else { return };
        if peer.handshake.current().is_none() {
            return; // it is being called anyway
        }
        if peer.handshake.is_keyed() {
            probe(peer, index, env, now);
        } else {
            peer.handshake.renew();
            say_hello(peer, index, env, now);
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
    pub(super) fn give_up(&mut self, env: &mut impl Env, index: usize, why: Parting) {
        self.release(env, env.now(), index);
        let peer = &mut self.peers[index];
        peer.handshake.forget();
        peer.reports.end_session();
        peer.before = None;
        peer.retransmit_buffer.clear();
        peer.to_retransmit.clear();
        peer.parts.clear();
        peer.copies.clear();
        clear((peer, index), &mut self.store, &mut self.flow_watch, env.now());
        peer.diagnosis.parted(why);
        if enter(&mut peer.state, PeerState::Down) {
            env.event(NodeEvent::Down(index, why));
        }
    }
}

/// Drops what waits for a peer.
pub(super) fn clear(
    (peer, index): (&mut Peer, usize),
    store: &mut Store,
    watch: &mut FlowWatch,
    now: Instant,
) {
    let Peer { port, classes, contexts, .. } = peer;
    contexts.outgoing.dropped(now);
    port.clear(|id, reason| {
        classes.dropped(store.class(id), reason);
        watch.dropped(index, store.treatment(id).flow);
        store.remove(id);
    });
}

/// Returns true if the payload looks random. Nobody asks if nothing is compressed.
fn looks_random(scheme: &Scheme, packet: &[u8], info: &PacketInfo) -> bool {
    if !scheme.compresses() {
        return false;
    }
    let payload = packet.get(usize::from(info.header_len)..).unwrap_or_default();
    classify_packet(payload) == ContentClass::Random
}

fn treatment(classes: &[ClassConfig], class: Option<usize>, flow: u64) -> Treatment {
    let found = class.and_then(|class| classes.get(class));
    Treatment {
        class: class.and_then(|class| u8::try_from(class).ok()),
        once: found.is_some_and(|class| !class.retransmit),
        alone: found.is_some_and(|class| class.history == Some(History::Off)),
        again: false,
        repairs: false,
        flow,
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

/// Asks the peer for a sign of life.
pub(super) fn probe(peer: &mut Peer, index: usize, env: &mut impl Env, now: Instant) {
    repeat_late_final(env, now, index, peer);
    let probe = peer.probe(now, index);
    send_control(peer, index, env, &probe);
}

fn say_hello(peer: &mut Peer, index: usize, env: &mut impl Env, now: Instant) {
    let mut out = [0; HELLO_LEN_MAX];
    let known = peer.endpoint.is_some();
    if let Some(len) = peer.handshake.initial(now, env.unix_ns(), &mut out).filter(|_| known) {
        peer.diagnosis.attempted(now);
        env.hello(Destination::Peer(index), &out[..len]);
        peer.sent_hello(now, len);
    }
}
