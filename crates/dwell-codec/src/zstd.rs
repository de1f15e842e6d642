//! zstd frames of one block, without their predictable beginning.
//!
//! The format is described with the crate. On short packets the elided bytes matter: five
//! bytes are four points of ratio at 128 bytes.

use zstd_safe::{DCtx, DParameter, FrameFormat};

use crate::context::ContextSpec;
use crate::dictionary::Dictionary;
use crate::error::{CodecError, DecodeError};
use crate::ffi::zstd::primed::PrimedContext;
use crate::ffi::zstd::stream::Tables;
use crate::ffi::zstd::{Context, DecodingContext, Failure, stream_tables};
use crate::id::CodecId;
use crate::{HISTORY_LEN_MAX, SRC_LEN_MAX};

/// Frame header descriptor, window descriptor, and the header of the only block.
const PREAMBLE_LEN: usize = 5;
/// No content size, no checksum, no dictionary id, a window descriptor follows.
const FRAME_DESCRIPTOR: u8 = 0;
/// A window of 128 KiB, as much as a block can hold. Decoding into one buffer needs no
/// window at all, so this costs no memory; it only bounds the block.
const WINDOW_DESCRIPTOR: u8 = (17 - 10) << 3;

/// With a history: 256 KiB, as much as both together can be.
const WINDOW_DESCRIPTOR_AFTER: u8 = (18 - 10) << 3;

/// The types of a block, RFC 8878, section 3.1.1.2.2.
const TYPE_RAW: u32 = 0;
const TYPE_RLE: u32 = 1;
const TYPE_COMPRESSED: u32 = 2;

pub(crate) struct Encoder {
    context: Context,
    /// Takes the frame before its beginning is cut off.
    frame: Box<[u8]>,
}

impl Encoder {
    pub(crate) fn new(level: i32, dictionary: Option<&Dictionary>) -> Result<Self, CodecError> {
        let digest = match dictionary {
            Some(dictionary) => {
                let digest = dictionary.for_zstd(level).ok_or(CodecError::BadDictionary)?;
                Some((digest, dictionary.bytes().len()))
            }
            None => None,
        };
        Context::new(level, digest).map(Self::of).map_err(unexpected)
    }

    /// Makes an encoder that also takes a history.
    pub(crate) fn with_history(level: i32) -> Result<Self, CodecError> {
        Context::with_history(level).map(Self::of).map_err(unexpected)
    }

    fn of(context: Context) -> Self {
        Self { context, frame: vec![0; zstd_safe::compress_bound(SRC_LEN_MAX)].into() }
    }

    pub(crate) fn compress(
        &mut self,
        src: &[u8],
        dst: &mut [u8],
    ) -> Result<Option<usize>, CodecError> {
        // Always the same, ample room: zstd needs some for its attempts, so that with less it
        // may compress worse or fail where the payload would have fitted.
        let len = self.context.compress(src, &mut self.frame).map_err(unexpected)?;
        Ok(payload_of(&self.frame[..len], dst))
    }

    pub(crate) fn compress_after(
        &mut self,
        history: &[u8],
        src: &[u8],
        dst: &mut [u8],
    ) -> Result<Option<usize>, CodecError> {
        let made = self.context.compress_after(history, src, &mut self.frame);
        Ok(payload_of(&self.frame[..made.map_err(unexpected)?], dst))
    }
}

/// Compresses each of many payloads with reference to the same bytes.
pub(crate) struct PrimedEncoder {
    context: PrimedContext,
    /// Takes the frame before its beginning is cut off.
    frame: Box<[u8]>,
}

impl PrimedEncoder {
    pub(crate) fn new() -> Result<Self, CodecError> {
        let context = PrimedContext::new().map_err(unexpected)?;
        Ok(Self { context, frame: vec![0; zstd_safe::compress_bound(SRC_LEN_MAX)].into() })
    }

    /// Takes other bytes to refer to, which `fill` writes; the first payload after that primes the tables.
    pub(crate) fn prime(
        &mut self,
        level: i32,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), CodecError> {
        self.context.prime(level, fill).map_err(unexpected)
    }

    /// Appends the payload, if it is smaller than `src`, which has at most [`SRC_LEN_MAX`] bytes. False if
    /// it is not.
    pub(crate) fn compress(&mut self, src: &[u8], out: &mut Vec<u8>) -> Result<bool, CodecError> {
        let len = self.context.compress(src, &mut self.frame).map_err(unexpected)?;
        let start = out.len();
        out.resize(start + src.len().saturating_sub(1), 0);
        let written = payload_of(&self.frame[..len], &mut out[start..]);
        out.truncate(start + written.unwrap_or(0));
        Ok(written.is_some())
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.context.memory_bytes() + self.frame.len()
    }
}

/// Larger tables would take more memory than the window, at next to no ratio.
const TABLE_LOG_MAX: u32 = 21;

/// Returns the tables of a context.
pub(crate) fn tables(spec: ContextSpec) -> Tables {
    let window_log = u32::from(spec.window_log);
    stream_tables(spec.level, window_log, window_log.min(TABLE_LOG_MAX))
}

pub(crate) fn unexpected(failure: Failure) -> CodecError {
    CodecError::Library { codec: CodecId::Zstd, code: failure.0 }
}

/// Writes the part of a frame that is not predictable; `None` if that does not fit, or if the frame
/// is not of the kind that the decoder rebuilds.
fn payload_of(frame: &[u8], dst: &mut [u8]) -> Option<usize> {
    let (&[descriptor, _window, b0, b1, b2], content) = frame.split_first_chunk()?;
    let header = u32::from_le_bytes([b0, b1, b2, 0]);
    let (is_last, kind, size) = (header & 1 == 1, header >> 1 & 3, header >> 3);
    if !is_last || descriptor != FRAME_DESCRIPTOR {
        // Never happens while inputs fit into one block, but must not go unnoticed.
        debug_assert!(false, "zstd made a frame of several blocks or another kind");
        return None;
    }
    match kind {
        TYPE_COMPRESSED => {
            debug_assert_eq!(size as usize, content.len());
            dst.get_mut(..content.len())?.copy_from_slice(content);
            Some(content.len())
        }
        TYPE_RLE => rle_as_compressed(size, *content.first()?, dst),
        _ => {
            debug_assert_eq!(kind, TYPE_RAW);
            None
        }
    }
}

/// Writes a compressed block for `count` times the same byte: RLE literals (RFC 8878, section
/// 3.1.1.3.1.1, always with the 20-bit size format) and no sequences.
fn rle_as_compressed(count: u32, byte: u8, dst: &mut [u8]) -> Option<usize> {
    const RLE_LITERALS: u32 = 1;
    const SIZE_IN_20_BITS: u32 = 3;
    const NO_SEQUENCES: u8 = 0;
    let [h0, h1, h2, _] = (RLE_LITERALS | SIZE_IN_20_BITS << 2 | count << 4).to_le_bytes();
    let block = [h0, h1, h2, byte, NO_SEQUENCES];
    dst.get_mut(..block.len())?.copy_from_slice(&block);
    Some(block.len())
}

/// Restores payloads that refer to bytes before them, and nothing else.
pub(crate) struct PrimedDecoder {
    context: DecodingContext,
    /// Takes the frame with its beginning rebuilt.
    frame: Box<[u8]>,
}

impl PrimedDecoder {
    pub(crate) fn new() -> Option<Self> {
        let frame = vec![0; SRC_LEN_MAX + PREAMBLE_LEN].into();
        Some(Self { context: DecodingContext::new()?, frame })
    }

    /// Decodes a payload, which must be exactly as long as `dst`, of at most [`SRC_LEN_MAX`] bytes.
    pub(crate) fn decompress(
        &mut self,
        history: &[u8],
        src: &[u8],
        dst: &mut [u8],
    ) -> Result<(), DecodeError> {
        if src.len() > SRC_LEN_MAX {
            return Err(DecodeError::TooLong(src.len()));
        }
        (self.frame[0], self.frame[1]) = (FRAME_DESCRIPTOR, WINDOW_DESCRIPTOR_AFTER);
        let len = rebuild(&mut self.frame, src);
        let decoded = self.context.decompress_after(history, &self.frame[..len], dst);
        match decoded {
            Ok(len) if len == dst.len() => Ok(()),
            Ok(_) => Err(DecodeError::Corrupt(CodecId::Zstd)),
            Err(Failure(number)) => Err(reported(number)),
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.context.memory_bytes() + self.frame.len()
    }
}

pub(crate) struct Decoder {
    context: DCtx<'static>,
    /// The context for payloads with a history, made for the first of them.
    after: Option<DecodingContext>,
    /// Takes the frame with its beginning rebuilt.
    frame: Box<[u8]>,
}

impl Decoder {
    pub(crate) fn new() -> Self {
        let mut context = DCtx::create();
        context
            .set_parameter(DParameter::Format(FrameFormat::Magicless))
            .expect("every zstd since 1.4 has this parameter");
        let mut frame = vec![0; SRC_LEN_MAX + PREAMBLE_LEN];
        frame[0] = FRAME_DESCRIPTOR;
        frame[1] = WINDOW_DESCRIPTOR;
        Self { context, after: None, frame: frame.into() }
    }

    /// Decodes a payload of at most [`SRC_LEN_MAX`] bytes that may refer to `history`.
    pub(crate) fn decompress_after(
        &mut self,
        history: &[u8],
        src: &[u8],
        dst: &mut [u8],
    ) -> Result<usize, DecodeError> {
        let len = rebuild(&mut self.frame, src);
        if self.after.is_none() {
            self.after = DecodingContext::new();
        }
        let context = self.after.as_mut().ok_or(DecodeError::OutOfMemory(CodecId::Zstd))?;
        self.frame[1] = WINDOW_DESCRIPTOR_AFTER;
        let decoded = context.decompress_after(history, &self.frame[..len], dst);
        self.frame[1] = WINDOW_DESCRIPTOR;
        decoded.map_err(|Failure(number)| reported(number))
    }

    /// Decodes a payload of at most [`SRC_LEN_MAX`] bytes.
    pub(crate) fn decompress(
        &mut self,
        dictionary: Option<&Dictionary>,
        src: &[u8],
        dst: &mut [u8],
    ) -> Result<usize, DecodeError> {
        let frame = rebuild(&mut self.frame, src);
        let result = match dictionary {
            Some(dictionary) => {
                let digest = dictionary.for_decoding_zstd();
                self.context.decompress_using_ddict(dst, &self.frame[..frame], digest)
            }
            None => self.context.decompress(dst, &self.frame[..frame]),
        };
        result.map_err(decode_error)
    }
}

/// Puts the header of the block and the payload behind the frame's, and gives the length of all.
fn rebuild(frame: &mut [u8], payload: &[u8]) -> usize {
    let header = 1 | TYPE_COMPRESSED << 1 | (payload.len() as u32) << 3;
    frame[2..PREAMBLE_LEN].copy_from_slice(&header.to_le_bytes()[..3]);
    let len = PREAMBLE_LEN + payload.len();
    frame[PREAMBLE_LEN..len].copy_from_slice(payload);
    len
}

const _: () = assert!(HISTORY_LEN_MAX + SRC_LEN_MAX <= 1 << 18, "the window's descriptor");

fn decode_error(code: zstd_safe::ErrorCode) -> DecodeError {
    // zstd's error codes are its numbers for errors, negated.
    reported(code.wrapping_neg() as u32)
}

pub(crate) fn reported(number: u32) -> DecodeError {
    const DST_SIZE_TOO_SMALL: u32 = 70;
    const MEMORY_ALLOCATION: u32 = 64;
    match number {
        MEMORY_ALLOCATION => DecodeError::OutOfMemory(CodecId::Zstd),
        DST_SIZE_TOO_SMALL => DecodeError::DoesNotFit(CodecId::Zstd),
        _ => DecodeError::Corrupt(CodecId::Zstd),
    }
}
