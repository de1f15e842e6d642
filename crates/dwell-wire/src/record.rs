//! Records, of which a body consists (`docs/wire.md` sections 5 and 6).

use crate::block::{BLOCK_HEADER_LEN, Block, FRAGMENT_HEADER_LEN, Fragment};
use crate::carried::{Carried, carried_extra_len};
use crate::context::ContextRecord;
use crate::control::{CONTROL_BODY_MAX, Control};
use crate::error::{Full, WireError};
use crate::header::{COMPRESSED_HEADER_LEN, RECORD_HEADER_LEN};
use crate::reader::Reader;

/// The record type of a raw packet.
pub const TYPE_RAW: u8 = 1;
/// The record type of a compressed packet.
pub const TYPE_COMPRESSED: u8 = 2;
/// The record type of a control message.
pub const TYPE_CONTROL: u8 = 3;
/// The record type of a block.
pub const TYPE_BLOCK: u8 = 4;
/// The record type of a fragment.
pub const TYPE_FRAGMENT: u8 = 5;
/// The record type that marks a datagram as retransmitted.
pub const TYPE_RESENT: u8 = 6;
/// The record type of a packet or block that is forwarded without decompression.
pub const TYPE_CARRIED: u8 = 8;
/// The record type of what goes through a context.
pub const TYPE_CONTEXT: u8 = 9;

/// The length of the record that marks a datagram as retransmitted.
pub const RESENT_RECORD_LEN: usize = RECORD_HEADER_LEN + 4;

/// The codec id of an LZ4 block.
pub const CODEC_LZ4: u8 = 1;
/// Codec id: the content of one zstd compressed block (docs/wire.md, section 6).
pub const CODEC_ZSTD: u8 = 2;
/// The codec id of raw deflate (RFC 1951).
pub const CODEC_DEFLATE: u8 = 3;
/// The codec id of LZO1X.
pub const CODEC_LZO: u8 = 4;

/// The longest body whose length a record header can name; a longer one is written with the
/// length 0 and reaches to the end of the datagram.
pub const RECORD_BODY_NAMED_MAX: usize = 0x0fff;

/// The most packets in a block.
pub const BLOCK_PACKETS_MAX: usize = 128;
/// The number of packets that the records of a datagram may hold beyond one for each of their
/// bytes.
const PACKETS_SPARE: usize = BLOCK_PACKETS_MAX;

/// Returns the most packets in the records of a datagram that have `body_len` bytes together.
///
/// Every packet costs a receiver about the same, however well it was compressed: so the cost of a
/// datagram is bounded by the cost of sending it (`docs/wire.md` section 5.1).
pub const fn packets_max(body_len: usize) -> usize {
    PACKETS_SPARE + body_len
}

/// Returns the bytes that a raw packet of `packet_len` bytes takes in a body.
pub const fn raw_record_len(packet_len: usize) -> usize {
    RECORD_HEADER_LEN + packet_len
}

/// Returns the bytes that a packet compressed to `data_len` bytes takes in a body.
pub const fn compressed_record_len(data_len: usize) -> usize {
    RECORD_HEADER_LEN + COMPRESSED_HEADER_LEN + data_len
}

/// Returns the bytes that a block compressed to `data_len` bytes takes in a body, or in its
/// fragments.
pub const fn block_record_len(data_len: usize) -> usize {
    RECORD_HEADER_LEN + BLOCK_HEADER_LEN + data_len
}

/// Returns the bytes that a carried unit takes in a body, or in its fragments.
pub const fn carried_record_len(carried: &Carried<'_>) -> usize {
    carried_extra_len(&carried.label) + compressed_record_len(carried.data().0.len())
}

/// Returns the bytes that a fragment of `data_len` bytes takes in a body.
pub const fn fragment_record_len(data_len: usize) -> usize {
    RECORD_HEADER_LEN + FRAGMENT_HEADER_LEN + data_len
}

/// A packet in its compressed form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compressed<'a> {
    /// The codec's id, 0 to 15; not checked here against those that exist.
    pub codec: u8,
    /// The epoch of the dictionary, 1 to 15; 0 for none.
    pub epoch: u8,
    /// The length of the packet before compression. Always more than `data` has; the output of a
    /// decoder must have exactly this length, and never exceed it.
    pub original_len: u16,
    /// The compressed bytes, at least one.
    pub data: &'a [u8],
}

impl<'a> Compressed<'a> {
    pub(crate) fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut rest = Reader(body);
        let coding = rest.u8().ok_or(WireError::Truncated)?;
        let original_len = rest.u16().ok_or(WireError::Truncated)?;
        let data = rest.0;
        if !is_compression(original_len, data) {
            return Err(WireError::CompressedLength);
        }
        Ok(Self { codec: coding >> 4, epoch: coding & 0x0f, original_len, data })
    }

    pub(crate) fn header(&self) -> [u8; COMPRESSED_HEADER_LEN] {
        let [high, low] = self.original_len.to_be_bytes();
        [self.codec << 4 | self.epoch & 0x0f, high, low]
    }
}

/// Returns true if this is a result that may be sent: not empty, and smaller than the original.
pub(crate) fn is_compression(original_len: u16, data: &[u8]) -> bool {
    !data.is_empty() && data.len() < usize::from(original_len)
}

/// One record of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// An uncompressed IP packet, at least one byte.
    Raw(&'a [u8]),
    /// A compressed IP packet.
    Compressed(Compressed<'a>),
    /// A control message.
    Control(Control),
    /// Packets that were compressed together.
    Block(Block<'a>),
    /// A part of a record that is longer than a datagram.
    Fragment(Fragment<'a>),
    /// The records that follow are those of an earlier datagram, retransmitted.
    Resent {
        /// The low half of that datagram's sequence number.
        sequence_low: u32,
    },
    /// A compressed packet or block for another node than the next one.
    Carried(Carried<'a>),
    /// A batch or a raw packet of a context.
    Context(ContextRecord<'a>),
    /// A record that this version does not implement: counted and skipped.
    Skipped {
        /// The type, 7 or 10 to 15; or 9, with flags that this version does not know.
        record_type: u8,
        /// Bytes of its body.
        len: usize,
    },
}

impl Record<'_> {
    /// Returns true if it holds packets, or a part of one that does.
    pub const fn has_packets(&self) -> bool {
        match self {
            Self::Raw(_) | Self::Compressed(_) | Self::Block(_) => true,
            Self::Fragment(_) | Self::Carried(_) | Self::Context(_) => true,
            Self::Control(_) | Self::Resent { .. } | Self::Skipped { .. } => false,
        }
    }

    /// Returns true if it is a block whose sender holds the datagram for retransmission, or part
    /// of a context: senders hold the datagrams of all of these.
    pub const fn is_kept(&self) -> bool {
        match self {
            Self::Context(_) => true,
            Self::Block(block) => block.is_kept(),
            Self::Carried(carried) => carried.is_kept(),
            _ => false,
        }
    }
}

/// The records of a body, in their order. After an error there are no more: the records before it
/// are valid, the rest of the datagram is malformed.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
}

impl<'a> Records<'a> {
    /// Returns the records of a plain or decrypted body.
    pub const fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }

    /// Returns the number of bytes of the body that are still unread.
    pub const fn rest_len(&self) -> usize {
        self.rest.len()
    }

    /// Takes the type and the body of the next record from the front.
    fn split(&mut self) -> Result<(u8, &'a [u8]), WireError> {
        let mut reader = Reader(self.rest);
        let header = reader.u16().ok_or(WireError::Truncated)?;
        let named = usize::from(header) & RECORD_BODY_NAMED_MAX;
        let len = if named == 0 { reader.0.len() } else { named };
        let (body, rest) = reader.0.split_at_checked(len).ok_or(WireError::RecordLength)?;
        self.rest = rest;
        Ok(((header >> 12) as u8, body))
    }

    fn read(&mut self) -> Result<Record<'a>, WireError> {
        let (record_type, body) = self.split()?;
        match record_type {
            0 => Err(WireError::RecordType),
            _ if body.is_empty() => Err(WireError::RecordEmpty),
            TYPE_RAW => Ok(Record::Raw(body)),
            TYPE_COMPRESSED => Compressed::parse(body).map(Record::Compressed),
            TYPE_CONTROL => Control::parse(body).map(Record::Control),
            TYPE_BLOCK => Block::parse(body).map(Record::Block),
            TYPE_FRAGMENT => Fragment::parse(body).map(Record::Fragment),
            TYPE_RESENT => {
                let sequence_low = Reader(body).u32().ok_or(WireError::Truncated)?;
                Ok(Record::Resent { sequence_low })
            }
            TYPE_CARRIED => Carried::parse(body).map(Record::Carried),
            TYPE_CONTEXT => Ok(match ContextRecord::parse(body)? {
                Some(record) => Record::Context(record),
                None => Record::Skipped { record_type, len: body.len() },
            }),
            _ => Ok(Record::Skipped { record_type, len: body.len() }),
        }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, WireError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let record = self.read();
        if record.is_err() {
            self.rest = &[];
        }
        Some(record)
    }
}

impl std::iter::FusedIterator for Records<'_> {}

/// Appends records to a caller's buffer.
///
/// A record is written whole or not at all. One with a body over [`RECORD_BODY_NAMED_MAX`]
/// bytes reaches to the end of the datagram and closes the body.
#[derive(Debug)]
pub struct BodyWriter<'a> {
    buf: &'a mut [u8],
    len: usize,
    closed: bool,
}

impl<'a> BodyWriter<'a> {
    /// Makes a writer of an empty body, which may grow to fill `buf`.
    pub const fn new(buf: &'a mut [u8]) -> Self {
        Self { buf, len: 0, closed: false }
    }

    /// Returns the bytes that are left for records, their headers included; zero once closed.
    pub const fn remaining(&self) -> usize {
        if self.closed { 0 } else { self.buf.len() - self.len }
    }

    /// Returns the length of the body so far.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there is no record yet.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends an uncompressed packet: [`raw_record_len`] bytes.
    ///
    /// # Errors
    /// [`Full`] if there is no room, or the packet is empty.
    pub fn raw(&mut self, packet: &[u8]) -> Result<(), Full> {
        if packet.is_empty() {
            return Err(Full);
        }
        self.append(TYPE_RAW, &[], packet)
    }

    /// Appends a compressed packet: [`compressed_record_len`] bytes. Of `codec` and `epoch` the low
    /// four bits are written.
    ///
    /// # Errors
    /// [`Full`] if there is no room, or `data` is empty or not smaller than `original_len`
    /// bytes.
    pub fn compressed(
        &mut self,
        codec: u8,
        epoch: u8,
        original_len: u16,
        data: &[u8],
    ) -> Result<(), Full> {
        debug_assert!(codec < 16 && epoch < 16, "codec {codec}, epoch {epoch}");
        if !is_compression(original_len, data) {
            return Err(Full);
        }
        let header = Compressed { codec, epoch, original_len, data }.header();
        self.append(TYPE_COMPRESSED, &header, data)
    }

    /// Appends a keep-alive of this many bytes, header included, as padding. It is the last record
    /// of its datagram if it is longer than a record of a named length.
    ///
    /// # Errors
    /// [`Full`] if there is no room, or it is shorter than a keep-alive.
    pub fn padding(&mut self, len: usize) -> Result<(), Full> {
        let zeros = len.checked_sub(RECORD_HEADER_LEN + 1).ok_or(Full)?;
        if len > self.remaining() {
            return Err(Full);
        }
        let mut body = [0; CONTROL_BODY_MAX];
        Control::KeepAlive.encode(&mut body);
        let named = if zeros < RECORD_BODY_NAMED_MAX { zeros as u16 + 1 } else { 0 };
        self.put(&(u16::from(TYPE_CONTROL) << 12 | named).to_be_bytes());
        self.put(&body[..1]);
        self.buf[self.len..self.len + zeros].fill(0);
        self.len += zeros;
        self.closed = named == 0;
        Ok(())
    }

    /// Appends a control message.
    ///
    /// # Errors
    /// [`Full`] if there is no room.
    pub fn control(&mut self, control: &Control) -> Result<(), Full> {
        let mut body = [0; CONTROL_BODY_MAX];
        let len = control.encode(&mut body);
        self.append(TYPE_CONTROL, &[], &body[..len])
    }

    /// Appends a block: [`block_record_len`] bytes.
    ///
    /// # Errors
    /// [`Full`] if there is no room, or its data are empty or not smaller than the original.
    pub fn block(&mut self, block: &Block<'_>) -> Result<(), Full> {
        if !is_compression(block.original_len, block.data) {
            return Err(Full);
        }
        self.append(TYPE_BLOCK, &block.header(), block.data)
    }

    /// Appends a carried record: [`carried_record_len`] bytes.
    ///
    /// # Errors
    /// [`Full`] if there is no room, or its data are empty or not smaller than the original, or
    /// its hop limit is used up.
    pub fn carried(&mut self, carried: &Carried<'_>) -> Result<(), Full> {
        let (data, original_len) = carried.data();
        if !is_compression(original_len, data) {
            return Err(Full);
        }
        self.append(TYPE_CARRIED, carried.header()?.as_slice(), data)
    }

    /// Appends a batch or a raw packet of a context:
    /// [`context_record_len`](crate::context_record_len) bytes.
    ///
    /// # Errors
    /// [`Full`] if there is no room, or there is no packet, or a batch of no length or no data.
    pub fn context(&mut self, record: &ContextRecord<'_>) -> Result<(), Full> {
        self.append(TYPE_CONTEXT, record.header()?.as_slice(), record.data())
    }

    /// Appends a fragment: [`fragment_record_len`] bytes.
    ///
    /// # Errors
    /// [`Full`] if there is no room, or there can be no such fragment.
    pub fn fragment(&mut self, fragment: &Fragment<'_>) -> Result<(), Full> {
        if !fragment.exists() {
            return Err(Full);
        }
        self.append(TYPE_FRAGMENT, &fragment.header(), fragment.data)
    }

    /// Appends the record that names the datagram in which the following records were first sent:
    /// [`RESENT_RECORD_LEN`] bytes.
    ///
    /// # Errors
    /// [`Full`] if there is no room.
    pub fn resent(&mut self, sequence_low: u32) -> Result<(), Full> {
        self.append(TYPE_RESENT, &[], &sequence_low.to_be_bytes())
    }

    /// Appends records that another writer wrote.
    ///
    /// # Errors
    /// [`Full`] if there is no room.
    pub fn records(&mut self, body: &[u8]) -> Result<(), Full> {
        if body.len() > self.remaining() {
            return Err(Full);
        }
        self.put(body);
        // The last of them may reach to the end, which is not known here.
        self.closed = true;
        Ok(())
    }

    /// Appends a record whose body is `prefix`, then `data`.
    fn append(&mut self, record_type: u8, prefix: &[u8], data: &[u8]) -> Result<(), Full> {
        let body_len = prefix.len() + data.len();
        if RECORD_HEADER_LEN + body_len > self.remaining() {
            return Err(Full);
        }
        let named = if body_len <= RECORD_BODY_NAMED_MAX { body_len as u16 } else { 0 };
        self.closed = named == 0;
        self.put(&(u16::from(record_type) << 12 | named).to_be_bytes());
        self.put(prefix);
        self.put(data);
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) {
        self.buf[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}
#[cfg(test)]
mod tests;
