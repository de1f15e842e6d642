//! Dictionaries for small packets.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dwell_trace::document::OfTraining;
use dwell_trace::train::{TrainSettings, Trained, Trainer};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::clock::Clock;
use super::merged::Merged;
use super::settings::{codec, wrong};
use super::source::Place;
use crate::error::{CaptureError, Error, failed};
use crate::jobs;

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
    let places: Vec<Arc<Place>> = places.into_iter().map(Arc::new).collect();
    let work = |stop: &AtomicBool| run(&places, settings, measure_time, stop);
    let trained = jobs::once(py, "training", work)??;
    let document = OfTraining::new(spec, &trained, None);
    let json = serde_json::to_string(&document).map_err(failed)?;
    let files = trained.dictionaries.iter().map(|file| {
        let bytes = file.to_bytes().map_err(failed)?;
        Ok((file.class.clone(), PyBytes::new(py, &bytes)))
    });
    Ok((json, files.collect::<PyResult<_>>()?))
}

fn run(
    places: &[Arc<Place>],
    settings: TrainSettings,
    measure_time: bool,
    stop: &AtomicBool,
) -> Option<PyResult<Trained>> {
    let mut merged = match Merged::look(places, stop)? {
        Ok((merged, _)) => merged,
        Err(why) => return Some(Err(CaptureError::new_err(why))),
    };
    let mut trainer = match Trainer::new(settings) {
        Ok(trainer) => trainer,
        Err(error) => return Some(Err(Error::new_err(error.to_string()))),
    };
    merged
        .each(stop, |input| trainer.packet(input.packet))
        .then(|| trainer.finish(&mut Clock::new(measure_time)).map_err(failed))
}
