//! A link, and what frames of relays cost on it.

use dwell_base::Rate;
use dwell_policy::FrameCost;
use dwell_wire::header::{COMPRESSED_HEADER_LEN, DATA_HEADER_LEN, RECORD_HEADER_LEN, SEAL_TAG_LEN};
use dwell_wire::record::{RECORD_BODY_NAMED_MAX, RESENT_RECORD_LEN, fragment_record_len};

/// Bytes of UDP and IPv4 headers around a datagram.
const UDP_V4_BYTES: u32 = 28;
/// The same for IPv6.
const UDP_V6_BYTES: u32 = 48;
/// The most units in a datagram, as in relays.
const UNITS_MAX: u32 = 64;
/// The same for schemes that hold packets back to fill it.
const CHUNK_UNITS_MAX: u32 = 1024;

/// Bytes of an Ethernet header: the default overhead of a packet below its IP header.
const ETHERNET_BYTES: u32 = 14;

/// The smallest MTU of a path, as of a relay: IPv6 must work inside.
pub const PATH_MTU_MIN: u16 = 1280;

/// A link, and the datagrams of a pair of relays on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its rate.
    pub rate: Rate,
    /// The overhead of each packet on it below the IP header, in bytes; 14 is Ethernet's.
    pub overhead_bytes: u32,
    /// The longest IP packet that it takes, in bytes; at least [`PATH_MTU_MIN`].
    pub path_mtu: u16,
    /// True if datagrams are encrypted and authenticated.
    pub sealed: bool,
    /// True if datagrams go over IPv6.
    pub v6: bool,
}

impl Link {
    /// Returns an Ethernet at this rate, with sealed datagrams over IPv4: a relay's default if its
    /// configuration says nothing else.
    pub const fn ethernet(rate: Rate) -> Self {
        Self { rate, overhead_bytes: ETHERNET_BYTES, path_mtu: 1500, sealed: true, v6: false }
    }

    /// Returns the length of the longest packet that fits into a datagram uncompressed: relays use
    /// it as the MTU of their interface.
    pub const fn packet_max(&self) -> u16 {
        let rest = self.udp_bytes() + self.session_bytes() + RECORD_HEADER_LEN as u32;
        self.path_mtu - rest as u16
    }

    /// Returns the overhead of frames that a relay sends (docs/wire.md, sections 2 to 6).
    /// `is_chunked` for schemes that hold packets back to fill them.
    pub const fn relay_frames(&self, is_chunked: bool) -> FrameCost {
        let record = RECORD_HEADER_LEN as u32;
        FrameCost {
            frame_bytes: self.overhead_bytes + self.udp_bytes() + self.session_bytes(),
            raw_unit_bytes: record,
            compressed_unit_bytes: record + COMPRESSED_HEADER_LEN as u32,
            units_bytes_max: self.path_mtu as u32 - self.udp_bytes() - self.session_bytes(),
            fragment_bytes: fragment_record_len(0) as u32,
            fragment_spare_bytes: RESENT_RECORD_LEN as u32,
            unit_bytes_named: record + RECORD_BODY_NAMED_MAX as u32,
            units_max: if is_chunked { CHUNK_UNITS_MAX } else { UNITS_MAX },
        }
    }

    /// Returns the overhead of frames without relays: one packet in each.
    pub const fn bare_frames(&self) -> FrameCost {
        FrameCost {
            frame_bytes: self.overhead_bytes,
            raw_unit_bytes: 0,
            compressed_unit_bytes: 0,
            units_bytes_max: self.path_mtu as u32,
            fragment_bytes: 0,
            fragment_spare_bytes: 0,
            unit_bytes_named: u32::MAX,
            units_max: 1,
        }
    }

    const fn udp_bytes(&self) -> u32 {
        if self.v6 { UDP_V6_BYTES } else { UDP_V4_BYTES }
    }

    const fn session_bytes(&self) -> u32 {
        let tag = if self.sealed { SEAL_TAG_LEN } else { 0 };
        (DATA_HEADER_LEN + tag) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_cost_what_a_relay_counts() {
        let link = Link::ethernet(Rate::from_mbps(5));
        let frames = link.relay_frames(false);
        assert_eq!((frames.frame_bytes, frames.units_bytes_max), (14 + 28 + 22, 1450));
        assert_eq!(u32::from(link.packet_max()) + frames.raw_unit_bytes, frames.units_bytes_max);
        let plain = Link { sealed: false, v6: true, ..link };
        assert_eq!(plain.relay_frames(false).frame_bytes, 14 + 48 + 6);
        assert_eq!(plain.packet_max(), 1500 - 48 - 6 - 2);
    }
}
