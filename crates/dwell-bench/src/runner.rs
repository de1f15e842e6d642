//! A series of runs: counted against a plan, written down, and ended when the user wants.

use std::fmt::Display;
use std::time::Duration;

use anyhow::ensure;
use dwell_cli::progress::Progress;
use serde::Serialize;

use super::Outcome;
use super::record::{Bench, Journal, OnlyPlace, Origin, Record, Run, unix_seconds};
use super::sheet::Row;

/// The runs of a bench, those of a file before among them.
#[derive(Debug)]
pub(super) struct Series<B: Bench> {
    origin: Origin,
    conditions: B::Conditions,
    runs: Vec<Run<B>>,
    runner: Runner,
}

impl<B: Bench> Series<B> {
    /// Starts a series under these conditions, or goes on with the one that a file had before.
    ///
    /// # Errors
    /// If the runs before can't be compared with those to come.
    pub(super) fn new(
        conditions: B::Conditions,
        journal: Journal,
        before: Vec<Run<B>>,
    ) -> anyhow::Result<Self> {
        let origin = Origin::this();
        ensure_same_bench::<B>(&before)?;
        for run in &before {
            ensure!(
                run.conditions == conditions && run.origin == origin,
                "the runs in the file were done otherwise ({:?}, {:?}); choose another file",
                run.conditions,
                run.origin
            );
        }
        Ok(Self { origin, conditions, runs: before, runner: Runner::new(journal) })
    }

    /// Says how many runs there will be and how long they will take: of the parts of the series,
    /// how many are missing of each, and how long each of these takes.
    pub(super) fn plan(&mut self, parts: impl IntoIterator<Item = (usize, Duration)>) {
        let (runs, time) =
            parts.into_iter().fold((0, Duration::ZERO), |(runs, time), (n, each)| {
                (runs + n, time + each * n as u32)
            });
        self.runner.progress = Some(Progress::new(runs, time));
    }

    /// Returns the number of runs of these contenders at a place that are still to be done.
    pub(super) fn missing<T: Display>(&self, place: &B::Place, all: &[T], rounds: u32) -> usize {
        if self.runner.is_over() {
            return 0;
        }
        let of = |round| all.iter().filter(move |it| !self.is_done(place, &it.to_string(), round));
        (0..rounds).flat_map(of).count()
    }

    /// Plans all rounds of those that take part at each of these places, and has those done at which runs are missing.
    pub(super) fn everywhere<T: Display>(
        &mut self,
        places: &[B::Place],
        all: impl Fn(&B::Place) -> Vec<T>,
        (rounds, takes): (u32, impl Fn(&B::Place) -> Duration),
        mut at: impl FnMut(&mut Self, &B::Place) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let part = |place| (self.missing(place, &all(place), rounds), takes(place));
        let parts: Vec<_> = places.iter().map(part).collect();
        self.plan(parts);
        for place in places {
            if self.missing(place, &all(place), rounds) > 0 {
                at(self, place)?;
            }
        }
        Ok(())
    }

    /// Lets all contenders run in turns at a place, each round beginning with another one.
    pub(super) fn rounds<T: Display>(
        &mut self,
        place: &B::Place,
        all: &[T],
        (rounds, takes): (u32, Duration),
        is_interrupted: impl Fn() -> bool,
        mut measure: impl FnMut(&T) -> anyhow::Result<B::Measured>,
    ) -> anyhow::Result<()> {
        for round in 0..rounds {
            for contender in turns(all, round) {
                let measure = || measure(contender);
                let turn = (place, contender.to_string(), round);
                self.run(turn, takes, &is_interrupted, measure)?;
            }
        }
        Ok(())
    }

    /// Does a run and notes it, unless it has been done or the user wants no more. One that fails
    /// is complained of and counted.
    ///
    /// # Errors
    /// If it can't be written down.
    pub(super) fn run(
        &mut self,
        (place, contender, round): (&B::Place, String, u32),
        takes: Duration,
        is_interrupted: impl FnOnce() -> bool,
        measure: impl FnOnce() -> anyhow::Result<B::Measured>,
    ) -> anyhow::Result<()> {
        if self.is_over() || self.is_done(place, &contender, round) {
            return Ok(());
        }
        let at = match B::place(place) {
            at if at.is_empty() => at,
            at => at + ", ",
        };
        let what = format!("{at}{contender}, round {}", round + 1);
        let line = |measured: &B::Measured| B::line(place, measured);
        let found = self.runner.take((&what, takes), measure(), is_interrupted, line);
        if let Some(measured) = found {
            let run = Record {
                bench: B::NAME.to_owned(),
                at_unix_seconds: unix_seconds(),
                origin: self.origin.clone(),
                conditions: self.conditions.clone(),
                place: place.clone(),
                contender,
                round,
                measured,
            };
            self.runner.write(&run)?;
            self.runs.push(run);
        }
        Ok(())
    }

    fn is_done(&self, place: &B::Place, contender: &str, round: u32) -> bool {
        let is_it = |run: &Run<B>| run.round == round && run.contender == contender;
        self.runs.iter().any(|run| is_it(run) && run.place == *place)
    }

    /// Returns true if the user wants no more runs.
    pub(super) fn is_over(&self) -> bool {
        self.runner.is_over()
    }

    /// Returns how the series ended.
    pub(super) fn outcome(&self) -> Outcome {
        self.runner.outcome()
    }

    /// Returns all runs, in the order in which they were done.
    pub(super) fn runs(&self) -> &[Run<B>] {
        &self.runs
    }
}

impl<B: Bench<Place = OnlyPlace>> Series<B> {
    /// Plans all rounds of a bench that has only one place, and lets all contenders run in turns.
    pub(super) fn here<T: Display>(
        &mut self,
        all: &[T],
        (rounds, takes): (u32, Duration),
        is_interrupted: impl Fn() -> bool,
        measure: impl FnMut(&T) -> anyhow::Result<B::Measured>,
    ) -> anyhow::Result<()> {
        self.plan([(self.missing(&OnlyPlace {}, all, rounds), takes)]);
        self.rounds(&OnlyPlace {}, all, (rounds, takes), is_interrupted, measure)
    }
}

/// Fails if these are runs of another bench.
pub(super) fn ensure_same_bench<B: Bench>(runs: &[Run<B>]) -> anyhow::Result<()> {
    match runs.iter().find(|run| run.bench != B::NAME) {
        Some(run) => {
            anyhow::bail!("the file has runs of ./x bench {}: choose another file", run.bench)
        }
        None => Ok(()),
    }
}

/// The measurements at a place, by contender in the order of the first round.
pub(super) fn rows<'a, C, P: PartialEq, M>(
    runs: &'a [Record<C, P, M>],
    place: &P,
) -> Vec<Row<'a, M>> {
    let mut here: Vec<_> = runs.iter().filter(|run| run.place == *place).collect();
    here.sort_by_key(|run| run.round);
    let mut rows: Vec<Row<'a, M>> = Vec::new();
    for run in here {
        match rows.iter_mut().find(|row| row.name == run.contender) {
            Some(row) => row.runs.push(&run.measured),
            None => rows.push(Row { name: run.contender.clone(), runs: vec![&run.measured] }),
        }
    }
    rows
}

/// The places that have runs, in the order in which they first have one.
pub(super) fn places<C, P: PartialEq, M>(runs: &[Record<C, P, M>]) -> Vec<&P> {
    let mut places = Vec::new();
    for run in runs {
        if !places.contains(&&run.place) {
            places.push(&run.place);
        }
    }
    places
}

/// Returns the line above tables: the program and the machine, once there are runs.
pub(super) fn head<C, P, M>(runs: &[Record<C, P, M>]) -> String {
    match runs.first() {
        Some(run) => format!("\n{}\n", run.origin.line()),
        None => "There are no runs.\n".to_owned(),
    }
}

/// A bench's progress with its runs.
#[derive(Debug)]
pub(super) struct Runner {
    /// None before there is a plan.
    progress: Option<Progress>,
    journal: Journal,
    outcome: Outcome,
}

impl Runner {
    /// Starts without a plan.
    fn new(journal: Journal) -> Self {
        Self { progress: None, journal, outcome: Outcome::default() }
    }

    fn done(&mut self, planned: Duration, what: &str) {
        if let Some(progress) = &mut self.progress {
            progress.done(planned, what);
        }
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
                self.done(planned, &format!("{what}: {}", line(&found)));
                Some(found)
            }
            Err(error) => {
                if self.outcome.goes_on_after(&error, what, is_interrupted()) {
                    self.done(planned, &format!("{what}: failed"));
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
    use crate::record::tests::record;

    #[test]
    fn each_round_begins_with_another_one() {
        let rounds =
            (0..4).map(|round| turns(&["a", "b", "c"], round).copied().collect::<String>());
        assert_eq!(rounds.collect::<Vec<_>>(), ["abc", "bca", "cab", "abc"]);
        assert_eq!(turns::<u8>(&[], 1).count(), 0);
    }

    #[test]
    fn errors_are_counted_and_interruptions_are_not() {
        let mut runner = Runner::new(Journal::default());
        let run = ("a run", Duration::from_secs(1));
        let line = |_: &u8| "done".to_owned();
        assert_eq!(runner.take(run, Ok(1), || false, line), Some(1));
        assert_eq!(runner.take(run, Err(anyhow::anyhow!("no link")), || false, line), None);
        assert!(!runner.is_over());
        assert_eq!(runner.take(run, Err(anyhow::anyhow!("no link")), || true, line), None);
        assert_eq!(runner.outcome(), Outcome { failed: 1, is_interrupted: true });
    }

    #[derive(Debug)]
    struct Toy;

    impl Bench for Toy {
        const NAME: &'static str = "toy";
        type Conditions = u8;
        type Place = char;
        type Measured = u32;

        fn line(_place: &char, measured: &u32) -> String {
            measured.to_string()
        }

        fn report(runs: &[Run<Self>]) -> String {
            head(runs)
        }
    }

    fn before(contender: &str, round: u32) -> Run<Toy> {
        let run = record::<Toy>(7, 'a', (contender, round), 1);
        Record { origin: Origin::this(), ..run }
    }

    #[test]
    fn what_is_in_the_file_is_not_run_again() {
        let known = vec![before("x", 0), before("y", 1)];
        let mut series = Series::<Toy>::new(7, Journal::default(), known).unwrap();
        assert_eq!(series.missing(&'a', &["x", "y"], 2), 2);
        assert_eq!(series.missing(&'b', &["x", "y"], 2), 4);
        let takes = Duration::from_secs(1);
        series.rounds(&'a', &["x", "y"], (2, takes), || false, |_| Ok(5)).unwrap();
        let runs = series.runs().iter();
        let done: Vec<_> = runs.map(|run| (run.contender.as_str(), run.round)).collect();
        assert_eq!(done, [("x", 0), ("y", 1), ("y", 0), ("x", 1)]);
        let rows = rows(series.runs(), &'a');
        let found: Vec<_> = rows.iter().map(|row| (row.name.as_str(), row.runs.len())).collect();
        assert_eq!(found, [("x", 2), ("y", 2)]);
    }

    #[test]
    fn runs_that_were_done_otherwise_are_refused() {
        let series = |run: Run<Toy>| Series::<Toy>::new(7, Journal::default(), vec![run]).map(drop);
        assert!(series(before("x", 0)).is_ok());
        assert!(series(Record { conditions: 8, ..before("x", 0) }).is_err());
        let other = Record { bench: "loss".to_owned(), ..before("x", 0) };
        assert!(series(other).unwrap_err().to_string().contains("./x bench loss"));
        let mut elsewhere = before("x", 0);
        elsewhere.origin.version.push('1');
        assert!(series(elsewhere).is_err());
    }
}
