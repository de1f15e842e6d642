//! `dwell invite`: prints lines for more sites.

use std::path::PathBuf;
use std::process::ExitCode;

use super::init::print_line;
use super::site::{DEFAULT_CONFIG, OPEN_DAYS, Site};

const AFTER_HELP: &str = "\
Examples:
  sudo dwell invite                  a line for one more site
  sudo dwell invite --skip 1         while the site before it has not joined yet
  sudo dwell invite --count 100      lines for a hundred, each with a tunnel address of its own

At each site: sudo dwell join LINE. Here, with what that prints: sudo dwell join ANSWER

Exit codes:
  0  the lines are printed
  1  there is no node here, or no free address
  2  the command line is wrong";

/// Print the line that another site is to paste
///
/// A line suggests the first tunnel addresses that no peer has yet. It takes one answer.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Invite {
    /// The configuration file
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_CONFIG)]
    config: PathBuf,
    /// Leave the first N free addresses to sites that have a line but have not joined yet
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip: u16,
    /// Print N lines
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    count: u16,
    /// Take an answer to it for N days
    #[arg(long, value_name = "N", default_value_t = OPEN_DAYS, value_parser = clap::value_parser!(u16).range(1..=366))]
    days: u16,
    /// Print JSON, a document for each line
    #[arg(long)]
    json: bool,
}

impl Invite {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let site = Site::existing(&self.config)?;
        for line in site.invite(self.skip.into(), self.count.into(), self.days)? {
            print_line(&line, &self.config, None, self.json)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
