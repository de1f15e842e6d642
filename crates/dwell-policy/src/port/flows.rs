//! A queue for each flow, and compression behind them: the store of `auto`.
//!
//! Packets wait in a queue for each flow ([`lanes`], RFC 8290): flows that send little go first, and
//! a flow whose packets keep waiting for too long is slowed down ([`codel`], RFC 8289). What was chosen
//! to be sent is in order behind them, and is never more than the batch under way and the one
//! before it: as little as keeps the link busy, since what is there neither makes way for others nor
//! grows any more.
//!
//! * A batch is chosen when what was compressed before is less than a frame ([`Select::Slack`]): as
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
//! Order is kept within each flow. Batches of a group leave in the order in which they were compressed.

mod codel;
mod held;
mod lanes;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use dwell_base::{Instant, Rate};

use super::common::{Common, Filling};
use crate::account::{Bypass, Count, DropReason};
use crate::action::{Action, FramePacket, FrameUnit, SendCause};
use crate::estimate::Estimate;
use crate::event::{LostBatch, Outcome};
use crate::packet::{ClassKey, Packet, PacketId, learned_as};
use crate::scheme::{Gather, Queue, Select};
use crate::waiting_time::{backlog_needed_bytes, waiting_time_suffices};
use codel::Grant;
use held::Held;
use lanes::{First, Lanes};

/// A packet of less than this, alone, is not worth a batch.
const ALONE_BYTES_MIN: u64 = 256;
/// From this many bytes on, the result of a batch says something about its packets.
const TELLING_BYTES_MIN: u64 = 1_000;
/// What was sent counts for half, once it is this much.
const RATIO_BYTES: u64 = 1 << 18;
/// Packets of flows that have just begun go at once if the link sends them all in this time.
const SPARSE_NS: u64 = 2_000_000;

/// A packet.
#[derive(Clone, Copy, Debug)]
struct Entry {
    id: PacketId,
    bytes: u32,
    class: ClassKey,
    flow: u64,
    group: u64,
    arrived: Instant,
    /// Why it is not compressed, if that is known already.
    bypass: Option<Bypass>,
    looks_random: bool,
    takes_mark: bool,
    /// It was compressed upstream.
    compressed_before: bool,
    /// It was asked whether it has waited for too long.
    was_seen: bool,
    /// What the back-off said of it, if that was asked: it counts who asks.
    may_try: Option<bool>,
}

impl Entry {
    fn learned_as(&self) -> (u64, ClassKey) {
        learned_as(self.flow, self.class, self.looks_random)
    }
}

/// What was chosen to be sent: a packet or a batch.
#[derive(Clone, Debug)]
struct Unit {
    first: Entry,
    followers: Vec<Entry>,
    /// As it would be sent now.
    bytes: u32,
    is_compressing: bool,
    is_compressed: bool,
    /// Why it went past the compressor.
    bypass: Option<Bypass>,
    /// It came back.
    returned: bool,
}

impl Unit {
    fn packets(&self) -> impl Iterator<Item = &Entry> {
        std::iter::once(&self.first).chain(&self.followers)
    }

    fn original_bytes(&self) -> u32 {
        self.packets().map(|packet| packet.bytes).sum()
    }
}

/// How large batches become.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    bytes: u32,
    packets: usize,
    link_ns: u64,
}

/// Bytes before compression and after, of late.
#[derive(Clone, Copy, Debug, Default)]
struct Shrunk {
    before: u64,
    after: u64,
}

impl Shrunk {
    fn add(&mut self, before: u32, after: u32) {
        self.before += u64::from(before);
        self.after += u64::from(after);
        if self.before > RATIO_BYTES {
            (self.before, self.after) = (self.before / 2, self.after.div_ceil(2));
        }
    }

    /// What `bytes` become.
    fn shrink(&self, bytes: u64) -> u64 {
        if self.before == 0 { bytes } else { u128_ratio(bytes, self.after, self.before) }
    }

    /// What becomes `bytes`.
    fn grow(&self, bytes: u64) -> u64 {
        if self.after == 0 { bytes } else { u128_ratio(bytes, self.before, self.after) }
    }
}

/// What becomes of the packet whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// It goes as it is.
    Raw(Bypass),
    /// It begins a batch of at most so many bytes.
    Batch(u64),
    /// It goes as it is, and so does what waits behind it, until a batch has the time that it needs.
    Behind {
        /// The bytes that go as they are, at least.
        raw_bytes: u64,
        /// The most bytes of the batch.
        bytes: u64,
    },
}

/// Queues for flows, and what was chosen from them.
#[derive(Clone, Debug)]
pub(super) struct Flows {
    gather: Gather,
    lanes: Lanes,
    grant: Grant,
    room: Room,
    chosen: VecDeque<Unit>,
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
    /// When the batch that is being compressed should be done.
    done_at: Instant,
    held: Held,
    spare: Vec<Vec<Entry>>,
}

impl Flows {
    pub(super) fn new(gather: Gather) -> Self {
        Self {
            gather,
            lanes: Lanes::new(),
            grant: Grant::default(),
            room: Room::default(),
            chosen: VecDeque::new(),
            ready_bytes: 0,
            chosen_packets: 0,
            returned: 0,
            next: None,
            batch: None,
            sent: Shrunk::default(),
            batches: Shrunk::default(),
            done_at: Instant::ZERO,
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
        self.room = match scheme.select {
            Select::Slack { bytes_max, packets_max, batch_ns, .. } => {
                Room { bytes: bytes_max, packets: packets_max as usize, link_ns: batch_ns }
            }
            _ => Room::default(),
        };
        let ready = self.chosen.iter().filter(|unit| !unit.is_compressing);
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
        self.lanes.push(Entry {
            id: packet.id,
            bytes: packet.bytes,
            class: packet.service(),
            flow: packet.flow,
            group: packet.group,
            arrived: now,
            bypass,
            looks_random: packet.looks_random,
            takes_mark: packet.takes_mark,
            compressed_before: packet.compressed,
            was_seen: false,
            may_try: None,
        });
        self.held.arrived(now, packet.max_wait_ns);
        while let Some(reason) = self.excess(common) {
            let Some(entry) = self.lanes.pop_fattest() else { return };
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
        let is_late = self.sent.shrink(self.lanes.bytes()) > common.bytes_in_time();
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
            is_compressing: false,
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

    /// The batch came out of the compressor.
    pub(super) fn compressed(&mut self, common: &mut Common, outcome: Outcome, took_ns: u64) {
        let Some(at) = self.compressing() else { return };
        let unit = &mut self.chosen[at];
        let (packets, bytes) = (1 + unit.followers.len() as u32, unit.original_bytes());
        let to_bytes = common.book_compress(outcome, (packets, bytes), took_ns);
        if outcome != Outcome::Failed {
            learn(common, unit, (bytes, to_bytes.unwrap_or(bytes)), took_ns);
        }
        unit.is_compressing = false;
        if let Some(to_bytes) = to_bytes {
            (unit.bytes, unit.is_compressed) = (to_bytes, true);
            self.ready_bytes += unit_bytes(common, &self.chosen[at]);
            return;
        }
        // They stay what they were.
        let mut followers = std::mem::take(&mut unit.followers);
        unit.bytes = unit.first.bytes;
        self.ready_bytes += unit_bytes(common, unit);
        for (behind, entry) in (at + 1..).zip(followers.drain(..)) {
            let unit = Unit::raw(entry, self.spare.pop().unwrap_or_default());
            self.ready_bytes += unit_bytes(common, &unit);
            self.chosen.insert(behind, unit);
        }
        self.spare.push(followers);
    }

    /// The batch that is being compressed.
    fn compressing(&self) -> Option<usize> {
        self.chosen.iter().position(|unit| unit.is_compressing)
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

    /// Makes a frame of what goes at once, of what was chosen, and of what is to go raw; false if
    /// there is nothing for it.
    fn fill_frame(&mut self, common: &mut Common, now: Instant) -> bool {
        let frame_bytes = u64::from(common.config.frame.units_bytes_max);
        let is_full = self.ready_bytes >= frame_bytes;
        if self.held.gathers() && !is_full && !self.is_last(common, now) {
            return false; // more is about to come for it
        }
        let mut filling = common.open_frame();
        while let Some(at) = self.at_once(common) {
            if !self.send_raw(common, &mut filling, now, (at, Bypass::Sparse)) {
                break;
            }
        }
        while let Some(at) = self.sendable() {
            let unit_bytes = unit_bytes(common, &self.chosen[at]);
            if !filling.admit(common, unit_bytes) {
                break;
            }
            self.ready_bytes -= unit_bytes;
            self.send_chosen(common, now, at);
        }
        if self.sendable().is_none() {
            while let Some((at, reason)) = self.raw_next(common, now) {
                if !self.send_raw(common, &mut filling, now, (at, reason)) {
                    break;
                }
            }
        }
        if common.frame.units.is_empty() {
            return false;
        }
        common.close_frame(&filling, SendCause::Ready, 0);
        self.next = Some(Action::Send);
        true
    }

    /// True if nothing more comes out of the compressor for this frame, or out of the queues for the
    /// compressor.
    fn is_last(&mut self, common: &mut Common, now: Instant) -> bool {
        if self.compressing().is_some() {
            return now > self.done_at;
        }
        if self.next_batch().is_some() {
            return false;
        }
        let Some(at) = self.lanes.next(false) else { return true };
        let Some(Choice::Batch(bytes)) = self.choose(common, now, at) else { return true };
        self.batch = self.lanes.peek(at).map(|first| (at, first.id, bytes));
        self.batch.is_none()
    }

    /// The flow whose packet goes at once: it has just begun, others are being sent, and nothing of it
    /// is among those.
    fn at_once(&mut self, common: &Common) -> Option<u32> {
        if self.held.gathers() {
            return None;
        }
        let at = self.lanes.next(false)?;
        let is_little = self.lanes.new_bytes() <= sparse_bytes(common);
        if !is_little || !self.lanes.is_new(at) {
            return None;
        }
        let entry = self.lanes.peek(at)?;
        let waiting_bytes = self.lanes.bytes_of(at);
        let is_alone = self.chosen.is_empty() && self.lanes.bytes() == waiting_bytes;
        // With nothing else about, the link's time decides, unless it is too little for that.
        let is_asked = is_alone && waiting_bytes >= ALONE_BYTES_MIN;
        (!is_asked && !self.has_chosen(entry.flow)).then_some(at)
    }

    /// True if a packet of the flow was chosen and has not left.
    fn has_chosen(&self, flow: u64) -> bool {
        self.chosen.iter().any(|unit| unit.packets().any(|packet| packet.flow == flow))
    }

    /// The flow whose packet goes raw now, and why.
    fn raw_next(&mut self, common: &mut Common, now: Instant) -> Option<(u32, Bypass)> {
        if let Some(busy) = self.compressing() {
            // Others need not wait for what comes out of the compressor, but may for their turn.
            let group = self.chosen[busy].first.group;
            let at = self.lanes.find(|entry| entry.group != group)?;
            return self.raw_beside(common, now, at).map(|reason| (at, reason));
        }
        let at = self.lanes.next(false)?;
        match self.choose(common, now, at)? {
            Choice::Raw(reason) => Some((at, reason)),
            Choice::Behind { .. } => Some((at, Bypass::NoTime)),
            Choice::Batch(bytes) => {
                // Asking has consequences; it is not asked again.
                self.batch = self.lanes.peek(at).map(|first| (at, first.id, bytes));
                None
            }
        }
    }

    /// Why a flow's first packet goes raw while a batch of another group is being compressed; none if
    /// it arrives sooner after waiting for that and being compressed itself.
    fn raw_beside(&mut self, common: &mut Common, now: Instant, at: u32) -> Option<Bypass> {
        let entry = self.first(common, now, at)?;
        if entry.bypass.is_some() {
            return entry.bypass;
        }
        let Some(rate) = common.config.rate.filter(|_| now <= self.done_at) else {
            return Some(Bypass::NoTime);
        };
        let (flow, class) = entry.learned_as();
        let estimate = common.estimate(flow, class, entry.bytes);
        let cost_ns = estimate.cost_ns.saturating_add(self.done_at.since_ns(now));
        let wait_bytes = common.wait_bytes(self.ready_bytes);
        let estimate = Estimate { cost_ns, ..estimate };
        let waits = waiting_time_suffices(wait_bytes, entry.bytes, estimate, rate);
        (!waits).then_some(Bypass::NoTime)
    }

    /// Puts the first packet of a flow into the frame; false if that is full.
    fn send_raw(
        &mut self,
        common: &mut Common,
        filling: &mut Filling,
        now: Instant,
        (at, reason): (u32, Bypass),
    ) -> bool {
        let Some(entry) = self.first(common, now, at) else { return true };
        let unit_bytes = common.unit_bytes(entry.bytes, entry.compressed_before);
        if !filling.admit(common, unit_bytes) {
            return false;
        }
        self.lanes.pop(at);
        self.lanes.charge(at, unit_bytes);
        let reason = entry.bypass.unwrap_or(reason);
        common.accounts.bypass(reason);
        common.send_held(entry.bytes);
        common.put(raw_unit(&entry, Some(reason), now));
        self.sent.add(entry.bytes, entry.bytes);
        true
    }

    /// The first packet of a flow that has not waited for too long.
    fn first(&mut self, common: &mut Common, now: Instant, at: u32) -> Option<Entry> {
        let frame = &common.config.frame;
        let frame_bytes = u64::from(frame.frame_bytes) + u64::from(frame.units_bytes_max);
        let frame_ns = common.config.rate.map_or(0, |rate| rate.transmission_ns(frame_bytes));
        let target_ns = self.grant.target_ns.max(frame_ns + frame_ns / 2);
        let grant = Grant { target_ns, ..self.grant };
        loop {
            match self.lanes.first(at, now, &grant)? {
                First::Waiting(entry) => return Some(entry),
                First::Dropped(entry) => drop_entry(common, &entry, DropReason::Delay),
                First::Marked(entry) => {
                    common.accounts.marked += 1;
                    common.marked.push_back(entry.id);
                    return Some(entry);
                }
            }
        }
    }

    /// What becomes of a flow's first packet.
    fn choose(&mut self, common: &mut Common, now: Instant, at: u32) -> Option<Choice> {
        let entry = self.first(common, now, at)?;
        if !common.config.scheme.compresses() {
            return Some(Choice::Raw(Bypass::Scheme));
        }
        if let Some(reason) = entry.bypass {
            return Some(Choice::Raw(reason));
        }
        let Some(rate) = common.config.rate else { return Some(Choice::Raw(Bypass::NoTime)) };
        let wait_bytes = common.wait_bytes(self.ready_bytes);
        let waiting_bytes = self.lanes.bytes();
        let is_alone = wait_bytes == 0 && waiting_bytes < ALONE_BYTES_MIN;
        if is_alone && !self.held.gathers() {
            return Some(Choice::Raw(Bypass::Sparse));
        }
        let key = entry.learned_as();
        if !self.may_try(common, at, key) {
            return Some(Choice::Raw(Bypass::BackOff));
        }
        // A frame is as long as others wait in any case.
        let frame_bytes = u64::from(common.config.frame.units_bytes_max);
        let link_bytes = rate.bytes_in_ns(self.room.link_ns).max(frame_bytes);
        let most = self.batches.grow(link_bytes).min(u64::from(self.room.bytes));
        let bytes = most.min(waiting_bytes).max(u64::from(entry.bytes));
        let ready = in_time(common, key, (bytes, wait_bytes), rate);
        if ready >= u64::from(entry.bytes) {
            return Some(Choice::Batch(ready));
        }
        let cost_ns =
            common.estimate(key.0, key.1, u32::try_from(bytes).unwrap_or(u32::MAX)).cost_ns;
        if self.held.grants(now, cost_ns) {
            return Some(Choice::Batch(bytes));
        }
        if let Some(behind) = self.behind(common, &entry, (bytes, wait_bytes), rate) {
            return Some(behind);
        }
        let explores = bytes >= TELLING_BYTES_MIN && common.explore(now, key);
        Some(if explores { Choice::Batch(bytes) } else { Choice::Raw(Bypass::NoTime) })
    }

    /// A batch that has the time that it needs while the link sends what waits before it; none if too
    /// little waits even for the smallest.
    fn behind(
        &self,
        common: &mut Common,
        first: &Entry,
        (bytes, wait_bytes): (u64, u64),
        rate: Rate,
    ) -> Option<Choice> {
        let key = first.learned_as();
        let waiting_bytes = self.lanes.bytes();
        [bytes, u64::from(first.bytes)].into_iter().find_map(|bytes| {
            let needed_bytes = needed(common, key, bytes, rate)?;
            let raw_bytes = needed_bytes.saturating_sub(wait_bytes);
            (waiting_bytes > raw_bytes + bytes).then_some(Choice::Behind { raw_bytes, bytes })
        })
    }

    /// Asks the back-off of a flow about its first packet, once.
    fn may_try(&mut self, common: &mut Common, at: u32, key: (u64, ClassKey)) -> bool {
        let Some(entry) = self.lanes.peek_mut(at) else { return false };
        *entry.may_try.get_or_insert_with(|| common.may_try(key.0, key.1))
    }

    /// Chooses a batch and gives it to the compressor, if it is time for the next; false if not.
    fn begin(&mut self, common: &mut Common, now: Instant) -> bool {
        let frame_bytes = u64::from(common.config.frame.units_bytes_max);
        if self.compressing().is_some() || self.ready_bytes > frame_bytes {
            return false;
        }
        if let Some((at, bytes)) = self.next_batch() {
            self.batch = None;
            let members = self.gather_batch(common, now, at, bytes);
            return self.start(common, now, members);
        }
        // What goes at once waits for the link only.
        let is_little = self.lanes.new_bytes() <= sparse_bytes(common);
        let skips_new = is_little && !common.link_idle && !self.held.gathers();
        let Some(at) = self.lanes.next(skips_new) else { return false };
        let (at, bytes) = match self.choose(common, now, at) {
            Some(Choice::Batch(bytes)) => (at, bytes),
            Some(Choice::Behind { raw_bytes, bytes }) => {
                self.choose_raw(common, now, raw_bytes);
                let next = self.lanes.next(skips_new).filter(|&at| self.is_eligible(at));
                let Some(at) = next else { return true };
                (at, bytes)
            }
            Some(Choice::Raw(_)) | None => return false,
        };
        let members = self.gather_batch(common, now, at, bytes);
        self.start(common, now, members)
    }

    /// The flow and the bytes of the batch that was decided on, unless its first packet is gone since.
    fn next_batch(&mut self) -> Option<(u32, u64)> {
        let (at, id, bytes) = self.batch?;
        let is_there = self.lanes.peek(at).is_some_and(|first| first.id == id);
        self.batch = self.batch.filter(|_| is_there);
        is_there.then_some((at, bytes))
    }

    /// True if a flow's first packet may be compressed.
    fn is_eligible(&self, at: u32) -> bool {
        self.lanes.peek(at).is_some_and(|first| first.bypass.is_none())
    }

    /// Chooses packets that go as they are, in the order of their turns, until they take so many bytes
    /// of the link.
    fn choose_raw(&mut self, common: &mut Common, now: Instant, link_bytes: u64) {
        let until_bytes = self.ready_bytes + link_bytes;
        while self.ready_bytes < until_bytes {
            let Some(at) = self.lanes.next(false) else { return };
            let Some(entry) = self.first(common, now, at) else { continue };
            self.lanes.pop(at);
            let mut unit = Unit::raw(entry, self.spare.pop().unwrap_or_default());
            unit.bypass = Some(entry.bypass.unwrap_or(Bypass::NoTime));
            let unit_bytes = unit_bytes(common, &unit);
            self.lanes.charge(at, unit_bytes);
            self.ready_bytes += unit_bytes;
            self.chosen_packets += 1;
            self.chosen.push_back(unit);
        }
    }

    /// Takes packets of one group for a batch, from flow after flow as it is their turn, and then from
    /// the first more than its share of this round.
    fn gather_batch(
        &mut self,
        common: &mut Common,
        now: Instant,
        first: u32,
        bytes_max: u64,
    ) -> Vec<Entry> {
        let mut members = self.spare.pop().unwrap_or_default();
        let mut bytes = 0;
        let mut at = first;
        loop {
            let mut is_open = true;
            while is_open && self.lanes.has_credit(at) {
                is_open = self.gather_one(common, now, at, (&mut members, &mut bytes), bytes_max);
            }
            let before = at;
            match self.lanes.next(false) {
                Some(next) if is_open || next != before => at = next,
                _ => return members,
            }
            if bytes >= bytes_max || !self.is_of_batch(at, &members) {
                break;
            }
        }
        while self.gather_one(common, now, first, (&mut members, &mut bytes), bytes_max) {}
        members
    }

    /// True if a flow's first packet may be compressed with the others.
    fn is_of_batch(&self, at: u32, members: &[Entry]) -> bool {
        let group = members.first().map(|first| first.group);
        self.lanes.peek(at).is_some_and(|it| it.bypass.is_none() && Some(it.group) == group)
    }

    /// Takes a flow's first packet into the batch; false if it doesn't belong there, or finds no room.
    fn gather_one(
        &mut self,
        common: &mut Common,
        now: Instant,
        at: u32,
        (members, bytes): (&mut Vec<Entry>, &mut u64),
        bytes_max: u64,
    ) -> bool {
        let Some(entry) = self.first(common, now, at) else { return false };
        let is_first = members.is_empty();
        let fits =
            *bytes + u64::from(entry.bytes) <= bytes_max && members.len() < self.room.packets;
        let belongs = is_first || (fits && self.is_of_batch(at, members));
        if !belongs {
            return false;
        }
        self.lanes.pop(at);
        self.lanes.charge(at, self.batches.shrink(u64::from(entry.bytes)).max(1));
        *bytes += u64::from(entry.bytes);
        members.push(entry);
        true
    }

    /// Gives a batch to the compressor.
    fn start(&mut self, common: &mut Common, now: Instant, mut members: Vec<Entry>) -> bool {
        let Some(&first) = members.first() else { return false };
        members.remove(0);
        let unit = Unit {
            first,
            followers: members,
            bytes: 0,
            is_compressing: true,
            is_compressed: false,
            bypass: None,
            returned: false,
        };
        common.batch.extend(unit.packets().map(|packet| packet.id));
        self.chosen_packets += common.batch.len();
        let context = common.config.scheme.has_contexts().then_some(first.group);
        let action = common.begin_job(unit.original_bytes(), first.learned_as(), context);
        if let Action::Compress(job) = action {
            self.done_at = now + job.cost_ns;
            self.held.spend(job.cost_ns);
        }
        self.next = Some(action);
        self.chosen.push_back(unit);
        true
    }

    /// When what is held back goes at the latest; none if nothing is.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        if !self.held.gathers() {
            return None;
        }
        if self.compressing().is_some() {
            // A frame that waits for a batch does so no longer than that should take.
            return self.can_send().then(|| self.done_at + 1);
        }
        (self.lanes.packets() > 0).then(|| self.held.due_at())
    }

    /// True if there is something that the link may take next.
    pub(super) fn can_send(&self) -> bool {
        let busy = self.compressing().map(|at| self.chosen[at].first.group);
        self.sendable().is_some() || self.lanes.find(|entry| Some(entry.group) != busy).is_some()
    }

    /// The unit that the link may take next: the first that is not behind one of its group.
    fn sendable(&self) -> Option<usize> {
        let first = self.chosen.front()?;
        if !first.is_compressing {
            return Some(0);
        }
        let group = first.first.group;
        self.chosen.iter().position(|unit| !unit.is_compressing && unit.first.group != group)
    }

    /// Moves a unit that was chosen to the frame.
    fn send_chosen(&mut self, common: &mut Common, now: Instant, at: usize) {
        let Some(unit) = self.chosen.remove(at) else { return };
        let original_bytes = unit.original_bytes();
        self.chosen_packets -= 1 + unit.followers.len();
        self.returned -= if unit.returned { 1 + unit.followers.len() } else { 0 };
        self.sent.add(original_bytes, unit.bytes);
        if unit.is_compressed {
            self.batches.add(original_bytes, unit.bytes);
        }
        for packet in unit.packets() {
            common.send_held(packet.bytes);
        }
        common.frame.followers.extend(unit.followers.iter().map(|packet| FramePacket {
            id: packet.id,
            original_bytes: packet.bytes,
            sojourn_ns: now.since_ns(packet.arrived),
        }));
        common.put(FrameUnit {
            bytes: unit.bytes,
            original_bytes,
            compressed_here: unit.is_compressed,
            followers: unit.followers.len() as u32,
            ..raw_unit(&unit.first, unit.bypass, now)
        });
        if let Some(reason) = unit.bypass {
            common.accounts.bypass(reason);
        }
        let mut followers = unit.followers;
        followers.clear();
        self.spare.push(followers);
    }

    /// Drops all but what is being compressed.
    pub(super) fn clear(&mut self, common: &mut Common, free: &mut dyn FnMut(PacketId)) {
        let mut drop = |entry: &Entry| {
            common.drop_held(DropReason::Cleared, entry.bytes);
            free(entry.id);
        };
        self.lanes.drain(|entry| drop(&entry));
        self.chosen.retain(|unit| {
            if !unit.is_compressing {
                unit.packets().for_each(&mut drop);
            }
            unit.is_compressing
        });
        // A job that was not given out yet is given out all the same; a frame is not.
        self.next = self.next.filter(|action| matches!(action, Action::Compress(_)));
        self.batch = None;
        self.held.emptied();
        self.chosen_packets = self.chosen.iter().map(|unit| 1 + unit.followers.len()).sum();
        (self.ready_bytes, self.returned) = (0, 0);
    }

    /// Packets that wait in the queues of flows, and what was chosen and waits for the link.
    pub(super) fn waiting(&self) -> (usize, usize) {
        let busy = usize::from(self.compressing().is_some());
        (self.lanes.packets(), self.chosen.len() - busy)
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
            ready_bytes += if unit.is_compressing { 0 } else { unit_bytes(common, unit) };
        }
        let counted = (packets, ready_bytes);
        assert_eq!(counted, (self.chosen_packets, self.ready_bytes), "chosen is miscounted");
        let idles = common.link_idle && !self.held.gathers();
        let is_free = idles && self.compressing().is_none();
        assert!(!is_free || !self.can_send(), "the link idles for nothing");
        assert!(!idles || self.sendable().is_none(), "the link idles beside a batch");
        held
    }

    /// The most packets that may wait: in the queues of flows, and in two batches.
    pub(super) fn packets_max(&self, common: &Common) -> usize {
        common.config.limit.packets as usize + 2 * self.room.packets
    }
}

impl Unit {
    /// A packet that goes as it is.
    fn raw(entry: Entry, followers: Vec<Entry>) -> Self {
        Self {
            first: entry,
            followers,
            bytes: entry.bytes,
            is_compressing: false,
            is_compressed: false,
            bypass: None,
            returned: false,
        }
    }
}

fn unit_bytes(common: &Common, unit: &Unit) -> u64 {
    common.unit_bytes(unit.bytes, unit.is_compressed || unit.first.compressed_before)
}

fn raw_unit(entry: &Entry, bypass: Option<Bypass>, now: Instant) -> FrameUnit {
    FrameUnit {
        id: entry.id,
        bytes: entry.bytes,
        original_bytes: entry.bytes,
        compressed_here: false,
        bypass,
        followers: 0,
        sojourn_ns: now.since_ns(entry.arrived),
    }
}

fn drop_entry(common: &mut Common, entry: &Entry, reason: DropReason) {
    common.drop_held(reason, entry.bytes);
    common.dropped.push_back((entry.id, reason));
}

/// What flows that have just begun may send at once, in bytes.
fn sparse_bytes(common: &Common) -> u64 {
    let frames = 2 * u64::from(common.config.frame.units_bytes_max);
    common.config.rate.map_or(frames, |rate| rate.bytes_in_ns(SPARSE_NS).max(frames))
}

/// The bytes of a batch of at most `bytes` that arrives sooner for being compressed, with
/// `wait_bytes` before it; zero if none does.
fn in_time(
    common: &mut Common,
    key: (u64, ClassKey),
    (bytes, wait_bytes): (u64, u64),
    rate: Rate,
) -> u64 {
    match needed(common, key, bytes, rate) {
        Some(needed) if needed <= wait_bytes => bytes,
        // The time that is missing grows with the batch.
        Some(needed) => u128_ratio(bytes, wait_bytes, needed),
        None => 0,
    }
}

/// What has to be before a batch of `bytes`, in bytes, for it to have time; none if no time suffices.
fn needed(common: &mut Common, key: (u64, ClassKey), bytes: u64, rate: Rate) -> Option<u64> {
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    let estimate = common.estimate(key.0, key.1, bytes);
    backlog_needed_bytes(bytes, estimate, rate)
}

/// Every packet of a batch is taken to have shrunk as the whole did.
fn learn(common: &mut Common, unit: &Unit, (bytes, to_bytes): (u32, u32), took_ns: u64) {
    let total = u64::from(bytes.max(1));
    if common.learned.is_none() || total < TELLING_BYTES_MIN {
        return;
    }
    for packet in unit.packets() {
        let part = u64::from(packet.bytes);
        let to = (part * u64::from(to_bytes) / total) as u32;
        let took_ns = took_ns.saturating_mul(part) / total;
        common.learn(packet.learned_as(), (packet.bytes, to), took_ns);
    }
}

/// `value` · `times` / `by`, which fits: the ratio is one of two sums of bytes.
fn u128_ratio(value: u64, times: u64, by: u64) -> u64 {
    let product = u128::from(value) * u128::from(times);
    u64::try_from(product / u128::from(by.max(1))).unwrap_or(u64::MAX)
}
