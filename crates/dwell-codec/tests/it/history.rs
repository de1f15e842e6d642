//! Data that refer to earlier data.

use dwell_codec::{
    CodecError, CodecId, CodecSpec, Compressor, DecodeError, Decompressor, HISTORY_LEN_MAX,
    SRC_LEN_MAX,
};
use proptest::prelude::*;

use crate::common::{CANARY, all_setups, packet, text, with_canaries};

/// Every codec and level that can refer to a history.
fn specs() -> Vec<CodecSpec> {
    let specs = all_setups().into_iter().filter(|(_, with_dictionary)| !with_dictionary);
    specs.map(|(spec, _)| spec).filter(|spec| spec.id.takes_history()).collect()
}

fn compress(compressor: &mut Compressor, history: &[u8], src: &[u8]) -> Option<Vec<u8>> {
    let mut payload = vec![0; 2 * src.len() + 64];
    let len = compressor.compress_after(history, src, &mut payload).expect("made for it")?;
    payload.truncate(len);
    Some(payload)
}

fn decode(codec: CodecId, history: &[u8], src: &[u8], room: usize) -> Result<Vec<u8>, DecodeError> {
    let mut data = with_canaries(room);
    let result = Decompressor::new().decompress_after(codec, history, src, &mut data[..room]);
    assert_eq!(data[room..], CANARY, "{codec} wrote beyond its buffer");
    data.truncate(result?);
    Ok(data)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The decoder may have more than the compressor had, as long as that is the end of it.
    #[test]
    fn what_refers_to_a_history_is_restored(
        more in packet(),
        history in packet(),
        src in packet(),
        spec in proptest::sample::select(specs()),
    ) {
        let mut compressor = Compressor::with_history(spec).unwrap();
        let whole = [more, history.clone()].concat();
        for history in [&history[..], &[], &whole] {
            let Some(payload) = compress(&mut compressor, history, &src) else { continue };
            prop_assert_eq!(&decode(spec.id, &whole, &payload, src.len()).unwrap(), &src);
        }
        // The history must not affect later compressions without one.
        let mut plain = vec![0; 2 * src.len() + 64];
        if let Some(len) = compressor.compress(&src, &mut plain).unwrap() {
            let mut data = vec![0; src.len()];
            let restored = Decompressor::new().decompress(spec.id, None, &plain[..len], &mut data);
            prop_assert_eq!(restored.map(|len| &data[..len]), Ok(&src[..]));
        }
    }

    #[test]
    fn any_bytes_after_any_history_are_bounded(
        codec in proptest::sample::select(CodecId::ALL.to_vec()),
        history in packet(),
        src in proptest::collection::vec(any::<u8>(), 0..600),
        room in 0usize..3000,
    ) {
        let _ = decode(codec, &history, &src, room);
    }

    #[test]
    fn damage_and_the_wrong_history_are_bounded(
        history in packet(),
        other in packet(),
        src in packet(),
        spec in proptest::sample::select(specs()),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..5),
        room in 0usize..9100,
    ) {
        let mut compressor = Compressor::with_history(spec).unwrap();
        let Some(mut payload) = compress(&mut compressor, &history, &src) else { return Ok(()) };
        let len = payload.len();
        for (at, value) in flips {
            payload[at.index(len)] ^= value;
        }
        let _ = decode(spec.id, &other, &payload, room);
    }
}

/// The longest of both, with every level: the memory of zstd was made beforehand.
#[test]
fn the_longest_histories_are_used() {
    let words = text(HISTORY_LEN_MAX + 3 * SRC_LEN_MAX);
    for spec in specs() {
        let mut compressor = Compressor::with_history(spec).unwrap();
        for (history_len, len) in [
            (HISTORY_LEN_MAX, SRC_LEN_MAX),
            (1, SRC_LEN_MAX),
            (HISTORY_LEN_MAX, 1000),
            (HISTORY_LEN_MAX - 1, 20_000),
            (100_000, SRC_LEN_MAX),
            (30_000, 5_000),
            (2 * SRC_LEN_MAX + 9_999, SRC_LEN_MAX - 1),
        ] {
            let (history, rest) = words.split_at(history_len);
            let src = &rest[..len];
            let payload = compress(&mut compressor, history, src).unwrap();
            assert!(decode(spec.id, history, &payload, len).unwrap() == src, "{spec}");
        }
    }
}

/// Repetitions of the history are not encoded again; a shorter history is then not sufficient.
#[test]
fn repetitions_cost_nothing() {
    let mut noise = vec![0; SRC_LEN_MAX];
    dwell_base::Rng::from_seed(3).fill(&mut noise);
    let far = [&noise[..], &text(HISTORY_LEN_MAX - SRC_LEN_MAX)].concat();
    let near = &noise[20_000..];
    for (spec, history, src) in [
        ("zstd:1", &far[..], &noise[..50_000]),
        ("zstd:9", &far[..], &noise[..50_000]),
        ("lz4", near, &noise[60_000..]),
    ] {
        let spec: CodecSpec = spec.parse().unwrap();
        let mut compressor = Compressor::with_history(spec).unwrap();
        let payload = compress(&mut compressor, history, src).unwrap();
        assert!(payload.len() < src.len() / 50, "{spec}: {}", payload.len());
        let lost = decode(spec.id, &history[..100], &payload, src.len());
        assert!(lost.is_err() || lost.as_deref() != Ok(src), "{spec}");
    }
}

/// zstd would take bytes that begin like a trained dictionary for one.
#[test]
fn a_history_is_never_taken_for_a_dictionary() {
    let history = [&[0x37, 0xa4, 0x30, 0xec][..], &text(5000)].concat();
    let src = text(5000);
    let spec = "zstd:1".parse().unwrap();
    let mut compressor = Compressor::with_history(spec).unwrap();
    let payload = compress(&mut compressor, &history, &src).unwrap();
    assert!(payload.len() < 100, "{}", payload.len());
    assert_eq!(decode(CodecId::Zstd, &history, &payload, 5000).as_deref(), Ok(&src[..]));
}

#[test]
fn who_cannot_refer_to_a_history_says_so() {
    let mut dst = [0; 100];
    let refused = |spec: &str| Err(CodecError::NoHistory(spec.parse::<CodecSpec>().unwrap().id));
    for spec in ["lz4", "zstd"] {
        let mut compressor = Compressor::new(spec.parse().unwrap(), None).unwrap();
        assert_eq!(compressor.compress_after(b"abc", &[7; 200], &mut dst), refused(spec));
    }
    let mut deflate = Compressor::with_history("deflate".parse().unwrap()).unwrap();
    assert_eq!(deflate.compress_after(b"abc", &[7; 200], &mut dst), refused("deflate"));
    assert!(deflate.compress(&[7; 200], &mut dst).unwrap().is_some());
    let codec = CodecId::Deflate;
    assert_eq!(decode(codec, b"abc", &[1, 2, 3], 10), Err(DecodeError::NoHistory(codec)));
    let long = vec![0; SRC_LEN_MAX + 1];
    let error = decode(CodecId::Lz4, b"abc", &long, 10);
    assert_eq!(error, Err(DecodeError::TooLong(SRC_LEN_MAX + 1)));
}
