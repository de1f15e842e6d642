//! `dwell sim list`: the scenarios that the program carries with it.

use std::process::ExitCode;

use dwell_report::{Column, Table};
use dwell_sim::library;
use dwell_sim::scenario::Options;

use super::input;
use dwell_cli::terminal;

const AFTER_HELP: &str = "\
Examples:
  dwell sim list
  dwell sim list --show shimamura/fig-8 > mine.toml   a scenario to begin with

Exit codes:
  0  the job is done
  1  there is no such scenario
  2  the command line is wrong";

/// List the scenarios that dwell carries with it
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct List {
    /// Print this scenario instead, as it is written
    #[arg(long, value_name = "NAME")]
    show: Option<String>,
}

impl List {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(name) = self.show {
            let entry = library::all().find(|entry| entry.id == name);
            let Some(entry) = entry else {
                anyhow::bail!("{}", input::unknown(&name));
            };
            terminal::print(entry.text)?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut table = Table::new([
            Column::left("name"),
            Column::left("figure"),
            Column::left("title"),
            Column::right("points"),
            Column::right("runs"),
        ]);
        for entry in library::all() {
            let scenario = entry.read(&Options::default())?;
            table.row([
                entry.id.to_owned(),
                scenario.about.figure.clone(),
                scenario.about.title.clone(),
                scenario.points.len().to_string(),
                scenario.runs().to_string(),
            ]);
        }
        terminal::print(&table.to_text())?;
        Ok(ExitCode::SUCCESS)
    }
}
