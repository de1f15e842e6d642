//! Runs the checks, each in a process and a lab of its own, and looks for what they leave.

mod kernel_log;
mod leftovers;

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use dwell_lab::lab::{self, Lab, LabError, Process};
use dwell_lab::relays::RelayError;

use crate::checks;
use kernel_log::KernelLog;
pub(crate) use kernel_log::make_refused_call;
use leftovers::Outside;

/// A check, and what it is called.
pub(crate) type Check = (&'static str, fn(&mut Lab) -> anyhow::Result<()>);

/// A check that takes longer hangs, ...
const TIME_MAX: Duration = Duration::from_secs(90);
/// ... and so does a long one.
const LONG_TIME_MAX: Duration = Duration::from_secs(900);
const SKIPPED: u8 = 77;
/// The last check: it looks at what all the others left outside of their labs.
const LEFTOVERS: &str = "nothing_is_left_behind";
/// The first check: that it would be seen if a filter of system calls refused one. Each check fails if it
/// is seen.
const REFUSED_CALLS: &str = "refused_system_calls_are_seen";
/// The number of checks that run at the same time. They mostly wait: for a thin link, for losses to
/// be noticed, for programs to end.
const AT_ONCE: usize = 4;
/// The prefix of the line by which a check reports the PID namespace of its lab.
const NAMESPACE: &str = "lab in ";

/// Why a check can't run here.
#[derive(Debug)]
pub(crate) struct Skip(pub(crate) String);

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skip {}

/// Skips the check unless these programs are installed.
pub(crate) fn require(programs: &[&str]) -> Result<(), Skip> {
    match programs.iter().find(|program| find(program).is_none()) {
        None => Ok(()),
        Some(missing) => Err(Skip(format!("{missing} is not installed"))),
    }
}

/// Returns the path of a program.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let more = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    directories
        .into_iter()
        .chain(more)
        .map(|directory| directory.join(program))
        .find(|path| path.is_file())
}

enum CheckOutcome {
    Passed(String),
    Skipped(String),
    Failed(String),
}

pub(crate) fn run_all(arguments: &[String]) -> ExitCode {
    // Options are for the usual harness (cargo passes them on to every test program).
    let filters: Vec<&String> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
    let are_long_wanted = filters.iter().any(|filter| filter.starts_with(checks::LONG));
    let is_wanted = |name: &str| {
        let is_named = filters.iter().any(|filter| name.contains(filter.as_str()));
        (filters.is_empty() || is_named) && (are_long_wanted || !name.starts_with(checks::LONG))
    };
    let known = checks::ALL.iter().map(|&(name, _)| name);
    let names: Vec<&str> = [REFUSED_CALLS].into_iter().chain(known).chain([LEFTOVERS]).collect();
    let names: Vec<&str> = names.into_iter().filter(|name| is_wanted(name)).collect();
    if arguments.iter().any(|word| word == "--list") {
        names.iter().for_each(|name| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let (outside, log) = (Outside::look(), KernelLog::open());
    let mut run = Run { outside, log, passed: 0, failed: 0, skipped: 0 };
    if is_wanted(REFUSED_CALLS) {
        let outcome = match kernel_log::are_refused_calls_seen(run.log.as_mut()) {
            Err(error) if error.is::<Skip>() => Ok(CheckOutcome::Skipped(error.to_string())),
            seen => seen.map(|()| CheckOutcome::Passed(String::new())),
        };
        run.report(REFUSED_CALLS, outcome, Duration::ZERO);
    }
    let is_alone = |name: &str| checks::ALONE.iter().any(|start| name.starts_with(start));
    let in_labs = names.into_iter().filter(|&name| name != LEFTOVERS && name != REFUSED_CALLS);
    let (alone, together): (Vec<&str>, Vec<&str>) = in_labs.partition(|name| is_alone(name));
    run.checks(&together, AT_ONCE);
    run.checks(&alone, 1);
    if is_wanted(LEFTOVERS) {
        let outcome =
            run.outside.compare().map(|said| run.unless_refused(CheckOutcome::Passed(said)));
        run.report(LEFTOVERS, outcome, Duration::ZERO);
    }
    println!("\n{} passed, {} failed, {} skipped", run.passed, run.failed, run.skipped);
    if run.failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The state of the run.
struct Run {
    outside: Outside,
    log: Option<KernelLog>,
    passed: u32,
    failed: u32,
    skipped: u32,
}

impl Run {
    /// Runs checks, and so many of them at the same time.
    fn checks(&mut self, names: &[&str], at_once: usize) {
        let (next, run) = (Mutex::new(names.iter()), Mutex::new(self));
        let work = || {
            loop {
                let Some(name) = next.lock().ok().and_then(|mut next| next.next()) else { return };
                let start = Instant::now();
                let checked = start_in_lab(name);
                let Ok(mut run) = run.lock() else { return };
                let outcome = checked.map(|(outcome, namespace)| {
                    run.outside.labs.extend(namespace);
                    run.unless_refused(outcome)
                });
                run.report(name, outcome, start.elapsed());
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..at_once {
                scope.spawn(work);
            }
        });
    }

    /// Returns the outcome on a check, if the kernel has not named a system call that a filter refused.
    /// That may have been in another check that runs at the same time.
    fn unless_refused(&mut self, outcome: CheckOutcome) -> CheckOutcome {
        match (self.log.as_mut().map_or(Ok(()), KernelLog::names_nothing), outcome) {
            (Ok(()), outcome) => outcome,
            (Err(named), CheckOutcome::Failed(why)) => {
                CheckOutcome::Failed(format!("{named:#}\n{why}"))
            }
            (Err(named), _) => CheckOutcome::Failed(format!("{named:#}")),
        }
    }

    fn report(&mut self, name: &str, outcome: anyhow::Result<CheckOutcome>, took: Duration) {
        let took = format!("{:.1} s", took.as_secs_f64());
        let (count, said) = match outcome.unwrap_or_else(|e| CheckOutcome::Failed(format!("{e:#}")))
        {
            CheckOutcome::Passed(said) if said.is_empty() => {
                (&mut self.passed, format!("ok [{took}]"))
            }
            CheckOutcome::Passed(said) => (&mut self.passed, format!("ok ({said}) [{took}]")),
            CheckOutcome::Skipped(why) => (&mut self.skipped, format!("skipped: {why}")),
            CheckOutcome::Failed(why) => (&mut self.failed, format!("FAILED [{took}]\n{why}")),
        };
        *count += 1;
        println!("test {name} ... {said}");
    }
}

/// Runs a check, and returns which PID namespace its lab had.
fn start_in_lab(name: &str) -> anyhow::Result<(CheckOutcome, Option<String>)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--in-lab", name]).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Process::spawn(&mut command)?;
    let said = read_aside(process.child().stdout.take());
    let why = read_aside(process.child().stderr.take());
    let time_max = if name.starts_with(checks::LONG) { LONG_TIME_MAX } else { TIME_MAX };
    let status = process.wait_timeout(time_max)?;
    drop(process);
    let read = |thread: std::thread::JoinHandle<String>| thread.join().unwrap_or_default();
    let (said, why) = (read(said), read(why));
    let (namespace, said) = match said.strip_prefix(NAMESPACE) {
        Some(rest) => rest.split_once('\n').unwrap_or((rest, "")),
        None => ("", said.as_str()),
    };
    let outcome = match status.map(|status| (status, status.code())) {
        None => CheckOutcome::Failed(format!("took longer than {time_max:?}\n{said}{why}")),
        Some((_, Some(0))) => CheckOutcome::Passed(said.trim().replace('\n', "; ")),
        Some((_, Some(code))) if code == i32::from(SKIPPED) => {
            CheckOutcome::Skipped(why.trim().to_owned())
        }
        Some((status, _)) => CheckOutcome::Failed(format!("{status}: {said}{why}")),
    };
    Ok((outcome, (!namespace.is_empty()).then(|| namespace.to_owned())))
}

/// Reads a pipe to its end while the process writes to another one.
fn read_aside(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before an error is worth showing.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

pub(crate) fn run_in_lab(name: &str) -> ExitCode {
    let check = checks::ALL.iter().find(|(known, _)| *known == name);
    let Some((_, act)) = check else { return ExitCode::FAILURE };
    let result = lab::enter().map_err(anyhow::Error::from).and_then(|mut lab| {
        let namespace = std::fs::read_link("/proc/self/ns/pid")?;
        println!("{NAMESPACE}{}", namespace.display());
        permitted()?;
        act(&mut lab)
    });
    let Err(error) = result else { return ExitCode::SUCCESS };
    eprintln!("{error:#}");
    if is_not_permitted(&error) { ExitCode::from(SKIPPED) } else { ExitCode::FAILURE }
}

fn permitted() -> Result<(), Skip> {
    let opened = File::options().read(true).write(true).open("/dev/net/tun");
    opened.map(drop).map_err(|error| Skip(format!("cannot open /dev/net/tun: {error}")))
}

fn is_not_permitted(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.is::<Skip>()
            || cause.downcast_ref().is_some_and(LabError::is_not_permitted)
            || matches!(
                cause.downcast_ref(),
                Some(RelayError::Lab(error)) if error.is_not_permitted()
            )
    })
}

/// Returns true if this kernel speaks IPv6.
pub(crate) fn has_ipv6() -> bool {
    Path::new("/proc/sys/net/ipv6").exists()
}
