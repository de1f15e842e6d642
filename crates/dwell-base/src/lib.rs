//! The vocabulary that every other crate shares: instants, link rates, sizes, seeded randomness,
//! secrets, and how texts from outside are answered.
//!
//! This crate knows nothing about packets, codecs, clocks or files. Time is a number that
//! somebody else read off a clock (or made up, in a simulation).

pub mod rate;
pub mod rng;
pub mod secret;
pub mod size;
pub mod text;
pub mod time;

pub use rate::Rate;
pub use rng::Rng;
pub use secret::Secret;
pub use size::ByteSize;
pub use time::Instant;
