//! The bytes that a generation begins from, wherever they are.

use super::ring::Ring;
use super::{Base, ContextDictionary};

/// The bytes that a generation begins from.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// Bytes of the ring, which is cut back to their end; of [`Base::default`], none.
    Ring(Base),
    /// So many bytes at the end of a dictionary, of which both ends must have the same: they are all that is in the
    /// ring then, as if they had gone through.
    Dictionary(&'a ContextDictionary, u32),
}

impl From<Base> for Source<'_> {
    fn from(base: Base) -> Self {
        Self::Ring(base)
    }
}

impl<'a> Source<'a> {
    /// Returns the base, as it is named where it is refused, and as it is once the generation has begun.
    pub(super) fn base(self) -> Base {
        match self {
            Self::Ring(base) => base,
            Self::Dictionary(_, len) => Base { offset: len.into(), len },
        }
    }

    /// Returns true if all of it is there, and not more than a generation takes; none of a dictionary is too little.
    pub(super) fn is_there(self, ring: &Ring, len_max: u32) -> bool {
        let is_there = match self {
            Self::Ring(base) => ring.has(base),
            Self::Dictionary(dictionary, len) => dictionary.end(len).is_some(),
        };
        is_there && self.base().len <= len_max
    }

    fn end_of_dictionary(dictionary: &'a ContextDictionary, len: u32) -> &'a [u8] {
        dictionary.end(len).unwrap_or_default()
    }

    /// Appends the bytes, which must be there.
    pub(super) fn read(self, ring: &Ring, out: &mut Vec<u8>) {
        match self {
            Self::Ring(base) => ring.read(base, out),
            Self::Dictionary(dictionary, len) => {
                out.extend_from_slice(Self::end_of_dictionary(dictionary, len));
            }
        }
    }

    /// Lets the ring end with the bytes, which must be there.
    pub(super) fn cut(self, ring: &mut Ring) {
        match self {
            Self::Ring(base) => ring.cut(base),
            Self::Dictionary(dictionary, len) => {
                ring.begin_with(Self::end_of_dictionary(dictionary, len));
            }
        }
    }
}
