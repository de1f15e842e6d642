//! ICMP errors that notify a sender that its packets are too big for the tunnel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::checksum::{checksum, transport_checksum};
use crate::ip::{ICMP, ICMP_V6, Layout, V4_LEN, V6_LEN};
use crate::packet::PacketInfo;

/// The longest ICMPv4 error, in bytes with its IP header (RFC 1812 4.3.2.3).
pub const ICMP_V4_LEN_MAX: usize = 576;
/// The longest ICMPv6 error, in bytes with its IP header (RFC 4443 2.4(c)).
pub const ICMP_V6_LEN_MAX: usize = 1280;

/// ICMP header of an error, in bytes, of either version.
const ERROR_LEN: usize = 8;
const HOP_LIMIT: u8 = 64;

/// Writes into `out` the answer to `original`, a packet that may not be fragmented and is
/// longer than `mtu` bytes; returns the answer's length in bytes.
///
/// IPv4: destination unreachable, fragmentation needed (RFC 792, RFC 1191). IPv6: packet too
/// big (RFC 4443 3.2). The answer goes from `source` to the sender of `original` and quotes as much
/// of it as [`ICMP_V4_LEN_MAX`] or [`ICMP_V6_LEN_MAX`] bytes allow.
///
/// `None`, and nothing to send, if `original` is not well-formed, an ICMP error or of an ICMP
/// type unknown here, a later fragment, or from or to what is no single host (RFC 1122 3.2.2,
/// RFC 4443 2.4(e); the exception that RFC 4443 makes for multicast is not taken); if `source`
/// is of the other version; if `out` is too small.
pub fn packet_too_big(original: &[u8], mtu: u16, source: IpAddr, out: &mut [u8]) -> Option<usize> {
    let info = PacketInfo::parse(original, 0).ok()?;
    let layout = Layout::of(original).ok()?;
    let original = &original[..layout.total_len];
    if layout.later_fragment || !may_be_answered(layout.protocol, &original[layout.transport..]) {
        return None;
    }
    match (source, info.src, info.dst) {
        (IpAddr::V4(source), IpAddr::V4(sender), IpAddr::V4(target)) => {
            let hosts = is_host_v4(sender) && is_host_v4(target);
            hosts.then(|| write_v4(original, mtu, source, sender, out))?
        }
        (IpAddr::V6(source), IpAddr::V6(sender), IpAddr::V6(target)) => {
            let hosts = is_host_v6(sender) && is_host_v6(target);
            hosts.then(|| write_v6(original, mtu, source, sender, out))?
        }
        _ => None,
    }
}

/// False for ICMP, except for the queries and their answers.
fn may_be_answered(protocol: u8, payload: &[u8]) -> bool {
    match (protocol, payload.first()) {
        // Echo, router discovery, time stamp, information, mask, extended echo.
        (ICMP, kind) => matches!(kind, Some(0 | 8..=10 | 13..=18 | 42 | 43)),
        // Below 128 are the errors; a redirect (137) must not be answered either.
        (ICMP_V6, kind) => matches!(kind, Some(128..) if kind != Some(&137)),
        _ => true,
    }
}

fn is_host_v4(address: Ipv4Addr) -> bool {
    // 240.0.0.0/4 has no hosts, and the limited broadcast in it.
    !(address.octets()[0] == 0 || address.is_loopback() || address.octets()[0] >= 224)
}

fn is_host_v6(address: Ipv6Addr) -> bool {
    !(address.is_unspecified() || address.is_loopback() || address.is_multicast())
}

fn write_v4(
    original: &[u8],
    mtu: u16,
    source: Ipv4Addr,
    sender: Ipv4Addr,
    out: &mut [u8],
) -> Option<usize> {
    let quoted = &original[..original.len().min(ICMP_V4_LEN_MAX - V4_LEN - ERROR_LEN)];
    let len = V4_LEN + ERROR_LEN + quoted.len();
    let out = out.get_mut(..len)?;
    let [len_high, len_low] = (len as u16).to_be_bytes();
    // Precedence "internetwork control" (RFC 1812 4.3.2.5); never fragmented, so it needs no
    // identification (RFC 6864 4.1).
    out[..12]
        .copy_from_slice(&[0x45, 0xc0, len_high, len_low, 0, 0, 0x40, 0, HOP_LIMIT, ICMP, 0, 0]);
    out[12..16].copy_from_slice(&source.octets());
    out[16..V4_LEN].copy_from_slice(&sender.octets());
    let sum = checksum(&out[..V4_LEN]);
    out[10..12].copy_from_slice(&sum.to_be_bytes());

    let [mtu_high, mtu_low] = mtu.to_be_bytes();
    let error = &mut out[V4_LEN..];
    error[..ERROR_LEN].copy_from_slice(&[3, 4, 0, 0, 0, 0, mtu_high, mtu_low]);
    error[ERROR_LEN..].copy_from_slice(quoted);
    let sum = checksum(error);
    error[2..4].copy_from_slice(&sum.to_be_bytes());
    Some(len)
}

fn write_v6(
    original: &[u8],
    mtu: u16,
    source: Ipv6Addr,
    sender: Ipv6Addr,
    out: &mut [u8],
) -> Option<usize> {
    let quoted = &original[..original.len().min(ICMP_V6_LEN_MAX - V6_LEN - ERROR_LEN)];
    let len = V6_LEN + ERROR_LEN + quoted.len();
    let out = out.get_mut(..len)?;
    let [len_high, len_low] = ((len - V6_LEN) as u16).to_be_bytes();
    out[..8].copy_from_slice(&[0x60, 0, 0, 0, len_high, len_low, ICMP_V6, HOP_LIMIT]);
    out[8..24].copy_from_slice(&source.octets());
    out[24..V6_LEN].copy_from_slice(&sender.octets());

    let [mtu_high, mtu_low] = mtu.to_be_bytes();
    let error = &mut out[V6_LEN..];
    error[..ERROR_LEN].copy_from_slice(&[2, 0, 0, 0, 0, 0, mtu_high, mtu_low]);
    error[ERROR_LEN..].copy_from_slice(quoted);
    let sum = transport_checksum(source.into(), sender.into(), ICMP_V6, error);
    error[2..4].copy_from_slice(&sum.to_be_bytes());
    Some(len)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ip::tests::{Ext, v4, v6};

    const SOURCE_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 9, 9));
    const SOURCE_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9));

    /// The answer, checked in every field, or none.
    fn answer(original: &[u8], mtu: u16) -> Option<Vec<u8>> {
        let mut out = [0xee; 2000];
        let source = if original[0] >> 4 == 4 { SOURCE_V4 } else { SOURCE_V6 };
        let len = packet_too_big(original, mtu, source, &mut out)?;
        let (info, answer) = (PacketInfo::parse(&out[..len], 0).unwrap(), &out[..len]);
        assert_eq!((info.total_len, info.src), (len, source));
        assert_eq!(info.dst, PacketInfo::parse(original, 0).unwrap().src);
        let error = &answer[usize::from(info.header_len)..];
        let (kind, sum) = if info.version == 4 {
            assert_eq!(checksum(&answer[..V4_LEN]), 0);
            ([3, 4], checksum(error))
        } else {
            ([2, 0], transport_checksum(info.src, info.dst, ICMP_V6, error))
        };
        assert_eq!((&error[..2], sum), (&kind[..], 0));
        assert_eq!(error[4..8], u32::from(mtu).to_be_bytes());
        assert!(original.starts_with(&error[8..]));
        Some(answer.to_vec())
    }

    proptest! {
        #[test]
        fn quotes_what_fits(len in 0usize..1600, fill: u8, mtu: u16) {
            let payload = vec![fill; len];
            let to_v4 = answer(&v4(17, &[], 0x4000, &payload), mtu).unwrap();
            prop_assert_eq!(to_v4.len(), (28 + 20 + len).min(ICMP_V4_LEN_MAX));
            let to_v6 = answer(&v6(&[], 17, &payload), mtu).unwrap();
            prop_assert_eq!(to_v6.len(), (48 + 40 + len).min(ICMP_V6_LEN_MAX));
        }
    }

    #[test]
    fn queries_are_answered_and_errors_are_not() {
        for kind in 0..=255 {
            let payload = [kind, 0, 0, 0, 0, 0, 0, 0];
            let query = matches!(kind, 0 | 8 | 9 | 10 | 13..=18 | 42 | 43);
            assert_eq!(answer(&v4(ICMP, &[], 0, &payload), 1400).is_some(), query, "{kind}");
            let harmless = kind >= 128 && kind != 137;
            assert_eq!(answer(&v6(&[], ICMP_V6, &payload), 1400).is_some(), harmless, "{kind}");
        }
        assert_eq!(answer(&v4(ICMP, &[], 0, &[]), 1400), None);
    }

    #[test]
    fn fragments_and_groups_are_not_answered() {
        assert!(answer(&v4(17, &[], 0x2000, &[0; 8]), 1400).is_some());
        assert_eq!(answer(&v4(17, &[], 0x0001, &[0; 8]), 1400), None);
        assert_eq!(answer(&v6(&[Ext::Fragment(8)], 17, &[0; 8]), 1400), None);
        for (at, first) in [(12, 0), (12, 127), (12, 224), (16, 224), (16, 239), (16, 255)] {
            let mut packet = v4(17, &[], 0, &[0; 8]);
            packet[at] = first;
            assert_eq!(answer(&packet, 1400), None, "{first} at {at}");
        }
        let mut to_all = v6(&[], 17, &[0; 8]);
        to_all[24] = 0xff;
        assert_eq!(answer(&to_all, 1400), None);
        let mut from_nobody = v6(&[], 17, &[0; 8]);
        from_nobody[8..24].fill(0);
        assert_eq!(answer(&from_nobody, 1400), None);
    }

    #[test]
    fn what_cannot_be_written_is_not() {
        let packet = v4(17, &[], 0, &[0; 8]);
        assert_eq!(packet_too_big(&packet, 1400, SOURCE_V6, &mut [0; 2000]), None);
        assert_eq!(packet_too_big(&packet, 1400, SOURCE_V4, &mut [0; 55]), None);
        assert_eq!(packet_too_big(&packet, 1400, SOURCE_V4, &mut [0; 56]), Some(56));
        assert_eq!(packet_too_big(&packet[..27], 1400, SOURCE_V4, &mut [0; 2000]), None);
    }
}
