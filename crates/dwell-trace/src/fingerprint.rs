//! Fingerprints of captures, to recognize the same one.

use std::fmt;

use crate::capture::Packet;

/// A hash of all frames of a capture: their times, lengths and last bytes, in their order. Captures
/// that differ have different ones except by chance; it is no protection against an attacker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    hash: u64,
    frames: u64,
}

impl Fingerprint {
    /// Adds the next frame.
    #[inline]
    pub fn see(&mut self, packet: &Packet<'_>) {
        let end = packet.data.last_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let lengths = u64::from(packet.wire_len) << 32 | packet.data.len() as u64;
        for word in [packet.timestamp_ns.unwrap_or(u64::MAX), lengths, end] {
            self.hash = (self.hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
        self.frames += 1;
    }

    /// Returns the number of frames seen.
    pub fn frames(&self) -> u64 {
        self.frames
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:x}", self.hash, self.frames)
    }
}
