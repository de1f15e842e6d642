//! The simulator: discrete events in integer nanoseconds.
//!
//! It is pure: no files, threads, clocks or printing. The same plan and seed give the same
//! numbers on every machine.

pub mod tcp;
