//! Batches that are compressed outside of their context, where that carries most.
//!
//! On links that are nearly as fast as the processor, a history is not worth what it costs: lz4 leaves as much as the
//! fastest level of zstd in less time, and nothing is written to a ring. The context stays as it is; it can be entered again
//! whenever another codec is better, of which trials on what passes it by tell.

use dwell_base::Instant;
use dwell_base::time::SECOND_NS;
use dwell_codec::CodecSpec;

use super::{Decodes, NUMBER_MIN, Outgoing};
use crate::node::contexts::begin::Wanted;
use crate::node::contexts::bindings::Bindings;
use crate::node::contexts::codec::{BatchCodec, OUTSIDE_RATE_BPS_MIN};
use crate::node::contexts::trial::{CodecTrial, TRIAL_LEN_MAX};

/// A sample is as long as a trial can be, or has this many bytes after so long; else nothing is tried.
const SAMPLE_LEN_MIN: usize = 24 << 10;
const SAMPLE_NS: u64 = SECOND_NS / 2;

/// What becomes of a batch that does not enter its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node) enum Passage {
    /// It is compressed by this codec, and refers to nothing.
    By(CodecSpec),
    /// It goes as it is.
    Raw,
}

/// What codecs are to be tried on, as it comes.
#[derive(Debug)]
pub(super) struct Sample {
    group: u64,
    since: Instant,
    codecs: Vec<BatchCodec>,
    batch_len: usize,
    bytes: Vec<u8>,
}

impl Outgoing {
    /// The peer decodes lz4, or it does not.
    pub(crate) fn set_takes_lz4(&mut self, takes_lz4: bool) {
        self.takes_lz4 = takes_lz4;
    }

    /// Returns how batches of a group pass its context by, if they do. What went through the context less than `bound_ns`
    /// ago may wait for what is missing, or for its turn to be decoded: until then all goes as it is, in its place
    /// there. From then on no flow is bound to the context.
    pub(in crate::node::contexts) fn passage(
        &mut self,
        now: Instant,
        (group, wanted): (u64, Wanted),
        bound_ns: u64,
        bindings: &mut Bindings,
    ) -> Option<Passage> {
        let limits = self.limits.filter(|_| self.takes_lz4)?;
        let Some(at) = self.context_of(now, group, wanted.coder.zstd, limits) else {
            return self.passage_by_others();
        };
        let context = self.contexts.get_mut(usize::from(at))?;
        let _ = context.coder((self.rate, self.quota), self.pick.as_ref(), wanted);
        let codec = context.outside()?;
        if !context.is_passed_by {
            let is_bound = now.since_ns(context.batched_at) < bound_ns;
            if context.is_out || is_bound && context.next_number > NUMBER_MIN {
                return Some(Passage::Raw);
            }
            context.is_passed_by = true;
            bindings.forget(at);
        }
        context.passed_at = now;
        Some(Passage::By(codec))
    }

    /// The same of a group that has no context, as all are in use, by what was found for others.
    fn passage_by_others(&self) -> Option<Passage> {
        let is_fast = self.rate.is_some_and(|rate| rate.as_bps() >= OUTSIDE_RATE_BPS_MIN);
        let latest = self.pick.as_ref()?.present().filter(|_| is_fast)?;
        latest.outside().map(Passage::By)
    }

    /// Returns true if batches pass a context by.
    pub(in crate::node) fn is_passed_by(&self) -> bool {
        self.contexts.iter().any(|it| it.is_passed_by)
    }

    /// A batch is about to be compressed outside of its context.
    pub(in crate::node) fn saw_outside(&mut self, now: Instant, group: u64, batch: &[u8]) {
        let Some(sample) = self.trials.sample.as_mut().filter(|it| it.group == group) else {
            return;
        };
        let room = TRIAL_LEN_MAX.saturating_sub(sample.bytes.len());
        sample.bytes.extend_from_slice(&batch[..batch.len().min(room)]);
        let is_long = now.since_ns(sample.since) >= SAMPLE_NS;
        if sample.bytes.len() < if is_long { SAMPLE_LEN_MIN } else { TRIAL_LEN_MAX } {
            return;
        }
        let Some(Sample { codecs, batch_len, bytes, .. }) = self.trials.sample.take() else {
            return;
        };
        self.trials.due = Some(CodecTrial::of_sample(group, bytes, batch_len, codecs));
    }

    /// A batch was compressed outside of its context: its lengths in bytes, before and after.
    pub(in crate::node) fn compressed_outside(
        &mut self,
        now: Instant,
        group: u64,
        lens: (u64, u64),
        took_ns: u64,
    ) {
        let Some(&at) = self.by_group.get(&group) else { return };
        let may_begin = self.trials.may_begin(now);
        let decodes = Decodes { lz4: self.takes_lz4, models: None };
        let Some(context) = self.contexts.get_mut(usize::from(at)) else { return };
        context.lately.add(now, lens.0);
        let Some(picking) = context.picking.as_deref_mut() else { return };
        picking.compressed_outside(lens, took_ns);
        if !may_begin || !picking.may_take_sample(now) {
            return;
        }
        if let Some((codecs, batch_len)) = picking.due_trial(now, self.rate, decodes) {
            let bytes = Vec::with_capacity(TRIAL_LEN_MAX);
            self.trials.sample = Some(Sample { group, since: now, codecs, batch_len, bytes });
        }
    }

    fn is_outside(&self, group: u64) -> bool {
        let at = self.by_group.get(&group).map(|&at| usize::from(at));
        let context = at.and_then(|at| self.contexts.get(at));
        context.is_some_and(|it| it.outside().is_some())
    }

    /// Gives a sample up that takes too long, or that nothing comes for any more.
    pub(super) fn end_sample(&mut self, now: Instant) {
        let Some(sample) = &self.trials.sample else { return };
        let group = sample.group;
        // The next batch after half a second may yet complete it.
        let is_late = now.since_ns(sample.since) > SAMPLE_NS + SAMPLE_NS / 2;
        if !is_late && self.is_outside(group) {
            return;
        }
        self.trials.sample = None;
        if let Some(picking) = self.picking_of(group) {
            picking.came_too_little(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use dwell_base::Rate;
    use dwell_base::time::MILLI_NS;
    use dwell_codec::ContextSpec;
    use dwell_policy::method::{CodecPoint, Processor, Tried};
    use dwell_wire::ContextOffer;

    use super::*;
    use crate::node::contexts::begin::Coder;
    use crate::node::contexts::job::Made;
    use crate::node::contexts::outgoing::{Entered, Left};
    use crate::node::contexts::{Contexts, Limits};

    const BOUND_NS: u64 = 200 * MILLI_NS;
    const LIMITS: Limits = Limits { contexts: 1, ring_log: 15, models: None };
    const GROUP: u64 = 1;
    const FLOW: u64 = 7;

    fn at(ms: u64) -> Instant {
        Instant::from_ns(SECOND_NS + ms * MILLI_NS)
    }

    fn wanted() -> Wanted {
        let coder = Coder { zstd: ContextSpec { level: 1, window_log: 15 }, model: None };
        Wanted { coder, picks: true, memory_log: 20, are_short: true }
    }

    /// To a peer that decodes lz4, or does not.
    fn contexts(takes_lz4: bool) -> Contexts {
        let mut contexts = Contexts::new(LIMITS, 1);
        let offer = ContextOffer { incarnation: 2, ..contexts.offer() };
        let ours = contexts.offer();
        contexts.begin_session(Instant::ZERO, (&ours, Some(&offer)));
        contexts.outgoing.set_takes_lz4(takes_lz4);
        contexts
    }

    fn review(contexts: &mut Contexts, now: Instant, mbps: u64) -> Option<CodecTrial> {
        let path = (Some(Rate::from_mbps(mbps)), false, None);
        contexts.outgoing.pick(now, path, Processor::default(), true)
    }

    fn passage(contexts: &mut Contexts, now: Instant) -> Option<Passage> {
        let Contexts { outgoing, bindings, .. } = contexts;
        outgoing.passage(now, (GROUP, wanted()), BOUND_NS, bindings)
    }

    /// A batch goes through the context, with this flow.
    fn send(contexts: &mut Contexts, now: Instant) {
        let entered = contexts.outgoing.enter(now, GROUP, wanted()).expect("a context");
        let Entered { context, epoch, encoder, .. } = entered;
        let (lens, elapsed_ns) = ((60_000, 30_000), None);
        let left = Left { made: Made::Done, primed: false, lens, took_ns: 500_000, elapsed_ns };
        assert!(contexts.outgoing.leave(now, (context, epoch), encoder, left));
        contexts.outgoing.contexts[usize::from(context)].next_number += 1;
        contexts.bindings.bind(now, FLOW, context);
    }

    #[test]
    fn only_over_fast_links_and_to_peers_that_decode_it() {
        for (mbps, takes_lz4, passes) in
            [(1_000, true, true), (1_000, false, false), (50, true, false)]
        {
            let mut contexts = contexts(takes_lz4);
            let _ = review(&mut contexts, at(0), mbps);
            let by = passage(&mut contexts, at(0));
            assert_eq!(matches!(by, Some(Passage::By(_))), passes, "{mbps} {takes_lz4}: {by:?}");
        }
    }

    /// Or it would never be known what is best for it.
    #[test]
    fn who_has_no_context_gets_one_that_is_not_used_any_more() {
        let mut contexts = contexts(true);
        let _ = review(&mut contexts, at(0), 1_000);
        assert!(passage(&mut contexts, at(0)).is_some());
        let of_another = |contexts: &mut Contexts, now| {
            let Contexts { outgoing, bindings, .. } = contexts;
            let by = outgoing.passage(now, (2, wanted()), BOUND_NS, bindings);
            (by, outgoing.by_group.contains_key(&2))
        };
        // Nothing was found for the one that has it, either.
        assert_eq!(of_another(&mut contexts, at(1_000)), (None, false));
        let point = CodecPoint::new(1.0, 0.5);
        contexts.outgoing.tried(at(1_000), (GROUP, &[Tried { codec: BatchCodec::Lz4, point }]), 0);
        let (by, has_one) = of_another(&mut contexts, at(1_000));
        assert!(matches!(by, Some(Passage::By(_))) && !has_one, "{by:?}");
        let (by, has_one) = of_another(&mut contexts, at(3_000));
        assert!(matches!(by, Some(Passage::By(_))) && has_one, "{by:?}");
    }

    #[test]
    fn a_link_that_turns_out_to_be_thin_has_contexts_though_nothing_was_tried() {
        let mut contexts = contexts(true);
        let _ = review(&mut contexts, at(0), 1_000);
        assert!(passage(&mut contexts, at(0)).is_some());
        let _ = review(&mut contexts, at(10), 50);
        assert_eq!(passage(&mut contexts, at(10)), None);
    }

    #[test]
    fn what_may_wait_in_the_context_is_not_passed() {
        let mut contexts = contexts(true);
        let _ = review(&mut contexts, at(0), 50);
        send(&mut contexts, at(0));
        let point = |cost_ns, ratio| CodecPoint::new(cost_ns, ratio);
        let results = [
            Tried { codec: BatchCodec::Lz4, point: point(1.0, 0.5) },
            Tried { codec: BatchCodec::Zstd(1), point: point(50.0, 0.5) },
        ];
        contexts.outgoing.tried(at(0), (GROUP, &results), 0);
        let mut passages = Vec::new();
        for ms in (10..3_000).step_by(10) {
            let _ = review(&mut contexts, at(ms), 1_000);
            let passage = passage(&mut contexts, at(ms));
            if passage.is_none() {
                send(&mut contexts, at(ms));
            }
            let is_bound = contexts.bindings.context_of(at(ms), FLOW, u64::MAX).is_some();
            assert_ne!(is_bound, matches!(passage, Some(Passage::By(_))), "{ms}");
            passages.push(passage);
        }
        let count = |passage: fn(&Option<Passage>) -> bool| {
            passages.iter().filter(|it| passage(it)).count()
        };
        assert_eq!(count(|it| *it == Some(Passage::Raw)), 19, "{passages:?}");
        assert!(count(Option::is_none) < 100, "{passages:?}");
        let is_by = |it: &Option<Passage>| matches!(it, Some(Passage::By(_)));
        assert!(
            passages.last().is_some_and(is_by) && passages.is_sorted_by_key(is_by),
            "{passages:?}"
        );
    }

    #[test]
    fn codecs_are_tried_on_what_passes_by() {
        let mut contexts = contexts(true);
        let mut trials = 0;
        for ms in (0..2_000).step_by(5) {
            if let Some(mut trial) = review(&mut contexts, at(ms), 1_000) {
                trials += 1;
                trial.run_in_no_time();
                contexts.tried(at(ms), &trial);
            }
            if let Some(Passage::By(_)) = passage(&mut contexts, at(ms)) {
                contexts.outgoing.saw_outside(at(ms), GROUP, &[b'x'; 30_000]);
                contexts.outgoing.compressed_outside(at(ms), GROUP, (30_000, 15_000), 75_000);
            }
        }
        assert!(trials > 0);
    }

    /// What comes too slowly is not waited for, and tried again later.
    #[test]
    fn a_sample_that_takes_too_long_is_given_up() {
        let mut contexts = contexts(true);
        let mut begun = 0;
        for ms in (0..20_000).step_by(5) {
            let had = contexts.outgoing.trials.sample.is_some();
            assert!(review(&mut contexts, at(ms), 1_000).is_none());
            let _ = passage(&mut contexts, at(ms));
            contexts.outgoing.saw_outside(at(ms), GROUP, &[b'x'; 30]);
            contexts.outgoing.compressed_outside(at(ms), GROUP, (30_000, 15_000), 75_000);
            begun += usize::from(!had && contexts.outgoing.trials.sample.is_some());
        }
        assert_eq!(begun, 2);
    }
}
