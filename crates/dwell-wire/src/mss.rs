//! Clamping of the maximum segment size that TCP ends announce, so that their segments fit through
//! the tunnel.

use crate::checksum;
use crate::ip::{Layout, TCP};

/// Fixed header of TCP, in bytes.
const TCP_LEN: usize = 20;
const OPTION_END: u8 = 0;
const OPTION_NO_OPERATION: u8 = 1;
const OPTION_MSS: u8 = 2;

/// Lowers the maximum segment size option (RFC 9293 3.7.1) of a TCP SYN to `mss_v4` or
/// `mss_v6` bytes, and updates the TCP checksum (RFC 1624). Returns true if the packet was changed.
///
/// It never raises a value and adds no option. Packets that are no SYN, later fragments and
/// whatever is not well-formed stay as they are. The checksum must be complete: a packet whose
/// checksum is left to offload holds only the sum of the pseudo header, which the option is
/// no part of.
pub fn clamp_mss(packet: &mut [u8], mss_v4: u16, mss_v6: u16) -> bool {
    let Ok(layout) = Layout::of(packet) else { return false };
    let mss_max = if layout.version == 4 { mss_v4 } else { mss_v6 };
    if layout.protocol != TCP || layout.later_fragment {
        return false;
    }
    let segment = &mut packet[layout.transport..layout.total_len];
    let Some(&fixed) = segment.first_chunk::<TCP_LEN>() else { return false };
    let (data_offset, syn) = (usize::from(fixed[12] >> 4) * 4, fixed[13] & 0x02 != 0);
    match segment.get_mut(..data_offset) {
        Some(header) if syn && data_offset > TCP_LEN => clamp_options(header, mss_max),
        _ => false,
    }
}

/// Walks the options of a TCP header.
fn clamp_options(header: &mut [u8], mss_max: u16) -> bool {
    let mut changed = false;
    let mut at = TCP_LEN;
    while let Some(&kind) = header.get(at) {
        let len = match kind {
            OPTION_END => break,
            OPTION_NO_OPERATION => 1,
            _ => header.get(at + 1).map_or(0, |&len| usize::from(len)),
        };
        if len == 0 || (kind != OPTION_NO_OPERATION && len < 2) {
            break;
        }
        if kind == OPTION_MSS && len == 4 && at + 4 <= header.len() {
            changed |= lower(header, at + 2, mss_max);
        }
        at += len;
    }
    changed
}

/// Lowers the value at offset `at` of the header.
fn lower(header: &mut [u8], at: usize, mss_max: u16) -> bool {
    let old = u16::from_be_bytes([header[at], header[at + 1]]);
    if old <= mss_max {
        return false;
    }
    header[at..at + 2].copy_from_slice(&mss_max.to_be_bytes());
    // At an odd offset the value's bytes lie in two words, each in the other half: swapped,
    // they add up to the same (RFC 1071 2 B).
    let words = |value: u16| if at.is_multiple_of(2) { value } else { value.swap_bytes() };
    let sum = u16::from_be_bytes([header[16], header[17]]);
    let sum = checksum::update(sum, words(old), words(mss_max));
    header[16..18].copy_from_slice(&sum.to_be_bytes());
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::PacketInfo;
    use crate::checksum::transport_checksum;
    use crate::ip::tests::{Ext, v4, v6};

    const SYN: u8 = 0x02;
    const SYN_ACK: u8 = 0x12;
    const ACK: u8 = 0x10;

    /// A TCP segment; the options are filled up to a multiple of four.
    fn segment(flags: u8, options: &[u8], data: &[u8]) -> Vec<u8> {
        let mut options = options.to_vec();
        options.resize(options.len().next_multiple_of(4), OPTION_END);
        let offset = ((TCP_LEN + options.len()) * 4) as u8;
        let fixed = [0x12, 0x34, 0, 80, 9, 8, 7, 6, 0, 0, 0, 0, offset, flags, 0xff, 0xff];
        [&fixed[..], &[0; 4], &options, data].concat()
    }

    /// Returns the offset of TCP, and its checksum over everything (0 if the one in it is correct).
    fn verify(packet: &[u8]) -> (usize, u16) {
        let (info, layout) = (PacketInfo::parse(packet, 0).unwrap(), Layout::of(packet).unwrap());
        let segment = &packet[layout.transport..];
        (layout.transport, transport_checksum(info.src, info.dst, TCP, segment))
    }

    fn sealed(mut packet: Vec<u8>) -> Vec<u8> {
        let (transport, sum) = verify(&packet);
        packet[transport + 16..transport + 18].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    fn mss_option(mss: u16) -> [u8; 4] {
        let [high, low] = mss.to_be_bytes();
        [OPTION_MSS, 4, high, low]
    }

    #[test]
    fn syn_and_syn_ack_of_both_versions_behind_extensions_too() {
        let options = [&[1, 1, 4, 2][..], &mss_option(1460)].concat();
        for flags in [SYN, SYN_ACK] {
            let tcp = segment(flags, &options, b"");
            let chain = [Ext::Options(0, 1), Ext::Options(60, 0)];
            let cases = [
                (v4(TCP, &[], 0x4000, &tcp), 1300u16),
                (v4(TCP, &[1; 12], 0, &tcp), 1300),
                (v6(&[], TCP, &tcp), 1280),
                (v6(&chain, TCP, &tcp), 1280),
            ];
            for (packet, expected) in cases {
                let before = sealed(packet);
                let mut after = before.clone();
                assert!(clamp_mss(&mut after, 1300, 1280));
                assert_eq!(verify(&after).1, 0);
                let at = before.len() - 2;
                assert_eq!(after[at..], expected.to_be_bytes());
                assert!(!clamp_mss(&mut after, 1300, 1280), "it is low enough now");
            }
        }
    }

    #[test]
    fn everything_else_stays_as_it_is() {
        let syn = segment(SYN, &mss_option(1460), b"");
        let mut not_tcp = v4(TCP, &[], 0, &syn);
        not_tcp[9] = 17;
        let cases = [
            v4(TCP, &[], 0, &segment(ACK, &mss_option(1460), b"")),
            v4(TCP, &[], 0, &segment(SYN, &mss_option(1200), b"")),
            v4(TCP, &[], 0, &segment(SYN, &[], &mss_option(1460))),
            v4(TCP, &[], 0, &segment(SYN, &[OPTION_END, 2, 4, 9, 9], b"")),
            v4(TCP, &[], 0, &segment(SYN, &[8, 0, 2, 4, 9, 9], b"")),
            v4(TCP, &[], 0, &segment(SYN, &[1, 1, 2, 4], b"\x09\x09")),
            v4(TCP, &[], 0x0010, &syn),
            v6(&[Ext::Fragment(0x0010)], TCP, &syn),
            v4(TCP, &[], 0, &syn[..22]),
            not_tcp,
        ];
        for (n, before) in cases.into_iter().enumerate() {
            let mut after = before.clone();
            assert!(!clamp_mss(&mut after, 1300, 1300), "case {n}");
            assert_eq!(after, before, "case {n}");
        }
    }

    proptest! {
        #[test]
        fn the_checksum_stays_right_at_any_offset(
            padding in 0usize..8,
            (mss, mss_max) in any::<(u16, u16)>(),
            data in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let options = [&[OPTION_NO_OPERATION; 8][..padding], &mss_option(mss)].concat();
            let before = sealed(v4(TCP, &[], 0, &segment(SYN, &options, &data)));
            let mut after = before.clone();
            prop_assert_eq!(clamp_mss(&mut after, mss_max, 0), mss > mss_max);
            prop_assert_eq!(verify(&after).1, 0);
            let at = 40 + padding + 2;
            prop_assert_eq!(&after[at..at + 2], &mss.min(mss_max).to_be_bytes()[..]);
        }
    }
}
