//! `dwell trace`: what captures of real traffic say of a link.
//!
//! [`input`] opens captures, the [`runner`] spreads their packets over the cores, and [`output`]
//! shows what came of it.

mod analyze;
mod input;
mod merge;
mod output;
mod runner;

use std::process::ExitCode;

use clap::Subcommand;

const AFTER_HELP: &str = "\
Examples:
  dwell trace analyze office.pcap                        what is in it, and what pressing gains
  dwell trace analyze day/*.pcapng.gz --html day.html    many captures, as one page
  tcpdump -w - | dwell trace analyze -                   from a running capture, until Ctrl-C
  dwell trace analyze a.pcap --out a.json                keep the sums
  dwell trace merge a.json b.json                        and add up those of several machines

docs/trace.md tells how the figures come about.

Exit codes:
  0    the job is done
  1    it failed, or some captures could not be read
  2    the command line is wrong
  130  it was interrupted; what was read is shown";

/// Find out from captures whether pressing helps a link
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Trace {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Analyze(analyze::Analyze),
    Merge(merge::Merge),
}

impl Trace {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.what {
            What::Analyze(command) => command.run(),
            What::Merge(command) => command.run(),
        }
    }
}
