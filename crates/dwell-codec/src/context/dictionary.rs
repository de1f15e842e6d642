//! Bytes that both ends of a context had before its first batch.

use std::fmt;
use std::sync::Arc;

use super::{Base, CONTEXT_BASE_LEN_MAX, ContextSpec};
use crate::dictionary::file::{DictionaryFile, hash_of};

/// A dictionary from which contexts begin, shared by all of them: plain bytes, whatever they begin with.
#[derive(Clone, PartialEq, Eq)]
pub struct ContextDictionary {
    bytes: Arc<[u8]>,
    name: u128,
}

impl ContextDictionary {
    /// Takes bytes, at most [`CONTEXT_BASE_LEN_MAX`]; none if there are none, or more.
    pub fn new(bytes: Vec<u8>) -> Option<Self> {
        let fits = (1..=CONTEXT_BASE_LEN_MAX as usize).contains(&bytes.len());
        let name = hash_of([&bytes[..]]);
        fits.then(|| Self { bytes: bytes.into(), name })
    }

    /// Joins dictionaries of classes of packets. The first of them, which gains most, comes last: what is
    /// near is cheap to refer to, and a small window holds the end only. What is too much is left out at the
    /// beginning; none if there are no bytes.
    ///
    /// The tables in front of a trained dictionary stay where they are: they are not worth a parser.
    pub fn of(files: &[DictionaryFile]) -> Option<Self> {
        let mut bytes: Vec<u8> = files.iter().rev().flat_map(|file| &file.bytes).copied().collect();
        let most = CONTEXT_BASE_LEN_MAX as usize;
        bytes.drain(..bytes.len().saturating_sub(most));
        Self::new(bytes)
    }

    /// Returns the number of bytes, at least one.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u32 {
        self.bytes.len() as u32 // at most `CONTEXT_BASE_LEN_MAX`
    }

    /// Returns the hash of the bytes, by which two ends know that they have the same.
    pub fn name(&self) -> u128 {
        self.name
    }

    /// Returns the base of a generation that begins from as much of the dictionary as the window holds.
    pub fn base(&self, spec: ContextSpec) -> Base {
        let len = self.len().min(1 << spec.window_log.min(31));
        Base { offset: len.into(), len }
    }

    /// Returns the last `len` bytes; none if there are not as many, or if that is none.
    pub(super) fn end(&self, len: u32) -> Option<&[u8]> {
        let from = self.bytes.len().checked_sub(len as usize)?;
        (len > 0).then(|| &self.bytes[from..])
    }
}

/// The bytes come from packets, and so does not show them.
impl fmt::Debug for ContextDictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContextDictionary({:032x}, {} bytes)", self.name, self.bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: &[u8]) -> DictionaryFile {
        DictionaryFile {
            id: 1,
            class: "udp/161".into(),
            codec: "zstd:1".parse().unwrap(),
            source: 0,
            samples: 1,
            bytes: bytes.to_vec(),
        }
    }

    #[test]
    fn the_first_file_is_nearest_and_what_is_too_much_is_left_out() {
        let joined = ContextDictionary::of(&[file(b"second..."), file(b"first...")]).unwrap();
        assert_eq!(&joined.bytes[..], b"first...second...");
        assert_eq!(joined.name(), ContextDictionary::new(joined.bytes.to_vec()).unwrap().name());
        assert_eq!((joined.end(3), joined.end(17)), (Some(&b"..."[..]), Some(&joined.bytes[..])));
        assert_eq!((joined.end(0), joined.end(18), joined.end(u32::MAX)), (None, None, None));
        let many: Vec<_> = (0..20).map(|fill| file(&vec![fill; 64 << 10])).collect();
        let joined = ContextDictionary::of(&many).unwrap();
        assert_eq!(joined.len(), CONTEXT_BASE_LEN_MAX);
        assert_eq!((joined.bytes[0], joined.bytes.last()), (15, Some(&0)));
        assert_eq!(ContextDictionary::of(&[]), None);
        assert_eq!(ContextDictionary::new(vec![0; (1 << 20) + 1]), None);
        let base = joined.base(ContextSpec { level: 1, window_log: 15 });
        assert_eq!(base, Base { offset: 1 << 15, len: 1 << 15 });
    }
}
