//! Chunking: packets wait for company until a frame is full or one of them can wait no longer.
//!
//! The schemes are those of Sawabe, Tsukamoto and Oie, "Efficient QoS-aware Packet Chunking
//! Scheme for M2M Cloud Services", section 4: BasiCQ ([`single`]), ChuMQ ([`buffers`]) and
//! ChuTQ ([`tandem`]), the latter two with or without their addition CEA.
//!
//! All have in common:
//! * A packet may be held for its W (`hold_ns`) from its arrival: until its *deadline*. It is
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
use super::{Outcome, PutBack};
use crate::account::{Bypass, Count, DropReason};
use crate::action::{Action, FrameUnit};
use crate::config::PortConfig;
use crate::packet::{Packet, PacketId};
use crate::scheme::{Queues, Trigger};
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
            arrived: now,
            deadline: now + packet.hold_ns,
        }
    }

    /// W: how long it may be held back.
    fn hold_ns(&self) -> u64 {
        self.deadline.since_ns(self.arrived)
    }
}

fn unit_bytes(common: &Common, bytes: u32, compressed: bool) -> u32 {
    u32::try_from(common.unit_bytes(bytes, compressed)).unwrap_or(u32::MAX)
}

/// The line of a port whose scheme is a chunking scheme.
#[derive(Clone, Debug)]
pub(super) struct Chunks {
    queues: ChunkQueues,
    /// The chunk that was sent last; its storage is used again.
    chunk: Chunk,
    limits: Limits,
    /// What waited when the configuration changed, perhaps more than would be let in now.
    kept: usize,
}

impl Chunks {
    pub(super) fn new() -> Self {
        // What is true of it comes with the configuration, before the first packet.
        let limits = Limits::NONE;
        let queues = ChunkQueues::new(&Queues::One, limits, false);
        Self { queues, chunk: Chunk::new(limits), limits, kept: 0 }
    }

    /// The configuration changed: queues what waits by the new rules.
    pub(super) fn recount(&mut self, common: &Common) {
        let scheme = &common.config.scheme;
        self.limits = limits(&common.config);
        let queues = ChunkQueues::new(&scheme.queues, self.limits, scheme.fill);
        self.chunk = Chunk::new(self.limits);
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
        let packets = self.queues.packets_before(packet.hold_ns);
        common.over_limit(Waiting { packets, bytes: self.queues.bytes() }, packet.bytes)
    }

    pub(super) fn arrive(&mut self, common: &mut Common, now: Instant, packet: &Packet) {
        common.accounts.bypass(bypass(packet.compressed));
        self.queues.arrive(now, Entry::new(common, now, packet));
    }

    /// Nothing is ever being compressed.
    pub(super) fn compressed(&self, _: &Common, _: PacketId, _: Outcome, _: u64) -> bool {
        false
    }

    /// Nothing is compressed here, so no compressed unit can come back.
    pub(super) fn put_back(&self, _: &Common, _: Instant, _: &PutBack<'_>) -> bool {
        false
    }

    /// Nothing is ever being compressed.
    pub(super) fn is_compressing(&self) -> bool {
        false
    }

    /// Nothing is ever being compressed.
    pub(super) fn compress_cost_ns(&self, _: &mut Common) -> u64 {
        0
    }

    pub(super) fn poll(&mut self, common: &mut Common, now: Instant) -> Option<Action> {
        if !common.link_idle || !self.queues.take(now, &mut self.chunk) {
            return None;
        }
        common.open_frame();
        let entries = self.chunk.entries();
        common.put_all(entries.iter().map(|entry| FrameUnit {
            id: entry.id,
            bytes: entry.bytes,
            original_bytes: entry.bytes,
            compressed_here: false,
            bypass: Some(bypass(entry.compressed)),
            followers: 0,
            sojourn_ns: now.since_ns(entry.arrived),
        }));
        let bytes = entries.iter().map(|entry| u64::from(entry.bytes)).sum();
        common.send_all_held(Count { packets: entries.len() as u64, bytes });
        if self.chunk.deadline() < now {
            let expired = entries.iter().filter(|entry| entry.deadline < now);
            for entry in expired.filter(|entry| entry.hold_ns() != Packet::NEVER_HELD) {
                common.accounts.late.add(now.since_ns(entry.deadline));
            }
        }
        let filling = Filling::of(self.chunk.bytes());
        common.close_frame(&filling, self.chunk.cause, self.chunk.buffer);
        Some(Action::Send)
    }

    /// When a free link that got nothing is to be asked for again.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.queues.next_deadline()
    }

    /// Drops everything.
    pub(super) fn clear(&mut self, common: &mut Common, free: &mut dyn FnMut(PacketId)) {
        self.queues.drain(|entry| {
            common.drop_held(DropReason::Cleared, entry.bytes);
            free(entry.id);
        });
    }

    /// Packets that wait; none for the CPU.
    pub(super) fn waiting(&self) -> (usize, usize) {
        (0, self.queues.packets())
    }

    /// Bytes of the units that wait for the link.
    pub(super) fn units_bytes(&self) -> u64 {
        self.queues.bytes()
    }

    /// What is held, counted again; verifies the rest.
    ///
    /// # Panics
    /// If an invariant is broken.
    pub(super) fn count(&self, common: &Common) -> Count {
        assert_eq!(self.limits, limits(&common.config), "limits of another configuration");
        self.queues.assert_invariants();
        let mut held = Count::default();
        self.queues.for_each(&mut |entry| {
            held.add(entry.bytes);
            let held_back = !common.link_idle || entry.hold_ns() != Packet::NEVER_HELD;
            assert!(held_back, "the link idles while {:?} waits", entry.id);
        });
        held
    }

    /// The most packets that may wait: in each queue, and in a chunk that is being made.
    pub(super) fn packets_max(&self, common: &Common) -> usize {
        let limit = common.config.limit.packets as usize;
        let queued = match common.config.scheme.queues {
            Queues::One => limit,
            Queues::PerClass(timers) => limit * (timers.as_slice().len() + 1),
            Queues::Tandem(timers, _) => {
                let chunk = self.limits.units_max.min(self.queues.packets());
                limit * (timers.as_slice().len() + 1) + chunk
            }
        };
        queued + self.kept
    }
}

/// Why a packet goes past the compressor: here nothing is compressed.
fn bypass(was_compressed: bool) -> Bypass {
    if was_compressed { Bypass::AlreadyCompressed } else { Bypass::Scheme }
}

/// How much goes into a chunk: what the scheme says, and no more than a frame takes.
fn limits(config: &PortConfig) -> Limits {
    let Trigger::Chunk { bytes_max } = config.scheme.trigger else { return Limits::NONE };
    let frame = &config.frame;
    Limits {
        bytes_max: u64::from(bytes_max.min(frame.units_bytes_max)),
        units_max: frame.units_max as usize,
        unit_bytes_named: frame.unit_bytes_named,
    }
}

#[cfg(test)]
mod tests;
