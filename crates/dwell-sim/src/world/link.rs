//! The state of a link.

use std::collections::VecDeque;

use dwell_base::Rng;

use crate::moment::{Moment, Span, Transmissions};
use crate::plan::{DropTail, Plan, PlanError, Queue, Ties};
use crate::world::fifo::Fifo;
use crate::world::port::PortState;
use crate::world::propagation::Propagation;
use crate::world::stream;

#[derive(Debug)]
pub(crate) struct LinkState {
    pub(crate) transmissions: Transmissions,
    /// True if packets arrive as soon as their transmission has ended.
    pub(crate) is_instant: bool,
    pub(crate) restored: bool,
    /// True if nothing can happen to packets behind it: they need no events.
    pub(crate) path_is_known: bool,
    /// True if nobody else feeds the queues behind it, so that packets enter those at once, at a time in
    /// the future.
    pub(crate) leads_on: bool,
    /// If it leads on: compressed units that the queue behind it has no room for, and when.
    pub(crate) refused: VecDeque<(Moment, u32)>,
    pub(crate) pipe_actor: u32,
    pub(crate) kind: LinkKind,
}

#[derive(Debug)]
pub(crate) enum LinkKind {
    Fifo(Fifo),
    Port(Box<PortState>),
}

impl LinkState {
    /// Returns the time that `bytes` take on the wire.
    #[inline]
    pub(crate) fn transmission(&mut self, bytes: u64) -> Span {
        self.transmissions.of(bytes)
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
            return self.refused.front().map_or(Moment::NEVER, |&(at, _)| at);
        }
        match &self.kind {
            LinkKind::Fifo(fifo) => fifo.next().unwrap_or(Moment::NEVER),
            LinkKind::Port(port) => port.in_flight.front().map_or(Moment::NEVER, |&(at, _)| at),
        }
    }
}

/// The links of a plan, all empty.
pub(crate) fn links(plan: &Plan, seed: u64) -> Result<Vec<LinkState>, PlanError> {
    let by_seconds = plan.ties == Ties::Ns2;
    let make = |(n, link): (usize, &crate::plan::Link)| {
        let propagation = propagation(plan, n, seed);
        let is_instant = propagation.is_none();
        let kind = match &link.queue {
            Queue::Unlimited => {
                LinkKind::Fifo(Fifo::new(DropTail::default(), propagation, by_seconds))
            }
            Queue::DropTail(limit) => LinkKind::Fifo(Fifo::new(*limit, propagation, by_seconds)),
            Queue::Port(port) => {
                let state = PortState::new(&link.name, port, plan.groups.len(), propagation);
                LinkKind::Port(Box::new(
                    state.map_err(|source| PlanError::Port { link: link.name.clone(), source })?,
                ))
            }
        };
        Ok(LinkState {
            transmissions: Transmissions::new(link.rate, link.frame_ns_min),
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
    let jitter_ns = match plan.ties {
        Ties::Jitter(most_ns) => most_ns,
        Ties::Random | Ties::Ns2 => 0,
    };
    let rng = || Rng::stream(seed, stream::JITTER + n as u64);
    Propagation::new(plan.links[n].propagation_ns, jitter_ns, rng)
}
