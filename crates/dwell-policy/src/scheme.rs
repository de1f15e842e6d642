//! The design space: every scheme is a point in it, a value on each of a few axes.

use serde::{Deserialize, Serialize};

use crate::backoff::BackOffConfig;
use crate::config::ConfigError;

mod blocks;
mod history;

pub use blocks::{BlockOrder, BlockPlace, BlockRules, BlockSlots, Unfinished};
pub use history::History;

/// The packets that are compressed together.
///
/// The core compares [`Packet::group`](crate::Packet::group) only; the driver fills it with a
/// hash of what this axis names. From Yoshino et al., section III.A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Gather {
    /// Each packet alone.
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

/// The first axis: which packets wait, and in what order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Queue {
    /// One queue, first in, first out.
    One,
    /// A queue for the CPU and one for the link, each with the limit for itself: a packet that was
    /// compressed upstream goes straight to the latter, past those that wait for the CPU. Order is
    /// kept among compressed packets, and among the others, but not between them. A reading of
    /// Shimamura et al. that fits their Fig. 7.
    CpuAndLink,
    /// A queue for each class of deadlines, each with a timer (ChuMQ of Sawabe et al.).
    PerClass(ClassTimers),
    /// A queue for each class of deadlines, and a chunking buffer behind them that pulls from
    /// them (ChuTQ of Sawabe et al.).
    Tandem(ClassTimers, Pull),
    /// A queue for each flow, flows that send little first, with a limit for how long packets of a
    /// flow may keep waiting (RFC 8290). What is about to be sent is compressed behind it.
    Flows(FlowQueues),
}

/// The constants of flow queueing, as RFC 8290 names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowQueues {
    /// The bytes that each flow may send in a round.
    pub quantum_bytes: u32,
    /// The waiting time that packets of a flow may have all the time, in nanoseconds; it is raised to what
    /// a frame and a half take, and with `interval_ns`.
    pub target_ns: u64,
    /// For how long they may have more than that, in nanoseconds: about the longest round trip; it is raised to that of the path
    /// ([`LinkState::round_trip_ns`](crate::event::LinkState::round_trip_ns)).
    pub interval_ns: u64,
}

impl FlowQueues {
    /// The constants of RFC 8290, section 5.2.
    pub const RFC8290: Self =
        Self { quantum_bytes: 1_514, target_ns: 5_000_000, interval_ns: 100_000_000 };
}

/// Which packets become one batch that is compressed together, and when: the second axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Select {
    /// None: nothing is compressed.
    Nothing,
    /// Each packet alone, one after another, while others wait for the link (Shimamura et al.).
    Each(When),
    /// Packets of one group, as soon as enough of them wait to be compressed in their shadow (Yoshino
    /// et al., section III.A): the queue is longer than `lead` + `packets`, and `packets` of the group
    /// are among those beyond the first `lead`. The threshold stands for the waiting time.
    Backlog {
        /// The packets that are compressed together.
        gather: Gather,
        /// The number of packets of a batch, m.
        packets: u32,
        /// The number of packets that the link sends while a batch is being compressed, n.
        lead: u32,
    },
    /// The link is about to get to a packet that is not compressed: then as much of its group as
    /// waits is compressed with it, if its waiting time suffices. So batches are as large as the
    /// queue allows, and nothing is held back. Ours, of Eq. (2) of Shimamura et al. and the
    /// groups of Yoshino et al.
    Waiting {
        /// The packets that are compressed together.
        gather: Gather,
        /// The most bytes of packets in a batch.
        bytes_max: u32,
        /// The most packets in a batch.
        packets_max: u32,
        /// The link is about to get to a packet if it needs less than this to send what is
        /// ahead, in nanoseconds; or if that is less than a frame.
        lead_ns: u64,
    },
    /// The largest batch that is ready in time: as soon as the link has nothing left of the batch
    /// before, as much of one group as the link sends in `batch_ns`, if it arrives sooner for being
    /// compressed (Eq. (2) of Shimamura et al.). Meanwhile the link sends the batch before, and what
    /// goes at once. For [`Queue::Flows`].
    Slack {
        /// What is compressed together.
        gather: Gather,
        /// The most bytes of packets in a batch.
        bytes_max: u32,
        /// The most packets in a batch.
        packets_max: u32,
        /// For how long a batch keeps the link, compressed as those before it, in nanoseconds.
        batch_ns: u64,
    },
    /// The packets of a frame, when it is due, if Eq. (2) of Shimamura et al. says that the frame
    /// leaves the link no later for it. For [`Release::Full`].
    Frame,
}

/// When a packet that is to be compressed alone is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum When {
    /// Whatever it costs (the all-compression scheme of Shimamura et al.).
    Always,
    /// If its waiting time suffices: Eq. (2) of Shimamura et al.
    WaitingTime,
}

/// The third axis: the method by which batches are compressed. Codec and level are the driver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Method {
    /// Leaves traffic alone that was learned to be incompressible, with rare tries; `None` tries all
    /// but the exceptions. With fixed estimates ([`Estimates::Fixed`](crate::Estimates::Fixed)) there
    /// is nothing to learn, and it changes nothing.
    pub back_off: Option<BackOffConfig>,
    /// What a batch may refer to.
    pub reference: Reference,
}

/// What a batch may refer to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Reference {
    /// Nothing but itself: it is decoded alone, whatever else was lost.
    #[default]
    Nothing,
    /// All that was compressed before it in the context of its group
    /// ([`Packet::group`](crate::Packet::group)). A job that has begun is committed: its result is
    /// sent whatever its size, and batches of a group are sent in the order of their jobs.
    Context,
}

/// When a frame goes, and what fills it: the fourth axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Release {
    /// When the link is free, with what waits.
    Now(BlockRules),
    /// When it is full or one of its packets has no time left (Sawabe et al.).
    Full {
        /// The most bytes of packets, with the headers of their units, in a frame: the paper's
        /// MTU. What a frame takes ([`FrameCost`](crate::FrameCost)) limits them as well.
        bytes_max: u32,
        /// Fill the room that is left in a frame from other classes (CEA of Sawabe et al.).
        fill: bool,
    },
    /// When the link is free, filled with what waits of any flow. For [`Queue::Flows`].
    Filled,
}

/// The most classes of deadlines.
pub const CLASSES_MAX: usize = 16;

/// The classes of deadlines: T_i of Sawabe et al., ascending, at most [`CLASSES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<u64>", into = "Vec<u64>")]
pub struct ClassTimers {
    timers_ns: [u64; CLASSES_MAX],
    count: u8,
}

impl TryFrom<Vec<u64>> for ClassTimers {
    type Error = ConfigError;

    fn try_from(timers_ns: Vec<u64>) -> Result<Self, ConfigError> {
        Self::new(&timers_ns)
    }
}

impl From<ClassTimers> for Vec<u64> {
    fn from(timers: ClassTimers) -> Self {
        timers.as_slice().to_vec()
    }
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// and the chunk held open where that is asked for ([`Release::Full`]).
    pub const fn lazy(self) -> Pull {
        Pull { policy: self, eager: false, clamp_ns: 0, hold: true }
    }
}

/// The rule by which a chunking buffer pulls from the queues before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pull {
    /// Which head comes next.
    pub policy: PullPolicy,
    /// Pull whenever there is something to pull, instead of only while the link is free. The
    /// paper can be read either way.
    pub eager: bool,
    /// The resolution of the policy's time left, in nanoseconds: below it, all heads
    /// are equally urgent. Zero is the paper's rule; other values are ours.
    pub clamp_ns: u64,
    /// With CEA ([`Release::Full`]), after a packet that does not fit: keep the chunk open for
    /// others that do, instead of closing it with those that wait already.
    pub hold: bool,
}

/// A scheme: one value on each axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scheme {
    /// The packets that wait, and their order.
    pub queue: Queue,
    /// Which packets become one batch, and when.
    pub select: Select,
    /// The method by which batches are compressed.
    pub method: Method,
    /// When a frame goes, and what fills it.
    pub release: Release,
}

/// The names of the presets, in the order in which tables show them.
pub const PRESETS: [&str; 17] = [
    "auto",
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

/// Batches of small packets end here.
const WAITING_PACKETS_MAX: u32 = 128;
/// The port's driver may come a little late.
const WAITING_LEAD_NS: u64 = 2_000_000;

/// A batch of `auto` keeps the link for no longer than this, so that others need not wait for it.
const SLACK_BATCH_NS: u64 = 4_000_000;
/// The most bytes of a batch of `auto`.
const SLACK_BYTES_MAX: u32 = 60_000;

/// The frame that the presets of Sawabe et al. fill: a jumbo frame, section 3.1.
const CHUNK_BYTES_MAX: u32 = 9000;

impl Scheme {
    /// The most bytes of a batch of what waits, in the presets.
    pub const BATCH_BYTES_MAX: u32 = 8192;

    const BASE: Self = Self {
        queue: Queue::One,
        select: Select::Nothing,
        method: Method { back_off: None, reference: Reference::Nothing },
        release: Release::Now(BlockRules::PAPER),
    };

    /// Relay only, compress nothing.
    pub const fn none() -> Self {
        Self::BASE
    }

    /// Compress every packet, at whatever cost (the all-compression scheme of Shimamura et al.).
    pub const fn all() -> Self {
        Self { select: Select::Each(When::Always), ..Self::BASE }
    }

    /// Compress a packet if its waiting time suffices (the scheme that Shimamura et al. propose),
    /// and leave alone what turned out to be incompressible.
    pub fn packet() -> Self {
        Self {
            select: Select::Each(When::WaitingTime),
            method: Method::backing_off(),
            ..Self::BASE
        }
    }

    /// Compress batches of `packets` packets of one group of `gather` while the link sends `lead`
    /// others (Yoshino et al., section III). With [`Gather::Packet`] and `packets` = 1, the
    /// packet scheme that they compare with.
    pub fn backlog(gather: Gather, packets: u32, lead: u32) -> Self {
        Self {
            select: Select::Backlog { gather, packets, lead },
            method: Method::backing_off(),
            ..Self::BASE
        }
    }

    /// Compress what waits of one group of `gather` when the link is about to get to it, in batches
    /// of at most `bytes_max`. Order is kept within each flow.
    pub fn waiting(gather: Gather, bytes_max: u32) -> Self {
        let packets_max = if matches!(gather, Gather::Packet) { 1 } else { WAITING_PACKETS_MAX };
        Self {
            select: Select::Waiting { gather, bytes_max, packets_max, lead_ns: WAITING_LEAD_NS },
            method: Method::backing_off(),
            release: Release::Now(BlockRules { order: BlockOrder::Strict, ..BlockRules::PAPER }),
            ..Self::BASE
        }
    }

    /// Flow queueing, and batches of a group of `gather` that are compressed while the link sends the
    /// batch before, with what went before as their reference.
    pub fn auto(gather: Gather) -> Self {
        Self {
            queue: Queue::Flows(FlowQueues::RFC8290),
            select: Select::Slack {
                gather,
                bytes_max: SLACK_BYTES_MAX,
                packets_max: WAITING_PACKETS_MAX,
                batch_ns: SLACK_BATCH_NS,
            },
            method: Method { reference: Reference::Context, ..Method::backing_off() },
            release: Release::Filled,
        }
    }

    /// BasiCQ: one queue, frames of at most `bytes_max` (Sawabe et al., section 4.1).
    pub const fn basicq(bytes_max: u32) -> Self {
        Self { release: Release::Full { bytes_max, fill: false }, ..Self::BASE }
    }

    /// ChuMQ: a buffer for each class of deadlines (Sawabe et al., section 4.2).
    pub const fn chumq(timers: ClassTimers, bytes_max: u32) -> Self {
        Self { queue: Queue::PerClass(timers), ..Self::basicq(bytes_max) }
    }

    /// ChuTQ: a queue for each class, and a chunking buffer (Sawabe et al., section 4.3).
    pub const fn chutq(timers: ClassTimers, pull: Pull, bytes_max: u32) -> Self {
        Self { queue: Queue::Tandem(timers, pull), ..Self::basicq(bytes_max) }
    }

    /// Returns the scheme with CEA: frames are filled from other classes (Sawabe et al., section
    /// 4.4).
    #[must_use]
    pub const fn with_cea(self) -> Self {
        match self.release {
            Release::Full { bytes_max, .. } => {
                Self { release: Release::Full { bytes_max, fill: true }, ..self }
            }
            Release::Now(_) | Release::Filled => self,
        }
    }

    /// Returns the scheme with frames of at most `bytes_max`, if it fills frames.
    #[must_use]
    pub const fn with_frame_bytes_max(self, bytes_max: u32) -> Self {
        match self.release {
            Release::Full { fill, .. } => {
                Self { release: Release::Full { bytes_max, fill }, ..self }
            }
            Release::Now(_) | Release::Filled => self,
        }
    }

    /// Returns the scheme with frames compressed as a whole, if it fills frames.
    #[must_use]
    pub fn with_compressed_frames(self) -> Self {
        if !self.fills_frames() {
            return self;
        }
        Self { select: Select::Frame, method: Method::backing_off(), ..self }
    }

    /// Returns the scheme with these classes of deadlines, if it separates classes.
    #[must_use]
    pub const fn with_class_timers(self, timers: ClassTimers) -> Self {
        let queue = match self.queue {
            Queue::PerClass(_) => Queue::PerClass(timers),
            Queue::Tandem(_, pull) => Queue::Tandem(timers, pull),
            Queue::One | Queue::CpuAndLink | Queue::Flows(_) => self.queue,
        };
        Self { queue, ..self }
    }

    /// Returns the scheme with these rules of batches, if it releases frames at once.
    #[must_use]
    pub const fn with_rules(self, rules: BlockRules) -> Self {
        match self.release {
            Release::Now(_) => Self { release: Release::Now(rules), ..self },
            Release::Full { .. } | Release::Filled => self,
        }
    }

    /// Returns the scheme with batches that refer to those before them.
    #[must_use]
    pub const fn with_contexts(self) -> Self {
        Self { method: Method { reference: Reference::Context, ..self.method }, ..self }
    }

    /// True if batches refer to those before them.
    pub const fn has_contexts(&self) -> bool {
        matches!(self.method.reference, Reference::Context)
    }

    /// True if it may compress anything.
    pub const fn compresses(&self) -> bool {
        !matches!(self.select, Select::Nothing)
    }

    /// True if it holds packets back to fill frames.
    pub const fn fills_frames(&self) -> bool {
        matches!(self.release, Release::Full { .. })
    }

    /// True if its port may have a deadline while nothing happens, with the objective of time: packets that are held
    /// back, or that wait for a batch of others no longer than that is worth it.
    pub const fn has_deadlines(&self) -> bool {
        self.fills_frames() || matches!(self.queue, Queue::Flows(_))
    }

    /// Returns the packets that are compressed together.
    pub const fn gather(&self) -> Gather {
        match self.select {
            Select::Backlog { gather, .. }
            | Select::Waiting { gather, .. }
            | Select::Slack { gather, .. } => gather,
            Select::Nothing | Select::Each(_) | Select::Frame => Gather::Packet,
        }
    }

    /// Refuses combinations of values that make no sense, and says why.
    ///
    /// # Errors
    /// The reason.
    pub fn check(&self) -> Result<(), ConfigError> {
        let refuse = |reason| Err(ConfigError::Combination(reason));
        match (self.queue, self.select, self.release) {
            (
                Queue::Flows(_),
                select @ (Select::Nothing | Select::Slack { .. }),
                Release::Filled,
            ) => check_slack(select),
            (Queue::Flows(_), ..) | (_, Select::Slack { .. }, _) | (.., Release::Filled) => refuse(
                "a queue for each flow, batches that are ready in time and frames filled from any \
                     flow need each other",
            ),
            (Queue::PerClass(_) | Queue::Tandem(..), _, Release::Now(_)) => {
                refuse("queues for classes of deadlines need frames that wait to be filled")
            }
            (Queue::CpuAndLink, _, Release::Full { .. }) => {
                refuse("frames that wait to be filled leave nothing to a queue for the CPU")
            }
            (Queue::CpuAndLink, Select::Backlog { .. } | Select::Waiting { .. }, _) => {
                refuse("batches are made of one queue, in which their packets keep their places")
            }
            (_, Select::Frame, Release::Now(_)) => {
                refuse("frames are compressed as a whole only if they wait to be filled")
            }
            (_, select, Release::Full { .. })
                if !matches!(select, Select::Nothing | Select::Frame) =>
            {
                refuse("frames that wait to be filled are compressed as a whole or not at all")
            }
            (_, select, _) if self.has_contexts() && !matches!(select, Select::Waiting { .. }) => {
                refuse("contexts need batches that keep the order of their group")
            }
            (_, select, Release::Now(rules)) => check_batches(select, rules),
            (_, _, Release::Full { .. }) => Ok(()),
        }
    }

    /// The scheme of this name: one of [`PRESETS`], or `packet(1,n)`, `flow(m,n)`, `service(m,n)`,
    /// `host-pair(m,n)` or `edge(m,n)` with two numbers for the rule of Yoshino et al. ([`Scheme::backlog`]).
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn preset(name: &str) -> Result<Self, ConfigError> {
        if let Some(scheme) = by_backlog(name) {
            return Ok(scheme);
        }
        let tandem =
            |policy: PullPolicy| Self::chutq(ClassTimers::TABLE_II, policy.lazy(), CHUNK_BYTES_MAX);
        let chumq = Self::chumq(ClassTimers::TABLE_II, CHUNK_BYTES_MAX);
        let waiting = |gather| Self::waiting(gather, Self::BATCH_BYTES_MAX);
        Ok(match name {
            "auto" => Self::auto(Gather::HostPair),
            "none" => Self::none(),
            "all" => Self::all(),
            "packet" => Self::packet(),
            "flow" => waiting(Gather::Flow),
            "service" => waiting(Gather::Service),
            "host-pair" => waiting(Gather::HostPair),
            "edge" => waiting(Gather::Edge),
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

impl Method {
    /// Leaves alone what turned out to be incompressible, with rare tries.
    pub fn backing_off() -> Self {
        Self { back_off: Some(BackOffConfig::default()), reference: Reference::Nothing }
    }
}

/// The scheme of a name like `edge(5,5)`.
fn by_backlog(name: &str) -> Option<Scheme> {
    let (gather, numbers) = name.strip_suffix(')')?.split_once('(')?;
    let (packets, lead) = numbers.split_once(',')?;
    let gather = match gather {
        "packet" => Gather::Packet,
        "flow" => Gather::Flow,
        "service" => Gather::Service,
        "host-pair" => Gather::HostPair,
        "edge" => Gather::Edge,
        _ => return None,
    };
    Some(Scheme::backlog(gather, packets.trim().parse().ok()?, lead.trim().parse().ok()?))
}

/// Refuses batches that have no room.
fn check_slack(select: Select) -> Result<(), ConfigError> {
    match select {
        Select::Slack { packets_max: 0, .. } => Err(ConfigError::BlockPackets),
        Select::Slack { bytes_max: 0, .. } => Err(ConfigError::BlockBytes),
        _ => Ok(()),
    }
}

/// Refuses batches that can't be made or would break the order that is promised.
fn check_batches(select: Select, rules: BlockRules) -> Result<(), ConfigError> {
    let is_count_possible =
        |gather, packets| packets > 0 && (gather != Gather::Packet || packets == 1);
    match select {
        Select::Backlog { gather, packets, .. } => {
            if !is_count_possible(gather, packets) {
                return Err(ConfigError::BlockPackets);
            }
            if rules.order == BlockOrder::Strict && rules.place == BlockPlace::Tail {
                return Err(ConfigError::BlockOrder);
            }
        }
        Select::Waiting { gather, bytes_max, packets_max, .. } => {
            if !is_count_possible(gather, packets_max) {
                return Err(ConfigError::BlockPackets);
            }
            if bytes_max == 0 {
                return Err(ConfigError::BlockBytes);
            }
            if rules.order != BlockOrder::Strict || rules.place != BlockPlace::Front {
                return Err(ConfigError::BlockOrder);
            }
        }
        Select::Nothing | Select::Each(_) | Select::Frame | Select::Slack { .. } => (),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_exists_and_no_other() {
        for name in PRESETS {
            assert!(Scheme::preset(name).is_ok());
        }
        assert_eq!(Scheme::preset("edge(5, 7)"), Ok(Scheme::backlog(Gather::Edge, 5, 7)));
        for bad in ["None", "edge(5)", "edge(5,x)", "basicq(1,2)", "edge(5,5", "(1,1)"] {
            assert!(Scheme::preset(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn class_timers_ascend() {
        let timers = ClassTimers::new(&[50_000, 100_000, 160_000]).unwrap();
        assert_eq!(timers.as_slice(), [50_000, 100_000, 160_000]);
        for bad in [&[][..], &[2, 1], &[1, 1], &[7; CLASSES_MAX + 1]] {
            assert_eq!(ClassTimers::new(bad), Err(ConfigError::ClassTimers));
        }
    }

    #[test]
    fn each_way_to_gather_has_a_rule_of_numbers() {
        let named = [
            ("packet", Gather::Packet),
            ("flow", Gather::Flow),
            ("service", Gather::Service),
            ("host-pair", Gather::HostPair),
            ("edge", Gather::Edge),
        ];
        for (name, gather) in named {
            let scheme = Scheme::preset(&format!("{name}(1,2)"));
            assert_eq!(scheme, Ok(Scheme::backlog(gather, 1, 2)), "{name}");
        }
        assert!(Scheme::preset("host(1,2)").is_err());
    }

    #[test]
    fn slack_needs_room_for_batches() {
        let auto = Scheme::auto(Gather::HostPair);
        let Select::Slack { gather, bytes_max, packets_max, batch_ns } = auto.select else {
            panic!("{auto:?}")
        };
        let check = |bytes_max, packets_max| {
            let select = Select::Slack { gather, bytes_max, packets_max, batch_ns };
            Scheme { select, ..auto }.check()
        };
        assert_eq!(check(bytes_max, packets_max), Ok(()));
        assert_eq!(check(bytes_max, 0), Err(ConfigError::BlockPackets));
        assert_eq!(check(0, packets_max), Err(ConfigError::BlockBytes));
    }

    #[test]
    fn contexts_need_batches_in_order() {
        let check = |scheme: Scheme| scheme.with_contexts().check();
        assert_eq!(check(Scheme::waiting(Gather::Flow, 8192)), Ok(()));
        for scheme in [Scheme::packet(), Scheme::all(), Scheme::backlog(Gather::Flow, 5, 5)] {
            let refused = check(scheme);
            assert!(matches!(refused, Err(ConfigError::Combination(_))), "{refused:?}");
        }
    }

    #[test]
    fn only_schemes_that_fill_frames_compress_them_as_a_whole() {
        assert_eq!(Scheme::packet().with_compressed_frames(), Scheme::packet());
        let frames = Scheme::basicq(9_000).with_compressed_frames();
        assert_eq!(frames.select, Select::Frame);
        assert_eq!(frames.method, Method::backing_off());
        assert_eq!(frames.release, Scheme::basicq(9_000).release);
    }
}
