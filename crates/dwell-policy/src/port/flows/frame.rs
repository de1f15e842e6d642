//! What a frame is filled with: what goes at once, what was chosen, what is to go raw.

use dwell_base::Instant;

use super::batch::Choice;
use super::unit::{raw_unit, unit_bytes};
use super::{ALONE_BYTES_MIN, Flows};
use crate::account::Bypass;
use crate::action::{Action, FramePacket, FrameUnit, SendCause};
use crate::estimate::Estimate;
use crate::port::common::{Common, Filling};
use crate::waiting_time::gained_ns;

/// Packets of flows that have just begun go at once if the link sends them all in this time.
const SPARSE_NS: u64 = 2_000_000;

impl Flows {
    /// Makes a frame of what goes at once, of what was chosen, and of what is to go raw; false if
    /// there is nothing for it.
    pub(super) fn fill_frame(&mut self, common: &mut Common, now: Instant) -> bool {
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
    pub(super) fn is_last(&mut self, common: &mut Common, now: Instant) -> bool {
        if self.busy > 0 {
            return self.done_at().is_some_and(|at| now > at);
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
    pub(super) fn at_once(&mut self, common: &Common) -> Option<u32> {
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
    pub(super) fn has_chosen(&self, flow: u64) -> bool {
        self.chosen.iter().any(|unit| unit.packets().any(|packet| packet.flow == flow))
    }

    /// The flow whose packet goes raw now, and why.
    pub(super) fn raw_next(&mut self, common: &mut Common, now: Instant) -> Option<(u32, Bypass)> {
        if !self.has_slot() {
            // Others need not wait for what comes out of the compressor, but may for their turn.
            let at = self.beside_in_turn()?;
            return self.raw_beside(common, now, at).map(|reason| (at, reason));
        }
        let at = self.turn(false)?;
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

    /// A flow that need not wait for what is being compressed: its first packet is of another group, and
    /// nothing of it is in those batches.
    pub(super) fn beside(&self) -> Option<u32> {
        self.lanes.find(|entry| self.is_free(entry))
    }

    /// That of them whose turn it is; first those whose packets go raw anyhow: they have nothing to wait for, whatever others do.
    fn beside_in_turn(&mut self) -> Option<u32> {
        if self.is_blocked {
            return None;
        }
        let raw = match self.lanes.has_raw() {
            true => self.next_free(false, |entry| entry.bypass.is_some()),
            false => None,
        };
        let found = raw.or_else(|| self.next_free(false, |_| true));
        self.is_blocked = found.is_none();
        found
    }

    /// When the first of the batches that are being compressed should be done.
    pub(super) fn done_at(&self) -> Option<Instant> {
        self.compressing().filter_map(|unit| unit.job).map(|job| job.done_at).min()
    }

    /// Why a flow's first packet goes raw while a batch of another group is being compressed; none if
    /// it arrives sooner after waiting for that and being compressed itself.
    ///
    /// A batch is about as often a little late as a little early, and a packet that goes raw meanwhile keeps the
    /// link for several times as long as it would. So what is late already is taken to need as long again.
    pub(super) fn raw_beside(
        &mut self,
        common: &mut Common,
        now: Instant,
        at: u32,
    ) -> Option<Bypass> {
        let entry = self.first(common, now, at)?;
        if entry.bypass.is_some() {
            return entry.bypass;
        }
        let Some(rate) = common.config.rate else { return Some(Bypass::NoTime) };
        let (flow, class) = entry.learned_as();
        let Estimate { ratio, cost_ns } = common.estimate(flow, class, entry.bytes);
        let wait_bytes = common.wait_bytes(self.ready_bytes).max(common.link.given_bytes);
        let gained_ns = gained_ns(wait_bytes, entry.bytes, ratio, rate);
        let patience_ns = gained_ns.saturating_sub(cost_ns);
        let expected = self.compressing().filter_map(|unit| unit.job).map(|job| job.expected_at);
        let (Some(done_at), Some(expected_at)) = (self.done_at(), expected.min()) else {
            return Some(Bypass::NoTime);
        };
        let left_ns = expected_at.since_ns(now).max(now.since_ns(expected_at));
        if left_ns >= patience_ns {
            return Some(Bypass::NoTime);
        }
        let passes_at = expected_at + patience_ns;
        // Where frames wait for the batch it is asked again only then.
        let asked_at = if self.held.gathers() { done_at + 1 } else { passes_at };
        self.passes_at = passes_at.max(asked_at);
        None
    }

    /// Puts the first packet of a flow into the frame; false if that is full.
    pub(super) fn send_raw(
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
        self.is_blocked = false;
        self.lanes.charge(at, unit_bytes);
        let reason = entry.bypass.unwrap_or(reason);
        common.accounts.bypass(reason);
        common.send_held(entry.bytes);
        common.put(raw_unit(&entry, Some(reason), now));
        self.sent.add(entry.bytes, entry.bytes);
        true
    }

    /// The unit that the link may take next: nothing was chosen that must wait for what is being compressed before it.
    pub(super) fn sendable(&self) -> Option<usize> {
        if self.chosen.len() == self.busy {
            return None;
        }
        self.chosen.iter().position(|unit| !unit.is_compressing())
    }

    /// Moves a unit that was chosen to the frame.
    pub(super) fn send_chosen(&mut self, common: &mut Common, now: Instant, at: usize) {
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
}

/// What flows that have just begun may send at once, in bytes.
pub(super) fn sparse_bytes(common: &Common) -> u64 {
    let frames = 2 * u64::from(common.config.frame.units_bytes_max);
    common.config.rate.map_or(frames, |rate| rate.bytes_in_ns(SPARSE_NS).max(frames))
}
