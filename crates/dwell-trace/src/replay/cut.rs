//! Packets that are longer than a link takes, as the senders would send them over it.
//!
//! A capture often has packets that are longer than a relay's MTU: full ones of 1500 bytes, and
//! packets that the kernel has not cut yet (GSO) or has joined again (GRO). Over the link they
//! would not be dropped: TCP would send shorter segments, as relays clamp the MSS, and others would
//! fragment. So TCP is cut to segments here, and everything else to IP fragments, with the right
//! headers and checksums.

use dwell_wire::PacketInfo;
use dwell_wire::checksum::{checksum, transport_checksum};

const TCP: u8 = 6;
const V4_LEN: usize = 20;
const V6_LEN: usize = 40;
const V6_FRAGMENT_LEN: usize = 8;
const V6_FRAGMENT: u8 = 44;
const TCP_LEN_MIN: u16 = 20;
/// The flag of IPv4's fragments: more follow.
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET_MASK: u16 = 0x1fff;
/// FIN and PSH: they belong to the end of a segment.
const TCP_FIN_PSH: u8 = 0x09;
/// CWR: it belongs to the beginning.
const TCP_CWR: u8 = 0x80;

/// Cuts `packet` into packets of at most `max` bytes and calls `each` with each of them, in order;
/// a packet that fits is passed on unchanged. Returns false if it can't be cut. `info` is its
/// parsed header, and `piece` a buffer that is reused.
pub fn cut(
    packet: &[u8],
    info: &PacketInfo,
    max: usize,
    piece: &mut Vec<u8>,
    mut each: impl FnMut(&[u8]),
) -> bool {
    if packet.len() <= max {
        each(packet);
        return true;
    }
    let header = usize::from(info.header_len);
    let whole_tcp = info.protocol == TCP && !info.fragment && header < max;
    if let Some(tcp_len) = header_tcp_len(packet, info).filter(|_| whole_tcp) {
        segments(packet, info, usize::from(tcp_len), max, piece, each);
        return true;
    }
    match info.version {
        4 => fragments_v4(packet, max, piece, each),
        _ => fragments_v6(packet, max, piece, each),
    }
}

fn ip_header_len(packet: &[u8]) -> usize {
    match packet[0] >> 4 {
        4 => usize::from(packet[0] & 0x0f) * 4,
        _ => V6_LEN,
    }
}

/// Packets with the same headers, of which `tcp_len` bytes are TCP's, and parts of the payload.
fn segments(
    packet: &[u8],
    info: &PacketInfo,
    tcp_len: usize,
    max: usize,
    piece: &mut Vec<u8>,
    mut each: impl FnMut(&[u8]),
) {
    let (header, payload) = packet.split_at(usize::from(info.header_len));
    let tcp = header.len() - tcp_len;
    let room = max - header.len();
    let last = payload.len().div_ceil(room) - 1;
    for (at, chunk) in payload.chunks(room).enumerate() {
        piece.clear();
        piece.extend_from_slice(header);
        piece.extend_from_slice(chunk);
        let sequence = be32(piece, tcp + 4).wrapping_add((at * room) as u32);
        piece[tcp + 4..tcp + 8].copy_from_slice(&sequence.to_be_bytes());
        if at < last {
            piece[tcp + 13] &= !TCP_FIN_PSH;
        }
        if at > 0 {
            piece[tcp + 13] &= !TCP_CWR;
        }
        piece[tcp + 16..tcp + 18].fill(0);
        let sum = transport_checksum(info.src, info.dst, TCP, &piece[tcp..]);
        piece[tcp + 16..tcp + 18].copy_from_slice(&sum.to_be_bytes());
        if info.version == 4 {
            let id = be16(piece, 4).wrapping_add(at as u16);
            piece[4..6].copy_from_slice(&id.to_be_bytes());
        }
        set_length(piece);
        each(piece);
    }
}

/// Returns the length of the TCP header: the last part of the header in `info`. None if there is
/// none that is whole.
fn header_tcp_len(packet: &[u8], info: &PacketInfo) -> Option<u16> {
    let behind_ip = info.header_len.checked_sub(ip_header_len(packet) as u16)?;
    if info.version == 4 || packet[6] == TCP {
        return (behind_ip >= TCP_LEN_MIN).then_some(behind_ip);
    }
    // Behind extension headers: the length that is in its own field.
    (5..=15u16).map(|words| words * 4).filter(|&len| len <= behind_ip).find(|&len| {
        let at = usize::from(info.header_len - len);
        packet.get(at + 12).is_some_and(|words| u16::from(words >> 4) * 4 == len)
    })
}

fn fragments_v4(
    packet: &[u8],
    max: usize,
    piece: &mut Vec<u8>,
    mut each: impl FnMut(&[u8]),
) -> bool {
    let header = ip_header_len(packet);
    if packet.len() <= header || max < header + 8 {
        return false;
    }
    let room = (max - header) & !7;
    let flags = be16(packet, 6);
    let (first, more) = (flags & OFFSET_MASK, flags & MORE_FRAGMENTS);
    let last = (packet.len() - header).div_ceil(room) - 1;
    for (at, chunk) in packet[header..].chunks(room).enumerate() {
        piece.clear();
        piece.extend_from_slice(&packet[..header]);
        piece.extend_from_slice(chunk);
        let offset = first.wrapping_add((at * room / 8) as u16) & OFFSET_MASK;
        let more = if at < last { MORE_FRAGMENTS } else { more };
        piece[6..8].copy_from_slice(&(offset | more).to_be_bytes());
        set_length(piece);
        each(piece);
    }
    true
}

fn fragments_v6(
    packet: &[u8],
    max: usize,
    piece: &mut Vec<u8>,
    mut each: impl FnMut(&[u8]),
) -> bool {
    // A fragment already has a header of its own; nobody sends one beyond a path's MTU.
    if packet.len() <= V6_LEN || packet[6] == V6_FRAGMENT || max < V6_LEN + V6_FRAGMENT_LEN + 8 {
        return false;
    }
    let room = (max - V6_LEN - V6_FRAGMENT_LEN) & !7;
    let last = (packet.len() - V6_LEN).div_ceil(room) - 1;
    for (at, chunk) in packet[V6_LEN..].chunks(room).enumerate() {
        piece.clear();
        piece.extend_from_slice(&packet[..V6_LEN]);
        piece[6] = V6_FRAGMENT;
        let offset = (at * room) as u16 | u16::from(at < last);
        piece.extend_from_slice(&[packet[6], 0]);
        piece.extend_from_slice(&offset.to_be_bytes());
        // The identification: any number that the sender does not use twice at a time.
        piece.extend_from_slice(&checksum(packet).to_be_bytes());
        piece.extend_from_slice(&[0, 1]);
        piece.extend_from_slice(chunk);
        set_length(piece);
        each(piece);
    }
    true
}

/// Writes the packet's length into its IP header, and IPv4's checksum.
fn set_length(packet: &mut [u8]) {
    let len = packet.len() as u16; // shorter than the packet that it was cut from
    if packet[0] >> 4 == 6 {
        packet[4..6].copy_from_slice(&(len - V6_LEN as u16).to_be_bytes());
        return;
    }
    packet[2..4].copy_from_slice(&len.to_be_bytes());
    packet[10..12].fill(0);
    let header = ip_header_len(packet).max(V4_LEN);
    let sum = checksum(&packet[..header]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from(be16(bytes, at)) << 16 | u32::from(be16(bytes, at + 2))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::replay::samples::{tcp_v4, tcp_v6, udp_v4, udp_v6};

    #[test]
    fn what_has_no_whole_tcp_header_is_cut_to_fragments() {
        for packet in [tcp_v4(80, 5000, 1, &[7; 3000]), tcp_v6(80, 5000, 1, &[7; 3000])] {
            let mut info = PacketInfo::parse(&packet, 0).unwrap();
            let ip = ip_header_len(&packet) as u16;
            for tcp_len in [0, 1, 19] {
                info.header_len = ip + tcp_len;
                assert_eq!(header_tcp_len(&packet, &info), None);
                let mut fragments = 0;
                assert!(cut(&packet, &info, 1280, &mut Vec::new(), |piece| {
                    let info = PacketInfo::parse(piece, 0).unwrap();
                    fragments += u32::from(info.fragment);
                }));
                assert_eq!(fragments, 3, "{tcp_len}");
            }
        }
    }

    fn cut_all(packet: &[u8], max: usize) -> Vec<Vec<u8>> {
        let info = PacketInfo::parse(packet, 0).unwrap();
        let mut pieces = Vec::new();
        let mut room = Vec::new();
        assert!(cut(packet, &info, max, &mut room, |piece| pieces.push(piece.to_vec())));
        pieces
    }

    fn payload(len: usize) -> Vec<u8> {
        (0..len).map(|n| (n * 7 % 251) as u8).collect()
    }

    proptest! {
        #[test]
        fn segments_hold_the_same_bytes(len in 1usize..20_000, max in 576usize..1500, v6: bool) {
            let data = payload(len);
            let packet = if v6 { tcp_v6(80, 1000, 7, &data) } else { tcp_v4(80, 1000, 7, &data) };
            let mut joined = Vec::new();
            let mut next = 7u32;
            for piece in cut_all(&packet, max) {
                let info = PacketInfo::parse(&piece, 0).unwrap();
                prop_assert!(piece.len() <= max && info.total_len == piece.len());
                let header = usize::from(info.header_len);
                prop_assert_eq!(be32(&piece, header - 16), next);
                let tcp = &piece[header - 20..];
                prop_assert_eq!(transport_checksum(info.src, info.dst, 6, tcp), 0);
                joined.extend_from_slice(&piece[header..]);
                next += (piece.len() - header) as u32;
            }
            prop_assert_eq!(joined, data);
        }

        #[test]
        fn fragments_hold_the_same_bytes(len in 1usize..20_000, max in 576usize..1500, v6: bool) {
            let data = payload(len);
            let packet = if v6 { udp_v6(53, 1000, &data) } else { udp_v4(53, 1000, &data) };
            let pieces = cut_all(&packet, max);
            let cut = pieces.len() > 1;
            let mut joined = Vec::new();
            for (at, piece) in pieces.iter().enumerate() {
                let info = PacketInfo::parse(piece, 0).unwrap();
                prop_assert!(piece.len() <= max && info.fragment == cut);
                let skip = match (v6, cut) { (true, true) => 48, (true, false) => 40, _ => 20 };
                let field = if v6 { be16(piece, 42) } else { be16(piece, 6) };
                if cut {
                    let (offset, more) = match v6 {
                        true => (field & !7, field & 1 != 0),
                        false => ((field & OFFSET_MASK) * 8, field & MORE_FRAGMENTS != 0),
                    };
                    prop_assert_eq!(usize::from(offset), joined.len());
                    prop_assert_eq!(more, at + 1 < pieces.len());
                }
                joined.extend_from_slice(&piece[skip..]);
            }
            let skip = if v6 { 40 } else { 20 };
            prop_assert_eq!(&joined[..], &packet[skip..]);
        }
    }

    #[test]
    fn the_end_of_a_stream_stays_at_its_end() {
        let mut packet = tcp_v4(80, 1000, 0, &payload(3000));
        packet[33] |= TCP_FIN_PSH | TCP_CWR;
        let flags: Vec<u8> = cut_all(&packet, 1448).iter().map(|piece| piece[33]).collect();
        assert_eq!(flags.len(), 3);
        assert_eq!(flags[0] & TCP_FIN_PSH, 0);
        assert_eq!(flags[2] & TCP_FIN_PSH, TCP_FIN_PSH);
        assert_eq!(flags.map_cwr(), [true, false, false]);
    }

    trait Cwr {
        fn map_cwr(&self) -> Vec<bool>;
    }

    impl Cwr for Vec<u8> {
        fn map_cwr(&self) -> Vec<bool> {
            self.iter().map(|flags| flags & TCP_CWR != 0).collect()
        }
    }
}
