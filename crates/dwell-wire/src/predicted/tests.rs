use proptest::prelude::*;

use super::*;
use crate::columnar::{IP_SUM, TRANSPORT_SUM};
use crate::ip::tests::{Ext, v4, v6};

/// Both ends of a context.
#[derive(Default)]
struct Pair(HeaderPredictor, HeaderRestorer);

impl Pair {
    /// Sends a batch there and returns what it became.
    fn send(&mut self, packets: &[Vec<u8>]) -> Vec<u8> {
        let mut batch = Vec::new();
        for packet in packets {
            let before = batch.len();
            self.0.write(packet, &mut batch);
            assert!(batch.len() - before <= packet.len() + GROWN_BYTES_MAX, "{packet:x?}");
        }
        let whole = packets.concat();
        let mut out = vec![0x55; whole.len() + 3];
        let mut cut = self.1.clone();
        let short = &batch[..batch.len() - 1];
        assert!(cut.restore(short, &mut out).is_err());
        let restored = self.1.restore(&batch, &mut out).unwrap();
        assert_eq!(restored.packets(&out).collect::<Vec<_>>(), packets);
        assert_eq!(restored.bytes(), whole.len());
        batch
    }
}

fn tcp(ports: u32, numbers: [u32; 2], flags: u8, stamp: Option<u32>, data: &[u8]) -> Vec<u8> {
    let mut segment = [ports, numbers[0], numbers[1]].map(u32::to_be_bytes).concat();
    segment.extend([if stamp.is_some() { 0x80 } else { 0x50 }, flags, 1, 0, 0, 0, 0, 0]);
    if let Some(stamp) = stamp {
        segment.extend([1, 1, 8, 10]);
        segment.extend([stamp, 3].map(u32::to_be_bytes).concat());
    }
    [segment, data.to_vec()].concat()
}

fn udp(ports: u32, data: &[u8]) -> Vec<u8> {
    let len = ((8 + data.len()) as u16).to_be_bytes();
    [&ports.to_be_bytes()[..], &len, &[0, 0], data].concat()
}

/// Fills in the correct checksums, and the id of IPv4.
fn summed(mut packet: Vec<u8>, id: u16) -> Vec<u8> {
    let shape = Shape::of(&packet);
    if shape.version() == V4 {
        packet[4..6].copy_from_slice(&id.to_be_bytes());
    }
    let all = if shape.version() == V4 { IP_SUM } else { 0 };
    let transport = if shape.transport() == 0 { 0 } else { TRANSPORT_SUM };
    let summed = Shape::new(shape.bits() | all | transport).unwrap();
    summed.compute(&mut packet);
    packet
}

#[test]
fn packets_of_a_flow_leave_five_bytes_of_their_headers() {
    let mut pair = Pair::default();
    let segment = |n: u32| tcp(7, [1000 + 4 * n, 70], 16, None, &n.to_be_bytes());
    for n in 0..100 {
        let packet = summed(v4(6, &[], 0x4000, &segment(n)), 100 + n as u16);
        let batch = pair.send(&[packet]);
        // Shape, flow, and a mask of two bytes in which nothing is set.
        assert!(n < 2 || batch[..4] == [0x35, 0, 0, 0] && batch.len() == 8, "{n}: {batch:x?}");
    }
    let datagram = |n: u8| summed(v6(&[], 17, &udp(9, &[n])), 0);
    for n in 0..100 {
        let batch = pair.send(&[datagram(n)]);
        assert!(n < 2 || batch.len() == 4, "{n}: {batch:x?}");
    }
}

#[test]
fn flows_take_turns_and_many_do_not_drive_out_those_that_are_in_use() {
    let mut pair = Pair::default();
    let question = |n: u32| summed(v4(17, &[], 0, &udp(n << 16 | 53, &[1])), 0);
    let steady =
        |n: u32| summed(v4(6, &[], 0x4000, &tcp(7, [n, 70], 16, None, &[3])), 100 + n as u16);
    for n in 0..300 {
        pair.send(&[question(1_000 + n)]);
        let batch = pair.send(&[steady(n)]);
        assert!(n < 2 || batch.len() == 5, "{n}: {batch:x?}");
    }
    // Two of the same hosts in turns have places of their own soon.
    for n in 0..20 {
        let batch = pair.send(&[question(1 + n % 2)]);
        assert!(n < 6 || batch.len() == 4, "{n}: {batch:x?}");
    }
    // As many new connections as there are places, and more.
    for n in 0..200 {
        pair.send(&[summed(v4(6, &[], 0, &tcp(n << 16 | 80, [n, n], 2, None, &[])), 0)]);
        let batch = pair.send(&[steady(300 + n)]);
        assert_eq!(batch.len(), 5);
    }
}

#[test]
fn a_wrong_checksum_stays_wrong() {
    let mut pair = Pair::default();
    let right = summed(v4(17, &[], 0, &udp(9, &[1, 2, 3])), 5);
    for at in [10, 11, 26, 27] {
        let mut wrong = right.clone();
        wrong[at] ^= 0x40;
        let batch = pair.send(&[right.clone(), wrong, right.clone()]);
        assert!(batch.len() > 14);
    }
}

#[test]
fn after_clear_both_ends_begin_again() {
    let mut pair = Pair::default();
    let packet = summed(v4(17, &[], 0, &udp(9, &[1, 2, 3])), 5);
    let first = pair.send(std::slice::from_ref(&packet));
    assert_ne!(pair.send(std::slice::from_ref(&packet)), first);
    pair.0.clear();
    pair.1.clear();
    assert_eq!(pair.send(&[packet]), first);
}

#[test]
fn what_cannot_be_is_refused() {
    let restore = |bytes: &[u8]| HeaderRestorer::default().restore(bytes, &mut [0; 200]).err();
    assert_eq!(restore(&[]), None);
    assert_eq!(restore(&[0, 0, 1, 9]), None);
    assert_eq!(restore(&[0, 0, 2, 9]), Some(PredictedError::Truncated));
    assert_eq!(restore(&[0, 0, 201]), Some(PredictedError::Truncated));
    assert_eq!(restore(&[&[0, 0, 201][..], &[0; 201]].concat()), Some(PredictedError::Room));
    assert_eq!(restore(&[3]), Some(PredictedError::Shape(3)));
    assert_eq!(restore(&[0x39, 0x40]), Some(PredictedError::Flow(0x40)));
    assert_eq!(restore(&[0x39, 0x80, 0x40]), Some(PredictedError::Flow(0x40)));
    // A field that UDP or IPv6 doesn't have, a key with too many parts.
    assert_eq!(restore(&[0x39, 0, 0x80]), Some(PredictedError::Field));
    assert_eq!(restore(&[0x2a, 0, 0x02]), Some(PredictedError::Field));
    assert_eq!(restore(&[0x39, 0, 0x40, 0x10]), Some(PredictedError::Field));
    // A difference of 33 bits, and one that does not end.
    let long = |last: &[u8]| [&[0x39, 0, 0x01, 0xff, 0xff, 0xff, 0xff][..], last].concat();
    assert_eq!(restore(&long(&[0x1f])), Some(PredictedError::Field));
    assert_eq!(restore(&long(&[0xff, 0])), Some(PredictedError::Field));
    // Shorter than its headers.
    assert_eq!(restore(&[0x39, 0, 0x01, 27 << 1]), Some(PredictedError::Length));
    assert_eq!(restore(&[0; 3 * 128]), None);
    assert_eq!(restore(&[0; 3 * 129]), Some(PredictedError::Count));
}

fn any_packet() -> impl Strategy<Value = Vec<u8>> {
    let data = || prop::collection::vec(0u8..3, 0..20);
    let tcp_segment = || {
        ((0u32..3, 0u32..1000, any::<u32>()), any::<u8>(), prop::option::of(0u32..9), data())
            .prop_map(|((ports, n, ack), flags, stamp, data)| {
                tcp(ports, [n, ack], flags, stamp, &data)
            })
    };
    let options = prop::sample::select(vec![vec![], vec![7; 4]]);
    let protocol = || prop::sample::select(vec![1u8, 6, 17]);
    prop_oneof![
        4 => (tcp_segment(), any::<u16>()).prop_map(|(it, id)| summed(v4(6, &[], 0x4000, &it), id)),
        2 => tcp_segment().prop_map(|it| summed(v6(&[], 6, &it), 0)),
        2 => (0u32..3, data()).prop_map(|(ports, data)| summed(v6(&[], 17, &udp(ports, &data)), 0)),
        2 => (0u32..3, data(), 0u16..4)
            .prop_map(|(ports, data, id)| summed(v4(17, &[], 0, &udp(ports, &data)), id)),
        1 => (options, protocol(), any::<u16>(), prop::collection::vec(any::<u8>(), 0..50))
            .prop_map(|(options, protocol, fragment, data)| v4(protocol, &options, fragment, &data)),
        1 => (protocol(), prop::collection::vec(any::<u8>(), 0..50))
            .prop_map(|(protocol, data)| v6(&[Ext::Options(0, 1)], protocol, &data)),
        1 => prop::collection::vec(any::<u8>(), 0..50),
    ]
}

proptest! {
    #[test]
    fn everything_comes_back(
        batches in prop::collection::vec(prop::collection::vec(any_packet(), 1..6), 1..10),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0usize..60, any::<u8>()), 0..4),
    ) {
        let (mut pair, mut batches) = (Pair::default(), batches);
        for (which, at, byte) in flips {
            let batch = which.index(batches.len());
            if let Some(place) = batches[batch][0].get_mut(at) {
                *place = byte;
            }
        }
        for batch in &batches {
            pair.send(batch);
        }
    }

    #[test]
    fn damage_is_refused_or_bounded(
        packets in prop::collection::vec(any_packet(), 1..8),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        more in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut batch = Pair::default().send(&packets);
        batch.extend(more);
        for (at, byte) in changes {
            let at = at.index(batch.len());
            batch[at] = byte;
        }
        let mut out = [0; 2048];
        if let Ok(restored) = HeaderRestorer::default().restore(&batch, &mut out) {
            prop_assert!(restored.bytes() <= out.len());
            // Whatever can be read can be written.
            Pair::default().send(&restored.packets(&out).map(<[u8]>::to_vec).collect::<Vec<_>>());
        }
    }
}
