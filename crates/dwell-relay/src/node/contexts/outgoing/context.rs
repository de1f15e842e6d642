//! One context of what goes to a peer.

use std::collections::VecDeque;
use std::sync::Arc;

use dwell_base::time::{MILLI_NS, SECOND_NS};
use dwell_base::{Instant, Rate};
use dwell_codec::{Base, CodecSpec, ContextDictionary, ContextEncoder};
use dwell_policy::method::CodecPick;
use dwell_wire::{ContextReport, HeaderPredictor};

use super::Position;
use super::parallel::Lately;
use crate::node::contexts::again::Originals;
use crate::node::contexts::begin::{Coder, Generation, Kind, Wanted};
use crate::node::contexts::codec::{BatchCodec, Picking};
use crate::node::contexts::counts::Reason;

/// A record that was not confirmed for so long is not on its way any more.
const IN_FLIGHT_NS: u64 = 4 * SECOND_NS;
/// A generation that ends sooner makes the next one wait.
const SHORT_NS: u64 = SECOND_NS;
/// The pause before it: this, and double of it each time.
const PAUSE_NS_MIN: u64 = 20 * MILLI_NS;
const PAUSE_NS_MAX: u64 = 2 * SECOND_NS;

/// Priming takes at most one part in so many of the time that compressing takes, or of all time if that is
/// more: a thin link's CPU has time enough. That is for all contexts of a peer together, ...
const PRIMING_PART: u64 = 8;
const PRIMING_PART_OF_ALL: u64 = 64;
/// ... and is done for a base that has moved on by at least one part in so many of its length.
const ADVANCE_PART: u64 = 4;
/// A batch that stands alone is at most so far from its base: the format allows for twice that.
const DISTANCE_MAX: u64 = 1 << 31;

/// The first number of a context.
pub(super) const NUMBER_MIN: u64 = 1;
/// Numbers and generations beyond those that the peer has reported of; the format allows a few more.
const AHEAD_MAX: u64 = (1 << 14) - 1_024;
const GENERATIONS_AHEAD_MAX: u64 = 100;
/// From here on the peer would take them for earlier ones.
const GENERATIONS_AHEAD_END: u64 = 127;
const NUMBERS_AHEAD_END: u64 = (1 << 14) - 1;

/// One context.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) group: u64,
    /// None while it is with the compressor, and if there is nothing to go on from.
    pub(super) encoder: Option<Box<ContextEncoder>>,
    pub(super) is_out: bool,
    /// What headers of the present generation are predicted with, if they are.
    pub(super) predictor: Option<Box<HeaderPredictor>>,
    pub(super) lately: Lately,
    /// The memory of the encoder when it was last here.
    pub(super) memory_bytes: usize,
    /// The generation, by a name that no other has had.
    pub(super) epoch: u64,
    /// Why it ended, if it did.
    pub(super) ended: Option<Reason>,
    pub(super) began_at: Instant,
    /// The generation itself; its number is zero if there was none yet.
    pub(super) present: Generation,
    /// That of the latest batch that was written, and the number of its first.
    pub(super) written_generation: u64,
    pub(super) first_number: u64,
    pub(super) writes_alone: bool,
    /// The time that batches have taken since the latest priming, their number, and what that took.
    pub(super) busy_ns: u64,
    pub(super) jobs: u64,
    pub(super) primed_ns: u64,
    pub(super) primed_at: Instant,
    /// The number of the next record.
    pub(super) next_number: u64,
    /// Those before this one have come or were given up; of batches that stand alone, one beyond the highest
    /// that came.
    pub(super) confirmed_number: u64,
    /// The latest generation that the peer has reported of.
    pub(super) reported_generation: u64,
    /// Plaintext that the peer has.
    pub(super) confirmed_offset: u64,
    /// The peer could not begin a generation from there.
    pub(super) base_failed: bool,
    /// The peer could not begin from the dictionary, twice in this session.
    pub(super) dictionary_failed: bool,
    /// The datagrams and their records, in their order.
    pub(super) in_flight: VecDeque<(u64, u64)>,
    /// What may be encoded again if it is lost with the present generation.
    pub(super) originals: Originals,
    pub(super) written_at: Instant,
    pub(super) used_at: Instant,
    /// When it was last passed by.
    pub(super) passed_at: Instant,
    /// When a batch last came out of the compressor, or was written.
    pub(super) batched_at: Instant,
    /// Batches are compressed outside of it, and nothing that waits for the peer's decoder can be passed by them.
    pub(super) is_passed_by: bool,
    /// No generation begins before.
    pub(super) pause_until: Instant,
    pub(super) pause_ns: u64,
    /// The choice of its codec, if none is configured.
    pub(super) picking: Option<Box<Picking>>,
}

impl Context {
    pub(super) fn new(group: u64, coder: Coder) -> Self {
        Self {
            group,
            encoder: None,
            is_out: false,
            predictor: None,
            lately: Lately::default(),
            memory_bytes: 0,
            epoch: 0,
            ended: Some(Reason::First),
            began_at: Instant::ZERO,
            present: Generation::none(coder),
            written_generation: 0,
            first_number: NUMBER_MIN,
            writes_alone: false,
            busy_ns: 0,
            jobs: 0,
            primed_ns: 0,
            primed_at: Instant::ZERO,
            next_number: NUMBER_MIN,
            confirmed_number: NUMBER_MIN,
            reported_generation: 0,
            confirmed_offset: 0,
            base_failed: false,
            dictionary_failed: false,
            in_flight: VecDeque::new(),
            originals: Originals::default(),
            written_at: Instant::ZERO,
            used_at: Instant::ZERO,
            passed_at: Instant::ZERO,
            batched_at: Instant::ZERO,
            is_passed_by: false,
            pause_until: Instant::ZERO,
            pause_ns: PAUSE_NS_MIN,
            picking: None,
        }
    }

    /// Returns true if it has an encoder.
    pub(super) fn is_open(&self) -> bool {
        self.is_out || self.encoder.is_some()
    }

    /// Returns true if a record of it may yet be on its way.
    pub(super) fn is_in_flight(&self, now: Instant) -> bool {
        self.confirmed_number < self.next_number && now.since_ns(self.written_at) < IN_FLIGHT_NS
    }

    /// True if the peer could not tell which number or generation is meant by more of them.
    pub(super) fn is_ahead(&self, now: Instant) -> bool {
        let is_far = self.next_number - self.confirmed_number >= AHEAD_MAX;
        let later = self.written_generation.saturating_sub(self.reported_generation);
        let is_much_later = later >= GENERATIONS_AHEAD_MAX;
        // Where nothing is on its way that the peer could report of, one more is a question.
        (is_far || is_much_later) && self.is_in_flight(now) || self.is_at_end()
    }

    /// True if nothing more can be sent before a report comes. As nothing is sent, there may be none: then all
    /// contexts must begin again.
    pub(super) fn is_at_end(&self) -> bool {
        let later = self.written_generation.saturating_sub(self.reported_generation);
        let ahead = self.next_number - self.confirmed_number;
        later >= GENERATIONS_AHEAD_END || ahead >= NUMBERS_AHEAD_END
    }

    /// Returns true if the peer has reported of the present generation: it keeps the bases of a few that stand
    /// alone only, so that there must not be many others while something of an earlier one is missing.
    fn is_present_known(&self) -> bool {
        self.reported_generation == self.present.number
    }

    /// Returns the base of the next generation whose batches stand alone, if it is time for one: the peer
    /// knows the present one, and has so much more that it is worth the time.
    pub(super) fn advance(
        &self,
        now: Instant,
        encoder: &ContextEncoder,
        contexts: u64,
    ) -> Option<Base> {
        let Generation { coder: Coder { zstd: spec, .. }, base: present, .. } = self.present;
        let is_known = self.present.is_alone() && self.is_present_known();
        let is_worth_it = self.busy_ns >= PRIMING_PART * self.primed_ns
            || now.since_ns(self.primed_at)
                >= (PRIMING_PART_OF_ALL * contexts).saturating_mul(self.primed_ns);
        if !is_known || !is_worth_it {
            return None;
        }
        let base = encoder.base_at(self.confirmed_offset)?;
        let base = Base { len: base.len.min(spec.alone_base_len_max()), ..base };
        let moved = base.offset.checked_sub(present.offset)?;
        let needed = (u64::from(base.len) / ADVANCE_PART).max(1);
        (moved >= needed && base.len >= present.len).then_some(base)
    }

    /// Notes what a batch took. What priming took is what it took more than others.
    pub(super) fn took(&mut self, now: Instant, took_ns: u64, primed: bool) {
        if primed {
            self.primed_at = now;
            let mean_ns = self.busy_ns / self.jobs.max(1);
            self.primed_ns = took_ns.saturating_sub(mean_ns);
            (self.busy_ns, self.jobs) = (0, 0);
        } else {
            self.busy_ns += took_ns;
            self.jobs += 1;
        }
    }

    pub(super) fn end(&mut self, now: Instant, reason: Reason) {
        if self.ended.is_some() {
            return;
        }
        self.ended = Some(reason);
        // Else a peer that lets every generation end would cost us the work of priming each time.
        if now.since_ns(self.began_at) < SHORT_NS {
            self.pause_until = now + self.pause_ns;
            self.pause_ns = (2 * self.pause_ns).min(PAUSE_NS_MAX);
        } else {
            self.pause_ns = PAUSE_NS_MIN;
        }
    }

    /// Others use it from now on: nothing of what those before them sent is referred to any more.
    pub(super) fn take_over(&mut self, group: u64) {
        (self.group, self.encoder, self.predictor) = (group, None, None);
        self.in_flight = VecDeque::new();
        self.originals.forget();
        self.base_failed = false;
        self.ended = Some(Reason::First);
        self.confirmed_offset = 0;
        self.pause_until = Instant::ZERO;
        self.pause_ns = PAUSE_NS_MIN;
        self.picking = None;
    }

    /// Returns what the next batch is to be compressed with, over a link of this rate and with so many processors, if they
    /// are limited.
    pub(super) fn coder(
        &mut self,
        rate: (Option<Rate>, Option<f64>),
        other: Option<&CodecPick<BatchCodec>>,
        wanted: Wanted,
    ) -> Coder {
        if !wanted.picks {
            self.picking = None;
            return wanted.coder;
        }
        let picking = self.picking.get_or_insert_with(|| Box::new(Picking::new(rate, other)));
        picking.codec().coder(wanted.coder, wanted.memory_log)
    }

    /// Returns the codec of its batches if they are compressed outside of it.
    pub(super) fn outside(&self) -> Option<CodecSpec> {
        self.picking.as_deref().and_then(|it| it.codec().outside())
    }

    /// Ends the generation if it can't be what it should be from now on.
    pub(super) fn review(&mut self, now: Instant, coder: Coder, is_alone: bool) {
        let is_far = |encoder: &ContextEncoder| {
            let distance = encoder.offset().saturating_sub(self.present.base.offset);
            self.present.is_alone() && distance > DISTANCE_MAX
        };
        let is_far = self.encoder.as_deref().is_some_and(is_far);
        if self.ended.is_some() {
            return;
        }
        if self.present.is_alone() != is_alone {
            self.ended = Some(Reason::Switched);
        } else if self.present.coder != coder && self.picking.is_none() {
            self.ended = Some(Reason::Reconfigured);
        } else if self.present.coder != coder && (!is_alone || self.is_present_known()) {
            self.ended = Some(Reason::Picked);
        } else if is_far {
            self.end(now, Reason::Unsendable);
        }
    }

    /// A generation begins.
    pub(super) fn begin(
        &mut self,
        how: (Coder, Kind),
        ring: Base,
        dictionary: Option<&Arc<ContextDictionary>>,
    ) {
        self.ended = None;
        // One of which nothing was written has left no trace: its number is free.
        self.present = Generation::new(self.written_generation + 1, how, ring, dictionary);
    }

    /// The peer has what the generation begins from, as far as is known.
    pub(super) fn confirm_base(&mut self) {
        // A dictionary is in the peer's ring only once it has begun from it.
        let is_in_ring = self.present.dictionary.is_none();
        self.confirmed_offset = if is_in_ring { self.present.base.offset } else { 0 };
    }

    /// Takes the offset that the peer reports of the present generation.
    pub(super) fn confirm_offset(&mut self, report: &ContextReport) {
        if report.ring_offset >= self.present.base.offset && !report.is_empty {
            // Where nothing waits for what is missing, a report may be of before another came.
            let least = if self.present.is_alone() { self.confirmed_offset } else { 0 };
            (self.confirmed_offset, self.base_failed) = (report.ring_offset.max(least), false);
        } else if report.is_empty && report.ring_offset >= self.present.base.offset.max(1) {
            // It had begun there, and was given up for others: what it began from is as good as before.
            self.base_failed = false;
        } else if report.is_lost && self.ended.is_none() {
            // It did not begin there. That its beginning was lost is likelier than that the peer does
            // not have what it once had; but not twice.
            if std::mem::replace(&mut self.base_failed, true) {
                (self.confirmed_offset, self.base_failed) = (0, false);
                self.dictionary_failed |= self.present.dictionary.is_some();
            }
        }
        if report.is_lost && report.is_empty {
            // How far it had come says what it lost, and not what it has.
            self.confirmed_offset = 0;
        }
    }

    /// Returns true if there is a record of the present generation in this datagram. Those of one that
    /// has ended are missed in vain.
    pub(super) fn needs(&self, datagram: u64) -> bool {
        let from = self.in_flight.partition_point(|it| it.0 < datagram);
        let records = self.in_flight.range(from..).take_while(|it| it.0 == datagram);
        // Nothing may have been written yet of one that goes on with the ring as it is.
        let goes_on = self.written_generation == self.present.number || self.present.keeps();
        goes_on && records.into_iter().any(|it| it.1 >= self.first_number)
    }

    pub(super) fn number(&mut self, now: Instant, context: u8) -> Position {
        let number = self.next_number;
        self.next_number += 1;
        self.written_at = now;
        let is_confirmed = self.writes_alone && self.reported_generation == self.written_generation;
        Position { context, generation: self.written_generation as u8, number, is_confirmed }
    }
}
