//! Several nodes, the links between them, and the kernels that route what their nodes don't.

use std::collections::{HashMap, HashSet};

use dwell_base::time::SECOND_NS;
use dwell_report::status::PeerStatus;
use dwell_testkit::virtual_net::{DirectionId, NodeId, Outbox};
use dwell_wire::{hop, packet};

use super::harness::*;
use crate::node::*;

/// A node of a net: its peers, by the numbers of their nodes, with the sites that are behind them.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    pub(super) peers: Vec<(usize, Vec<usize>)>,
    /// The peer that has 10.0.0.0/8 instead of its sites' prefixes.
    pub(super) wide: Option<usize>,
    pub(super) transit: bool,
    /// More keys of `[node]`, keys of `[defaults]`, and classes.
    pub(super) own_lines: String,
    pub(super) lines: String,
    pub(super) classes: String,
}

/// The prefixes of a site.
fn prefixes_of(site: usize) -> String {
    format!("\"10.{site}.0.0/16\", \"fd00:0:0:{site:x}::/64\"")
}

pub(super) fn address_of(node: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, node as u8 + 1], 7733))
}

impl Plan {
    /// The peers of a node in a row of `nodes`; each node has the site with its number.
    pub(super) fn in_row(at: usize, nodes: usize, lines: &str) -> Self {
        let before = (at > 0).then(|| (at - 1, (0..at).collect()));
        let behind = (at + 1 < nodes).then(|| (at + 1, (at + 1..nodes).collect()));
        let peers = before.into_iter().chain(behind).collect();
        Self { peers, transit: true, lines: lines.to_owned(), ..Self::default() }
    }

    pub(super) fn config(&self, at: usize) -> Config {
        let codec = if self.lines.contains("codec =") { "" } else { "codec = \"lz4\"\n" };
        let mut text = format!(
            "[node]\naddresses = [\"10.{at}.0.1/16\"]\ntransit = {}\n{}\n[defaults]\n{codec}\
             security = \"none\"\n{}\n",
            self.transit, self.own_lines, self.lines
        );
        for (index, (peer, sites)) in self.peers.iter().enumerate() {
            let prefixes: Vec<_> = match self.wide {
                Some(wide) if wide == index => vec!["\"10.0.0.0/8\"".to_owned()],
                _ => sites.iter().map(|&site| prefixes_of(site)).collect(),
            };
            text += &format!(
                "[[peer]]\nname = \"{peer}\"\nendpoint = \"{}\"\nprefixes = [{}]\n",
                address_of(*peer),
                prefixes.join(", ")
            );
        }
        text += &self.classes;
        let secret = |_: &std::path::Path| Ok(Secret::new([5; 32]));
        Config::parse(&text, "test.toml", &secret).expect("a good configuration")
    }

    fn peer(&self, node: usize) -> usize {
        self.peers.iter().position(|(peer, _)| *peer == node).expect("they are neighbours")
    }
}

/// The packets that a node's site sends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// The sites that it goes to, in turn.
    pub(super) to: [usize; 2],
    pub(super) packets: u64,
    pub(super) spacing_ns: u64,
    pub(super) traffic: Traffic,
    /// The time to live that packets begin with.
    pub(super) ttl: u8,
    /// All packets have the longest payload.
    pub(super) full: bool,
}

/// A node, its kernel, and its site.
pub(super) struct Station {
    at: usize,
    peers: Vec<SocketAddr>,
    pub(super) node: Node,
    pub(super) env: TestEnv,
    load: Option<Load>,
    next_at: Instant,
    rng: dwell_base::Rng,
    pub(super) made: Vec<Vec<u8>>,
    /// The packets received for the site.
    pub(super) came: Vec<Vec<u8>>,
    /// Packets that the kernel took from the TUN and routed back into it; and those that it had to
    /// drop because of their age, or that had no route.
    pub(super) routed: u64,
    pub(super) expired: u64,
}

impl Station {
    fn new(at: usize, plan: &Plan, seed: u64) -> Self {
        let config = plan.config(at);
        let peers: Vec<_> = plan.peers.iter().map(|(peer, _)| address_of(*peer)).collect();
        let endpoints: Vec<_> = peers.iter().map(|at| Some(*at)).collect();
        let mut random = random_sources(seed, at as u64);
        Self {
            at,
            peers,
            node: Node::new(&config, &endpoints, &mut random).expect("a good configuration"),
            env: TestEnv::new(config.peers[0].codec),
            load: None,
            next_at: Instant::FAR_FUTURE,
            rng: dwell_base::Rng::stream(seed, 1000 + at as u64),
            made: Vec::new(),
            came: Vec::new(),
            routed: 0,
            expired: 0,
        }
    }

    /// A packet of the site, with its number and that of the site in it.
    fn make_packet(&mut self, load: &Load) -> Vec<u8> {
        let Traffic { flows, six, payload_max, random } = load.traffic;
        let number = self.made.len();
        let len = if load.full { payload_max } else { 9 + self.rng.below(payload_max - 9) };
        let mut payload = vec![0; len as usize];
        if self.rng.chance(random) {
            self.rng.fill(&mut payload);
        } else {
            let text = b"the queue is idle time ";
            payload.iter_mut().enumerate().for_each(|(at, byte)| *byte = text[at % text.len()]);
        }
        payload[..8].copy_from_slice(&(number as u64).to_be_bytes());
        payload[8] = self.at as u8;
        let (from, to) = (self.at as u8, load.to[number % 2] as u8);
        let mut packet = inner_packet([10, from, 0, 5], [10, to, 0, 9], &payload);
        packet[8] = load.ttl;
        if six && self.rng.chance(0.5) {
            packet = inner_packet_v6(0, 0, &payload);
            (packet[7], packet[15], packet[31]) = (load.ttl, from, to);
        }
        let at = packet.len() - payload.len() - 8;
        let port = 1000 + self.rng.below(flows) as u16;
        packet[at..at + 2].copy_from_slice(&port.to_be_bytes());
        self.made.push(packet.clone());
        packet
    }

    /// The kernel: what is for the site goes there, the rest back into the TUN.
    fn route(&mut self) {
        while !self.env.delivered.is_empty() {
            for mut packet in std::mem::take(&mut self.env.delivered) {
                if site_of(&packet) == self.at {
                    self.came.push(packet);
                } else if hop::forward(&mut packet) {
                    self.routed += 1;
                    self.node.packet(&mut self.env, &mut packet);
                } else {
                    self.expired += 1;
                }
            }
            self.node.pump_all(&mut self.env);
        }
    }

    pub(super) fn after(&mut self, out: &mut Outbox) {
        self.route();
        self.node.assert_invariants();
        for (datagram, peer) in self.env.sent.drain(..).zip(self.env.sent_to.drain(..)) {
            out.send(peer, &datagram);
        }
    }

    /// The site sends nothing more.
    pub(super) fn end_load(&mut self) {
        self.load = None;
    }

    pub(super) fn peer(&self, peer: usize) -> PeerStatus {
        self.node.status(self.env.now()).peers.remove(peer)
    }
}

impl dwell_testkit::virtual_net::Node for Station {
    fn receive(&mut self, now: Instant, port: usize, datagram: &[u8], out: &mut Outbox) {
        self.env.now.set(now);
        let mut bytes = datagram.to_vec();
        self.node.take_turns(&mut self.env);
        self.node.datagram(&mut self.env, Some(port), self.peers[port], &mut bytes);
        self.node.pump_handed(&mut self.env);
        self.node.pump_all(&mut self.env);
        self.after(out);
    }

    fn handle_deadline(&mut self, now: Instant, out: &mut Outbox) {
        self.env.now.set(now);
        if let Some(mut load) = self.load.filter(|_| now >= self.next_at) {
            let mut packet = self.make_packet(&load);
            let to = self.node.packet(&mut self.env, &mut packet);
            to.into_iter().for_each(|peer| self.node.pump(&mut self.env, peer));
            load.packets -= 1;
            self.next_at = now + load.spacing_ns;
            self.load = Some(load).filter(|load| load.packets > 0);
        }
        self.node.serve_due(&mut self.env);
        self.node.pump_handed(&mut self.env);
        self.after(out);
    }

    fn next_deadline(&self) -> Option<Instant> {
        let source = if self.load.is_some() { self.next_at } else { Instant::FAR_FUTURE };
        Some(self.node.deadline().min(source)).filter(|at| *at != Instant::FAR_FUTURE)
    }
}

/// The site that a packet is for.
fn site_of(packet: &[u8]) -> usize {
    match packet::destination(packet) {
        Some(std::net::IpAddr::V4(four)) => four.octets()[1].into(),
        Some(std::net::IpAddr::V6(six)) => six.segments()[3].into(),
        None => usize::MAX,
    }
}

/// Returns the bytes that no router changes.
fn lasting(packet: &[u8]) -> Vec<u8> {
    let mut copy = packet.to_vec();
    match copy[0] >> 4 {
        4 => (copy[8], copy[10], copy[11]) = (0, 0, 0),
        _ => copy[7] = 0,
    }
    copy
}

/// Nodes and links.
pub(super) struct Row {
    pub(super) net: dwell_testkit::virtual_net::VirtualNet<Station>,
    pub(super) nodes: Vec<NodeId>,
    links: HashMap<(usize, usize), DirectionId>,
    plans: Vec<Plan>,
}

impl Row {
    pub(super) fn new(plans: &[Plan], link: &dwell_testkit::LinkSpec, seed: u64) -> Self {
        let mut net = dwell_testkit::virtual_net::VirtualNet::new();
        let stations = plans.iter().enumerate();
        let nodes: Vec<_> =
            stations.map(|(at, plan)| net.add(Station::new(at, plan, seed))).collect();
        let mut links = HashMap::new();
        for (at, plan) in plans.iter().enumerate() {
            for (port, &(other, _)) in plan.peers.iter().enumerate().filter(|(_, it)| it.0 > at) {
                let there = plans[other].peer(at);
                let seed = seed * 100 + (at * 10 + other) as u64;
                let (to, back) = (link.clone().with_seed(seed), link.clone().with_seed(seed + 7));
                let both = net.connect((nodes[at], port), (nodes[other], there), to, back);
                links.extend([((at, other), both[0]), ((other, at), both[1])]);
            }
        }
        Self { net, nodes, links, plans: plans.to_vec() }
    }

    pub(super) fn station(&self, at: usize) -> &Station {
        self.net.node(self.nodes[at])
    }

    pub(super) fn with<R>(&mut self, at: usize, f: impl FnOnce(&mut Station) -> R) -> R {
        self.net.with_node(self.nodes[at], |station, _, out| {
            let result = f(station);
            station.after(out);
            result
        })
    }

    /// A node is killed, and comes back at once without anything that it knew.
    pub(super) fn restart(&mut self, at: usize, seed: u64) {
        let other = Station::new(at, &self.plans[at], seed);
        self.with(at, |station| {
            other.env.now.set(station.env.now());
            (station.node, station.env) = (other.node, other.env);
        });
    }

    pub(super) fn run_to(&mut self, ms: u64) {
        self.net.run_until(at_ms(ms)).expect("the net comes to rest");
    }

    pub(super) fn set_link(&mut self, from: usize, to: usize, spec: &dwell_testkit::LinkSpec) {
        self.net.set_link(self.links[&(from, to)], spec.clone());
    }

    /// Sites send from now on.
    pub(super) fn load(&mut self, at: usize, load: Load) {
        self.with(at, |station| {
            station.next_at = station.env.now();
            station.load = Some(load);
        });
    }

    /// Everything that came is something that was sent there, unaltered and once. Returns how many
    /// packets came, and how many of them behind a later one of their flow.
    pub(super) fn check(&self) -> (usize, usize) {
        let (mut came, mut late) = (0, 0);
        for (at, id) in self.nodes.iter().enumerate() {
            let mut seen = HashSet::new();
            let mut latest: HashMap<Vec<u8>, u64> = HashMap::new();
            for packet in &self.net.node(*id).came {
                let (from, number) = (payload_of(packet)[8], number_of(packet));
                let made = &self.station(from.into()).made[number as usize];
                assert_eq!(lasting(packet), lasting(made), "{number} of {from} is damaged");
                assert_eq!(site_of(made), at);
                assert!(seen.insert((from, number)), "packet {number} of {from} came twice");
                // Addresses and ports.
                let end = packet.len() - payload_of(packet).len() - 4;
                let begin = if packet[0] >> 4 == 4 { 12 } else { 8 };
                let last = latest.entry(packet[begin..end].to_vec()).or_default();
                late += usize::from(number < *last);
                *last = number.max(*last);
            }
            came += seen.len();
        }
        (came, late)
    }

    /// All accounts balance, nothing is left anywhere, and what was carried on went into a port.
    pub(super) fn assert_accounts(&self) {
        self.assert_balanced();
        assert_eq!(self.refused(), 0, "all sources are where they should be");
    }

    /// Packets from addresses that are not behind the peer that sent them.
    pub(super) fn refused(&self) -> u64 {
        let stations = (0..self.nodes.len()).map(|at| self.station(at));
        let peers = stations.flat_map(|it| it.node.status(it.env.now()).peers);
        peers.map(|peer| peer.rx.not_allowed).sum()
    }

    pub(super) fn assert_balanced(&self) {
        for id in &self.nodes {
            let station = self.net.node(*id);
            assert_eq!(station.node.store.len(), 0, "every place is free again");
            let peers = station.node.status(station.env.now()).peers;
            let sum = |of: fn(&PeerStatus) -> u64| peers.iter().map(of).sum::<u64>();
            assert_eq!(
                sum(|peer| peer.rx.forwarded_compressed.packets),
                sum(|peer| peer.tx.forwarded_compressed.packets)
            );
            assert_eq!(
                sum(|peer| peer.rx.forwarded_compressed.bytes),
                sum(|peer| peer.tx.forwarded_compressed.bytes)
            );
            for peer in &peers {
                assert!(peer.tx.balances() && peer.tx.held.packets == 0, "{:?}", peer.tx);
                assert_eq!(peer.tx.send_errors["unwritten"], 0);
                assert_eq!(peer.rx.malformed + peer.rx.decode_failed, 0);
                assert_eq!(peer.rx.skipped_records, 0);
            }
        }
    }
}

/// The time after which a node without word from a peer has given it up.
pub(super) const GIVEN_UP_MS: u64 = 30 * SECOND_NS / 1_000_000;
