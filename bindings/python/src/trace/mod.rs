//! Captures: what is in them, what schemes would make of them, and their packets.

mod ahead;
mod analysis;
mod analyze;
mod clock;
mod merged;
mod packets;
mod pieces;
mod replay;
mod settings;
mod source;
mod survey;
mod train;

use pyo3::prelude::*;

/// Adds classes and functions to the module.
pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("TRACE_SCHEMA", dwell_trace::analysis::SCHEMA)?;
    module.add_class::<analysis::Analysis>()?;
    module.add_class::<packets::Packets>()?;
    module.add_function(wrap_pyfunction!(settings::trace_settings, module)?)?;
    module.add_function(wrap_pyfunction!(analyze::analyze, module)?)?;
    module.add_function(wrap_pyfunction!(pieces::can_be_cut, module)?)?;
    module.add_function(wrap_pyfunction!(pieces::analyze_around, module)?)?;
    module.add_function(wrap_pyfunction!(pieces::analyze_piece, module)?)?;
    module.add_function(wrap_pyfunction!(packets::packet_cuts, module)?)?;
    module.add_function(wrap_pyfunction!(replay::replay, module)?)?;
    module.add_function(wrap_pyfunction!(train::train, module)?)
}
