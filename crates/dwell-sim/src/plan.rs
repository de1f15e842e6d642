//! The input of a simulation: the network, its traffic, and the measurement window.

use dwell_base::Rate;
use dwell_policy::PortConfig;
use thiserror::Error;

pub(crate) mod medium;
mod recording;

pub use medium::{CoDel, Discipline, Jitter, Loss, Managed, Medium, Pie, Variation};
pub use recording::{RecordedPacket, Recording};

/// Everything that determines a run, but the seed.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Names of the nodes.
    pub nodes: Vec<String>,
    /// Links, each in one direction.
    pub links: Vec<Link>,
    /// The groups that statistics are kept for, for instance "target" and "cross".
    pub groups: Vec<Group>,
    /// Flows; each belongs to a group.
    pub flows: Vec<Flow>,
    /// The measurement window.
    pub window: Window,
    /// The width of a bin of the time lines, in nanoseconds; none are kept without.
    pub bin_ns: Option<u64>,
    /// The order of what happens at the same instant.
    pub ties: Ties,
    /// Verifies every port's invariants after each event; slow.
    pub check_invariants: bool,
    /// Leaves out what each packet costs time for: distributions and jitter of delays.
    pub counts_only: bool,
}

/// The order of events at the same instant. They are common: packets of one size over links whose rates
/// divide each other keep in step with each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ties {
    /// Ends of transmissions first, then compressions, then timers; all others in an order that chance
    /// decides each time.
    #[default]
    Random,
    /// The order that ns-2's clock gives them, which counts seconds in floating point: rounding decides,
    /// and mostly in the same way for as long as links are busy.
    Ns2,
    /// As `Random`, and propagation takes up to this many nanoseconds longer for each packet, by chance; packets
    /// keep their order. Then there are hardly any ties.
    Jitter(u64),
}

impl Plan {
    /// Returns true if packets with contents are really compressed: its worlds need
    /// [`contents`](crate::World::with_contents).
    pub fn needs_contents(&self) -> bool {
        let is_real = |link: &Link| match &link.queue {
            Queue::Port(port) => matches!(port.compress, CompressionModel::Real(_)),
            _ => false,
        };
        self.links.iter().any(is_real)
    }

    /// Checks that the plan can be run, as [`World::new`](crate::world::World::new) does, except
    /// for the configurations of its ports.
    ///
    /// # Errors
    /// Returns the first reason why it can't be run.
    pub fn check(&self) -> Result<(), PlanError> {
        crate::world::check(self)
    }
}

/// A link, in one direction, with the queue in front of it.
#[derive(Clone, Debug)]
pub struct Link {
    /// Its name in results.
    pub name: String,
    /// Index of the node that it leaves.
    pub from: usize,
    /// Index of the node that it enters.
    pub to: usize,
    /// Bits per second.
    pub rate: Rate,
    /// Propagation delay.
    pub propagation_ns: u64,
    /// A frame takes at least this long, however short it is: 1 / (packets per second).
    pub frame_ns_min: u64,
    /// The queue in front.
    pub queue: Queue,
    /// True if packets travel here in their original size: the node decompresses them before.
    pub restored: bool,
    /// Losses, jitter, a rate that varies.
    pub medium: Medium,
}

/// A queue in front of a link.
#[derive(Clone, Debug)]
pub enum Queue {
    /// First in, first out, without a limit.
    Unlimited,
    /// First in, first out; a packet that finds the queue full is dropped.
    DropTail(DropTail),
    /// First in, first out, or by flow, with a rule that drops or marks packets before the queue is full.
    Managed(Managed),
    /// The decision core.
    Port(Box<PortPlan>),
}

/// The limits of a drop-tail queue. The packet on the wire does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropTail {
    /// ns-2's rule: a packet is dropped if the packets waiting and itself would reach this
    /// number.
    pub packets: Option<u32>,
    /// Most bytes that may wait.
    pub bytes: Option<u64>,
}

/// A relay's output port, and the cost of compressing there.
#[derive(Clone, Debug)]
pub struct PortPlan {
    /// The port.
    pub config: PortConfig,
    /// The gain and the cost of compressing.
    pub compress: CompressionModel,
    /// A unit compressed here that is lost further on comes back to the queue after this time;
    /// without one it stays lost.
    pub resend_after_ns: Option<u64>,
    /// With [`Ties::Ns2`] the time for a unit in seconds, if it is not one of whole nanoseconds; only for
    /// [`CompressionModel::Constant`].
    pub unit_s: Option<f64>,
}

/// The gain and the cost of compressing.
#[derive(Clone, Debug, PartialEq)]
pub enum CompressionModel {
    /// The same ratio and time for every unit, as in the papers.
    Constant {
        /// Compressed / original.
        ratio: f64,
        /// Nanoseconds for a unit.
        time_ns: u64,
    },
    /// Ratios and times by class of flow, each with a distribution of ratios.
    PerClass(Vec<CompressionClass>),
    /// Ratios and times by size, as measured.
    Measured(Vec<CompressionSample>),
    /// A codec compresses what packets with contents really contain; others don't shrink.
    Real(RealCodec),
}

/// A codec, and the time that it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RealCodec {
    /// Its name, as `zstd:1`: what knows codecs reads it.
    pub codec: String,
    /// The time for a unit, in nanoseconds.
    pub unit_ns: u64,
    /// The time for each byte of it, in picoseconds.
    pub byte_ps: u64,
}

/// The ratio and the time of units of one flow class.
#[derive(Clone, Debug, PartialEq)]
pub struct CompressionClass {
    /// The group of flows that it is about.
    pub group: usize,
    /// Ratios are distributed uniformly between these.
    pub ratio: (f64, f64),
    /// Fixed nanoseconds for a unit.
    pub unit_ns: u64,
    /// Nanoseconds for each byte.
    pub byte_ns: f64,
}

/// One row of a measured table; between rows ratio and time are interpolated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompressionSample {
    /// Size of the unit.
    pub bytes: u32,
    /// Compressed / original.
    pub ratio: f64,
    /// Nanoseconds for the unit.
    pub time_ns: u64,
}

/// Flows whose statistics are kept together.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its name in results.
    pub name: String,
    /// The acceptable waiting time at ports: packets that wait longer are late. Zero: none is late.
    pub wait_ns_max: u64,
}

/// A flow of packets.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Index of its group.
    pub group: usize,
    /// Indices of the links on its path.
    pub route: Vec<usize>,
    /// Indices of the links on its acknowledgements' path; empty but for TCP.
    pub back: Vec<usize>,
    /// The longest time that a port may hold its packets back, in nanoseconds.
    pub max_wait_ns: u64,
    /// Its egress edge, for schemes that gather by it.
    pub edge: u64,
    /// Its service (destination and port), for schemes that gather by it.
    pub service: u64,
    /// Its pair of hosts, for schemes that gather by it.
    pub hosts: u64,
    /// The source of its packets.
    pub traffic: Traffic,
}

/// A source of packets.
#[derive(Clone, Debug)]
pub enum Traffic {
    /// Bursts and pauses: ns-2's exponential source.
    OnOff(OnOff),
    /// Poisson arrivals, with steps of the rate.
    Poisson {
        /// Size of a packet.
        packet_bytes: u32,
        /// Times (ns), rising, each with the rate from then on in bits per second (zero: none).
        steps: Vec<(u64, f64)>,
    },
    /// Packets at equal distances.
    Cbr {
        /// Size of a packet.
        packet_bytes: u32,
        /// Bits per second.
        rate: Rate,
        /// The time at which the first one is sent.
        start_ns: u64,
    },
    /// Packets as recorded: time and size, in order of time.
    Trace(std::sync::Arc<[(u64, u32)]>),
    /// Packets as recorded, with their contents.
    Recorded(Recording),
    /// One TCP connection with endless data.
    Tcp(crate::tcp::TcpConfig, TcpStart),
}

impl Traffic {
    /// Gives a source that draws from ns-2's generator the number of its stream.
    pub(crate) fn set_stream(&mut self, number: u64) {
        let random = match self {
            Self::OnOff(on_off) => &mut on_off.random,
            Self::Tcp(_, start) => &mut start.random,
            Self::Poisson { .. } | Self::Cbr { .. } | Self::Trace(_) | Self::Recorded(_) => return,
        };
        if let RandomSource::Ns2 { stream } = random {
            *stream = number;
        }
    }
}

/// The time at which a connection begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpStart {
    /// A time drawn uniformly between these.
    pub between_ns: (u64, u64),
    /// The source of the random number.
    pub random: RandomSource,
}

/// The parameters of ns-2's `Application/Traffic/Exponential`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OnOff {
    /// Size of a packet.
    pub packet_bytes: u32,
    /// Bits per second within a burst.
    pub rate: Rate,
    /// Mean length of a burst.
    pub on_ns: f64,
    /// Mean length of a pause.
    pub off_ns: f64,
    /// The source of its random numbers.
    pub random: RandomSource,
}

/// The source of a traffic source's random numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RandomSource {
    /// A stream of our own for each flow.
    #[default]
    Own,
    /// ns-2's generator, stream by number, to compare packet by packet.
    Ns2 {
        /// The number of the stream.
        stream: u64,
    },
}

/// The measurement window: packets sent in `[from_ns, until_ns)` count, and are followed for
/// `drain_ns` more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The end of the warm-up.
    pub from_ns: u64,
    /// The end of the measurement.
    pub until_ns: u64,
    /// The time for which sources go on after that, so that packets in flight can arrive.
    pub drain_ns: u64,
}

impl Default for Window {
    fn default() -> Self {
        Self { from_ns: 0, until_ns: 1_000_000_000, drain_ns: 0 }
    }
}

/// A reason why a plan can't be run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    /// Nothing sends.
    #[error("there is no flow: nothing would happen")]
    NoFlows,
    /// A link's end does not exist.
    #[error("link {link} leads to or from a node that does not exist")]
    NoSuchNode {
        /// The link.
        link: String,
    },
    /// A flow's link, group or route does not exist.
    #[error("flow {flow}: {what}")]
    Flow {
        /// Its index.
        flow: usize,
        /// The problem.
        what: String,
    },
    /// A queue or a medium is impossible.
    #[error("link {link}: {what}")]
    Link {
        /// The link.
        link: String,
        /// The problem.
        what: &'static str,
    },
    /// A port's configuration is impossible.
    #[error("link {link}: {source}")]
    Port {
        /// The link.
        link: String,
        /// The problem.
        source: dwell_policy::ConfigError,
    },
    /// A number that makes no sense.
    #[error("{0}")]
    Value(String),
}
