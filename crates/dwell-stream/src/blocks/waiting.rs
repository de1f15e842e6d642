//! What waits, and what the transport is taking.

use dwell_codec::CodecId;

use crate::frame::{Generation, Preamble};

/// A block that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) part: Part,
    pub(super) state: State,
}

/// The position of a block in the stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) index: u64,
    /// The number of bytes before it.
    pub(super) start: u64,
    pub(super) original_len: usize,
    /// The check sum of all data up to the end of this block.
    pub(super) check: u32,
    pub(super) looks_random: bool,
    /// True if later blocks may refer to it; decided when it is compressed or sent, in order.
    pub(super) kept: Option<bool>,
}

#[derive(Debug)]
pub(super) enum State {
    /// Could be compressed.
    Raw(Vec<u8>),
    /// Sent uncompressed.
    Final(Vec<u8>),
    /// A job holds its bytes.
    Compressing,
    /// Compressed with this codec.
    Compressed(CodecId, Refers, Vec<u8>),
}

/// What a compressed block refers to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Refers {
    Nothing,
    History,
    /// The running context, which begins again if there is a generation.
    Context(Option<Generation>),
}

/// The bytes that the transport is taking.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    pub(super) bytes: Vec<u8>,
    /// The offset of the bytes that are left.
    pub(super) at: usize,
    /// The offset of the first byte.
    pub(super) begin: usize,
    /// The bytes of `held` in it.
    pub(super) held: usize,
    /// The block, if it was sent uncompressed although it could have been compressed.
    pub(super) regret: Option<Part>,
    /// The preamble, if it is in it.
    pub(super) preamble: Option<Preamble>,
}

impl Outgoing {
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }
}
