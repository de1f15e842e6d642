//! Errors of streams.

use dwell_codec::{
    CONTEXT_LOG_MAX, CONTEXT_LOG_MIN, CodecError, DecodeError, PPM_MEMORY_LOG_MAX,
    PPM_MEMORY_LOG_MIN,
};
use thiserror::Error;

use crate::config::{BLOCK_LEN_MAX, BLOCK_LEN_MIN, BUFFER_LEN_MAX, MSS_MIN, REORDER_MAX};
use crate::strategy::Strategy;

/// The reason why a sender cannot be made as it was configured, or why a receiver cannot have such limits.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// The block length is not a power of two in its range.
    #[error(
        "blocks of {0} bytes are not possible: use a power of two from {BLOCK_LEN_MIN} to \
         {BLOCK_LEN_MAX}"
    )]
    BlockLen(usize),
    /// The buffer holds less than two blocks, or more than [`BUFFER_LEN_MAX`].
    #[error(
        "a buffer of {buffer_len} bytes is not possible: use at least two blocks ({} bytes), and \
         at most {BUFFER_LEN_MAX}",
        2 * block_len
    )]
    BufferLen {
        /// The length that was asked for.
        buffer_len: usize,
        /// The block length beside it.
        block_len: usize,
    },
    /// A receiver's limit for the length of blocks that is out of its range.
    #[error(
        "a limit of {0} bytes for blocks is not possible: use {BLOCK_LEN_MIN} to {BLOCK_LEN_MAX}"
    )]
    BlockLimit(usize),
    /// A receiver that never takes anything.
    #[error("an output of no bytes takes nothing: use at least 1, for instance 256 KiB")]
    OutputLen,
    /// Segments that are too short for a header and some payload.
    #[error("segments of {0} bytes are too short: use at least {MSS_MIN}")]
    Mss(usize),
    /// A window that no running context has.
    #[error(
        "a window of 2^{0} bytes is not possible: use {CONTEXT_LOG_MIN} to {CONTEXT_LOG_MAX}, or 0 \
         for none"
    )]
    Window(u8),
    /// A model for which there is no memory, or no running context that it could take the place of.
    #[error(
        "a model of 2^{0} bytes is not possible: use {PPM_MEMORY_LOG_MIN} to {PPM_MEMORY_LOG_MAX} \
         beside a window, or 0 for none and no ppm among the codecs"
    )]
    Model(u8),
    /// The codec mix, for a receiver that is not known to accept it.
    #[error(
        "mix is among the codecs, but models may not be of it: set mixed_models, if the receiver accepts them"
    )]
    Mixed,
    /// More blocks would be waiting for each other than a receiver accepts.
    #[error("{0} blocks out of order are too many: use at most {REORDER_MAX}")]
    Reorder(u8),
    /// The length that TCPComp aims at is out of range.
    #[error(
        "units of {0} bytes when compressed are not possible: use 1 to 65536, for instance 1400"
    )]
    TargetLen(usize),
    /// The list of codecs to mix is empty.
    #[error("there is no codec to mix: name at least one, for instance \"lz4\"")]
    NoCodecs,
    /// A codec cannot be used.
    #[error(transparent)]
    Codec(#[from] CodecError),
}

/// The reason why a text names no strategy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("\"{0}\" is no strategy: use {names}", names = Strategy::ALL.map(Strategy::name).join(", "))]
pub struct ParseStrategyError(pub String);

/// The reason why a received stream cannot go on. After any of these the connection is to be
/// closed; data given out before were verified.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StreamError {
    /// The stream does not begin with the magic number.
    #[error("this is no dwell stream: it begins with other bytes (does the other side speak it?)")]
    NotAStream,
    /// A version that this build does not know.
    #[error("the stream has version {0}, and only 1 to 5 are known: update this side")]
    Version(u8),
    /// The preamble is invalid, or asks for more than the limits of this receiver.
    #[error("the stream's preamble is not acceptable: {0}")]
    Preamble(&'static str),
    /// An invalid header.
    #[error("the stream is damaged: {0}")]
    Header(&'static str),
    /// A payload that cannot be decoded.
    #[error("the stream is damaged: {0}")]
    Decode(#[from] DecodeError),
    /// The data are not those that were sent: their check sum differs.
    #[error("the stream is damaged: the check sum of what was received differs from what was sent")]
    CheckSum,
    /// More bytes follow the end.
    #[error("the stream goes on after its end")]
    AfterEnd,
    /// The transport ended before the stream did.
    #[error("the stream was cut off: the connection ended before the end was announced")]
    Truncated,
    /// The sender gave up, and announced it.
    #[error("the sender gave the stream up: {0}")]
    Aborted(AbortReason),
}

/// The reason why a sender gave up, as it is reported to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AbortReason {
    /// The source of the data was reset.
    #[error("its source was reset")]
    Reset,
    /// Nothing came from the source, or the receiver took nothing, for too long.
    #[error("it waited too long")]
    TimedOut,
    /// The sender ran into an error of its own.
    #[error("it ran into an error of its own")]
    Internal,
    /// A reason of a later version.
    #[error("for a reason with the number {0}")]
    Other(u8),
}

impl AbortReason {
    pub(crate) const fn to_wire(self) -> u8 {
        match self {
            Self::Reset => 1,
            Self::TimedOut => 2,
            Self::Internal => 3,
            Self::Other(number) => number,
        }
    }

    pub(crate) const fn from_wire(number: u8) -> Self {
        match number {
            1 => Self::Reset,
            2 => Self::TimedOut,
            3 => Self::Internal,
            other => Self::Other(other),
        }
    }
}
