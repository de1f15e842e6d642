//! Bytes that both ends hold, so that a packet can refer to them.

pub(crate) mod file;
pub(crate) mod train;

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use thiserror::Error;
use zstd_safe::DDict;

use crate::ffi::{lz4, zstd};

/// The longest dictionary, in bytes: lz4 can't refer to more, and longer ones bring little (and
/// must be sent to the other end).
pub const DICTIONARY_LEN_MAX: usize = 64 << 10;

/// The shortest dictionary, in bytes: the libraries silently ignore shorter ones.
pub const DICTIONARY_LEN_MIN: usize = 8;

/// Bytes that both ends hold, digested once and then shared (by `Arc`) by any number of
/// compressors and decompressors.
///
/// Any bytes will do; content that is typical of packets should come towards the end. Bytes in the
/// format of zstd's trainer are recognised by their magic number and help zstd more.
pub struct Dictionary {
    id: u8,
    bytes: Arc<[u8]>,
    for_decoding_zstd: DDict<'static>,
    for_zstd: Mutex<Vec<(i32, Arc<zstd::DigestedDictionary>)>>,
    for_lz4: OnceLock<Option<Arc<lz4::Digest>>>,
}

/// The reason why bytes are not a dictionary. A peer that sends dictionaries can cause any of
/// these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DictionaryError {
    /// The id is not in `1..=15`.
    #[error("a dictionary's id must be in 1 to 15, not {0}")]
    Id(u8),
    /// Too short or too long.
    #[error("a dictionary must have {DICTIONARY_LEN_MIN} to {DICTIONARY_LEN_MAX} bytes, not {0}")]
    Length(usize),
    /// It begins like a trained dictionary, but is damaged.
    #[error("the trained dictionary is damaged")]
    Corrupt,
}

impl Dictionary {
    /// Digests `bytes` for decoding; the digests for compressing are made when a
    /// [`Compressor`](crate::Compressor) first wants them.
    ///
    /// `id` is the number that messages use to name it, `1..=15`: a new dictionary gets
    /// another number than its predecessor.
    ///
    /// # Errors
    /// If the id or the length is out of bounds, or a trained dictionary is damaged.
    pub fn new(id: u8, bytes: Vec<u8>) -> Result<Self, DictionaryError> {
        check(id, bytes.len())?;
        let for_decoding_zstd = DDict::try_create(&bytes).ok_or(DictionaryError::Corrupt)?;
        Ok(Self {
            id,
            bytes: bytes.into(),
            for_decoding_zstd,
            for_zstd: Mutex::default(),
            for_lz4: OnceLock::new(),
        })
    }

    /// Returns the number that messages use to name it.
    pub fn id(&self) -> u8 {
        self.id
    }

    /// Returns the bytes that both ends hold.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the digest for zstd's decoder.
    pub(crate) fn for_decoding_zstd(&self) -> &DDict<'static> {
        &self.for_decoding_zstd
    }

    /// Returns the digest for zstd at this level; `None` if zstd can decode with the dictionary but
    /// not encode, as it may lack symbols.
    pub(crate) fn for_zstd(&self, level: i32) -> Option<Arc<zstd::DigestedDictionary>> {
        // Nothing in here can leave the list half changed.
        let mut digests = self.for_zstd.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, digest)) = digests.iter().find(|(of, _)| *of == level) {
            return Some(Arc::clone(digest));
        }
        let digest = Arc::new(zstd::DigestedDictionary::new(&self.bytes, level)?);
        digests.push((level, Arc::clone(&digest)));
        Some(digest)
    }

    /// Returns the digest for lz4; `None` without memory.
    pub(crate) fn for_lz4(&self) -> Option<Arc<lz4::Digest>> {
        self.for_lz4.get_or_init(|| lz4::Digest::new(Arc::clone(&self.bytes)).map(Arc::new)).clone()
    }
}

fn check(id: u8, len: usize) -> Result<(), DictionaryError> {
    if !(1..=15).contains(&id) {
        return Err(DictionaryError::Id(id));
    }
    if !(DICTIONARY_LEN_MIN..=DICTIONARY_LEN_MAX).contains(&len) {
        return Err(DictionaryError::Length(len));
    }
    Ok(())
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dictionary(id {}, {} bytes)", self.id, self.bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_checked() {
        let error = |id, bytes| Dictionary::new(id, bytes).unwrap_err();
        assert_eq!(error(0, vec![0; 100]), DictionaryError::Id(0));
        assert_eq!(error(16, vec![0; 100]), DictionaryError::Id(16));
        assert_eq!(error(1, vec![0; 7]), DictionaryError::Length(7));
        assert_eq!(error(1, vec![0; 65_537]), DictionaryError::Length(65_537));
        assert!(Dictionary::new(1, vec![0; 8]).is_ok());
        assert!(Dictionary::new(15, vec![0; 65_536]).is_ok());
    }

    #[test]
    fn a_damaged_trained_dictionary_is_refused() {
        let bytes = [&[0x37, 0xa4, 0x30, 0xec][..], &[0xff; 100]].concat();
        assert_eq!(Dictionary::new(1, bytes).unwrap_err(), DictionaryError::Corrupt);
    }

    #[test]
    fn digests_are_shared() {
        let dictionary = Dictionary::new(1, b"all work and no play ".repeat(9)).unwrap();
        let first = dictionary.for_zstd(1).unwrap();
        assert!(Arc::ptr_eq(&first, &dictionary.for_zstd(1).unwrap()));
        assert!(!Arc::ptr_eq(&first, &dictionary.for_zstd(3).unwrap()));
        let first = dictionary.for_lz4().unwrap();
        assert!(Arc::ptr_eq(&first, &dictionary.for_lz4().unwrap()));
    }
}
