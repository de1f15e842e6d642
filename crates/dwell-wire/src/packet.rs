//! The addresses and properties of an IP packet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::error::PacketError;
use crate::ip::{Layout, TCP, UDP, V4_LEN, V6_LEN, be16};

/// The header fields of an IPv4 (RFC 791) or IPv6 (RFC 8200) packet that matter here.
///
/// Only the IP header has to be correct. A packet whose extension or transport headers are cut
/// short or invalid is still forwarded: it has the ports 0, and `header_len` covers the headers
/// that could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketInfo {
    /// 4 or 6.
    pub version: u8,
    /// The transport protocol's number; in IPv6 that behind the extension headers.
    pub protocol: u8,
    /// A hash of addresses, protocol and ports; the same for all packets of a flow in one
    /// direction, and different for every seed. The ports of fragments are left
    /// out, since only the first one has them and all must take the same path.
    pub flow_hash: u64,
    /// Of TCP and UDP; 0 otherwise and in all fragments but the first.
    pub src_port: u16,
    /// Of TCP and UDP; 0 otherwise and in all fragments but the first.
    pub dst_port: u16,
    /// The differentiated services code point (RFC 2474), 0 to 63.
    pub dscp: u8,
    /// Bytes of the IP header with its options or extensions, and of the TCP or UDP header.
    pub header_len: u16,
    /// Bytes of the packet as its header declares; later bytes do not belong to the packet.
    pub total_len: usize,
    /// True for a part of a larger packet, including the first.
    pub fragment: bool,
    /// True if routers must not fragment it: IPv4 with the flag, and IPv6 always.
    pub dont_fragment: bool,
    /// True for TCP with SYN set, in the first or the second packet of a handshake.
    pub tcp_syn: bool,
    /// The source address.
    pub src: IpAddr,
    /// The destination address.
    pub dst: IpAddr,
}

impl PacketInfo {
    /// Reads the headers of a packet. `seed` is the hash's.
    ///
    /// # Errors
    /// [`PacketError`] if the bytes are no IP packet, or not all of one.
    #[inline]
    pub fn parse(packet: &[u8], seed: u64) -> Result<Self, PacketError> {
        Self::read(packet, Layout::of(packet)?, seed)
    }

    /// Reads the headers of a packet whose end may be missing, as in captures that keep only the
    /// beginnings of packets. `header_len` and `total_len` may exceed the bytes that are there.
    ///
    /// # Errors
    /// [`PacketError`] if the bytes don't begin with the fixed header of an IP packet.
    #[inline]
    pub fn parse_head(packet: &[u8], seed: u64) -> Result<Self, PacketError> {
        Self::read(packet, Layout::of_head(packet)?, seed)
    }

    #[inline]
    fn read(packet: &[u8], layout: Layout, seed: u64) -> Result<Self, PacketError> {
        let transport = Transport::of(packet, &layout);
        let (src, dst, hash) = addresses(packet, seed).ok_or(PacketError::Truncated)?;
        let ports = if layout.fragment { 0 } else { transport.ports() };
        let flow = hash ^ u64::from(layout.protocol) << 32 ^ u64::from(ports);
        Ok(Self {
            version: layout.version,
            protocol: layout.protocol,
            flow_hash: mix(mix(flow, HASH_KEYS[0]), HASH_KEYS[1]),
            src_port: transport.src_port,
            dst_port: transport.dst_port,
            dscp: layout.dscp,
            // At most 40 + 8 * 2048 + 60.
            header_len: (layout.transport + transport.header_len) as u16,
            total_len: layout.total_len,
            fragment: layout.fragment,
            dont_fragment: layout.dont_fragment,
            tcp_syn: transport.tcp_syn,
            src,
            dst,
        })
    }
}

/// Returns the destination of a packet, from the fixed header alone; cheaper than
/// [`PacketInfo::parse`]. `None` if there is no such header.
#[inline]
pub fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => Some(Ipv4Addr::from(*packet.get(16..V4_LEN)?.first_chunk::<4>()?).into()),
        6 => Some(Ipv6Addr::from(*packet.get(24..V6_LEN)?.first_chunk::<16>()?).into()),
        _ => None,
    }
}

/// Returns a key for the service that a packet belongs to, in either direction: the protocol in
/// bits 16 to 23, the smaller of the two ports below it, 0 without ports. The server nearly always
/// has the smaller one.
#[inline]
pub fn service_class(info: &PacketInfo) -> u32 {
    u32::from(info.protocol) << 16 | u32::from(info.src_port.min(info.dst_port))
}

/// The fields of a transport header; zeros if there is none.
#[derive(Clone, Copy, Default)]
struct Transport {
    src_port: u16,
    dst_port: u16,
    header_len: usize,
    tcp_syn: bool,
}

impl Transport {
    #[inline]
    fn of(packet: &[u8], layout: &Layout) -> Self {
        let end = layout.total_len.min(packet.len());
        let segment = packet.get(layout.transport..end).unwrap_or_default();
        let found = match layout.protocol {
            _ if layout.later_fragment => None,
            TCP => Self::of_tcp(segment),
            UDP => Self::of_udp(segment),
            _ => None,
        };
        found.unwrap_or_default()
    }

    #[inline]
    fn of_tcp(segment: &[u8]) -> Option<Self> {
        let fixed: &[u8; 20] = segment.first_chunk()?;
        let header_len = usize::from(fixed[12] >> 4) * 4;
        (fixed.len()..=segment.len()).contains(&header_len).then(|| Self {
            src_port: be16(fixed, 0),
            dst_port: be16(fixed, 2),
            header_len,
            tcp_syn: fixed[13] & 0x02 != 0,
        })
    }

    #[inline]
    fn of_udp(segment: &[u8]) -> Option<Self> {
        let fixed: &[u8; 8] = segment.first_chunk()?;
        let (src_port, dst_port) = (be16(fixed, 0), be16(fixed, 2));
        Some(Self { src_port, dst_port, header_len: 8, tcp_syn: false })
    }

    #[inline]
    fn ports(&self) -> u32 {
        u32::from(self.src_port) << 16 | u32::from(self.dst_port)
    }
}

// Digits of pi, as in Blowfish's and foldhash's tables: odd-looking and not made for a purpose.
const HASH_KEYS: [u64; 2] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344];

/// Multiplies to 128 bits and folds the halves together.
///
/// The mixing step of wyhash and foldhash. Written out here so that a flow's hash, and with it
/// every simulation that depends on one, stays the same whatever a library changes.
#[inline]
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// Returns source, destination and a seeded hash of both.
#[inline]
fn addresses(packet: &[u8], seed: u64) -> Option<(IpAddr, IpAddr, u64)> {
    if packet.first()? >> 4 == 4 {
        let pair: &[u8; 8] = packet.get(12..V4_LEN)?.first_chunk()?;
        let word = u64::from_be_bytes(*pair);
        let (src, dst) = (Ipv4Addr::from((word >> 32) as u32), Ipv4Addr::from(word as u32));
        return Some((src.into(), dst.into(), mix(word ^ seed, HASH_KEYS[0])));
    }
    let pair: &[u8; 32] = packet.get(8..V6_LEN)?.first_chunk()?;
    let (words, _) = pair.as_chunks::<8>();
    let hash =
        words.iter().fold(seed, |hash, word| mix(hash ^ u64::from_be_bytes(*word), HASH_KEYS[0]));
    let (halves, _) = pair.as_chunks::<16>();
    Some((Ipv6Addr::from(halves[0]).into(), Ipv6Addr::from(halves[1]).into(), hash))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::ip::tests::{Ext, v4, v6};

    /// A TCP header with four bytes of options.
    fn tcp(src: u16, dst: u16, flags: u8) -> Vec<u8> {
        let [a, b] = src.to_be_bytes();
        let [c, d] = dst.to_be_bytes();
        [&[a, b, c, d, 0, 0, 0, 1, 0, 0, 0, 0, 0x60, flags][..], &[0; 6], &[1; 4]].concat()
    }

    fn udp(src: u16, dst: u16) -> Vec<u8> {
        let [a, b] = src.to_be_bytes();
        let [c, d] = dst.to_be_bytes();
        vec![a, b, c, d, 0, 8, 0, 0]
    }

    #[test]
    fn ipv4_with_options_and_tcp() {
        let mut packet = v4(6, &[1; 8], 0x4000, &[&tcp(50_000, 443, 0x12)[..], b"data"].concat());
        packet[1] = 46 << 2;
        packet.push(0xff);
        let info = PacketInfo::parse(&packet, 1).unwrap();
        assert_eq!((info.version, info.protocol, info.dscp), (4, 6, 46));
        assert_eq!((info.src_port, info.dst_port), (50_000, 443));
        assert_eq!((info.header_len, info.total_len), (28 + 24, 28 + 24 + 4));
        assert!(info.tcp_syn && info.dont_fragment && !info.fragment);
        assert_eq!(info.src, IpAddr::from([10, 0, 0, 1]));
        assert_eq!(info.dst, IpAddr::from([10, 0, 0, 2]));
        assert_eq!(service_class(&info), 6 << 16 | 443);
        assert_eq!(destination(&packet), Some(info.dst));
    }

    #[test]
    fn fragments_share_a_hash_but_only_the_first_has_ports() {
        let first = PacketInfo::parse(&v4(17, &[], 0x2000, &udp(5000, 53)), 1).unwrap();
        let later = PacketInfo::parse(&v4(17, &[], 0x0001, &udp(5000, 53)), 1).unwrap();
        assert!(first.fragment && later.fragment && !later.dont_fragment);
        assert_eq!((first.dst_port, later.dst_port), (53, 0));
        assert_eq!((first.header_len, later.header_len), (28, 20));
        assert_eq!(first.flow_hash, later.flow_hash);
        assert_eq!(service_class(&later), 17 << 16);
    }

    #[test]
    fn ipv6_extension_headers_are_walked() {
        use Ext::{Auth, Fragment, Options};
        let chain = [Options(0, 0), Options(43, 2), Options(60, 1), Auth, Fragment(0)];
        let mut packet = v6(&chain, 6, &tcp(22, 40_000, 0x02));
        packet[..2].copy_from_slice(&[0x6b, 0x80]);
        let info = PacketInfo::parse(&packet, 1).unwrap();
        assert_eq!((info.version, info.protocol, info.dscp), (6, 6, 46));
        assert_eq!((info.src_port, info.dst_port, info.tcp_syn), (22, 40_000, true));
        assert_eq!(usize::from(info.header_len), packet.len());
        assert!(!info.fragment && info.dont_fragment);
        assert_eq!(destination(&packet), Some(info.dst));
        assert_eq!(info.dst, IpAddr::from([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]));

        let later = v6(&[Fragment(8)], 6, &tcp(22, 40_000, 0x02));
        let info = PacketInfo::parse(&later, 1).unwrap();
        assert_eq!((info.fragment, info.src_port, info.header_len), (true, 0, 48));
    }

    #[test]
    fn chains_without_end_are_given_up() {
        let packet = v6(&[Ext::Options(60, 0); 9], 6, &tcp(22, 40_000, 0));
        let info = PacketInfo::parse(&packet, 1).unwrap();
        assert_eq!((info.protocol, info.src_port, info.header_len), (60, 0, 40 + 8 * 8));
    }

    #[test]
    fn broken_transport_headers_have_no_ports() {
        let short_tcp = v4(6, &[], 0, &tcp(1, 2, 0)[..23]);
        let short_udp = v4(17, &[], 0, &udp(1, 2)[..7]);
        let icmp = v4(1, &[], 0, &[8; 64]);
        for packet in [short_tcp, short_udp, icmp] {
            let info = PacketInfo::parse(&packet, 1).unwrap();
            assert_eq!((info.src_port, info.dst_port, info.header_len), (0, 0, 20));
        }
    }

    #[test]
    fn broken_ip_headers_are_named() {
        let good = v4(17, &[], 0, &udp(1, 2));
        let with = |at: usize, byte: u8| {
            let mut bad = good.clone();
            bad[at] = byte;
            PacketInfo::parse(&bad, 0).unwrap_err()
        };
        assert_eq!(with(0, 0x55), PacketError::Version(5));
        assert_eq!(with(0, 0x44), PacketError::HeaderLength);
        assert_eq!(with(3, 19), PacketError::TotalLength);
        assert_eq!(with(3, 29), PacketError::Truncated);
        let long = v6(&[], 17, &udp(1, 2));
        for packet in [&good, &long] {
            for len in 0..packet.len() {
                let short = PacketInfo::parse(&packet[..len], 0);
                assert_eq!(short.unwrap_err(), PacketError::Truncated, "{len}");
            }
        }
    }

    #[test]
    fn a_head_gives_the_same_fields_as_the_whole_packet() {
        let long = [&tcp(50_000, 443, 0x12)[..], &[7; 100]].concat();
        for packet in [v4(6, &[1; 8], 0x4000, &long), v6(&[Ext::Options(0, 1)], 6, &long)] {
            let whole = PacketInfo::parse(&packet, 1).unwrap();
            for len in 0..=packet.len() {
                let Ok(head) = PacketInfo::parse_head(&packet[..len], 1) else {
                    assert!(len < 40);
                    continue;
                };
                assert_eq!((head.total_len, head.src), (whole.total_len, whole.src));
                if len >= usize::from(whole.header_len) {
                    assert_eq!(head, whole);
                }
            }
        }
    }

    #[test]
    fn the_hash_distinguishes_flows_and_seeds_and_spreads() {
        let hash = |packet: &[u8], seed| PacketInfo::parse(packet, seed).unwrap().flow_hash;
        let (mut seen, mut buckets) = (HashSet::new(), [0u32; 256]);
        for port in 0..=u16::MAX {
            for hash in
                [hash(&v4(17, &[], 0, &udp(port, 53)), 7), hash(&v6(&[], 17, &udp(5000, port)), 7)]
            {
                assert!(seen.insert(hash), "port {port}");
                buckets[hash as usize % 256] += 1;
            }
        }
        // 512 expected in each, with a standard deviation of 23.
        assert!(buckets.iter().all(|n| (392..632).contains(n)), "{buckets:?}");
        let packet = v4(17, &[], 0, &udp(1, 2));
        assert_eq!(hash(&packet, 1), hash(&packet, 1));
        assert_ne!(hash(&packet, 1), hash(&packet, 2));
        assert_ne!(hash(&packet, 1), hash(&v4(6, &[], 0, &udp(1, 2)), 1));
    }
}
