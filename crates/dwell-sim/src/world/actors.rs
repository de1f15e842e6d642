//! Who can cause an event, and the numbers by which ties are decided.

use crate::world::Actor;
use crate::world::flow::{FlowState, Sending};
use crate::world::link::{LinkKind, LinkState};

/// The actors of a world.
#[derive(Debug, Default)]
pub(super) struct Actors {
    /// Those that may act, in the order of their numbers.
    pub(super) acting: Vec<Actor>,
    pub(super) numbers: Vec<u32>,
    next_number: u32,
}

/// In place of an actor that never acts.
const NOBODY: u32 = u32::MAX;

impl Actors {
    /// Gives the next number to an actor, and returns its place on the agenda if it `acts`. Numbers decide
    /// ties, so that they must not depend on who acts.
    fn number(&mut self, actor: Actor, acts: bool) -> u32 {
        let number = self.next_number;
        self.next_number += 1;
        if !acts {
            return NOBODY;
        }
        self.acting.push(actor);
        self.numbers.push(number);
        (self.acting.len() - 1) as u32
    }
}

/// Gives each actor its number and its place on the agenda, and returns the first number from which on
/// chance decides ties.
pub(super) fn number_actors(links: &mut [LinkState], flows: &mut [FlowState]) -> (Actors, u32) {
    let mut actors = Actors::default();
    for (n, link) in links.iter_mut().enumerate() {
        match &mut link.kind {
            LinkKind::Port(port) => {
                port.transmitter_actor = actors.number(Actor::Transmitter(n as u32), true);
            }
            LinkKind::Served(state) => {
                state.transmitter_actor = actors.number(Actor::Served(n as u32), true);
            }
            LinkKind::Fifo(_) => {}
        }
    }
    for (n, link) in links.iter_mut().enumerate() {
        if let LinkKind::Port(port) = &mut link.kind {
            port.compress_actor = actors.number(Actor::Compress(n as u32), port.compresses());
            port.timer_actor = actors.number(Actor::PortTimer(n as u32), port.holds);
            if port.known_rate.is_some() {
                port.rate_actor = actors.number(Actor::Rate(n as u32), true);
            }
        }
    }
    let shuffled_from = actors.next_number;
    let mut is_passed = vec![false; links.len()];
    for &own in flows.iter().flat_map(FlowState::own_links) {
        is_passed[own as usize] = true;
    }
    for (n, link) in links.iter_mut().enumerate() {
        if !link.path_is_known {
            link.pipe_actor = actors.number(Actor::Pipe(n as u32), !is_passed[n]);
        }
        if let LinkKind::Port(port) = &mut link.kind {
            port.resend_actor = actors.number(Actor::Resend(n as u32), port.resends());
        }
    }
    for (n, flow) in flows.iter_mut().enumerate() {
        flow.actor = match flow.sending {
            Sending::Open(_) => actors.number(Actor::Source(n as u32), true),
            Sending::Tcp(_) => actors.number(Actor::Connection(n as u32), true),
        };
    }
    (actors, shuffled_from)
}
