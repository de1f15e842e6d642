//! `dwell bench stream`: compressed TCP streams over a link, strategy against strategy.

mod contender;
mod pipes;
mod record;
mod rival;
mod speed;
mod table;
mod transfer;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use dwell_base::Rate;
use dwell_base::time::parse_duration_ns;
use dwell_stream::{Config, Strategy};
use dwell_testkit::corpus;
use dwell_testkit::lab::{self, Lab};

use self::contender::Contender;
use self::record::{Conditions, StreamRun};
use self::speed::Speed;
use super::Outcome;
use super::bed::Bed;
use super::link_rate::LinkRate;
use super::record::{Journal, Origin, unix_seconds};
use crate::commands::lab_setup::codec;
use crate::commands::progress::Progress;
use crate::terminal;

const AFTER_HELP: &str = "\
Examples:
  dwell bench stream --quick                                 three rates, once: two minutes
  dwell bench stream --json runs.jsonl                       the whole matrix: about an hour
  dwell bench stream --rate 50mbit --strategy mix,hull --codec deflate --file data.tar
  dwell bench stream --rate 6mbit --delay 50ms --strategy tcpcomp,kernel-level
  dwell bench stream --json runs.jsonl --report              only print what is in the file

For each rate and workload every contender sends for a while in each round, each round in another
order. `plain` is TCP as it is, and always takes part: what it carries is the link's rate in the
bounds. `/est` is the share of the Estimated Maximum of Pu and Singaravelu, for the contender's one
codec and raw; `/bound` that of the linear programme with all codecs. Both are made of what the
codecs take and give on this machine, which is measured before.

Exit codes:
  0    all runs are done
  1    some are not
  2    the command line is wrong
  130  it was interrupted; what there is has been printed";

/// Measure compressed TCP streams against plain ones, bounds and other programs
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Stream {
    /// Strategies; docs/streams.md tells what they are
    #[arg(long, value_name = "STRATEGY,...", value_delimiter = ',')]
    #[arg(default_value = "all,switch,mix,mix-2in,mix-2out,hull")]
    strategy: Vec<Strategy>,
    /// Codecs, for the strategies that have one
    #[arg(long, value_name = "CODEC,...", value_delimiter = ',', value_parser = codec)]
    #[arg(default_value = "lz4,zstd:1,deflate:6")]
    codec: Vec<String>,
    /// What is sent, made here [default: text,random,hybrid]
    #[arg(long, value_name = "WORKLOAD,...", value_delimiter = ',')]
    workload: Option<Vec<Workload>>,
    /// Files to be sent, over and over, as further workloads
    #[arg(long, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// How fast the link is: rates, or `unlimited` for a plain cable [default:
    /// 5,20,50,100,200,500mbit,1gbit,unlimited]
    #[arg(long, value_name = "RATE,...", value_delimiter = ',')]
    rate: Option<Vec<LinkRate>>,
    /// How long a packet is on its way, each way
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = parse_duration_ns)]
    delay: u64,
    /// Another stream takes half of the link
    #[arg(long)]
    competing: bool,
    /// `zstd --adapt` and `ssh -C` do not take part
    #[arg(long)]
    no_others: bool,
    /// Bytes that are compressed at once
    #[arg(long, value_name = "BYTES", default_value = "65536")]
    block: usize,
    /// Bytes that wait in the sender at most
    #[arg(long, value_name = "BYTES", default_value = "262144")]
    buffer: usize,
    /// How many rounds [default: 3]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// How long each run is watched, after a second of warm-up [default: 2]
    #[arg(long, value_parser = super::link::seconds)]
    seconds: Option<f64>,
    /// What texts and random bytes are made from
    #[arg(long, default_value = "1")]
    seed: u64,
    /// Other defaults: 10mbit,100mbit,1gbit, text only, one round of a second
    #[arg(long)]
    quick: bool,
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

/// What is sent, made here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Workload {
    /// English prose
    Text,
    /// Random bytes
    Random,
    /// Prose and random bytes in turns of half a megabyte
    Hybrid,
    /// Sentences of GPS receivers
    Telemetry,
    /// Nothing but the files
    None,
}

/// Bytes to be sent over and over, and what they are called.
#[derive(Clone, Debug)]
struct Content {
    name: String,
    body: Arc<Vec<u8>>,
}

/// What is measured unless told otherwise; the rates in Mbit/s.
const FULL_MBIT: [u64; 7] = [5, 20, 50, 100, 200, 500, 1000];
const FULL_WORKLOADS: [Workload; 3] = [Workload::Text, Workload::Random, Workload::Hybrid];
/// The same in a hurry.
const QUICK_MBIT: [u64; 3] = [10, 100, 1000];
const QUICK_WORKLOADS: [Workload; 1] = [Workload::Text];

/// How much of a workload there is before it begins anew, and how much is read of a file.
const BODY_BYTES: usize = 8 << 20;
/// Before a run is watched.
const WARM_UP: Duration = Duration::from_secs(1);
/// Starting and stopping, for the plan.
const AROUND: Duration = Duration::from_millis(300);

impl Content {
    fn made(workload: Workload, seed: u64) -> Option<Self> {
        let (name, body) = match workload {
            Workload::Text => ("text", corpus::text(BODY_BYTES, seed)),
            Workload::Random => ("random", corpus::incompressible(BODY_BYTES, seed)),
            Workload::Hybrid => ("hybrid", hybrid(seed)),
            Workload::Telemetry => ("telemetry", corpus::telemetry_messages(60_000, seed).concat()),
            Workload::None => return None,
        };
        Some(Self { name: name.to_owned(), body: Arc::new(body) })
    }

    fn read(path: &std::path::Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let mut body = std::fs::read(path).with_context(|| format!("{shown} can't be read"))?;
        body.truncate(BODY_BYTES);
        ensure!(!body.is_empty(), "{shown} is empty: name a file with something in it");
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Ok(Self { name, body: Arc::new(body) })
    }
}

/// Half a megabyte of prose, half a megabyte of noise, and so on.
fn hybrid(seed: u64) -> Vec<u8> {
    const TURN_BYTES: usize = 512 << 10;
    let text = corpus::text(BODY_BYTES / 2, seed);
    let random = corpus::incompressible(BODY_BYTES / 2, seed);
    text.chunks(TURN_BYTES)
        .zip(random.chunks(TURN_BYTES))
        .flat_map(|(a, b)| [a, b])
        .flatten()
        .copied()
        .collect()
}

impl Stream {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        if self.report {
            let (_, runs) = Journal::open::<StreamRun>(self.json.as_deref(), true)?;
            terminal::print(&table::all(&runs))?;
            return Ok(ExitCode::SUCCESS);
        }
        let contents = self.contents()?;
        let contenders = self.contenders()?;
        let mut lab = lab::enter()?;
        let (journal, runs) = Journal::open::<StreamRun>(self.json.as_deref(), self.resume)?;
        let mut matrix = Matrix {
            origin: Origin::this(),
            conditions: self.conditions(),
            contenders,
            rounds: self.runs.unwrap_or(if self.quick { 1 } else { 3 }),
            runs,
            journal,
            outcome: Outcome::default(),
        };
        matrix.fill(&mut lab, &self.rates(), &contents)?;
        terminal::print(&table::all(&matrix.runs))?;
        Ok(matrix.outcome.exit_code())
    }

    fn rates(&self) -> Vec<LinkRate> {
        let mbit: &[u64] = if self.quick { &QUICK_MBIT } else { &FULL_MBIT };
        let unlimited = (!self.quick).then_some(LinkRate(None));
        let usual = || {
            let limited = mbit.iter().map(|&mbit| LinkRate(Some(Rate::from_mbps(mbit))));
            limited.chain(unlimited).collect()
        };
        self.rate.clone().unwrap_or_else(usual)
    }

    fn conditions(&self) -> Conditions {
        Conditions {
            delay_ns: self.delay,
            competing: self.competing,
            block_bytes: self.block,
            buffer_bytes: self.buffer,
            seconds: self.seconds.unwrap_or(if self.quick { 1.0 } else { 2.0 }),
            seed: self.seed,
        }
    }

    fn contents(&self) -> anyhow::Result<Vec<Content>> {
        let usual: &[Workload] = if self.quick { &QUICK_WORKLOADS } else { &FULL_WORKLOADS };
        let workloads = self.workload.as_deref().unwrap_or(usual);
        let made = workloads.iter().filter_map(|&what| Content::made(what, self.seed));
        let mut contents: Vec<_> = made.collect();
        for path in &self.file {
            contents.push(Content::read(path)?);
        }
        ensure!(!contents.is_empty(), "there is nothing to send: name a workload or a file");
        Ok(contents)
    }

    /// Every strategy, with every codec if it has one; plain TCP first.
    fn contenders(&self) -> anyhow::Result<Vec<Contender>> {
        let mut all = vec![Contender::plain()];
        for &strategy in self.strategy.iter().filter(|&&strategy| strategy != Strategy::Plain) {
            let has_codec = !matches!(strategy, Strategy::Hull | Strategy::Raw);
            let codecs = if has_codec { self.codec.iter().map(Some).collect() } else { vec![None] };
            for codec in codecs {
                let mut config = Config::new(strategy);
                config.block_len = self.block;
                config.buffer_len = self.buffer;
                if let Some(codec) = codec {
                    config.codec = codec.parse()?;
                }
                config.check()?;
                all.push(Contender::Stream(Box::new(config)));
            }
        }
        if !self.no_others {
            all.extend(pipes::installed().into_iter().map(Contender::Pipe));
        }
        Ok(all)
    }
}

/// The runs to do, and those that are done.
struct Matrix {
    origin: Origin,
    conditions: Conditions,
    contenders: Vec<Contender>,
    rounds: u32,
    runs: Vec<StreamRun>,
    journal: Journal,
    outcome: Outcome,
}

impl Matrix {
    fn fill(
        &mut self,
        lab: &mut Lab,
        rates: &[LinkRate],
        contents: &[Content],
    ) -> anyhow::Result<()> {
        for run in &self.runs {
            ensure!(
                run.conditions == self.conditions && run.origin == self.origin,
                "the runs in the file were done otherwise ({:?}, {:?}); choose another file",
                run.conditions,
                run.origin
            );
        }
        let missing = rates
            .iter()
            .flat_map(|&rate| contents.iter().map(move |content| (rate, content)))
            .map(|(rate, content)| self.missing(rate, &content.name).len())
            .sum::<usize>();
        let each = WARM_UP + AROUND + Duration::from_secs_f64(self.conditions.seconds);
        let mut progress = Progress::new(missing, each * missing as u32);
        for content in contents {
            let speeds =
                speed::measure(&self.contenders, self.conditions.block_bytes, &content.body);
            for &rate in rates {
                self.fill_field(lab, rate, content, &speeds, &mut |what| {
                    progress.done(each, what)
                })?;
                if self.outcome.is_interrupted {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Who has still to run in which round, in the order of running.
    fn missing(&self, rate: LinkRate, workload: &str) -> Vec<(u32, Contender)> {
        let count = self.contenders.len();
        let is_done = |round: u32, contender: &Contender| {
            let name = contender.to_string();
            self.runs.iter().any(|run| {
                run.rate == rate
                    && run.workload == workload
                    && run.contender == name
                    && run.round == round
            })
        };
        (0..self.rounds)
            .flat_map(|round| (0..count).map(move |at| (round, (at + round as usize) % count)))
            .map(|(round, at)| (round, self.contenders[at].clone()))
            .filter(|(round, contender)| !is_done(*round, contender))
            .collect()
    }

    fn fill_field(
        &mut self,
        lab: &mut Lab,
        rate: LinkRate,
        content: &Content,
        speeds: &[Speed],
        done: &mut dyn FnMut(&str),
    ) -> anyhow::Result<()> {
        let missing = self.missing(rate, &content.name);
        if missing.is_empty() {
            return Ok(());
        }
        let folder = lab.directory();
        let bed = Bed::new(lab, rate, self.conditions.delay_ns)?;
        for (round, contender) in missing {
            let what = format!("{rate}, {}, {contender}, round {}", content.name, round + 1);
            let run = || -> anyhow::Result<_> {
                bed.check()?;
                let rival = self.rival(&bed)?;
                let measured =
                    transfer::run(&bed, &contender, content, &folder, self.conditions.seconds);
                drop(rival);
                measured
            };
            match run() {
                Ok(measured) => {
                    done(&format!("{what}: {:.1} Mbit/s", measured.goodput_bps() / 1e6));
                    let run = StreamRun {
                        at_unix_seconds: unix_seconds(),
                        origin: self.origin.clone(),
                        conditions: self.conditions.clone(),
                        rate,
                        workload: content.name.clone(),
                        contender: contender.to_string(),
                        codec: contender.codec(),
                        round,
                        speeds: speeds.to_vec(),
                        measured,
                    };
                    self.journal.add(&run)?;
                    self.runs.push(run);
                }
                Err(error) => {
                    let is_interrupted = bed.check().is_err();
                    if !self.outcome.goes_on_after(&error, &what, is_interrupted) {
                        return Ok(());
                    }
                    done(&format!("{what}: failed"));
                }
            }
        }
        Ok(())
    }

    /// Who takes half of the link, if somebody is to.
    fn rival(&self, bed: &Bed<'_>) -> anyhow::Result<Option<rival::Rival>> {
        if !self.conditions.competing {
            return Ok(None);
        }
        let Some(bps) = bed.rate.bps() else {
            anyhow::bail!("half of an unlimited link is not known: name rates with --competing");
        };
        rival::Rival::start(bed, Rate::clamped_bps(bps / 2)).map(Some)
    }
}
