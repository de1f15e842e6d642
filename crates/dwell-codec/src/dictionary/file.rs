//! Dictionaries as files: the purpose of a dictionary, and a check for damage.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `dwelldic` |
//! | 1 | version: 1 |
//! | 1 | the dictionary's id, 1 to 15 |
//! | 2 | length of the description, big endian |
//! | 4 | length of the dictionary, big endian |
//! | 16 | SipHash-2-4 of 128 bits, with the key zero, of all that follows |
//! | | the description: UTF-8, lines of `key = value` |
//! | | the dictionary |
//!
//! Keys of the description: `class` (protocol and port), `codec` (with its level), `source` (the
//! hash of the packets that it was made of, 32 hex digits) and `samples` (how many there were).
//! Readers ignore keys that they don't know.

use siphasher::sip128::{Hasher128 as _, SipHasher24};
use std::hash::Hasher as _;
use thiserror::Error;

use super::{DICTIONARY_LEN_MAX, Dictionary, DictionaryError};
use crate::spec::CodecSpec;

const MAGIC: [u8; 8] = *b"dwelldic";
const VERSION: u8 = 1;
const FIXED_LEN: usize = 32;
const DESCRIPTION_LEN_MAX: usize = 4096;
const CLASS_LEN_MAX: usize = 64;

/// The most bytes of a file with a dictionary.
pub const DICTIONARY_FILE_LEN_MAX: usize = FIXED_LEN + DESCRIPTION_LEN_MAX + DICTIONARY_LEN_MAX;

/// The most dictionaries in a file: as many as a record can name.
pub const DICTIONARIES_MAX: usize = 15;
/// The most bytes of a file with several.
pub const DICTIONARY_FILES_LEN_MAX: usize = DICTIONARIES_MAX * DICTIONARY_FILE_LEN_MAX;

/// A dictionary and its purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DictionaryFile {
    /// The number that messages use to name it, `1..=15`.
    pub id: u8,
    /// The class of packets that it is for, such as `udp/5683`: 1 to 64 printable ASCII
    /// characters.
    pub class: String,
    /// The codec with which its gain was measured. It serves other levels and codecs as well.
    pub codec: CodecSpec,
    /// The hash of the packets that it was made of ([`hash_of`]).
    pub source: u128,
    /// The number of packets that it was made of.
    pub samples: u64,
    /// The dictionary itself.
    pub bytes: Vec<u8>,
}

/// The reason why bytes are not a dictionary file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DictionaryFileError {
    /// It begins with something else.
    #[error("it is no dictionary of dwell: it doesn't begin with \"dwelldic\"")]
    Magic,
    /// It was made by a newer version.
    #[error("its format has version {0}, and only version {VERSION} is known")]
    Version(u8),
    /// Lengths that don't agree with its size.
    #[error("it is cut, or has something behind its end")]
    Length,
    /// The hash is another one.
    #[error("it is damaged: its hash is wrong")]
    Hash,
    /// There are more than [`DICTIONARIES_MAX`].
    #[error("it has more than {DICTIONARIES_MAX} dictionaries")]
    Number,
    /// A key of the description is missing or makes no sense.
    #[error("its description has no valid \"{0}\"")]
    Description(&'static str),
    /// The content is not a valid dictionary.
    #[error(transparent)]
    Dictionary(#[from] DictionaryError),
}

impl DictionaryFile {
    /// Returns the bytes of the file.
    ///
    /// # Errors
    /// If the class can't be written, or the dictionary is too long or has an impossible id.
    pub fn to_bytes(&self) -> Result<Vec<u8>, DictionaryFileError> {
        if !is_class(&self.class) {
            return Err(DictionaryFileError::Description("class"));
        }
        super::check(self.id, self.bytes.len())?;
        let description = format!(
            "class = {}\ncodec = {}\nsource = {:032x}\nsamples = {}\n",
            self.class, self.codec, self.source, self.samples
        );
        let mut out = Vec::with_capacity(FIXED_LEN + description.len() + self.bytes.len());
        out.extend(MAGIC);
        out.extend([VERSION, self.id]);
        // Both were checked against their maxima.
        out.extend((description.len() as u16).to_be_bytes());
        out.extend((self.bytes.len() as u32).to_be_bytes());
        out.extend(hash_of([description.as_bytes(), &self.bytes]).to_be_bytes());
        out.extend_from_slice(description.as_bytes());
        out.extend_from_slice(&self.bytes);
        Ok(out)
    }

    /// Reads a file. Nothing is allocated before all lengths agree.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn parse(file: &[u8]) -> Result<Self, DictionaryFileError> {
        match Self::parse_first(file)? {
            (first, []) => Ok(first),
            _ => Err(DictionaryFileError::Length),
        }
    }

    /// Reads a file with one or more dictionaries, one behind the other, as `cat` makes it.
    ///
    /// # Errors
    /// The first thing that is wrong with one of them, or if there are too many.
    pub fn parse_all(mut file: &[u8]) -> Result<Vec<Self>, DictionaryFileError> {
        let mut all = Vec::new();
        loop {
            let (one, rest) = Self::parse_first(file)?;
            all.push(one);
            match rest {
                [] => return Ok(all),
                _ if all.len() == DICTIONARIES_MAX => return Err(DictionaryFileError::Number),
                rest => file = rest,
            }
        }
    }

    /// Reads the first dictionary of a file, and returns what follows it.
    fn parse_first(file: &[u8]) -> Result<(Self, &[u8]), DictionaryFileError> {
        if !file.starts_with(&MAGIC) {
            return Err(DictionaryFileError::Magic);
        }
        let (fixed, rest) =
            file.split_first_chunk::<FIXED_LEN>().ok_or(DictionaryFileError::Length)?;
        if fixed[8] != VERSION {
            return Err(DictionaryFileError::Version(fixed[8]));
        }
        let description_len = usize::from(u16::from_be_bytes([fixed[10], fixed[11]]));
        let bytes_len = u32::from_be_bytes([fixed[12], fixed[13], fixed[14], fixed[15]]) as usize;
        if description_len > DESCRIPTION_LEN_MAX
            || bytes_len > DICTIONARY_LEN_MAX
            || rest.len() < description_len + bytes_len
        {
            return Err(DictionaryFileError::Length);
        }
        let (described, rest) = rest.split_at(description_len + bytes_len);
        let (description, bytes) = described.split_at(description_len);
        let (_, hash) = fixed.split_at(16);
        if hash != hash_of([description, bytes]).to_be_bytes() {
            return Err(DictionaryFileError::Hash);
        }
        super::check(fixed[9], bytes.len())?;
        Ok((Self::described(fixed[9], description, bytes)?, rest))
    }

    fn described(id: u8, text: &[u8], bytes: &[u8]) -> Result<Self, DictionaryFileError> {
        use DictionaryFileError::Description as Missing;
        let text = std::str::from_utf8(text).map_err(|_| Missing("class"))?;
        let value = |key: &str| {
            let pairs = text.lines().filter_map(|line| line.split_once('='));
            pairs.map(|(k, v)| (k.trim(), v.trim())).find(|(k, _)| *k == key).map(|(_, v)| v)
        };
        let class = value("class").filter(|class| is_class(class)).ok_or(Missing("class"))?;
        let codec = value("codec").and_then(|codec| codec.parse().ok());
        let source = value("source").filter(|hex| hex.len() == 32);
        let source = source.and_then(|hex| u128::from_str_radix(hex, 16).ok());
        let samples = value("samples").and_then(|samples| samples.parse().ok());
        Ok(Self {
            id,
            class: class.to_owned(),
            codec: codec.ok_or(Missing("codec"))?,
            source: source.ok_or(Missing("source"))?,
            samples: samples.ok_or(Missing("samples"))?,
            bytes: bytes.to_vec(),
        })
    }

    /// Returns the dictionary, digested.
    ///
    /// # Errors
    /// If the content is damaged.
    pub fn dictionary(&self) -> Result<Dictionary, DictionaryError> {
        Dictionary::new(self.id, self.bytes.clone())
    }
}

fn is_class(class: &str) -> bool {
    (1..=CLASS_LEN_MAX).contains(&class.len()) && class.bytes().all(|b| b.is_ascii_graphic())
}

/// Returns the hash of these pieces, concatenated: SipHash-2-4 of 128 bits with the key zero. It
/// detects damage, not manipulation.
pub fn hash_of<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> u128 {
    let mut hasher = SipHasher24::new();
    pieces.into_iter().for_each(|piece| hasher.write(piece));
    hasher.finish128().as_u128()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file() -> DictionaryFile {
        DictionaryFile {
            id: 3,
            class: "udp/5683".into(),
            codec: "zstd:1".parse().unwrap(),
            source: 0x0123_4567_89ab_cdef,
            samples: 412,
            bytes: b"{\"temperature\": 21}".repeat(20),
        }
    }

    #[test]
    fn a_file_is_read_back() {
        let bytes = file().to_bytes().unwrap();
        assert_eq!(DictionaryFile::parse(&bytes), Ok(file()));
        assert_eq!(file().dictionary().unwrap().id(), 3);
    }

    #[test]
    fn several_are_read_one_behind_the_other() {
        let (one, other) = (file(), DictionaryFile { id: 4, class: "tcp/502".into(), ..file() });
        let both = [one.to_bytes().unwrap(), other.to_bytes().unwrap()].concat();
        assert_eq!(DictionaryFile::parse_all(&both), Ok(vec![one.clone(), other]));
        assert_eq!(DictionaryFile::parse(&both), Err(DictionaryFileError::Length));
        let all = |bytes: &[u8]| DictionaryFile::parse_all(bytes).map(|all| all.len());
        assert_eq!(all(&both[..both.len() - 1]), Err(DictionaryFileError::Length));
        assert_eq!(all(&[&both[..], b"more"].concat()), Err(DictionaryFileError::Magic));
        assert_eq!(all(b""), Err(DictionaryFileError::Magic));
        let one = one.to_bytes().unwrap();
        assert_eq!(all(&one.repeat(DICTIONARIES_MAX)), Ok(DICTIONARIES_MAX));
        assert_eq!(all(&one.repeat(DICTIONARIES_MAX + 1)), Err(DictionaryFileError::Number));
    }

    #[test]
    fn what_is_wrong_is_reported() {
        let good = file().to_bytes().unwrap();
        let parse = |bytes: &[u8]| DictionaryFile::parse(bytes).unwrap_err();
        assert_eq!(parse(b"hello"), DictionaryFileError::Magic);
        assert_eq!(parse(&good[..20]), DictionaryFileError::Length);
        assert_eq!(parse(&good[..good.len() - 1]), DictionaryFileError::Length);
        let mut changed = good.clone();
        changed[8] = 2;
        assert_eq!(parse(&changed), DictionaryFileError::Version(2));
        changed.clone_from(&good);
        *changed.last_mut().unwrap() ^= 1;
        assert_eq!(parse(&changed), DictionaryFileError::Hash);
        changed.clone_from(&good);
        changed[9] = 16;
        let error = DictionaryFileError::Dictionary(DictionaryError::Id(16));
        assert_eq!(parse(&changed), error);
        let class = DictionaryFileError::Description("class");
        for bad in ["", "two words", "a\nb", &"x".repeat(65)] {
            let file = DictionaryFile { class: bad.into(), ..file() };
            assert_eq!(file.to_bytes().unwrap_err(), class);
        }
        let short = DictionaryFile { bytes: vec![0; 7], ..file() };
        assert!(matches!(short.to_bytes(), Err(DictionaryFileError::Dictionary(_))));
    }

    proptest! {
        #[test]
        fn files_round_trip(
            id in 1u8..=15, class in "[!-~]{1,64}", source: u128, samples: u64,
            bytes in prop::collection::vec(any::<u8>(), 8..300),
        ) {
            let file = DictionaryFile { id, class, source, samples, bytes, ..file() };
            prop_assert_eq!(DictionaryFile::parse(&file.to_bytes().unwrap()), Ok(file));
        }

        #[test]
        fn no_bytes_harm(mut tail in prop::collection::vec(any::<u8>(), 0..100), cut in 0usize..600) {
            let mut bytes = file().to_bytes().unwrap();
            bytes.truncate(cut);
            bytes.append(&mut tail);
            let _ = DictionaryFile::parse(&bytes);
        }
    }
}
