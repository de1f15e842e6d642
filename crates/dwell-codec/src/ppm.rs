//! Prediction by partial matching: a model of what comes after which bytes, that runs on through all
//! records of a stream, each of which is coded by itself. docs/wire.md describes it (section 9.7).

mod arena;
mod escape;
mod history;
mod learner;
mod mask;
mod model;
mod spec;
#[cfg(test)]
mod tests;

pub(crate) use learner::Learner;
pub use spec::{
    PPM_MEMORY_LOG_MAX, PPM_MEMORY_LOG_MIN, PPM_ORDER_MAX, PPM_ORDER_MIN, PPM_PRIME_LEN_MAX,
    PpmSpec,
};
