//! What a run along a chain and its record are about.

use dwell_base::Rate;
use serde::{Deserialize, Serialize};

use super::super::record::{Bench, OnlyPlace, Run};
use super::{Chain, table};

/// The conditions of a run: runs may be compared if these are the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Conditions {
    pub(super) relays: usize,
    #[serde(rename = "rate_bps")]
    pub(super) rate: Rate,
    /// The load of each link, as a share of what it carries.
    pub(super) load: f64,
    /// Of IP packets.
    pub(super) packet_bytes: usize,
    /// The share of the payloads that is text; the rest is random.
    pub(super) text: f64,
    pub(super) scheme: String,
    pub(super) codec: String,
    pub(super) seconds: f64,
    pub(super) seed: u64,
}

/// The measurements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// The relays that have a link further on, in their order.
    pub(super) nodes: Vec<NodeCounts>,
    /// The target traffic, then the cross traffic of each node.
    pub(super) flows: Vec<FlowCounts>,
}

/// The contender whose relays between others forward what came compressed without decompression.
pub(super) const FORWARDED: &str = "forwarded";
/// The one whose relays open everything.
pub(super) const OPENED: &str = "opened";

impl Bench for Chain {
    const NAME: &'static str = "chain";
    type Conditions = Conditions;
    type Place = OnlyPlace;
    type Measured = Counts;

    fn line(_place: &OnlyPlace, counts: &Counts) -> String {
        let shares = counts.nodes.iter().map(|node| format!("{:.1} %", node.share() * 100.0));
        shares.collect::<Vec<_>>().join(", ")
    }

    fn report(runs: &[Run<Self>]) -> String {
        table::all(runs)
    }
}

/// The counts of a relay in the window, on the link to the next.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodeCounts {
    /// Packets that came to the queue.
    pub(super) arrived: u64,
    /// Of these, those that came compressed and were not opened. Blocks count once.
    pub(super) carried: u64,
    pub(super) tried: u64,
    pub(super) compressed: u64,
    pub(super) compressed_bytes: u64,
    pub(super) compressed_to_bytes: u64,
    pub(super) compress_ns: u64,
    pub(super) dropped: u64,
    /// The bytes on the link.
    pub(super) link_bytes: u64,
    /// Packets from the relay before that were opened here: those for this relay's site, and, without
    /// transit, all others that came compressed.
    pub(super) opened: u64,
}

/// The counts of a flow's packets in the whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct FlowCounts {
    pub(super) flow: String,
    pub(super) sent: u64,
    /// Each compared with what was sent.
    pub(super) received: u64,
    pub(super) altered: u64,
    /// Came behind a later one.
    pub(super) late: u64,
    /// One-way delays in the window.
    pub(super) delay_p50_ns: Option<u64>,
    pub(super) delay_p99_ns: Option<u64>,
}

impl NodeCounts {
    /// N_c / N_i: of the packets that came, those that were compressed here.
    pub(super) fn share(&self) -> f64 {
        self.compressed as f64 / self.arrived.max(1) as f64
    }

    pub(super) fn carried_share(&self) -> f64 {
        self.carried as f64 / self.arrived.max(1) as f64
    }

    pub(super) fn since(&self, before: &Self) -> Self {
        Self {
            arrived: self.arrived - before.arrived,
            carried: self.carried - before.carried,
            tried: self.tried - before.tried,
            compressed: self.compressed - before.compressed,
            compressed_bytes: self.compressed_bytes - before.compressed_bytes,
            compressed_to_bytes: self.compressed_to_bytes - before.compressed_to_bytes,
            compress_ns: self.compress_ns - before.compress_ns,
            dropped: self.dropped - before.dropped,
            link_bytes: self.link_bytes - before.link_bytes,
            opened: self.opened - before.opened,
        }
    }
}
