//! `dwell trace analyze`: what is in captures.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use dwell_base::Rate;
use dwell_codec::{CodecId, CodecSpec, ParseSpecError};
use dwell_trace::{Over, Settings, Sides};
use ipnet::IpNet;

use super::input::STDIN;
use super::output::Output;
use super::runner;
use super::survey::Survey;
use crate::commands::engine::Engine;
use crate::commands::interrupt::{INTERRUPTED, stop_flag};

const AFTER_HELP: &str = "\
Examples:
  dwell trace analyze office.pcap                            what is in it
  dwell trace analyze office.pcap --codec lz4,zstd:3         with these codecs only
  dwell trace analyze big.pcap.zst --no-codecs               who sends what, and when: fast
  dwell trace analyze office.pcap --rate 2mbit --rate 5mbit  waiting times for these links
  dwell trace analyze office.pcap --exceptions office.toml   what a relay should leave alone
  dwell trace analyze /srv/captures                          all captures in a directory
  ssh gateway tcpdump -w - | dwell trace analyze -           from standard input
  dwell trace analyze /archive --on dask --store /shared/sums   a task for each capture

pcap and pcapng are read, plain or compressed with gzip, zstd, bzip2 or xz.

Exit codes:
  0    all captures were read; broken ones up to the damage
  1    it failed, or some could not be read at all
  2    the command line is wrong
  130  it was interrupted; what was read is shown";

/// Tell what is in captures, and how many of their bytes could go at most
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Analyze {
    /// Captures, or directories of them; `-` is standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The codecs to measure, with levels, separated by commas; the first one decides which
    /// classes are exceptions
    #[arg(long, value_name = "CODECS", value_delimiter = ',')]
    codec: Vec<CodecSpec>,
    /// The codec to measure blocks with
    #[arg(long, value_name = "CODEC", default_value = "zstd:1")]
    block_codec: CodecSpec,
    /// Make no blocks
    #[arg(long)]
    no_blocks: bool,
    /// The codec to measure history with: zstd, and its level
    #[arg(long, value_name = "CODEC", default_value = "zstd:1", value_parser = context_codec)]
    context_codec: CodecSpec,
    /// Measure no history: what packets become that refer to earlier ones
    #[arg(long)]
    no_contexts: bool,
    /// Leave out the most that could be saved, and with it the verdict: it takes longer than all else together
    #[arg(long)]
    no_bound: bool,
    /// Compress nothing: only count
    #[arg(long, conflicts_with_all = ["codec", "exceptions", "inside", "no_bound"])]
    no_codecs: bool,
    /// Part of a packet that is compressed: all of it, or what is behind its headers
    #[arg(long, value_name = "packet|payload", default_value_t = Over::Packet)]
    over: Over,
    /// Rates of links for which to compute how long packets would wait
    #[arg(long, value_name = "RATE", default_values = ["1mbit", "10mbit", "100mbit"])]
    rate: Vec<Rate>,
    /// Prefixes on the near side of the link; without them, found from the capture
    #[arg(long, value_name = "PREFIX", value_delimiter = ',')]
    inside: Vec<IpNet>,
    /// Number of threads that compress; without it, one for each core
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Measure no times of codecs: all are 0, and equal captures give equal bytes
    #[arg(long)]
    no_time: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    engine: Engine,
}

impl Analyze {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        if self.engine.is_wanted() {
            if self.files.iter().any(|file| file.as_os_str() == STDIN) {
                bail!(
                    "\"-\" can't be read by other processes: name files, or leave out --on and --store"
                );
            }
            match Engine::hand_over()? {}
        }
        let settings = self.settings();
        let jobs = self.jobs.map_or_else(
            || std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            usize::from,
        );
        let stop = stop_flag()?;
        let survey = match self.no_codecs {
            // Nothing is asked of the sides, and a second look would take as long as the first.
            true => Survey::none(&self.files)?,
            false => {
                let inside = (!self.inside.is_empty()).then(|| Sides::inside(self.inside.clone()));
                Survey::of(&self.files, inside, &stop)?
            }
        };
        let done = runner::run(survey, &settings, jobs, !self.no_time, &stop)?;
        if done.analysis.files.is_empty() && done.failed > 0 {
            return Ok(ExitCode::FAILURE);
        }
        self.output.show(&done.analysis)?;
        Ok(match (done.analysis.is_partial, done.failed) {
            (true, _) => ExitCode::from(INTERRUPTED),
            (false, 0) => ExitCode::SUCCESS,
            (false, _) => ExitCode::FAILURE,
        })
    }

    fn settings(&self) -> Settings {
        let codecs = match (self.no_codecs, self.codec.is_empty()) {
            (true, _) => Vec::new(),
            (false, true) => default_codecs(),
            (false, false) => self.codec.clone(),
        };
        let block_codec = (!self.no_codecs && !self.no_blocks).then_some(self.block_codec);
        let context_codec = (!self.no_codecs && !self.no_contexts).then_some(self.context_codec);
        let rates = self.rate.clone();
        let is_without_bound = self.no_bound;
        Settings { over: self.over, codecs, block_codec, context_codec, rates, is_without_bound }
    }
}

fn context_codec(text: &str) -> Result<CodecSpec, String> {
    let spec: CodecSpec = text.parse().map_err(|error: ParseSpecError| error.to_string())?;
    match spec.id {
        CodecId::Zstd => Ok(spec),
        other => Err(format!("{other} can't refer to earlier packets: only zstd can")),
    }
}

/// One of each kind; LZO comes first where it is, since it is what the papers measured with.
fn default_codecs() -> Vec<CodecSpec> {
    let zstd = |level| CodecSpec { id: CodecId::Zstd, level };
    let lzo = CodecSpec::with_default_level(CodecId::Lzo).check().ok();
    let others = [
        CodecSpec::with_default_level(CodecId::Lz4),
        zstd(-3),
        zstd(1),
        zstd(9),
        CodecSpec::with_default_level(CodecId::Deflate),
    ];
    lzo.into_iter().chain(others).collect()
}
