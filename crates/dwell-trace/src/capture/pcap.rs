//! The format of libpcap (draft-ietf-opsawg-pcap).

use std::io::Read;

use super::buffer::Buffer;
use super::{Broken, Damage, Found, LinkType, OpenError, Order, PACKET_BYTES_MAX};

const HEADER_BYTES: usize = 24;
const RECORD_BYTES: usize = 16;
/// Alexey Kuznetsov's variant has an interface, a protocol and a packet type behind it.
const RECORD_BYTES_MODIFIED: usize = 24;

const MAGIC_MICRO: u32 = 0xa1b2_c3d4;
const MAGIC_NANO: u32 = 0xa1b2_3c4d;
const MAGIC_MODIFIED: u32 = 0xa1b2_cd34;

/// The header's settings for the records.
pub(super) struct Pcap {
    order: Order,
    /// Nanoseconds per unit of the fraction of a second.
    fraction_ns: u64,
    record_bytes: usize,
    /// The order of the two lengths: before version 2.3 they were swapped; in 2.3 some were.
    lengths: Lengths,
    link: LinkType,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Lengths {
    CapturedFirst,
    WireFirst,
    SmallerIsCaptured,
}

impl Pcap {
    /// Reads the file's header.
    pub(super) fn open<R: Read>(magic: [u8; 4], buffer: &mut Buffer<R>) -> Result<Self, OpenError> {
        let known =
            [(Order::Big, u32::from_be_bytes(magic)), (Order::Little, u32::from_le_bytes(magic))];
        let known = known
            .into_iter()
            .find(|(_, magic)| [MAGIC_MICRO, MAGIC_NANO, MAGIC_MODIFIED].contains(magic));
        let Some((order, kind)) = known else { return Err(OpenError::Unknown(magic)) };
        let Some(header) = buffer.peek_array::<HEADER_BYTES>() else {
            return Err(buffer.take_error().map_or(OpenError::Cut, OpenError::Io));
        };
        let version = (order.u16(&header, 4), order.u16(&header, 6));
        let lengths = match version {
            (2, 0..=2) => Lengths::WireFirst,
            (2, 3) => Lengths::SmallerIsCaptured,
            (2, _) => Lengths::CapturedFirst,
            (major, minor) => return Err(OpenError::Version(major, minor)),
        };
        buffer.consume(HEADER_BYTES);
        Ok(Self {
            order,
            fraction_ns: if kind == MAGIC_NANO { 1 } else { 1000 },
            record_bytes: if kind == MAGIC_MODIFIED { RECORD_BYTES_MODIFIED } else { RECORD_BYTES },
            lengths,
            // The upper bits are about checksums at the end of frames.
            link: LinkType(order.u32(&header, 20) as u16),
        })
    }

    /// Reads the next record. The header's snapshot length is not trusted: some write 0, and others
    /// wrong lengths.
    #[inline]
    pub(super) fn next<R: Read>(
        &mut self,
        buffer: &mut Buffer<R>,
    ) -> Result<Option<Found>, Broken> {
        let Some(header) = buffer.peek_array::<RECORD_BYTES>() else {
            return match buffer.available() {
                0 => buffer_end(buffer),
                _ => Err(Damage::Cut.into()),
            };
        };
        let (seconds, fraction) = (self.order.u32(&header, 0), self.order.u32(&header, 4));
        let (first, second) = (self.order.u32(&header, 8), self.order.u32(&header, 12));
        let (captured_len, wire_len) = match self.lengths {
            Lengths::CapturedFirst => (first, second),
            Lengths::WireFirst => (second, first),
            Lengths::SmallerIsCaptured => (first.min(second), first.max(second)),
        };
        if captured_len as usize > PACKET_BYTES_MAX {
            return Err(Damage::PacketLength(captured_len).into());
        }
        let all = self.record_bytes + captured_len as usize;
        if buffer.peek(all).is_none() {
            return Err(Damage::Cut.into());
        }
        buffer.consume(all);
        let timestamp_ns =
            u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * self.fraction_ns;
        Ok(Some(Found {
            timestamp_ns: Some(timestamp_ns),
            link: self.link,
            mark: None,
            wire_len,
            data_len: captured_len as usize,
            behind: 0,
        }))
    }
}

/// Returns the end of the capture, or the error that kept the stream from being read on.
pub(super) fn buffer_end<R: Read>(buffer: &mut Buffer<R>) -> Result<Option<Found>, Broken> {
    match buffer.take_error() {
        Some(error) => Err(Damage::Io(error.to_string()).into()),
        None => Ok(None),
    }
}
