//! The state of a node, as `dwell status --json` prints it and runs record it.
//!
//! Field names are the format. A field may be added at any time, and readers ignore what they
//! do not know; anything else is a new [`SCHEMA`]. Every name bears its unit: `_ns` for
//! nanoseconds, `_bytes`, `_bps` for bits per second; names without one count things.
//! Counters start at zero with the process (`uptime_ns`) and never go down.

mod contexts;
mod event;
mod flow;
mod operation;
mod problem;

use std::collections::BTreeMap;

pub use contexts::{DictionaryStatus, RxContexts, TxContexts};
pub use event::{EVENTS_MAX, EventStatus};
pub use flow::FlowStatus;
pub use operation::{ConfigurationStatus, RecentTraffic, Saved, SavingsStatus};
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
    /// The time since it was started.
    pub uptime_ns: u64,
    /// CPU time of the whole process, user and system.
    pub cpu_ns: u64,
    /// True if the kernel allows it only the system calls that it needs.
    #[serde(default)]
    pub seccomp: bool,
    /// The configuration that it runs with.
    #[serde(default)]
    pub configuration: ConfigurationStatus,
    /// What was saved on the links from it.
    #[serde(default)]
    pub savings: SavingsStatus,
    /// The interface to the network that it serves.
    pub tun: TunStatus,
    /// The memory of the contexts with all peers.
    #[serde(default)]
    pub history: HistoryStatus,
    /// Packets and datagrams that were dropped before a peer was known, by reason.
    pub drops: BTreeMap<String, u64>,
    /// The problems of the node itself, the oldest first.
    #[serde(default)]
    pub problems: Vec<ProblemStatus>,
    /// What happened lately, the oldest first; at most [`EVENTS_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventStatus>,
    /// The flows to peers that send most, those first; they are counted from the first question for the status on, and
    /// not any more when nobody asked for 15 s.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<FlowStatus>,
    /// The address of its web page, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub web: Option<String>,
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
            configuration: ConfigurationStatus::default(),
            savings: SavingsStatus::default(),
            tun: TunStatus::default(),
            history: HistoryStatus::default(),
            drops: BTreeMap::new(),
            problems: Vec::new(),
            events: Vec::new(),
            flows: Vec::new(),
            web: None,
            peers: Vec::new(),
        }
    }
}

/// The memory of the contexts with all peers together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HistoryStatus {
    /// Bytes that they take now.
    pub memory_bytes: u64,
    /// Bytes that they may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes_max: Option<u64>,
    /// Contexts that were given up for others.
    pub evicted: u64,
}

/// The TUN interface. `rx` counts the packets that the node reads from it, which go to a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunStatus {
    /// The interface's name.
    pub name: String,
    /// Its addresses, with their prefix lengths.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// True if super-packets (GSO, GRO) pass through it.
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

/// The state of a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerState {
    /// It answers.
    Up,
    /// It has not answered yet, or not any more, and this node initiates handshakes with it.
    Connecting,
    /// It is not there, and this node does not initiate a handshake with it or has given up for
    /// now.
    #[default]
    Down,
}

impl PeerState {
    /// Returns the name in records and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Connecting => "connecting",
            Self::Down => "down",
        }
    }
}

/// The origin of a link's rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RateSource {
    /// It is written in the configuration.
    Configured,
    /// It was measured.
    Measured,
    /// It is the peer's share of a link that all peers share.
    Share,
    /// There is none: packets do not wait in this node.
    #[default]
    Unlimited,
}

impl RateSource {
    /// Returns the name in records and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::Measured => "measured",
            Self::Share => "share",
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
    /// The prefixes that are routed to it.
    #[serde(default)]
    pub prefixes: Vec<String>,
    /// The state of the peer.
    pub state: PeerState,
    /// The time for which it has been up, or not up.
    #[serde(default)]
    pub state_for_ns: u64,
    /// Its traffic in the last seconds; none in the first ones.
    #[serde(default)]
    pub recent: Option<RecentTraffic>,
    /// The problems with it, the oldest first. Empty if none is known.
    #[serde(default)]
    pub problems: Vec<ProblemStatus>,
    /// The protection of datagrams: `"keys"`, `"psk"` or `"none"`.
    pub security: String,
    /// The treatment of packets for the peer while it is not up: `"closed"` refuses them, `"open"`
    /// lets them leave by other routes.
    #[serde(default)]
    pub on_dead: String,
    /// The scheme, by its preset's name.
    pub scheme: String,
    /// The codec and its level, as in the configuration.
    pub codec: String,
    /// The dictionary of its contexts, if one is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dictionary: Option<DictionaryStatus>,
    /// The rate that the port believes the link to have.
    pub rate_bps: Option<u64>,
    /// The origin of that rate.
    pub rate_source: RateSource,
    /// The largest packet that fits into one datagram to this peer, in bytes.
    pub mtu: u32,
    /// Packets waiting now.
    pub waiting_packets: u64,
    /// Their bytes on the link.
    pub waiting_bytes: u64,
    /// The time that a packet that arrives now would wait; zero while the rate is unknown.
    pub waiting_ns: u64,
    /// The latest round trip to the peer and back.
    pub rtt_ns: Option<u64>,
    /// The time since the last authentic datagram from the peer.
    pub since_received_ns: Option<u64>,
    /// The traffic to the peer.
    pub tx: TxStatus,
    /// The traffic from the peer.
    pub rx: RxStatus,
    /// The estimated time that a datagram takes to the peer: configured, or half of the smoothed
    /// round trip.
    #[serde(default)]
    pub one_way_ns: Option<u64>,
    /// The rate of the slowest link on the path, if the peer's reports show one.
    #[serde(default)]
    pub bottleneck_bps: Option<u64>,
    /// The time by which a datagram recently took longer to the peer than at best: the queue on the
    /// path. None until there are reports.
    #[serde(default)]
    pub beyond_ns: Option<u64>,
    /// Classes whose packets have a deadline, and how well it was kept.
    #[serde(default)]
    pub deadlines: Vec<DeadlineStatus>,
    /// The traffic of each class that the configuration names.
    #[serde(default)]
    pub traffic: Vec<ClassTraffic>,
    /// The learned properties of the traffic to the peer, by class.
    pub classes: Vec<ClassStatus>,
}

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Their bytes, as they were before any compressing.
    pub bytes: u64,
}

impl From<dwell_policy::Count> for Count {
    fn from(count: dwell_policy::Count) -> Self {
        Self { packets: count.packets, bytes: count.bytes }
    }
}

/// The traffic to a peer: arrived = sent + dropped + held, in packets and in bytes.
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
    /// Runs of the compressor: on a packet, or on a block of them.
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
    /// Datagrams sent a second time: the peer missed them, or the path is long and loses some and the link had nothing else to
    /// send.
    #[serde(default)]
    pub resent_datagrams: u64,
    /// The bytes on the link for them.
    #[serde(default)]
    pub resent_bytes: u64,
    /// Of these, the datagrams that the peer did not ask for.
    #[serde(default)]
    pub copied_datagrams: u64,
    /// Compressed packets and blocks of other peers that were forwarded to this peer without
    /// decompression, whether they found room in the queue or not, and the bytes of their records
    /// as they came. In the queue each counts as one packet.
    #[serde(default)]
    pub forwarded_compressed: Count,
    /// Datagrams sent in sessions, whatever their content.
    #[serde(default)]
    pub datagrams: u64,
    /// Datagrams that the peer reported as received, in all sessions.
    #[serde(default)]
    pub peer_got_datagrams: u64,
    /// Datagrams that the peer reported as lost, in all sessions.
    #[serde(default)]
    pub peer_lost_datagrams: u64,
    /// The recent loss on the path to the peer, by its latest report.
    #[serde(default)]
    pub loss: Option<RecentLoss>,
    /// The contexts of what is sent; left out if there were none.
    #[serde(default, skip_serializing_if = "TxContexts::is_unused")]
    pub contexts: TxContexts,
    /// Datagrams that the operating system did not take, by error.
    pub send_errors: BTreeMap<String, u64>,
}

impl TxStatus {
    /// Returns the sum of all drops.
    pub fn dropped_total(&self) -> Count {
        self.dropped.values().fold(Count::default(), |sum, count| Count {
            packets: sum.packets + count.packets,
            bytes: sum.bytes + count.bytes,
        })
    }

    /// Returns true if arrived = sent + dropped + held, in packets and in bytes.
    pub fn balances(&self) -> bool {
        let dropped = self.dropped_total();
        let packets = self.sent.packets + dropped.packets + self.held.packets;
        let bytes = self.sent.bytes + dropped.bytes + self.held.bytes;
        (self.arrived.packets, self.arrived.bytes) == (packets, bytes)
    }

    /// Returns the bytes on the link, all overhead included, per byte that was sent: compressed /
    /// original, above 1 if the overhead outweighs the gain. `None` if nothing was sent.
    pub fn link_ratio(&self) -> Option<f64> {
        ratio(self.link_bytes, self.sent.bytes)
    }

    /// Returns the average ratio of the packets that were compressed: compressed / original. `None`
    /// if none were.
    pub fn compressed_ratio(&self) -> Option<f64> {
        ratio(self.compressed_to_bytes, self.compressed.bytes)
    }

    /// Fills in the savings, on a link that takes this many bytes for each datagram below IP.
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

    /// Returns the bytes that compression took off packets, before any header: `net_saved_bytes`
    /// has the part of it that is left on the link.
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

/// The traffic from a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RxStatus {
    /// Datagrams accepted.
    pub datagrams: u64,
    /// Their bytes: whole datagrams, without the UDP and IP headers around them.
    pub bytes: u64,
    /// Packets that came uncompressed.
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
    /// Compressed packets and blocks for another peer that were forwarded to its queue without
    /// decompression, whether they found room there or not, and the bytes of their records. Their
    /// packets are not counted in `packets`.
    #[serde(default)]
    pub forwarded_compressed: Count,
    /// Of the packets, those that went to another peer's queue without passing the interface,
    /// whether they found room there or not.
    #[serde(default)]
    pub forwarded: Count,
    /// Compressed packets and blocks that had used up their hop limit, and were dropped.
    #[serde(default)]
    pub hop_limit: u64,
    /// Datagrams that never came, in all sessions: gaps in the sequence numbers that are older than
    /// some seconds.
    pub lost_datagrams: u64,
    /// The recent loss on the path from the peer.
    #[serde(default)]
    pub loss: Option<RecentLoss>,
    /// The number of times that the peer's sequence numbers jumped ahead by more than a link can
    /// lose. What they jumped over does not count as lost.
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
    /// Of the datagrams that were missing, those that came in a retransmission.
    #[serde(default)]
    pub recovered_datagrams: u64,
    /// Those that did not come although the peer was asked, or that it no longer held.
    #[serde(default)]
    pub unrecovered_datagrams: u64,
    /// Datagrams refused as duplicates or replays.
    pub replayed: u64,
    /// Datagrams that are not from the peer, or were altered on the path.
    pub auth_failed: u64,
    /// Datagrams or records that do not follow the wire format.
    pub malformed: u64,
    /// Compressed packets that could not be restored.
    pub decode_failed: u64,
    /// Records of a kind that this version does not know, skipped.
    pub skipped_records: u64,
    /// Packets refused because their source is not in the peer's prefixes.
    pub not_allowed: u64,
    /// The contexts of what is received; left out if there were none.
    #[serde(default, skip_serializing_if = "RxContexts::is_unused")]
    pub contexts: RxContexts,
    /// The reception of this node's datagrams as the peer reports it; `None` before its first
    /// report.
    pub reported: Option<PeerReport>,
}

/// The loss on the path in the last five seconds: datagrams that did not come when they were first
/// sent, though they may have come in a retransmission.
///
/// The receiver counts it. Half a second passes before a datagram that is only late is
/// distinguished from one that is lost.
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
    /// Returns the loss of these counts; none if nothing was sent.
    pub fn of(datagrams: u64, lost: u64) -> Option<Self> {
        let lost = lost.min(datagrams);
        let ppm = (u128::from(lost) * 1_000_000).checked_div(u128::from(datagrams))?;
        Some(Self { datagrams, lost, ppm: ppm as u64 })
    }
}

/// The datagrams of this node that a peer received in the present session, and its queue to this
/// node, as the peer reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerReport {
    /// Datagrams with packets that it accepted.
    pub datagrams: u64,
    /// Their bytes: whole datagrams, without the UDP and IP headers around them.
    pub bytes: u64,
    /// Records that it read from them.
    pub records: u64,
    /// Datagrams that it considers lost.
    pub lost: u64,
    /// Datagrams that it refused as duplicates or replays.
    pub duplicates: u64,
    /// The rate at which datagrams arrived since its previous report.
    pub delivery_bps: u64,
    /// The bytes that wait there for its link to this node.
    #[serde(default)]
    pub waiting_bytes: u64,
    /// The time that a packet that arrives there would wait.
    #[serde(default)]
    pub waiting_ns: u64,
}

/// The packets of a class with a deadline that are sent to a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadlineStatus {
    /// The class, by its name in the configuration.
    pub class: String,
    /// The longest time that a packet may take to the peer.
    pub max_wait_ns: u64,
    /// The part of it that packets may wait at this relay for now, from their arrival: W of Sawabe
    /// et al. Zero if there is none left, and packets go at once.
    pub deadline_ns: u64,
    /// Packets sent.
    pub packets: u64,
    /// Packets that waited for longer than that: only for a frame that was on the link already, if
    /// no longer than that takes.
    #[serde(default)]
    pub past_deadline: u64,
    /// Those of them that waited for longer than that too, so that they take more than `max_wait`:
    /// violations. Where `deadline_ns` is zero nothing is held, and nothing counted.
    pub late: u64,
    /// The mean time by which these were too late.
    pub excess_mean_ns: u64,
    /// The longest time by which one was too late.
    pub excess_max_ns: u64,
}

/// The traffic of a class that the configuration names, to and from a peer.
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
    /// Bytes that those sent would have taken on the link without dwell.
    #[serde(default)]
    pub plain_bytes: u64,
    /// Bytes that they took. What packets have together is shared among them: a datagram by the lengths of its records,
    /// a batch by those of its packets.
    #[serde(default)]
    pub link_bytes: u64,
    /// Packets of the class that came from the peer.
    pub received: Count,
    /// Those that were dropped, by reason; every reason is there, if only with zero.
    pub dropped: BTreeMap<String, u64>,
    /// Those that were sent without an attempt to compress them, by reason, likewise.
    #[serde(default)]
    pub bypassed: BTreeMap<String, u64>,
    /// The time from a packet's arrival to its sending.
    pub sojourn: HistogramSummary,
}

impl ClassTraffic {
    /// Returns bytes on the link by those without dwell, all headers included. None before anything was sent.
    pub fn ratio(&self) -> Option<f64> {
        (self.plain_bytes > 0).then(|| self.link_bytes as f64 / self.plain_bytes as f64)
    }
}

/// The learned properties of a class of packets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassStatus {
    /// Protocol and port: `tcp/443`.
    pub class: String,
    /// Expected ratio: compressed / original.
    pub ratio: f64,
    /// Expected time to compress a byte, in nanoseconds.
    pub ns_per_byte: f64,
    /// True if it is not compressed for a while because that brought nothing.
    pub backing_off: bool,
}

impl ClassStatus {
    /// Makes it from the properties that a port learned ([`dwell_policy::Port::learned_classes`]).
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
    /// The number of times recorded.
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
    /// The number of times that were at most each of [`BUCKETS_NS`](crate::histogram::BUCKETS_NS).
    #[serde(default)]
    pub at_most: [u64; 16],
}

impl HistogramSummary {
    /// Returns the median, if anything was recorded.
    pub fn p50_ns_if_any(&self) -> Option<u64> {
        (self.count > 0).then_some(self.p50_ns)
    }

    /// Returns the 99th percentile, if anything was recorded.
    pub fn p99_ns_if_any(&self) -> Option<u64> {
        (self.count > 0).then_some(self.p99_ns)
    }
}

#[cfg(test)]
pub(crate) mod tests;
