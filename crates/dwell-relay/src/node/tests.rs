//! Nodes over hostile virtual networks, in virtual time.

mod blocks;
mod chunks;
mod harness;
mod keys;
mod lost;
mod pairs;
