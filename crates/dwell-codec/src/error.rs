//! Errors of compressing and decompressing.

use thiserror::Error;

use crate::SRC_LEN_MAX;
use crate::id::CodecId;

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
    /// The payload is damaged, or was made with another codec or dictionary.
    #[error("the {0} payload is damaged")]
    Corrupt(CodecId),
}
