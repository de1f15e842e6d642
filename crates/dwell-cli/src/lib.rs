//! The parts that dwell's programs share: text for people, progress, values of options, exit codes.

pub mod failure;
pub mod progress;
pub mod terminal;
pub mod values;
