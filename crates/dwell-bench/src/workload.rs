//! Workloads, and how they are counted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use dwell_lab::corpus;
use serde::{Deserialize, Serialize};

use super::bed::Bed;
use super::download::Downloads;
use super::link_rate::LinkRate;
use super::messages::{Delivery, Messages, Script};

/// The traffic of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Workload {
    /// One download of English prose
    Text,
    /// One download of random bytes
    Random,
    /// Both at once, on a connection each
    Half,
    /// Twenty downloads at once, each of other prose
    Many,
    /// Short UDP messages, three times as many as the link carries
    Telemetry,
}

impl Workload {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Random => "random",
            Self::Half => "half",
            Self::Many => "many",
            Self::Telemetry => "telemetry",
        }
    }

    /// Returns the unit of [`Load::count`] per second in tables, and the counts that make one.
    pub(super) fn unit(self) -> (&'static str, f64) {
        match self {
            Self::Telemetry => ("messages/s", 1.0),
            Self::Text | Self::Random | Self::Half | Self::Many => ("Mbit/s", 1e6 / 8.0),
        }
    }
}

/// The length of a download before it begins again.
const BODY_BYTES: usize = 16 << 20;
/// Of many downloads: how many, and how much of each is made.
const MANY: u64 = 20;
const MANY_BODY_BYTES: usize = 1 << 20;

/// The content of a workload, made once for all runs.
#[derive(Clone, Debug)]
pub(super) enum Content {
    Bodies(Vec<Arc<Vec<u8>>>),
    Script(Arc<Script>),
}

impl Content {
    /// Enough for runs of this length.
    pub(super) fn new(workload: Workload, rate: LinkRate, time: Duration, seed: u64) -> Self {
        let text = || Arc::new(corpus::text(BODY_BYTES, seed));
        let random = || Arc::new(corpus::incompressible(BODY_BYTES, seed));
        match workload {
            Workload::Text => Self::Bodies(vec![text()]),
            Workload::Random => Self::Bodies(vec![random()]),
            Workload::Half => Self::Bodies(vec![text(), random()]),
            Workload::Many => {
                let other = |n| Arc::new(corpus::text(MANY_BODY_BYTES, seed.wrapping_add(n)));
                Self::Bodies((0..MANY).map(other).collect())
            }
            Workload::Telemetry => Self::Script(Arc::new(Script::new(rate, time, seed))),
        }
    }
}

/// A workload under way.
#[derive(Debug)]
pub(super) enum Load {
    Downloads(Downloads),
    Messages(Messages),
}

/// The time in which the first byte must come.
const PATIENCE: Duration = Duration::from_secs(15);

impl Load {
    /// Starts it and waits until something has arrived.
    pub(super) fn start(bed: &Bed<'_>, content: &Content) -> anyhow::Result<Self> {
        let load = match content {
            Content::Bodies(bodies) => Self::Downloads(Downloads::start(bed, bodies)?),
            Content::Script(script) => Self::Messages(Messages::start(bed, script)?),
        };
        match load.wait(bed) {
            Ok(()) => Ok(load),
            Err(error) => {
                // The first error tells more.
                let _ = load.finish([Instant::now(); 2]);
                Err(error)
            }
        }
    }

    fn wait(&self, bed: &Bed<'_>) -> anyhow::Result<()> {
        let end = Instant::now() + PATIENCE;
        while !self.has_started() {
            anyhow::ensure!(Instant::now() < end, "nothing arrives");
            bed.sleep(Duration::from_millis(2))?;
        }
        Ok(())
    }

    fn has_started(&self) -> bool {
        match self {
            Self::Downloads(downloads) => downloads.have_started(),
            Self::Messages(messages) => messages.received() > 0,
        }
    }

    /// Bytes of downloads, or messages, that have arrived.
    pub(super) fn count(&self) -> u64 {
        match self {
            Self::Downloads(downloads) => downloads.received_bytes(),
            Self::Messages(messages) => messages.received(),
        }
    }

    /// Bytes that have arrived for the application.
    pub(super) fn received_bytes(&self) -> u64 {
        match self {
            Self::Downloads(downloads) => downloads.received_bytes(),
            Self::Messages(messages) => messages.received_bytes(),
        }
    }

    /// Ends it. Delays are of what arrived in the window.
    pub(super) fn finish(self, window: [Instant; 2]) -> anyhow::Result<Delivery> {
        match self {
            Self::Downloads(downloads) => {
                let is_verified = downloads.finish()?;
                Ok(Delivery { is_verified, delay_p50_ns: None, delay_p99_ns: None })
            }
            Self::Messages(messages) => messages.finish(window),
        }
    }
}
