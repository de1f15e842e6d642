//! Pings: whether an address answers, and packets of which length get there and back.

use std::io::{self, Read as _};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use rustix::rand::{GetRandomFlags, getrandom};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

const HEADER_LEN: usize = 8;
/// What distinguishes our echoes from those of others.
const TOKEN_LEN: usize = 16;
/// The most that an IP packet can have.
const PACKET_LEN_MAX: usize = 65_535;

/// Sends an echo request of `packet_len` bytes, IP header included, and waits for its reply at most for
/// `patience`. Returns the round trip; none if there was no reply.
///
/// Whoever may not open raw sockets needs `net.ipv4.ping_group_range`.
///
/// # Errors
/// If the system permits no such socket, has no route, or the packet is too long for it.
pub fn echo(to: IpAddr, packet_len: u16, patience: Duration) -> io::Result<Option<Duration>> {
    let mut token = [0; TOKEN_LEN];
    getrandom(&mut token, GetRandomFlags::empty())?;
    let socket = open(to)?;
    let started = Instant::now();
    let request = request(to, usize::from(packet_len), token);
    socket.send_to(&request, &SockAddr::from(SocketAddr::new(to, 0)))?;
    let mut buffer = vec![0; PACKET_LEN_MAX];
    loop {
        let left = patience.saturating_sub(started.elapsed());
        if left.is_zero() {
            return Ok(None);
        }
        socket.set_read_timeout(Some(left))?;
        let len = match (&socket).read(&mut buffer) {
            Ok(len) => len,
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => return Ok(None),
                io::ErrorKind::Interrupted => continue,
                _ => return Err(error),
            },
        };
        if is_reply(&buffer[..len], to, &request) {
            return Ok(Some(started.elapsed()));
        }
    }
}

fn open(to: IpAddr) -> io::Result<Socket> {
    let (domain, protocol) = match to {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
    };
    Socket::new(domain, Type::DGRAM, Some(protocol))
        .or_else(|_| Socket::new(domain, Type::RAW, Some(protocol)))
}

fn request(to: IpAddr, packet_len: usize, token: [u8; TOKEN_LEN]) -> Vec<u8> {
    let (kind, ip_len) = match to {
        IpAddr::V4(_) => (8, 20),
        IpAddr::V6(_) => (128, 40),
    };
    let len = packet_len.saturating_sub(ip_len).max(HEADER_LEN + TOKEN_LEN);
    let mut message = vec![0; len];
    message[0] = kind;
    // The identifier, which the kernel replaces where it sorts replies itself.
    message[4..6].copy_from_slice(&token[..2]);
    message[HEADER_LEN..HEADER_LEN + TOKEN_LEN].copy_from_slice(&token);
    if to.is_ipv4() {
        let sum = checksum(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    message
}

fn checksum(message: &[u8]) -> u16 {
    let words = message.chunks(2);
    let mut sum: u32 =
        words.map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Raw sockets see the IP header of IPv4, and what is for others.
fn is_reply(received: &[u8], to: IpAddr, request: &[u8]) -> bool {
    let is_header = |byte: &u8| to.is_ipv4() && byte >> 4 == 4;
    let header_len = match received.first().filter(|byte| is_header(byte)) {
        Some(byte) => usize::from(byte & 15) * 4,
        None => 0,
    };
    let reply_kind = if to.is_ipv4() { 0 } else { 129 };
    received.get(header_len..).is_some_and(|message| {
        message.first() == Some(&reply_kind)
            && message.get(HEADER_LEN..) == request.get(HEADER_LEN..)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_as_long_as_asked_and_its_reply_is_known() {
        for (to, kind, len) in [("192.0.2.1", 0, 1400), ("2001:db8::1", 129, 1380)] {
            let to: IpAddr = to.parse().unwrap();
            let request = request(to, 1420, [7; TOKEN_LEN]);
            assert_eq!(request.len(), len);
            if to.is_ipv4() {
                assert_eq!(checksum(&request), 0);
            }
            let mut reply = request.clone();
            assert!(!is_reply(&reply, to, &request), "its own request");
            reply[0] = kind;
            reply[5] ^= 1; // the kernel's own identifier
            assert!(is_reply(&reply, to, &request));
            let raw = [vec![0x45; 20], reply.clone()].concat();
            assert_eq!(is_reply(&raw, to, &request), to.is_ipv4());
            reply[20] ^= 1;
            assert!(!is_reply(&reply, to, &request), "of somebody else");
            assert!(!is_reply(&[], to, &request));
            assert!(!is_reply(&[0x4f], to, &request));
        }
    }
}
