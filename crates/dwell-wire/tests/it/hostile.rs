//! Arbitrary bytes: nothing panics, and everything that is read lies within the input.

use proptest::prelude::*;

use crate::fuzz_wire;

/// Bytes that look valid often enough to pass the first checks.
fn plausible(first: impl Strategy<Value = u8>) -> impl Strategy<Value = Vec<u8>> {
    let small = prop_oneof![3 => 0u8..8, 1 => any::<u8>()];
    (first, prop::collection::vec(small, 0..200))
        .prop_map(|(first, rest)| [&[first][..], &rest].concat())
}

/// An IP packet whose declared length is correct, so that the bytes after the header are read too.
fn plausible_packet() -> impl Strategy<Value = Vec<u8>> {
    let protocol = prop::sample::select(vec![0, 1, 6, 17, 43, 44, 51, 58, 60]);
    let bytes = plausible(prop::sample::select(vec![0x45, 0x46, 0x4f, 0x60]));
    (bytes, protocol).prop_map(|(mut packet, protocol)| {
        packet.resize(packet.len().max(40), 6);
        let len = packet.len() as u16;
        if packet[0] >> 4 == 4 {
            packet[2..4].copy_from_slice(&len.to_be_bytes());
            packet[9] = protocol;
        } else {
            packet[4..6].copy_from_slice(&(len - 40).to_be_bytes());
            packet[6] = protocol;
        }
        packet
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn datagrams(bytes in prop_oneof![plausible(0x10u8..0x14), plausible(any::<u8>())]) {
        fuzz_wire::datagram(&bytes);
    }

    #[test]
    fn packets(bytes in prop_oneof![
        plausible_packet().prop_map(|packet| [vec![0; 4], packet].concat()),
        plausible(any::<u8>()),
    ]) {
        fuzz_wire::packet(&bytes);
    }

    #[test]
    fn blocks(packets in prop::collection::vec(plausible_packet(), 0..5), rest: Vec<u8>) {
        fuzz_wire::block(&[packets.concat(), rest].concat());
    }

    #[test]
    fn round_trips(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        fuzz_wire::roundtrip(&bytes);
    }
}
