//! The exceptions.

use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(dwell, Error, PyException, "Something that dwell was asked for can't be done.");
create_exception!(dwell, ScenarioError, Error, "A scenario is wrong: all that is wrong with it.");
create_exception!(dwell, CaptureError, Error, "A capture can't be read.");

/// Adds the exceptions to the module.
pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("Error", py.get_type::<Error>())?;
    module.add("ScenarioError", py.get_type::<ScenarioError>())?;
    module.add("CaptureError", py.get_type::<CaptureError>())
}

/// Returns an exception for an error of one of the crates.
pub(crate) fn failed(error: impl std::fmt::Display) -> PyErr {
    Error::new_err(error.to_string())
}
