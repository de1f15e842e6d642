//! What the page is sent, as JSON.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Measure, Point};
use crate::status::{ClassStatus, EventStatus, FlowStatus, PeerState, ProblemStatus};

/// The measures of a scope by name; those that are not known are left out.
pub(super) type Values = BTreeMap<&'static str, f64>;

pub(super) fn values(point: &Point) -> Values {
    let known = |measure: Measure| Some((measure.name(), rounded(point.get(measure)?)));
    Measure::ALL.into_iter().filter_map(known).collect()
}

/// No more digits than anybody sees.
pub(super) fn rounded(value: f64) -> f64 {
    if value >= 100.0 { value.round() } else { (value * 100.0).round() / 100.0 }
}

/// The state of a node, every second.
#[derive(Clone, Debug, Serialize)]
pub struct Live {
    /// The second, since 1970.
    pub at_unix_s: u64,
    /// The node's name.
    pub node: String,
    /// The version of the program.
    pub version: String,
    /// The time since it was started.
    pub uptime_ns: u64,
    /// Whether it is up, in a sentence.
    pub state: String,
    /// True if all peers answer.
    pub is_up: bool,
    /// What was saved, in a sentence.
    pub saved: String,
    /// What is wrong with the configuration file, if something is.
    pub configuration: Option<String>,
    /// The problems of the node itself.
    pub problems: Vec<ProblemStatus>,
    /// All peers together; the processor time is the whole process's.
    pub now: Values,
    /// The peers, in the order of the configuration.
    pub peers: Vec<PeerNow>,
    /// The classes that the configuration names.
    pub classes: Vec<ClassNow>,
    /// The flows that send most.
    pub flows: Vec<FlowStatus>,
    /// What happened lately, the oldest first.
    pub events: Vec<EventStatus>,
}

/// A peer in [`Live`].
#[derive(Clone, Debug, Serialize)]
pub struct PeerNow {
    /// Its name.
    pub name: String,
    /// Whether it is up.
    pub state: PeerState,
    /// Since when.
    pub state_for_ns: u64,
    /// Where it is.
    pub endpoint: Option<String>,
    /// The scheme by which its packets are compressed.
    pub scheme: String,
    /// The codec.
    pub codec: String,
    /// The rate of the link to it, if it is known.
    pub rate_bps: Option<u64>,
    /// The round trip.
    pub rtt_ns: Option<u64>,
    /// Packets that wait.
    pub waiting_packets: u64,
    /// Recent loss on the path to it.
    pub loss_ppm: Option<u64>,
    /// What is wrong with it.
    pub problems: Vec<ProblemStatus>,
    /// What was measured in the last second.
    pub now: Values,
    /// What becomes of its packets, in packets per second, by what it is; the most frequent first.
    pub decisions: Vec<(String, u64)>,
    /// What it learned of classes of packets.
    pub classes: Vec<ClassStatus>,
    /// True if its past is kept, too.
    pub is_kept: bool,
}

/// A class in [`Live`], with all peers.
#[derive(Clone, Debug, Serialize)]
pub struct ClassNow {
    /// Its name.
    pub name: String,
    /// What was measured in the last second.
    pub now: Values,
}

/// A scope over time: for each measure a value for each step, or null.
#[derive(Clone, Debug, Serialize)]
pub struct Window {
    /// The last second, since 1970.
    pub at_unix_s: u64,
    /// The length of a step in seconds.
    pub step_s: u64,
    /// The measures by name; the last value is the latest.
    pub series: BTreeMap<&'static str, Vec<Option<f64>>>,
    /// The classes that the configuration names, with the node only.
    pub classes: BTreeMap<String, BTreeMap<&'static str, Vec<Option<f64>>>>,
}

/// Writes points as a list of values for each measure.
pub(super) fn columns(points: &[Point]) -> BTreeMap<&'static str, Vec<Option<f64>>> {
    let column = |measure: Measure| {
        let values = points.iter().map(|point| point.get(measure).map(rounded));
        (measure.name(), values.collect())
    };
    Measure::ALL.into_iter().map(column).collect()
}
