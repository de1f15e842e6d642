//! A first-in-first-out queue and its link, known in advance.
//!
//! No later event changes when a packet leaves such a queue, so the time of its arrival at the
//! other end is known as soon as it enters, and one event for each packet (that arrival) is enough.

use std::collections::VecDeque;

use crate::plan::DropTail;

/// A packet in flight.
#[derive(Clone, Copy, Debug)]
struct Item {
    arrives_ns: u64,
    packet: u32,
    bytes: u32,
    transmission_ns: u64,
}

/// The queue, the transmitter and the packets in flight.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fifo {
    limit: DropTail,
    propagation_ns: u64,
    /// The time at which the transmitter is free.
    free_ns: u64,
    /// The packets in order; those at the front have begun to be transmitted.
    items: VecDeque<Item>,
    begun: usize,
    waiting_bytes: u64,
}

impl Fifo {
    pub(crate) fn new(limit: DropTail, propagation_ns: u64) -> Self {
        Self { limit, propagation_ns, ..Self::default() }
    }

    /// Puts a packet in, unless there is no room. Returns the time of its arrival at the other end.
    #[inline]
    pub(crate) fn push(
        &mut self,
        now_ns: u64,
        packet: u32,
        bytes: u32,
        transmission_ns: u64,
    ) -> Option<u64> {
        let starts_ns = self.free_ns.max(now_ns);
        if starts_ns > now_ns && self.is_full(now_ns, bytes) {
            return None;
        }
        self.free_ns = starts_ns + transmission_ns;
        let arrives_ns = self.free_ns + self.propagation_ns;
        self.items.push_back(Item { arrives_ns, packet, bytes, transmission_ns });
        self.waiting_bytes += u64::from(bytes);
        Some(arrives_ns)
    }

    /// Passes a packet without an event: only its time of arrival matters.
    #[inline]
    pub(crate) fn pass(&mut self, now_ns: u64, transmission_ns: u64) -> u64 {
        self.free_ns = self.free_ns.max(now_ns) + transmission_ns;
        self.free_ns + self.propagation_ns
    }

    /// Returns the time at which the next packet arrives at the other end.
    #[inline]
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.items.front().map(|item| item.arrives_ns)
    }

    /// Takes the packet that arrives next.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<u32> {
        let item = self.items.pop_front()?;
        if self.begun > 0 {
            self.begun -= 1;
        } else {
            self.waiting_bytes -= u64::from(item.bytes);
        }
        Some(item.packet)
    }

    /// Returns the packets and bytes that wait; the packet on the wire does not count.
    pub(crate) fn waiting(&mut self, now_ns: u64) -> (usize, u64) {
        // A transmission that begins now has begun: its end goes before an arrival.
        while let Some(item) = self.items.get(self.begun) {
            if item.arrives_ns - self.propagation_ns - item.transmission_ns > now_ns {
                break;
            }
            self.waiting_bytes -= u64::from(item.bytes);
            self.begun += 1;
        }
        (self.items.len() - self.begun, self.waiting_bytes)
    }

    fn is_full(&mut self, now_ns: u64, bytes: u32) -> bool {
        let (packets, waiting_bytes) = self.waiting(now_ns);
        let by_packets = self.limit.packets.is_some_and(|max| packets + 1 >= max as usize);
        let by_bytes = self.limit.bytes.is_some_and(|max| waiting_bytes + u64::from(bytes) > max);
        by_packets || by_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_fewer_than_the_limit_can_wait() {
        let mut fifo = Fifo::new(DropTail { packets: Some(4), bytes: None }, 5);
        let pushed: Vec<_> = (0..6).map(|n| fifo.push(100, n, 10, 10)).collect();
        // One on the wire, three waiting.
        assert_eq!(pushed, [Some(115), Some(125), Some(135), Some(145), None, None]);
        // At the very end of a transmission there is room again.
        assert_eq!(fifo.push(109, 6, 10, 10), None);
        assert_eq!(fifo.push(110, 7, 10, 10), Some(155));
        assert_eq!((fifo.pop(), fifo.pop()), (Some(0), Some(1)));
        assert_eq!(fifo.waiting(110), (3, 30));
    }

    #[test]
    fn bytes_limit_too_and_an_idle_link_takes_anything() {
        let mut fifo = Fifo::new(DropTail { packets: None, bytes: Some(1000) }, 0);
        assert_eq!(fifo.push(0, 0, 5000, 100), Some(100));
        assert_eq!(fifo.push(0, 1, 600, 10), Some(110));
        assert_eq!(fifo.push(0, 2, 600, 10), None);
        assert_eq!(fifo.push(0, 3, 400, 10), Some(120));
    }
}
