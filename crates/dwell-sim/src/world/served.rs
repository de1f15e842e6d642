//! Links whose queue gives a packet when its transmission can begin: managed queues, rates that vary, and links
//! that are observed. Each packet costs one event more than with queues that are known in advance.

use std::collections::VecDeque;

use crate::agenda::NEVER_NS;
use crate::moment::{Moment, Span};
use crate::outcome::LinkOutcome;
use crate::plan::Window;
use crate::world::World;
use crate::world::link::LinkKind;
use crate::world::packets::NONE;
use crate::world::propagation::Propagation;
use crate::world::queue::{Queue, Waiting};
use crate::world::timeline::Timeline;

/// The queue, the transmitter and the packets in flight.
#[derive(Debug)]
pub(crate) struct ServedState {
    queue: Queue,
    propagation: Propagation,
    is_busy: bool,
    pub(crate) transmitter_actor: u32,
    /// The packets on the wire: when they arrive at the other end.
    pub(crate) in_flight: VecDeque<(Moment, u32)>,
    /// The time since which this number of packets waits.
    waiting_since_ns: u64,
    waiting: u64,
    timeline: Timeline,
    pub(crate) outcome: LinkOutcome,
    /// True if somebody wants to know its outcome.
    pub(crate) is_reported: bool,
}

impl ServedState {
    pub(crate) fn new(
        name: &str,
        queue: Queue,
        propagation: Propagation,
        is_reported: bool,
        bin_ns: Option<u64>,
    ) -> Self {
        Self {
            queue,
            propagation,
            is_busy: false,
            transmitter_actor: 0,
            in_flight: VecDeque::new(),
            waiting_since_ns: 0,
            waiting: 0,
            timeline: Timeline::new(bin_ns.filter(|_| is_reported)),
            outcome: LinkOutcome {
                name: name.to_owned(),
                has_queue: true,
                ..LinkOutcome::default()
            },
            is_reported,
        }
    }

    /// Integrates the number of waiting packets over time.
    fn count_waiting(&mut self, now_ns: u64, window: Window) {
        if !self.is_reported {
            return;
        }
        let from_ns = self.waiting_since_ns.max(window.from_ns);
        let until_ns = now_ns.min(window.until_ns);
        if until_ns > from_ns {
            self.outcome.waiting_area += u128::from(self.waiting) * u128::from(until_ns - from_ns);
            self.outcome.waiting_max = self.outcome.waiting_max.max(self.waiting);
        }
        self.timeline.waited(self.waiting_since_ns, now_ns, self.waiting);
        self.waiting_since_ns = now_ns;
        self.waiting = self.queue.len() as u64;
    }

    pub(crate) fn finish(&mut self, window: Window) {
        self.count_waiting(window.until_ns, window);
        self.outcome.bins = std::mem::take(&mut self.timeline).into_bins();
    }
}

impl World {
    /// Puts a packet into the queue of a link that is served.
    pub(super) fn enter_served(&mut self, n: u32, id: u32) {
        let (now_ns, window) = (self.now.ns, self.window);
        let packet = &self.packets[id];
        let flow = &self.flows[packet.flow as usize];
        let waiting = Waiting {
            id,
            bytes: packet.bytes,
            flow: super::port::flow_hash(packet.flow << 1 | u32::from(packet.back)),
            since_ns: now_ns,
            takes_mark: flow.takes_marks && !packet.back,
            is_marked: false,
        };
        let counts = self.statistics.in_window(now_ns);
        let LinkKind::Served(state) = &mut self.links[n as usize].kind else { return };
        state.outcome.arrived += u64::from(counts);
        state.queue.push(now_ns, waiting, &mut self.discarded);
        let is_busy = state.is_busy;
        if !is_busy {
            self.serve(n);
        } else {
            state.count_waiting(now_ns, window);
            self.lose_discarded(n);
        }
    }

    /// Handles the end of a transmission of a served link.
    pub(super) fn served(&mut self, n: u32) {
        let LinkKind::Served(state) = &mut self.links[n as usize].kind else { return };
        state.is_busy = false;
        self.serve(n);
        let LinkKind::Served(state) = &mut self.links[n as usize].kind else { return };
        if !state.is_busy {
            let actor = state.transmitter_actor;
            self.agenda.set(actor, Moment::NEVER);
        }
    }

    /// Begins the next transmission, if anything waits.
    fn serve(&mut self, n: u32) {
        let (now, window) = (self.now, self.window);
        let link = &mut self.links[n as usize];
        let LinkKind::Served(state) = &mut link.kind else { return };
        let next = state.queue.pop(now.ns, &mut self.discarded);
        state.count_waiting(now.ns, window);
        if let Some(packet) = next {
            state.is_busy = true;
            if state.is_reported && now.ns >= window.from_ns && now.ns < window.until_ns {
                state.outcome.sent(now.ns - packet.since_ns, packet.bytes, packet.is_marked);
            }
            state.timeline.sent(now.ns, u64::from(packet.bytes));
            let transmission = link.transmission_from(now.ns, u64::from(packet.bytes));
            let LinkKind::Served(state) = &mut link.kind else { return };
            let arrives = self.agenda.stamp(state.propagation.arrival(now, transmission));
            state.in_flight.push_back((arrives, packet.id));
            self.agenda.set(state.transmitter_actor, now.after(transmission));
            let (actor, next) = (link.pipe_actor, link.next_arrival());
            if self.agenda.differs(actor, next) {
                self.agenda.set(actor, next);
            }
            if packet.is_marked {
                self.mark(packet.id);
            }
            self.show_packet(n, packet.id);
        }
        self.lose_discarded(n);
    }

    /// Drops what a queue has discarded.
    fn lose_discarded(&mut self, n: u32) {
        if self.discarded.is_empty() {
            return;
        }
        let counts = self.statistics.in_window(self.now.ns);
        let mut discarded = std::mem::take(&mut self.discarded);
        if let LinkKind::Served(state) = &mut self.links[n as usize].kind {
            let packets = discarded.len() as u64;
            state.timeline.dropped(self.now.ns, packets);
            state.outcome.dropped += if counts { packets } else { 0 };
        }
        discarded.drain(..).for_each(|id| self.lose(id));
        self.discarded = discarded;
    }

    /// Marks a packet, and all that were compressed with it: congestion was experienced.
    fn mark(&mut self, first: u32) {
        let mut id = first;
        while id != NONE {
            let packet = &mut self.packets[id];
            packet.mark();
            id = packet.next;
        }
    }

    /// Returns true if the link loses the packet that arrives now.
    #[inline]
    pub(super) fn is_lost_on_link(&mut self, n: u32) -> bool {
        let link = &mut self.links[n as usize];
        let Some(losses) = &mut link.losses else { return false };
        let is_lost = losses.next_is_lost();
        link.lost += u64::from(is_lost && self.statistics.in_window(self.now.ns));
        is_lost
    }

    /// Notifies a port of the rate that its link has now.
    pub(super) fn rate_changes(&mut self, n: u32) {
        let now_ns = self.now.ns;
        let LinkKind::Port(state) = &mut self.links[n as usize].kind else { return };
        let Some(rate) = &mut state.known_rate else { return };
        let (bps, until_ns) = rate.at(now_ns);
        let actor = state.rate_actor;
        state.notify_rate(now_ns, bps);
        let next = if until_ns == NEVER_NS { Moment::NEVER } else { self.clock.at(until_ns) };
        self.agenda.set(actor, next);
        self.pump(n);
    }
}

/// Returns the span from one time to a later one.
pub(super) fn span(from_ns: u64, to_ns: u64) -> Span {
    Span::of(to_ns.saturating_sub(from_ns))
}
