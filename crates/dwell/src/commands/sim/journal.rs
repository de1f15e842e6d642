//! `dwell sim journal`: repeats what a relay's decision core did.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use dwell_cli::terminal;
use dwell_drive::{Entry, JournalError, repeat};
use serde::Serialize;

const AFTER_HELP: &str = "\
Examples:
  sudo dwell relay --config site-a.toml --journal ./journal
  sudo dwell sim journal ./journal/site-b.jsonl

Exit codes:
  0  the core does the same here
  1  it does something else, or the journal can't be read
  2  the command line is wrong";

/// Repeat the decisions of a relay from its journal
///
/// A relay that runs with --journal notes what happened to the core of each peer, and what it
/// decided. Given the same events, the core here must decide the same.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Journal {
    /// The journals
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print a line of JSON for each journal
    #[arg(long)]
    json: bool,
}

/// The result of repeating a journal.
#[derive(Debug, Serialize)]
struct Repeated {
    file: PathBuf,
    actions: u64,
    arrived: u64,
    sent: u64,
}

impl Journal {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        for file in self.files {
            let repeated = read(&file).with_context(|| format!("{}", file.display()))?;
            let line = if self.json {
                serde_json::to_string(&repeated)?
            } else {
                format!(
                    "{}: {} actions, all the same ({} packets arrived, {} were sent)",
                    file.display(),
                    repeated.actions,
                    repeated.arrived,
                    repeated.sent
                )
            };
            terminal::print(&format!("{line}\n"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn read(path: &Path) -> anyhow::Result<Repeated> {
    let lines = BufReader::new(File::open(path)?).lines();
    // A line that can't be read is no entry either.
    let entries = lines.enumerate().map(|(n, line)| -> Result<Entry, JournalError> {
        Entry::from_line(&line.unwrap_or_else(|error| error.to_string()), n + 1)
    });
    let (port, actions) = repeat(entries)?;
    let accounts = port.accounts();
    let (arrived, sent) = (accounts.arrived.packets, accounts.sent.packets);
    Ok(Repeated { file: path.to_owned(), actions, arrived, sent })
}
