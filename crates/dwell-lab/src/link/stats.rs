//! The counters of one direction of a link.

use std::fmt;

/// The counters of all packets that entered a [`super::LinkModel`].
///
/// Always: in + duplicated = delivered + dropped + held, in packets and in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Packets that entered.
    pub packets_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Packets that came out, duplicates included.
    pub delivered: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Packets that found the queue full.
    pub dropped_queue: u64,
    /// Packets that were lost on the medium.
    pub dropped_loss: u64,
    /// Bytes dropped for either reason.
    pub dropped_bytes: u64,
    /// Packets that the link doubled.
    pub duplicated: u64,
    /// Their bytes.
    pub duplicated_bytes: u64,
    /// Packets that came out after one that was transmitted later.
    pub reordered: u64,
    /// Packets that came out damaged.
    pub corrupted: u64,
    /// Packets inside: waiting, being sent, or under way.
    pub held: u64,
    /// Their bytes.
    pub held_bytes: u64,
}

impl LinkStats {
    /// Returns true if the counters balance.
    pub fn balanced(&self) -> bool {
        let dropped = self.dropped_queue + self.dropped_loss;
        self.packets_in + self.duplicated == self.delivered + dropped + self.held
            && self.bytes_in + self.duplicated_bytes
                == self.delivered_bytes + self.dropped_bytes + self.held_bytes
    }
}

impl fmt::Display for LinkStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} in, {} delivered ({} bytes), {} dropped by the queue, {} lost, {} duplicated, \
             {} reordered, {} corrupted, {} held",
            self.packets_in,
            self.delivered,
            self.delivered_bytes,
            self.dropped_queue,
            self.dropped_loss,
            self.duplicated,
            self.reordered,
            self.corrupted,
            self.held
        )
    }
}
