//! The record of a run, a line of JSON.

use dwell_report::human;
use serde::{Deserialize, Serialize};

use super::super::contender::Security;
use super::super::record::Origin;

/// The conditions of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Circumstances {
    pub(super) scheme: String,
    pub(super) codec: String,
    pub(super) rate_bps: u64,
    pub(super) delay_ns: u64,
    /// From a relay's end to its new start.
    pub(super) restart_ns: u64,
    /// The time that the link was down, or a relay frozen.
    pub(super) outage_ns: u64,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct FaultRun {
    pub(super) at_unix_seconds: u64,
    #[serde(flatten)]
    pub(super) origin: Origin,
    #[serde(flatten)]
    pub(super) circumstances: Circumstances,
    pub(super) fault: String,
    pub(super) security: Security,
    pub(super) round: u32,
    #[serde(flatten)]
    pub(super) measured: Aftermath,
}

/// The effect on the traffic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Aftermath {
    /// From the client to the server.
    pub(super) there: OneWay,
    /// From the server to the client.
    pub(super) back: OneWay,
    /// From the moment when nothing was wrong any more until the download went on.
    pub(super) download_resumed_ns: u64,
    /// Bytes of the download that came, every one of them right.
    pub(super) download_bytes: u64,
}

/// The numbered datagrams of one direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct OneWay {
    /// From the moment when nothing was wrong any more until one arrived that was sent after it.
    pub(super) resumed_ns: u64,
    /// The longest time without an arrival since the fault.
    pub(super) silence_ns: u64,
    pub(super) sent: u64,
    pub(super) lost: u64,
}

impl Aftermath {
    /// The slower direction's time to resume.
    pub(super) fn resumed_ns(&self) -> u64 {
        self.there.resumed_ns.max(self.back.resumed_ns)
    }

    /// In a line.
    pub(super) fn line(&self) -> String {
        let silence_ns = self.there.silence_ns.max(self.back.silence_ns);
        format!(
            "resumes after {}, longest silence {}",
            human::duration(self.resumed_ns()),
            human::duration(silence_ns)
        )
    }
}
