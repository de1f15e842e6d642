//! The queues of any chunking scheme.

use dwell_base::Instant;

use super::Entry;
use super::buffers::Buffers;
use super::fifo::{Chunk, Limits};
use super::single::Single;
use super::tandem::Tandem;
use crate::scheme::Queue;

/// The queues of a chunking scheme, of whichever kind.
#[derive(Clone, Debug)]
pub(super) struct ChunkQueues {
    queues: Kind,
    packets: usize,
    bytes: u64,
}

#[derive(Clone, Debug)]
enum Kind {
    Single(Single),
    Buffers(Buffers),
    Tandem(Box<Tandem>),
}

impl ChunkQueues {
    pub(super) fn new(queues: &Queue, limits: Limits, fill: bool) -> Self {
        let queues = match queues {
            Queue::One | Queue::CpuAndLink | Queue::Flows(_) => Kind::Single(Single::new(limits)),
            Queue::PerClass(timers) => Kind::Buffers(Buffers::new(timers, limits, fill)),
            Queue::Tandem(timers, pull) => {
                Kind::Tandem(Box::new(Tandem::new(timers, *pull, limits, fill)))
            }
        };
        Self { queues, packets: 0, bytes: 0 }
    }

    /// Packets that wait.
    pub(super) fn packets(&self) -> usize {
        self.packets
    }

    /// Bytes that wait, with the headers of their units.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of packets in the queue that a packet with this W would go to: tail drop
    /// counts them.
    pub(super) fn packets_before(&self, max_wait_ns: u64) -> usize {
        match &self.queues {
            Kind::Single(single) => single.packets(),
            Kind::Buffers(buffers) => buffers.packets_before(max_wait_ns),
            Kind::Tandem(tandem) => tandem.packets_before(max_wait_ns),
        }
    }

    /// Takes a packet in.
    pub(super) fn arrive(&mut self, now: Instant, entry: Entry) {
        self.packets += 1;
        self.bytes += u64::from(entry.unit_bytes);
        match &mut self.queues {
            Kind::Single(single) => single.arrive(entry),
            Kind::Buffers(buffers) => buffers.arrive(entry),
            Kind::Tandem(tandem) => tandem.arrive(now, entry),
        }
    }

    /// The link is free: if a chunk is due, makes it in `chunk`, whatever was there before.
    pub(super) fn take(&mut self, now: Instant, chunk: &mut Chunk) -> bool {
        let due = match &mut self.queues {
            Kind::Single(single) => single.take(now, chunk),
            Kind::Buffers(buffers) => buffers.take(now, chunk),
            Kind::Tandem(tandem) => tandem.take(now, chunk),
        };
        if due {
            self.packets -= chunk.entries().len();
            self.bytes -= chunk.bytes();
        }
        due
    }

    /// When the link is free and [`Self::take`] found nothing due: when to ask again.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        match &self.queues {
            Kind::Single(single) => single.next_deadline(),
            Kind::Buffers(buffers) => buffers.next_deadline(),
            Kind::Tandem(tandem) => tandem.next_deadline(),
        }
    }

    /// Empties all queues; packets of equal W come in the order of their arrival.
    pub(super) fn drain(&mut self, mut to: impl FnMut(Entry)) {
        match &mut self.queues {
            Kind::Single(single) => single.drain(&mut to),
            Kind::Buffers(buffers) => buffers.drain(&mut to),
            Kind::Tandem(tandem) => tandem.drain(&mut to),
        }
        (self.packets, self.bytes) = (0, 0);
    }

    /// Verifies the invariants by counting everything again.
    ///
    /// # Panics
    /// If an invariant is broken.
    pub(super) fn assert_invariants(&self) {
        let (mut packets, mut bytes) = (0, 0);
        self.for_each(&mut |entry| {
            packets += 1;
            bytes += u64::from(entry.unit_bytes);
        });
        assert_eq!((packets, bytes), (self.packets, self.bytes), "chunks are miscounted");
        match &self.queues {
            Kind::Single(single) => single.assert_invariants(),
            Kind::Buffers(buffers) => buffers.assert_invariants(),
            Kind::Tandem(tandem) => tandem.assert_invariants(),
        }
    }

    /// Every packet that waits; those of equal W in the order of their arrival.
    pub(super) fn for_each(&self, visit: &mut dyn FnMut(&Entry)) {
        match &self.queues {
            Kind::Single(single) => single.for_each(visit),
            Kind::Buffers(buffers) => buffers.for_each(visit),
            Kind::Tandem(tandem) => tandem.for_each(visit),
        }
    }
}
