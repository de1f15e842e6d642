//! Predicted headers: the packets of a context, each as what differs from its flow's packet before.
//!
//! After the header compression of Jacobson ("Compressing TCP/IP Headers for Low-Speed Serial Links",
//! RFC 1144) and of ROHC (RFC 5795), but for a codec that follows: fields that are as expected cost a bit of a
//! mask that is the same from packet to packet, and what can be computed is left out. Unlike
//! [`columnar`](crate::columnar) headers, which refer to packets of the same batch, these refer to
//! all before them in the context, so that they also help batches of one packet.
//!
//! Both ends have a table of [`FLOWS`] flows, which begins empty and which each packet changes in the same way.
//! `docs/wire.md`, section 9.8, describes the format. Any bytes are accepted and restored exactly; what is
//! no packet of IPv4 without options or of IPv6 is just not predicted.

mod restorer;
#[cfg(test)]
mod tests;
mod writer;

use thiserror::Error;

use crate::columnar::{STAMPED, Shape, V4, WITH_TCP, WITH_UDP, get};

pub use restorer::HeaderRestorer;
pub use writer::HeaderPredictor;

/// The number of flows that are remembered.
pub const FLOWS: usize = 64;
/// The bytes by which a packet is longer at most if nothing of it is as expected.
pub const GROWN_BYTES_MAX: usize = 8;

/// The bit of the byte for a packet's flow that says that another place follows, where it is remembered.
const MOVES: u8 = 0x80;

/// The first byte of an IPv4 header without options.
const V4_WITHOUT_OPTIONS: u8 = 0x45;

/// The reason why bytes are not packets with predicted headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PredictedError {
    /// They end before the last packet does.
    #[error("the batch ends before its last packet does")]
    Truncated,
    /// A shape that doesn't exist.
    #[error("there is no packet of shape {0:#04x}")]
    Shape(u8),
    /// A place that the table doesn't have.
    #[error("there is no flow {0:#04x}")]
    Flow(u8),
    /// A mask with fields that the packet doesn't have, or a number that is too large.
    #[error("a field that the packet does not have, or can't have")]
    Field,
    /// A packet that is shorter than its headers.
    #[error("a packet is shorter than its headers")]
    Length,
    /// The packets need more room than there is.
    #[error("the packets need more room than there is")]
    Room,
    /// Too many packets.
    #[error("more packets than a batch has")]
    Count,
}

/// A field that is predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Len,
    Id,
    Sequence,
    Acknowledgement,
    Flags,
    Window,
    Stamp,
    Echo,
    Class,
    Fragment,
    HopLimit,
    Urgent,
    UdpLen,
    /// Not one number, but protocol, addresses and ports.
    Key,
}

/// The fields in the order of the mask's bits.
const OF_TCP: &[Field] = &[
    Field::Len,
    Field::Id,
    Field::Sequence,
    Field::Acknowledgement,
    Field::Flags,
    Field::Window,
    Field::Stamp,
    Field::Echo,
    Field::Class,
    Field::Fragment,
    Field::HopLimit,
    Field::Urgent,
    Field::Key,
];
const OF_UDP: &[Field] = &[
    Field::Len,
    Field::Id,
    Field::Class,
    Field::Fragment,
    Field::HopLimit,
    Field::UdpLen,
    Field::Key,
];
const OF_OTHERS: &[Field] =
    &[Field::Len, Field::Id, Field::Class, Field::Fragment, Field::HopLimit, Field::Key];

const fn fields(shape: Shape) -> &'static [Field] {
    match shape.transport() {
        WITH_TCP => OF_TCP,
        WITH_UDP => OF_UDP,
        _ => OF_OTHERS,
    }
}

/// The form of a field that is not as expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// The value, in all its bytes.
    Value,
    /// The difference from what is expected, in all its bytes.
    Difference,
    /// The same, small ones in fewer bytes.
    Short,
}

impl Field {
    const fn form(self) -> Form {
        match self {
            Self::Len | Self::Sequence | Self::Acknowledgement | Self::Stamp | Self::Echo => {
                Form::Short
            }
            Self::Id => Form::Difference,
            _ => Form::Value,
        }
    }

    /// Returns the offset in the packet, and the size; none if the packet doesn't have the field.
    fn place(self, shape: Shape) -> Option<(usize, usize)> {
        let is_v4 = shape.version() == V4;
        let behind = shape.fixed_len();
        match self {
            Self::Len => Some((0, 2)), // not one of both versions, so that it is computed
            Self::Id => is_v4.then_some((4, 2)),
            Self::Fragment => is_v4.then_some((6, 2)),
            Self::Class => Some(if is_v4 { (1, 1) } else { (0, 4) }),
            Self::HopLimit => Some((if is_v4 { 8 } else { 7 }, 1)),
            Self::Sequence => Some((behind + 4, 4)),
            Self::Acknowledgement => Some((behind + 8, 4)),
            Self::Flags => Some((behind + 12, 2)),
            Self::Window => Some((behind + 14, 2)),
            Self::Urgent => Some((behind + 18, 2)),
            Self::Stamp => (shape.bits() & STAMPED != 0).then_some((behind + 24, 4)),
            Self::Echo => (shape.bits() & STAMPED != 0).then_some((behind + 28, 4)),
            Self::UdpLen => Some((behind + 4, 2)),
            Self::Key => Some((0, 0)),
        }
    }
}

/// Returns the parts of the key, in the order of their mask's bits: the offset in the packet, and the size.
fn key_parts(shape: Shape) -> &'static [(usize, usize)] {
    const V4_OTHERS: &[(usize, usize)] = &[(12, 4), (16, 4), (9, 1)];
    const V4_PORTS: &[(usize, usize)] = &[(12, 4), (16, 4), (20, 2), (22, 2)];
    const V6_OTHERS: &[(usize, usize)] = &[(8, 8), (16, 8), (24, 8), (32, 8), (6, 1)];
    const V6_PORTS: &[(usize, usize)] = &[(8, 8), (16, 8), (24, 8), (32, 8), (40, 2), (42, 2)];
    match (shape.version() == V4, shape.transport() == 0) {
        (true, true) => V4_OTHERS,
        (true, false) => V4_PORTS,
        (false, true) => V6_OTHERS,
        (false, false) => V6_PORTS,
    }
}

const NUMBERS: usize = 13;
/// The longest key: addresses of IPv6 and ports.
const KEY_LEN: usize = 36;

/// What is remembered of a flow: of the last packet in its place.
#[derive(Clone, Copy, Debug)]
struct Flow {
    /// By [`Field`]; of the sequence number, that behind the data.
    numbers: [u32; NUMBERS],
    /// By how much the id grows.
    step: u16,
    /// The parts of the key, one behind another.
    key: [u8; KEY_LEN],
}

impl Flow {
    const EMPTY: Self = Self { numbers: [0; NUMBERS], step: 0, key: [0; KEY_LEN] };

    fn expected(&self, field: Field) -> u32 {
        let last = self.numbers[field as usize];
        match field {
            Field::Id => u32::from((last as u16).wrapping_add(self.step)),
            _ => last,
        }
    }

    fn remember(&mut self, field: Field, value: u32) {
        let number = &mut self.numbers[field as usize];
        if field == Field::Id {
            self.step = match (value as u16).wrapping_sub(*number as u16) {
                step @ (0 | 0x100) => step,
                _ => 1,
            };
        }
        *number = value;
    }

    /// All of a packet is known: the next sequence number is that behind its data.
    fn end(&mut self, packet: &[u8], shape: Shape) {
        if shape.transport() == WITH_TCP {
            self.numbers[Field::Sequence as usize] = behind_data(packet, shape.fixed_len());
        }
    }
}

/// Returns the sequence number behind a segment's data; SYN and FIN have one of their own.
fn behind_data(packet: &[u8], start: usize) -> u32 {
    let lengths = get(packet, start + 12, 2);
    let data = packet.len().saturating_sub(start + (lengths >> 12) as usize * 4);
    get(packet, start + 4, 4).wrapping_add(data as u32).wrapping_add((lengths & 3).count_ones())
}
