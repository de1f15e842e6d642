//! The contexts of what comes from a peer (`docs/wire.md`, contexts, receiver).
//!
//! Records are opened in the order of their numbers. What comes too early is held, within bounds of
//! memory and time, until what is missing before it has come or was given up. If a batch was given up,
//! its generation can't go on: what is left of it is dropped, but for packets that are not compressed,
//! until a newer generation begins.
//!
//! Batches that stand alone have no turn: each is opened as it comes. What is missing of them is only a
//! hole in what later generations can refer to.

mod held;
mod pace;
mod receiver;

use std::collections::BTreeMap;
use std::sync::Arc;

use dwell_base::time::{MILLI_NS, SECOND_NS};
use dwell_base::{Instant, Rate};
use dwell_codec::{CodecId, ContextDictionary, ModelSpec};
use dwell_report::status::RxContexts;
use dwell_wire::columnar::Restored;
use dwell_wire::{ContextBody, ContextRecord, ContextReport, reconstruct_number};

use super::Limits;
use super::counts::IncomingCounts;
use super::decode_job::{Cancel, DecodeJob};
use super::decoding::Decoding;
use crate::node::allowance::Allowance;
use crate::node::memory::LeastRecent;
pub(crate) use held::Held;
use pace::Pace;
pub(crate) use receiver::Opened;
use receiver::{Here, Receiver};

/// Bytes of records of all contexts of a peer that wait for one that is missing: so many in any case, and what comes
/// while it is asked for a few times, up to so many, if the node has memory for it.
const HELD_BYTES_MIN: usize = 4 << 20;
const HELD_BYTES_MAX: usize = 32 << 20;
/// That takes so many round trips, and so much longer.
const HELD_ROUND_TRIPS: u64 = 3;
const HELD_MARGIN_NS: u64 = 200 * MILLI_NS;
/// The number of them: no more have numbers that can be distinguished.
const HELD_MAX: usize = 1 << 14;
/// Batches outside of contexts that came less than this ago have others behind them.
const OUTSIDE_NS: u64 = 2 * SECOND_NS;
/// The cost of each beside its bytes.
const HELD_OVERHEAD_BYTES: usize = 128;
/// A missing record is waited for so many round trips and so much longer, ...
const WAIT_ROUND_TRIPS: u64 = 8;
const WAIT_MARGIN_NS: u64 = 200 * MILLI_NS;
/// ... and never longer than this.
const WAIT_NS_MAX: u64 = 2 * SECOND_NS;
/// A record that is not asked for any more may yet be late: bounds of the time for that.
const LATE_NS_MIN: u64 = 5 * MILLI_NS;
const LATE_NS_MAX: u64 = 50 * MILLI_NS;
/// The round trip assumed until one is measured.
const RTT_NS_DEFAULT: u64 = 400 * MILLI_NS;
/// Reports on a context that moves on are at least so far apart.
const REPORT_NS_MIN: u64 = 50 * MILLI_NS;
/// Generations that can't go on, and those that have begun and stand alone, are reported at once, but of all
/// contexts together only so often: else a peer that lets one begin or end with each of its datagrams would
/// have as many in answer, by a link that may be much thinner than its own. One that begins another
/// generation takes longer for it than this.
const AT_ONCE_NS_MIN: u64 = 20 * MILLI_NS;

/// The bytes that are copied in the time in which zstd decodes one, at least.
const COPIED_AS_FAST: u64 = 8;
/// The bytes that zstd decodes in the time in which a model decodes one. A model may take much longer for what
/// it can't predict: the time that passes counts, too.
const MODEL_AS_SLOW: u64 = 64;
/// The same for a model that mixes contexts.
const MIX_AS_SLOW: u64 = 256;
/// The bytes that zstd decodes in the time that a model takes to begin in new memory: half a millisecond, most of which is
/// the kernel's. `examples/model_begin` of dwell-codec measures .3 to .7.
const NEW_MEMORY_BYTES: u64 = 128 << 10;
/// What takes zstd's time for so many bytes, or less, is decoded at once: with a model of ppm, half a packet.
const HERE_BYTES_MAX: u64 = 600 * MODEL_AS_SLOW;
/// The time for each of these bytes, in nanoseconds.
const NS_OF_BYTE: u64 = 4;
/// Of a peer of which more bytes than this wait for a thread that decodes, nothing more is read.
const PARKED_BYTES_MAX: usize = 256 << 10;

/// A report takes so many bytes of the link, and those of all contexts that nobody asked for one part in so many of it.
const REPORT_LINK_BYTES: u64 = 96;
const REPORT_LINK_PART: u64 = 8;

/// Returns how many bytes of a model of ppm a byte of this one counts as, by what a receiver says that it has time for. Each
/// byte of a model that mixes takes as long as any other, and about eight times as long as is assumed of ppm.
pub(super) fn model_bytes(codec: Option<CodecId>) -> usize {
    if codec == Some(CodecId::Mix) { 8 } else { 1 }
}

/// Returns how many bytes zstd decodes in the time in which a model of this kind decodes one.
fn as_slow(model: Option<CodecId>) -> u64 {
    if model == Some(CodecId::Mix) { MIX_AS_SLOW } else { MODEL_AS_SLOW }
}

/// The times that are waited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GapWaits {
    /// For a record that may come again.
    pub(crate) missing_ns: u64,
    /// For one that can only be late.
    pub(crate) late_ns: u64,
    /// Between reports.
    pub(crate) report_ns: u64,
}

impl GapWaits {
    /// Over a path with this round trip, if it is known.
    pub(crate) fn of(rtt_ns: Option<u64>) -> Self {
        let rtt = rtt_ns.unwrap_or(RTT_NS_DEFAULT);
        Self {
            missing_ns: (WAIT_ROUND_TRIPS * rtt + WAIT_MARGIN_NS).min(WAIT_NS_MAX),
            late_ns: (rtt / 4).clamp(LATE_NS_MIN, LATE_NS_MAX),
            report_ns: (rtt / 2).clamp(REPORT_NS_MIN, SECOND_NS),
        }
    }

    /// The same where reports of so many contexts go over a link of this rate, if it is known: what the peer sends may come by
    /// a faster one, and each batch would have a report.
    pub(crate) fn over(self, rate: Option<Rate>, contexts: usize) -> Self {
        let bytes = REPORT_LINK_BYTES * REPORT_LINK_PART * contexts as u64;
        let affordable_ns = rate.map_or(0, |rate| rate.transmission_ns(bytes).min(SECOND_NS));
        Self { report_ns: self.report_ns.max(affordable_ns), ..self }
    }
}

/// The next thing to do with a record that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It is its turn: open it, see [`Incoming::open`].
    Now,
    /// It is a packet that nobody waits for any more: deliver it.
    Late,
    /// Nothing: it is held, and shares what its datagram may hold.
    Held,
    /// Open what is ready, and ask again: it finds no room.
    Full,
    /// Nothing.
    Dropped,
}

/// The datagram that a record came in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// The number of the datagram that it was first sent in, in the present session; zero if it is
    /// of another.
    pub(crate) datagram: u64,
    /// It is of the present session.
    pub(crate) is_present: bool,
}

/// The contexts of what comes from one peer.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// The limits that were offered to the peer.
    limits: Limits,
    /// The dictionary that it was offered to begin from.
    dictionary: Option<Arc<ContextDictionary>>,
    contexts: BTreeMap<u8, Box<Receiver>>,
    held_bytes: usize,
    held: usize,
    pace: Pace,
    rtt_ns: Option<u64>,
    /// The node has no memory for more.
    pub(in crate::node) is_short_of_memory: bool,
    /// The bytes of these that wait for a thread.
    parked_bytes: usize,
    /// Decoders that went to a thread so far.
    departures: u64,
    /// Of the jobs of the present contexts.
    cancel: Cancel,
    decoding: Decoding,
    /// Records of the session before are of the same contexts.
    accepts_previous: bool,
    /// There were records in this session.
    is_active: bool,
    /// When a batch last came that is in no context.
    outside_at: Option<Instant>,
    /// When the latest datagram came.
    came_at: Instant,
    /// What is to be reported at once may be from now on.
    may_report_at_once_at: Instant,
    pub(super) counts: IncomingCounts,
}

impl Incoming {
    /// Nothing has come yet, of at most so much.
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            dictionary: None,
            contexts: BTreeMap::new(),
            held_bytes: 0,
            held: 0,
            pace: Pace::default(),
            rtt_ns: None,
            is_short_of_memory: false,
            parked_bytes: 0,
            departures: 0,
            cancel: Cancel::default(),
            decoding: Decoding::default(),
            accepts_previous: false,
            is_active: false,
            outside_at: None,
            came_at: Instant::ZERO,
            may_report_at_once_at: Instant::ZERO,
            counts: IncomingCounts::default(),
        }
    }

    /// A session began. `is_same` if both ends are what they were in the session before.
    pub(crate) fn begin_session(&mut self, limits: Limits, is_same: bool) {
        self.limits = limits;
        self.accepts_previous = is_same;
        self.is_active &= is_same;
        if !is_same {
            self.contexts.clear();
            self.cancel = Cancel::default();
            (self.held_bytes, self.held, self.parked_bytes) = (0, 0, 0);
        }
        // What was missing of the session before nobody asks for any more.
        for receiver in self.contexts.values_mut() {
            receiver.begin_session();
        }
    }

    /// Takes the dictionary that this end has named in this session.
    pub(crate) fn share(&mut self, dictionary: Option<Arc<ContextDictionary>>) {
        self.dictionary = dictionary;
    }

    /// True if the peer has sent records of contexts in this session.
    pub(crate) fn is_active(&self) -> bool {
        self.is_active
    }

    /// A datagram came, with records of contexts or without.
    pub(crate) fn came(&mut self, now: Instant) {
        self.came_at = now;
    }

    /// The path has this round trip.
    pub(in crate::node) fn set_path(&mut self, rtt_ns: Option<u64>) {
        self.rtt_ns = rtt_ns;
    }

    /// Returns true if a record of this cost may wait.
    fn held_bytes_max(&self) -> usize {
        let for_ns = self.rtt_ns.unwrap_or(0).saturating_mul(HELD_ROUND_TRIPS) + HELD_MARGIN_NS;
        let bytes_max = if self.is_short_of_memory { HELD_BYTES_MIN } else { HELD_BYTES_MAX };
        self.pace.bytes_in_ns(for_ns).clamp(HELD_BYTES_MIN, bytes_max)
    }

    fn has_room(&self, cost: usize) -> bool {
        self.held_bytes + cost <= self.held_bytes_max() && self.held < HELD_MAX
    }

    /// A record came. It is to be opened at once if that is the answer.
    pub(crate) fn take(
        &mut self,
        now: Instant,
        record: &ContextRecord<'_>,
        origin: Origin,
        allowance: &mut Allowance,
    ) -> Taken {
        let is_foreign = !origin.is_present && !self.accepts_previous;
        if record.context >= self.limits.contexts || is_foreign {
            self.counts.refused += 1;
            return Taken::Dropped;
        }
        self.is_active |= origin.is_present;
        self.pace.came(now, record.data().len() + HELD_OVERHEAD_BYTES);
        let ring_log = self.limits.ring_log;
        let new = || Box::new(Receiver::new(ring_log));
        let receiver = self.contexts.entry(record.context).or_insert_with(new);
        if receiver.is_busy() {
            return self.park(now, record, origin, allowance);
        }
        self.place(now, record, origin, allowance)
    }

    /// Keeps a record of a context that is busy.
    fn park(
        &mut self,
        now: Instant,
        record: &ContextRecord<'_>,
        origin: Origin,
        allowance: &mut Allowance,
    ) -> Taken {
        let cost = record.data().len() + HELD_OVERHEAD_BYTES;
        let has_room = self.has_room(cost);
        let Some(receiver) = self.contexts.get_mut(&record.context).filter(|_| has_room) else {
            return Taken::Full;
        };
        self.held_bytes += cost;
        self.parked_bytes += cost;
        self.held += 1;
        receiver.park(Held::new(now, record, origin, allowance.share()));
        Taken::Held
    }

    /// Takes a record that was parked and need not be any longer. It is to be [placed](Self::place) at once.
    pub(crate) fn unpark(&mut self) -> Option<(u8, Held)> {
        if self.parked_bytes == 0 {
            return None;
        }
        let (&context, receiver) = self.contexts.iter_mut().find(|(_, it)| it.may_unpark())?;
        let held = receiver.unpark()?;
        let cost = held.len() + HELD_OVERHEAD_BYTES;
        self.held -= 1;
        self.held_bytes -= cost;
        self.parked_bytes -= cost;
        Some((context, held))
    }

    /// Finds what is to be done next with a record of a context that is not busy.
    pub(crate) fn place(
        &mut self,
        now: Instant,
        record: &ContextRecord<'_>,
        origin: Origin,
        allowance: &mut Allowance,
    ) -> Taken {
        let Some(receiver) = self.contexts.get_mut(&record.context) else { return Taken::Dropped };
        let number = reconstruct_number(receiver.next_number(), record.number);
        if record.is_alone() {
            receiver.came_alone(now, number, origin.datagram);
            return Taken::Now;
        }
        receiver.ran_at = now;
        if receiver.begins_again(record) {
            receiver.next = number;
        }
        if number < receiver.next {
            return match record.body {
                ContextBody::Raw(_) => {
                    self.counts.late_raw += 1;
                    Taken::Late
                }
                ContextBody::Batch { .. } => {
                    self.counts.late += 1;
                    receiver.hears_again(record.generation);
                    Taken::Dropped
                }
            };
        }
        if receiver.held.contains_key(&number) {
            self.counts.late += 1;
            return Taken::Dropped;
        }
        if number == receiver.next {
            return Taken::Now;
        }
        self.hold((now, number), record, origin, allowance)
    }

    fn hold(
        &mut self,
        (now, number): (Instant, u64),
        record: &ContextRecord<'_>,
        origin: Origin,
        allowance: &mut Allowance,
    ) -> Taken {
        let cost = record.data().len() + HELD_OVERHEAD_BYTES;
        if !self.has_room(cost) {
            self.make_room(cost);
            return Taken::Full;
        }
        let Some(receiver) = self.contexts.get_mut(&record.context) else { return Taken::Dropped };
        if receiver.held.is_empty() {
            self.counts.gaps += 1;
        }
        self.held_bytes += cost;
        self.held += 1;
        receiver.held.insert(number, Held::new(now, record, origin, allowance.share()));
        Taken::Held
    }

    /// Notes that a record found no room twice.
    pub(crate) fn crowded_out(&mut self) {
        self.counts.crowded_out += 1;
    }

    /// There is no room: the contexts that hold most must not wait any longer, one after the other until there will be enough,
    /// as there may be less room than before. The others go on.
    fn make_room(&mut self, cost: usize) {
        let (mut bytes, mut count) = (self.held_bytes + cost, self.held + 1);
        let bytes_max = self.held_bytes_max();
        // What a busy one misses may be with what is parked.
        let waiting = self.contexts.values_mut().filter(|it| !it.is_busy());
        let waiting = waiting.filter(|it| it.first_held().is_some());
        let held_bytes = |it: &Receiver| it.held.values().map(Held::len).sum::<usize>();
        let mut waiting: Vec<_> = waiting.map(|it| (held_bytes(it), it)).collect();
        waiting.sort_by_key(|&(held_bytes, _)| std::cmp::Reverse(held_bytes));
        for (held_bytes, receiver) in waiting {
            let held = receiver.held.len();
            receiver.give_up(&mut self.counts);
            bytes -= (held_bytes + held * HELD_OVERHEAD_BYTES).min(bytes);
            count -= held.min(count);
            if bytes <= bytes_max && count <= HELD_MAX {
                break;
            }
        }
    }

    /// Returns the job of a record whose turn it is, if that takes so long that a thread should do it; else it is to
    /// be [opened](Self::open).
    pub(crate) fn depart(&mut self, record: &ContextRecord<'_>) -> Option<Box<DecodeJob>> {
        let bytes = self.bytes_worth(record);
        if bytes <= HERE_BYTES_MAX && !self.may_learn_again(record) {
            return None;
        }
        let here = Here { dictionary: self.dictionary.as_ref(), limits: self.limits };
        let receiver = self.contexts.get_mut(&record.context)?;
        let job = receiver.depart(record, here, self.departures + 1)?;
        let mut job = job.cancelled_by(&self.cancel);
        self.departures += 1;
        job.cost_ns = bytes * NS_OF_BYTE;
        Some(job)
    }

    /// A job comes back. Returns true if its batch is to be delivered.
    pub(crate) fn returned(&mut self, job: &mut DecodeJob) -> bool {
        let (begins, bytes, took_ns) = (job.begins.is_some(), job.out.len(), job.took_ns);
        let codec = job.decoder.model_codec();
        let receiver = self.contexts.get_mut(&job.context);
        let is_good = receiver.is_some_and(|receiver| receiver.returned(job, &mut self.counts));
        // What was given up, or is damaged, says nothing of the time that it takes.
        // Nor does what is short, which is with a thread only where a model learns again.
        if is_good && !begins && bytes as u64 * as_slow(codec) > HERE_BYTES_MAX {
            self.decoding.took(bytes * model_bytes(codec), took_ns);
        }
        is_good
    }

    /// Returns the bytes that models of ppm restore in a second of a processor, or would by what others take.
    pub(crate) fn model_speed(&self) -> f64 {
        self.decoding.speed()
    }

    /// Returns true if a context has a model.
    pub(crate) fn has_models(&self) -> bool {
        self.contexts.values().any(|it| it.has_model())
    }

    /// Returns the time for which the oldest record has waited for a thread, in nanoseconds.
    pub(crate) fn waits_for_threads_ns(&self, now: Instant) -> u64 {
        if self.parked_bytes == 0 {
            return 0;
        }
        let oldest = self.contexts.values().filter_map(|it| it.parked_since()).min();
        oldest.map_or(0, |since| now.since_ns(since))
    }

    /// Returns true if so much waits for threads that no more should be read from the peer.
    pub(crate) fn is_clogged(&self) -> bool {
        self.parked_bytes > PARKED_BYTES_MAX
    }

    /// Opens a record whose turn it is, into `out`, which has room for any batch.
    pub(crate) fn open(&mut self, record: &ContextRecord<'_>, out: &mut [u8]) -> Opened {
        let Some(receiver) = self.contexts.get_mut(&record.context) else { return Opened::Nothing };
        let here = Here { dictionary: self.dictionary.as_ref(), limits: self.limits };
        receiver.open(record, here, out, &mut self.counts)
    }

    /// Restores the packets of a batch of the context that was opened last, whose headers are predicted.
    pub(crate) fn restore_headers(
        &mut self,
        context: u8,
        batch: &[u8],
        out: &mut [u8],
    ) -> Option<Restored> {
        let restored = self.contexts.get_mut(&context)?.restore_headers(batch, out)?;
        // What was decoded was counted; packets are what counts.
        let decoded = self.counts.bytes_out.saturating_sub(batch.len() as u64);
        self.counts.bytes_out = decoded + restored.bytes() as u64;
        Some(restored)
    }

    /// Ends a generation whose content makes no sense: the two ends don't have the same ring.
    pub(crate) fn is_garbled(&mut self, context: u8) {
        if let Some(receiver) = self.contexts.get_mut(&context) {
            self.counts.damaged += 1;
            receiver.is_garbled(&mut self.counts);
        }
    }

    /// Returns the bytes that zstd decodes in the time that opening this record takes.
    pub(crate) fn bytes_worth(&self, record: &ContextRecord<'_>) -> u64 {
        let ContextBody::Batch { original_len, start, .. } = record.body else { return 0 };
        let receiver = self.contexts.get(&record.context);
        let start = start.filter(|_| receiver.is_none_or(|it| it.begins(record)));
        let base_len = start.map_or(0, |start| u64::from(start.base.len()));
        let model = match start {
            Some(start) => {
                [CodecId::Ppm, CodecId::Mix].into_iter().find(|&it| it as u8 == start.codec)
            }
            None => receiver.and_then(|it| it.model_codec()),
        };
        let spec = start.and_then(|start| ModelSpec::from_wire(start.codec, start.window_log));
        let is_new = |spec| receiver.is_none_or(|it| !it.has_memory_for(spec));
        let is_new = spec.and_then(Result::ok).is_some_and(is_new);
        let begins = if is_new { NEW_MEMORY_BYTES } else { 0 };
        let len = u64::from(original_len);
        // zstd's base is copied, once or twice; a model learns it as it learns what it decodes.
        // A peer may name any length.
        match model {
            Some(_) => (base_len + len) * as_slow(model) + begins,
            None => base_len / COPIED_AS_FAST + len,
        }
    }

    /// Returns true if the model of this record's context may become full with it.
    fn may_learn_again(&self, record: &ContextRecord<'_>) -> bool {
        let ContextBody::Batch { original_len, start, .. } = record.body else { return false };
        let receiver = self.contexts.get(&record.context);
        receiver.is_some_and(|it| {
            let goes_on = start.is_none() || !it.begins(record);
            goes_on && it.may_learn_again(usize::from(original_len))
        })
    }

    /// Returns true if records wait for their turn here, so that it need not be kept by datagrams.
    pub(crate) fn keeps_order(&self) -> bool {
        self.is_active && self.contexts.values().any(|it| it.keeps_order(self.came_at))
    }

    /// A batch came that is in no context: datagrams have to keep such in order.
    pub(crate) fn came_outside(&mut self) {
        self.outside_at = Some(self.came_at);
    }

    /// The same as [`Self::keeps_order`], if hardly any batches come beside those of contexts.
    pub(crate) fn keeps_all_in_order(&self) -> bool {
        let are_others = |at| self.came_at.since_ns(at) < OUTSIDE_NS;
        self.keeps_order() && !self.outside_at.is_some_and(are_others)
    }

    /// True if a record that was held can be opened now.
    pub(crate) fn is_ready(&self) -> bool {
        self.held > 0 && self.contexts.values().any(|it| it.is_ready() || it.may_unpark())
    }

    /// The next record that was held and whose turn it is; it is to be opened at once.
    pub(crate) fn ready(&mut self, now: Instant) -> Option<(u8, Held)> {
        if self.held == 0 {
            return None;
        }
        let (&context, receiver) = self.contexts.iter_mut().find(|(_, it)| it.is_ready())?;
        let held = receiver.take_ready(&mut self.counts)?;
        self.held -= 1;
        self.held_bytes -= held.len() + HELD_OVERHEAD_BYTES;
        self.counts.waited(now.since_ns(held.came_at));
        Some((context, held))
    }

    /// Gives up what is waited for in vain: for too long, or although no datagram is missing that
    /// could hold it. `is_missing` says so of datagrams up to a number.
    pub(crate) fn expire(
        &mut self,
        now: Instant,
        waits: GapWaits,
        is_missing: impl Fn(u64) -> bool,
    ) {
        for receiver in self.contexts.values_mut() {
            receiver.expire_hole(now, waits, &is_missing, &mut self.counts);
            receiver.forget_running(now);
            receiver.forget_idle(now);
            let Some(first) = receiver.first_held().filter(|_| !receiver.is_busy()) else {
                continue;
            };
            let waited_ns = now.since_ns(first.came_at);
            let is_hopeless = waited_ns >= waits.late_ns && !is_missing(first.datagram);
            if is_hopeless || waited_ns >= waits.missing_ns {
                receiver.give_up(&mut self.counts);
            }
        }
    }

    /// Returns the number of contexts.
    pub(crate) fn contexts(&self) -> usize {
        self.contexts.len()
    }

    /// Returns the time at which [`Self::expire`] or [`Self::reports`] have something to do.
    pub(crate) fn deadline(&self, waits: GapWaits, is_missing: impl Fn(u64) -> bool) -> Instant {
        let of = |receiver: &Receiver| {
            let report_at = receiver.report_at(waits.report_ns, self.may_report_at_once_at);
            let report_at = report_at.min(receiver.hole_until(waits, &is_missing));
            let Some(first) = receiver.first_held().filter(|_| !receiver.is_busy()) else {
                return report_at;
            };
            let is_waited_for = is_missing(first.datagram);
            let wait_ns = if is_waited_for { waits.missing_ns } else { waits.late_ns };
            report_at.min(first.came_at + wait_ns)
        };
        let all = self.contexts.values().map(|receiver| of(receiver));
        all.min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// The reports that are due.
    pub(crate) fn reports(&mut self, now: Instant, report_ns: u64, due: &mut Vec<ContextReport>) {
        let (at_once_at, mut at_once) = (self.may_report_at_once_at, false);
        for (&context, receiver) in &mut self.contexts {
            if now >= receiver.report_at(report_ns, at_once_at) {
                at_once |= receiver.must_report || receiver.is_lost();
                due.push(receiver.report(now, context));
            }
        }
        if at_once {
            self.may_report_at_once_at = now + AT_ONCE_NS_MIN;
        }
    }

    /// Returns the memory of all decoders, and of records that wait, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.contexts.values().map(|it| it.memory_bytes()).sum::<usize>() + self.held_bytes
    }

    /// Returns the one that was used least recently, of those that can be given up now.
    pub(super) fn least_recent(&self) -> Option<LeastRecent> {
        let here = self.contexts.iter().filter(|(_, it)| it.can_be_forgotten());
        let (&context, oldest) = here.min_by_key(|(_, it)| it.used_at())?;
        Some(LeastRecent { used_at: oldest.used_at(), context })
    }

    /// Returns the number of those that can be given up now.
    pub(super) fn evictable(&self) -> usize {
        self.contexts.values().filter(|it| it.can_be_forgotten()).count()
    }

    /// Gives it up: the peer is notified that it can't go on.
    pub(super) fn evict(&mut self, context: u8) {
        if let Some(receiver) = self.contexts.get_mut(&context) {
            receiver.evict(&mut self.counts);
        }
    }

    pub(super) fn status(&self) -> RxContexts {
        if self.contexts.is_empty() && self.counts.is_nothing() {
            return RxContexts::default();
        }
        let bytes = self.memory_bytes();
        self.counts.status(self.contexts.len(), bytes, self.held_bytes)
    }

    /// Bytes and number of what is held.
    #[cfg(test)]
    pub(crate) fn held(&self) -> (usize, usize) {
        (self.held_bytes, self.held)
    }
}
