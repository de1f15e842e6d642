//! Whether senders mend losses themselves before the relay could.
//!
//! A sender of TCP notices a loss by what arrives behind it, and sends again after a round trip and a little. What the relay
//! sends again is there no sooner where order can't be kept for it (`order_wait` is short against the round trip): it comes
//! behind what came after it, and mostly beside the sender's own. To the sender both are signs that the network changes the
//! order of packets, so that from then on it waits up to a round trip longer before it believes in a loss (RFC 8985, sections
//! 6.2 and 7.2), and what it does not believe to be lost fills its window. docs/benchmarks-loss.md has what
//! that costs.

use dwell_base::Instant;
use dwell_base::time::MILLI_NS;

use super::contexts::Mode;
use super::peer::Peer;
use crate::config::Retransmit;

/// From this round trip on others mend sooner, ...
const FAR_NS: u64 = 200 * MILLI_NS;
/// ... and no longer below this one.
const NEAR_NS: u64 = 150 * MILLI_NS;
/// The shortest of so many round trips counts: the longer ones have waited for others.
const LATEST: usize = 8;
/// About so many bytes of the latest packets count.
const BYTES: u64 = 256 << 10;
/// Other traffic that is less than this does not count: what comes before the first transfer says nothing about it.
const OTHER_BYTES_MIN: u64 = 16 << 10;
/// The protocol's number in IP headers.
const TCP: u8 = 6;

/// Returns true if the senders of this protocol see to it that all arrives.
pub(super) const fn repairs(protocol: u8) -> bool {
    protocol == TCP
}

/// What is known of a path, and of those that send over it.
#[derive(Clone, Debug)]
pub(crate) struct Repair {
    latest_ns: [u64; LATEST],
    next: usize,
    /// The shortest of them, and after a move that of the path before, until another is measured.
    least_ns: Option<u64>,
    is_far: bool,
    /// Of the latest packets, the bytes of those that their senders send again, and all.
    repaired: u64,
    bytes: u64,
}

impl Default for Repair {
    fn default() -> Self {
        Self {
            latest_ns: [u64::MAX; LATEST],
            next: 0,
            least_ns: None,
            is_far: false,
            repaired: 0,
            bytes: 0,
        }
    }
}

impl Repair {
    /// A round trip was measured.
    pub(crate) fn measured(&mut self, rtt_ns: u64) {
        self.latest_ns[self.next] = rtt_ns;
        self.next = (self.next + 1) % LATEST;
        let least_ns = self.latest_ns.iter().copied().min().unwrap_or(rtt_ns);
        self.least_ns = Some(least_ns);
        self.is_far = least_ns >= if self.is_far { NEAR_NS } else { FAR_NS };
    }

    /// Returns the shortest of the latest round trips, in nanoseconds, if any was measured.
    pub(crate) const fn least_rtt_ns(&self) -> Option<u64> {
        self.least_ns
    }

    /// The path to the peer may be another one.
    pub(crate) fn moved(&mut self) {
        (self.latest_ns, self.is_far) = ([u64::MAX; LATEST], false);
    }

    /// A packet is to be sent.
    pub(crate) fn came(&mut self, repairs: bool, bytes: usize) {
        let bytes = bytes as u64;
        self.bytes += bytes;
        self.repaired += if repairs { bytes } else { 0 };
        if self.bytes >= BYTES {
            (self.bytes, self.repaired) = (self.bytes / 2, self.repaired / 2);
        }
    }

    /// Returns true if what is sent again comes too late for those that send again themselves.
    pub(crate) fn is_far(&self) -> bool {
        self.is_far
    }

    /// Returns true if most of what is sent is theirs, as far as is known.
    pub(crate) fn is_usual(&self) -> bool {
        self.bytes - self.repaired < self.repaired.max(OTHER_BYTES_MIN)
    }
}

impl Peer {
    /// Returns true if senders that mend losses themselves do so before what is sent again would come.
    pub(super) fn is_mended(&self) -> bool {
        self.config.retransmit == Retransmit::Auto && self.repair.is_far()
    }

    /// Returns true if what is sent goes a second time while the link has nothing else to send.
    pub(crate) fn is_copied(&self, now: Instant) -> bool {
        self.is_mended() && !self.config.saving.saves_bytes && self.copies.is_lossy(now)
    }

    /// Returns true if what such senders have sent is sent again all the same: it is in time, or later batches need it.
    pub(crate) fn sends_again_in_time(&self) -> bool {
        let has_contexts = self.has_contexts() && self.contexts.outgoing.is_possible();
        !self.is_mended() || has_contexts && self.contexts.outgoing.mode() != Mode::Stateless
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(repair: &mut Repair, rtts_ms: &[u64]) -> bool {
        rtts_ms.iter().for_each(|ms| repair.measured(ms * MILLI_NS));
        repair.is_far()
    }

    #[test]
    fn a_queue_is_no_distance() {
        let mut repair = Repair::default();
        assert!(!repair.is_far());
        assert!(!measured(&mut repair, &[30, 700, 900, 800, 700, 600, 900]));
        assert!(measured(&mut repair, &[600; LATEST]));
        // A little less is no other path.
        assert!(measured(&mut repair, &[180; LATEST]));
        assert!(!measured(&mut repair, &[140]));
        assert!(measured(&mut repair, &[600; LATEST]));
        repair.moved();
        assert!(!repair.is_far());
        assert!(measured(&mut repair, &[250]));
    }

    #[test]
    fn what_most_of_the_latest_packets_are_counts() {
        let mut repair = Repair::default();
        (0..11).for_each(|_| repair.came(repairs(17), 1_400));
        assert!(repair.is_usual(), "a few are no measure");
        (0..100).for_each(|_| repair.came(repairs(17), 1_400));
        assert!(!repair.is_usual());
        (0..1_000).for_each(|_| repair.came(repairs(TCP), 1_400));
        assert!(repair.is_usual());
        (0..400).for_each(|_| repair.came(repairs(17), 1_400));
        assert!(!repair.is_usual());
    }
}
