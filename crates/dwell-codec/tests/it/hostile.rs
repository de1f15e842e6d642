//! Hostile payloads: damaged, invented, or decompression bombs.

use dwell_codec::{
    CodecId, CodecSpec, Compressor, DecodeError, Decompressor, Dictionary, SRC_LEN_MAX,
};
use proptest::prelude::*;

use crate::common::{CANARY, compressor, dictionary, packet, setups, with_canaries};

/// Decodes into a buffer of `room` bytes and checks that nothing else was written.
fn decode(
    codec: CodecId,
    dictionary: Option<&Dictionary>,
    src: &[u8],
    room: usize,
) -> Result<Vec<u8>, DecodeError> {
    let mut data = with_canaries(room);
    let result = Decompressor::new().decompress(codec, dictionary, src, &mut data[..room]);
    assert_eq!(data[room..], CANARY, "{codec} wrote beyond its buffer");
    let len = result?;
    assert!(len <= room, "{codec}");
    data.truncate(len);
    Ok(data)
}

fn any_codec() -> impl Strategy<Value = CodecId> {
    proptest::sample::select(CodecId::ALL.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_bytes_are_bounded(
        codec in any_codec(),
        with_dictionary: bool,
        src in proptest::collection::vec(any::<u8>(), 0..600),
        room in 0usize..3000,
    ) {
        let dictionary = dictionary(1000);
        let _ = decode(codec, with_dictionary.then_some(&dictionary), &src, room);
    }

    #[test]
    fn damage_is_bounded(
        src in packet(),
        setup in setups(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
        cut in proptest::option::of(any::<prop::sample::Index>()),
        room in 0usize..9100,
    ) {
        let mut compressor = compressor(setup);
        let mut payload = vec![0; src.len() * 2 + 64];
        let Some(len) = compressor.compress(&src, &mut payload).unwrap() else { return Ok(()) };
        payload.truncate(len);
        for (at, value) in flips {
            payload[at.index(len)] ^= value;
        }
        if let Some(cut) = cut {
            payload.truncate(cut.index(len));
        }
        let dictionary = compressor.dictionary().map(AsRef::as_ref);
        let _ = decode(compressor.spec().id, dictionary, &payload, room);
    }

    /// A buffer that is too short is an error, not a part of the packet.
    #[test]
    fn short_buffers_are_errors(src in packet(), setup in setups(), share in 0usize..100) {
        let mut compressor = compressor(setup);
        let mut payload = vec![0; src.len() * 2 + 64];
        let Some(len) = compressor.compress(&src, &mut payload).unwrap() else { return Ok(()) };
        let room = src.len() * share / 100;
        let dictionary = compressor.dictionary().map(AsRef::as_ref);
        let result = decode(compressor.spec().id, dictionary, &payload[..len], room);
        prop_assert!(result.is_err(), "{:?}", compressor.spec());
    }
}

#[test]
fn bombs_are_defused() {
    let zeros = vec![0; SRC_LEN_MAX];
    for id in CodecId::ALL.into_iter().filter(|id| id.is_built_in()) {
        let mut compressor = Compressor::new(CodecSpec::with_default_level(id), None).unwrap();
        let mut payload = vec![0; 1400];
        let len = compressor.compress(&zeros, &mut payload).unwrap().unwrap();
        let error = decode(id, None, &payload[..len], 1500).unwrap_err();
        let expected = match id {
            CodecId::Lz4 => DecodeError::Corrupt(id),
            _ => DecodeError::DoesNotFit(id),
        };
        assert_eq!(error, expected);
    }
}

/// Ten megabytes in a payload of the length of a packet, as no compressor here makes it.
#[test]
fn large_bombs_are_defused() {
    // lz4: one literal, then a match at distance 1 with 39,000 times 255 bytes more.
    let lz4 = [&[0x1f, 0, 1, 0][..], &[255; 39_000], &[0, 0x50, 0, 0, 0, 0, 0]].concat();
    let error = decode(CodecId::Lz4, None, &lz4, 1500).unwrap_err();
    assert_eq!(error, DecodeError::Corrupt(CodecId::Lz4));

    // deflate by libdeflate, which packs a thousand to one.
    let mut deflate = vec![0; SRC_LEN_MAX];
    let mut compressor = libdeflater::Compressor::new(libdeflater::CompressionLvl::best());
    let len = compressor.deflate_compress(&vec![0; 10_000_000], &mut deflate).unwrap();
    let error = decode(CodecId::Deflate, None, &deflate[..len], 1500).unwrap_err();
    assert_eq!(error, DecodeError::DoesNotFit(CodecId::Deflate));

    // zstd: RLE literals of a length that the 20-bit field can say, no sequences. The block
    // is longer than a block may be.
    let zstd = [0xfd, 0xff, 0xff, 0, 0];
    assert!(decode(CodecId::Zstd, None, &zstd, 1500).is_err());
    assert!(decode(CodecId::Zstd, None, &zstd, 10_000_000).is_err());
}

#[test]
fn what_a_codec_cannot_do_is_an_error() {
    let dictionary = dictionary(100);
    let long = vec![0; SRC_LEN_MAX + 1];
    for codec in [CodecId::Lz4, CodecId::Zstd, CodecId::Deflate] {
        assert_eq!(decode(codec, None, &long, 10), Err(DecodeError::TooLong(SRC_LEN_MAX + 1)));
        assert!(decode(codec, None, &[], 10).is_err(), "{codec}");
    }
    let codec = CodecId::Deflate;
    let error = decode(codec, Some(&dictionary), &[0], 10);
    assert_eq!(error, Err(DecodeError::NoDictionary(codec)));
    for id in CodecId::ALL.into_iter().filter(|id| !id.is_built_in()) {
        assert_eq!(decode(id, None, &[0], 10), Err(DecodeError::NotBuiltIn(id)));
    }
}

/// The zstd payload is what the crate's documentation says: an ordinary decoder takes it if
/// the elided bytes are put before it.
#[test]
fn zstd_payloads_follow_their_description() {
    let src = crate::common::text(1400);
    let mut payload = vec![0; 1399];
    let mut compressor = Compressor::new("zstd:3".parse().unwrap(), None).unwrap();
    for src in [&src[..], &[7; 1400]] {
        let len = compressor.compress(src, &mut payload).unwrap().unwrap();
        let header = 1 | 2 << 1 | (len as u32) << 3;
        let preamble = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x38];
        let frame = [&preamble, &header.to_le_bytes()[..3], &payload[..len]].concat();
        let mut data = vec![0; 1400];
        assert_eq!(zstd_safe::decompress(&mut data[..], &frame), Ok(1400));
        assert_eq!(data, src);
    }
}
