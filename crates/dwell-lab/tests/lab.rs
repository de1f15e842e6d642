//! Checks of the lab, each in a lab of its own.
//!
//! A lab must be entered before there are threads, so these bring their own main function:
//! it starts this program again for each check. Arguments are parts of the names of the
//! checks to run. A check that the machine does not permit is skipped, with the reason.

mod checks;

use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use dwell_lab::lab::{self, Lab, LabError, Process};

/// Runs inside a lab.
type InLab = fn(&mut Lab) -> anyhow::Result<()>;
/// Runs outside and starts labs as it needs them.
type Outside = fn() -> anyhow::Result<()>;

enum Check {
    InLab(InLab),
    Outside(Outside),
}

/// The time after which a check counts as hanging.
const TIME_MAX: Duration = Duration::from_secs(60);
/// The exit codes of a check that runs in a process of its own.
const FAILED: u8 = 1;
const SKIPPED: u8 = 77;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--in-lab", name] => ExitCode::from(run_in_lab(name)),
        ["--scenario", name] => checks::scenario(name),
        _ => run_all(&arguments),
    }
}

fn run_all(arguments: &[String]) -> ExitCode {
    // Options are for the usual harness (cargo passes them on to every test program).
    let filters: Vec<&String> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
    let is_wanted = |name: &str| {
        filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()))
    };
    let checks: Vec<_> = checks::ALL.iter().filter(|(name, _)| is_wanted(name)).collect();
    if arguments.iter().any(|word| word == "--list") {
        checks.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (name, check) in checks {
        let (count, outcome) = match run_one(name, check) {
            Outcome::Passed(said) => (&mut passed, format!("ok{said}")),
            Outcome::Skipped(why) => (&mut skipped, format!("skipped: {why}")),
            Outcome::Failed(why) => (&mut failed, format!("FAILED\n{why}")),
        };
        *count += 1;
        println!("test {name} ... {outcome}");
    }
    println!("\n{passed} passed, {failed} failed, {skipped} skipped");
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

enum Outcome {
    Passed(String),
    Skipped(String),
    Failed(String),
}

fn run_one(name: &str, check: &Check) -> Outcome {
    match check {
        Check::InLab(_) => start_in_lab(name).unwrap_or_else(|e| Outcome::Failed(e.to_string())),
        Check::Outside(act) => match act() {
            Ok(()) => Outcome::Passed(String::new()),
            Err(error) => match error.downcast_ref::<checks::Skip>() {
                Some(skip) => Outcome::Skipped(skip.0.clone()),
                None => Outcome::Failed(format!("{error:#}")),
            },
        },
    }
}

fn start_in_lab(name: &str) -> anyhow::Result<Outcome> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--in-lab", name]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Process::spawn(&mut command)?;
    let (stdout, stderr) = (process.child().stdout.take(), process.child().stderr.take());
    let Some(status) = process.wait_timeout(TIME_MAX)? else {
        return Ok(Outcome::Failed(format!("took longer than {TIME_MAX:?}")));
    };
    let (said, why) = (checks::read(stdout)?, checks::read(stderr)?);
    Ok(match status.code() {
        Some(0) if said.is_empty() => Outcome::Passed(said),
        Some(0) => Outcome::Passed(format!(" ({})", said.trim())),
        Some(code) if code == i32::from(SKIPPED) => Outcome::Skipped(why.trim().to_owned()),
        _ => Outcome::Failed(format!("{status}: {said}{why}")),
    })
}

fn run_in_lab(name: &str) -> u8 {
    let check = checks::ALL.iter().find(|(known, _)| *known == name);
    let Some((_, Check::InLab(act))) = check else { return FAILED };
    let result = lab::enter().map_err(anyhow::Error::from).and_then(|mut lab| act(&mut lab));
    let Err(error) = result else { return 0 };
    eprintln!("{error:#}");
    match error.downcast_ref::<LabError>() {
        Some(error) if error.is_not_permitted() => SKIPPED,
        _ => FAILED,
    }
}
