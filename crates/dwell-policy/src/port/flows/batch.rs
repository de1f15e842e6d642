//! Which packets become the next batch.

use dwell_base::{Instant, Rate};

use super::frame::sparse_bytes;
use super::unit::{Entry, Running, Unit, u128_ratio, unit_bytes};
use super::{ALONE_BYTES_MIN, Flows};
use crate::account::Bypass;
use crate::action::Action;
use crate::packet::ClassKey;
use crate::port::common::Common;
use crate::waiting_time::backlog_needed_bytes;

/// Whoever drives the port may come a little late.
const LEAD_NS: u64 = 100_000;
/// From this many bytes on, the result of a batch says something about its packets.
const TELLING_BYTES_MIN: u64 = 1_000;

/// What becomes of the packet whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
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

impl Flows {
    /// What becomes of a flow's first packet.
    pub(super) fn choose(&mut self, common: &mut Common, now: Instant, at: u32) -> Option<Choice> {
        common.forget_exploring();
        let entry = self.first(common, now, at)?;
        if !self.is_free(&entry) {
            return None; // the one before it was dropped
        }
        if !common.config.scheme.compresses() {
            return Some(Choice::Raw(Bypass::Scheme));
        }
        if let Some(reason) = entry.bypass {
            return Some(Choice::Raw(reason));
        }
        let Some(rate) = common.config.rate else { return Some(Choice::Raw(Bypass::NoTime)) };
        let wait_bytes = common.wait_bytes(self.ready_bytes);
        let waiting_bytes = self.free_bytes();
        let is_alone = wait_bytes == 0 && waiting_bytes < ALONE_BYTES_MIN;
        if is_alone && !self.held.gathers() {
            return Some(Choice::Raw(Bypass::Sparse));
        }
        let has_cpu = common.cpu_share.allows(now);
        if !has_cpu && !common.may_explore() && !self.held.gathers() {
            return Some(Choice::Raw(Bypass::NoTime));
        }
        let key = entry.learned_as();
        if !self.may_try(common, at, key) {
            return Some(Choice::Raw(Bypass::BackOff));
        }
        let most = self.batch_bytes_max(common, &entry, rate);
        let bytes = most.min(waiting_bytes).max(u64::from(entry.bytes));
        let ready = if has_cpu { in_time(common, key, (bytes, wait_bytes), rate) } else { 0 };
        if ready >= u64::from(entry.bytes) {
            return Some(Choice::Batch(ready));
        }
        let cost_ns =
            common.estimate(key.0, key.1, u32::try_from(bytes).unwrap_or(u32::MAX)).cost_ns;
        if self.held.grants(now, cost_ns) {
            return Some(Choice::Batch(bytes));
        }
        let behind = has_cpu.then(|| self.behind(common, &entry, (bytes, wait_bytes), rate));
        if let Some(behind) = behind.flatten() {
            return Some(behind);
        }
        let explores = bytes >= TELLING_BYTES_MIN && common.explore(now, key);
        Some(if explores { Choice::Batch(bytes) } else { Choice::Raw(Bypass::NoTime) })
    }

    /// The most bytes of a batch that begins with this packet: what keeps the link for the time that it may,
    /// compressed as those before it.
    fn batch_bytes_max(&self, common: &Common, first: &Entry, rate: Rate) -> u64 {
        // A frame is as long as others wait in any case.
        let frame_bytes = u64::from(common.config.frame.units_bytes_max);
        let link_bytes = rate.bytes_in_ns(self.room.link_ns).max(frame_bytes);
        self.batches.grow(link_bytes).min(self.room.bytes.min(first.batch_bytes_max).into())
    }

    /// When a batch of `bytes` is to be begun, if that is later: as long as it is not full and the
    /// link has something to do, more may come for it.
    fn begins_later(
        &self,
        common: &mut Common,
        now: Instant,
        at: u32,
        bytes: u64,
    ) -> Option<Instant> {
        let rate = common.config.rate?;
        // What is gathered for the same frame keeps the link from nothing.
        let is_ahead = !(common.link_idle && self.held.gathers());
        let ready_bytes = if is_ahead { self.ready_bytes } else { 0 };
        let first = self.lanes.peek(at)?;
        let is_full = self.free_bytes() >= self.batch_bytes_max(common, first, rate)
            || self.lanes.packets() >= self.room.packets;
        if is_full {
            return None;
        }
        let (flow, class) = first.learned_as();
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let needed_ns = common.estimate(flow, class, bytes).cost_ns;
        let needed_ns = needed_ns.saturating_add(self.late_ns + LEAD_NS);
        let ahead_bytes = common.link.ahead_bytes + common.backlog_bytes(ready_bytes);
        let ahead_ns = rate.transmission_ns(ahead_bytes);
        (ahead_ns > needed_ns).then(|| now + (ahead_ns - needed_ns))
    }

    /// A batch that has the time that it needs while the link sends what waits before it; none if too
    /// little waits even for the smallest.
    pub(super) fn behind(
        &self,
        common: &mut Common,
        first: &Entry,
        (bytes, wait_bytes): (u64, u64),
        rate: Rate,
    ) -> Option<Choice> {
        let key = first.learned_as();
        let waiting_bytes = self.free_bytes();
        [bytes, u64::from(first.bytes)].into_iter().find_map(|bytes| {
            let needed_bytes = needed(common, key, bytes, rate)?;
            let raw_bytes = needed_bytes.saturating_sub(wait_bytes);
            (waiting_bytes > raw_bytes + bytes).then_some(Choice::Behind { raw_bytes, bytes })
        })
    }

    /// Asks the back-off of a flow about its first packet, once.
    pub(super) fn may_try(&mut self, common: &mut Common, at: u32, key: (u64, ClassKey)) -> bool {
        let Some(entry) = self.lanes.peek_mut(at) else { return false };
        *entry.may_try.get_or_insert_with(|| common.may_try(key.0, key.1))
    }

    /// The most bytes that wait for the link when a batch is begun: what the link sends while a batch like the
    /// last is compressed. With less, compressor and link would work in turns and not at once; with more, what
    /// waits would be chosen sooner than it need be. It is a frame at least.
    fn ready_bytes_max(&self, common: &Common) -> u64 {
        let frame_bytes = u64::from(common.config.frame.units_bytes_max);
        let job_ns = self.job_cost_ns.saturating_add(self.late_ns + LEAD_NS);
        let job_bytes = common.config.rate.map_or(0, |rate| rate.bytes_in_ns(job_ns));
        frame_bytes.max(job_bytes)
    }

    /// Chooses a batch and gives it to the compressor, if it is time for the next; false if not.
    pub(super) fn begin(&mut self, common: &mut Common, now: Instant) -> bool {
        self.begin_at = None;
        if !self.has_slot() || self.ready_bytes > self.ready_bytes_max(common) {
            return false;
        }
        // One more than keeps the link busy would only make others wait behind it.
        let is_enough = || self.ready_bytes + self.coming_bytes() > self.ready_bytes_max(common);
        if self.busy > 0 && !common.link_idle && is_enough() {
            return false;
        }
        // What goes at once waits for the link only.
        let is_little = self.lanes.new_bytes() <= sparse_bytes(common);
        let skips_new = is_little && !common.link_idle && !self.held.gathers();
        if let Some((at, bytes)) = self.next_batch()
            && self.lanes.peek(at).is_some_and(|first| self.is_free(first))
        {
            self.begin_at = self.begins_later(common, now, at, bytes);
            self.batch = None;
            if self.begin_at.is_some() {
                return false;
            }
            let members = self.gather_batch(common, now, (at, skips_new), bytes);
            return self.start(common, now, members);
        }
        let Some(at) = self.turn(skips_new) else { return false };
        let (at, bytes) = match self.choose(common, now, at) {
            Some(Choice::Batch(bytes)) => (at, bytes),
            Some(Choice::Behind { raw_bytes, bytes }) => {
                self.choose_raw(common, now, raw_bytes);
                let next = self.turn(skips_new).filter(|&at| self.is_eligible(at));
                let Some(at) = next else { return true };
                (at, bytes)
            }
            Some(Choice::Raw(_)) | None => return false,
        };
        self.begin_at = self.begins_later(common, now, at, bytes);
        if self.begin_at.is_some() {
            return false;
        }
        let members = self.gather_batch(common, now, (at, skips_new), bytes);
        self.start(common, now, members)
    }

    /// The flow and the bytes of the batch that was decided on, unless its first packet is gone since.
    pub(super) fn next_batch(&mut self) -> Option<(u32, u64)> {
        let (at, id, bytes) = self.batch?;
        let is_there = self.lanes.peek(at).is_some_and(|first| first.id == id);
        self.batch = self.batch.filter(|_| is_there);
        is_there.then_some((at, bytes))
    }

    /// True if a flow's first packet may be compressed.
    pub(super) fn is_eligible(&self, at: u32) -> bool {
        self.lanes.peek(at).is_some_and(|first| first.bypass.is_none())
    }

    /// Chooses packets that go as they are, in the order of their turns, until they take so many bytes
    /// of the link.
    pub(super) fn choose_raw(&mut self, common: &mut Common, now: Instant, link_bytes: u64) {
        let until_bytes = self.ready_bytes + link_bytes;
        while self.ready_bytes < until_bytes {
            let Some(at) = self.turn(false) else { return };
            let Some(entry) = self.first(common, now, at) else { continue };
            if !self.is_free(&entry) {
                continue;
            }
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
    /// the first more than its share of this round; with `skips_new`, not of those that have just begun.
    pub(super) fn gather_batch(
        &mut self,
        common: &mut Common,
        now: Instant,
        (first, skips_new): (u32, bool),
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
            match self.turn(skips_new) {
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
    pub(super) fn is_of_batch(&self, at: u32, members: &[Entry]) -> bool {
        let group = members.first().map(|first| first.group);
        let first = self.lanes.peek(at).filter(|first| Some(first.group) == group);
        first.is_some_and(|first| first.bypass.is_none() && self.is_free(first))
    }

    /// Takes a flow's first packet into the batch; false if it doesn't belong there, or finds no room.
    pub(super) fn gather_one(
        &mut self,
        common: &mut Common,
        now: Instant,
        at: u32,
        (members, bytes): (&mut Vec<Entry>, &mut u64),
        bytes_max: u64,
    ) -> bool {
        let Some(entry) = self.first(common, now, at) else { return false };
        let is_first = members.is_empty();
        let bytes_max = bytes_max.min(entry.batch_bytes_max.into());
        let fits =
            *bytes + u64::from(entry.bytes) <= bytes_max && members.len() < self.room.packets;
        let belongs = match is_first {
            true => self.is_free(&entry),
            false => fits && self.is_of_batch(at, members),
        };
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
    pub(super) fn start(
        &mut self,
        common: &mut Common,
        now: Instant,
        mut members: Vec<Entry>,
    ) -> bool {
        let Some(&first) = members.first() else { return false };
        members.remove(0);
        let mut unit = Unit {
            first,
            followers: members,
            bytes: 0,
            job: None,
            is_compressed: false,
            bypass: None,
            returned: false,
        };
        common.batch.extend(unit.packets().map(|packet| packet.id));
        self.chosen_packets += common.batch.len();
        let context = common.config.scheme.has_contexts().then_some(first.group);
        let action = common.begin_job(unit.original_bytes(), first.learned_as(), context);
        if let Action::Compress(job) = action {
            let expected_at = now + job.cost_ns;
            let done_at = now + job.cost_ns.saturating_add(self.late_ns);
            unit.job = Some(Running { id: job.id, expected_at, done_at });
            self.busy += 1;
            self.is_blocked = false;
            self.passes_at = self.done_at().map_or(done_at, |at| at.min(done_at)) + 1;
            self.job_cost_ns = job.cost_ns;
            self.held.spend(job.cost_ns);
        }
        self.next = Some(action);
        self.chosen.push_back(unit);
        true
    }
}

/// The bytes of a batch of at most `bytes` that arrives sooner for being compressed, with
/// `wait_bytes` before it; zero if none does.
pub(super) fn in_time(
    common: &mut Common,
    key: (u64, ClassKey),
    (bytes, wait_bytes): (u64, u64),
    rate: Rate,
) -> u64 {
    match needed(common, key, bytes, rate) {
        Some(needed) if needed <= wait_bytes => bytes,
        // The time that is missing grows with the batch, but for what each job takes in any case.
        Some(needed) => {
            let fixed_bytes = rate.bytes_in_ns(common.fixed_ns());
            let (wait, grows) =
                (wait_bytes.saturating_sub(fixed_bytes), needed.saturating_sub(fixed_bytes));
            if grows > wait { u128_ratio(bytes, wait, grows) } else { 0 }
        }
        None => 0,
    }
}

/// What has to be before a batch of `bytes`, in bytes, for it to have time; none if no time suffices.
pub(super) fn needed(
    common: &mut Common,
    key: (u64, ClassKey),
    bytes: u64,
    rate: Rate,
) -> Option<u64> {
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    let estimate = common.estimate(key.0, key.1, bytes);
    backlog_needed_bytes(bytes, estimate, rate)
}

/// Every packet of a batch is taken to have shrunk as the whole did.
pub(super) fn learn(common: &mut Common, unit: &Unit, (bytes, to_bytes): (u32, u32), took_ns: u64) {
    let total = u64::from(bytes.max(1));
    if common.learned.is_none() || total < TELLING_BYTES_MIN {
        return;
    }
    let took_ns = common.learn_job(bytes, took_ns);
    // One measurement counts once for each flow, however many of its packets are in the batch.
    let mut flows: Vec<((u64, ClassKey), u64)> = Vec::new();
    for packet in unit.packets() {
        let key = packet.learned_as();
        match flows.iter_mut().find(|(flow, _)| *flow == key) {
            Some((_, part)) => *part += u64::from(packet.bytes),
            None => flows.push((key, u64::from(packet.bytes))),
        }
    }
    for (key, part) in flows {
        let to = (part * u64::from(to_bytes) / total) as u32;
        common.learn(key, (part as u32, to), took_ns.saturating_mul(part) / total);
    }
}
