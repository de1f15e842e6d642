//! A sender and a receiver of contexts, with all that can happen between them.

mod both;
mod receivers;
mod senders;

use std::collections::BTreeMap;
use std::slice;
use std::sync::Arc;

use dwell_base::time::{MILLI_NS, SECOND_NS};
use dwell_base::{Instant, Rate, Rng};
use dwell_codec::{CodecId, ContextDictionary, ContextSpec, PpmSpec};
use dwell_policy::method::Processor;
use dwell_wire::{Alone, ContextBody, ContextRecord, ContextReport, Headers, Start, StartBase};
use proptest::prelude::*;

use super::again::{Again, LostBatch};
use super::begin::Kind;
use super::begin::{Coder, Wanted};
use super::choice::Mode;
use super::incoming::{GapWaits, Incoming, Opened, Origin, Taken};
use super::job::Made;
use super::outgoing::{Entered, Left, Outgoing, Position};
use super::*;
use crate::node::allowance::Allowance;
use crate::node::store::InContext;

const LIMITS: Limits = Limits { contexts: 2, ring_log: 15, models: Some(MODELS) };
/// One of the two contexts may have a model.
const MODELS: ModelOffer = ModelOffer { contexts: 1, memory_log: 20, takes_mixed: true };
const ZSTD: Coder = Coder { zstd: ContextSpec { level: 1, window_log: 15 }, model: None };
const PPM: Coder =
    Coder { model: Some(ModelSpec::Ppm(PpmSpec { order: 4, memory_log: 26 })), ..ZSTD };
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
            let headers = Headers::Plain;
            ContextBody::Batch { start, alone, headers, original_len, data: &self.data }
        };
        let Position { context, generation, number, .. } = self.position;
        ContextRecord { context, generation, number: number as u16, body }
    }
}

fn left(made: Made, primed: bool, lens: (u64, u64)) -> Left {
    Left { made, primed, lens, took_ns: 100, elapsed_ns: None }
}

/// Both ends, and what is between them.
struct Pair {
    seed: u64,
    wanted: Wanted,
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
            wanted: Wanted {
                coder: if seed % 3 == 1 { PPM } else { ZSTD },
                picks: seed % 3 == 2,
                memory_log: 20,
                are_short: true,
            },
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
            self.outgoing.enter(self.now, group, self.wanted)?;
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
                    let left = left(Made::NotSmaller, begins, (0, 0));
                    assert!(self.outgoing.leave(self.now, (context, epoch), encoder, left));
                    return None;
                }
            }
        }
        let lens = (original.len() as u64, data.len() as u64);
        let left = left(Made::Done, begins, lens);
        assert!(self.outgoing.leave(self.now, (context, epoch), encoder, left));
        let start = (begins || alone.is_some()).then(|| generation.start());
        let (generation, original_len) = (generation.number, original.len() as u16);
        let headers = Headers::Plain;
        let place =
            InContext { context, epoch, generation, start, alone, offset, original_len, headers };
        let position = self.outgoing.number_batch(self.now, &place)?;
        let mut again = Again::default();
        again.set(0, is_again);
        self.outgoing.keep_original(self.now, &place, again, Vec::new());
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
        // A link that is now thin, now fast: another codec is best.
        let is_thin = (self.now.as_ns() / (2 * SECOND_NS)).is_multiple_of(2);
        let rate = Rate::from_mbps(if is_thin { 1 } else { 2_000 });
        if let Some(mut trial) =
            self.outgoing.pick(self.now, (Some(rate), is_thin, None), Processor::default(), true)
        {
            trial.run_in_no_time();
            let Done::Context(group, results) = trial.done() else {
                panic!("only contexts are there")
            };
            self.outgoing.tried(self.now, (group, results), trial.took_ns());
        }
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
