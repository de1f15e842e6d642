//! Columnar headers: a block of packets rearranged so that it compresses better.
//!
//! After IPzip (Chen, Ranjan and Nucci, "IPzip: A stream-aware IP compression algorithm", DCC
//! 2008; cited by Yoshino et al., II.B): the same fields of all headers are grouped together, as
//! differences from an earlier packet of the block, and what can be computed is left out. The
//! payloads follow. Any bytes are accepted and restored exactly; bytes that are not a packet of
//! IPv4 or IPv6 are just not rearranged.
//!
//! # Format
//! ```text
//! count                          1 byte: packets in the block, 1 to 128
//! shapes                         1 byte for each packet
//! references                     1 byte for each packet: 0, or how many packets before it the
//!                                one is that its fields are differences from
//! columns                        for each field, in the order of FIELDS, the differences of all
//!                                packets that have it: first their highest bytes, then the next
//! rests                          for each packet, what belongs to no field
//! ```
//! A shape has the IP version in bits 0 and 1 (0: no packet, 1: IPv4, 2: IPv6), the transport in
//! bits 2 and 3 (0: none, 1: TCP, 2: UDP); bit 4: the IPv4 header's checksum is correct and left
//! out; bit 5: the transport's checksum is; bit 6: TCP's options are a time stamp as everybody
//! writes it (RFC 7323, appendix A). A reference is of the same version, transport and bit 6.
//! Differences are modulo the field's size, and from 0 if the reference hasn't the field. A
//! sequence number is the difference from the end of the reference's data; UDP's length is the
//! difference from the length that IP's length leaves.

#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use thiserror::Error;

use crate::checksum::{checksum_at, transport_checksum_at};
use crate::ip::{Layout, TCP, UDP, V4_LEN, V6_LEN};

/// The most packets of a block.
pub const PACKETS_MAX: usize = 128;

/// Returns the most bytes that [`columnar`] adds to a block if nothing can be left out: a count,
/// and for each packet shape, reference and length.
pub const fn grown_bytes_max(packets: usize) -> usize {
    1 + 4 * packets
}

/// The reason why bytes are not a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ColumnarError {
    /// They end before the block does.
    #[error("the block ends before its last packet does")]
    Truncated,
    /// No packets, or too many.
    #[error("a block of {0} packets")]
    Count(u8),
    /// A shape that doesn't exist.
    #[error("there is no packet of shape {0:#04x}")]
    Shape(u8),
    /// A reference to a packet that isn't there, or of another shape.
    #[error("a packet refers to one that is not there or not like it")]
    Reference,
    /// A packet that is shorter than its headers.
    #[error("a packet is shorter than its headers")]
    Length,
    /// The packets need more room than there is.
    #[error("the packets need more room than there is")]
    Room,
    /// There is something behind the last packet.
    #[error("there is something behind the last packet")]
    Rest,
}

/// The packets of a restored block, one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    lens: [u16; PACKETS_MAX],
    count: usize,
}

impl Restored {
    /// Returns the length of each packet, in bytes.
    pub fn lens(&self) -> &[u16] {
        &self.lens[..self.count]
    }

    /// No packets yet.
    pub(crate) const NONE: Self = Self { lens: [0; PACKETS_MAX], count: 0 };

    /// Appends a packet; false if there are as many as can be.
    pub(crate) fn push(&mut self, len: u16) -> bool {
        let Some(room) = self.lens.get_mut(self.count) else { return false };
        *room = len;
        self.count += 1;
        true
    }

    /// Returns the total length.
    pub fn bytes(&self) -> usize {
        self.lens().iter().map(|&len| usize::from(len)).sum()
    }

    /// Returns the packets, in the buffer to which they were restored.
    pub fn packets<'b>(&self, buffer: &'b [u8]) -> impl Iterator<Item = &'b [u8]> {
        let (this, mut rest) = (*self, buffer);
        (0..self.count).map_while(move |at| {
            let (packet, behind) = rest.split_at_checked(usize::from(this.lens[at]))?;
            rest = behind;
            Some(packet)
        })
    }
}

/// Rearranges a block. `None` if it has no packets or too many, a packet is longer than 65,535
/// bytes, or the result doesn't fit: it never takes more than [`grown_bytes_max`] more than the
/// packets.
pub fn columnar(packets: &[&[u8]], dst: &mut [u8]) -> Option<usize> {
    let count = packets.len();
    if count == 0 || count > PACKETS_MAX || packets.iter().any(|p| p.len() > usize::from(u16::MAX))
    {
        return None;
    }
    let mut shapes = [Shape(0); PACKETS_MAX];
    for (shape, packet) in shapes.iter_mut().zip(packets) {
        *shape = Shape::of(packet);
    }
    let shapes = &shapes[..count];
    let mut references = [0; PACKETS_MAX];
    for (at, reference) in references[..count].iter_mut().enumerate() {
        *reference = reference_of(at, packets, shapes);
    }
    let mut out = Out { bytes: dst, len: 0 };
    out.push(&[count as u8])?;
    shapes.iter().try_for_each(|shape| out.push(&[shape.0]))?;
    out.push(&references[..count])?;
    for field in &FIELDS {
        let column = out.len;
        let all = shapes.iter().filter(|shape| field.is_in(**shape)).count();
        out.skip(all * field.width)?;
        let having = (0..count).filter(|&at| field.is_in(shapes[at]));
        for (row, at) in having.enumerate() {
            // Fields that were left out of the reference are not there yet when this is restored.
            let reference = match usize::from(references[at]) {
                0 => None,
                back if !field.is_in(shapes[at - back]) => None,
                back => Some(packets[at - back]),
            };
            let value = field.get(packets[at], shapes[at]);
            let guess = field.guess(packets[at], reference, shapes[at]);
            let difference = value.wrapping_sub(guess).to_be_bytes();
            for (plane, byte) in difference[4 - field.width..].iter().enumerate() {
                out.bytes[column + plane * all + row] = *byte;
            }
        }
    }
    for (packet, shape) in packets.iter().zip(shapes) {
        let [options, payload] = shape.rests(packet);
        out.push(packet.get(options)?)?;
        out.push(packet.get(payload)?)?;
    }
    Some(out.len)
}

/// Restores a block: its packets, one after another, from the beginning of `dst`.
///
/// # Errors
/// If this is no block, or its packets don't fit. The content of `dst` is then meaningless.
pub fn restore(src: &[u8], dst: &mut [u8]) -> Result<Restored, ColumnarError> {
    let (&count, rest) = src.split_first().ok_or(ColumnarError::Truncated)?;
    if count == 0 || usize::from(count) > PACKETS_MAX {
        return Err(ColumnarError::Count(count));
    }
    let count = usize::from(count);
    let (shapes, rest) = rest.split_at_checked(count).ok_or(ColumnarError::Truncated)?;
    let (references, mut rest) = rest.split_at_checked(count).ok_or(ColumnarError::Truncated)?;
    check(shapes, references)?;
    let mut restored = Restored { count, ..Restored::NONE };
    let mut starts = [0; PACKETS_MAX + 1];
    for (nth, field) in FIELDS.iter().enumerate() {
        let all = shapes.iter().filter(|&&shape| field.is_in(Shape(shape))).count();
        let (column, behind) =
            rest.split_at_checked(all * field.width).ok_or(ColumnarError::Truncated)?;
        rest = behind;
        let having = (0..count).filter(|&at| field.is_in(Shape(shapes[at])));
        for (row, at) in having.enumerate() {
            let back = usize::from(references[at]);
            let planes = (0..field.width).map(|plane| column[plane * all + row]);
            let difference = planes.fold(0, |value, byte| value << 8 | u32::from(byte));
            if nth == LEN_FIELD {
                let before = if back == 0 { 0 } else { restored.lens[at - back] };
                restored.lens[at] = before.wrapping_add(difference as u16);
                continue;
            }
            let (before, packet) =
                dst.get_mut(..starts[at + 1]).ok_or(ColumnarError::Room)?.split_at_mut(starts[at]);
            let reference = match back {
                0 => None,
                _ if !field.is_in(Shape(shapes[at - back])) => None,
                _ => before.get(starts[at - back]..starts[at - back + 1]),
            };
            let shape = Shape(shapes[at]);
            let value = field.guess(packet, reference, shape).wrapping_add(difference);
            field.set(packet, shape, value);
        }
        if nth == LEN_FIELD {
            for at in 0..count {
                starts[at + 1] = starts[at] + usize::from(restored.lens[at]);
            }
            if starts[count] > dst.len() {
                return Err(ColumnarError::Room);
            }
        }
        if nth == FIRST_FIELD {
            check_lens(shapes, &starts, dst)?;
        }
    }
    for at in 0..count {
        let (packet, shape) = (&mut dst[starts[at]..starts[at + 1]], Shape(shapes[at]));
        for range in shape.rests(packet) {
            let room = packet.get_mut(range).ok_or(ColumnarError::Length)?;
            let (bytes, behind) =
                rest.split_at_checked(room.len()).ok_or(ColumnarError::Truncated)?;
            room.copy_from_slice(bytes);
            rest = behind;
        }
        shape.compute(packet);
    }
    if rest.is_empty() { Ok(restored) } else { Err(ColumnarError::Rest) }
}

fn check(shapes: &[u8], references: &[u8]) -> Result<(), ColumnarError> {
    for (at, &shape) in shapes.iter().enumerate() {
        if !Shape(shape).exists() {
            return Err(ColumnarError::Shape(shape));
        }
        let back = usize::from(references[at]);
        if back == 0 {
            continue;
        }
        let reference = at.checked_sub(back).map(|at| Shape(shapes[at]));
        if reference.is_none_or(|reference| reference.family() != Shape(shape).family()) {
            return Err(ColumnarError::Reference);
        }
    }
    Ok(())
}

/// Checks that every packet has room for its headers.
fn check_lens(shapes: &[u8], starts: &[usize], dst: &[u8]) -> Result<(), ColumnarError> {
    let fits = shapes.iter().enumerate().all(|(at, &shape)| {
        let packet = &dst[starts[at]..starts[at + 1]];
        Shape(shape).fits(packet)
    });
    if fits { Ok(()) } else { Err(ColumnarError::Length) }
}

/// The headers of a packet; see the module's documentation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape(u8);

pub(crate) const V4: u8 = 1;
const V6: u8 = 2;
pub(crate) const WITH_TCP: u8 = 1 << 2;
pub(crate) const WITH_UDP: u8 = 2 << 2;
pub(crate) const IP_SUM: u8 = 1 << 4;
pub(crate) const TRANSPORT_SUM: u8 = 1 << 5;
pub(crate) const STAMPED: u8 = 1 << 6;

const TCP_LEN: usize = 20;
const UDP_LEN: usize = 8;
/// Two bytes to skip, the option's number and length, two times.
const STAMP: [u8; 4] = [1, 1, 8, 10];
const STAMP_LEN: usize = 12;
/// The first byte of TCP's lengths and flags.
const TCP_DATA_OFFSET: usize = 12;
const IP_SUM_AT: usize = 10;

impl Shape {
    /// Returns the shape of these bits, if there is one.
    pub(crate) fn new(bits: u8) -> Option<Self> {
        Some(Self(bits)).filter(|shape| shape.exists())
    }

    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    pub(crate) fn of(packet: &[u8]) -> Self {
        let Ok(layout) = Layout::of(packet) else { return Self(0) };
        if layout.total_len != packet.len() {
            return Self(0);
        }
        let version = if layout.version == 4 { V4 } else { V6 };
        let behind_fixed = version == V4 || layout.transport == V6_LEN;
        let segment = packet.get(layout.transport..).unwrap_or_default();
        let transport = match layout.protocol {
            _ if layout.later_fragment || !behind_fixed => 0,
            TCP if segment.len() >= TCP_LEN => WITH_TCP,
            UDP if segment.len() >= UDP_LEN => WITH_UDP,
            _ => 0,
        };
        let mut shape = Self(version | transport);
        if transport == WITH_TCP
            && segment[TCP_DATA_OFFSET] >> 4 == 8
            && segment.get(TCP_LEN..TCP_LEN + 4) == Some(&STAMP)
            && segment.len() >= TCP_LEN + STAMP_LEN
        {
            shape.0 |= STAMPED;
        }
        if version == V4 && shape.ip_sum(packet) == Some(word(packet, IP_SUM_AT) as u16) {
            shape.0 |= IP_SUM;
        }
        if let Some((at, sum)) = shape.transport_sum(packet)
            && word(packet, at) as u16 == sum
        {
            shape.0 |= TRANSPORT_SUM;
        }
        shape
    }

    fn exists(self) -> bool {
        let Self(bits) = self;
        let (version, transport) = (self.version(), self.transport());
        match version {
            0 => bits == 0,
            V4 | V6 => {
                bits & 0x80 == 0
                    && transport != 0x0c
                    && (version == V4 || bits & IP_SUM == 0)
                    && (transport != 0 || bits & TRANSPORT_SUM == 0)
                    && (transport == WITH_TCP || bits & STAMPED == 0)
            }
            _ => false,
        }
    }

    pub(crate) const fn version(self) -> u8 {
        self.0 & 0x03
    }

    pub(crate) const fn transport(self) -> u8 {
        self.0 & 0x0c
    }

    /// Returns the bits that must be equal for two packets to be compared.
    pub(crate) const fn family(self) -> u8 {
        self.0 & (0x0f | STAMPED)
    }

    /// Returns the offset of the transport's header, as the IP header says.
    fn transport_at(self, packet: &[u8]) -> usize {
        match self.version() {
            V4 => packet.first().map_or(0, |first| usize::from(first & 0x0f) * 4),
            V6 => V6_LEN,
            _ => 0,
        }
    }

    /// Returns the length of the IP header, without options.
    pub(crate) const fn fixed_len(self) -> usize {
        match self.version() {
            V4 => V4_LEN,
            V6 => V6_LEN,
            _ => 0,
        }
    }

    /// Returns the length of the fields behind the IP header.
    pub(crate) const fn transport_len(self) -> usize {
        match self.transport() {
            WITH_TCP if self.0 & STAMPED != 0 => TCP_LEN + STAMP_LEN,
            WITH_TCP => TCP_LEN,
            WITH_UDP => UDP_LEN,
            _ => 0,
        }
    }

    /// Returns the offset at which the fields end.
    fn fields_end(self, packet: &[u8]) -> usize {
        self.transport_at(packet) + self.transport_len()
    }

    fn fits(self, packet: &[u8]) -> bool {
        let options_end = self.transport_at(packet);
        let fixed = if self.version() == V4 { V4_LEN } else { options_end };
        fixed <= options_end && self.fields_end(packet) <= packet.len()
    }

    /// Returns the parts that belong to no field: the options of IPv4, and everything behind the
    /// headers.
    fn rests(self, packet: &[u8]) -> [std::ops::Range<usize>; 2] {
        let options = match self.version() {
            V4 => V4_LEN..self.transport_at(packet),
            _ => 0..0,
        };
        [options, self.fields_end(packet)..packet.len()]
    }

    fn ip_sum(self, packet: &[u8]) -> Option<u16> {
        packet.get(..self.transport_at(packet)).map(|header| checksum_at(header, IP_SUM_AT))
    }

    /// Returns the offset of the transport's checksum, and its correct value.
    fn transport_sum(self, packet: &[u8]) -> Option<(usize, u16)> {
        let (protocol, at) = match self.transport() {
            WITH_TCP => (TCP, 16),
            WITH_UDP => (UDP, 6),
            _ => return None,
        };
        let (source, destination): (IpAddr, IpAddr) = if self.version() == V4 {
            let address = |at| packet.get(at..)?.first_chunk::<4>().map(|a| Ipv4Addr::from(*a));
            (address(12)?.into(), address(16)?.into())
        } else {
            let address = |at| packet.get(at..)?.first_chunk::<16>().map(|a| Ipv6Addr::from(*a));
            (address(8)?.into(), address(24)?.into())
        };
        let start = self.transport_at(packet);
        let segment = packet.get(start..)?;
        Some((start + at, transport_checksum_at(source, destination, protocol, segment, at)))
    }

    /// Computes the fields that were left out, once all others are restored.
    pub(crate) fn compute(self, packet: &mut [u8]) {
        let len = packet.len();
        match self.version() {
            V4 => put(packet, 2, 2, len as u32),
            V6 => put(packet, 4, 2, len.wrapping_sub(V6_LEN) as u32),
            _ => {}
        }
        if self.0 & STAMPED != 0 {
            let at = self.transport_at(packet) + TCP_LEN;
            if let Some(options) = packet.get_mut(at..at + STAMP.len()) {
                options.copy_from_slice(&STAMP);
            }
        }
        if self.0 & IP_SUM != 0
            && let Some(sum) = self.ip_sum(packet)
        {
            put(packet, IP_SUM_AT, 2, u32::from(sum));
        }
        if self.0 & TRANSPORT_SUM != 0
            && let Some((at, sum)) = self.transport_sum(packet)
        {
            put(packet, at, 2, u32::from(sum));
        }
    }
}

/// Returns the nearest earlier packet of the same flow; otherwise of the same hosts; otherwise of
/// the same shape.
fn reference_of(at: usize, packets: &[&[u8]], shapes: &[Shape]) -> u8 {
    let (packet, shape) = (packets[at], shapes[at]);
    if shape.version() == 0 {
        return 0;
    }
    let addresses = if shape.version() == V4 { 12..20 } else { 8..40 };
    let ports = |packet: &[u8]| {
        let start = shape.transport_at(packet);
        if shape.transport() == 0 { 0 } else { get(packet, start, 4) }
    };
    let (mut like, mut hosts) = (0, 0);
    for back in 1..=at {
        let (other, other_shape) = (packets[at - back], shapes[at - back]);
        if other_shape.family() != shape.family() {
            continue;
        }
        like = if like == 0 { back } else { like };
        if other.get(addresses.clone()) != packet.get(addresses.clone()) {
            continue;
        }
        hosts = if hosts == 0 { back } else { hosts };
        if ports(other) == ports(packet) {
            return back as u8;
        }
    }
    if hosts == 0 { like as u8 } else { hosts as u8 }
}

/// A field of a header.
struct Field {
    /// The packets that have it: those whose shape has this IP version (0: any), this transport (0:
    /// any), the one bit and not the other.
    version: u8,
    transport: u8,
    with: u8,
    without: u8,
    /// The offset from the beginning of the packet or of the transport's header.
    at: usize,
    width: usize,
    guess: Guess,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Guess {
    /// The value of the reference.
    Same,
    /// The packet's length, which is no field of all packets.
    PacketLength,
    /// The end of the reference's data.
    Sequence,
    /// The remaining length by the IP header.
    Remaining,
}

const fn ip(version: u8, at: usize, width: usize) -> Field {
    Field { version, transport: 0, with: 0, without: 0, at, width, guess: Guess::Same }
}

const fn transport(transport: u8, at: usize, width: usize) -> Field {
    Field { version: 0, transport, with: 0, without: 0, at, width, guess: Guess::Same }
}

const LEN_FIELD: usize = 0;
const FIRST_FIELD: usize = 1;

/// All fields, in the order of their columns. Fields on which others depend come first.
const FIELDS: [Field; 33] = [
    Field { guess: Guess::PacketLength, ..ip(0, 0, 2) },
    ip(V4, 0, 1),
    ip(V4, 1, 1),
    ip(V4, 4, 2),
    ip(V4, 6, 2),
    ip(V4, 8, 1),
    ip(V4, 9, 1),
    Field { without: IP_SUM, ..ip(V4, IP_SUM_AT, 2) },
    ip(V4, 12, 4),
    ip(V4, 16, 4),
    ip(V6, 0, 4),
    ip(V6, 6, 1),
    ip(V6, 7, 1),
    ip(V6, 8, 4),
    ip(V6, 12, 4),
    ip(V6, 16, 4),
    ip(V6, 20, 4),
    ip(V6, 24, 4),
    ip(V6, 28, 4),
    ip(V6, 32, 4),
    ip(V6, 36, 4),
    transport(WITH_TCP, 0, 4),
    transport(WITH_TCP, TCP_DATA_OFFSET, 2),
    Field { guess: Guess::Sequence, ..transport(WITH_TCP, 4, 4) },
    transport(WITH_TCP, 8, 4),
    transport(WITH_TCP, 14, 2),
    Field { without: TRANSPORT_SUM, ..transport(WITH_TCP, 16, 2) },
    transport(WITH_TCP, 18, 2),
    Field { with: STAMPED, ..transport(WITH_TCP, 24, 4) },
    Field { with: STAMPED, ..transport(WITH_TCP, 28, 4) },
    transport(WITH_UDP, 0, 4),
    Field { guess: Guess::Remaining, ..transport(WITH_UDP, 4, 2) },
    Field { without: TRANSPORT_SUM, ..transport(WITH_UDP, 6, 2) },
];

impl Field {
    fn is_in(&self, shape: Shape) -> bool {
        (self.version == 0 || self.version == shape.version())
            && (self.transport == 0 || self.transport == shape.transport())
            && shape.0 & self.with == self.with
            && shape.0 & self.without == 0
    }

    fn position(&self, packet: &[u8], shape: Shape) -> usize {
        self.at + if self.transport == 0 { 0 } else { shape.transport_at(packet) }
    }

    fn get(&self, packet: &[u8], shape: Shape) -> u32 {
        match self.guess {
            Guess::PacketLength => packet.len() as u32,
            _ => get(packet, self.position(packet, shape), self.width),
        }
    }

    fn set(&self, packet: &mut [u8], shape: Shape, value: u32) {
        put(packet, self.position(packet, shape), self.width, value);
    }

    /// Predicts the value. Of the packet itself, only the fields of earlier columns are known.
    fn guess(&self, packet: &[u8], reference: Option<&[u8]>, shape: Shape) -> u32 {
        if self.guess == Guess::Remaining {
            return packet.len().saturating_sub(shape.transport_at(packet)) as u32;
        }
        let Some(reference) = reference else { return 0 };
        let same = self.get(reference, shape);
        if self.guess != Guess::Sequence {
            return same;
        }
        let start = shape.transport_at(reference);
        let lengths = get(reference, start + TCP_DATA_OFFSET, 2);
        let data = reference.len().saturating_sub(start + (lengths >> 12) as usize * 4);
        // SYN and FIN have a number of their own.
        same.wrapping_add(data as u32).wrapping_add((lengths & 3).count_ones())
    }
}

/// Returns up to four bytes as a number; zero if they are not all there.
pub(crate) fn get(packet: &[u8], at: usize, width: usize) -> u32 {
    let bytes = packet.get(at..at + width).unwrap_or_default();
    bytes.iter().fold(0, |value, &byte| value << 8 | u32::from(byte))
}

fn word(packet: &[u8], at: usize) -> u32 {
    get(packet, at, 2)
}

pub(crate) fn put(packet: &mut [u8], at: usize, width: usize, value: u32) {
    if let Some(room) = packet.get_mut(at..at + width) {
        room.copy_from_slice(&value.to_be_bytes()[4 - width..]);
    }
}

/// A buffer that is being filled.
struct Out<'d> {
    bytes: &'d mut [u8],
    len: usize,
}

impl Out<'_> {
    fn push(&mut self, bytes: &[u8]) -> Option<()> {
        let start = self.len;
        self.skip(bytes.len())?;
        self.bytes[start..self.len].copy_from_slice(bytes);
        Some(())
    }

    /// Reserves room that is filled later.
    fn skip(&mut self, len: usize) -> Option<()> {
        self.len = self.len.checked_add(len).filter(|&end| end <= self.bytes.len())?;
        Some(())
    }
}
