//! A node over time, in bounded memory: what the web page plots.
//!
//! A [`Recorder`] takes the node's status about once a second and keeps a [`Point`] of each scope (the
//! node, each peer, each class) for an hour, and for a day one of each minute. It has no clock: every
//! status comes with its time.

mod message;
mod point;
mod recorder;
mod series;

pub use message::{ClassNow, Live, PeerNow, Window};
pub use point::{Measure, Point};
pub use recorder::Recorder;
pub use series::Range;
