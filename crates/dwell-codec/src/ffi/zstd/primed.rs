//! zstd frames that all refer to the same bytes before them.

use std::ptr::NonNull;

use zstd_safe::zstd_sys::{
    ZSTD_CCtx, ZSTD_CCtx_loadDictionary_advanced, ZSTD_CCtx_reset, ZSTD_CCtx_setParameter,
    ZSTD_ResetDirective, ZSTD_cParameter, ZSTD_compress2, ZSTD_createCCtx, ZSTD_dictContentType_e,
    ZSTD_dictLoadMethod_e, ZSTD_format_e, ZSTD_freeCCtx, ZSTD_sizeof_CCtx,
};

use super::stream::NO_MEMORY;
use super::{FORMAT, Failure, SPLIT_AFTER_SEQUENCES, SWITCH_OFF, check};
use crate::SRC_LEN_MAX;

/// Makes magicless frames of one block each, without size, checksum and dictionary id.
pub(crate) struct PrimedContext {
    context: NonNull<ZSTD_CCtx>,
    /// The bytes before each frame; `context` refers to them until it is primed again.
    base: Vec<u8>,
}

// SAFETY: a context is plain memory without ties to a thread, and what it refers to is owned
// beside it.
unsafe impl Send for PrimedContext {}
// SAFETY: through a shared reference nothing but its size is read.
unsafe impl Sync for PrimedContext {}

impl PrimedContext {
    /// Makes a context that refers to nothing, or returns a failure without memory.
    pub(crate) fn new() -> Result<Self, Failure> {
        // SAFETY: no preconditions; the result is initialised, or null.
        let context = NonNull::new(unsafe { ZSTD_createCCtx() }).ok_or(NO_MEMORY)?;
        let mut primed = Self { context, base: Vec::new() };
        use ZSTD_cParameter as Parameter;
        primed.set(Parameter::ZSTD_c_contentSizeFlag, 0)?;
        primed.set(Parameter::ZSTD_c_checksumFlag, 0)?;
        primed.set(Parameter::ZSTD_c_dictIDFlag, 0)?;
        primed.set(FORMAT, ZSTD_format_e::ZSTD_f_zstd1_magicless as i32)?;
        // The payload format knows only frames of one block.
        primed.set(SPLIT_AFTER_SEQUENCES, SWITCH_OFF)?;
        Ok(primed)
    }

    fn set(&mut self, parameter: ZSTD_cParameter, value: i32) -> Result<(), Failure> {
        // SAFETY: the context is live; any value is checked by zstd.
        check(unsafe { ZSTD_CCtx_setParameter(self.context.as_ptr(), parameter, value) })?;
        Ok(())
    }

    /// Takes other bytes to refer to, which `fill` writes; they are used as raw bytes, whatever they
    /// begin with. The tables for them are made with the next frame, once.
    pub(crate) fn prime(
        &mut self,
        level: i32,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Failure> {
        // A frame that failed has not ended: until then zstd takes no other bytes.
        let directive = ZSTD_ResetDirective::ZSTD_reset_session_only;
        // SAFETY: the context is live; parameters stay as they are.
        check(unsafe { ZSTD_CCtx_reset(self.context.as_ptr(), directive) })?;
        // It refers to the old bytes no longer, which change now.
        self.load(&[])?;
        let mut base = std::mem::take(&mut self.base);
        base.clear();
        fill(&mut base);
        self.set(ZSTD_cParameter::ZSTD_c_compressionLevel, level)?;
        self.load(&base)?;
        // A `Vec` does not move its content when it is moved.
        self.base = base;
        Ok(())
    }

    /// Refers to these bytes, which must outlive the next call.
    fn load(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        // SAFETY: the context is live. The bytes are owned beside it, and not changed before others
        // are loaded; without any it refers to nothing.
        check(unsafe {
            ZSTD_CCtx_loadDictionary_advanced(
                self.context.as_ptr(),
                bytes.as_ptr().cast(),
                bytes.len(),
                ZSTD_dictLoadMethod_e::ZSTD_dlm_byRef,
                ZSTD_dictContentType_e::ZSTD_dct_rawContent,
            )
        })?;
        Ok(())
    }

    /// Compresses `src`, which is at most [`SRC_LEN_MAX`] long, to one frame.
    pub(crate) fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> Result<usize, Failure> {
        assert!(src.len() <= SRC_LEN_MAX, "a frame has one block");
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

    /// Returns the bytes of memory that are allocated now.
    pub(crate) fn memory_bytes(&self) -> usize {
        // SAFETY: the context is live.
        self.base.capacity() + unsafe { ZSTD_sizeof_CCtx(self.context.as_ptr()) }
    }
}

impl Drop for PrimedContext {
    fn drop(&mut self) {
        // SAFETY: made by ZSTD_createCCtx, freed once.
        unsafe { ZSTD_freeCCtx(self.context.as_ptr()) };
    }
}
