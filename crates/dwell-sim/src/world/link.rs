//! The state of a link.

use std::collections::VecDeque;

use dwell_base::Rng;

use crate::moment::{Moment, Span, Transmissions};
use crate::plan::{DropTail, Jitter, Plan, PlanError, Queue, Ties};
use crate::world::fifo::Fifo;
use crate::world::losses::Losses;
use crate::world::port::PortState;
use crate::world::propagation::Propagation;
use crate::world::queue::Queue as ServedQueue;
use crate::world::served::{ServedState, span};
use crate::world::stream;
use crate::world::varying::Varying;

#[derive(Debug)]
pub(crate) struct LinkState {
    pub(crate) name: String,
    transmissions: Transmissions,
    /// A rate that varies, in place of that.
    varying: Option<Box<Varying>>,
    pub(crate) losses: Option<Box<Losses>>,
    /// Packets that were lost behind the queue, within the window.
    pub(crate) lost: u64,
    /// True if packets arrive as soon as their transmission has ended.
    pub(crate) is_instant: bool,
    pub(crate) restored: bool,
    /// True if nothing can happen to packets behind it: they need no events.
    pub(crate) path_is_known: bool,
    /// True if nobody else feeds the queues behind it, so that packets enter those at once, at a time in
    /// the future.
    pub(crate) leads_on: bool,
    /// If it leads on: compressed units that the queue behind it has no room for, and when.
    pub(crate) refused: VecDeque<(u64, u32)>,
    pub(crate) pipe_actor: u32,
    pub(crate) kind: LinkKind,
}

#[derive(Debug)]
pub(crate) enum LinkKind {
    Fifo(Fifo),
    Port(Box<PortState>),
    Served(Box<ServedState>),
}

impl LinkState {
    /// Returns the time that `bytes` take on the wire.
    #[inline]
    pub(crate) fn transmission(&mut self, bytes: u64) -> Span {
        self.transmissions.of(bytes)
    }

    /// Returns the time that `bytes` take on the wire from `at_ns` on.
    #[inline]
    pub(crate) fn transmission_from(&mut self, at_ns: u64, bytes: u64) -> Span {
        match &mut self.varying {
            None => self.transmissions.of(bytes),
            Some(varying) => {
                let least_ns = at_ns.saturating_add(self.transmissions.least_ns());
                span(at_ns, varying.transmission_end(at_ns, bytes).max(least_ns))
            }
        }
    }

    /// Returns true if packets arrive at the other end when the transmitter of its port is on the agenda.
    #[inline]
    pub(crate) fn arrives_with_transmitter(&self) -> bool {
        self.is_instant && matches!(self.kind, LinkKind::Port(_))
    }

    /// Returns the instant at which something happens at its other end.
    #[inline]
    pub(crate) fn next_arrival(&self) -> Moment {
        if self.leads_on {
            return self.refused.front().map_or(Moment::NEVER, |&(at_ns, _)| Moment::at(at_ns));
        }
        match &self.kind {
            LinkKind::Fifo(fifo) => fifo.next_ns().map_or(Moment::NEVER, Moment::at),
            LinkKind::Port(port) => port.in_flight.front().map_or(Moment::NEVER, |&(at, _)| at),
            LinkKind::Served(state) => state.in_flight.front().map_or(Moment::NEVER, |&(at, _)| at),
        }
    }
}

/// The links of a plan, all empty.
pub(crate) fn links(plan: &Plan, seed: u64) -> Result<Vec<LinkState>, PlanError> {
    let is_in_seconds = plan.ties == Ties::Ns2;
    let make = |(n, link): (usize, &crate::plan::Link)| {
        let propagation = propagation(plan, n, seed);
        let is_instant = propagation.is_none();
        let rng = |of: u64| Rng::stream(seed, of + n as u64);
        let varying = link.medium.variation.as_ref().map(|variation| {
            Box::new(Varying::new(variation, link.rate.as_bps(), || rng(stream::RATE)))
        });
        // ns-2's order follows from when it would have put an event onto its agenda, so that each is one.
        let is_reported = varying.is_some() || link.medium.is_observed;
        let is_served = is_reported || is_in_seconds;
        let served = |queue, propagation| {
            let is_reported = is_reported || matches!(link.queue, Queue::Managed(_));
            let bin_ns = plan.bin_ns;
            let state = ServedState::new(&link.name, queue, propagation, is_reported, bin_ns);
            LinkKind::Served(Box::new(state))
        };
        let kind = match &link.queue {
            Queue::Unlimited if is_served => {
                served(ServedQueue::plain(DropTail::default()), propagation)
            }
            Queue::DropTail(limit) if is_served => served(ServedQueue::plain(*limit), propagation),
            Queue::Managed(plan) => {
                served(ServedQueue::managed(plan, rng(stream::QUEUE)), propagation)
            }
            Queue::Unlimited => LinkKind::Fifo(Fifo::new(DropTail::default(), propagation)),
            Queue::DropTail(limit) => LinkKind::Fifo(Fifo::new(*limit, propagation)),
            Queue::Port(port) => {
                let of = (plan.groups.len(), plan.bin_ns);
                let state = PortState::new(&link.name, port, of, propagation);
                let mut state =
                    state.map_err(|source| PlanError::Port { link: link.name.clone(), source })?;
                state.known_rate.clone_from(&varying);
                LinkKind::Port(Box::new(state))
            }
        };
        Ok(LinkState {
            name: link.name.clone(),
            transmissions: Transmissions::new(link.rate, link.frame_ns_min),
            varying,
            losses: link.medium.loss.map(|loss| Box::new(Losses::new(loss, rng(stream::LOSS)))),
            lost: 0,
            is_instant,
            restored: link.restored,
            path_is_known: false,
            leads_on: false,
            refused: VecDeque::new(),
            pipe_actor: 0,
            kind,
        })
    };
    plan.links.iter().enumerate().map(make).collect()
}

/// The propagation of link `n`, with random numbers of its own.
pub(crate) fn propagation(plan: &Plan, n: usize, seed: u64) -> Propagation {
    let link = &plan.links[n];
    let jitter = link.medium.jitter.or(match plan.ties {
        Ties::Jitter(most_ns) => Some(Jitter::Uniform(most_ns)),
        Ties::Random | Ties::Ns2 => None,
    });
    let rng = || Rng::stream(seed, stream::JITTER + n as u64);
    Propagation::new(link.propagation_ns, jitter, rng)
}
