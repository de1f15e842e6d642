//! Contexts: streams of batches that refer to those before, and can begin again from what both
//! ends remember.
//!
//! A context is zstd's: a running frame, which is flushed after each batch, and at both ends a
//! *ring* of the plaintext that went through it, addressed by its *offset*: the number of bytes
//! before it. A frame is a *generation*; it has one level and one window. When it can't go on, for
//! something was lost, or is to have another level, the next one begins from a [`Base`] in the ring. Where
//! the ring has nothing yet, it may begin from a [`ContextDictionary`] that both ends had before.

mod decoder;
mod dictionary;
mod encoder;
mod ring;

pub use decoder::ContextDecoder;
pub use dictionary::ContextDictionary;
pub use encoder::ContextEncoder;

use crate::error::CodecError;
use crate::id::CodecId;
use crate::spec::CodecSpec;

/// The binary logarithm of the smallest window and ring of a context: 32 KiB.
pub const CONTEXT_LOG_MIN: u8 = 15;
/// The binary logarithm of the largest window and ring of a context: 8 MiB.
pub const CONTEXT_LOG_MAX: u8 = 23;
/// The longest base that an encoder offers, in bytes: priming takes up to 0.6 s for each MiB at the highest levels,
/// and what is farther away is referred to less.
pub const CONTEXT_BASE_LEN_MAX: u32 = 1 << 20;
/// The longest batch of a context, in bytes.
pub const CONTEXT_BATCH_LEN_MAX: usize = 65_535;

/// The level and window of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContextSpec {
    /// zstd's level: -50 to -1, or 1 to 19.
    pub level: i32,
    /// The binary logarithm of the bytes over which data can refer to earlier data,
    /// [`CONTEXT_LOG_MIN`] to [`CONTEXT_LOG_MAX`].
    pub window_log: u8,
}

impl ContextSpec {
    /// Checks that there is such a level, and that the window is not larger than `1 << ring_log`
    /// bytes.
    ///
    /// # Errors
    /// [`CodecError::Level`], or [`CodecError::Window`].
    pub fn check(self, ring_log: u8) -> Result<Self, CodecError> {
        CodecSpec { id: CodecId::Zstd, level: self.level }.check()?;
        if !(CONTEXT_LOG_MIN..=ring_log.min(CONTEXT_LOG_MAX)).contains(&self.window_log) {
            return Err(CodecError::Window { window_log: self.window_log, ring_log });
        }
        Ok(self)
    }
}

/// The bytes from which a generation begins: those of the ring before an offset. The default is a
/// cold start, from nothing: offsets begin with 0 again then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Base {
    /// The offset of the generation's first byte.
    pub offset: u64,
    /// The number of bytes before it to which the generation can refer.
    pub len: u32,
}

/// Returns the most bytes that a batch of `len` bytes takes after compression, with any window:
/// incompressible bytes are stored, in parts of 32 KiB or more with three bytes before each, and
/// the first batch of a generation begins with two bytes of its frame.
pub const fn context_bound(len: usize) -> usize {
    2 + len + 3 * len.div_ceil(1 << CONTEXT_LOG_MIN)
}
