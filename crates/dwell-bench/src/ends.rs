//! The processes at both ends of somebody else's tunnel.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use dwell_lab::lab::Process;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::bed::Bed;
use super::machine::{family, family_cpu_ns};

/// A process at each end with all that it starts, and their logs.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) sender: Process,
    pub(super) receiver: Process,
    pub(super) logs: [PathBuf; 2],
}

/// A process that is killed must be gone after this.
const GRACE: Duration = Duration::from_secs(2);
/// The lines that are shown of a log.
const TAIL_LINES: usize = 12;

impl Ends {
    /// CPU time at the sending and at the receiving end, of what either process has started, too: sshd
    /// has a process for each session.
    pub(super) fn cpu_ns(&self) -> [u64; 2] {
        [&self.sender, &self.receiver].map(|process| family_cpu_ns(&[process.id()]))
    }

    /// Waits a moment for something that both must still bring about.
    ///
    /// # Errors
    /// If one of them has ended, or it is too late.
    pub(super) fn still_hopeful(&mut self, bed: &Bed<'_>, end: Instant) -> anyhow::Result<()> {
        bed.sleep(Duration::from_millis(20))?;
        if let Some(exit) = self.sender.try_wait()?.or(self.receiver.try_wait()?) {
            bail!("the tunnel ended with {exit}; its logs say:\n{}", self.tail_of_logs());
        }
        if Instant::now() >= end {
            bail!("the tunnel carries nothing; its logs say:\n{}", self.tail_of_logs());
        }
        Ok(())
    }

    fn tail_of_logs(&self) -> String {
        let tail = |path: &PathBuf| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
        };
        self.logs.iter().map(tail).collect::<Vec<_>>().join("\n--\n")
    }

    /// Ends both with all that they have started.
    pub(super) fn stop(&mut self) -> anyhow::Result<()> {
        let both = [self.sender.id(), self.receiver.id()];
        let started: Vec<u32> = match self.sender.try_wait()?.and(self.receiver.try_wait()?) {
            Some(_) => Vec::new(),
            None => family(&both).into_iter().filter(|it| !both.contains(it)).collect(),
        };
        // The receiver is who would connect again.
        self.receiver.stop()?;
        self.sender.stop()?;
        started.into_iter().try_for_each(end)
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        // A failure can't be handled here; the end of the lab ends them in any case.
        let _ = self.stop();
    }
}

/// Kills a process whose parent has gone. It is this process' child then, as this is the first of the
/// lab, and must be waited for.
fn end(process: u32) -> anyhow::Result<()> {
    let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) else { return Ok(()) };
    let place = Path::new("/proc").join(process.to_string());
    let until = Instant::now() + GRACE;
    while place.exists() {
        ensure!(Instant::now() < until, "process {process} of a tunnel can't be ended");
        // Either fails if it has gone meanwhile.
        let _ = kill_process(pid, Signal::KILL);
        let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
