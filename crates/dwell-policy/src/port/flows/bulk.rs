//! Flows that had much waiting a moment ago.
//!
//! A flow of which nothing waits is new when its next packet comes (RFC 8290), and goes first, as it is. Of ten transfers
//! beside each other some queue is empty every few milliseconds, and each time a packet of full size would go
//! uncompressed. So a flow that had several full packets waiting is no new one for a while, but for its small packets, of
//! which none waits.

use dwell_base::Instant;
use dwell_base::time::MILLI_NS;

/// More than three packets of full size.
const BULK_BYTES: u64 = 4_500;
/// A flow is remembered for so long.
const REMEMBERED_NS: u64 = 250 * MILLI_NS;
/// Smaller packets go first all the same.
const LARGE_BYTES: u32 = 700;
/// Places for flows; each has one, which another flow may take.
const PLACES: usize = 256;

/// The flows that are known to have had much waiting: the latest, with bounded memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Bulk {
    /// Each with the time until which it is remembered. Empty until the first comes.
    places: Vec<(u64, Instant)>,
}

impl Bulk {
    /// So many bytes of the flow wait.
    pub(super) fn note(&mut self, now: Instant, flow: u64, waiting_bytes: u64) {
        if waiting_bytes <= BULK_BYTES {
            return;
        }
        if self.places.is_empty() {
            self.places.resize(PLACES, (0, Instant::ZERO));
        }
        self.places[place(flow)] = (flow, now + REMEMBERED_NS);
    }

    /// True if a packet of so many bytes is of a flow that had much waiting a moment ago, and is not a small one.
    pub(super) fn has(&self, now: Instant, flow: u64, bytes: u32) -> bool {
        bytes >= LARGE_BYTES && self.is_remembered(now, flow)
    }

    fn is_remembered(&self, now: Instant, flow: u64) -> bool {
        self.places.get(place(flow)).is_some_and(|&(it, until)| it == flow && now < until)
    }
}

fn place(flow: u64) -> usize {
    // Keys of flows may be small numbers.
    (flow.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_remembered_for_a_while_if_much_waited() {
        let mut bulk = Bulk::default();
        let at = |ms: u64| Instant::from_ns(ms * 1_000_000);
        bulk.note(at(0), 7, BULK_BYTES);
        assert!(!bulk.has(at(0), 7, 1_400));
        bulk.note(at(0), 7, BULK_BYTES + 1);
        assert!(bulk.has(at(249), 7, LARGE_BYTES) && !bulk.has(at(249), 7, LARGE_BYTES - 1));
        assert!(!bulk.has(at(250), 7, 1_400) && !bulk.has(at(0), 8, 1_400));
        // Many others take no more memory.
        (0..10_000).for_each(|flow| bulk.note(at(1), flow, u64::MAX));
        assert_eq!(bulk.places.len(), PLACES);
    }
}
