//! The results of a run: its state and counters as records, distributions, and tables for people.
//!
//! The relay, the simulator and trace replay all write the records of [`status`], so that a
//! simulated run and a real one can be laid side by side. The records are the format that
//! programs read ([`status::SCHEMA`]); the core's own types may change without them.
//!
//! This crate knows nothing about clocks, files, sockets or terminals. It turns numbers into
//! records, and records into text; its callers measure and print. Charts and pages are
//! `dwell-figures`'.

mod answer;
pub mod histogram;
pub mod human;
mod lately;
pub mod live;
pub mod metrics;
pub mod proxy;
pub mod recent;
pub mod savings;
pub mod status;
pub mod table;
mod view;

pub use answer::{RateDoubt, answer, explained, rate_doubt};
pub use histogram::Histogram;
pub use metrics::metrics_text;
pub use proxy::{ProxyStatus, proxy_text};
pub use status::Status;
pub use table::{Column, Table};
pub use view::status_text;
