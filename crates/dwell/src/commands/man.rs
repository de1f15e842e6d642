//! `dwell man`: writes the manual pages.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::CommandFactory as _;

use crate::cli::Cli;
use dwell_cli::terminal;

const AFTER_HELP: &str = "\
Examples:
  dwell man --out /usr/local/share/man/man1
  dwell man --out . && man ./dwell-check.1

Exit codes:
  0  the pages are written
  1  they are not
  2  the command line is wrong";

/// Write the manual pages
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Man {
    /// The directory to write them to; it is made if need be
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

impl Man {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let out = self.out.display();
        std::fs::create_dir_all(&self.out).with_context(|| format!("{out} can't be made"))?;
        clap_mangen::generate_to(Cli::command(), &self.out)
            .with_context(|| format!("the manual pages can't be written to {out}"))?;
        terminal::note(&format!("wrote the manual pages to {out}"));
        Ok(ExitCode::SUCCESS)
    }
}
