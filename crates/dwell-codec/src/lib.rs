//! Compresses single packets and blocks of packets, and undoes it within bounds.
//!
//! This crate knows nothing about queues, headers, policies or time. It turns bytes into
//! fewer bytes ([`Compressor`]) and back ([`Decompressor`]), if both sides hold the same
//! [`Dictionary`], or none. The sender decides which codec to use; the [`CodecId`] goes over the
//! wire beside the payload, together with the original length.
//!
//! Batches that refer to those before them go through a context ([`ContextEncoder`],
//! [`ContextDecoder`]): a running zstd stream with a ring of what went through it, from which another
//! generation can begin after a loss.
//!
//! # Promises
//! * Nothing is allocated per packet: `new` allocates all state (`tests/no_alloc.rs`). Contexts
//!   allocate when a generation begins, and while their rings fill.
//!   Blocks that refer to a history ([`Decompressor::decompress_after`]) are the exception.
//! * The same input gives the same output, however often a compressor has been used. It may
//!   differ between versions of the libraries below; only the round trip is stable.
//! * [`Decompressor::decompress`] is the only decoder of single payloads. It writes into the given buffer and
//!   never beyond it, allocates nothing, and takes any bytes at all.
//!
//! # Payload format per codec
//! No payload carries its own length, the original length, a checksum or a dictionary id:
//! all of these belong to the enclosing message.
//!
//! | id | name | payload | dictionary |
//! |---|---|---|---|
//! | 1 | `lz4` | one LZ4 *block* (no frame) | raw bytes before the data, last 64 KiB count |
//! | 2 | `zstd` | the content of one zstd *compressed block*, see below | raw bytes, or zstd's trained format |
//! | 3 | `deflate` | one raw RFC 1951 stream | none |
//! | 4 | `lzo` | one LZO1X stream with its end mark | none |
//! | 5 | `bzip2` | one bzip2 stream without its first four bytes, `BZh1` | none |
//! | 6 | `ppm` | in contexts only, see [`ModelEncoder`] | none |
//! | 7 | `mix` | in contexts only, see [`ModelEncoder`] | none |
//!
//! zstd: a packet is one frame of one block. The frame would begin with a magic number, a
//! frame header and a block header, nine bytes, all known beforehand: the payload is what
//! follows them. To decode, put these bytes before the payload of `n` bytes (RFC 8878,
//! sections 3.1.1.1 and 3.1.1.2) and hand the result to any zstd decoder:
//!
//! ```text
//! 28 b5 2f fd    magic number
//! 00             frame header descriptor: no content size, checksum or dictionary id
//! 38             window descriptor: 128 KiB
//! b0 b1 b2       block header, little endian: 1 (last) | 2 << 1 (compressed) | n << 3
//! ```
//!
//! A payload that refers to a history ([`Compressor::compress_after`]) has the same format, with
//! the history in place of a dictionary of raw bytes; zstd's window descriptor is `40` then, 256
//! KiB.
//!
//! zstd writes packets of one repeated byte as an RLE block, which has another header; they
//! are sent as a compressed block that has RLE literals and no sequences. Packets that zstd
//! would store are not sent compressed at all.

#[cfg(feature = "bzip2")]
mod bzip2;
mod compressor;
pub mod content;
mod context;
mod decompressor;
mod deflate;
mod dictionary;
mod error;
mod ffi;
mod id;
mod lz4;
#[cfg(feature = "lzo")]
mod lzo;
mod mix;
mod model;
mod ppm;
mod range;
mod spec;
mod zstd;

pub use compressor::Compressor;
pub use context::{
    Base, CONTEXT_ALONE_BASE_LEN_MAX, CONTEXT_BASE_LEN_MAX, CONTEXT_BATCH_LEN_MAX, CONTEXT_LOG_MAX,
    CONTEXT_LOG_MIN, ContextDecoder, ContextDictionary, ContextEncoder, ContextSpec, Placed,
    Source, context_bound,
};
pub use decompressor::Decompressor;
pub use dictionary::file::{
    CONTEXT_DICTIONARY_CLASS, DICTIONARIES_MAX, DICTIONARY_FILE_LEN_MAX, DICTIONARY_FILES_LEN_MAX,
    DictionaryFile, DictionaryFileError, hash_of,
};
pub use dictionary::train::{TRAINING_LEN_MAX, train};
pub use dictionary::{DICTIONARY_LEN_MAX, DICTIONARY_LEN_MIN, Dictionary, DictionaryError};
pub use error::{CodecError, DecodeError};
pub use id::{CodecId, supported_bitmap};
pub use mix::{MIX_MEMORY_LOG_MAX, MIX_MEMORY_LOG_MIN, MIX_PRIME_LEN_MAX, MixSpec};
pub use model::{MODEL_RECORD_LEN_MAX, ModelDecoder, ModelEncoder, ModelSpec};
pub use ppm::{
    PPM_MEMORY_LOG_MAX, PPM_MEMORY_LOG_MIN, PPM_ORDER_MAX, PPM_ORDER_MIN, PPM_PRIME_LEN_MAX,
    PpmSpec,
};
pub use spec::{CodecSpec, ParseSpecError};

/// The longest input of a [`Compressor`] and the longest payload of a [`Decompressor`], in
/// bytes. It is the length of the longest IP packet, so that nothing a relay queues is longer, and
/// it bounds the memory of each codec.
pub const SRC_LEN_MAX: usize = 1 << 16;

/// The distance in bytes over which data can refer to earlier data
/// ([`Compressor::compress_after`]). On prose and program sources this saves about a
/// tenth of what is left; a megabyte would save a hundredth more and take four times as long to
/// look up.
pub const HISTORY_LEN_MAX: usize = 1 << 17;

/// Returns the part of a history that is used.
fn end_of(history: &[u8]) -> &[u8] {
    &history[history.len().saturating_sub(HISTORY_LEN_MAX)..]
}
