//! The order and the memory of a model.

use crate::error::{CodecError, DecodeError};

/// The lowest order of a model.
pub const PPM_ORDER_MIN: u8 = 2;
/// The highest order of a model.
pub const PPM_ORDER_MAX: u8 = 12;
/// The binary logarithm of the least memory of a model, in bytes: 1 MiB.
pub const PPM_MEMORY_LOG_MIN: u8 = 20;
/// The binary logarithm of the most memory of a model, in bytes: 64 MiB.
pub const PPM_MEMORY_LOG_MAX: u8 = 26;
/// The most bytes that a model learns before its first record: that takes as long as to compress them.
pub const PPM_PRIME_LEN_MAX: usize = 32 << 10;
/// The most bytes that it learns once more when its memory is full.
const HISTORY_LEN_MAX: usize = 128 << 10;

/// The order and the memory of a model; both ends have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PpmSpec {
    /// The number of bytes by which the next one is predicted at most, [`PPM_ORDER_MIN`] to
    /// [`PPM_ORDER_MAX`].
    pub order: u8,
    /// The binary logarithm of the bytes in which the model is, [`PPM_MEMORY_LOG_MIN`] to
    /// [`PPM_MEMORY_LOG_MAX`].
    pub memory_log: u8,
}

impl Default for PpmSpec {
    /// Returns order 6 with 16 MiB.
    fn default() -> Self {
        Self { order: 6, memory_log: 24 }
    }
}

impl PpmSpec {
    /// Checks that there is such a model.
    ///
    /// # Errors
    /// [`CodecError::Ppm`].
    pub fn check(self) -> Result<Self, CodecError> {
        let is_possible = (PPM_ORDER_MIN..=PPM_ORDER_MAX).contains(&self.order)
            && (PPM_MEMORY_LOG_MIN..=PPM_MEMORY_LOG_MAX).contains(&self.memory_log);
        if is_possible { Ok(self) } else { Err(CodecError::Ppm(self)) }
    }

    /// Returns the byte that stands for it where a generation begins.
    ///
    /// # Errors
    /// As of [`check`](Self::check).
    pub fn to_wire(self) -> Result<u8, CodecError> {
        self.check().map(|spec| spec.order << 4 | (spec.memory_log - PPM_MEMORY_LOG_MIN))
    }

    /// Returns what a byte stands for.
    ///
    /// # Errors
    /// [`DecodeError::Ppm`] if there is no such model.
    pub fn from_wire(byte: u8) -> Result<Self, DecodeError> {
        let spec = Self { order: byte >> 4, memory_log: PPM_MEMORY_LOG_MIN + (byte & 0x0f) };
        spec.check().map_err(|_| DecodeError::Ppm(spec))
    }

    pub(super) const fn memory_len(self) -> u32 {
        1 << self.memory_log
    }

    /// Returns how many of the last bytes are learned once more when the memory is full: what a restart
    /// takes off the ratio, and adds to the time, grows with it.
    pub(super) const fn history_len(self) -> usize {
        let share = 1 << (self.memory_log - 6);
        if share < HISTORY_LEN_MAX { share } else { HISTORY_LEN_MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_survives_the_wire_and_no_other_exists() {
        let mut count = 0;
        for byte in 0..=u8::MAX {
            if let Ok(spec) = PpmSpec::from_wire(byte) {
                assert_eq!(spec.to_wire(), Ok(byte));
                count += 1;
            }
        }
        assert_eq!(count, 11 * 7);
        assert_eq!(PpmSpec::default().to_wire(), Ok(0x64));
        for (order, memory_log) in [(1, 24), (13, 24), (6, 19), (6, 27), (0, 0), (255, 255)] {
            assert!(PpmSpec { order, memory_log }.to_wire().is_err());
        }
    }
}
