//! Contexts: streams of batches that refer to those before, and can begin again from what both
//! ends remember.
//!
//! A context is zstd's: a running frame, which is flushed after each batch, and at both ends a
//! *ring* of the plaintext that went through it, addressed by its *offset*: the number of bytes
//! before it. A frame is a *generation*; it has one level and one window. When it can't go on, for
//! something was lost, or is to have another level, the next one begins from a [`Base`] in the ring. Where
//! the ring has nothing yet, it may begin from a [`ContextDictionary`] that both ends had before.
//!
//! A running generation may also be one of prediction by partial matching: a model in place of the frame,
//! which learns the base's bytes first.
//!
//! Or each batch stands *alone*: it is a frame of its own that refers to the generation's base only, so
//! that it needs no batch before it, and can be decoded in any order. Then the decoder's ring has holes
//! until all has come, and its offset is where the first of them begins.

mod alone;
mod decoder;
mod dictionary;
mod encoder;
mod ring;
mod source;

pub use decoder::{ContextDecoder, Placed};
pub use dictionary::ContextDictionary;
pub use encoder::ContextEncoder;
pub use source::Source;

use crate::HISTORY_LEN_MAX;
use crate::error::CodecError;
use crate::ffi::zstd::stream::Tables;
use crate::id::CodecId;
use crate::spec::CodecSpec;
use crate::zstd::tables;

/// The binary logarithm of the smallest window and ring of a context: 32 KiB.
pub const CONTEXT_LOG_MIN: u8 = 15;
/// The binary logarithm of the largest window and ring of a context: 8 MiB.
pub const CONTEXT_LOG_MAX: u8 = 23;
/// The longest base that an encoder offers, in bytes: priming takes up to 0.6 s for each MiB at the highest levels,
/// and what is farther away is referred to less.
pub const CONTEXT_BASE_LEN_MAX: u32 = 1 << 20;
/// The longest base for batches that stand alone, in bytes; no longer than a quarter of the window, either.
/// It is primed far more often, and a decoder keeps those of several generations.
pub const CONTEXT_ALONE_BASE_LEN_MAX: u32 = HISTORY_LEN_MAX as u32;
/// The longest batch of a context, in bytes.
pub const CONTEXT_BATCH_LEN_MAX: usize = 1 << 16;

/// What zstd takes beside window and tables to encode, and beside the window to decode, in bytes.
const BESIDE_TABLES_BYTES: u64 = 2 << 20;
const BESIDE_WINDOW_BYTES: u64 = 1 << 19;

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
    /// Returns the longest base that batches with this window can have if they stand alone, in bytes.
    pub const fn alone_base_len_max(self) -> u32 {
        alone_base_len_max(self.window_log)
    }

    /// Returns the most memory that an encoder takes with a ring as long as the window, in bytes: for the ring, the
    /// bytes of a base, the window, zstd's tables, and what zstd has beside them. For an overview before it is
    /// made, within some 2 MB.
    pub fn encoder_bytes_max(self) -> u64 {
        let Tables { hash_log, chain_log, strategy, .. } = tables(self);
        let of_tables = match strategy {
            // ZSTD_fast
            1 => 4 << hash_log,
            // ZSTD_greedy to ZSTD_lazy2 have a byte more for each entry, and no chains.
            3..=5 => 5 << hash_log,
            _ => (4 << hash_log) + (4 << chain_log),
        };
        bytes_of_window(self.window_log) + of_tables + BESIDE_TABLES_BYTES
    }

    /// Returns the most memory that a decoder takes with a ring as long as the window, likewise.
    pub fn decoder_bytes_max(self) -> u64 {
        bytes_of_window(self.window_log) + BESIDE_WINDOW_BYTES
    }

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

/// The bytes of a ring, a window, and the longest base.
const fn bytes_of_window(window_log: u8) -> u64 {
    let window = 1_u64 << window_log;
    let base =
        if window < CONTEXT_BASE_LEN_MAX as u64 { window } else { CONTEXT_BASE_LEN_MAX as u64 };
    2 * window + base
}

const fn alone_base_len_max(window_log: u8) -> u32 {
    let quarter = 1 << (window_log - 2);
    if quarter < CONTEXT_ALONE_BASE_LEN_MAX { quarter } else { CONTEXT_ALONE_BASE_LEN_MAX }
}

/// Returns the most bytes that a batch of `len` bytes takes after compression, with any window:
/// incompressible bytes are stored, in parts of 32 KiB or more with three bytes before each, and
/// the first batch of a generation begins with two bytes of its frame.
pub const fn context_bound(len: usize) -> usize {
    2 + len + 3 * len.div_ceil(1 << CONTEXT_LOG_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_both_ends_is_what_it_is_said_to_be() {
        for window_log in [15, 18, 20, 23] {
            for level in [-5, 1, 3, 6, 9, 12, 15, 19] {
                let spec = ContextSpec { level, window_log };
                let mut encoder = ContextEncoder::new(spec, window_log).unwrap();
                let mut decoder = ContextDecoder::new(window_log);
                decoder.begin(window_log, Base::default()).unwrap();
                let (mut out, mut back) = (Vec::new(), vec![0; 60_000]);
                for turn in 0..2 * (1_usize << window_log) / 60_000 + 1 {
                    out.clear();
                    encoder.compress(&vec![turn as u8; 60_000], &mut out).unwrap();
                    decoder.decode(&out, &mut back).unwrap();
                }
                let base = encoder.base_at(encoder.offset()).unwrap();
                encoder.begin(spec, base).unwrap();
                decoder.begin(window_log, base).unwrap();
                out.clear();
                encoder.compress(&back, &mut out).unwrap();
                decoder.decode(&out, &mut back).unwrap();
                for (took, most) in [
                    (encoder.memory_bytes() as u64, spec.encoder_bytes_max()),
                    (decoder.memory_bytes() as u64, spec.decoder_bytes_max()),
                ] {
                    assert!(took <= most && most - took < 3 << 20, "{spec:?}: {took}, {most}");
                }
            }
        }
    }
}
