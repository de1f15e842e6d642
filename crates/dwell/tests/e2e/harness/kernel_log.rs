//! The kernel's log, which names the system calls that a relay's or a proxy's filter refuses. Such a
//! call fails with EPERM, which programs and libraries often survive without a word: so a check that
//! passes does not show that none was made.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use dwell_confine::seccomp;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::{SKIPPED, Skip};
use crate::site::DWELL;

/// The longest record that the kernel hands out.
const RECORD_BYTES_MAX: usize = 8 << 10;
/// The mark of a call that a filter refused, ...
const REFUSED: &str = "type=1326";
/// ... and of calls that the kernel left out.
const TOO_MANY: &str = "printk limit exceeded";

/// The kernel writes its log when it has time to.
const PATIENCE: Duration = Duration::from_secs(2);

/// The log from some moment on.
pub(super) struct KernelLog(File);

impl KernelLog {
    /// From now on; nothing if nobody here may read it.
    pub(super) fn open() -> Option<Self> {
        let nonblock = OFlags::NONBLOCK.bits() as i32;
        let mut file =
            OpenOptions::new().read(true).custom_flags(nonblock).open("/dev/kmsg").ok()?;
        file.seek(SeekFrom::End(0)).ok()?;
        Some(Self(file))
    }

    /// Returns the lines since the last time about refused calls of this program.
    fn refused(&mut self, program: &str) -> Vec<String> {
        let of_program = format!("exe=\"{program}\"");
        let is_meant = |line: &str| line.contains(REFUSED) && line.contains(&of_program);
        self.lines().into_iter().filter(|line| is_meant(line)).collect()
    }

    fn lines(&mut self) -> Vec<String> {
        let mut record = vec![0; RECORD_BYTES_MAX];
        let mut lines = Vec::new();
        loop {
            match self.0.read(&mut record) {
                Ok(0) => break,
                Ok(len) => lines.push(String::from_utf8_lossy(&record[..len]).trim().to_owned()),
                // Some were overwritten before they were read; the next ones are there.
                Err(error) if error.raw_os_error() == Some(Errno::PIPE.raw_os_error()) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        lines
    }

    /// Fails if a relay or a proxy made a call since the last time that its filter refuses.
    pub(super) fn names_nothing(&mut self) -> anyhow::Result<()> {
        let refused = self.refused(DWELL);
        ensure!(
            refused.is_empty(),
            "a relay or a proxy made system calls that their filter refuses (`ausyscall NUMBER` \
             names them): do without, or let them in crates/dwell-confine/src/seccomp.rs\n{}",
            refused.join("\n")
        );
        Ok(())
    }
}

/// Shows that refused calls of a program under the same filter are seen here: otherwise that nothing
/// is named says nothing.
pub(super) fn are_refused_calls_seen(log: Option<&mut KernelLog>) -> anyhow::Result<()> {
    let Some(log) = log else {
        return Err(Skip("nobody may read the kernel's log (/dev/kmsg) here".to_owned()).into());
    };
    log.lines();
    let program = std::env::current_exe()?;
    let output = Command::new(&program).arg("--refused").stdin(Stdio::null()).output()?;
    let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.code() == Some(i32::from(SKIPPED)) {
        return Err(Skip(why).into());
    }
    ensure!(output.status.success(), "{why}");
    let of_program = format!("exe=\"{}\"", program.display());
    let mut lines = Vec::new();
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        lines.extend(log.lines());
        if lines.iter().any(|line| line.contains(REFUSED) && line.contains(&of_program)) {
            return Ok(());
        }
        thread::sleep(PATIENCE / 50);
    }
    let why = match lines.iter().any(|line| line.contains(TOO_MANY)) {
        true => "the kernel's log has its limit (kernel.printk_ratelimit), and others used it up",
        // auditd, or a log that is not this machine's.
        false => "the kernel's log does not name what filters refuse here",
    };
    Err(Skip(why.to_owned()).into())
}

/// A process of its own: confines itself as relays and proxies do, and makes a call that they never do.
pub(crate) fn make_refused_call() -> ExitCode {
    if let Err(error) = seccomp::confine() {
        eprintln!("{error}");
        return ExitCode::from(SKIPPED);
    }
    let made = std::fs::create_dir("/dwell-refused");
    let errno = made.as_ref().err().and_then(io::Error::raw_os_error);
    if errno == Some(Errno::PERM.raw_os_error()) {
        return ExitCode::SUCCESS;
    }
    eprintln!("making a directory was not refused: {made:?}");
    ExitCode::FAILURE
}
