//! A packet as the core sees it.

use serde::{Deserialize, Serialize};

use std::fmt;

/// The driver's name for a packet: an index into the storage that holds its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PacketId(pub u32);

/// A packet class as in Shimamura et al., section 4.1: protocol and port number.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct ClassKey(u32);

impl ClassKey {
    /// The class of IP protocol `protocol` and port `port` (0 for protocols without ports).
    pub const fn new(protocol: u8, port: u16) -> Self {
        Self((protocol as u32) << 16 | port as u32)
    }

    /// The IP protocol number.
    pub const fn protocol(self) -> u8 {
        (self.0 >> 16) as u8
    }

    /// The port number.
    pub const fn port(self) -> u16 {
        self.0 as u16
    }

    /// True for the part of a class whose packets look random: see [`Packet::looks_random`].
    pub const fn is_random(self) -> bool {
        self.0 & RANDOM != 0
    }

    /// The part of this class whose packets look random.
    #[must_use]
    const fn random(self) -> Self {
        Self(self.0 | RANDOM)
    }

    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    pub(crate) const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }
}

/// Marks the part of a class whose packets look random; protocol and port take the other bits.
const RANDOM: u32 = 1 << 31;
/// Tells the random packets of a flow from the others.
const RANDOM_FLOW: u64 = 0x5851_f42d_4c95_7f2d;

impl fmt::Display for ClassKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_random() {
            return write!(f, "{} (random)", Self(self.0 & !RANDOM));
        }
        match self.protocol() {
            1 => write!(f, "icmp"),
            6 => write!(f, "tcp/{}", self.port()),
            17 => write!(f, "udp/{}", self.port()),
            58 => write!(f, "icmpv6"),
            other => write!(f, "ip{}/{}", other, self.port()),
        }
    }
}

/// A packet that arrives at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packet {
    /// The driver's name for it; comes back in actions.
    pub id: PacketId,
    /// Its length in bytes, as it would be sent now.
    pub bytes: u32,
    /// Its class by source port.
    pub source: ClassKey,
    /// Its class by destination port.
    pub destination: ClassKey,
    /// A hash of its flow (5-tuple). Equal flows must have equal hashes.
    pub flow: u64,
    /// A hash of what [`Gather`](crate::Gather) names: packets of equal groups may be compressed
    /// together. Packets of one flow must be of one group; of what was compressed upstream, it is that
    /// of the packets in it, or [`Packet::ANY_GROUP`].
    pub group: u64,
    /// The longest time that it may be held back to fill a frame, in nanoseconds: W of Sawabe et
    /// al. [`Packet::NEVER_HELD`] for a packet that goes at once.
    pub max_wait_ns: u64,
    /// A batch with it has at most so many bytes, if others may be longer: of one that is not sent again any lost
    /// piece loses all. Of a group, it should be the same for all packets. For schemes that queue by flow;
    /// others have blocks of such a size in any case.
    #[serde(default = "no_limit", skip_serializing_if = "is_no_limit")]
    pub batch_bytes_max: u32,
    /// Its content looks random (encrypted or compressed). What is learned of such packets of a
    /// flow or class is kept apart from what is learned of the others, so that turns of one do not
    /// spoil the estimates of the other. False if nobody looked.
    pub looks_random: bool,
    /// Its sender takes a mark for a loss (ECN, RFC 3168): it is marked where others are dropped.
    pub takes_mark: bool,
    /// It is compressed already (by a node upstream) and must not be compressed again. It may be a block of
    /// several packets; here it counts as one.
    pub compressed: bool,
}

const fn no_limit() -> u32 {
    u32::MAX
}

fn is_no_limit(batch_bytes_max: &u32) -> bool {
    *batch_bytes_max == u32::MAX
}

impl Packet {
    /// The [`max_wait_ns`](Self::max_wait_ns) of a packet that is not held back.
    pub const NEVER_HELD: u64 = 0;

    /// The [`group`](Self::group) of what may hold packets of any group: where blocks keep their order,
    /// it overtakes nothing and is not overtaken.
    pub const ANY_GROUP: u64 = u64::MAX;

    /// Returns a packet of `bytes` with classes by source and destination port, of a flow of its own
    /// that is not held back and whose content was not sampled. Set the other fields as needed.
    pub const fn new(
        id: PacketId,
        bytes: u32,
        (source, destination): (ClassKey, ClassKey),
    ) -> Self {
        Self {
            id,
            bytes,
            source,
            destination,
            flow: id.0 as u64,
            group: id.0 as u64,
            max_wait_ns: Self::NEVER_HELD,
            batch_bytes_max: u32::MAX,
            looks_random: false,
            takes_mark: false,
            compressed: false,
        }
    }

    /// The class whose port names the service: the lower of the two port numbers.
    pub fn service(&self) -> ClassKey {
        self.source.min(self.destination)
    }
}

/// The flow and the class that the results of a packet are learned under.
pub(crate) fn learned_as(flow: u64, class: ClassKey, looks_random: bool) -> (u64, ClassKey) {
    if looks_random { (flow ^ RANDOM_FLOW, class.random()) } else { (flow, class) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_show_as_people_write_them() {
        assert_eq!(ClassKey::new(6, 443).to_string(), "tcp/443");
        assert_eq!(ClassKey::new(17, 53).to_string(), "udp/53");
        assert_eq!(ClassKey::new(47, 0).to_string(), "ip47/0");
        assert_eq!(ClassKey::new(6, 22).random().to_string(), "tcp/22 (random)");
        assert_eq!((ClassKey::new(6, 80).protocol(), ClassKey::new(6, 80).port()), (6, 80));
    }
}
