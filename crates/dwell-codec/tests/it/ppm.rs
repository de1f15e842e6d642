//! Generations of prediction by partial matching in contexts, between those of zstd.

use dwell_codec::{
    Base, CodecError, CodecId, ContextDecoder, ContextDictionary, ContextEncoder, ContextSpec,
    DecodeError, PPM_PRIME_LEN_MAX, PpmSpec, Source,
};

use crate::common::text;

const ZSTD: ContextSpec = ContextSpec { level: 3, window_log: 18 };
const PPM: PpmSpec = PpmSpec { order: 5, memory_log: 20 };
const RING_LOG: u8 = 18;

fn ends() -> (ContextEncoder, ContextDecoder) {
    let mut decoder = ContextDecoder::new(RING_LOG);
    decoder.begin(ZSTD.window_log, Base::default()).expect("a cold start");
    (ContextEncoder::new(ZSTD, RING_LOG).expect("a good spec"), decoder)
}

fn exchange(encoder: &mut ContextEncoder, decoder: &mut ContextDecoder, batch: &[u8]) -> usize {
    let mut payload = Vec::new();
    encoder.compress(batch, &mut payload).expect("not too long");
    let mut data = vec![0; batch.len()];
    decoder.decode(&payload, &mut data).expect("what was sent");
    assert!(data == batch);
    assert_eq!(encoder.offset(), decoder.offset());
    payload.len()
}

/// Behind a model, zstd begins from as much as behind itself.
#[test]
fn what_a_model_has_read_is_in_the_ring_for_zstd() {
    let text = text(100_000);
    let (mut encoder, mut decoder) = ends();
    encoder.begin_model(PPM, Base::default()).unwrap();
    decoder.begin_model(PPM, Base::default()).unwrap();
    for batch in text[..60_000].chunks(1_400) {
        exchange(&mut encoder, &mut decoder, batch);
    }
    assert_eq!(encoder.base_at(60_000).unwrap().len as usize, PPM_PRIME_LEN_MAX);
    let base = encoder.ring_at(60_000).unwrap();
    assert_eq!(base.len, 60_000.min(1 << ZSTD.window_log));
    encoder.begin(ZSTD, base).unwrap();
    decoder.begin(ZSTD.window_log, base).unwrap();
    for batch in text[60_000..].chunks(1_400) {
        exchange(&mut encoder, &mut decoder, batch);
    }
    assert_eq!(encoder.ring_at(100_001), None);
}

#[test]
fn generations_of_both_codecs_follow_each_other_from_the_ring() {
    let text = text(400_000);
    let (mut encoder, mut decoder) = ends();
    let mut batches = text.chunks(1_400);
    let mut of_first_batches = Vec::new();
    for round in 0..6 {
        let base = encoder.base_at(encoder.offset()).unwrap();
        if round % 3 == 0 {
            encoder.begin(ZSTD, Base { len: base.len.min(1 << ZSTD.window_log), ..base }).unwrap();
            decoder.begin(ZSTD.window_log, base).unwrap();
            assert_eq!((encoder.codec(), encoder.model_spec()), (CodecId::Zstd, None));
        } else {
            let base = Base { len: base.len.min(PPM_PRIME_LEN_MAX as u32), ..base };
            encoder.begin_model(PPM, base).unwrap();
            decoder.begin_model(PPM, base).unwrap();
            assert_eq!((encoder.codec(), encoder.model_spec()), (CodecId::Ppm, Some(PPM.into())));
            let longest = encoder.base_at(encoder.offset()).unwrap();
            assert!(longest.len as usize <= PPM_PRIME_LEN_MAX);
        }
        for (at, batch) in batches.by_ref().take(40).enumerate() {
            let len = exchange(&mut encoder, &mut decoder, batch);
            if at == 0 {
                of_first_batches.push(len);
            }
        }
        let window = 1 << ZSTD.window_log;
        assert!(decoder.memory_bytes() < window + window + (2 << 20));
    }
    assert!(of_first_batches[1] < of_first_batches[0], "it begins from what is known");
}

#[test]
fn they_begin_from_dictionaries() {
    let text = text(20_000);
    let dictionary = ContextDictionary::new(text[..10_000].to_vec()).unwrap();
    let (mut encoder, mut decoder) = ends();
    encoder.begin_model(PPM, Base::default()).unwrap();
    decoder.begin_model(PPM, Base::default()).unwrap();
    let cold = exchange(&mut encoder, &mut decoder, &text[10_000..11_000]);
    encoder.begin_model(PPM, Source::Dictionary(&dictionary, 10_000)).unwrap();
    decoder.begin_model(PPM, Source::Dictionary(&dictionary, 10_000)).unwrap();
    assert!(exchange(&mut encoder, &mut decoder, &text[10_000..11_000]) < cold);
    assert_eq!(encoder.offset(), 11_000);
    for len in [0, 10_001] {
        assert!(encoder.begin_model(PPM, Source::Dictionary(&dictionary, len)).is_err());
        assert!(decoder.begin_model(PPM, Source::Dictionary(&dictionary, len)).is_err());
    }
}

#[test]
fn what_is_not_possible_is_refused() {
    let (mut encoder, mut decoder) = ends();
    let no_model = PpmSpec { order: 13, ..PPM };
    assert_eq!(encoder.begin_model(no_model, Base::default()), Err(CodecError::Ppm(no_model)));
    assert_eq!(decoder.begin_model(no_model, Base::default()), Err(DecodeError::Ppm(no_model)));
    let nowhere = Base { offset: 5, len: 5 };
    assert_eq!(encoder.begin_model(PPM, nowhere), Err(CodecError::Base(nowhere)));
    assert_eq!(decoder.begin_model(PPM, nowhere), Err(DecodeError::Base(nowhere)));
    // Batches of a model can't stand alone.
    encoder.begin_model(PPM, Base::default()).unwrap();
    let alone = encoder.compress_alone(b"a batch", &mut Vec::new());
    assert_eq!(alone, Err(CodecError::NoGeneration));
    assert_eq!(encoder.begin_alone(ZSTD, Base::default(), true), Err(CodecError::NoGeneration));
}

#[test]
fn damage_ends_the_generation() {
    let (mut encoder, mut decoder) = ends();
    encoder.begin_model(PPM, Base::default()).unwrap();
    decoder.begin_model(PPM, Base::default()).unwrap();
    let batch = text(1_000);
    exchange(&mut encoder, &mut decoder, &batch);
    let mut data = vec![0; 10];
    assert_eq!(decoder.decode(&[1; 11], &mut data), Err(DecodeError::Corrupt(CodecId::Ppm)));
    assert_eq!(decoder.offset(), 1_000);
    assert_eq!(decoder.decode(&[1; 5], &mut data), Err(DecodeError::NoGeneration));
    let base = encoder.base_at(1_000).unwrap();
    encoder.begin_model(PPM, base).unwrap();
    decoder.begin_model(PPM, base).unwrap();
    exchange(&mut encoder, &mut decoder, &batch);
}
