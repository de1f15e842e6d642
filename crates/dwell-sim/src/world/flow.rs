//! The state of a flow, and of its two ends.

use std::collections::HashMap;

use dwell_base::Rng;
use dwell_policy::Gather;

use crate::agenda::NEVER_NS;
use crate::moment::{Clock, Moment, Span, Transmissions};
use crate::ns2::Stream;
use crate::plan::{Plan, PlanError, Queue, RandomSource, TcpStart, Traffic};
use crate::source::Source;
use crate::tcp::{Ack, Flavour, Receiver, Sender, TcpConfig, TcpConfigError};
use crate::world::packets::{NONE, Packet, UNCOMPRESSED};
use crate::world::propagation::Propagation;
use crate::world::{Sighting, World, stream};

#[derive(Debug)]
pub(crate) struct FlowState {
    pub(crate) group: usize,
    pub(crate) max_wait_ns: u64,
    /// True if its sender reacts to marks.
    pub(crate) takes_marks: bool,
    pub(crate) actor: u32,
    /// True if packets are received when they enter their last link.
    pub(crate) is_received_ahead: bool,
    /// For each link, there and back: the key of the packets that its port may compress together.
    gather_keys: [Box<[u64]>; 2],
    route: Box<[u32]>,
    back: Box<[u32]>,
    pub(crate) sending: Sending,
}

#[derive(Debug)]
pub(crate) enum Sending {
    Open(Box<Open>),
    Tcp(Box<Connection>),
}

/// A source that does not react.
#[derive(Debug)]
pub(crate) struct Open {
    source: Source,
    /// The number of first links that are passed without events.
    pub(crate) own_links: u8,
    own: Vec<OwnLink>,
    /// The number of the next packet.
    pub(crate) number: u32,
    /// The next packet: when it is sent, and its size.
    pub(crate) pending: Option<(u64, u32)>,
}

#[derive(Debug)]
struct OwnLink {
    transmissions: Transmissions,
    propagation: Propagation,
    free_ns: u64,
}

impl OwnLink {
    fn pass(&mut self, at_ns: u64, bytes: u32) -> u64 {
        let transmission_ns = self.transmissions.of(u64::from(bytes)).ns;
        self.free_ns = self.free_ns.max(at_ns).saturating_add(transmission_ns);
        self.propagation.arrival_ns(self.free_ns)
    }
}

/// Both ends of a TCP connection.
#[derive(Debug)]
pub(crate) struct Connection {
    segment_bytes: u32,
    /// The bytes that the first packet has less, if it is the SYN and counts as what it is.
    first_lacks_bytes: u32,
    /// The instant at which it begins; none once it has begun.
    pub(crate) starts: Option<Moment>,
    sender: Sender,
    receiver: Receiver,
    acknowledged: u64,
    /// The time at which it began, until all of its packets have arrived.
    began_ns: Option<u64>,
    packets: u64,
}

impl FlowState {
    /// Returns the key by which a port gathers packets, at this place of their path.
    #[inline]
    pub(crate) fn gather_key(&self, back: bool, hop: u8) -> u64 {
        self.gather_keys[usize::from(back)][usize::from(hop)]
    }

    /// Returns the links that its source passes without events.
    pub(crate) fn own_links(&self) -> &[u32] {
        match &self.sending {
            Sending::Open(open) => &self.route[..usize::from(open.own_links)],
            Sending::Tcp(_) => &[],
        }
    }

    /// Returns true if its source does not react, and `hop` is the last of its path.
    #[inline]
    pub(crate) fn ends_at(&self, hop: u8) -> bool {
        usize::from(hop) + 1 == self.route.len() && matches!(self.sending, Sending::Open(_))
    }

    /// Takes out the packets that were sent until `end_ns` and are still on the flow's own links
    /// then. They have not been counted.
    pub(crate) fn still_on_own_links(&mut self, end_ns: u64, mut count: impl FnMut(u64, u32)) {
        let Sending::Open(open) = &mut self.sending else { return };
        while let Some((sent_ns, bytes)) = open.pending.filter(|&(sent_ns, _)| sent_ns <= end_ns) {
            count(sent_ns, bytes);
            open.pending = open.source.next_packet();
        }
    }

    /// Returns the links of its path there, or back.
    #[inline]
    pub(crate) fn path(&self, back: bool) -> &[u32] {
        if back { &self.back } else { &self.route }
    }

    /// Draws the next packet of a source, and returns the instant at which it reaches the first link
    /// that is not the flow's own.
    #[inline]
    pub(crate) fn next_arrival(&mut self, clock: Clock) -> Moment {
        let Sending::Open(open) = &mut self.sending else { return Moment::NEVER };
        open.pending = open.source.next_packet();
        let Some((sent_ns, bytes)) = open.pending else { return Moment::NEVER };
        clock.at(open.own.iter_mut().fold(sent_ns, |at_ns, link| link.pass(at_ns, bytes)))
    }
}

/// The packets that ports may compress together: those that the scheme gathers, and that take the
/// same path until a node decompresses the unit. It travels as its first packet does.
#[derive(Debug, Default)]
struct GatherKeys<'p> {
    known: HashMap<(Gathered, &'p [usize]), u64>,
}

/// The common properties of packets that are compressed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Gathered {
    Flow(usize),
    Service(u64),
    Hosts(u64),
    Edge(u64),
}

impl<'p> GatherKeys<'p> {
    /// Returns the keys for each link of one of the paths of flow `n`.
    fn of(&mut self, plan: &'p Plan, n: usize, path: &'p [usize]) -> Box<[u64]> {
        let key = |(at, &link): (usize, &usize)| {
            let Queue::Port(port) = &plan.links[link].queue else { return 0 };
            let behind = &path[at + 1..];
            let opened = behind.iter().position(|&next| plan.links[next].restored);
            let together = &behind[..opened.unwrap_or(behind.len())];
            let flow = &plan.flows[n];
            let of = match port.config.scheme.gather() {
                Gather::Service => Gathered::Service(flow.service),
                Gather::HostPair => Gathered::Hosts(flow.hosts),
                Gather::Edge => Gathered::Edge(flow.edge),
                _ => Gathered::Flow(n),
            };
            let count = self.known.len() as u64;
            *self.known.entry((of, together)).or_insert(count)
        };
        path.iter().enumerate().map(key).collect()
    }
}

/// The flows of a plan, before they begin.
pub(crate) fn flows<'p>(plan: &'p Plan, seed: u64) -> Result<Vec<FlowState>, PlanError> {
    let indices = |path: &[usize]| path.iter().map(|&n| n as u32).collect();
    let uses = super::route::uses(plan);
    let mut keys = GatherKeys::default();
    let mut make = |(n, flow): (usize, &'p crate::plan::Flow)| {
        let sending = match (&flow.traffic, Source::new(&flow.traffic, seed, n as u64)) {
            (Traffic::Tcp(config, start), _) => {
                let clock = Clock::of(plan.ties);
                let connection = Connection::new(config, *start, clock, (seed, n as u64));
                let reported = |error| PlanError::Flow { flow: n, what: format!("{error}") };
                Sending::Tcp(Box::new(connection.map_err(reported)?))
            }
            (_, Some(source)) => Sending::Open(Box::new(open(plan, &uses, (n, seed), source))),
            (_, None) => return Err(PlanError::NoFlows),
        };
        Ok(FlowState {
            group: flow.group,
            max_wait_ns: flow.max_wait_ns,
            takes_marks: matches!(&flow.traffic, Traffic::Tcp(config, _) if config.ecn),
            actor: 0,
            is_received_ahead: super::route::is_received_ahead(plan, &uses, n),
            gather_keys: [keys.of(plan, n, &flow.route), keys.of(plan, n, &flow.back)],
            route: indices(&flow.route),
            back: indices(&flow.back),
            sending,
        })
    };
    plan.flows.iter().enumerate().map(&mut make).collect()
}

fn open(plan: &Plan, uses: &[usize], (n, seed): (usize, u64), source: Source) -> Open {
    let own_links = super::route::own_links(plan, uses, n);
    let own = plan.flows[n].route[..own_links]
        .iter()
        .map(|&link| OwnLink {
            transmissions: Transmissions::new(plan.links[link].rate, plan.links[link].frame_ns_min),
            propagation: super::link::propagation(plan, link, seed),
            free_ns: 0,
        })
        .collect();
    Open { source, own_links: own_links as u8, own, number: 0, pending: None }
}

impl Connection {
    fn new(
        config: &TcpConfig,
        start: TcpStart,
        clock: Clock,
        (seed, flow): (u64, u64),
    ) -> Result<Self, TcpConfigError> {
        let mut rng = Rng::stream(seed, stream::START + flow);
        let (starts, tick_phase_ns) = match start.random {
            RandomSource::Own => begin(&start, config, clock, &mut rng),
            RandomSource::Ns2 { stream } => begin_in_ns2(&start, config, clock, (seed, stream)),
        };
        let config = TcpConfig { tick_phase_ns, seed: rng.next_u64(), ..*config };
        Ok(Self {
            sender: Sender::new(&config)?,
            receiver: Receiver::new(&config)?,
            segment_bytes: config.segment_bytes,
            first_lacks_bytes: match config.flavour {
                // Scripts for ns-2 multiply packets by one size.
                Flavour::Sack1 => 0,
                _ if config.syn => config.segment_bytes - config.header_bytes,
                _ => 0,
            },
            starts: Some(starts),
            acknowledged: 0,
            began_ns: None,
            packets: config.packets.unwrap_or(u64::MAX),
        })
    }

    /// Returns the time at which a timer of either end expires.
    fn deadline_ns(&self) -> u64 {
        let ends = [self.sender.deadline(), self.receiver.deadline()];
        ends.into_iter().flatten().min().unwrap_or(NEVER_NS)
    }
}

/// Draws the instant at which a connection begins, and the phase of its clock.
fn begin(start: &TcpStart, config: &TcpConfig, clock: Clock, rng: &mut Rng) -> (Moment, u64) {
    let (from_ns, to_ns) = start.between_ns;
    let starts_ns = from_ns + (rng.unit() * (to_ns - from_ns) as f64) as u64;
    (clock.at(starts_ns), rng.below(config.tick_ns))
}

/// Draws the same from ns-2's generator: the beginning is what `$rng uniform FROM TO` gives as the first number of the
/// stream, the phase is what `reset` draws after `$defaultRNG seed [expr SEED + STREAM]`.
fn begin_in_ns2(
    start: &TcpStart,
    config: &TcpConfig,
    clock: Clock,
    (seed, stream): (u64, u64),
) -> (Moment, u64) {
    let (from_ns, to_ns) = start.between_ns;
    let (from_s, to_s) = (from_ns as f64 / 1e9, to_ns as f64 / 1e9);
    let part = f64::from(Stream::new(seed, stream).integer()) / f64::from(i32::MAX);
    let at_s = from_s + (to_s - from_s) * part;
    let starts = match clock {
        Clock::Nanoseconds => Moment::at((at_s * 1e9) as u64),
        Clock::Seconds => Moment::at_seconds(at_s),
    };
    let phase = Stream::new(seed.saturating_add(stream), 0).uniform() * config.tick_ns as f64;
    (starts, phase as u64)
}

/// Returns the instant at which a timer expires that is set now: not before its nanosecond.
fn timer(now: Moment, at_ns: u64) -> Moment {
    if at_ns == NEVER_NS {
        return Moment::NEVER;
    }
    let at = now.after(Span::of(at_ns.saturating_sub(now.ns)));
    Moment { ns: at.ns.max(at_ns), ..at }
}

/// The contents of acknowledgements in flight.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    slots: Vec<Ack>,
    free: Vec<u32>,
}

impl Acks {
    fn insert(&mut self, ack: Ack) -> u32 {
        match self.free.pop() {
            Some(n) => {
                self.slots[n as usize] = ack;
                n
            }
            None => {
                self.slots.push(ack);
                (self.slots.len() - 1) as u32
            }
        }
    }

    pub(crate) fn get(&self, n: u32) -> Ack {
        self.slots[n as usize]
    }

    pub(crate) fn release(&mut self, n: u32) {
        self.free.push(n);
    }

    pub(crate) fn live(&self) -> u64 {
        (self.slots.len() - self.free.len()) as u64
    }
}

impl World {
    pub(super) fn connection_timer(&mut self, n: u32) {
        let now_ns = self.now.ns;
        let FlowState { sending, group, .. } = &mut self.flows[n as usize];
        let (Sending::Tcp(connection), group) = (sending, *group) else { return };
        let is_due = |deadline: Option<u64>| deadline.is_some_and(|at_ns| at_ns <= now_ns);
        let mut late_ack = None;
        if connection.starts.take().is_some() {
            connection.sender.start(now_ns);
            connection.began_ns = Some(now_ns);
            if connection.packets != u64::MAX {
                self.statistics.began(group, now_ns);
            }
        } else {
            if is_due(connection.receiver.deadline()) {
                late_ack = connection.receiver.on_timer(now_ns);
            }
            if is_due(connection.sender.deadline()) {
                connection.sender.on_timer(now_ns);
            }
        }
        if let Some(ack) = late_ack {
            self.answer(n, ack, now_ns);
        }
        self.pump_connection(n);
    }

    /// Handles a segment at its receiver, which answers.
    pub(super) fn segment_arrives(&mut self, packet: &Packet, at_ns: u64) {
        let n = packet.flow;
        let FlowState { sending, group, .. } = &mut self.flows[n as usize];
        let (Sending::Tcp(connection), group) = (sending, *group) else { return };
        if packet.is_marked() {
            connection.receiver.note_mark();
        }
        let ack = connection.receiver.on_segment(at_ns, packet.segment(), packet.sent_ns);
        if connection.receiver.delivered() >= connection.packets
            && let Some(began_ns) = connection.began_ns.take()
        {
            self.statistics.completed(group, began_ns, at_ns);
        }
        let has_timer = connection.receiver.deadline().is_some();
        if let Some(ack) = ack {
            self.answer(n, ack, at_ns);
        }
        if has_timer {
            self.pump_connection(n); // of a delayed one, or of a program that reads
        }
    }

    fn answer(&mut self, n: u32, ack: Ack, at_ns: u64) {
        let bytes = ack.bytes;
        let detail = self.acks.insert(ack);
        let id = self.packets.insert(Packet {
            sent_ns: at_ns,
            bytes,
            original_bytes: bytes,
            flow: n,
            detail,
            next: NONE,
            compressor: UNCOMPRESSED,
            hop: 0,
            back: true,
        });
        match at_ns > self.now.ns {
            true => self.enter_queue(self.flows[n as usize].path(true)[0], id, at_ns),
            false => self.enter_link(id),
        }
    }

    /// Handles an acknowledgement at the sender.
    pub(super) fn acknowledgement_arrives(&mut self, packet: &Packet) {
        let (n, now_ns) = (packet.flow as usize, self.now.ns);
        let ack = &self.acks.slots[packet.detail as usize];
        let flow = &mut self.flows[n];
        if let Sending::Tcp(connection) = &mut flow.sending {
            let more = ack.cumulative.saturating_sub(connection.acknowledged);
            if more > 0 {
                let is_first = connection.acknowledged == 0;
                let lacks = if is_first { u64::from(connection.first_lacks_bytes) } else { 0 };
                let bytes = more * u64::from(connection.segment_bytes) - lacks;
                connection.acknowledged = ack.cumulative;
                self.statistics.acknowledged((n, flow.group), now_ns, more, bytes);
            }
            let before = connection.sender.window();
            connection.sender.on_ack(now_ns, ack);
            let packets = connection.sender.window();
            if let Some(sightings) = &mut self.sightings
                && packets.to_bits() != before.to_bits()
            {
                let threshold = connection.sender.threshold();
                sightings.push(Sighting::Window { at_ns: now_ns, flow: n, packets, threshold });
            }
        }
        self.acks.release(packet.detail);
        self.pump_connection(packet.flow);
    }

    /// Sends what the connection may send now, and keeps its timer.
    fn pump_connection(&mut self, n: u32) {
        let now_ns = self.now.ns;
        loop {
            let flow = &mut self.flows[n as usize];
            let (actor, group) = (flow.actor, flow.group);
            let Sending::Tcp(connection) = &mut flow.sending else { return };
            let Some(segment) = connection.sender.next_segment(now_ns) else {
                let at_ns = connection.deadline_ns();
                if connection.starts.is_none() && self.agenda.time_ns(actor) != at_ns {
                    self.agenda.set(actor, timer(self.now, at_ns));
                }
                return;
            };
            self.statistics.sent(group, now_ns, segment.bytes);
            let id = self.packets.insert(Packet {
                sent_ns: now_ns,
                bytes: segment.bytes,
                original_bytes: segment.bytes,
                flow: n,
                detail: segment.seq as u32,
                next: NONE,
                compressor: UNCOMPRESSED,
                hop: 0,
                back: false,
            });
            self.enter_link(id);
        }
    }
}
