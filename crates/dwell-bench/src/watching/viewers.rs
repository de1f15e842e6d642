//! Those who look: a browser's connection, and `dwell top` on a terminal of its own.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::process::{ChildStdin, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use dwell_lab::lab::{Host, LabError, Process};
use dwell_lab::relays::Relay;

use crate::machine::cpu_ns;
use crate::program;

const ADDRESS: &str = "127.0.0.1:7780";
/// What the hub's configuration needs for the page.
pub(super) const WEB_KEYS: &str = "[web]\nlisten = \"127.0.0.1:7780\"\n";
/// A program has started after this, or something is wrong.
const PATIENCE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);

/// A connection to the page's events, which are read and not drawn.
pub(super) struct Page {
    stream: TcpStream,
    reader: JoinHandle<Result<io::Result<u64>, LabError>>,
}

impl Page {
    pub(super) fn open(host: &Host) -> anyhow::Result<Self> {
        let mut stream = host.run(|| TcpStream::connect(ADDRESS))?.context("there is no page")?;
        write!(
            stream,
            "GET /live HTTP/1.1\r\nHost: {ADDRESS}\r\nAccept: text/event-stream\r\n\r\n"
        )?;
        let read = stream.try_clone()?;
        let reader = host.spawn_thread(move || count_events(read))?;
        Ok(Self { stream, reader })
    }

    /// Ends it, and returns how many events came.
    pub(super) fn close(self) -> anyhow::Result<u64> {
        // It may be closed already.
        let _ = self.stream.shutdown(Shutdown::Both);
        let read = self.reader.join().map_err(|_| anyhow::anyhow!("the reader panicked"))?;
        read?.context("the page can't be read")
    }
}

/// Counts events by the empty lines after them.
fn count_events(mut stream: TcpStream) -> io::Result<u64> {
    let (mut piece, mut events, mut before) = ([0; 16 << 10], 0, 0);
    loop {
        let len = stream.read(&mut piece)?;
        if len == 0 {
            return Ok(events);
        }
        for &byte in &piece[..len] {
            events += u64::from(byte == b'\n' && before == b'\n');
            before = byte;
        }
    }
}

/// `dwell top` on a terminal of 80 columns and 24 lines that `script` makes.
pub(super) struct Top {
    script: Process,
    /// Its keyboard: closed, it would end.
    _keyboard: Option<ChildStdin>,
    pid: u32,
}

impl Top {
    pub(super) fn start(relay: &Relay) -> anyhow::Result<Self> {
        let socket = relay.status_path().display().to_string();
        // Another process starts it, for which the open file is not its own.
        let own = format!("/proc/{}/", std::process::id());
        let dwell = program::dwell()?.display().to_string().replace("/proc/self/", &own);
        let line = format!("stty cols 80 rows 24; exec '{dwell}' top --socket '{socket}'");
        let mut command = relay.host().command("script");
        command.args(["-q", "-c", &line, "/dev/null"]).env("TERM", "xterm-256color");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut script = Process::spawn(&mut command).context("`script` (bsdutils) is needed")?;
        let keyboard = script.child().stdin.take();
        // A process is called by the last part of what started it.
        let name = dwell.rsplit('/').next().unwrap_or_default();
        let pid = wait_for_child(script.id(), name)?;
        Ok(Self { script, _keyboard: keyboard, pid })
    }

    pub(super) fn cpu_ns(&self) -> anyhow::Result<u64> {
        cpu_ns(self.pid).context("`dwell top` has ended")
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        // Whatever it says to that, it was to end.
        let _ = self.script.stop();
    }
}

/// Returns the child of a process that runs a program of this name, as soon as it does.
fn wait_for_child(parent: u32, name: &str) -> anyhow::Result<u32> {
    let until = Instant::now() + PATIENCE;
    loop {
        for entry in fs::read_dir("/proc")?.flatten() {
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            if let Some(pid) = child_of(parent, name, &stat) {
                return Ok(pid);
            }
        }
        anyhow::ensure!(Instant::now() < until, "`dwell top` does not start in `script`");
        thread::sleep(POLL);
    }
}

/// Returns the number of the process that this is the `stat` of, if it is the one that is looked for.
fn child_of(parent: u32, name: &str, stat: &str) -> Option<u32> {
    let (pid, rest) = stat.split_once(" (")?;
    let (command, rest) = rest.rsplit_once(") ")?;
    let is_its_child = rest.split(' ').nth(1)?.parse() == Ok(parent);
    (is_its_child && command == name).then(|| pid.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_found_by_its_parent_and_name() {
        assert_eq!(child_of(7, "4", "12 (4) S 7 12 12 0"), Some(12));
        assert_eq!(child_of(7, "dwell", "12 (dw) ell) S 7 12"), None);
        assert_eq!(child_of(7, "dwell", "12 (dwell) S 8 12"), None);
        assert_eq!(child_of(7, "dwell", ""), None);
    }
}
