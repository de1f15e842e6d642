//! Packets of TCP and UDP flows.

use std::net::IpAddr;

#[derive(Clone)]
pub(super) struct Flow {
    pub(super) from: IpAddr,
    pub(super) to: IpAddr,
    pub(super) port: u16,
}

impl Flow {
    pub(super) fn v4(port: u16) -> Self {
        Self { from: "10.1.0.2".parse().unwrap(), to: "10.2.0.2".parse().unwrap(), port }
    }

    pub(super) fn v6(port: u16) -> Self {
        Self { from: "fd01::2".parse().unwrap(), to: "fd02::2".parse().unwrap(), port }
    }

    /// An IP packet; the checksum is at `sum_at` of `transport`.
    pub(super) fn packet(
        &self,
        protocol: u8,
        id: u16,
        mut transport: Vec<u8>,
        sum_at: usize,
    ) -> Vec<u8> {
        transport[..2].copy_from_slice(&self.port.to_be_bytes());
        let len = transport.len() as u16;
        let (mut packet, pseudo) = match (self.from, self.to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let mut head = vec![0x45, 0];
                head.extend((20 + len).to_be_bytes());
                head.extend(id.to_be_bytes());
                head.extend([0, 0, 64, protocol, 0, 0]);
                head.extend(from.octets());
                head.extend(to.octets());
                let sum = !sum_words(&head, 0);
                head[10..12].copy_from_slice(&sum.to_be_bytes());
                let pseudo = sum_words(&head[12..20], u32::from(protocol) + u32::from(len));
                (head, pseudo)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let mut head = vec![0x60, 0, 0x12, 0x34];
                head.extend(len.to_be_bytes());
                head.extend([protocol, 64]);
                head.extend(from.octets());
                head.extend(to.octets());
                let pseudo = sum_words(&head[8..40], u32::from(protocol) + u32::from(len));
                (head, pseudo)
            }
            _ => unreachable!("one family"),
        };
        let sum = !sum_words(&transport, u32::from(pseudo));
        transport[sum_at..sum_at + 2].copy_from_slice(&sum.to_be_bytes());
        packet.extend(transport);
        packet
    }
}

/// One's complement sum, computed plainly.
pub(super) fn sum_words(bytes: &[u8], start: u32) -> u16 {
    let mut sum = start;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

pub(super) fn tcp_with(flow: &Flow, sequence: u32, payload: usize, id: u16, flags: u8) -> Vec<u8> {
    let mut tcp = vec![0, 0, 0, 80];
    tcp.extend(sequence.to_be_bytes());
    tcp.extend([0, 0, 0, 1, 0x80, flags, 0x10, 0, 0, 0, 0, 0]);
    tcp.extend([1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]);
    tcp.extend((0..payload).map(|i| (i as u32 + sequence) as u8));
    flow.packet(6, id, tcp, 16)
}

pub(super) fn tcp(flow: &Flow, sequence: u32, payload: usize) -> Vec<u8> {
    tcp_with(flow, sequence, payload, (sequence / 1000) as u16, 0x10)
}

pub(super) fn udp(flow: &Flow, id: u16, payload: usize) -> Vec<u8> {
    let mut udp = vec![0, 0, 0, 53];
    udp.extend((8 + payload as u16).to_be_bytes());
    udp.extend([0, 0]);
    udp.extend((0..payload).map(|i| (i as u16 + id) as u8));
    flow.packet(17, id, udp, 6)
}
