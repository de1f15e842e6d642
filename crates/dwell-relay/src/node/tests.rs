//! Nodes over hostile virtual networks, in virtual time.

mod blocks;
mod chains;
mod chunks;
mod harness;
mod keys;
mod lost;
mod pairs;
mod row;
