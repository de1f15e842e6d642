//! Analysis of captures of real traffic: would it help to compress the packets of this link?
//!
//! [`Capture`] reads packets from anything that is [`std::io::Read`], [`Datagram`] finds the IP
//! packet in a frame. Whatever the bytes are, nothing panics, memory is bounded, and everything
//! before a damage is handed out, with a report of the damage and its place.
//!
//! This crate knows nothing about files, threads, clocks or terminals.

pub mod analysis;
pub mod capture;
pub mod contexts;
pub mod datagram;
pub mod document;
pub mod fingerprint;
mod frequencies;
mod keyed;
pub mod link;
pub mod lists;
pub mod names;
pub mod replay;
pub mod report;
pub mod sides;
pub mod summary;
pub mod train;
pub mod verdict;

pub use analysis::{Accounts, Analysis, Analyzer, Batch, Clock, HistoryAnalyzer, Over, Settings};
pub use capture::{Capture, LinkType, OpenError, Packet, Trouble};
pub use datagram::Datagram;
pub use fingerprint::Fingerprint;
pub use link::NotIp;
pub use lists::Lists;
pub use sides::{Learner, Sides};
pub use summary::Summary;
