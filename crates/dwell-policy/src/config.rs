//! The configuration of a port: a scheme, and what it works with.

use serde::{Deserialize, Serialize};

use dwell_base::Rate;
use dwell_base::time::MILLI_NS;
use thiserror::Error;

use crate::estimate::{Estimates, LearnedConfig};
use crate::packet::ClassKey;
use crate::scheme::{Gather, PRESETS, Queue, Release, Scheme, Select};

/// The limits of a port's queue. A packet that would exceed any of them is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueLimit {
    /// ns-2's drop-tail rule: a packet is dropped if the packets waiting plus this one would
    /// reach this number, so one fewer can wait. What is being compressed or on the wire does not
    /// count.
    pub packets: u32,
    /// Most bytes that may wait.
    pub bytes: u64,
    /// Most time that may wait, at the present rate of the link, in nanoseconds. Without a
    /// known rate it does not limit; it never limits to less than `time_floor_bytes`.
    pub time_ns: u64,
    /// The limit of time leaves room for this many bytes, however slow the link: a burst of a few
    /// full packets must not be torn apart.
    pub time_floor_bytes: u64,
}

impl QueueLimit {
    /// Room for packets only, as in the paper's simulations.
    pub const fn packets(packets: u32) -> Self {
        Self { packets, bytes: u64::MAX, time_ns: u64::MAX, time_floor_bytes: 0 }
    }
}

impl Default for QueueLimit {
    fn default() -> Self {
        Self { packets: 2000, bytes: 4 << 20, time_ns: 100 * MILLI_NS, time_floor_bytes: 16 << 10 }
    }
}

/// The cost of frames on the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameCost {
    /// Bytes that each frame costs beside its units (link, IP, UDP and datagram headers).
    pub frame_bytes: u32,
    /// Bytes that a raw unit costs beside its packet.
    pub raw_unit_bytes: u32,
    /// Bytes that a compressed unit costs beside its compressed bytes.
    pub compressed_unit_bytes: u32,
    /// Most bytes of units, their own headers included, that one frame takes. A unit that is
    /// larger goes alone.
    pub units_bytes_max: u32,
    /// Bytes that each part costs of a unit that is larger than a frame and therefore cut. Zero
    /// if units are never cut: such a unit then makes a larger frame.
    pub fragment_bytes: u32,
    /// Bytes of each frame that parts leave free.
    pub fragment_spare_bytes: u32,
    /// A unit whose bytes and own header are more than this must be the last of its frame: the
    /// frame format can't name its length.
    pub unit_bytes_named: u32,
    /// Most units in one frame.
    pub units_max: u32,
}

impl FrameCost {
    /// One packet, one frame, nothing added: the paper's link.
    pub const FREE: Self = Self {
        frame_bytes: 0,
        raw_unit_bytes: 0,
        compressed_unit_bytes: 0,
        units_bytes_max: 0,
        fragment_bytes: 0,
        fragment_spare_bytes: 0,
        unit_bytes_named: u32::MAX,
        units_max: 1,
    };

    /// As many packets in a frame as the scheme puts there, nothing added: the link of Sawabe
    /// et al.
    pub const FREE_CHUNKS: Self =
        Self { units_bytes_max: u32::MAX, units_max: u32::MAX, ..Self::FREE };

    /// True if sending `packets` packets of `raw` bytes in all as one compressed unit of `compressed`
    /// bytes takes less than sending them raw. A result that does not gain is
    /// [`Outcome::NotSmaller`](crate::Outcome::NotSmaller), and its packets go raw.
    pub fn gains(&self, compressed: u32, (packets, raw): (u32, u32)) -> bool {
        let (_, compressed) =
            self.cut(u64::from(compressed) + u64::from(self.compressed_unit_bytes));
        compressed < u64::from(raw) + u64::from(packets) * u64::from(self.raw_unit_bytes)
    }

    /// Returns the number of frames that units of `units_bytes` in all take that go together, and
    /// their bytes with the headers of parts, if they are cut.
    pub(crate) fn cut(&self, units_bytes: u64) -> (u64, u64) {
        let (room, header) = (u64::from(self.units_bytes_max), u64::from(self.fragment_bytes));
        let part = room.saturating_sub(header + u64::from(self.fragment_spare_bytes));
        if header == 0 || units_bytes <= room || part == 0 {
            return (1, units_bytes);
        }
        let frames = units_bytes.div_ceil(part);
        (frames, units_bytes + frames * header)
    }
}

/// What a port is to save.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Objective {
    /// Time: nobody waits longer for being compressed.
    #[default]
    Time,
    /// Bytes, as on links that are paid for: packets are gathered, on an idle link too, and compressed
    /// if that takes no longer than they may wait. For [`Queue::Flows`](crate::Queue::Flows).
    Bytes {
        /// How long a packet may wait that has no [`max_wait_ns`](crate::Packet::max_wait_ns) of its
        /// own, in nanoseconds.
        max_wait_ns: u64,
        /// The share of the time that may go to compressing what takes longer than sending it
        /// raw, in parts per million.
        cpu_ppm: u32,
    },
}

impl Objective {
    /// How long packets wait for company if bytes are to be saved and nothing else is written.
    pub const MAX_WAIT_NS: u64 = 20_000_000;
    /// The share of one CPU that goes to it if nothing else is written, in parts per million.
    pub const CPU_PPM: u32 = 500_000;
}

/// The configuration of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortConfig {
    /// The scheme.
    pub scheme: Scheme,
    /// The rate of the link, if known. Without one no packet is believed to wait.
    pub rate: Option<Rate>,
    /// The limits of the queue.
    pub limit: QueueLimit,
    /// The cost of frames.
    pub frame: FrameCost,
    /// The source of ratio and time.
    pub estimates: Estimates,
    /// Packets below this size are not compressed, whatever the scheme.
    pub compress_bytes_min: u32,
    /// Classes that are never compressed, by source or destination port. Any order.
    pub exceptions: Vec<ClassKey>,
    /// What it is to save.
    pub objective: Objective,
    /// The most batches that are compressed at the same time, of as many groups: one of a group at a time. Only a scheme with
    /// a queue for each flow makes use of more than one.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub jobs_max: u8,
}

const fn one() -> u8 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde calls")]
const fn is_one(number: &u8) -> bool {
    *number == 1
}

impl Default for PortConfig {
    fn default() -> Self {
        Self {
            scheme: Scheme::packet(),
            rate: None,
            limit: QueueLimit::default(),
            frame: FrameCost::FREE,
            estimates: Estimates::Learned(LearnedConfig::default()),
            compress_bytes_min: 0,
            exceptions: Vec::new(),
            objective: Objective::Time,
            jobs_max: 1,
        }
    }
}

/// Why a configuration is impossible.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// There is no preset of this name.
    #[error("there is no scheme \"{0}\": use one of {names}, or edge(m,n) and the like", names = PRESETS.join(", "))]
    UnknownScheme(String),
    /// A queue that can't hold a packet.
    #[error("a queue must hold at least one packet: set its limit to 2 packets or more")]
    QueueTooSmall,
    /// Frames without room.
    #[error("a frame must have room for at least one unit")]
    EmptyFrame,
    /// A scheme that fills frames, and frames that take one packet.
    #[error("packets are held back to share frames: frames must have room for two or more")]
    NoRoomForChunks,
    /// Classes of deadlines that are none.
    #[error("timers of classes must ascend, and there are 1 to 16 of them")]
    ClassTimers,
    /// Blocks without packets, or of packets that are gathered by nothing.
    #[error("a block needs 1 packet or more; only 1 if packets are not gathered")]
    BlockPackets,
    /// Blocks without room.
    #[error("a block must have room for at least one byte")]
    BlockBytes,
    /// A block that moves to the tail leaves the order of its group.
    #[error("blocks that keep their order can't move to the tail: use loose order, or the front")]
    BlockOrder,
    /// Packets are to be gathered by a scheme that can't.
    #[error(
        "objective \"bytes\" needs scheme \"auto\": other schemes hold nothing back, or for deadlines only"
    )]
    Objective,
    /// Values on the scheme's axes that contradict each other.
    #[error("this scheme makes no sense: {0}")]
    Combination(&'static str),
    /// Waiting packets were queued by the rules of another kind of scheme.
    #[error("this change of scheme needs an empty port: clear it first, or let it run dry")]
    Occupied,
}

impl PortConfig {
    /// Looks for values that make no sense.
    ///
    /// # Errors
    /// The first impossible value.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.limit.packets < 2 {
            return Err(ConfigError::QueueTooSmall);
        }
        if self.frame.units_max == 0 {
            return Err(ConfigError::EmptyFrame);
        }
        if let Release::Full { bytes_max, .. } = self.scheme.release
            && (bytes_max.min(self.frame.units_bytes_max) == 0 || self.frame.units_max < 2)
        {
            return Err(ConfigError::NoRoomForChunks);
        }
        let is_by_flow = matches!(self.scheme.queue, Queue::Flows(_));
        if self.objective != Objective::Time && !is_by_flow {
            return Err(ConfigError::Objective);
        }
        self.scheme.check()
    }
}

/// The stores that a port can have. What waits in one can't go on in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreKind {
    /// Packets in the order in which they come to the CPU and the link.
    Serial,
    /// Packets that may become batches where they stand.
    Batches(Gather),
    /// Packets that wait for a full frame.
    Frames,
    /// Packets that wait in a queue for each flow.
    Flows(Gather),
}

impl StoreKind {
    /// The store of a scheme that makes sense.
    pub(crate) fn of(scheme: &Scheme) -> Self {
        match (scheme.release, scheme.select) {
            (Release::Full { .. }, _) => Self::Frames,
            (Release::Filled, _) => Self::Flows(scheme.gather()),
            (Release::Now(_), Select::Backlog { gather, .. } | Select::Waiting { gather, .. }) => {
                Self::Batches(gather)
            }
            (Release::Now(_), _) => Self::Serial,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::{BlockOrder, BlockPlace, BlockRules, ClassTimers, PullPolicy, When};

    #[test]
    fn impossible_limits_are_reported() {
        let mut config = PortConfig::default();
        assert_eq!(config.check(), Ok(()));
        config.limit.packets = 1;
        assert_eq!(config.check(), Err(ConfigError::QueueTooSmall));
        config.limit.packets = 2;
        assert_eq!(config.check(), Ok(()));
        config.frame.units_max = 0;
        assert_eq!(config.check(), Err(ConfigError::EmptyFrame));
    }

    #[test]
    fn what_was_compressed_gains_with_its_headers_or_not_at_all() {
        let frame = FrameCost { raw_unit_bytes: 2, compressed_unit_bytes: 5, ..FrameCost::FREE };
        assert!(frame.gains(1_496, (1, 1_500)));
        assert!(!frame.gains(1_497, (1, 1_500)), "both take 1502 bytes");
        assert!(frame.gains(1_498, (2, 1_500)) && !frame.gains(1_499, (2, 1_500)));
    }

    #[test]
    fn only_queues_by_flow_can_gather_for_bytes() {
        let bytes = Objective::Bytes { max_wait_ns: 1_000_000, cpu_ppm: 500_000 };
        let check =
            |scheme, objective| PortConfig { scheme, objective, ..PortConfig::default() }.check();
        for scheme in [Scheme::auto(Gather::Flow), Scheme::packet()] {
            assert_eq!(check(scheme, Objective::Time), Ok(()));
        }
        assert_eq!(check(Scheme::auto(Gather::Flow), bytes), Ok(()));
        assert_eq!(check(Scheme::packet(), bytes), Err(ConfigError::Objective));
    }

    #[test]
    fn what_is_cut_leaves_room_in_each_frame() {
        let frame = FrameCost {
            frame_bytes: 50,
            raw_unit_bytes: 2,
            compressed_unit_bytes: 5,
            units_bytes_max: 1_000,
            fragment_bytes: 8,
            fragment_spare_bytes: 92,
            unit_bytes_named: u32::MAX,
            units_max: 10,
        };
        // Parts of 900 bytes; what fits a frame is not cut.
        assert_eq!(frame.cut(1_000), (1, 1_000));
        assert_eq!(frame.cut(1_001), (2, 1_001 + 16));
        assert_eq!(frame.cut(1_800), (2, 1_800 + 16));
        assert_eq!(frame.cut(1_801), (3, 1_801 + 24));
        assert_eq!(FrameCost { fragment_spare_bytes: 0, ..frame }.cut(1_801), (2, 1_801 + 16));
        assert_eq!(FrameCost { fragment_bytes: 0, ..frame }.cut(1_801), (1, 1_801));
    }

    #[test]
    fn every_combination_is_taken_or_refused_with_a_reason() {
        let timers = ClassTimers::TABLE_II;
        let queues = [
            Queue::One,
            Queue::CpuAndLink,
            Queue::PerClass(timers),
            Queue::Tandem(timers, PullPolicy::Dcf.lazy()),
        ];
        let edge = Gather::Edge;
        let selects = [
            Select::Nothing,
            Select::Each(When::Always),
            Select::Each(When::WaitingTime),
            Scheme::backlog(edge, 5, 5).select,
            Scheme::waiting(edge, 8192).select,
            Select::Frame,
        ];
        let strict = Scheme::waiting(edge, 8192).release;
        let releases =
            [strict, Scheme::basicq(9000).release, Scheme::basicq(9000).with_cea().release];
        let frame = FrameCost::FREE_CHUNKS;
        let mut taken = 0;
        for (queue, select, release) in combinations(&queues, &selects, &releases) {
            let scheme = Scheme { queue, select, release, ..Scheme::packet() };
            let check = PortConfig { scheme, frame, ..PortConfig::default() }.check();
            match check {
                Ok(()) => {
                    taken += 1;
                    let port = crate::Port::new(PortConfig { scheme, frame, ..Default::default() });
                    port.unwrap().assert_invariants();
                }
                Err(error) => assert!(matches!(error, ConfigError::Combination(_)), "{error}"),
            }
        }
        // One queue at once: five ways of selecting; CPU and link: three; frames that are filled,
        // with and without CEA, from three kinds of queues, compressed or not.
        assert_eq!(taken, 5 + 3 + 2 * 3 * 2);
    }

    fn combinations(
        queues: &[Queue],
        selects: &[Select],
        releases: &[Release],
    ) -> Vec<(Queue, Select, Release)> {
        let mut all = Vec::new();
        for &queue in queues {
            for &select in selects {
                all.extend(releases.iter().map(|&release| (queue, select, release)));
            }
        }
        all
    }

    #[test]
    fn impossible_batches_are_reported() {
        let frame = FrameCost::FREE_CHUNKS;
        let check = |scheme| PortConfig { scheme, frame, ..PortConfig::default() }.check();
        for name in PRESETS {
            assert_eq!(check(Scheme::preset(name).unwrap()), Ok(()), "{name}");
        }
        assert_eq!(check(Scheme::backlog(Gather::Flow, 0, 5)), Err(ConfigError::BlockPackets));
        assert_eq!(check(Scheme::backlog(Gather::Packet, 2, 5)), Err(ConfigError::BlockPackets));
        let rules = BlockRules { place: BlockPlace::Tail, ..BlockRules::PAPER };
        let tail = Scheme::backlog(Gather::Flow, 5, 5).with_rules(rules);
        assert_eq!(check(tail), Ok(()));
        let strict = tail.with_rules(BlockRules { order: BlockOrder::Strict, ..rules });
        assert_eq!(check(strict), Err(ConfigError::BlockOrder));
        let loose = Scheme::waiting(Gather::Edge, 8192).with_rules(BlockRules::PAPER);
        assert_eq!(check(loose), Err(ConfigError::BlockOrder));
        assert_eq!(check(Scheme::waiting(Gather::Flow, 0)), Err(ConfigError::BlockBytes));
    }

    #[test]
    fn chunks_need_frames_of_several_packets() {
        let check = |scheme, frame| PortConfig { scheme, frame, ..Default::default() }.check();
        let refused = Err(ConfigError::NoRoomForChunks);
        assert_eq!(check(Scheme::basicq(9000), FrameCost::FREE), refused);
        assert_eq!(check(Scheme::basicq(0), FrameCost::FREE_CHUNKS), refused);
        assert_eq!(check(Scheme::basicq(9000), FrameCost::FREE_CHUNKS), Ok(()));
        let of_units = |units_max| FrameCost { units_max, ..FrameCost::FREE_CHUNKS };
        assert_eq!(check(Scheme::basicq(9000), of_units(2)), Ok(()));
        assert_eq!(check(Scheme::basicq(9000), of_units(1)), refused);
    }

    #[test]
    fn an_unknown_scheme_is_reported_with_the_known_ones() {
        let error = Scheme::preset("pakcet").unwrap_err();
        assert!(error.to_string().contains("packet, flow, service, host-pair, edge"), "{error}");
    }
}
