//! Replays of captures through schemes on a link.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use dwell_base::time::parse_duration_ns;
use dwell_policy::{BlockOrder, BlockRules, PRESETS, Scheme, Select};
use dwell_trace::replay::class::{DeadlineClass, parse_class_key};
use dwell_trace::replay::compress::{Cost, GivenCost};
use dwell_trace::replay::link::Link;
use dwell_trace::replay::report::ReplayReport;
use dwell_trace::replay::{Replay, Settings};
use dwell_trace::verdict::{self, Question, Verdict};
use pyo3::prelude::*;
use serde::{Deserialize, Serialize};

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
    columnar: bool,
    compress_min: u32,
    link_overhead: u32,
    path_mtu: u16,
    sealed: bool,
    ipv6: bool,
    cost_per_mb: Option<f64>,
}

/// The document that the program prints with `--json`.
#[derive(Serialize)]
struct Output<'a> {
    #[serde(flatten)]
    report: &'a ReplayReport,
    frames: u64,
    not_ip_frames: u64,
    is_interrupted: bool,
    verdict: &'a Verdict,
    other_verdict: Option<&'a Verdict>,
}

/// What a replay gave: the document as JSON, the verdict as text, and what was wrong with captures.
type Replayed = (String, String, Vec<(String, String)>);

/// Replays captures, merged by time.
#[pyfunction]
#[pyo3(signature = (places, options, *, sides))]
pub(super) fn replay(
    py: Python<'_>,
    places: Vec<Place>,
    options: &str,
    sides: &Bound<'_, PyAny>,
) -> PyResult<Replayed> {
    let options: Options = serde_json::from_str(options).map_err(wrong)?;
    let settings = settings(&options)?;
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
    let schemes = PRESETS.map(str::to_owned).to_vec();
    let question = Question { cost_per_mb: options.cost_per_mb, schemes };
    let verdict = verdict::judge(report, &question);
    let other = report.other_direction.as_deref().map(|other| verdict::judge(other, &question));
    let (frames, not_ip_frames) = merged.frames();
    let output = Output {
        report,
        frames,
        not_ip_frames,
        is_interrupted: false,
        verdict: &verdict,
        other_verdict: other.as_ref(),
    };
    let json = serde_json::to_string(&output).map_err(|error| Wrong::Other(error.to_string()))?;
    Ok((json, verdict.to_text(), merged.faults()))
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

/// The schemes as a relay runs them (`BlockConfig::scheme` of dwell-relay, which no simulation may use).
fn schemes(options: &Options) -> PyResult<Vec<(String, Scheme)>> {
    let strict = BlockRules { order: BlockOrder::Strict, ..BlockRules::PAPER };
    let scheme = |name: &String| {
        let scheme = Scheme::preset(name).map_err(wrong)?;
        let scheme = match scheme.select {
            Select::Backlog { .. } => scheme.with_rules(strict),
            Select::Waiting { gather, .. } => Scheme::waiting(gather, options.block_bytes),
            _ => scheme.with_frame_bytes_max(u32::MAX),
        };
        Ok((name.clone(), scheme))
    };
    let all: Vec<String> = PRESETS.map(str::to_owned).to_vec();
    let names = if options.schemes.is_empty() { &all } else { &options.schemes };
    names.iter().map(scheme).collect()
}
