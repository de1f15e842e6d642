//! `dwell sim run`: one scenario.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use dwell_sim::results::{self, Evaluation, Store, Task, line};
use dwell_sim::scenario::{Options, Scenario, Setting, Value};

use super::directory::{Journal, RESULTS};
use super::precision::{Precision, Reached};
use super::runner::{self, Ended, jobs_default};
use super::{input, output};
use crate::commands::engine::Engine;
use crate::commands::interrupt::INTERRUPTED;
use crate::commands::whole_file::replace;
use dwell_cli::terminal;

const AFTER_HELP: &str = "\
Examples:
  dwell sim run shimamura/fig-8                              all of its points
  dwell sim run shimamura/fig-8 --set compress.ratio=0.8        one value instead of those swept
  dwell sim run shimamura/fig-8 --set compress.ratio=[0.6,0.8]  others
  dwell sim run mine.toml --out mine                         a directory with report and figures
  dwell sim run mine.toml --out mine.jsonl                   only the runs; `.csv` works too
  dwell sim run mine.toml --json | jq .metrics               each run as a line of JSON
  dwell sim run worked/lte --precision call.delay_p99_s=0.05    as many runs as that takes
  dwell sim run mine.toml --on slurm --store /shared/mine    on a cluster; what is there stays
  dwell sim run mine.toml --on ray --out mine.parquet        a table for pandas, polars and DuckDB

A run that the directory (or the file of JSON lines) has already is not run again. To go on after an
interruption, give the same command again.

Exit codes:
  0    all runs are done
  1    the scenario is wrong, or runs failed, or --precision is not reached: no run has a value
       for its metric, or --most runs are too few
  2    the command line is wrong: also if no run can have that metric
  130  it was interrupted; what is finished is kept";

/// Run a scenario
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Run {
    /// A scenario's file, or the name of one that dwell carries with it
    #[arg(value_name = "FILE|NAME")]
    scenario: String,
    /// Set a value of the scenario, by the dotted path of its key
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<Setting>,
    /// Number of runs at once; without it, one for each core
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// The first seed
    #[arg(long, value_parser = clap::value_parser!(u64).range(0..=i64::MAX as u64))]
    seed: Option<u64>,
    /// Number of runs of each point
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    replications: Option<u32>,
    /// Keep the results here: a directory, or a file that ends in .jsonl or .csv (with an engine .parquet, too)
    #[arg(long, value_name = "DIR|FILE")]
    out: Option<PathBuf>,
    /// Print each run as a line of JSON
    #[arg(long)]
    json: bool,
    /// The scenario's quick variant: fewer, shorter runs
    #[arg(long)]
    quick: bool,
    /// Go on with more runs until the 95 % interval of this metric is within this share of its mean at each point
    #[arg(long, value_name = "METRIC=SHARE")]
    precision: Option<Precision>,
    /// The most runs of each point that --precision may ask for
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    most: u32,
    #[command(flatten)]
    engine: Engine,
}

impl Run {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        if self.engine.is_wanted() {
            match Engine::hand_over()? {}
        }
        if self.ends_in("parquet").is_some() {
            bail!(
                "Parquet is written by Python's package: add --on local (docs/python.md), or name a .csv"
            );
        }
        let mut scenario = input::scenario(&self.scenario, &self.options(self.replications))?;
        if let Some(precision) = &self.precision
            && let Err(why) = scenario.check(&precision.metric)
        {
            terminal::complain("dwell", &format!("--precision: {why}"));
            return Ok(ExitCode::from(2));
        }
        let code = input::code_version();
        let (mut journal, mut store) = match self.journal_path() {
            Some(path) => Journal::open(&path)?,
            None => (Journal::none(), Store::default()),
        };
        let jobs = self.jobs.map_or_else(jobs_default, usize::from);
        let mut ended;
        let mut is_missed = false;
        loop {
            let tasks: Vec<Task<'_>> = Task::all(&scenario).collect();
            ended = runner::run(&tasks, jobs, &code, &mut store, &mut journal)?;
            let Some(precision) = &self.precision else { break };
            let evaluation = Evaluation::new(&scenario, &store, &code);
            let reached = precision.reached(&evaluation, self.most);
            let is_broken_off = ended.failed > 0 || ended.is_interrupted;
            let replications = match reached {
                Reached::Nothing(_) if is_broken_off => break,
                Reached::Nothing(text) | Reached::Most(text) => {
                    terminal::complain("dwell", &text);
                    is_missed = true;
                    break;
                }
                Reached::Enough(text) => {
                    terminal::note(&text);
                    break;
                }
                Reached::More(replications, text) => {
                    terminal::note(&text);
                    replications
                }
            };
            if is_broken_off {
                break;
            }
            scenario = input::scenario(&self.scenario, &self.options(Some(replications)))?;
        }
        if ended.is_interrupted && store.is_empty() {
            journal.discard_empty();
            terminal::note("interrupted before a run was done: nothing was written");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        let tasks: Vec<Task<'_>> = Task::all(&scenario).collect();
        journal.sort(&store, &tasks, &code)?;
        let evaluation = Evaluation::new(&scenario, &store, &code);
        self.show(&scenario, &[evaluation], &code)?;
        let code = exit_code(ended);
        Ok(if is_missed { ExitCode::FAILURE } else { code })
    }

    fn options(&self, replications: Option<u32>) -> Options {
        let mut settings = self.set.clone();
        let mut whole = |path: &str, value: Option<u64>| {
            let value = value.and_then(|value| i64::try_from(value).ok());
            settings.extend(
                value.map(|value| Setting { path: path.to_owned(), value: Value::Whole(value) }),
            );
        };
        whole("run.seed", self.seed);
        whole("run.replications", replications.map(u64::from));
        Options { settings, is_quick: self.quick }
    }

    fn ends_in(&self, extension: &str) -> Option<&Path> {
        self.out.as_deref().filter(|out| out.extension().is_some_and(|e| e == extension))
    }

    /// The directory, if it is to be one.
    fn directory(&self) -> Option<&Path> {
        let is_file = self.ends_in("jsonl").or(self.ends_in("csv")).is_some();
        self.out.as_deref().filter(|_| !is_file)
    }

    fn journal_path(&self) -> Option<PathBuf> {
        let file = self.ends_in("jsonl").map(Path::to_owned);
        file.or_else(|| Some(self.directory()?.join(RESULTS)))
    }

    fn show(
        &self,
        scenario: &Scenario,
        evaluations: &[Evaluation<'_>; 1],
        code: &str,
    ) -> anyhow::Result<()> {
        for name in without_values(scenario, &evaluations[0]) {
            terminal::note(&format!(
                "the series {name} has no values at some points: nothing of the kind happened there, or its link has neither a port nor a managed queue nor observe = true"
            ));
        }
        if self.ends_in("csv").is_some() && !scenario.series.is_empty() {
            terminal::note("series are written to a directory only: --out without .csv");
        }
        if let Some(directory) = self.directory() {
            output::write(directory, evaluations, code)?;
            terminal::note(&format!("wrote report and figures to {}", directory.display()));
        }
        if let Some(file) = self.ends_in("csv") {
            replace(file, &results::csv(evaluations).to_csv())?;
        }
        if self.json {
            let runs = evaluations[0].runs.iter().flatten();
            terminal::print(&runs.map(|run| line(run)).collect::<String>())?;
            return Ok(());
        }
        let mut text = format!("{}\n\n", scenario.about.title);
        text.push_str(&results::table(&evaluations[0]).to_text());
        let claims = output::claims_text(evaluations);
        if !claims.is_empty() {
            text.push('\n');
            text.push_str(&claims);
        }
        terminal::print(&text)?;
        Ok(())
    }
}

/// The series that are wanted, and that runs of a point lack.
fn without_values<'s>(scenario: &'s Scenario, evaluation: &Evaluation<'_>) -> Vec<&'s str> {
    let lacks = |name: &&String| {
        let mut runs = evaluation.runs.iter().flatten();
        runs.any(|run| run.series.get(*name).is_none_or(Vec::is_empty))
    };
    scenario.series.iter().filter(lacks).map(String::as_str).collect()
}

/// Returns the exit code after these runs.
pub(super) fn exit_code(ended: Ended) -> ExitCode {
    if ended.is_interrupted {
        terminal::note("interrupted: give the same command again to go on");
        return ExitCode::from(130);
    }
    match ended.failed {
        0 => ExitCode::SUCCESS,
        1 => {
            terminal::complain("dwell", "1 run failed");
            ExitCode::FAILURE
        }
        failed => {
            terminal::complain("dwell", &format!("{failed} runs failed"));
            ExitCode::FAILURE
        }
    }
}
