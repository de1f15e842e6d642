//! `dwell sim report`: shows results that are there, without running anything.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use dwell_sim::library;
use dwell_sim::results::Evaluation;
use dwell_sim::scenario::{Options, Scenario};

use super::directory::{self, RESULTS};
use super::output;
use dwell_cli::terminal;

const AFTER_HELP: &str = "\
Examples:
  dwell sim report dwell-results
  dwell sim report dwell-results --json | jq '.[] | select(.verdict == \"off\")'

It draws those of dwell's own scenarios of which there are runs. Of several
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
        let mut scenarios: Vec<Scenario> = Vec::new();
        for entry in library::ENTRIES {
            let mut variants = Vec::new();
            for is_quick in [false, true] {
                variants.push(entry.read(&Options { settings: Vec::new(), is_quick })?);
            }
            let done = |scenario: &Scenario| Evaluation::new(scenario, &store, &code).done();
            let best = variants.into_iter().max_by_key(|scenario| done(scenario));
            scenarios.extend(best.filter(|scenario| done(scenario) > 0));
        }
        if scenarios.is_empty() {
            bail!("the runs in {} are of no scenario that dwell knows", path.display());
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
