//! The bodies of a hostile peer's datagrams.

use std::net::SocketAddrV4;

use dwell_codec::Compressor;
use dwell_wire::checksum;
use dwell_wire::record::{CODEC_ZSTD, block_record_len};
use dwell_wire::{Block, BodyWriter};

/// The longest body of a sealed datagram that fits an Ethernet's 1500 bytes over IPv4.
pub const BODY_LEN_MAX: usize = 1_450;
const UDP: u8 = 17;
/// A block's length is written in two bytes.
const BLOCK_BYTES_MAX: usize = 65_535;

/// Returns a body of a single control or packet record, or of several: the records that `write`
/// writes, up to `len_max` bytes.
pub fn body(len_max: usize, write: impl FnOnce(&mut BodyWriter<'_>)) -> Vec<u8> {
    let mut bytes = vec![0; len_max];
    let mut writer = BodyWriter::new(&mut bytes);
    write(&mut writer);
    let len = writer.len();
    bytes.truncate(len);
    bytes
}

/// Returns an IPv4 packet with a UDP datagram, without a UDP checksum, as IPv4 permits.
///
/// # Panics
/// If the payload is longer than an IPv4 packet can be.
pub fn udp_packet(from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> Vec<u8> {
    let udp_len = u16::try_from(8 + payload.len()).expect("a payload that IPv4 can carry");
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

/// Compresses many copies of a packet to a block by zstd: returns the block's length before
/// compression, and its bytes after it.
///
/// # Panics
/// If the packets are longer than a block can be.
pub fn repeated(packet: &[u8], times: usize) -> (u16, Vec<u8>) {
    let whole = packet.repeat(times);
    let len = u16::try_from(whole.len()).expect("packets of 65,535 bytes at most");
    let mut out = vec![0; whole.len()];
    let spec = "zstd:19".parse().expect("a codec and its level");
    let mut zstd = Compressor::new(spec, None).expect("zstd is built in");
    let to = zstd.compress(&whole, &mut out).expect("zstd takes any bytes");
    out.truncate(to.expect("a repeated packet becomes smaller"));
    (len, out)
}

/// Returns the body with the highest cost for a relay by its length: as many blocks as there is
/// room for, each of as many packets of 29 bytes as a block can hold. Also returns the number of
/// packets.
pub fn crowd(from: SocketAddrV4, to: SocketAddrV4, len_max: usize) -> (Vec<u8>, usize) {
    let packet = udp_packet(from, to, &[0]);
    blocks_of(&packet, BLOCK_BYTES_MAX / packet.len(), len_max)
}

/// Returns a body of as many blocks as there is room for, each with this many copies of the packet,
/// and the number of packets.
pub fn blocks_of(packet: &[u8], times: usize, len_max: usize) -> (Vec<u8>, usize) {
    let (original_len, data) = repeated(packet, times);
    let block = Block { codec: CODEC_ZSTD, flags: 0, original_len, data: &data };
    let blocks = len_max / block_record_len(data.len());
    let written = body(len_max, |body| {
        (0..blocks).for_each(|_| body.block(&block).expect("there is room for so many blocks"));
    });
    (written, blocks * times)
}

#[cfg(test)]
mod tests {
    use dwell_wire::{Record, Records};

    use super::*;

    #[test]
    fn a_crowd_is_what_it_says() {
        let (from, to) = ("10.3.0.2:9".parse().unwrap(), "10.1.0.2:9".parse().unwrap());
        let (body, packets) = crowd(from, to, BODY_LEN_MAX);
        let blocks = Records::new(&body).filter(|record| matches!(record, Ok(Record::Block(_))));
        let blocks = blocks.count();
        assert_eq!(packets, blocks * (65_535 / 29));
        assert!(packets > 50_000 && body.len() <= BODY_LEN_MAX, "{packets} in {}", body.len());
    }
}
