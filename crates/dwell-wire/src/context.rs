//! Batches and raw packets of contexts (`docs/wire.md` section 9).

use crate::error::{Full, WireError};
use crate::header::RECORD_HEADER_LEN;
use crate::reader::Reader;
use crate::record::is_compression;

/// Bytes before the packet in the body of a raw context record.
pub const CONTEXT_RAW_HEADER_LEN: usize = 5;
/// Bytes before the compressed data in the body of a batch that begins no generation.
pub const CONTEXT_BATCH_HEADER_LEN: usize = CONTEXT_RAW_HEADER_LEN + 2;
/// Bytes by which the first batch of a generation is longer.
pub const CONTEXT_START_LEN: usize = 14;
/// Bytes by which a batch that stands alone is longer.
pub const CONTEXT_ALONE_LEN: usize = 4;

const HEADER_MAX: usize = CONTEXT_BATCH_HEADER_LEN + CONTEXT_START_LEN + CONTEXT_ALONE_LEN;

const FLAG_RAW: u8 = 1;
const FLAG_START: u8 = 2;
const FLAG_COLUMNAR: u8 = 4;
const FLAG_ALONE: u8 = 8;
const FLAG_KEEPS: u8 = 16;
const FLAG_PREDICTED: u8 = 32;
const FLAGS: u8 = FLAG_RAW | FLAG_START | FLAG_COLUMNAR | FLAG_ALONE | FLAG_KEEPS | FLAG_PREDICTED;

/// A part of what goes through a context: of the direction from the sender to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextRecord<'a> {
    /// The number of the context.
    pub context: u8,
    /// The low 8 bits of the number of the generation, which counts from 1.
    pub generation: u8,
    /// The low 16 bits of the record's own number in the context, see
    /// [`reconstruct_number`](crate::reconstruct_number).
    pub number: u16,
    /// The content.
    pub body: ContextBody<'a>,
}

/// The content of a [`ContextRecord`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextBody<'a> {
    /// One uncompressed packet, at least one byte, which keeps its place among the others and that
    /// no batch refers to.
    Raw(&'a [u8]),
    /// Packets that were compressed together, after all batches of the generation before; or alone.
    Batch {
        /// The beginning of a generation: this is its first batch, or one that stands alone.
        start: Option<Start>,
        /// It refers to the base of the generation only, and so needs no batch before it.
        alone: Option<Alone>,
        /// The form in which the packets were compressed.
        headers: Headers,
        /// Bytes before compression, at least one; the output of a decoder must have exactly this
        /// length.
        original_len: u16,
        /// The compressed bytes, at least one; there may be more than before, unless it stands alone.
        data: &'a [u8],
    },
}

/// The form of the packets of a batch before they were compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Headers {
    /// One packet after another, as they are.
    #[default]
    Plain,
    /// [Columnar](crate::columnar).
    Columnar,
    /// [Predicted](crate::predicted) from the packets of all such batches of the generation before; never of a batch that
    /// stands alone.
    Predicted,
}

impl Headers {
    /// Reads it from the flags of a batch; none if they name two.
    const fn read(flags: u8) -> Option<Self> {
        match flags & (FLAG_COLUMNAR | FLAG_PREDICTED) {
            0 => Some(Self::Plain),
            FLAG_COLUMNAR => Some(Self::Columnar),
            FLAG_PREDICTED => Some(Self::Predicted),
            _ => None,
        }
    }

    const fn flag(self) -> u8 {
        match self {
            Self::Plain => 0,
            Self::Columnar => FLAG_COLUMNAR,
            Self::Predicted => FLAG_PREDICTED,
        }
    }
}

/// What a batch that stands alone says beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alone {
    /// The offset of its first byte, less that of the generation's base.
    pub distance: u32,
    /// What the ring has beyond the base stays there; only if the generation is named, too, and its base is
    /// in the ring.
    pub keeps: bool,
}

/// The codec and window of a generation, and the bytes from which it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The codec's id, 0 to 15; not checked here against those that exist.
    pub codec: u8,
    /// The binary logarithm of the window's size in bytes; not checked here.
    pub window_log: u8,
    /// The bytes that the generation may refer to beside its own.
    pub base: StartBase,
}

/// The bytes from which a generation begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartBase {
    /// Those of the ring before an offset.
    Ring {
        /// The number of bytes that went through the context before this batch.
        offset: u64,
        /// The number of bytes before the offset.
        len: u32,
    },
    /// The last ones of a dictionary that both ends have.
    Dictionary {
        /// The first 8 bytes of its name.
        name: u64,
        /// The number of bytes.
        len: u32,
    },
}

const BASE_IN_RING: u8 = 0;
const BASE_IN_DICTIONARY: u8 = 1;

impl StartBase {
    /// Returns the number of bytes.
    pub const fn len(self) -> u32 {
        match self {
            Self::Ring { len, .. } | Self::Dictionary { len, .. } => len,
        }
    }

    /// Returns true if the generation begins from nothing.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }
}

impl<'a> ContextRecord<'a> {
    /// Reads the body of a record; none if it has flags that this version does not know.
    pub(crate) fn parse(body: &'a [u8]) -> Result<Option<Self>, WireError> {
        let mut rest = Reader(body);
        Self::read(&mut rest).ok_or(WireError::Truncated)?
    }

    fn read(rest: &mut Reader<'a>) -> Option<Result<Option<Self>, WireError>> {
        let (context, generation, number) = (rest.u8()?, rest.u8()?, rest.u16()?);
        let flags = rest.u8()?;
        if flags & !FLAGS != 0 {
            return Some(Ok(None));
        }
        let body = if flags & FLAG_RAW != 0 {
            ContextBody::Raw(rest.0)
        } else {
            let mut start = None;
            if flags & FLAG_START != 0 {
                let first = rest.u8()?;
                if first & 0x0f > BASE_IN_DICTIONARY {
                    return Some(Ok(None));
                }
                let (window_log, number, len) = (rest.u8()?, rest.u64()?, rest.u32()?);
                let base = match first & 0x0f {
                    BASE_IN_RING => StartBase::Ring { offset: number, len },
                    _ => StartBase::Dictionary { name: number, len },
                };
                start = Some(Start { codec: first >> 4, window_log, base });
            }
            let mut alone = None;
            if flags & FLAG_ALONE != 0 {
                alone = Some(Alone { distance: rest.u32()?, keeps: flags & FLAG_KEEPS != 0 });
            }
            let Some(headers) = Headers::read(flags) else {
                return Some(Err(WireError::Context));
            };
            let original_len = rest.u16()?;
            ContextBody::Batch { start, alone, headers, original_len, data: rest.0 }
        };
        let record = Self { context, generation, number, body };
        let is_one_kind = flags & FLAG_RAW == 0 || flags == FLAG_RAW;
        let is_valid =
            record.exists() && is_one_kind && (flags & FLAG_KEEPS == 0 || record.keeps());
        Some(if is_valid { Ok(Some(record)) } else { Err(WireError::Context) })
    }

    fn exists(&self) -> bool {
        match self.body {
            ContextBody::Raw(packet) => !packet.is_empty(),
            ContextBody::Batch { alone: Some(_), headers: Headers::Predicted, .. } => false,
            ContextBody::Batch { alone: Some(alone), start, original_len, data, .. } => {
                // What is kept is in the ring, and so is its base.
                let base = start.map(|start| start.base);
                let is_in_ring = matches!(base, Some(StartBase::Ring { .. }));
                is_compression(original_len, data) && (is_in_ring || !alone.keeps)
            }
            ContextBody::Batch { original_len, data, .. } => original_len > 0 && !data.is_empty(),
        }
    }

    fn keeps(&self) -> bool {
        matches!(self.body, ContextBody::Batch { alone: Some(Alone { keeps: true, .. }), .. })
    }

    /// Returns true if it is a batch that stands alone.
    pub const fn is_alone(&self) -> bool {
        matches!(self.body, ContextBody::Batch { alone: Some(_), .. })
    }

    /// Returns the packet of a raw record, the compressed bytes of a batch.
    pub const fn data(&self) -> &'a [u8] {
        match self.body {
            ContextBody::Raw(data) | ContextBody::Batch { data, .. } => data,
        }
    }

    /// Returns the beginning of the generation, if this is its first batch.
    pub const fn start(&self) -> Option<Start> {
        match self.body {
            ContextBody::Batch { start, .. } => start,
            ContextBody::Raw(_) => None,
        }
    }

    /// Returns what comes before the data; [`Full`] if there can be no such record.
    pub(crate) fn header(&self) -> Result<Header, Full> {
        if !self.exists() {
            return Err(Full);
        }
        let mut header = Header { bytes: [0; HEADER_MAX], len: 0 };
        let [high, low] = self.number.to_be_bytes();
        header.put(&[self.context, self.generation, high, low]);
        match self.body {
            ContextBody::Raw(_) => header.put(&[FLAG_RAW]),
            ContextBody::Batch { start, alone, headers, original_len, .. } => {
                let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
                header.put(&[headers.flag()
                    | flag(start.is_some(), FLAG_START)
                    | flag(alone.is_some(), FLAG_ALONE)
                    | flag(alone.is_some_and(|alone| alone.keeps), FLAG_KEEPS)]);
                if let Some(start) = start {
                    debug_assert!(start.codec < 16, "codec {}", start.codec);
                    let (place, number) = match start.base {
                        StartBase::Ring { offset, .. } => (BASE_IN_RING, offset),
                        StartBase::Dictionary { name, .. } => (BASE_IN_DICTIONARY, name),
                    };
                    header.put(&[start.codec << 4 | place, start.window_log]);
                    header.put(&number.to_be_bytes());
                    header.put(&start.base.len().to_be_bytes());
                }
                if let Some(alone) = alone {
                    header.put(&alone.distance.to_be_bytes());
                }
                header.put(&original_len.to_be_bytes());
            }
        }
        Ok(header)
    }
}

/// Returns the bytes that a context record takes in a body, or in its fragments.
pub const fn context_record_len(record: &ContextRecord<'_>) -> usize {
    let header_len = match record.body {
        ContextBody::Raw(_) => CONTEXT_RAW_HEADER_LEN,
        ContextBody::Batch { start, alone, .. } => {
            let start_len = if start.is_some() { CONTEXT_START_LEN } else { 0 };
            let alone_len = if alone.is_some() { CONTEXT_ALONE_LEN } else { 0 };
            CONTEXT_BATCH_HEADER_LEN + start_len + alone_len
        }
    };
    RECORD_HEADER_LEN + header_len + record.data().len()
}

/// What comes before the data of a record.
pub(crate) struct Header {
    bytes: [u8; HEADER_MAX],
    len: usize,
}

impl Header {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(body: &[u8]) -> Result<Option<ContextRecord<'_>>, WireError> {
        ContextRecord::parse(body)
    }

    #[test]
    fn what_cannot_be_is_malformed() {
        let start = |flags: u8| {
            let base = [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1];
            [&[1, 1, 0, 1, flags, 0x20, 20][..], &base, &[0, 9, 0xaa]].concat()
        };
        assert!(matches!(parse(&[1, 1, 0, 1, 1, 0x45]), Ok(Some(_))));
        assert!(matches!(parse(&[1, 1, 0, 1, 0, 0, 9, 0xaa]), Ok(Some(_))));
        assert!(matches!(parse(&start(2)), Ok(Some(_))));
        assert!(matches!(parse(&start(6)), Ok(Some(_))));
        assert!(matches!(parse(&start(34)), Ok(Some(_))));
        // In columns and predicted.
        assert_eq!(parse(&start(38)), Err(WireError::Context));
        // Raw and something else, or nothing; a batch of nothing, or that came to nothing.
        for bad in [
            &[1, 1, 0, 1, 3, 0x45][..],
            &[1, 1, 0, 1, 5, 0x45],
            &[1, 1, 0, 1, 33, 0x45],
            &[1, 1, 0, 1, 1],
        ] {
            assert_eq!(parse(bad), Err(WireError::Context), "{bad:x?}");
        }
        for bad in [&[1, 1, 0, 1, 0, 0, 0, 0xaa][..], &[1, 1, 0, 1, 0, 0, 9]] {
            assert_eq!(parse(bad), Err(WireError::Context), "{bad:x?}");
        }
        let whole = start(2);
        for short in (0..whole.len() - 1).filter(|&len| len < whole.len() - 1) {
            assert_eq!(parse(&whole[..short]), Err(WireError::Truncated), "{short}");
        }
        assert_eq!(parse(&whole[..whole.len() - 1]), Err(WireError::Context));
    }

    #[test]
    fn a_batch_that_stands_alone_has_a_place_and_is_smaller_than_before() {
        let alone = |flags: u8| [&[1, 1, 0, 1, flags, 0, 0, 0, 7, 0, 2][..], &[0xaa]].concat();
        let distance_of = |record: ContextRecord<'_>| match record.body {
            ContextBody::Batch { alone: Some(alone), .. } => Some(alone.distance),
            _ => None,
        };
        let body = alone(8);
        let record = parse(&body).expect("it is well-formed").expect("it is known");
        assert_eq!((distance_of(record), record.is_alone()), (Some(7), true));
        assert_eq!(record.header().map(|header| header.as_slice().len()), Ok(11));
        // Raw besides; or it keeps the ring and names no generation; or is predicted from others.
        for flags in [9, 17, 16, 24, 20, 40] {
            assert_eq!(parse(&alone(flags)), Err(WireError::Context), "{flags}");
        }
        let not_smaller = [&body[..], &[0xbb]].concat();
        assert_eq!(parse(&not_smaller), Err(WireError::Context));
        for len in 0..body.len() - 1 {
            assert_eq!(parse(&body[..len]), Err(WireError::Truncated), "{len}");
        }
        let start = [0x20, 20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 7, 0, 2, 0xaa];
        let body = [&[1, 1, 0, 1, 2 | 8 | 16][..], &start].concat();
        let record = parse(&body).expect("it is well-formed").expect("it is known");
        assert!(record.start().is_some() && record.keeps());
        let dictionary = [&[1, 1, 0, 1, 2 | 8 | 16, 0x21][..], &start[1..]].concat();
        assert_eq!(parse(&dictionary), Err(WireError::Context));
        let dictionary = [&[1, 1, 0, 1, 2 | 8, 0x21][..], &start[1..]].concat();
        assert!(parse(&dictionary).is_ok_and(|record| record.is_some_and(|it| it.is_alone())));
    }

    #[test]
    fn what_is_of_a_later_version_is_skipped() {
        for flags in 64..=255 {
            assert_eq!(parse(&[1, 1, 0, 1, flags]), Ok(None));
        }
        let with = |place: u8| {
            let first = 0x20 | place;
            [1, 1, 0, 1, 2, first, 20, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 3, 0, 9, 0xaa]
        };
        let base = |place: u8| {
            let bytes = with(place);
            parse(&bytes).map(|record| record.and_then(|it| it.start()).map(|start| start.base))
        };
        assert_eq!(base(0), Ok(Some(StartBase::Ring { offset: 7, len: 3 })));
        assert_eq!(base(1), Ok(Some(StartBase::Dictionary { name: 7, len: 3 })));
        for place in 2..16 {
            assert_eq!(base(place), Ok(None), "{place}");
        }
    }
}
