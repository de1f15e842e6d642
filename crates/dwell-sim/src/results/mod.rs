//! Results of scenarios: records of runs, and their evaluation.
//!
//! A [`Task`] is a point of a scenario with a seed. A [`Run`] is done once for all tasks with the
//! same key, and gives a [`RunRecord`]. A [`Store`] holds records by their keys, as lines of JSON,
//! so that nothing runs twice. [`evaluate`](Evaluation) puts replications together, for charts,
//! claims and tables.

mod charts;
mod claims;
mod evaluation;
#[cfg(test)]
mod fixture;
mod page;
mod record;
mod store;
mod summary;
mod tables;
mod tally;

pub use charts::chart;
pub use claims::claims;
pub use evaluation::Evaluation;
pub use page::page;
pub use record::{Run, RunRecord, Task, json};
pub use store::{Dropped, Store, line};
pub use summary::Summary;
pub use tables::{csv, series_csv, table};
pub use tally::tally;
