//! Runs the checks, each in a process and a lab of its own, and looks for what they leave.

mod kernel_log;
mod leftovers;

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use dwell_lab::lab::{self, Lab, LabError, Process};
use dwell_lab::relays::RelayError;

use crate::checks;
use kernel_log::KernelLog;
pub(crate) use kernel_log::make_refused_call;
use leftovers::Outside;

/// A check, and what it is called.
pub(crate) type Check = (&'static str, fn(&mut Lab) -> anyhow::Result<()>);

/// A check that takes longer hangs.
const TIME_MAX: Duration = Duration::from_secs(90);
const SKIPPED: u8 = 77;
/// The last check: it looks at what all the others left outside of their labs.
const LEFTOVERS: &str = "nothing_is_left_behind";
/// The first check: that it would be seen if a filter of system calls refused one. Each check fails if it
/// is seen.
const REFUSED_CALLS: &str = "refused_system_calls_are_seen";
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

enum Verdict {
    Passed(String),
    Skipped(String),
    Failed(String),
}

pub(crate) fn run_all(arguments: &[String]) -> ExitCode {
    // Options are for the usual harness (cargo passes them on to every test program).
    let filters: Vec<&String> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
    let is_wanted = |name: &str| {
        filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()))
    };
    let known = checks::ALL.iter().map(|&(name, _)| name);
    let names: Vec<&str> = [REFUSED_CALLS].into_iter().chain(known).chain([LEFTOVERS]).collect();
    let names: Vec<&str> = names.into_iter().filter(|name| is_wanted(name)).collect();
    if arguments.iter().any(|word| word == "--list") {
        names.iter().for_each(|name| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let mut outside = Outside::look();
    let mut log = KernelLog::open();
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for name in names {
        let verdict = match name {
            LEFTOVERS => {
                outside.compare().map(Verdict::Passed).map(|it| unless_refused(&mut log, it))
            }
            REFUSED_CALLS => match kernel_log::are_refused_calls_seen(log.as_mut()) {
                Err(error) if error.is::<Skip>() => Ok(Verdict::Skipped(error.to_string())),
                seen => seen.map(|()| Verdict::Passed(String::new())),
            },
            name => start_in_lab(name, &mut outside).map(|it| unless_refused(&mut log, it)),
        };
        let (count, said) = match verdict.unwrap_or_else(|e| Verdict::Failed(format!("{e:#}"))) {
            Verdict::Passed(said) if said.is_empty() => (&mut passed, "ok".to_owned()),
            Verdict::Passed(said) => (&mut passed, format!("ok ({said})")),
            Verdict::Skipped(why) => (&mut skipped, format!("skipped: {why}")),
            Verdict::Failed(why) => (&mut failed, format!("FAILED\n{why}")),
        };
        *count += 1;
        println!("test {name} ... {said}");
    }
    println!("\n{passed} passed, {failed} failed, {skipped} skipped");
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Returns the verdict on a check, if the kernel has not named a system call that a filter refused.
fn unless_refused(log: &mut Option<KernelLog>, verdict: Verdict) -> Verdict {
    match (log.as_mut().map_or(Ok(()), KernelLog::names_nothing), verdict) {
        (Ok(()), verdict) => verdict,
        (Err(named), Verdict::Failed(why)) => Verdict::Failed(format!("{named:#}\n{why}")),
        (Err(named), _) => Verdict::Failed(format!("{named:#}")),
    }
}

fn start_in_lab(name: &str, outside: &mut Outside) -> anyhow::Result<Verdict> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--in-lab", name]).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Process::spawn(&mut command)?;
    let said = read_aside(process.child().stdout.take());
    let why = read_aside(process.child().stderr.take());
    let status = process.wait_timeout(TIME_MAX)?;
    drop(process);
    let read = |thread: std::thread::JoinHandle<String>| thread.join().unwrap_or_default();
    let (said, why) = (read(said), read(why));
    let (namespace, said) = match said.strip_prefix(NAMESPACE) {
        Some(rest) => rest.split_once('\n').unwrap_or((rest, "")),
        None => ("", said.as_str()),
    };
    if !namespace.is_empty() {
        outside.labs.push(namespace.to_owned());
    }
    let Some(status) = status else {
        return Ok(Verdict::Failed(format!("took longer than {TIME_MAX:?}\n{said}{why}")));
    };
    Ok(match status.code() {
        Some(0) => Verdict::Passed(said.trim().replace('\n', "; ")),
        Some(code) if code == i32::from(SKIPPED) => Verdict::Skipped(why.trim().to_owned()),
        _ => Verdict::Failed(format!("{status}: {said}{why}")),
    })
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
