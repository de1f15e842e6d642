//! The decision core: which packets are compressed, when, and what the link sends next.
//!
//! A [`Port`] is one output port of a node: the queues in front of one link. It is free of
//! I/O. [`Event`]s go in with the time at which they happened ([`Port::handle`]); after each of them,
//! and at [`Port::next_deadline`], the driver drains [`Port::poll`] for [`Action`]s. Compressing is an
//! action too: the driver does it (inline, on a worker, or as a modelled cost) and reports the size
//! and the time that it took.
//!
//! The core sees identifiers, lengths, classes and times. It knows nothing about bytes,
//! codecs, sockets, clocks or threads; the relay, the simulator and the tests drive the very
//! same code.
//!
//! Schemes are points in a space of a few axes ([`Scheme`]), so that a preset is data and
//! not a code path. The rules come from
//!
//! * Shimamura, Koga, Ikenaga and Tsuru, "Compressing Packets Adaptively Inside Networks"
//!   (IEICE Trans. Commun. E93-B, 2010), sections 3 and 5: single packets, compressed while they
//!   wait;
//! * Yoshino, Koga, Shimamura and Ikenaga, "Adaptive Online Compressing Schemes Using Flow
//!   Information on Advanced Relay Nodes", section III: blocks of packets with the same next hop;
//! * Sawabe, Tsukamoto and Oie, "Efficient QoS-aware Packet Chunking Scheme for M2M Cloud
//!   Services", section 4: packets that are held back to fill frames.
//!
//! Byte streams have no packets to choose from, but codecs: [`method`] decides which blocks of a
//! stream are compressed, and with which codec, and [`rate`] estimates what its link carries.
//!
//! Compression ratio is compressed / original, as in those papers.

mod account;
mod action;
mod backoff;
mod config;
mod cpu_share;
mod estimate;
mod event;
mod explore;
mod job_time;
pub mod method;
mod packet;
mod port;
pub mod rate;
mod scheme;
mod waiting_time;

pub use account::{Accounts, Bypass, CompressionAccounts, Count, DropReason, Late};
pub use action::{Action, Frame, FramePacket, FrameUnit, Job, JobId, SendCause};
pub use backoff::{BackOff, BackOffConfig, ProbingBackOff};
pub use config::{ConfigError, FrameCost, Objective, PortConfig, QueueLimit};
pub use estimate::{Estimate, Estimates, LearnedConfig, Ratio};
pub use event::{CpuLimit, Event, LinkState, LostBatch, Outcome};
pub use packet::{ClassKey, Packet, PacketId};
pub use port::Port;
pub use scheme::{
    BlockOrder, BlockPlace, BlockRules, BlockSlots, CLASSES_MAX, ClassTimers, FlowQueues, Gather,
    History, Method, PRESETS, Pull, PullPolicy, Queue, Reference, Release, Scheme, Select,
    Unfinished, When,
};
pub use waiting_time::waiting_time_suffices;
