//! `dwell._dwell`: what Python's package `dwell` is made of.
//!
//! Everything here is thin: arguments are read, the interpreter is released, the crates of the workspace
//! do the work, and results go out as Arrow arrays, bytes or JSON. What is more than that is written in
//! Python, in `python/dwell`.

mod arrow;
mod codec;
mod error;
mod jobs;
mod port;
mod sim;
mod stream;
mod trace;

use pyo3::prelude::*;

/// The compiled part of dwell.
#[pymodule]
fn _dwell(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("CODE", sim::code_version())?;
    error::add_to(module)?;
    arrow::add_to(module)?;
    sim::add_to(module)?;
    codec::add_to(module)?;
    port::add_to(module)?;
    stream::add_to(module)?;
    trace::add_to(module)
}
