//! Contexts: batches that refer to those before them, to and from one peer (`docs/wire.md`).
//!
//! * [`outgoing`](Outgoing): which group of packets goes through which context, and how far the peer
//!   has come with it.
//! * [`choice`](Choice): whether batches refer to all before them, or to what the peer has confirmed.
//! * [`bindings`](Bindings): which flows did so of late.
//! * `again`: what was lost with a generation, and is encoded again.
//! * [`incoming`](Incoming): what came, in the order of its numbers.
//!
//! These have neither packets nor sessions. What joins them with the node is in `entering` (batches on
//! their way to the compressor and back), `numbering` (what a frame's records are) and `leaving` (from
//! records to packets, and reports).

mod again;
mod alone;
mod begin;
mod bindings;
mod choice;
mod codec;
mod counts;
mod decode_job;
mod decoding;
mod entering;
mod incoming;
mod job;
mod leaving;
mod numbering;
mod outgoing;
mod overload;
#[cfg(test)]
mod tests;
mod trial;

use std::sync::Arc;

use dwell_base::Instant;
use dwell_base::time::MILLI_NS;
use dwell_codec::{CodecSpec, ContextDictionary, ModelSpec};
use dwell_drive::FlowHistories;
use dwell_policy::History;
use dwell_report::status::{RxContexts, TxContexts};
use dwell_wire::{ContextOffer, DictionaryName, ModelOffer};

use super::memory::LeastRecent;
use crate::config::{HistoryMode, PeerConfig};
use alone::AloneCodec;
use begin::name_of;
use bindings::Bindings;
use choice::Choice;
pub(crate) use choice::{Mode, Path};
use incoming::Incoming;
use outgoing::Outgoing;
use overload::{Overload, Verdict};
use trial::Done;

pub use decode_job::DecodeJob;
pub(super) use entering::{compress_in_context, finish, passage};
pub(crate) use incoming::{GapWaits, Origin};
pub use job::ContextJob;
pub(super) use numbering::{Item, number_frame};
pub(super) use outgoing::Passage;
pub use trial::CodecTrial;

/// A flow is bound to its context for so long at least, or for a round trip and this much more.
const BOUND_NS_MIN: u64 = 200 * MILLI_NS;
const BOUND_MARGIN_NS: u64 = 50 * MILLI_NS;
/// Packets beside records of contexts are retransmitted like these for so long after them.
const ACTIVE_NS_MIN: u64 = 1_000 * MILLI_NS;

/// The buffers that are kept for jobs to come, in pairs.
const SPARE_MAX: usize = 2;

/// It is looked at how batches are compressed at most this often: it takes as much time as a few packets.
const LOOKS_APART_NS: u64 = 5 * MILLI_NS;

/// Contexts that can't go on begin again at most this often.
const AGAIN_NS: u64 = 20_000 * MILLI_NS;

/// The number and the size of the contexts of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) contexts: u8,
    /// The binary logarithm of the largest window and of the ring, in bytes.
    pub(crate) ring_log: u8,
    /// Which of them may have a model, and with how much memory.
    pub(crate) models: Option<ModelOffer>,
}

impl Limits {
    pub(crate) fn of(config: &PeerConfig) -> Self {
        let contexts = config.contexts_max.min(config.models_max);
        let memory_log = config.model_memory_log;
        Self {
            contexts: config.contexts_max,
            ring_log: config.context_window_log,
            models: (contexts > 0).then_some(ModelOffer {
                contexts,
                memory_log,
                takes_mixed: true,
            }),
        }
    }

    /// Those that an offer of this end named. Without models it withdraws them for a while: what is under way with
    /// them goes on, within what this end has for them.
    fn offered(offer: &ContextOffer, models: Option<ModelOffer>) -> Self {
        let &ContextOffer { contexts, ring_log, .. } = offer;
        Self { contexts, ring_log, models: offer.models.or(models) }
    }

    /// Returns the limits that both ends allow.
    fn and(self, offer: &ContextOffer) -> Self {
        let both = |(ours, theirs): (ModelOffer, ModelOffer)| ModelOffer {
            contexts: ours.contexts.min(theirs.contexts),
            memory_log: ours.memory_log.min(theirs.memory_log),
            takes_mixed: ours.takes_mixed && theirs.takes_mixed,
        };
        Self {
            contexts: self.contexts.min(offer.contexts),
            ring_log: self.ring_log.min(offer.ring_log),
            models: self.models.zip(offer.models).map(both),
        }
    }

    /// Returns the model that the context of this number can have in place of the wanted one.
    fn model(&self, context: u8, wanted: Option<ModelSpec>) -> Option<ModelSpec> {
        let models = self.models.filter(|models| context < models.contexts)?;
        let can_be =
            |wanted: &ModelSpec| models.takes_mixed || !matches!(wanted, ModelSpec::Mix(_));
        Some(wanted.filter(can_be)?.within(models.memory_log))
    }

    /// Returns true if there is memory for this model in the context of this number.
    fn takes(&self, context: u8, spec: ModelSpec) -> bool {
        self.models.is_some_and(|it| context < it.contexts && spec.memory_log() <= it.memory_log)
    }
}

/// A context that may be given up for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Evictable {
    /// Of what goes to the peer.
    Outgoing(LeastRecent),
    /// Of what comes from it.
    Incoming(LeastRecent),
}

impl Evictable {
    /// Returns when it was used last.
    pub(super) fn used_at(&self) -> Instant {
        match self {
            Self::Outgoing(it) | Self::Incoming(it) => it.used_at,
        }
    }
}

/// The contexts to and from one peer.
#[derive(Debug)]
pub(crate) struct Contexts {
    pub(crate) outgoing: Outgoing,
    pub(crate) bindings: Bindings,
    pub(crate) incoming: Incoming,
    /// The limits that this end offers from now on; those of the present session are what its handshake offered.
    limits: Limits,
    /// The name of what it decodes with: random, and another one if it begins from nothing.
    incarnation: u64,
    /// Those of both ends in the latest session.
    incarnations: Option<(u64, Option<u64>)>,
    /// They go on from the session before.
    goes_on: bool,
    /// When they had to begin again though nothing else did.
    began_again_at: Option<Instant>,
    choice: Choice,
    /// When it was looked at how batches are compressed.
    looked_at: Instant,
    overload: Overload,
    /// The codec of batches in no context, if none is configured and there were some.
    alone: Option<Box<AloneCodec>>,
    /// Which flows have a context of their own.
    pub(crate) flows: FlowHistories,
    /// The dictionary that this end offers to begin from.
    dictionary: Option<Arc<ContextDictionary>>,
    /// The one that it offered before: a handshake may be under way with it.
    dictionary_before: Option<Arc<ContextDictionary>>,
    /// The name of that which the peer has, once there was a session.
    their_dictionary: Option<Option<DictionaryName>>,
    /// The buffers of jobs that came back, for the next ones.
    spare: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Contexts {
    pub(crate) fn new(limits: Limits, incarnation: u64) -> Self {
        Self {
            outgoing: Outgoing::default(),
            bindings: Bindings::default(),
            incoming: Incoming::new(limits),
            limits,
            incarnation,
            incarnations: None,
            goes_on: false,
            began_again_at: None,
            choice: Choice::default(),
            looked_at: Instant::ZERO,
            overload: Overload::default(),
            alone: None,
            flows: FlowHistories::new(0),
            dictionary: None,
            dictionary_before: None,
            their_dictionary: None,
            spare: Vec::new(),
        }
    }

    /// The buffers of a job that is over. As many are kept as are used all the time.
    fn give_back(&mut self, buffers: (Vec<u8>, Vec<u8>)) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(buffers);
        }
    }

    /// The configuration allows so much now: it holds from the next session on.
    pub(crate) fn set_limits(&mut self, limits: Limits) {
        if limits != self.limits {
            self.limits = limits;
            // The decoders of before are of other sizes.
            self.incarnation = self.incarnation.wrapping_add(1);
        }
    }

    /// Takes another incarnation if a context can't go on for want of reports: with the next session both ends
    /// begin from nothing. True if that session is needed now.
    pub(super) fn begins_again(&mut self, now: Instant) -> bool {
        let was_lately = self.began_again_at.is_some_and(|at| now.since_ns(at) < AGAIN_NS);
        if !self.outgoing.take_stuck() || was_lately {
            return false;
        }
        self.began_again_at = Some(now);
        self.incarnation = self.incarnation.wrapping_add(1);
        true
    }

    /// The configuration has this scope now.
    pub(crate) fn set_history(&mut self, history: History) {
        let is_chosen = history == History::Auto;
        self.flows.set_contexts(if is_chosen { self.outgoing.contexts_max() } else { 0 });
    }

    /// The configuration has this dictionary now: it holds from the next session on.
    pub(crate) fn set_dictionary(&mut self, dictionary: Option<Arc<ContextDictionary>>) {
        let name = |it: &Option<Arc<ContextDictionary>>| it.as_deref().map(name_of);
        if name(&dictionary) != name(&self.dictionary) {
            self.dictionary_before = std::mem::replace(&mut self.dictionary, dictionary);
        }
    }

    /// Returns the dictionary of this name, if this end offered it of late.
    fn dictionary_named(&self, name: Option<DictionaryName>) -> Option<Arc<ContextDictionary>> {
        let here = [&self.dictionary, &self.dictionary_before];
        let is_named = |it: &&Arc<ContextDictionary>| Some(name_of(it)) == name;
        here.into_iter().flatten().find(is_named).cloned()
    }

    /// Returns the name of this end's dictionary, and that of the peer's if there was a session.
    pub(crate) fn dictionaries(&self) -> Option<(DictionaryName, Option<Option<DictionaryName>>)> {
        Some((name_of(self.dictionary.as_deref()?), self.their_dictionary))
    }

    /// Returns the offer that the peer is sent in handshakes.
    pub(crate) fn offer(&self) -> ContextOffer {
        let Limits { contexts, ring_log, models } = self.limits;
        let models = models.filter(|_| !self.overload.is_withdrawn());
        let (incarnation, takes_alone, takes_predicted) = (self.incarnation, true, true);
        let dictionary = self.dictionary.as_deref().map(name_of);
        ContextOffer {
            contexts,
            ring_log,
            incarnation,
            takes_alone,
            dictionary,
            models,
            takes_predicted,
        }
    }

    /// A session began, in whose handshake the ends named `offered`: this end, and the peer. True if the peer is another
    /// than in the session before: restarted, or with another configuration.
    ///
    /// This end's configuration may have changed since: the peer sends by what it was sent.
    pub(crate) fn begin_session(
        &mut self,
        now: Instant,
        (ours, theirs): (&ContextOffer, Option<&ContextOffer>),
    ) -> bool {
        let incarnations = (ours.incarnation, theirs.map(|offer| offer.incarnation));
        let before = self.incarnations.replace(incarnations);
        let is_same = before == self.incarnations;
        self.goes_on = is_same;
        let offered = Limits::offered(ours, self.limits.models);
        let limits = theirs.map(|offer| offered.and(offer));
        self.outgoing.begin_session(now, limits, is_same);
        self.outgoing.set_takes_alone(theirs.is_some_and(|offer| offer.takes_alone));
        self.outgoing.set_takes_predicted(theirs.is_some_and(|offer| offer.takes_predicted));
        self.incoming.begin_session(offered, is_same);
        self.incoming.share(self.dictionary_named(ours.dictionary));
        let named = theirs.and_then(|offer| offer.dictionary);
        self.their_dictionary = Some(named);
        let is_shared = |it: &Arc<ContextDictionary>| Some(name_of(it)) == named;
        self.outgoing.share(self.dictionary.clone().filter(is_shared));
        if !is_same {
            self.bindings.clear();
        }
        match (before, incarnations) {
            (Some((_, Some(before))), (_, Some(now))) => before != now,
            _ => false,
        }
    }

    /// Returns true if both ends go on with the contexts of the session before.
    pub(in crate::node) fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// Returns true, and notes it, if it is time to look how batches are compressed.
    fn is_look_due(&mut self, now: Instant) -> bool {
        let is_due = now.since_ns(self.looked_at) >= LOOKS_APART_NS;
        if is_due {
            self.looked_at = now;
        }
        is_due
    }

    /// Returns the codec for a batch in no context, where none is configured; it begins with `first`.
    pub(super) fn alone_codec(&mut self, first: CodecSpec, batch: &[u8]) -> CodecSpec {
        let alone = self.alone.get_or_insert_with(|| Box::new(AloneCodec::new(first)));
        alone.saw(batch);
        alone.codec().unwrap_or(first)
    }

    /// A codec for what is in no context is picked from now on, or not any more.
    pub(super) fn keep_alone(&mut self, picks: bool) {
        self.alone.take_if(|_| !picks);
    }

    /// Codecs were tried.
    pub(super) fn tried(&mut self, now: Instant, trial: &CodecTrial) {
        let took_ns = trial.took_ns();
        match trial.done() {
            Done::Context(group, results) => self.outgoing.tried(now, (group, results), took_ns),
            Done::Alone(results) => {
                if let Some(alone) = &mut self.alone {
                    alone.tried(now, results, took_ns);
                }
            }
        }
    }

    /// The choice of the codec for batches in no context, if there were some and none is configured.
    pub(super) fn alone_mut(&mut self) -> Option<&mut AloneCodec> {
        self.alone.as_deref_mut()
    }

    /// Looks if batches should refer to those before, to what was confirmed, or to nothing.
    pub(super) fn review(&mut self, now: Instant, mode: HistoryMode, path: Path) {
        let Self { choice, outgoing, .. } = self;
        let mode = match mode {
            HistoryMode::Running => Mode::Running,
            HistoryMode::Acknowledged => Mode::Acknowledged,
            HistoryMode::Auto => choice.review(now, path, outgoing.alone()),
        };
        outgoing.want(mode);
    }

    /// Looks if what the peer sends can be decoded in time; the offer changes unless all is as before. Only if it `may`
    /// begin models are withdrawn.
    fn review_overload(&mut self, now: Instant, may: bool) -> Verdict {
        self.overload.review(now, self.incoming.waits_for_threads_ns(now), may)
    }

    /// The path to the peer may be another one.
    pub(super) fn moved(&mut self) {
        self.choice.moved();
    }

    /// The peer asks for a datagram.
    pub(super) fn asked(&mut self) {
        self.choice.asked();
    }

    /// Returns true while datagrams are kept for retransmission whatever is in them: those with records
    /// of contexts, and those beside them.
    pub(crate) fn is_active(&self, now: Instant, rtt_ns: Option<u64>) -> bool {
        let for_ns = bound_ns(rtt_ns).max(ACTIVE_NS_MIN);
        self.outgoing.is_active(now, for_ns)
    }

    /// Returns the memory that they take, in bytes, with records that wait, and batches that are to be encoded again.
    pub(super) fn memory_bytes(&self) -> u64 {
        (self.outgoing.memory_bytes() + self.incoming.memory_bytes()) as u64
    }

    /// Returns the one that was used least recently, of those that can be given up now.
    pub(super) fn least_recent(&self) -> Option<Evictable> {
        let outgoing = self.outgoing.least_recent().map(Evictable::Outgoing);
        let incoming = self.incoming.least_recent().map(Evictable::Incoming);
        outgoing.into_iter().chain(incoming).min_by_key(Evictable::used_at)
    }

    /// Returns the number of those that can be given up now.
    pub(super) fn evictable(&self) -> usize {
        self.outgoing.evictable() + self.incoming.evictable()
    }

    /// Gives it up.
    pub(super) fn evict(&mut self, it: Evictable) {
        match it {
            Evictable::Outgoing(it) => self.outgoing.evict(it.context),
            Evictable::Incoming(it) => self.incoming.evict(it.context),
        }
    }

    pub(super) fn status(&self) -> (TxContexts, RxContexts) {
        let codec = self.alone.as_ref().and_then(|alone| alone.codec());
        let codec_without_context = codec.map(|codec| codec.to_string());
        (TxContexts { codec_without_context, ..self.outgoing.status() }, self.incoming.status())
    }
}

/// Returns the time for which a flow is bound to the context that it went through, in nanoseconds.
fn bound_ns(rtt_ns: Option<u64>) -> u64 {
    rtt_ns.map_or(BOUND_NS_MIN, |rtt_ns| (rtt_ns + BOUND_MARGIN_NS).max(BOUND_NS_MIN))
}
