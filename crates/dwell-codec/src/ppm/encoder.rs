//! The sending end.

use std::fmt;

use super::learner::Learner;
use super::spec::{PPM_PRIME_LEN_MAX, PPM_RECORD_LEN_MAX, PpmSpec};
use crate::error::CodecError;

/// Compresses one record after another, each with the help of all before it.
///
/// All of its memory is allocated when it is made; the system gives it as it is used.
pub struct PpmEncoder {
    spec: PpmSpec,
    learner: Learner,
}

impl PpmEncoder {
    /// Makes an encoder that knows nothing.
    ///
    /// # Errors
    /// If there is no such order or memory.
    pub fn new(spec: PpmSpec) -> Result<Self, CodecError> {
        Ok(Self { spec: spec.check()?, learner: Learner::new(spec) })
    }

    /// Forgets all.
    pub fn reset(&mut self) {
        self.learner.clear();
    }

    /// Forgets all, and goes on with this order and memory. Memory of the same length is kept.
    ///
    /// # Errors
    /// If there is no such order or memory: then nothing has changed.
    pub fn renew(&mut self, spec: PpmSpec) -> Result<(), CodecError> {
        self.spec = spec.check()?;
        self.learner.renew(spec);
        Ok(())
    }

    /// Learns bytes as if they had been compressed: the last [`PPM_PRIME_LEN_MAX`] of them. The decoder must
    /// learn the same.
    pub fn prime(&mut self, bytes: &[u8]) {
        self.learner.learn(&bytes[bytes.len().saturating_sub(PPM_PRIME_LEN_MAX)..]);
    }

    /// Compresses a record and appends what the decoder needs to `out`: at most as many bytes as the record
    /// has, one at least, and none for an empty one.
    ///
    /// # Errors
    /// [`CodecError::BatchTooLong`] if it is longer than [`PPM_RECORD_LEN_MAX`]: then nothing has changed.
    pub fn compress(&mut self, record: &[u8], out: &mut Vec<u8>) -> Result<(), CodecError> {
        if record.len() > PPM_RECORD_LEN_MAX {
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

    /// Returns the order and the memory.
    pub fn spec(&self) -> PpmSpec {
        self.spec
    }

    /// Returns true if so many more bytes may fill the model's memory, as far as that can be known before: then it learns up to
    /// 128 KiB once more, which takes some hundred times as long as a packet.
    pub fn may_learn_again(&self, bytes: usize) -> bool {
        self.learner.may_learn_again(bytes)
    }

    /// Returns the bytes of memory that are allocated.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.learner.memory_bytes()
    }
}

impl fmt::Debug for PpmEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PpmEncoder").field("spec", &self.spec).finish_non_exhaustive()
    }
}
