//! What runs of scenarios gave: records, and what is made of them.
//!
//! A [`Task`] is a point of a scenario with a seed. A [`Run`] is done once for all tasks that come
//! to the same, and gives a [`RunRecord`]. A [`Store`] holds records by their keys, as lines of
//! JSON, so that nothing runs twice. [`evaluate`](Evaluation)
//! puts replications together; charts, claims and tables are made of that.

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

pub use charts::chart;
pub use claims::claims;
pub use evaluation::Evaluation;
pub use page::page;
pub use record::{Run, RunRecord, Task, json};
pub use store::{Dropped, Store, line};
pub use summary::Summary;
pub use tables::{csv, table};
