//! `dwell trace`: what captures of real traffic say of a link.
//!
//! [`files`] finds captures, the [`survey`] reads all of them once, [`input`] counts what is read.
//! The [`runner`] spreads packets over the cores, and [`output`] shows what came of an analysis.
//! [`replay`] and [`train`] read captures side by side, by [`captures`].

mod analyze;
mod captures;
mod files;
mod input;
mod merge;
mod output;
mod replay;
mod runner;
mod survey;
mod train;
mod write_config;

use std::process::ExitCode;

use clap::Subcommand;

const AFTER_HELP: &str = "\
Examples:
  dwell trace analyze office.pcap                        what is in it, and how much can go at most
  dwell trace analyze day/*.pcapng.gz --html day.html    many captures, as one page
  tcpdump -w - | dwell trace analyze -                   from a running capture, until Ctrl-C
  dwell trace analyze a.pcap --out a.json                keep the sums
  dwell trace merge a.json b.json                        and add up those of several machines
  dwell trace replay site.pcap --rate 5mbit              what each scheme would make of it
  dwell trace train site.pcap --out dictionaries         dictionaries for small packets

docs/trace.md and docs/replay.md explain how the figures come about, and what is not modelled.

Exit codes:
  0    the job is done
  1    it failed, or some captures could not be read
  2    the command line is wrong
  130  it was interrupted; what was read until then is shown";

/// Analyse captures: would dwell help a link?
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
    Replay(Box<replay::Replay>),
    Train(train::Train),
}

impl Trace {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.what {
            What::Analyze(command) => command.run(),
            What::Merge(command) => command.run(),
            What::Replay(command) => command.run(),
            What::Train(command) => command.run(),
        }
    }
}
