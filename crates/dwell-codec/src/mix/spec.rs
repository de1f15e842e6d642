//! The memory of a model.

use crate::error::{CodecError, DecodeError};

/// The binary logarithm of the least memory of a model, in bytes: 1 MiB.
pub const MIX_MEMORY_LOG_MIN: u8 = 20;
/// The binary logarithm of the most memory of a model, in bytes: 64 MiB.
pub const MIX_MEMORY_LOG_MAX: u8 = 26;
/// The most bytes that a model learns before its first record: that takes as long as to compress them.
pub const MIX_PRIME_LEN_MAX: usize = 8 << 10;

/// The memory of a model; both ends have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MixSpec {
    /// The binary logarithm of the bytes in which the model is, [`MIX_MEMORY_LOG_MIN`] to
    /// [`MIX_MEMORY_LOG_MAX`].
    pub memory_log: u8,
}

impl Default for MixSpec {
    /// Returns 16 MiB.
    fn default() -> Self {
        Self { memory_log: 24 }
    }
}

impl MixSpec {
    /// Checks that there is such a model.
    ///
    /// # Errors
    /// [`CodecError::Mix`].
    pub fn check(self) -> Result<Self, CodecError> {
        let is_possible = (MIX_MEMORY_LOG_MIN..=MIX_MEMORY_LOG_MAX).contains(&self.memory_log);
        if is_possible { Ok(self) } else { Err(CodecError::Mix(self)) }
    }

    /// Returns the byte that stands for it where a generation begins.
    ///
    /// # Errors
    /// As of [`check`](Self::check).
    pub fn to_wire(self) -> Result<u8, CodecError> {
        self.check().map(|spec| spec.memory_log)
    }

    /// Returns what a byte stands for.
    ///
    /// # Errors
    /// [`DecodeError::Mix`] if there is no such model.
    pub fn from_wire(byte: u8) -> Result<Self, DecodeError> {
        let spec = Self { memory_log: byte };
        spec.check().map_err(|_| DecodeError::Mix(spec))
    }

    /// Half of the memory is for slots of 16 bytes.
    pub(super) const fn slots_log(self) -> u32 {
        self.memory_log as u32 - 1 - 4
    }

    /// A quarter is for the table of places, of 4 bytes each.
    pub(super) const fn places_log(self) -> u32 {
        self.memory_log as u32 - 2 - 2
    }

    /// An eighth is for the last bytes. What is left is for weights and the like, which always take as much.
    pub(super) const fn history_log(self) -> u32 {
        self.memory_log as u32 - 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_survives_the_wire_and_no_other_exists() {
        let specs: Vec<_> =
            (0..=u8::MAX).filter_map(|byte| MixSpec::from_wire(byte).ok()).collect();
        assert_eq!(specs.len(), 7);
        assert!(specs.iter().all(|spec| spec.to_wire() == Ok(spec.memory_log)));
        assert_eq!(MixSpec::default().to_wire(), Ok(24));
    }
}
