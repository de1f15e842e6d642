//! Connections behind a relay, a bottleneck beyond, and the peer that reports.

use std::collections::{BTreeMap, VecDeque};

use dwell_base::time::{MICRO_NS, MILLI_NS, SECOND_NS};
use dwell_base::{Instant, Rate, Rng};
use dwell_testkit::LinkSpec;
use dwell_testkit::link::LinkModel;
use dwell_wire::Arrivals;

use super::super::{Bottleneck, LinkReport};
use super::bbr::Bbr;
use super::cubic::{Cubic, LEFT};
use super::port::{Queue, Waiting};
use crate::node::arrivals::Arrived;
use crate::node::pacer::{Pacer, Pacing};

/// The longest packet; the shortest has half as many.
pub(super) const PACKET_BYTES: u64 = 1_400;
/// Bytes that a datagram costs on the link beside the packet.
pub(super) const HEADER_BYTES: u64 = 50;
const STEP_NS: u64 = 200 * MICRO_NS;
const REPORT_NS: u64 = 50 * MILLI_NS;

#[derive(Clone)]
pub(super) struct Terms {
    pub(super) link: LinkSpec,
    /// The path of reports. Acknowledgements take as long, and are never lost.
    pub(super) back: LinkSpec,
    pub(super) flows: usize,
    /// They keep queues short (BBR) rather than fill them.
    pub(super) is_bbr: bool,
    /// They fill them as Linux does.
    pub(super) is_cubic: bool,
    /// The relay has its own queues, with CoDel, and not one that is cut off at its end.
    pub(super) has_flows: bool,
    /// These grant what waits for longer while the queue beyond is emptied.
    pub(super) grants: bool,
    /// What is left of packets, in percent, as they come to the relay's link: they were compressed before.
    pub(super) left_percent: u64,
    /// They are not before the relay knows a rate, or assumes one if it does that.
    pub(super) compresses_late: bool,
    pub(super) assumes: bool,
    /// Traffic beside the tunnel that reacts to nothing.
    pub(super) cross_bps: u64,
    /// Connections beside the tunnel that fill any queue.
    pub(super) cross_flows: usize,
    /// The rate that the programs behind the relay send at most, all together.
    pub(super) offered_bps: u64,
    pub(super) listens: bool,
    /// The relay knows the link's rate at each time, as if it were written.
    pub(super) knows: bool,
    /// The relay's own device is the slow one, and refuses what is too much until its rate was found.
    pub(super) is_local: bool,
    /// The relay's machine is busy: for some milliseconds now and then nothing runs there.
    pub(super) stalls: bool,
    /// The peer says when each datagram came; earlier versions don't.
    pub(super) tells_arrivals: bool,
    pub(super) seed: u64,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            link: LinkSpec::new().with_delay_ns(10 * MILLI_NS),
            back: LinkSpec::new().with_delay_ns(10 * MILLI_NS),
            flows: 2,
            is_bbr: false,
            is_cubic: false,
            has_flows: false,
            grants: true,
            left_percent: 100,
            compresses_late: false,
            assumes: true,
            cross_bps: 0,
            cross_flows: 0,
            offered_bps: u64::MAX,
            listens: true,
            knows: false,
            is_local: false,
            stalls: false,
            tells_arrivals: true,
            seed: 1,
        }
    }
}

#[derive(Clone, Copy)]
enum Packet {
    /// Of a connection behind the relay: its datagram's number.
    Ours {
        number: u64,
    },
    /// Of a connection beside it.
    Other {
        flow: usize,
        serial: u64,
    },
    Cross,
}

#[derive(Clone, Copy)]
struct Answer {
    is_ours: bool,
    flow: usize,
    serial: u64,
}

/// A connection that grows until it loses something, as Reno, or one that measures.
#[derive(Clone, Default)]
struct Flow {
    bbr: Option<Bbr>,
    cubic: Option<Cubic>,
    /// The round trip of the latest packet that was acknowledged, and when those under way were sent.
    rtt_s: f64,
    sent_at: VecDeque<(u64, Instant)>,
    window: f64,
    threshold: f64,
    /// Datagrams in transit, by serial numbers.
    out: VecDeque<u64>,
    serial: u64,
    /// Losses up to here are one.
    recover: u64,
    received_at: Instant,
}

impl Flow {
    fn new(is_bbr: bool, is_cubic: bool) -> Self {
        let (bbr, cubic) = (is_bbr.then(Bbr::default), is_cubic.then(Cubic::default));
        Self { bbr, cubic, window: 10.0, threshold: 1e9, ..Self::default() }
    }

    fn may_send(&self, now: Instant) -> bool {
        let is_time = self.bbr.as_ref().is_none_or(|bbr| bbr.is_time(now));
        is_time && (self.out.len() as f64) < self.window
    }

    fn send(&mut self, now: Instant) -> u64 {
        self.serial += 1;
        self.out.push_back(self.serial);
        self.sent_at.push_back((self.serial, now));
        if let Some(bbr) = &mut self.bbr {
            bbr.sent(now, self.serial, self.out.len());
        }
        self.serial
    }

    fn acknowledged(&mut self, now: Instant, serial: u64) {
        self.received_at = now;
        while let Some((_, at)) = self.sent_at.pop_front_if(|it| it.0 <= serial) {
            self.rtt_s = now.since_ns(at) as f64 / 1e9;
        }
        if let Some(bbr) = &mut self.bbr {
            self.window = bbr.acknowledged(now, serial);
            // What is far behind is lost, which changes nothing.
            self.out.retain(|&out| out != serial && out + 3 >= serial);
            return;
        }
        // What is three behind is lost.
        while self.out.front().is_some_and(|&first| first + 3 < serial) {
            let lost = self.out.pop_front().unwrap_or_default();
            self.lost(lost);
        }
        self.out.retain(|&out| out != serial);
        let Self { window, rtt_s, .. } = *self;
        self.window = match &mut self.cubic {
            _ if window < self.threshold => window + 1.0,
            Some(cubic) => cubic.acknowledged(now, window, rtt_s),
            None => window + 1.0 / window,
        };
    }

    fn lost(&mut self, serial: u64) {
        if serial > self.recover {
            self.recover = self.serial;
            self.window = match &mut self.cubic {
                Some(cubic) => cubic.lost(self.window),
                None => (self.window * LEFT).max(2.0),
            };
            self.threshold = self.window;
        }
    }

    fn tick(&mut self, now: Instant) {
        if !self.out.is_empty() && now.since_ns(self.received_at) > SECOND_NS {
            self.out.clear();
            if self.bbr.is_some() {
                return;
            }
            self.received_at = now;
            self.threshold = (self.window / 2.0).max(2.0);
            self.window = 2.0;
        }
    }
}

/// Observations over a while.
#[derive(Default)]
pub(super) struct Seen {
    /// The rates that were found, ascending; the link's rate if nothing was.
    pub(super) rates_bps: Vec<f64>,
    pub(super) queues_ns: Vec<u64>,
    /// The average rate of our deliveries.
    pub(super) came_bps: f64,
    /// The part of the time in which a bottleneck was believed to be.
    pub(super) held: f64,
}

impl Seen {
    pub(super) fn queue_ns(&mut self, share: f64) -> u64 {
        self.queues_ns.sort_unstable();
        let at = (self.queues_ns.len() - 1) as f64 * share;
        self.queues_ns[at as usize]
    }
}

pub(super) struct Model {
    terms: Terms,
    pub(super) now: Instant,
    pub(super) bottleneck: Bottleneck,
    pacer: Pacer,
    rng: Rng,
    flows: Vec<Flow>,
    others: Vec<Flow>,
    /// The queue in the relay.
    port: Queue,
    /// The packets of datagrams that have not come.
    carried: BTreeMap<u64, Vec<Waiting>>,
    number: u64,
    /// The packets that came, as acknowledgements say.
    pub(super) delivered: u64,
    /// The last number of the session before.
    renewed_at: u64,
    link: LinkModel<Packet>,
    back: LinkModel<(Option<Arrivals>, LinkReport)>,
    acks: LinkModel<Answer>,
    cross_due: f64,
    offered: f64,
    stalled_until: Instant,
    stalled_ns: u64,
    /// For how long what is sent now may have waited because of that.
    waited_ns: u64,
    // The peer.
    highest: u64,
    highest_at: Instant,
    came_bytes: u64,
    arrived: Arrived,
    reported_at: Instant,
    reported: u64,
    /// The offset of the peer's clock, and its drift.
    ahead_ns: u64,
    pub(super) drift: f64,
    /// Falsifies the reports, for a peer that lies.
    pub(super) lie: Option<fn(&mut LinkReport)>,
}

impl Model {
    pub(super) fn new(terms: &Terms) -> Self {
        Self {
            now: Instant::from_ns(MILLI_NS),
            bottleneck: Bottleneck::default(),
            pacer: Pacer::new(Pacing::Auto),
            rng: Rng::stream(terms.seed, 5),
            flows: vec![Flow::new(terms.is_bbr, terms.is_cubic); terms.flows],
            others: vec![Flow::new(false, false); terms.cross_flows],
            port: if terms.has_flows { Queue::real() } else { Queue::simple() },
            carried: BTreeMap::new(),
            number: 0,
            delivered: 0,
            renewed_at: 0,
            link: LinkModel::new(terms.link.clone().with_seed(terms.seed)),
            back: LinkModel::new(terms.back.clone().with_seed(terms.seed + 100)),
            acks: LinkModel::new(LinkSpec::new().with_delay_ns(terms.back.delay_ns)),
            cross_due: 0.0,
            offered: 0.0,
            stalled_until: Instant::ZERO,
            stalled_ns: 0,
            waited_ns: STEP_NS,
            highest: 0,
            highest_at: Instant::ZERO,
            came_bytes: 0,
            arrived: Arrived::default().with_max(u8::MAX),
            reported_at: Instant::ZERO,
            reported: 0,
            ahead_ns: 77 * SECOND_NS,
            drift: 50e-6,
            lie: None,
            terms: terms.clone(),
        }
    }

    /// From now on the link has this delay.
    pub(super) fn set_delay_ns(&mut self, delay_ns: u64) {
        let spec = self.link.spec().clone().with_delay_ns(delay_ns);
        self.link.set_spec(self.now, spec);
    }

    /// From now on the programs send at most this.
    pub(super) fn set_offered_bps(&mut self, offered_bps: u64) {
        self.terms.offered_bps = offered_bps;
    }

    /// The connections are over, and so many begin.
    pub(super) fn connect(&mut self, flows: usize) {
        self.flows = vec![Flow::new(self.terms.is_bbr, self.terms.is_cubic); flows];
        self.port.clear();
    }

    /// The packets that found the queue beyond full.
    pub(super) fn dropped(&self) -> u64 {
        self.link.stats().dropped_queue
    }

    /// Runs up to `from_ms`, and watches until `to_ms`.
    pub(super) fn watch(&mut self, from_ms: u64, to_ms: u64) -> Seen {
        let (from, to) = (Instant::from_ns(from_ms * MILLI_NS), Instant::from_ns(to_ms * MILLI_NS));
        while self.now < from {
            self.step();
        }
        let (mut seen, came_before, begin) = (Seen::default(), self.came_bytes, self.now);
        let mut held = 0;
        while self.now < to {
            self.step();
            let link = self.link.rate().unwrap_or(Rate::from_mbps(1000));
            let found = self.bottleneck.found();
            held += u64::from(found.is_some());
            seen.rates_bps.push(found.map_or(link, |found| found.rate).as_bps() as f64);
            seen.queues_ns.push(link.transmission_ns(self.link.backlog_bytes()));
        }
        seen.rates_bps.sort_by(f64::total_cmp);
        seen.held = held as f64 / seen.rates_bps.len() as f64;
        let took_ns = self.now.since_ns(begin) as f64;
        seen.came_bps = (self.came_bytes - came_before) as f64 * 8e9 / took_ns;
        seen
    }

    fn step(&mut self) {
        self.now = self.now + STEP_NS;
        self.arrive();
        self.report();
        if self.terms.knows {
            let rate = self.link.rate().unwrap_or(Rate::from_mbps(1000));
            self.pacer.set_pacing(Pacing::Fixed(rate));
        }
        if self.is_stalled() {
            return;
        }
        self.answers();
        self.beside();
        self.offer();
        self.send();
    }

    /// Every 20 ms on the average the relay's machine has other things to do, for up to 5 ms.
    fn is_stalled(&mut self) -> bool {
        if self.terms.stalls && self.now >= self.stalled_until {
            let is_over = self.stalled_until != Instant::ZERO;
            self.waited_ns = STEP_NS + if is_over { self.stalled_ns } else { 0 };
            (self.stalled_until, self.stalled_ns) = (Instant::ZERO, 0);
            if !is_over && self.rng.below(20 * MILLI_NS / STEP_NS) == 0 {
                self.stalled_ns = self.rng.below(5 * MILLI_NS);
                self.stalled_until = self.now + self.stalled_ns;
            }
        }
        self.now < self.stalled_until
    }

    /// A probe, as there is when a session begins.
    pub(super) fn probe(&mut self) {
        let came_at = self.now + self.terms.link.delay_ns + self.terms.link.jitter_ns / 2;
        let came_at_ns = self.peer_clock_ns(came_at);
        let back_at = came_at + self.terms.back.delay_ns;
        self.bottleneck.probed(back_at, self.now, came_at_ns);
    }

    /// A new session: what is in transit still counts for the one before.
    pub(super) fn renew(&mut self) {
        self.bottleneck.begin_session();
        self.bottleneck.forget_old(self.now);
        self.renewed_at = self.number;
        self.came_bytes = 0;
        self.arrived = Arrived::default().with_max(u8::MAX);
        (self.highest, self.reported) = (0, 0);
    }

    fn peer_clock_ns(&self, at: Instant) -> u64 {
        self.ahead_ns + at.as_ns() + (at.as_ns() as f64 * self.drift) as u64
    }

    fn arrive(&mut self) {
        while let Some(delivered) = self.link.pop(self.now) {
            let answer = match delivered.packet {
                Packet::Ours { number } => {
                    let packets = self.carried.remove(&number).unwrap_or_default();
                    if let Some(number) = number.checked_sub(self.renewed_at) {
                        if number > self.highest {
                            self.highest = number;
                            self.highest_at = delivered.at;
                        }
                        let at = Instant::from_ns(self.peer_clock_ns(delivered.at));
                        self.arrived.came(at, number);
                        self.came_bytes += delivered.len as u64;
                    }
                    for Waiting { flow, serial, .. } in packets {
                        self.acks.push(self.now, 80, Answer { is_ours: true, flow, serial });
                    }
                    continue;
                }
                Packet::Other { flow, serial } => Answer { is_ours: false, flow, serial },
                Packet::Cross => continue,
            };
            self.acks.push(self.now, 80, answer);
        }
    }

    fn report(&mut self) {
        if self.highest > self.reported && self.now.since_ns(self.reported_at) >= REPORT_NS {
            (self.reported, self.reported_at) = (self.highest, self.now);
            let mut report = LinkReport {
                highest: self.highest,
                highest_at_ns: self.peer_clock_ns(self.highest_at),
                bytes: self.came_bytes,
                refused_at: (self.terms.is_local && self.bottleneck.found().is_none())
                    .then_some(self.now),
            };
            if let Some(lie) = self.lie {
                lie(&mut report);
            }
            let arrivals = self.arrived.take().filter(|_| self.terms.tells_arrivals);
            self.back.push(self.now, 250, (arrivals, report));
        }
    }

    fn answers(&mut self) {
        while let Some(delivered) = self.acks.pop(self.now) {
            let Answer { is_ours, flow, serial } = delivered.packet;
            self.delivered += u64::from(is_ours);
            let flows = if is_ours { &mut self.flows } else { &mut self.others };
            flows[flow].acknowledged(self.now, serial);
        }
        while let Some(delivered) = self.back.pop(self.now) {
            if self.terms.listens && !self.terms.knows {
                let (arrivals, report) = &delivered.packet;
                if let Some(arrivals) = arrivals {
                    self.bottleneck.on_arrivals(self.now, arrivals);
                }
                self.bottleneck.on_report(self.now, report);
                self.pacer.set_found(self.bottleneck.found());
                self.pacer.set_assumed(self.bottleneck.assumed().filter(|_| self.terms.assumes));
            }
        }
    }

    fn beside(&mut self) {
        self.cross_due += self.terms.cross_bps as f64 * STEP_NS as f64 / 8e9;
        while self.cross_due >= PACKET_BYTES as f64 {
            self.cross_due -= PACKET_BYTES as f64;
            self.link.push(self.now, PACKET_BYTES as usize, Packet::Cross);
        }
        for flow in 0..self.others.len() {
            self.others[flow].tick(self.now);
            while self.others[flow].may_send(self.now) {
                let serial = self.others[flow].send(self.now);
                let packet = Packet::Other { flow, serial };
                self.link.push(self.now, PACKET_BYTES as usize, packet);
            }
        }
    }

    /// The programs send as much as their windows allow.
    fn offer(&mut self) {
        let offered = self.terms.offered_bps as f64 * STEP_NS as f64 / 8e9;
        self.offered = (self.offered + offered).min(20.0 * PACKET_BYTES as f64);
        let rate = self.pacer.rate().unwrap_or(Rate::from_mbps(1000));
        let first = self.rng.below(self.flows.len() as u64) as usize;
        for at in 0..self.flows.len() {
            let flow = (first + at) % self.flows.len();
            self.flows[flow].tick(self.now);
            while self.flows[flow].may_send(self.now) && self.offered >= PACKET_BYTES as f64 {
                self.offered -= PACKET_BYTES as f64;
                let serial = self.flows[flow].send(self.now);
                let bytes = PACKET_BYTES - self.rng.below(PACKET_BYTES / 2);
                let is_raw =
                    self.terms.compresses_late && self.pacer.rate_to_compress_for().is_none();
                let bytes = if is_raw { bytes } else { bytes * self.terms.left_percent / 100 };
                self.port.push(self.now, rate, Waiting { flow, serial, bytes });
            }
        }
    }

    fn send(&mut self) {
        while let Some(packets) = self.port.pop(self.now, (&self.pacer, self.terms.grants)) {
            self.number += 1;
            let bytes = packets.iter().map(|it| it.bytes).sum::<u64>() + HEADER_BYTES;
            let lost_ns = self.pacer.sent(self.now, bytes, self.waited_ns);
            let number = self.number - self.renewed_at;
            self.bottleneck.sent(self.now, number, (bytes, lost_ns));
            self.bottleneck.sent_packets(self.now, bytes);
            self.carried.insert(self.number, packets);
            let packet = Packet::Ours { number: self.number };
            self.link.push(self.now, bytes as usize, packet);
        }
    }
}
