//! The receiving end.

use std::fmt;

use super::learner::Learner;
use super::spec::{MIX_PRIME_LEN_MAX, MIX_RECORD_LEN_MAX, MixSpec};
use crate::error::{CodecError, DecodeError};
use crate::id::CodecId;

/// Restores the records of a [`MixEncoder`](super::MixEncoder), in their order.
///
/// It takes any bytes: it writes what it was asked for and no more, in a time that is bounded for each byte
/// of it, and allocates nothing once it was made, until it gets another memory.
pub struct MixDecoder {
    learner: Learner,
    /// A record did not decode: the model is not that of the encoder any more.
    is_lost: bool,
}

impl MixDecoder {
    /// Makes a decoder that knows nothing.
    ///
    /// # Errors
    /// If there is no such memory.
    pub fn new(spec: MixSpec) -> Result<Self, CodecError> {
        Ok(Self { learner: Learner::new(spec.check()?), is_lost: false })
    }

    /// Forgets all, and can go on.
    pub fn reset(&mut self) {
        self.learner.clear();
        self.is_lost = false;
    }

    /// Forgets all, and goes on with this memory. Memory of the same length is kept: then it takes some
    /// microseconds, however much was learned.
    ///
    /// # Errors
    /// If there is no such memory: then nothing has changed.
    pub fn renew(&mut self, spec: MixSpec) -> Result<(), CodecError> {
        self.learner.renew(spec.check()?);
        self.is_lost = false;
        Ok(())
    }

    /// Learns bytes as [`MixEncoder::prime`](super::MixEncoder::prime) does.
    pub fn prime(&mut self, bytes: &[u8]) {
        self.learner.learn(&bytes[bytes.len().saturating_sub(MIX_PRIME_LEN_MAX)..]);
    }

    /// Decodes a record, which must be exactly as long as `dst`. Records carry no checksum, so that
    /// damaged ones, or those after other ones than the encoder's, mostly decode to other data. What
    /// `dst` contains after an error has no meaning.
    ///
    /// # Errors
    /// [`DecodeError::Corrupt`] if the record is damaged or of another length: then all further ones are
    /// refused until [`reset`](Self::reset), with [`DecodeError::NoGeneration`].
    pub fn decode(&mut self, src: &[u8], dst: &mut [u8]) -> Result<(), DecodeError> {
        if self.is_lost {
            return Err(DecodeError::NoGeneration);
        }
        self.is_lost = true;
        if src.is_empty() || src.len() > dst.len() || dst.len() > MIX_RECORD_LEN_MAX {
            return Err(DecodeError::Corrupt(CodecId::Mix));
        }
        if src.len() == dst.len() {
            dst.copy_from_slice(src);
            self.learner.learn(src);
        } else {
            let decoded = self.learner.decode(src, dst);
            decoded.map_err(|_| DecodeError::Corrupt(CodecId::Mix))?;
        }
        self.is_lost = false;
        Ok(())
    }

    /// Returns true if a record did not decode: nothing does until [`reset`](Self::reset).
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Returns the memory of the model.
    pub fn spec(&self) -> MixSpec {
        self.learner.spec()
    }

    /// Returns the bytes of memory that are allocated.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.learner.memory_bytes()
    }
}

impl fmt::Debug for MixDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MixDecoder")
            .field("spec", &self.spec())
            .field("is_lost", &self.is_lost)
            .finish_non_exhaustive()
    }
}
