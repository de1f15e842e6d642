//! Against another implementation of the same model, to the byte; and what that one does not have.

use std::io::{Read, Write};

use dwell_base::Rng;
use ppmd_rust::{Ppmd7Decoder, Ppmd7Encoder};
use proptest::prelude::*;

use super::arena::UNIT_LEN;
use super::history::History;
use super::model::Model;
use super::*;
use crate::ModelEncoder;
use crate::model::Learner as _;
use crate::range::{Nowhere, RangeDecoder, RangeEncoder};

use crate::model::tests::{exchange, noise, pair};

const SMALL: PpmSpec = PpmSpec { order: 6, memory_log: 20 };

/// Prose, made of words that come with very different frequencies; no two tests have the same.
pub(super) fn prose(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::from_seed(seed);
    let words: Vec<Vec<u8>> = (0..2_000)
        .map(|_| {
            let len = 1 + rng.below(9) as usize;
            (0..len).map(|_| b"etaoinshrdlucmfwypvbgk"[rng.below(22) as usize]).collect()
        })
        .collect();
    let mut text = Vec::new();
    while text.len() < len {
        let most = 1 + rng.below(words.len() as u64);
        text.extend(&words[rng.below(most) as usize]);
        text.push(b" \n"[usize::from(rng.below(12) == 0)]);
    }
    text.truncate(len);
    text
}

/// Without what is learned again when the memory is full: the other implementation learns nothing then.
fn encode_plainly(spec: PpmSpec, text: &[u8]) -> (Vec<u8>, u32) {
    let mut model = Model::new(spec.order, spec.memory_len());
    let (mut out, mut restarts) = (Vec::new(), 0);
    let mut coder = RangeEncoder::new(&mut out);
    for &byte in text {
        model.encode(byte, &mut coder);
        restarts += u32::from(model.take_restarted());
    }
    coder.finish();
    let mut model = Model::new(spec.order, spec.memory_len());
    let mut coder = RangeDecoder::new(&out);
    for &byte in text {
        assert_eq!(model.decode(&mut coder), Ok(byte));
    }
    assert!(coder.can_end());
    (out, restarts)
}

/// The other one's memory is counted in bytes, and its last ones are no unit.
fn memory_of(spec: PpmSpec) -> u32 {
    spec.memory_len() / UNIT_LEN * UNIT_LEN
}

fn assert_same_bytes(spec: PpmSpec, text: &[u8]) -> u32 {
    let (ours, restarts) = encode_plainly(spec, text);
    let mut encoder = Ppmd7Encoder::new(Vec::new(), spec.order.into(), memory_of(spec)).unwrap();
    encoder.write_all(text).unwrap();
    let theirs = encoder.finish(false).unwrap();
    // It begins with a zero, and ends with four bytes that name the beginning of the interval. Ours ends with
    // as few as name any number of it: no less than that, and not more by four bytes.
    let theirs = &theirs[1..];
    assert!(ours.len() <= theirs.len(), "{spec:?}");
    let mut difference = vec![0; theirs.len()];
    difference[..ours.len()].copy_from_slice(&ours);
    let mut borrow = false;
    for (ours, &theirs) in difference.iter_mut().zip(theirs).rev() {
        let (first, is_below) = ours.overflowing_sub(theirs);
        let (second, is_yet_below) = first.overflowing_sub(borrow.into());
        (*ours, borrow) = (second, is_below || is_yet_below);
    }
    let high = &difference[..theirs.len() - 4];
    assert!(!borrow && high.iter().all(|&byte| byte == 0), "{spec:?}: other probabilities");
    let zeros = vec![0; theirs.len() + 8 - ours.len()];
    let padded = [&[0][..], &ours, &zeros].concat();
    let mut decoder = Ppmd7Decoder::new(&padded[..], spec.order.into(), memory_of(spec)).unwrap();
    let mut data = vec![0; text.len()];
    decoder.read_exact(&mut data).unwrap();
    assert!(data == text, "{spec:?}: what it decodes of ours");
    restarts
}

#[test]
fn all_orders_are_those_of_ppmd() {
    let texts = [
        prose(1, 60_000),
        noise(2, 20_000),
        vec![7; 50_000],
        (0..30_000u32).flat_map(|n| (n / 7).to_be_bytes()).collect(),
        [prose(3, 10_000), noise(4, 5_000), prose(3, 10_000), vec![0; 5_000]].concat(),
        b"a".to_vec(),
    ];
    for order in PPM_ORDER_MIN..=PPM_ORDER_MAX {
        for text in &texts {
            assert_same_bytes(PpmSpec { order, memory_log: 22 }, text);
        }
    }
}

/// Where blocks are split, joined and taken from the text's share, and the model restarts.
#[test]
fn a_full_memory_is_that_of_ppmd() {
    for order in [2, 4, 6, 12] {
        let spec = PpmSpec { order, memory_log: 20 };
        let restarts = assert_same_bytes(spec, &prose(5, 900_000));
        assert!(restarts > 2 || order == 2, "order {order} restarted {restarts} times");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_bytes_are_coded_as_by_ppmd(
        order in PPM_ORDER_MIN..=PPM_ORDER_MAX,
        pieces in prop::collection::vec((0u8..4, any::<u64>(), 1usize..4_000), 1..8),
    ) {
        let text = pieces.iter().flat_map(|&(kind, seed, len)| piece(kind, seed, len));
        assert_same_bytes(PpmSpec { order, memory_log: 20 }, &text.collect::<Vec<u8>>());
    }
}

fn piece(kind: u8, seed: u64, len: usize) -> Vec<u8> {
    match kind {
        0 => prose(seed % 3, len),
        1 => noise(seed, len),
        2 => vec![seed as u8; len],
        _ => noise(seed, 1 + seed as usize % 40).repeat(1 + len / 40),
    }
}

#[test]
fn small_records_cost_little_more_than_one_long_one() {
    let text = prose(8, 200_000);
    let (whole, _) = encode_plainly(PpmSpec::default(), &text);
    let (mut encoder, mut decoder) = pair(PpmSpec::default());
    let records = text.chunks(100);
    let count = records.len();
    let sum: usize = records.map(|it| exchange(&mut encoder, &mut decoder, it)).sum();
    // A byte holds what a bit would, and that is all.
    assert!(sum < whole.len() + count, "{sum} bytes, {} as one, {count} records", whole.len());
}

/// The model begins again, in the middle of records, from the same bytes at both ends.
#[test]
fn a_restart_learns_what_is_remembered() {
    let text = prose(6, 1_500_000);
    let spec = PpmSpec { order: 8, memory_log: 20 };
    let (mut encoder, mut decoder) = pair(spec);
    let sum: usize =
        text.chunks(1_400).map(|record| exchange(&mut encoder, &mut decoder, record)).sum();
    let (plain, restarts) = encode_plainly(spec, &text);
    assert!(restarts > 3);
    assert!(sum < plain.len(), "{sum} bytes, {} without it", plain.len());
}

/// It is known before, and seldom said in vain.
#[test]
fn what_may_fill_the_memory_is_known_before() {
    for (order, text) in
        [(4, prose(7, 2_000_000)), (6, noise(8, 600_000)), (12, prose(9, 1_000_000))]
    {
        let spec = PpmSpec { order, memory_log: 20 };
        let mut model = Model::new(spec.order, spec.memory_len());
        let (mut restarts, mut said, mut records) = (0, 0, 0);
        for record in text.chunks(100) {
            let may_fill = model.may_fill(record.len());
            let mut restarted = false;
            for &byte in record {
                model.encode(byte, &mut Nowhere);
                restarted |= model.take_restarted();
            }
            assert!(may_fill || !restarted, "order {order}");
            restarts += u32::from(restarted);
            said += u32::from(may_fill);
            records += 1;
        }
        assert!(restarts > 1 && said * 3 < records, "{order}: {said} of {records}, {restarts}");
    }
}

/// What memory had in it before makes no difference, also where it is full, and free blocks are joined.
#[test]
fn memory_need_not_be_cleared() {
    let text = [prose(11, 500_000), noise(12, 100_000), prose(13, 300_000)].concat();
    for byte in [1, 0x55, 0xff] {
        for order in [2, 6, 12] {
            let mut models = [(); 2].map(|()| Model::new(order, 1 << 20));
            models[1].spoil(byte);
            let mut out = [Vec::new(), Vec::new()];
            for (model, out) in models.iter_mut().zip(&mut out) {
                let mut coder = RangeEncoder::new(out);
                text.iter().for_each(|&symbol| model.encode(symbol, &mut coder));
                assert!(model.take_restarted(), "order {order}");
                coder.finish();
            }
            assert!(out[0] == out[1], "order {order}, after {byte}");
        }
    }
}

#[test]
fn another_model_takes_the_memory_of_the_one_before() {
    let (mut encoder, mut decoder) = pair(PpmSpec { order: 12, memory_log: 20 });
    let text = prose(14, 600_000);
    for record in text.chunks(9_000) {
        exchange(&mut encoder, &mut decoder, record);
    }
    for (order, memory_log) in [(2, 20), (6, 22), (7, 22), (6, 20)] {
        let spec = PpmSpec { order, memory_log };
        assert_eq!((encoder.renew(spec), decoder.renew(spec)), (Ok(()), Ok(())));
        assert_eq!(encoder.memory_bytes(), ModelEncoder::new(spec).unwrap().memory_bytes());
        let (mut fresh, _) = pair(spec);
        let (mut expected, mut payload) = (Vec::new(), Vec::new());
        fresh.compress(&text[..9_000], &mut expected).unwrap();
        encoder.compress(&text[..9_000], &mut payload).unwrap();
        assert!(payload == expected, "{spec:?}");
        assert_eq!(decoder.decode(&payload, &mut [0; 9_000]), Ok(()));
    }
    let (none, before) = (PpmSpec { order: 13, memory_log: 20 }, decoder.spec());
    assert!(encoder.renew(none).is_err() && decoder.renew(none).is_err());
    assert_eq!((encoder.spec(), decoder.spec()), (before, before));
    exchange(&mut encoder, &mut decoder, &text[..9_000]);
}

#[test]
fn memory_is_what_was_asked_for() {
    for memory_log in PPM_MEMORY_LOG_MIN..=PPM_MEMORY_LOG_MAX {
        let (encoder, decoder) = pair(PpmSpec { order: 2, memory_log });
        let asked = 1 << memory_log;
        assert!((asked..asked + asked / 32 + 32_768).contains(&encoder.memory_bytes()));
        assert!(decoder.memory_bytes() < asked + asked / 32 + 32_768);
    }
    let history = History::new(PpmSpec::default().history_len());
    assert_eq!(history.memory_bytes(), 128 << 10);
    let learner = Learner::new(SMALL);
    assert!(learner.memory_bytes() > 1 << 20);
}
