//! Nodes over hostile virtual networks, in virtual time.

mod beyond;
mod blocks;
mod chunks;
mod harness;
mod keys;
mod lost;
mod pairs;
