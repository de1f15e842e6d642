use std::io::Write as _;

use bzip2::write::BzEncoder;
use flate2::Compression;
use flate2::write::GzEncoder;
use lzma_rust2::{XzOptions, XzWriter};
use proptest::prelude::*;

use super::*;

/// An IPv4 packet with UDP, without checksums.
pub(crate) fn udp(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    let udp_len = (8 + payload.len()) as u16;
    let mut packet = vec![0x45, 0];
    packet.extend((20 + udp_len).to_be_bytes());
    packet.extend([0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    [source, destination, udp_len, 0].iter().for_each(|word| packet.extend(word.to_be_bytes()));
    packet.extend(payload);
    packet
}

/// A packet that was or should be read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Owned {
    pub(crate) timestamp_ns: Option<u64>,
    pub(crate) link: u16,
    pub(crate) data: Vec<u8>,
    pub(crate) wire_len: u32,
}

pub(crate) fn owned(timestamp_ns: u64, data: &[u8]) -> Owned {
    let wire_len = data.len() as u32;
    Owned { timestamp_ns: Some(timestamp_ns), link: 101, data: data.to_vec(), wire_len }
}

/// Reads all packets, and the damage that ended the capture.
pub(crate) fn read(bytes: &[u8]) -> Result<(Vec<Owned>, Option<Trouble>), OpenError> {
    let mut capture = Capture::open(Halting(bytes))?;
    let mut packets = Vec::new();
    while let Some(packet) = capture.next_packet() {
        packets.push(Owned {
            timestamp_ns: packet.timestamp_ns,
            link: packet.link.0,
            data: packet.data.to_vec(),
            wire_len: packet.wire_len,
        });
    }
    assert!(capture.next_packet().is_none());
    Ok((packets, capture.trouble().cloned()))
}

/// Gives at most 7 bytes at once, so that every field is torn somewhere.
struct Halting<'a>(&'a [u8]);

impl Read for Halting<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.0.len().min(buffer.len()).min(7);
        buffer[..len].copy_from_slice(&self.0[..len]);
        self.0 = &self.0[len..];
        Ok(len)
    }
}

fn u16s(order: Order, value: u16) -> [u8; 2] {
    if order == Order::Big { value.to_be_bytes() } else { value.to_le_bytes() }
}

fn u32s(order: Order, value: u32) -> [u8; 4] {
    if order == Order::Big { value.to_be_bytes() } else { value.to_le_bytes() }
}

/// A capture in pcap.
fn pcap_in(order: Order, magic: u32, packets: &[Owned]) -> Vec<u8> {
    let fraction_ns = if magic == 0xa1b2_3c4d { 1 } else { 1000 };
    let mut out = u32s(order, magic).to_vec();
    out.extend([u16s(order, 2), u16s(order, 4)].concat());
    let link = packets.first().map_or(101, |packet| u32::from(packet.link));
    out.extend([[0; 4], [0; 4], u32s(order, 65_535), u32s(order, link)].concat());
    for packet in packets {
        let time = packet.timestamp_ns.unwrap();
        let lengths = [packet.data.len() as u32, packet.wire_len];
        out.extend(u32s(order, (time / 1_000_000_000) as u32));
        out.extend(u32s(order, (time % 1_000_000_000 / fraction_ns) as u32));
        lengths.iter().for_each(|&len| out.extend(u32s(order, len)));
        if magic == 0xa1b2_cd34 {
            out.extend([9; 8]);
        }
        out.extend(&packet.data);
    }
    out
}

pub(crate) fn pcap(packets: &[Owned]) -> Vec<u8> {
    pcap_in(Order::Little, 0xa1b2_3c4d, packets)
}

fn block(order: Order, kind: u32, body: &[u8]) -> Vec<u8> {
    let padded = body.len().next_multiple_of(4);
    let len = u32s(order, padded as u32 + 12);
    let padding = vec![0; padded - body.len()];
    [&u32s(order, kind)[..], &len, body, &padding, &len].concat()
}

fn section(order: Order) -> Vec<u8> {
    let version = [u16s(order, 1), u16s(order, 0)].concat();
    block(order, 0x0a0d_0d0a, &[&u32s(order, 0x1a2b_3c4d)[..], &version, &[0xff; 8]].concat())
}

fn interface(order: Order, link: u16, snap_len: u32, options: &[(u16, &[u8])]) -> Vec<u8> {
    let mut body = [&u16s(order, link)[..], &[0; 2], &u32s(order, snap_len)].concat();
    for (code, value) in options {
        body.extend([u16s(order, *code), u16s(order, value.len() as u16)].concat());
        body.extend(*value);
        body.extend(vec![0; value.len().next_multiple_of(4) - value.len()]);
    }
    block(order, 1, &body)
}

fn enhanced(order: Order, interface: u32, ticks: u64, data: &[u8], wire_len: u32) -> Vec<u8> {
    let fields = [interface, (ticks >> 32) as u32, ticks as u32, data.len() as u32, wire_len];
    let mut body: Vec<u8> = fields.iter().flat_map(|&field| u32s(order, field)).collect();
    body.extend(data);
    block(order, 6, &body)
}

const MICRO: u64 = 1000;
const TIME: u64 = 1_700_000_000_123_456_000;

#[test]
fn pcap_in_both_orders_and_all_variants() {
    let packets = [owned(TIME, &udp(1, 2, b"abc")), owned(TIME + MICRO, &[]), owned(TIME, &[1; 9])];
    for order in [Order::Big, Order::Little] {
        for magic in [0xa1b2_c3d4, 0xa1b2_3c4d, 0xa1b2_cd34] {
            let bytes = pcap_in(order, magic, &packets);
            assert_eq!(read(&bytes).unwrap(), (packets.to_vec(), None), "{order:?} {magic:x}");
        }
    }
}

#[test]
fn old_pcap_has_its_lengths_the_other_way_round() {
    let mut packet = owned(TIME, &[1; 9]);
    packet.wire_len = 99;
    let mut bytes = pcap(&[packet.clone()]);
    bytes[6] = 3;
    assert_eq!(read(&bytes).unwrap().0, [packet.clone()]);
    bytes[6] = 2;
    bytes.splice(32..40, [99u8, 0, 0, 0, 9, 0, 0, 0]);
    assert_eq!(read(&bytes).unwrap().0, [packet]);
}

#[test]
fn pcapng_with_several_interfaces_sections_and_orders() {
    let mut bytes = Vec::new();
    for order in [Order::Big, Order::Little] {
        let offset = if order == Order::Big { 3i64.to_be_bytes() } else { 3i64.to_le_bytes() };
        bytes.extend(section(order));
        bytes.extend(interface(order, 1, 0, &[]));
        bytes.extend(interface(order, 101, 4, &[(2, b"eth0\0"), (9, &[9]), (14, &offset)]));
        bytes.extend(interface(order, 113, 0, &[(9, &[0x80 | 20])]));
        bytes.extend(block(order, 5, &[1; 700_000]));
        bytes.extend(enhanced(order, 0, 5, b"12345", 5));
        bytes.extend(enhanced(order, 1, 5, b"1234", 70));
        bytes.extend(enhanced(order, 2, 3 << 19, b"", 5));
        bytes.extend(block(order, 3, &[&u32s(order, 3)[..], b"abc"].concat()));
        let old: Vec<u8> = [0u16, 77].iter().flat_map(|&word| u16s(order, word)).collect();
        let rest: Vec<u8> = [0, 8, 2, 2].iter().flat_map(|&word| u32s(order, word)).collect();
        bytes.extend(block(order, 2, &[&old[..], &rest, b"xy"].concat()));
    }
    let (packets, trouble) = read(&bytes).unwrap();
    assert_eq!(trouble, None);
    let expected = [
        (Some(5000), 1, &b"12345"[..], 5),
        (Some(3_000_000_005), 101, b"1234", 70),
        (Some(1_500_000_000), 113, b"", 5),
        (None, 1, b"abc", 3),
        (Some(8000), 1, b"xy", 2),
    ];
    let expected = expected.map(|(timestamp_ns, link, data, wire_len)| Owned {
        timestamp_ns,
        link,
        data: data.to_vec(),
        wire_len,
    });
    assert_eq!(packets, [expected.clone(), expected].concat());
}

#[test]
fn a_simple_packet_ends_at_the_interfaces_limit() {
    let order = Order::Little;
    let bytes = [
        section(order),
        interface(order, 101, 4, &[]),
        block(order, 3, &[&u32s(order, 1000)[..], b"abcd"].concat()),
    ];
    let (packets, trouble) = read(&bytes.concat()).unwrap();
    assert_eq!(
        (packets[0].data.as_slice(), packets[0].wire_len, trouble),
        (&b"abcd"[..], 1000, None)
    );
}

#[test]
fn strange_clocks() {
    let order = Order::Little;
    let time = |resolution: u8, ticks| {
        let bytes = [
            section(order),
            interface(order, 1, 0, &[(9, &[resolution])]),
            enhanced(order, 0, ticks, b"", 0),
        ];
        read(&bytes.concat()).unwrap().0[0].timestamp_ns
    };
    assert_eq!(time(0, 7), Some(7_000_000_000));
    assert_eq!(time(12, 7_000), Some(7));
    assert_eq!(time(0x80, 2), Some(2_000_000_000));
    assert_eq!((time(0, u64::MAX), time(127, 1), time(0xff, 1)), (None, None, Some(0)));
}

#[test]
fn packed_captures() {
    let packets: Vec<Owned> =
        (0..100).map(|n| owned(TIME + n, &udp(n as u16, 2, &[3; 50]))).collect();
    let plain = pcap(&packets);
    let mut gzip = Vec::new();
    for half in [&plain[..1000], &plain[1000..]] {
        let mut encoder = GzEncoder::new(&mut gzip, Compression::fast());
        encoder.write_all(half).unwrap();
    }
    let mut zstd = Vec::new();
    for half in [&plain[..1000], &plain[1000..]] {
        let mut frame = Vec::with_capacity(20_000);
        zstd_safe::compress(&mut frame, half, 3).unwrap();
        zstd.extend(frame);
    }
    let mut bzip2 = Vec::new();
    let mut xz = Vec::new();
    for half in [&plain[..1000], &plain[1000..]] {
        let mut encoder = BzEncoder::new(&mut bzip2, bzip2::Compression::fast());
        encoder.write_all(half).unwrap();
        drop(encoder);
        xz.extend(packed_with_xz(half));
    }
    for packed in [gzip, zstd, bzip2, xz] {
        assert_eq!(read(&packed).unwrap(), (packets.clone(), None));
        let (some, trouble) = read(&packed[..packed.len() - 5]).unwrap();
        assert!(packets.starts_with(&some) && !some.is_empty());
        assert!(matches!(trouble.unwrap().what, Damage::Io(_)));
    }
}

fn packed_with_xz(bytes: &[u8]) -> Vec<u8> {
    let mut writer = XzWriter::new(Vec::new(), XzOptions::with_preset(1)).unwrap();
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

/// The header of a block of xz may ask for 4 GiB: that is refused before any of it is taken.
#[test]
fn xz_with_a_larger_memory_than_is_given_is_refused() {
    let plain = pcap(&[owned(TIME, &udp(1, 2, &[3; 50]))]);
    let mut packed = packed_with_xz(&plain);
    // Behind the stream's header: length and flags, the filter's id and length, the dictionary.
    assert_eq!(packed[14..16], [0x21, 1]);
    packed[16] = 40;
    let len = (usize::from(packed[12]) + 1) * 4;
    let sum = crc32(&packed[12..12 + len - 4]).to_le_bytes();
    packed[12 + len - 4..12 + len].copy_from_slice(&sum);
    let error = read(&packed).unwrap_err().to_string();
    assert!(error.contains("128 MiB") && error.contains("xz -dc"), "{error}");
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, &byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| sum >> 1 ^ (0xedb8_8320 * (sum & 1)))
    })
}

#[test]
fn enhanced_packets_have_their_direction() {
    for order in [Order::Little, Order::Big] {
        let with = |options: &[u8]| {
            let packet = enhanced(order, 0, 0, b"abcde", 5);
            let mut body = packet[8..packet.len() - 4].to_vec();
            body.extend(options);
            let bytes = [section(order), interface(order, 1, 0, &[]), block(order, 6, &body)];
            let bytes = bytes.concat();
            let mut capture = Capture::open(&bytes[..]).unwrap();
            let packet = capture.next_packet().unwrap();
            assert_eq!(packet.data, b"abcde");
            packet.mark
        };
        let option = |code: u16, value: &[u8]| {
            let head = [u16s(order, code), u16s(order, value.len() as u16)].concat();
            let padding = vec![0; value.len().next_multiple_of(4) - value.len()];
            [&head[..], value, &padding].concat()
        };
        let flags = |bits: u32| option(2, &u32s(order, bits));
        assert_eq!(with(&flags(1)), Some(Mark::In));
        assert_eq!(
            with(&[option(1, b"a note"), flags(2 | 0x100), option(0, b"")].concat()),
            Some(Mark::Out)
        );
        assert_eq!((with(&[]), with(&flags(0)), with(&flags(3))), (None, None, None));
        // Options that lie about their length, and some behind the end.
        assert_eq!(with(&[option(0, b""), flags(1)].concat()), None);
        assert_eq!(with(&[u16s(order, 9), u16s(order, 999)].concat().repeat(2)), None);
    }
}

#[test]
fn what_is_no_capture() {
    let error = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
    assert_eq!(error(b""), "it is empty");
    assert_eq!(error(&[0xd4, 0xc3]), "it ends within its header");
    assert_eq!(error(&[0xd4, 0xc3, 0xb2, 0xa1]), "it ends within its header");
    assert!(error(b"hello world").contains("it is no capture"));
    assert!(error(b"PK\x03\x04 and the rest").contains("`unzip`"));
    assert!(error(b"snoop\0\0\0 and the rest").contains("editcap"));
    assert!(
        error(&[&[0xd4, 0xc3, 0xb2, 0xa1, 9, 0][..], &[0; 30]].concat()).contains("version 9.0")
    );
}

#[test]
fn damage_is_reported_with_its_place() {
    let packet = owned(TIME, &[1; 100]);
    let good = pcap(&[packet.clone(), packet.clone(), packet.clone()]);
    let (some, trouble) = read(&good[..300]).unwrap();
    assert_eq!(some.len(), 2);
    assert_eq!(trouble.unwrap(), Trouble { at_byte: 24 + 2 * 116, what: Damage::Cut });
    let mut long = good.clone();
    long[24 + 116 + 11] = 0x7f;
    let (some, trouble) = read(&long).unwrap();
    assert_eq!(
        (some.len(), trouble.unwrap().to_string().starts_with("at byte 140: a packet claims")),
        (1, true)
    );

    let order = Order::Big;
    let head = [section(order), interface(order, 1, 0, &[])].concat();
    let trouble_of = |block: &[u8]| {
        let trouble = read(&[&head, block].concat()).unwrap().1.unwrap();
        assert_eq!(trouble.at_byte, head.len() as u64);
        trouble.what
    };
    assert_eq!(trouble_of(&enhanced(order, 1, 0, b"", 0)), Damage::Interface(1));
    let mut bad = enhanced(order, 0, 0, b"1234", 4);
    *bad.last_mut().unwrap() = 0;
    assert_eq!(trouble_of(&bad), Damage::BlockLength(36));
    let mut bad = enhanced(order, 0, 0, b"1234", 4);
    bad[23] = 9;
    assert_eq!(trouble_of(&bad), Damage::BlockLength(36));
    assert_eq!(trouble_of(&[0, 0, 0, 9, 0, 0, 0, 4]), Damage::BlockLength(4));
    assert_eq!(trouble_of(&[0, 0, 0, 9, 0, 0, 0, 44]), Damage::Cut);
}

/// Captures in either format, the bytes of both, and what is in them.
fn captures() -> impl Strategy<Value = (Vec<u8>, Vec<Owned>)> {
    let data = prop::collection::vec(any::<u8>(), 0..60);
    let packets = prop::collection::vec((0u64..1 << 60, data), 0..12);
    (packets, any::<bool>()).prop_map(|(packets, is_pcap)| {
        let cut_to_micro =
            |(time, data): (u64, Vec<u8>)| owned(time % (1 << 62) / MICRO * MICRO, &data);
        let packets: Vec<Owned> = packets.into_iter().map(cut_to_micro).collect();
        let bytes = if is_pcap {
            pcap_in(Order::Big, 0xa1b2_c3d4, &packets)
        } else {
            let order = Order::Big;
            let head = [section(order), interface(order, 101, 0, &[])].concat();
            let blocks = packets.iter().flat_map(|packet| {
                enhanced(
                    order,
                    0,
                    packet.timestamp_ns.unwrap() / MICRO,
                    &packet.data,
                    packet.wire_len,
                )
            });
            head.into_iter().chain(blocks).collect()
        };
        (bytes, packets)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn what_was_written_is_read((bytes, packets) in captures()) {
        prop_assert_eq!(read(&bytes).unwrap(), (packets, None));
    }

    #[test]
    fn a_cut_capture_gives_what_is_before_the_cut((bytes, packets) in captures(), at in any::<prop::sample::Index>()) {
        let len = at.index(bytes.len());
        if let Ok((some, trouble)) = read(&bytes[..len]) {
            prop_assert!(packets.starts_with(&some));
            prop_assert!(some.len() < packets.len() || packets.is_empty() || trouble.is_some());
        }
    }

    #[test]
    fn damage_never_panics_and_keeps_what_is_before_it(
        (mut bytes, packets) in captures(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok((some, _)) = read(&bytes) {
            // Packets that ended before the damaged byte are unchanged.
            let mut capture = Capture::open(&bytes[..]).unwrap();
            for (read, written) in some.iter().zip(&packets) {
                capture.next_packet().unwrap();
                if capture.position() as usize > at {
                    break;
                }
                prop_assert_eq!(read, written);
            }
        }
    }

    #[test]
    fn damage_of_packed_captures_never_panics(
        (bytes, packets) in captures(),
        is_xz: bool,
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        len in any::<prop::sample::Index>(),
    ) {
        let mut packed = if is_xz {
            packed_with_xz(&bytes)
        } else {
            let mut encoder = BzEncoder::new(Vec::new(), bzip2::Compression::fast());
            encoder.write_all(&bytes).unwrap();
            encoder.finish().unwrap()
        };
        prop_assert_eq!(read(&packed).unwrap(), (packets, None));
        let at = at.index(packed.len());
        packed[at] = byte;
        let _ = read(&packed);
        packed.truncate(len.index(packed.len()));
        let _ = read(&packed);
    }

    #[test]
    fn any_bytes_are_taken(magic in 0usize..6, bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let head: &[u8] = match magic {
            0 => &[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0],
            1 => &[0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0],
            2 => &[0x28, 0xb5, 0x2f, 0xfd],
            3 => b"BZh91AY&SY",
            4 => b"\xfd7zXZ\0\0\x04\xe6\xd6\xb4\x46",
            _ => &[0x1f, 0x8b, 8, 0],
        };
        let _ = read(&[head, &bytes].concat());
    }
}
