//! Dictionaries for small packets.

use std::sync::atomic::{AtomicBool, Ordering};

use dwell_codec::CodecSpec;
use dwell_trace::replay::merge::{Merge, MergeStep, Part, PartSource};
use dwell_trace::train::{ClassTraining, ContextTraining, TrainSettings, Trained, Trainer};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde::Serialize;

use super::clock::Clock;
use super::settings::{codec, wrong};
use super::source::Place;
use super::survey::Survey;
use crate::error::{CaptureError, Error, failed};
use crate::jobs;

/// The document that the program prints with `--json`.
#[derive(Serialize)]
struct Output<'a> {
    codec: CodecSpec,
    packets: u64,
    left_out: u64,
    classes: &'a [ClassTraining],
    contexts: Option<&'a ContextTraining>,
}

/// The document as JSON, and the dictionaries' files by the names of their classes.
type Written<'py> = (String, Vec<(String, Bound<'py, PyBytes>)>);

/// Trains dictionaries on captures, merged by time.
#[pyfunction]
#[pyo3(signature = (places, *, codec_name, size, min, max, share, measure_time))]
#[expect(clippy::too_many_arguments, reason = "they are the program's options")]
pub(super) fn train<'py>(
    py: Python<'py>,
    places: Vec<Place>,
    codec_name: &str,
    size: usize,
    min: usize,
    max: usize,
    share: f64,
    measure_time: bool,
) -> PyResult<Written<'py>> {
    let spec = codec(codec_name)?;
    let settings = TrainSettings {
        codec: spec,
        dictionary_bytes: size,
        packet_bytes_min: min,
        packet_bytes_max: max,
        trained_share: share,
    };
    Trainer::new(settings).map_err(wrong)?;
    let mut done = None;
    let work = |(): &(), stop: &AtomicBool| run(&places, settings, measure_time, stop);
    jobs::run(py, &[()], 1, work, |_, result| {
        done = Some(result);
        Ok(())
    })?;
    let trained = match done {
        Some(Ok(trained)) => trained,
        Some(Err(error)) => return Err(error),
        None => return Err(failed("training broke off; this is a bug in dwell")),
    };
    let output = Output {
        codec: spec,
        packets: trained.packets,
        left_out: trained.left_out,
        classes: &trained.classes,
        contexts: trained.contexts.as_ref(),
    };
    let json = serde_json::to_string(&output).map_err(failed)?;
    let files = trained.dictionaries.iter().map(|file| {
        let bytes = file.to_bytes().map_err(failed)?;
        Ok((file.class.clone(), PyBytes::new(py, &bytes)))
    });
    Ok((json, files.collect::<PyResult<_>>()?))
}

fn run(
    places: &[Place],
    settings: TrainSettings,
    measure_time: bool,
    stop: &AtomicBool,
) -> Option<PyResult<Trained>> {
    let mut survey = Survey::default();
    let mut parts = Vec::new();
    for place in places {
        let capture = match place.open() {
            Ok(capture) => capture,
            Err(why) => {
                let why = format!("{} can't be read: {why}", place.name);
                return Some(Err(CaptureError::new_err(why)));
            }
        };
        let looked = survey.look(place, stop);
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        if !looked.is_there {
            let source = PartSource::Open(Box::new(capture));
            parts.push(Part { first_ns: looked.first_ns, source });
        }
    }
    let mut trainer = match Trainer::new(settings) {
        Ok(trainer) => trainer,
        Err(error) => return Some(Err(Error::new_err(error.to_string()))),
    };
    let mut merge = Merge::of_parts(parts);
    loop {
        match merge.step() {
            MergeStep::Packet(input) => trainer.packet(input.packet),
            MergeStep::Skipped => {}
            MergeStep::End => break,
        }
        if stop.load(Ordering::Relaxed) {
            return None;
        }
    }
    Some(trainer.finish(&mut Clock::new(measure_time)).map_err(failed))
}
