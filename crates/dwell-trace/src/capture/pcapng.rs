//! The format pcapng (draft-ietf-opsawg-pcapng): sections, their interfaces and packets.

use std::io::Read;

use super::buffer::{BUFFER_BYTES, Buffer};
use super::pcap::buffer_end;
use super::{
    Broken, Damage, Found, INTERFACES_MAX, LinkType, Mark, OpenError, Order, PACKET_BYTES_MAX,
};

/// The type of a section's header reads the same in both byte orders.
pub(super) const MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

const SECTION: u32 = 0x0a0d_0d0a;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const INTERFACE: u32 = 1;
/// An obsolete kind of block for packets.
const PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

const HEAD_BYTES: usize = 8;
const TAIL_BYTES: usize = 4;
/// Fixed fields of an enhanced packet (and of an obsolete one) behind the head.
const PACKET_FIELDS_BYTES: usize = 20;
/// Type, length, section length and version of a section's header.
const SECTION_BYTES: usize = 24;

const OPTION_END: u16 = 0;
/// The option of an enhanced packet with its direction, and more.
const OPTION_FLAGS: u16 = 2;
const OPTION_TSRESOL: u16 = 9;
const OPTION_TSOFFSET: u16 = 14;

/// The present section.
pub(super) struct Pcapng {
    order: Order,
    interfaces: Vec<Interface>,
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    link: LinkType,
    /// The longest captured part of a packet; 0 if there is no limit.
    snap_len: u32,
    resolution: Resolution,
    offset_s: i64,
}

/// The unit of time.
#[derive(Clone, Copy, Debug)]
enum Resolution {
    /// A unit of this many nanoseconds, for the usual ones.
    Nanos(u64),
    /// This many units are a second.
    PerSecond(u128),
    /// Finer than any capture needs.
    Unknown,
}

/// A block that is wholly in the buffer, or will be skipped.
#[derive(Clone, Copy)]
struct Block {
    kind: u32,
    /// The length written in the block.
    len: u32,
    /// The length with its padding, which some writers forget to count.
    padded: usize,
}

impl Pcapng {
    /// Reads the header of the first section.
    pub(super) fn open<R: Read>(buffer: &mut Buffer<R>) -> Result<Self, OpenError> {
        let mut this = Self { order: Order::Little, interfaces: Vec::new() };
        this.begin_section(buffer)?;
        Ok(this)
    }

    /// Reads the packet of the next block that has one.
    pub(super) fn next<R: Read>(
        &mut self,
        buffer: &mut Buffer<R>,
    ) -> Result<Option<Found>, Broken> {
        loop {
            let at_byte = Some(buffer.position());
            match self.block(buffer) {
                Ok(NextBlock::Packet(found)) => return Ok(Some(found)),
                Ok(NextBlock::Other) => {}
                Ok(NextBlock::End) => return buffer_end(buffer),
                Err(what) => return Err(Broken { at_byte, what }),
            }
        }
    }

    fn block<R: Read>(&mut self, buffer: &mut Buffer<R>) -> Result<NextBlock, Damage> {
        let Some(head) = buffer.peek_array::<HEAD_BYTES>() else {
            return if buffer.available() == 0 { Ok(NextBlock::End) } else { Err(Damage::Cut) };
        };
        let kind = self.order.u32(&head, 0);
        if kind == SECTION {
            return match self.begin_section(buffer) {
                Ok(()) => Ok(NextBlock::Other),
                Err(OpenError::Cut) => Err(Damage::Cut),
                Err(OpenError::Io(error)) => Err(Damage::Io(error.to_string())),
                Err(_) => Err(Damage::Section),
            };
        }
        let len = self.order.u32(&head, 4);
        let block = Block { kind, len, padded: (len as usize).next_multiple_of(4) };
        if block.padded < HEAD_BYTES + TAIL_BYTES {
            return Err(Damage::BlockLength(len));
        }
        match kind {
            ENHANCED_PACKET | PACKET => self.packet(block, buffer),
            SIMPLE_PACKET => self.simple_packet(block, buffer),
            INTERFACE => self.interface(block, buffer),
            _ => skip(block, buffer),
        }
    }

    /// Reads a section's header, which resets byte order and interfaces.
    fn begin_section<R: Read>(&mut self, buffer: &mut Buffer<R>) -> Result<(), OpenError> {
        let Some(header) = buffer.peek_array::<SECTION_BYTES>() else {
            return Err(buffer.take_error().map_or(OpenError::Cut, OpenError::Io));
        };
        let order = [Order::Big, Order::Little]
            .into_iter()
            .find(|order| order.u32(&header, 8) == BYTE_ORDER_MAGIC);
        let Some(order) = order else { return Err(OpenError::Unknown(MAGIC)) };
        let version = (order.u16(&header, 12), order.u16(&header, 14));
        // Minor version 2 is the same as 0, and forbidden.
        if version.0 != 1 {
            return Err(OpenError::Version(version.0, version.1));
        }
        let len = u64::from(order.u32(&header, 4)).next_multiple_of(4);
        if len < (SECTION_BYTES + TAIL_BYTES) as u64 || !buffer.skip(len) {
            return Err(buffer.take_error().map_or(OpenError::Cut, OpenError::Io));
        }
        self.order = order;
        self.interfaces.clear();
        Ok(())
    }

    #[inline]
    fn packet<R: Read>(&self, block: Block, buffer: &mut Buffer<R>) -> Result<NextBlock, Damage> {
        const FIELDS: usize = HEAD_BYTES + PACKET_FIELDS_BYTES;
        self.bring(block, FIELDS, buffer)?;
        let header = buffer.peek_array::<FIELDS>().ok_or(Damage::Cut)?;
        let id = match block.kind {
            // The other half counts what was dropped.
            PACKET => u32::from(self.order.u16(&header, 8)),
            _ => self.order.u32(&header, 8),
        };
        let interface = self.interfaces.get(id as usize).ok_or(Damage::Interface(id))?;
        let ticks =
            u64::from(self.order.u32(&header, 12)) << 32 | u64::from(self.order.u32(&header, 16));
        let captured_len = self.order.u32(&header, 20);
        let data_len = captured_len as usize;
        if data_len > PACKET_BYTES_MAX {
            return Err(Damage::PacketLength(captured_len));
        }
        let behind = block
            .padded
            .checked_sub(FIELDS + data_len)
            .filter(|&behind| behind >= TAIL_BYTES)
            .ok_or(Damage::BlockLength(block.len))?;
        let mark = match block.kind {
            // Options, if there are any, are behind the padded data.
            ENHANCED_PACKET if behind >= TAIL_BYTES + 8 => {
                let bytes = buffer.peek(block.padded).unwrap_or_default();
                let options = FIELDS + data_len.next_multiple_of(4)..block.padded - TAIL_BYTES;
                mark(self.order, bytes.get(options).unwrap_or_default())
            }
            _ => None,
        };
        buffer.consume(block.padded);
        Ok(NextBlock::Packet(Found {
            timestamp_ns: interface.nanoseconds(ticks),
            link: interface.link,
            mark,
            wire_len: self.order.u32(&header, 24),
            data_len,
            behind,
        }))
    }

    fn simple_packet<R: Read>(
        &self,
        block: Block,
        buffer: &mut Buffer<R>,
    ) -> Result<NextBlock, Damage> {
        const FIELDS: usize = HEAD_BYTES + 4;
        self.bring(block, FIELDS, buffer)?;
        let header = buffer.peek_array::<FIELDS>().ok_or(Damage::Cut)?;
        let interface = self.interfaces.first().ok_or(Damage::Interface(0))?;
        let wire_len = self.order.u32(&header, 8);
        let limit = if interface.snap_len == 0 { u32::MAX } else { interface.snap_len };
        // It doesn't say how much was captured: the whole packet, up to the limit.
        let room = (block.len as usize).saturating_sub(FIELDS + TAIL_BYTES);
        let data_len = room.min(wire_len.min(limit) as usize);
        let behind = block.padded - FIELDS - data_len;
        buffer.consume(block.padded);
        Ok(NextBlock::Packet(Found {
            timestamp_ns: None,
            link: interface.link,
            mark: None,
            wire_len,
            data_len,
            behind,
        }))
    }

    fn interface<R: Read>(
        &mut self,
        block: Block,
        buffer: &mut Buffer<R>,
    ) -> Result<NextBlock, Damage> {
        const FIELDS: usize = HEAD_BYTES + 8;
        self.bring(block, FIELDS, buffer)?;
        if self.interfaces.len() >= INTERFACES_MAX {
            return Err(Damage::Interfaces);
        }
        let order = self.order;
        let bytes = buffer.peek(block.padded).ok_or(Damage::Cut)?;
        let header: &[u8; FIELDS] = bytes.first_chunk().ok_or(Damage::Cut)?;
        let mut interface = Interface {
            link: LinkType(order.u16(header, 8)),
            snap_len: order.u32(header, 12),
            resolution: Resolution::Nanos(1000),
            offset_s: 0,
        };
        let options = bytes.get(FIELDS..block.padded - TAIL_BYTES).unwrap_or_default();
        interface.read_options(order, options);
        self.interfaces.push(interface);
        buffer.consume(block.padded);
        Ok(NextBlock::Other)
    }

    /// Ensures that a block of at least `fields` bytes is in the buffer, and is whole.
    #[inline]
    fn bring<R: Read>(
        &self,
        block: Block,
        fields: usize,
        buffer: &mut Buffer<R>,
    ) -> Result<(), Damage> {
        if block.padded > BUFFER_BYTES || block.padded < fields + TAIL_BYTES {
            return Err(Damage::BlockLength(block.len));
        }
        let bytes = buffer.peek(block.padded).ok_or(Damage::Cut)?;
        let tail = bytes.last_chunk::<TAIL_BYTES>().ok_or(Damage::Cut)?;
        if self.order.u32(tail, 0) == block.len {
            Ok(())
        } else {
            Err(Damage::BlockLength(block.len))
        }
    }
}

/// Returns the direction in the options of an enhanced packet.
fn mark(order: Order, mut options: &[u8]) -> Option<Mark> {
    while let Some((head, rest)) = options.split_first_chunk::<4>() {
        let (code, len) = (order.u16(head, 0), usize::from(order.u16(head, 2)));
        match (code, rest.first_chunk::<4>()) {
            (OPTION_END, _) => return None,
            (OPTION_FLAGS, Some(flags)) if len == 4 => {
                return match order.u32(flags, 0) & 3 {
                    1 => Some(Mark::In),
                    2 => Some(Mark::Out),
                    _ => None,
                };
            }
            _ => options = rest.get(len.next_multiple_of(4)..)?,
        }
    }
    None
}

enum NextBlock {
    Packet(Found),
    Other,
    End,
}

/// Skips a block of another kind, which may be of any length.
fn skip<R: Read>(block: Block, buffer: &mut Buffer<R>) -> Result<NextBlock, Damage> {
    if buffer.skip(block.padded as u64) { Ok(NextBlock::Other) } else { Err(Damage::Cut) }
}

impl Interface {
    fn read_options(&mut self, order: Order, mut options: &[u8]) {
        while let Some((head, rest)) = options.split_first_chunk::<4>() {
            let (code, len) = (order.u16(head, 0), usize::from(order.u16(head, 2)));
            let Some(value) = rest.get(..len) else { return };
            match code {
                OPTION_END => return,
                OPTION_TSRESOL => {
                    self.resolution =
                        value.first().map_or(self.resolution, |&byte| Resolution::of(byte));
                }
                OPTION_TSOFFSET => {
                    self.offset_s = value.first_chunk().map_or(0, |bytes: &[u8; 8]| match order {
                        Order::Big => i64::from_be_bytes(*bytes),
                        Order::Little => i64::from_le_bytes(*bytes),
                    });
                }
                _ => {}
            }
            options = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        }
    }

    #[inline]
    fn nanoseconds(&self, ticks: u64) -> Option<u64> {
        let since = match self.resolution {
            Resolution::Nanos(nanos) => ticks.checked_mul(nanos)?,
            Resolution::PerSecond(units) => {
                u64::try_from(u128::from(ticks) * 1_000_000_000 / units).ok()?
            }
            Resolution::Unknown => return None,
        };
        if self.offset_s == 0 {
            return Some(since);
        }
        u64::try_from(i128::from(since) + i128::from(self.offset_s) * 1_000_000_000).ok()
    }
}

impl Resolution {
    fn of(byte: u8) -> Self {
        let exponent = u32::from(byte & 0x7f);
        let base = if byte & 0x80 == 0 { 10u128 } else { 2 };
        match base.checked_pow(exponent) {
            Some(units) if 1_000_000_000 % units == 0 => Self::Nanos(1_000_000_000 / units as u64),
            Some(units) => Self::PerSecond(units),
            None => Self::Unknown,
        }
    }
}
