//! The bytes of preambles and headers: `docs/stream-wire.md`, sections 2 to 5.

mod unit;

use std::ops::RangeInclusive;

use dwell_codec::{
    CONTEXT_LOG_MAX, CONTEXT_LOG_MIN, CodecId, MODEL_RECORD_LEN_MAX, ModelSpec, PPM_MEMORY_LOG_MIN,
    context_bound, supported_bitmap,
};

use crate::config::REORDER_MAX;
use crate::context::ContextLimits;
use crate::error::{AbortReason, StreamError};
pub(crate) use unit::{UNIT_PAYLOAD_MAX, UnitForm, UnitHeader};

/// The first bytes of every stream.
pub(crate) const MAGIC: [u8; 3] = *b"dws";
/// The version of streams in which no block refers to an earlier one, ...
pub(crate) const VERSION: u8 = 1;
/// ... of those in which blocks may refer to earlier ones, ...
pub(crate) const VERSION_WITH_HISTORY: u8 = 2;
/// ... of those with a running context, ...
pub(crate) const VERSION_WITH_CONTEXT: u8 = 3;
/// ... of those in which that may be a model, ...
pub(crate) const VERSION_WITH_MODEL: u8 = 4;
/// ... of those whose blocks may refer to the stream before, too, ...
pub(crate) const VERSION_GOING_ON: u8 = 5;
/// ... and of those that may get a running context on the way: as 2, ...
pub(crate) const VERSION_GRANTED: u8 = 6;
/// ... or as 5.
pub(crate) const VERSION_GRANTED_GOING_ON: u8 = 7;
pub(crate) const PREAMBLE_LEN: usize = 8;
/// The longest header of a block.
pub(crate) const HEADER_LEN_MAX: usize = 15;
/// The room before a block's bytes for a header and a preamble.
pub(crate) const ROOM: usize = 24;

const INDEXED: u8 = 0x10;
const REFERS: u8 = 0x20;
/// In version 4 the window has these bits of its byte, and the model's memory the others.
const WINDOW_BITS: u8 = 5;
/// The bytes before each part of a payload of a model.
pub(crate) const PART_HEADER_LEN: usize = 2;
/// With a running context these two bits mean something else.
const RUNNING: u8 = 0x10;
const BEGINS: u8 = 0x20;
const KEPT: u8 = 0x40;
/// In the codecs of a preamble: only running contexts have them.
const MODEL_BITS: u8 = 1 << CodecId::Ppm as u8 | MIX_BIT;
const MIX_BIT: u8 = 1 << CodecId::Mix as u8;
/// A payload of mix has at least a byte for so many of the data: so each byte that comes costs the receiver no more time than one of
/// ppm may, which decodes ten times as fast, and may be far shorter than its data.
pub(crate) const MIX_LEN_PART: usize = 128;
const END: u8 = 0xf0;
const ABORT: u8 = 0xf1;
/// Only in versions 6 and 7.
const GRANT: u8 = 0xf2;
const DROP: u8 = 0xf3;

/// The layout of the stream after the preamble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Blocks with check sums (section 3).
    Blocks,
    /// Units with a header of 2 bytes (section 5).
    Units,
    /// Units with a header of 4 bytes (section 5).
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
    /// True if what they may refer to begins with what was left of the stream before; only with a history.
    pub(crate) goes_on: bool,
    /// The binary logarithm of the longest window of the running context; 0 if there is none.
    pub(crate) window_log: u8,
    /// The binary logarithm of the most memory of a model in its place, in bytes; 0 if there is none.
    pub(crate) model_log: u8,
    /// True if a running context may take the history's place, when the receiver grants one; only with a history.
    pub(crate) may_get_context: bool,
}

/// The running contexts that a stream may have: what the bits of its headers mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contexts {
    /// None.
    None,
    /// One from the beginning (versions 3 and 4).
    Always,
    /// One when it is granted (versions 6 and 7).
    Granted,
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
        let (version, sixth) = match (self.window_log, self.model_log, self.history) {
            (0, _, false) => (VERSION, self.reorder),
            (0, _, true) if self.may_get_context => match self.goes_on {
                true => (VERSION_GRANTED_GOING_ON, self.reorder),
                false => (VERSION_GRANTED, self.reorder),
            },
            (0, _, true) if self.goes_on => (VERSION_GOING_ON, self.reorder),
            (0, _, true) => (VERSION_WITH_HISTORY, self.reorder),
            (window_log, 0, _) => (VERSION_WITH_CONTEXT, window_log),
            (window_log, model_log, _) => {
                let memory = model_log - PPM_MEMORY_LOG_MIN + 1;
                (VERSION_WITH_MODEL, memory << WINDOW_BITS | window_log)
            }
        };
        [a, b, c, version, layout, self.block_len_log2, sixth, self.codecs]
    }

    pub(crate) fn from_bytes(bytes: [u8; PREAMBLE_LEN]) -> Result<Self, StreamError> {
        let [a, b, c, version, layout, block_len_log2, sixth, codecs] = bytes;
        if [a, b, c] != MAGIC {
            return Err(StreamError::NotAStream);
        }
        let (history, reorder, window_log, memory) = match version {
            VERSION => (false, sixth, 0, 0),
            VERSION_WITH_HISTORY | VERSION_GOING_ON => (true, sixth, 0, 0),
            VERSION_GRANTED | VERSION_GRANTED_GOING_ON => (true, sixth, 0, 0),
            VERSION_WITH_CONTEXT => (false, 0, sixth, 0),
            VERSION_WITH_MODEL => {
                (false, 0, sixth & ((1 << WINDOW_BITS) - 1), sixth >> WINDOW_BITS)
            }
            _ => return Err(StreamError::Version(version)),
        };
        let is_window = (CONTEXT_LOG_MIN..=CONTEXT_LOG_MAX).contains(&window_log);
        if matches!(version, VERSION_WITH_CONTEXT | VERSION_WITH_MODEL) && !is_window {
            return Err(StreamError::Preamble(
                "its window is shorter than 32 KiB or longer than 8 MiB",
            ));
        }
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
        if (history || window_log > 0) && (layout != Layout::Blocks || reorder > 0) {
            return Err(StreamError::Preamble(
                "only blocks that come in order can refer to earlier ones",
            ));
        }
        let may_get_context = matches!(version, VERSION_GRANTED | VERSION_GRANTED_GOING_ON);
        let has_model = codecs & MODEL_BITS != 0 && !may_get_context;
        if has_model != (version == VERSION_WITH_MODEL) || has_model != (memory > 0) {
            return Err(StreamError::Preamble("it has a model without memory, or the reverse"));
        }
        if u16::from(codecs & !MODEL_BITS) & !supported_bitmap() != 0 {
            return Err(StreamError::Preamble("it needs a codec that this build does not have"));
        }
        let model_log = if has_model { PPM_MEMORY_LOG_MIN + memory - 1 } else { 0 };
        let goes_on = matches!(version, VERSION_GOING_ON | VERSION_GRANTED_GOING_ON);
        Ok(Self {
            layout,
            block_len_log2,
            reorder,
            codecs,
            history,
            goes_on,
            window_log,
            model_log,
            may_get_context,
        })
    }

    pub(crate) const fn contexts(self) -> Contexts {
        match (self.may_get_context, self.window_log) {
            (true, _) => Contexts::Granted,
            (false, 0) => Contexts::None,
            (false, _) => Contexts::Always,
        }
    }

    pub(crate) const fn context_limits(self) -> ContextLimits {
        ContextLimits { window_log: self.window_log, model_log: self.model_log }
    }

    pub(crate) fn allows(self, codec: CodecId) -> bool {
        self.codecs & (1 << codec as u8) != 0
    }

    /// Returns true if a model may be of mix.
    pub(crate) const fn mixes(self) -> bool {
        self.codecs & MIX_BIT != 0
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
    /// The stream of the other direction may begin a context of at most so much.
    Grant(ContextLimits),
    /// The context is dropped.
    Drop,
}

/// The fields before the bytes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockHeader {
    /// None if the bytes are uncompressed.
    pub(crate) codec: Option<CodecId>,
    /// True if the data refer to the history; only with a codec that can.
    pub(crate) refers: bool,
    /// True if it goes on with the running context, ...
    pub(crate) running: bool,
    /// ... and what it begins a generation from, if it does.
    pub(crate) begins: Option<Generation>,
    /// True if later blocks may refer to the data. If not, they can't refer to earlier ones either. With a running
    /// context, true if that stays.
    pub(crate) kept: bool,
    /// The block's number, if blocks may come out of order.
    pub(crate) index: Option<u32>,
    /// 1 to 65,536.
    pub(crate) original_len: usize,
    /// Less than the original length with a codec, equal without; a little more, at most, in a running context.
    pub(crate) payload_len: usize,
    /// CRC-32 of all data up to the end of this block.
    pub(crate) check: u32,
}

/// The beginning of a generation of the running context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation {
    pub(crate) coder: Coder,
    /// The number of bytes before it to which it refers, or which a model learns first.
    pub(crate) base_len: u32,
}

/// The codec of a generation, as far as the receiver must know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coder {
    /// zstd with a window of such a binary logarithm.
    Zstd(u8),
    Model(ModelSpec),
}

impl Coder {
    /// Returns the byte that stands for it in a header.
    fn to_wire(self) -> u8 {
        match self {
            Self::Zstd(window_log) => window_log,
            // Only models that there are begin; what could not be is refused.
            Self::Model(spec) => spec.to_wire().map(|(_, byte)| byte).unwrap_or_default(),
        }
    }

    fn from_wire(codec: CodecId, byte: u8) -> Result<Self, StreamError> {
        match ModelSpec::from_wire(codec as u8, byte) {
            Some(spec) => Ok(Self::Model(spec?)),
            None => Ok(Self::Zstd(byte)),
        }
    }
}

/// Returns the codec of a block that goes on with a running context.
fn running_codec(id: u8) -> Option<CodecId> {
    [CodecId::Zstd, CodecId::Ppm, CodecId::Mix].into_iter().find(|&codec| codec as u8 == id)
}

/// Returns the least and the most bytes that a block of a running context takes after compression.
fn running_bounds(codec: CodecId, original_len: usize) -> RangeInclusive<usize> {
    let parts = original_len.div_ceil(MODEL_RECORD_LEN_MAX);
    match codec {
        CodecId::Mix => {
            original_len.div_ceil(MIX_LEN_PART)..=original_len + PART_HEADER_LEN * parts
        }
        CodecId::Ppm => 1..=original_len + PART_HEADER_LEN * parts,
        _ => 1..=context_bound(original_len),
    }
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
            Self::Grant(limits) => out.push(&[GRANT, limits.window_log, limits.model_log]),
            Self::Drop => out.push(&[DROP]),
        }
        out
    }

    /// Returns the length of the header that begins with this byte, in a stream that may have such contexts.
    pub(crate) fn len_of(first: u8, contexts: Contexts) -> Result<usize, StreamError> {
        match first {
            END => Ok(13),
            ABORT => Ok(2),
            GRANT if contexts == Contexts::Granted => Ok(3),
            DROP if contexts == Contexts::Granted => Ok(1),
            _ if first & 0x80 == 0 && contexts != Contexts::None => match first & RUNNING != 0 {
                true => Ok(10 + if first & BEGINS != 0 { 5 } else { 0 }),
                false => Ok(7 + if first & 0x0f != 0 { 2 } else { 0 }),
            },
            _ if first & 0x80 == 0 => {
                let index = if first & INDEXED != 0 { 4 } else { 0 };
                let payload = if first & 0x0f != 0 { 2 } else { 0 };
                Ok(7 + index + payload)
            }
            _ => Err(StreamError::Header("a header of an unknown kind")),
        }
    }

    /// Reads a header; `bytes` has the length that `len_of` returned.
    pub(crate) fn from_bytes(bytes: &[u8], contexts: Contexts) -> Result<Self, StreamError> {
        let mut fields = Fields(bytes);
        let [first] = fields.take()?;
        let running = match contexts {
            Contexts::None => 0,
            Contexts::Always => RUNNING | BEGINS,
            // Without that bit the other one says that it refers to the history.
            Contexts::Granted => RUNNING,
        };
        match first {
            END => Ok(Self::End {
                total: u64::from_be_bytes(fields.take()?),
                check: u32::from_be_bytes(fields.take()?),
            }),
            ABORT => Ok(Self::Abort(AbortReason::from_wire(u8::from_be_bytes(fields.take()?)))),
            GRANT if contexts == Contexts::Granted => {
                ContextLimits::from_wire(fields.take()?).map(Self::Grant)
            }
            DROP if contexts == Contexts::Granted => Ok(Self::Drop),
            _ if first & running != 0 => {
                BlockHeader::read_running(first, &mut fields).map(Self::Block)
            }
            _ => BlockHeader::read(first, &mut fields).map(Self::Block),
        }
    }
}

impl BlockHeader {
    fn write(self, out: &mut HeaderBytes) {
        if self.running {
            return self.write_running(out);
        }
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

    fn write_running(self, out: &mut HeaderBytes) {
        let codec = self.codec.map_or(0, |codec| codec as u8);
        let begins = if self.begins.is_some() { BEGINS } else { 0 };
        let kept = if self.kept { KEPT } else { 0 };
        out.push(&[codec | RUNNING | begins | kept]);
        out.push(&length(self.original_len));
        out.push(&(self.payload_len as u32).to_be_bytes()[1..]);
        if let Some(Generation { coder, base_len }) = self.begins {
            out.push(&[coder.to_wire()]);
            out.push(&base_len.to_be_bytes());
        }
        out.push(&self.check.to_be_bytes());
    }

    fn read_running(first: u8, fields: &mut Fields<'_>) -> Result<Self, StreamError> {
        let Some(codec) = running_codec(first & 0x0f).filter(|_| first & RUNNING != 0) else {
            return Err(StreamError::Header("a block that goes on with the context, but cannot"));
        };
        let original_len = usize::from(u16::from_be_bytes(fields.take()?)) + 1;
        let [p0, p1, p2] = fields.take()?;
        let payload_len = u32::from_be_bytes([0, p0, p1, p2]) as usize;
        let begins = match first & BEGINS != 0 {
            true => {
                let [byte] = fields.take()?;
                let coder = Coder::from_wire(codec, byte)?;
                Some(Generation { coder, base_len: u32::from_be_bytes(fields.take()?) })
            }
            false => None,
        };
        if !running_bounds(codec, original_len).contains(&payload_len) {
            return Err(StreamError::Header(
                "a block of the context that is longer than any, or shorter",
            ));
        }
        let check = u32::from_be_bytes(fields.take()?);
        let (codec, kept) = (Some(codec), first & KEPT != 0);
        let (refers, index) = (false, None);
        Ok(Self {
            codec,
            refers,
            running: true,
            begins,
            kept,
            index,
            original_len,
            payload_len,
            check,
        })
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
        let (running, begins) = (false, None);
        Ok(Self { codec, refers, running, begins, kept, index, original_len, payload_len, check })
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
    use dwell_codec::{MixSpec, PpmSpec};

    use super::*;

    /// In each kind of stream that has such headers.
    fn round_trip(header: Header) {
        let kinds = match header {
            Header::Block(BlockHeader { running: true, .. }) => {
                &[Contexts::Always, Contexts::Granted][..]
            }
            Header::Block(BlockHeader { index: Some(_), .. }) => &[Contexts::None],
            Header::Block(BlockHeader { refers: true, .. }) => &[Contexts::None, Contexts::Granted],
            Header::Grant(_) | Header::Drop => &[Contexts::Granted],
            _ => &[Contexts::None, Contexts::Always, Contexts::Granted],
        };
        let bytes = header.to_bytes();
        let bytes = bytes.as_slice();
        for &contexts in kinds {
            assert_eq!(Header::len_of(bytes[0], contexts), Ok(bytes.len()));
            assert_eq!(Header::from_bytes(bytes, contexts), Ok(header));
        }
    }

    #[test]
    fn headers_survive() {
        let block = BlockHeader {
            codec: None,
            refers: false,
            running: false,
            begins: None,
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
        let running = BlockHeader { running: true, payload_len: 3, ..two };
        round_trip(Header::Block(running));
        round_trip(Header::Block(BlockHeader { kept: false, payload_len: 7, ..running }));
        let begins = Some(Generation { coder: Coder::Zstd(23), base_len: 1 << 20 });
        let longest = BlockHeader { begins, original_len: 65_536, payload_len: 65_544, ..running };
        round_trip(Header::Block(longest));
        let ppm = BlockHeader { codec: Some(CodecId::Ppm), payload_len: 4, ..running };
        round_trip(Header::Block(ppm));
        let model = PpmSpec { order: 12, memory_log: 26 }.into();
        let begins = Some(Generation { coder: Coder::Model(model), base_len: 32 << 10 });
        let longest = BlockHeader { begins, original_len: 65_536, payload_len: 65_544, ..ppm };
        round_trip(Header::Block(longest));
        let mix = BlockHeader { codec: Some(CodecId::Mix), ..ppm };
        round_trip(Header::Block(mix));
        for (memory_log, payload_len) in [(20, 512), (26, 65_544)] {
            let coder = Coder::Model(MixSpec { memory_log }.into());
            let begins = Some(Generation { coder, base_len: 8 << 10 });
            let block = BlockHeader { begins, original_len: 65_536, payload_len, ..mix };
            round_trip(Header::Block(block));
        }
        round_trip(Header::End { total: u64::MAX, check: 7 });
        round_trip(Header::Grant(ContextLimits { window_log: 15, model_log: 0 }));
        round_trip(Header::Grant(ContextLimits { window_log: 23, model_log: 26 }));
        round_trip(Header::Drop);
        for number in [0, 1, 2, 3, 200] {
            round_trip(Header::Abort(AbortReason::from_wire(number)));
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for first in [0x80, 0xe0, 0xf2, 0xff] {
            assert!(Header::len_of(first, Contexts::None).is_err(), "{first:x}");
            assert!(Header::len_of(first, Contexts::Always).is_err(), "{first:x}");
        }
        assert!(Header::len_of(0xf4, Contexts::Granted).is_err());
        for grant in [[0xf2, 14, 0], [0xf2, 24, 0], [0xf2, 20, 19], [0xf2, 20, 27], [0xf2, 0, 20]] {
            assert!(Header::from_bytes(&grant, Contexts::Granted).is_err(), "{grant:?}");
        }
        let equal = [1, 0, 9, 0, 9, 0, 0, 0, 0];
        let alone = |bytes: &[u8]| Header::from_bytes(bytes, Contexts::None);
        assert!(alone(&equal).is_err());
        assert!(alone(&[0x0e, 0, 9, 0, 3, 0, 0, 0, 0]).is_err());
        // What goes on with a context: not in units of lz4, not longer than it can be, not without its bit.
        for header in [
            &[0x11, 0, 9, 0, 0, 3, 0, 0, 0, 0][..],
            &[0x10, 0, 9, 0, 0, 3, 0, 0, 0, 0],
            &[0x12, 0, 9, 0, 0, 0, 0, 0, 0, 0],
            &[0x12, 0, 9, 0, 0, 16, 0, 0, 0, 0],
            &[0x16, 0, 9, 0, 0, 13, 0, 0, 0, 0],
            &[0x17, 0, 9, 0, 0, 13, 0, 0, 0, 0],
            &[0x17, 1, 0, 0, 0, 1, 0, 0, 0, 0],
            &[0x37, 0, 9, 0, 0, 3, 19, 0, 0, 0, 0, 0, 0, 0, 0],
            &[0x26, 0, 9, 0, 3, 0, 0, 0, 0],
            &[0x22, 0, 9, 0, 3, 0, 0, 0, 0],
        ] {
            assert_eq!(Header::len_of(header[0], Contexts::Always), Ok(header.len()));
            assert!(Header::from_bytes(header, Contexts::Always).is_err(), "{header:?}");
            // There zstd may refer to the history.
            let refers = header[0] == 0x22;
            let granted = Header::from_bytes(header, Contexts::Granted);
            assert_eq!(granted.is_ok(), refers, "{header:?}");
        }
        // Raw and deflated blocks can't refer to earlier ones.
        assert!(alone(&[0x20, 0, 9, 0, 0, 0, 0]).is_err());
        assert!(alone(&[0x23, 0, 9, 0, 3, 0, 0, 0, 0]).is_err());
        let good = Preamble {
            layout: Layout::Blocks,
            block_len_log2: 15,
            reorder: 3,
            codecs: 6,
            history: false,
            goes_on: false,
            window_log: 0,
            model_log: 0,
            may_get_context: false,
        };
        let with_history = Preamble { reorder: 0, history: true, ..good };
        let going_on = Preamble { goes_on: true, ..with_history };
        assert_eq!(going_on.to_bytes()[3], 5);
        assert_eq!(Preamble::from_bytes(going_on.to_bytes()), Ok(going_on));
        for (at, value) in [(4, 2), (6, 1), (7, 0x46), (7, 0x86)] {
            let mut bytes = going_on.to_bytes();
            bytes[at] = value;
            assert!(Preamble::from_bytes(bytes).is_err(), "byte {at} = {value}");
        }
        for (goes_on, version) in [(false, 6), (true, 7)] {
            let may_get = Preamble { may_get_context: true, goes_on, codecs: 0x46, ..with_history };
            let mut bytes = may_get.to_bytes();
            assert_eq!((bytes[3], Preamble::from_bytes(bytes)), (version, Ok(may_get)));
            bytes[6] = 20;
            assert!(Preamble::from_bytes(bytes).is_err(), "its window is said when it is granted");
            let mixed = Preamble { codecs: 0xc6, ..may_get };
            assert_eq!(Preamble::from_bytes(mixed.to_bytes()), Ok(mixed));
            assert!(mixed.mixes() && !may_get.mixes());
        }
        let with_context = Preamble { reorder: 0, window_log: 23, ..good };
        assert_eq!(Preamble::from_bytes(with_context.to_bytes()), Ok(with_context));
        for (window_log, model_log) in [(15, 20), (15, 26), (20, 24), (23, 26)] {
            for codecs in [0x46, 0x86, 0xc6] {
                let with_model = Preamble { window_log, model_log, codecs, ..with_context };
                assert_eq!(Preamble::from_bytes(with_model.to_bytes()), Ok(with_model));
                // No model in version 3, and in version 4 no other than with its memory.
                for (at, value) in [(3, 3), (6, window_log), (6, 1 << 5), (6, 24 | 1 << 5), (7, 6)]
                {
                    let mut bytes = with_model.to_bytes();
                    bytes[at] = value;
                    assert!(Preamble::from_bytes(bytes).is_err(), "byte {at} = {value}");
                }
            }
        }
        assert_eq!(Preamble::from_bytes(with_history.to_bytes()), Ok(with_history));
        assert_eq!(Preamble::from_bytes(good.to_bytes()), Ok(good));
        for (at, value) in [
            (0, b'x'),
            (3, 2),
            (3, 3),
            (4, 0),
            (4, 4),
            (5, 11),
            (5, 17),
            (6, 65),
            (7, 1),
            (7, 0x86),
        ] {
            let mut bytes = good.to_bytes();
            bytes[at] = value;
            assert!(Preamble::from_bytes(bytes).is_err(), "byte {at} = {value}");
        }
    }
}
