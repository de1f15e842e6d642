//! The receiving end of a context.

use std::fmt;

use super::ring::Ring;
use super::{Base, CONTEXT_LOG_MAX, CONTEXT_LOG_MIN, ContextDictionary};
use crate::error::DecodeError;
use crate::ffi::zstd::Failure;
use crate::ffi::zstd::stream::DecodingStream;
use crate::id::CodecId;
use crate::zstd::reported;

/// Restores the batches of a context.
///
/// All that it is given may come from anyone on the network. It holds at most the ring, the bytes
/// of a base, and a window with 0.5 MiB beside it.
pub struct ContextDecoder {
    ring: Ring,
    /// Made for the first generation.
    stream: Option<DecodingStream>,
    /// There is a generation, and it can go on.
    is_live: bool,
}

impl ContextDecoder {
    /// Makes a decoder with a ring of `1 << ring_log` bytes, which is also its largest window;
    /// below [`CONTEXT_LOG_MIN`] and above [`CONTEXT_LOG_MAX`] these count. It takes next to no
    /// memory before a generation begins.
    pub fn new(ring_log: u8) -> Self {
        let ring = Ring::new(ring_log.clamp(CONTEXT_LOG_MIN, CONTEXT_LOG_MAX));
        Self { ring, stream: None, is_live: false }
    }

    /// Begins a generation: cuts the ring back to the base's offset. A cold start,
    /// [`Base::default`], is always possible.
    ///
    /// # Errors
    /// [`DecodeError::Window`] or [`DecodeError::Base`] if the window is none that it takes, or the
    /// base is longer than the window or not in the ring; [`DecodeError::OutOfMemory`]. The ring is
    /// as it was then, and there is no generation.
    pub fn begin(&mut self, window_log: u8, base: Base) -> Result<(), DecodeError> {
        self.check(window_log)?;
        if base.len > 1 << window_log || !self.ring.has(base) {
            return Err(DecodeError::Base(base));
        }
        let (ring, stream) = (&self.ring, opened(&mut self.stream)?);
        let begun = stream.begin(u32::from(window_log), |prefix| ring.read(base, prefix));
        begun.map_err(|Failure(number)| reported(number))?;
        self.ring.cut(base);
        self.is_live = true;
        Ok(())
    }

    /// Begins a generation from the last `len` bytes of a dictionary, which are all that is in the ring then.
    ///
    /// # Errors
    /// As those of [`begin`](Self::begin), if `len` is zero, or more than the window or the dictionary has.
    pub fn begin_from(
        &mut self,
        window_log: u8,
        dictionary: &ContextDictionary,
        len: u32,
    ) -> Result<(), DecodeError> {
        self.check(window_log)?;
        let bytes = dictionary.end(len).filter(|bytes| bytes.len() <= 1 << window_log);
        let bytes = bytes.ok_or(DecodeError::Base(Base { offset: len.into(), len }))?;
        let stream = opened(&mut self.stream)?;
        let begun = stream.begin(u32::from(window_log), |prefix| prefix.extend_from_slice(bytes));
        begun.map_err(|Failure(number)| reported(number))?;
        self.ring.fill(bytes);
        self.is_live = true;
        Ok(())
    }

    /// Ends the generation, and checks the window of the next one.
    fn check(&mut self, window_log: u8) -> Result<(), DecodeError> {
        self.is_live = false;
        if !(CONTEXT_LOG_MIN..=self.ring.log()).contains(&window_log) {
            return Err(DecodeError::Window { window_log, ring_log: self.ring.log() });
        }
        Ok(())
    }

    /// Decodes a batch, which must be exactly as long as `dst`. Batches carry no checksum, so that
    /// damaged ones, or those after other ones than the encoder's, may decode to other data. What
    /// `dst` contains after an error has no meaning.
    ///
    /// # Errors
    /// If the batch is damaged or of another length: then the generation is over, and all further
    /// batches are refused until [`begin`](Self::begin). [`DecodeError::NoGeneration`] if it was
    /// over before.
    pub fn decode(&mut self, src: &[u8], dst: &mut [u8]) -> Result<(), DecodeError> {
        let stream = match &mut self.stream {
            Some(stream) if self.is_live => stream,
            _ => return Err(DecodeError::NoGeneration),
        };
        self.is_live = false;
        // No batch is empty on either side.
        if src.is_empty() || dst.is_empty() {
            return Err(DecodeError::Corrupt(CodecId::Zstd));
        }
        match stream.decode(src, dst) {
            Ok(true) => {}
            Ok(false) => return Err(DecodeError::Corrupt(CodecId::Zstd)),
            Err(Failure(number)) => return Err(reported(number)),
        }
        self.ring.push(dst);
        self.is_live = true;
        Ok(())
    }

    /// Returns the number of bytes that went through the context: the offset of the next one.
    pub fn offset(&self) -> u64 {
        self.ring.end()
    }

    /// Returns the bytes of memory that are allocated now.
    pub fn memory_bytes(&self) -> usize {
        let stream = self.stream.as_ref().map_or(0, DecodingStream::memory_bytes);
        size_of::<Self>() + self.ring.memory_bytes() + stream
    }
}

/// Returns the stream, made if there is none yet.
fn opened(stream: &mut Option<DecodingStream>) -> Result<&mut DecodingStream, DecodeError> {
    Ok(match stream {
        Some(stream) => stream,
        none => none.insert(DecodingStream::new().map_err(|Failure(number)| reported(number))?),
    })
}

impl fmt::Debug for ContextDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextDecoder")
            .field("offset", &self.offset())
            .field("is_live", &self.is_live)
            .finish_non_exhaustive()
    }
}
