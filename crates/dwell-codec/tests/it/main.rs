//! The crate from outside: round trips, and hostile input.

mod alone;
mod common;
mod context;
mod corpus;
mod history;
mod hostile;
mod mix;
mod model_document;
mod ppm;
mod round_trip;

/// The same bodies that the fuzzer runs, so that what it found stays found.
#[allow(unreachable_pub, reason = "public in the package of the fuzz targets")]
#[path = "../../../../fuzz/src/codec.rs"]
mod fuzz_codec;
