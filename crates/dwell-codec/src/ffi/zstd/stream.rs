//! zstd streams: frames of many batches, each flushed when it ends.

use std::ptr::NonNull;

use zstd_safe::zstd_sys::{
    ZSTD_CCtx, ZSTD_CCtx_refPrefix, ZSTD_CCtx_reset, ZSTD_CCtx_setParameter, ZSTD_DCtx,
    ZSTD_DCtx_refPrefix, ZSTD_DCtx_reset, ZSTD_DCtx_setParameter, ZSTD_EndDirective,
    ZSTD_ErrorCode, ZSTD_ResetDirective, ZSTD_cParameter, ZSTD_compressStream2, ZSTD_createCCtx,
    ZSTD_createDCtx, ZSTD_dParameter, ZSTD_decompressStream, ZSTD_format_e, ZSTD_freeCCtx,
    ZSTD_freeDCtx, ZSTD_inBuffer, ZSTD_outBuffer, ZSTD_sizeof_CCtx, ZSTD_sizeof_DCtx,
};

use super::{FORMAT, FORMAT_TO_DECODE, Failure, SPLIT_AFTER_SEQUENCES, SWITCH_OFF, check};

const RESET: ZSTD_ResetDirective = ZSTD_ResetDirective::ZSTD_reset_session_only;

/// The parameters of zstd that a stream sets: none is left to be guessed from the length of the
/// input, which a stream does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tables {
    pub(crate) level: i32,
    pub(crate) window_log: u32,
    pub(crate) hash_log: u32,
    pub(crate) chain_log: u32,
    pub(crate) search_log: u32,
    pub(crate) min_match: u32,
    pub(crate) target_len: u32,
    pub(crate) strategy: u32,
}

/// Makes one magicless frame after another, each of batches that refer to those before.
pub(crate) struct EncodingStream {
    context: NonNull<ZSTD_CCtx>,
    /// The bytes before the frame; `context` refers to it until the next frame begins.
    prefix: Vec<u8>,
}

// SAFETY: a context is plain memory without ties to a thread, and what it refers to is owned
// beside it.
unsafe impl Send for EncodingStream {}
// SAFETY: through a shared reference nothing but its size is read.
unsafe impl Sync for EncodingStream {}

impl EncodingStream {
    /// Makes a stream without a frame, or returns a failure without memory.
    pub(crate) fn new() -> Result<Self, Failure> {
        // SAFETY: no preconditions; the result is initialised, or null.
        let context = NonNull::new(unsafe { ZSTD_createCCtx() }).ok_or(NO_MEMORY)?;
        let mut stream = Self { context, prefix: Vec::new() };
        use ZSTD_cParameter as Parameter;
        stream.set(Parameter::ZSTD_c_contentSizeFlag, 0)?;
        stream.set(Parameter::ZSTD_c_checksumFlag, 0)?;
        stream.set(Parameter::ZSTD_c_dictIDFlag, 0)?;
        stream.set(FORMAT, ZSTD_format_e::ZSTD_f_zstd1_magicless as i32)?;
        // Few batches are long enough to gain by it, and each part costs three bytes more.
        stream.set(SPLIT_AFTER_SEQUENCES, SWITCH_OFF)?;
        Ok(stream)
    }

    fn set(&mut self, parameter: ZSTD_cParameter, value: i32) -> Result<(), Failure> {
        // SAFETY: the context is live; any value is checked by zstd.
        check(unsafe { ZSTD_CCtx_setParameter(self.context.as_ptr(), parameter, value) })?;
        Ok(())
    }

    /// Ends the frame without a mark, and prepares the next one. `fill` writes the bytes before it,
    /// which are used as raw bytes, whatever they begin with.
    pub(crate) fn begin(
        &mut self,
        tables: &Tables,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Failure> {
        let context = self.context.as_ptr();
        // SAFETY: the context is live. After this it reads nothing of the prefix before: it refers
        // to a prefix for one frame only.
        check(unsafe { ZSTD_CCtx_reset(context, RESET) })?;
        // SAFETY: as above. A prefix whose frame never began is dropped here.
        check(unsafe { ZSTD_CCtx_refPrefix(context, std::ptr::null(), 0) })?;
        self.prefix.clear();
        fill(&mut self.prefix);
        use ZSTD_cParameter as Parameter;
        self.set(Parameter::ZSTD_c_compressionLevel, tables.level)?;
        self.set(Parameter::ZSTD_c_windowLog, tables.window_log as i32)?;
        self.set(Parameter::ZSTD_c_hashLog, tables.hash_log as i32)?;
        self.set(Parameter::ZSTD_c_chainLog, tables.chain_log as i32)?;
        self.set(Parameter::ZSTD_c_searchLog, tables.search_log as i32)?;
        self.set(Parameter::ZSTD_c_minMatch, tables.min_match as i32)?;
        self.set(Parameter::ZSTD_c_targetLength, tables.target_len as i32)?;
        self.set(Parameter::ZSTD_c_strategy, tables.strategy as i32)?;
        // SAFETY: the context is live. The prefix is owned beside it, is not changed before the
        // next call of this function, and a `Vec` does not move its content when it is moved.
        check(unsafe {
            ZSTD_CCtx_refPrefix(context, self.prefix.as_ptr().cast(), self.prefix.len())
        })?;
        Ok(())
    }

    /// Compresses `src` and appends all of its bytes to `out`, which has `room` bytes for them.
    pub(crate) fn flush(
        &mut self,
        src: &[u8],
        room: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        out.reserve(room);
        let spare = out.spare_capacity_mut();
        let mut input = ZSTD_inBuffer { src: src.as_ptr().cast(), size: src.len(), pos: 0 };
        let mut output =
            ZSTD_outBuffer { dst: spare.as_mut_ptr().cast(), size: spare.len(), pos: 0 };
        let flush = ZSTD_EndDirective::ZSTD_e_flush;
        // SAFETY: the context is live, and so is the prefix that it refers to. Both buffers are
        // live and do not overlap; zstd only writes to the second.
        let left = check(unsafe {
            ZSTD_compressStream2(self.context.as_ptr(), &raw mut output, &raw mut input, flush)
        })?;
        if left > 0 || input.pos < input.size {
            return Err(NO_ROOM);
        }
        // SAFETY: zstd has written the first `pos` bytes of the spare capacity.
        unsafe { out.set_len(out.len() + output.pos) };
        Ok(())
    }

    /// Returns the bytes of memory that are allocated now.
    pub(crate) fn memory_bytes(&self) -> usize {
        // SAFETY: the context is live.
        self.prefix.capacity() + unsafe { ZSTD_sizeof_CCtx(self.context.as_ptr()) }
    }
}

impl Drop for EncodingStream {
    fn drop(&mut self) {
        // SAFETY: made by ZSTD_createCCtx, freed once.
        unsafe { ZSTD_freeCCtx(self.context.as_ptr()) };
    }
}

/// Decodes what an [`EncodingStream`] made, or any bytes.
pub(crate) struct DecodingStream {
    context: NonNull<ZSTD_DCtx>,
    /// The bytes before the frame; `context` refers to it until the next frame begins.
    prefix: Vec<u8>,
}

// SAFETY: a context is plain memory without ties to a thread, and what it refers to is owned
// beside it.
unsafe impl Send for DecodingStream {}
// SAFETY: through a shared reference nothing but its size is read.
unsafe impl Sync for DecodingStream {}

impl DecodingStream {
    /// Makes a stream without a frame, or returns a failure without memory.
    pub(crate) fn new() -> Result<Self, Failure> {
        // SAFETY: no preconditions; the result is initialised, or null.
        let context = NonNull::new(unsafe { ZSTD_createDCtx() }).ok_or(NO_MEMORY)?;
        let mut stream = Self { context, prefix: Vec::new() };
        stream.set(FORMAT_TO_DECODE, ZSTD_format_e::ZSTD_f_zstd1_magicless as i32)?;
        Ok(stream)
    }

    fn set(&mut self, parameter: ZSTD_dParameter, value: i32) -> Result<(), Failure> {
        // SAFETY: the context is live; any value is checked by zstd.
        check(unsafe { ZSTD_DCtx_setParameter(self.context.as_ptr(), parameter, value) })?;
        Ok(())
    }

    /// Forgets the frame and prepares the next one, which may have a window of at most
    /// `1 << window_log` bytes. `fill` writes the bytes before it.
    pub(crate) fn begin(
        &mut self,
        window_log: u32,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Failure> {
        let context = self.context.as_ptr();
        // SAFETY: the context is live.
        check(unsafe { ZSTD_DCtx_reset(context, RESET) })?;
        // SAFETY: as above. From here on it does not refer to the prefix of the frame before.
        check(unsafe { ZSTD_DCtx_refPrefix(context, std::ptr::null(), 0) })?;
        self.prefix.clear();
        fill(&mut self.prefix);
        self.set(ZSTD_dParameter::ZSTD_d_windowLogMax, window_log as i32)?;
        // SAFETY: the context is live. The prefix is owned beside it, is not changed before the
        // next call of this function, and a `Vec` does not move its content when it is moved.
        check(unsafe {
            ZSTD_DCtx_refPrefix(context, self.prefix.as_ptr().cast(), self.prefix.len())
        })?;
        Ok(())
    }

    /// Decodes `src`, any bytes. False if not exactly `dst.len()` bytes come out of all of it, or
    /// the frame ends.
    pub(crate) fn decode(&mut self, src: &[u8], dst: &mut [u8]) -> Result<bool, Failure> {
        let mut src_at = 0;
        let mut dst_at = 0;
        while src_at < src.len() || dst_at < dst.len() {
            let before = (src_at, dst_at);
            if !self.step(src, &mut src_at, dst, &mut dst_at)? {
                return Ok(false);
            }
            if before == (src_at, dst_at) {
                return Ok(false);
            }
        }
        // More may have been decoded than there was room for.
        let (mut beyond, mut beyond_len) = ([0], 0);
        Ok(self.step(&[], &mut 0, &mut beyond, &mut beyond_len)? && beyond_len == 0)
    }

    /// Decodes as much as possible; false if the frame has ended.
    fn step(
        &mut self,
        src: &[u8],
        src_at: &mut usize,
        dst: &mut [u8],
        dst_at: &mut usize,
    ) -> Result<bool, Failure> {
        let mut input = ZSTD_inBuffer { src: src.as_ptr().cast(), size: src.len(), pos: *src_at };
        let mut output =
            ZSTD_outBuffer { dst: dst.as_mut_ptr().cast(), size: dst.len(), pos: *dst_at };
        // SAFETY: the context is live, and so is the prefix that it refers to. Reads and writes
        // only within the live slices, whatever the input.
        let hint = check(unsafe {
            ZSTD_decompressStream(self.context.as_ptr(), &raw mut output, &raw mut input)
        })?;
        (*src_at, *dst_at) = (input.pos, output.pos);
        Ok(hint > 0)
    }

    /// Returns the bytes of memory that are allocated now.
    pub(crate) fn memory_bytes(&self) -> usize {
        // SAFETY: the context is live.
        self.prefix.capacity() + unsafe { ZSTD_sizeof_DCtx(self.context.as_ptr()) }
    }
}

impl Drop for DecodingStream {
    fn drop(&mut self) {
        // SAFETY: made by ZSTD_createDCtx, freed once.
        unsafe { ZSTD_freeDCtx(self.context.as_ptr()) };
    }
}

pub(super) const NO_MEMORY: Failure = Failure(ZSTD_ErrorCode::ZSTD_error_memory_allocation as u32);
const NO_ROOM: Failure = Failure(ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall as u32);
