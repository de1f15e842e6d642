//! The environments in which dwell is tested and measured, beside the lab of `dwell-lab`.
//!
//! * [`virtual_net`]: whole networks of sans-IO nodes in virtual time, over the links that a lab
//!   emulates;
//! * [`sites`]: networks of many sites in a lab, and [`mesh`], the relays on their gateways;
//! * [`extent`], how much tests go through;
//! * [`faults`] that befall two relays;
//! * [`stream`]: numbered datagrams, each checked and timed;
//! * [`hostile`]: a peer that holds the key and keeps to no rules;
//! * [`pages`]: those of the documentation, and the command lines in them;
//! * [`postgres`], a server for tests and benches;
//! * [`skips`]: tests that can't test anything here, and say so;
//! * [`raw`]: packets as they are on a link, and in anybody's name;
//! * [`stalls`]: how long the machine itself stood still meanwhile.

pub mod extent;
pub mod faults;
pub mod hostile;
pub mod mesh;
pub mod pages;
pub mod postgres;
pub mod raw;
pub mod sites;
pub mod skips;
pub mod stalls;
pub mod stream;
pub mod virtual_net;

// What virtual networks are made of.
pub use dwell_lab::link;
pub use link::{LinkModel, LinkSpec, LinkStats, QueueLimit};
