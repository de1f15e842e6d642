//! Scenarios whose files are read by whoever runs them, and their runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use dwell_base::FileErrors;
use dwell_sim::plan::Recording;
use dwell_sim::results::{Run, RunRecord};
use dwell_sim::scenario::{Files, Options, Scenario, Selection};
use dwell_sim::world::Contents;

use super::captured::{contents, recording, times_and_sizes};

/// The files that a scenario names, by a function that returns the bytes of each, or says why it does not.
pub struct Beside<R>(pub R);

impl<R: Fn(&str) -> Result<Vec<u8>, String>> Files for Beside<R> {
    fn text(&self, name: &str) -> Result<String, String> {
        let bytes = self.0(name)?;
        times_and_sizes(&bytes).unwrap_or_else(|| {
            String::from_utf8(bytes).map_err(|_| "it is neither text nor a capture".to_owned())
        })
    }

    fn recording(&self, name: &str, selection: &Selection) -> Result<Recording, String> {
        recording(&self.0(name)?, selection)
    }
}

/// A scenario that can't be run.
#[derive(Debug)]
pub enum Refused {
    /// What is written is wrong.
    Written(FileErrors),
    /// A codec that it names does not exist, as a sentence.
    Codec(String),
}

/// Reads a scenario as [`Scenario::parse`] does. A codec that does not exist is reported before anything runs.
///
/// # Errors
/// All that is wrong with it.
pub fn parse(
    text: &str,
    file: &str,
    id: &str,
    options: &Options,
    files: &impl Files,
) -> Result<Scenario, Refused> {
    let scenario = Scenario::parse(text, file, id, options, files).map_err(Refused::Written)?;
    for point in &scenario.points {
        contents(&point.plan).map_err(Refused::Codec)?;
    }
    Ok(scenario)
}

/// Does one run; none if it was to stop. One that fails, by a bug of ours even, must not take others with it, nor the
/// interpreter.
pub fn run(run: &Run<'_>, stop: &AtomicBool) -> Option<Result<RunRecord, String>> {
    run_while(run, |_| !stop.load(Ordering::Relaxed))
}

/// As [`run()`], unless `goes_on`, called every few milliseconds with the share of it that is done, returns false.
pub fn run_while(
    run: &Run<'_>,
    goes_on: impl FnMut(f64) -> bool,
) -> Option<Result<RunRecord, String>> {
    let run = || {
        let contents = contents(&run.task.point.plan)?;
        let contents = contents.map(|it| Box::new(it) as Box<dyn Contents>);
        run.run_while(contents, goes_on).map_err(|error| error.to_string())
    };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(record)) => record.map(Ok),
        Ok(Err(error)) => Some(Err(error)),
        Err(_) => Some(Err("it broke off; this is a bug in dwell".to_owned())),
    }
}
