//! The changes that a router makes to a packet that it forwards.

use crate::checksum;

const HOP_BY_HOP: u8 = 0;

/// Takes one off the packet's time to live or hop limit, and updates IPv4's header checksum (RFC
/// 1624), so that a wrong one stays wrong. Returns `false`, and changes nothing, if a router has to
/// do more than that: nothing would be left of it, or there are options that routers read.
pub fn forward(packet: &mut [u8]) -> bool {
    match packet {
        [
            0x45,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            ttl @ 2..=255,
            protocol,
            high,
            low,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            ..,
        ] => {
            let old = u16::from_be_bytes([*ttl, *protocol]);
            *ttl -= 1;
            let new = u16::from_be_bytes([*ttl, *protocol]);
            let checksum = checksum::update(u16::from_be_bytes([*high, *low]), old, new);
            [*high, *low] = checksum.to_be_bytes();
            true
        }
        [0x60..=0x6f, _, _, _, _, _, next, limit @ 2..=255, ..] if *next != HOP_BY_HOP => {
            *limit -= 1;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::checksum::checksum;
    use crate::ip::tests::{v4, v6};

    #[test]
    fn what_needs_a_router_is_left_to_it() {
        let mut plain = v4(17, &[], 0, &[1; 30]);
        assert!(forward(&mut plain));
        for bad in [
            v4(17, &[1; 4], 0, &[1; 30]), // options
            [&plain[..8], &[1], &plain[9..]].concat(),
            [&plain[..8], &[0], &plain[9..]].concat(),
            plain[..19].to_vec(),
            Vec::new(),
            v6(&[], 0, &[0; 8]), // hop-by-hop options
        ] {
            let mut after = bad.clone();
            assert!(!forward(&mut after), "{bad:?}");
            assert_eq!(after, bad);
        }
        let mut six = v6(&[], 17, &[2; 20]);
        let before = six.clone();
        assert!(forward(&mut six));
        assert_eq!((six[7], &six[8..]), (before[7] - 1, &before[8..]));
        six[7] = 1;
        assert!(!forward(&mut six));
    }

    proptest! {
        #[test]
        fn the_checksum_stays_right(
            mut header in any::<[u8; 20]>().prop_map(|header| header.to_vec()),
        ) {
            (header[0], header[8]) = (0x45, header[8].max(2));
            (header[10], header[11]) = (0, 0);
            let sum = checksum(&header).to_be_bytes();
            header[10..12].copy_from_slice(&sum);
            let ttl = header[8];
            prop_assert!(forward(&mut header));
            prop_assert_eq!(header[8], ttl - 1);
            prop_assert_eq!(checksum(&header), 0);
        }
    }
}
