//! What a run and its record are about.

use dwell_report::human;
use serde::{Deserialize, Serialize};

use super::super::record::{Bench, Run};
use super::{Faults, table};

/// The conditions of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Circumstances {
    pub(super) scheme: String,
    pub(super) codec: String,
    pub(super) rate_bps: u64,
    pub(super) delay_ns: u64,
    /// From a relay's end to its new start.
    pub(super) restart_ns: u64,
    /// The time that the link was down, or a relay frozen.
    pub(super) outage_ns: u64,
}

/// Something that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cause {
    pub(super) fault: String,
}

impl Bench for Faults {
    const NAME: &'static str = "faults";
    type Conditions = Circumstances;
    type Place = Cause;
    type Measured = Aftermath;

    fn place(place: &Cause) -> String {
        place.fault.clone()
    }

    fn line(_place: &Cause, measured: &Aftermath) -> String {
        format!(
            "resumes after {}, longest silence {}",
            human::duration(measured.resumed_ns()),
            human::duration(measured.silence_ns())
        )
    }

    fn report(runs: &[Run<Self>]) -> String {
        table::report(runs)
    }
}

/// The effect on the traffic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Aftermath {
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
pub(crate) struct OneWay {
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

    /// The longer silence of the two.
    pub(super) fn silence_ns(&self) -> u64 {
        self.there.silence_ns.max(self.back.silence_ns)
    }
}
