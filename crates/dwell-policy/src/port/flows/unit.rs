//! Packets, and what they are sent as.

use dwell_base::Instant;

use crate::account::Bypass;
use crate::action::{FrameUnit, JobId};
use crate::packet::{ClassKey, PacketId, learned_as};
use crate::port::common::Common;

/// What was sent counts for half, once it is this much.
pub(super) const RATIO_BYTES: u64 = 1 << 18;

/// A packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) id: PacketId,
    pub(super) bytes: u32,
    pub(super) class: ClassKey,
    pub(super) flow: u64,
    pub(super) group: u64,
    pub(super) arrived: Instant,
    /// The most bytes of its batch.
    pub(super) batch_bytes_max: u32,
    /// Why it is not compressed, if that is known already.
    pub(super) bypass: Option<Bypass>,
    pub(super) looks_random: bool,
    pub(super) takes_mark: bool,
    /// It was compressed upstream.
    pub(super) compressed_before: bool,
    /// It was asked whether it has waited for too long.
    pub(super) was_seen: bool,
    /// What the back-off said of it, if that was asked: it counts who asks.
    pub(super) may_try: Option<bool>,
}

impl Entry {
    pub(super) fn learned_as(&self) -> (u64, ClassKey) {
        learned_as(self.flow, self.class, self.looks_random)
    }
}

/// A job under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    pub(super) id: JobId,
    /// When it is expected to be done, ...
    pub(super) expected_at: Instant,
    /// ... and when it should be if it is as late as batches are at worst.
    pub(super) done_at: Instant,
}

/// What was chosen to be sent: a packet or a batch.
#[derive(Clone, Debug)]
pub(super) struct Unit {
    pub(super) first: Entry,
    pub(super) followers: Vec<Entry>,
    /// As it would be sent now.
    pub(super) bytes: u32,
    /// The job that compresses it at present.
    pub(super) job: Option<Running>,
    pub(super) is_compressed: bool,
    /// Why it went past the compressor.
    pub(super) bypass: Option<Bypass>,
    /// It came back.
    pub(super) returned: bool,
}

impl Unit {
    pub(super) fn packets(&self) -> impl Iterator<Item = &Entry> {
        std::iter::once(&self.first).chain(&self.followers)
    }

    /// True if it is being compressed.
    pub(super) const fn is_compressing(&self) -> bool {
        self.job.is_some()
    }

    /// True if this packet must not pass it: a group is compressed in its order, and a flow keeps its own.
    pub(super) fn is_before(&self, entry: &Entry) -> bool {
        self.first.group == entry.group || self.packets().any(|packet| packet.flow == entry.flow)
    }

    pub(super) fn original_bytes(&self) -> u32 {
        self.packets().map(|packet| packet.bytes).sum()
    }

    /// A packet that goes as it is.
    pub(super) fn raw(entry: Entry, followers: Vec<Entry>) -> Self {
        Self {
            first: entry,
            followers,
            bytes: entry.bytes,
            job: None,
            is_compressed: false,
            bypass: None,
            returned: false,
        }
    }
}

/// Bytes before compression and after, of late.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shrunk {
    pub(super) before: u64,
    pub(super) after: u64,
}

impl Shrunk {
    pub(super) fn add(&mut self, before: u32, after: u32) {
        self.before += u64::from(before);
        self.after += u64::from(after);
        if self.before > RATIO_BYTES {
            (self.before, self.after) = (self.before / 2, self.after.div_ceil(2));
        }
    }

    /// What `bytes` become.
    pub(super) fn shrink(&self, bytes: u64) -> u64 {
        if self.before == 0 { bytes } else { u128_ratio(bytes, self.after, self.before) }
    }

    /// What becomes `bytes`.
    pub(super) fn grow(&self, bytes: u64) -> u64 {
        if self.after == 0 { bytes } else { u128_ratio(bytes, self.before, self.after) }
    }
}

pub(super) fn unit_bytes(common: &Common, unit: &Unit) -> u64 {
    common.unit_bytes(unit.bytes, unit.is_compressed || unit.first.compressed_before)
}

pub(super) fn raw_unit(entry: &Entry, bypass: Option<Bypass>, now: Instant) -> FrameUnit {
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

/// `value` · `times` / `by`, which fits: the ratio is one of two sums of bytes.
pub(super) fn u128_ratio(value: u64, times: u64, by: u64) -> u64 {
    let product = u128::from(value) * u128::from(times);
    u64::try_from(product / u128::from(by.max(1))).unwrap_or(u64::MAX)
}
