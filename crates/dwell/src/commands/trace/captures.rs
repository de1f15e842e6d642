//! Files with captures, read with a word on how far it is.

use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;
use dwell_base::time::duration_ns;
use dwell_report::human;
use dwell_trace::Capture;
use dwell_trace::replay::input::Input;
use dwell_trace::replay::merge::{Fault, Merge, MergeStep, OVERLAPPING_MAX, Part, PartSource};
use rustix::process::{Resource, getrlimit, setrlimit};

use super::input::Source;
use super::survey::Survey;
use dwell_cli::terminal;

/// A progress says nothing before this has passed, and then speaks this often.
const QUIET: Duration = Duration::from_secs(2);
/// The same where there is no terminal: lines are kept there.
const QUIET_IN_LOGS: Duration = Duration::from_secs(30);
/// The clock is not asked for every packet.
const PACKETS_BETWEEN: u64 = 4096;
/// Descriptors for all else.
const DESCRIPTORS_BESIDE: u64 = 64;

/// Captures that are being read.
pub(super) struct Captures {
    pub(super) merge: Merge<Source>,
    names: Vec<String>,
    progress: Progress,
    stop: Arc<AtomicBool>,
    is_complete: bool,
    is_cut_short: bool,
}

impl Captures {
    /// Reads the captures that were surveyed, side by side by their times. Reading ends early once
    /// `stop` is set.
    pub(super) fn open(survey: Survey, stop: Arc<AtomicBool>) -> anyhow::Result<Self> {
        if let Some(bad) = survey.captures.iter().find(|capture| capture.error.is_some()) {
            let why = bad.error.as_deref().unwrap_or_default();
            bail!("{} can't be read: {why}", bad.name());
        }
        allow_descriptors(survey.captures.len());
        let read_bytes = Arc::new(AtomicU64::new(0));
        let progress = Progress::new(Arc::clone(&read_bytes), survey.bytes());
        let names = survey.captures.iter().map(|capture| capture.name()).collect();
        let parts = survey.captures.into_iter().map(|mut capture| {
            let (first_ns, read_bytes) = (capture.first_ns, Arc::clone(&read_bytes));
            let open = move || {
                let source = Source::open(&mut capture, &read_bytes);
                let source = source.map_err(|error| format!("it can't be opened: {error}"))?;
                Capture::open(source).map_err(|error| error.to_string())
            };
            Part { first_ns, source: PartSource::Closed(Box::new(open)) }
        });
        Ok(Self {
            merge: Merge::of_parts(parts),
            names,
            progress,
            stop,
            is_complete: false,
            is_cut_short: survey.is_cut_short,
        })
    }

    /// Gives away each packet, until there are no more or the user wants to stop.
    pub(super) fn each(&mut self, mut take: impl FnMut(Input<'_>)) {
        while !self.stop.load(Ordering::Relaxed) {
            match self.merge.step() {
                MergeStep::Packet(input) => {
                    take(input);
                    self.progress.step();
                }
                MergeStep::Skipped => self.progress.look(),
                MergeStep::End => {
                    self.is_complete = true;
                    return;
                }
            }
        }
    }

    /// True if the user wanted to stop before all was read.
    pub(super) fn is_interrupted(&self) -> bool {
        self.is_cut_short || !self.is_complete
    }

    /// Says what was wrong with captures; true if one could not be read at all.
    pub(super) fn complain(&self) -> bool {
        let mut is_any_closed = false;
        for (n, fault) in self.merge.faults() {
            let name = &self.names[*n];
            let what = match fault {
                Fault::Broken(trouble) => format!("{name}, {trouble}; what is before it counts"),
                Fault::Closed(why) => {
                    is_any_closed = true;
                    format!("{name} is left out: {why}")
                }
            };
            terminal::complain("dwell", &what);
        }
        is_any_closed
    }
}

/// Raises the limit of open files for a number of captures, if the system allows it.
fn allow_descriptors(captures: usize) {
    let wanted = captures.min(OVERLAPPING_MAX) as u64 + DESCRIPTORS_BESIDE;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        limit.current = Some(limit.maximum.map_or(wanted, |most| wanted.min(most)));
        // If it fails, the captures that can't be opened are named.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

struct Progress {
    read_bytes: Arc<AtomicU64>,
    total_bytes: Option<u64>,
    steps: u64,
    start: Instant,
    spoke: Instant,
    quiet: Duration,
}

impl Progress {
    fn new(read_bytes: Arc<AtomicU64>, total_bytes: Option<u64>) -> Self {
        let now = Instant::now();
        let quiet = if io::stderr().is_terminal() { QUIET } else { QUIET_IN_LOGS };
        Self { read_bytes, total_bytes, steps: 0, start: now, spoke: now, quiet }
    }

    fn step(&mut self) {
        self.steps += 1;
        if self.steps.is_multiple_of(PACKETS_BETWEEN) {
            self.look();
        }
    }

    fn look(&mut self) {
        let now = Instant::now();
        if now.duration_since(self.spoke) < self.quiet {
            return;
        }
        self.spoke = now;
        let read = self.read_bytes.load(Ordering::Relaxed);
        let left = self.total_bytes.map(|total| left(now - self.start, read, total));
        let left = left.map_or_else(String::new, |left| {
            format!(", {} left", human::duration(duration_ns(left)))
        });
        let packets = human::counted(self.steps, "packet");
        terminal::note(&format!("{packets}, {} read{left}", human::bytes(read)));
    }
}

/// Returns the time that the rest takes at the speed so far.
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
