//! Nodes over hostile virtual networks, in virtual time.

mod blocks;
mod harness;
mod pairs;
