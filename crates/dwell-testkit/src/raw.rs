//! Raw packets on a link: captures those that pass a host, and sends UDP datagrams with any source
//! address.

use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddrV4};

use rustix::io::Errno;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

pub use crate::hostile::bodies::udp_packet;
use dwell_lab::lab::{Host, LabError};

/// A UDP datagram that passed a host.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its source.
    pub from: SocketAddrV4,
    /// Its destination.
    pub to: SocketAddrV4,
    /// The payload.
    pub payload: Vec<u8>,
}

/// Captures the packets that pass the devices of a host, in both directions.
#[derive(Debug)]
pub struct Sniffer(Socket);

const ETH_P_ALL: u16 = 3;
const UDP: u8 = 17;
const IPPROTO_RAW: i32 = 255;

impl Sniffer {
    /// Begins to capture.
    ///
    /// # Errors
    /// If the socket can't be opened.
    pub fn on(host: &Host) -> Result<Self, LabError> {
        let all = Protocol::from(i32::from(ETH_P_ALL.to_be()));
        let open = || {
            let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(all))?;
            socket.set_nonblocking(true)?;
            Ok::<_, io::Error>(socket)
        };
        let socket = host.run(open)?.map_err(LabError::io("open a packet socket"))?;
        // The system may grant less.
        let _ = socket.set_recv_buffer_size(8 << 20);
        Ok(Self(socket))
    }

    /// Returns the packets since the last call, if there was room to keep them: whole UDP datagrams
    /// over IPv4.
    pub fn seen(&mut self) -> Vec<Seen> {
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

/// Sends UDP datagrams with any source address.
#[derive(Debug)]
pub struct Injector(Socket);

impl Injector {
    /// Opens the socket.
    ///
    /// # Errors
    /// If the socket can't be opened.
    pub fn on(host: &Host) -> Result<Self, LabError> {
        let open = || Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(IPPROTO_RAW)));
        let socket = host.run(open)?.map_err(LabError::io("open a raw socket"))?;
        Ok(Self(socket))
    }

    /// Returns the socket, to send whole IPv4 packets by other calls.
    pub fn socket(&self) -> &Socket {
        &self.0
    }

    /// Sends a datagram; a full queue may lose it.
    ///
    /// # Errors
    /// If it can't be sent at all.
    pub fn send(&self, from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> io::Result<()> {
        let packet = udp_packet(from, to, payload);
        match self.0.send_to(&packet, &SockAddr::from(to)) {
            // A full queue loses packets on any host.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOBUFS) => Ok(()),
            other => other.map(drop),
        }
    }
}
