//! One direction of a link, as a model: no sockets, no clock, no threads.
//!
//! ```text
//! push ─► drop-tail queue ─► transmitter ─► medium ───────────────► delay line ─► pop
//!         (limit)            (rate)         (loss, duplicate,        (delay, jitter,
//!                                            corrupt)                 reorder)
//! ```
//!
//! The same model runs in virtual time (`dwell_testkit::virtual_net`) and in real time between
//! two hosts of a lab ([`crate::emulator`]).

mod model;
mod spec;
mod stats;

pub use model::{Delivered, LinkModel};
pub use spec::{LinkSpec, ParseLinkError, QueueLimit, RateStep};
pub use stats::LinkStats;
