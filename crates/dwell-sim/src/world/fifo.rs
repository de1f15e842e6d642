//! A first-in-first-out queue and its link, known in advance.
//!
//! No later event changes when a packet leaves such a queue, so the time of its arrival at the
//! other end is known as soon as it enters, and one event for each packet (that arrival) is enough.

use std::collections::VecDeque;

use crate::plan::DropTail;
use crate::world::propagation::Propagation;

/// The queue, the transmitter and the packets in flight.
#[derive(Clone, Debug)]
pub(crate) struct Fifo {
    limit: DropTail,
    propagation: Propagation,
    /// The time at which the transmitter is free.
    free_ns: u64,
    /// The packets whose transmissions have not begun: when they will, and their bytes. Some that have begun
    /// are still there.
    waiting: VecDeque<(u64, u32)>,
    waiting_bytes: u64,
    /// The packets that cause an event at the other end, and when they arrive there.
    in_flight: VecDeque<(u64, u32)>,
}

impl Fifo {
    pub(crate) fn new(limit: DropTail, propagation: Propagation) -> Self {
        Self {
            limit,
            propagation,
            free_ns: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            in_flight: VecDeque::new(),
        }
    }

    /// Puts a packet in, unless there is no room. Returns the time of its arrival at the other end.
    /// Packets come in the order of their times, which may be in the future. The end of a transmission goes
    /// before an arrival at the same time.
    #[inline]
    pub(crate) fn push(&mut self, at_ns: u64, bytes: u32, transmission_ns: u64) -> Option<u64> {
        if self.free_ns <= at_ns {
            self.waiting.clear();
            self.waiting_bytes = 0;
        } else {
            if self.is_full(at_ns, bytes) {
                return None;
            }
            self.waiting.push_back((self.free_ns, bytes));
            self.waiting_bytes += u64::from(bytes);
        }
        Some(self.pass(at_ns, transmission_ns))
    }

    /// Passes a packet where there is no limit. Returns the time of its arrival at the other end.
    #[inline]
    pub(crate) fn pass(&mut self, at_ns: u64, transmission_ns: u64) -> u64 {
        self.free_ns = self.free_ns.max(at_ns).saturating_add(transmission_ns);
        self.propagation.arrival_ns(self.free_ns)
    }

    /// Keeps a packet until it arrives at the other end.
    #[inline]
    pub(crate) fn carry(&mut self, arrives_ns: u64, packet: u32) {
        self.in_flight.push_back((arrives_ns, packet));
    }

    /// Returns the time at which the next packet arrives at the other end.
    #[inline]
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.in_flight.front().map(|&(arrives_ns, _)| arrives_ns)
    }

    /// Takes the packet that arrives next.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<u32> {
        self.in_flight.pop_front().map(|(_, packet)| packet)
    }

    /// Returns the packets and bytes that wait; the packet on the wire does not count.
    pub(crate) fn waiting(&mut self, at_ns: u64) -> (usize, u64) {
        // A transmission that begins now has begun: the end of the one before goes before an arrival.
        while let Some(&(begins_ns, bytes)) = self.waiting.front()
            && begins_ns <= at_ns
        {
            self.waiting_bytes -= u64::from(bytes);
            self.waiting.pop_front();
        }
        (self.waiting.len(), self.waiting_bytes)
    }

    fn is_full(&mut self, at_ns: u64, bytes: u32) -> bool {
        let DropTail { packets: packets_max, bytes: bytes_max } = self.limit;
        if packets_max.is_none() && bytes_max.is_none() {
            return false;
        }
        let (packets, waiting_bytes) = self.waiting(at_ns);
        let by_packets = packets_max.is_some_and(|max| packets + 1 >= max as usize);
        let by_bytes = bytes_max.is_some_and(|max| waiting_bytes + u64::from(bytes) > max);
        by_packets || by_bytes
    }
}

#[cfg(test)]
mod tests {
    use dwell_base::Rng;

    use super::*;

    fn fifo(limit: DropTail, propagation_ns: u64) -> Fifo {
        let propagation = Propagation::new(propagation_ns, None, || Rng::from_seed(1));
        Fifo::new(limit, propagation)
    }

    #[test]
    fn one_fewer_than_the_limit_can_wait() {
        let mut fifo = fifo(DropTail { packets: Some(4), bytes: None }, 5);
        let mut push = |at_ns, n| {
            let arrives_ns = fifo.push(at_ns, 10, 10)?;
            fifo.carry(arrives_ns, n);
            Some(arrives_ns)
        };
        let pushed: Vec<_> = (0..6).map(|n| push(100, n)).collect();
        // One on the wire, three waiting.
        assert_eq!(pushed, [Some(115), Some(125), Some(135), Some(145), None, None]);
        // At the very end of a transmission there is room again.
        assert_eq!(push(109, 6), None);
        assert_eq!(push(110, 7), Some(155));
        assert_eq!((fifo.pop(), fifo.pop()), (Some(0), Some(1)));
        assert_eq!(fifo.waiting(110), (3, 30));
    }

    #[test]
    fn bytes_limit_too_and_an_idle_link_takes_anything() {
        let mut fifo = fifo(DropTail { packets: None, bytes: Some(1000) }, 0);
        let mut push = |bytes, ns| fifo.push(0, bytes, ns);
        assert_eq!(push(5000, 100), Some(100));
        assert_eq!(push(600, 10), Some(110));
        assert_eq!(push(600, 10), None);
        assert_eq!(push(400, 10), Some(120));
    }
}
