//! The state of a flow, and what its two ends do.

use crate::agenda::NEVER_NS;
use crate::plan::{Plan, Traffic};
use crate::source::Source;
use crate::tcp::{Ack, Receiver, Sender, TcpConfig};
use crate::world::World;
use crate::world::packets::{NONE, Packet, UNPRESSED};

#[derive(Debug)]
pub(crate) struct FlowState {
    pub(crate) group: usize,
    pub(crate) edge: u64,
    pub(crate) hold_ns: u64,
    pub(crate) actor: u32,
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
    /// How many of the first links are passed without events.
    pub(crate) own_links: u8,
    /// Of each of these: nanoseconds per byte as a fraction, propagation, and when it is free.
    own: Vec<OwnLink>,
    /// The next packet: when it is sent, and its size.
    pub(crate) pending: Option<(u64, u32)>,
}

#[derive(Debug)]
struct OwnLink {
    rate: dwell_base::Rate,
    frame_ns_min: u64,
    propagation_ns: u64,
    free_ns: u64,
    last: (u32, u64),
}

impl OwnLink {
    fn pass(&mut self, at_ns: u64, bytes: u32) -> u64 {
        if self.last.0 != bytes {
            let ns = self.rate.transmission_ns(u64::from(bytes)).max(self.frame_ns_min);
            self.last = (bytes, ns);
        }
        self.free_ns = self.free_ns.max(at_ns) + self.last.1;
        self.free_ns + self.propagation_ns
    }
}

/// Both ends of a TCP connection.
#[derive(Debug)]
pub(crate) struct Connection {
    config: TcpConfig,
    /// Set until it has begun.
    pub(crate) starts_ns: Option<u64>,
    sender: Sender,
    receiver: Receiver,
    acknowledged: u64,
}

impl FlowState {
    /// The links of its way there, or back.
    #[inline]
    pub(crate) fn way(&self, back: bool) -> &[u32] {
        if back { &self.back } else { &self.route }
    }

    /// Draws the next packet of a source, and tells when it reaches the first link that is not
    /// the flow's own.
    #[inline]
    pub(crate) fn next_arrival_ns(&mut self) -> u64 {
        let Sending::Open(open) = &mut self.sending else { return NEVER_NS };
        open.pending = open.source.next_packet();
        let Some((sent_ns, bytes)) = open.pending else { return NEVER_NS };
        open.own.iter_mut().fold(sent_ns, |at_ns, link| link.pass(at_ns, bytes))
    }
}

/// The flows of a plan, before they begin.
pub(crate) fn flows(plan: &Plan, seed: u64) -> Vec<FlowState> {
    let indices = |way: &[usize]| way.iter().map(|&n| n as u32).collect();
    let make = |(n, flow): (usize, &crate::plan::Flow)| FlowState {
        group: flow.group,
        edge: flow.edge,
        hold_ns: flow.hold_ns,
        actor: 0,
        route: indices(&flow.route),
        back: indices(&flow.back),
        sending: match Source::new(&flow.traffic, seed, n as u64) {
            Some(source) => Sending::Open(Box::new(open(plan, n, source))),
            None => Sending::Tcp(Box::new(connection(&flow.traffic))),
        },
    };
    plan.flows.iter().enumerate().map(make).collect()
}

fn open(plan: &Plan, n: usize, source: Source) -> Open {
    let own_links = super::route::own_links(plan, n);
    let own = plan.flows[n].route[..own_links]
        .iter()
        .map(|&link| OwnLink {
            rate: plan.links[link].rate,
            frame_ns_min: plan.links[link].frame_ns_min,
            propagation_ns: plan.links[link].propagation_ns,
            free_ns: 0,
            last: (0, plan.links[link].frame_ns_min),
        })
        .collect();
    Open { source, own_links: own_links as u8, own, pending: None }
}

fn connection(traffic: &Traffic) -> Connection {
    let config = match traffic {
        Traffic::Tcp(config, _) => config.clone(),
        _ => TcpConfig::default(),
    };
    Connection {
        sender: Sender::new(config.clone()),
        receiver: Receiver::new(&config),
        config,
        starts_ns: None,
        acknowledged: 0,
    }
}

/// The contents of acknowledgements under way.
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

    pub(crate) fn release(&mut self, n: u32) {
        self.free.push(n);
    }

    pub(crate) fn live(&self) -> u64 {
        (self.slots.len() - self.free.len()) as u64
    }
}

impl World {
    pub(super) fn connection_timer(&mut self, n: u32) {
        let now_ns = self.now_ns;
        if let Sending::Tcp(connection) = &mut self.flows[n as usize].sending {
            match connection.starts_ns.take() {
                Some(_) => connection.sender.start(now_ns),
                None => connection.sender.on_timer(now_ns),
            }
        }
        self.pump_connection(n);
    }

    /// A segment is at its receiver, which answers.
    pub(super) fn segment_arrives(&mut self, packet: &Packet) {
        let n = packet.flow as usize;
        let Sending::Tcp(connection) = &mut self.flows[n].sending else { return };
        let seq = u64::from(packet.detail);
        let ack = connection.receiver.on_segment(self.now_ns, seq, packet.sent_ns);
        let Some(ack) = ack else { return };
        let bytes = connection.config.ack_bytes;
        let detail = self.acks.insert(ack);
        let id = self.packets.insert(Packet {
            sent_ns: self.now_ns,
            bytes,
            original_bytes: bytes,
            flow: packet.flow,
            detail,
            next: NONE,
            presser: UNPRESSED,
            hop: 0,
            back: true,
        });
        self.enter_link(id);
    }

    /// An acknowledgement is at the sender.
    pub(super) fn acknowledgement_arrives(&mut self, packet: &Packet) {
        let (n, now_ns) = (packet.flow as usize, self.now_ns);
        let ack = &self.acks.slots[packet.detail as usize];
        let flow = &mut self.flows[n];
        if let Sending::Tcp(connection) = &mut flow.sending {
            let more = ack.cumulative.saturating_sub(connection.acknowledged);
            if more > 0 {
                connection.acknowledged = ack.cumulative;
                let bytes = connection.config.segment_bytes;
                self.statistics.acknowledged((n, flow.group), now_ns, more, bytes);
            }
            connection.sender.on_ack(now_ns, ack);
        }
        self.acks.release(packet.detail);
        self.pump_connection(packet.flow);
    }

    /// Sends what the connection may send now, and keeps its timer.
    fn pump_connection(&mut self, n: u32) {
        let now_ns = self.now_ns;
        loop {
            let flow = &mut self.flows[n as usize];
            let (actor, group) = (flow.actor, flow.group);
            let Sending::Tcp(connection) = &mut flow.sending else { return };
            let Some(segment) = connection.sender.next_segment(now_ns) else {
                let at_ns = connection.sender.deadline().unwrap_or(NEVER_NS);
                if self.agenda.time_ns(actor) != at_ns {
                    self.agenda.set(actor, at_ns);
                }
                return;
            };
            let bytes = connection.config.segment_bytes;
            self.statistics.sent(group, now_ns, bytes);
            let id = self.packets.insert(Packet {
                sent_ns: now_ns,
                bytes,
                original_bytes: bytes,
                flow: n,
                detail: segment.seq as u32,
                next: NONE,
                presser: UNPRESSED,
                hop: 0,
                back: false,
            });
            self.enter_link(id);
        }
    }
}
