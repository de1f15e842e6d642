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
fn is_compression(original_len: u16, data: &[u8]) -> bool {
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
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::carried::tests::any_label;
    use crate::carried::{Label, Unit};
    use crate::context::{ContextBody, Start, context_record_len};
    use crate::control::tests::any_control;

    /// A record that owns its bytes.
    #[derive(Clone, Debug)]
    enum Owned {
        Raw(Vec<u8>),
        Compressed {
            codec: u8,
            epoch: u8,
            original_len: u16,
            data: Vec<u8>,
        },
        Control(Control),
        Block {
            codec: u8,
            flags: u8,
            original_len: u16,
            data: Vec<u8>,
        },
        Fragment {
            id: u32,
            index: u8,
            last: u8,
            data: Vec<u8>,
        },
        Resent(u32),
        Carried {
            hop_limit: u8,
            label: Label,
            unit: Box<Owned>,
        },
        ContextRaw {
            place: (u8, u8, u16),
            packet: Vec<u8>,
        },
        ContextBatch {
            place: (u8, u8, u16),
            start: Option<Start>,
            original_len: u16,
            data: Vec<u8>,
        },
    }

    impl Owned {
        fn write(&self, writer: &mut BodyWriter<'_>) -> Result<(), Full> {
            match self {
                Self::Raw(packet) => writer.raw(packet),
                Self::Compressed { codec, epoch, original_len, data } => {
                    writer.compressed(*codec, *epoch, *original_len, data)
                }
                Self::Control(control) => writer.control(control),
                _ => match self.borrow() {
                    Record::Block(block) => writer.block(&block),
                    Record::Fragment(fragment) => writer.fragment(&fragment),
                    Record::Resent { sequence_low } => writer.resent(sequence_low),
                    Record::Carried(carried) => writer.carried(&carried),
                    Record::Context(record) => writer.context(&record),
                    other => panic!("{other:?}"),
                },
            }
        }

        fn len(&self) -> usize {
            match self {
                Self::Raw(packet) => raw_record_len(packet.len()),
                Self::Compressed { data, .. } => compressed_record_len(data.len()),
                Self::Control(control) => RECORD_HEADER_LEN + control.body_len(),
                Self::Block { data, .. } => block_record_len(data.len()),
                Self::Fragment { data, .. } => fragment_record_len(data.len()),
                Self::Resent(_) => RESENT_RECORD_LEN,
                Self::Carried { label, unit, .. } => unit.len() + carried_extra_len(label),
                Self::ContextRaw { packet, .. } => RECORD_HEADER_LEN + 5 + packet.len(),
                Self::ContextBatch { start, data, .. } => {
                    RECORD_HEADER_LEN + 7 + if start.is_some() { 14 } else { 0 } + data.len()
                }
            }
        }

        fn borrow(&self) -> Record<'_> {
            match self {
                Self::Raw(packet) => Record::Raw(packet),
                &Self::Compressed { codec, epoch, original_len, ref data } => {
                    Record::Compressed(Compressed { codec, epoch, original_len, data })
                }
                Self::Control(control) => Record::Control(*control),
                &Self::Block { codec, flags, original_len, ref data } => {
                    Record::Block(Block { codec, flags, original_len, data })
                }
                &Self::Fragment { id, index, last, ref data } => {
                    Record::Fragment(Fragment { id, index, last, data })
                }
                &Self::Resent(sequence_low) => Record::Resent { sequence_low },
                &Self::Carried { hop_limit, label, ref unit } => {
                    let unit = match unit.borrow() {
                        Record::Compressed(compressed) => Unit::Compressed(compressed),
                        Record::Block(block) => Unit::Block(block),
                        other => panic!("{other:?}"),
                    };
                    Record::Carried(Carried { hop_limit, label, unit })
                }
                Self::ContextRaw { place, packet } => in_context(*place, ContextBody::Raw(packet)),
                &Self::ContextBatch { place, start, original_len, ref data } => {
                    let is_columnar = original_len % 2 == 0;
                    let body = ContextBody::Batch { start, is_columnar, original_len, data };
                    in_context(place, body)
                }
            }
        }
    }

    fn in_context(
        (context, generation, number): (u8, u8, u16),
        body: ContextBody<'_>,
    ) -> Record<'_> {
        Record::Context(ContextRecord { context, generation, number, body })
    }

    fn any_start() -> impl Strategy<Value = Start> {
        any::<(u8, u8, u64, u32)>().prop_map(|(codec, window_log, base_offset, base_len)| Start {
            codec: codec % 16,
            window_log,
            base_offset,
            base_len,
        })
    }

    fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
        // Small ones for many records in a body, large ones for the border of the named length.
        let len = prop_oneof![8 => 1usize..200, 1 => 4080usize..4110, 1 => 1usize..9000];
        (len, any::<u8>()).prop_map(|(len, fill)| vec![fill; len])
    }

    fn any_unit() -> impl Strategy<Value = Owned> {
        prop_oneof![
            (0u8..16, 0u8..16, any_bytes(), 1u16..5000).prop_map(|(codec, epoch, data, saved)| {
                let original_len = data.len() as u16 + saved;
                Owned::Compressed { codec, epoch, original_len, data }
            }),
            (0u8..16, 0u8..16, any_bytes(), 1u16..5000).prop_map(|(codec, flags, data, saved)| {
                let original_len = data.len() as u16 + saved;
                Owned::Block { codec, flags, original_len, data }
            }),
        ]
    }

    fn any_record() -> impl Strategy<Value = Owned> {
        prop_oneof![
            any_bytes().prop_map(Owned::Raw),
            any_unit(),
            any_control().prop_map(Owned::Control),
            (1u8.., any_label(), any_unit()).prop_map(|(hop_limit, label, unit)| {
                Owned::Carried { hop_limit, label, unit: Box::new(unit) }
            }),
            (any::<u32>(), 1u8..64, any::<u8>(), any_bytes()).prop_map(
                |(id, last, index, data)| {
                    Owned::Fragment { id, index: index % (last + 1), last, data }
                }
            ),
            any::<u32>().prop_map(Owned::Resent),
            (any::<(u8, u8, u16)>(), any_bytes())
                .prop_map(|(place, packet)| Owned::ContextRaw { place, packet }),
            (any::<(u8, u8, u16)>(), prop::option::of(any_start()), 1u16.., any_bytes()).prop_map(
                |(place, start, original_len, data)| {
                    Owned::ContextBatch { place, start, original_len, data }
                }
            ),
        ]
    }

    proptest! {
        #[test]
        fn any_sequence_of_records_round_trips(
            records in prop::collection::vec(any_record(), 0..20),
            room in prop_oneof![0usize..2000, 0usize..20_000],
        ) {
            let mut buf = vec![0xee; room];
            let mut writer = BodyWriter::new(&mut buf);
            let mut written = Vec::new();
            for record in &records {
                let (before, fits) = (writer.len(), record.len() <= writer.remaining());
                prop_assert_eq!(record.write(&mut writer).is_ok(), fits);
                prop_assert_eq!(writer.len() - before, if fits { record.len() } else { 0 });
                if fits {
                    written.push(record.borrow());
                }
                if let Record::Context(borrowed) = record.borrow() {
                    prop_assert_eq!(context_record_len(&borrowed), record.len());
                }
            }
            let len = writer.len();
            let read: Result<Vec<_>, _> = Records::new(&buf[..len]).collect();
            prop_assert_eq!(read, Ok(written));
            prop_assert!(buf[len..].iter().all(|&byte| byte == 0xee));
        }
    }

    #[test]
    fn a_long_record_closes_the_body() {
        for (packet_len, left) in [(4095, 10_000 - 4097), (4096, 0)] {
            let mut buf = [0; 10_000];
            let mut writer = BodyWriter::new(&mut buf);
            writer.raw(&vec![7; packet_len]).unwrap();
            assert_eq!(writer.remaining(), left);
            assert_eq!(writer.control(&Control::KeepAlive).is_ok(), left > 0);
        }
    }

    #[test]
    fn records_that_cannot_exist_are_not_written() {
        let mut buf = [0; 100];
        let mut writer = BodyWriter::new(&mut buf);
        assert_eq!(writer.raw(&[]), Err(Full));
        assert_eq!(writer.compressed(1, 0, 5, &[0; 5]), Err(Full));
        assert_eq!(writer.compressed(1, 0, 5, &[]), Err(Full));
        let block = Block { codec: 1, flags: 0, original_len: 5, data: &[0; 5] };
        assert_eq!(writer.block(&block), Err(Full));
        let fragment = Fragment { id: 1, index: 0, last: 0, data: &[0; 5] };
        assert_eq!(writer.fragment(&fragment), Err(Full));
        let batch = |original_len, data| ContextBody::Batch {
            start: None,
            is_columnar: false,
            original_len,
            data,
        };
        for body in [ContextBody::Raw(&[]), batch(0, &[1]), batch(9, &[])] {
            let record = ContextRecord { context: 0, generation: 1, number: 1, body };
            assert_eq!(writer.context(&record), Err(Full));
        }
        assert!(writer.is_empty());
    }

    #[test]
    fn padding_is_a_keep_alive_of_any_length() {
        let mut buf = vec![0xff; 9_000];
        for len in [3, 4, 100, 1_400, 4_096, 4_097, 4_098, 4_099, 8_981] {
            let mut writer = BodyWriter::new(&mut buf);
            let probe = Control::Probe { sender_time_ns: 1, id: 2, report_every_ms: 3 };
            assert_eq!(writer.control(&probe), Ok(()));
            assert_eq!(writer.padding(len), Ok(()), "{len}");
            let body_len = writer.len();
            assert_eq!(body_len, 17 + len);
            let records: Vec<_> = Records::new(&buf[..body_len]).collect();
            let expected = [probe, Control::KeepAlive].map(|it| Ok(Record::Control(it)));
            assert_eq!(records, expected, "{len}");
        }
        let mut writer = BodyWriter::new(&mut buf);
        assert_eq!((writer.padding(2), writer.padding(9_001)), (Err(Full), Err(Full)));
        assert!(writer.is_empty());
    }

    #[test]
    fn malformed_bodies_end_with_a_named_reason() {
        let cases: [(&[u8], WireError); 15] = [
            (&[0x10], WireError::Truncated),
            (&[0x00, 0x01, 0xaa], WireError::RecordType),
            (&[0x10, 0x03, 1, 2], WireError::RecordLength),
            (&[0x10, 0x00], WireError::RecordEmpty),
            (&[0x80, 0x00], WireError::RecordEmpty),
            (&[0x20, 0x02, 0x10, 0x00], WireError::Truncated),
            (&[0x20, 0x03, 0x10, 0x00, 0x09], WireError::CompressedLength),
            (&[0x20, 0x04, 0x10, 0x00, 0x01, 0xaa], WireError::CompressedLength),
            (&[0x30, 0x02, 0x02, 0xaa], WireError::ControlLength),
            (&[0x40, 0x04, 0x20, 0x00, 0x01, 0xaa], WireError::CompressedLength),
            (&[0x50, 0x07, 0, 0, 0, 1, 3, 2, 0xaa], WireError::Fragment),
            (&[0x60, 0x03, 0, 0, 1], WireError::Truncated),
            (&[0x90, 0x04, 0, 1, 0, 1], WireError::Truncated),
            (&[0x90, 0x05, 0, 1, 0, 1, 1], WireError::Context),
            (&[0x90, 0x06, 0, 1, 0, 1, 3, 0x45], WireError::Context),
        ];
        for (bad, reason) in cases {
            let body = [&[0x10, 0x01, 0x45], bad].concat();
            let mut records = Records::new(&body);
            assert_eq!(records.next(), Some(Ok(Record::Raw(&[0x45]))));
            assert_eq!(records.next(), Some(Err(reason)), "{bad:x?}");
            assert_eq!(records.next(), None);
        }
    }

    #[test]
    fn unknown_types_are_skipped() {
        for record_type in [7].into_iter().chain(10..16u8) {
            let body = [record_type << 4, 2, 9, 9, 0x10, 1, 0x45];
            let records: Vec<_> = Records::new(&body).collect();
            let skipped = Record::Skipped { record_type, len: 2 };
            assert_eq!(records, [Ok(skipped), Ok(Record::Raw(&[0x45]))]);
        }
        let body = [0x90, 5, 0, 1, 0, 1, 8, 0x10, 1, 0x45];
        let records: Vec<_> = Records::new(&body).collect();
        let skipped = Record::Skipped { record_type: 9, len: 5 };
        assert_eq!(records, [Ok(skipped), Ok(Record::Raw(&[0x45]))]);
    }
}
