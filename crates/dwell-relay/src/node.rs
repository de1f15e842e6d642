//! A relay node without I/O: packets and datagrams in, datagrams and packets out.
//!
//! A [`Node`] joins the parts of both directions. Out: inner packet → peer by prefix → port
//! (the decision core) → compress → record → sealed datagram. In: datagram → session → records →
//! restored packet. What it needs from the world it takes through [`Env`], so that the relay
//! drives it with sockets and tests drive pairs of it over virtual networks.
//!
//! Packets are dropped for named reasons only, and everything from the network is hostile
//! until its seal was verified.

mod allowance;
mod arrivals;
mod before;
mod bottleneck;
mod classes;
mod clocks;
mod compress;
mod contexts;
mod copies;
mod deadlines;
mod delivery;
mod diagnosis;
mod dictionary;
mod egress;
mod env;
mod flow_watch;
mod forward;
mod inbound;
mod keyed;
mod link;
mod loss;
mod memory;
mod outbound;
mod pacer;
mod parts;
mod path_mtu;
mod peer;
mod prefixes;
mod problems;
mod processors;
mod pump;
mod reassembly;
mod reorder;
mod repair;
mod reports;
mod retransmit;
mod saturation;
mod shares;
mod status;
mod store;
mod turns;
mod unheard;
mod uplink;

#[cfg(test)]
mod tests;

pub use contexts::{CodecTrial, ContextJob, DecodeJob};
pub use diagnosis::{Parting, Unsent};
pub use env::{CompressJob, Compression, Destination, Env, NodeEvent, Ticket};
pub use pacer::{Pacer, Pacing};
pub use peer::Patience;
pub use problems::Finding;
pub use processors::CpuTimes;

use std::net::SocketAddr;

use dwell_base::Instant;
use dwell_codec::Decompressor;
use dwell_drive::{Entry, Journal};
use dwell_policy::{ConfigError, Event, Queue};
use dwell_report::status::PeerState;
use ipnet::IpNet;

use crate::config::{ClassConfig, Config, FailMode, PeerConfig, PublicKey, Secret};
use crate::trust::{Identity, RandomSource};
use flow_watch::FlowWatch;
use memory::HistoryMemory;
use peer::Peer;
use prefixes::{Prefixes, Routes};
use problems::Problems;
use processors::Processors;
use saturation::Saturation;
use store::Store;
use uplink::Uplink;

/// The longest packet or datagram that IP and UDP know.
const LEN_MAX: usize = 65_535;
/// More than the headers of any record.
const RECORD_ROOM: usize = 48;

/// Packets and datagrams that a node drops before they belong to a peer or to a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeDrops {
    /// A packet from the TUN that is no IP packet.
    pub malformed_packet: u64,
    /// A packet from the TUN that no peer's prefix covers.
    pub no_route: u64,
    /// A datagram of another version or of an unknown kind, or cut short.
    pub malformed_datagram: u64,
    /// A datagram from an address that is no peer's.
    pub unknown_source: u64,
    /// A hello that no key opens, or whose key is no peer's.
    pub unknown_key: u64,
    /// A keyed initiation that is not newer than one before it, or comes too soon after it.
    pub hello_replayed: u64,
}

/// A relay node.
pub struct Node {
    peers: Vec<Peer>,
    /// One table per direction: each remembers its last answer.
    outbound: Prefixes,
    inbound: Prefixes,
    /// True if packets from one peer for another are forwarded without the TUN, and their routes.
    transit: bool,
    local: Vec<IpNet>,
    routes: Routes,
    /// Peers that were handed something by others, and are to be pumped.
    handed: Vec<usize>,
    store: Store,
    decompressor: Decompressor,
    /// A compression result, a record that is cut, or restored packets.
    scratch: Box<[u8]>,
    /// The packets of a block on their way to the compressor.
    block: Vec<u8>,
    /// The identity of this node towards peers that are known by their public keys.
    identity: Option<Identity>,
    private_key: Option<Secret>,
    own_key: Option<PublicKey>,
    /// Problems of the node itself.
    problems: Problems,
    unknown_peer_at: Option<Instant>,
    drops: NodeDrops,
    classes: Vec<ClassConfig>,
    patience: Patience,
    /// The MTU of the TUN: what TCP through it is given.
    tun_mtu: u16,
    flow_seed: u64,
    /// Peers made so far.
    generations: u64,
    /// The peer that comes first in this turn.
    first_turn: usize,
    /// The next peer may be asked to send without models from now on.
    may_withdraw_at: Instant,
    history: HistoryMemory,
    saturation: Saturation,
    processors: Processors,
    flow_watch: FlowWatch,
    uplink: Uplink,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("peers", &self.peers.len()).finish_non_exhaustive()
    }
}

impl Node {
    /// A node with the peers of `config`, none of them connected. `endpoints` are the
    /// resolved endpoints of the peers, in their order.
    ///
    /// # Errors
    /// If a peer's queue can't work as configured.
    pub fn new(
        config: &Config,
        endpoints: &[Option<SocketAddr>],
        random: &mut dyn FnMut() -> RandomSource,
    ) -> Result<Self, ConfigError> {
        let mut seed = [0; 8];
        random()(&mut seed);
        let mut node = Self {
            peers: Vec::new(),
            outbound: Prefixes::default(),
            inbound: Prefixes::default(),
            transit: config.node.transit,
            local: local_of(config),
            routes: Routes::default(),
            handed: Vec::new(),
            store: Store::default(),
            decompressor: Decompressor::new(),
            scratch: vec![0; LEN_MAX + RECORD_ROOM].into_boxed_slice(),
            block: Vec::new(),
            identity: None,
            private_key: None,
            own_key: None,
            problems: Problems::default(),
            unknown_peer_at: None,
            drops: NodeDrops::default(),
            classes: config.classes.clone(),
            patience: patience(config),
            tun_mtu: u16::MAX,
            flow_seed: u64::from_le_bytes(seed),
            generations: 0,
            first_turn: 0,
            may_withdraw_at: Instant::ZERO,
            history: HistoryMemory::default(),
            saturation: Saturation::new(),
            processors: Processors::new(),
            flow_watch: FlowWatch::default(),
            uplink: Uplink::default(),
        };
        node.uplink.set_rate(config.node.uplink);
        node.identify(config, random);
        for (peer, &endpoint) in config.peers.iter().zip(endpoints) {
            let peer = node.make_peer(peer, endpoint, random())?;
            node.peers.push(peer);
        }
        node.rebuild_prefixes();
        node.tun_mtu = node.packet_max();
        Ok(node)
    }

    /// Takes a new configuration. Peers are recognised by name; what waits for a peer that
    /// stays is kept, and so are its session and all accounts. Peers keep their indices; new
    /// ones take those of removed ones, or come last.
    ///
    /// # Errors
    /// If a peer's queue can't work as configured; peers before it have changed then.
    pub fn reconfigure(
        &mut self,
        config: &Config,
        endpoints: &[Option<SocketAddr>],
        random: &mut dyn FnMut() -> RandomSource,
    ) -> Result<(), ConfigError> {
        self.patience = patience(config);
        self.store.reclass(&moved_classes(&self.classes, &config.classes));
        self.classes.clone_from(&config.classes);
        self.identify(config, random);
        (self.transit, self.local) = (config.node.transit, local_of(config));
        self.uplink.set_rate(config.node.uplink);
        for (index, peer) in self.peers.iter_mut().enumerate() {
            let lasting = self.uplink.lasting_share(index);
            peer.pacer.set_share(Instant::ZERO, self.uplink.share(index), lasting);
        }
        for index in 0..self.peers.len() {
            let name = &self.peers[index].config.name;
            if !config.peers.iter().any(|peer| &peer.name == name) {
                self.remove_peer(index);
            }
        }
        for (new, &endpoint) in config.peers.iter().zip(endpoints) {
            let known = |peer: &Peer| !peer.removed && peer.config.name == new.name;
            let Some(index) = self.peers.iter().position(known) else {
                let peer = self.make_peer(new, endpoint, random())?;
                match self.peers.iter().position(|peer| peer.removed) {
                    Some(free) => self.peers[free] = peer,
                    None => self.peers.push(peer),
                }
                continue;
            };
            if self.peers[index].config.security == new.security {
                let peer = &mut self.peers[index];
                // A peer that moved stays where it is, unless it is configured to be elsewhere.
                let moved = peer.config.endpoint != new.endpoint;
                peer.set_transit(config.node.transit);
                peer.reconfigure(new.clone(), &config.classes)?;
                if let Some(endpoint) = endpoint.filter(|_| moved) {
                    peer.set_endpoint(endpoint);
                }
            } else {
                // Another key is another peer: nothing of the old session may live on.
                self.remove_peer(index);
                self.peers[index] = self.make_peer(new, endpoint, random())?;
            }
        }
        self.rebuild_prefixes();
        Ok(())
    }

    /// Returns the number of peers, past ones included: their indices are below this.
    pub fn peer_count(&self) -> usize {
        self.peers.len()
    }

    /// Keeps a journal of what the core of a peer is given and decides from now on. The peer must be
    /// as new.
    pub fn keep_journal(&mut self, peer: usize) {
        if let Some(peer) = self.peers.get_mut(peer) {
            peer.port.keep_journal();
            // As it was when it was made.
            peer.port.handle(Instant::ZERO, Event::LinkBusy);
        }
    }

    /// Keeps no journals any more.
    pub fn end_journals(&mut self) {
        self.peers.iter_mut().for_each(|peer| peer.port.end_journal());
    }

    /// Takes what was noted since the last time; nothing if no journal is kept.
    pub fn take_journal(&mut self, peer: usize) -> Vec<Entry> {
        let journal = self.peers.get_mut(peer).and_then(|peer| peer.port.journal_mut());
        journal.map(Journal::take).unwrap_or_default()
    }

    /// The configuration of a peer; none if it was removed.
    pub fn peer_config(&self, peer: usize) -> Option<&PeerConfig> {
        self.peers.get(peer).filter(|peer| !peer.removed).map(|peer| &peer.config)
    }

    /// Returns the address of a peer, if it is known.
    pub fn endpoint(&self, peer: usize) -> Option<SocketAddr> {
        self.peers.get(peer).and_then(|peer| peer.endpoint)
    }

    /// A peer is to be looked for at this address.
    pub fn set_endpoint(&mut self, peer: usize, endpoint: SocketAddr) {
        if let Some(peer) = self.peers.get_mut(peer) {
            peer.set_endpoint(endpoint);
        }
    }

    /// True if a peer answers.
    pub fn is_up(&self, peer: usize) -> bool {
        self.peers.get(peer).is_some_and(|peer| peer.state == PeerState::Up)
    }

    /// True if the routes to a peer are to be set now.
    pub fn wants_routes(&self, peer: usize) -> bool {
        self.peers.get(peer).is_some_and(|peer| {
            let always = peer.config.on_dead == FailMode::Closed;
            !peer.removed && (always || peer.state == PeerState::Up)
        })
    }

    /// The longest packet that every peer takes: what the MTU of the TUN can be.
    pub fn packet_max(&self) -> u16 {
        let peers = self.peers.iter().filter(|peer| !peer.removed);
        peers.map(Peer::packet_max).min().unwrap_or(1400)
    }

    /// The MTU of the TUN; TCP connections through it are asked to keep within.
    pub fn set_tun_mtu(&mut self, mtu: u16) {
        self.tun_mtu = mtu;
    }

    /// The path to a peer takes datagrams of this many bytes of UDP payload.
    pub fn set_path_datagram_max(&mut self, peer: usize, bytes: u16) {
        self.peers[peer].set_path_datagram_max(bytes);
    }

    /// Returns the counts of packets that were dropped before they belonged to a peer.
    pub fn drops(&self) -> NodeDrops {
        self.drops
    }

    /// True if nothing waits in any port, nor the rest of what has begun to leave.
    pub fn is_empty(&self) -> bool {
        let is_idle = |peer: &Peer| peer.port.is_empty() && peer.parts.is_empty();
        self.peers.iter().all(|peer| peer.removed || is_idle(peer))
    }

    /// When [`Node::serve_due`] must be called next, if nothing happens before.
    pub fn deadline(&self) -> Instant {
        let all = self.peers.iter().map(|peer| peer.due_at(self.patience));
        all.min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// True if each packet for a peer should be pumped separately: datagrams leave at a rate that is
    /// configured or was found beyond the next hop, and the scheme decides about each packet. One
    /// that queues by flow makes better batches of all that came at once.
    pub fn is_paced(&self, peer: usize) -> bool {
        let peer = &self.peers[peer];
        let gathers = matches!(peer.port.config().scheme.queue, Queue::Flows(_));
        peer.pacer.is_paced() && !gathers
    }

    /// Returns the number of bytes of packets that the kernel's send buffer for a peer should hold,
    /// if the peer's rate is found by back-pressure.
    pub fn send_buffer_bytes(&self, peer: usize) -> Option<u64> {
        self.peers.get(peer).and_then(|peer| peer.pacer.buffer_bytes())
    }

    /// Verifies the invariants of every port; for tests.
    ///
    /// # Panics
    /// If one is broken.
    pub fn assert_invariants(&self) {
        for peer in &self.peers {
            peer.port.assert_invariants();
        }
    }

    fn identify(&mut self, config: &Config, random: &mut dyn FnMut() -> RandomSource) {
        let private = &config.node.private_key;
        if *private != self.private_key {
            self.identity = private.as_ref().map(|private| Identity::new(private, random));
            self.private_key.clone_from(private);
            self.own_key = private.as_ref().and_then(crate::trust::public_key);
        }
    }

    fn make_peer(
        &mut self,
        config: &PeerConfig,
        endpoint: Option<SocketAddr>,
        random: RandomSource,
    ) -> Result<Peer, ConfigError> {
        self.generations += 1;
        let mut peer =
            Peer::new(self.generations, config.clone(), &self.classes, endpoint, random)?;
        peer.set_transit(self.transit);
        peer.set_jobs_max(self.processors.threads as usize);
        let share = self.uplink.share(usize::MAX);
        peer.pacer.set_share(Instant::ZERO, share, share);
        Ok(peer)
    }

    fn remove_peer(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        outbound::clear((peer, index), &mut self.store, &mut self.flow_watch, Instant::ZERO);
        // A result may still come; it knows only the first packet of its block.
        for &id in peer.port.batches().flat_map(|batch| batch.iter().skip(1)) {
            self.store.remove(id);
        }
        peer.handshake.forget();
        peer.turn.clear();
        peer.retransmit_buffer.clear();
        peer.before = None;
        peer.state = PeerState::Down;
        peer.endpoint = None;
        peer.removed = true;
    }

    fn rebuild_prefixes(&mut self) {
        let peers = self.peers.iter().enumerate().filter(|(_, peer)| !peer.removed);
        let entries =
            peers.flat_map(|(at, peer)| peer.config.prefixes.iter().map(move |net| (*net, at)));
        self.routes = Routes::new(self.local.iter().copied(), entries.clone());
        self.outbound = Prefixes::new(entries);
        self.inbound = self.outbound.clone();
    }
}

/// Changes a peer's state; true if it was another one.
fn enter(state: &mut PeerState, new: PeerState) -> bool {
    std::mem::replace(state, new) != new
}

/// Returns the new index of each class, found by its name.
fn moved_classes(before: &[ClassConfig], now: &[ClassConfig]) -> Vec<Option<u8>> {
    let at = |old: &ClassConfig| now.iter().position(|class| class.name == old.name);
    before.iter().map(|old| at(old).and_then(|at| u8::try_from(at).ok())).collect()
}

/// The networks at the node itself.
fn local_of(config: &Config) -> Vec<IpNet> {
    config.node.addresses.iter().chain(&config.node.local).copied().collect()
}

fn patience(config: &Config) -> Patience {
    Patience { keepalive_ns: config.node.keepalive_ns, dead_after_ns: config.node.dead_after_ns }
}
