//! The settings of an analysis.

use dwell_base::Rate;
use dwell_codec::{CodecId, CodecSpec};
use dwell_trace::Settings;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::failed;

/// Returns the settings of an analysis as JSON. Without codecs, they are the program's.
#[pyfunction]
#[pyo3(signature = (*, codecs, blocks, contexts, over, rates, bound))]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 makes the lists")]
pub(super) fn trace_settings(
    codecs: Option<Vec<String>>,
    blocks: Option<String>,
    contexts: Option<String>,
    over: &str,
    rates: Vec<String>,
    bound: bool,
) -> PyResult<String> {
    let codecs = match codecs {
        None => default_codecs(),
        Some(names) => names.iter().map(|name| codec(name)).collect::<PyResult<_>>()?,
    };
    let settings = Settings {
        over: over.parse().map_err(PyValueError::new_err)?,
        codecs,
        block_codec: blocks.as_deref().map(codec).transpose()?,
        context_codec: contexts.as_deref().map(codec).transpose()?,
        rates: rates
            .iter()
            .map(|rate| rate.parse::<Rate>().map_err(wrong))
            .collect::<PyResult<_>>()?,
        is_without_bound: !bound,
    };
    serde_json::to_string(&settings).map_err(failed)
}

/// Reads what [`trace_settings`] returned.
pub(super) fn parse(json: &str) -> PyResult<Settings> {
    serde_json::from_str(json).map_err(failed)
}

/// Reads the name of a codec that this build has.
pub(super) fn codec(name: &str) -> PyResult<CodecSpec> {
    name.parse::<CodecSpec>().map_err(wrong)
}

pub(super) fn wrong(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// One of each kind, as the program measures.
fn default_codecs() -> Vec<CodecSpec> {
    let zstd = |level| CodecSpec { id: CodecId::Zstd, level };
    vec![
        CodecSpec::with_default_level(CodecId::Lz4),
        zstd(-3),
        zstd(1),
        zstd(9),
        CodecSpec::with_default_level(CodecId::Deflate),
    ]
}
