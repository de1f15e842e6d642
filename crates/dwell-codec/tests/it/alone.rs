//! Contexts whose batches stand alone: whatever is lost, late or doubled between the two ends.

use std::collections::VecDeque;

use dwell_base::Rng;
use dwell_codec::{
    Base, CONTEXT_ALONE_BASE_LEN_MAX, CodecError, ContextDecoder, ContextDictionary,
    ContextEncoder, ContextSpec, DecodeError, Placed, Source,
};
use proptest::prelude::*;

use crate::common::{CANARY, text, with_canaries};

const RING_LOG: u8 = 17;

fn decode(
    decoder: &mut ContextDecoder,
    (generation, distance): (u8, u32),
    src: &[u8],
    room: usize,
) -> Result<(Placed, Vec<u8>), DecodeError> {
    let mut data = with_canaries(room);
    let result = decoder.decode_alone(generation, distance, src, &mut data[..room]);
    assert_eq!(data[room..], CANARY, "wrote beyond its buffer");
    data.truncate(room);
    result.map(|placed| (placed, data))
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut noise = vec![0; len];
    Rng::from_seed(seed).fill(&mut noise);
    noise
}

/// A generation, as its sender names it with each batch.
#[derive(Clone, Copy, Debug)]
struct Begun {
    name: u8,
    spec: ContextSpec,
    base: Base,
    keeps: bool,
}

/// A batch on its way.
#[derive(Clone, Debug)]
struct Sent {
    begun: Begun,
    distance: u32,
    batch: Vec<u8>,
    data: Vec<u8>,
}

/// Both ends, and what is between them.
struct Ends {
    encoder: ContextEncoder,
    decoder: ContextDecoder,
    begun: Begun,
    /// The latest generation that the decoder has begun.
    known: u8,
    rng: Rng,
    counter: u32,
}

impl Ends {
    fn new(level: i32, seed: u64) -> Self {
        let spec = ContextSpec { level, window_log: RING_LOG };
        let begun = Begun { name: 1, spec, base: Base::default(), keeps: false };
        let mut encoder = ContextEncoder::new(spec, RING_LOG).expect("it must be possible");
        encoder.begin_alone(spec, Base::default(), false).expect("it must be possible");
        let decoder = ContextDecoder::new(RING_LOG);
        Self { encoder, decoder, begun, known: 0, rng: Rng::from_seed(seed), counter: 0 }
    }

    fn batch(&mut self) -> Option<Sent> {
        self.counter += 1;
        let from = self.rng.below(20_000) as usize;
        let len = 30 + self.rng.below(4_000) as usize;
        let mut batch = text(30_000)[from..from + len].to_vec();
        batch[..4].copy_from_slice(&self.counter.to_be_bytes());
        let distance = (self.encoder.offset() - self.begun.base.offset) as u32;
        let mut data = CANARY.to_vec();
        let is_smaller =
            self.encoder.compress_alone(&batch, &mut data).expect("it must be possible");
        assert_eq!(data[..CANARY.len()], CANARY, "it must append");
        data.drain(..CANARY.len());
        is_smaller.then_some(Sent { begun: self.begun, distance, batch, data })
    }

    fn arrive(&mut self, sent: &Sent) {
        let Begun { name, spec, base, keeps } = sent.begun;
        if name.wrapping_sub(self.known).cast_signed() > 0 {
            self.decoder
                .begin_alone(name, (spec.window_log, base), keeps)
                .expect("it must be possible");
            self.known = name;
        }
        let decoded =
            decode(&mut self.decoder, (name, sent.distance), &sent.data, sent.batch.len());
        if self.known.wrapping_sub(name) < 4 {
            assert_eq!(decoded.expect("it must be possible").1, sent.batch);
        }
    }

    /// The decoder's offset is reported, and the next generation begins from there; one that keeps the ring
    /// only if the decoder knows the present one.
    fn advance(&mut self, spec: ContextSpec, keeps: bool) {
        let is_known = self.known == self.begun.name;
        if keeps && !is_known {
            return;
        }
        let offset = if is_known { self.decoder.offset() } else { self.begun.base.offset };
        let base = self.encoder.base_at(offset).unwrap_or_default();
        let len = base.len.min(spec.alone_base_len_max());
        let base = Base { len, ..base };
        self.encoder.begin_alone(spec, base, keeps).expect("it must be possible");
        let name = self.begun.name.wrapping_add(1);
        self.begun = Begun { name, spec, base, keeps };
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    /// Every batch that arrives within its generation, or three more, is restored: so the rings are equal
    /// wherever a base is named, or the bytes would differ.
    #[test]
    fn what_arrives_is_restored_whatever_is_missing(
        seed in any::<u64>(),
        level in prop::sample::select(vec![-1, 1, 3, 6, 12]),
        (loss, late) in (0u64..30, 0usize..20),
    ) {
        let mut ends = Ends::new(level, seed);
        let mut on_the_way = VecDeque::new();
        let mut furthest = 0;
        for step in 0..400 {
            on_the_way.extend(ends.batch());
            if ends.rng.below(100) < loss {
                // It is sent again a little later.
                if let Some(lost) = on_the_way.pop_back() {
                    let at = on_the_way.len() / 2;
                    on_the_way.insert(at, lost);
                }
            }
            while on_the_way.len() > late {
                let at = ends.rng.below(1 + on_the_way.len() as u64 / 2) as usize;
                let Some(sent) = on_the_way.remove(at) else { break };
                ends.arrive(&sent);
                if ends.rng.chance(0.05) {
                    ends.arrive(&sent);
                }
            }
            if step % 9 == 8 {
                ends.advance(ends.begun.spec, true);
            }
            if step % 131 == 130 {
                // What is missing never comes: from the first hole on all is forgotten.
                on_the_way.clear();
                let level = if ends.rng.chance(0.5) { 1 } else { level };
                ends.advance(ContextSpec { level, ..ends.begun.spec }, false);
            }
            furthest = furthest.max(ends.decoder.offset());
            prop_assert!(ends.decoder.memory_bytes() < 1 << 20);
        }
        // At the end it may be nothing: where a hole is at the very beginning, all is forgotten.
        prop_assert!(furthest > 0);
    }

    /// Whatever a peer claims: no panic, nothing beyond its bounds, and no more memory than was offered.
    #[test]
    fn any_claims_are_refused_or_restored(
        claims in prop::collection::vec(
            (any::<u8>(), 10u8..20, 0u64..300_000, 0u32..200_000, any::<bool>(), 0u8..6), 1..60),
        garbage in prop::collection::vec(any::<u8>(), 1..300),
    ) {
        let mut ends = Ends::new(1, 5);
        for (name, window_log, offset, len, keeps, op) in claims {
            let base = Base { offset: offset % 5_000 * u64::from(op), len: len % 3_000 };
            let before = ends.decoder.offset();
            match op {
                0 => {
                    let base = Base { offset, len };
                    let begun = ends.decoder.begin_alone(name, (window_log, base), keeps);
                    prop_assert!(begun.is_err() || base.len <= CONTEXT_ALONE_BASE_LEN_MAX);
                    prop_assert!(begun.is_err() || keeps || ends.decoder.offset() == offset);
                }
                1 => drop(ends.decoder.begin_alone(name, (window_log, Base::default()), keeps)),
                2 => drop(ends.decoder.begin(window_log, base)),
                3 => {
                    let room = usize::from(name) * 9 + 1;
                    let mut data = vec![0; room];
                    let _ = ends.decoder.decode(&garbage, &mut data);
                }
                _ => {
                    let sent = ends.batch().expect("text");
                    let data = if op == 4 { &sent.data } else { &garbage };
                    let decoded = decode(&mut ends.decoder, (name, len), data, sent.batch.len());
                    let moved = ends.decoder.offset() - before;
                    prop_assert!(decoded.is_ok() || moved == 0);
                }
            }
            prop_assert!(ends.decoder.memory_bytes() < (2 << RING_LOG) + (2 << 20));
        }
        let _ = ends.decoder.begin_alone(9, (RING_LOG, Base::default()), false);
        ends.known = 9;
        ends.begun.name = 9;
        ends.encoder.begin_alone(ends.begun.spec, Base::default(), false).unwrap();
        let sent = ends.batch().expect("text");
        ends.arrive(&sent);
    }
}

/// A repetition of what was confirmed costs a few bytes, again and again.
#[test]
fn each_batch_refers_to_the_base() {
    for level in [1, 3, 6, 9, 12, 15, 19] {
        let mut ends = Ends::new(level, 1);
        let spec = ContextSpec { level, window_log: RING_LOG };
        let words = noise(1, 20_000);
        let mut out = Vec::new();
        assert_eq!(ends.encoder.compress_alone(&words, &mut out), Ok(false), "it is noise");
        assert_eq!((ends.encoder.offset(), out.len()), (0, 0), "nothing has changed");
        let mixed = [&words[..], &[0; 500]].concat();
        ends.encoder.compress_alone(&mixed, &mut out).unwrap();
        ends.decoder.begin_alone(1, (RING_LOG, Base::default()), false).unwrap();
        let (placed, data) = decode(&mut ends.decoder, (1, 0), &out, mixed.len()).unwrap();
        assert_eq!((placed, data), (Placed::InRing, mixed));
        ends.known = 1;
        ends.advance(spec, true);
        ends.decoder.begin_alone(2, (RING_LOG, ends.begun.base), true).unwrap();
        for turn in 0..3 {
            out.clear();
            let distance = (ends.encoder.offset() - ends.begun.base.offset) as u32;
            assert_eq!(ends.encoder.compress_alone(&words, &mut out), Ok(true));
            assert!(out.len() < 400, "level {level}, turn {turn}: {}", out.len());
            let decoded = decode(&mut ends.decoder, (2, distance), &out, words.len());
            assert_eq!(decoded.map(|it| it.1).as_ref(), Ok(&words));
        }
    }
}

#[test]
fn a_change_of_the_kind_cuts_the_ring_and_what_is_late_is_decoded() {
    let mut ends = Ends::new(3, 7);
    let spec = ends.begun.spec;
    let first = ends.batch().unwrap();
    ends.arrive(&first);
    // A running generation begins from what is confirmed; a batch of the one before is late.
    let late = ends.batch().unwrap();
    let base = ends.encoder.base_at(ends.decoder.offset()).unwrap();
    ends.encoder.begin(spec, base).unwrap();
    ends.decoder.begin(RING_LOG, base).unwrap();
    assert_eq!(
        ends.encoder.compress_alone(&[0; 50], &mut Vec::new()),
        Err(CodecError::NoGeneration)
    );
    ends.arrive(&late);
    assert_eq!(ends.decoder.offset(), base.offset, "it has no place any more");
    let run = |ends: &mut Ends| {
        let mut data = Vec::new();
        ends.encoder.compress(&first.batch, &mut data).unwrap();
        data
    };
    let (one, two) = (run(&mut ends), run(&mut ends));
    let mut out = vec![0; first.batch.len()];
    ends.decoder.decode(&one, &mut out).unwrap();
    assert_eq!(ends.decoder.offset(), ends.encoder.offset() - first.batch.len() as u64);
    // And back, while one of the running ones is late.
    assert_eq!(ends.encoder.begin_alone(spec, base, true), Err(CodecError::NoGeneration));
    ends.begun.name = 1;
    ends.known = 1;
    ends.advance(spec, false);
    let next = ends.batch().unwrap();
    ends.arrive(&next);
    out.fill(0);
    ends.decoder.decode(&two, &mut out).unwrap();
    assert_eq!(out, first.batch);
    assert_eq!(ends.decoder.offset(), ends.encoder.offset(), "it has no place any more");
    // It is kept until somebody says that nothing more is to come.
    ends.advance(spec, true);
    let next = ends.batch().unwrap();
    ends.arrive(&next);
    let before = ends.decoder.memory_bytes();
    ends.decoder.forget_running();
    assert!(ends.decoder.memory_bytes() < before);
    assert_eq!(ends.decoder.decode(&two, &mut out), Err(DecodeError::NoGeneration));
    assert_eq!(ends.decoder.offset(), ends.encoder.offset());
}

#[test]
fn a_dictionary_is_the_base_of_the_first_batches_and_stays_in_the_ring() {
    let mut ends = Ends::new(3, 8);
    let spec = ends.begun.spec;
    let dictionary = ContextDictionary::new(text(50_000)).unwrap();
    for len in [0, 32_769, 50_001, u32::MAX] {
        let base = Base { offset: len.into(), len };
        let from = Source::Dictionary(&dictionary, len);
        assert_eq!(
            ends.encoder.begin_alone(spec, Source::Dictionary(&dictionary, len), false),
            Err(CodecError::Base(base))
        );
        let begun = ends.decoder.begin_alone(1, (RING_LOG, from), false);
        assert_eq!(begun, Err(DecodeError::Base(base)));
    }
    assert!(
        ends.decoder
            .begin_alone(1, (RING_LOG + 1, Source::Dictionary(&dictionary, 1)), false)
            .is_err()
    );
    ends.encoder.begin_alone(spec, Source::Dictionary(&dictionary, 20_000), false).unwrap();
    ends.decoder
        .begin_alone(1, (RING_LOG, Source::Dictionary(&dictionary, 20_000)), false)
        .unwrap();
    ends.begun.base = Base { offset: 20_000, len: 20_000 };
    ends.known = 1;
    assert_eq!((ends.encoder.offset(), ends.decoder.offset()), (20_000, 20_000));
    let (lost, next) = (ends.batch().unwrap(), ends.batch().unwrap());
    ends.arrive(&next);
    assert_eq!((ends.decoder.offset(), ends.decoder.has_holes()), (20_000, true));
    ends.arrive(&lost);
    assert_eq!(ends.decoder.offset(), ends.encoder.offset());
    // The next generation refers to it as to all that went through.
    ends.advance(spec, true);
    assert!(u64::from(ends.begun.base.len) > 20_000);
    let next = ends.batch().unwrap();
    ends.arrive(&next);
    assert_eq!(ends.decoder.offset(), ends.encoder.offset());
}
