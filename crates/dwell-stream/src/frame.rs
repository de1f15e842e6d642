//! The bytes of preambles and headers: `docs/stream-wire.md`, sections 2 to 4.

use dwell_codec::CodecId;

use crate::config::REORDER_MAX;
use crate::error::{AbortReason, StreamError};

/// The first bytes of every stream.
pub(crate) const MAGIC: [u8; 3] = *b"dws";
/// The version of streams in which no block refers to an earlier one, ...
pub(crate) const VERSION: u8 = 1;
/// ... and of those in which blocks may refer to earlier ones.
pub(crate) const VERSION_WITH_HISTORY: u8 = 2;
pub(crate) const PREAMBLE_LEN: usize = 8;
/// The longest header of a block.
pub(crate) const HEADER_LEN_MAX: usize = 13;
/// The room before a block's bytes for a header and a preamble.
pub(crate) const ROOM: usize = 24;

const INDEXED: u8 = 0x10;
const REFERS: u8 = 0x20;
const KEPT: u8 = 0x40;
const END: u8 = 0xf0;
const ABORT: u8 = 0xf1;

/// The layout of the stream after the preamble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Blocks with check sums (section 3).
    Blocks,
    /// Units with a header of 2 bytes (section 4).
    Units,
    /// Units with a header of 4 bytes (section 4).
    LongUnits,
}

/// The first bytes of a stream (section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Preamble {
    pub(crate) layout: Layout,
    /// The binary logarithm of the longest block, and of the longest restored unit.
    pub(crate) block_len_log2: u8,
    /// The most blocks that may come before one that precedes them.
    pub(crate) reorder: u8,
    /// Bit n is set if the codec with id n may occur.
    pub(crate) codecs: u8,
    /// True if blocks may refer to earlier ones.
    pub(crate) history: bool,
}

impl Preamble {
    pub(crate) fn block_len(self) -> usize {
        1 << self.block_len_log2
    }

    pub(crate) fn to_bytes(self) -> [u8; PREAMBLE_LEN] {
        let layout = match self.layout {
            Layout::Blocks => 1,
            Layout::Units => 2,
            Layout::LongUnits => 3,
        };
        let [a, b, c] = MAGIC;
        let version = if self.history { VERSION_WITH_HISTORY } else { VERSION };
        [a, b, c, version, layout, self.block_len_log2, self.reorder, self.codecs]
    }

    pub(crate) fn from_bytes(bytes: [u8; PREAMBLE_LEN]) -> Result<Self, StreamError> {
        let [a, b, c, version, layout, block_len_log2, reorder, codecs] = bytes;
        if [a, b, c] != MAGIC {
            return Err(StreamError::NotAStream);
        }
        let history = match version {
            VERSION => false,
            VERSION_WITH_HISTORY => true,
            _ => return Err(StreamError::Version(version)),
        };
        let layout = match layout {
            1 => Layout::Blocks,
            2 => Layout::Units,
            3 => Layout::LongUnits,
            _ => return Err(StreamError::Preamble("its layout is unknown")),
        };
        if !(12..=16).contains(&block_len_log2) {
            return Err(StreamError::Preamble(
                "its blocks are shorter than 4 KiB or longer than 64",
            ));
        }
        if reorder > REORDER_MAX || (reorder > 0 && layout != Layout::Blocks) {
            return Err(StreamError::Preamble("too much may come out of order"));
        }
        if history && (layout != Layout::Blocks || reorder > 0) {
            return Err(StreamError::Preamble(
                "only blocks that come in order can refer to earlier ones",
            ));
        }
        if u16::from(codecs) & !dwell_codec::supported_bitmap() != 0 {
            return Err(StreamError::Preamble("it needs a codec that this build does not have"));
        }
        Ok(Self { layout, block_len_log2, reorder, codecs, history })
    }

    pub(crate) fn allows(self, codec: CodecId) -> bool {
        self.codecs & (1 << codec as u8) != 0
    }
}

/// The bytes before a block, or instead of one (section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    Block(BlockHeader),
    /// The end, with the length of all data and their check sum.
    End {
        total: u64,
        check: u32,
    },
    Abort(AbortReason),
}

/// The fields before the bytes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockHeader {
    /// None if the bytes are uncompressed.
    pub(crate) codec: Option<CodecId>,
    /// True if the data refer to the history; only with a codec that can.
    pub(crate) refers: bool,
    /// True if later blocks may refer to the data. If not, they can't refer to earlier ones either.
    pub(crate) kept: bool,
    /// The block's number, if blocks may come out of order.
    pub(crate) index: Option<u32>,
    /// 1 to 65,536.
    pub(crate) original_len: usize,
    /// Less than the original length with a codec, equal otherwise.
    pub(crate) payload_len: usize,
    /// CRC-32 of all data up to the end of this block.
    pub(crate) check: u32,
}

/// The bytes of a header; at most [`HEADER_LEN_MAX`].
#[derive(Clone, Copy)]
pub(crate) struct HeaderBytes {
    bytes: [u8; HEADER_LEN_MAX],
    len: usize,
}

impl HeaderBytes {
    fn new() -> Self {
        Self { bytes: [0; HEADER_LEN_MAX], len: 0 }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Header {
    pub(crate) fn to_bytes(self) -> HeaderBytes {
        let mut out = HeaderBytes::new();
        match self {
            Self::Block(block) => block.write(&mut out),
            Self::End { total, check } => {
                out.push(&[END]);
                out.push(&total.to_be_bytes());
                out.push(&check.to_be_bytes());
            }
            Self::Abort(reason) => out.push(&[ABORT, reason.to_wire()]),
        }
        out
    }

    /// Returns the length of the header that begins with this byte.
    pub(crate) fn len_of(first: u8) -> Result<usize, StreamError> {
        match first {
            END => Ok(13),
            ABORT => Ok(2),
            _ if first & 0x80 == 0 => {
                let index = if first & INDEXED != 0 { 4 } else { 0 };
                let payload = if first & 0x0f != 0 { 2 } else { 0 };
                Ok(7 + index + payload)
            }
            _ => Err(StreamError::Header("a header of an unknown kind")),
        }
    }

    /// Reads a header; `bytes` has the length that `len_of` returned.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, StreamError> {
        let mut fields = Fields(bytes);
        let [first] = fields.take()?;
        match first {
            END => Ok(Self::End {
                total: u64::from_be_bytes(fields.take()?),
                check: u32::from_be_bytes(fields.take()?),
            }),
            ABORT => Ok(Self::Abort(AbortReason::from_wire(u8::from_be_bytes(fields.take()?)))),
            _ => BlockHeader::read(first, &mut fields).map(Self::Block),
        }
    }
}

impl BlockHeader {
    fn write(self, out: &mut HeaderBytes) {
        let codec = self.codec.map_or(0, |codec| codec as u8);
        let indexed = if self.index.is_some() { INDEXED } else { 0 };
        let refers = if self.refers { REFERS } else { 0 };
        let kept = if self.kept { KEPT } else { 0 };
        out.push(&[codec | indexed | refers | kept]);
        if let Some(index) = self.index {
            out.push(&index.to_be_bytes());
        }
        out.push(&length(self.original_len));
        if self.codec.is_some() {
            out.push(&length(self.payload_len));
        }
        out.push(&self.check.to_be_bytes());
    }

    fn read(first: u8, fields: &mut Fields<'_>) -> Result<Self, StreamError> {
        let codec = match first & 0x0f {
            0 => None,
            id => Some(CodecId::from_wire(id).ok_or(StreamError::Header("an unknown codec"))?),
        };
        let (refers, kept) = (first & REFERS != 0, first & KEPT != 0);
        if refers && !codec.is_some_and(CodecId::takes_history) {
            return Err(StreamError::Header("a block that refers to others, but cannot"));
        }
        let index =
            if first & INDEXED != 0 { Some(u32::from_be_bytes(fields.take()?)) } else { None };
        let original_len = usize::from(u16::from_be_bytes(fields.take()?)) + 1;
        let payload_len = match codec {
            Some(_) => usize::from(u16::from_be_bytes(fields.take()?)) + 1,
            None => original_len,
        };
        if codec.is_some() && payload_len >= original_len {
            return Err(StreamError::Header("a block that is no shorter than what it restores to"));
        }
        let check = u32::from_be_bytes(fields.take()?);
        Ok(Self { codec, refers, kept, index, original_len, payload_len, check })
    }
}

/// The longest payload of a unit: the limit of 12 bits.
pub(crate) const UNIT_PAYLOAD_MAX: usize = 0xfff;

/// The kind of a unit (section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnitForm {
    Raw,
    Compressed(CodecId),
    /// The check sum of all data before it.
    Check,
    /// The end, with the length of all data and their check sum.
    End,
    Abort,
}

/// The fields before the bytes of a unit (section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnitHeader {
    pub(crate) form: UnitForm,
    /// At most [`UNIT_PAYLOAD_MAX`].
    pub(crate) payload_len: usize,
    /// Only long headers have it; zero for notes.
    pub(crate) original_len: usize,
}

impl Layout {
    /// Returns the length of a unit's header.
    pub(crate) fn unit_header_len(self) -> usize {
        match self {
            Self::Blocks => 0,
            Self::Units => 2,
            Self::LongUnits => 4,
        }
    }
}

impl UnitHeader {
    pub(crate) fn to_bytes(self, layout: Layout) -> Vec<u8> {
        debug_assert!(self.payload_len <= UNIT_PAYLOAD_MAX);
        let form = match self.form {
            UnitForm::Raw => 0,
            UnitForm::Compressed(codec) => codec as u16,
            UnitForm::Abort => 13,
            UnitForm::Check => 14,
            UnitForm::End => 15,
        };
        let mut bytes = (form << 12 | self.payload_len as u16).to_be_bytes().to_vec();
        if layout == Layout::LongUnits {
            bytes.extend_from_slice(&(self.original_len as u16).to_be_bytes());
        }
        bytes
    }

    /// Reads a header; `bytes` has the length that the layout requires.
    pub(crate) fn from_bytes(bytes: &[u8], layout: Layout) -> Result<Self, StreamError> {
        let mut fields = Fields(bytes);
        let word = u16::from_be_bytes(fields.take()?);
        let payload_len = usize::from(word & 0xfff);
        let form = match word >> 12 {
            0 => UnitForm::Raw,
            13 => UnitForm::Abort,
            14 => UnitForm::Check,
            15 => UnitForm::End,
            id => UnitForm::Compressed(
                CodecId::from_wire(id as u8).ok_or(StreamError::Header("an unknown codec"))?,
            ),
        };
        let original_len = match layout {
            Layout::LongUnits => usize::from(u16::from_be_bytes(fields.take()?)),
            _ => 0,
        };
        let expected = match form {
            UnitForm::Abort => Some(1),
            UnitForm::Check => Some(4),
            UnitForm::End => Some(12),
            UnitForm::Raw | UnitForm::Compressed(_) => None,
        };
        if payload_len == 0 || expected.is_some_and(|len| len != payload_len) {
            return Err(StreamError::Header("a unit of a length that cannot be"));
        }
        Ok(Self { form, payload_len, original_len })
    }
}

/// Encodes a length from 1 to 65,536: less one.
fn length(len: usize) -> [u8; 2] {
    debug_assert!((1..=1 << 16).contains(&len));
    ((len - 1) as u16).to_be_bytes()
}

/// The fields of a header that are still unread.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], StreamError> {
        let (field, rest) =
            self.0.split_first_chunk().ok_or(StreamError::Header("a header that is too short"))?;
        self.0 = rest;
        Ok(*field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(header: Header) {
        let bytes = header.to_bytes();
        let bytes = bytes.as_slice();
        assert_eq!(Header::len_of(bytes[0]), Ok(bytes.len()));
        assert_eq!(Header::from_bytes(bytes), Ok(header));
    }

    #[test]
    fn headers_survive() {
        let block = BlockHeader {
            codec: None,
            refers: false,
            kept: false,
            index: None,
            original_len: 1,
            payload_len: 1,
            check: 0xdead_beef,
        };
        round_trip(Header::Block(block));
        round_trip(Header::Block(BlockHeader { index: Some(u32::MAX), ..block }));
        let codec = Some(CodecId::Zstd);
        round_trip(Header::Block(BlockHeader { codec, original_len: 65_536, ..block }));
        let two = BlockHeader { codec, original_len: 2, kept: true, ..block };
        round_trip(Header::Block(two));
        round_trip(Header::Block(BlockHeader { refers: true, ..two }));
        round_trip(Header::Block(BlockHeader { refers: true, kept: false, ..two }));
        round_trip(Header::End { total: u64::MAX, check: 7 });
        for number in [0, 1, 2, 3, 200] {
            round_trip(Header::Abort(AbortReason::from_wire(number)));
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for first in [0x80, 0xe0, 0xf2, 0xff] {
            assert!(Header::len_of(first).is_err(), "{first:x}");
        }
        let equal = [1, 0, 9, 0, 9, 0, 0, 0, 0];
        assert!(Header::from_bytes(&equal).is_err());
        assert!(Header::from_bytes(&[0x0e, 0, 9, 0, 3, 0, 0, 0, 0]).is_err());
        // Raw and deflated blocks can't refer to earlier ones.
        assert!(Header::from_bytes(&[0x20, 0, 9, 0, 0, 0, 0]).is_err());
        assert!(Header::from_bytes(&[0x23, 0, 9, 0, 3, 0, 0, 0, 0]).is_err());
        let good = Preamble {
            layout: Layout::Blocks,
            block_len_log2: 15,
            reorder: 3,
            codecs: 6,
            history: false,
        };
        let with_history = Preamble { reorder: 0, history: true, ..good };
        assert_eq!(Preamble::from_bytes(with_history.to_bytes()), Ok(with_history));
        assert_eq!(Preamble::from_bytes(good.to_bytes()), Ok(good));
        for (at, value) in
            [(0, b'x'), (3, 2), (3, 3), (4, 0), (4, 4), (5, 11), (5, 17), (6, 65), (7, 1)]
        {
            let mut bytes = good.to_bytes();
            bytes[at] = value;
            assert!(Preamble::from_bytes(bytes).is_err(), "byte {at} = {value}");
        }
    }
}
