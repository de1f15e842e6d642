//! Analysing captures: each by itself, several at a time, and then their sums.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use dwell_codec::CodecError;
use dwell_trace::{Accounts, Analysis, Analyzer, Batch, Capture, HistoryAnalyzer, Settings, Sides};
use pyo3::prelude::*;

use super::clock::Clock;
use super::pieces::Plan;
use super::settings;
use super::source::{Place, Source};
use super::survey::{SidesBy, Survey};
use crate::error::{Error, failed};
use crate::jobs;

/// Packets that are read at once if none is compressed.
const SKIM_PACKETS: u64 = 100_000;

/// What became of a capture.
pub(super) enum Done {
    /// It was read, to its end or to where it is broken.
    Read(Box<Analysis>),
    /// It can't be read at all, and why.
    Unreadable(String),
    /// A codec failed.
    Failed(String),
}

/// The sums, the captures that can't be read with the reasons, and the names of those that others equal.
type Analysed = (super::analysis::Analysis, Vec<(String, String)>, Vec<String>);

/// Analyses captures. Returns the sums, the captures that can't be read with the reasons, and the names of
/// those left out since others have the same packets.
///
/// `places` are pairs of a name and a path, or a function that opens it.
#[pyfunction]
#[pyo3(signature = (places, settings, *, sides, measure_time, jobs))]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 makes the list")]
pub(super) fn analyze(
    py: Python<'_>,
    places: Vec<Place>,
    settings: &str,
    sides: &Bound<'_, PyAny>,
    measure_time: bool,
    jobs: Option<usize>,
) -> PyResult<Analysed> {
    let settings = settings::parse(settings)?;
    let sides = SidesBy::of(sides)?;
    let (given, left_out) = surveyed(py, &places, &settings, &sides)?;
    let kept: Vec<&Place> = places.iter().filter(|it| !left_out.contains(&it.name)).collect();
    let mut done: Vec<Option<Done>> = kept.iter().map(|_| None).collect();
    let work = |place: &&Place, stop: &AtomicBool| {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            one(place, &settings, given.as_ref(), measure_time, stop, None)
        }));
        caught.unwrap_or_else(|_| {
            Some(Done::Failed("it broke off; this is a bug in dwell".to_owned()))
        })
    };
    jobs::run(py, &kept, jobs::count(jobs)?, work, |at, result| {
        done[at] = Some(result);
        Ok(())
    })?;
    let mut whole = Analysis::new(settings);
    let mut unreadable = Vec::new();
    for (place, done) in kept.iter().zip(done) {
        match done {
            Some(Done::Read(part)) => whole.merge(*part).map_err(failed)?,
            Some(Done::Unreadable(why)) => unreadable.push((place.name.clone(), why)),
            Some(Done::Failed(why)) => {
                return Err(Error::new_err(format!("{}: {why}", place.name)));
            }
            None => return Err(Error::new_err(format!("{} was not read", place.name))),
        }
    }
    Ok((super::analysis::Analysis::new(whole), unreadable, left_out))
}

/// Returns the sides that all captures have, and the names of those whose packets others have.
fn surveyed(
    py: Python<'_>,
    places: &[Place],
    settings: &Settings,
    sides: &SidesBy,
) -> PyResult<(Option<Arc<Sides>>, Vec<String>)> {
    // Nothing is asked of the sides then, and a second look would take as long as the first.
    if is_counted_only(settings) {
        return Ok((Some(Arc::new(Sides::one_way())), Vec::new()));
    }
    // Who reads each capture by itself notices twins by the fingerprints in the results.
    if matches!(sides, SidesBy::Each) {
        return Ok((None, Vec::new()));
    }
    // One capture has no twin.
    if let (Some(sides), [] | [_]) = (sides.given(), places) {
        return Ok((Some(Arc::new(sides)), Vec::new()));
    }
    // In their order, since the first of two captures with the same packets stays.
    let (survey, left_out) = jobs::once(py, "the survey", |stop| {
        let mut survey = Survey::default();
        let mut left_out = Vec::new();
        for place in places {
            if survey.look(place, stop).is_there {
                left_out.push(place.name.clone());
            }
            if stop.load(Ordering::Relaxed) {
                return None;
            }
        }
        Some((survey, left_out))
    })?;
    Ok((Some(Arc::new(sides.given().unwrap_or_else(|| survey.sides()))), left_out))
}

fn is_counted_only(settings: &Settings) -> bool {
    settings.codecs.is_empty() && settings.block_codec.is_none() && settings.context_codec.is_none()
}

/// Analyses one capture; none if it is to stop. With a plan all is done but what its pieces are for.
pub(super) fn one(
    place: &Place,
    settings: &Settings,
    given: Option<&Arc<Sides>>,
    measure_time: bool,
    stop: &AtomicBool,
    mut plan: Option<&mut Plan>,
) -> Option<Done> {
    if given.is_none()
        && let Some(accounts) = Accounts::finding_sides(settings)
        && let Some(done) =
            read(place, accounts, settings, measure_time, stop, plan.as_deref_mut())?
    {
        return Some(done);
    }
    let sides = given.map_or_else(
        || {
            let mut survey = Survey::default();
            survey.look(place, stop);
            Arc::new(survey.sides())
        },
        Arc::clone,
    );
    if stop.load(Ordering::Relaxed) {
        return None;
    }
    let accounts = Accounts::new(settings).with_sides(sides);
    // Whoever has its sides has not too many ways.
    read(place, accounts, settings, measure_time, stop, plan)?
}

/// Reads a capture once. The outer option is none if it is to stop, the inner one if its sides can't be found meanwhile.
fn read(
    place: &Place,
    mut accounts: Accounts,
    settings: &Settings,
    measure_time: bool,
    stop: &AtomicBool,
    plan: Option<&mut Plan>,
) -> Option<Option<Done>> {
    // Counting takes less time than to hand bytes on.
    if is_counted_only(settings) {
        let mut capture = match place.open() {
            Ok(capture) => capture,
            Err(why) => return Some(Some(Done::Unreadable(why))),
        };
        accounts.begin(&place.name, capture.format());
        while accounts.skim(&mut capture, SKIM_PACKETS) {
            if stop.load(Ordering::Relaxed) {
                return None;
            }
        }
        return Some(Some(Done::Read(Box::new(accounts.finish()))));
    }
    thread::scope(|scope| {
        let mut capture = match place.open_ahead(scope) {
            Ok(capture) => capture,
            Err(why) => return Some(Some(Done::Unreadable(why))),
        };
        accounts.begin(&place.name, capture.format());
        match compress(&mut capture, accounts, settings, measure_time, stop, plan) {
            Ok(Some(found)) => Some(found.map(|analysis| Done::Read(Box::new(analysis)))),
            Ok(None) => None,
            Err(why) => Some(Some(Done::Failed(format!("a codec failed; this is a bug: {why}")))),
        }
    })
}

/// As [`read`].
fn compress(
    capture: &mut Capture<Source>,
    mut accounts: Accounts,
    settings: &Settings,
    measure_time: bool,
    stop: &AtomicBool,
    mut plan: Option<&mut Plan>,
) -> Result<Option<Option<Analysis>>, CodecError> {
    let mut history = HistoryAnalyzer::new(settings, Clock::new(measure_time))?;
    let mut analyzer = Analyzer::new(settings, Clock::new(measure_time))?;
    let mut batch = Batch::default();
    if let Some(plan) = &mut plan {
        plan.begin(capture.position());
    }
    loop {
        let is_more = accounts.fill(capture, &mut batch);
        history.batch(&mut batch)?;
        match &mut plan {
            None => analyzer.batch(&batch)?,
            Some(plan) => {
                analyzer.look(&batch);
                plan.batch_ends(capture.position(), is_more);
            }
        }
        if !is_more || accounts.is_beyond() {
            break;
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
    }
    let (sums, content) = analyzer.finish_ways();
    let Some(mut whole) = accounts.found(&content) else { return Ok(Some(None)) };
    for part in [sums, history.finish()?] {
        // All have the settings that they were made with here.
        let added = whole.merge(part);
        debug_assert!(added.is_ok());
    }
    Ok(Some(Some(whole)))
}
