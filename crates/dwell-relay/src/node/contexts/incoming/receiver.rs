//! One context of what comes from a peer.

mod elsewhere;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use dwell_base::Instant;
use dwell_base::time::SECOND_NS;
use dwell_codec::{
    Base, CodecId, ContextDecoder, ContextDictionary, DecodeError, ModelSpec, Placed, Source,
};
use dwell_wire::columnar::Restored;
use dwell_wire::{
    Alone, ContextBody, ContextRecord, ContextReport, HeaderRestorer, Headers, Start, StartBase,
};

use super::held::Held;
use super::{GapWaits, Limits, WAIT_NS_MAX};
use crate::node::contexts::begin::name_of;
use crate::node::contexts::counts::IncomingCounts;
use crate::node::contexts::decode_job::OwnedSource;
use elsewhere::Away;

/// That a generation is lost is said so often; then only if more of it comes.
const LOST_REPORTS_MAX: u32 = 8;

/// No sender is further ahead of what was reported to it; of batches that stand alone, what seems to be is
/// an early one that was sent again.
const AHEAD_MAX: u64 = 1 << 14;
/// A context orders the records of a path while some come that refer to others.
const ORDERS_NS: u64 = 4 * SECOND_NS;
/// What is used for decoding is given back if nothing comes for so long: more than twice as long as this
/// implementation remembers what it sent.
const IDLE_NS: u64 = 300 * SECOND_NS;
/// The first number of a context.
const NUMBER_MIN: u64 = 1;

/// What this end has offered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Here<'a> {
    pub(super) dictionary: Option<&'a Arc<ContextDictionary>>,
    pub(super) limits: Limits,
}

impl<'a> Here<'a> {
    /// Returns the dictionary, if it is the one that is meant: what was sent before a change is never decoded
    /// with other bytes.
    fn dictionary(&self, name: u64) -> Option<&'a Arc<ContextDictionary>> {
        self.dictionary.filter(|dictionary| name_of(dictionary).short() == name)
    }

    /// Returns where a generation's base is; none if that is in a dictionary that is not here.
    fn source(&self, base: StartBase) -> Option<Source<'a>> {
        match base {
            StartBase::Ring { offset, len } => Some(Source::Ring(Base { offset, len })),
            StartBase::Dictionary { name, len } => {
                Some(Source::Dictionary(self.dictionary(name)?, len))
            }
        }
    }

    /// Returns the same for a thread.
    fn owned_source(&self, base: StartBase) -> Option<OwnedSource> {
        match base {
            StartBase::Ring { offset, len } => Some(OwnedSource::Ring(Base { offset, len })),
            StartBase::Dictionary { name, len } => {
                Some(OwnedSource::Dictionary(Arc::clone(self.dictionary(name)?), len))
            }
        }
    }

    /// Returns the model that a generation names, if there is memory for it.
    fn model(&self, context: u8, start: Start) -> Option<ModelSpec> {
        let spec = ModelSpec::from_wire(start.codec, start.window_log)?.ok()?;
        self.limits.takes(context, spec).then_some(spec)
    }
}

/// The content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opened {
    /// The packet of the record.
    Raw,
    /// This many bytes of packets, in this form.
    Batch {
        len: usize,
        headers: Headers,
    },
    Nothing,
}

/// One context.
#[derive(Debug)]
pub(super) struct Receiver {
    decoder: Box<ContextDecoder>,
    /// Restores headers that are predicted, once there were some.
    restorer: Option<Box<HeaderRestorer>>,
    ring_log: u8,
    /// It is not here, but with a job.
    away: Option<Away>,
    /// What came meanwhile, in this order.
    parked: VecDeque<Held>,
    /// The latest generation of which something was opened.
    generation: Option<u8>,
    /// The one that the ring is of: the latest that has begun.
    ring_generation: Option<u8>,
    /// How far the present generation had come when the memory was given to others.
    evicted_at: Option<u64>,
    /// The batches of the latest generation stand alone, and so did others since this time, ...
    alone: Option<AloneState>,
    alone_since: Instant,
    /// ... and the highest number of such a batch, and one more.
    alone_next: u64,
    /// When the latest of them came, and its datagram.
    came: (Instant, u64),
    /// When the latest of all others came.
    pub(super) ran_at: Instant,
    /// The latest generation whose batches do not.
    running: Option<u8>,
    /// That one can go on.
    is_live: bool,
    /// The number of the next record to be opened.
    pub(super) next: u64,
    pub(super) held: BTreeMap<u64, Held>,
    reported_at: Instant,
    /// There is something to report.
    has_moved: bool,
    /// That the generation is lost is to be said at once, or that one has begun whose batches stand alone.
    pub(super) must_report: bool,
    /// The number of times that it was said.
    said_lost: u32,
}

/// Generations whose batches stand alone, since the ring was cut.
#[derive(Clone, Copy, Debug, Default)]
struct AloneState {
    /// The ring does not go on.
    is_lost: bool,
    /// Nor is its content that of the sender.
    is_useless: bool,
    /// A batch came, at a time and in a datagram, before which one is missing.
    hole: Option<(Instant, u64)>,
}

impl Receiver {
    pub(super) fn new(ring_log: u8) -> Self {
        Self {
            decoder: Box::new(ContextDecoder::new(ring_log)),
            restorer: None,
            ring_log,
            away: None,
            parked: VecDeque::new(),
            generation: None,
            ring_generation: None,
            evicted_at: None,
            alone: None,
            alone_since: Instant::ZERO,
            alone_next: NUMBER_MIN,
            came: (Instant::ZERO, 0),
            ran_at: Instant::ZERO,
            running: None,
            is_live: false,
            next: NUMBER_MIN,
            held: BTreeMap::new(),
            reported_at: Instant::ZERO,
            has_moved: false,
            must_report: false,
            said_lost: 0,
        }
    }

    /// Returns true if a batch of so many bytes may fill the model.
    pub(super) fn may_learn_again(&self, bytes: usize) -> bool {
        self.away.is_none() && self.decoder.may_learn_again(bytes)
    }

    /// Returns true if a generation with this model would begin in memory that there is; while that is with a job, it does if
    /// it was of the same kind.
    pub(super) fn has_memory_for(&self, spec: ModelSpec) -> bool {
        match &self.away {
            Some(away) => away.codec == spec.codec(),
            None => self.decoder.has_memory_for(spec),
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let of_headers = self.restorer.as_ref().map_or(0, |_| HeaderRestorer::MEMORY_BYTES);
        let of_decoder =
            self.away.map_or_else(|| self.decoder.memory_bytes(), |away| away.memory_bytes);
        of_decoder + of_headers
    }

    /// A running generation begins: no headers are known.
    fn forget_headers(&mut self) {
        if let Some(restorer) = &mut self.restorer {
            restorer.clear();
        }
    }

    /// Restores the packets of a batch that was decoded, whose headers are predicted from those before.
    pub(super) fn restore_headers(&mut self, batch: &[u8], out: &mut [u8]) -> Option<Restored> {
        let restorer = self.restorer.get_or_insert_default();
        restorer.restore(batch, out).ok()
    }

    /// Returns true if the generation is newer than the latest one.
    fn is_newer(&self, generation: u8) -> bool {
        self.generation.is_none_or(|old| generation.wrapping_sub(old).cast_signed() > 0)
    }

    /// The first record that is held, if one is missing before it.
    pub(super) fn first_held(&self) -> Option<&Held> {
        let (&number, first) = self.held.first_key_value()?;
        (number > self.next && !self.skips_to(first)).then_some(first)
    }

    /// While nothing can be decoded, what is missing before this record is of no use, since no
    /// generation can begin with it.
    fn skips_to(&self, held: &Held) -> bool {
        let begins_again = self.alone.is_some() && held.begins() && self.is_newer(held.generation);
        begins_again || !self.is_live && (held.begins() || !self.is_newer(held.generation))
    }

    /// Returns true if nothing that waits is before this record: it begins a generation after one in which
    /// nothing does.
    pub(super) fn begins_again(&self, record: &ContextRecord<'_>) -> bool {
        let begins = record.start().is_some() && self.is_newer(record.generation);
        begins && self.alone.is_some() && self.held.is_empty()
    }

    /// The number that is expected next.
    pub(super) fn next_number(&self) -> u64 {
        if self.alone.is_some() { self.next.max(self.alone_next) } else { self.next }
    }

    /// Datagrams have other numbers from now on, and nobody asks for those of before.
    pub(super) fn begin_session(&mut self) {
        self.held.values_mut().chain(&mut self.parked).for_each(|held| held.datagram = 0);
        self.came.1 = 0;
        if let Some((_, datagram)) = self.alone.as_mut().and_then(|alone| alone.hole.as_mut()) {
            *datagram = 0;
        }
    }

    /// Returns true if records wait here for those before them, at the time of the path's latest one.
    pub(super) fn keeps_order(&self, now: Instant) -> bool {
        let runs = self.alone.is_none() && now.since_ns(self.ran_at) < ORDERS_NS;
        runs || !self.held.is_empty() || self.is_busy()
    }

    /// A batch came that stands alone.
    pub(super) fn came_alone(&mut self, now: Instant, number: u64, datagram: u64) {
        if number < self.next_number() + AHEAD_MAX {
            self.alone_next = self.alone_next.max(number + 1);
        }
        // One that is sent again names an earlier datagram: what came later may be missing, too.
        self.came = (now, self.came.1.max(datagram));
    }

    pub(super) fn is_ready(&self) -> bool {
        let first = self.held.first_key_value();
        let is_first = |(&number, held)| number == self.next || self.skips_to(held);
        !self.is_busy() && first.is_some_and(is_first)
    }

    /// Takes the first of the records that are held, whose turn it is.
    pub(super) fn take_ready(&mut self, counts: &mut IncomingCounts) -> Option<Held> {
        let (number, held) = self.held.pop_first()?;
        if self.alone.is_none() {
            counts.missing += number - self.next;
        }
        self.next = number;
        Some(held)
    }

    /// Goes on without what is missing before the first record that is held.
    pub(super) fn give_up(&mut self, counts: &mut IncomingCounts) {
        let Some((&first, _)) = self.held.first_key_value() else { return };
        if first == self.next {
            return;
        }
        counts.given_up += 1;
        // Those that stand alone came meanwhile, and have numbers of the same sequence.
        counts.missing += first.saturating_sub(self.next_number());
        self.next = first;
        if self.is_live {
            self.lose(counts);
        }
    }

    /// The generation can't go on: the peer must be notified.
    pub(super) fn lose(&mut self, counts: &mut IncomingCounts) {
        counts.lost += u64::from(self.is_live);
        self.is_live = false;
        if self.alone.is_none() {
            (self.must_report, self.said_lost) = (true, 0);
        }
    }

    /// The present generation makes no sense.
    pub(super) fn is_garbled(&mut self, counts: &mut IncomingCounts) {
        match self.alone {
            Some(_) => self.lose_alone(true, counts),
            None => self.lose(counts),
        }
    }

    /// What batches that stand alone leave in the ring does not go on: the peer must be notified.
    fn lose_alone(&mut self, is_useless: bool, counts: &mut IncomingCounts) {
        let Some(alone) = &mut self.alone else { return };
        let was = *alone;
        *alone = AloneState { is_lost: true, is_useless: was.is_useless || is_useless, hole: None };
        counts.lost += u64::from(!was.is_lost);
        self.decoder.give_up_holes();
        if !was.is_lost || is_useless && !was.is_useless {
            (self.must_report, self.said_lost) = (true, 0);
        }
    }

    /// Gives up a hole that is not filled in time: nothing waits for it but later generations.
    pub(super) fn expire_hole(
        &mut self,
        now: Instant,
        waits: GapWaits,
        is_missing: impl Fn(u64) -> bool,
        counts: &mut IncomingCounts,
    ) {
        // What fills it may be parked while the decoder is away.
        if !self.is_busy() && now >= self.hole_until(waits, is_missing) {
            self.lose_alone(false, counts);
        }
    }

    /// Returns the time at which the first hole is given up.
    pub(super) fn hole_until(&self, waits: GapWaits, is_missing: impl Fn(u64) -> bool) -> Instant {
        let hole = self.alone.and_then(|alone| alone.hole);
        let wait_ns =
            |datagram| if is_missing(datagram) { waits.missing_ns } else { waits.late_ns };
        hole.map_or(Instant::FAR_FUTURE, |(since, datagram)| since + wait_ns(datagram))
    }

    /// Returns the codec of the running generation's model.
    pub(super) fn model_codec(&self) -> Option<CodecId> {
        self.away.as_ref().map_or_else(|| self.decoder.model_codec(), |away| Some(away.codec))
    }

    /// Returns true if the running generation is decoded by a model.
    pub(super) fn has_model(&self) -> bool {
        self.away.is_some() || self.decoder.has_model()
    }

    /// True if the present generation can't go on.
    pub(super) fn is_lost(&self) -> bool {
        match self.alone {
            Some(alone) => alone.is_lost,
            None => !self.is_live && self.generation.is_some(),
        }
    }

    /// Returns true if the record begins a generation, so that its base is yet to be copied. A beginning that is said again is
    /// none.
    pub(super) fn begins(&self, record: &ContextRecord<'_>) -> bool {
        self.is_newer(record.generation)
    }

    /// More came of a generation: the peer may not know that it can't go on.
    pub(super) fn hears_again(&mut self, generation: u8) {
        if self.is_lost() && self.generation == Some(generation) {
            self.said_lost = self.said_lost.min(LOST_REPORTS_MAX - 1);
        }
    }

    /// Opens the record whose turn it is.
    pub(super) fn open(
        &mut self,
        record: &ContextRecord<'_>,
        here: Here<'_>,
        out: &mut [u8],
        counts: &mut IncomingCounts,
    ) -> Opened {
        self.has_moved = true;
        let ContextBody::Batch { start, alone, headers, original_len, data } = record.body else {
            self.next += 1;
            counts.raw += 1;
            return Opened::Raw;
        };
        let len = usize::from(original_len);
        if let Some(alone) = alone {
            let batch = (start.map(|start| (start, here)), alone, data);
            let is_open = self.open_alone(record.generation, batch, &mut out[..len], counts);
            return if is_open { Opened::Batch { len, headers } } else { Opened::Nothing };
        }
        self.next += 1;
        match start {
            Some(start) if self.is_newer(record.generation) => {
                self.begin(record, (start, here), counts);
            }
            None if self.is_newer(record.generation) => {
                // Its beginning was given up.
                (self.generation, self.evicted_at) = (Some(record.generation), None);
                (self.running, self.alone) = (self.generation, None);
                self.lose(counts);
            }
            _ => {}
        }
        if !self.is_live || self.running != Some(record.generation) {
            counts.dead += 1;
            self.hears_again(record.generation);
            return Opened::Nothing;
        }
        let decoded = self.decoder.decode(data, &mut out[..len]);
        if decoded.is_err() {
            counts.damaged += 1;
            self.lose(counts);
            return Opened::Nothing;
        }
        counts.batches += 1;
        counts.bytes_in += data.len() as u64;
        counts.bytes_out += len as u64;
        Opened::Batch { len, headers }
    }

    fn begin(
        &mut self,
        &ContextRecord { context, generation, .. }: &ContextRecord<'_>,
        (start, here): (Start, Here<'_>),
        counts: &mut IncomingCounts,
    ) {
        (self.generation, self.evicted_at) = (Some(generation), None);
        (self.running, self.alone) = (self.generation, None);
        let has_begun = here.source(start.base).is_some_and(|source| {
            if start.codec == CodecId::Zstd as u8 {
                self.decoder.begin(start.window_log, source).is_ok()
            } else {
                let model = here.model(context, start);
                model.is_some_and(|model| self.decoder.begin_model(model, source).is_ok())
            }
        });
        if has_begun {
            self.forget_headers();
            counts.began_from(start.base);
            counts.with_model += u64::from(self.has_model());
            self.ring_generation = Some(generation);
            self.is_live = true;
            (self.must_report, self.said_lost) = (false, 0);
        } else {
            counts.no_base += 1;
            self.lose(counts);
        }
    }

    /// Opens a batch that stands alone, whatever came before it.
    fn open_alone(
        &mut self,
        generation: u8,
        (start, alone, data): (Option<(Start, Here<'_>)>, Alone, &[u8]),
        out: &mut [u8],
        counts: &mut IncomingCounts,
    ) -> bool {
        if self.is_newer(generation) {
            self.begin_alone(generation, (start, alone.keeps), counts);
        }
        if !self.decoder.has_alone(generation) {
            counts.dead += 1;
            self.hears_again(generation);
            return false;
        }
        let before = self.decoder.offset();
        let placed = self.decoder.decode_alone(generation, alone.distance, data, out);
        match placed {
            Ok(Placed::InRing) => self.filled(before),
            Ok(Placed::Nowhere) => self.hears_again(generation),
            Ok(Placed::TooFar) => self.lose_alone(false, counts),
            Err(reason) => {
                counts.damaged += 1;
                debug_assert!(reason != DecodeError::NoGeneration);
                if self.generation == Some(generation) {
                    self.lose_alone(true, counts);
                }
                return false;
            }
        }
        counts.batches += 1;
        counts.alone += 1;
        counts.bytes_in += data.len() as u64;
        counts.bytes_out += out.len() as u64;
        true
    }

    /// A batch is in the ring: notes if something is missing before it.
    fn filled(&mut self, before: u64) {
        let (offset, has_holes) = (self.decoder.offset(), self.decoder.has_holes());
        let Some(alone) = &mut self.alone else { return };
        if offset > before || !has_holes {
            alone.hole = None;
        }
        if has_holes {
            alone.hole.get_or_insert(self.came);
        }
    }

    /// A generation begins whose batches stand alone.
    fn begin_alone(
        &mut self,
        generation: u8,
        (start, keeps): (Option<(Start, Here<'_>)>, bool),
        counts: &mut IncomingCounts,
    ) {
        if self.alone.is_none() {
            self.alone_since = self.came.0;
        }
        let before = self.alone.filter(|_| keeps);
        (self.generation, self.evicted_at) = (Some(generation), None);
        let known = start.filter(|(start, _)| start.codec == CodecId::Zstd as u8);
        let begun = known.filter(|&(start, here)| {
            here.source(start.base).is_some_and(|source| {
                let from = (start.window_log, source);
                self.decoder.begin_alone(generation, from, keeps).is_ok()
            })
        });
        if let Some((start, _)) = begun {
            counts.began_from(start.base);
            counts.acknowledged += 1;
            self.ring_generation = Some(generation);
            let state = before.unwrap_or_default();
            // A ring that was given up is not that of a later generation, either. That one has begun is to
            // be known at once: until then all its batches name it.
            (self.alone, self.said_lost) = (Some(state), 0);
            self.must_report = true;
        } else {
            counts.no_base += 1;
            self.alone = Some(AloneState::default());
            self.lose_alone(true, counts);
        }
    }

    /// Gives back what the running generation is decoded with, once nothing of it can come any more: what was
    /// lost of it is sent again while others stand alone already.
    pub(super) fn forget_running(&mut self, now: Instant) {
        if self.away.is_some() {
            return;
        }
        let is_over = !self.is_live || now.since_ns(self.alone_since) >= WAIT_NS_MAX;
        if self.alone.is_some() && is_over && self.held.is_empty() {
            self.decoder.forget_running();
            self.is_live = false;
        }
    }

    /// Gives back the memory of a context of which nothing came for long. What comes of it yet is lost as if
    /// its base was not there: the peer begins again from nothing.
    pub(super) fn forget_idle(&mut self, now: Instant) {
        if now.since_ns(self.used_at()) >= IDLE_NS && self.can_be_forgotten() {
            self.forget();
            // Nobody asks for a report before more of it comes.
            (self.must_report, self.said_lost) = (false, LOST_REPORTS_MAX);
        }
    }

    /// Returns when something of it came last.
    pub(super) fn used_at(&self) -> Instant {
        self.ran_at.max(self.came.0)
    }

    /// Returns true if it has something, and nothing is with a thread.
    pub(super) fn can_be_forgotten(&self) -> bool {
        self.ring_generation.is_some() && !self.is_busy()
    }

    /// Gives back the memory for others. The peer is notified at once: it may be in the middle of something.
    pub(super) fn evict(&mut self, counts: &mut IncomingCounts) {
        counts.lost += u64::from(self.is_live);
        // What was decoded must not come again.
        let has_begun = self.generation == self.ring_generation;
        let come_to = has_begun.then(|| self.decoder.offset());
        self.forget();
        self.evicted_at = come_to;
        (self.must_report, self.said_lost) = (true, 0);
    }

    fn forget(&mut self) {
        *self.decoder = ContextDecoder::new(self.ring_log);
        self.restorer = None;
        (self.ring_generation, self.is_live) = (None, false);
        if let Some(alone) = &mut self.alone {
            *alone = AloneState { is_lost: true, is_useless: true, hole: None };
        }
    }

    /// Returns the time at which a report is due, if they are to be so far apart; one that is to be made at once
    /// may be from `at_once_at` on.
    pub(super) fn report_at(&self, report_ns: u64, at_once_at: Instant) -> Instant {
        // Whether a generation could begin is known when it is back.
        if self.away.is_some_and(|away| away.base.is_some()) {
            return Instant::FAR_FUTURE;
        }
        if self.must_report {
            return at_once_at;
        }
        if self.is_lost() && self.said_lost < LOST_REPORTS_MAX {
            let apart_ns = report_ns.saturating_mul(2) << self.said_lost.min(4);
            return self.reported_at + apart_ns.min(2 * SECOND_NS);
        }
        if self.has_moved { self.reported_at + report_ns } else { Instant::FAR_FUTURE }
    }

    /// The report that goes out now.
    pub(super) fn report(&mut self, now: Instant, context: u8) -> ContextReport {
        let is_lost = self.is_lost();
        self.said_lost += u32::from(is_lost);
        (self.must_report, self.has_moved) = (false, false);
        self.reported_at = now;
        // An offset means something in the generation that it is reported of.
        let is_useless = self.alone.is_some_and(|alone| alone.is_useless);
        let has_begun = self.generation == self.ring_generation && !is_useless;
        ContextReport {
            context,
            generation: self.generation.unwrap_or(0),
            is_lost,
            is_empty: self.ring_generation.is_none(),
            // What is with a thread has not come yet, as far as anybody can know.
            next_number: self.next_number() - u64::from(self.away.is_some()),
            ring_offset: match self.away {
                Some(away) => away.offset,
                None if has_begun => self.decoder.offset(),
                None => self.evicted_at.unwrap_or(0),
            },
        }
    }
}
