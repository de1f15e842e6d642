//! The models that running generations of contexts may have, of either kind.

use crate::error::{CodecError, DecodeError};
use crate::id::CodecId;
use crate::mix::{MIX_PRIME_LEN_MAX, MixDecoder, MixEncoder, MixSpec};
use crate::ppm::{PPM_PRIME_LEN_MAX, PPM_RECORD_LEN_MAX, PpmDecoder, PpmEncoder, PpmSpec};

/// The longest record of any model, in bytes.
pub const MODEL_RECORD_LEN_MAX: usize = PPM_RECORD_LEN_MAX;

const _: () = assert!(MODEL_RECORD_LEN_MAX == crate::mix::MIX_RECORD_LEN_MAX);

/// A model of a running generation; both ends have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ModelSpec {
    /// Prediction by partial matching.
    Ppm(PpmSpec),
    /// Mixing of contexts.
    Mix(MixSpec),
}

impl From<PpmSpec> for ModelSpec {
    fn from(spec: PpmSpec) -> Self {
        Self::Ppm(spec)
    }
}

impl From<MixSpec> for ModelSpec {
    fn from(spec: MixSpec) -> Self {
        Self::Mix(spec)
    }
}

impl ModelSpec {
    /// Checks that there is such a model.
    ///
    /// # Errors
    /// [`CodecError::Ppm`] or [`CodecError::Mix`].
    pub fn check(self) -> Result<Self, CodecError> {
        match self {
            Self::Ppm(spec) => spec.check().map(Self::Ppm),
            Self::Mix(spec) => spec.check().map(Self::Mix),
        }
    }

    /// Returns the codec and the byte that stand for it where a generation begins.
    ///
    /// # Errors
    /// As of [`check`](Self::check).
    pub fn to_wire(self) -> Result<(CodecId, u8), CodecError> {
        match self {
            Self::Ppm(spec) => spec.to_wire().map(|byte| (CodecId::Ppm, byte)),
            Self::Mix(spec) => spec.to_wire().map(|byte| (CodecId::Mix, byte)),
        }
    }

    /// Returns what a codec's id and a byte stand for; none if the codec is none of models.
    ///
    /// # Errors
    /// [`DecodeError::Ppm`] or [`DecodeError::Mix`] if there is no such model.
    pub fn from_wire(codec: u8, byte: u8) -> Option<Result<Self, DecodeError>> {
        match codec {
            it if it == CodecId::Ppm as u8 => Some(PpmSpec::from_wire(byte).map(Self::Ppm)),
            it if it == CodecId::Mix as u8 => Some(MixSpec::from_wire(byte).map(Self::Mix)),
            _ => None,
        }
    }

    /// Returns its codec.
    pub const fn codec(self) -> CodecId {
        match self {
            Self::Ppm(_) => CodecId::Ppm,
            Self::Mix(_) => CodecId::Mix,
        }
    }

    /// Returns the binary logarithm of its memory, in bytes.
    pub const fn memory_log(self) -> u8 {
        match self {
            Self::Ppm(spec) => spec.memory_log,
            Self::Mix(spec) => spec.memory_log,
        }
    }

    /// Returns the same with this memory, if that is less.
    pub fn within(self, memory_log: u8) -> Self {
        let memory_log = self.memory_log().min(memory_log);
        match self {
            Self::Ppm(spec) => Self::Ppm(PpmSpec { memory_log, ..spec }),
            Self::Mix(_) => Self::Mix(MixSpec { memory_log }),
        }
    }

    /// Returns the most bytes that it learns before its first batch.
    pub const fn prime_len_max(self) -> usize {
        match self {
            Self::Ppm(_) => PPM_PRIME_LEN_MAX,
            Self::Mix(_) => MIX_PRIME_LEN_MAX,
        }
    }
}

/// The sending end of a model.
pub(crate) enum ModelEncoder {
    Ppm(Box<PpmEncoder>),
    Mix(Box<MixEncoder>),
}

impl ModelEncoder {
    pub(crate) fn new(spec: ModelSpec) -> Result<Self, CodecError> {
        Ok(match spec {
            ModelSpec::Ppm(spec) => Self::Ppm(Box::new(PpmEncoder::new(spec)?)),
            ModelSpec::Mix(spec) => Self::Mix(Box::new(MixEncoder::new(spec)?)),
        })
    }

    /// Forgets all, and goes on with this model, in the same memory if it can be.
    pub(crate) fn renew(&mut self, spec: ModelSpec) -> Result<(), CodecError> {
        match (&mut *self, spec) {
            (Self::Ppm(model), ModelSpec::Ppm(spec)) => model.renew(spec)?,
            (Self::Mix(model), ModelSpec::Mix(spec)) => model.renew(spec)?,
            _ => *self = Self::new(spec)?,
        }
        Ok(())
    }

    pub(crate) fn prime(&mut self, bytes: &[u8]) {
        match self {
            Self::Ppm(model) => model.prime(bytes),
            Self::Mix(model) => model.prime(bytes),
        }
    }

    pub(crate) fn compress(&mut self, record: &[u8], out: &mut Vec<u8>) -> Result<(), CodecError> {
        match self {
            Self::Ppm(model) => model.compress(record, out),
            Self::Mix(model) => model.compress(record, out),
        }
    }

    pub(crate) fn spec(&self) -> ModelSpec {
        match self {
            Self::Ppm(model) => model.spec().into(),
            Self::Mix(model) => model.spec().into(),
        }
    }

    pub(crate) fn may_learn_again(&self, bytes: usize) -> bool {
        matches!(self, Self::Ppm(model) if model.may_learn_again(bytes))
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Self::Ppm(model) => model.memory_bytes(),
            Self::Mix(model) => model.memory_bytes(),
        }
    }
}

/// The receiving end of a model.
pub(crate) enum ModelDecoder {
    Ppm(Box<PpmDecoder>),
    Mix(Box<MixDecoder>),
}

impl ModelDecoder {
    pub(crate) fn new(spec: ModelSpec) -> Result<Self, CodecError> {
        Ok(match spec {
            ModelSpec::Ppm(spec) => Self::Ppm(Box::new(PpmDecoder::new(spec)?)),
            ModelSpec::Mix(spec) => Self::Mix(Box::new(MixDecoder::new(spec)?)),
        })
    }

    /// Forgets all, and goes on with this model, in the same memory if it can be.
    pub(crate) fn renew(&mut self, spec: ModelSpec) -> Result<(), CodecError> {
        match (&mut *self, spec) {
            (Self::Ppm(model), ModelSpec::Ppm(spec)) => model.renew(spec)?,
            (Self::Mix(model), ModelSpec::Mix(spec)) => model.renew(spec)?,
            _ => *self = Self::new(spec)?,
        }
        Ok(())
    }

    pub(crate) fn prime(&mut self, bytes: &[u8]) {
        match self {
            Self::Ppm(model) => model.prime(bytes),
            Self::Mix(model) => model.prime(bytes),
        }
    }

    pub(crate) fn decode(&mut self, src: &[u8], dst: &mut [u8]) -> Result<(), DecodeError> {
        match self {
            Self::Ppm(model) => model.decode(src, dst),
            Self::Mix(model) => model.decode(src, dst),
        }
    }

    pub(crate) fn codec(&self) -> CodecId {
        match self {
            Self::Ppm(_) => CodecId::Ppm,
            Self::Mix(_) => CodecId::Mix,
        }
    }

    pub(crate) fn may_learn_again(&self, bytes: usize) -> bool {
        matches!(self, Self::Ppm(model) if model.may_learn_again(bytes))
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Self::Ppm(model) => model.memory_bytes(),
            Self::Mix(model) => model.memory_bytes(),
        }
    }
}
