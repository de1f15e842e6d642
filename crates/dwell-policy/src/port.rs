//! One output port: the queues in front of a link, and the compressor beside them.
//!
//! This file is what all schemes share: events, admission, accounts. How packets wait, and
//! which of them are compressed, is the matter of the port's *line*: [`serial`] for single packets,
//! [`blocks`] for packets that are compressed together, [`chunks`] for packets that are held back
//! to fill frames.

mod blocks;
mod chunks;
mod common;
mod serial;

use dwell_base::{Instant, Rate};

use crate::account::{Accounts, DropReason};
use crate::action::{Action, Frame, FramePacket};
use crate::config::{ConfigError, LineKind, PortConfig};
use crate::estimate::{Estimate, Estimates, Learned, Ratio};
use crate::packet::{ClassKey, Packet, PacketId};
use crate::waiting_time::waiting_time_suffices;
use blocks::Blocks;
use chunks::Chunks;
use common::Common;
use serial::Serial;

/// What became of a packet that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a dropped packet's storage is the driver's to free"]
pub enum Admission {
    /// The port has it.
    Queued,
    /// It was dropped; no action will speak of it.
    Dropped(DropReason),
}

/// What came out of the compressor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The packet or block became smaller: this many bytes without any header. It must
    /// [gain](crate::FrameCost::gains) with its headers too; otherwise the originals are sent.
    Smaller(u32),
    /// It did not become smaller; the originals are to be sent.
    NotSmaller,
    /// The codec failed; the originals are to be sent.
    Failed,
}

/// A compressed unit that was lost on the way, and comes back to be sent again.
#[derive(Clone, Copy, Debug)]
pub struct PutBack<'a> {
    /// Its packets; the first names it. Their sojourn times go on from what is reported here.
    pub packets: &'a [FramePacket],
    /// Its bytes, compressed.
    pub bytes: u32,
}

/// How packets wait.
#[derive(Clone, Debug)]
enum Line {
    Serial(Serial),
    Blocks(Box<Blocks>),
    Chunks(Box<Chunks>),
}

impl Line {
    fn new(kind: LineKind) -> Self {
        match kind {
            LineKind::Serial => Self::Serial(Serial::new()),
            LineKind::Blocks(gather) => Self::Blocks(Box::new(Blocks::new(gather))),
            LineKind::Chunks => Self::Chunks(Box::new(Chunks::new())),
        }
    }

    fn kind(&self) -> LineKind {
        match self {
            Self::Serial(_) => LineKind::Serial,
            Self::Blocks(line) => LineKind::Blocks(line.gather()),
            Self::Chunks(_) => LineKind::Chunks,
        }
    }
}

/// Does the same with the line, whatever its kind.
macro_rules! on_line {
    ($line:expr, $name:ident => $body:expr) => {
        match $line {
            Line::Serial($name) => $body,
            Line::Blocks($name) => $body,
            Line::Chunks($name) => $body,
        }
    };
}

/// The decision core of one output port.
///
/// After every event, and at [`Port::next_deadline`], the driver calls [`Port::poll`] until it
/// returns `None`.
#[derive(Clone, Debug)]
pub struct Port {
    common: Common,
    line: Line,
}

impl Port {
    /// An empty port whose link is idle.
    ///
    /// # Errors
    /// If the configuration makes no sense.
    pub fn new(config: PortConfig) -> Result<Self, ConfigError> {
        let mut port = Self { common: Common::new(), line: Line::new(LineKind::Serial) };
        port.configure(config)?;
        Ok(port)
    }

    /// Takes a new configuration without losing a packet or what was learned.
    ///
    /// # Errors
    /// If the configuration makes no sense, or if packets wait that another kind of scheme has
    /// queued ([`ConfigError::Occupied`]); the port then goes on as it was.
    pub fn configure(&mut self, config: PortConfig) -> Result<(), ConfigError> {
        let kind = LineKind::of(&config.scheme)?;
        if kind != self.line.kind() && !self.is_empty() {
            return Err(ConfigError::Occupied);
        }
        self.common.configure(config)?;
        if kind != self.line.kind() {
            self.line = Line::new(kind);
        }
        on_line!(&mut self.line, line => line.recount(&self.common));
        Ok(())
    }

    /// Forgets what was learned about ratio and time: another codec compresses from now on.
    pub fn forget_estimates(&mut self) {
        if let Estimates::Learned(config) = self.common.config.estimates {
            self.common.learned = Some(Box::new(Learned::new(config)));
        }
    }

    /// The link's rate was measured or reported again.
    pub fn set_rate(&mut self, rate: Option<Rate>) {
        self.common.config.rate = rate;
    }

    /// So many bytes the link takes at once, once it is ready: they don't wait for each other.
    /// What is compressed when the link is about to get to it ([`Trigger::Waiting`](crate::Trigger))
    /// is compressed so much earlier. Zero in the beginning.
    pub fn set_burst_bytes(&mut self, burst_bytes: u64) {
        self.common.burst_bytes = burst_bytes;
    }

    /// What is ahead of all that waits here: bytes that the link was given and has not sent yet, as
    /// it is believed, zero in the beginning. A link that `takes_all` at once leaves nothing waiting
    /// here, so that only those count.
    pub fn set_ahead(&mut self, bytes: u64, takes_all: bool) {
        self.common.ahead_bytes = bytes;
        self.common.link_takes_all = takes_all;
    }

    /// Event: a packet arrived.
    #[inline]
    pub fn arrive(&mut self, now: Instant, packet: Packet) -> Admission {
        let common = &mut self.common;
        common.accounts.arrived.add(packet.bytes);
        if let Some(reason) = on_line!(&self.line, line => line.over_limit(common, &packet)) {
            common.accounts.drop(reason, packet.bytes);
            return Admission::Dropped(reason);
        }
        common.accounts.held.add(packet.bytes);
        on_line!(&mut self.line, line => line.arrive(common, now, &packet));
        Admission::Queued
    }

    /// Event: what the last [`Action::Compress`] or [`Action::CompressBlock`] asked for came out
    /// after `took_ns`. A block is named by its first packet.
    ///
    /// A report about anything else is the driver's mistake and is ignored.
    pub fn compressed(&mut self, id: PacketId, outcome: Outcome, took_ns: u64) {
        let common = &mut self.common;
        let known = on_line!(&mut self.line, line => line.compressed(common, id, outcome, took_ns));
        debug_assert!(known, "{id:?} is not being compressed");
    }

    /// Whether compressing the frame of the last [`Action::Send`] as a whole is worth it: with
    /// nothing ahead of it, by Eq. (2) of Shimamura et al., it must leave the link no later than
    /// uncompressed. For frames of single packets that nobody compressed.
    pub fn frame_compress_suffices(&mut self) -> bool {
        let Some(rate) = self.common.config.rate else { return false };
        let frame = &self.common.frame;
        let single = frame.units.iter().all(|unit| unit.followers == 0 && !unit.compressed_here);
        let bytes: u32 = frame.units.iter().map(|unit| unit.bytes).sum();
        if !single || frame.units.len() < 2 || bytes < self.common.config.compress_bytes_min {
            return false;
        }
        let (flow, class) = Common::FRAMES;
        if !self.common.may_try(flow, class) {
            return false;
        }
        let estimate = self.common.estimate(flow, class, bytes);
        waiting_time_suffices(0, bytes, estimate, rate)
    }

    /// Event: the frame of the last [`Action::Send`] was compressed as a whole, before it was sent.
    /// Its packets were let past the compressor before, and are counted as compressed now; none of them came
    /// compressed.
    pub fn frame_compressed(&mut self, outcome: Outcome, took_ns: u64) {
        self.common.frame_compressed(outcome, took_ns);
    }

    /// Event: a compressed unit was lost on the way and is to be sent again.
    ///
    /// It was let in before, so that the limit for arrivals does not hold for it; but no more
    /// can wait than that limit once again. Where packets are not gathered, only units of one
    /// packet can come back. All its packets are dropped if it can't.
    pub fn put_back(&mut self, now: Instant, unit: PutBack<'_>) -> Admission {
        let common = &mut self.common;
        for packet in unit.packets {
            common.accounts.put_back.add(packet.original_bytes);
        }
        let taken = on_line!(&mut self.line, line => line.put_back(common, now, &unit));
        for packet in unit.packets {
            if taken {
                common.accounts.held.add(packet.original_bytes);
            } else {
                common.accounts.drop(DropReason::PutBack, packet.original_bytes);
            }
        }
        if taken { Admission::Queued } else { Admission::Dropped(DropReason::PutBack) }
    }

    /// Event: the link can take a frame.
    #[inline]
    pub fn link_ready(&mut self) {
        self.common.link_idle = true;
    }

    /// Takes the readiness back: the link can't take a frame after all.
    #[inline]
    pub fn link_busy(&mut self) {
        self.common.link_idle = false;
    }

    /// The next thing to do, if any. To be called after every event until it returns `None`.
    #[inline]
    pub fn poll(&mut self, now: Instant) -> Option<Action> {
        on_line!(&mut self.line, line => line.poll(&mut self.common, now))
    }

    /// When [`Port::poll`] must be called though nothing happened, because a packet must not be
    /// held back any longer. `None` as long as nothing is held back.
    #[inline]
    pub fn next_deadline(&self) -> Option<Instant> {
        match &self.line {
            Line::Serial(_) | Line::Blocks(_) => None, // they hold nothing back
            // While the link is busy no time makes a difference.
            Line::Chunks(line) => line.next_deadline().filter(|_| self.common.link_idle),
        }
    }

    /// True if a link that becomes ready will be given a frame, now or, if packets are held back,
    /// later. False while all that waits is being compressed, or behind what is.
    #[inline]
    pub fn can_send(&self) -> bool {
        match &self.line {
            Line::Serial(line) => line.waiting().1 > 0,
            Line::Blocks(line) => line.can_send(),
            Line::Chunks(line) => line.waiting().1 > 0,
        }
    }

    /// The frame of the last [`Action::Send`].
    #[inline]
    pub fn frame(&self) -> &Frame {
        &self.common.frame
    }

    /// The packets that are being compressed together, in their order; none if there is no block.
    pub fn block(&self) -> &[PacketId] {
        match &self.line {
            Line::Serial(_) | Line::Chunks(_) => &[],
            Line::Blocks(line) => line.being_compressed(),
        }
    }

    /// Drops everything that waits, and hands each packet to `free`. What is being compressed
    /// stays until it comes out.
    pub fn clear(&mut self, mut free: impl FnMut(PacketId)) {
        on_line!(&mut self.line, line => line.clear(&mut self.common, &mut free));
    }

    /// The accounts.
    pub fn accounts(&self) -> &Accounts {
        &self.common.accounts
    }

    /// The configuration, with the present rate.
    pub fn config(&self) -> &PortConfig {
        &self.common.config
    }

    /// True if nothing is in the port.
    pub fn is_empty(&self) -> bool {
        self.common.accounts.held.packets == 0
    }

    /// True if something is being compressed.
    pub fn is_compressing(&self) -> bool {
        on_line!(&self.line, line => line.is_compressing())
    }

    /// How many packets wait for the CPU, and how many units (packets, or blocks that were
    /// compressed) for the link.
    #[inline]
    pub fn waiting(&self) -> (usize, usize) {
        on_line!(&self.line, line => line.waiting())
    }

    /// What waits for the link, in bytes on the link; the packet on the wire not counted.
    pub fn backlog_bytes(&self) -> u64 {
        self.common.backlog_bytes(on_line!(&self.line, line => line.units_bytes()))
    }

    /// How long a packet that reaches the relay queue now waits for the link, in nanoseconds;
    /// zero while the rate is unknown.
    pub fn waiting_ns(&self) -> u64 {
        self.common.config.rate.map_or(0, |rate| rate.transmission_ns(self.backlog_bytes()))
    }

    /// What the port expects of a packet of `bytes` of this flow.
    pub fn estimate(&mut self, flow: u64, class: ClassKey, bytes: u32) -> Estimate {
        self.common.estimate(flow, class, bytes)
    }

    /// How long what is being compressed is expected to take, in nanoseconds; zero if there is
    /// nothing.
    pub fn compress_cost_ns(&mut self) -> u64 {
        on_line!(&self.line, line => line.compress_cost_ns(&mut self.common))
    }

    /// What was learned of each class: ratio, picoseconds per byte, and whether it is being
    /// left alone.
    pub fn learned_classes(&self) -> impl Iterator<Item = (ClassKey, Ratio, u32, bool)> {
        self.common.learned.iter().flat_map(|learned| learned.classes())
    }

    /// Verifies the invariants by counting everything again; for tests and simulations, after
    /// each event and the polls that it asks for.
    ///
    /// # Panics
    /// If an invariant is broken.
    pub fn assert_invariants(&self) {
        let (common, accounts) = (&self.common, self.accounts());
        let held = on_line!(&self.line, line => line.count(common));
        assert_eq!(held, accounts.held, "held is miscounted");
        assert!(accounts.balance(), "accounts don't balance: {accounts:?}");
        let waiting = on_line!(&self.line, line => line.waiting());
        let packets_max = on_line!(&self.line, line => line.packets_max(common));
        // What comes back from the compressor may be one more than an arrival would find room for,
        // and what was put back has room of its own.
        let room = if accounts.put_back.packets > 0 { 2 } else { 1 };
        assert!(waiting.0 + waiting.1 <= packets_max * room, "over the limit");
    }
}

#[cfg(test)]
mod tests;
