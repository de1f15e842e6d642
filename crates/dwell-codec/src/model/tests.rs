//! What holds for models of either kind.

use dwell_base::Rng;
use proptest::prelude::*;

use super::*;
use crate::ppm::{PPM_ORDER_MAX, PPM_ORDER_MIN};

const PPM: ModelSpec = ModelSpec::Ppm(PpmSpec { order: 6, memory_log: 20 });
const MIX: ModelSpec = ModelSpec::Mix(MixSpec { memory_log: 20 });
const PROSE: &[u8] = include_bytes!("../../../../data/text/alice29.txt");
const NMEA: &[u8] = include_bytes!("../../../../data/telemetry/zed-f9p.nmea");

pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut noise = vec![0; len];
    Rng::from_seed(seed).fill(&mut noise);
    noise
}

fn piece(kind: u8, seed: u64, len: usize) -> Vec<u8> {
    match kind {
        0 => PROSE[seed as usize % 1_000..][..len].to_vec(),
        1 => noise(seed, len),
        2 => vec![seed as u8; len],
        3 => NMEA[seed as usize % 1_000..][..len].to_vec(),
        _ => noise(seed, 1 + seed as usize % 40).repeat(1 + len / 40),
    }
}

pub(crate) fn pair(spec: impl Into<ModelSpec>) -> (ModelEncoder, ModelDecoder) {
    let spec = spec.into();
    (ModelEncoder::new(spec).unwrap(), ModelDecoder::new(spec).unwrap())
}

pub(crate) fn exchange(
    encoder: &mut ModelEncoder,
    decoder: &mut ModelDecoder,
    record: &[u8],
) -> usize {
    let mut payload = Vec::new();
    encoder.compress(record, &mut payload).unwrap();
    let mut data = vec![0; record.len()];
    assert_eq!(decoder.decode(&payload, &mut data), Ok(()));
    assert!(data == record);
    payload.len()
}

fn any_spec() -> impl Strategy<Value = ModelSpec> {
    let ppm = (PPM_ORDER_MIN..=PPM_ORDER_MAX, 20u8..22)
        .prop_map(|(order, memory_log)| PpmSpec { order, memory_log }.into());
    prop_oneof![ppm, (20u8..22).prop_map(|memory_log| MixSpec { memory_log }.into())]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Records of any length, after any reset, priming, or change of model: a decoder that keeps its memory is that of an
    /// encoder whose memory is fresh.
    #[test]
    fn records_come_back(
        specs in prop::array::uniform3(any_spec()),
        records in prop::collection::vec((0u8..5, 0u64..9, 1usize..3_000, 0usize..20), 1..40),
    ) {
        let (mut encoder, mut decoder) = pair(specs[2]);
        let (mut payload, mut data) = (Vec::new(), Vec::new());
        for (kind, seed, len, event) in records {
            let record = piece(kind, seed, len);
            match event {
                0 | 1 => {
                    encoder = ModelEncoder::new(specs[event]).unwrap();
                    prop_assert_eq!(decoder.renew(specs[event]), Ok(()));
                    prop_assert_eq!(decoder.spec(), specs[event]);
                }
                2 => {
                    encoder.reset();
                    decoder.reset();
                }
                3 => {
                    encoder.prime(&record);
                    decoder.prime(&record);
                }
                _ => {}
            }
            payload.clear();
            encoder.compress(&record, &mut payload).unwrap();
            prop_assert!((1..=record.len()).contains(&payload.len()));
            data.resize(record.len(), 0);
            prop_assert_eq!(decoder.decode(&payload, &mut data), Ok(()));
            prop_assert_eq!(&data, &record);
        }
    }

    /// Any bytes decode to something, or are refused; then nothing decodes until a reset.
    #[test]
    fn damage_is_refused_or_decodes_to_something(
        spec in any_spec(),
        seed in any::<u64>(),
        payloads in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..300), 0usize..3_000), 1..12),
    ) {
        let (mut encoder, mut decoder) = pair(spec);
        let text = piece(0, seed, 3_000);
        exchange(&mut encoder, &mut decoder, &text);
        let mut data = vec![0; 3_000];
        for (payload, len) in payloads {
            let was_lost = decoder.is_lost();
            let result = decoder.decode(&payload, &mut data[..len]);
            prop_assert_eq!(result.is_err(), decoder.is_lost());
            let corrupt = DecodeError::Corrupt(spec.codec());
            match was_lost {
                true => prop_assert_eq!(result, Err(DecodeError::NoGeneration)),
                false => prop_assert!(result == Ok(()) || result == Err(corrupt)),
            }
        }
        encoder.reset();
        decoder.reset();
        exchange(&mut encoder, &mut decoder, &text);
    }
}

/// The end of a record is a number with as few bytes as possible: less than one more than it takes.
#[test]
fn what_is_certain_costs_one_byte() {
    for (spec, learned_after) in [(PPM, 3), (MIX, 8)] {
        let (mut encoder, mut decoder) = pair(spec);
        for round in 0..200 {
            let len = exchange(&mut encoder, &mut decoder, &[b'x'; 60]);
            assert!(round < learned_after || len <= 2, "{spec:?}: {len} bytes in round {round}");
        }
        assert_eq!(exchange(&mut encoder, &mut decoder, b"x"), 1);
    }
}

#[test]
fn what_does_not_get_smaller_is_as_it_was_and_learned() {
    for spec in [PPM, MIX] {
        let (mut encoder, mut decoder) = pair(spec);
        let noise = noise(3, 1_400);
        let mut payload = b"before".to_vec();
        encoder.compress(&noise, &mut payload).unwrap();
        assert!(payload == [b"before", &noise[..]].concat());
        let mut data = vec![0; noise.len()];
        decoder.decode(&payload[6..], &mut data).unwrap();
        assert!(data == noise);
        assert!(exchange(&mut encoder, &mut decoder, &noise) < 400, "it is known now");
    }
}

#[test]
fn empty_and_long_records_change_nothing() {
    for spec in [PPM, MIX] {
        let (mut encoder, mut decoder) = pair(spec);
        let mut out = Vec::new();
        encoder.compress(&[], &mut out).unwrap();
        let long = encoder.compress(&[0; MODEL_RECORD_LEN_MAX + 1], &mut out);
        assert_eq!(long, Err(CodecError::BatchTooLong(MODEL_RECORD_LEN_MAX + 1)));
        assert!(out.is_empty());
        assert!(exchange(&mut encoder, &mut decoder, &[0; MODEL_RECORD_LEN_MAX]) < 200);
    }
}

/// Priming is what compressing the same bytes does to the model: with mix, whose contexts have the position in a record, as
/// one record.
#[test]
fn primed_bytes_are_as_if_they_had_been_sent() {
    for (spec, record_len) in [(PPM, 8_192), (MIX, MIX_PRIME_LEN_MAX)] {
        let most = spec.prime_len_max();
        let (before, record) = PROSE[..most + 9_000].split_at(most + 4_000);
        let (mut encoder, mut decoder) = pair(spec);
        encoder.prime(before);
        decoder.prime(&before[4_000..]);
        let primed = exchange(&mut encoder, &mut decoder, record);
        let (mut encoder, mut decoder) = pair(spec);
        for chunk in before[4_000..].chunks(record_len) {
            exchange(&mut encoder, &mut decoder, chunk);
        }
        assert_eq!(exchange(&mut encoder, &mut decoder, record), primed, "{spec:?}");
        encoder.reset();
        decoder.reset();
        assert!(exchange(&mut encoder, &mut decoder, record) > primed, "a reset forgets all");
    }
}

#[test]
fn payloads_of_another_length_are_refused() {
    let text = &PROSE[..2_000];
    for spec in [PPM, MIX] {
        let (mut data, mut payload) = (vec![0; 2_000], Vec::new());
        ModelEncoder::new(spec).unwrap().compress(text, &mut payload).unwrap();
        let longer = [&payload[..], &[1; 5]].concat();
        let wrong = [(&longer[..], 2_000), (&payload[..], 300), (&[], 10), (&payload[..], 0)];
        for (payload, len) in wrong {
            let mut decoder = ModelDecoder::new(spec).unwrap();
            assert!(decoder.decode(payload, &mut data[..len]).is_err(), "{spec:?}, {len}");
            assert_eq!(decoder.decode(payload, &mut data), Err(DecodeError::NoGeneration));
        }
    }
}
