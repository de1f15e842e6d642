//! zstd contexts in memory of fixed size, and digested dictionaries.

pub(crate) mod primed;
pub(crate) mod stream;

use std::ptr::NonNull;
use std::sync::Arc;

use zstd_safe::zstd_sys::{
    ZSTD_CCtx, ZSTD_CCtx_refCDict, ZSTD_CCtx_refPrefix, ZSTD_CCtx_reset, ZSTD_CCtx_setParameter,
    ZSTD_CDict, ZSTD_DCtx, ZSTD_DCtx_refPrefix, ZSTD_DCtx_setParameter, ZSTD_ErrorCode,
    ZSTD_ResetDirective, ZSTD_cParameter, ZSTD_compress2, ZSTD_createCDict, ZSTD_createDCtx,
    ZSTD_dParameter, ZSTD_decompressDCtx, ZSTD_estimateCCtxSize_usingCParams, ZSTD_format_e,
    ZSTD_freeCDict, ZSTD_freeDCtx, ZSTD_getCParams, ZSTD_getErrorCode, ZSTD_initStaticCCtx,
    ZSTD_sizeof_DCtx, ZSTD_strategy,
};

use crate::{HISTORY_LEN_MAX, SRC_LEN_MAX};

// These are macros in zstd.h.
const FORMAT: ZSTD_cParameter = ZSTD_cParameter::ZSTD_c_experimentalParam2;
const FORMAT_TO_DECODE: ZSTD_dParameter = ZSTD_dParameter::ZSTD_d_experimentalParam1;
const SPLIT_AFTER_SEQUENCES: ZSTD_cParameter = ZSTD_cParameter::ZSTD_c_experimentalParam13;
const SWITCH_OFF: i32 = 2;

/// An error of zstd: its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure(pub(crate) u32);

/// A dictionary, digested for one level.
pub(crate) struct DigestedDictionary(NonNull<ZSTD_CDict>);

// SAFETY: zstd.h: a CDict "can be shared by multiple threads", as it is read-only.
unsafe impl Send for DigestedDictionary {}
// SAFETY: as above.
unsafe impl Sync for DigestedDictionary {}

impl DigestedDictionary {
    /// Digests a copy of `bytes`; `None` if zstd reports that they are damaged.
    pub(crate) fn new(bytes: &[u8], level: i32) -> Option<Self> {
        // SAFETY: a live slice, which zstd copies.
        let cdict = unsafe { ZSTD_createCDict(bytes.as_ptr().cast(), bytes.len(), level) };
        NonNull::new(cdict).map(Self)
    }
}

impl Drop for DigestedDictionary {
    fn drop(&mut self) {
        // SAFETY: made by ZSTD_createCDict, freed once.
        unsafe { ZSTD_freeCDict(self.0.as_ptr()) };
    }
}

/// A context that makes magicless frames without size, checksum and dictionary id.
///
/// It lives in memory that is large enough for any input up to [`SRC_LEN_MAX`]. An ordinary
/// context would grow with the first large input and, after 128 small ones, shrink again:
/// two allocations of hundreds of kilobytes in the middle of the traffic.
pub(crate) struct Context {
    /// Points into `_memory`.
    context: NonNull<ZSTD_CCtx>,
    _memory: Vec<u64>,
    /// `context` refers to it.
    _dictionary: Option<Arc<DigestedDictionary>>,
}

// SAFETY: a context is plain memory without ties to a thread, and what it points to is
// owned beside it and is `Send`.
unsafe impl Send for Context {}

impl Context {
    /// Makes a context for one level. With a dictionary, the level is that of the digest.
    pub(crate) fn new(
        level: i32,
        dictionary: Option<(Arc<DigestedDictionary>, usize)>,
    ) -> Result<Self, Failure> {
        let dictionary_len = dictionary.as_ref().map_or(0, |(_, len)| *len);
        Self::with_room(level, dictionary_len, dictionary.map(|(digest, _)| digest))
    }

    /// Makes a context for one level that also takes a history.
    pub(crate) fn with_history(level: i32) -> Result<Self, Failure> {
        Self::with_room(level, HISTORY_LEN_MAX, None)
    }

    fn with_room(
        level: i32,
        before_len: usize,
        digest: Option<Arc<DigestedDictionary>>,
    ) -> Result<Self, Failure> {
        let bytes = memory_needed(level, before_len);
        // Words, as zstd wants the memory aligned to eight bytes. Pages that a level does
        // not touch are never made real by the system.
        let mut memory = vec![0u64; bytes.div_ceil(8)];
        // SAFETY: a live buffer of that length, aligned to eight bytes. A `Vec` does not
        // move its content when it is moved, nor is this one ever used again.
        let context = unsafe { ZSTD_initStaticCCtx(memory.as_mut_ptr().cast(), memory.len() * 8) };
        let context = NonNull::new(context)
            .ok_or(Failure(ZSTD_ErrorCode::ZSTD_error_memory_allocation as u32))?;
        let mut context = Self { context, _memory: memory, _dictionary: digest };
        context.set_up(level)?;
        Ok(context)
    }

    fn set_up(&mut self, level: i32) -> Result<(), Failure> {
        use ZSTD_cParameter as Parameter;
        self.set(Parameter::ZSTD_c_compressionLevel, level)?;
        self.set(Parameter::ZSTD_c_contentSizeFlag, 0)?;
        self.set(Parameter::ZSTD_c_checksumFlag, 0)?;
        self.set(Parameter::ZSTD_c_dictIDFlag, 0)?;
        self.set(FORMAT, ZSTD_format_e::ZSTD_f_zstd1_magicless as i32)?;
        // The payload format knows only frames of one block.
        self.set(SPLIT_AFTER_SEQUENCES, SWITCH_OFF)?;
        if let Some(dictionary) = &self._dictionary {
            // SAFETY: both are live; the dictionary lives as long as the context, beside it.
            check(unsafe { ZSTD_CCtx_refCDict(self.context.as_ptr(), dictionary.0.as_ptr()) })?;
        }
        Ok(())
    }

    fn set(&mut self, parameter: ZSTD_cParameter, value: i32) -> Result<(), Failure> {
        // SAFETY: the context is live; any value is checked by zstd.
        check(unsafe { ZSTD_CCtx_setParameter(self.context.as_ptr(), parameter, value) })?;
        Ok(())
    }

    /// Compresses `src` to one frame that may refer to `history`, at most [`HISTORY_LEN_MAX`]
    /// bytes.
    pub(crate) fn compress_after(
        &mut self,
        history: &[u8],
        src: &[u8],
        dst: &mut [u8],
    ) -> Result<usize, Failure> {
        assert!(history.len() <= HISTORY_LEN_MAX, "the memory is for histories up to this length");
        // SAFETY: the context is live. The history is a live slice until after the one frame for
        // which zstd keeps the reference.
        check(unsafe {
            ZSTD_CCtx_refPrefix(self.context.as_ptr(), history.as_ptr().cast(), history.len())
        })?;
        let made = self.compress(src, dst);
        self.end_session()?;
        // SAFETY: as above. A frame that failed may have left the reference.
        let forgot =
            check(unsafe { ZSTD_CCtx_refPrefix(self.context.as_ptr(), std::ptr::null(), 0) });
        made.and_then(|len| forgot.map(|_| len))
    }

    /// Resets the session after a frame that failed: until then zstd takes no other history.
    fn end_session(&mut self) -> Result<usize, Failure> {
        let directive = ZSTD_ResetDirective::ZSTD_reset_session_only;
        // SAFETY: the context is live; parameters stay as they are.
        check(unsafe { ZSTD_CCtx_reset(self.context.as_ptr(), directive) })
    }

    /// Compresses `src`, which is at most [`SRC_LEN_MAX`] long, to one frame.
    pub(crate) fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> Result<usize, Failure> {
        assert!(src.len() <= SRC_LEN_MAX, "the memory is for inputs up to this length");
        // SAFETY: live slices that do not overlap. ZSTD_compress2 begins with a reset of the
        // session, so that it does not matter how the last call ended.
        check(unsafe {
            ZSTD_compress2(
                self.context.as_ptr(),
                dst.as_mut_ptr().cast(),
                dst.len(),
                src.as_ptr().cast(),
                src.len(),
            )
        })
    }
}

/// Returns the tables that zstd chooses for a level if it does not know how much will come, with
/// the given window; neither the hash table nor the chain table has more than `1 << table_log_max`
/// entries.
pub(crate) fn stream_tables(level: i32, window_log: u32, table_log_max: u32) -> stream::Tables {
    // SAFETY: takes and gives plain numbers.
    let chosen = unsafe { ZSTD_getCParams(level, 0, 0) };
    // At level 1 zstd's own table remembers 64 KiB: with a window that it does not know it expects
    // little of what is far away. Four times as many entries still lie in a core's cache.
    let is_fast = level > 0 && chosen.strategy == ZSTD_strategy::ZSTD_fast;
    let hash_log = if is_fast { chosen.hashLog.max(16) } else { chosen.hashLog };
    stream::Tables {
        level,
        window_log,
        hash_log: hash_log.min(table_log_max),
        chain_log: chosen.chainLog.min(table_log_max),
        search_log: chosen.searchLog,
        min_match: chosen.minMatch,
        target_len: chosen.targetLength,
        strategy: chosen.strategy as u32,
    }
}

/// A context that decodes magicless frames which refer to a history. About 160 KiB.
pub(crate) struct DecodingContext(NonNull<ZSTD_DCtx>);

// SAFETY: a context is plain memory without ties to a thread.
unsafe impl Send for DecodingContext {}
// SAFETY: through a shared reference nothing but its size is read.
unsafe impl Sync for DecodingContext {}

impl DecodingContext {
    /// Makes a context, or returns `None` without memory.
    pub(crate) fn new() -> Option<Self> {
        // SAFETY: no preconditions; the result is initialised, or null.
        let context = Self(NonNull::new(unsafe { ZSTD_createDCtx() })?);
        let format = ZSTD_format_e::ZSTD_f_zstd1_magicless as i32;
        // SAFETY: the context is live; any value is checked by zstd.
        let set = unsafe { ZSTD_DCtx_setParameter(context.0.as_ptr(), FORMAT_TO_DECODE, format) };
        check(set).ok().map(|_| context)
    }

    /// Decodes one frame from any bytes. The history is used as raw bytes, whatever it begins with.
    pub(crate) fn decompress_after(
        &mut self,
        history: &[u8],
        src: &[u8],
        dst: &mut [u8],
    ) -> Result<usize, Failure> {
        let context = self.0.as_ptr();
        // SAFETY: the context is live. The history is a live slice until after the one frame for
        // which zstd keeps the reference.
        check(unsafe { ZSTD_DCtx_refPrefix(context, history.as_ptr().cast(), history.len()) })?;
        // SAFETY: reads and writes only within the live slices, whatever the input.
        let decoded = check(unsafe {
            ZSTD_decompressDCtx(
                context,
                dst.as_mut_ptr().cast(),
                dst.len(),
                src.as_ptr().cast(),
                src.len(),
            )
        });
        // SAFETY: as above. A frame that failed may have left the reference.
        check(unsafe { ZSTD_DCtx_refPrefix(context, std::ptr::null(), 0) })?;
        decoded
    }

    /// Returns the bytes of memory that are allocated now.
    pub(crate) fn memory_bytes(&self) -> usize {
        // SAFETY: the context is live.
        unsafe { ZSTD_sizeof_DCtx(self.0.as_ptr()) }
    }
}

impl Drop for DecodingContext {
    fn drop(&mut self) {
        // SAFETY: made by ZSTD_createDCtx, freed once.
        unsafe { ZSTD_freeDCtx(self.0.as_ptr()) };
    }
}

/// Returns an upper bound for the memory of a context at this level, whatever the input.
///
/// zstd chooses other tables by the length of the input and the dictionary, not always
/// smaller ones for shorter input, so this is the maximum over its classes.
fn memory_needed(level: i32, dictionary_len: usize) -> usize {
    let cases = [1, 4 << 10, 15 << 10, SRC_LEN_MAX].into_iter().flat_map(|src_len| {
        // A history grows from nothing up to this length.
        let before = [0, 4 << 10, 15 << 10, 64 << 10, 127 << 10, dictionary_len];
        before.map(|before_len| (src_len, before_len.min(dictionary_len)))
    });
    let sizes = cases.map(|(src_len, dictionary_len)| {
        // SAFETY: takes and gives plain numbers.
        let mut parameters = unsafe { ZSTD_getCParams(level, src_len as u64, dictionary_len) };
        // Dictionary and input together: the window decides the size of the block buffers.
        let reach = (SRC_LEN_MAX + dictionary_len).next_power_of_two().trailing_zeros();
        parameters.windowLog = parameters.windowLog.max(reach.max(17));
        // SAFETY: takes and gives plain numbers.
        unsafe { ZSTD_estimateCCtxSize_usingCParams(parameters) }
    });
    sizes.max().expect("there are cases")
}

/// Separates lengths from error codes.
fn check(result: usize) -> Result<usize, Failure> {
    // SAFETY: takes and gives plain numbers.
    let code = unsafe { ZSTD_getErrorCode(result) };
    match code {
        ZSTD_ErrorCode::ZSTD_error_no_error => Ok(result),
        other => Err(Failure(other as u32)),
    }
}
