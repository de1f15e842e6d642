//! Round trips with every codec, level, dictionary and length.

use std::sync::Arc;

use dwell_codec::{CodecId, CodecSpec, Compressor, Decompressor, Dictionary, SRC_LEN_MAX};
use proptest::prelude::*;

use crate::common::{CANARY, compressor, dictionary, packet, setups, with_canaries};

/// Compresses and decodes; returns the length of the payload if the packet became one that fits.
fn round_trip(compressor: &mut Compressor, src: &[u8], room: usize) -> Option<usize> {
    let mut payload = with_canaries(room);
    let len = compressor.compress(src, &mut payload[..room]).expect("no error")?;
    assert!(len > 0 && len <= room);
    assert_eq!(payload[room..], CANARY, "{:?} wrote beyond its buffer", compressor.spec());

    let mut data = with_canaries(src.len());
    let dictionary = compressor.dictionary().map(Arc::as_ref);
    let got = Decompressor::new()
        .decompress(compressor.spec().id, dictionary, &payload[..len], &mut data[..src.len()])
        .expect("an undamaged payload");
    assert_eq!(&data[..got], src, "{:?}", compressor.spec());
    assert_eq!(data[src.len()..], CANARY);
    Some(len)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Room for everything: every codec must succeed, except zstd where it would store.
    #[test]
    fn packets_survive(src in packet(), setup in setups()) {
        let mut compressor = compressor(setup);
        let result = round_trip(&mut compressor, &src, src.len() * 2 + 64);
        if compressor.spec().id != CodecId::Zstd {
            prop_assert_eq!(result.is_some(), !src.is_empty());
        }
    }

    #[test]
    fn payloads_never_exceed_the_room(src in packet(), setup in setups(), share in 0usize..=100) {
        let mut compressor = compressor(setup);
        let mut room = src.len() * share / 100;
        // The tightest room that suffices, and one byte less.
        if let Some(len) = round_trip(&mut compressor, &src, room) {
            prop_assert_eq!(round_trip(&mut compressor, &src, len), Some(len));
            room = len - 1;
            let mut payload = with_canaries(room);
            let _ = compressor.compress(&src, &mut payload[..room]).unwrap();
            prop_assert_eq!(&payload[room..], CANARY);
        }
    }

    /// Earlier packets, also failed ones, leave no trace in the output.
    #[test]
    fn reuse_changes_nothing(
        sources in proptest::collection::vec((packet(), 0usize..=110), 1..12),
        setup in setups(),
    ) {
        let mut reused = compressor(setup);
        for (src, share) in &sources {
            let room = src.len() * share / 100;
            let (mut first, mut second, mut fresh) = (vec![0; room], vec![0; room], vec![0; room]);
            let len = reused.compress(src, &mut first).unwrap();
            prop_assert_eq!(reused.compress(src, &mut second).unwrap(), len);
            prop_assert_eq!(compressor(setup).compress(src, &mut fresh).unwrap(), len);
            let len = len.unwrap_or(0);
            prop_assert_eq!(&first[..len], &second[..len]);
            prop_assert_eq!(&first[..len], &fresh[..len]);
        }
    }
}

/// Every level with every length class that the libraries treat differently, in the memory
/// that was reserved beforehand.
#[test]
fn every_level_takes_every_length() {
    let lengths = [1, 2, 7, 64, 513, 1500, 4095, 4097, 9000, 16_384, 16_385, 40_000, SRC_LEN_MAX];
    let text = crate::common::text(SRC_LEN_MAX);
    for setup in crate::common::all_setups() {
        let mut compressor = compressor(setup);
        for len in lengths.into_iter().chain(lengths.into_iter().rev()) {
            round_trip(&mut compressor, &text[text.len() - len..], len * 2 + 64);
        }
    }
}

#[test]
fn dictionaries_of_every_length_work() {
    let text = crate::common::text(SRC_LEN_MAX + 3000);
    for dictionary_len in [8, 9, 100, 1024, 4096, 16_384, 40_000, 65_536] {
        let dictionary = Dictionary::new(3, text[..dictionary_len].to_vec()).unwrap();
        let dictionary = Arc::new(dictionary);
        for spec in ["lz4", "zstd:-5", "zstd", "zstd:3", "zstd:5", "zstd:9", "zstd:15", "zstd:19"] {
            let dictionary = Some(Arc::clone(&dictionary));
            let mut compressor = Compressor::new(spec.parse().unwrap(), dictionary).unwrap();
            for len in [64, 1500, 9000, 20_000, SRC_LEN_MAX] {
                let src = &text[text.len() - len..];
                let with = round_trip(&mut compressor, src, 2 * len + 64);
                assert!(with.is_some() || len == 64, "{spec} {dictionary_len} {len}");
            }
        }
    }
}

#[test]
fn a_dictionary_helps_short_packets() {
    let message =
        |n: u32| format!("$GNRMC,0039{n:02}.00,A,4552.65403,S,17030.00668,E,0.025,,12\r\n");
    let dictionary: String = (0..20).map(message).collect();
    let dictionary = Arc::new(Dictionary::new(1, dictionary.into_bytes()).unwrap());
    let src = message(21).into_bytes();
    for spec in ["lz4", "zstd"] {
        let spec: CodecSpec = spec.parse().unwrap();
        let mut compressor = Compressor::new(spec, Some(Arc::clone(&dictionary))).unwrap();
        let len = round_trip(&mut compressor, &src, src.len() - 1).unwrap();
        assert!(len < src.len() / 3, "{spec}: {len} of {}", src.len());
    }
}

#[test]
fn repeated_bytes_become_a_few_bytes() {
    let mut compressor = Compressor::new("zstd".parse().unwrap(), None).unwrap();
    for len in [6, 7, 31, 32, 100, 1500, 4096, SRC_LEN_MAX] {
        let payload = round_trip(&mut compressor, &vec![0xa5; len], len - 1);
        assert!(payload.is_none_or(|payload| payload < 20), "{len}: {payload:?}");
        assert!(payload.is_some() || len < 32, "{len}");
    }
}

#[test]
fn the_wrong_dictionary_is_no_crash() {
    let right = Arc::new(dictionary(16_384));
    let wrong = Dictionary::new(2, vec![7; 100]).unwrap();
    let src = &right.bytes()[1000..2000];
    for id in [CodecId::Lz4, CodecId::Zstd] {
        let spec = CodecSpec::with_default_level(id);
        let mut compressor = Compressor::new(spec, Some(Arc::clone(&right))).unwrap();
        let mut payload = [0; 999];
        let len = compressor.compress(src, &mut payload).unwrap().unwrap();
        for dictionary in [None, Some(&wrong)] {
            let mut data = with_canaries(src.len());
            let result = Decompressor::new().decompress(
                id,
                dictionary,
                &payload[..len],
                &mut data[..src.len()],
            );
            assert!(result.is_err() || data[..src.len()] != *src);
            assert_eq!(data[src.len()..], CANARY);
        }
    }
}

#[test]
fn limits_are_errors() {
    use dwell_codec::CodecError;
    let mut compressor = Compressor::new("lz4".parse().unwrap(), None).unwrap();
    let error = compressor.compress(&vec![0; SRC_LEN_MAX + 1], &mut [0; 100]).unwrap_err();
    assert_eq!(error, CodecError::TooLong(SRC_LEN_MAX + 1));
    assert_eq!(compressor.compress(&[], &mut [0; 100]), Ok(None));
    assert_eq!(compressor.compress(&[0; 100], &mut []), Ok(None));

    let spec = CodecSpec { id: CodecId::Zstd, level: 99 };
    assert!(Compressor::new(spec, None).unwrap_err().to_string().contains("-50 to -1"));
    let deflate = CodecSpec::with_default_level(CodecId::Deflate);
    let error = Compressor::new(deflate, Some(Arc::new(dictionary(100)))).unwrap_err();
    assert_eq!(error, CodecError::NoDictionary(CodecId::Deflate));
}
