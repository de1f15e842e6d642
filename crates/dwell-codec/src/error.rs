//! Errors of compressing and decompressing.

use thiserror::Error;

use crate::SRC_LEN_MAX;
use crate::context::{Base, CONTEXT_BATCH_LEN_MAX, CONTEXT_LOG_MAX, CONTEXT_LOG_MIN};
use crate::id::CodecId;
use crate::mix::{MIX_MEMORY_LOG_MAX, MIX_MEMORY_LOG_MIN, MixSpec};
use crate::ppm::{PPM_MEMORY_LOG_MAX, PPM_MEMORY_LOG_MIN, PPM_ORDER_MAX, PPM_ORDER_MIN, PpmSpec};

/// The reason why a compressor cannot be made, or cannot compress. None of these is caused by the
/// content of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CodecError {
    /// The codec is not part of this build.
    #[error("{0} is not in this build of dwell")]
    NotBuiltIn(CodecId),
    /// The codec has no such level.
    #[error("{codec} has no level {level}: it can be {}", crate::spec::levels(*codec))]
    Level {
        /// The codec.
        codec: CodecId,
        /// The level that it does not have.
        level: i32,
    },
    /// The codec cannot use a dictionary.
    #[error("{0} cannot use a dictionary: only lz4 and zstd can")]
    NoDictionary(CodecId),
    /// The codec cannot refer to a history, or the compressor was not made for it.
    #[error("this compressor of {0} cannot refer to what came before")]
    NoHistory(CodecId),
    /// The trained dictionary can decode but not encode: it lacks symbols.
    #[error("the dictionary cannot be used for compressing")]
    BadDictionary,
    /// The input is longer than [`SRC_LEN_MAX`].
    #[error("{0} bytes are too many to compress at once: the limit is {SRC_LEN_MAX}")]
    TooLong(usize),
    /// The batch is longer than [`CONTEXT_BATCH_LEN_MAX`].
    #[error("a batch of {0} bytes is too long: the limit is {CONTEXT_BATCH_LEN_MAX}")]
    BatchTooLong(usize),
    /// A context cannot have this window, or its ring is smaller.
    #[error(
        "a window of 2^{window_log} bytes is not possible with a ring of 2^{ring_log}: it can have \
         2^{CONTEXT_LOG_MIN} bytes up to the size of the ring"
    )]
    Window {
        /// The binary logarithm of the window's size.
        window_log: u8,
        /// The binary logarithm of the ring's size.
        ring_log: u8,
    },
    /// There is no such model for prediction by partial matching.
    #[error(
        "ppm has no order {order} with 2^{memory_log} bytes: there are orders {PPM_ORDER_MIN} to \
         {PPM_ORDER_MAX}, with 2^{PPM_MEMORY_LOG_MIN} to 2^{PPM_MEMORY_LOG_MAX} bytes",
        order = .0.order,
        memory_log = .0.memory_log
    )]
    Ppm(PpmSpec),
    /// There is no such model that mixes contexts.
    #[error(
        "mix has no model of 2^{memory_log} bytes: it can have 2^{MIX_MEMORY_LOG_MIN} to \
         2^{MIX_MEMORY_LOG_MAX} bytes",
        memory_log = .0.memory_log
    )]
    Mix(MixSpec),
    /// A context cannot have this ring.
    #[error(
        "a ring cannot have 2^{0} bytes: 2^{CONTEXT_LOG_MIN} to 2^{CONTEXT_LOG_MAX} are possible"
    )]
    Ring(u8),
    /// A generation of a context cannot begin from this base.
    #[error(
        "the {len} bytes before offset {offset} are not in the ring, or more than the window",
        len = .0.len,
        offset = .0.offset
    )]
    Base(Base),
    /// The generation of a context is over, as the library failed, and no other has begun.
    #[error("the context has no generation: begin one")]
    NoGeneration,
    /// The library did not get the memory that it needs.
    #[error("no memory for the state of {0}")]
    OutOfMemory(CodecId),
    /// The library refused its own parameters or input: a bug in dwell or in the library.
    #[error("{codec} failed unexpectedly (its error code is {code})")]
    Library {
        /// The codec.
        codec: CodecId,
        /// The code that the library gives.
        code: u32,
    },
}

/// The reason why a payload cannot be decoded. Anyone on the network can cause any of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The codec is not part of this build.
    #[error("{0} is not in this build of dwell")]
    NotBuiltIn(CodecId),
    /// The codec cannot use a dictionary, but the payload names one.
    #[error("{0} cannot use a dictionary")]
    NoDictionary(CodecId),
    /// The codec cannot refer to a history, but the payload is said to.
    #[error("{0} cannot refer to what came before")]
    NoHistory(CodecId),
    /// There is no memory for a decoder. Not caused by the payload.
    #[error("no memory for the state of {0}")]
    OutOfMemory(CodecId),
    /// The payload is longer than any compressor makes it.
    #[error("a payload of {0} bytes is too long: the limit is {SRC_LEN_MAX}")]
    TooLong(usize),
    /// The data would be longer than the buffer. lz4 cannot distinguish this and reports `Corrupt`.
    #[error("the {0} payload holds more data than it should")]
    DoesNotFit(CodecId),
    /// The window of a context's generation is too small, or larger than the decoder's ring.
    #[error(
        "a window of 2^{window_log} bytes is refused: the limits are 2^{CONTEXT_LOG_MIN} and 2^{ring_log}"
    )]
    Window {
        /// The binary logarithm of the window's size.
        window_log: u8,
        /// The binary logarithm of the ring's size.
        ring_log: u8,
    },
    /// There is no such model for prediction by partial matching.
    #[error("ppm has no order {order} with 2^{memory_log} bytes", order = .0.order, memory_log = .0.memory_log)]
    Ppm(PpmSpec),
    /// There is no such model that mixes contexts.
    #[error("mix has no model of 2^{memory_log} bytes", memory_log = .0.memory_log)]
    Mix(MixSpec),
    /// The ring of the context does not have the bytes from which a generation begins.
    #[error(
        "the {len} bytes before offset {offset} are not in the ring, or more than the window",
        len = .0.len,
        offset = .0.offset
    )]
    Base(Base),
    /// The context has no generation, or a batch before this one did not decode.
    #[error("the context has no generation that goes on")]
    NoGeneration,
    /// The payload is damaged, or was made with another codec or dictionary.
    #[error("the {0} payload is damaged")]
    Corrupt(CodecId),
}
