//! The decision core: which packets are pressed, when, and what the link sends next.
//!
//! A [`Port`] is one output port of a node: the queues in front of one link. It is free of
//! I/O. Events go in with the time at which they happened ([`Port::arrive`],
//! [`Port::pressed`], [`Port::link_ready`]); after each of them the driver drains
//! [`Port::poll`] for [`Action`]s. Pressing is an action too: the driver does it (inline, on
//! a worker, or as a modelled cost) and reports the size and the time that it took.
//!
//! The core sees identifiers, lengths, classes and times. It knows nothing about bytes,
//! codecs, sockets, clocks or threads; the relay, the simulator and the tests drive the very
//! same code.
//!
//! Schemes are points in a space of a few axes ([`Scheme`]), so that a preset is data and
//! not a code path. The rules come from Shimamura, Koga, Ikenaga and Tsuru, "Compressing
//! Packets Adaptively Inside Networks" (IEICE Trans. Commun. E93-B, 2010), sections 3 and 5.
//!
//! Compression ratio is compressed / original, as in that paper.

mod account;
mod action;
mod backoff;
mod config;
mod estimate;
mod packet;
mod port;
mod press;

pub use account::{Accounts, Bypass, Count, DropReason, PressAccounts};
pub use action::{Action, Frame, FrameUnit};
pub use backoff::{BackOff, BackOffConfig};
pub use config::{
    ConfigError, FrameCost, Gather, PRESETS, PortConfig, Press, QueueLimit, Queues, Scheme, Skip,
    Trigger,
};
pub use estimate::{Estimate, Estimates, LearnedConfig, Ratio};
pub use packet::{ClassKey, Packet, PacketId};
pub use port::{Admission, Outcome, Port};
pub use press::waiting_time_suffices;
