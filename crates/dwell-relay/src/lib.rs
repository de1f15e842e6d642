//! placeholder

pub mod config;
pub mod io;
