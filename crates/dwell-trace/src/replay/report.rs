//! The report of a replay, in the same records as a relay's run.

use std::collections::BTreeMap;

use dwell_policy::Accounts;
use dwell_report::Histogram;
use dwell_report::status::{
    ClassStatus, HistogramSummary, PeerState, PeerStatus, RateSource, SCHEMA, Status, TxStatus,
};
use serde::{Deserialize, Serialize};

use super::content::Composition;
use super::input::InputCounts;
use super::lane::{ClassTally, Lane, LaneResult};
use super::timeline::Timeline;
use super::{Settings, WITHOUT};
use crate::sides::{Rule, Sides};

/// The value of `kind` in a report.
pub const KIND: &str = "dwell-trace-replay";

/// The quantiles of [`LaneReport::delay_quantiles`], in thousandths.
pub const QUANTILES_PERMILLE: [u32; 17] =
    [0, 10, 50, 100, 200, 300, 400, 500, 600, 700, 800, 900, 950, 980, 990, 999, 1000];

/// A replay's result. Times are those of the replay: with a speed of 2, half of the capture's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplayReport {
    /// [`KIND`].
    pub kind: String,
    /// The time from the first to the last arrival, in nanoseconds.
    pub span_ns: u64,
    /// Bits per second of the link.
    pub rate_bps: u64,
    /// Bytes that each packet costs on the link below its IP header.
    pub overhead_bytes: u64,
    /// Arrivals come this many times faster than they were captured.
    pub speed: f64,
    /// The counts of the packets read.
    pub input: InputCounts,
    /// The composition of the traffic.
    pub composition: Composition,
    /// The status as a relay reports it; each lane is a peer, and its name the scheme's.
    pub status: Status,
    /// The results that a relay does not report, in the order of `status.peers`.
    pub lanes: Vec<LaneReport>,
    /// The direction of the link.
    pub direction: DirectionReport,
    /// The other direction, if it has packets; all the rest is the busier one's.
    pub other_direction: Option<Box<ReplayReport>>,
}

/// One direction of a link, and the rule that found it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DirectionReport {
    /// The rule for the direction of packets.
    pub rule: Rule,
    /// The share of the bytes that the rule explains, 0 to 1.
    pub agreed: f64,
    /// The side that sends.
    pub from: String,
    /// The side that receives.
    pub to: String,
}

impl DirectionReport {
    pub(super) fn new(sides: &Sides, is_backward: bool) -> Self {
        let [first, second] = sides.names().clone();
        let (from, to) = if is_backward { (second, first) } else { (first, second) };
        Self { rule: sides.rule(), agreed: sides.agreed(), from, to }
    }

    /// Returns the direction in words: "from A to B".
    pub fn words(&self) -> String {
        format!("from {} to {}", self.from, self.to)
    }
}

/// One scheme's result, beside its [`PeerStatus`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaneReport {
    /// The scheme, or [`WITHOUT`].
    pub name: String,
    /// The status as a relay reports it; in a file it is in [`ReplayReport::status`].
    #[serde(skip)]
    pub peer: PeerStatus,
    /// The delay from arrival to the end of the transmission.
    pub delay: HistogramSummary,
    /// Its quantiles: thousandths, and nanoseconds.
    pub delay_quantiles: Vec<(u32, u64)>,
    /// The time for which the link was busy, in nanoseconds.
    pub busy_ns: u64,
    /// The time at which the last packet had left, in nanoseconds after the first arrival.
    pub end_ns: u64,
    /// Classes with a deadline.
    pub classes: Vec<ClassReport>,
    /// The events over time.
    pub timeline: Timeline,
}

/// The results of a class with a deadline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassReport {
    /// Its name.
    pub name: String,
    /// The longest that its packets may wait.
    pub wait_ns_max: u64,
    /// Packets that arrived.
    pub arrived: u64,
    /// Packets that were dropped.
    pub dropped: u64,
    /// Packets whose transmission began later than it may.
    pub late: u64,
    /// The time by which they were late.
    pub excess: HistogramSummary,
    /// The queueing delay of its packets.
    pub wait: HistogramSummary,
}

impl LaneReport {
    pub(super) fn new(name: &str, settings: &Settings, lane: Lane) -> Self {
        let (port, result) = lane.finish();
        let learned = port.learned_classes().map(ClassStatus::learned).collect();
        let mut classes: Vec<ClassStatus> = learned;
        classes.sort_by(|a, b| a.class.cmp(&b.class));
        let tx = tx_status(port.accounts(), &result);
        Self {
            name: name.to_owned(),
            peer: PeerStatus { classes, ..peer_status(name, settings, tx) },
            delay: result.delay.summary(),
            delay_quantiles: quantiles(&result.delay),
            busy_ns: result.busy_ns,
            end_ns: result.end_ns,
            classes: settings
                .classes
                .iter()
                .zip(&result.classes)
                .map(|(class, tally)| ClassReport::new(&class.name, class.wait_ns_max, tally))
                .collect(),
            timeline: result.timeline,
        }
    }

    /// Returns the counters of the sending side.
    pub fn tx(&self) -> &TxStatus {
        &self.peer.tx
    }

    /// Returns true for the lane without dwell.
    pub fn is_without(&self) -> bool {
        self.name == WITHOUT
    }

    /// The share of packets that were dropped, 0 to 1.
    pub fn drop_share(&self) -> f64 {
        share(self.tx().dropped_total().packets, self.tx().arrived.packets)
    }

    /// The share of bytes that were dropped, 0 to 1. Lanes cut long packets at different lengths,
    /// so that packets don't compare as well.
    pub fn drop_share_bytes(&self) -> f64 {
        share(self.tx().dropped_total().bytes, self.tx().arrived.bytes)
    }

    /// The share of packets sent that had been compressed, 0 to 1.
    pub fn compressed_share(&self) -> f64 {
        share(self.tx().compressed.packets, self.tx().sent.packets)
    }

    /// Packets of classes with a deadline that were late.
    pub fn late(&self) -> u64 {
        self.classes.iter().map(|class| class.late).sum()
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

impl ClassReport {
    fn new(name: &str, wait_ns_max: u64, tally: &ClassTally) -> Self {
        Self {
            name: name.to_owned(),
            wait_ns_max,
            arrived: tally.arrived,
            dropped: tally.dropped,
            late: tally.late,
            excess: tally.excess.summary(),
            wait: tally.wait.summary(),
        }
    }
}

impl ReplayReport {
    pub(super) fn new(
        settings: &Settings,
        version: &str,
        span_ns: u64,
        input: InputCounts,
        composition: Composition,
        lanes: Vec<LaneReport>,
    ) -> Self {
        let status = Status {
            schema: SCHEMA,
            version: version.to_owned(),
            name: "replay".to_owned(),
            uptime_ns: lanes.iter().map(|lane| lane.end_ns).max().unwrap_or(0),
            cpu_ns: lanes.iter().map(|lane| lane.tx().compress_ns).sum(),
            drops: BTreeMap::from([
                ("malformed_packet".to_owned(), input.malformed),
                ("no_route".to_owned(), input.not_selected),
            ]),
            peers: lanes.iter().map(|lane| lane.peer.clone()).collect(),
            ..Status::default()
        };
        Self {
            kind: KIND.to_owned(),
            span_ns,
            rate_bps: settings.link.rate.as_bps(),
            overhead_bytes: u64::from(settings.link.overhead_bytes),
            speed: settings.speed,
            input,
            composition,
            status,
            lanes,
            direction: DirectionReport::new(&settings.sides, false),
            other_direction: None,
        }
    }

    /// Puts the peers of the status back into the lanes, after a report was read from a file.
    #[must_use]
    pub fn joined(mut self) -> Self {
        for (lane, peer) in self.lanes.iter_mut().zip(&self.status.peers) {
            lane.peer = peer.clone();
        }
        self.other_direction = self.other_direction.map(|other| Box::new(other.joined()));
        self
    }

    /// The lane without dwell.
    pub fn without(&self) -> Option<&LaneReport> {
        self.lanes.iter().find(|lane| lane.is_without())
    }

    /// Returns the bytes that would be on the link without dwell if nothing were dropped.
    pub fn offered_bytes(&self) -> u64 {
        let offered = |lane: &LaneReport| {
            let arrived = lane.tx().arrived;
            arrived.bytes + self.overhead_bytes * arrived.packets
        };
        self.without().map_or(0, offered)
    }

    /// Returns the share of the link's time that the packets would take without dwell; above 1, the
    /// link can't carry them.
    pub fn load(&self) -> f64 {
        let bits = self.offered_bytes() as f64 * 8.0;
        bits * 1e9 / (self.rate_bps as f64 * self.span_ns.max(1) as f64)
    }
}

fn peer_status(name: &str, settings: &Settings, tx: TxStatus) -> PeerStatus {
    let without = name == WITHOUT;
    PeerStatus {
        name: name.to_owned(),
        state: PeerState::Up,
        security: if settings.link.sealed && !without { "psk" } else { "none" }.to_owned(),
        scheme: if without { "none" } else { name }.to_owned(),
        codec: settings.codec.to_string(),
        rate_bps: Some(settings.link.rate.as_bps()),
        rate_source: RateSource::Configured,
        mtu: u32::from(if without { settings.link.path_mtu } else { settings.link.packet_max() }),
        tx,
        ..PeerStatus::default()
    }
}

fn tx_status(accounts: &Accounts, result: &LaneResult) -> TxStatus {
    let mut tx = TxStatus::from(accounts);
    tx.sojourn = result.wait.summary();
    tx
}

fn quantiles(histogram: &Histogram) -> Vec<(u32, u64)> {
    if histogram.count() == 0 {
        return Vec::new();
    }
    QUANTILES_PERMILLE
        .iter()
        .map(|&permille| (permille, histogram.quantile_ns(f64::from(permille) / 1000.0)))
        .collect()
}
