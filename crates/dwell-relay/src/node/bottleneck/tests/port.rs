//! The queue of a relay.

use std::collections::{BTreeMap, VecDeque};

use dwell_base::{Instant, Rate};
use dwell_policy::{
    Action, ClassKey, Event, FrameCost, Gather, LinkState, Packet, PacketId, Port, PortConfig,
    Scheme,
};

use super::model::{HEADER_BYTES, PACKET_BYTES};
use crate::node::pacer::Pacer;

/// The length of the simple one.
const SIMPLE_NS: u64 = 100_000_000;

/// A packet of a connection, with its serial number, and its bytes.
#[derive(Clone, Copy)]
pub(super) struct Waiting {
    pub(super) flow: usize,
    pub(super) serial: u64,
    pub(super) bytes: u64,
}

/// What packets wait in.
#[allow(clippy::large_enum_variant, reason = "a test has one")]
pub(super) enum Queue {
    /// One queue, of which the end is dropped.
    Simple(VecDeque<Waiting>),
    /// The relay's own, a queue for each flow with CoDel, of what is not compressed here.
    Real { port: Port, waiting: BTreeMap<u32, Waiting>, next: u32 },
}

impl Queue {
    pub(super) fn simple() -> Self {
        Self::Simple(VecDeque::new())
    }

    pub(super) fn real() -> Self {
        let frame = FrameCost {
            frame_bytes: HEADER_BYTES as u32,
            units_bytes_max: PACKET_BYTES as u32,
            units_max: 64,
            ..FrameCost::FREE
        };
        let scheme = Scheme::auto(Gather::HostPair);
        let config = PortConfig { scheme, frame, ..PortConfig::default() };
        let port = Port::new(config).expect("a possible configuration");
        Self::Real { port, waiting: BTreeMap::new(), next: 0 }
    }

    pub(super) fn clear(&mut self) {
        *self = match self {
            Self::Simple(_) => Self::simple(),
            Self::Real { .. } => Self::real(),
        };
    }

    /// A packet comes; if there is no room, it is dropped.
    pub(super) fn push(&mut self, now: Instant, rate: Rate, packet: Waiting) {
        match self {
            Self::Simple(queue) => {
                let room = (rate.bytes_in_ns(SIMPLE_NS) / PACKET_BYTES).max(12) as usize;
                if queue.len() < room {
                    queue.push_back(packet);
                }
            }
            Self::Real { port, waiting, next } => {
                *next += 1;
                waiting.insert(*next, packet);
                let class = ClassKey::new(6, 80);
                let of_flow = Packet {
                    flow: packet.flow as u64,
                    group: 0,
                    looks_random: true,
                    ..Packet::new(PacketId(*next), packet.bytes as u32, (class, class))
                };
                port.handle(now, Event::Arrive(of_flow));
            }
        }
    }

    /// Returns the packets of the next datagram, if the link takes it now.
    pub(super) fn pop(
        &mut self,
        now: Instant,
        (pacer, grants): (&Pacer, bool),
    ) -> Option<Vec<Waiting>> {
        match self {
            Self::Simple(queue) => {
                let first = pacer.ready(now).then(|| queue.pop_front()).flatten()?;
                Some(vec![first])
            }
            Self::Real { port, waiting, .. } => {
                let found = pacer.found().filter(|_| grants);
                let state = LinkState {
                    burst_bytes: pacer.at_once_bytes(),
                    ahead_bytes: pacer.ahead_bytes(now),
                    given_bytes: pacer.given_bytes(now),
                    takes_all: pacer.takes_all(),
                    granted_ns: found.map_or(0, |found| found.held_back_ns),
                    ..LinkState::of_rate(pacer.rate())
                };
                port.handle(now, Event::Link(state));
                let is_ready = pacer.ready(now);
                port.handle(now, if is_ready { Event::LinkReady } else { Event::LinkBusy });
                while let Some(action) = port.poll(now) {
                    match action {
                        Action::Send => {
                            let taken = |id: PacketId| waiting.remove(&id.0);
                            let units = port.frame().units.iter().map(|unit| unit.id);
                            return Some(units.filter_map(taken).collect());
                        }
                        Action::Drop(id, _) => {
                            waiting.remove(&id.0);
                        }
                        Action::Compress(_) | Action::Mark(_) => {
                            unreachable!("it looks random, and takes no marks")
                        }
                    }
                }
                None
            }
        }
    }
}
