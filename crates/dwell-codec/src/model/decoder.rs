//! The receiving end.

use std::fmt;

use super::learner::AnyLearner;
use super::{MODEL_RECORD_LEN_MAX, ModelSpec};
use crate::error::{CodecError, DecodeError};

/// Restores the records of a [`ModelEncoder`](super::ModelEncoder), in their order.
///
/// It takes any bytes: it writes what it was asked for and no more, in a time that is bounded for each byte
/// of it, and allocates nothing once it was made, until it gets another memory.
pub struct ModelDecoder {
    spec: ModelSpec,
    learner: AnyLearner,
    /// A record did not decode: the model is not that of the encoder any more.
    is_lost: bool,
}

impl ModelDecoder {
    /// Makes a decoder that knows nothing.
    ///
    /// # Errors
    /// If there is no such model.
    pub fn new(spec: impl Into<ModelSpec>) -> Result<Self, CodecError> {
        let spec = spec.into().check()?;
        Ok(Self { spec, learner: AnyLearner::new(spec), is_lost: false })
    }

    /// Forgets all, and can go on.
    pub fn reset(&mut self) {
        self.learner.clear();
        self.is_lost = false;
    }

    /// Forgets all, and goes on with this model. Memory of the same length is kept, if it is of the same kind: then it takes
    /// some microseconds, however much was learned.
    ///
    /// # Errors
    /// If there is no such model: then nothing has changed.
    pub fn renew(&mut self, spec: impl Into<ModelSpec>) -> Result<(), CodecError> {
        self.spec = spec.into().check()?;
        self.learner.renew(self.spec);
        self.is_lost = false;
        Ok(())
    }

    /// Learns bytes as [`ModelEncoder::prime`](super::ModelEncoder::prime) does.
    pub fn prime(&mut self, bytes: &[u8]) {
        self.learner.learn(self.spec.primed(bytes));
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
        let corrupt = DecodeError::Corrupt(self.spec.codec());
        if src.is_empty() || src.len() > dst.len() || dst.len() > MODEL_RECORD_LEN_MAX {
            return Err(corrupt);
        }
        if src.len() == dst.len() {
            dst.copy_from_slice(src);
            self.learner.learn(src);
        } else {
            self.learner.decode(src, dst).map_err(|_| corrupt)?;
        }
        self.is_lost = false;
        Ok(())
    }

    /// Returns true if a record did not decode: nothing does until [`reset`](Self::reset).
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Returns the model.
    pub fn spec(&self) -> ModelSpec {
        self.spec
    }

    /// As of [`ModelEncoder::may_learn_again`](super::ModelEncoder::may_learn_again).
    pub fn may_learn_again(&self, bytes: usize) -> bool {
        self.learner.may_learn_again(bytes)
    }

    /// Returns the bytes of memory that are allocated.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.learner.memory_bytes()
    }
}

impl fmt::Debug for ModelDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelDecoder")
            .field("spec", &self.spec)
            .field("is_lost", &self.is_lost)
            .finish_non_exhaustive()
    }
}
