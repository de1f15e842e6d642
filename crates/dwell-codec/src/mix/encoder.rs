//! The sending end.

use std::fmt;

use super::learner::Learner;
use super::spec::{MIX_PRIME_LEN_MAX, MIX_RECORD_LEN_MAX, MixSpec};
use crate::error::CodecError;

/// Compresses one record after another, each with the help of all before it.
///
/// All of its memory is allocated when it is made; the system gives it as it is used.
pub struct MixEncoder {
    learner: Learner,
}

impl MixEncoder {
    /// Makes an encoder that knows nothing.
    ///
    /// # Errors
    /// If there is no such memory.
    pub fn new(spec: MixSpec) -> Result<Self, CodecError> {
        Ok(Self { learner: Learner::new(spec.check()?) })
    }

    /// Forgets all.
    pub fn reset(&mut self) {
        self.learner.clear();
    }

    /// Forgets all, and goes on with this memory. Memory of the same length is kept.
    ///
    /// # Errors
    /// If there is no such memory: then nothing has changed.
    pub fn renew(&mut self, spec: MixSpec) -> Result<(), CodecError> {
        self.learner.renew(spec.check()?);
        Ok(())
    }

    /// Learns bytes as if they had been compressed: the last [`MIX_PRIME_LEN_MAX`] of them. The decoder must
    /// learn the same.
    pub fn prime(&mut self, bytes: &[u8]) {
        self.learner.learn(&bytes[bytes.len().saturating_sub(MIX_PRIME_LEN_MAX)..]);
    }

    /// Compresses a record and appends what the decoder needs to `out`: at most as many bytes as the record
    /// has, one at least, and none for an empty one.
    ///
    /// # Errors
    /// [`CodecError::BatchTooLong`] if it is longer than [`MIX_RECORD_LEN_MAX`]: then nothing has changed.
    pub fn compress(&mut self, record: &[u8], out: &mut Vec<u8>) -> Result<(), CodecError> {
        if record.len() > MIX_RECORD_LEN_MAX {
            return Err(CodecError::BatchTooLong(record.len()));
        }
        if record.is_empty() {
            return Ok(());
        }
        let start = out.len();
        out.reserve(record.len());
        self.learner.encode(record, out);
        if out.len() - start >= record.len() {
            // As it is: the decoder knows it by its length.
            out.truncate(start);
            out.extend_from_slice(record);
        }
        Ok(())
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

impl fmt::Debug for MixEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MixEncoder").field("spec", &self.spec()).finish_non_exhaustive()
    }
}
