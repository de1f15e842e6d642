//! Files with captures, read with a word on how far it is.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use dwell_report::human;
use dwell_trace::Capture;
use dwell_trace::replay::input::Input;
use dwell_trace::replay::merge::{CAPTURES_MAX, Merge, Step};

use crate::terminal;

/// A progress says nothing before this has passed, and then speaks this often.
const QUIET: Duration = Duration::from_secs(2);
/// The clock is not asked for every packet.
const PACKETS_BETWEEN: u64 = 4096;

/// Captures that are being read.
pub(super) struct Captures {
    pub(super) merge: Merge<Counted>,
    names: Vec<String>,
    progress: Progress,
    stop: Arc<AtomicBool>,
    is_complete: bool,
}

/// A file of which is known how much was read.
pub(super) struct Counted {
    source: Box<dyn Read>,
    read_bytes: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.read_bytes.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

impl Captures {
    /// Opens these files; `-` is standard input. Reading ends early once `stop` is set.
    pub(super) fn open(files: &[PathBuf], stop: Arc<AtomicBool>) -> anyhow::Result<Self> {
        if files.len() > CAPTURES_MAX {
            bail!("at most {CAPTURES_MAX} captures are read at once, not {}", files.len());
        }
        if files.iter().filter(|path| *path == Path::new("-")).count() > 1 {
            bail!("\"-\" is there twice, and standard input can be read only once");
        }
        let read_bytes = Arc::new(AtomicU64::new(0));
        let mut total_bytes = Some(0);
        let mut captures = Vec::new();
        for path in files {
            let (source, bytes) = open(path)?;
            total_bytes = total_bytes.zip(bytes).map(|(total, bytes)| total + bytes);
            let source = Counted { source, read_bytes: Arc::clone(&read_bytes) };
            let capture = Capture::open(source).with_context(|| path.display().to_string())?;
            captures.push(capture);
        }
        Ok(Self {
            merge: Merge::new(captures),
            names: files.iter().map(|path| path.display().to_string()).collect(),
            progress: Progress::new(read_bytes, total_bytes),
            stop,
            is_complete: false,
        })
    }

    /// Gives away each packet, until there are no more or the user wants to stop.
    pub(super) fn each(&mut self, mut take: impl FnMut(Input<'_>)) {
        while !self.stop.load(Ordering::Relaxed) {
            match self.merge.step() {
                Step::Packet(input) => {
                    take(input);
                    self.progress.step();
                }
                Step::Skipped => self.progress.look(),
                Step::End => {
                    self.is_complete = true;
                    return;
                }
            }
        }
    }

    /// True if the user wanted to stop before all was read.
    pub(super) fn is_interrupted(&self) -> bool {
        !self.is_complete
    }

    /// Says what broke captures off.
    pub(super) fn tell_troubles(&self) {
        for (n, trouble) in self.merge.troubles() {
            let name = &self.names[n];
            terminal::complain("dwell", &format!("{name}, {trouble}; what is before it counts"));
        }
    }
}

fn open(path: &Path) -> anyhow::Result<(Box<dyn Read>, Option<u64>)> {
    if path == Path::new("-") {
        return Ok((Box::new(io::stdin().lock()), None));
    }
    let file = File::open(path).with_context(|| format!("{} can't be read", path.display()))?;
    let bytes = file.metadata().ok().filter(|data| data.is_file()).map(|data| data.len());
    Ok((Box::new(file), bytes))
}

struct Progress {
    read_bytes: Arc<AtomicU64>,
    total_bytes: Option<u64>,
    steps: u64,
    start: Instant,
    spoke: Instant,
    is_terminal: bool,
}

impl Progress {
    fn new(read_bytes: Arc<AtomicU64>, total_bytes: Option<u64>) -> Self {
        let now = Instant::now();
        let is_terminal = io::stderr().is_terminal();
        Self { read_bytes, total_bytes, steps: 0, start: now, spoke: now, is_terminal }
    }

    fn step(&mut self) {
        self.steps += 1;
        if self.steps.is_multiple_of(PACKETS_BETWEEN) {
            self.look();
        }
    }

    fn look(&mut self) {
        if !self.is_terminal {
            return;
        }
        let now = Instant::now();
        if now.duration_since(self.spoke) < QUIET {
            return;
        }
        self.spoke = now;
        let read = self.read_bytes.load(Ordering::Relaxed);
        let left = self.total_bytes.map(|total| left(now - self.start, read, total));
        let left = left.map_or_else(String::new, |left| {
            format!(", {} left", human::duration(u64::try_from(left.as_nanos()).unwrap_or(0)))
        });
        let packets = human::count(self.steps);
        terminal::note(&format!("{packets} packets, {} read{left}", human::bytes(read)));
    }
}

/// What the rest takes, at the speed so far.
fn left(elapsed: Duration, read: u64, total: u64) -> Duration {
    let rest = total.saturating_sub(read) as f64;
    elapsed.mul_f64(rest / read.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_follows_from_what_is_read() {
        assert_eq!(left(Duration::from_secs(3), 100, 400), Duration::from_secs(9));
        assert_eq!(left(Duration::from_secs(3), 400, 400), Duration::ZERO);
        assert_eq!(left(Duration::from_secs(3), 500, 400), Duration::ZERO);
    }
}
