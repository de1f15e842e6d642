//! Mixing of contexts: a model that predicts each bit by the weighted sum of what several contexts have seen before it, that
//! runs on through all records of a stream, each of which is coded by itself. docs/wire.md describes it (section
//! 9.9).
//!
//! It is of the family that begins with M. Mahoney, "Adaptive Weighing of Context Models for Lossless Data Compression",
//! 2005.

mod contexts;
mod learner;
mod mixer;
mod model;
mod repeats;
mod slots;
mod spec;
mod states;
#[cfg(test)]
mod tests;

pub(crate) use learner::Learner;
pub use spec::{MIX_MEMORY_LOG_MAX, MIX_MEMORY_LOG_MIN, MIX_PRIME_LEN_MAX, MixSpec};
