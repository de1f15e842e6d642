//! Networks inside one program, for `dwell demo`, `dwell lab` and whatever is measured and tested.
//!
//! * [`link`]: one direction of a link as a model without a clock;
//! * [`lab`]: hosts as network namespaces that vanish with the process, joined by real
//!   interfaces, and [`emulator`], which runs the model between two of them;
//! * [`http`] and [`ping`]: just enough traffic to measure with;
//! * [`relays`]: a relay at each end of a thin link;
//! * [`segments`]: what TCP has sent, by its own count;
//! * [`corpus`]: payloads of every degree of compressibility.

pub mod corpus;
pub mod emulator;
pub mod http;
pub mod lab;
pub mod link;
pub mod ping;
pub mod relays;
pub mod segments;
mod sys;

pub use link::{LinkModel, LinkSpec, LinkStats, QueueLimit};
