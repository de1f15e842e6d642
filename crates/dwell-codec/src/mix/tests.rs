use super::*;
use crate::model::tests::{exchange, noise, pair};
use crate::{CodecError, MODEL_RECORD_LEN_MAX, ModelDecoder, ModelEncoder};

const SMALL: MixSpec = MixSpec { memory_log: MIX_MEMORY_LOG_MIN };
const NMEA: &[u8] = include_bytes!("../../../../data/telemetry/zed-f9p.nmea");
const PROSE: &[u8] = include_bytes!("../../../../data/text/alice29.txt");

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

/// Slots are taken from contexts that were seen less, and old bytes are forgotten.
#[test]
fn a_full_memory_goes_on() {
    let (mut encoder, mut decoder) = pair(SMALL);
    for seed in 0..40 {
        exchange(&mut encoder, &mut decoder, &noise(seed, MODEL_RECORD_LEN_MAX));
    }
    let first = exchange(&mut encoder, &mut decoder, &PROSE[..10_000]);
    assert!(exchange(&mut encoder, &mut decoder, &PROSE[..10_000]) * 10 < first);
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
    assert_eq!(ModelEncoder::new(no_model).err(), Some(CodecError::Mix(no_model)));
    let mut decoder = ModelDecoder::new(SMALL).unwrap();
    assert!(decoder.renew(MixSpec { memory_log: 19 }).is_err());
    assert_eq!(decoder.spec(), SMALL.into());
}
