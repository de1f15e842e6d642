//! Links whose queue is the decision core: this module drives it.

use std::collections::VecDeque;

use dwell_base::{Instant, Rate, Rng};
use dwell_drive::{Driven, drain};
use dwell_policy::{
    Action, ClassKey, ConfigError, DropReason, Event, FramePacket, FrameUnit, Job, JobId,
    LinkState as LinkFacts, LostBatch, Objective, Outcome as Compressed, Packet as Arrival,
    PacketId,
};

use crate::agenda::{Agenda, NEVER_NS};
use crate::moment::{Clock, Moment, Span};
use crate::outcome::PortOutcome;
use crate::plan::{CompressionModel, PortPlan, Window};
use crate::world::World;
use crate::world::contents::Content;
use crate::world::flow::FlowState;
use crate::world::link::LinkKind;
use crate::world::packets::{NONE, Packets, UNCOMPRESSED};
use crate::world::propagation::Propagation;
use crate::world::statistics::Statistics;
use crate::world::timeline::Timeline;
use crate::world::varying::Varying;

/// A port, its compression, and the units in flight behind it.
#[derive(Debug)]
pub(crate) struct PortState {
    pub(crate) port: Driven,
    model: CompressionModel,
    unit_s: Option<f64>,
    resend_after_ns: Option<u64>,
    /// The job under way, its result, and the time it takes.
    compressing: Option<(JobId, Compressed, u64)>,
    /// Units on the wire: the times at which they arrive at the other end, and their first packets.
    pub(crate) in_flight: VecDeque<(Moment, u32)>,
    propagation: Propagation,
    /// Lost units: the times at which they come back, and their first packets.
    lost: VecDeque<(Moment, u32)>,
    pub(crate) transmitter_actor: u32,
    pub(crate) compress_actor: u32,
    pub(crate) timer_actor: u32,
    pub(crate) resend_actor: u32,
    pub(crate) rate_actor: u32,
    /// The rate of its link if that varies: the port knows it at any time.
    pub(crate) known_rate: Option<Box<Varying>>,
    /// True if it may hold packets back, and has to be woken then.
    pub(crate) holds: bool,
    timer_ns: u64,
    /// The time since which this number of packets waits.
    waiting_since_ns: u64,
    waiting: u64,
    timeline: Timeline,
    outcome: PortOutcome,
}

impl PortState {
    pub(crate) fn new(
        name: &str,
        plan: &PortPlan,
        (groups, bin_ns): (usize, Option<u64>),
        propagation: Propagation,
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            port: Driven::new(plan.config.clone())?,
            model: plan.compress.clone(),
            unit_s: plan.unit_s,
            resend_after_ns: plan.resend_after_ns,
            compressing: None,
            in_flight: VecDeque::new(),
            propagation,
            lost: VecDeque::new(),
            transmitter_actor: 0,
            compress_actor: 0,
            timer_actor: 0,
            resend_actor: 0,
            rate_actor: 0,
            known_rate: None,
            holds: plan.config.scheme.has_deadlines() || plan.config.objective != Objective::Time,
            timer_ns: NEVER_NS,
            waiting_since_ns: 0,
            waiting: 0,
            timeline: Timeline::new(bin_ns),
            outcome: PortOutcome {
                name: name.to_owned(),
                arrived: vec![0; groups],
                compressed: vec![0; groups],
                dropped: vec![0; groups],
                ..PortOutcome::default()
            },
        })
    }

    /// Returns true if it may compress something.
    pub(crate) fn compresses(&self) -> bool {
        self.port.config().scheme.compresses()
    }

    /// Returns true if units come back to it after a loss.
    pub(crate) fn resends(&self) -> bool {
        self.resend_after_ns.is_some()
    }

    /// Notifies the port of its link's rate.
    pub(crate) fn notify_rate(&mut self, now_ns: u64, bps: u64) {
        let state = LinkFacts::of_rate(Some(Rate::clamped_bps(bps)));
        self.port.handle(Instant::from_ns(now_ns), Event::Link(state));
    }

    pub(crate) fn finish(mut self, window: Window) -> PortOutcome {
        self.count_waiting(window.until_ns, window);
        self.outcome.bins = std::mem::take(&mut self.timeline).into_bins();
        self.outcome.accounts = *self.port.accounts();
        self.outcome
    }

    /// Updates the timer and the accounts of the queue after the port has done its part.
    #[inline]
    fn settle(&mut self, agenda: &mut Agenda, clock: Clock, now_ns: u64, window: Window) {
        if self.holds {
            let timer_ns = self.port.next_deadline().map_or(NEVER_NS, Instant::as_ns);
            if timer_ns != self.timer_ns {
                self.timer_ns = timer_ns;
                agenda.set(self.timer_actor, clock.at(timer_ns));
            }
        }
        self.note_waiting(now_ns, window);
    }

    /// Integrates the number of waiting packets over time.
    #[inline]
    fn note_waiting(&mut self, now_ns: u64, window: Window) {
        let (cpu, relay) = self.port.waiting();
        let waiting = (cpu + relay) as u64;
        if waiting == self.waiting {
            return;
        }
        self.count_waiting(now_ns, window);
        self.waiting_since_ns = now_ns;
        self.waiting = waiting;
    }

    fn count_waiting(&mut self, now_ns: u64, window: Window) {
        self.timeline.waited(self.waiting_since_ns, now_ns, self.waiting);
        let from_ns = self.waiting_since_ns.max(window.from_ns);
        let until_ns = now_ns.min(window.until_ns);
        if until_ns > from_ns {
            self.outcome.waiting_area += self.waiting * (until_ns - from_ns);
            self.outcome.waiting_max = self.outcome.waiting_max.max(self.waiting);
        }
    }
}

/// The accounts of the packets of a frame.
struct Book<'a> {
    packets: &'a mut Packets,
    flows: &'a [FlowState],
    statistics: &'a mut Statistics,
    /// Packets that the port compressed, by group.
    compressed: &'a mut [u64],
    compressor: u16,
}

impl Book<'_> {
    /// Chains the packets of a unit, and returns the first.
    #[inline(always)]
    fn unit(&mut self, unit: &FrameUnit, followers: &[FramePacket]) -> u32 {
        let first = unit.id.0;
        self.packet(first, unit.sojourn_ns, unit.compressed_here);
        let mut last = first;
        for follower in followers {
            let id = follower.id.0;
            self.packet(id, follower.sojourn_ns, unit.compressed_here);
            self.packets[last].next = id;
            last = id;
        }
        self.packets[first].bytes = unit.bytes;
        first
    }

    /// Returns true if nothing can happen any more to a single packet: it is received at the end of this link.
    #[inline(always)]
    fn is_at_last_hop(&self, id: u32) -> bool {
        let packet = &self.packets[id];
        packet.next == NONE && self.flows[packet.flow as usize].ends_at(packet.hop)
    }

    #[inline(always)]
    fn packet(&mut self, id: u32, sojourn_ns: u64, compressed_here: bool) {
        let packet = &mut self.packets[id];
        let group = self.flows[packet.flow as usize].group;
        self.statistics.waited(group, packet.sent_ns, sojourn_ns);
        // A unit that was lost and came back has been counted.
        if compressed_here && packet.compressor != self.compressor {
            packet.compressor = self.compressor;
            self.compressed[group] += u64::from(self.statistics.in_window(packet.sent_ns));
        }
    }
}

/// A port, and the network around it. Senders take no marks here.
struct AtPort<'a> {
    world: &'a mut World,
    n: u32,
}

impl dwell_drive::World for AtPort<'_> {
    #[inline]
    fn poll(&mut self) -> Option<Action> {
        let World { links, agenda, clock, now, window, check_invariants, .. } = &mut *self.world;
        let LinkKind::Port(state) = &mut links[self.n as usize].kind else { return None };
        let action = state.port.poll(Instant::from_ns(now.ns));
        if action.is_none() {
            state.settle(agenda, *clock, now.ns, *window);
            if *check_invariants {
                state.port.assert_invariants();
            }
        }
        action
    }

    #[inline]
    fn compress(&mut self, job: Job) {
        self.world.compress(self.n, job);
    }

    #[inline]
    fn send(&mut self) {
        self.world.send(self.n);
    }

    #[inline]
    fn dropped(&mut self, id: PacketId, reason: DropReason) {
        self.world.dropped(self.n, id.0, reason);
    }
}

impl World {
    /// Puts a packet or a compressed unit into a port.
    pub(super) fn enter_port(&mut self, n: u32, id: u32) {
        let now_ns = self.now.ns;
        let packet = &mut self.packets[id];
        let flow = &self.flows[packet.flow as usize];
        let link = &mut self.links[n as usize];
        let LinkKind::Port(state) = &mut link.kind else { return };
        let mut arrival = Arrival {
            id: PacketId(id),
            bytes: packet.bytes,
            source: CLASS,
            destination: CLASS,
            flow: flow_hash(packet.flow),
            batch_bytes_max: u32::MAX,
            looks_random: false,
            takes_mark: false,
            compressed: packet.compressor != UNCOMPRESSED,
            group: flow.gather_key(packet.back, packet.hop),
            max_wait_ns: flow.max_wait_ns,
        };
        if let Some(contents) = &mut self.contents.0 {
            let content = content_of(packet);
            let now = Instant::from_ns(now_ns);
            if let Some(described) = contents.describe(now, n as usize, content) {
                described.apply(&mut arrival);
            }
        }
        let (group, sent_ns) = (flow.group, packet.sent_ns);
        let counts = self.statistics.in_window(sent_ns);
        state.outcome.arrived[group] += u64::from(counts);
        state.port.handle(Instant::from_ns(now_ns), Event::Arrive(arrival));
        self.pump(n);
    }

    /// Handles the end of a transmission.
    pub(super) fn transmitted(&mut self, n: u32) {
        let LinkKind::Port(state) = &mut self.links[n as usize].kind else { return };
        let actor = state.transmitter_actor;
        state.port.handle(Instant::from_ns(self.now.ns), Event::LinkReady);
        if !self.pump(n) {
            self.agenda.set(actor, Moment::NEVER);
        }
        if self.links[n as usize].is_instant {
            self.arrive_with_transmitter(n);
        }
    }

    /// Handles the end of a compression.
    pub(super) fn compressed(&mut self, n: u32) {
        if let LinkKind::Port(state) = &mut self.links[n as usize].kind {
            self.agenda.set(state.compress_actor, Moment::NEVER);
            if let Some((job, outcome, took_ns)) = state.compressing.take() {
                let now_ns = self.now.ns;
                let event = Event::Compressed { job, outcome, took_ns };
                state.port.handle(Instant::from_ns(now_ns), event);
                let is_compressed =
                    matches!(outcome, Compressed::Smaller(_) | Compressed::Committed(_));
                if is_compressed && self.statistics.in_window(now_ns) {
                    state.outcome.compressions += 1;
                }
            }
        }
        self.pump(n);
    }

    /// Does what the port asks for, until it asks for nothing more; returns true if it has sent.
    pub(super) fn pump(&mut self, n: u32) -> bool {
        drain(&mut AtPort { world: self, n })
    }

    fn dropped(&mut self, n: u32, id: u32, reason: DropReason) {
        if reason == DropReason::PutBack {
            return self.drop_unit(id);
        }
        let packet = &self.packets[id];
        let group = self.flows[packet.flow as usize].group;
        let counts = self.statistics.in_window(packet.sent_ns);
        if let LinkKind::Port(state) = &mut self.links[n as usize].kind {
            state.outcome.dropped[group] += u64::from(counts);
            state.timeline.dropped(self.now.ns, 1);
        }
        self.lose(id); // what was compressed further up may come back
    }

    fn compress(&mut self, n: u32, job: Job) {
        let LinkKind::Port(state) = &mut self.links[n as usize].kind else { return };
        let Some(&PacketId(first)) = state.port.batch(job.id).first() else { return };
        if let Some(contents) = &mut self.contents.0 {
            let batch: Vec<Content> =
                state.port.batch(job.id).iter().map(|id| content_of(&self.packets[id.0])).collect();
            let what = (&job, &state.port.config().frame);
            let now = Instant::from_ns(self.now.ns);
            if let Some((outcome, took_ns)) = contents.compress(now, n as usize, &batch, what) {
                state.compressing = Some((job.id, outcome, took_ns));
                return self.agenda.set(state.compress_actor, self.now.after(Span::of(took_ns)));
            }
        }
        let (group, bytes) = (self.flows[self.packets[first].flow as usize].group, job.bytes);
        let (ratio, took_ns) = cost(&state.model, group, bytes, &mut self.rng);
        let to_bytes = compressed_bytes(bytes, ratio);
        let outcome = match job.context {
            // Those after it refer to it, so that it is sent whatever its size.
            Some(_) => Compressed::Committed(to_bytes),
            None if to_bytes < bytes => Compressed::Smaller(to_bytes),
            None => Compressed::NotSmaller,
        };
        state.compressing = Some((job.id, outcome, took_ns));
        let took = state.unit_s.map_or(Span::of(took_ns), |s| Span { ns: took_ns, s });
        self.agenda.set(state.compress_actor, self.now.after(took));
    }

    /// Puts the port's frame on the wire.
    #[inline(always)]
    fn send(&mut self, n: u32) {
        if self.sightings.is_some() {
            self.show_frame(n);
        }
        let now_ns = self.now.ns;
        let link = &mut self.links[n as usize];
        let LinkKind::Port(state) = &link.kind else { return };
        let link_bytes = state.port.frame().link_bytes;
        let transmission = link.transmission_from(now_ns, link_bytes);
        let (known, may_lose) = (link.path_is_known, link.losses.is_some());
        let LinkKind::Port(state) = &mut link.kind else { return };
        let state = &mut **state;
        // ns-2 puts the arrival onto its agenda first.
        let arrives = self.agenda.stamp(state.propagation.arrival(self.now, transmission));
        self.agenda.set(state.transmitter_actor, self.now.after(transmission));
        let frame = state.port.frame();
        let packets = frame.units.len() + frame.followers.len();
        state.timeline.sent(now_ns, link_bytes);
        if self.statistics.in_window(now_ns) {
            state.outcome.count_frame(frame.buffer, frame.cause, link_bytes, packets as u64);
        }
        let mut book = Book {
            packets: &mut self.packets,
            flows: &self.flows,
            statistics: &mut self.statistics,
            compressed: &mut state.outcome.compressed,
            compressor: n as u16,
        };
        if let [unit] = &frame.units[..] {
            let first = book.unit(unit, &frame.followers);
            if known || (!may_lose && book.is_at_last_hop(first)) {
                return self.go_ahead(first, arrives.ns);
            }
            state.in_flight.push_back((arrives, first));
            return self.await_arrival(n);
        }
        let mut followers = &frame.followers[..];
        for unit in &frame.units {
            let (own, others) = followers.split_at(unit.followers as usize);
            followers = others;
            let first = book.unit(unit, own);
            if known {
                self.ahead.push(first);
            } else {
                state.in_flight.push_back((arrives, first));
            }
        }
        if known {
            self.follow_ahead(arrives.ns);
        } else {
            self.await_arrival(n);
        }
    }

    /// Shows the units of a frame that is about to be sent.
    fn show_frame(&mut self, n: u32) {
        let LinkKind::Port(state) = &self.links[n as usize].kind else { return };
        let units: Vec<(u32, u32)> =
            state.port.frame().units.iter().map(|unit| (unit.id.0, unit.bytes)).collect();
        for (id, bytes) in units {
            self.packets[id].bytes = bytes;
            self.show_packet(n, id);
        }
    }

    /// Puts the next arrival at the end of a port's link on the agenda, if it is not an instant at which the
    /// transmitter is on it.
    #[inline]
    fn await_arrival(&mut self, n: u32) {
        let link = &self.links[n as usize];
        if !link.is_instant {
            let next = link.next_arrival();
            if self.agenda.differs(link.pipe_actor, next) {
                self.agenda.set(link.pipe_actor, next);
            }
        }
    }

    /// Lets the packets arrive whose transmission has ended, if the link has no propagation delay: they do so
    /// at the same instant. What else is on the agenda for this instant may come first.
    #[inline]
    fn arrive_with_transmitter(&mut self, n: u32) {
        loop {
            let link = &mut self.links[n as usize];
            let LinkKind::Port(state) = &mut link.kind else { return };
            match state.in_flight.front() {
                Some(&(at, first)) if at.ns == self.now.ns => {
                    if self.agenda.next().0 == self.now.ns {
                        return self.agenda.set(link.pipe_actor, at);
                    }
                    state.in_flight.pop_front();
                    self.leaves_link(n, first);
                }
                _ => return,
            }
        }
    }

    /// Sends packets on their known path if it is known.
    fn follow_ahead(&mut self, at_ns: u64) {
        let mut ahead = std::mem::take(&mut self.ahead);
        for id in ahead.drain(..) {
            self.go_ahead(id, at_ns);
        }
        self.ahead = ahead;
    }

    /// Lets a lost unit come back to the port that compressed it, if that port does so; returns
    /// true if it does.
    pub(super) fn comes_back(&mut self, id: u32) -> bool {
        let compressor = self.packets[id].compressor;
        let hops = self.hops_since_compressed(id);
        let LinkKind::Port(state) = &mut self.links[usize::from(compressor)].kind else {
            return false;
        };
        let Some(after_ns) = state.resend_after_ns else { return false };
        self.packets[id].hop -= hops;
        let at = self.agenda.stamp(self.now.after(Span::of(after_ns)));
        state.lost.push_back((at, id));
        if state.lost.len() == 1 {
            self.agenda.set(state.resend_actor, at);
        }
        true
    }

    /// Puts a lost unit back into its port.
    pub(super) fn resend(&mut self, n: u32) {
        let now_ns = self.now.ns;
        let LinkKind::Port(state) = &mut self.links[n as usize].kind else { return };
        let Some((_, first)) = state.lost.pop_front() else { return };
        let next = state.lost.front().map_or(Moment::NEVER, |&(at, _)| at);
        self.agenda.set(state.resend_actor, next);
        state.outcome.returned += u64::from(self.statistics.in_window(now_ns));
        let mut unit = Vec::new(); // losses are rare
        let bytes = self.packets[first].bytes;
        let mut id = first;
        while id != NONE {
            let packet = &mut self.packets[id];
            let original_bytes = packet.original_bytes;
            unit.push(FramePacket { id: PacketId(id), original_bytes, sojourn_ns: 0 });
            id = std::mem::replace(&mut packet.next, NONE);
        }
        let lost = LostBatch { packets: &unit, bytes };
        state.port.handle(Instant::from_ns(now_ns), Event::Lost(lost));
        self.pump(n);
    }
}

/// The content of a packet.
fn content_of(packet: &crate::world::packets::Packet) -> Content {
    Content { flow: packet.flow as usize, number: packet.detail as usize }
}

/// All simulated traffic without contents is of one class: UDP to the discard port.
const CLASS: ClassKey = ClassKey::new(17, 9);

/// Spreads small numbers over all bits, as hashes of real flows are.
pub(super) const fn flow_hash(flow: u32) -> u64 {
    (flow as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The size of `bytes` after compressing, whole bytes, rounded down as ns-2 does.
fn compressed_bytes(bytes: u32, ratio: f64) -> u32 {
    // A ratio like 0.7 is not exact in binary; 500 · 0.7 must be 350 all the same.
    ((f64::from(bytes) * ratio + 1e-6) as u32).max(1)
}

/// Returns the ratio and the time in nanoseconds of compressing a unit.
fn cost(model: &CompressionModel, group: usize, bytes: u32, rng: &mut Rng) -> (f64, u64) {
    match model {
        CompressionModel::Constant { ratio, time_ns } => (*ratio, *time_ns),
        CompressionModel::PerClass(classes) => match classes.iter().find(|c| c.group == group) {
            Some(class) => {
                let (low, high) = class.ratio;
                let ratio = low + rng.unit() * (high - low);
                let byte_ns = class.byte_ns * f64::from(bytes);
                (ratio, class.unit_ns + byte_ns as u64)
            }
            None => (1.0, 0),
        },
        CompressionModel::Measured(samples) => interpolate(samples, bytes),
        CompressionModel::Real(_) => (1.0, 0), // without contents nothing shrinks
    }
}

fn interpolate(samples: &[crate::plan::CompressionSample], bytes: u32) -> (f64, u64) {
    let after = samples.iter().position(|s| s.bytes >= bytes);
    let (low, high) = match after {
        None => match samples.last() {
            Some(last) => (last, last),
            None => return (1.0, 0),
        },
        Some(0) => (&samples[0], &samples[0]),
        Some(n) => (&samples[n - 1], &samples[n]),
    };
    if low.bytes == high.bytes {
        // Beyond the table's ends the time grows with the size, and the ratio stays.
        let time_ns = low.time_ns as f64 * f64::from(bytes) / f64::from(low.bytes.max(1));
        return (low.ratio, time_ns as u64);
    }
    let part = f64::from(bytes - low.bytes) / f64::from(high.bytes - low.bytes);
    let between = |low: f64, high: f64| low + part * (high - low);
    let time_ns = between(low.time_ns as f64, high.time_ns as f64);
    (between(low.ratio, high.ratio), time_ns as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::CompressionSample;

    #[test]
    fn decimal_ratios_give_the_sizes_that_people_expect() {
        assert_eq!(compressed_bytes(500, 0.7), 350);
        assert_eq!(compressed_bytes(500, 0.95), 475);
        assert_eq!(compressed_bytes(500, 0.999), 499);
        assert_eq!(compressed_bytes(1, 0.1), 1);
    }

    #[test]
    fn measured_tables_are_interpolated() {
        let samples = [
            CompressionSample { bytes: 100, ratio: 1.0, time_ns: 100 },
            CompressionSample { bytes: 300, ratio: 0.5, time_ns: 300 },
        ];
        assert_eq!(interpolate(&samples, 200), (0.75, 200));
        assert_eq!(interpolate(&samples, 50), (1.0, 50));
        assert_eq!(interpolate(&samples, 600), (0.5, 600));
        assert_eq!(interpolate(&[], 600), (1.0, 0));
    }
}
