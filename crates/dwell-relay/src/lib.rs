//! placeholder

pub mod io;
