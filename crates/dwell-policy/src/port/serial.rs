//! Single packets, compressed or not before they reach the link: Fig. 1 of Shimamura et al.
//!
//! Packets wait in the CPU queue until the CPU takes them, are compressed or not, and wait in the
//! relay queue until the link takes them. Both queues are first in, first out, so that they are
//! kept as one: the relay queue is its front part, then comes the packet being compressed, if there
//! is one, then the CPU queue. A packet that goes from one to the next does not move.

use std::collections::VecDeque;

use dwell_base::Instant;

use super::common::{Common, Waiting};
use crate::account::{Bypass, Count, DropReason};
use crate::action::{Action, FrameUnit, SendCause};
use crate::event::{LostBatch, Outcome};
use crate::packet::{ClassKey, Packet, PacketId, learned_as};
use crate::scheme::{Queue, Select, When};
use crate::waiting_time::waiting_time_suffices;

#[derive(Clone, Copy, Debug)]
struct Entry {
    id: PacketId,
    original_bytes: u32,
    bytes: u32,
    class: ClassKey,
    flow: u64,
    arrived: Instant,
    bypass: Option<Bypass>,
    compressed_here: bool,
    compressed_before: bool,
}

impl Entry {
    fn is_compressed(&self) -> bool {
        self.compressed_here || self.compressed_before
    }

    /// The unit that it is in a frame.
    #[inline]
    fn unit(&self, now: Instant) -> FrameUnit {
        FrameUnit {
            id: self.id,
            bytes: self.bytes,
            original_bytes: self.original_bytes,
            compressed_here: self.compressed_here,
            bypass: self.bypass,
            followers: 0,
            sojourn_ns: now.since_ns(self.arrived),
        }
    }
}

/// A CPU queue, a compression and a relay queue.
#[derive(Clone, Debug)]
pub(super) struct Serial {
    queue: VecDeque<Entry>,
    /// The length of the relay queue.
    ready: usize,
    /// The entry behind the relay queue is being compressed.
    compressing: bool,
    /// Bytes waiting in the CPU queue.
    cpu_bytes: u64,
    /// Bytes waiting in the relay queue, headers of units included.
    ready_bytes: u64,
}

impl Serial {
    pub(super) fn new() -> Self {
        Self {
            queue: VecDeque::with_capacity(256),
            ready: 0,
            compressing: false,
            cpu_bytes: 0,
            ready_bytes: 0,
        }
    }

    /// The frame's costs changed.
    pub(super) fn recount(&mut self, common: &Common) {
        let relay = self.queue.iter().take(self.ready);
        self.ready_bytes = relay.map(|e| common.unit_bytes(e.bytes, e.is_compressed())).sum();
    }

    pub(super) fn over_limit(&self, common: &Common, packet: &Packet) -> Option<DropReason> {
        let waiting = if common.config.scheme.queue == Queue::One {
            let bytes = self.cpu_bytes + self.ready_bytes;
            Waiting { packets: self.cpu_len() + self.ready, bytes }
        } else if packet.compressed {
            Waiting { packets: self.ready, bytes: self.ready_bytes }
        } else {
            Waiting { packets: self.cpu_len(), bytes: self.cpu_bytes }
        };
        common.over_limit(waiting, packet.bytes)
    }

    #[inline]
    pub(super) fn arrive(&mut self, common: &mut Common, now: Instant, packet: &Packet) {
        let (flow, class) = learned_as(packet.flow, packet.service(), packet.looks_random);
        let entry = Entry {
            id: packet.id,
            original_bytes: packet.bytes,
            bytes: packet.bytes,
            class,
            flow,
            arrived: now,
            bypass: common.fixed_bypass(packet),
            compressed_here: false,
            compressed_before: packet.compressed,
        };
        if packet.compressed && common.config.scheme.queue == Queue::CpuAndLink {
            common.accounts.bypass(entry.bypass.unwrap_or(Bypass::AlreadyCompressed));
            self.ready_bytes += common.unit_bytes(entry.bytes, true);
            self.queue.insert(self.ready, entry);
            self.ready += 1;
        } else {
            self.cpu_bytes += u64::from(packet.bytes);
            self.queue.push_back(entry);
        }
    }

    /// Puts a unit at the head, if it is a single packet: there are no blocks here.
    pub(super) fn put_back(&mut self, common: &Common, now: Instant, unit: &LostBatch<'_>) -> bool {
        let [packet] = unit.packets else { return false };
        let waiting = Waiting { packets: self.ready, bytes: self.ready_bytes };
        if common.over_limit(waiting, unit.bytes).is_some() {
            return false;
        }
        self.ready_bytes += common.unit_bytes(unit.bytes, true);
        self.queue.push_front(Entry {
            id: packet.id,
            original_bytes: packet.original_bytes,
            bytes: unit.bytes,
            class: ClassKey::default(),
            flow: 0,
            arrived: now.before_ns(packet.sojourn_ns),
            bypass: Some(Bypass::AlreadyCompressed),
            compressed_here: true,
            compressed_before: false,
        });
        self.ready += 1;
        true
    }

    /// The packet behind the relay queue came out of the compressor.
    pub(super) fn compressed(&mut self, common: &mut Common, outcome: Outcome, took_ns: u64) {
        let Some(entry) = self.queue.get_mut(self.ready) else { return };
        let smaller = common.book_compress(outcome, (1, entry.bytes), took_ns);
        let to_bytes = smaller.unwrap_or(entry.bytes);
        if outcome.is_telling() {
            common.learn((entry.flow, entry.class), (entry.bytes, to_bytes), took_ns);
        }
        entry.bytes = to_bytes;
        entry.compressed_here = smaller.is_some();
        self.compressing = false;
        self.move_to_relay(common);
    }

    #[inline]
    pub(super) fn poll(&mut self, common: &mut Common, now: Instant) -> Option<Action> {
        loop {
            if let Some(drop) = common.next_drop() {
                return Some(drop);
            }
            // The link first: what it takes now is on the wire, and no longer ahead of the
            // packets that the compressor decides about.
            if common.link_idle && self.ready > 0 {
                self.fill_frame(common, now);
                return Some(Action::Send);
            }
            if self.compressing {
                return None;
            }
            let entry = self.queue.get_mut(self.ready)?;
            let (id, bytes) = (entry.id, entry.bytes);
            let bypass = bypass(common, now, entry, self.ready_bytes);
            entry.bypass = bypass;
            self.cpu_bytes -= u64::from(bytes);
            if let Some(reason) = bypass {
                common.accounts.bypass(reason);
                self.move_to_relay(common);
            } else {
                self.compressing = true;
                let key = (entry.flow, entry.class);
                common.batch.push(id);
                return Some(common.begin_job(bytes, key, None));
            }
        }
    }

    /// Moves the first entry behind the relay queue into it, or drops it if each queue has a limit
    /// for itself and there is no room.
    #[inline]
    fn move_to_relay(&mut self, common: &mut Common) {
        let Some(entry) = self.queue.get(self.ready) else { return };
        let own_limit = common.config.scheme.queue == Queue::CpuAndLink;
        let limit = common.config.limit.packets as usize;
        if own_limit && self.ready > 0 && self.ready + 1 >= limit {
            let Some(entry) = self.queue.remove(self.ready) else { return };
            common.drop_held(DropReason::QueuePackets, entry.original_bytes);
            common.dropped.push_back((entry.id, DropReason::QueuePackets));
            return;
        }
        self.ready_bytes += common.unit_bytes(entry.bytes, entry.is_compressed());
        self.ready += 1;
    }

    #[inline]
    fn fill_frame(&mut self, common: &mut Common, now: Instant) {
        if common.config.frame.units_max == 1 {
            return self.send_first(common, now);
        }
        let mut filling = common.open_frame();
        while self.ready > 0 {
            let Some(entry) = self.queue.front() else { break };
            let unit_bytes = common.unit_bytes(entry.bytes, entry.is_compressed());
            if !filling.admit(common, unit_bytes) {
                break;
            }
            common.put(entry.unit(now));
            common.send_held(entry.original_bytes);
            self.queue.pop_front();
            self.ready -= 1;
        }
        self.ready_bytes -= common.close_frame(&filling, SendCause::Ready, 0);
    }

    /// The same where frames are of one unit, as on the links of most simulations.
    #[inline]
    fn send_first(&mut self, common: &mut Common, now: Instant) {
        let Some(entry) = self.queue.pop_front() else { return };
        let unit_bytes = common.unit_bytes(entry.bytes, entry.is_compressed());
        self.ready -= 1;
        self.ready_bytes -= unit_bytes;
        common.send_held(entry.original_bytes);
        common.send_alone(entry.unit(now), unit_bytes);
    }

    /// Drops all but the packet being compressed.
    pub(super) fn clear(&mut self, common: &mut Common, free: &mut dyn FnMut(PacketId)) {
        let being_compressed = if self.compressing { self.queue.remove(self.ready) } else { None };
        for entry in self.queue.drain(..) {
            common.drop_held(DropReason::Cleared, entry.original_bytes);
            free(entry.id);
        }
        self.queue.extend(being_compressed);
        (self.ready, self.cpu_bytes, self.ready_bytes) = (0, 0, 0);
    }

    /// Packets waiting for the CPU, and for the link.
    #[inline]
    pub(super) fn waiting(&self) -> (usize, usize) {
        (self.cpu_len(), self.ready)
    }

    /// Bytes of the units that wait for the link.
    pub(super) fn units_bytes(&self) -> u64 {
        self.ready_bytes
    }

    fn cpu_len(&self) -> usize {
        self.queue.len() - self.ready - usize::from(self.compressing)
    }

    /// Counts the held packets again; verifies the rest.
    ///
    /// # Panics
    /// If an invariant is broken.
    pub(super) fn count(&self, common: &Common) -> Count {
        let mut held = Count::default();
        for entry in &self.queue {
            held.add(entry.original_bytes);
            assert!(!(entry.compressed_here && entry.compressed_before), "compressed twice");
        }
        let waits = self.queue.iter().skip(self.ready + usize::from(self.compressing));
        let cpu: u64 = waits.map(|e| u64::from(e.bytes)).sum();
        let relay = self.queue.iter().take(self.ready);
        let relay: u64 = relay.map(|e| common.unit_bytes(e.bytes, e.is_compressed())).sum();
        assert_eq!((cpu, relay), (self.cpu_bytes, self.ready_bytes), "bytes are miscounted");
        assert!(!common.link_idle || self.ready == 0, "the link idles for nothing");
        assert!(self.compressing || self.cpu_len() == 0, "the CPU idles");
        held
    }

    /// The most packets that may wait.
    pub(super) fn packets_max(&self, common: &Common) -> usize {
        let queues = if common.config.scheme.queue == Queue::CpuAndLink { 2 } else { 1 };
        common.config.limit.packets as usize * queues
    }
}

/// Why the packet at the head of the CPU queue is not to be compressed, if so.
fn bypass(common: &mut Common, now: Instant, entry: &Entry, ready_bytes: u64) -> Option<Bypass> {
    let Select::Each(when) = common.config.scheme.select else { return Some(Bypass::Scheme) };
    if entry.bypass.is_some() {
        return entry.bypass;
    }
    let key = (entry.flow, entry.class);
    let suffices =
        |common: &mut Common| common.cpu_share.allows(now) && has_time(common, entry, ready_bytes);
    if when == When::WaitingTime && !suffices(common) {
        // A link that is never busy has no use for smaller packets.
        let explores = common.config.rate.is_some() && common.explore(now, key);
        return (!explores).then_some(Bypass::NoTime);
    }
    // The back-off has rare tries of its own.
    (!common.may_try(key.0, key.1)).then_some(Bypass::BackOff)
}

fn has_time(common: &mut Common, entry: &Entry, ready_bytes: u64) -> bool {
    let Some(rate) = common.config.rate else { return false };
    let estimate = common.estimate(entry.flow, entry.class, entry.bytes);
    let backlog_bytes = common.wait_bytes(ready_bytes);
    waiting_time_suffices(backlog_bytes, entry.bytes, estimate, rate)
}
