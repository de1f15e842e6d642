//! The state of a node: what `dwell status --json` prints and what a run records.
//!
//! Field names are the format. A field may be added at any time, and readers ignore what they
//! do not know; anything else is a new [`SCHEMA`]. Every name bears its unit: `_ns` for
//! nanoseconds, `_bytes`, `_bps` for bits per second; names without one count things.
//! Counters start at zero with the process (`uptime_ns`) and never go down.

mod problem;

use std::collections::BTreeMap;

pub use problem::{Problem, ProblemStatus};

use dwell_policy::{Accounts, Bypass, ClassKey, DropReason, Ratio};
use serde::{Deserialize, Serialize};

/// The version of the format, [`Status::schema`].
pub const SCHEMA: u32 = 1;

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The version of this format: [`SCHEMA`].
    pub schema: u32,
    /// The version of the program.
    pub version: String,
    /// The node's name.
    pub name: String,
    /// How long it has been running.
    pub uptime_ns: u64,
    /// CPU time of the whole process, user and system.
    pub cpu_ns: u64,
    /// Whether the kernel allows it only the system calls that it needs.
    #[serde(default)]
    pub seccomp: bool,
    /// Its interface towards the network that it serves.
    pub tun: TunStatus,
    /// Packets and datagrams that were dropped before a peer was known, by reason.
    pub drops: BTreeMap<String, u64>,
    /// What is wrong with the node itself, the oldest first.
    #[serde(default)]
    pub problems: Vec<ProblemStatus>,
    /// Its peers, in the order of the configuration.
    pub peers: Vec<PeerStatus>,
}

impl Default for Status {
    fn default() -> Self {
        Self {
            schema: SCHEMA,
            version: String::new(),
            name: String::new(),
            uptime_ns: 0,
            cpu_ns: 0,
            seccomp: false,
            tun: TunStatus::default(),
            drops: BTreeMap::new(),
            problems: Vec::new(),
            peers: Vec::new(),
        }
    }
}

/// The TUN interface. `rx` is what the node reads from it: packets on their way to a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunStatus {
    /// The interface's name.
    pub name: String,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// Whether super-packets (GSO, GRO) pass through it.
    pub offload: bool,
    /// Packets read.
    pub rx_packets: u64,
    /// Bytes read.
    pub rx_bytes: u64,
    /// Packets written.
    pub tx_packets: u64,
    /// Bytes written.
    pub tx_bytes: u64,
}

/// Whether a peer can be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerState {
    /// It answers.
    Up,
    /// It has not answered yet, or not any more, and is being called.
    Connecting,
    /// It is not there, and this node does not call it or has given up for now.
    #[default]
    Down,
}

impl PeerState {
    /// The name in records and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Connecting => "connecting",
            Self::Down => "down",
        }
    }
}

/// Where the rate of a link comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RateSource {
    /// It is written in the configuration.
    Configured,
    /// It was measured.
    Measured,
    /// There is none: packets do not wait in this node.
    #[default]
    Unlimited,
}

impl RateSource {
    /// The name in records and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::Measured => "measured",
            Self::Unlimited => "unlimited",
        }
    }
}

/// A peer and the link to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// The peer's name in this node's configuration.
    pub name: String,
    /// The address that datagrams go to now, if one is known.
    pub endpoint: Option<String>,
    /// Whether it can be reached.
    pub state: PeerState,
    /// What is wrong with it, the oldest first. Empty if nothing is known to be.
    #[serde(default)]
    pub problems: Vec<ProblemStatus>,
    /// How datagrams are protected: `"keys"`, `"psk"` or `"none"`.
    pub security: String,
    /// What becomes of packets for the peer while it is not up: `"closed"` refuses them, `"open"`
    /// lets them leave by other routes.
    #[serde(default)]
    pub on_dead: String,
    /// The scheme, by its preset's name.
    pub scheme: String,
    /// The codec and its level, as in the configuration.
    pub codec: String,
    /// The rate that the port believes the link to have.
    pub rate_bps: Option<u64>,
    /// Where that rate comes from.
    pub rate_source: RateSource,
    /// The largest packet that fits into one datagram to this peer, in bytes.
    pub mtu: u32,
    /// Packets waiting now.
    pub waiting_packets: u64,
    /// Their bytes on the link.
    pub waiting_bytes: u64,
    /// How long a packet that arrives now would wait; zero while the rate is unknown.
    pub waiting_ns: u64,
    /// The latest round trip to the peer and back.
    pub rtt_ns: Option<u64>,
    /// How long ago something authentic came from the peer.
    pub since_heard_ns: Option<u64>,
    /// What goes to the peer.
    pub tx: TxStatus,
    /// What comes from the peer.
    pub rx: RxStatus,
    /// How long a datagram is believed to take to the peer: configured, or half of the smoothed
    /// round trip.
    #[serde(default)]
    pub one_way_ns: Option<u64>,
    /// The rate of a link beyond the next hop, if the slowest one is there by the peer's reports.
    #[serde(default)]
    pub bottleneck_bps: Option<u64>,
    /// How much longer than at its best a datagram took to the peer of late: the queue that stands
    /// on the way. None before there were reports to tell.
    #[serde(default)]
    pub beyond_ns: Option<u64>,
    /// Classes whose packets may be held back, and how well that was kept.
    #[serde(default)]
    pub deadlines: Vec<DeadlineStatus>,
    /// What became of the packets of each class that the configuration names.
    #[serde(default)]
    pub traffic: Vec<ClassTraffic>,
    /// What was learned of the traffic to the peer, by class.
    pub classes: Vec<ClassStatus>,
}

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// How many.
    pub packets: u64,
    /// Their bytes, as they were before any compressing.
    pub bytes: u64,
}

impl From<dwell_policy::Count> for Count {
    fn from(count: dwell_policy::Count) -> Self {
        Self { packets: count.packets, bytes: count.bytes }
    }
}

/// What goes to a peer: arrived = sent + dropped + held, in packets and in bytes.
///
/// Made [from the port's accounts](#impl-From<%26Accounts>-for-TxStatus); the fields that the
/// core knows nothing about are then zero and the driver's to fill.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TxStatus {
    /// Packets that arrived at the port.
    pub arrived: Count,
    /// Packets that left on the link.
    pub sent: Count,
    /// Packets that were dropped, by reason; every reason is there, if only with zero.
    pub dropped: BTreeMap<String, Count>,
    /// Packets that are in the port now.
    pub held: Count,
    /// Frames sent: datagrams with packets.
    pub frames: u64,
    /// Bytes put on the link for them, all overhead included.
    pub link_bytes: u64,
    /// Bytes that the packets sent would have taken on the link without dwell: their own, and for
    /// each packet what a datagram costs below IP.
    #[serde(default)]
    pub plain_bytes: u64,
    /// `plain_bytes` less all that the link carried for this peer: `link_bytes`, `resent_bytes` and
    /// `control_bytes`. Negative if dwell costs more than it saves.
    #[serde(default)]
    pub net_saved_bytes: i64,
    /// Times that the compressor was at work: on a packet, or on a block of them.
    #[serde(default)]
    pub compressions: u64,
    /// Packets given to the compressor.
    pub tried: u64,
    /// Packets that came out smaller, and the bytes that went in.
    pub compressed: Count,
    /// The bytes that came out for `compressed`.
    pub compressed_to_bytes: u64,
    /// Packets that did not become smaller and were sent as they were.
    pub not_smaller: u64,
    /// Packets that the codec failed on; sent as they were.
    pub failed: u64,
    /// Time spent compressing.
    pub compress_ns: u64,
    /// Packets not tried, by reason; every reason is there, if only with zero.
    pub bypassed: BTreeMap<String, u64>,
    /// The time from a packet's arrival to its sending.
    pub sojourn: HistogramSummary,
    /// Datagrams without packets: handshakes, keep-alives, reports.
    pub control_datagrams: u64,
    /// Their bytes.
    pub control_bytes: u64,
    /// Datagrams sent again because the peer missed them.
    #[serde(default)]
    pub resent_datagrams: u64,
    /// What the link carried for them.
    #[serde(default)]
    pub resent_bytes: u64,
    /// Compressed packets and blocks of other peers that came for the queue unopened, whether they
    /// found room there or not, and the bytes of their records as they came. In the queue each counts
    /// as one packet.
    #[serde(default)]
    pub carried: Count,
    /// Datagrams sent in sessions, whatever was in them.
    #[serde(default)]
    pub datagrams: u64,
    /// Those that the peer says it got, in all sessions.
    #[serde(default)]
    pub peer_got_datagrams: u64,
    /// Those that it says it lost, in all sessions.
    #[serde(default)]
    pub peer_lost_datagrams: u64,
    /// What was lost on the way to the peer in the last seconds, by its latest report.
    #[serde(default)]
    pub loss: Option<RecentLoss>,
    /// Datagrams that the operating system did not take, by error.
    pub send_errors: BTreeMap<String, u64>,
}

impl TxStatus {
    /// All drops together.
    pub fn dropped_total(&self) -> Count {
        self.dropped.values().fold(Count::default(), |sum, count| Count {
            packets: sum.packets + count.packets,
            bytes: sum.bytes + count.bytes,
        })
    }

    /// True if arrived = sent + dropped + held, in packets and in bytes.
    pub fn balances(&self) -> bool {
        let dropped = self.dropped_total();
        let packets = self.sent.packets + dropped.packets + self.held.packets;
        let bytes = self.sent.bytes + dropped.bytes + self.held.bytes;
        (self.arrived.packets, self.arrived.bytes) == (packets, bytes)
    }

    /// What the link carried for the bytes that were sent, all overhead included:
    /// compressed / original, above 1 if the overhead outweighs the gain. `None` if nothing
    /// was sent.
    pub fn link_ratio(&self) -> Option<f64> {
        ratio(self.link_bytes, self.sent.bytes)
    }

    /// Average ratio of what was compressed: compressed / original. `None` if nothing was.
    pub fn compressed_ratio(&self) -> Option<f64> {
        ratio(self.compressed_to_bytes, self.compressed.bytes)
    }

    /// Fills in what is saved, on a link that takes this many bytes for each datagram below IP.
    #[must_use]
    pub fn with_savings(self, link_overhead_bytes: u32) -> Self {
        let overhead = self.sent.packets.saturating_mul(link_overhead_bytes.into());
        let plain_bytes = self.sent.bytes.saturating_add(overhead);
        let taken = self.link_bytes + self.resent_bytes + self.control_bytes;
        let net = i128::from(plain_bytes) - i128::from(taken);
        let net_saved_bytes =
            i64::try_from(net).unwrap_or(if net < 0 { i64::MIN } else { i64::MAX });
        Self { plain_bytes, net_saved_bytes, ..self }
    }

    /// The bytes that compression took off packets, before any header: see `net_saved_bytes` for
    /// what is left of it on the link.
    pub fn saved_bytes(&self) -> u64 {
        self.compressed.bytes.saturating_sub(self.compressed_to_bytes)
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

impl From<&Accounts> for TxStatus {
    fn from(accounts: &Accounts) -> Self {
        let compress = &accounts.compress;
        Self {
            arrived: accounts.arrived.into(),
            sent: accounts.sent.into(),
            dropped: DropReason::ALL
                .iter()
                .zip(accounts.dropped)
                .map(|(reason, count)| (reason.name().to_owned(), count.into()))
                .collect(),
            held: accounts.held.into(),
            frames: accounts.frames,
            link_bytes: accounts.link_bytes,
            compressions: compress.compressions,
            tried: compress.tried,
            compressed: compress.compressed.into(),
            compressed_to_bytes: compress.compressed_to_bytes,
            not_smaller: compress.not_smaller,
            failed: compress.failed,
            compress_ns: compress.took_ns,
            bypassed: Bypass::ALL
                .iter()
                .zip(compress.bypassed)
                .map(|(reason, count)| (reason.name().to_owned(), count))
                .collect(),
            ..Self::default()
        }
    }
}

/// What comes from a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RxStatus {
    /// Datagrams accepted.
    pub datagrams: u64,
    /// Their bytes: whole datagrams, without the UDP and IP headers around them.
    pub bytes: u64,
    /// Packets that came as they were.
    pub raw: u64,
    /// Packets that came compressed.
    pub compressed: u64,
    /// Blocks that were restored; their packets count as compressed.
    #[serde(default)]
    pub blocks: u64,
    /// Parts of records that were longer than a datagram.
    #[serde(default)]
    pub fragments: u64,
    /// Records that came in parts and were dropped, by reason: not all parts came in time, too
    /// many others were under way, or the parts contradict each other.
    #[serde(default)]
    pub dropped_records: BTreeMap<String, u64>,
    /// Packets delivered, with their original bytes.
    pub packets: Count,
    /// Compressed packets and blocks that came for another peer and went to its queue unopened, whether
    /// they found room there or not, and the bytes of their records. What is in them is not in
    /// `packets`.
    #[serde(default)]
    pub carried: Count,
    /// Of the packets, those that went to another peer's queue without passing the interface, whether
    /// they found room there or not.
    #[serde(default)]
    pub forwarded: Count,
    /// Compressed packets and blocks that had gone too far, and were dropped.
    #[serde(default)]
    pub hop_limit: u64,
    /// Datagrams that never came, in all sessions: gaps in the sequence numbers that are older than
    /// some seconds.
    pub lost_datagrams: u64,
    /// What was lost on the way from the peer in the last seconds.
    #[serde(default)]
    pub loss: Option<RecentLoss>,
    /// How often the peer's sequence numbers jumped ahead by more than a link can lose. What they
    /// jumped over does not count as lost.
    #[serde(default)]
    pub sequence_jumps: u64,
    /// Datagrams whose packets, or some of them, waited for the peer's next turn: restoring those
    /// before them had used up what one turn may cost.
    #[serde(default)]
    pub deferred_datagrams: u64,
    /// Datagrams whose packets were dropped because too many waited so.
    #[serde(default)]
    pub over_budget: u64,
    /// Records that were dropped, whole or from some packet on, because their datagram held more
    /// packets than its length allows.
    #[serde(default)]
    pub too_many_packets: u64,
    /// Of the datagrams that were missing, those that came when they were sent again.
    #[serde(default)]
    pub recovered_datagrams: u64,
    /// Those that did not come, though the peer was asked; or it did not keep them.
    #[serde(default)]
    pub unrecovered_datagrams: u64,
    /// Datagrams refused as duplicates or replays.
    pub replayed: u64,
    /// Datagrams that are not from the peer, or were altered on the way.
    pub auth_failed: u64,
    /// Datagrams or records that do not follow the wire format.
    pub malformed: u64,
    /// Compressed packets that could not be restored.
    pub decode_failed: u64,
    /// Records of a kind that this version does not know, left out.
    pub skipped_records: u64,
    /// Packets refused because their source is not in the peer's prefixes.
    pub not_allowed: u64,
    /// What the peer says it received from this node; `None` before its first report.
    pub reported: Option<PeerReport>,
}

/// What was lost on the way in the last five seconds: datagrams that did not come when they were
/// first sent, though they may have come when they were sent again.
///
/// A count of the receiver's. It takes half a second for a datagram that is only late to be distinguished from
/// one that is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecentLoss {
    /// Datagrams that were sent.
    pub datagrams: u64,
    /// Those of them that were lost.
    pub lost: u64,
    /// The same as a part of a million.
    pub ppm: u64,
}

impl RecentLoss {
    /// Of these counts; none if nothing was sent.
    pub fn of(datagrams: u64, lost: u64) -> Option<Self> {
        let lost = lost.min(datagrams);
        let ppm = (u128::from(lost) * 1_000_000).checked_div(u128::from(datagrams))?;
        Some(Self { datagrams, lost, ppm: ppm as u64 })
    }
}

/// What a peer received from this node in the present session, by its own account, and what waits
/// there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerReport {
    /// Datagrams with packets that it accepted.
    pub datagrams: u64,
    /// Their bytes: whole datagrams, without the UDP and IP headers around them.
    pub bytes: u64,
    /// Records that it read from them.
    pub records: u64,
    /// Datagrams that it takes for lost.
    pub lost: u64,
    /// Datagrams that it refused as duplicates or replays.
    pub duplicates: u64,
    /// The rate at which datagrams arrived since its report before.
    pub delivery_bps: u64,
    /// What waits there for its link to this node.
    #[serde(default)]
    pub waiting_bytes: u64,
    /// How long a packet that arrives there would wait.
    #[serde(default)]
    pub waiting_ns: u64,
}

/// Packets of a class with a deadline, on their way to a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadlineStatus {
    /// The class, by its name in the configuration.
    pub class: String,
    /// How long a packet may take to the peer.
    pub max_wait_ns: u64,
    /// What is left of it for holding packets back, now: W of Sawabe et al. Zero if there is
    /// nothing left, and packets go at once.
    pub hold_ns: u64,
    /// Packets sent.
    pub packets: u64,
    /// Packets that waited for longer than that: for a frame that was on the link already, if for no
    /// longer than that takes.
    #[serde(default)]
    pub past_hold: u64,
    /// Those of them that waited for longer than that too, so that they take more than `max_wait`:
    /// violations. Where `hold_ns` is zero nothing is held, and nothing counted.
    pub late: u64,
    /// By how much, in the mean over these.
    pub excess_mean_ns: u64,
    /// By how much, at the most.
    pub excess_max_ns: u64,
}

/// What became of the packets of a class that the configuration names, to and from a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassTraffic {
    /// The class, by its name in the configuration.
    pub class: String,
    /// Packets that came for the peer.
    pub arrived: Count,
    /// Those that were sent.
    pub sent: Count,
    /// Of these, those that were sent compressed; their bytes as they came.
    pub compressed: Count,
    /// Packets of the class that came from the peer.
    pub received: Count,
    /// Those that were dropped, by reason; every reason is there, if only with zero.
    pub dropped: BTreeMap<String, u64>,
    /// Those that were sent without having been given to the compressor, by reason, likewise.
    #[serde(default)]
    pub bypassed: BTreeMap<String, u64>,
    /// The time from a packet's arrival to its sending.
    pub sojourn: HistogramSummary,
}

/// What was learned of a class of packets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassStatus {
    /// Protocol and port: `tcp/443`.
    pub class: String,
    /// Expected ratio: compressed / original.
    pub ratio: f64,
    /// Expected time to compress a byte, in nanoseconds.
    pub ns_per_byte: f64,
    /// Whether it is left alone for a while because compressing it brought nothing.
    pub backing_off: bool,
}

impl ClassStatus {
    /// From what a port learned ([`dwell_policy::Port::learned_classes`]).
    pub fn learned(
        (class, ratio, cost_ps_per_byte, backing_off): (ClassKey, Ratio, u32, bool),
    ) -> Self {
        Self {
            class: class.to_string(),
            ratio: ratio.as_f64(),
            ns_per_byte: f64::from(cost_ps_per_byte) / 1e3,
            backing_off,
        }
    }
}

/// A distribution of times in a few numbers; all zero if nothing was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistogramSummary {
    /// How many were recorded.
    pub count: u64,
    /// The smallest.
    pub min_ns: u64,
    /// The mean.
    pub mean_ns: u64,
    /// Half were at most this.
    pub p50_ns: u64,
    /// 90 % were at most this.
    pub p90_ns: u64,
    /// 99 % were at most this.
    pub p99_ns: u64,
    /// The largest.
    pub max_ns: u64,
    /// How many were at most each of [`BUCKETS_NS`](crate::histogram::BUCKETS_NS).
    #[serde(default)]
    pub at_most: [u64; 16],
}

impl HistogramSummary {
    /// The median, if anything was recorded.
    pub fn p50_ns_if_any(&self) -> Option<u64> {
        (self.count > 0).then_some(self.p50_ns)
    }

    /// The 99th percentile, if anything was recorded.
    pub fn p99_ns_if_any(&self) -> Option<u64> {
        (self.count > 0).then_some(self.p99_ns)
    }
}

#[cfg(test)]
pub(crate) mod tests;
