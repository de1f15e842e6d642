//! The edge to the machine: clocks, file descriptors, sockets, interfaces and routes.
//!
//! Everything here is non-blocking and free of policy: it moves bytes and says what
//! happened. Nothing above knows a system call, and nothing here knows a peer, a frame or
//! a codec. Buffers are allocated once and reused.

pub mod address;
pub mod cgroup;
pub mod clock;
mod coalesce;
pub mod echo;
pub mod poller;
pub mod route;
pub mod signal;
pub mod tun;
pub mod udp;
