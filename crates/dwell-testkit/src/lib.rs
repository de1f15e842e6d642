//! The environments in which dwell is tested and demonstrated.
//!
//! * [`link`]: one direction of a link as a model without a clock;
//! * [`virtual_net`]: whole networks of sans-IO nodes over such links, in virtual time;
//! * [`lab`]: hosts as network namespaces that vanish with the process, joined by real
//!   interfaces, and [`emulator`], which runs the model between two of them;
//! * [`http`] and [`ping`]: minimal traffic for measurements;
//! * [`relays`]: a relay at each end of a thin link, and their [`faults`];
//! * [`stream`]: numbered datagrams, each checked and timed;
//! * [`hostile`]: a peer that holds the key and follows no rules;
//! * [`raw`]: captured packets, and packets with any source;
//! * [`stalls`]: the time for which the machine itself stood still;
//! * [`corpus`]: payloads of every degree of compressibility.

pub mod corpus;
pub mod emulator;
pub mod faults;
pub mod hostile;
pub mod http;
pub mod lab;
pub mod link;
pub mod mesh;
pub mod ping;
pub mod raw;
pub mod relays;
pub mod stalls;
pub mod stream;
mod sys;
pub mod virtual_net;

pub use link::{LinkModel, LinkSpec, LinkStats, QueueLimit};
