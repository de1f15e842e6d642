//! The sending end.

use std::fmt;

use super::learner::AnyLearner;
use super::{MODEL_RECORD_LEN_MAX, ModelSpec};
use crate::error::CodecError;

/// Compresses one record after another with a model, each with the help of all before it.
///
/// All of its memory is allocated when it is made; the system gives it as it is used.
pub struct ModelEncoder {
    spec: ModelSpec,
    learner: AnyLearner,
}

impl ModelEncoder {
    /// Makes an encoder that knows nothing.
    ///
    /// # Errors
    /// If there is no such model.
    pub fn new(spec: impl Into<ModelSpec>) -> Result<Self, CodecError> {
        let spec = spec.into().check()?;
        Ok(Self { spec, learner: AnyLearner::new(spec) })
    }

    /// Forgets all.
    pub fn reset(&mut self) {
        self.learner.clear();
    }

    /// Forgets all, and goes on with this model. Memory of the same length is kept, if it is of the same kind.
    ///
    /// # Errors
    /// If there is no such model: then nothing has changed.
    pub fn renew(&mut self, spec: impl Into<ModelSpec>) -> Result<(), CodecError> {
        self.spec = spec.into().check()?;
        self.learner.renew(self.spec);
        Ok(())
    }

    /// Learns bytes as if they had been compressed: the last [`prime_len_max`](ModelSpec::prime_len_max) of them. The decoder
    /// must learn the same.
    pub fn prime(&mut self, bytes: &[u8]) {
        self.learner.learn(self.spec.primed(bytes));
    }

    /// Compresses a record and appends what the decoder needs to `out`: at most as many bytes as the record
    /// has, one at least, and none for an empty one.
    ///
    /// # Errors
    /// [`CodecError::BatchTooLong`] if it is longer than [`MODEL_RECORD_LEN_MAX`]: then nothing has changed.
    pub fn compress(&mut self, record: &[u8], out: &mut Vec<u8>) -> Result<(), CodecError> {
        if record.len() > MODEL_RECORD_LEN_MAX {
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

    /// Returns the model.
    pub fn spec(&self) -> ModelSpec {
        self.spec
    }

    /// Returns true if so many more bytes may fill the memory of a model that begins again then, as far as that can be known
    /// before: it learns up to 128 KiB once more, which takes some hundred times as long as a packet.
    pub fn may_learn_again(&self, bytes: usize) -> bool {
        self.learner.may_learn_again(bytes)
    }

    /// Returns the bytes of memory that are allocated.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.learner.memory_bytes()
    }
}

impl fmt::Debug for ModelEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelEncoder").field("spec", &self.spec).finish_non_exhaustive()
    }
}
