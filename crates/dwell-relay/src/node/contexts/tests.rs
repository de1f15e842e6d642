//! A sender and a receiver of contexts, with all that can happen between them.

use std::collections::BTreeMap;
use std::slice;
use std::sync::Arc;

use dwell_base::time::{MILLI_NS, SECOND_NS};
use dwell_base::{Instant, Rng};
use dwell_codec::{CodecId, ContextDictionary, ContextSpec};
use dwell_wire::{Alone, ContextBody, ContextRecord, ContextReport, Start, StartBase};
use proptest::prelude::*;

use super::again::{Again, LostBatch};
use super::begin::Coder;
use super::begin::Kind;
use super::choice::Mode;
use super::incoming::{GapWaits, Incoming, Opened, Origin, Taken};
use super::job::Made;
use super::outgoing::{Entered, Left, Outgoing, Position};
use super::*;
use crate::node::allowance::Allowance;
use crate::node::store::InContext;

const LIMITS: Limits = Limits { contexts: 2, ring_log: 15, models: Some(MODELS) };
/// One of the two contexts may have a model.
const MODELS: ModelOffer = ModelOffer { contexts: 1, memory_log: 20 };
const ZSTD: Coder = Coder { zstd: ContextSpec { level: 1, window_log: 15 }, model: None };
const PPM: Coder = Coder { model: Some(PpmSpec { order: 4, memory_log: 26 }), ..ZSTD };
const RTT_NS: u64 = 20 * MILLI_NS;

fn at(ms: u64) -> Instant {
    Instant::from_ns(ms * MILLI_NS)
}

/// A record on its way.
#[derive(Clone, Debug)]
struct Sent {
    position: Position,
    datagram: u64,
    start: Option<Start>,
    alone: Option<Alone>,
    /// The number of the batch or the packet, and the bytes of it.
    original: Vec<u8>,
    data: Vec<u8>,
    is_raw: bool,
}

impl Sent {
    fn record(&self) -> ContextRecord<'_> {
        let body = if self.is_raw {
            ContextBody::Raw(&self.data)
        } else {
            let original_len = self.original.len() as u16;
            let Position { is_confirmed, .. } = self.position;
            let start = self.start.filter(|_| !is_confirmed);
            let alone = self.alone.map(|it| Alone { keeps: it.keeps && !is_confirmed, ..it });
            ContextBody::Batch { start, alone, is_columnar: false, original_len, data: &self.data }
        };
        let Position { context, generation, number, .. } = self.position;
        ContextRecord { context, generation, number: number as u16, body }
    }
}

/// Both ends, and what is between them.
struct Pair {
    seed: u64,
    coder: Coder,
    now: Instant,
    outgoing: Outgoing,
    incoming: Incoming,
    rng: Rng,
    sent: u64,
    datagrams: u64,
    /// Datagrams that are missing, and may yet come.
    missing: BTreeMap<u64, (Instant, Sent)>,
    /// What was lost with a generation and is to be encoded again, and all that ever was.
    lost: Vec<Vec<u8>>,
    again: u64,
    delivered: Vec<Vec<u8>>,
    out: Vec<u8>,
}

impl Pair {
    fn new(seed: u64) -> Self {
        Self::with(seed, LIMITS)
    }

    fn with(seed: u64, limits: Limits) -> Self {
        let mut outgoing = Outgoing::default();
        outgoing.begin_session(Instant::ZERO, Some(limits), false);
        let mut incoming = Incoming::new(limits);
        incoming.begin_session(limits, false);
        Self {
            seed,
            coder: if seed.is_multiple_of(2) { ZSTD } else { PPM },
            now: at(1),
            outgoing,
            incoming,
            rng: Rng::from_seed(seed),
            sent: 0,
            datagrams: 0,
            missing: BTreeMap::new(),
            lost: Vec::new(),
            again: 0,
            delivered: Vec::new(),
            out: vec![0; 65_535],
        }
    }

    fn content(&mut self) -> Vec<u8> {
        let len = 20 + self.rng.below(3_000) as usize;
        let mut content: Vec<u8> =
            (0..len).map(|at| b"queues are short, lines are long "[at % 33]).collect();
        content[..8].copy_from_slice(&self.sent.to_be_bytes());
        self.sent += 1;
        content
    }

    /// Compresses a batch of a group; none if it must do without a context.
    fn batch(&mut self, group: u64) -> Option<Sent> {
        let original = self.content();
        self.batch_of(group, original, false)
    }

    /// The same of what was lost, or was not.
    fn batch_of(&mut self, group: u64, original: Vec<u8>, is_again: bool) -> Option<Sent> {
        let Entered { context, epoch, mut encoder, generation, begins, .. } =
            self.outgoing.enter(self.now, group, self.coder)?;
        if begins {
            generation.apply(&mut encoder).expect("a base that is there");
        }
        let mut data = Vec::new();
        let mut alone = None;
        let offset = encoder.offset();
        match generation.kind {
            Kind::Running => encoder.compress(&original, &mut data).expect("a generation"),
            Kind::Alone { keeps } => {
                let distance = (encoder.offset() - generation.base.offset) as u32;
                alone = Some(Alone { distance, keeps });
                if !encoder.compress_alone(&original, &mut data).expect("a generation") {
                    let left = Left { made: Made::NotSmaller, primed: begins, took_ns: 100 };
                    assert!(self.outgoing.leave(self.now, (context, epoch), encoder, left));
                    return None;
                }
            }
        }
        let left = Left { made: Made::Done, primed: begins, took_ns: 100 };
        assert!(self.outgoing.leave(self.now, (context, epoch), encoder, left));
        let start = (begins || alone.is_some()).then(|| generation.start());
        let (generation, original_len) = (generation.number, original.len() as u16);
        let is_columnar = false;
        let place = InContext {
            context,
            epoch,
            generation,
            start,
            alone,
            offset,
            original_len,
            is_columnar,
        };
        let position = self.outgoing.number_batch(self.now, &place)?;
        let mut again = Again::default();
        again.set(0, is_again);
        self.outgoing.keep_original(self.now, &place, again);
        let (datagram, is_raw) = (0, false);
        Some(self.written(Sent { position, datagram, start, alone, original, data, is_raw }))
    }

    fn raw(&mut self, context: u8) -> Option<Sent> {
        let data = self.content();
        let position = self.outgoing.number_raw(self.now, context)?;
        let original = data.clone();
        Some(self.written(Sent {
            position,
            datagram: 0,
            start: None,
            alone: None,
            original,
            data,
            is_raw: true,
        }))
    }

    fn written(&mut self, mut sent: Sent) -> Sent {
        self.datagrams += 1;
        sent.datagram = self.datagrams;
        self.outgoing.written(sent.position, self.datagrams);
        sent
    }

    fn come(&mut self, sent: &Sent) {
        self.missing.remove(&sent.datagram);
        let origin = Origin { datagram: sent.datagram, is_present: true };
        self.incoming.came(self.now);
        let mut taken =
            self.incoming.take(self.now, &sent.record(), origin, &mut Allowance::new(128));
        if taken == Taken::Full {
            self.open_ready();
            taken = self.incoming.take(self.now, &sent.record(), origin, &mut Allowance::new(128));
        }
        match taken {
            Taken::Now => self.open(&sent.record()),
            Taken::Late => self.delivered.push(sent.data.clone()),
            Taken::Held | Taken::Full | Taken::Dropped => {}
        }
        self.open_ready();
    }

    fn open(&mut self, record: &ContextRecord<'_>) {
        match self.incoming.open(record, &mut self.out) {
            Opened::Raw => self.delivered.push(record.data().to_vec()),
            Opened::Batch { len, .. } => self.delivered.push(self.out[..len].to_vec()),
            Opened::Nothing => {}
        }
    }

    fn open_ready(&mut self) {
        while let Some((context, held)) = self.incoming.ready(self.now) {
            self.open(&held.record(context));
        }
    }

    /// Lets timers go off: gaps are given up, and reports come or don't.
    fn tend(&mut self, report_loss: f64) {
        let waits = GapWaits::of(Some(RTT_NS));
        let missing = &self.missing;
        let is_missing = |datagram| missing.range(..=datagram).next().is_some();
        self.incoming.expire(self.now, waits, is_missing);
        self.open_ready();
        let mut due = Vec::new();
        self.incoming.reports(self.now, waits.report_ns, &mut due);
        for report in due {
            if !self.rng.chance(report_loss) {
                self.outgoing.report(self.now, &report);
            }
        }
        let lost = std::iter::from_fn(|| self.outgoing.take_lost());
        let lost = lost.filter(LostBatch::is_first_time).map(|batch| batch.bytes);
        self.lost.extend(lost);
    }

    /// Encodes what was lost again: what finds no context comes without.
    fn batch_again(&mut self, group: u64) -> Option<Sent> {
        let original = self.lost.pop()?;
        self.again += 1;
        let sent = self.batch_of(group, original.clone(), true);
        if sent.is_none() {
            self.delivered.push(original);
        }
        sent
    }
}

/// Whatever is lost, late, doubled or never repeated: what comes out went in, once, in order, and in the
/// end all comes again.
fn run(seed: u64, loss: f64, gone: f64) -> (Pair, Vec<Vec<u8>>) {
    run_with(Pair::new(seed), (loss, gone), |_| Mode::Running)
}

/// The same with the mode that batches are to be of at each step.
fn run_with(
    mut pair: Pair,
    (loss, gone): (f64, f64),
    mode: impl Fn(u64) -> Mode,
) -> (Pair, Vec<Vec<u8>>) {
    pair.outgoing.set_takes_alone(true);
    if pair.seed % 2 == 1 {
        pair.outgoing.share(Some(dictionary()));
        pair.incoming.share(Some(dictionary()));
    }
    let mut originals = BTreeMap::new();
    for step in 0..3_000 {
        pair.now = pair.now + 2 * MILLI_NS;
        pair.outgoing.want(mode(step));
        // Three groups share two contexts: now and then one of them is not used for a while.
        let round = step / 250;
        if step % 250 == 0 {
            pair.now = pair.now + 2_100 * MILLI_NS;
        }
        let group = pair.rng.below(2) + round % 2;
        let sent = match pair.rng.below(4) {
            0 => pair.raw(group as u8 % 2),
            1 if !pair.lost.is_empty() => pair.batch_again(group),
            _ => pair.batch(group),
        };
        let is_quiet = step >= 2_500;
        if let Some(sent) = sent {
            originals.insert(sent.original[..8].to_vec(), sent.original.clone());
            match pair.rng.chance(if is_quiet { 0.0 } else { loss }) {
                false => {
                    pair.come(&sent);
                    // Datagrams that come twice are dropped as such.
                    if !sent.is_raw && sent.alone.is_none() && pair.rng.chance(0.02) {
                        pair.come(&sent);
                    }
                }
                true => {
                    let again = pair.now + RTT_NS + pair.rng.below(3) * RTT_NS;
                    pair.missing.insert(sent.datagram, (again, sent));
                }
            }
        }
        let due: Vec<_> = pair
            .missing
            .iter()
            .filter(|(_, (again, _))| *again <= pair.now)
            .map(|(_, (_, sent))| sent.clone())
            .collect();
        for sent in due {
            if pair.rng.chance(gone) {
                pair.missing.remove(&sent.datagram);
                if pair.rng.chance(0.5) {
                    pair.outgoing.gone(pair.now, sent.datagram);
                }
            } else {
                pair.come(&sent);
            }
        }
        pair.tend(if is_quiet { 0.0 } else { 0.2 });
    }
    for _ in 0..200 {
        pair.now = pair.now + 20 * MILLI_NS;
        pair.tend(0.0);
    }
    assert_eq!(pair.incoming.held(), (0, 0));
    let mut seen = std::collections::HashSet::new();
    for content in &pair.delivered {
        assert_eq!(originals.get(&content[..8]), Some(content), "seed {}: altered", pair.seed);
        assert!(seen.insert(content[..8].to_vec()), "seed {}: twice", pair.seed);
    }
    (pair, originals.into_values().collect())
}

#[test]
fn without_loss_all_comes_in_order() {
    let (pair, sent) = run(1, 0.0, 0.0);
    assert_eq!(pair.delivered.len(), sent.len());
    assert_eq!(pair.incoming.counts.given_up, 0);
    assert!(pair.outgoing.counts.evicted > 0, "three groups share two contexts");
    let (tx, rx) = (pair.outgoing.status(), pair.incoming.status());
    assert!(tx.dictionary_starts > 3 && tx.cold_starts == 0, "{tx:?}");
    assert_eq!(tx.dictionary_starts, rx.dictionary_starts);
}

#[test]
fn what_is_lost_is_waited_for_and_nothing_is_decoded_wrongly() {
    for seed in 0..20 {
        let (pair, sent) = run(seed, 0.05, 0.0);
        assert_eq!(pair.delivered.len(), sent.len(), "seed {seed}");
        assert!(pair.incoming.counts.gaps > 10, "seed {seed}");
        let (pair, sent) = run(seed, 0.1, 0.2);
        let counts = &pair.incoming.counts;
        assert!(counts.lost > 0 && counts.damaged == 0, "seed {seed}: {counts:?}");
        let shares = (pair.delivered.len(), sent.len());
        assert!(shares.0 > shares.1 / 3, "seed {seed}: {shares:?}");
        // When nothing is lost any more all comes.
        let came: std::collections::HashSet<_> = pair.delivered.iter().collect();
        assert!(sent.iter().rev().take(50).all(|it| came.contains(it)), "seed {seed}");
    }
}

const ACKNOWLEDGED: fn(u64) -> Mode = |_| Mode::Acknowledged;

#[test]
fn what_stands_alone_is_delivered_whatever_is_missing() {
    // What is lost comes again after 60 ms at most. In this time come up to 35 kB, which is more than the
    // smallest ring has.
    let limits = Limits { ring_log: 16, ..LIMITS };
    for seed in 0..20 {
        let (pair, sent) = run_with(Pair::with(seed, limits), (0.05, 0.0), ACKNOWLEDGED);
        assert_eq!(pair.delivered.len(), sent.len(), "seed {seed}");
        let counts = &pair.incoming.counts;
        assert_eq!(
            (counts.gaps, counts.lost, counts.damaged),
            (0, 0, 0),
            "seed {seed}: {counts:?}"
        );
        assert!(counts.acknowledged > 50, "seed {seed}: {counts:?}");
        // It refers to what went before: the same words come again and again.
        let out = &pair.outgoing.counts;
        assert!(out.cold <= 4 + out.evicted, "seed {seed}: {out:?}");
        // What never comes costs itself only, and what refers to it is not sent.
        let (pair, sent) = run_with(Pair::new(seed), (0.1, 0.2), ACKNOWLEDGED);
        let counts = &pair.incoming.counts;
        assert!(counts.lost > 0 && counts.damaged == 0 && counts.gaps == 0, "{seed}: {counts:?}");
        let shares = (pair.delivered.len(), sent.len());
        assert!(shares.0 > shares.1 * 97 / 100, "seed {seed}: {shares:?}, {counts:?}");
    }
}

#[test]
fn what_was_sent_before_a_change_of_the_mode_is_not_lost_by_it() {
    let modes = |step: u64| match step / 170 % 2 {
        0 => Mode::Running,
        _ => Mode::Acknowledged,
    };
    for seed in 0..20 {
        let (pair, sent) = run_with(Pair::new(seed), (0.0, 0.0), modes);
        assert_eq!(pair.delivered.len(), sent.len(), "seed {seed}");
        assert!(pair.incoming.counts.alone > 500, "seed {seed}");
        let (pair, sent) = run_with(Pair::new(seed), (0.03, 0.0), modes);
        let (counts, shares) = (&pair.incoming.counts, (pair.delivered.len(), sent.len()));
        // Pauses of two seconds are longer than a kind is kept that is not of use any more.
        assert!(shares.0 > shares.1 * 995 / 1_000, "seed {seed}: {shares:?} {counts:?}");
        assert_eq!(counts.damaged, 0, "seed {seed}: {counts:?}");
        let (pair, _) = run_with(Pair::new(seed), (0.1, 0.2), modes);
        assert_eq!(pair.incoming.counts.damaged, 0, "seed {seed}");
    }
}

#[test]
fn a_peer_that_has_forgotten_all_is_sent_a_cold_start_if_batches_stand_alone() {
    let mut pair = Pair::new(6);
    pair.outgoing.set_takes_alone(true);
    pair.outgoing.want(Mode::Acknowledged);
    for _ in 0..5 {
        // One that is too short to become smaller goes without.
        if let Some(sent) = pair.batch(0) {
            pair.come(&sent);
        }
        pair.now = pair.now + 100 * MILLI_NS;
        pair.tend(0.0);
    }
    let before = pair.delivered.len();
    assert!(before >= 3, "{before}");
    pair.incoming = Incoming::new(LIMITS);
    for _ in 0..200 {
        pair.now = pair.now + 100 * MILLI_NS;
        if let Some(sent) = pair.batch(0) {
            pair.come(&sent);
        }
        pair.tend(0.0);
    }
    assert!(pair.delivered.len() > before + 100, "{}", pair.delivered.len());
}

/// Then what is behind a hole can't be kept, and the next generation begins before it.
#[test]
fn a_ring_that_is_shorter_than_what_comes_in_a_round_trip_costs_generations_and_no_packet() {
    let mut lost = 0;
    for seed in 0..20 {
        let (pair, sent) = run_with(Pair::new(seed), (0.05, 0.0), ACKNOWLEDGED);
        assert_eq!(pair.delivered.len(), sent.len(), "seed {seed}");
        let counts = &pair.incoming.counts;
        assert_eq!((counts.gaps, counts.damaged), (0, 0), "seed {seed}: {counts:?}");
        lost += counts.lost;
    }
    assert!((1..5).contains(&lost), "{lost}");
}

#[test]
fn a_peer_that_does_not_take_what_stands_alone_is_not_sent_it() {
    let mut pair = Pair::new(6);
    pair.outgoing.want(Mode::Acknowledged);
    let sent = pair.batch(0).expect("a context");
    assert_eq!(sent.alone, None);
    pair.come(&sent);
    assert_eq!(pair.delivered.len(), 1);
}

#[test]
fn a_start_that_is_lost_does_not_end_the_context() {
    let mut pair = Pair::new(3);
    let first = pair.batch(0).expect("a context");
    let second = pair.batch(0).expect("a context");
    pair.come(&second);
    pair.now = pair.now + 3 * SECOND_NS;
    pair.tend(0.0);
    assert_eq!(pair.delivered.len(), 0);
    // It is known that the generation is lost: the next one begins.
    let third = pair.batch(0).or_else(|| {
        pair.now = pair.now + SECOND_NS;
        pair.batch(0)
    });
    let third = third.expect("a context");
    assert!(third.start.is_some());
    pair.come(&third);
    assert_eq!(pair.delivered.len(), 1);
    assert_eq!(pair.delivered[0], third.original);
    pair.come(&first);
    assert_eq!((pair.delivered.len(), pair.incoming.counts.late), (1, 1));
}

#[test]
fn a_generation_begins_from_what_was_confirmed() {
    let mut pair = Pair::new(4);
    for _ in 0..5 {
        let sent = pair.batch(0).expect("a context");
        pair.come(&sent);
    }
    pair.now = pair.now + SECOND_NS;
    pair.tend(0.0);
    let bytes: usize = pair.delivered.iter().map(Vec::len).sum();
    let lost = pair.batch(0).expect("a context");
    pair.outgoing.gone(pair.now, lost.datagram);
    let next = pair.batch(0).expect("the one before lasted long enough");
    let start = next.start.expect("another generation");
    assert_eq!(start.base, StartBase::Ring { offset: bytes as u64, len: bytes as u32 });
    pair.come(&next);
    pair.now = pair.now + SECOND_NS;
    pair.tend(0.0);
    assert_eq!(pair.delivered.last(), Some(&next.original));
    assert_eq!(pair.incoming.counts.generations, 2);
}

#[test]
fn what_is_missed_of_a_generation_that_has_ended_does_not_end_the_next() {
    let mut pair = Pair::new(7);
    let lost = [pair.batch(0).expect("a context"), pair.batch(0).expect("a context")];
    pair.outgoing.gone(pair.now, lost[0].datagram);
    pair.now = pair.now + SECOND_NS;
    let next = pair.batch(0).expect("the one before lasted long enough");
    assert!(next.start.is_some());
    pair.outgoing.gone(pair.now, lost[1].datagram);
    let last = pair.batch(0).expect("a context");
    assert_eq!(last.start, None, "it goes on");
    // But what is missed of itself ends it.
    pair.outgoing.gone(pair.now, last.datagram);
    pair.now = pair.now + SECOND_NS;
    assert!(pair.batch(0).expect("a context").start.is_some());
}

#[test]
fn a_report_that_was_overtaken_changes_nothing() {
    let mut pair = Pair::new(8);
    let mut reports = Vec::new();
    for _ in 0..2 {
        let sent = pair.batch(0).expect("a context");
        pair.come(&sent);
        pair.now = pair.now + SECOND_NS;
        pair.incoming.reports(pair.now, 1, &mut reports);
    }
    assert_eq!(reports.len(), 2);
    let lost = ContextReport { is_lost: true, ..reports[0] };
    pair.outgoing.report(pair.now, &reports[1]);
    pair.outgoing.report(pair.now, &lost);
    assert_eq!(pair.batch(0).expect("a context").start, None);
}

#[test]
fn more_groups_than_contexts_do_not_take_them_from_each_other() {
    let mut pair = Pair::new(9);
    let mut went_without = 0;
    for group in (0..4).cycle().take(400) {
        pair.now = pair.now + MILLI_NS;
        match pair.batch(group) {
            Some(sent) => pair.come(&sent),
            None => went_without += 1,
        }
        pair.tend(0.0);
    }
    assert_eq!(went_without, 200);
    assert_eq!(pair.incoming.counts.generations, 2);
    // What was not used for long is given to another.
    pair.now = pair.now + 3 * SECOND_NS;
    assert!(pair.batch(3).is_some());
}

#[test]
fn generations_of_which_nothing_is_sent_use_no_numbers_up() {
    let mut pair = Pair::new(9);
    for group in 0..300 {
        pair.now = pair.now + 3 * SECOND_NS;
        let entered = pair.outgoing.enter(pair.now, group, pair.coder).expect("a context");
        let Entered { context, epoch, encoder, .. } = entered;
        let left = Left { made: Made::NotSmaller, primed: false, took_ns: 1 };
        pair.outgoing.leave(pair.now, (context, epoch), encoder, left);
    }
    pair.now = pair.now + 3 * SECOND_NS;
    let sent = pair.batch(1_000).expect("a context");
    pair.come(&sent);
    assert_eq!(pair.delivered, slice::from_ref(&sent.original));
}

#[test]
fn a_path_keeps_order_by_contexts_only_while_they_run() {
    let mut pair = Pair::new(9);
    let sent = pair.batch(0).expect("a context");
    pair.come(&sent);
    assert!(pair.incoming.keeps_order());
    pair.outgoing.set_takes_alone(true);
    pair.outgoing.want(Mode::Acknowledged);
    pair.now = pair.now + 5 * SECOND_NS;
    let sent = pair.batch(1).expect("another context");
    pair.come(&sent);
    assert!(!pair.incoming.keeps_order(), "the first one may run yet, but nothing came of it");
}

#[test]
fn a_receiver_gives_back_what_nobody_uses_and_begins_again() {
    for mode in [Mode::Running, Mode::Acknowledged] {
        let mut pair = Pair::new(9);
        pair.outgoing.set_takes_alone(true);
        pair.outgoing.want(mode);
        let come = |pair: &mut Pair| {
            let sent = pair.batch(0).expect("a context");
            pair.come(&sent);
            let came = pair.delivered.last() == Some(&sent.original);
            pair.now = pair.now + SECOND_NS;
            pair.tend(0.0);
            came
        };
        (0..4).for_each(|_| assert!(come(&mut pair)));
        let used_bytes = pair.incoming.status().memory_bytes;
        // A sender that remembers for longer tries the same base twice, and begins from nothing then.
        pair.now = pair.now + 301 * SECOND_NS;
        pair.tend(0.0);
        let idle_bytes = pair.incoming.status().memory_bytes;
        assert!(idle_bytes < used_bytes / 10, "{idle_bytes} of {used_bytes}");
        let came: Vec<_> = (0..4).map(|_| come(&mut pair)).collect();
        assert_eq!(came[2..], [true; 2], "{mode:?}");
    }
}

fn dictionary() -> Arc<ContextDictionary> {
    Arc::new(ContextDictionary::new(b"queues are short, lines are long ".repeat(40)).expect("some"))
}

/// The base of the generation that a batch begins.
fn base_of(sent: &Sent) -> Option<StartBase> {
    sent.start.map(|start| start.base)
}

fn is_of_dictionary(sent: &Sent) -> bool {
    matches!(base_of(sent), Some(StartBase::Dictionary { .. }))
}

#[test]
fn a_context_begins_from_the_dictionary_and_goes_on_from_what_was_confirmed() {
    let mut pair = Pair::new(10);
    pair.outgoing.share(Some(dictionary()));
    pair.incoming.share(Some(dictionary()));
    let first = pair.batch(0).expect("a context");
    let name = (dictionary().name() >> 64) as u64;
    assert_eq!(base_of(&first), Some(StartBase::Dictionary { name, len: dictionary().len() }));
    pair.come(&first);
    assert_eq!(pair.delivered, slice::from_ref(&first.original));
    pair.now = pair.now + SECOND_NS;
    pair.tend(0.0);
    let lost = pair.batch(0).expect("a context");
    pair.outgoing.gone(pair.now, lost.datagram);
    let next = pair.batch(0).expect("the one before lasted long enough");
    let len = dictionary().len() + first.original.len() as u32;
    assert_eq!(base_of(&next), Some(StartBase::Ring { offset: len.into(), len }));
    pair.come(&next);
    pair.now = pair.now + SECOND_NS;
    pair.tend(0.0);
    assert_eq!(pair.delivered.last(), Some(&next.original));
    let (tx, rx) = (pair.outgoing.status(), pair.incoming.status());
    assert_eq!((tx.dictionary_starts, tx.cold_starts, rx.dictionary_starts), (1, 0, 1));
}

/// By a fault: the peer named one that it does not have, or another one by the same name.
#[test]
fn a_peer_that_cannot_begin_from_the_dictionary_is_sent_a_beginning_from_nothing() {
    let other = ContextDictionary::new(vec![7; 5_000]).map(Arc::new);
    for theirs in [None, other] {
        let mut pair = Pair::new(11);
        pair.outgoing.share(Some(dictionary()));
        pair.incoming.share(theirs);
        let mut begun = Vec::new();
        for _ in 0..100 {
            pair.now = pair.now + 100 * MILLI_NS;
            if let Some(sent) = pair.batch(0) {
                begun.extend(sent.start.map(|_| is_of_dictionary(&sent)));
                pair.come(&sent);
            }
            pair.tend(0.0);
        }
        assert_eq!(begun, [true, true, false], "once more, since it may have been lost");
        assert!(pair.delivered.len() > 80, "{}", pair.delivered.len());
        // Another session, another try.
        pair.outgoing.share(Some(dictionary()));
        pair.outgoing.dropped(pair.now);
        pair.now = pair.now + SECOND_NS;
        assert!(!is_of_dictionary(&pair.batch(0).expect("a context")), "the ring has more");
        assert!(is_of_dictionary(&pair.batch(1).expect("a context")));
    }
}

/// A record that was sent before the dictionary changed.
#[test]
fn what_begins_from_the_dictionary_of_before_is_not_decoded_with_that_of_now() {
    let mut pair = Pair::new(12);
    pair.outgoing.share(Some(dictionary()));
    let first = pair.batch(0).expect("a context");
    // The same length, so that only the name differs.
    let bytes = vec![b'x'; dictionary().len() as usize];
    pair.incoming.share(ContextDictionary::new(bytes).map(Arc::new));
    pair.come(&first);
    assert_eq!((pair.delivered.len(), pair.incoming.counts.no_base), (0, 1));
}

#[test]
fn what_was_idle_for_long_begins_from_the_dictionary_again() {
    let mut pair = Pair::new(13);
    pair.outgoing.share(Some(dictionary()));
    pair.incoming.share(Some(dictionary()));
    for _ in 0..3 {
        let sent = pair.batch(0).expect("a context");
        assert!(is_of_dictionary(&sent));
        pair.come(&sent);
        pair.tend(0.0);
        pair.now = pair.now + 200 * SECOND_NS;
        pair.outgoing.expire(pair.now);
    }
    assert_eq!(pair.delivered.len(), 3);
}

#[test]
fn a_peer_that_lets_every_generation_end_gets_few() {
    let mut pair = Pair::new(5);
    let mut began = 0;
    for _ in 0..1_000 {
        pair.now = pair.now + 10 * MILLI_NS;
        let Some(sent) = pair.batch(0) else { continue };
        began += u64::from(sent.start.is_some());
        let report = ContextReport {
            context: 0,
            generation: sent.position.generation,
            is_lost: true,
            next_number: 1,
            ring_offset: 0,
        };
        pair.outgoing.report(pair.now, &report);
    }
    assert!((5..20).contains(&began), "{began} in ten seconds");
}

#[test]
fn a_peer_that_has_forgotten_all_is_sent_a_cold_start() {
    let mut pair = Pair::new(6);
    for _ in 0..5 {
        let sent = pair.batch(0).expect("a context");
        pair.come(&sent);
        pair.now = pair.now + 100 * MILLI_NS;
        pair.tend(0.0);
    }
    // Without another incarnation, as if by a fault.
    pair.incoming = Incoming::new(LIMITS);
    let before = pair.delivered.len();
    for _ in 0..200 {
        pair.now = pair.now + 100 * MILLI_NS;
        if let Some(sent) = pair.batch(0) {
            pair.come(&sent);
        }
        pair.tend(0.0);
    }
    assert!(pair.delivered.len() > before + 100, "{}", pair.delivered.len());
}

type AnyRecord =
    (u8, u8, u16, (Option<(u8, u8, u64, u32)>, Option<(u32, bool)>), bool, u16, Vec<u8>);

fn any_record() -> impl Strategy<Value = AnyRecord> {
    let start = prop::option::of((0u8..4, 10u8..24, 0u64..100_000, any::<u32>()));
    let data = prop::collection::vec(any::<u8>(), 1..60);
    let alone = prop::option::of((0u32..200_000, any::<bool>()));
    (0u8..4, any::<u8>(), any::<u16>(), (start, alone), any::<bool>(), 1u16.., data)
}

proptest! {
    /// Whatever a peer sends: no panic, and no more memory than was offered.
    #[test]
    fn what_makes_no_sense_is_dropped(
        records in prop::collection::vec((any_record(), 0u64..30), 1..200),
    ) {
        let mut incoming = Incoming::new(LIMITS);
        incoming.share(Some(dictionary()));
        let mut out = vec![0; 65_535];
        let mut now = at(1);
        for ((context, generation, number, how, is_raw, original_len, data), later_ms) in records {
            let (start, alone) = how;
            let alone = alone.map(|(distance, keeps)| Alone { distance, keeps });
            let start = start.map(|(codec, window_log, offset, len)| {
                let base = match offset % 2 {
                    0 => StartBase::Ring { offset, len },
                    // Its own, or one that it does not have.
                    _ => StartBase::Dictionary {
                        name: if offset % 3 == 0 { offset } else { (dictionary().name() >> 64) as u64 },
                        len: len >> (offset % 32),
                    },
                };
                Start { codec, window_log, base }
            });
            let body = match is_raw {
                true => ContextBody::Raw(&data),
                false => {
                    let (alone, is_columnar) = (alone, false);
                    ContextBody::Batch { start, alone, is_columnar, original_len, data: &data }
                }
            };
            let record = ContextRecord { context, generation, number, body };
            let origin = Origin { datagram: number.into(), is_present: true };
            if incoming.take(now, &record, origin, &mut Allowance::new(128)) == Taken::Now {
                incoming.open(&record, &mut out);
            }
            while let Some((context, held)) = incoming.ready(now) {
                incoming.open(&held.record(context), &mut out);
            }
            now = now + later_ms * MILLI_NS;
            let waits = GapWaits::of(Some(RTT_NS));
            incoming.expire(now, waits, |datagram| datagram % 2 == 0);
            let mut due = Vec::new();
            incoming.reports(now, waits.report_ns, &mut due);
            prop_assert!(due.len() <= 2);
            prop_assert!(incoming.deadline(waits, |_| true) >= Instant::ZERO);
            let memory = incoming.status().memory_bytes;
            prop_assert!(memory < 2 * (4 << 20), "{memory}");
        }
    }

    /// Whatever a peer reports: what is sent to one that tells the truth afterwards can be decoded.
    #[test]
    fn false_reports_harm_nobody_else(
        reports in prop::collection::vec((0u8..3, 0u8..4, any::<bool>(), 0u64..40, 0u64..9_000), 1..60),
    ) {
        let mut pair = Pair::new(9);
        for (context, generation, is_lost, next_number, ring_offset) in reports {
            let report = ContextReport { context, generation, is_lost, next_number, ring_offset };
            pair.outgoing.report(pair.now, &report);
            pair.now = pair.now + 30 * MILLI_NS;
            if let Some(sent) = pair.batch(0) {
                prop_assert!(sent.data.len() <= sent.original.len() + 10);
            }
        }
    }
}

/// Nothing that waits takes more than its limit, and what is too much goes on without what is missing.
#[test]
fn what_is_held_is_bounded() {
    let mut incoming = Incoming::new(LIMITS);
    let data = vec![7; 60_000];
    let mut out = vec![0; 65_535];
    for number in 2..2_000u16 {
        let body = ContextBody::Raw(&data);
        let record = ContextRecord { context: 0, generation: 1, number, body };
        let origin = Origin { datagram: 1, is_present: true };
        for _ in 0..2 {
            let taken = incoming.take(at(1), &record, origin, &mut Allowance::new(1));
            assert!(incoming.held().0 <= 4 << 20);
            if taken == Taken::Now {
                incoming.open(&record, &mut out);
            }
            while let Some((context, held)) = incoming.ready(at(1)) {
                incoming.open(&held.record(context), &mut out);
            }
            if taken != Taken::Full {
                break;
            }
        }
    }
    assert_eq!((incoming.counts.raw, incoming.counts.given_up), (1_998, 1));
}

/// A peer lets a generation end with each of its datagrams. The reports are together, and few; the first
/// one is sent at once.
#[test]
fn lost_generations_are_reported_at_once_but_not_for_each_datagram() {
    lose_with_each_datagram(None);
    lose_with_each_datagram(Some(Alone { distance: 0, keeps: false }));
}

fn lose_with_each_datagram(alone: Option<Alone>) {
    let mut incoming = Incoming::new(LIMITS);
    let mut out = vec![0; 65_535];
    let codec = CodecId::Zstd as u8;
    let base = StartBase::Ring { offset: 0, len: 0 };
    let start = Start { codec, window_log: LIMITS.ring_log, base };
    let waits = GapWaits::of(Some(RTT_NS));
    let mut times = Vec::new();
    for turn in 0..5_000_u16 {
        let now = Instant::from_ns(SECOND_NS + u64::from(turn) * SECOND_NS / 5_000);
        let body = ContextBody::Batch {
            start: Some(start),
            alone,
            is_columnar: false,
            original_len: 1,
            data: &[0xff],
        };
        let (context, generation) = ((turn % 2) as u8, ((turn / 2) as u8).wrapping_add(1));
        let record = ContextRecord { context, generation, number: turn / 2 + 1, body };
        let origin = Origin { datagram: turn.into(), is_present: true };
        assert_eq!(incoming.take(now, &record, origin, &mut Allowance::new(128)), Taken::Now);
        assert_eq!(incoming.open(&record, &mut out), Opened::Nothing);
        let mut due = Vec::new();
        if now >= incoming.deadline(waits, |_| false) {
            incoming.reports(now, waits.report_ns, &mut due);
        }
        assert!(due.iter().all(|report| report.is_lost));
        times.extend((!due.is_empty()).then_some((turn, due.len())));
    }
    assert_eq!(times[0], (0, 1), "at once");
    assert!((45..=55).contains(&times.len()), "{} times in a second", times.len());
    assert!(times[1..].iter().all(|&(_, together)| together == 2), "{times:?}");
}

/// What is lost with a generation is encoded again, unless it was before; none comes twice (see [`run_with`]).
#[test]
fn what_is_lost_with_a_generation_comes_with_the_next() {
    for seed in 0..20 {
        let (pair, sent) = run(seed, 0.1, 0.2);
        let shares = (pair.delivered.len(), sent.len(), pair.again);
        // What is yet lost was lost twice, or its generation had given way to another before the peer gave it up.
        assert!(pair.again > 50 && shares.0 > shares.1 * 87 / 100, "seed {seed}: {shares:?}");
    }
}

#[test]
fn what_is_lost_comes_back_once_and_the_encoder_may_be_away_meanwhile() {
    let mut pair = Pair::new(14);
    let first = pair.batch(0).expect("a context");
    pair.come(&first);
    pair.now = pair.now + SECOND_NS;
    pair.tend(0.0);
    let lost: Vec<_> = (0..3).map(|_| pair.batch(0).expect("a context")).collect();
    let entered = pair.outgoing.enter(pair.now, 0, pair.coder).expect("a context");
    let report = ContextReport {
        context: 0,
        generation: first.position.generation,
        is_lost: true,
        next_number: lost[2].position.number,
        // The first of them came.
        ring_offset: (first.original.len() + lost[0].original.len()) as u64,
    };
    pair.outgoing.report(pair.now, &report);
    assert!(!pair.outgoing.has_lost(), "nobody has the ring");
    let Entered { context, epoch, encoder, .. } = entered;
    let left = Left { made: Made::Done, primed: false, took_ns: 1 };
    assert!(!pair.outgoing.leave(pair.now, (context, epoch), encoder, left));
    let again: Vec<_> =
        std::iter::from_fn(|| pair.outgoing.take_lost()).map(|it| it.bytes).collect();
    assert_eq!(again, lost[1..].iter().map(|it| it.original.clone()).collect::<Vec<_>>());
    // That it is lost is said again and again.
    pair.outgoing.report(pair.now, &report);
    assert!(!pair.outgoing.has_lost());
    // It is the same in the next generation; but there, what is lost was lost before.
    pair.now = pair.now + SECOND_NS;
    let sent = pair.batch_of(0, again[0].clone(), true).expect("a context");
    let generation = sent.position.generation;
    let next_number = sent.position.number;
    pair.outgoing.report(pair.now, &ContextReport { generation, next_number, ..report });
    let lost = pair.outgoing.take_lost().expect("it is lost as well");
    assert!(!lost.is_first_time() && !pair.outgoing.has_lost());
}

/// No report comes, and so many generations or batches are sent that nothing more can be: then both ends begin
/// from nothing.
#[test]
fn a_context_without_reports_for_long_does_not_stay_without_batches() {
    for ends in [true, false] {
        let mut pair = Pair::new(16);
        let mut refused_ms = 0;
        while !pair.outgoing.take_stuck() {
            pair.now = pair.now + 50 * MILLI_NS;
            match pair.batch(0) {
                Some(sent) => pair.come(&sent),
                None => refused_ms += 50,
            }
            if ends && pair.datagrams.is_multiple_of(40) {
                pair.outgoing.dropped(pair.now);
            }
            assert!(pair.now < at(10_000_000), "it would never be known");
        }
        assert!(refused_ms > 4_000 && pair.delivered.len() > 5_000, "{}", pair.delivered.len());
        assert!(pair.batch(0).is_none());
        // Nothing else changes that, but a report does.
        let mut due = Vec::new();
        pair.incoming.reports(pair.now, 1, &mut due);
        if ends {
            pair.outgoing.begin_session(pair.now, Some(LIMITS), false);
            pair.incoming.begin_session(LIMITS, false);
        } else {
            due.iter().for_each(|report| pair.outgoing.report(pair.now, report));
        }
        let sent = pair.batch(0).expect("a context");
        pair.come(&sent);
        assert_eq!(pair.delivered.last(), Some(&sent.original));
    }
}
