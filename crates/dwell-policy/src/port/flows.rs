//! A queue for each flow, and compression behind them: the store of `auto`.
//!
//! Packets wait in a queue for each flow ([`lanes`], RFC 8290): flows that send little go first, and
//! a flow whose packets keep waiting for too long is slowed down ([`codel`], RFC 8289). What was chosen
//! to be sent is in order behind them, and is as little as keeps the link busy, the batch under way and what the link
//! sends meanwhile: what is there neither makes way for others nor grows any more.
//!
//! * A batch is chosen when what was compressed before is less than a frame, or than the link sends while
//!   a batch is compressed ([`Select::Slack`]): as
//!   much of one group as the link sends in a given time, if it arrives sooner for being compressed
//!   by Eq. (2) of Shimamura et al.; if it does only in smaller batches, a smaller one.
//! * All else goes raw, and is chosen only when the link has room for it: what is not to be
//!   compressed, and what can't be in time. If enough waits, the batch is made further back, and what is
//!   before it goes raw meanwhile.
//! * A packet that comes alone to an idle link, or beside a backlog of others, of a flow that sends
//!   little, goes at once: it passes batches that hold nothing of its flow.
//!
//! With [`Objective::Bytes`] packets are gathered first ([`held`]): until they fill a frame, or one of
//! them may wait no longer. Then all go, and what takes longer to compress than to send is compressed
//! too, as long as it may wait for that.
//!
//! Several batches are compressed at the same time if the port may have several jobs: one of a group at a time. What is
//! chosen meanwhile is of other groups, and of flows that have nothing in those batches, so that whatever comes out of
//! the compressor first may go first.
//!
//! Order is kept within each flow. Batches of a group leave in the order in which they were compressed.

mod batch;
mod bulk;
mod codel;
mod frame;
mod held;
mod lanes;
#[cfg(test)]
mod tests;
mod unit;

use std::collections::VecDeque;

use dwell_base::Instant;
use dwell_base::time::MILLI_NS;

use super::common::Common;
use crate::account::{Bypass, Count, DropReason};
use crate::action::{Action, FramePacket, JobId};
use crate::event::{LostBatch, Outcome};
use crate::packet::{ClassKey, Packet, PacketId};
use crate::scheme::{Gather, Queue, Select};
use batch::learn;
use bulk::Bulk;
use codel::Grant;
use held::Held;
use lanes::{First, Lanes};
use unit::{Entry, Shrunk, Unit, unit_bytes};

/// A packet of less than this, alone, is not worth a batch.
const ALONE_BYTES_MIN: u64 = 256;

/// No batch is begun for being late by more than this: what delays it so long does not do so always.
const LATE_NS_MAX: u64 = MILLI_NS;

/// How large batches become.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    bytes: u32,
    packets: usize,
    link_ns: u64,
}

/// Queues for flows, and what was chosen from them.
#[derive(Clone, Debug)]
pub(super) struct Flows {
    gather: Gather,
    lanes: Lanes,
    bulk: Bulk,
    grant: Grant,
    room: Room,
    chosen: VecDeque<Unit>,
    /// Of those, how many are being compressed.
    busy: usize,
    /// The most that may be.
    jobs_max: usize,
    /// All flows wait for those: it was looked, and nothing has changed since.
    is_blocked: bool,
    /// Bytes of what was chosen and is not being compressed, headers of units included.
    ready_bytes: u64,
    /// Packets in `chosen`, and those of them that were put back.
    chosen_packets: usize,
    returned: usize,
    /// What the port has to report next.
    next: Option<Action>,
    /// The batch that is next: the flow that it begins with, its first packet, its bytes.
    batch: Option<(u32, PacketId, u64)>,
    /// What was sent lately, and of it what was compressed.
    sent: Shrunk,
    batches: Shrunk,
    /// When the next batch is to be begun, if not yet.
    begin_at: Option<Instant>,
    /// When others pass the batches that are being compressed, if they need not wait for them and none is done before.
    passes_at: Instant,
    /// What the latest batch was expected to take.
    job_cost_ns: u64,
    /// How late batches come, beyond what they were expected to take: who compresses them has to be woken, and may
    /// have others to serve.
    late_ns: u64,
    held: Held,
    spare: Vec<Vec<Entry>>,
}

impl Flows {
    pub(super) fn new(gather: Gather) -> Self {
        Self {
            gather,
            lanes: Lanes::new(),
            bulk: Bulk::default(),
            grant: Grant::default(),
            room: Room::default(),
            chosen: VecDeque::new(),
            busy: 0,
            jobs_max: 1,
            is_blocked: false,
            ready_bytes: 0,
            chosen_packets: 0,
            returned: 0,
            next: None,
            batch: None,
            sent: Shrunk::default(),
            batches: Shrunk::default(),
            begin_at: None,
            passes_at: Instant::ZERO,
            job_cost_ns: 0,
            late_ns: 0,
            held: Held::default(),
            spare: Vec::new(),
        }
    }

    /// What is compressed together.
    pub(super) fn gather(&self) -> Gather {
        self.gather
    }

    /// The configuration changed.
    pub(super) fn recount(&mut self, common: &Common) {
        let scheme = &common.config.scheme;
        if let Queue::Flows(queues) = scheme.queue {
            self.lanes.set_quantum(queues.quantum_bytes);
            self.grant = Grant {
                target_ns: queues.target_ns,
                interval_ns: queues.interval_ns,
                floor_bytes: u64::from(common.config.frame.units_bytes_max),
            };
        }
        self.held.configure(common.config.objective);
        // What is gathered for a frame waits for its batch; and to save bytes is not urgent.
        let jobs_max = if self.held.gathers() { 1 } else { common.config.jobs_max };
        self.jobs_max = usize::from(jobs_max.max(1));
        self.is_blocked = false;
        self.room = match scheme.select {
            Select::Slack { bytes_max, packets_max, batch_ns, .. } => {
                Room { bytes: bytes_max, packets: packets_max as usize, link_ns: batch_ns }
            }
            _ => Room::default(),
        };
        let ready = self.chosen.iter().filter(|unit| !unit.is_compressing());
        self.ready_bytes = ready.map(|unit| unit_bytes(common, unit)).sum();
    }

    /// Nothing is refused: if there is no room, the flow of which the most waits loses a packet.
    pub(super) fn over_limit(&self, _: &Common, _: &Packet) -> Option<DropReason> {
        None
    }

    pub(super) fn arrive(&mut self, common: &mut Common, now: Instant, packet: &Packet) {
        let bypass = match common.fixed_bypass(packet) {
            // Together even small ones are worth it.
            Some(Bypass::TooSmall) if self.gather != Gather::Packet => None,
            Some(reason) => Some(reason),
            None => packet.looks_random.then_some(Bypass::Random),
        };
        // Who has packets waiting need not be looked for among what is being sent, nor among those that had.
        let is_known = !self.lanes.has(packet.flow)
            && (self.bulk.has(now, packet.flow, packet.bytes) || self.has_chosen(packet.flow));
        let entry = Entry {
            id: packet.id,
            bytes: packet.bytes,
            class: packet.service(),
            flow: packet.flow,
            group: packet.group,
            arrived: now,
            batch_bytes_max: packet.batch_bytes_max,
            bypass,
            looks_random: packet.looks_random,
            takes_mark: packet.takes_mark,
            compressed_before: packet.compressed,
            was_seen: false,
            may_try: None,
        };
        if self.is_blocked && self.is_free(&entry) {
            self.is_blocked = false;
        }
        let waiting_bytes = self.lanes.push(entry, is_known);
        self.bulk.note(now, packet.flow, waiting_bytes);
        self.held.arrived(now, packet.max_wait_ns);
        while let Some(reason) = self.excess(common) {
            let Some(entry) = self.lanes.pop_fattest() else { return };
            self.was_dropped(&entry);
            drop_entry(common, &entry, reason);
        }
    }

    /// Which limit is exceeded, if one is: of packets, of bytes that are held, or of the time that
    /// the link takes for them as they are going to be sent.
    fn excess(&self, common: &Common) -> Option<DropReason> {
        let limit = &common.config.limit;
        if self.lanes.packets() >= limit.packets as usize {
            return Some(DropReason::QueuePackets);
        }
        // A connection that begins sends for a round trip twice what the link carries before it hears of it. All that is no delay for
        // other flows, and who makes it stand is slowed down.
        let bytes_max = common.bytes_in_time(common.round_trip_ns());
        let is_late = self.sent.shrink(self.lanes.bytes()) > bytes_max;
        let is_one = self.lanes.packets() == 1;
        (!is_one && (self.lanes.bytes() > limit.bytes || is_late)).then_some(DropReason::QueueBytes)
    }

    /// Puts a unit before all others, if there is room.
    pub(super) fn put_back(&mut self, common: &Common, now: Instant, unit: &LostBatch<'_>) -> bool {
        let room = common.config.limit.packets as usize;
        let Some((first, followers)) = unit.packets.split_first() else { return false };
        if self.returned + unit.packets.len() > room {
            return false;
        }
        let entry = |packet: &FramePacket| Entry {
            id: packet.id,
            bytes: packet.original_bytes,
            class: ClassKey::default(),
            flow: 0,
            group: Packet::ANY_GROUP,
            arrived: now.before_ns(packet.sojourn_ns),
            batch_bytes_max: u32::MAX,
            bypass: None,
            looks_random: false,
            takes_mark: false,
            compressed_before: false,
            was_seen: true,
            may_try: None,
        };
        let unit = Unit {
            first: entry(first),
            followers: followers.iter().map(entry).collect(),
            bytes: unit.bytes,
            job: None,
            is_compressed: true,
            bypass: None,
            returned: true,
        };
        self.returned += 1 + unit.followers.len();
        self.chosen_packets += 1 + unit.followers.len();
        self.ready_bytes += unit_bytes(common, &unit);
        self.chosen.push_front(unit);
        true
    }

    /// A batch came out of the compressor.
    pub(super) fn compressed(
        &mut self,
        common: &mut Common,
        (now, job): (Instant, JobId),
        outcome: Outcome,
        took_ns: u64,
    ) {
        let is_it = |unit: &Unit| unit.job.is_some_and(|it| it.id == job);
        let Some(at) = self.chosen.iter().position(is_it) else { return };
        let unit = &mut self.chosen[at];
        if let Some(job) = unit.job.take() {
            let late_ns = now.since_ns(job.expected_at);
            self.late_ns = late_ns.max(self.late_ns - self.late_ns / 4).min(LATE_NS_MAX);
            self.busy -= 1;
            self.is_blocked = false;
        }
        let (packets, bytes) = (1 + unit.followers.len() as u32, unit.original_bytes());
        let to_bytes = common.book_compress(outcome, (packets, bytes), took_ns);
        if outcome.is_telling() {
            learn(common, unit, (bytes, to_bytes.unwrap_or(bytes)), took_ns);
        }
        if let Some(to_bytes) = to_bytes {
            (unit.bytes, unit.is_compressed) = (to_bytes, true);
            self.ready_bytes += unit_bytes(common, &self.chosen[at]);
            return;
        }
        // They stay what they were.
        let bypass = (outcome == Outcome::Declined).then_some(Bypass::NoTime);
        let mut followers = std::mem::take(&mut unit.followers);
        (unit.bytes, unit.bypass) = (unit.first.bytes, bypass);
        self.ready_bytes += unit_bytes(common, unit);
        for (behind, entry) in (at + 1..).zip(followers.drain(..)) {
            let mut unit = Unit::raw(entry, self.spare.pop().unwrap_or_default());
            unit.bypass = bypass;
            self.ready_bytes += unit_bytes(common, &unit);
            self.chosen.insert(behind, unit);
        }
        self.chosen[at].followers = followers;
    }

    /// What is being compressed.
    fn compressing(&self) -> impl Iterator<Item = &Unit> {
        // Nothing else need be looked for among what was chosen.
        self.chosen.iter().rev().filter(|unit| unit.is_compressing()).take(self.busy)
    }

    /// True if one more batch may be compressed at the same time.
    fn has_slot(&self) -> bool {
        self.busy < self.jobs_max
    }

    /// True if a packet need not wait for anything that is being compressed.
    fn is_free(&self, entry: &Entry) -> bool {
        self.busy == 0 || !self.compressing().any(|unit| unit.is_before(entry))
    }

    /// The flow whose turn it is, of those that need not wait for what is being compressed; with `skips_new`, of those
    /// that have waited before.
    fn turn(&mut self, skips_new: bool) -> Option<u32> {
        let at = self.lanes.next(skips_new)?;
        if self.busy == 0 || self.lanes.peek(at).is_some_and(|first| self.is_free(first)) {
            return Some(at);
        }
        if self.is_blocked {
            return None;
        }
        let found = self.next_free(skips_new, |_| true);
        self.is_blocked = found.is_none() && (!skips_new || self.beside().is_none());
        found
    }

    /// The same of those of which `suits` is true of the first packet.
    fn next_free(&mut self, skips_new: bool, suits: impl Fn(&Entry) -> bool) -> Option<u32> {
        let Self { lanes, chosen, busy, .. } = self;
        let compressing = || chosen.iter().rev().filter(|unit| unit.is_compressing()).take(*busy);
        let is_free = |entry: &Entry| !compressing().any(|unit| unit.is_before(entry));
        lanes.next_of(skips_new, |entry| suits(entry) && is_free(entry))
    }

    /// Another packet is the first of its flow, perhaps of another group.
    fn was_dropped(&mut self, entry: &Entry) {
        let first = self.lanes.first_of(entry.flow);
        if self.is_blocked && first.is_some_and(|first| self.is_free(first)) {
            self.is_blocked = false;
        }
    }

    /// The bytes that wait of flows that need not wait for what is being compressed.
    fn free_bytes(&self) -> u64 {
        match self.busy {
            0 => self.lanes.bytes(),
            _ => self.lanes.bytes_where(|entry| self.is_free(entry)),
        }
    }

    /// What the batches that are being compressed will take of the link, as those before them.
    fn coming_bytes(&self) -> u64 {
        let bytes = self.compressing().map(|unit| u64::from(unit.original_bytes())).sum();
        self.batches.shrink(bytes)
    }

    /// The most batches that are compressed at the same time.
    pub(super) fn jobs_max(&self) -> usize {
        self.jobs_max
    }

    pub(super) fn poll(&mut self, common: &mut Common, now: Instant) -> Option<Action> {
        loop {
            if let Some(report) = common.next_drop() {
                return Some(report);
            }
            if let Some(action) = self.next.take() {
                return Some(action);
            }
            if self.is_held(common, now) {
                self.begin_at = None; // nor is a batch begun until then
                return None;
            }
            // The link first: what it takes now waits no more.
            let has_begun =
                (common.link_idle && self.fill_frame(common, now)) || self.begin(common, now);
            if !has_begun && common.dropped.is_empty() && common.marked.is_empty() {
                return None;
            }
        }
    }

    /// True if what waits is to wait for more.
    fn is_held(&mut self, common: &Common, now: Instant) -> bool {
        if !self.held.gathers() {
            return false;
        }
        if self.lanes.packets() == 0 {
            self.held.emptied();
            return false;
        }
        let frame_bytes = u64::from(common.config.frame.units_bytes_max);
        let is_full = self.units_bytes() >= frame_bytes.max(1);
        // What was chosen goes, and others fill its frame.
        self.chosen.is_empty() && self.held.holds(now, is_full)
    }

    /// The first packet of a flow that has not waited for too long.
    fn first(&mut self, common: &mut Common, now: Instant, at: u32) -> Option<Entry> {
        let frame = &common.config.frame;
        let frame_bytes = u64::from(frame.frame_bytes) + u64::from(frame.units_bytes_max);
        let frame_ns = common.config.rate.map_or(0, |rate| rate.transmission_ns(frame_bytes));
        let least_ns = (frame_ns + frame_ns / 2).max(common.link.granted_ns);
        let grant = self.grant.over(common.round_trip_ns());
        let grant = Grant { target_ns: grant.target_ns.max(least_ns), ..grant };
        loop {
            match self.lanes.first(at, now, &grant)? {
                First::Waiting(entry) => return Some(entry),
                First::Dropped(entry) => {
                    self.was_dropped(&entry);
                    drop_entry(common, &entry, DropReason::Delay);
                }
                First::Marked(entry) => {
                    common.accounts.marked += 1;
                    common.marked.push_back(entry.id);
                    return Some(entry);
                }
            }
        }
    }

    /// When a batch is to be begun, or what is held back for a free link goes at the latest; none if
    /// there is neither.
    pub(super) fn next_deadline(&self, link_idle: bool) -> Option<Instant> {
        if link_idle && self.busy > 0 && self.can_send() {
            // Others wait for a batch no longer than that is worth it; or for their own to begin, if it may.
            return if self.has_slot() { self.begin_at } else { Some(self.passes_at) };
        }
        if !link_idle || self.begin_at.is_some() || !self.held.gathers() {
            // What waits for the link goes when that is ready, and the batch is asked for again then;
            // but what is gathered waits for the batch.
            let waits = link_idle && self.held.gathers();
            return self.begin_at.filter(|_| waits || self.sendable().is_none());
        }
        if self.busy > 0 {
            return None;
        }
        (self.lanes.packets() > 0).then(|| self.held.due_at())
    }

    /// True if there is something that the link may take next.
    pub(super) fn can_send(&self) -> bool {
        self.sendable().is_some()
            || match self.busy {
                0 => self.lanes.packets() > 0,
                _ => !self.is_blocked && self.beside().is_some(),
            }
    }

    /// Drops all but what is being compressed.
    pub(super) fn clear(&mut self, common: &mut Common, free: &mut dyn FnMut(PacketId)) {
        let mut drop = |entry: &Entry| {
            common.drop_held(DropReason::Cleared, entry.bytes);
            free(entry.id);
        };
        self.lanes.drain(|entry| drop(&entry));
        self.chosen.retain(|unit| {
            if !unit.is_compressing() {
                unit.packets().for_each(&mut drop);
            }
            unit.is_compressing()
        });
        // A job that was not given out yet is given out all the same; a frame is not.
        self.next = self.next.filter(|action| matches!(action, Action::Compress(_)));
        self.batch = None;
        self.begin_at = None;
        self.is_blocked = false;
        self.held.emptied();
        self.chosen_packets = self.chosen.iter().map(|unit| 1 + unit.followers.len()).sum();
        (self.ready_bytes, self.returned) = (0, 0);
    }

    /// Packets that wait in the queues of flows, and what was chosen and waits for the link.
    pub(super) fn waiting(&self) -> (usize, usize) {
        (self.lanes.packets(), self.chosen.len() - self.busy)
    }

    /// Bytes of what waits for the link, as it is going to be sent.
    pub(super) fn units_bytes(&self) -> u64 {
        self.ready_bytes + self.sent.shrink(self.lanes.bytes())
    }

    /// What is held, counted again; verifies the rest.
    ///
    /// # Panics
    /// If an invariant is broken.
    pub(super) fn count(&self, common: &Common) -> Count {
        let mut held = Count::default();
        self.lanes.count(|entry| held.add(entry.bytes));
        let (mut packets, mut ready_bytes) = (0, 0);
        for unit in &self.chosen {
            unit.packets().for_each(|packet| held.add(packet.bytes));
            packets += 1 + unit.followers.len();
            ready_bytes += if unit.is_compressing() { 0 } else { unit_bytes(common, unit) };
        }
        let busy = self.chosen.iter().filter(|unit| unit.is_compressing()).count();
        let counted = (packets, ready_bytes, busy);
        let known = (self.chosen_packets, self.ready_bytes, self.busy);
        assert_eq!(counted, known, "chosen is miscounted");
        self.assert_apart();
        let idles = common.link_idle && !self.held.gathers();
        let is_free = idles && self.has_slot() && self.begin_at.is_none();
        let is_blocked = self.busy > 0 && self.beside().is_none();
        assert!(!self.is_blocked || is_blocked, "something need not wait");
        assert!(!is_free || !self.can_send(), "the link idles for nothing");
        assert!(!idles || self.sendable().is_none(), "the link idles beside a batch");
        let waits = self.lanes.packets() > 0 || !self.chosen.is_empty();
        let is_asked = self.busy > 0 || self.next_deadline(true).is_some();
        assert!(!(common.link_idle && waits) || is_asked, "nobody asks for what waits");
        held
    }

    /// Verifies that nothing that was chosen must wait for what is being compressed before it.
    fn assert_apart(&self) {
        for (at, busy) in self.chosen.iter().enumerate().filter(|it| it.1.is_compressing()) {
            let mut behind = self.chosen.range(at + 1..).flat_map(Unit::packets);
            assert!(!behind.any(|entry| busy.is_before(entry)), "chosen past its own batch");
        }
    }

    /// The most packets that may wait: in the queues of flows, and in batches.
    pub(super) fn packets_max(&self, common: &Common) -> usize {
        common.config.limit.packets as usize + (1 + self.jobs_max) * self.room.packets
    }
}

fn drop_entry(common: &mut Common, entry: &Entry, reason: DropReason) {
    common.drop_held(reason, entry.bytes);
    common.dropped.push_back((entry.id, reason));
}
