//! The options that benches share. A bench that has other defaults sets them with `mut_arg`.

use std::path::PathBuf;

use dwell_cli::values::{codec, schemes};

use super::contender::{Contender, Security, dwell_variants};
use super::machine;
use super::record::{Bench, Journal, Run};
use super::runner::{Series, ensure_same_bench};
use super::tunnel::Belief;

/// Which variants of dwell take part.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Variants {
    /// Schemes of dwell
    #[arg(long, value_name = "SCHEME,...", default_value = "none,packet")]
    #[arg(value_delimiter = ',', value_parser = schemes())]
    pub(super) scheme: Vec<String>,
    /// Codecs, for the schemes that compress
    #[arg(long, value_name = "CODEC,...", default_value = "zstd:1")]
    #[arg(value_delimiter = ',', value_parser = codec)]
    pub(super) codec: Vec<String>,
}

impl Variants {
    /// Every scheme with every codec, all protected alike.
    pub(super) fn all(&self, security: Security) -> Vec<Contender> {
        dwell_variants(&self.scheme, &self.codec, security, false)
    }
}

/// How often everything runs.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Rounds {
    /// Number of rounds
    #[arg(long, value_name = "COUNT", default_value = "5")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) runs: u32,
}

/// For how long a run is watched.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Watch {
    /// Seconds for which each run is measured, after a warm-up
    #[arg(long, default_value = "2", value_parser = seconds)]
    pub(super) seconds: f64,
}

/// What relays know of the link.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Knowledge {
    /// Knowledge that relays have of the link
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub(super) relay_rate: Belief,
}

/// How relays protect what they send.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Protection {
    /// Protection of dwell's datagrams
    #[arg(long, value_name = "HOW", default_value = "psk")]
    pub(super) security: Security,
}

/// How TCP behaves.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Tcp {
    /// Congestion control of the sender's TCP: cubic, bbr, reno; the machine's usual
    #[arg(long, value_name = "NAME")]
    congestion_control: Option<String>,
}

impl Tcp {
    /// Returns the one that was chosen, or else the machine's.
    pub(super) fn congestion_control(&self) -> String {
        self.congestion_control.clone().unwrap_or_else(machine::congestion_control)
    }
}

/// Where runs are noted.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Records {
    /// Write each run to this file as a line of JSON
    #[arg(long, value_name = "FILE", help_heading = "Records")]
    json: Option<PathBuf>,
    /// Leave out runs that are in the file already
    #[arg(long, requires = "json", help_heading = "Records")]
    resume: bool,
    /// Only print what is in the file
    #[arg(long, requires = "json", help_heading = "Records")]
    report: bool,
}

impl Records {
    /// Returns the runs in the file if nothing is to be done but to print them.
    pub(super) fn to_report<B: Bench>(&self) -> anyhow::Result<Option<Vec<Run<B>>>> {
        if !self.report {
            return Ok(None);
        }
        let (_, runs) = Journal::open::<Run<B>>(self.json.as_deref(), true)?;
        ensure_same_bench::<B>(&runs)?;
        Ok(Some(runs))
    }

    /// Starts a series of runs under these conditions, or goes on with the one in the file.
    pub(super) fn series<B: Bench>(&self, conditions: B::Conditions) -> anyhow::Result<Series<B>> {
        let (journal, before) = Journal::open::<Run<B>>(self.json.as_deref(), self.resume)?;
        Series::new(conditions, journal, before)
    }
}

/// A run that is longer than this is a mistake.
const SECONDS_MAX: f64 = 600.0;

pub(super) fn seconds(text: &str) -> Result<f64, String> {
    let is_sensible = |seconds: &f64| (0.1..=SECONDS_MAX).contains(seconds);
    text.parse()
        .ok()
        .filter(is_sensible)
        .ok_or_else(|| format!("use a number of seconds from 0.1 to {SECONDS_MAX}"))
}
