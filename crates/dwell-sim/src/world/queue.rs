//! Queues from which packets are taken one by one, when their transmission can begin: first in, first out, and
//! those that are managed. They know no network: what is dropped is reported to the caller.

use std::collections::VecDeque;

use dwell_base::Rng;

use crate::plan::{Discipline, DropTail, Managed};

use codel::CoDelQueue;
use fq_codel::FqCoDelQueue;
use pie::PieQueue;

mod codel;
mod fq_codel;
mod pie;

/// The size of a packet that counts as one, with Ethernet's header: a queue of no more is not managed.
const PACKET_BYTES: u64 = 1_514;

/// A waiting packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) id: u32,
    pub(crate) bytes: u32,
    /// A hash of its flow.
    pub(crate) flow: u64,
    /// The time since which it waits.
    pub(crate) since_ns: u64,
    /// True if it may be marked in place of being dropped.
    pub(crate) takes_mark: bool,
    /// True if it was marked here.
    pub(crate) is_marked: bool,
}

impl Waiting {
    /// Marks it if it takes marks; returns false if not.
    fn mark(&mut self) -> bool {
        self.is_marked |= self.takes_mark;
        self.takes_mark
    }
}

/// First in, first out, with a count of bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    packets: VecDeque<Waiting>,
    bytes: u64,
}

impl Line {
    fn push(&mut self, packet: Waiting) {
        self.bytes += u64::from(packet.bytes);
        self.packets.push_back(packet);
    }

    fn pop(&mut self) -> Option<Waiting> {
        let packet = self.packets.pop_front()?;
        self.bytes -= u64::from(packet.bytes);
        Some(packet)
    }
}

/// A queue of one of the kinds.
#[derive(Clone, Debug)]
pub(crate) enum Queue {
    Plain { limit: DropTail, line: Line },
    CoDel(CoDelQueue),
    FqCoDel(Box<FqCoDelQueue>),
    Pie(Box<PieQueue>),
}

impl Queue {
    /// A queue that drops what comes when it is full, by ns-2's rule.
    pub(crate) fn plain(limit: DropTail) -> Self {
        Self::Plain { limit, line: Line::default() }
    }

    /// A managed queue, whose decisions by chance follow from `rng`.
    pub(crate) fn managed(plan: &Managed, rng: Rng) -> Self {
        match plan.discipline {
            Discipline::CoDel(codel) => Self::CoDel(CoDelQueue::new(codel, plan)),
            Discipline::FqCoDel { codel, quantum_bytes, queues } => {
                let shape = (quantum_bytes, queues);
                Self::FqCoDel(Box::new(FqCoDelQueue::new(codel, shape, plan, rng)))
            }
            Discipline::Pie(pie) => Self::Pie(Box::new(PieQueue::new(pie, plan, rng))),
        }
    }

    /// Puts a packet in. What is dropped for it, or is itself, is added to `dropped`.
    pub(crate) fn push(&mut self, now_ns: u64, packet: Waiting, dropped: &mut Vec<u32>) {
        match self {
            Self::Plain { limit, line } => {
                let by_packets =
                    limit.packets.is_some_and(|most| line.packets.len() + 1 >= most as usize);
                let by_bytes =
                    limit.bytes.is_some_and(|most| line.bytes + u64::from(packet.bytes) > most);
                match by_packets || by_bytes {
                    true => dropped.push(packet.id),
                    false => line.push(packet),
                }
            }
            Self::CoDel(queue) => queue.push(packet, dropped),
            Self::FqCoDel(queue) => queue.push(packet, dropped),
            Self::Pie(queue) => queue.push(now_ns, packet, dropped),
        }
    }

    /// Takes the packet to send now, if any waits. What is dropped before it is added to `dropped`.
    pub(crate) fn pop(&mut self, now_ns: u64, dropped: &mut Vec<u32>) -> Option<Waiting> {
        match self {
            Self::Plain { line, .. } => line.pop(),
            Self::CoDel(queue) => queue.pop(now_ns, dropped),
            Self::FqCoDel(queue) => queue.pop(now_ns, dropped),
            Self::Pie(queue) => queue.pop(now_ns),
        }
    }

    /// Returns the number of packets that wait.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Plain { line, .. } => line.packets.len(),
            Self::CoDel(queue) => queue.len(),
            Self::FqCoDel(queue) => queue.len(),
            Self::Pie(queue) => queue.len(),
        }
    }
}

#[cfg(test)]
mod tests;
