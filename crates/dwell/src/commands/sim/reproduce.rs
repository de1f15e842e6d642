//! `dwell sim reproduce`: the figures and tables of papers, beside what the papers say.

use std::path::PathBuf;
use std::process::ExitCode;

use dwell_sim::results::{Evaluation, Task};
use dwell_sim::scenario::Options;

use super::directory::{Journal, RESULTS};
use super::run::exit_code;
use super::runner::{self, jobs_default};
use super::{input, output};
use dwell_cli::terminal;

const AFTER_HELP: &str = "\
Examples:
  dwell sim reproduce                            everything, to ./dwell-results
  dwell sim reproduce --quick                    the same with fewer and shorter runs
  dwell sim reproduce shimamura                  one paper
  dwell sim reproduce shimamura/fig-8 --jobs 1   one figure, on one core

The directory gets results.jsonl and results.csv (all runs), report.html (figures and tables beside
the papers' numbers), tally.md (how many of these come out, and what is known about those that do
not) and figures/*.svg. Runs of --quick are shorter than the papers': what is off in them need not
be off without it. A run that is in results.jsonl already is not run again: to go on after an
interruption, give the same command again.

Exit codes:
  0    all runs are done, whatever their results are
  1    some runs failed
  2    the command line is wrong
  130  it was interrupted; what is finished is kept";

/// Reproduce the figures and tables of papers
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Reproduce {
    /// `all`, papers or figures, as `dwell sim list` names them
    #[arg(value_name = "PAPER|FIGURE", default_value = "all")]
    what: Vec<String>,
    /// Fewer, shorter runs
    #[arg(long)]
    quick: bool,
    /// Number of runs at once; without it, one for each core
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// The directory for results
    #[arg(long, value_name = "DIR", default_value = "dwell-results")]
    out: PathBuf,
    /// Print the papers' numbers and ours as JSON
    #[arg(long)]
    json: bool,
}

impl Reproduce {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let options = Options { settings: Vec::new(), is_quick: self.quick };
        let scenarios = input::scenarios(&self.what, &options)?;
        let code = input::code_version();
        let tasks: Vec<Task<'_>> = scenarios.iter().flat_map(Task::all).collect();
        let (mut journal, mut store) = Journal::open(&self.out.join(RESULTS))?;
        let jobs = self.jobs.map_or_else(jobs_default, usize::from);
        let ended = runner::run(&tasks, jobs, &code, &mut store, &mut journal)?;
        journal.sort(&store, &tasks, &code)?;
        let evaluations: Vec<Evaluation<'_>> =
            scenarios.iter().map(|scenario| Evaluation::new(scenario, &store, &code)).collect();
        output::write(&self.out, &evaluations, &code)?;
        output::write_tally(&self.out, &evaluations, &self.command())?;
        let text = match self.json {
            true => output::claims_json(&evaluations)?,
            false => output::claims_text(&evaluations),
        };
        terminal::print(&text)?;
        terminal::note(&format!("the report is {}", self.out.join("report.html").display()));
        Ok(exit_code(ended))
    }

    /// The command that gives the same results anywhere.
    fn command(&self) -> String {
        let quick = if self.quick { " --quick" } else { "" };
        format!("dwell sim reproduce {}{quick}", self.what.join(" "))
    }
}
