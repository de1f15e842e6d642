//! Peers that send what costs much to restore, and others beside them.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};

use dwell_base::time::{MICRO_NS, SECOND_NS};
use dwell_testkit::hostile::{HostilePeer, bodies};
use dwell_wire::record::{BLOCK_PACKETS_MAX, packets_max};
use dwell_wire::{Control, Record, Records};

use super::harness::*;
use crate::config::{Config, Secret};
use crate::node::turns::{BUDGET_NS, PACKET_NS};
use crate::node::*;

/// The hub, in virtual time, and its peers: the last is the hostile one.
struct Hub {
    node: Node,
    env: BusyEnv,
    peers: Vec<HostilePeer>,
    /// Datagrams received by the sockets of the peers.
    sockets: Vec<VecDeque<Vec<u8>>>,
}

/// The world of a node for which it takes time to write packets.
struct BusyEnv(TestEnv);

const DELIVER_NS: u64 = 3 * MICRO_NS;
const HUB: &str = "10.2.0.9:9";

impl Env for BusyEnv {
    fn now(&self) -> Instant {
        self.0.now()
    }

    fn unix_ns(&self) -> u64 {
        self.0.unix_ns()
    }

    fn compress(&mut self, job: CompressJob<'_>) -> Compression {
        self.0.compress(job)
    }

    fn compress_in_context(&mut self, job: ContextJob) -> Option<ContextJob> {
        self.0.compress_in_context(job)
    }

    fn datagram(&mut self, peer: usize) -> &mut [u8] {
        self.0.datagram(peer)
    }

    fn commit(&mut self, peer: usize, len: usize, burst_bytes: u64) -> bool {
        self.0.commit(peer, len, burst_bytes)
    }

    fn hello(&mut self, to: Destination, datagram: &[u8]) {
        self.0.hello(to, datagram);
    }

    fn deliver(&mut self, packet: &[u8]) {
        self.0.now.set(self.0.now.get() + DELIVER_NS);
        self.0.deliver(packet);
    }

    fn event(&mut self, event: NodeEvent) {
        self.0.event(event);
    }
}

fn address(peer: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1 + peer as u8], 7733))
}

/// A port of a host behind a peer.
fn behind(peer: usize, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 100 + peer as u8, 0, 5), port)
}

impl Hub {
    fn new(peers: usize) -> Self {
        let mut text = "[node]\naddresses = [\"10.2.0.1/16\"]\n".to_owned();
        for peer in 0..peers {
            text += &format!(
                "[[peer]]\nname = \"peer{peer}\"\nendpoint = \"{}\"\n\
                 prefixes = [\"10.{}.0.0/16\"]\npsk_file = \"{peer}.psk\"\n",
                address(peer),
                100 + peer
            );
        }
        let key_in = |path: &std::path::Path| {
            let name = path.as_os_str().as_encoded_bytes();
            Ok(Secret::new([name[name.len() - ".psk".len() - 1]; 32]))
        };
        let config = Config::parse(&text, "test.toml", &key_in);
        let config = config.expect("a good configuration");
        let endpoints: Vec<_> = (0..peers).map(|peer| Some(address(peer))).collect();
        let mut random = random_sources(1, 1);
        let node = Node::new(&config, &endpoints, &mut random).expect("a good configuration");
        let env = BusyEnv(TestEnv::new(config.peers[0].codec));
        let callers =
            (0..peers).map(|peer| HostilePeer::new(Some([b'0' + peer as u8; 32]), peer as u64));
        let sockets = vec![VecDeque::new(); peers];
        let mut hub = Self { node, env, peers: callers.collect(), sockets };
        (0..peers).for_each(|peer| hub.connect(peer));
        hub
    }

    fn connect(&mut self, peer: usize) {
        let mut datagram = self.peers[peer].initiate();
        loop {
            self.node.datagram(&mut self.env, Some(peer), address(peer), &mut datagram);
            let answer = self.env.0.sent.drain(..).next_back();
            match answer.and_then(|answer| self.peers[peer].receive(&answer)) {
                Some(next) => datagram = next,
                None => break,
            }
        }
        assert!(self.peers[peer].is_connected());
        self.send(peer, &bodies::body(99, |_| ()));
        self.turn();
        assert!(self.node.is_up(peer));
    }

    /// Puts a datagram into a peer's socket.
    fn send(&mut self, peer: usize, body: &[u8]) {
        let datagram = self.peers[peer].seal(body).expect("a session");
        self.sockets[peer].push_back(datagram);
    }

    /// Puts a numbered packet into a peer's socket.
    fn send_packet(&mut self, peer: usize, number: u64, len: usize) {
        let mut payload = vec![7; len - 28];
        payload[..8].copy_from_slice(&number.to_be_bytes());
        let packet =
            bodies::udp_packet(behind(peer, 1), HUB.parse().expect("an address"), &payload);
        let body = bodies::body(1_500, |body| body.raw(&packet).expect("room"));
        self.send(peer, &body);
    }

    /// Runs one round of the driver. Returns the time that it took.
    fn turn(&mut self) -> u64 {
        let began = self.env.now();
        self.node.take_turns(&mut self.env);
        for peer in 0..self.peers.len() {
            while self.node.has_turn(peer) {
                let Some(mut datagram) = self.sockets[peer].pop_front() else { break };
                self.node.datagram(&mut self.env, Some(peer), address(peer), &mut datagram);
            }
        }
        self.env.now().since_ns(began)
    }

    fn rx(&self, peer: usize) -> dwell_report::status::RxStatus {
        self.node.status(self.env.now()).peers.remove(peer).rx
    }

    /// Packets that came from behind this peer.
    fn came(&mut self, peer: usize) -> Vec<Vec<u8>> {
        let ours = |packet: &Vec<u8>| packet[13] == 100 + peer as u8;
        let (ours, others) = self.env.0.delivered.drain(..).partition(ours);
        self.env.0.delivered = others;
        ours
    }

    fn crowd(peer: usize) -> (Vec<u8>, usize) {
        let hub = HUB.parse().expect("an address");
        bodies::crowd(behind(peer, 9), hub, bodies::BODY_LEN_MAX)
    }
}

#[test]
fn a_datagram_holds_no_more_packets_than_its_bytes_allow() {
    let mut hub = Hub::new(1);
    let (body, packets) = Hub::crowd(0);
    hub.send(0, &body);
    let mut took_ns = hub.turn();
    while hub.node.is_behind() {
        took_ns += hub.turn();
    }
    let came = hub.came(0).len();
    assert!(packets > 50_000 && came == packets_max(body.len()), "{came} of {packets}");
    assert!(hub.rx(0).too_many_packets > 0);
    assert!(took_ns < 6_000_000, "{took_ns} ns");
    // What a relay sends at the most is taken whole: a block of as many packets as fit into one.
    let packet = bodies::udp_packet(behind(0, 9), HUB.parse().expect("an address"), &[]);
    let (body, packets) = bodies::blocks_of(&packet, BLOCK_PACKETS_MAX, 70);
    let refused = hub.rx(0).too_many_packets;
    hub.send(0, &body);
    hub.turn();
    assert_eq!((hub.came(0).len(), packets), (BLOCK_PACKETS_MAX, BLOCK_PACKETS_MAX));
    assert_eq!(hub.rx(0).too_many_packets, refused);
}

#[test]
fn who_sends_what_costs_much_delays_others_by_little() {
    let mut hub = Hub::new(2);
    let (crowd, _) = Hub::crowd(1);
    let (mut sent, mut crowded, mut longest_ns) = (0, 0, 0);
    for round in 0..2_000 {
        if round % 10 == 0 {
            hub.send(1, &crowd);
        }
        for _ in 0..4 {
            hub.send_packet(0, sent, 1_000);
            sent += 1;
        }
        longest_ns = longest_ns.max(hub.turn());
        let came = hub.came(0);
        assert_eq!(came.len(), 4, "in turn {round}: what comes is handed on in the same turn");
        crowded += hub.came(1).len();
    }
    // A budget, what it may be overdrawn by, and one block.
    let bound_ns = 2 * BUDGET_NS as u64 + (BLOCK_PACKETS_MAX as u64 + 20) * PACKET_NS;
    assert!(longest_ns < bound_ns, "a turn took {longest_ns} ns");
    assert!(crowded > 50_000, "the other is served as well: {crowded}");
    assert!(hub.rx(1).deferred_datagrams > 100, "{:?}", hub.rx(1));
}

#[test]
fn peers_that_all_want_more_than_there_is_get_the_same() {
    let mut hub = Hub::new(3);
    let (crowd, _) = Hub::crowd(2);
    let mut costs_ns = [0; 3];
    for _ in 0..300 {
        for number in 0..300 {
            (0..2).for_each(|peer| hub.send_packet(peer, number, [60, 1_400][peer]));
        }
        hub.send(2, &crowd);
        hub.turn();
        for (peer, cost_ns) in costs_ns.iter_mut().enumerate() {
            *cost_ns += hub.came(peer).len() as u64 * DELIVER_NS;
        }
        (0..2).for_each(|peer| hub.sockets[peer].truncate(400));
    }
    // Small datagrams of one packet cost more than their packets: they are opened one by one.
    let [least, most] = [costs_ns.iter().min(), costs_ns.iter().max()].map(|it| *it.expect("3"));
    assert!(least > 100 * BUDGET_NS as u64 && most < 3 * least, "{costs_ns:?}");
}

#[test]
fn what_was_read_waits_its_turn_in_order_and_within_bounds() {
    let mut hub = Hub::new(2);
    hub.node.take_turns(&mut hub.env);
    // By the socket that all share: nobody is asked whether it may be read.
    for number in 0..2_000 {
        hub.send_packet(0, number, 1_000);
    }
    while let Some(mut datagram) = hub.sockets[0].pop_front() {
        hub.node.datagram(&mut hub.env, None, address(0), &mut datagram);
    }
    assert!(hub.node.is_behind() && !hub.node.has_turn(0) && hub.node.has_turn(1));
    let rx = hub.rx(0);
    assert!(rx.over_budget > 500, "{rx:?}");
    hub.send_packet(1, 1, 1_000);
    let mut came = hub.came(0);
    for turn in 0..20 {
        assert!(hub.turn() < 3 * BUDGET_NS as u64);
        // By the same socket, after the peer's turn: it must not pass what waits.
        hub.send_packet(0, 2_000 + turn, 1_000);
        let mut datagram = hub.sockets[0].pop_front().expect("one datagram");
        hub.node.datagram(&mut hub.env, None, address(0), &mut datagram);
        came.extend(hub.came(0));
    }
    hub.turn();
    came.extend(hub.came(0));
    assert!(!hub.node.is_behind());
    assert_eq!(came.len() as u64, 2_020 - hub.rx(0).over_budget, "what waited is handed on");
    let numbers: Vec<u64> = came.iter().map(|packet| number_of(packet)).collect();
    assert!(numbers.is_sorted() && numbers[0] == 0);
    assert_eq!(hub.came(1).len(), 1);
}

#[test]
fn control_messages_do_not_wait() {
    let mut hub = Hub::new(1);
    hub.node.take_turns(&mut hub.env);
    let (crowd, _) = Hub::crowd(0);
    for _ in 0..3 {
        hub.send(0, &crowd);
    }
    let probe = Control::Probe { sender_time_ns: 77, id: 1, report_every_ms: 0, arrivals_max: 0 };
    // Behind a packet that has to wait.
    let packet = bodies::udp_packet(behind(0, 9), HUB.parse().expect("an address"), &[7]);
    hub.send(
        0,
        &bodies::body(200, |body| {
            body.raw(&packet).expect("room");
            body.control(&probe).expect("room");
        }),
    );
    while let Some(mut datagram) = hub.sockets[0].pop_front() {
        hub.node.datagram(&mut hub.env, Some(0), address(0), &mut datagram);
    }
    assert!(hub.node.is_behind());
    assert!(!hub.came(0).contains(&packet));
    // It is answered now, and not again when the packet's turn has come.
    let answered = hub.env.0.sent.len();
    while hub.node.is_behind() {
        hub.turn();
    }
    assert!(hub.came(0).contains(&packet));
    assert_eq!(hub.env.0.sent.len(), answered);
    let answers = hub.env.0.sent.iter().filter_map(|datagram| hub.peers[0].open(datagram));
    let is_reply = |body: &Vec<u8>| {
        let reply = |record| {
            matches!(record, Ok(Record::Control(Control::ProbeReply { sender_time_ns: 77, .. })))
        };
        Records::new(body).any(reply)
    };
    assert_eq!(answers.filter(is_reply).count(), 1);
}

#[test]
fn a_jump_of_the_numbers_is_counted_as_one() {
    let mut hub = Hub::new(1);
    hub.send_packet(0, 1, 100);
    let next = hub.peers[0].next_number().expect("a session");
    let body = bodies::body(99, |_| ());
    let far = hub.peers[0].seal_as(next + (1 << 31) - 9, &body).expect("a session");
    hub.sockets[0].push_back(far);
    hub.send_packet(0, 2, 100);
    hub.turn();
    hub.env.0.now.set(hub.env.now() + 60 * SECOND_NS);
    let rx = hub.rx(0);
    assert_eq!((rx.sequence_jumps, rx.lost_datagrams, rx.unrecovered_datagrams), (1, 0, 0));
    assert_eq!(hub.came(0).len(), 2);
}

/// The most packets for their bytes that a relay meets: small ones that are all the same.
#[test]
fn what_a_node_sends_keeps_within_what_a_datagram_may_hold() {
    for scheme in ["all", "packet", "edge", "flow", "service", "basicq"] {
        for more in ["", "\nblock_bytes = \"60KB\"", "\ncolumnar = false\nblock_bytes = \"60KB\""] {
            let lines = format!("scheme = \"{scheme}\"{more}");
            let configs = [0, 1].map(|side| config_with(side, true, "1mbit", &lines));
            let mut net = Net::new(&configs, &good_link(), 3);
            net.run_to(1_000);
            net.net.with_node(net.ends[0], |end, _, out| {
                for flow in 0..1_500_u16 {
                    let mut packet = inner_packet([10, 1, 0, 5], [10, 2, 0, 9], &[]);
                    packet[20..22].copy_from_slice(&(flow % 3).to_be_bytes());
                    end.node.packet(&mut end.env, &mut packet);
                }
                end.node.pump_all(&mut end.env);
                end.after(out);
            });
            net.run_to(3_000);
            let (tx, rx) = (net.end(0).peer().tx, net.end(1).peer().rx);
            assert!(tx.sent.packets >= 400, "{scheme}: {tx:?}");
            assert_eq!((rx.too_many_packets, rx.decode_failed), (0, 0), "{scheme}{more}");
            assert_eq!(rx.packets, tx.sent, "{scheme}{more}");
        }
    }
}
