//! The headers of simulated packets.

use super::{Seen, What};
use crate::tcp::Ack;

const UDP: u8 = 17;
const TCP: u8 = 6;
/// Relays' own, for what is compressed.
const RELAY_PORT: u16 = 7733;
const SERVICE_PORT: u16 = 5001;
const FIN_SYN: u8 = 2;
const ACK: u8 = 16;
const ECN_ECHO: u8 = 64;

/// Puts the headers of a packet into `frame`; `data_bytes` is what a segment of its flow carries.
pub(super) fn write(seen: &Seen, data_bytes: u32, frame: &mut Vec<u8>) {
    frame.clear();
    let (host, port) = (seen.flow as u16, 10_000 + (seen.flow % 50_000) as u16);
    let there = !matches!(seen.what, What::Acknowledgement(_));
    let (ecn, protocol) = match seen.what {
        _ if seen.is_compressed => (0, UDP),
        What::Segment { is_marked: true, .. } => (3, TCP),
        What::Segment { takes_mark: true, .. } => (2, TCP),
        What::Datagram => (0, UDP),
        _ => (0, TCP),
    };
    ip(frame, (ecn, protocol), seen.bytes, (host, there));
    let at = frame.len();
    match seen.what {
        _ if seen.is_compressed => udp(frame, (RELAY_PORT, RELAY_PORT)),
        What::Datagram => udp(frame, (port, SERVICE_PORT)),
        What::Segment { number, .. } => {
            let flags = if number == 0 { FIN_SYN } else { ACK };
            let seq = sequence(number, data_bytes);
            tcp(frame, (port, SERVICE_PORT), (seq, u32::from(number > 0)), (flags, u16::MAX), &[]);
        }
        What::Acknowledgement(ack) => {
            let flags = if ack.cumulative == 1 { ACK | FIN_SYN } else { ACK };
            let flags = flags | if ack.ecn_echo { ECN_ECHO } else { 0 };
            let (seq, options) = (u32::from(ack.cumulative > 1), sack(&ack, data_bytes));
            let acknowledged = sequence(ack.cumulative, data_bytes);
            let room = u64::from(ack.window) * u64::from(data_bytes);
            let window = u16::try_from(room).unwrap_or(u16::MAX);
            tcp(frame, (SERVICE_PORT, port), (seq, acknowledged), (flags, window), &options);
        }
    }
    // Lengths are those on the link, but for a frame that is shorter than its headers.
    let total = (seen.bytes as usize).max(frame.len()).min(usize::from(u16::MAX)) as u16;
    frame[2..4].copy_from_slice(&total.to_be_bytes());
    if protocol == UDP {
        frame[at + 4..at + 6].copy_from_slice(&(total - at as u16).to_be_bytes());
    }
    let sum = checksum(&frame[..at]);
    frame[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// The number of a segment's first byte: the SYN has 0, the first segment with data 1.
fn sequence(number: u64, data_bytes: u32) -> u32 {
    match number {
        0 => 0,
        n => 1u32.wrapping_add(((n - 1) as u32).wrapping_mul(data_bytes)),
    }
}

fn ip(frame: &mut Vec<u8>, (ecn, protocol): (u8, u8), _bytes: u32, (host, there): (u16, bool)) {
    frame.extend([0x45, ecn, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0]);
    let [high, low] = host.to_be_bytes();
    let (near, far) = ([10, 1, high, low], [10, 2, high, low]);
    let (from, to) = if there { (near, far) } else { (far, near) };
    frame.extend(from);
    frame.extend(to);
}

fn udp(frame: &mut Vec<u8>, (from, to): (u16, u16)) {
    frame.extend(from.to_be_bytes());
    frame.extend(to.to_be_bytes());
    frame.extend([0; 4]);
}

fn tcp(
    frame: &mut Vec<u8>,
    (from, to): (u16, u16),
    (seq, ack): (u32, u32),
    (flags, window): (u8, u16),
    options: &[u8],
) {
    frame.extend(from.to_be_bytes());
    frame.extend(to.to_be_bytes());
    frame.extend(seq.to_be_bytes());
    frame.extend(ack.to_be_bytes());
    frame.extend([((20 + options.len()) as u8 / 4) << 4, flags]);
    frame.extend(window.to_be_bytes());
    frame.extend([0; 4]);
    frame.extend_from_slice(options);
}

/// The option with the blocks that have arrived (RFC 2018).
fn sack(ack: &Ack, data_bytes: u32) -> Vec<u8> {
    let blocks = ack.blocks();
    if blocks.len() == 0 {
        return Vec::new();
    }
    let mut out = vec![1, 1, 5, 2 + 8 * blocks.len() as u8];
    for block in blocks {
        out.extend(sequence(block.start, data_bytes).to_be_bytes());
        out.extend(sequence(block.end, data_bytes).to_be_bytes());
    }
    out
}

/// The check sum of an IP header.
fn checksum(header: &[u8]) -> u16 {
    let words =
        header.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
