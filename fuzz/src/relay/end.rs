//! One of two relays: the node, and a world of vectors around it.

use std::collections::HashSet;
use std::net::SocketAddr;

use dwell_base::time::SECOND_NS;
use dwell_base::{Instant, Rng};
use dwell_codec::Compressor;
use dwell_relay::config::Config;
use dwell_relay::node::{CompressJob, Compression, ContextJob, Destination, Env, Node, NodeEvent};
use dwell_relay::trust::RandomSource;
use dwell_wire::CloseReason;

/// The clocks show this at the beginning, in nanoseconds since 1970.
const EPOCH_NS: u64 = 1_700_000_000 * SECOND_NS;
/// A silent peer is called at its configured address this often, as the relay does.
const RECONNECT_NS: u64 = 5 * SECOND_NS;
/// The most datagrams that anything may cause at once, beside the packets that wait.
const AT_ONCE_MAX: u64 = 4;

/// A datagram on its way, and the address that it is for.
#[derive(Clone)]
pub struct Flight {
    pub to: SocketAddr,
    pub bytes: Vec<u8>,
}

/// What is around a node.
struct World {
    now: Instant,
    clock_behind_ns: u64,
    compressor: Compressor,
    room: Vec<u8>,
    /// Datagrams, and where to if not to the peer.
    sent: Vec<(Option<SocketAddr>, Vec<u8>)>,
    delivered: Vec<Vec<u8>>,
}

impl Env for World {
    fn now(&self) -> Instant {
        self.now
    }

    fn unix_ns(&self) -> u64 {
        EPOCH_NS + self.now.as_ns() - self.clock_behind_ns
    }

    fn compress(&mut self, job: CompressJob<'_>) -> Compression {
        match self.compressor.compress(job.packet, job.out) {
            Ok(len) => Compression::Done { len, took_ns: 2 * job.packet.len() as u64 },
            Err(_) => Compression::Failed,
        }
    }

    fn compress_in_context(&mut self, mut job: ContextJob) -> Option<ContextJob> {
        job.run();
        job.took_ns = 2 * job.batch_len() as u64;
        Some(job)
    }

    fn datagram(&mut self, _: usize) -> &mut [u8] {
        &mut self.room
    }

    fn commit(&mut self, _: usize, len: usize, _: u64) -> bool {
        self.sent.push((None, self.room[..len].to_vec()));
        true
    }

    fn hello(&mut self, to: Destination, datagram: &[u8]) {
        let address = match to {
            Destination::Peer(_) => None,
            Destination::Address(address) => Some(address),
        };
        self.sent.push((address, datagram.to_vec()));
    }

    fn deliver(&mut self, packet: &[u8]) {
        self.delivered.push(packet.to_vec());
    }

    fn event(&mut self, _: NodeEvent) {}
}

/// One end.
pub struct End {
    side: usize,
    config: Config,
    endpoint: Option<SocketAddr>,
    node: Node,
    world: World,
    starts: u64,
    reconnect_at: Instant,
    /// Inner packets sent so far.
    pub made: u64,
    /// The numbers of the other end's packets that came out here.
    pub came: HashSet<u64>,
}

impl End {
    pub fn new(side: usize, config: Config, endpoint: Option<SocketAddr>, behind_ns: u64) -> Self {
        let world = World {
            now: Instant::ZERO,
            clock_behind_ns: behind_ns,
            compressor: Compressor::new(config.peers[0].codec, None).expect("it is built in"),
            room: vec![0; 65_536],
            sent: Vec::new(),
            delivered: Vec::new(),
        };
        let node = node(side, 0, &config, endpoint);
        let (made, came) = (0, HashSet::new());
        let reconnect_at = Instant::ZERO;
        Self { side, config, endpoint, node, world, starts: 0, reconnect_at, made, came }
    }

    pub fn is_up(&self) -> bool {
        self.node.is_up(0)
    }

    /// When [`End::timers`] has something to do.
    pub fn deadline(&self) -> Instant {
        let reconnect = if self.is_up() { Instant::FAR_FUTURE } else { self.reconnect_at };
        self.node.deadline().min(reconnect)
    }

    /// Ends without a word, and begins again.
    pub fn restart(&mut self, behind_ns: u64) {
        self.starts += 1;
        self.world.clock_behind_ns = behind_ns;
        self.node = node(self.side, self.starts, &self.config, self.endpoint);
    }

    /// Says that it goes.
    pub fn close(&mut self) {
        self.node.close(&mut self.world, CloseReason::ShuttingDown);
    }

    /// Takes another configuration, which changes what it tells its peer.
    pub fn reload(&mut self) {
        self.config.node.transit = !self.config.node.transit;
        let endpoint = self.node.endpoint(0);
        let mut random = random(self.side, self.starts + 1_000);
        self.node
            .reconfigure(&self.config, &[endpoint], &mut random)
            .expect("a good configuration");
    }

    /// A program beside this end sends a packet to the other side.
    pub fn send_packet(&mut self, now: Instant) -> Vec<Flight> {
        self.world.now = now;
        let mut packet = packet(self.side, self.made);
        self.made += 1;
        if let Some(peer) = self.node.packet(&mut self.world, &mut packet) {
            self.node.pump(&mut self.world, peer);
        }
        self.settle()
    }

    /// A datagram comes in.
    pub fn receive(&mut self, now: Instant, source: SocketAddr, datagram: &[u8]) -> Vec<Flight> {
        self.world.now = now;
        let connected = (self.node.endpoint(0) == Some(source)).then_some(0);
        let mut bytes = datagram.to_vec();
        self.node.datagram(&mut self.world, connected, source, &mut bytes);
        self.settle()
    }

    /// Does what time asks for.
    pub fn timers(&mut self, now: Instant) -> Vec<Flight> {
        self.world.now = now;
        if !self.is_up() && now >= self.reconnect_at {
            self.reconnect_at = now + RECONNECT_NS;
            if let Some(endpoint) = self.endpoint {
                self.node.set_endpoint(0, endpoint);
            }
        }
        self.node.timers(&mut self.world);
        self.settle()
    }

    /// After each event: verifies, and gives what was sent.
    pub fn settle(&mut self) -> Vec<Flight> {
        let held = self.node.status(self.world.now).peers[0].tx.held.packets;
        self.node.pump_all(&mut self.world);
        self.node.assert_invariants();
        let sent = self.world.sent.len() as u64;
        assert!(sent <= AT_ONCE_MAX + held + 1, "{sent} datagrams at once, {held} packets waited");
        for packet in self.world.delivered.drain(..) {
            let number = packet.get(28..36).and_then(|bytes| bytes.try_into().ok());
            let number = u64::from_be_bytes(number.expect("a packet came out too short"));
            let made = self::packet(1 - self.side, number);
            assert_eq!(packet, made, "packet {number} came out changed");
            assert!(self.came.insert(number), "packet {number} came out twice");
        }
        let endpoint = self.node.endpoint(0);
        let sent = self.world.sent.drain(..);
        sent.filter_map(|(to, bytes)| Some(Flight { to: to.or(endpoint)?, bytes })).collect()
    }
}

fn node(side: usize, start: u64, config: &Config, endpoint: Option<SocketAddr>) -> Node {
    let mut random = random(side, start);
    Node::new(config, &[endpoint], &mut random).expect("a good configuration")
}

/// Sources of what only looks random: others for each end and each start.
fn random(side: usize, start: u64) -> impl FnMut() -> RandomSource {
    let mut calls = 0;
    move || {
        calls += 1;
        let mut rng = Rng::stream((start << 20) ^ calls, 7 + side as u64);
        Box::new(move |bytes: &mut [u8]| rng.fill(bytes))
    }
}

/// IPv4 and UDP from one side to the other: everything follows from the number.
fn packet(side: usize, number: u64) -> Vec<u8> {
    let (from, to) = (side as u8 + 1, 2 - side as u8);
    let text = format!("sensor={from} count={number} state=nominal; ").repeat(3);
    let total = (28 + 8 + text.len()) as u16;
    let mut packet = vec![0x45, 0];
    packet.extend(total.to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    packet.extend([10, from, 0, 5, 10, to, 0, 9]);
    packet.extend([0x13, 0x88, 0x1b, 0x58]);
    packet.extend((total - 20).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(number.to_be_bytes());
    packet.extend(text.as_bytes());
    packet
}
