//! A child process that does not outlive its owner.

use std::io;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::LabError;

/// A running process; dropping it ends it, first by SIGTERM, and waits until it is gone.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
}

/// The time that a process may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);

impl Process {
    /// Starts it. See [`super::Host::command`].
    pub fn spawn(command: &mut Command) -> Result<Self, LabError> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().map_err(|error| LabError::starting(&name, error))?;
        Ok(Self { name, child })
    }

    /// Returns the process' number, inside the lab.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the child, for its standard streams, if they were piped.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Returns its exit status, if it has ended.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>, LabError> {
        self.child.try_wait().map_err(LabError::io(format!("wait for `{}`", self.name)))
    }

    /// Waits until it has ended; `None` if that takes longer than `timeout`.
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<Option<ExitStatus>, LabError> {
        if let Some(status) = self.try_wait()? {
            return Ok(Some(status));
        }
        self.poll_end(timeout).map_err(LabError::io(format!("wait for `{}`", self.name)))?;
        self.try_wait()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> Result<(), LabError> {
        kill_process(Pid::from_child(&self.child), signal)
            .map_err(LabError::io(format!("send a signal to `{}`", self.name)))
    }

    /// Asks it to end and, if it does not, kills it.
    pub fn stop(&mut self) -> Result<ExitStatus, LabError> {
        if let Some(status) = self.try_wait()? {
            return Ok(status);
        }
        self.signal(Signal::TERM)?;
        if let Some(status) = self.wait_timeout(GRACE)? {
            return Ok(status);
        }
        self.signal(Signal::KILL)?;
        self.child.wait().map_err(LabError::io(format!("wait for `{}`", self.name)))
    }

    fn poll_end(&self, timeout: Duration) -> io::Result<()> {
        let end = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty())?;
        let deadline = std::time::Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            let left = Timespec::try_from(left).map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(&end, PollFlags::IN)], Some(&left)) {
                Err(rustix::io::Errno::INTR) => {}
                other => return Ok(other.map(drop)?),
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A failure can't be handled here; the end of the lab ends the process in any case.
        let _ = self.stop();
    }
}
