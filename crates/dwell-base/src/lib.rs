//! The vocabulary that every other crate shares: instants, link rates, sizes, seeded randomness,
//! secrets, base64, the errors of files that people write, and helpers for messages about text from outside.
//!
//! This crate knows nothing about packets, codecs, clocks or files. Time is a number that the
//! caller read from a clock or, in a simulation, made up.

pub mod base64;
pub mod file_errors;
pub mod rate;
pub mod rng;
pub mod secret;
pub mod share;
pub mod size;
pub mod text;
pub mod time;

pub use file_errors::{FileError, FileErrors};
pub use rate::Rate;
pub use rng::{Exponentials, Rng};
pub use secret::Secret;
pub use share::share;
pub use size::ByteSize;
pub use time::Instant;
