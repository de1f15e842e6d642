//! The codecs of packets.

use std::sync::{Arc, Mutex, PoisonError};

use dwell_codec::content::{ContentClass, classify_packet};
use dwell_codec::{CodecId, CodecSpec, Dictionary, DictionaryFile, SRC_LEN_MAX};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::failed;

/// Compresses single packets, as a relay does.
#[pyclass(frozen, module = "dwell.codec")]
pub(crate) struct Compressor(Mutex<State>);

struct State {
    compressor: dwell_codec::Compressor,
    out: Vec<u8>,
}

/// Restores what a compressor made.
#[pyclass(frozen, module = "dwell.codec")]
pub(crate) struct Decompressor {
    codec: CodecId,
    dictionary: Option<Arc<Dictionary>>,
    state: Mutex<dwell_codec::Decompressor>,
}

fn spec(codec: &str) -> PyResult<CodecSpec> {
    codec
        .parse()
        .map_err(|error: dwell_codec::ParseSpecError| PyValueError::new_err(error.to_string()))
}

/// Returns the dictionary of a file that was trained; of several the first.
fn dictionary(file: Option<&[u8]>) -> PyResult<Option<Arc<Dictionary>>> {
    let Some(bytes) = file else { return Ok(None) };
    let files = DictionaryFile::parse_all(bytes).map_err(failed)?;
    let first = files.first().ok_or_else(|| failed("the file has no dictionary"))?;
    Ok(Some(Arc::new(first.dictionary().map_err(failed)?)))
}

#[pymethods]
impl Compressor {
    /// Makes a compressor of a codec and level, as "zstd:1"; with a dictionary that was trained, as a file.
    #[new]
    #[pyo3(signature = (codec="zstd:1", *, dictionary=None))]
    fn new(codec: &str, dictionary: Option<&[u8]>) -> PyResult<Self> {
        let dictionary = self::dictionary(dictionary)?;
        let compressor = dwell_codec::Compressor::new(spec(codec)?, dictionary).map_err(failed)?;
        Ok(Self(Mutex::new(State { compressor, out: vec![0; 2 * SRC_LEN_MAX] })))
    }

    /// Returns a packet's payload compressed, or none if it does not become smaller.
    fn compress<'py>(&self, py: Python<'py>, data: &[u8]) -> PyResult<Option<Bound<'py, PyBytes>>> {
        if data.is_empty() || data.len() > SRC_LEN_MAX {
            let message = format!("a packet has 1 to {SRC_LEN_MAX} bytes, not {}", data.len());
            return Err(PyValueError::new_err(message));
        }
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let State { compressor, out } = &mut *state;
        let len = compressor.compress(data, out).map_err(failed)?;
        Ok(len.map(|len| PyBytes::new(py, &out[..len])))
    }

    /// The codec and its level.
    #[getter]
    fn codec(&self) -> String {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.compressor.spec().to_string()
    }
}

#[pymethods]
impl Decompressor {
    /// Makes a decompressor for a codec, with the dictionary that the compressor has.
    #[new]
    #[pyo3(signature = (codec="zstd:1", *, dictionary=None))]
    fn new(codec: &str, dictionary: Option<&[u8]>) -> PyResult<Self> {
        let dictionary = self::dictionary(dictionary)?;
        let state = Mutex::new(dwell_codec::Decompressor::new());
        Ok(Self { codec: spec(codec)?.id, dictionary, state })
    }

    /// Returns the packet of this length that was compressed.
    fn decompress<'py>(
        &self,
        py: Python<'py>,
        data: &[u8],
        length: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        if length > SRC_LEN_MAX {
            let message = format!("no packet has more than {SRC_LEN_MAX} bytes");
            return Err(PyValueError::new_err(message));
        }
        let mut out = vec![0; length];
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let dictionary = self.dictionary.as_deref();
        let len = state.decompress(self.codec, dictionary, data, &mut out).map_err(failed)?;
        if len != length {
            return Err(failed(format!("it has {len} bytes, and not {length}")));
        }
        Ok(PyBytes::new(py, &out))
    }
}

/// Returns true if bytes look encrypted or compressed, so that a relay does not try.
#[pyfunction]
fn looks_random(data: &[u8]) -> bool {
    classify_packet(data) == ContentClass::Random
}

/// Adds classes and functions to the module.
pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Compressor>()?;
    module.add_class::<Decompressor>()?;
    module.add_function(wrap_pyfunction!(looks_random, module)?)
}
