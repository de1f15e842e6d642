//! Nodes over hostile virtual networks, in virtual time.

mod beyond;
mod blocks;
mod chains;
mod chunks;
mod flood;
mod harness;
mod keys;
mod lost;
mod pairs;
mod path;
mod row;
mod why;
