//! The parts around the decision core that every driver needs.
//!
//! A *world* has packets, a link and a compressor: a relay with real ones, the replay of a capture
//! with real packets and a virtual link, a simulation with models of all three. What they have in
//! common is here:
//!
//! * [`Slab`]: places for packets, by the names that the core knows them by.
//! * [`group_key`]: the keys of what is compressed together.
//! * [`FlowHistories`]: which flows refer to nothing but themselves.
//! * [`link`]: what frames of relays cost on a link.
//! * [`BlockConfig`]: a scheme with blocks as relays make them.
//! * [`gather`]: the packets of a batch as one run of bytes.
//! * [`drain`]: does what a port asks for, in a world that says how ([`World`]).
//! * [`Driven`]: a port that can keep a [`Journal`] of what went into it and what came out;
//!   [`repeat`] feeds a journal to another port, which must have the same output.
//!
//! It is pure: times are arguments, and nothing is read, sent or printed.
//!
//! ```
//! use dwell_base::{Instant, Rate};
//! use dwell_drive::{Driven, World, drain};
//! use dwell_policy::{
//!     Action, ClassKey, DropReason, Event, Job, Outcome, Packet, PacketId, PortConfig, Scheme,
//! };
//!
//! /// A link that takes everything, and a compressor that halves in no time.
//! struct Ideal {
//!     port: Driven,
//!     sent_bytes: u64,
//! }
//!
//! impl World for Ideal {
//!     fn poll(&mut self) -> Option<Action> {
//!         self.port.poll(Instant::ZERO)
//!     }
//!     fn compress(&mut self, job: Job) {
//!         let (job, outcome) = (job.id, Outcome::Smaller(job.bytes / 2));
//!         self.port.handle(Instant::ZERO, Event::Compressed { job, outcome, took_ns: 0 });
//!     }
//!     fn send(&mut self) {
//!         self.sent_bytes += self.port.frame().link_bytes;
//!     }
//!     fn dropped(&mut self, _: PacketId, _: DropReason) {}
//! }
//!
//! let rate = Some(Rate::from_mbps(1));
//! let port = Driven::new(PortConfig { scheme: Scheme::all(), rate, ..PortConfig::default() })?;
//! let mut world = Ideal { port, sent_bytes: 0 };
//! let class = ClassKey::new(6, 80);
//! let packet = Packet::new(PacketId(0), 1_000, (class, class));
//! world.port.handle(Instant::ZERO, Event::Arrive(packet));
//! drain(&mut world);
//! assert_eq!(world.sent_bytes, 500);
//! # Ok::<(), dwell_policy::ConfigError>(())
//! ```

mod blocks;
mod driven;
mod flow_histories;
mod gather;
mod groups;
mod journal;
pub mod link;
mod slab;

pub use blocks::BlockConfig;
pub use driven::{Driven, World, drain};
pub use flow_histories::{FlowHistories, Passed};
pub use gather::gather;
pub use groups::group_key;
pub use journal::{Entry, Input, Journal, JournalError, Output, repeat};
pub use slab::Slab;
