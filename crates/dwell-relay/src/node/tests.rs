//! Nodes over hostile virtual networks, in virtual time.

mod again;
mod beyond;
mod blocks;
mod busy;
mod chains;
mod chunks;
mod clocks;
mod contexts;
mod fair;
mod far;
mod fast;
mod flood;
mod flows;
mod found_rate;
mod harness;
mod hub;
mod journal;
mod keys;
mod lost;
mod mixed;
mod models;
mod own_rate;
mod pairs;
mod path;
mod row;
mod why;
