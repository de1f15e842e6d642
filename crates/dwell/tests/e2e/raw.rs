//! What no ordinary program sends, and sees: packets as they are on the thin link.

use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddrV4};

use dwell_testkit::lab::Host;
use dwell_wire::checksum;
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// A UDP datagram that passed a host.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) from: SocketAddrV4,
    pub(crate) to: SocketAddrV4,
    pub(crate) payload: Vec<u8>,
}

/// Sees what passes the devices of a host, both ways.
pub(crate) struct Sniffer(Socket);

const ETH_P_ALL: u16 = 3;
const UDP: u8 = 17;
const IPPROTO_RAW: i32 = 255;

impl Sniffer {
    pub(crate) fn on(host: &Host) -> anyhow::Result<Self> {
        let all = Protocol::from(i32::from(ETH_P_ALL.to_be()));
        let socket = host.run(|| Socket::new(Domain::PACKET, Type::DGRAM, Some(all)))??;
        socket.set_nonblocking(true)?;
        // As much as the system grants.
        let _ = socket.set_recv_buffer_size(8 << 20);
        Ok(Self(socket))
    }

    /// What passed since the last time, as far as there was room to keep it: whole UDP
    /// datagrams over IPv4.
    pub(crate) fn seen(&mut self) -> Vec<Seen> {
        let mut packet = vec![0; 65_536];
        let mut seen = Vec::new();
        while let Ok(len) = (&self.0).read(&mut packet) {
            seen.extend(udp(&packet[..len]));
        }
        seen
    }
}

fn udp(packet: &[u8]) -> Option<Seen> {
    let first = *packet.first()?;
    let header_len = usize::from(first & 15) * 4;
    if first >> 4 != 4 || *packet.get(9)? != UDP {
        return None;
    }
    let u16_at = |at: usize| Some(u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?]));
    let address = |at: usize| -> Option<Ipv4Addr> {
        Some(Ipv4Addr::from(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?))
    };
    Some(Seen {
        from: SocketAddrV4::new(address(12)?, u16_at(header_len)?),
        to: SocketAddrV4::new(address(16)?, u16_at(header_len + 2)?),
        payload: packet.get(header_len + 8..usize::from(u16_at(2)?))?.to_vec(),
    })
}

/// Sends UDP datagrams in anybody's name.
pub(crate) struct Injector(Socket);

impl Injector {
    pub(crate) fn on(host: &Host) -> anyhow::Result<Self> {
        let open = || Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(IPPROTO_RAW)));
        Ok(Self(host.run(open)??))
    }

    pub(crate) fn send(
        &self,
        from: SocketAddrV4,
        to: SocketAddrV4,
        payload: &[u8],
    ) -> io::Result<()> {
        let packet = udp_packet(from, to, payload);
        match self.0.send_to(&packet, &SockAddr::from(to)) {
            // A full queue loses packets on any host.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOBUFS) => Ok(()),
            other => other.map(drop),
        }
    }
}

/// An IPv4 packet with a UDP datagram; without a UDP checksum, as IPv4 permits.
pub(crate) fn udp_packet(from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> Vec<u8> {
    let udp_len = (8 + payload.len()) as u16;
    let mut packet = vec![0x45, 0];
    packet.extend((20 + udp_len).to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, UDP, 0, 0]);
    packet.extend(from.ip().octets());
    packet.extend(to.ip().octets());
    let sum = checksum::checksum(&packet).to_be_bytes();
    packet[10..12].copy_from_slice(&sum);
    for half in [from.port(), to.port(), udp_len, 0] {
        packet.extend(half.to_be_bytes());
    }
    packet.extend(payload);
    packet
}
