//! Explicit congestion notification (RFC 3168): marks instead of drops.

use crate::checksum;

/// The two bits of the codepoint: not capable, capable (two of them), congestion experienced.
const MASK: u8 = 0b11;
const NOT_CAPABLE: u8 = 0b00;
const CONGESTION_EXPERIENCED: u8 = 0b11;

/// Returns true if the packet's sender takes a mark for a loss: it can be marked, or is.
pub fn takes_mark(packet: &[u8]) -> bool {
    match packet {
        [0x40..=0x4f, tos, ..] => tos & MASK != NOT_CAPABLE,
        [0x60..=0x6f, class, ..] => class >> 4 & MASK != NOT_CAPABLE,
        _ => false,
    }
}

/// Marks the packet as one that met congestion, and updates IPv4's header checksum (RFC 1624), so
/// that a wrong one stays wrong. Returns `false`, and changes nothing, if its sender would not
/// understand ([`takes_mark`]), or if this is no whole IP header.
pub fn mark(packet: &mut [u8]) -> bool {
    if !takes_mark(packet) {
        return false;
    }
    match packet {
        [first @ 0x40..=0x4f, tos, _, _, _, _, _, _, _, _, high, low, ..] => {
            let old = u16::from_be_bytes([*first, *tos]);
            *tos |= CONGESTION_EXPERIENCED;
            let new = u16::from_be_bytes([*first, *tos]);
            let checksum = checksum::update(u16::from_be_bytes([*high, *low]), old, new);
            [*high, *low] = checksum.to_be_bytes();
            true
        }
        [0x60..=0x6f, class, ..] => {
            *class |= CONGESTION_EXPERIENCED << 4;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::PacketInfo;
    use crate::checksum::checksum;
    use crate::ip::tests::{v4, v6};

    #[test]
    fn what_is_not_capable_is_left_alone() {
        for mut bad in [v4(6, &[], 0, &[1; 30]), v6(&[], 6, &[1; 30]), vec![0x45, 1], vec![0x15, 3]]
        {
            let before = bad.clone();
            assert!(!mark(&mut bad), "{before:?}");
            assert_eq!(bad, before);
        }
    }

    #[test]
    fn ipv6_is_marked_in_its_traffic_class() {
        let mut packet = v6(&[], 6, &[1; 30]);
        packet[..2].copy_from_slice(&[0x6b, 0xa7]); // DSCP 46, capable, a flow label
        assert!(takes_mark(&packet) && mark(&mut packet));
        assert_eq!(packet[..2], [0x6b, 0xb7]);
        assert_eq!(PacketInfo::parse(&packet, 1).unwrap().dscp, 46);
    }

    proptest! {
        #[test]
        fn the_checksum_stays_right(
            mut header in any::<[u8; 20]>().prop_map(|header| header.to_vec()),
            capable in 1u8..=3,
        ) {
            (header[0], header[1]) = (0x45, header[1] & !MASK | capable);
            (header[10], header[11]) = (0, 0);
            let sum = checksum(&header).to_be_bytes();
            header[10..12].copy_from_slice(&sum);
            let dscp = header[1] >> 2;
            prop_assert!(mark(&mut header));
            prop_assert_eq!(header[1], dscp << 2 | CONGESTION_EXPERIENCED);
            prop_assert_eq!(checksum(&header), 0);
        }
    }
}
