//! A series of runs: counted against a plan, written down, and ended when the user wants.

use std::time::Duration;

use dwell_cli::progress::Progress;
use serde::Serialize;

use super::Outcome;
use super::record::Journal;

/// A bench's progress with its runs.
#[derive(Debug)]
pub(super) struct Runner {
    progress: Progress,
    journal: Journal,
    outcome: Outcome,
}

impl Runner {
    /// Starts with the number of runs to be done and the time planned for all of them.
    pub(super) fn new(runs: usize, planned: Duration, journal: Journal) -> Self {
        Self { progress: Progress::new(runs, planned), journal, outcome: Outcome::default() }
    }

    /// Takes what came of a run that was thought to take `planned`, and says it in a line. An error
    /// is complained of and counted, unless it is that the user wants to stop: then it is over.
    pub(super) fn take<T>(
        &mut self,
        (what, planned): (&str, Duration),
        found: anyhow::Result<T>,
        is_interrupted: impl FnOnce() -> bool,
        line: impl FnOnce(&T) -> String,
    ) -> Option<T> {
        match found {
            Ok(found) => {
                self.progress.done(planned, &format!("{what}: {}", line(&found)));
                Some(found)
            }
            Err(error) => {
                if self.outcome.goes_on_after(&error, what, is_interrupted()) {
                    self.progress.done(planned, &format!("{what}: failed"));
                }
                None
            }
        }
    }

    /// Adds a record to the file, if there is one.
    pub(super) fn write(&mut self, record: &impl Serialize) -> anyhow::Result<()> {
        self.journal.add(record)
    }

    /// Returns true if the user wants no more runs.
    pub(super) fn is_over(&self) -> bool {
        self.outcome.is_interrupted
    }

    /// Returns how the series ended.
    pub(super) fn outcome(&self) -> Outcome {
        self.outcome
    }
}

/// All of them, each round beginning with another one.
pub(super) fn turns<T>(all: &[T], round: u32) -> impl Iterator<Item = &T> {
    let first = round as usize % all.len().max(1);
    all[first..].iter().chain(&all[..first])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_begins_with_another_one() {
        let rounds =
            (0..4).map(|round| turns(&["a", "b", "c"], round).copied().collect::<String>());
        assert_eq!(rounds.collect::<Vec<_>>(), ["abc", "bca", "cab", "abc"]);
        assert_eq!(turns::<u8>(&[], 1).count(), 0);
    }

    #[test]
    fn errors_are_counted_and_interruptions_are_not() {
        let mut runner = Runner::new(3, Duration::from_secs(3), Journal::none());
        let run = ("a run", Duration::from_secs(1));
        let line = |_: &u8| "done".to_owned();
        assert_eq!(runner.take(run, Ok(1), || false, line), Some(1));
        assert_eq!(runner.take(run, Err(anyhow::anyhow!("no link")), || false, line), None);
        assert!(!runner.is_over());
        assert_eq!(runner.take(run, Err(anyhow::anyhow!("no link")), || true, line), None);
        assert_eq!(runner.outcome(), Outcome { failed: 1, is_interrupted: true });
    }
}
