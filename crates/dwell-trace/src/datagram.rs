//! The IP packet in a captured frame.

use dwell_wire::PacketInfo;

use crate::capture::Packet;
use crate::link::{NotIp, ip_packet};

/// The fixed header of IPv6, which its length doesn't count.
const V6_HEADER_BYTES: usize = 40;

/// An IP packet as it was captured, without the frame around it.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'c> {
    /// The contents of its headers. `total_len` is the length on the wire, also if the header says
    /// 0, as it does if the network card was to cut the packet.
    pub info: PacketInfo,
    /// Its captured bytes, without padding. At most 64 KiB and 40 bytes, except of those whose
    /// header says 0.
    pub bytes: &'c [u8],
}

impl<'c> Datagram<'c> {
    /// Finds it in a frame. `seed` is that of the flow's hash ([`PacketInfo::parse`]).
    ///
    /// # Errors
    /// The kind of frame if it holds no IP packet.
    #[inline]
    pub fn find(packet: &Packet<'c>, seed: u64) -> Result<Self, NotIp> {
        let rest = ip_packet(packet.link, packet.data)?;
        if let Ok(info) = PacketInfo::parse(rest, seed)
            && !(info.version == 6 && info.total_len == V6_HEADER_BYTES)
        {
            return Ok(Self { info, bytes: rest.get(..info.total_len).unwrap_or(rest) });
        }
        Self::of_head(packet, rest, seed)
    }

    /// Returns true if all of it was captured.
    pub fn is_whole(&self) -> bool {
        self.bytes.len() == self.info.total_len
    }

    /// Parses a packet that is cut off, or whose length only the frame knows.
    #[cold]
    fn of_head(packet: &Packet<'c>, rest: &'c [u8], seed: u64) -> Result<Self, NotIp> {
        // Its length if it filled its frame.
        let before = packet.data.len() - rest.len();
        let on_wire = (packet.wire_len as usize).saturating_sub(before).max(rest.len());
        match rest {
            // The length of IPv4 is 0 if it was left to the network card; IPv6's also if an option
            // has it.
            [first, _, 0, 0, ..] if first >> 4 == 4 => Self::unmeasured_v4(rest, on_wire, seed),
            _ => {
                let mut info = PacketInfo::parse_head(rest, seed).map_err(|_| NotIp::Broken)?;
                let is_jumbo = info.version == 6
                    && info.total_len == V6_HEADER_BYTES
                    && rest.get(6).is_some_and(|&next| next != NO_NEXT_HEADER)
                    && on_wire > 1 << 16;
                if is_jumbo {
                    info.total_len = on_wire;
                }
                Ok(Self { info, bytes: rest.get(..info.total_len).unwrap_or(rest) })
            }
        }
    }

    fn unmeasured_v4(rest: &'c [u8], on_wire: usize, seed: u64) -> Result<Self, NotIp> {
        // Enough for all headers: 60 bytes each.
        let mut head = [0; 120];
        let len = rest.len().min(head.len());
        head[..len].copy_from_slice(&rest[..len]);
        head[2..4].copy_from_slice(&u16::MAX.to_be_bytes());
        let mut info = PacketInfo::parse_head(&head[..len], seed).map_err(|_| NotIp::Broken)?;
        info.total_len = on_wire;
        Ok(Self { info, bytes: rest })
    }
}

/// "No next header" (RFC 8200 4.7).
const NO_NEXT_HEADER: u8 = 59;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::LinkType;
    use crate::capture::tests::udp;

    fn find(data: &[u8], wire_len: u32) -> Result<Datagram<'_>, NotIp> {
        Datagram::find(
            &Packet { timestamp_ns: None, link: LinkType(101), data, wire_len, mark: None },
            0,
        )
    }

    #[test]
    fn padding_is_not_the_packets() {
        let mut packet = udp(1000, 53, &[7; 10]);
        packet.extend([0; 8]);
        let found = find(&packet, 46).unwrap();
        assert!(found.is_whole());
        assert_eq!((found.bytes.len(), found.info.dst_port), (38, 53));
    }

    #[test]
    fn what_was_cut_is_reported() {
        let packet = udp(1000, 53, &[7; 100]);
        let found = find(&packet[..40], 128).unwrap();
        assert!(!found.is_whole());
        assert_eq!((found.bytes.len(), found.info.total_len, found.info.dst_port), (40, 128, 53));
        assert_eq!(find(&packet[..19], 128).unwrap_err(), NotIp::Broken);
        assert_eq!(find(&[0x45], 128).unwrap_err(), NotIp::Broken);
    }

    #[test]
    fn a_length_left_to_the_network_card_is_the_frames() {
        let mut packet = udp(1000, 53, &[7; 100]);
        packet[2..4].fill(0);
        let found = find(&packet, 128).unwrap();
        assert!(found.is_whole());
        assert_eq!((found.info.total_len, found.info.dst_port), (128, 53));
        assert!(!find(&packet[..64], 128).unwrap().is_whole());
    }
}
