//! `dwell demo`: shows on this machine what dwell does for a thin link.

mod live;
mod measure;
mod picture;
mod summary;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use dwell_base::ByteSize;
use dwell_base::time::SECOND_NS;
use dwell_lab::corpus;
use dwell_lab::lab::{self, topology};
use dwell_lab::relays::{RelayRate, RelaySettings, Relays};

use self::live::Live;
use self::measure::{Payload, Stage};
use self::summary::Summary;
use super::lab_setup::{self, LinkArgs, RELAYS};
use super::whole_file;
use crate::logging::{self, Logging};
use dwell_cli::{terminal, values};

const AFTER_HELP: &str = "\
Examples:
  dwell demo                                  10 Mbit/s and 20 ms each way
  dwell demo --rate 2mbit --codec zstd:9      a thinner link is worth more work
  dwell demo --rate 100mbit --scheme packet   a link that leaves little time
  dwell demo --loss 1%                        a link that loses packets
  dwell demo --html demo.html                 the same as a page with plots
  dwell demo --json | jq '.runs[] | [.scheme, .file, .goodput_bps]'

It needs no privileges: its hosts are network namespaces of an ordinary user, made of the
programs ip and tc (iproute2) and ping, and vanish with it. Ctrl-C shows what there is so far.

Exit codes:
  0  every file arrived as it was sent, and through the relays where there were some
  1  one did not, or the demo could not run to its end
  2  the command line is wrong
  130  it was interrupted by Ctrl-C (143 by SIGTERM): what there is so far is shown";

/// The default schemes: nothing, and the three that operators choose between.
const SCHEMES: [&str; 4] = ["none", "packet", "edge", "auto"];

/// Show on this machine what dwell does for a slow link
///
/// Real downloads, of English prose and of random bytes, cross an emulated thin link with a
/// ping beside them: first without dwell, then between two relays with each scheme.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Demo {
    #[command(flatten)]
    link: LinkArgs,
    /// A scheme to show; may be repeated [default: none, packet, edge and auto]
    #[arg(long, value_parser = values::schemes(), help_heading = RELAYS)]
    scheme: Vec<String>,
    /// The codec and its level
    #[arg(long, default_value = "auto", value_parser = values::codec)]
    #[arg(help_heading = RELAYS)]
    codec: String,
    /// The relays' setting of the link's rate: "auto" lets them find it by back-pressure
    #[arg(long, value_name = "RATE", default_value = "auto", value_parser = lab_setup::relay_rate)]
    #[arg(help_heading = RELAYS)]
    relay_rate: RelayRate,
    /// Time that each download should take without dwell; decides on the size of the files
    #[arg(long, default_value = "4", value_parser = seconds)]
    seconds: f64,
    /// The size of the files instead, such as 5MB
    #[arg(long, conflicts_with = "seconds", value_parser = size)]
    size: Option<u64>,
    /// Write a page with plots, too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print one JSON document instead of a table
    #[arg(long)]
    json: bool,
}

const SECONDS_MAX: f64 = 3600.0;
/// Two such files are kept in memory.
const SIZE_MIN: u64 = 1_000;
const SIZE_MAX: u64 = 1 << 30;
/// Enough for a median on an idle link.
const IDLE_PINGS: u32 = 20;
/// Without dwell.
const PLAIN: &str = "without";

fn seconds(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|s| (0.1..=SECONDS_MAX).contains(s));
    number.ok_or_else(|| format!("use a number of seconds from 0.1 to {SECONDS_MAX}"))
}

fn size(text: &str) -> Result<u64, String> {
    let ByteSize(size) = text.parse()?;
    let is_possible = (SIZE_MIN..=SIZE_MAX).contains(&size);
    is_possible.then_some(size).ok_or_else(|| "use a size from 1kB to 1GiB".to_owned())
}

impl Demo {
    pub(crate) fn run(mut self, logging: &Logging) -> anyhow::Result<ExitCode> {
        let size = self.size()?;
        if self.scheme.is_empty() {
            self.scheme = SCHEMES.map(str::to_owned).to_vec();
        }
        // This starts the program again, inside: before there are threads.
        let mut lab = lab::enter()?;
        logging.start(logging::DEFAULT)?;
        let interrupted = lab.interrupted();
        let dwell = std::env::current_exe().context("the path of this program can't be found")?;
        let pair = topology::pair(&mut lab, self.link.pair_spec())?;
        let payloads = payloads(size);
        let stage = Stage::new(lab, pair, payloads, self.link.rate, interrupted)?;
        let mut summary = self.empty_summary(size);
        if !self.json {
            terminal::print(&summary.introduction())?;
        }
        let result = match self.show(&stage, &dwell, &mut summary) {
            // Ctrl-C has reached the ping and the relays as well: no wonder if they failed.
            _ if stage.is_interrupted() => Ok(()),
            result => result,
        };
        summary.complete = result.is_ok() && !stage.is_interrupted();
        terminal::print(&if self.json { summary.to_json()? } else { summary.to_text() })?;
        if let Some(path) = &self.html {
            let page = picture::page(&summary, &terminal::command_line());
            whole_file::replace(path, &page)?;
        }
        result?;
        if let Some(signal) = stage.lab.interrupted_by().filter(|_| !summary.complete) {
            return Ok(ExitCode::from(128 + signal));
        }
        Ok(if summary.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn size(&self) -> anyhow::Result<usize> {
        let as_long_as_reported =
            self.link.rate.bytes_in_ns((self.seconds * SECOND_NS as f64) as u64);
        let size = self.size.unwrap_or(as_long_as_reported.clamp(SIZE_MIN, SIZE_MAX));
        usize::try_from(size).context("the files don't fit into the memory")
    }

    fn empty_summary(&self, size: usize) -> Summary {
        Summary {
            schema: summary::SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            complete: false,
            link_rate_bps: self.link.rate.as_bps(),
            link_delay_ns: self.link.delay,
            link_loss: self.link.loss,
            codec: self.codec.clone(),
            relay_rate: lab_setup::relay_rate_text(self.relay_rate),
            file_bytes: size as u64,
            idle: Vec::new(),
            runs: Vec::new(),
        }
    }

    fn show(&self, stage: &Stage, dwell: &Path, summary: &mut Summary) -> anyhow::Result<()> {
        let mut live = Live::new((1 + self.scheme.len()) * stage.payloads.len());
        Self::downloads(stage, None, &mut live, summary)?;
        for scheme in &self.scheme {
            if stage.is_interrupted() {
                break;
            }
            live.preparing(&format!("{scheme}: starting the relays"));
            let settings = RelaySettings {
                scheme: scheme.clone(),
                codec: self.codec.clone(),
                rate: self.relay_rate,
                ..RelaySettings::default()
            };
            let mut relays = Relays::start(&stage.lab, &stage.pair, dwell, &settings)?;
            Self::downloads(stage, Some((scheme, &relays)), &mut live, summary)?;
            relays.stop()?;
        }
        Ok(())
    }

    /// All files, once.
    fn downloads(
        stage: &Stage,
        relays: Option<(&str, &Relays)>,
        live: &mut Live,
        summary: &mut Summary,
    ) -> anyhow::Result<()> {
        let scheme = relays.map(|(scheme, _)| scheme.to_owned());
        let name = scheme.as_deref().unwrap_or(PLAIN);
        live.preparing(&format!("{name}: ping on the idle link"));
        summary
            .idle
            .push(summary::Idle { scheme: scheme.clone(), ping: stage.idle_ping(IDLE_PINGS)? });
        for payload in &stage.payloads {
            live.begin(name, payload);
            let relays = relays.map(|(_, relays)| relays);
            let report = |progress| live.progress(name, payload, progress);
            let Some(download) = stage.download(payload, relays, report)? else { return Ok(()) };
            summary.add(scheme.clone(), payload.name, download);
        }
        Ok(())
    }
}

fn payloads(size: usize) -> Vec<Payload> {
    let payload = |name, body| Payload { name, body: Arc::new(body) };
    vec![payload("text", corpus::text(size, 1)), payload("random", corpus::incompressible(size, 1))]
}
