use proptest::prelude::*;

use super::*;
use crate::ip::tests::{Ext, v4, v6};

fn there_and_back(packets: &[Vec<u8>]) -> Vec<u8> {
    let views: Vec<&[u8]> = packets.iter().map(Vec::as_slice).collect();
    let whole = packets.concat();
    let mut block = vec![0xaa; whole.len() + grown_bytes_max(packets.len())];
    let len = columnar(&views, &mut block).unwrap();
    block.truncate(len);
    let mut short = vec![0; len - 1];
    assert_eq!(columnar(&views, &mut short), None);

    let mut out = vec![0x55; whole.len() + 3];
    let restored = restore(&block, &mut out).unwrap();
    assert_eq!(restored.bytes(), whole.len());
    assert_eq!(restored.packets(&out).collect::<Vec<_>>(), views);
    assert_eq!(out[..whole.len()], whole);
    if !whole.is_empty() {
        assert_eq!(restore(&block, &mut out[..whole.len() - 1]), Err(ColumnarError::Room));
    }
    for len in 0..block.len() {
        assert!(restore(&block[..len], &mut out).is_err());
    }
    block
}

fn tcp(ports: u32, sequence: u32, flags: u8, stamp: Option<u32>, data: &[u8]) -> Vec<u8> {
    let mut segment = [ports, sequence, 77].map(u32::to_be_bytes).concat();
    segment.extend([if stamp.is_some() { 0x80 } else { 0x50 }, flags, 1, 0, 0, 0, 0, 0]);
    if let Some(stamp) = stamp {
        segment.extend(STAMP);
        segment.extend([stamp, 3].map(u32::to_be_bytes).concat());
    }
    [segment, data.to_vec()].concat()
}

fn udp(ports: u32, data: &[u8]) -> Vec<u8> {
    let len = ((8 + data.len()) as u16).to_be_bytes();
    [&ports.to_be_bytes()[..], &len, &[0, 0], data].concat()
}

/// Fills in the correct checksums.
fn summed(mut packet: Vec<u8>) -> Vec<u8> {
    let shape = Shape::of(&packet);
    let all = if shape.version() == V4 { IP_SUM } else { 0 };
    let transport = if shape.transport() == 0 { 0 } else { TRANSPORT_SUM };
    Shape(shape.0 | all | transport).compute(&mut packet);
    packet
}

#[test]
fn a_flow_leaves_little_of_its_headers() {
    let data = [9; 100];
    let flow: Vec<Vec<u8>> = (0..20)
        .map(|n| summed(v4(6, &[], 0x4000, &tcp(7, 1000 + 100 * n, 16, Some(n), &data))))
        .collect();
    let block = there_and_back(&flow);
    let payload = 20 * data.len();
    // 52 bytes of headers each, less two sums and the kinds of the options, and with shape and
    // reference.
    assert!(block.len() <= payload + 20 * (52 - 8 + 2) + 1, "{}", block.len());
    let busy = block[..block.len() - payload].iter().filter(|&&byte| byte != 0).count();
    assert!(busy <= 20 * 4 + 20, "{busy}");
}

#[test]
fn hosts_and_flows_are_found_again() {
    let of = |host: u8, ports: u32| {
        let mut packet = v4(17, &[], 0, &udp(ports, b"x"));
        packet[15] = host;
        summed(packet)
    };
    let packets = [of(1, 5), of(2, 5), of(1, 6), of(1, 5), of(3, 5), vec![1, 2, 3]];
    let block = there_and_back(&packets);
    assert_eq!(block[7..13], [0, 1, 2, 3, 1, 0]);
}

#[test]
fn whatever_is_not_a_whole_packet_is_left_alone() {
    let good = summed(v4(6, &[1; 8], 0, &tcp(1, 2, 3, None, b"data")));
    let mut packets = vec![vec![], vec![0x45], good.clone(), good[..30].to_vec()];
    packets.push([&good[..], &[0; 4]].concat());
    packets.push(v4(6, &[], 0x2000, &tcp(1, 2, 3, None, b"first")));
    packets.push(v4(6, &[], 0x0003, &tcp(1, 2, 3, None, b"later")));
    packets.push(v4(6, &[], 0, &[1; 19]));
    packets.push(v6(&[Ext::Options(0, 0), Ext::Fragment(0x11)], 17, &udp(1, b"x")));
    there_and_back(&packets);
}

#[test]
fn too_many_and_none() {
    let mut out = [0; 4096];
    assert_eq!(columnar(&[], &mut out), None);
    assert_eq!(columnar(&[&[][..]; PACKETS_MAX + 1], &mut out), None);
    assert!(columnar(&[&[][..]; PACKETS_MAX], &mut out).is_some());
    assert_eq!(restore(&[], &mut out), Err(ColumnarError::Truncated));
    assert_eq!(restore(&[0], &mut out), Err(ColumnarError::Count(0)));
    assert_eq!(restore(&[200], &mut out), Err(ColumnarError::Count(200)));
    assert_eq!(restore(&[1, 0x0c | V4, 0], &mut out), Err(ColumnarError::Shape(0x0d)));
    assert_eq!(restore(&[1, V4, 1], &mut out), Err(ColumnarError::Reference));
    assert_eq!(restore(&[1, V4, 0, 0, 19, 0x45], &mut out), Err(ColumnarError::Length));
    assert_eq!(restore(&[1, 0, 0, 0, 1, 7, 7], &mut out), Err(ColumnarError::Rest));
}

fn packet() -> impl Strategy<Value = Vec<u8>> {
    let data = || prop::collection::vec(any::<u8>(), 0..30);
    let options = prop::sample::select(vec![0, 4, 8, 40]);
    let fragment = prop::sample::select(vec![0, 0x4000, 0x4000, 0x2000, 0x0001]);
    let transport = prop_oneof![
        (0u32..4, any::<u32>(), any::<u8>(), prop::option::of(any::<u32>()), data()).prop_map(
            |(ports, sequence, flags, stamp, data)| (6, tcp(ports, sequence, flags, stamp, &data))
        ),
        (0u32..4, data()).prop_map(|(ports, data)| (17, udp(ports, &data))),
        (any::<u8>(), data()),
    ];
    let chain = prop_oneof![
        Just(vec![]),
        Just(vec![Ext::Options(0, 1)]),
        Just(vec![Ext::Fragment(9), Ext::Auth]),
    ];
    let ip = (transport, options, fragment, chain, any::<bool>(), any::<bool>()).prop_map(
        |((protocol, segment), options, fragment, chain, is_v4, is_summed)| {
            let packet = if is_v4 {
                v4(protocol, &vec![1; options], fragment, &segment)
            } else {
                v6(&chain, protocol, &segment)
            };
            if is_summed { summed(packet) } else { packet }
        },
    );
    // Some with a byte changed, some cut.
    let changed = (ip, any::<prop::sample::Index>(), any::<u8>(), 0u8..8).prop_map(
        |(mut packet, at, byte, what)| {
            let at = at.index(packet.len());
            match what {
                0 => packet.truncate(at),
                1 => packet[at] = byte,
                _ => {}
            }
            packet
        },
    );
    prop_oneof![9 => changed, 1 => data()]
}

proptest! {
    #[test]
    fn everything_comes_back(packets in prop::collection::vec(packet(), 1..12)) {
        there_and_back(&packets);
    }

    #[test]
    fn damage_is_refused_or_bounded(
        packets in prop::collection::vec(packet(), 1..8),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut block = there_and_back(&packets);
        for (at, byte) in changes {
            let at = at.index(block.len());
            block[at] = byte;
        }
        let mut out = [0; 2048];
        if let Ok(restored) = restore(&block, &mut out) {
            prop_assert!(restored.bytes() <= out.len());
        }
    }

    #[test]
    fn any_bytes_are_taken(count in 0u8..6, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut out = [0; 2048];
        let _ = restore(&[&[count][..], &bytes].concat(), &mut out);
    }
}
