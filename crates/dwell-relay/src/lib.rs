//! The relay: a TUN on one side, peers over UDP on the other, and the decision core between.
//!
//! * [`config`]: what an operator can say, strictly read.
//! * [`node`]: everything that a relay does, without I/O; tests run pairs of it over hostile
//!   virtual networks.
//! * [`pairing`]: how two nodes come to know each other.
//! * [`trust`]: keys and sessions.
//! * [`io`]: the edge to the machine; the only place with `unsafe`.
//! * [`run`]: one thread that drives a node with sockets, a TUN and signals.

pub mod config;
mod engine;
pub mod io;
pub mod node;
pub mod pairing;
pub mod trust;

pub use engine::{RunError, StatusError, route_warnings, run};
