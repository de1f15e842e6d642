//! A pair of nodes, their worlds, and a link between them.

use std::cell::Cell;
use std::collections::VecDeque;
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::rc::Rc;

use dwell_base::time::MILLI_NS;
use dwell_base::{Instant, Rate, Rng};
use dwell_codec::{CodecSpec, Compressor};
use dwell_report::status::{PeerState, PeerStatus};
use dwell_testkit::LinkSpec;
use dwell_testkit::virtual_net::{self, NodeId, VirtualNet};
use dwell_wire::header::DATA_HEADER_LEN;
use dwell_wire::{BodyWriter, Record, Records};

use crate::config::Secret;
use crate::node::*;

pub(super) const ADDRESSES: [&str; 2] = ["192.0.2.1:7733", "192.0.2.2:7733"];
pub(super) const PREFIXES: [&str; 2] =
    ["\"10.1.0.0/16\", \"fd00:1::/32\"", "\"10.2.0.0/16\", \"fd00:2::/32\""];

/// The written rate of which 9 Mbit/s are used.
pub(super) const NINE_MBIT: &str = "9022556bit";

/// One peer, and the prefixes of both ends.
pub(super) fn config(end: usize, sealed: bool, rate: &str, scheme: &str) -> Config {
    config_with(end, sealed, rate, &format!("scheme = \"{scheme}\""))
}

/// The same with other lines for the peer.
pub(super) fn config_with(end: usize, sealed: bool, rate: &str, lines: &str) -> Config {
    config_of(end, sealed, rate, &format!("codec = \"lz4\"\n{lines}"))
}

/// The same with another codec.
pub(super) fn config_of(end: usize, sealed: bool, rate: &str, lines: &str) -> Config {
    let security = if sealed { "psk_file = \"the.psk\"" } else { "security = \"none\"" };
    let text = format!(
        "[node]\naddresses = [\"10.{own}.0.1/16\"]\n[[peer]]\nname = \"other\"\n\
         endpoint = \"{endpoint}\"\nprefixes = [{prefix}]\nrate = \"{rate}\"\n\
         {security}\n{lines}\n",
        own = end + 1,
        endpoint = ADDRESSES[1 - end],
        prefix = PREFIXES[1 - end],
    );
    Config::parse(&text, "test.toml", &|_| Ok(Secret::new([5; 32]))).expect("a good configuration")
}

/// The world of one end: a virtual clock, and vectors for everything else.
pub(super) struct TestEnv {
    pub(super) now: Rc<Cell<Instant>>,
    pub(super) compressor: Compressor,
    codec: CodecSpec,
    pub(super) room: Vec<u8>,
    pub(super) sent: Vec<Vec<u8>>,
    /// The peers that they are for.
    pub(super) sent_to: Vec<usize>,
    pub(super) delivered: Vec<Vec<u8>>,
    pub(super) delivered_at: Vec<Instant>,
    pub(super) events: Vec<NodeEvent>,
    pub(super) link_open: bool,
    /// The clock goes on by so much for each byte that is compressed.
    pub(super) compress_byte_ns: u64,
    /// A worker is slow: what it was given, if it is used.
    pub(super) worker: Option<Vec<(Ticket, Vec<u8>)>>,
    /// The same of contexts.
    pub(super) context_worker: Option<Vec<ContextJob>>,
    /// The same of what is decoded in contexts.
    pub(super) decode_worker: Option<Vec<DecodeJob>>,
    /// What is compressed in contexts takes so many times longer than the processor works at it, if that is measured.
    pub(super) context_slowdown: Option<u64>,
    /// The offset of the clock that shows UTC against the other one.
    pub(super) clock_ahead_ns: u64,
    /// The most bytes that were given to the compressor at once.
    pub(super) compressed_bytes_max: usize,
}

impl Env for TestEnv {
    fn now(&self) -> Instant {
        self.now.get()
    }

    fn unix_ns(&self) -> u64 {
        self.now.get().as_ns() + self.clock_ahead_ns
    }

    fn compress(&mut self, job: CompressJob<'_>) -> Compression {
        if let Some(worker) = &mut self.worker {
            worker.push((job.ticket, job.packet.to_vec()));
            return Compression::Pending;
        }
        self.compressed_bytes_max = self.compressed_bytes_max.max(job.packet.len());
        // A modelled cost: 2 ns a byte, unless it takes time.
        let passes_ns = self.compress_byte_ns * job.packet.len() as u64;
        self.now.set(self.now.get() + passes_ns);
        let took_ns = passes_ns.max(2 * job.packet.len() as u64);
        if job.codec != self.codec {
            self.codec = job.codec;
            self.compressor = Compressor::new(job.codec, None).expect("a codec that exists");
        }
        match self.compressor.compress(job.packet, job.out) {
            Ok(len) => Compression::Done { len, took_ns },
            Err(_) => Compression::Failed,
        }
    }

    fn compress_in_context(&mut self, mut job: ContextJob) -> Option<ContextJob> {
        if let Some(worker) = &mut self.context_worker {
            worker.push(job);
            return None;
        }
        job.run();
        job.took_ns = 2 * job.batch_len() as u64;
        job.elapsed_ns = self.context_slowdown.map(|times| times * job.took_ns);
        Some(job)
    }

    fn decode_in_context(&mut self, mut job: Box<DecodeJob>) -> Option<Box<DecodeJob>> {
        if let Some(worker) = &mut self.decode_worker {
            worker.push(*job);
            return None;
        }
        job.run();
        Some(job)
    }

    fn datagram(&mut self, _: usize) -> &mut [u8] {
        &mut self.room
    }

    fn commit(&mut self, peer: usize, len: usize, _: u64) -> bool {
        self.sent.push(self.room[..len].to_vec());
        self.sent_to.push(peer);
        self.link_open
    }

    fn hello(&mut self, to: Destination, datagram: &[u8]) {
        self.sent.push(datagram.to_vec());
        self.sent_to.push(match to {
            Destination::Peer(peer) => peer,
            Destination::Address(_) => 0,
        });
    }

    fn deliver(&mut self, packet: &[u8]) {
        self.delivered.push(packet.to_vec());
        self.delivered_at.push(self.now.get());
    }

    fn event(&mut self, event: NodeEvent) {
        self.events.push(event);
    }
}

/// A node, its world, and a source of inner packets.
pub(super) struct End {
    pub(super) side: usize,
    pub(super) node: Node,
    pub(super) env: TestEnv,
    pub(super) rng: Rng,
    /// Packets still to be made, the time of the next one, and their spacing.
    pub(super) to_make: u64,
    pub(super) next_at: Instant,
    pub(super) spacing_ns: u64,
    /// All that were made, by their numbers.
    pub(super) made: Vec<Vec<u8>>,
    pub(super) made_at: Vec<Instant>,
    pub(super) traffic: Traffic,
    /// What packets have in place of a text that repeats, piece by piece, and begins again.
    pub(super) content: Option<&'static [u8]>,
    /// Its packets are of TCP, not of UDP.
    pub(super) is_tcp: bool,
    /// The source address of the other end's datagrams.
    pub(super) received_from: SocketAddr,
    /// The most parts of a record that were sent; without seals only.
    pub(super) parts_max: usize,
    /// Datagrams longer than this vanish on the path from here.
    pub(super) swallowed_above: usize,
    /// All that it sent, and when, if that is kept.
    pub(super) log: Option<Vec<(Instant, Vec<u8>)>>,
    /// What came while nothing was to be read.
    unread: VecDeque<Vec<u8>>,
    /// While it sleeps: what came for it.
    pub(super) asleep: Option<Vec<Vec<u8>>>,
}

/// The packets of a source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traffic {
    /// Flows, distinguished by their ports.
    pub(super) flows: u64,
    /// Every other packet is one of IPv6.
    pub(super) six: bool,
    /// The longest payload.
    pub(super) payload_max: u64,
    /// The part of the packets that can't be compressed.
    pub(super) random: f64,
}

impl Default for Traffic {
    fn default() -> Self {
        Self { flows: 1, six: false, payload_max: 1308, random: 0.5 }
    }
}

/// Sources of what only looks random.
pub(super) fn random_sources(seed: u64, stream: u64) -> impl FnMut() -> RandomSource {
    let mut seeds = seed;
    move || {
        seeds += 1;
        let mut rng = Rng::stream(seeds, stream);
        Box::new(move |bytes| rng.fill(bytes))
    }
}

impl TestEnv {
    pub(super) fn new(codec: CodecSpec) -> Self {
        let compressor = Compressor::new(codec, None).expect("it is built in");
        Self {
            now: Rc::new(Cell::new(Instant::ZERO)),
            compressor,
            codec,
            room: vec![0; 65_536],
            sent: Vec::new(),
            sent_to: Vec::new(),
            delivered: Vec::new(),
            delivered_at: Vec::new(),
            events: Vec::new(),
            link_open: true,
            worker: None,
            context_slowdown: None,
            context_worker: None,
            decode_worker: None,
            compress_byte_ns: 0,
            clock_ahead_ns: 1_700_000_000_000_000_000,
            compressed_bytes_max: 0,
        }
    }
}

impl End {
    pub(super) fn new(side: usize, config: &Config, seed: u64) -> Self {
        let mut random = random_sources(seed, side as u64);
        let endpoint = Some(ADDRESSES[1 - side].parse().expect("an address"));
        let node = Node::new(config, &[endpoint], &mut random).expect("a good configuration");
        let env = TestEnv::new(config.peers[0].codec);
        Self {
            side,
            node,
            env,
            rng: Rng::stream(seed, 99),
            to_make: 0,
            next_at: Instant::FAR_FUTURE,
            spacing_ns: 0,
            made: Vec::new(),
            made_at: Vec::new(),
            traffic: Traffic::default(),
            content: None,
            is_tcp: false,
            received_from: ADDRESSES[1 - side].parse().expect("an address"),
            parts_max: 0,
            swallowed_above: usize::MAX,
            log: None,
            unread: VecDeque::new(),
            asleep: None,
        }
    }

    /// Ends its sleep: it finds what came for it, and that time went on.
    pub(super) fn wake(&mut self, now: Instant, out: &mut virtual_net::Outbox) {
        for datagram in self.asleep.take().unwrap_or_default() {
            virtual_net::Node::receive(self, now, 0, &datagram, out);
        }
        self.env.now.set(now);
        self.node.timers(&mut self.env);
        self.after(out);
    }

    pub(super) fn source(&mut self, start: Instant, packets: u64, spacing_ns: u64) {
        self.to_make = packets;
        self.next_at = start;
        self.spacing_ns = spacing_ns;
    }

    pub(super) fn peer(&self) -> PeerStatus {
        self.node.status(self.env.now()).peers.remove(0)
    }

    /// An inner UDP packet with a number of its own.
    pub(super) fn make_packet(&mut self) -> Vec<u8> {
        let Traffic { flows, six, payload_max, random } = self.traffic;
        let payload_len = 8 + self.rng.below(payload_max - 8) as usize;
        let mut payload = vec![0; payload_len];
        if self.rng.chance(random) {
            self.rng.fill(&mut payload);
        } else if let Some(content) = self.content {
            let from = self.made.len() * payload_max as usize % (content.len() - payload_len);
            payload.copy_from_slice(&content[from..][..payload_len]);
        } else {
            let text = b"the queue is idle time ";
            payload
                .chunks_mut(text.len())
                .for_each(|part| part.copy_from_slice(&text[..part.len()]));
        }
        payload[..8].copy_from_slice(&(self.made.len() as u64).to_be_bytes());
        let (from, to) = (self.side as u8 + 1, 2 - self.side as u8);
        let mut packet = if six && self.made.len() % 2 == 1 {
            inner_packet_v6(from, to, &payload)
        } else {
            inner_packet([10, from, 0, 5], [10, to, 0, 9], &payload)
        };
        if flows > 1 {
            let (port, at) = (1000 + self.rng.below(flows) as u16, packet.len() - payload_len - 8);
            packet[at..at + 2].copy_from_slice(&port.to_be_bytes());
        }
        if self.is_tcp {
            // Ports are where UDP has them; the rest is content.
            let at = if packet[0] >> 4 == 4 { 9 } else { 6 };
            packet[at] = 6;
        }
        self.made.push(packet.clone());
        self.made_at.push(self.env.now());
        packet
    }

    /// The worker is done with everything it was given.
    pub(super) fn work(&mut self) {
        let jobs = self.env.worker.as_mut().map(std::mem::take).unwrap_or_default();
        for (ticket, packet) in jobs {
            let mut out = vec![0; packet.len()];
            let len = self.env.compressor.compress(&packet, &mut out).expect("lz4 works");
            let now = self.env.now();
            self.node.compressed(now, ticket, Ok(len.map(|len| &out[..len])), 1_000_000);
        }
    }

    /// The worker is done with all batches of contexts that it was given.
    pub(super) fn work_in_contexts(&mut self) {
        let jobs = self.env.context_worker.as_mut().map(std::mem::take).unwrap_or_default();
        for mut job in jobs {
            job.run();
            job.took_ns = 100_000;
            self.node.compressed_in_context(self.env.now(), job);
        }
    }

    /// A worker is done with the batch of a context that was given to it last.
    pub(super) fn work_on_latest(&mut self) {
        if let Some(mut job) = self.env.context_worker.as_mut().and_then(Vec::pop) {
            job.run();
            job.took_ns = 100_000;
            self.node.compressed_in_context(self.env.now(), job);
        }
    }

    /// The worker is done with all batches that it was to decode.
    pub(super) fn decode_in_contexts(&mut self) {
        let jobs = self.env.decode_worker.as_mut().map(std::mem::take).unwrap_or_default();
        for mut job in jobs {
            job.run();
            self.node.decoded_in_context(&mut self.env, Box::new(job));
        }
    }

    /// Reads what came, as long as there is something to be read from the peer.
    fn read(&mut self) {
        let source = self.received_from;
        while !self.node.is_clogged(0)
            && let Some(mut bytes) = self.unread.pop_front()
        {
            self.node.take_turns(&mut self.env);
            // Through the socket that is connected to the peer, if there is one.
            let connected = self.node.endpoint(0).filter(|at| *at == source).map(|_| 0);
            self.node.datagram(&mut self.env, connected, source, &mut bytes);
            self.node.pump_all(&mut self.env);
        }
    }

    pub(super) fn after(&mut self, out: &mut virtual_net::Outbox) {
        while self.node.is_behind() {
            self.node.take_turns(&mut self.env);
            self.node.pump_all(&mut self.env);
        }
        self.node.assert_invariants();
        self.env.sent_to.clear();
        if let Some(log) = &mut self.log {
            let now = self.env.now.get();
            log.extend(self.env.sent.iter().map(|datagram| (now, datagram.clone())));
        }
        for datagram in self.env.sent.drain(..) {
            self.parts_max = self.parts_max.max(parts_of(&datagram));
            if datagram.len() <= self.swallowed_above {
                out.send(0, &datagram);
            }
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.peer().state == PeerState::Up
    }
}

/// In how many parts the record was cut that a datagram without seal has a part of.
fn parts_of(datagram: &[u8]) -> usize {
    let Some(body) = datagram.get(DATA_HEADER_LEN..) else { return 0 };
    let parts = Records::new(body).filter_map(|record| match record {
        Ok(Record::Fragment(fragment)) => Some(usize::from(fragment.last) + 1),
        _ => None,
    });
    parts.max().unwrap_or(0)
}

/// IPv4 and UDP around a payload.
pub(super) fn inner_packet(from: [u8; 4], to: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let total = 28 + payload.len() as u16;
    let mut packet = vec![0x45, 0];
    packet.extend(total.to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    packet.extend(from);
    packet.extend(to);
    packet.extend([0x30, 0x39, 0x00, 0x35]);
    packet.extend((total - 20).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(payload);
    packet
}

/// IPv6 and UDP around a payload.
pub(super) fn inner_packet_v6(from: u8, to: u8, payload: &[u8]) -> Vec<u8> {
    let len = 8 + payload.len() as u16;
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(len.to_be_bytes());
    packet.extend([17, 64]);
    for side in [from, to] {
        packet.extend([0xfd, 0, 0, side, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5]);
    }
    packet.extend([0x30, 0x39, 0x00, 0x35]);
    packet.extend(len.to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(payload);
    packet
}

/// Returns the bytes behind the headers of such a packet.
pub(super) fn payload_of(packet: &[u8]) -> &[u8] {
    if packet[0] >> 4 == 4 { &packet[28..] } else { &packet[48..] }
}

/// The number of such a packet.
pub(super) fn number_of(packet: &[u8]) -> u64 {
    u64::from_be_bytes(payload_of(packet)[..8].try_into().expect("8 bytes"))
}

impl virtual_net::Node for End {
    fn receive(&mut self, now: Instant, _: usize, datagram: &[u8], out: &mut virtual_net::Outbox) {
        if let Some(came) = &mut self.asleep {
            came.push(datagram.to_vec());
            return;
        }
        self.env.now.set(now);
        self.unread.push_back(datagram.to_vec());
        self.read();
        self.after(out);
    }

    fn handle_deadline(&mut self, now: Instant, out: &mut virtual_net::Outbox) {
        self.env.now.set(now);
        if now >= self.next_at && self.to_make > 0 {
            let mut packet = self.make_packet();
            if let Some(peer) = self.node.packet(&mut self.env, &mut packet) {
                self.node.pump(&mut self.env, peer);
            }
            self.to_make -= 1;
            self.next_at = now + self.spacing_ns;
        }
        self.read();
        self.node.timers(&mut self.env);
        self.node.pump_all(&mut self.env);
        self.after(out);
    }

    fn next_deadline(&self) -> Option<Instant> {
        if self.asleep.is_some() {
            return None;
        }
        let source = if self.to_make > 0 { self.next_at } else { Instant::FAR_FUTURE };
        Some(self.node.deadline().min(source)).filter(|at| *at != Instant::FAR_FUTURE)
    }
}

pub(super) struct Net {
    pub(super) net: VirtualNet<End>,
    pub(super) ends: [NodeId; 2],
    pub(super) links: [virtual_net::DirectionId; 2],
}

impl Net {
    pub(super) fn new(configs: &[Config; 2], link: &LinkSpec, seed: u64) -> Self {
        let mut net = VirtualNet::new();
        let ends = [0, 1].map(|side| net.add(End::new(side, &configs[side], seed)));
        let back = link.clone().with_seed(seed ^ 77);
        let links = net.connect((ends[0], 0), (ends[1], 0), link.clone().with_seed(seed), back);
        Self { net, ends, links }
    }

    pub(super) fn end(&self, side: usize) -> &End {
        self.net.node(self.ends[side])
    }

    pub(super) fn run_to(&mut self, ms: u64) {
        self.net.run_until(at_ms(ms)).expect("the net comes to rest");
    }

    /// Gives an end another configuration while it works; its peer is where it was.
    pub(super) fn reconfigure(&mut self, side: usize, config: &Config) {
        self.net.with_node(self.ends[side], |end, now, _| {
            end.env.now.set(now);
            let endpoint = Some(ADDRESSES[1 - side].parse().expect("an address"));
            let mut random = random_sources(7, 7);
            end.node.reconfigure(config, &[endpoint], &mut random).expect("a good configuration");
        });
    }

    /// A node is killed, and comes back at once without anything that it knew.
    pub(super) fn restart(&mut self, side: usize, config: &Config, seed: u64) {
        self.net.with_node(self.ends[side], |end, now, _| {
            let mut other = End::new(side, config, seed);
            other.env.now.set(now);
            std::mem::swap(&mut end.node, &mut other.node);
        });
    }

    pub(super) fn start_sources(&mut self, start_ms: u64, packets: u64, spacing_ns: u64) {
        for side in [0, 1] {
            self.start_source(side, start_ms, packets, spacing_ns);
        }
    }

    /// The same at one end.
    pub(super) fn start_source(
        &mut self,
        side: usize,
        start_ms: u64,
        packets: u64,
        spacing_ns: u64,
    ) {
        let id = self.ends[side];
        self.net.with_node(id, |end, _, _| end.source(at_ms(start_ms), packets, spacing_ns));
    }

    /// Everything that was delivered is something that was sent, unaltered and once.
    pub(super) fn assert_nothing_altered_or_doubled(&self) {
        for side in [0, 1] {
            let (from, to) = (self.end(1 - side), self.end(side));
            let mut seen = HashSet::new();
            for packet in &to.env.delivered {
                let number = number_of(packet);
                assert_eq!(Some(packet), from.made.get(number as usize), "{number} is damaged");
                assert!(seen.insert(number), "packet {number} was delivered twice");
            }
        }
    }

    /// Within each flow packets came in the order in which they were sent.
    pub(super) fn assert_flows_in_order(&self) {
        assert_eq!(self.late_in_flow(), 0, "order is broken");
    }

    /// Returns the number of packets that came behind a later one of their flow.
    pub(super) fn late_in_flow(&self) -> usize {
        let mut late = 0;
        for side in [0, 1] {
            let mut last: HashMap<(u8, Vec<u8>), u64> = HashMap::new();
            for packet in &self.end(side).env.delivered {
                let at = packet.len() - payload_of(packet).len() - 8;
                let flow = (packet[0] >> 4, packet[at..at + 4].to_vec());
                let latest = last.entry(flow).or_default();
                late += usize::from(number_of(packet) < *latest);
                *latest = number_of(packet).max(*latest);
            }
        }
        late
    }

    /// Returns the delays of packets of some ports to one side: the least, the most and the number
    /// of packets, in nanoseconds.
    pub(super) fn delays_ns(&self, side: usize, ports: RangeInclusive<u16>) -> (u64, u64, usize) {
        let delays = self.each_delay_ns(side, ports);
        let least = delays.iter().copied().min().unwrap_or_default();
        (least, delays.iter().copied().max().unwrap_or_default(), delays.len())
    }

    /// Returns the delay of each packet of some ports to one side.
    pub(super) fn each_delay_ns(&self, side: usize, ports: RangeInclusive<u16>) -> Vec<u64> {
        let (from, to) = (self.end(1 - side), &self.end(side).env);
        let taken = to.delivered.iter().zip(&to.delivered_at).filter(|(packet, _)| {
            let at = packet.len() - payload_of(packet).len() - 8;
            ports.contains(&u16::from_be_bytes([packet[at], packet[at + 1]]))
        });
        taken.map(|(packet, at)| at.since_ns(from.made_at[number_of(packet) as usize])).collect()
    }

    pub(super) fn set_traffic(&mut self, traffic: Traffic) {
        for id in self.ends {
            self.net.with_node(id, |end, _, _| end.traffic = traffic);
        }
    }
}

pub(super) fn at_ms(ms: u64) -> Instant {
    Instant::from_ns(ms * MILLI_NS)
}

pub(super) fn pair(sealed: bool, rate: &str, scheme: &str, link: &LinkSpec, seed: u64) -> Net {
    Net::new(&[0, 1].map(|side| config(side, sealed, rate, scheme)), link, seed)
}

pub(super) fn good_link() -> LinkSpec {
    LinkSpec::new().with_rate(Rate::from_mbps(10)).with_delay_ns(5 * MILLI_NS)
}

/// A datagram of a session without seal that carries this body.
pub(super) fn plain_datagram(net: &mut Net, fill: impl FnOnce(&mut BodyWriter<'_>)) -> Vec<u8> {
    plain_datagram_of(net, 0, fill)
}

/// The same, of either end.
pub(super) fn plain_datagram_of(
    net: &mut Net,
    side: usize,
    fill: impl FnOnce(&mut BodyWriter<'_>),
) -> Vec<u8> {
    net.net.with_node(net.ends[side], |end, _, _| {
        let mut datagram = vec![0; 65_000];
        let mut body = BodyWriter::new(&mut datagram[DATA_HEADER_LEN..]);
        fill(&mut body);
        let len = body.len();
        let session = end.node.peers[0].handshake.session().expect("a session");
        let len = session.seal(&mut datagram, len);
        datagram.truncate(len);
        datagram
    })
}
