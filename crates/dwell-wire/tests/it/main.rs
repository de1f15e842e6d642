//! The crate from outside: against its document, and against hostile input.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod corpus;
mod document;
mod hostile;

/// The same bodies that the fuzzer runs, so that what it found stays found.
#[allow(unreachable_pub, reason = "public in the package of the fuzz targets")]
#[path = "../../../../fuzz/src/wire.rs"]
mod fuzz_wire;
