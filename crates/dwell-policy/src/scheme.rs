//! The design space: every scheme is a point in it, a value on each of a few axes.

use crate::backoff::BackOffConfig;
use crate::config::ConfigError;

/// What is compressed together.
///
/// The core compares [`Packet::group`](crate::Packet::group) only; the driver fills it with a
/// hash of what this axis names. From Yoshino et al., section III.A.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gather {
    /// Each packet by itself.
    Packet,
    /// Packets of one flow: the same addresses, ports and protocol.
    Flow,
    /// Packets to one service: the same destination address, destination port and protocol.
    Service,
    /// Packets between two hosts: the same source and destination address.
    HostPair,
    /// Packets that leave the network of relay nodes at the same egress.
    Edge,
}

/// What must happen before a gathered unit is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trigger {
    /// Nothing: a unit is complete at once and no packet is ever held back.
    Immediate,
    /// Enough packets wait for one to be compressed in their shadow (Yoshino et al., section
    /// III.A): the queue is longer than `lead` + `packets`, and `packets` of one group are
    /// among those beyond the first `lead`.
    Backlog {
        /// The number of packets of a block, m.
        packets: u32,
        /// How many packets the link sends while a block is being compressed, n.
        lead: u32,
    },
    /// The link is about to get to a packet that is not compressed: then so much of its group as
    /// waits is compressed with it, if its waiting time suffices. So blocks are as large as the
    /// queue allows, and nothing is held back. Ours, of Eq. (2) of Shimamura et al. and the
    /// groups of Yoshino et al.
    Waiting {
        /// The most bytes of packets in a block.
        bytes_max: u32,
        /// The most packets in a block.
        packets_max: u32,
        /// The link is about to get to a packet if it needs less than this to send what is
        /// ahead, in nanoseconds; or if that is less than a frame.
        lead_ns: u64,
    },
    /// Packets are held back until they fill a frame or one of them has no time left (Sawabe
    /// et al.).
    Chunk {
        /// The most bytes of packets, with the headers of their units, in a frame: the paper's
        /// MTU. What a frame takes ([`FrameCost`](crate::FrameCost)) limits them as well.
        bytes_max: u32,
    },
}

/// How waiting packets are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Queues {
    /// One queue, first in, first out.
    One,
    /// A buffer for each class of deadlines, each with a timer (ChuMQ of Sawabe et al.).
    PerClass(ClassTimers),
    /// A queue for each class of deadlines, and a chunking buffer behind them that pulls from
    /// them (ChuTQ of Sawabe et al.).
    Tandem(ClassTimers, Pull),
}

/// The most classes of deadlines.
pub const CLASSES_MAX: usize = 16;

/// The classes of deadlines: T_i of Sawabe et al., ascending, at most [`CLASSES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassTimers {
    timers_ns: [u64; CLASSES_MAX],
    count: u8,
}

impl ClassTimers {
    /// Classes with these timers, in nanoseconds.
    ///
    /// # Errors
    /// If there are none or too many, or if they don't ascend.
    pub fn new(timers_ns: &[u64]) -> Result<Self, ConfigError> {
        let ascend = timers_ns.windows(2).all(|pair| pair[0] < pair[1]);
        if timers_ns.is_empty() || timers_ns.len() > CLASSES_MAX || !ascend {
            return Err(ConfigError::ClassTimers);
        }
        let mut all = [0; CLASSES_MAX];
        all[..timers_ns.len()].copy_from_slice(timers_ns);
        Ok(Self { timers_ns: all, count: timers_ns.len() as u8 })
    }

    /// Table II of Sawabe et al.: 50 µs for sensing, 100 µs for real-time traffic, 200 µs for
    /// the transfer of files.
    pub const TABLE_II: Self = {
        let mut timers_ns = [0; CLASSES_MAX];
        (timers_ns[0], timers_ns[1], timers_ns[2]) = (50_000, 100_000, 200_000);
        Self { timers_ns, count: 3 }
    };

    /// The timers in nanoseconds, ascending.
    pub fn as_slice(&self) -> &[u64] {
        &self.timers_ns[..usize::from(self.count)]
    }
}

/// Which queue's head a chunking buffer pulls next: that of the largest α.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullPolicy {
    /// Delay constraint first: α = 1 / time left.
    Dcf,
    /// Throughput performance first: α = packet size / (time left × frame size).
    Tpf,
    /// Chunking efficiency first: α = 1 / (time left × packet size).
    Cef,
}

impl PullPolicy {
    /// By this policy, as the presets do: while the link is free, α as the paper defines it,
    /// and the chunk held open where that is asked for ([`Scheme::fill`]).
    pub const fn lazy(self) -> Pull {
        Pull { policy: self, eager: false, clamp_ns: 0, hold: true }
    }
}

/// How a chunking buffer pulls from the queues before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pull {
    /// Which head comes next.
    pub policy: PullPolicy,
    /// Pull whenever there is something to pull, instead of only while the link is free. The
    /// paper can be read either way.
    pub eager: bool,
    /// The least time left that the policy tells apart, in nanoseconds: below it, all heads
    /// are equally urgent. Zero is the paper's rule; other values are ours.
    pub clamp_ns: u64,
    /// With [`Scheme::fill`] (CEA), after a packet that does not fit: keep the chunk open for
    /// others that do, instead of closing it with those that wait already.
    pub hold: bool,
}

/// When a unit is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompressWhen {
    /// Never.
    Never,
    /// Whenever it is not compressed yet.
    Always,
    /// When its waiting time suffices: Eq. (2) of Shimamura et al. With [`Trigger::Immediate`]
    /// and [`Trigger::Waiting`].
    WaitingTime,
    /// When [`Trigger::Backlog`] says so: the threshold on the queue stands for the waiting
    /// time.
    Threshold,
}

/// Which traffic is left alone because compressing it brings nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Skip {
    /// None but the exception list.
    None,
    /// What was learned to be incompressible, with rare retries. Needs
    /// [`Estimates::Learned`](crate::Estimates::Learned); with fixed estimates there is
    /// nothing to learn.
    BackOff(BackOffConfig),
}

/// Whether packets that need no compressing wait behind those that do. Shimamura et al. draw two
/// buffers and leave open what they mean for a packet that was compressed upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passing {
    /// They do: every packet goes through the CPU queue, and all keep their order. Both queues
    /// share one limit.
    InOrder,
    /// A packet that was compressed upstream goes straight to the relay queue, past those that
    /// wait for the CPU: order is kept among compressed packets, and among the others, but not
    /// between them. Each queue has the limit for itself, and what finds the relay queue full
    /// is dropped there. Fits the paper's Fig. 7.
    CompressedPass,
}

/// The points of [`Trigger::Backlog`] that Yoshino et al. leave open. The default is what
/// fits their figures best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRules {
    /// What is promised about order.
    pub order: BlockOrder,
    /// What the link does when it reaches a block that is still being compressed.
    pub unfinished: Unfinished,
    /// Where a finished block stands.
    pub place: BlockPlace,
    /// What a finished block counts for in the length of the queue.
    pub slots: BlockSlots,
    /// Where a unit that was lost on the way comes back.
    pub put_back: BlockPlace,
}

/// Order within a group of [`Gather`], and so within a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockOrder {
    /// The paper's rule to the letter. Packets of a group can pass others of their group: those
    /// of a block that is still being compressed when the link reaches it ([`Unfinished::Pass`]);
    /// those that can't be compressed (upstream did, or it was tried in vain) and stand between
    /// packets that become a block; and those of a block placed at the tail.
    Loose,
    /// Packets of a group leave in the order in which they arrived; what was put back excepted.
    /// (With [`Trigger::Waiting`], packets of a flow do: a block may pass packets that are left
    /// alone of other flows.) The link passes an unfinished block with packets of other groups only, and a block is
    /// made of packets with nothing else of their group between them.
    Strict,
}

/// What the link does when it reaches a block that is still being compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfinished {
    /// It passes over it and sends what comes behind.
    Pass,
    /// It waits, so that everything leaves in the order of the queue.
    Wait,
}

/// A place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockPlace {
    /// Where the first packet of a finished block stood; for what is put back, the head of the
    /// queue.
    Front,
    /// The tail of the queue.
    Tail,
}

/// What a finished block counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockSlots {
    /// One packet.
    One,
    /// As many packets as are in it.
    PerPacket,
}

impl BlockRules {
    /// The reading that fits the paper's figures best.
    pub const PAPER: Self = Self {
        order: BlockOrder::Loose,
        unfinished: Unfinished::Pass,
        place: BlockPlace::Front,
        slots: BlockSlots::One,
        put_back: BlockPlace::Front,
    };
}

/// A scheme: one value on each axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheme {
    /// What is compressed together.
    pub gather: Gather,
    /// When a gathered unit is closed.
    pub trigger: Trigger,
    /// How waiting packets are ordered.
    pub queues: Queues,
    /// When a unit is compressed.
    pub compress: CompressWhen,
    /// What is left alone.
    pub skip: Skip,
    /// Whether compressed packets pass those that wait for the CPU; for [`Trigger::Immediate`].
    pub passing: Passing,
    /// How blocks move in the queue; for [`Trigger::Backlog`] and [`Trigger::Waiting`].
    pub blocks: BlockRules,
    /// Fill the room that is left in a frame from other classes (CEA of Sawabe et al.); for
    /// [`Trigger::Chunk`].
    pub fill: bool,
}

/// The names of the presets, in the order in which tables show them.
pub const PRESETS: [&str; 16] = [
    "none",
    "all",
    "packet",
    "flow",
    "service",
    "host-pair",
    "edge",
    "basicq",
    "chumq",
    "chumq+cea",
    "chutq-dcf",
    "chutq-dcf+cea",
    "chutq-tpf",
    "chutq-tpf+cea",
    "chutq-cef",
    "chutq-cef+cea",
];

/// m and n of most figures of Yoshino et al.
const BLOCK_PACKETS: u32 = 5;
const BLOCK_LEAD: u32 = 5;

/// Blocks of small packets end here.
const WAITING_PACKETS_MAX: u32 = 128;
/// Who drives the port may come a little late.
const WAITING_LEAD_NS: u64 = 2_000_000;

/// What the presets of Sawabe et al. fill: a jumbo frame, section 3.1.
const CHUNK_BYTES_MAX: u32 = 9000;

impl Scheme {
    const BASE: Self = Self {
        gather: Gather::Packet,
        trigger: Trigger::Immediate,
        queues: Queues::One,
        compress: CompressWhen::Never,
        skip: Skip::None,
        passing: Passing::InOrder,
        blocks: BlockRules::PAPER,
        fill: false,
    };

    /// Relay only, compress nothing.
    pub const fn none() -> Self {
        Self::BASE
    }

    /// Compress every packet, at whatever cost (the all-compression scheme of Shimamura et al.).
    pub const fn all() -> Self {
        Self { compress: CompressWhen::Always, ..Self::BASE }
    }

    /// Compress a packet if its waiting time suffices (the scheme that Shimamura et al. propose),
    /// and leave alone what turned out to be incompressible.
    pub fn packet() -> Self {
        Self {
            compress: CompressWhen::WaitingTime,
            skip: Skip::BackOff(BackOffConfig::default()),
            ..Self::BASE
        }
    }

    /// Compress blocks of `packets` packets of one group of `gather` while the link sends `lead`
    /// others (Yoshino et al., section III). With [`Gather::Packet`] and `packets` = 1, the
    /// packet scheme that they compare with.
    pub fn blocks(gather: Gather, packets: u32, lead: u32) -> Self {
        Self {
            gather,
            trigger: Trigger::Backlog { packets, lead },
            compress: CompressWhen::Threshold,
            skip: Skip::BackOff(BackOffConfig::default()),
            ..Self::BASE
        }
    }

    /// Compress what waits of one group of `gather` when the link is about to get to it, in blocks
    /// of at most `bytes_max`. Order is kept within each flow.
    pub fn waiting(gather: Gather, bytes_max: u32) -> Self {
        let packets_max = if matches!(gather, Gather::Packet) { 1 } else { WAITING_PACKETS_MAX };
        Self {
            gather,
            trigger: Trigger::Waiting { bytes_max, packets_max, lead_ns: WAITING_LEAD_NS },
            compress: CompressWhen::WaitingTime,
            skip: Skip::BackOff(BackOffConfig::default()),
            blocks: BlockRules { order: BlockOrder::Strict, ..BlockRules::PAPER },
            ..Self::BASE
        }
    }

    /// BasiCQ: one queue, frames of at most `bytes_max` (Sawabe et al., section 4.1).
    pub const fn basicq(bytes_max: u32) -> Self {
        Self { trigger: Trigger::Chunk { bytes_max }, ..Self::BASE }
    }

    /// ChuMQ: a buffer for each class of deadlines (Sawabe et al., section 4.2).
    pub const fn chumq(timers: ClassTimers, bytes_max: u32) -> Self {
        Self { queues: Queues::PerClass(timers), ..Self::basicq(bytes_max) }
    }

    /// ChuTQ: a queue for each class, and a chunking buffer (Sawabe et al., section 4.3).
    pub const fn chutq(timers: ClassTimers, pull: Pull, bytes_max: u32) -> Self {
        Self { queues: Queues::Tandem(timers, pull), ..Self::basicq(bytes_max) }
    }

    /// The same with CEA: frames are filled from other classes (Sawabe et al., section 4.4).
    #[must_use]
    pub const fn with_cea(self) -> Self {
        Self { fill: true, ..self }
    }

    /// The same with frames of at most `bytes_max`, if it fills frames.
    #[must_use]
    pub const fn with_chunk_bytes_max(self, bytes_max: u32) -> Self {
        match self.trigger {
            Trigger::Chunk { .. } => Self { trigger: Trigger::Chunk { bytes_max }, ..self },
            _ => self,
        }
    }

    /// The same with these classes of deadlines, if it tells classes apart.
    #[must_use]
    pub const fn with_class_timers(self, timers: ClassTimers) -> Self {
        let queues = match self.queues {
            Queues::One => Queues::One,
            Queues::PerClass(_) => Queues::PerClass(timers),
            Queues::Tandem(_, pull) => Queues::Tandem(timers, pull),
        };
        Self { queues, ..self }
    }

    /// The preset of this name, one of [`PRESETS`].
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn preset(name: &str) -> Result<Self, ConfigError> {
        let tandem =
            |policy: PullPolicy| Self::chutq(ClassTimers::TABLE_II, policy.lazy(), CHUNK_BYTES_MAX);
        let chumq = Self::chumq(ClassTimers::TABLE_II, CHUNK_BYTES_MAX);
        let blocks = |gather| Self::blocks(gather, BLOCK_PACKETS, BLOCK_LEAD);
        Ok(match name {
            "none" => Self::none(),
            "all" => Self::all(),
            "packet" => Self::packet(),
            "flow" => blocks(Gather::Flow),
            "service" => blocks(Gather::Service),
            "host-pair" => blocks(Gather::HostPair),
            "edge" => blocks(Gather::Edge),
            "basicq" => Self::basicq(CHUNK_BYTES_MAX),
            "chumq" => chumq,
            "chumq+cea" => chumq.with_cea(),
            "chutq-dcf" => tandem(PullPolicy::Dcf),
            "chutq-dcf+cea" => tandem(PullPolicy::Dcf).with_cea(),
            "chutq-tpf" => tandem(PullPolicy::Tpf),
            "chutq-tpf+cea" => tandem(PullPolicy::Tpf).with_cea(),
            "chutq-cef" => tandem(PullPolicy::Cef),
            "chutq-cef+cea" => tandem(PullPolicy::Cef).with_cea(),
            other => return Err(ConfigError::UnknownScheme(other.to_owned())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_exists_and_no_other() {
        for name in PRESETS {
            assert!(Scheme::preset(name).is_ok());
        }
        assert!(Scheme::preset("None").is_err());
    }

    #[test]
    fn class_timers_ascend() {
        let timers = ClassTimers::new(&[50_000, 100_000, 160_000]).unwrap();
        assert_eq!(timers.as_slice(), [50_000, 100_000, 160_000]);
        for bad in [&[][..], &[2, 1], &[1, 1], &[7; CLASSES_MAX + 1]] {
            assert_eq!(ClassTimers::new(bad), Err(ConfigError::ClassTimers));
        }
    }
}
