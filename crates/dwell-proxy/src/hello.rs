//! The parameters that the two ends agree on before anything else: version, codecs, block length,
//! strategy.
//!
//! Whoever connects speaks first, the other answers; both messages have the same form:
//!
//! ```text
//! 0   4  "dwPX"
//! 4   2  length of what follows
//! 6   1  lowest version that is spoken      (answer: the version that will be spoken)
//! 7   1  highest version that is spoken     (answer: the same once more; 0 in both: refused)
//! 8   1  purpose: 1 streams, 2 files
//! 9   2  codecs that can be decoded, a bitmap by id
//! 11  4  longest block that is accepted, in bytes
//! 15  1  length of the strategy's name
//! 16  n  strategy wanted of the other end, by name; empty: its own choice
//! +n  1  longest window of a running context that is accepted, as a binary logarithm; 0 or nothing: none
//! +1  1  features, a bitmap: 1 the message *opening*, 2 keeping what a stream leaves, 4 heads of transfers, 8 contexts of streams, 16 chunks of files, 32 shorter ones, 64 models of the codec mix; not there: none
//! +1  1  most memory of a model in a running context that is accepted, in bytes, as a binary logarithm; 0 or nothing: none
//! ```
//!
//! Bytes after those are left for later versions and ignored. In a refusal the text in place of
//! the strategy is the reason.

use dwell_codec::{CONTEXT_LOG_MAX, CONTEXT_LOG_MIN, PPM_MEMORY_LOG_MAX, PPM_MEMORY_LOG_MIN};
use thiserror::Error;

/// The longest hello, in bytes; what would be longer is refused before it is read.
pub const HELLO_BYTES_MAX: usize = 6 + 512;
/// The longest text in a hello, in bytes.
pub const TEXT_BYTES_MAX: usize = 200;

const MAGIC: [u8; 4] = *b"dwPX";
const PREFIX_BYTES: usize = 6;
const FIXED_BYTES: usize = 10;

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Purpose {
    /// Streams, one after the other.
    Streams = 1,
    /// Files, once.
    File = 2,
}

impl Purpose {
    /// Returns the version of the protocol that is spoken for it.
    pub const fn version(self) -> u8 {
        match self {
            Self::Streams => 4,
            // Offers count directories and links.
            Self::File => 5,
        }
    }
}

/// The parameters of an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The versions that it speaks, lowest and highest.
    pub versions: (u8, u8),
    /// The purpose of the connection.
    pub purpose: Purpose,
    /// The codecs that it can decode: bit `n` is the codec with the id `n`.
    pub codecs: u16,
    /// The longest block that it accepts, in bytes.
    pub block_bytes_max: u32,
    /// The strategy that it would like the other end to use; empty if that is for the other
    /// end to choose. In a refusal, the reason. At most [`TEXT_BYTES_MAX`] printable bytes.
    pub text: String,
    /// The longest window of a running context that it accepts, as a binary logarithm; 0 if none.
    pub window_log: u8,
    /// What it understands beyond the version: bits as [`Hello::OPENING`].
    pub features: u8,
    /// The most memory of a model in such a context that it accepts, in bytes, as a binary logarithm; 0 if none.
    pub model_log: u8,
}

/// Why there is no agreement.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HelloError {
    /// The first bytes are something else.
    #[error("the other end is not a dwell proxy, or one with other security settings")]
    Magic,
    /// A length that no hello has, or a text that is none.
    #[error("the other end sent a malformed hello")]
    Malformed,
    /// Nothing in common.
    #[error(
        "the other end speaks versions {} to {}, this one {ours}: use the same dwell at both ends",
        theirs.0, theirs.1
    )]
    Version {
        /// The versions that the other end speaks, lowest and highest.
        theirs: (u8, u8),
        /// The version that this one speaks.
        ours: u8,
    },
    /// It wants to send a file to a proxy, or the reverse.
    #[error(
        "the other end is there for another purpose: `dwell send` needs `dwell recv`, and \
             `dwell proxy ingress` needs `dwell proxy egress`"
    )]
    Purpose,
    /// The other end says no.
    #[error("the other end refuses: {0}")]
    Refused(String),
}

impl Hello {
    /// The feature of an end that understands [`Message::Opening`](crate::message::Message::Opening).
    pub const OPENING: u8 = 1;
    /// That of an end that keeps what a stream leaves for the next one on its connection, if it is asked to.
    pub const KEEPING: u8 = 2;
    /// That of an end that understands heads of transfers, which go before the receiver has said anything.
    pub const HEADS: u8 = 4;
    /// That of an end whose streams may get a running context on the way.
    pub const CONTEXTS: u8 = 8;
    /// That of an end that understands what there is of a file as chunks that end where the content says so.
    pub const CHUNKS: u8 = 16;
    /// That of an end that understands shorter ones, too.
    pub const FINE_CHUNKS: u8 = 32;
    /// That of an end that accepts models of the codec mix wherever it accepts models.
    pub const MIXED_MODELS: u8 = 64;

    /// Of this build.
    pub fn new(purpose: Purpose, block_bytes_max: u32, want: &str) -> Self {
        let codecs = dwell_codec::supported_bitmap();
        let features = match purpose {
            Purpose::Streams => Self::OPENING | Self::CONTEXTS | Self::MIXED_MODELS,
            Purpose::File => {
                let chunks = Self::CHUNKS | Self::FINE_CHUNKS;
                Self::OPENING | Self::HEADS | chunks | Self::MIXED_MODELS
            }
        };
        Self {
            versions: (purpose.version(), purpose.version()),
            purpose,
            codecs,
            block_bytes_max,
            text: printable(want),
            window_log: 0,
            features,
            model_log: 0,
        }
    }

    /// The same, of an end that accepts running contexts with such a window.
    pub fn with_window(self, window_log: u8) -> Self {
        Self { window_log, ..self }
    }

    /// The same, of an end that keeps what a stream leaves for the next.
    pub fn with_keeping(self) -> Self {
        Self { features: self.features | Self::KEEPING, ..self }
    }

    /// The same, of an end that accepts models in these with so much memory.
    pub fn with_model(self, model_log: u8) -> Self {
        Self { model_log, ..self }
    }

    /// A refusal for this reason.
    pub fn refusal(purpose: Purpose, reason: &str) -> Self {
        Self { versions: (0, 0), codecs: 0, ..Self::new(purpose, 0, reason) }
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let text = printable(&self.text);
        let mut bytes = MAGIC.to_vec();
        bytes.extend(((FIXED_BYTES + text.len() + 3) as u16).to_be_bytes());
        bytes.extend([self.versions.0, self.versions.1, self.purpose as u8]);
        bytes.extend(self.codecs.to_be_bytes());
        bytes.extend(self.block_bytes_max.to_be_bytes());
        bytes.push(text.len() as u8);
        bytes.extend(text.as_bytes());
        bytes.push(self.window_log);
        bytes.push(self.features);
        bytes.push(self.model_log);
        bytes
    }

    /// Reads a hello at the start of `bytes`, and how many bytes it has. `None` if more are
    /// needed, of which there are never more than [`HELLO_BYTES_MAX`].
    ///
    /// # Errors
    /// [`HelloError::Magic`] at the first byte that does not fit, or [`HelloError::Malformed`].
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, HelloError> {
        if bytes.iter().zip(MAGIC).any(|(&byte, magic)| byte != magic) {
            return Err(HelloError::Magic);
        }
        let Some(&[_, _, _, _, high, low]) = bytes.first_chunk::<PREFIX_BYTES>() else {
            return Ok(None);
        };
        let len = usize::from(u16::from_be_bytes([high, low]));
        if !(FIXED_BYTES..=HELLO_BYTES_MAX - PREFIX_BYTES).contains(&len) {
            return Err(HelloError::Malformed);
        }
        let Some(body) = bytes.get(PREFIX_BYTES..PREFIX_BYTES + len) else { return Ok(None) };
        let (&[lowest, highest, purpose, c0, c1, b0, b1, b2, b3, text_len], rest) =
            body.split_first_chunk::<FIXED_BYTES>().ok_or(HelloError::Malformed)?;
        let text = rest.get(..usize::from(text_len)).ok_or(HelloError::Malformed)?;
        let fits = text.len() <= TEXT_BYTES_MAX && text.iter().all(|byte| is_printable(*byte));
        let purpose = match purpose {
            1 => Purpose::Streams,
            2 => Purpose::File,
            _ => return Err(HelloError::Malformed),
        };
        if !fits || lowest > highest {
            return Err(HelloError::Malformed);
        }
        let later = |at: usize| rest.get(usize::from(text_len) + at).copied();
        let hello = Self {
            versions: (lowest, highest),
            purpose,
            codecs: u16::from_be_bytes([c0, c1]),
            block_bytes_max: u32::from_be_bytes([b0, b1, b2, b3]),
            text: String::from_utf8_lossy(text).into_owned(),
            window_log: log_within(later(0), CONTEXT_LOG_MIN, CONTEXT_LOG_MAX),
            features: later(1).unwrap_or(0),
            model_log: log_within(later(2), PPM_MEMORY_LOG_MIN, PPM_MEMORY_LOG_MAX),
        };
        Ok(Some((hello, PREFIX_BYTES + len)))
    }

    /// Returns true if this end can talk with one that says `other`, for this purpose.
    ///
    /// # Errors
    /// [`HelloError::Refused`], [`HelloError::Version`] or [`HelloError::Purpose`].
    pub fn agree(&self, other: &Self) -> Result<(), HelloError> {
        let (lowest, highest) = other.versions;
        if highest == 0 {
            return Err(HelloError::Refused(other.text.clone()));
        }
        if self.purpose != other.purpose {
            return Err(HelloError::Purpose);
        }
        let ours = self.purpose.version();
        if !(lowest..=highest).contains(&ours) {
            return Err(HelloError::Version { theirs: other.versions, ours });
        }
        Ok(())
    }
}

/// A length that an end accepts: what is longer than any comes from a later version.
fn log_within(byte: Option<u8>, least: u8, most: u8) -> u8 {
    match byte {
        Some(log) if log >= least => log.min(most),
        _ => 0,
    }
}

pub(crate) const fn is_printable(byte: u8) -> bool {
    matches!(byte, b' '..=b'~')
}

/// `text` in printable ASCII, cut to [`TEXT_BYTES_MAX`].
pub(crate) fn printable(text: &str) -> String {
    let shown = |c: char| if c.is_ascii() && is_printable(c as u8) { c } else { '?' };
    text.chars().take(TEXT_BYTES_MAX).map(shown).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn two_of_this_build_agree() {
        let ours = Hello::new(Purpose::Streams, 65_536, "hull");
        assert_eq!(ours.agree(&ours), Ok(()));
        let bytes = ours.encode();
        assert_eq!(bytes[..16], *b"dwPX\0\x11\x04\x04\x01\0\x0e\0\x01\0\0\x04");
        assert_eq!(bytes[16..], *b"hull\0\x49\0");
        assert_eq!(Hello::decode(&bytes), Ok(Some((ours, bytes.len()))));
    }

    #[test]
    fn differences_are_reported() {
        let ours = Hello::new(Purpose::Streams, 1, "");
        let later = Hello { versions: (5, 6), ..ours.clone() };
        let ours_and_theirs = HelloError::Version { theirs: (5, 6), ours: 4 };
        assert_eq!(ours.agree(&later), Err(ours_and_theirs));
        let file = Hello::new(Purpose::File, 1, "");
        assert_eq!(ours.agree(&file), Err(HelloError::Purpose));
        let refusal = Hello::refusal(Purpose::Streams, "full\n");
        assert_eq!(ours.agree(&refusal), Err(HelloError::Refused("full?".to_owned())));
    }

    #[test]
    fn unknown_peers_are_known_by_the_first_byte() {
        assert_eq!(Hello::decode(b"G"), Err(HelloError::Magic));
        assert_eq!(Hello::decode(b"dwPY"), Err(HelloError::Magic));
        assert_eq!(Hello::decode(b"dwPX\xff\xff"), Err(HelloError::Malformed));
        assert_eq!(Hello::decode(b"dwPX\0\x09"), Err(HelloError::Malformed));
        assert_eq!(Hello::decode(b""), Ok(None));
    }

    #[test]
    fn later_versions_may_say_more() {
        let ours = Hello::new(Purpose::Streams, 1, "x");
        let mut bytes = ours.encode();
        bytes[5] += 3;
        bytes.extend([1, 2, 3]);
        assert_eq!(Hello::decode(&bytes), Ok(Some((ours, bytes.len()))));
    }

    #[test]
    fn earlier_builds_have_no_models_and_before_that_no_features() {
        let ours = Hello::new(Purpose::File, 1, "x").with_window(20).with_model(24);
        let mut bytes = ours.encode();
        let no_models = Hello { model_log: 0, ..ours };
        let no_features = Hello { features: 0, ..no_models.clone() };
        for earlier in [no_models, no_features] {
            bytes.pop();
            bytes[5] -= 1;
            assert_eq!(Hello::decode(&bytes), Ok(Some((earlier, bytes.len()))));
        }
    }

    proptest! {
        #[test]
        fn hellos_come_back(
            lowest in 0u8..9, more in 0u8..9, codecs: u16, block_bytes_max: u32,
            text in "[ -~]{0,200}", is_file: bool, window_log in prop_oneof![Just(0u8), 15u8..=23],
            features: u8, model_log in prop_oneof![Just(0u8), 20u8..=26],
        ) {
            let purpose = if is_file { Purpose::File } else { Purpose::Streams };
            let versions = (lowest, lowest + more);
            let hello = Hello {
                versions, purpose, codecs, block_bytes_max, text, window_log, features, model_log,
            };
            let bytes = hello.encode();
            prop_assert!(bytes.len() <= HELLO_BYTES_MAX);
            for cut in 0..bytes.len() {
                prop_assert_eq!(Hello::decode(&bytes[..cut]), Ok(None));
            }
            prop_assert_eq!(Hello::decode(&bytes), Ok(Some((hello, bytes.len()))));
        }

        #[test]
        fn any_bytes_are_read_or_refused(tail in prop::collection::vec(any::<u8>(), 0..700)) {
            let bytes = [&MAGIC[..], &tail].concat();
            match Hello::decode(&bytes) {
                Ok(Some((hello, used))) => {
                    prop_assert!(used <= bytes.len());
                    prop_assert!(hello.text.len() <= TEXT_BYTES_MAX);
                }
                Ok(None) => prop_assert!(bytes.len() < HELLO_BYTES_MAX),
                Err(error) => prop_assert_eq!(error, HelloError::Malformed),
            }
        }
    }
}
