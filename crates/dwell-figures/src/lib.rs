//! The output of the simulator and the analyser: [`chart`]s, [`claims`] (a paper's numbers beside ours),
//! put together to a [`page`]; [`csv`] is for other programs.
//!
//! Numbers come in, text and pictures go out; tables and numbers as people read them are
//! `dwell-report`'s. Nothing here knows clocks, files or terminals.

pub mod chart;
pub mod claims;
pub mod csv;
mod markup;
pub mod page;

pub use chart::Chart;
pub use claims::Claim;
pub use csv::Records;
pub use page::Page;
