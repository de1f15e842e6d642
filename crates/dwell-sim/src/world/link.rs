//! The state of a link.

use std::collections::VecDeque;

use dwell_base::Rate;

use crate::agenda::NEVER_NS;
use crate::plan::{DropTail, Plan, PlanError, Queue};
use crate::world::fifo::Fifo;
use crate::world::port::PortState;

#[derive(Debug)]
pub(crate) struct LinkState {
    rate: Rate,
    frame_ns_min: u64,
    /// The last size asked for and its time on the wire: sizes repeat.
    last: (u64, u64),
    pub(crate) propagation_ns: u64,
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
}

impl LinkState {
    /// Returns the time that `bytes` take on the wire.
    #[inline]
    pub(crate) fn transmission_ns(&mut self, bytes: u64) -> u64 {
        if self.last.0 != bytes {
            let ns = self.rate.transmission_ns(bytes).max(self.frame_ns_min);
            self.last = (bytes, ns);
        }
        self.last.1
    }

    /// Returns true if packets arrive at the other end when the transmitter of its port is on the agenda.
    #[inline]
    pub(crate) fn arrives_with_transmitter(&self) -> bool {
        self.propagation_ns == 0 && matches!(self.kind, LinkKind::Port(_))
    }

    /// Returns the time at which something happens at its other end.
    #[inline]
    pub(crate) fn next_arrival_ns(&self) -> u64 {
        if self.leads_on {
            return self.refused.front().map_or(NEVER_NS, |&(at_ns, _)| at_ns);
        }
        match &self.kind {
            LinkKind::Fifo(fifo) => fifo.next_ns().unwrap_or(NEVER_NS),
            LinkKind::Port(port) => port.in_flight.front().map_or(NEVER_NS, |&(at, _)| at),
        }
    }
}

/// The links of a plan, all empty.
pub(crate) fn links(plan: &Plan) -> Result<Vec<LinkState>, PlanError> {
    let make = |link: &crate::plan::Link| {
        let kind = match &link.queue {
            Queue::Unlimited => LinkKind::Fifo(Fifo::new(DropTail::default(), link.propagation_ns)),
            Queue::DropTail(limit) => LinkKind::Fifo(Fifo::new(*limit, link.propagation_ns)),
            Queue::Port(port) => {
                let state = PortState::new(&link.name, port, plan.groups.len());
                LinkKind::Port(Box::new(
                    state.map_err(|source| PlanError::Port { link: link.name.clone(), source })?,
                ))
            }
        };
        Ok(LinkState {
            rate: link.rate,
            frame_ns_min: link.frame_ns_min,
            last: (0, link.frame_ns_min),
            propagation_ns: link.propagation_ns,
            restored: link.restored,
            path_is_known: false,
            leads_on: false,
            refused: VecDeque::new(),
            pipe_actor: 0,
            kind,
        })
    };
    plan.links.iter().map(make).collect()
}
