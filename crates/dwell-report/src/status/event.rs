//! What happened to a node and its peers, with the reasons.

use serde::{Deserialize, Serialize};

/// The number of events that a node remembers.
pub const EVENTS_MAX: usize = 64;

/// Something that happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventStatus {
    /// Its number since the start of the process.
    pub number: u64,
    /// The time, in nanoseconds since 1970.
    pub at_unix_ns: u64,
    /// The peer that it is about; none if it is about the node.
    #[serde(default)]
    pub peer: Option<String>,
    /// Its kind: `up`, `down`, `moved`, `problem`, `solved` or `configuration`. Readers may meet kinds
    /// that they do not know.
    pub kind: String,
    /// What happened and why, in a sentence.
    pub text: String,
    /// What helps, if something does.
    #[serde(default)]
    pub remedy: String,
}
