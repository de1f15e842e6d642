//! The packets of a capture, and counts of their defects.

use dwell_base::Rng;
use dwell_report::status::Count;
use serde::{Deserialize, Serialize};

use crate::sides::Ends;

/// An IP packet of a capture.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The time at which it was captured, in nanoseconds since any origin; without one, it comes
    /// with the packet before.
    pub at_ns: Option<u64>,
    /// Its bytes, from the IP header on; perhaps only the first of them.
    pub packet: &'a [u8],
    /// Its length on the wire, from the IP header on, if the capture has it.
    pub wire_len: Option<u32>,
    /// The direction by its frame.
    pub ends: Ends,
}

/// Counts of the packets of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputCounts {
    /// IP packets.
    pub packets: u64,
    /// Of these, packets with cut or invalid headers; left out.
    pub malformed: u64,
    /// Packets that don't go over the link, as they are from or to other prefixes; left out.
    pub not_selected: u64,
    /// Packets that were replayed.
    pub selected: Count,
    /// Packets of which the capture has only the beginning, and the missing bytes. They count as
    /// incompressible.
    pub missing: Count,
    /// Packets between hosts of one side of the link, which don't go over it; left out.
    pub same_side: Count,
    /// Packets whose time is before that of the packet before; they arrive together with that.
    pub unordered: u64,
    /// The largest of these steps back, in nanoseconds.
    pub back_ns_max: u64,
    /// Packets that were too long for the relay's datagrams, and were cut as their senders would.
    pub shortened: u64,
    /// Packets that were too long and can't be cut, and their bytes; left out.
    pub too_big: Count,
}

/// The longest IP packet.
const PACKET_BYTES_MAX: usize = 65_535;
const V4_LEN: usize = 20;
const V6_LEN: usize = 40;

/// Completes packets that were cut off.
#[derive(Debug)]
pub(crate) struct Spelled {
    bytes: Vec<u8>,
    noise: Rng,
}

impl Default for Spelled {
    fn default() -> Self {
        Self { bytes: Vec::new(), noise: Rng::stream(0x7472_6163, 0) }
    }
}

impl Spelled {
    /// Returns the packet with noise in place of its missing bytes: they are unknown, and to count
    /// them as incompressible promises nothing. `None` if even the IP header is cut.
    ///
    /// A packet that the kernel was going to cut (GSO) can have the total length 0.
    pub(crate) fn whole<'a>(&'a mut self, input: Input<'a>) -> Option<&'a [u8]> {
        let packet = input.packet;
        let (declared, header) = match packet.first()? >> 4 {
            4 => (usize::from(word(packet, 2)?), V4_LEN),
            6 => (usize::from(word(packet, 4)?) + V6_LEN, V6_LEN),
            _ => return None,
        };
        let unknown = declared == 0 || (header == V6_LEN && declared == V6_LEN);
        let wire_len = input.wire_len.map_or(packet.len(), |len| len as usize);
        let length = if unknown { wire_len.min(PACKET_BYTES_MAX) } else { declared };
        if packet.len() < header {
            return None;
        }
        if !unknown && length <= packet.len() {
            return Some(packet);
        }
        self.bytes.clear();
        self.bytes.extend_from_slice(&packet[..packet.len().min(length)]);
        while self.bytes.len() < length {
            let noise = self.noise.next_u64().to_le_bytes();
            let room = (length - self.bytes.len()).min(noise.len());
            self.bytes.extend_from_slice(&noise[..room]);
        }
        if unknown && length > header {
            let (at, value) = if header == V4_LEN { (2, length) } else { (4, length - V6_LEN) };
            self.bytes[at..at + 2].copy_from_slice(&(value as u16).to_be_bytes());
        }
        Some(&self.bytes)
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use dwell_wire::PacketInfo;

    use super::*;
    use crate::replay::samples::{tcp_v4, udp_v6};

    fn input(packet: &[u8]) -> Input<'_> {
        Input { at_ns: None, packet, wire_len: None, ends: Ends::default() }
    }

    #[test]
    fn a_cut_packet_gets_its_length_back() {
        for packet in [tcp_v4(80, 1000, 7, &[0; 900]), udp_v6(53, 1000, &[0; 900])] {
            let mut spelled = Spelled::default();
            assert_eq!(spelled.whole(input(&packet)), Some(&packet[..]));
            let whole = spelled.whole(input(&packet[..96])).unwrap();
            assert_eq!((whole.len(), &whole[..96]), (packet.len(), &packet[..96]));
            assert!(whole[96..].iter().filter(|&&b| b == 0).count() < 20, "noise");
            assert_eq!(spelled.whole(input(&packet[..19])), None);
        }
    }

    #[test]
    fn a_packet_that_was_yet_to_be_cut_has_the_length_of_the_capture() {
        let mut packet = tcp_v4(80, 1000, 7, &[b'x'; 9000]);
        let len = packet.len();
        packet[2..4].fill(0);
        let mut spelled = Spelled::default();
        let whole = spelled.whole(input(&packet)).unwrap();
        assert_eq!(PacketInfo::parse(whole, 0).unwrap().total_len, len);
    }

    #[test]
    fn nonsense_is_refused() {
        let mut spelled = Spelled::default();
        for bad in [&[][..], &[0x45], &[0x45, 0, 0, 0], &[0x60; 39], &[0x15; 60]] {
            assert_eq!(spelled.whole(input(bad)), None, "{bad:?}");
        }
    }
}
