//! The wire format between two nodes, and the parsing of the IP packets that a node forwards.
//!
//! `docs/wire.md` is normative; the code follows it and the tests check its worked examples.
//! From the outside in: a [`Datagram`] has a body, a body is a run of [`Records`], a record is a
//! raw packet, a [`Compressed`] one, a [`Block`] of several, a [`Control`] message, or a part of what
//! goes through a context ([`ContextRecord`]).
//! [`PacketInfo`] reads the packets.
//!
//! This crate knows nothing about sockets, clocks, keys or codecs: it only handles the bytes around
//! sealed and compressed data. Whatever the input, nothing panics, and nothing is allocated but two tables of a
//! few kilobytes for each context ([`predicted`]).

pub mod arrivals;
pub mod block;
pub mod carried;
pub mod checksum;
pub mod columnar;
pub mod context;
pub mod control;
pub mod ecn;
pub mod error;
pub mod header;
pub mod hello;
pub mod hop;
pub mod icmp;
pub mod keyed;
pub mod mss;
pub mod packet;
pub mod predicted;
pub mod record;
pub mod sequence;

mod ip;
mod reader;

pub use arrivals::Arrivals;
pub use block::{Block, BlockPackets, Fragment};
pub use carried::{Carried, Label, Unit};
pub use context::{
    Alone, ContextBody, ContextRecord, Headers, Start, StartBase, context_record_len,
};
pub use control::{CloseReason, ContextReport, Control, Numbers, Report};
pub use error::{Full, PacketError, WireError};
pub use header::{DataHeader, Datagram, Kind};
pub use hello::{ContextOffer, DictionaryName, Hello, ModelOffer};
pub use keyed::{Cookie, Initiation, Response};
pub use packet::PacketInfo;
pub use predicted::{HeaderPredictor, HeaderRestorer};
pub use record::{BodyWriter, Compressed, Record, Records};
pub use sequence::{ReplayWindow, reconstruct_number, reconstruct_sequence};
