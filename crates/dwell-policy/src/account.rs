//! Counters that must always balance.

use serde::{Deserialize, Serialize};

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// The number of packets.
    pub packets: u64,
    /// Their bytes as they arrived at the port.
    pub bytes: u64,
}

impl Count {
    pub(crate) fn add(&mut self, bytes: u32) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
    }

    pub(crate) fn remove(&mut self, bytes: u32) {
        self.packets -= 1;
        self.bytes -= u64::from(bytes);
    }

    pub(crate) fn add_all(&mut self, other: Self) {
        *self = self.plus(other);
    }

    pub(crate) fn remove_all(&mut self, other: Self) {
        self.packets -= other.packets;
        self.bytes -= other.bytes;
    }

    fn plus(self, other: Self) -> Self {
        Self { packets: self.packets + other.packets, bytes: self.bytes + other.bytes }
    }
}

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DropReason {
    /// The queue was at its limit of packets.
    QueuePackets,
    /// The queue was at its limit of bytes (or of time, at the present rate).
    QueueBytes,
    /// The driver emptied the port: its peer is gone or the node shuts down.
    Cleared,
    /// It was put back into a port that has no room for it.
    PutBack,
    /// Its flow has kept packets waiting for too long: flow queueing (RFC 8289) drops some, so that
    /// its sender slows down.
    Delay,
}

impl DropReason {
    /// Every reason, in the order of [`Accounts::dropped`].
    pub const ALL: [Self; 5] =
        [Self::QueuePackets, Self::QueueBytes, Self::Cleared, Self::PutBack, Self::Delay];

    /// A name for reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueuePackets => "queue_packets",
            Self::QueueBytes => "queue_bytes",
            Self::Cleared => "cleared",
            Self::PutBack => "put_back",
            Self::Delay => "delay",
        }
    }
}

/// Why a packet went past the compressor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bypass {
    /// The scheme compresses nothing.
    Scheme,
    /// It had been compressed upstream.
    AlreadyCompressed,
    /// Its class is on the exception list.
    Exception,
    /// It is too small for anything to come of it.
    TooSmall,
    /// Its waiting time was too short, Eq. (2).
    NoTime,
    /// Its flow or class was learned to be incompressible and is left alone for a while.
    BackOff,
    /// The link got to it before a block came together.
    NoBlock,
    /// It came alone to a link with time for it, or is of a flow that sends little: it goes at once.
    Sparse,
    /// Its content looks random.
    Random,
}

impl Bypass {
    /// Every reason, in the order of [`CompressionAccounts::bypassed`].
    pub const ALL: [Self; 9] = [
        Self::Scheme,
        Self::AlreadyCompressed,
        Self::Exception,
        Self::TooSmall,
        Self::NoTime,
        Self::BackOff,
        Self::NoBlock,
        Self::Sparse,
        Self::Random,
    ];

    /// A name for reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scheme => "scheme",
            Self::AlreadyCompressed => "already_compressed",
            Self::Exception => "exception",
            Self::TooSmall => "too_small",
            Self::NoTime => "no_time",
            Self::BackOff => "back_off",
            Self::NoBlock => "no_block",
            Self::Sparse => "sparse",
            Self::Random => "random",
        }
    }
}

/// The compressor's results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CompressionAccounts {
    /// Times that the compressor was at work: on a packet, or on a block of them.
    pub compressions: u64,
    /// Packets that were given to the compressor.
    pub tried: u64,
    /// Packets that came out smaller: the bytes that went in.
    pub compressed: Count,
    /// The bytes that came out for `compressed`.
    pub compressed_to_bytes: u64,
    /// Packets that did not become smaller and were sent as they were.
    pub not_smaller: u64,
    /// Packets that the codec failed on; sent as they were.
    pub failed: u64,
    /// Nanoseconds spent compressing.
    pub took_ns: u64,
    /// Packets that were not tried, by [`Bypass::ALL`].
    pub bypassed: [u64; Bypass::ALL.len()],
}

/// Packets that were held back for longer than they may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Late {
    /// The number of packets.
    pub packets: u64,
    /// By how much the latest of them was too late, in nanoseconds.
    pub excess_max_ns: u64,
}

impl Late {
    pub(crate) fn add(&mut self, excess_ns: u64) {
        self.packets += 1;
        self.excess_max_ns = self.excess_max_ns.max(excess_ns);
    }
}

/// Everything that went through a port: arrived + put back = sent + dropped + held, at any
/// time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Accounts {
    /// Packets that arrived.
    pub arrived: Count,
    /// Packets that came back because their unit was lost on the link; they count as retransmitted.
    pub put_back: Count,
    /// Packets that flow queueing marked (RFC 3168) where it would have dropped others.
    pub marked: u64,
    /// Packets that left on the link.
    pub sent: Count,
    /// Packets that were dropped, by [`DropReason::ALL`].
    pub dropped: [Count; DropReason::ALL.len()],
    /// Packets that are in the port now.
    pub held: Count,
    /// Frames sent; a unit that is cut takes several.
    pub frames: u64,
    /// Bytes put on the link, all overhead included.
    pub link_bytes: u64,
    /// Packets that left too late, for schemes that hold packets back: those with a
    /// [`max_wait_ns`](crate::Packet::max_wait_ns) that were in the port for longer than that.
    pub late: Late,
    /// The compressor's results.
    pub compress: CompressionAccounts,
}

impl Accounts {
    pub(crate) fn drop(&mut self, reason: DropReason, bytes: u32) {
        self.dropped[reason as usize].add(bytes);
    }

    pub(crate) fn bypass(&mut self, reason: Bypass) {
        self.compress.bypassed[reason as usize] += 1;
    }

    /// All drops together.
    pub fn dropped_total(&self) -> Count {
        self.dropped.iter().fold(Count::default(), |sum, &c| sum.plus(c))
    }

    /// True if arrived + put back = sent + dropped + held, in packets and in bytes.
    pub fn balance(&self) -> bool {
        self.arrived.plus(self.put_back) == self.sent.plus(self.dropped_total()).plus(self.held)
    }

    /// Average ratio of what was compressed: compressed / original; 1 if nothing was.
    pub fn compressed_ratio(&self) -> f64 {
        match self.compress.compressed.bytes {
            0 => 1.0,
            bytes => self.compress.compressed_to_bytes as f64 / bytes as f64,
        }
    }
}
