//! The actions that the core asks of its driver.

use serde::{Deserialize, Serialize};

use crate::account::{Bypass, DropReason};
use crate::packet::PacketId;

/// Something for the driver to do, from [`Port::poll`](crate::Port::poll).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Compress the packets of [`Port::batch`](crate::Port::batch) together, as one unit, and report
    /// by [`Event::Compressed`](crate::Event::Compressed). A port has as many
    /// jobs under way as [`PortConfig::jobs_max`](crate::PortConfig::jobs_max) says at most, one of a group.
    Compress(Job),
    /// Put the units in [`Port::frame`](crate::Port::frame) on the link as one datagram, and
    /// report [`Event::LinkReady`](crate::Event::LinkReady) when the link can take the next.
    Send,
    /// Forget this packet: it was dropped for the reason given.
    Drop(PacketId, DropReason),
    /// Mark this packet, which waits, as one that met congestion (RFC 3168).
    Mark(PacketId),
}

/// The name of a job of the compressor, new for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(pub u64);

/// A job for the compressor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its name.
    pub id: JobId,
    /// The number of its packets, at least one.
    pub packets: u32,
    /// The bytes of its packets.
    pub bytes: u32,
    /// The time that it is expected to take, in nanoseconds.
    pub cost_ns: u64,
    /// The group whose context it belongs to; none if it refers to nothing.
    pub context: Option<u64>,
    /// True if the link waits for it: nobody else may do it.
    pub is_urgent: bool,
}

/// Why a frame is sent now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SendCause {
    /// The link is free and something waits.
    #[default]
    Ready,
    /// Enough waits to fill a frame.
    Full,
    /// A packet must not be held back any longer.
    Timer,
}

/// One unit of a frame: a packet, or a block of packets that were compressed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameUnit {
    /// The packet; of a block, the first.
    pub id: PacketId,
    /// Its bytes as they are sent, without any header of the frame format.
    pub bytes: u32,
    /// Its bytes when it arrived at this port; of a block, those of all its packets.
    pub original_bytes: u32,
    /// It was compressed at this port (its compressed form is to be sent).
    pub compressed_here: bool,
    /// Why it went past the compressor; none if it was given to it, whatever came of that.
    pub bypass: Option<Bypass>,
    /// The number of packets of the block that follow the first: the next ones of
    /// [`Frame::followers`]. Zero for a single packet.
    pub followers: u32,
    /// The time that it was in this port, in nanoseconds (its sojourn time); of a block, its first
    /// packet.
    pub sojourn_ns: u64,
}

/// A packet of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FramePacket {
    /// The packet.
    pub id: PacketId,
    /// Its bytes when it arrived at this port.
    pub original_bytes: u32,
    /// The time that it was in this port, in nanoseconds.
    pub sojourn_ns: u64,
}

/// The frame that the last [`Action::Send`] is about. Its storage is reused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// The units in order.
    pub units: Vec<FrameUnit>,
    /// The packets of blocks beside their first ones, in the order of the units.
    pub followers: Vec<FramePacket>,
    /// The cost of the frame on the link, in bytes, all overhead included; if its only unit has to
    /// be cut, the cost of all the frames that it takes.
    pub link_bytes: u64,
    /// Why it is sent now.
    pub cause: SendCause,
    /// The class of deadlines whose buffer it comes from; zero where there are no classes.
    pub buffer: u8,
}
