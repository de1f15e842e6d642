//! A network that runs in virtual time.
//!
//! Every part of it that can cause an event is an actor with at most one pending time in the
//! [`Agenda`]: the transmitter and the compressor of a port, a port's timer, the head of the
//! packets in flight on a link, the units that come back after a loss, a source, a connection's
//! timer. Of events at the same instant, **the end of a transmission goes before an arrival**:
//! transmitters go first, then compressors and ports' timers, and all others after them, in an
//! order that chance decides for each instant.
//!
//! Shortcuts save events and change nothing. A source whose first links are its own and without
//! limit causes an event only when its packet reaches the first queue that others share. Where
//! nothing can happen to a packet any more, its time of arrival is computed at once. So it is in a row of queues
//! that only the first of them feeds, up to a receiver that only answers. And on a link without a propagation
//! delay, what a port has sent arrives in the event of its transmitter, unless others are due at that instant.

use dwell_base::Rng;
use dwell_base::time::SECOND_NS;
use dwell_policy::Accounts;

use crate::agenda::{Agenda, NEVER_NS};
use crate::moment::{Clock, Moment};
use crate::outcome::Outcome;
use crate::plan::{Plan, PlanError, Window};
use crate::world::flow::{FlowState, Sending};
use crate::world::link::{LinkKind, LinkState};
use crate::world::packets::{NONE, Packet, Packets, UNCOMPRESSED};
use crate::world::statistics::Statistics;

/// Events between two questions whether a run goes on: a few milliseconds.
const EVENTS_AT_ONCE: usize = 1 << 15;
pub(crate) use check::check;

mod actors;
mod check;
mod contents;
mod fifo;
mod flow;
mod link;
mod losses;
mod packets;
mod port;
mod propagation;
mod queue;
mod route;
mod served;
mod sighting;
mod statistics;
mod timeline;
mod varying;

pub use contents::{Content, Contents, Described};
pub use sighting::{Seen, Sighting, What};

/// A network, its traffic, and the time.
#[derive(Debug)]
pub struct World {
    now: Moment,
    clock: Clock,
    end_ns: u64,
    window: Window,
    agenda: Agenda,
    actors: Vec<Actor>,
    links: Vec<LinkState>,
    flows: Vec<FlowState>,
    packets: Packets,
    acks: flow::Acks,
    statistics: Statistics,
    rng: Rng,
    contents: contents::Carried,
    /// What has happened in this event, if somebody looks.
    sightings: Option<Vec<Sighting>>,
    check_invariants: bool,
    events: u64,
    /// Packets that a queue has dropped just now; kept for its storage.
    discarded: Vec<u32>,
    /// Packets whose further path is known; kept for its storage.
    ahead: Vec<u32>,
    /// The time that [`World::follow`] has reached.
    now_ahead_ns: u64,
}

#[derive(Clone, Copy, Debug)]
enum Actor {
    Transmitter(u32),
    Served(u32),
    Rate(u32),
    Compress(u32),
    PortTimer(u32),
    Pipe(u32),
    Resend(u32),
    Source(u32),
    Connection(u32),
}

/// Streams of random numbers that are not a flow's own.
mod stream {
    pub(super) const COMPRESSORS: u64 = 1 << 40;
    pub(super) const START: u64 = 1 << 41;
    pub(super) const JITTER: u64 = 1 << 42;
    pub(super) const RATE: u64 = 1 << 43;
    pub(super) const LOSS: u64 = 1 << 44;
    pub(super) const QUEUE: u64 = 1 << 45;
}

impl World {
    /// Creates the world of this plan, at time zero.
    ///
    /// # Errors
    /// If the plan is impossible.
    pub fn new(plan: &Plan, seed: u64) -> Result<Self, PlanError> {
        check(plan)?;
        let mut links = link::links(plan, seed)?;
        let mut flows = flow::flows(plan, seed)?;
        route::mark_known_paths(plan, &mut links);
        let (actors, shuffled_from) = actors::number_actors(&mut links, &mut flows);
        let agenda = Agenda::new(actors.numbers, shuffled_from, plan.ties, seed);
        let end_ns = plan.window.until_ns.saturating_add(plan.window.drain_ns);
        if end_ns >= agenda.end_ns() {
            let most_s = agenda.end_ns() / SECOND_NS;
            let what = format!("it is too long: a network of this size has {most_s} s at most");
            return Err(PlanError::Value(what));
        }
        let clock = Clock::of(plan.ties);
        let mut world = Self {
            now: clock.at(0),
            clock,
            end_ns,
            window: plan.window,
            agenda,
            actors: actors.acting,
            links,
            flows,
            packets: Packets::default(),
            acks: flow::Acks::default(),
            statistics: Statistics::new(plan),
            rng: Rng::stream(seed, stream::COMPRESSORS),
            contents: contents::Carried::default(),
            sightings: None,
            check_invariants: plan.check_invariants,
            events: 0,
            discarded: Vec::new(),
            ahead: Vec::new(),
            now_ahead_ns: 0,
        };
        world.start();
        Ok(world)
    }

    /// Gives the packets contents, which decide what becomes of them at ports.
    #[must_use]
    pub fn with_contents(mut self, contents: Box<dyn Contents>) -> Self {
        self.contents = contents::Carried(Some(contents));
        self
    }

    /// Runs to the end.
    pub fn run(mut self) -> Outcome {
        while self.step() {}
        self.finish()
    }

    /// Runs to the end, unless `goes_on`, called every few milliseconds with the share of the simulated time that is over,
    /// returns false.
    pub fn run_while(mut self, mut goes_on: impl FnMut(f64) -> bool) -> Option<Outcome> {
        while goes_on(self.share_over()) {
            if (0..EVENTS_AT_ONCE).any(|_| !self.step()) {
                return Some(self.finish());
            }
        }
        None
    }

    /// The share of the simulated time that is over, 0 to 1.
    fn share_over(&self) -> f64 {
        (self.now.ns as f64 / self.end_ns.max(1) as f64).min(1.0)
    }

    /// Returns the present time, in nanoseconds since the beginning.
    pub fn now_ns(&self) -> u64 {
        self.now.ns
    }

    /// Sets whether every port's invariants are verified after each event from now on; slow.
    pub fn check_invariants(&mut self, does: bool) {
        self.check_invariants = does;
    }

    /// Returns the accounts of every port from the beginning, by link.
    pub fn accounts(&self) -> impl Iterator<Item = &Accounts> {
        self.links.iter().filter_map(|link| match &link.kind {
            LinkKind::Port(port) => Some(port.port.accounts()),
            LinkKind::Fifo(_) | LinkKind::Served(_) => None,
        })
    }

    /// Processes the next event; returns false at the end of the run.
    #[inline]
    pub fn step(&mut self) -> bool {
        let (at_ns, actor) = self.agenda.next();
        if at_ns > self.end_ns || at_ns == NEVER_NS {
            return false;
        }
        self.now = self.agenda.moment(actor);
        self.events += 1;
        match self.actors[actor as usize] {
            Actor::Transmitter(link) => self.transmitted(link),
            Actor::Served(link) => self.served(link),
            Actor::Rate(link) => self.rate_changes(link),
            Actor::Compress(link) => self.compressed(link),
            Actor::PortTimer(link) => {
                self.pump(link);
            }
            Actor::Pipe(link) => self.arrived(link),
            Actor::Resend(link) => self.resend(link),
            Actor::Source(flow) => self.source_sends(flow),
            Actor::Connection(flow) => self.connection_timer(flow),
        }
        true
    }

    fn start(&mut self) {
        for link in &self.links {
            if let LinkKind::Port(port) = &link.kind
                && port.known_rate.is_some()
            {
                self.agenda.set(port.rate_actor, self.clock.at(0));
            }
        }
        for flow in &mut self.flows {
            let at = match &flow.sending {
                Sending::Tcp(connection) => connection.starts.unwrap_or(Moment::NEVER),
                Sending::Open(_) => flow.next_arrival(self.clock),
            };
            self.agenda.set(flow.actor, at);
        }
    }

    /// Handles a source's packet that reaches the first link that is not its own.
    fn source_sends(&mut self, n: u32) {
        let flow = &mut self.flows[n as usize];
        let Sending::Open(open) = &mut flow.sending else { return };
        let Some((sent_ns, bytes)) = open.pending else { return };
        let (group, hop) = (flow.group, open.own_links);
        let detail = open.number;
        open.number = open.number.wrapping_add(1);
        self.statistics.sent(group, sent_ns, bytes);
        let id = self.packets.insert(Packet {
            sent_ns,
            bytes,
            original_bytes: bytes,
            flow: n,
            detail,
            next: NONE,
            compressor: UNCOMPRESSED,
            hop,
            back: false,
        });
        let next = flow.next_arrival(self.clock);
        let actor = flow.actor;
        self.agenda.set(actor, next);
        self.enter_link(id);
    }

    /// Handles the packet in flight that arrives now.
    fn arrived(&mut self, n: u32) {
        let link = &mut self.links[n as usize];
        let id = match &mut link.kind {
            _ if link.leads_on => None,
            LinkKind::Fifo(fifo) => fifo.pop(),
            LinkKind::Port(port) => port.in_flight.pop_front().map(|(_, id)| id),
            LinkKind::Served(state) => state.in_flight.pop_front().map(|(_, id)| id),
        };
        let refused = link.refused.pop_front();
        let mut next = link.next_arrival();
        if link.arrives_with_transmitter() && next.ns > self.now.ns {
            next = Moment::NEVER;
        }
        self.agenda.set(link.pipe_actor, next);
        if let Some(id) = id {
            self.leaves_link(n, id);
        } else if let Some((_, id)) = refused {
            self.lose(id);
        }
    }

    /// Handles a packet at the end of a link, unless the link has lost it.
    #[inline]
    fn leaves_link(&mut self, n: u32, id: u32) {
        match self.is_lost_on_link(n) {
            true => self.lose(id),
            false => self.advance(id),
        }
    }

    /// Passes a packet at the end of a link on to the next, or to its receiver.
    fn advance(&mut self, id: u32) {
        let packet = &mut self.packets[id];
        packet.hop += 1;
        let (hop, back) = (packet.hop as usize, packet.back);
        let flow = &self.flows[packet.flow as usize];
        if hop < flow.path(back).len() {
            self.enter_link(id);
        } else if packet.is_compressed() {
            self.open_unit(id, Self::go_on);
        } else {
            self.come_home(id);
        }
    }

    /// Puts a packet into the queue of its next link.
    #[inline]
    fn enter_link(&mut self, id: u32) {
        let packet = &self.packets[id];
        let n = self.flows[packet.flow as usize].path(packet.back)[packet.hop as usize];
        let link = &self.links[n as usize];
        if link.restored && packet.is_compressed() {
            self.open_unit(id, Self::go_on);
        } else {
            match link.kind {
                LinkKind::Port(_) => self.enter_port(n, id),
                LinkKind::Served(_) => self.enter_served(n, id),
                LinkKind::Fifo(_) => self.enter_queue(n, id, self.now.ns),
            }
        }
    }

    /// Puts a packet into a queue that is known in advance, now or in the future, and into those behind it that
    /// nothing else feeds.
    fn enter_queue(&mut self, n: u32, id: u32, at_ns: u64) {
        let bytes = self.packets[id].bytes;
        let link = &mut self.links[n as usize];
        let transmission_ns = link.transmission(u64::from(bytes)).ns;
        let LinkKind::Fifo(fifo) = &mut link.kind else { return };
        if link.path_is_known {
            let arrives_ns = fifo.pass(at_ns, transmission_ns);
            return self.go_ahead(id, arrives_ns);
        }
        let Some(arrives_ns) = fifo.push(at_ns, bytes, transmission_ns) else {
            return self.refuse(id, at_ns);
        };
        if link.leads_on {
            return self.lead_on(id, arrives_ns);
        }
        let packet = &self.packets[id];
        let flow = &self.flows[packet.flow as usize];
        let is_last = usize::from(packet.hop) + 1 == flow.path(false).len();
        if is_last && flow.is_received_ahead && !packet.back && !packet.is_compressed() {
            return self.receive_ahead(id, arrives_ns);
        }
        fifo.carry(arrives_ns, id);
        let (actor, next) = (link.pipe_actor, link.next_arrival());
        if self.agenda.differs(actor, next) {
            self.agenda.set(actor, next);
        }
    }

    /// Puts a packet into the queue behind the one that it leaves at `at_ns`.
    fn lead_on(&mut self, id: u32, at_ns: u64) {
        let packet = &mut self.packets[id];
        packet.hop += 1;
        let next = self.flows[packet.flow as usize].path(packet.back)[usize::from(packet.hop)];
        if packet.is_compressed() && self.links[next as usize].restored {
            self.now_ahead_ns = at_ns;
            return self.open_unit(id, |world, id| {
                let packet = &world.packets[id];
                let path = world.flows[packet.flow as usize].path(packet.back);
                world.enter_queue(path[usize::from(packet.hop)], id, world.now_ahead_ns);
            });
        }
        self.enter_queue(next, id, at_ns);
    }

    /// Handles a packet that finds no room in a queue at `at_ns`.
    fn refuse(&mut self, id: u32, at_ns: u64) {
        if at_ns == self.now.ns {
            return self.lose(id);
        }
        let packet = &self.packets[id];
        if packet.is_compressed() {
            // It may come back, which is an event.
            let before =
                self.flows[packet.flow as usize].path(packet.back)[packet.hop as usize - 1];
            let link = &mut self.links[before as usize];
            link.refused.push_back((at_ns, id));
            let next = link.next_arrival();
            return self.agenda.set(link.pipe_actor, next);
        }
        if at_ns <= self.end_ns {
            self.drop_unit(id);
        }
    }

    /// Handles a packet whose arrival at its receiver, at `at_ns`, nobody else has to do with.
    fn receive_ahead(&mut self, id: u32, at_ns: u64) {
        if at_ns > self.end_ns {
            return; // it is on its way at the end
        }
        let packet = self.packets.remove(id);
        let flow = &self.flows[packet.flow as usize];
        let is_tcp = matches!(flow.sending, Sending::Tcp(_));
        self.statistics.delivered(flow.group, &packet, at_ns);
        if is_tcp {
            self.segment_arrives(&packet, at_ns);
        }
    }

    /// Follows a packet to its end over links where nothing can happen to it; it is at the end
    /// of one of them at `at_ns`.
    #[inline]
    fn go_ahead(&mut self, id: u32, at_ns: u64) {
        self.packets[id].hop += 1;
        self.follow(id, at_ns);
    }

    fn follow(&mut self, id: u32, mut at_ns: u64) {
        loop {
            let packet = &mut self.packets[id];
            let flow = &self.flows[packet.flow as usize];
            let next = flow.path(packet.back).get(packet.hop as usize).copied();
            let restored = next.is_none_or(|n| self.links[n as usize].restored);
            if restored && packet.is_compressed() {
                if packet.next != NONE {
                    return self.follow_each(id, at_ns);
                }
                packet.bytes = packet.original_bytes;
                packet.compressor = UNCOMPRESSED;
            }
            let Some(n) = next else {
                let group = flow.group;
                let packet = self.packets.remove(id);
                match at_ns <= self.end_ns {
                    true => self.statistics.delivered(group, &packet, at_ns),
                    false => self.statistics.ahead_at_end += 1,
                }
                return;
            };
            packet.hop += 1;
            let bytes = u64::from(packet.bytes);
            let link = &mut self.links[n as usize];
            let transmission_ns = link.transmission(bytes).ns;
            let LinkKind::Fifo(fifo) = &mut link.kind else { return };
            at_ns = fifo.pass(at_ns, transmission_ns);
        }
    }

    fn follow_each(&mut self, first: u32, at_ns: u64) {
        self.now_ahead_ns = at_ns;
        self.open_unit(first, |world, id| world.follow(id, world.now_ahead_ns));
    }

    /// Passes a packet out of a decompressed unit on, or to its receiver. The unit's packets part
    /// here.
    fn go_on(&mut self, id: u32) {
        let packet = &self.packets[id];
        let path = self.flows[packet.flow as usize].path(packet.back);
        match usize::from(packet.hop) < path.len() {
            true => self.enter_link(id),
            false => self.come_home(id),
        }
    }

    /// Handles a packet at the end of its path.
    fn come_home(&mut self, id: u32) {
        let packet = self.packets.remove(id);
        let group = self.flows[packet.flow as usize].group;
        if packet.back {
            return self.acknowledgement_arrives(&packet);
        }
        self.statistics.delivered(group, &packet, self.now.ns);
        if matches!(self.flows[packet.flow as usize].sending, Sending::Tcp(_)) {
            self.segment_arrives(&packet, self.now.ns);
        }
    }

    /// Decompresses a unit, and gives each of its packets to `then`.
    fn open_unit(&mut self, first: u32, then: fn(&mut Self, u32)) {
        let has_followers = self.packets[first].next != NONE;
        let hops = if has_followers { self.hops_since_compressed(first) } else { 0 };
        let mut id = first;
        while id != NONE {
            let packet = &mut self.packets[id];
            let next = packet.next;
            if id != first {
                packet.hop += hops;
            }
            packet.bytes = packet.original_bytes;
            packet.compressor = UNCOMPRESSED;
            packet.next = NONE;
            then(self, id);
            id = next;
        }
    }

    /// Returns the number of links that a unit has passed since its compression.
    fn hops_since_compressed(&self, first: u32) -> u8 {
        let packet = &self.packets[first];
        let path = self.flows[packet.flow as usize].path(packet.back);
        // The last time that it was there, should its path lead there twice.
        let gone = &path[..usize::from(packet.hop)];
        let compressed_at = gone.iter().rposition(|&n| n == u32::from(packet.compressor));
        packet.hop - compressed_at.map_or(packet.hop, |at| at as u8)
    }

    /// Handles a packet that met a full queue: it is lost, unless it is a unit that comes back.
    fn lose(&mut self, id: u32) {
        let packet = &self.packets[id];
        if packet.is_compressed() && self.comes_back(id) {
            return;
        }
        self.drop_unit(id);
    }

    fn drop_unit(&mut self, first: u32) {
        let mut id = first;
        while id != NONE {
            let packet = self.packets.remove(id);
            if packet.back {
                self.acks.release(packet.detail);
            } else {
                let group = self.flows[packet.flow as usize].group;
                self.statistics.dropped(group, packet.sent_ns);
            }
            id = packet.next;
        }
    }

    fn finish(mut self) -> Outcome {
        let mut on_own_links = 0;
        for flow in &mut self.flows {
            let group = flow.group;
            flow.still_on_own_links(self.end_ns, |sent_ns, bytes| {
                self.statistics.sent(group, sent_ns, bytes);
                on_own_links += 1;
            });
        }
        self.statistics.finish(self.flows.iter().map(|flow| flow.group));
        let statistics = &self.statistics;
        let acks = self.acks.live();
        let data_in_flight = self.packets.live() - acks + on_own_links + statistics.ahead_at_end;
        assert_eq!(
            statistics.source_packets,
            statistics.delivered + statistics.dropped + data_in_flight,
            "packets sent = delivered + dropped + in flight"
        );
        let window = self.window;
        Outcome {
            window_ns: window.until_ns - window.from_ns,
            source_packets: self.statistics.source_packets,
            events: self.events,
            acknowledged: self.statistics.acknowledged,
            links: link_outcomes(&mut self.links, window),
            groups: self.statistics.groups,
            ports: self
                .links
                .into_iter()
                .filter_map(|link| match link.kind {
                    LinkKind::Port(port) => Some(port.finish(window)),
                    LinkKind::Fifo(_) | LinkKind::Served(_) => None,
                })
                .collect(),
        }
    }
}

/// The outcomes of links that have statistics of their own.
fn link_outcomes(links: &mut [LinkState], window: Window) -> Vec<crate::outcome::LinkOutcome> {
    let outcome = |link: &mut LinkState| {
        let mut outcome = match &mut link.kind {
            LinkKind::Served(state) if state.is_reported => {
                state.finish(window);
                std::mem::take(&mut state.outcome)
            }
            _ if link.losses.is_some() => crate::outcome::LinkOutcome {
                name: link.name.clone(),
                ..crate::outcome::LinkOutcome::default()
            },
            _ => return None,
        };
        outcome.lost = link.lost;
        outcome.has_losses = link.losses.is_some();
        Some(outcome)
    };
    links.iter_mut().filter_map(outcome).collect()
}
