//! Packets for tests.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use dwell_wire::checksum::{checksum, transport_checksum};

const V4: (Ipv4Addr, Ipv4Addr) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
const V6: (Ipv6Addr, Ipv6Addr) =
    (Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1), Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2));

fn v4(protocol: u8, segment: &[u8]) -> Vec<u8> {
    let len = (20 + segment.len()) as u16;
    let mut packet = vec![0x45, 0, 0, 0, 0, 1, 0, 0, 64, protocol, 0, 0];
    packet[2..4].copy_from_slice(&len.to_be_bytes());
    packet.extend(V4.0.octets());
    packet.extend(V4.1.octets());
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend_from_slice(segment);
    packet
}

fn v6(protocol: u8, segment: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 0, protocol, 64];
    packet[4..6].copy_from_slice(&(segment.len() as u16).to_be_bytes());
    packet.extend(V6.0.octets());
    packet.extend(V6.1.octets());
    packet.extend_from_slice(segment);
    packet
}

fn tcp(ports: (u16, u16), sequence: u32, payload: &[u8], ends: (IpAddr, IpAddr)) -> Vec<u8> {
    let mut segment = Vec::new();
    segment.extend(ports.0.to_be_bytes());
    segment.extend(ports.1.to_be_bytes());
    segment.extend(sequence.to_be_bytes());
    segment.extend([0, 0, 0, 0, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
    segment.extend_from_slice(payload);
    let sum = transport_checksum(ends.0, ends.1, 6, &segment);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    segment
}

fn udp(ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut datagram = Vec::new();
    datagram.extend(ports.0.to_be_bytes());
    datagram.extend(ports.1.to_be_bytes());
    datagram.extend(((8 + payload.len()) as u16).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend_from_slice(payload);
    datagram
}

pub(crate) fn tcp_v4(source: u16, destination: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
    v4(6, &tcp((source, destination), sequence, payload, (V4.0.into(), V4.1.into())))
}

pub(crate) fn tcp_v6(source: u16, destination: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
    v6(6, &tcp((source, destination), sequence, payload, (V6.0.into(), V6.1.into())))
}

pub(crate) fn udp_v4(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    v4(17, &udp((source, destination), payload))
}

pub(crate) fn udp_v6(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    v6(17, &udp((source, destination), payload))
}

/// A capture with times in nanoseconds, link type "raw IP".
pub(crate) fn pcap(packets: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_3c4d_u32, 4 << 16 | 2, 0, 0, 1 << 18, 101] {
        file.extend(word.to_le_bytes());
    }
    for (at_ns, packet) in packets {
        let len = packet.len() as u32;
        let (seconds, rest) = ((at_ns / 1_000_000_000) as u32, (at_ns % 1_000_000_000) as u32);
        [seconds, rest, len, len].iter().for_each(|word| file.extend(word.to_le_bytes()));
        file.extend_from_slice(packet);
    }
    file
}
