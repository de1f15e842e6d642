//! The models that running generations of contexts may have, of either kind, and their two ends.

mod decoder;
mod encoder;
mod learner;
#[cfg(test)]
pub(crate) mod tests;

use crate::error::{CodecError, DecodeError};
use crate::id::CodecId;
use crate::mix::{MIX_PRIME_LEN_MAX, MixSpec};
use crate::ppm::{PPM_PRIME_LEN_MAX, PpmSpec};

pub use decoder::ModelDecoder;
pub use encoder::ModelEncoder;
pub(crate) use learner::{Damaged, Learner};

/// The longest record of any model, in bytes: each takes up to microseconds, and whoever decodes has others to serve.
pub const MODEL_RECORD_LEN_MAX: usize = 16 << 10;

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
    /// Returns the part of bytes that it learns before its first batch: the last ones.
    fn primed(self, bytes: &[u8]) -> &[u8] {
        &bytes[bytes.len().saturating_sub(self.prime_len_max())..]
    }
}
