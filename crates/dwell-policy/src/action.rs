//! What the core asks of its driver.

use crate::account::DropReason;
use crate::packet::PacketId;

/// Something for the driver to do, from [`Port::poll`](crate::Port::poll).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Press this packet and report by [`Port::pressed`](crate::Port::pressed). At most one
    /// packet of a port is in the press at any time.
    Press(PacketId),
    /// Put the units in [`Port::frame`](crate::Port::frame) on the link as one datagram, and
    /// call [`Port::link_ready`](crate::Port::link_ready) when the link can take the next.
    Send,
    /// Forget this packet: it was dropped for the reason given.
    Drop(PacketId, DropReason),
}

/// One unit of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameUnit {
    /// The packet.
    pub id: PacketId,
    /// Its bytes as they are sent, without any header of the frame format.
    pub bytes: u32,
    /// Its bytes when it arrived at this port.
    pub original_bytes: u32,
    /// It was pressed at this port (its pressed form is to be sent).
    pub pressed_here: bool,
    /// How long it was in this port, in nanoseconds (its sojourn time).
    pub sojourn_ns: u64,
}

/// The frame that the last [`Action::Send`] is about. Its storage is reused.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    /// The units in order.
    pub units: Vec<FrameUnit>,
    /// What the frame costs on the link, in bytes, all overhead included.
    pub link_bytes: u64,
}
