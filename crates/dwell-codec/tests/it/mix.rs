//! Generations that mix contexts, between those of other codecs.

use dwell_codec::{
    Base, CodecError, CodecId, ContextDecoder, ContextEncoder, ContextSpec, DecodeError,
    MIX_PRIME_LEN_MAX, MixSpec, ModelSpec, PpmSpec,
};

use crate::common::text;

const ZSTD: ContextSpec = ContextSpec { level: 3, window_log: 18 };
const MIX: MixSpec = MixSpec { memory_log: 20 };
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

/// Each model from what the codec before has read, and zstd from what they have.
#[test]
fn generations_of_all_codecs_follow_each_other_from_the_ring() {
    let text = text(200_000);
    let (mut encoder, mut decoder) = ends();
    let mut batches = text.chunks(1_400);
    for models in [[MIX.into(), ModelSpec::from(PPM)], [MIX.into(), MIX.into()]] {
        let mut first_batches = Vec::new();
        for model in models {
            let ring = encoder.ring_at(encoder.offset()).unwrap();
            let base = Base { len: ring.len.min(model.prime_len_max() as u32), ..ring };
            encoder.begin_model(model, base).unwrap();
            decoder.begin_model(model, base).unwrap();
            assert_eq!((encoder.codec(), encoder.model_spec()), (model.codec(), Some(model)));
            assert_eq!(decoder.model_codec(), Some(model.codec()));
            for (at, batch) in batches.by_ref().take(20).enumerate() {
                let len = exchange(&mut encoder, &mut decoder, batch);
                if at == 0 {
                    first_batches.push(len);
                }
            }
        }
        assert!(first_batches[1] < 1_000, "it begins from what is known: {first_batches:?}");
        let base = encoder.ring_at(encoder.offset()).unwrap();
        let base = Base { len: base.len.min(1 << ZSTD.window_log), ..base };
        encoder.begin(ZSTD, base).unwrap();
        decoder.begin(ZSTD.window_log, base).unwrap();
        exchange(&mut encoder, &mut decoder, batches.next().unwrap());
    }
}

#[test]
fn what_no_model_can_begin_with_is_refused() {
    let (mut encoder, mut decoder) = ends();
    let text = text(40_000);
    for batch in text.chunks(10_000) {
        exchange(&mut encoder, &mut decoder, batch);
    }
    let base = Base { offset: 40_000, len: MIX_PRIME_LEN_MAX as u32 + 1 };
    assert_eq!(encoder.begin_model(MIX, base), Err(CodecError::Base(base)));
    assert_eq!(decoder.begin_model(MIX, base), Err(DecodeError::Base(base)));
    let none = MixSpec { memory_log: 27 };
    assert_eq!(encoder.begin_model(none, Base::default()), Err(CodecError::Mix(none)));
    assert_eq!(decoder.begin_model(none, Base::default()), Err(DecodeError::Mix(none)));
    assert_eq!(decoder.decode(&[1], &mut [0; 2]), Err(DecodeError::NoGeneration));
}

#[test]
fn models_have_names_on_the_wire() {
    assert_eq!(ModelSpec::from(MIX).to_wire(), Ok((CodecId::Mix, 20)));
    assert_eq!(ModelSpec::from_wire(7, 20), Some(Ok(MIX.into())));
    assert_eq!(ModelSpec::from_wire(6, 0x50), Some(Ok(PPM.into())));
    assert_eq!(ModelSpec::from_wire(2, 20), None);
    assert!(ModelSpec::from_wire(7, 27).is_some_and(|it| it.is_err()));
    let large = ModelSpec::from(MixSpec { memory_log: 26 });
    assert_eq!((large.within(20), large.memory_log()), (MIX.into(), 26));
}
