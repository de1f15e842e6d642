use dwell_base::Rng;
use proptest::prelude::*;

use super::*;
use crate::error::{CodecError, DecodeError};
use crate::id::CodecId;

const SMALL: MixSpec = MixSpec { memory_log: MIX_MEMORY_LOG_MIN };
const NMEA: &[u8] = include_bytes!("../../../../data/telemetry/zed-f9p.nmea");
const PROSE: &[u8] = include_bytes!("../../../../data/text/alice29.txt");

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::from_seed(seed).fill(&mut bytes);
    bytes
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

fn pair(spec: MixSpec) -> (MixEncoder, MixDecoder) {
    (MixEncoder::new(spec).unwrap(), MixDecoder::new(spec).unwrap())
}

fn exchange(encoder: &mut MixEncoder, decoder: &mut MixDecoder, record: &[u8]) -> usize {
    let mut payload = Vec::new();
    encoder.compress(record, &mut payload).unwrap();
    let mut data = vec![0; record.len()];
    assert_eq!(decoder.decode(&payload, &mut data), Ok(()));
    assert!(data == record);
    payload.len()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Records of any length, after any reset, priming, or change of memory: a decoder that keeps its memory is that
    /// of an encoder whose memory is fresh.
    #[test]
    fn records_come_back(
        records in prop::collection::vec((0u8..5, 0u64..9, 1usize..2_000, 0u8..20), 1..30),
    ) {
        let (mut encoder, mut decoder) = pair(SMALL);
        let (mut payload, mut data) = (Vec::new(), Vec::new());
        for (kind, seed, len, event) in records {
            let record = piece(kind, seed, len);
            match event {
                0 => {
                    encoder.reset();
                    decoder.reset();
                }
                1 => {
                    encoder.prime(&record);
                    decoder.prime(&record);
                }
                2 | 3 => {
                    let spec = MixSpec { memory_log: SMALL.memory_log + event % 2 };
                    encoder = MixEncoder::new(spec).unwrap();
                    prop_assert_eq!(decoder.renew(spec), Ok(()));
                    prop_assert_eq!(decoder.spec(), spec);
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
        seed in any::<u64>(),
        payloads in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..300), 0usize..2_000), 1..12),
    ) {
        let (mut encoder, mut decoder) = pair(SMALL);
        let text = piece(0, seed, 2_000);
        exchange(&mut encoder, &mut decoder, &text);
        let mut data = vec![0; 2_000];
        for (payload, len) in payloads {
            let was_lost = decoder.is_lost();
            let result = decoder.decode(&payload, &mut data[..len]);
            prop_assert_eq!(result.is_err(), decoder.is_lost());
            match was_lost {
                true => prop_assert_eq!(result, Err(DecodeError::NoGeneration)),
                false => prop_assert!(matches!(result, Ok(()) | Err(DecodeError::Corrupt(CodecId::Mix)))),
            }
        }
        encoder.reset();
        decoder.reset();
        exchange(&mut encoder, &mut decoder, &text);
    }
}

/// What docs/wire.md gives for an example: these bytes never change.
#[test]
fn records_are_what_they_always_were() {
    let (mut encoder, mut decoder) = pair(MixSpec::default());
    let records: [(&[u8], &str); 5] = [
        (b"$GPRMC,123519,A\r\n", "244750524d432c3132333531392c410d0a"),
        (b"$GPRMC,123520,A\r\n", "a22fdf76"),
        (b"$GPRMC,123521,A\r\n", "0a1a"),
        (b"", ""),
        (b"abracadabra", "00115923040616db2e8d"),
    ];
    for (record, expected) in records {
        let mut payload = Vec::new();
        encoder.compress(record, &mut payload).unwrap();
        let hex: String = payload.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expected, "{}", record.escape_ascii());
        let mut data = vec![0; record.len()];
        if !record.is_empty() {
            decoder.decode(&payload, &mut data).unwrap();
        }
        assert_eq!(data, record);
    }
}

/// The sum of all bytes of longer content, each multiplied by its place: a change of the least part of the model changes it.
#[test]
fn long_content_is_what_it_always_was() {
    let mut found = Vec::new();
    for (content, len, memory_log) in [(NMEA, 94, 20), (&PROSE[..60_000], 1_400, 22)] {
        let (mut encoder, mut decoder) = pair(MixSpec { memory_log });
        let (mut sum, mut total) = (0u64, 0);
        for record in content.chunks(len).chain([&noise(7, 900)[..], &content[..3_000]]) {
            let mut payload = Vec::new();
            encoder.compress(record, &mut payload).unwrap();
            let mut data = vec![0; record.len()];
            assert_eq!(decoder.decode(&payload, &mut data), Ok(()));
            assert!(data == record);
            for &byte in &payload {
                total += 1;
                sum = sum.wrapping_add(u64::from(byte) * total);
            }
        }
        found.push((total, sum));
    }
    assert_eq!(found, [(3_560, 767_741_633), (18_284, 21_161_311_145)]);
}

#[test]
fn lines_of_telemetry_become_a_fifteenth() {
    let (mut encoder, mut decoder) = pair(MixSpec::default());
    let sum: usize = NMEA.chunks(94).map(|it| exchange(&mut encoder, &mut decoder, it)).sum();
    assert!(sum * 15 < NMEA.len(), "{sum} of {} bytes", NMEA.len());
}

/// The end of a record is a number with as few bytes as possible: less than one more than it takes.
#[test]
fn what_is_certain_costs_one_byte() {
    let (mut encoder, mut decoder) = pair(SMALL);
    for round in 0..200 {
        let len = exchange(&mut encoder, &mut decoder, &[b'x'; 60]);
        assert!(round < 8 || len <= 2, "{len} bytes in round {round}");
    }
    assert_eq!(exchange(&mut encoder, &mut decoder, b"x"), 1);
}

#[test]
fn what_does_not_get_smaller_is_as_it_was_and_learned() {
    let (mut encoder, mut decoder) = pair(SMALL);
    let noise = noise(3, 1_400);
    let mut payload = b"before".to_vec();
    encoder.compress(&noise, &mut payload).unwrap();
    assert!(payload == [b"before", &noise[..]].concat());
    let mut data = vec![0; noise.len()];
    decoder.decode(&payload[6..], &mut data).unwrap();
    assert!(data == noise);
    assert!(exchange(&mut encoder, &mut decoder, &noise) < 400, "it is known now");
}

#[test]
fn empty_and_long_records_change_nothing() {
    let (mut encoder, mut decoder) = pair(SMALL);
    let mut out = Vec::new();
    encoder.compress(&[], &mut out).unwrap();
    let long = encoder.compress(&[0; MIX_RECORD_LEN_MAX + 1], &mut out);
    assert_eq!(long, Err(CodecError::BatchTooLong(MIX_RECORD_LEN_MAX + 1)));
    assert!(out.is_empty());
    assert!(exchange(&mut encoder, &mut decoder, &[0; MIX_RECORD_LEN_MAX]) < 200);
}

/// Slots are taken from contexts that were seen less, and old bytes are forgotten.
#[test]
fn a_full_memory_goes_on() {
    let (mut encoder, mut decoder) = pair(SMALL);
    for seed in 0..40 {
        exchange(&mut encoder, &mut decoder, &noise(seed, MIX_RECORD_LEN_MAX));
    }
    let first = exchange(&mut encoder, &mut decoder, &PROSE[..10_000]);
    assert!(exchange(&mut encoder, &mut decoder, &PROSE[..10_000]) * 10 < first);
}

/// Priming is what compressing the same bytes as a record does to the model.
#[test]
fn primed_bytes_are_as_if_they_had_been_sent() {
    let (before, record) = PROSE[..MIX_PRIME_LEN_MAX + 5_000].split_at(MIX_PRIME_LEN_MAX + 4_000);
    let (mut encoder, mut decoder) = pair(SMALL);
    encoder.prime(before);
    decoder.prime(&before[4_000..]);
    let primed = exchange(&mut encoder, &mut decoder, record);
    let (mut encoder, mut decoder) = pair(SMALL);
    exchange(&mut encoder, &mut decoder, &before[4_000..]);
    assert_eq!(exchange(&mut encoder, &mut decoder, record), primed);
    encoder.reset();
    decoder.reset();
    assert!(exchange(&mut encoder, &mut decoder, record) > primed, "a reset forgets all");
}

#[test]
fn payloads_of_another_length_are_refused() {
    let text = &PROSE[..2_000];
    let mut data = vec![0; 2_000];
    let mut payload = Vec::new();
    MixEncoder::new(SMALL).unwrap().compress(text, &mut payload).unwrap();
    let longer = [&payload[..], &[1; 5]].concat();
    for (payload, len) in [(&longer[..], 2_000), (&payload[..], 300), (&[], 10), (&payload[..], 0)]
    {
        let mut decoder = MixDecoder::new(SMALL).unwrap();
        assert!(decoder.decode(payload, &mut data[..len]).is_err(), "{len}");
        assert_eq!(decoder.decode(payload, &mut data), Err(DecodeError::NoGeneration));
    }
}

#[test]
fn memory_is_no_more_than_was_asked_for() {
    for memory_log in MIX_MEMORY_LOG_MIN..=MIX_MEMORY_LOG_MAX {
        let (encoder, decoder) = pair(MixSpec { memory_log });
        let asked = 1 << memory_log;
        assert!((asked / 8 * 7..=asked).contains(&encoder.memory_bytes()), "{memory_log}");
        assert!(decoder.memory_bytes() <= asked);
    }
    let no_model = MixSpec { memory_log: 27 };
    assert_eq!(MixEncoder::new(no_model).err(), Some(CodecError::Mix(no_model)));
    let mut decoder = MixDecoder::new(SMALL).unwrap();
    assert!(decoder.renew(MixSpec { memory_log: 19 }).is_err());
    assert_eq!(decoder.spec(), SMALL);
}
