//! The changes that a scheme makes, against the link without dwell.

use serde::{Deserialize, Serialize};

use super::thresholds::{
    CPU_SHARE_MAX, DELAY_NS_MIN, DELAY_SHARE_MIN, DROPPED_PACKETS_MIN, DROPS_CHANGE_MIN, DROPS_MIN,
    GOODPUT_LOSS_MAX, GOODPUT_MIN, GROWTH_MAX, SAVING_MIN,
};
use super::{Question, percent, time};
use crate::replay::report::{LaneReport, ReplayReport};

/// The changes that a scheme would make. Pairs are without dwell and with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The scheme.
    pub scheme: String,
    /// Bytes on the link.
    pub link_bytes: (u64, u64),
    /// The share of the offered bytes that need not go over the link; negative if there are more.
    /// Bytes that are not delivered are not saved.
    pub saving: f64,
    /// The change in the offered bytes that get through: 0.3 for 30 % more.
    pub goodput: f64,
    /// The share of bytes dropped.
    pub drops: (f64, f64),
    /// Packets dropped.
    pub dropped_packets: (u64, u64),
    /// The mean delay of the delivered packets, in nanoseconds.
    pub delay_ns: (u64, u64),
    /// The 99th percentile of the delay, in nanoseconds.
    pub delay_p99_ns: (u64, u64),
    /// The share of one core that compressing takes.
    pub cpu_share: f64,
    /// The cost of the bytes of 30 such days on the link.
    pub cost_month: Option<(f64, f64)>,
}

const MONTH_NS: f64 = 30.0 * 86_400.0 * 1e9;

impl Change {
    /// Returns the changes of a lane in a report; none if nothing arrived.
    pub fn of(report: &ReplayReport, lane: &LaneReport, question: &Question) -> Option<Self> {
        let without = report.without()?;
        let offered = report.offered_bytes() as f64;
        // Shares, since long packets are cut at other lengths in the lane without dwell.
        let delivered = (delivered(report, without)?, delivered(report, lane)?);
        let link_bytes = (without.tx().link_bytes, lane.tx().link_bytes);
        let kept = (link_bytes.0 as f64).min(delivered.1 * offered);
        let span_ns = report.span_ns.max(1) as f64;
        let month = |bytes: u64, cost: f64| bytes as f64 / 1e6 * cost * MONTH_NS / span_ns;
        let dropped = |lane: &LaneReport| lane.tx().dropped_total().packets;
        Some(Self {
            scheme: lane.name.clone(),
            link_bytes,
            saving: (kept - link_bytes.1 as f64) / offered,
            goodput: if delivered.0 > 0.0 { delivered.1 / delivered.0 - 1.0 } else { 0.0 },
            drops: (without.drop_share_bytes(), lane.drop_share_bytes()),
            dropped_packets: (dropped(without), dropped(lane)),
            delay_ns: (without.delay.mean_ns, lane.delay.mean_ns),
            delay_p99_ns: (without.delay.p99_ns, lane.delay.p99_ns),
            cpu_share: lane.tx().compress_ns as f64 / span_ns,
            cost_month: question
                .cost_per_mb
                .map(|cost| (month(link_bytes.0, cost), month(link_bytes.1, cost))),
        })
    }

    /// Returns true if the bytes on the link fall enough to matter where bytes cost.
    pub(super) fn saves(&self) -> bool {
        self.saving >= SAVING_MIN
    }

    /// Returns true if enough more gets through a full link that its users notice.
    pub(super) fn relieves(&self) -> bool {
        let fewer = self.dropped_packets.0.saturating_sub(self.dropped_packets.1);
        fewer >= DROPPED_PACKETS_MIN
            && (self.goodput >= GOODPUT_MIN || drops_less(self.drops.0, self.drops.1))
    }

    /// Returns the changes for the worse, each in words.
    pub(super) fn harms(&self) -> Vec<String> {
        let mut harms = Vec::new();
        let is_full = self.drops.0 >= DROPS_MIN;
        let (from, to) = (percent(self.drops.0), percent(self.drops.1));
        if drops_less(self.drops.1, self.drops.0) {
            harms.push(format!("{to} of the bytes dropped in place of {from}"));
        } else if self.goodput < -GOODPUT_LOSS_MAX {
            harms.push(format!("{} less gets through", percent(-self.goodput)));
        }
        // A full link carries as much as it can in either case.
        if self.saving < -GROWTH_MAX && !is_full {
            harms.push(format!(
                "{} more bytes on the link, which are the relays' headers",
                percent(-self.saving)
            ));
        }
        // If fewer packets are dropped, the delivered ones wait longer, and that is no harm.
        let is_excused = drops_less(self.drops.0, self.drops.1);
        if grows(self.delay_ns.0, self.delay_ns.1) && !is_excused {
            let (from, to) = (time(self.delay_ns.0), time(self.delay_ns.1));
            harms.push(format!("a mean delay of {to} in place of {from}"));
        }
        if self.cpu_share > CPU_SHARE_MAX {
            harms.push(format!("{} of a core for compressing", percent(self.cpu_share)));
        }
        harms
    }

    /// Returns a rank, lower is better: drops first, in steps of a thousandth. A full link is
    /// measured by delay then, any other by its bytes.
    pub(super) fn rank(&self, is_full: bool) -> [i64; 4] {
        let step = |value: f64, step: f64| (value / step).round() as i64;
        let drops = step(self.drops.1, 0.001);
        let saving = -step(self.saving, 0.01);
        let delay = step(self.delay_ns.1 as f64, 500_000.0);
        let cpu = step(self.cpu_share, 0.001);
        if is_full { [drops, delay, saving, cpu] } else { [drops, saving, delay, cpu] }
    }
}

/// Returns the share of the offered bytes that leave the link, the headers below IP included.
fn delivered(report: &ReplayReport, lane: &LaneReport) -> Option<f64> {
    let bytes = |packets: u64, bytes: u64| (bytes + report.overhead_bytes * packets) as f64;
    let (arrived, sent) = (lane.tx().arrived, lane.tx().sent);
    let left_out = match lane.is_without() {
        true => 0.0,
        false => bytes(report.input.too_big.packets, report.input.too_big.bytes),
    };
    let offered = bytes(arrived.packets, arrived.bytes) + left_out;
    (offered > 0.0).then(|| bytes(sent.packets, sent.bytes) / offered)
}

/// Returns true if the growth from one mean delay to the other matters.
fn grows(from_ns: u64, to_ns: u64) -> bool {
    let growth_ns = to_ns as f64 - from_ns as f64;
    growth_ns >= DELAY_NS_MIN && growth_ns >= DELAY_SHARE_MIN * from_ns as f64
}

/// Returns true if the fall from one share of drops to the other matters.
fn drops_less(from: f64, to: f64) -> bool {
    from - to >= DROPS_MIN && from - to >= DROPS_CHANGE_MIN * from
}
