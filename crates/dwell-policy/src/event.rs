//! The events of a port.

use serde::{Deserialize, Serialize};

use dwell_base::Rate;

use crate::action::{FramePacket, JobId};
use crate::packet::Packet;

/// Something that happened, for [`Port::handle`](crate::Port::handle).
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A packet arrived. If it finds no room, the next [`Action::Drop`](crate::Action::Drop) says so.
    Arrive(Packet),
    /// A job came out of the compressor. A report about anything else than a job under way is the
    /// driver's mistake and is ignored.
    Compressed {
        /// The job.
        job: JobId,
        /// Its result.
        outcome: Outcome,
        /// The time that it took, in nanoseconds.
        took_ns: u64,
    },
    /// A compressed batch was lost on the link and is to be retransmitted.
    ///
    /// It was let in before, so that the limit for arrivals does not hold for it; but no more can wait
    /// than that limit once again. Where packets are not gathered, only batches of one packet can come
    /// back. All its packets are dropped if it can't.
    Lost(LostBatch<'a>),
    /// The link can take a frame.
    LinkReady,
    /// The link can't take a frame after all.
    LinkBusy,
    /// The link's state is known better.
    Link(LinkState),
}

/// The outcome of a compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The batch became smaller: this many bytes without any header. It must
    /// [gain](crate::FrameCost::gains) with its headers too; otherwise the originals are sent.
    Smaller(u32),
    /// It was compressed in a context to this many bytes, and is sent so whatever its size: what comes
    /// after it may refer to it. For jobs with a [context](crate::Job::context) only.
    Committed(u32),
    /// It did not become smaller; the originals are to be sent.
    NotSmaller,
    /// The codec failed; the originals are to be sent.
    Failed,
    /// Nobody tried, since it may not be compressed yet; the originals are to be sent, as if there were no time.
    Declined,
}

impl Outcome {
    /// Returns true if it says something of the packets.
    pub(crate) fn is_telling(self) -> bool {
        !matches!(self, Self::Failed | Self::Declined)
    }
}

/// A compressed batch that was lost on the link, and comes back to be retransmitted.
#[derive(Clone, Copy, Debug)]
pub struct LostBatch<'a> {
    /// Its packets; the first names it. Their sojourn times go on from what is reported here.
    pub packets: &'a [FramePacket],
    /// Its bytes, compressed.
    pub bytes: u32,
}

/// The state of the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkState {
    /// Its rate. Without one no packet is believed to wait.
    pub rate: Option<Rate>,
    /// The bytes that it takes at once, once it is ready: they don't wait for each other. What is
    /// compressed when the link is about to get to it ([`Select::Waiting`](crate::Select)) is
    /// compressed earlier by this.
    pub burst_bytes: u64,
    /// The bytes that it was given and has not sent yet, as it is believed: what is sent next waits
    /// for them.
    pub ahead_bytes: u64,
    /// The same with what it was given at once just now, if that is more: the link does not idle before they are sent,
    /// whether anything waits for them or not.
    #[serde(default)]
    pub given_bytes: u64,
    /// It takes whatever it is given, so that nothing waits in the port: only `ahead_bytes` count as
    /// waiting time.
    pub takes_all: bool,
    /// The time, in nanoseconds, for which it idled since the last state while the driver was too
    /// busy to bring it what had come: its processor is what the link waits for. A driver that does
    /// nothing else, as in simulations, has none.
    #[serde(default)]
    pub starved_ns: u64,
    /// What packets of a flow may keep waiting, in nanoseconds, if that is more than the scheme grants them
    /// ([`FlowQueues::target_ns`](crate::FlowQueues)): what the link needs so that it does not idle when the flow slows down.
    #[serde(default)]
    pub granted_ns: u64,
    /// The shortest time in which an answer comes back over the path, without queues, in nanoseconds; zero if it is not known. A connection
    /// that is notified slows down no sooner, and what it sends meanwhile waits: more than [`LinkState::ROUND_TRIP_NS_MAX`] does not
    /// count.
    #[serde(default)]
    pub round_trip_ns: u64,
    /// The most processor time that compressing may take, if that is less than there is: what it brings is not worth
    /// more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_limit: Option<CpuLimit>,
}

/// The most processor time that compressing may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuLimit {
    /// Of one processor, in parts per million; at least 1.
    pub share_ppm: u32,
    /// The part of that for what the rules refuse, to learn of it.
    pub explored_ppm: u32,
}

impl CpuLimit {
    /// As good as nothing is compressed, nor explored: all goes raw.
    pub const NOTHING: Self = Self { share_ppm: 1, explored_ppm: 0 };

    /// Of the time that compressing may take, one part in so many is for what is believed to be of no use, to learn of it.
    pub const EXPLORED_PART: u32 = 128;

    /// Returns the limit of so much of one processor, in parts per million.
    pub fn of_share(share_ppm: u32) -> Self {
        Self { share_ppm, explored_ppm: (share_ppm / Self::EXPLORED_PART).max(1) }
    }

    /// Returns what both allow.
    pub fn least(self, other: Self) -> Self {
        Self {
            share_ppm: self.share_ppm.min(other.share_ppm),
            explored_ppm: self.explored_ppm.min(other.explored_ppm),
        }
    }
}

impl LinkState {
    /// No path takes longer, in nanoseconds: what is measured beyond is a queue, or no truth.
    pub const ROUND_TRIP_NS_MAX: u64 = 1_000_000_000;

    /// A link of this rate that takes one frame after another.
    pub const fn of_rate(rate: Option<Rate>) -> Self {
        Self {
            rate,
            burst_bytes: 0,
            ahead_bytes: 0,
            given_bytes: 0,
            takes_all: false,
            starved_ns: 0,
            granted_ns: 0,
            round_trip_ns: 0,
            cpu_limit: None,
        }
    }
}
