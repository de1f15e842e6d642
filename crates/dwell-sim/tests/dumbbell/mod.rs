//! Senders with access links of their own, one bottleneck with a drop-tail queue, receivers
//! behind it; a small simulation for tests, slow and plain.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use dwell_sim::tcp::{Ack, Flavour, Receiver, Segment, Sender, TcpConfig};

const ACCESS_US_PER_BYTE: u64 = 1;
pub(crate) const BOTTLENECK_US_PER_BYTE: u64 = 4;
const BOTTLENECK_DELAY_US: u64 = 10_007;

/// A flow's parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) start_us: u64,
    /// The one-way delay of its access link.
    pub(crate) delay_us: u64,
    pub(crate) bytes: u32,
    pub(crate) tick_phase_ns: u64,
    pub(crate) flavour: Flavour,
}

/// An event of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Send,
    Retransmission,
    Drop,
}

#[derive(Clone, Debug)]
enum Load {
    Data { seq: u64, sent_us: u64 },
    Ack(Ack),
}

#[derive(Clone, Debug)]
struct Packet {
    flow: usize,
    bytes: u32,
    load: Load,
}

#[derive(Debug)]
enum What {
    Start(usize),
    Timer(usize),
    /// The link has sent a packet and takes the next.
    Idle(usize),
    /// A packet comes out of the link.
    Out(usize, Packet),
}

/// A link with a drop-tail queue: the packet on the wire is not counted, and an arrival is
/// dropped if the queue with it would reach the limit.
#[derive(Debug)]
struct Link {
    us_per_byte: u64,
    delay_us: u64,
    limit: usize,
    queue: VecDeque<Packet>,
    busy: bool,
}

#[derive(Debug)]
pub(crate) struct Dumbbell {
    now_us: u64,
    agenda: BinaryHeap<Reverse<(u64, u64, usize)>>,
    events: Vec<Option<What>>,
    links: Vec<Link>,
    flows: Vec<(Flow, Sender, Receiver)>,
    /// For each flow, the time of the next check of its timer on the agenda.
    checks_us: Vec<u64>,
}

// Links: the bottleneck, its path back, and for each flow its access and the path back.
const DATA: usize = 0;
const ACKS: usize = 1;

impl Dumbbell {
    pub(crate) fn new(limit: usize, flows: &[Flow]) -> Self {
        let link = |us_per_byte, delay_us, limit| Link {
            us_per_byte,
            delay_us,
            limit,
            queue: VecDeque::new(),
            busy: false,
        };
        let mut this = Self {
            now_us: 0,
            agenda: BinaryHeap::new(),
            events: Vec::new(),
            links: vec![
                link(BOTTLENECK_US_PER_BYTE, BOTTLENECK_DELAY_US, limit),
                link(BOTTLENECK_US_PER_BYTE, BOTTLENECK_DELAY_US, usize::MAX),
            ],
            flows: Vec::new(),
            checks_us: vec![u64::MAX; flows.len()],
        };
        for (index, &flow) in flows.iter().enumerate() {
            let config = TcpConfig {
                segment_bytes: flow.bytes,
                tick_phase_ns: flow.tick_phase_ns,
                ..TcpConfig::of(flow.flavour)
            };
            this.flows.push((flow, Sender::new(&config).unwrap(), Receiver::new(&config).unwrap()));
            this.links.push(link(ACCESS_US_PER_BYTE, flow.delay_us, usize::MAX));
            this.links.push(link(ACCESS_US_PER_BYTE, flow.delay_us, usize::MAX));
            this.at(flow.start_us, What::Start(index));
        }
        this
    }

    pub(crate) fn senders(&self) -> impl Iterator<Item = &Sender> {
        self.flows.iter().map(|(_, sender, _)| sender)
    }

    /// Runs until `end_us`, that instant included; calls `report` with the time, the event, the
    /// flow and the number of each packet that is sent or dropped.
    pub(crate) fn run(&mut self, end_us: u64, mut report: impl FnMut(u64, Event, usize, u64)) {
        while let Some(&Reverse((us, _, index))) = self.agenda.peek()
            && us <= end_us
        {
            self.agenda.pop();
            self.now_us = us;
            match self.events[index].take().unwrap() {
                What::Start(flow) => {
                    self.flows[flow].1.start(us * 1000);
                    self.drain(flow, &mut report);
                }
                What::Timer(flow) => {
                    self.checks_us[flow] = u64::MAX;
                    self.flows[flow].1.on_timer(us * 1000);
                    self.drain(flow, &mut report);
                }
                What::Idle(link) => {
                    self.links[link].busy = false;
                    self.serve(link);
                }
                What::Out(link, packet) => self.forward(link, packet, &mut report),
            }
        }
    }

    fn at(&mut self, us: u64, what: What) {
        let index = self.events.len();
        self.events.push(Some(what));
        self.agenda.push(Reverse((us, index as u64, index)));
    }

    fn forward(
        &mut self,
        link: usize,
        packet: Packet,
        report: &mut impl FnMut(u64, Event, usize, u64),
    ) {
        let flow = packet.flow;
        match (link, &packet.load) {
            (DATA, &Load::Data { seq, sent_us }) => {
                let now_ns = self.now_us * 1000;
                let ack = self.flows[flow].2.on_segment(now_ns, seq, sent_us * 1000);
                let ack = ack.expect("acknowledgements are not delayed here");
                let packet = Packet { flow, bytes: ack.bytes, load: Load::Ack(ack) };
                self.enter(ACKS, packet, report);
            }
            (ACKS, _) => self.enter(3 + 2 * flow, packet, report),
            (_, Load::Data { .. }) => self.enter(DATA, packet, report),
            (_, Load::Ack(ack)) => {
                self.flows[flow].1.on_ack(self.now_us * 1000, ack);
                self.drain(flow, report);
            }
        }
    }

    fn drain(&mut self, flow: usize, report: &mut impl FnMut(u64, Event, usize, u64)) {
        while let Some(segment) = self.flows[flow].1.next_segment(self.now_us * 1000) {
            let Segment { seq, bytes, retransmission } = segment;
            let event = if retransmission { Event::Retransmission } else { Event::Send };
            report(self.now_us, event, flow, seq);
            let load = Load::Data { seq, sent_us: self.now_us };
            self.enter(2 + 2 * flow, Packet { flow, bytes, load }, report);
        }
        // Most deadlines move on before they come: it is enough to check when the first does.
        let deadline_us = self.flows[flow].1.deadline().map_or(u64::MAX, |ns| ns / 1000);
        if deadline_us < self.checks_us[flow] {
            self.checks_us[flow] = deadline_us;
            self.at(deadline_us, What::Timer(flow));
        }
    }

    fn enter(
        &mut self,
        link: usize,
        packet: Packet,
        report: &mut impl FnMut(u64, Event, usize, u64),
    ) {
        let queue = &mut self.links[link];
        if queue.queue.len() + 1 >= queue.limit {
            if let Load::Data { seq, .. } = packet.load {
                report(self.now_us, Event::Drop, packet.flow, seq);
            }
            return;
        }
        queue.queue.push_back(packet);
        if !queue.busy {
            self.serve(link);
        }
    }

    fn serve(&mut self, index: usize) {
        let link = &mut self.links[index];
        let Some(packet) = link.queue.pop_front() else { return };
        link.busy = true;
        let sent_us = self.now_us + u64::from(packet.bytes) * link.us_per_byte;
        let out_us = sent_us + link.delay_us;
        self.at(out_us, What::Out(index, packet));
        self.at(sent_us, What::Idle(index));
    }
}
