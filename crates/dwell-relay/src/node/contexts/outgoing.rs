//! The contexts of what goes to a peer (`docs/wire.md`, contexts, sender).
//!
//! A context's batches can be decoded in the order of their numbers only, and all of them are needed.
//! So a *generation* ends as soon as it is known that one is missing for good, and the next batch
//! begins another, from what the peer has confirmed. Or each batch stands alone, and refers to what the
//! peer has confirmed; then another generation begins whenever that has moved on enough to be worth the
//! time of priming.

mod context;
mod memory;
mod outside;
mod parallel;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use dwell_base::time::SECOND_NS;
use dwell_base::{Instant, Rate};
use dwell_codec::{Base, ContextDictionary, ContextEncoder, ContextSpec};
use dwell_policy::method::{CodecPick, Processor, Tried};
use dwell_report::status::TxContexts;
use dwell_wire::{ContextReport, HeaderPredictor};

use super::Limits;
use super::again::{Again, LostBatch, LostBatches};
use super::begin::{Coder, Generation, Kind, Wanted};
use super::choice::Mode;
use super::codec::{self, BatchCodec, Decodes, Picking};
use super::counts::{OutgoingCounts, Reason};
use super::job::Made;
use super::trial::CodecTrial;
use crate::node::store::InContext;
use context::{Context, NUMBER_MIN};
pub(in crate::node) use outside::Passage;
use outside::Sample;

/// Datagrams with records of one context whose arrival was not confirmed; of more, those before are
/// not known any more, and only the peer can say that they are missing.
const IN_FLIGHT_MAX: usize = 16_384;
/// Of batches that stand alone, one may be missing so far behind the highest that came; if an earlier one is
/// gone, the peer gives it up by itself.
const LATE_ALONE_MAX: u64 = 4_096;
/// A context that was used less than this ago is not given to another group: with more groups in turn
/// than contexts none would keep what it refers to.
const EVICTABLE_NS: u64 = 2 * SECOND_NS;
/// The memory of a context that is not used for so long is given back.
const IDLE_NS: u64 = 120 * SECOND_NS;

/// The next trial of codecs may be after so long if nothing is heard of one.
const RESULT_NS_MAX: u64 = 60 * SECOND_NS;

/// A batch may enter a context.
#[derive(Debug)]
pub(super) struct Entered {
    pub(super) context: u8,
    pub(super) epoch: u64,
    pub(super) encoder: Box<ContextEncoder>,
    /// The context was another group's, or nobody's.
    pub(super) is_new: bool,
    pub(super) generation: Generation,
    /// It begins this generation.
    pub(super) begins: bool,
}

/// What became of a batch in a context.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    pub(super) made: Made,
    /// The codec was primed for it.
    pub(super) primed: bool,
    /// The lengths before and after, in bytes.
    pub(super) lens: (u64, u64),
    /// The time that it took, of the processor if the other is known; and by the clock then.
    pub(super) took_ns: u64,
    pub(super) elapsed_ns: Option<u64>,
}

/// The place of a record in a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) context: u8,
    /// The low bits of the generation.
    pub(crate) generation: u8,
    pub(crate) number: u64,
    /// The peer has reported of the generation.
    pub(crate) is_confirmed: bool,
}

/// Trials of codecs, of all contexts together: one at a time.
#[derive(Debug, Default)]
struct Trials {
    due: Option<CodecTrial>,
    /// The next one may be asked for from then on, if there is time for it.
    may_begin_at: Instant,
    may_begin: bool,
    /// What one is to be of, as it comes, if it does not go through a context.
    sample: Option<Sample>,
}

impl Trials {
    fn may_begin(&self, now: Instant) -> bool {
        self.may_begin && self.due.is_none() && self.sample.is_none() && now >= self.may_begin_at
    }
}

/// The contexts of what goes to one peer.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    limits: Option<Limits>,
    /// The dictionary that both ends have.
    dictionary: Option<Arc<ContextDictionary>>,
    contexts: Vec<Context>,
    by_group: HashMap<u64, u8>,
    epochs: u64,
    has_begun: bool,
    /// The peer decodes batches that stand alone, and they are what is wanted.
    takes_alone: bool,
    wanted: Mode,
    /// The peer restores headers that are predicted.
    takes_predicted: bool,
    /// It decodes lz4.
    takes_lz4: bool,
    /// The rate of the link, as far as it is known, and whether batches are short enough for models.
    rate: Option<Rate>,
    is_for_models: bool,
    /// The processors that may be had, if they are limited.
    pub(crate) quota: Option<f64>,
    /// What took the processor so long, and took so long in all, since that was asked, in nanoseconds.
    worked_ns: (u64, u64),
    /// Codecs to be tried.
    trials: Trials,
    /// What the latest trial has found.
    pick: Option<CodecPick<BatchCodec>>,
    /// Batches that were lost with their generations, and are to be encoded again.
    lost: LostBatches,
    /// The node has no memory for more contexts.
    pub(crate) is_short_of_memory: bool,
    /// One of them can't go on without a report, and none came for long.
    is_stuck: bool,
    /// No reports come.
    #[cfg(test)]
    pub(crate) is_deaf: bool,
    /// Nothing is encoded again, to see what that is worth.
    #[cfg(test)]
    pub(crate) forgets_lost: bool,
    pub(super) counts: OutgoingCounts,
}

impl Outgoing {
    /// A session began with a peer that takes so much. `is_same` if what it decodes contexts with
    /// is what it was.
    pub(crate) fn begin_session(&mut self, now: Instant, limits: Option<Limits>, is_same: bool) {
        let as_before =
            |limits: &Limits| self.limits.is_none_or(|old| old.ring_log == limits.ring_log);
        if !is_same || !limits.as_ref().is_some_and(as_before) {
            self.forget();
        }
        let contexts = limits.map_or(0, |limits| usize::from(limits.contexts));
        if self.contexts.len() > contexts {
            self.contexts.truncate(contexts);
            self.by_group.retain(|_, context| usize::from(*context) < contexts);
        }
        self.limits = limits;
        // Their numbers are those of another session now; what is lost of them only the peer sees.
        for context in &mut self.contexts {
            context.in_flight.clear();
            context.pause_until = context.pause_until.min(now);
        }
    }

    /// The peer decodes batches that stand alone, or it does not.
    pub(crate) fn set_takes_alone(&mut self, takes_alone: bool) {
        self.takes_alone = takes_alone;
    }

    /// The peer restores headers that are predicted, or it does not.
    pub(crate) fn set_takes_predicted(&mut self, takes_predicted: bool) {
        self.takes_predicted = takes_predicted;
    }

    /// Returns true if the headers of the next batch can be predicted from those before.
    pub(super) fn predicts(&self) -> bool {
        self.takes_predicted && self.mode() == Mode::Running
    }

    /// Returns what the headers of a context are predicted with.
    pub(super) fn predictor(&mut self, context: u8) -> Option<&mut HeaderPredictor> {
        let context = self.contexts.get_mut(usize::from(context))?;
        Some(context.predictor.get_or_insert_default())
    }

    /// A generation begins, with whatever form of headers: the peer knows none either.
    pub(super) fn forget_headers(&mut self, context: u8) {
        if let Some(context) = self.contexts.get_mut(usize::from(context)) {
            context.predictor = None;
        }
    }

    /// Generations are to be of this kind from now on, if the peer decodes them.
    pub(crate) fn want(&mut self, mode: Mode) {
        self.wanted = mode;
    }

    /// Returns the bytes of all batches, and how often what those that stand alone refer to has moved on.
    pub(crate) fn alone(&self) -> (u64, u64) {
        (self.counts.bytes_in, self.counts.advanced())
    }

    /// How batches refer to others now.
    pub(crate) fn mode(&self) -> Mode {
        match self.wanted {
            Mode::Acknowledged if !self.takes_alone => Mode::Running,
            wanted => wanted,
        }
    }

    /// Takes the dictionary that both ends have named in this session.
    pub(crate) fn share(&mut self, dictionary: Option<Arc<ContextDictionary>>) {
        self.dictionary = dictionary;
        self.contexts.iter_mut().for_each(|context| context.dictionary_failed = false);
    }

    /// The peer knows nothing of what was.
    fn forget(&mut self) {
        self.counts.restarts += u64::from(!self.contexts.is_empty());
        self.contexts.clear();
        self.by_group.clear();
        self.is_stuck = false;
    }

    /// Returns true if a context could not go on when it was last used; it may have had a report since.
    pub(super) fn take_stuck(&mut self) -> bool {
        std::mem::take(&mut self.is_stuck)
    }

    /// Returns true if a generation has begun since this was asked.
    pub(crate) fn take_begun(&mut self) -> bool {
        std::mem::take(&mut self.has_begun)
    }

    /// Returns the number of contexts that the peer takes.
    pub(super) fn contexts_max(&self) -> usize {
        self.limits.map_or(0, |limits| usize::from(limits.contexts))
    }

    /// Returns true if batches can be compressed in contexts.
    pub(crate) fn is_possible(&self) -> bool {
        self.limits.is_some()
    }

    /// Gives the encoder of the group's context to a batch that is about to be compressed; none if
    /// the batch must do without.
    pub(super) fn enter(&mut self, now: Instant, group: u64, wanted: Wanted) -> Option<Entered> {
        let limits = self.limits?;
        let Coder { zstd, .. } = wanted.coder;
        let zstd = ContextSpec { window_log: zstd.window_log.min(limits.ring_log), ..zstd };
        let Some(at) = self.context_of(now, group, zstd, limits) else {
            self.counts.crowded_out += 1;
            return None;
        };
        let is_alone = self.mode() == Mode::Acknowledged;
        let contexts = self.contexts.len() as u64;
        let context = &mut self.contexts[usize::from(at)];
        if context.is_out {
            return None;
        }
        if self.is_short_of_memory && context.encoder.is_none() {
            self.counts.crowded_out += 1;
            return None;
        }
        (context.used_at, context.is_passed_by) = (now, false);
        let Coder { zstd: ContextSpec { level, .. }, model } =
            context.coder((self.rate, self.quota), self.pick.as_ref(), wanted);
        let zstd = ContextSpec { level, ..zstd };
        // One that is picked begins once batches are short enough for it.
        let may_have_model = !is_alone && wanted.are_short;
        let coder = Coder { zstd, model: limits.model(at, model).filter(|_| may_have_model) };
        context.review(now, coder, is_alone);
        let is_paused = context.ended.is_some() && now < context.pause_until;
        self.is_stuck |= context.is_at_end() && !context.is_in_flight(now);
        if is_paused || context.is_ahead(now) {
            self.counts.paused += 1;
            return None;
        }
        let kept = context.encoder.take();
        let reason = context.ended;
        let kind = if is_alone { Kind::Alone { keeps: false } } else { Kind::Running };
        let (encoder, next) = match (reason, kept) {
            (None, encoder) => {
                let encoder = encoder?;
                let base = context.advance(now, &encoder, contexts);
                (encoder, base.map(|base| (Reason::Advanced, base, Kind::Alone { keeps: true })))
            }
            // Of what stands alone some may be missing yet, which refers to what is in the ring now.
            (Some(Reason::Picked), Some(encoder)) if is_alone && context.present.is_alone() => {
                let base = encoder.base_at(context.confirmed_offset);
                let kind = Kind::Alone { keeps: base.is_some() };
                (encoder, Some((Reason::Picked, base.unwrap_or_default(), kind)))
            }
            (Some(reason), Some(encoder)) => {
                let base = encoder.ring_at(context.confirmed_offset).unwrap_or_default();
                (encoder, Some((reason, base, kind)))
            }
            (Some(reason), None) => {
                let encoder = Box::new(ContextEncoder::new(zstd, limits.ring_log).ok()?);
                (encoder, Some((reason, Base::default(), kind)))
            }
        };
        if let Some((reason, base, kind)) = next {
            let dictionary = self.dictionary.as_ref().filter(|_| !context.dictionary_failed);
            context.begin((coder, kind), base, dictionary);
            if kind != (Kind::Alone { keeps: true }) {
                self.epochs += 1;
                self.has_begun = true;
                (context.epoch, context.began_at) = (self.epochs, now);
                context.confirm_base();
            }
            self.counts.began(reason, &context.present);
        }
        context.is_out = true;
        Some(Entered {
            context: at,
            epoch: context.epoch,
            encoder,
            is_new: reason == Some(Reason::First),
            generation: context.present.clone(),
            begins: next.is_some(),
        })
    }

    /// The context of a group: its own, one that is free, or the one that was idle longest if
    /// nothing of it is on its way.
    fn context_of(
        &mut self,
        now: Instant,
        group: u64,
        zstd: ContextSpec,
        limits: Limits,
    ) -> Option<u8> {
        if let Some(&at) = self.by_group.get(&group) {
            return Some(at);
        }
        let at = if self.contexts.len() < usize::from(limits.contexts) {
            self.contexts.push(Context::new(group, Coder { zstd, model: None }));
            self.contexts.len() - 1
        } else {
            let idle = |it: &&(usize, &Context)| {
                let used_at = it.1.used_at.max(it.1.passed_at);
                let was_used = now.since_ns(used_at) < EVICTABLE_NS;
                !it.1.is_out && !was_used && !it.1.is_in_flight(now)
            };
            let all: Vec<_> = self.contexts.iter().enumerate().collect();
            let (at, _) = *all.iter().filter(idle).min_by_key(|(_, it)| it.used_at)?;
            self.by_group.remove(&self.contexts[at].group);
            self.contexts[at].take_over(group);
            self.counts.evicted += 1;
            at
        };
        let at = u8::try_from(at).ok()?;
        self.by_group.insert(group, at);
        Some(at)
    }

    /// The encoder comes back from a batch, which entered it or did not.
    /// Returns whether the batch can be sent in its generation.
    pub(super) fn leave(
        &mut self,
        now: Instant,
        (at, epoch): (u8, u64),
        encoder: Box<ContextEncoder>,
        left: Left,
    ) -> bool {
        let runs = self.is_for_models && self.mode() == Mode::Running;
        let found = self.contexts.get_mut(usize::from(at));
        // All may have been forgotten meanwhile, and others be in its place.
        let Some(context) = found.filter(|it| it.epoch == epoch && it.is_out) else { return false };
        (context.is_out, context.batched_at) = (false, now);
        context.memory_bytes = encoder.memory_bytes();
        context.originals.returned(&encoder, &mut self.lost);
        context.took(now, left.took_ns, left.primed);
        context.lately.add(now, left.lens.0);
        if let Some(elapsed_ns) = left.elapsed_ns {
            let (cpu_ns, all_ns) = self.worked_ns;
            self.worked_ns =
                (cpu_ns.saturating_add(left.took_ns), all_ns.saturating_add(elapsed_ns));
        }
        let is_batch = left.made == Made::Done && !left.primed;
        if let Some(picking) = context.picking.as_mut().filter(|_| is_batch) {
            picking.compressed(context.present.coder, left.lens, left.took_ns);
            let models = self.limits.and_then(|it| it.models);
            let models = models.filter(|it| runs && at < it.contexts);
            let decodes = Decodes { lz4: self.takes_lz4, models };
            if self.trials.may_begin(now)
                && let Some((codecs, len)) = picking.due_trial(now, self.rate, decodes)
            {
                let trial = CodecTrial::of_context(context.group, &encoder, len, codecs);
                self.trials.due = Some(trial);
            }
        }
        context.encoder = Some(encoder);
        if left.made == Made::Failed {
            context.end(now, Reason::Failed);
        }
        context.ended.is_none()
    }

    /// Returns true if a model was picked for one of the contexts, so that batches have to be short.
    pub(crate) fn has_picked_model(&self) -> bool {
        let is_model = |it: &Picking| it.codec().is_model();
        self.contexts.iter().any(|it| it.picking.as_deref().is_some_and(is_model))
    }

    /// Returns what has taken the processor so long, and took so long in all, since this was asked, in nanoseconds.
    pub(crate) fn take_worked_ns(&mut self) -> (u64, u64) {
        std::mem::take(&mut self.worked_ns)
    }

    /// Looks which codecs are best on a link of this rate, to a peer that has time to decode so much from models, with so
    /// much of a processor, and returns a trial if there is to be one and there is time for it.
    pub(super) fn pick(
        &mut self,
        now: Instant,
        (rate, is_for_models, receiver): (Option<Rate>, bool, Option<Rate>),
        processor: Processor,
        may_try: bool,
    ) -> Option<CodecTrial> {
        (self.rate, self.is_for_models) = (rate, is_for_models);
        let runs = is_for_models && self.mode() == Mode::Running;
        let models = self.limits.and_then(|limits| limits.models).filter(|_| runs);
        for (at, context) in self.contexts.iter_mut().enumerate() {
            if let Some(picking) = &mut context.picking {
                let models = models.filter(|it| at < usize::from(it.contexts));
                let decodes = Decodes { lz4: self.takes_lz4, models };
                picking.review(now, (rate, receiver), decodes, processor);
            }
        }
        self.end_sample(now);
        self.trials.may_begin = may_try;
        let trial = self.trials.due.take()?;
        if !may_try {
            // Others were first. It would not be of what goes through the context then.
            if let Some(picking) = trial.group().and_then(|group| self.picking_of(group)) {
                picking.refused();
            }
            return None;
        }
        self.trials.may_begin_at = now + RESULT_NS_MAX;
        Some(trial)
    }

    /// Codecs were tried for a context, and that took so long.
    pub(super) fn tried(
        &mut self,
        now: Instant,
        (group, results): (u64, &[Tried<BatchCodec>]),
        took_ns: u64,
    ) {
        self.trials.may_begin_at = now;
        if let Some(picking) = self.picking_of(group) {
            self.pick = Some(picking.tried(now, (results, took_ns)).clone());
        }
    }

    /// The choice of the codec of a group's context.
    fn picking_of(&mut self, group: u64) -> Option<&mut Picking> {
        let at = usize::from(*self.by_group.get(&group)?);
        self.contexts.get_mut(at)?.picking.as_deref_mut()
    }

    /// The next number of the context for a batch; none if its generation has ended.
    pub(crate) fn number_batch(&mut self, now: Instant, place: &InContext) -> Option<Position> {
        let context = self.contexts.get_mut(usize::from(place.context))?;
        if context.epoch != place.epoch || context.ended.is_some() {
            return None;
        }
        if context.written_generation != place.generation {
            context.written_generation = place.generation;
            if !place.alone.is_some_and(|alone| alone.keeps) {
                context.first_number = context.next_number;
            }
        }
        (context.writes_alone, context.batched_at) = (place.alone.is_some(), now);
        Some(context.number(now, place.context))
    }

    /// The next number of the context for a packet that is bound to it and goes raw; none if nothing
    /// of the context is on its way that it could pass. Where losses are not mended here, it is better passed than waited for.
    pub(crate) fn number_raw(&mut self, now: Instant, at: u8) -> Option<Position> {
        if self.mode() == Mode::Stateless {
            return None;
        }
        let context = self.contexts.get_mut(usize::from(at))?;
        let is_ordered = context.written_generation > 0 && !context.writes_alone;
        (is_ordered && context.is_in_flight(now) && !context.is_ahead(now))
            .then(|| context.number(now, at))
    }

    /// A record was written to this datagram.
    pub(crate) fn written(&mut self, position: Position, datagram: u64) {
        let Some(context) = self.contexts.get_mut(usize::from(position.context)) else { return };
        if context.in_flight.len() == IN_FLIGHT_MAX {
            context.in_flight.pop_front();
        }
        context.in_flight.push_back((datagram, position.number));
    }

    /// A record that has a number could not be sent.
    pub(crate) fn unwritten(&mut self, now: Instant, position: Position) {
        if let Some(context) = self.contexts.get_mut(usize::from(position.context)) {
            context.end(now, Reason::Unsendable);
        }
    }

    /// The peer misses a datagram that can't be sent again.
    pub(crate) fn gone(&mut self, now: Instant, datagram: u64) {
        for context in &mut self.contexts {
            if context.needs(datagram) {
                context.end(now, Reason::Unsendable);
            }
        }
    }

    /// Ends all generations: the queue was dropped, and batches perhaps with it.
    pub(crate) fn dropped(&mut self, now: Instant) {
        self.contexts.iter_mut().for_each(|context| context.end(now, Reason::Dropped));
        self.lost.clear();
    }

    /// The peer says what it has of a context.
    pub(crate) fn report(&mut self, now: Instant, report: &ContextReport) {
        #[cfg(test)]
        if self.is_deaf {
            return;
        }
        let Some(context) = self.contexts.get_mut(usize::from(report.context)) else { return };
        if report.next_number > context.next_number {
            self.counts.false_reports += 1; // that was never sent
            return;
        }
        context.confirmed_number = context.confirmed_number.max(report.next_number);
        // Of batches that stand alone, those before the highest that came may be missing yet.
        let late = if context.writes_alone { LATE_ALONE_MAX } else { 0 };
        let confirmed = context.confirmed_number.saturating_sub(late);
        while context.in_flight.front().is_some_and(|&(_, number)| number < confirmed) {
            context.in_flight.pop_front();
        }
        // One that was overtaken by a later one says what was.
        let is_late = report.next_number < context.confirmed_number;
        if is_late || report.generation != context.written_generation as u8 {
            return;
        }
        context.reported_generation = context.written_generation;
        if context.written_generation == context.present.number {
            context.confirm_offset(report);
            if report.is_lost {
                let encoder = context.encoder.as_deref();
                context.originals.lose(report.ring_offset, encoder, &mut self.lost);
                context.end(now, Reason::Lost);
            } else {
                context.originals.confirm(report.ring_offset);
            }
        }
    }

    /// A batch is written, with some packets that were lost before: it may be lost as well.
    /// Its packets are given if they can't be had from the ring: if their headers are predicted from others.
    pub(super) fn keep_original(
        &mut self,
        now: Instant,
        place: &InContext,
        again: Again,
        packets: Vec<u8>,
    ) {
        let Some(context) = self.contexts.get_mut(usize::from(place.context)) else { return };
        context.originals.keep(now, place, again, packets);
        let bytes = self.contexts.iter().map(|it| it.originals.bytes()).sum::<usize>();
        if let Some(more) = bytes.checked_sub(self.lost.bytes_max()).filter(|&more| more > 0)
            && let Some(context) = self.contexts.get_mut(usize::from(place.context))
        {
            context.originals.forget_bytes(more);
        }
    }

    /// Returns true if there are batches to be encoded again.
    pub(crate) fn has_lost(&self) -> bool {
        #[cfg(test)]
        if self.forgets_lost {
            return false;
        }
        !self.lost.is_empty()
    }

    /// Takes the first of them.
    pub(super) fn take_lost(&mut self) -> Option<LostBatch> {
        self.lost.pop()
    }

    /// Nobody is there to decode them.
    pub(super) fn forget_lost(&mut self) {
        self.lost.clear();
    }

    /// Returns true if something went through a context less than so long ago.
    pub(crate) fn is_active(&self, now: Instant, for_ns: u64) -> bool {
        self.contexts
            .iter()
            .any(|it| it.next_number > NUMBER_MIN && now.since_ns(it.written_at) < for_ns)
    }

    /// Returns true if a record of some context may yet be on its way.
    pub(crate) fn has_in_flight(&self, now: Instant) -> bool {
        self.contexts.iter().any(|it| it.is_in_flight(now))
    }

    /// Gives back the memory of contexts that nobody uses.
    pub(crate) fn expire(&mut self, now: Instant) {
        for context in &mut self.contexts {
            // Not when it was used last: of what did not become smaller the peer knows nothing.
            let sent_at = context.written_at.max(context.began_at);
            context.is_passed_by &= now.since_ns(context.passed_at) <= IDLE_NS;
            if context.encoder.is_some() && now.since_ns(sent_at) > IDLE_NS {
                (context.encoder, context.ended) = (None, Some(Reason::Idle));
                context.predictor = None;
                context.in_flight = VecDeque::new();
                context.originals.forget();
            }
        }
    }

    pub(super) fn status(&self) -> TxContexts {
        let open = self.contexts.iter().filter(|it| it.is_open()).count();
        let bytes = self.memory_bytes();
        if self.contexts.is_empty() && self.counts.is_nothing() {
            return TxContexts::default();
        }
        let is_used = |it: &&Context| it.is_open() && it.present.number > 0 || it.is_passed_by;
        let used = self.contexts.iter().filter(is_used);
        let codecs = codec::count(
            used.map(|it| (it.present.coder, it.outside().filter(|_| it.is_passed_by))),
        );
        TxContexts { codecs, ..self.counts.status(self.mode(), (open, bytes)) }
    }
}
