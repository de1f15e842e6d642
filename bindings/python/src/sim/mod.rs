//! The simulator: scenarios, their runs, and what papers say about them.

mod figures;
mod results;
mod scenario;

use dwell_sim::library;
use dwell_sim::results::Summary;
use pyo3::prelude::*;

use crate::error::failed;

pub(crate) use scenario::code_version;

/// Adds classes and functions to the module.
pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<scenario::Scenario>()?;
    module.add_class::<results::Results>()?;
    module.add_function(wrap_pyfunction!(scenario_names, module)?)?;
    module.add_function(wrap_pyfunction!(scenario_text, module)?)?;
    module.add_function(wrap_pyfunction!(toml_of_json, module)?)?;
    module.add_function(wrap_pyfunction!(summary, module)?)
}

/// Returns the names of the scenarios that dwell carries with it.
#[pyfunction]
fn scenario_names() -> Vec<&'static str> {
    library::all().map(|entry| entry.id).collect()
}

/// Returns the text of one of them, or none if there is no such name.
#[pyfunction]
fn scenario_text(name: &str) -> Option<&'static str> {
    library::all().find(|entry| entry.id == name).map(|entry| entry.text)
}

/// Returns a document in JSON as TOML.
#[pyfunction]
fn toml_of_json(json: &str) -> PyResult<String> {
    let value: toml::Value = serde_json::from_str(json).map_err(failed)?;
    toml::to_string(&value).map_err(failed)
}

/// Returns (count, mean, half of the 95 % interval, least, largest) of some values, or none without values;
/// the interval is Student's t, and none for one value.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 makes the list")]
fn summary(values: Vec<f64>) -> Option<(usize, f64, Option<f64>, f64, f64)> {
    let summary = Summary::of(&values)?;
    Some((summary.count, summary.mean, summary.confidence, summary.min, summary.max))
}
