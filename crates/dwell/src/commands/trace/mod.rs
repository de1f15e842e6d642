//! `dwell trace`: what captures of real traffic tell.

mod captures;
mod replay;
mod train;
mod write_config;

use std::process::ExitCode;

use clap::Subcommand;

const AFTER_HELP: &str = "\
Examples:
  dwell trace replay site.pcap --rate 5mbit                  what each scheme would make of it
  dwell trace replay site.pcap --rate 5mbit --html page.html  the same with plots
  dwell trace train site.pcap --out dictionaries              dictionaries for small packets

docs/replay.md tells what is modelled and what is not.

Exit codes:
  0    the job is done
  1    it failed
  2    the command line is wrong
  130  it was interrupted; what was read until then is shown";

/// Learn from captures whether dwell would help a link
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Trace {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Replay(Box<replay::Replay>),
    Train(train::Train),
}

impl Trace {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.what {
            What::Replay(command) => command.run(),
            What::Train(command) => command.run(),
        }
    }
}
