//! The headers of units: `docs/stream-wire.md`, section 5.

use dwell_codec::CodecId;

use super::{Fields, Layout};
use crate::error::StreamError;

/// The longest payload of a unit: the limit of 12 bits.
pub(crate) const UNIT_PAYLOAD_MAX: usize = 0xfff;

/// The kind of a unit (section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnitForm {
    Raw,
    Compressed(CodecId),
    /// The check sum of all data before it.
    Check,
    /// The end, with the length of all data and their check sum.
    End,
    Abort,
}

/// The fields before the bytes of a unit (section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnitHeader {
    pub(crate) form: UnitForm,
    /// At most [`UNIT_PAYLOAD_MAX`].
    pub(crate) payload_len: usize,
    /// Only long headers have it; zero for notes.
    pub(crate) original_len: usize,
}

impl Layout {
    /// Returns the length of a unit's header.
    pub(crate) fn unit_header_len(self) -> usize {
        match self {
            Self::Blocks => 0,
            Self::Units => 2,
            Self::LongUnits => 4,
        }
    }
}

impl UnitHeader {
    pub(crate) fn to_bytes(self, layout: Layout) -> Vec<u8> {
        debug_assert!(self.payload_len <= UNIT_PAYLOAD_MAX);
        let form = match self.form {
            UnitForm::Raw => 0,
            UnitForm::Compressed(codec) => codec as u16,
            UnitForm::Abort => 13,
            UnitForm::Check => 14,
            UnitForm::End => 15,
        };
        let mut bytes = (form << 12 | self.payload_len as u16).to_be_bytes().to_vec();
        if layout == Layout::LongUnits {
            bytes.extend_from_slice(&(self.original_len as u16).to_be_bytes());
        }
        bytes
    }

    /// Reads a header; `bytes` has the length that the layout requires.
    pub(crate) fn from_bytes(bytes: &[u8], layout: Layout) -> Result<Self, StreamError> {
        let mut fields = Fields(bytes);
        let word = u16::from_be_bytes(fields.take()?);
        let payload_len = usize::from(word & 0xfff);
        let form = match word >> 12 {
            0 => UnitForm::Raw,
            13 => UnitForm::Abort,
            14 => UnitForm::Check,
            15 => UnitForm::End,
            id => UnitForm::Compressed(
                CodecId::from_wire(id as u8).ok_or(StreamError::Header("an unknown codec"))?,
            ),
        };
        let original_len = match layout {
            Layout::LongUnits => usize::from(u16::from_be_bytes(fields.take()?)),
            _ => 0,
        };
        let expected = match form {
            UnitForm::Abort => Some(1),
            UnitForm::Check => Some(4),
            UnitForm::End => Some(12),
            UnitForm::Raw | UnitForm::Compressed(_) => None,
        };
        if payload_len == 0 || expected.is_some_and(|len| len != payload_len) {
            return Err(StreamError::Header("a unit of a length that cannot be"));
        }
        Ok(Self { form, payload_len, original_len })
    }
}
