//! The options that benches share. A bench that has other defaults sets them with `mut_arg`.

use std::path::PathBuf;
use std::process::ExitCode;

use dwell_base::Rate;
use dwell_cli::terminal;
use dwell_cli::values::{codec, schemes};
use dwell_lab::lab::{self, Lab};

use super::bed::Bed;
use super::contender::{Contender, Security, dwell_variants, with_keys, with_likes};
use super::like::Like;
use super::link_rate::LinkRate;
use super::machine;
use super::record::{Bench, Journal, Measured, Run, Terms};
use super::runner::{Series, ensure_same_bench};
use super::trial::{self, Timing};
use super::tunnel::{Belief, Programs};
use super::workload::Content;

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
    /// More keys of relays' configuration, as another variant of each scheme that compresses:
    /// `history = "flow"; context_window = "4MiB"`; may be given several times. A `rate` goes before what is
    /// known of the link otherwise
    #[arg(long, value_name = "KEYS")]
    pub(super) with: Vec<String>,
    /// A configuration file as another variant: its `[node]`, `[defaults]`, first `[[peer]]` and classes, but
    /// for names, keys and addresses; may be given several times
    #[arg(long, value_name = "FILE")]
    pub(super) like: Vec<PathBuf>,
}

impl Variants {
    /// Every scheme with every codec, all protected alike. Fails if a configuration can't be read.
    pub(super) fn all(&self, security: Security) -> anyhow::Result<Vec<Contender>> {
        self.protected(security, false)
    }

    /// Every scheme with every codec; with names that say how they are protected if that differs.
    pub(super) fn protected(
        &self,
        security: Security,
        tells_security: bool,
    ) -> anyhow::Result<Vec<Contender>> {
        let variants = dwell_variants(&self.scheme, &self.codec, security, tells_security);
        let likes = self.like.iter().map(|path| Like::read(path)).collect::<Result<Vec<_>, _>>()?;
        Ok(with_likes(with_keys(variants, &self.with), &likes, (security, tells_security)))
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

/// How often and for how long everything runs, and what relays and TCP are like.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Usual {
    #[command(flatten)]
    pub(super) rounds: Rounds,
    #[command(flatten)]
    pub(super) watch: Watch,
    #[command(flatten)]
    pub(super) knowledge: Knowledge,
    #[command(flatten)]
    pub(super) tcp: Tcp,
    #[command(flatten)]
    pub(super) protection: Protection,
}

impl Usual {
    /// Returns the conditions of runs over links of this delay, up to a rate.
    pub(super) fn terms(&self, (delay_ns, up_to): (u64, Rate), seed: u64) -> Terms {
        Terms {
            delay_ns,
            delay_max_bps: up_to.as_bps(),
            belief: self.knowledge.relay_rate,
            congestion_control: self.tcp.congestion_control(),
            security: self.protection.security,
            seconds: self.watch.seconds,
            seed,
            file: None,
        }
    }

    /// Returns the times of a run over a link of this rate.
    pub(super) fn timing(&self, rate: LinkRate) -> Timing {
        Timing::new(rate, self.watch.seconds)
    }

    /// Lets all contenders run in turns at a place, a trial of `content` each.
    pub(super) fn trials<B: Bench<Measured = Measured>>(
        &self,
        series: &mut Series<B>,
        (place, contenders): (&B::Place, &[Contender]),
        (bed, programs): (&mut Bed<'_>, &Programs),
        (content, timing): (&Content, Timing),
    ) -> anyhow::Result<()> {
        bed.set_congestion_control(&self.tcp.congestion_control())?;
        let bed = &*bed;
        let length = (self.rounds.runs, timing.total());
        let is_interrupted = || bed.check().is_err();
        series.rounds(place, contenders, length, is_interrupted, |contender| {
            let belief = self.knowledge.relay_rate;
            trial::through(bed, contender, (belief, programs), |tunnel| {
                trial::run(bed, tunnel, content, timing)
            })
        })
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
    /// Has `measure` done what is missing of a series under these conditions, in a lab, unless only
    /// what is in the file is asked for; then prints all runs. Must be called before there are threads:
    /// the lab is entered here.
    ///
    /// # Errors
    /// If nothing can be measured or written. Single runs that fail are complained of and counted.
    pub(super) fn run<B: Bench>(
        &self,
        conditions: B::Conditions,
        measure: impl FnOnce(&mut Lab, &mut Series<B>) -> anyhow::Result<()>,
    ) -> anyhow::Result<ExitCode> {
        if self.report {
            let (_, runs) = Journal::open::<Run<B>>(self.json.as_deref(), true)?;
            ensure_same_bench::<B>(&runs)?;
            terminal::print(&B::report(&runs))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut lab = lab::enter()?;
        let (journal, before) = Journal::open::<Run<B>>(self.json.as_deref(), self.resume)?;
        let mut series = Series::new(conditions, journal, before)?;
        measure(&mut lab, &mut series)?;
        let what_failed = match series.outcome().failed {
            0 => "",
            1 => "1 run failed and is not in the tables.\n",
            failed => &format!("{failed} runs failed and are not in the tables.\n"),
        };
        terminal::print(&(B::report(series.runs()) + what_failed))?;
        Ok(series.outcome().exit_code())
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
