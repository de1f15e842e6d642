//! The ends of labs: nothing must be left of them.
//!
//! A scenario is this program in a lab with a host, an emulated link or a cable, and a child that
//! would keep running. It prints what belongs to it; the checks look for that afterwards.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, ensure};
use dwell_lab::lab::topology::{self, PairSpec};
use dwell_lab::lab::{self, Lab, Process};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::Skip;
use super::networks::wait_for;

pub(super) fn scenario(name: &str) -> anyhow::Result<ExitCode> {
    if name == "threads" {
        let thread = std::thread::spawn(|| std::thread::sleep(Duration::from_millis(500)));
        let error = lab::enter().map(drop).err().context("entered with threads")?;
        println!("{error}");
        return thread.join().map(|()| ExitCode::from(3)).map_err(|_| anyhow::anyhow!("panicked"));
    }
    let mut lab = lab::enter()?;
    let _child = populate(&mut lab)?;
    match name {
        "end" => Ok(ExitCode::from(7)),
        "panic" => panic!("as asked"),
        "finish" => {
            let interrupted = lab.interrupted();
            println!("ready");
            wait_for("an interrupt", || Ok(interrupted.load(Ordering::SeqCst)))?;
            println!("finished");
            Ok(ExitCode::from(5))
        }
        _ => {
            println!("ready");
            std::thread::sleep(Duration::from_secs(100));
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Makes hosts, links and a child that does not belong to any guard; prints them.
fn populate(lab: &mut Lab) -> anyhow::Result<topology::Pair> {
    // The link is emulated if that is possible.
    let rate = "10mbit".parse()?;
    let pair = topology::pair(lab, PairSpec::thin(rate, 1_000_000))
        .or_else(|_| topology::pair(lab, PairSpec::thin(rate, 0)))?;
    let inode = |path: &str| fs::metadata(path).map(|file| file.ino());
    println!("namespace {}", inode("/proc/self/ns/net")?);
    println!("namespace {}", inode("/proc/self/ns/pid")?);
    for host in [&pair.client, &pair.ingress, &pair.egress, &pair.server] {
        println!("namespace {}", host.run(|| inode("/proc/thread-self/ns/net"))??);
    }
    // Not waited for, in a session of its own: only the kernel will end it.
    pair.client.command("setsid").args(["sleep", "1000"]).spawn()?;
    Ok(pair)
}

/// A running scenario and what belongs to it.
struct Running {
    process: Process,
    output: BufReader<std::process::ChildStdout>,
    namespaces: Vec<u64>,
}

/// Starts a scenario, in a process group of its own, and waits until it stands.
fn start(name: &str, adjust: impl FnOnce(&mut Command)) -> anyhow::Result<Running> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--scenario", name]).process_group(0);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    adjust(&mut command);
    let mut process = Process::spawn(&mut command)?;
    let stdout = process.child().stdout.take().context("stdout is piped")?;
    let mut running = Running { process, output: BufReader::new(stdout), namespaces: Vec::new() };
    let mut line = String::new();
    while running.output.read_line(&mut line)? > 0 && line.trim() != "ready" {
        if let Some(inode) = line.trim().strip_prefix("namespace ") {
            running.namespaces.push(inode.parse()?);
        }
        line.clear();
    }
    if running.namespaces.is_empty() {
        let why = super::read(running.process.child().stderr.take())?;
        // The errors of the lab that are caused by the machine have these words in common.
        let is_not_permitted = why.contains("sudo") || why.contains("--privileged");
        return Err(match is_not_permitted {
            true => Skip(why.trim().to_owned()).into(),
            false => anyhow::anyhow!("the scenario does not stand: {why}"),
        });
    }
    Ok(running)
}

impl Running {
    fn outer(&self) -> anyhow::Result<Pid> {
        i32::try_from(self.process.id()).ok().and_then(Pid::from_raw).context("it has a number")
    }

    /// The only child of the outer process.
    fn inner(&self) -> anyhow::Result<Pid> {
        let outer = self.process.id();
        let children = fs::read_to_string(format!("/proc/{outer}/task/{outer}/children"))?;
        let inner = children.split_whitespace().next().context("it has a child")?;
        Pid::from_raw(inner.parse()?).context("it has a number")
    }

    /// Waits for the end and checks that nothing of it is left.
    fn end(&mut self) -> anyhow::Result<ExitStatus> {
        let status = self.process.wait_timeout(Duration::from_secs(10))?;
        let status = status.context("the outer process does not end")?;
        wait_for("its namespaces to be empty", || Ok(inhabitants(&self.namespaces)?.is_empty()))?;
        Ok(status)
    }
}

/// Returns the processes that are in one of these namespaces. Without any (and without descriptors
/// and mounts, which only processes have) the kernel removes a namespace with its devices.
fn inhabitants(namespaces: &[u64]) -> anyhow::Result<Vec<String>> {
    let is_inside = |id: &str| {
        ["net", "pid"].iter().any(|kind| {
            fs::metadata(format!("/proc/{id}/ns/{kind}"))
                .is_ok_and(|file| namespaces.contains(&file.ino()))
        })
    };
    let names =
        fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter(|name| name.parse::<u32>().is_ok() && is_inside(name)).collect())
}

/// Returns the parts of a lab that are visible outside, if there are any.
fn outside() -> anyhow::Result<Vec<String>> {
    let mut seen = Vec::new();
    for directory in ["/sys/class/net", "/run", "/run/netns"] {
        let Ok(entries) = fs::read_dir(directory) else { continue };
        for entry in entries {
            seen.push(entry?.path().display().to_string());
        }
    }
    let own = |path: &&String| path.contains("thin0") || path.contains("dwell-lab");
    let hosts = ["client", "ingress", "egress", "server"];
    let named = |path: &&String| hosts.iter().any(|host| path.ends_with(&format!("netns/{host}")));
    Ok(seen.iter().filter(|path| own(path) || named(path)).cloned().collect())
}

fn ends_cleanly(
    name: &str,
    act: impl FnOnce(&Running) -> anyhow::Result<()>,
    is_expected: impl FnOnce(ExitStatus) -> bool,
) -> anyhow::Result<()> {
    let before = outside()?;
    let mut running = start(name, |_| ())?;
    ensure!(name == "end" || name == "panic" || inhabitants(&running.namespaces)?.len() >= 2);
    act(&running)?;
    let status = running.end()?;
    ensure!(is_expected(status), "ended with {status}");
    ensure!(outside()? == before, "left behind: {:?}", outside()?);
    Ok(())
}

pub(super) fn exit_code() -> anyhow::Result<()> {
    ends_cleanly("end", |_| Ok(()), |status| status.code() == Some(7))
}

pub(super) fn threads() -> anyhow::Result<()> {
    let me = std::env::current_exe()?;
    let output = Command::new(me).args(["--scenario", "threads"]).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(said.contains("must be entered before the program starts threads"), "{said}");
    Ok(())
}

pub(super) fn after_the_end() -> anyhow::Result<()> {
    exit_code()
}

pub(super) fn after_a_panic() -> anyhow::Result<()> {
    ends_cleanly("panic", |_| Ok(()), |status| status.code() == Some(101))
}

/// A terminal's Ctrl-C goes to the whole group; here a process stands in for it.
pub(super) fn after_ctrl_c() -> anyhow::Result<()> {
    let act = |running: &Running| Ok(kill_process_group(running.outer()?, Signal::INT)?);
    ends_cleanly("wait", act, |status| status.code() == Some(130))
}

pub(super) fn after_sigint_and_sigterm() -> anyhow::Result<()> {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let act = |running: &Running| Ok(kill_process(running.outer()?, signal)?);
        ends_cleanly("wait", act, |status| status.code() == Some(code))?;
    }
    Ok(())
}

pub(super) fn after_killing_the_outer() -> anyhow::Result<()> {
    let act = |running: &Running| Ok(kill_process(running.outer()?, Signal::KILL)?);
    ends_cleanly("wait", act, |status| status.signal() == Some(9))
}

pub(super) fn after_killing_the_inner() -> anyhow::Result<()> {
    let act = |running: &Running| Ok(kill_process(running.inner()?, Signal::KILL)?);
    ends_cleanly("wait", act, |status| status.code() == Some(137))
}

pub(super) fn can_finish() -> anyhow::Result<()> {
    let mut running = start("finish", |_| ())?;
    kill_process_group(running.outer()?, Signal::INT)?;
    let status = running.end()?;
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut running.output, &mut rest)?;
    ensure!(status.code() == Some(5) && rest.contains("finished"), "{status}: {rest}");
    Ok(())
}

/// Only meaningful when the tests themselves run as root.
pub(super) fn ordinary_user() -> anyhow::Result<()> {
    const NOBODY: u32 = 65_534;
    if !rustix::process::geteuid().is_root() {
        return Err(Skip("the other checks run as an ordinary user already".into()).into());
    }
    // Before `start` knows more: whether the user nobody may run this program at all.
    let mut probe = Command::new(std::env::current_exe()?);
    if probe.arg("--list").uid(NOBODY).gid(NOBODY).stdout(Stdio::null()).status().is_err() {
        return Err(Skip("an ordinary user cannot read this program".into()).into());
    }
    for signal in [Signal::TERM, Signal::KILL] {
        let mut running = start("wait", |command| {
            command.uid(NOBODY).gid(NOBODY);
        })?;
        kill_process(running.outer()?, signal)?;
        running.end()?;
    }
    Ok(())
}
