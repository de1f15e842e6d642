//! The command line.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use crate::attacks::{ALL, Attack};
use crate::{row, runner};

const AFTER_HELP: &str = "\
Examples:
  ./x attack                       all attacks, and a table of what they did
  ./x attack bombs forged          two of them
  ./x attack --list                their names
  ./x attack --quick               a selection, with short phases and wide bounds: about a minute
  ./x attack --json > rows.jsonl   a line for each attack

It needs root or a user namespace, and /dev/net/tun. Everything happens in network namespaces of
this machine. Measure on a machine that does nothing else; --quick is for busy ones.

Exit codes:
  0  all bounds hold
  1  one does not, or an attack could not be run
  2  the command line is wrong";

/// Attack dwell's relay and proxy in network namespaces, and measure what honest traffic suffers
#[derive(Debug, Parser)]
#[command(name = "./x attack", after_help = AFTER_HELP, version)]
pub(crate) struct Cli {
    /// The attacks to run [default: all]
    #[arg(value_name = "NAME", value_parser = known)]
    names: Vec<String>,
    /// Print the names of the attacks and what they do
    #[arg(long)]
    list: bool,
    /// A selection with short phases and wide bounds
    #[arg(long)]
    quick: bool,
    /// Print a line of JSON for each attack instead of the table
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print the table as documents have it
    #[arg(long)]
    markdown: bool,
    /// The program to attack [default: `dwell` beside this program]
    #[arg(long, value_name = "PROGRAM")]
    dwell: Option<PathBuf>,
    /// Run one attack in this process, and print a line of JSON
    #[arg(long, hide = true, value_name = "NAME")]
    run: Option<String>,
}

fn known(name: &str) -> Result<String, String> {
    if find(name).is_some() {
        return Ok(name.to_owned());
    }
    let names: Vec<&str> = ALL.iter().map(|attack| attack.name).collect();
    Err(format!("there is no such attack; there are {}", names.join(", ")))
}

fn find(name: &str) -> Option<&'static Attack> {
    ALL.iter().find(|attack| attack.name == name)
}

impl Cli {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if self.list {
            for attack in ALL {
                println!("{:<17} {}", attack.name, attack.about);
            }
            return Ok(ExitCode::SUCCESS);
        }
        let dwell = match &self.dwell {
            Some(dwell) => dwell.clone(),
            None => std::env::current_exe()?.with_file_name("dwell"),
        };
        anyhow::ensure!(dwell.is_file(), "{} is missing: build it first", dwell.display());
        let dwell = dwell.canonicalize()?;
        if let Some(attack) = self.run.as_deref().and_then(find) {
            runner::run_here(attack, dwell, self.quick)?;
            return Ok(ExitCode::SUCCESS);
        }
        let is_wanted = |attack: &Attack| {
            if self.names.is_empty() {
                !self.quick || attack.is_quick
            } else {
                self.names.iter().any(|name| name == attack.name)
            }
        };
        let wanted: Vec<&Attack> = ALL.iter().filter(|attack| is_wanted(attack)).collect();
        let outcome = runner::run_all(&wanted, &dwell, self.quick, |row| {
            if self.json {
                println!("{}", serde_json::to_string(row)?);
            }
            Ok(())
        })?;
        if !self.json {
            let table = row::table(&outcome.rows);
            let text = if self.markdown { table.to_markdown() } else { table.to_text() };
            println!("{text}");
        }
        let passed = outcome.failed == 0 && outcome.rows.iter().all(row::Row::passed);
        Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound_and_names_are_unique() {
        Cli::command().debug_assert();
        for attack in ALL {
            assert_eq!(ALL.iter().filter(|other| other.name == attack.name).count(), 1);
            assert!(attack.about.len() < 100, "{} is too long to list", attack.name);
        }
        assert!(Cli::try_parse_from(["x", "bombs", "--quick"]).is_ok());
        let error = Cli::try_parse_from(["x", "bomb"]).unwrap_err().to_string();
        assert!(error.contains("there are bombs"), "{error}");
    }

    #[test]
    fn every_command_line_of_the_pages_is_accepted() {
        let mut seen = 0;
        for (page, text) in dwell_testkit::pages::pages().unwrap() {
            for found in dwell_testkit::pages::command_lines(&text) {
                let words = found.words_of("./x").unwrap_or_default();
                if words.first().is_none_or(|word| word != "attack") {
                    continue;
                }
                let words =
                    words.iter().map(|word| if word == "NAME" { ALL[0].name } else { word });
                let read = Cli::try_parse_from(words);
                assert!(read.is_ok(), "{}, line {}: {read:?}", page.display(), found.line);
                seen += 1;
            }
        }
        assert!(seen > 3, "only {seen} command lines were found");
    }

    #[test]
    fn a_selection_runs_with_every_change() {
        assert!(ALL.iter().any(|attack| attack.is_quick));
    }
}
