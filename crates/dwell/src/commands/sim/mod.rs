//! `dwell sim`: simulates networks with the relay's own decision core.
//!
//! [`library`](input) finds scenarios, the [`runner`] runs them on all cores, the [`directory`]
//! keeps results so that nothing runs twice, and [`output`] shows them.

mod directory;
mod input;
mod journal;
mod list;
mod output;
mod precision;
mod report;
mod reproduce;
mod run;
mod runner;
mod trace;

use std::process::ExitCode;

use clap::Subcommand;

pub(super) use input::code_version;

const AFTER_HELP: &str = "\
Examples:
  dwell sim list                                   the scenarios that dwell carries with it
  dwell sim run shimamura/fig-8                    one of them
  dwell sim run mine.toml --set compress.ratio=0.8    one of your own, with a value changed
  dwell sim reproduce shimamura --quick            a paper's figures, roughly, in seconds
  dwell sim reproduce                              all figures and tables of all papers
  dwell sim report dwell-results                   their report once more
  dwell sim trace worked/lte --out lte.pcapng      the packets of one run, for Wireshark
  dwell sim journal site-b.jsonl                   a relay's decisions once more

docs/simulator.md says what is modelled, docs/scenarios.md how scenarios are written.

Exit codes:
  0    the job is done
  1    it failed, or some runs did
  2    the command line is wrong
  130  it was interrupted; what is finished is kept";

/// Simulate networks, and reproduce the figures of papers
///
/// The simulator runs the very code that decides in the relay. The same scenario and seed give
/// the same result on any machine, with any number of jobs.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Sim {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    List(list::List),
    Run(run::Run),
    Reproduce(reproduce::Reproduce),
    Report(report::Report),
    Trace(trace::Trace),
    Journal(journal::Journal),
}

impl Sim {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.what {
            What::List(command) => command.run(),
            What::Run(command) => command.run(),
            What::Reproduce(command) => command.run(),
            What::Report(command) => command.run(),
            What::Trace(command) => command.run(),
            What::Journal(command) => command.run(),
        }
    }
}
