//! Chunking: packets wait for company until a frame is full or one of them can wait no longer.
//!
//! The schemes are those of Sawabe, Tsukamoto and Oie, "Efficient QoS-aware Packet Chunking
//! Scheme for M2M Cloud Services", section 4: BasiCQ ([`single`]), ChuMQ ([`buffers`]) and
//! ChuTQ ([`tandem`]), the latter two with or without their addition CEA.
//!
//! All have in common:
//! * A packet may be held for its W (`max_wait_ns`) from its arrival: until its *deadline*. It is
//!   in time if its frame starts no later than that.
//! * A chunk is made when the link is free, never before, of packets from the heads of queues,
//!   as many as fit. A packet that is larger than any frame goes alone.
//! * What is queued must *exceed* the size of a frame to make it due, Eq. (2); a queue that
//!   would fill a frame exactly still waits for its timer.
//! * A packet whose W is zero has no class and is never held: while one waits, a free link
//!   always gets a frame. Where there are queues for classes, such packets have one of their
//!   own, the last, whose timer is zero. How it ranks is said with each scheme.
//! * Order is kept among packets of equal W. So order within a flow is kept as long as all its
//!   packets get the same W, which is for the driver's classification to see to.
//!
//! Arithmetic is on whole nanoseconds and bytes and exact.

mod alpha;
mod buffers;
mod fifo;
mod queues;
mod single;
mod tandem;

use dwell_base::Instant;

use super::common::{Common, Filling, Waiting};
use crate::account::{Bypass, Count, DropReason};
use crate::action::{Action, FramePacket, FrameUnit, Job};
use crate::config::PortConfig;
use crate::event::{LostBatch, Outcome};
use crate::packet::{ClassKey, Packet, PacketId, learned_as};
use crate::scheme::{Queue, Release, Select};
use crate::waiting_time::waiting_time_suffices;
use fifo::{Chunk, Limits};
use queues::ChunkQueues;

/// A packet that waits to be chunked.
#[derive(Clone, Copy, Debug)]
struct Entry {
    id: PacketId,
    /// Its bytes without any header of the frame format.
    bytes: u32,
    /// Its bytes in a frame, with its own header.
    unit_bytes: u32,
    /// It was compressed upstream.
    compressed: bool,
    /// Why its frame must not be compressed, if so.
    bypass: Option<Bypass>,
    looks_random: bool,
    arrived: Instant,
    /// Its arrival + W.
    deadline: Instant,
}

impl Entry {
    fn new(common: &Common, now: Instant, packet: &Packet) -> Self {
        Self {
            id: packet.id,
            bytes: packet.bytes,
            unit_bytes: unit_bytes(common, packet.bytes, packet.compressed),
            compressed: packet.compressed,
            // In company even small ones are worth it.
            bypass: common.fixed_bypass(packet).filter(|&reason| reason != Bypass::TooSmall),
            looks_random: packet.looks_random,
            arrived: now,
            deadline: now + packet.max_wait_ns,
        }
    }

    /// Why it is not compressed, if its frame is not for this reason.
    fn bypass_for(&self, reason: Bypass) -> Bypass {
        match self.bypass {
            // Where nothing is compressed, exceptions are none.
            Some(own) if self.compressed || reason != Bypass::Scheme => own,
            _ => reason,
        }
    }

    /// W: how long it may be held back.
    fn max_wait_ns(&self) -> u64 {
        self.deadline.since_ns(self.arrived)
    }
}

fn unit_bytes(common: &Common, bytes: u32, compressed: bool) -> u32 {
    u32::try_from(common.unit_bytes(bytes, compressed)).unwrap_or(u32::MAX)
}

/// A frame that was taken from the queues to be compressed as a whole. The link waits for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Taken {
    /// There is none.
    #[default]
    None,
    /// It is being compressed.
    Compressing,
    /// It was compressed to this many bytes, or without gain, and is sent next.
    Compressed(Option<u32>),
}

/// The store of a port whose scheme fills frames.
#[derive(Clone, Debug)]
pub(super) struct Chunks {
    queues: ChunkQueues,
    /// The chunk that was taken last; its storage is used again.
    chunk: Chunk,
    taken: Taken,
    limits: Limits,
    /// The packets that waited when the configuration changed, perhaps more than would be let in
    /// now.
    kept: usize,
}

impl Chunks {
    pub(super) fn new() -> Self {
        // What is true of it comes with the configuration, before the first packet.
        let limits = Limits::NONE;
        let queues = ChunkQueues::new(&Queue::One, limits, false);
        Self { queues, chunk: Chunk::new(limits), taken: Taken::None, limits, kept: 0 }
    }

    /// The configuration changed: queues what waits by the new rules.
    pub(super) fn recount(&mut self, common: &Common) {
        let scheme = &common.config.scheme;
        self.limits = limits(&common.config);
        let fill = matches!(scheme.release, Release::Full { fill: true, .. });
        let queues = ChunkQueues::new(&scheme.queue, self.limits, fill);
        if self.taken == Taken::None {
            self.chunk = Chunk::new(self.limits);
        }
        self.kept = self.queues.packets();
        let mut before = std::mem::replace(&mut self.queues, queues);
        before.drain(|mut entry| {
            entry.unit_bytes = unit_bytes(common, entry.bytes, entry.compressed);
            self.queues.arrive(entry.arrived, entry);
        });
    }

    /// Tail drop: each queue has the limit of packets for itself, as each buffer of the paper;
    /// the limits of bytes and time are for all together.
    pub(super) fn over_limit(&self, common: &Common, packet: &Packet) -> Option<DropReason> {
        let packets = self.queues.packets_before(packet.max_wait_ns);
        common.over_limit(Waiting { packets, bytes: self.queues.bytes() }, packet.bytes)
    }

    pub(super) fn arrive(&mut self, common: &mut Common, now: Instant, packet: &Packet) {
        self.queues.arrive(now, Entry::new(common, now, packet));
    }

    /// The frame came out of the compressor.
    pub(super) fn compressed(&mut self, common: &mut Common, outcome: Outcome, took_ns: u64) {
        let entries = self.chunk.entries();
        let (packets, bytes) = (entries.len() as u32, entries.iter().map(|e| e.bytes).sum());
        let smaller = common.book_compress(outcome, (packets, bytes), took_ns);
        if outcome.is_telling() {
            common.learn(self.learned_as(), (bytes, smaller.unwrap_or(bytes)), took_ns);
        }
        self.taken = Taken::Compressed(smaller);
    }

    /// Frames compressed as a whole can't come back: their packets may not be held any longer.
    pub(super) fn put_back(&self, _: &Common, _: Instant, _: &LostBatch<'_>) -> bool {
        false
    }

    pub(super) fn poll(&mut self, common: &mut Common, now: Instant) -> Option<Action> {
        if !common.link_idle || self.taken == Taken::Compressing {
            return None;
        }
        if let Taken::Compressed(to_bytes) = std::mem::take(&mut self.taken) {
            self.send(common, now, |_| None, to_bytes);
            return Some(Action::Send);
        }
        if !self.queues.take(now, &mut self.chunk) {
            return None;
        }
        match self.frame_bypass(common, now) {
            None => Some(self.start(common)),
            Some(reason) => {
                self.send(common, now, |entry| Some(entry.bypass_for(reason)), None);
                Some(Action::Send)
            }
        }
    }

    /// Why the chunk is not to be compressed as a whole, if so: with nothing ahead of it in the port, by
    /// Eq. (2) of Shimamura et al., it must leave the link no later than uncompressed.
    fn frame_bypass(&self, common: &mut Common, now: Instant) -> Option<Bypass> {
        if common.config.scheme.select != Select::Frame {
            return Some(Bypass::Scheme);
        }
        let Some(rate) = common.config.rate else { return Some(Bypass::NoTime) };
        let entries = self.chunk.entries();
        let bytes: u32 = entries.iter().map(|entry| entry.bytes).sum();
        if entries.len() < 2 || entries.iter().any(|entry| entry.bypass.is_some()) {
            return Some(Bypass::NoBlock);
        }
        if bytes < common.config.compress_bytes_min {
            return Some(Bypass::TooSmall);
        }
        let key @ (flow, class) = self.learned_as();
        if !common.may_try(flow, class) {
            return Some(Bypass::BackOff);
        }
        let estimate = common.estimate(flow, class, bytes);
        let suffices = common.cpu_share.allows(now)
            && waiting_time_suffices(common.wait_bytes(0), bytes, estimate, rate);
        (!suffices && !common.explore(now, key)).then_some(Bypass::NoTime)
    }

    /// Returns the key under which the chunk's results are learned: apart if most of it looks
    /// random.
    fn learned_as(&self) -> (u64, ClassKey) {
        let sum = |random| {
            let entries = self.chunk.entries().iter().filter(|entry| entry.looks_random == random);
            entries.map(|entry| u64::from(entry.bytes)).sum::<u64>()
        };
        let (flow, class) = Common::FRAMES;
        learned_as(flow, class, sum(true) > sum(false))
    }

    /// Gives the chunk to the compressor.
    fn start(&mut self, common: &mut Common) -> Action {
        let entries = self.chunk.entries();
        common.batch.extend(entries.iter().map(|entry| entry.id));
        let bytes = entries.iter().map(|entry| entry.bytes).sum();
        self.taken = Taken::Compressing;
        match common.begin_job(bytes, self.learned_as(), None) {
            Action::Compress(job) => Action::Compress(Job { is_urgent: true, ..job }),
            other => other,
        }
    }

    /// Makes a frame of the chunk: of its packets, or of what they were compressed to.
    fn send(
        &self,
        common: &mut Common,
        now: Instant,
        bypass: impl Fn(&Entry) -> Option<Bypass>,
        to_bytes: Option<u32>,
    ) {
        common.open_frame();
        let entries = self.chunk.entries();
        let bytes: u64 = entries.iter().map(|entry| u64::from(entry.bytes)).sum();
        let units_bytes = match (to_bytes, entries.split_first()) {
            (Some(to_bytes), Some((first, followers))) => {
                common.put(FrameUnit {
                    id: first.id,
                    bytes: to_bytes,
                    original_bytes: bytes as u32,
                    compressed_here: true,
                    bypass: None,
                    followers: followers.len() as u32,
                    sojourn_ns: now.since_ns(first.arrived),
                });
                common.frame.followers.extend(followers.iter().map(|entry| FramePacket {
                    id: entry.id,
                    original_bytes: entry.bytes,
                    sojourn_ns: now.since_ns(entry.arrived),
                }));
                common.unit_bytes(to_bytes, true)
            }
            _ => {
                common.put_all(entries.iter().map(|entry| FrameUnit {
                    id: entry.id,
                    bytes: entry.bytes,
                    original_bytes: entry.bytes,
                    compressed_here: false,
                    bypass: bypass(entry),
                    followers: 0,
                    sojourn_ns: now.since_ns(entry.arrived),
                }));
                for entry in entries {
                    if let Some(reason) = bypass(entry) {
                        common.accounts.bypass(reason);
                    }
                }
                self.chunk.bytes()
            }
        };
        common.send_all_held(Count { packets: entries.len() as u64, bytes });
        if self.chunk.deadline() < now {
            let expired = entries.iter().filter(|entry| entry.deadline < now);
            for entry in expired.filter(|entry| entry.max_wait_ns() != Packet::NEVER_HELD) {
                common.accounts.late.add(now.since_ns(entry.deadline));
            }
        }
        let filling = Filling::of(units_bytes);
        common.close_frame(&filling, self.chunk.cause, self.chunk.buffer);
    }

    /// Packets that were taken to be compressed, and their bytes with their headers.
    fn taken(&self) -> &[Entry] {
        if self.taken == Taken::None { &[] } else { self.chunk.entries() }
    }

    /// When a free link that got nothing is to be asked for again.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        if self.taken == Taken::None { self.queues.next_deadline() } else { None }
    }

    /// Drops all but what is being compressed.
    pub(super) fn clear(&mut self, common: &mut Common, free: &mut dyn FnMut(PacketId)) {
        if let Taken::Compressed(_) = self.taken {
            self.taken = Taken::None;
            for entry in self.chunk.entries() {
                common.drop_held(DropReason::Cleared, entry.bytes);
                free(entry.id);
            }
        }
        self.queues.drain(|entry| {
            common.drop_held(DropReason::Cleared, entry.bytes);
            free(entry.id);
        });
    }

    /// Packets that wait; none for the CPU.
    pub(super) fn waiting(&self) -> (usize, usize) {
        (0, self.queues.packets() + self.taken().len())
    }

    /// Bytes of the units that wait for the link.
    pub(super) fn units_bytes(&self) -> u64 {
        self.queues.bytes()
    }

    /// Counts the held packets again; verifies the rest.
    ///
    /// # Panics
    /// If an invariant is broken.
    pub(super) fn count(&self, common: &Common) -> Count {
        assert_eq!(self.limits, limits(&common.config), "limits of another configuration");
        self.queues.assert_invariants();
        let mut held = Count::default();
        let waits_for_frame = self.taken != Taken::None;
        self.taken().iter().for_each(|entry| held.add(entry.bytes));
        self.queues.for_each(&mut |entry| {
            held.add(entry.bytes);
            let may_wait = waits_for_frame || entry.max_wait_ns() != Packet::NEVER_HELD;
            let held_back = !common.link_idle || may_wait;
            assert!(held_back, "the link idles while {:?} waits", entry.id);
        });
        held
    }

    /// The most packets that may wait: in each queue, and in a chunk that is being made.
    pub(super) fn packets_max(&self, common: &Common) -> usize {
        let limit = common.config.limit.packets as usize;
        let queued = match common.config.scheme.queue {
            Queue::One | Queue::CpuAndLink | Queue::Flows(_) => limit,
            Queue::PerClass(timers) => limit * (timers.as_slice().len() + 1),
            Queue::Tandem(timers, _) => {
                let chunk = self.limits.units_max.min(self.queues.packets());
                limit * (timers.as_slice().len() + 1) + chunk
            }
        };
        queued + self.kept + self.taken().len()
    }
}

/// Returns the limits of a chunk: the scheme's, and no more than a frame takes.
fn limits(config: &PortConfig) -> Limits {
    let Release::Full { bytes_max, .. } = config.scheme.release else { return Limits::NONE };
    let frame = &config.frame;
    Limits {
        bytes_max: u64::from(bytes_max.min(frame.units_bytes_max)),
        units_max: frame.units_max as usize,
        unit_bytes_named: frame.unit_bytes_named,
    }
}

#[cfg(test)]
mod tests;
