//! `dwell sim report`: shows results that are there, without running anything.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use dwell_sim::library;
use dwell_sim::results::Evaluation;
use dwell_sim::scenario::{Options, Scenario};

use super::directory::{self, RESULTS};
use super::{input, output};
use dwell_cli::terminal;

const AFTER_HELP: &str = "\
Examples:
  dwell sim report dwell-results
  dwell sim report mine --scenario mine.toml       of a scenario of your own
  dwell sim report dwell-results --json | jq '.[] | select(.verdict == \"off\")'

It draws those of dwell's own scenarios of which there are runs, or those that are named. Of several
versions of dwell, those runs count that were written last.

Exit codes:
  0  the report is written
  1  it is not
  2  the command line is wrong";

/// Draw figures and tables of results that are there
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Report {
    /// The directory with results.jsonl
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// A scenario of your own, or the name of one of dwell's; may be given several times
    #[arg(long = "scenario", value_name = "FILE|NAME")]
    scenarios: Vec<String>,
    /// Print the papers' numbers and ours as JSON
    #[arg(long)]
    json: bool,
}

impl Report {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let path = self.directory.join(RESULTS);
        let (store, dropped) = directory::read(&path)?;
        if !dropped.is_empty() {
            terminal::note(&format!("{}: {}", path.display(), directory::reported(&dropped)));
        }
        let Some(code) = store.last_code() else {
            bail!("there are no runs in {}: `dwell sim reproduce` makes some", path.display());
        };
        let code = code.to_owned();
        // Quick or not: whichever has more runs here.
        let done = |scenario: &Scenario| Evaluation::new(scenario, &store, &code).done();
        let best = |variants: [Scenario; 2]| {
            variants.into_iter().max_by_key(|scenario| done(scenario)).filter(|s| done(s) > 0)
        };
        let options = |is_quick| Options { settings: Vec::new(), is_quick };
        let mut scenarios: Vec<Scenario> = Vec::new();
        for name in &self.scenarios {
            let read = |is_quick| input::scenario(name, &options(is_quick));
            let Some(found) = best([read(false)?, read(true)?]) else {
                bail!("there are no runs of {name} in {}", path.display());
            };
            scenarios.push(found);
        }
        for entry in library::all().filter(|_| self.scenarios.is_empty()) {
            let read = |is_quick| entry.read(&options(is_quick));
            scenarios.extend(best([read(false)?, read(true)?]));
        }
        if scenarios.is_empty() {
            bail!(
                "the runs in {} are of no scenario that dwell knows: name yours with --scenario",
                path.display()
            );
        }
        let evaluations: Vec<Evaluation<'_>> =
            scenarios.iter().map(|scenario| Evaluation::new(scenario, &store, &code)).collect();
        output::write(&self.directory, &evaluations, &code)?;
        let text = match self.json {
            true => output::claims_json(&evaluations)?,
            false => output::claims_text(&evaluations),
        };
        terminal::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}
