//! Contexts: two ends, and what may go wrong between them.

use dwell_codec::{
    Base, CONTEXT_BATCH_LEN_MAX, CodecError, CodecId, ContextDecoder, ContextDictionary,
    ContextEncoder, ContextSpec, DecodeError, Source, context_bound,
};
use proptest::prelude::*;

use crate::common::{CANARY, packet, text, with_canaries};

/// A level of each strategy.
const LEVELS: [i32; 11] = [-50, -1, 1, 3, 5, 6, 9, 12, 15, 16, 19];

fn specs(ring_log: u8) -> impl Strategy<Value = ContextSpec> {
    (prop::sample::select(LEVELS.to_vec()), 15..=ring_log)
        .prop_map(|(level, window_log)| ContextSpec { level, window_log })
}

fn compress(encoder: &mut ContextEncoder, batch: &[u8]) -> Vec<u8> {
    let mut out = CANARY.to_vec();
    encoder.compress(batch, &mut out).expect("a batch that is not too long");
    assert_eq!(out[..CANARY.len()], CANARY, "it must append");
    out.drain(..CANARY.len());
    assert!(out.len() <= context_bound(batch.len()), "{} of {}", out.len(), batch.len());
    out
}

fn decode(decoder: &mut ContextDecoder, src: &[u8], room: usize) -> Result<Vec<u8>, DecodeError> {
    let mut data = with_canaries(room);
    let result = decoder.decode(src, &mut data[..room]);
    assert_eq!(data[room..], CANARY, "wrote beyond its buffer");
    data.truncate(room);
    result.map(|()| data)
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut noise = vec![0; len];
    dwell_base::Rng::from_seed(seed).fill(&mut noise);
    noise
}

/// What befalls the two ends.
#[derive(Clone, Debug)]
enum Op {
    Batch(Vec<u8>),
    /// A batch that is compressed and never arrives, by which the generation ends.
    Lose(Vec<u8>),
    /// A new generation, from so many bytes before the decoder's offset.
    Begin(ContextSpec, u64),
    Cold(ContextSpec),
    /// A new generation, from the last bytes of the dictionary, as a share of it.
    FromDictionary(ContextSpec, u8),
}

fn op(ring_log: u8) -> impl Strategy<Value = Op> {
    let long = (any::<u64>(), 1usize..=CONTEXT_BATCH_LEN_MAX);
    prop_oneof![
        6 => packet().prop_map(Op::Batch),
        1 => long.clone().prop_map(|(seed, len)| Op::Batch(noise(seed, len))),
        1 => long.prop_map(|(from, len)| {
            let from = from as usize % CONTEXT_BATCH_LEN_MAX;
            Op::Batch(text(2 * CONTEXT_BATCH_LEN_MAX)[from..][..len].to_vec())
        }),
        1 => packet().prop_map(Op::Lose),
        2 => (specs(ring_log), 0u64..100_000).prop_map(|(spec, back)| Op::Begin(spec, back)),
        1 => specs(ring_log).prop_map(Op::Cold),
        1 => (specs(ring_log), any::<u8>()).prop_map(|(spec, part)| Op::FromDictionary(spec, part)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Every batch is restored, whatever was lost between generations: so the rings are equal at
    /// both ends whenever one begins, or the bytes would differ.
    #[test]
    fn what_goes_through_comes_out(
        first in specs(17),
        ops in prop::collection::vec(op(17), 1..30),
    ) {
        let mut encoder = ContextEncoder::new(first, 17).unwrap();
        let mut decoder = ContextDecoder::new(17);
        decoder.begin(first.window_log, Base::default()).unwrap();
        // Longer than the smallest window, and with a magic number in front of it.
        let bytes = [&[0x37, 0xa4, 0x30, 0xec][..], &text(50_000)].concat();
        let dictionary = ContextDictionary::new(bytes).unwrap();
        let mut is_lost = false;
        for op in ops {
            match op {
                Op::Batch(batch) if !is_lost && !batch.is_empty() => {
                    let payload = compress(&mut encoder, &batch);
                    prop_assert_eq!(&decode(&mut decoder, &payload, batch.len()).unwrap(), &batch);
                    prop_assert_eq!(encoder.offset(), decoder.offset());
                }
                Op::Batch(batch) | Op::Lose(batch) => {
                    compress(&mut encoder, &batch);
                    is_lost |= !batch.is_empty();
                }
                Op::Begin(spec, back) => {
                    // The level of the last generation decides how long the base can be.
                    let offset = decoder.offset().saturating_sub(back);
                    let base = encoder.base_at(offset).map_or(Base::default(), |base| Base {
                        len: base.len.min(1 << spec.window_log),
                        ..base
                    });
                    encoder.begin(spec, base).unwrap();
                    decoder.begin(spec.window_log, base).unwrap();
                    prop_assert_eq!(encoder.offset(), base.offset);
                    prop_assert_eq!(decoder.offset(), base.offset);
                    prop_assert_eq!(encoder.spec(), spec);
                    is_lost = false;
                }
                Op::Cold(spec) => {
                    encoder.begin(spec, Base::default()).unwrap();
                    decoder.begin(spec.window_log, Base::default()).unwrap();
                    is_lost = false;
                }
                Op::FromDictionary(spec, part) => {
                    let most = dictionary.base(spec).len;
                    let len = (most * u32::from(part) / 255).max(1);
                    encoder.begin(spec, Source::Dictionary(&dictionary, len)).unwrap();
                    decoder.begin(spec.window_log, Source::Dictionary(&dictionary, len)).unwrap();
                    let offsets = (encoder.offset(), decoder.offset());
                    prop_assert_eq!(offsets, (len.into(), len.into()));
                    is_lost = false;
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_refused_or_restored(
        batches in prop::collection::vec(packet(), 0..4),
        garbage in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..600), 1..5),
        spec in specs(17),
        room in 0usize..3000,
    ) {
        let mut encoder = ContextEncoder::new(spec, 17).unwrap();
        let mut decoder = ContextDecoder::new(17);
        decoder.begin(spec.window_log, Base::default()).unwrap();
        for batch in batches.iter().filter(|batch| !batch.is_empty()) {
            let payload = compress(&mut encoder, batch);
            decode(&mut decoder, &payload, batch.len()).unwrap();
        }
        let mut is_over = false;
        for garbage in garbage {
            let before = decoder.offset();
            let result = decode(&mut decoder, &garbage, room);
            prop_assert!(!is_over || result == Err(DecodeError::NoGeneration));
            is_over |= result.is_err();
            prop_assert_eq!(decoder.offset() - before, if result.is_ok() { room as u64 } else { 0 });
            prop_assert!(decoder.memory_bytes() < (2 << 17) + (1 << 20));
        }
        // Whatever it was, the next generation is as good as any.
        decoder.begin(17, Base::default()).unwrap();
        encoder.begin(ContextSpec { level: 1, window_log: 17 }, Base::default()).unwrap();
        let payload = compress(&mut encoder, b"all is well again");
        prop_assert_eq!(decode(&mut decoder, &payload, 17).unwrap(), b"all is well again");
    }

    #[test]
    fn any_script_of_batches_and_generations_holds(
        script in prop::collection::vec(any::<u8>(), 0..500),
    ) {
        crate::fuzz_codec::context(&script);
    }

    /// Damage is not always noticed, as there is no checksum; but it never leaves its bounds.
    #[test]
    fn damage_and_disorder_are_bounded(
        batches in prop::collection::vec(packet(), 2..8),
        spec in specs(16),
        order in prop::collection::vec(any::<prop::sample::Index>(), 1..10),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut encoder = ContextEncoder::new(spec, 16).unwrap();
        let mut decoder = ContextDecoder::new(16);
        decoder.begin(spec.window_log, Base::default()).unwrap();
        let mut payloads: Vec<_> = batches
            .iter()
            .map(|batch| (compress(&mut encoder, batch), batch.len()))
            .collect();
        for (at, value) in flips {
            let which = at.index(payloads.len());
            let (payload, _) = &mut payloads[which];
            if !payload.is_empty() {
                let byte = at.index(payload.len());
                payload[byte] ^= value;
            }
        }
        for at in order {
            let (payload, len) = &payloads[at.index(payloads.len())];
            let _ = decode(&mut decoder, payload, *len);
        }
        prop_assert!(decoder.memory_bytes() < (2 << 16) + (1 << 20));
    }

    #[test]
    fn a_base_that_is_not_there_is_refused(
        len in 1usize..100_000,
        offset in prop_oneof![0u64..120_000, any::<u64>()],
        base_len in prop_oneof![0u32..70_000, any::<u32>()],
    ) {
        let spec = ContextSpec { level: 1, window_log: 16 };
        let mut encoder = ContextEncoder::new(spec, 16).unwrap();
        let mut decoder = ContextDecoder::new(16);
        decoder.begin(16, Base::default()).unwrap();
        for batch in text(100_000)[..len].chunks(5000) {
            let payload = compress(&mut encoder, batch);
            decode(&mut decoder, &payload, batch.len()).unwrap();
        }
        let start = len.saturating_sub(1 << 16) as u64;
        let base = Base { offset, len: base_len };
        let first = offset.checked_sub(u64::from(base_len));
        let is_there = offset <= len as u64 && first.is_some_and(|first| first >= start);
        let is_good = is_there && base_len <= 1 << 16 || base == Base::default();
        let longest = encoder.base_at(offset);
        prop_assert_eq!(longest.is_some(), (start..=len as u64).contains(&offset));
        prop_assert_eq!(longest.is_some_and(|longest| base_len <= longest.len) , is_there);
        let (sent, received) = (encoder.begin(spec, base), decoder.begin(16, base));
        if is_good {
            prop_assert_eq!((sent, received), (Ok(()), Ok(())));
        } else {
            prop_assert_eq!(sent, Err(CodecError::Base(base)));
            prop_assert_eq!(received, Err(DecodeError::Base(base)));
            // The encoder goes on, the decoder waits for a generation that it can decode.
            prop_assert_eq!(encoder.offset(), len as u64);
            let payload = compress(&mut encoder, b"more");
            prop_assert_eq!(decode(&mut decoder, &payload, 4), Err(DecodeError::NoGeneration));
            let base = encoder.base_at(len as u64).unwrap();
            prop_assert_eq!(decoder.begin(16, base), Ok(()));
        }
    }
}

#[test]
fn limits_are_named() {
    let spec = |level, window_log| ContextSpec { level, window_log };
    let made = |spec, ring_log| ContextEncoder::new(spec, ring_log).map(|_| ());
    assert_eq!(made(spec(1, 17), 20), Ok(()));
    assert_eq!(made(spec(1, 21), 21), Ok(()));
    for (window_log, ring_log) in [(14, 20), (21, 20), (22, 21), (255, 21)] {
        let error = CodecError::Window { window_log, ring_log };
        assert_eq!(made(spec(1, window_log), ring_log), Err(error));
    }
    for ring_log in [0, 14, 24, 64, 255] {
        assert_eq!(made(spec(1, 17), ring_log), Err(CodecError::Ring(ring_log)));
    }
    for level in [0, 20, -51] {
        let error = CodecError::Level { codec: CodecId::Zstd, level };
        assert_eq!(made(spec(level, 17), 20), Err(error));
    }
    let mut decoder = ContextDecoder::new(20);
    for window_log in [0, 14, 21, 255] {
        let error = DecodeError::Window { window_log, ring_log: 20 };
        assert_eq!(decoder.begin(window_log, Base::default()), Err(error));
    }
    assert_eq!(
        ContextDecoder::new(255).begin(24, Base::default()).unwrap_err().to_string(),
        "a window of 2^24 bytes is refused: the limits are 2^15 and 2^23"
    );

    let mut encoder = ContextEncoder::new(spec(1, 17), 17).unwrap();
    let mut out = Vec::new();
    let too_long = vec![0; CONTEXT_BATCH_LEN_MAX + 1];
    assert_eq!(encoder.compress(&too_long, &mut out), Err(CodecError::BatchTooLong(65_537)));
    assert_eq!(encoder.compress(&[], &mut out), Ok(()));
    assert_eq!((encoder.offset(), out.len()), (0, 0), "nothing has changed");
}

#[test]
fn noise_grows_by_a_few_bytes() {
    for level in LEVELS {
        for window_log in [15, 17, 20] {
            let mut encoder = ContextEncoder::new(ContextSpec { level, window_log }, 20).unwrap();
            for (at, len) in [1, 7, 1400, 32_768, 32_769, 65_535, 3, 65_535].into_iter().enumerate()
            {
                // The bound is checked in there.
                let payload = compress(&mut encoder, &noise(at as u64, len));
                assert!(payload.len() >= len, "{len} bytes of noise at level {level}");
            }
        }
    }
    assert_eq!((context_bound(0), context_bound(1400), context_bound(65_535)), (2, 1405, 65_543));
}

/// A repetition of what went before costs a few bytes, as far back as the window reaches, and in a
/// new generation as far as its base does.
#[test]
fn what_went_before_is_used() {
    for level in [1, 6, 9, 12, 15, 19] {
        let spec = ContextSpec { level, window_log: 17 };
        let mut encoder = ContextEncoder::new(spec, 20).unwrap();
        let mut decoder = ContextDecoder::new(20);
        decoder.begin(17, Base::default()).unwrap();
        let (first, later) = (noise(1, 20_000), noise(2, 60_000));
        for batch in [&first, &later] {
            let payload = compress(&mut encoder, batch);
            decode(&mut decoder, &payload, batch.len()).unwrap();
        }
        let again = compress(&mut encoder, &first);
        assert!(again.len() < 400, "level {level}: {}", again.len());
        assert_eq!(decode(&mut decoder, &again, 20_000).as_ref(), Ok(&first));

        let base = encoder.base_at(80_000).unwrap();
        assert_eq!(base, Base { offset: 80_000, len: 80_000 });
        encoder.begin(spec, base).unwrap();
        decoder.begin(17, base).unwrap();
        let again = compress(&mut encoder, &first);
        assert!(again.len() < 400, "level {level}: {} in a new generation", again.len());
        assert_eq!(decode(&mut decoder, &again, 20_000).as_ref(), Ok(&first));

        encoder.begin(spec, Base::default()).unwrap();
        assert!(compress(&mut encoder, &first).len() > 20_000, "after a cold start");
    }
}

/// zstd would take bytes that begin like a trained dictionary for one.
#[test]
fn a_base_is_never_taken_for_a_dictionary() {
    let magic = [&[0x37, 0xa4, 0x30, 0xec][..], &text(5000)].concat();
    let spec = ContextSpec { level: 3, window_log: 17 };
    let mut encoder = ContextEncoder::new(spec, 17).unwrap();
    let mut decoder = ContextDecoder::new(17);
    decoder.begin(17, Base::default()).unwrap();
    let payload = compress(&mut encoder, &magic);
    decode(&mut decoder, &payload, magic.len()).unwrap();
    let base = encoder.base_at(encoder.offset()).unwrap();
    encoder.begin(spec, base).unwrap();
    decoder.begin(17, base).unwrap();
    let payload = compress(&mut encoder, &magic);
    assert!(payload.len() < 100, "{}", payload.len());
    assert_eq!(decode(&mut decoder, &payload, magic.len()), Ok(magic));
}

#[test]
fn a_dictionary_is_what_went_before_the_first_batch() {
    let spec = ContextSpec { level: 3, window_log: 15 };
    let dictionary = ContextDictionary::new(text(5_000)).unwrap();
    let batch = &text(5_000)[1_000..2_000];
    let mut encoder = ContextEncoder::new(spec, 15).unwrap();
    let mut decoder = ContextDecoder::new(15);
    let cold = compress(&mut encoder, batch).len();
    encoder.begin(spec, Source::Dictionary(&dictionary, 5_000)).unwrap();
    decoder.begin(15, Source::Dictionary(&dictionary, 5_000)).unwrap();
    let payload = compress(&mut encoder, batch);
    assert!(payload.len() < 30 && cold > 200, "{} {cold}", payload.len());
    assert_eq!(decode(&mut decoder, &payload, batch.len()).as_deref(), Ok(batch));
    // The next generation refers to it as to all that went through.
    let base = encoder.base_at(6_000).unwrap();
    assert_eq!((base.offset, base.len, decoder.offset()), (6_000, 6_000, 6_000));
    encoder.begin(spec, base).unwrap();
    decoder.begin(15, base).unwrap();
    let payload = compress(&mut encoder, &text(5_000)[3_000..]);
    assert!(payload.len() < 30, "{}", payload.len());
    assert_eq!(decode(&mut decoder, &payload, 2_000).as_deref(), Ok(&text(5_000)[3_000..]));
}

#[test]
fn more_of_a_dictionary_than_there_is_or_the_window_holds_is_refused() {
    let spec = ContextSpec { level: 1, window_log: 15 };
    let dictionary = ContextDictionary::new(text(50_000)).unwrap();
    let mut encoder = ContextEncoder::new(spec, 16).unwrap();
    let mut decoder = ContextDecoder::new(16);
    for len in [0, 32_769, 50_000, 50_001, u32::MAX] {
        let base = Base { offset: len.into(), len };
        assert_eq!(
            encoder.begin(spec, Source::Dictionary(&dictionary, len)),
            Err(CodecError::Base(base))
        );
        assert_eq!(
            decoder.begin(15, Source::Dictionary(&dictionary, len)),
            Err(DecodeError::Base(base))
        );
    }
    assert!(
        decoder.begin(17, Source::Dictionary(&dictionary, 1)).is_err(),
        "the window is too large"
    );
    assert_eq!(decoder.begin(16, Source::Dictionary(&dictionary, 50_000)), Ok(()));
    // What is refused leaves the encoder as it was, and the decoder without a generation.
    assert_eq!(encoder.offset(), 0);
    assert!(!compress(&mut encoder, b"and so on").is_empty());
}

/// Frames that zstd would decode, but that are no batch of a context.
#[test]
fn frames_of_other_kinds_end_the_generation() {
    let mut decoder = ContextDecoder::new(17);
    let raw = |last: u8, len: u8| [last | len << 3, 0, 0];
    let frame = |header: &[u8], last: u8| [header, &raw(last, 5), b"hello"].concat();
    let try_decode = |decoder: &mut ContextDecoder, bytes: &[u8], room| {
        decoder.begin(17, Base::default()).unwrap();
        decode(decoder, bytes, room)
    };
    // A window of 128 KiB: fine. Of 128 GiB, or a whole frame of a known size, or with an end.
    assert_eq!(try_decode(&mut decoder, &frame(&[0, 7 << 3], 0), 5).as_deref(), Ok(&b"hello"[..]));
    for (bytes, room) in [
        (frame(&[0, 27 << 3], 0), 5),
        (frame(&[0, 7 << 3 | 1], 0), 5),
        (frame(&[0x20, 5], 1), 5),
        (frame(&[0, 7 << 3], 1), 5),
        (frame(&[0, 7 << 3], 0), 4),
        (frame(&[0, 7 << 3], 0), 6),
        (frame(&[1, 7 << 3, 9], 0), 5),
    ] {
        let result = try_decode(&mut decoder, &bytes, room);
        assert!(result.is_err(), "{bytes:x?} in {room}");
        assert_eq!(decode(&mut decoder, b"more", 4), Err(DecodeError::NoGeneration));
        assert!(decoder.memory_bytes() < 1 << 20, "{bytes:x?}");
    }
}

/// Memory is taken as it is needed, and there are upper limits.
#[test]
fn memory_is_bounded() {
    let mut decoder = ContextDecoder::new(20);
    assert!(decoder.memory_bytes() < 1000);
    let spec = ContextSpec { level: 12, window_log: 20 };
    let mut encoder = ContextEncoder::new(spec, 20).unwrap();
    assert!(encoder.memory_bytes() < 20_000, "{}", encoder.memory_bytes());
    decoder.begin(20, Base::default()).unwrap();
    for round in 0..3 {
        for at in 0..25 {
            let batch = noise(at + 25 * round, 50_000);
            let payload = compress(&mut encoder, &batch);
            decode(&mut decoder, &payload, batch.len()).unwrap();
        }
        let (sent, received) = (encoder.memory_bytes(), decoder.memory_bytes());
        assert!(sent < 14 << 20 && received < (7 << 20) / 2, "{sent}, {received} bytes");
        let base = encoder.base_at(encoder.offset()).unwrap();
        assert_eq!(base.len, 1 << 20);
        encoder.begin(spec, base).unwrap();
        decoder.begin(20, base).unwrap();
    }
}

#[test]
fn what_went_through_can_be_read_while_it_is_in_the_ring() {
    let spec = ContextSpec { level: 1, window_log: 15 };
    let mut encoder = ContextEncoder::new(spec, 15).unwrap();
    let all = text(50_000);
    let mut out = Vec::new();
    all.chunks(10_000).for_each(|batch| encoder.compress(batch, &mut out).unwrap());
    let oldest = 50_000 - (1 << 15);
    for (offset, len) in [(oldest, 10_000), (40_000, 10_000), (49_999, 1), (50_000, 0)] {
        let mut bytes = Vec::new();
        assert!(encoder.read(offset, len, &mut bytes), "{offset}");
        assert_eq!(bytes, all[offset as usize..][..len as usize]);
    }
    let mut none = Vec::new();
    let absent = [(oldest - 1, 10), (49_999, 2), (50_001, 0), (u64::MAX, 1), (0, u32::MAX)];
    absent.iter().for_each(|&(offset, len)| assert!(!encoder.read(offset, len, &mut none)));
    assert_eq!(none, []);
    // A generation that begins further back cuts it.
    encoder.begin(spec, encoder.base_at(40_000).unwrap()).unwrap();
    assert!(encoder.read(39_000, 1_000, &mut none) && !encoder.read(40_000, 1_000, &mut none));
}
