//! The results of a run: its state and counters as records, distributions, and tables for people.
//!
//! The relay, the simulator and trace replay all write the records of [`status`], so that a
//! simulated run and a real one can be laid side by side. The records are the format that
//! programs read ([`status::SCHEMA`]); the core's own types may change without them.
//!
//! Reports are made of [`chart`]s, tables and [`claims`] (a paper's numbers beside ours), put
//! together to a [`page`]; [`csv`] is for other programs.
//!
//! This crate knows nothing about clocks, files, sockets or terminals. It turns numbers into
//! records, and records into text and pictures; its callers measure and print.

pub mod chart;
pub mod claims;
pub mod csv;
pub mod histogram;
pub mod human;
mod markup;
pub mod metrics;
pub mod page;
pub mod proxy;
pub mod status;
pub mod table;
mod view;

pub use chart::Chart;
pub use claims::Claim;
pub use csv::Records;
pub use histogram::Histogram;
pub use metrics::metrics_text;
pub use page::Page;
pub use proxy::{ProxyStatus, proxy_text};
pub use status::Status;
pub use table::{Column, Table};
pub use view::status_text;
