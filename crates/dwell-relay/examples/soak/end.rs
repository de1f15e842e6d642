//! A relay of the pair: the node, a world of vectors around it, and its source of packets.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

use dwell_base::time::{MICRO_NS, MILLI_NS, SECOND_NS};
use dwell_base::{Instant, Rng};
use dwell_relay::config::Config;
use dwell_relay::node::Node;
use dwell_relay::trust::RandomSource;
use dwell_report::status::{PeerState, PeerStatus, RateSource};
use dwell_testkit::virtual_net::{self, Outbox};

use crate::modelled::World;
use crate::packet::{self, Arrivals, FLOWS};
use crate::setup::Setup;

/// The addresses of both sides, as the network knows them.
pub(crate) type Addresses = Rc<[Cell<SocketAddr>; 2]>;

/// Returns the addresses that the sides begin with.
pub(crate) fn addresses() -> Addresses {
    Rc::new([1, 2].map(|host| Cell::new(SocketAddr::from(([192, 0, 2, host], 7733)))))
}

/// What waits, and is kept or held beside contexts, has less than this.
const BESIDE_BYTES_MAX: u64 = 4 << 20;

/// What one end has sent so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Bytes of packets, and of those that have arrived.
    pub(crate) made_bytes: u64,
    pub(crate) arrived_bytes: u64,
    /// By the node's own account: all that the link was given.
    pub(crate) link_bytes: u64,
    pub(crate) sent_packets: u64,
    pub(crate) compressed_packets: u64,
    pub(crate) rate_bps: f64,
    pub(crate) rate_source: RateSource,
    /// It can be compressed, and is to be.
    pub(crate) is_compressible: bool,
}

/// One end of the link.
pub(crate) struct End {
    pub(crate) side: usize,
    seed: u64,
    setup: Setup,
    node: Node,
    world: World,
    /// The part of its processor that it has.
    cpu_share: f64,
    context_bytes_max: u64,
    addresses: Addresses,
    rng: Rng,
    /// Starts of this side, for fresh random numbers.
    starts: u64,
    pub(crate) made: u64,
    made_bytes: u64,
    /// The same, flow by flow.
    pub(crate) made_by_flow: [u64; FLOWS],
    next_at: Instant,
    /// The source's shift: until when, what it sends, and how far apart packets are.
    shift_until: Instant,
    content: u8,
    spacing_ns: u64,
    pub(crate) arrivals: Arrivals,
    pub(crate) other_made: Rc<[Cell<u64>; 2]>,
    pub(crate) wrong: Option<String>,
}

/// Every other seed has two threads that compress, so that contexts are compressed at the same time.
fn threads(seed: u64) -> usize {
    1 + (seed & 1) as usize
}

/// What costs vary by is another at each start.
fn world(side: usize, seed: u64, starts: u64, share: f64) -> World {
    let mut world = World::new(share);
    world.processor.vary(Rng::stream(seed, 1_000 + 2 * starts + side as u64));
    world.processor.set_threads(threads(seed));
    world
}

impl End {
    pub(crate) fn new(
        side: usize,
        seed: u64,
        setup: Setup,
        addresses: Addresses,
        made: Rc<[Cell<u64>; 2]>,
    ) -> Result<Self, String> {
        let config = setup.config(side)?;
        let world = world(side, seed, 0, 1.0);
        let cpu_share = 1.0;
        Ok(Self {
            side,
            seed,
            setup,
            node: node(side, seed, 0, &config)?,
            world,
            cpu_share,
            context_bytes_max: config.peers[0].context_memory_max(),
            addresses,
            rng: Rng::stream(seed, 50 + side as u64),
            starts: 0,
            made: 0,
            made_bytes: 0,
            made_by_flow: [0; FLOWS],
            next_at: Instant::from_ns(SECOND_NS),
            shift_until: Instant::ZERO,
            content: 0,
            spacing_ns: SECOND_NS,
            arrivals: Arrivals::default(),
            other_made: made,
            wrong: None,
        })
    }

    /// Ends without a word, and begins again.
    pub(crate) fn restart(&mut self) -> Result<(), String> {
        self.starts += 1;
        let config = self.setup.config(self.side)?;
        self.node = node(self.side, self.seed, self.starts, &config)?;
        // What was being compressed was of the node that is gone.
        let (now, share) = (self.world.now, self.cpu_share);
        self.world = world(self.side, self.seed, self.starts, share);
        self.world.now = now;
        Ok(())
    }

    /// Has so much of its processor from now on.
    pub(crate) fn set_cpu_share(&mut self, share: f64) {
        self.cpu_share = share;
        self.world.processor.set_share(share);
    }

    /// Takes another configuration, under load.
    pub(crate) fn reload(&mut self, rng: &mut Rng) -> Result<(), String> {
        self.setup.change(rng);
        let config = self.setup.config(self.side)?;
        let endpoint = self.node.endpoint(0);
        self.context_bytes_max = config.peers[0].context_memory_max().max(self.context_bytes_max);
        let mut random = random(self.side, self.seed, self.starts + 1_000);
        self.node.reconfigure(&config, &[endpoint], &mut random).map_err(|e| e.to_string())
    }

    pub(crate) fn status(&self) -> PeerStatus {
        self.node.status(self.world.now).peers.remove(0)
    }

    pub(crate) fn is_up(&self) -> bool {
        self.status().state == PeerState::Up
    }

    /// The memory of what is compressed and decoded in contexts, and the most that it may be.
    pub(crate) fn context_bytes(&self) -> (u64, u64) {
        let status = self.status();
        let bytes = status.tx.contexts.memory_bytes + status.rx.contexts.memory_bytes;
        (bytes, self.context_bytes_max)
    }

    /// The memory of all that it has accounts of: contexts, what waits, and what is kept or held.
    pub(crate) fn accounted_bytes(&self) -> u64 {
        let status = self.status();
        let (kept, held) = (status.tx.contexts.kept_bytes, status.rx.contexts.held_bytes);
        // What grows beyond this is no less a leak for being accounted for.
        self.context_bytes().0 + (kept + held + status.waiting_bytes).min(BESIDE_BYTES_MAX)
    }

    /// How often contexts took another codec because it was better, and how many of them are open.
    pub(crate) fn picks(&self) -> (u64, u64) {
        let contexts = self.status().tx.contexts;
        (contexts.generations.get("picked").copied().unwrap_or(0), contexts.open)
    }

    /// What it has sent so far, and what came of that at the other end.
    pub(crate) fn pace(&self, arrived_bytes: u64) -> Pace {
        let status = self.status();
        Pace {
            made_bytes: self.made_bytes,
            arrived_bytes,
            link_bytes: status.tx.link_bytes + status.tx.resent_bytes + status.tx.control_bytes,
            sent_packets: status.tx.sent.packets,
            compressed_packets: status.tx.compressed.packets,
            // Before there is one, or without one, the link takes all.
            rate_bps: status.rate_bps.map_or(f64::INFINITY, |bps| bps as f64),
            rate_source: status.rate_source,
            is_compressible: self.setup.compresses() && self.content != packet::RANDOM,
        }
    }

    /// What a person would want to know of it when something is wrong.
    pub(crate) fn seen(&self) -> String {
        let status = self.status();
        format!(
            "{:?}, {:?} rate {:?}, a packet each {} us of content {}",
            status.state,
            status.rate_source,
            status.rate_bps,
            self.spacing_ns / MICRO_NS,
            self.content
        )
    }

    /// Sends the same all the time until then: up to some eighty times what a thin link takes.
    pub(crate) fn keep_steady(&mut self, (now, until): (Instant, Instant), rng: &mut Rng) {
        self.spacing_ns = [500, 2_000, 5_000, 20_000][rng.below(4) as usize] * MICRO_NS;
        self.content = rng.below(packet::CONTENTS) as u8;
        (self.shift_until, self.next_at) = (until, now);
    }

    fn other(&self) -> usize {
        1 - self.side
    }

    /// The source's next packet, and when the one after it comes.
    fn send_packet(&mut self, now: Instant) {
        if now >= self.shift_until {
            let spacings = [2, 5, 20, 100, 1_000, 60_000];
            self.spacing_ns = spacings[self.rng.below(6) as usize] * MILLI_NS;
            let lasts_s = if self.spacing_ns < 50 * MILLI_NS { 5 } else { 600 };
            self.shift_until = now + (1 + self.rng.below(lasts_s)) * SECOND_NS;
            self.content = self.rng.below(packet::CONTENTS) as u8;
        }
        let mut packet = packet::make(self.side, self.seed, (self.made, self.content));
        self.world.processor.moved_packet();
        self.made += 1;
        self.made_bytes += packet.len() as u64;
        self.made_by_flow[packet::flow_of(&packet)] += 1;
        self.other_made[self.side].set(self.made);
        if let Some(peer) = self.node.packet(&mut self.world, &mut packet) {
            self.node.pump(&mut self.world, peer);
        }
        self.next_at = now + 1 + self.rng.below(2 * self.spacing_ns);
    }

    /// After each event: verifies, and puts what was sent on the link.
    pub(crate) fn settle(&mut self, out: &mut Outbox) {
        let now = self.world.now;
        if self.node.is_look_due(now) {
            let times = self.world.processor.times(now);
            self.node.look_at_processors(now, Some(times));
        }
        self.node.pump_all(&mut self.world);
        while self.node.is_behind() {
            self.node.take_turns(&mut self.world);
            self.node.pump_all(&mut self.world);
        }
        self.node.assert_invariants();
        let source = (self.other(), self.seed, self.other_made[self.other()].get());
        for packet in self.world.delivered.drain(..) {
            if let Err(message) = self.arrivals.arrived(&packet, source) {
                self.wrong.get_or_insert(format!("at side {}: {message}", self.side));
            }
        }
        let there = self.addresses[1 - self.side].get();
        let endpoint = self.node.endpoint(0);
        for (to, datagram) in self.world.sent.drain(..) {
            // Nobody is at an address that was left.
            if to.or(endpoint) == Some(there) {
                out.send(0, &datagram);
            }
        }
    }
}

impl virtual_net::Node for End {
    fn receive(&mut self, now: Instant, _: usize, datagram: &[u8], out: &mut Outbox) {
        self.world.now = now;
        self.world.processor.moved_packet();
        let source = self.addresses[self.other()].get();
        let connected = (self.node.endpoint(0) == Some(source)).then_some(0);
        let mut bytes = datagram.to_vec();
        self.node.take_turns(&mut self.world);
        self.node.datagram(&mut self.world, connected, source, &mut bytes);
        self.settle(out);
    }

    fn handle_deadline(&mut self, now: Instant, out: &mut Outbox) {
        self.world.now = now;
        self.world.hand_over(&mut self.node);
        if now >= self.next_at {
            self.send_packet(now);
        }
        self.node.timers(&mut self.world);
        self.settle(out);
    }

    fn next_deadline(&self) -> Option<Instant> {
        let done_at = self.world.processor.next_deadline().unwrap_or(Instant::FAR_FUTURE);
        Some(self.node.deadline().min(self.next_at).min(done_at))
    }
}

fn random(side: usize, seed: u64, start: u64) -> impl FnMut() -> RandomSource {
    let mut calls = 0;
    move || {
        calls += 1;
        let mut rng = Rng::stream(seed ^ (start << 20) ^ calls, 7 + side as u64);
        Box::new(move |bytes: &mut [u8]| rng.fill(bytes))
    }
}

fn node(side: usize, seed: u64, start: u64, config: &Config) -> Result<Node, String> {
    // The address in the configuration: that of side 0 may have been left meanwhile.
    let endpoint = SocketAddr::from(([192, 0, 2, 2 - side as u8], 7733));
    let node = Node::new(config, &[Some(endpoint)], &mut random(side, seed, start));
    let mut node = node.map_err(|e| e.to_string())?;
    node.set_threads(threads(seed));
    Ok(node)
}
