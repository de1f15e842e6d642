//! Runs attacks, each in a process and a lab of its own.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use dwell_lab::lab::{self, Process};
use dwell_report::human;

use crate::attacks::Attack;
use crate::context::Context;
use crate::row::Row;

/// An attack that takes longer hangs.
const TIME_MAX: Duration = Duration::from_secs(240);

/// The outcome of several attacks.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) rows: Vec<Row>,
    /// Attacks that could not be run.
    pub(crate) failed: usize,
}

/// Runs attacks one after the other. `each` gets every row as soon as it is there; what happens is
/// said on standard error.
pub(crate) fn run_all(
    attacks: &[&Attack],
    dwell: &Path,
    is_quick: bool,
    each: impl Fn(&Row) -> anyhow::Result<()>,
) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    for attack in attacks {
        eprintln!("{}: {}", attack.name, attack.about);
        match run_apart(attack, dwell, is_quick) {
            Ok(row) => {
                explain(&row);
                each(&row)?;
                outcome.rows.push(row);
            }
            Err(error) => {
                eprintln!("  FAILED: {error:#}");
                outcome.failed += 1;
            }
        }
    }
    Ok(outcome)
}

fn explain(row: &Row) {
    let per_second = human::number(row.rate_per_second);
    eprintln!("  {per_second} {} a second", row.unit);
    for check in &row.checks {
        eprintln!("  {}: {}", if check.passed { "holds" } else { "FAILED" }, check.text());
    }
    for note in &row.notes {
        eprintln!("  {note}");
    }
    if row.stalled_share > 0.1 {
        let percent = human::number((row.stalled_share * 100.0).round());
        eprintln!(
            "  this machine had other things to do: a processor stood still {percent} % of the time"
        );
    }
}

fn run_apart(attack: &Attack, dwell: &Path, is_quick: bool) -> anyhow::Result<Row> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--run", attack.name, "--dwell"]).arg(dwell);
    if is_quick {
        command.arg("--quick");
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut process = Process::spawn(&mut command)?;
    let mut pipe = process.child().stdout.take().context("the output is piped")?;
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        pipe.read_to_string(&mut text).map(|_| text)
    });
    let status = process.wait_timeout(TIME_MAX)?;
    drop(process);
    let text = reader.join().map_err(|_| anyhow::anyhow!("the reader panicked"))??;
    let Some(status) = status else { bail!("it took longer than {TIME_MAX:?}") };
    ensure!(status.success(), "it ended with {status}");
    serde_json::from_str(text.trim()).context("its row is not as expected")
}

/// Runs an attack in this process, which enters a lab: first thing in `main`.
pub(crate) fn run_here(attack: &Attack, dwell: PathBuf, is_quick: bool) -> anyhow::Result<()> {
    let lab = lab::enter()?;
    let mut context = Context { lab, dwell, is_quick };
    let row = (attack.run)(&mut context, attack.name)?;
    println!("{}", serde_json::to_string(&row)?);
    Ok(())
}
