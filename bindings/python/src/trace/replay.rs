//! Replays of captures through schemes on a link.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use dwell_base::time::parse_duration_ns;
use dwell_drive::BlockConfig;
use dwell_policy::{Objective, PRESETS, Ratio, Scheme};
use dwell_trace::document::OfReplay;
use dwell_trace::replay::class::{DeadlineClass, parse_class_key};
use dwell_trace::replay::compress::{Cost, Dictionaries, GivenCost};
use dwell_trace::replay::link::Link;
use dwell_trace::replay::report::ReplayReport;
use dwell_trace::replay::{Replay, Settings};
use dwell_trace::verdict::Question;
use pyo3::prelude::*;
use serde::Deserialize;

use super::clock::Clock;
use super::merged::Merged;
use super::settings::{codec, wrong};
use super::source::Place;
use super::survey::SidesBy;
use crate::error::{CaptureError, Error};
use crate::jobs;

/// The options, by the names and with the defaults of `dwell trace replay`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    rate: String,
    schemes: Vec<String>,
    codec: String,
    compress_cost: Option<String>,
    speed: f64,
    source: Vec<String>,
    destination: Vec<String>,
    classes: Vec<String>,
    exceptions: Vec<String>,
    queue_time: Option<String>,
    queue_packets: Option<u32>,
    queue_bytes: Option<u64>,
    block_bytes: u32,
    block_packets: Option<u32>,
    poor_ratio: Option<f64>,
    objective: String,
    gather_time: String,
    columnar: bool,
    compress_min: u32,
    link_overhead: u32,
    path_mtu: u16,
    sealed: bool,
    ipv6: bool,
    cost_per_mb: Option<f64>,
}

/// What a replay gave: the document as JSON, the verdict as text, and what was wrong with captures.
type Replayed = (String, String, Vec<(String, String)>);

/// Replays captures, merged by time.
#[pyfunction]
#[pyo3(signature = (places, options, *, sides, dictionaries))]
pub(super) fn replay(
    py: Python<'_>,
    places: Vec<Place>,
    options: &str,
    sides: &Bound<'_, PyAny>,
    dictionaries: Vec<(String, Vec<u8>)>,
) -> PyResult<Replayed> {
    let options: Options = serde_json::from_str(options).map_err(wrong)?;
    let mut settings = settings(&options)?;
    settings.dictionaries = Dictionaries::read(dictionaries).map_err(wrong)?;
    let cost = options.compress_cost.as_deref().map(str::parse::<GivenCost>);
    let cost = cost.transpose().map_err(wrong)?;
    settings.check().map_err(wrong)?;
    let sides = SidesBy::of(sides)?;
    let places: Vec<Arc<Place>> = places.into_iter().map(Arc::new).collect();
    let work = |stop: &AtomicBool| run(&places, &settings, cost, &sides, &options, stop);
    jobs::once(py, "the replay", work)?.map_err(|wrong| match wrong {
        Wrong::Capture(why) => CaptureError::new_err(why),
        Wrong::Other(why) => Error::new_err(why),
    })
}

enum Wrong {
    Capture(String),
    Other(String),
}

fn run(
    places: &[Arc<Place>],
    settings: &Settings,
    cost: Option<GivenCost>,
    sides: &SidesBy,
    options: &Options,
    stop: &AtomicBool,
) -> Option<Result<Replayed, Wrong>> {
    let (mut merged, survey) = match Merged::look(places, stop)? {
        Ok(looked) => looked,
        Err(why) => return Some(Err(Wrong::Capture(why))),
    };
    let mut settings = settings.clone();
    settings.sides = Arc::new(sides.given().unwrap_or_else(|| survey.sides()));
    let clock = || Cost::Measured(Box::new(Clock::Monotonic(Instant::now())));
    let cost = || cost.map_or_else(clock, Cost::Given);
    let mut replay = match Replay::new(settings, cost) {
        Ok(replay) => replay,
        Err(error) => return Some(Err(Wrong::Other(error.to_string()))),
    };
    if !merged.each(stop, |input| replay.packet(input)) {
        return None;
    }
    Some(finished(&replay.finish(env!("CARGO_PKG_VERSION")), &merged, options))
}

fn finished(report: &ReplayReport, merged: &Merged, options: &Options) -> Result<Replayed, Wrong> {
    let question = Question::about_relays(options.cost_per_mb);
    let document = OfReplay::new(report, &question, merged.frames());
    let json = serde_json::to_string(&document).map_err(|error| Wrong::Other(error.to_string()))?;
    Ok((json, document.verdict.to_text(), merged.faults()))
}

fn settings(options: &Options) -> PyResult<Settings> {
    let link = Link {
        rate: options.rate.parse().map_err(wrong)?,
        overhead_bytes: options.link_overhead,
        path_mtu: options.path_mtu,
        sealed: options.sealed,
        v6: options.ipv6,
    };
    let mut settings = Settings::new(link);
    settings.schemes = schemes(options)?;
    settings.codec = codec(&options.codec)?;
    if let Some(time) = &options.queue_time {
        settings.limit.time_ns = parse_duration_ns(time).map_err(wrong)?.max(1_000_000);
    }
    settings.limit.packets = options.queue_packets.unwrap_or(settings.limit.packets);
    settings.limit.bytes = options.queue_bytes.unwrap_or(settings.limit.bytes);
    settings.compress_bytes_min = options.compress_min;
    settings.objective = objective(options)?;
    if let Some(ratio) = options.poor_ratio {
        settings.poor_ratio = poor_ratio(ratio)?;
    }
    settings.columnar = options.columnar;
    settings.speed = options.speed;
    let keys = options.exceptions.iter().map(|key| parse_class_key(key).map_err(wrong));
    settings.exceptions = keys.collect::<PyResult<_>>()?;
    let classes = options.classes.iter().map(|class| class.parse::<DeadlineClass>());
    settings.classes = classes.collect::<Result<_, _>>().map_err(wrong)?;
    let prefixes = |list: &[String]| {
        let prefixes = list.iter().map(|prefix| prefix.parse().map_err(wrong));
        prefixes.collect::<PyResult<Vec<_>>>()
    };
    settings.sources = prefixes(&options.source)?;
    settings.destinations = prefixes(&options.destination)?;
    Ok(settings)
}

/// The schemes as a relay runs them.
fn schemes(options: &Options) -> PyResult<Vec<(String, Scheme)>> {
    let (bytes, packets) = (options.block_bytes, options.block_packets);
    let blocks = BlockConfig { bytes, packets, ..BlockConfig::default() };
    let all: Vec<String> = PRESETS.map(str::to_owned).to_vec();
    let names = if options.schemes.is_empty() { &all } else { &options.schemes };
    for name in names {
        // Its error says what there is.
        Scheme::preset(name).map_err(wrong)?;
    }
    blocks.schemes(names).map_err(wrong)
}

fn objective(options: &Options) -> PyResult<Objective> {
    let max_wait_ns = parse_duration_ns(&options.gather_time).map_err(wrong)?;
    match options.objective.as_str() {
        "time" => Ok(Objective::Time),
        "bytes" => Ok(Objective::Bytes { max_wait_ns, cpu_ppm: Objective::CPU_PPM }),
        other => Err(wrong(format!("an objective is \"time\" or \"bytes\", not {other:?}"))),
    }
}

fn poor_ratio(ratio: f64) -> PyResult<Ratio> {
    if !(0.01..=1.0).contains(&ratio) {
        return Err(wrong(format!("a ratio is a number from 0.01 to 1, not {ratio}")));
    }
    Ok(Ratio::from_ppm((ratio * 1e6).round() as u32))
}
