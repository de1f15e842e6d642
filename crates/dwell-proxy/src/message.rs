//! The messages around a stream, or around a file: kind, length of the body, body.
//!
//! | kind | | body |
//! |---|---|---|
//! | 1 | open | [target](crate::target::Target::encode) |
//! | 2 | opened | the egress' own address towards the target, in the same form |
//! | 3 | refused | reason (1 byte), text |
//! | 4 | offer | length of the file (8 bytes; all ones: not known), name |
//! | 5 | accept | nothing |
//! | 6 | digest | bytes sent (8), their SHA-256 (32) |
//! | 7 | done | nothing |
//!
//! Kind is 1 byte, the length 2 bytes. After *opened*, and after *accept*, bytes are those of
//! the stream, until both ends have said its end.

use thiserror::Error;

use crate::hello::{TEXT_BYTES_MAX, is_printable, printable};
use crate::socks::Reply;
use crate::target::{NAME_BYTES_MAX, Target, TargetError};

/// The longest message, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 3 + 512;

/// Why the egress did not open a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// The target is not on its list.
    NotAllowed = 1,
    /// Its name does not resolve.
    NoSuchHost = 2,
    /// Nobody listens there.
    Refused = 3,
    /// No route.
    Unreachable = 4,
    /// No answer in time.
    Expired = 5,
    /// The egress has as many streams as it may.
    Full = 6,
    /// Something else.
    Other = 7,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::NotAllowed,
        Self::NoSuchHost,
        Self::Refused,
        Self::Unreachable,
        Self::Expired,
        Self::Full,
        Self::Other,
    ];

    /// The name in statuses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotAllowed => "not_allowed",
            Self::NoSuchHost => "no_such_host",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Expired => "expired",
            Self::Full => "full",
            Self::Other => "other",
        }
    }

    /// Returns the reply that a SOCKS client gets.
    pub const fn reply(self) -> Reply {
        match self {
            Self::NotAllowed => Reply::NotAllowed,
            Self::NoSuchHost => Reply::HostUnreachable,
            Self::Refused => Reply::Refused,
            Self::Unreachable => Reply::NetworkUnreachable,
            Self::Expired => Reply::Expired,
            Self::Full | Self::Other => Reply::Failure,
        }
    }
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Connect there.
    Open(Target),
    /// The stream is open; the address is the egress' own.
    Opened(Target),
    /// There will be no stream, or no file, and why.
    Refused(Reason, String),
    /// A file of this many bytes, if that is known, and its name, if it has one.
    Offer {
        /// Its length.
        bytes: Option<u64>,
        /// Its name, without directories; empty for a pipe.
        name: String,
    },
    /// The file is welcome.
    Accept,
    /// All was sent.
    Digest {
        /// The number of bytes.
        bytes: u64,
        /// SHA-256 of them.
        sha256: [u8; 32],
    },
    /// All was received, is what was sent, and is stored.
    Done,
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MessageError {
    /// No message of this kind is known.
    #[error("the other end sent a message of the unknown kind {0}")]
    Kind(u8),
    /// Longer than any message.
    #[error("the other end sent a message of {0} bytes, more than any has")]
    Length(usize),
    /// A body that is none.
    #[error("the other end sent a malformed message")]
    Body,
    /// A target that is none.
    #[error("the other end sent a malformed message: {0}")]
    Target(TargetError),
}

impl Message {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let kind = match self {
            Self::Open(target) => {
                target.encode(&mut body);
                1
            }
            Self::Opened(address) => {
                address.encode(&mut body);
                2
            }
            Self::Refused(reason, text) => {
                body.push(*reason as u8);
                body.extend(printable(text).as_bytes());
                3
            }
            Self::Offer { bytes, name } => {
                body.extend(bytes.unwrap_or(u64::MAX).to_be_bytes());
                body.extend(name.as_bytes().iter().take(NAME_BYTES_MAX));
                4
            }
            Self::Accept => 5,
            Self::Digest { bytes, sha256 } => {
                body.extend(bytes.to_be_bytes());
                body.extend(sha256);
                6
            }
            Self::Done => 7,
        };
        let mut bytes = vec![kind];
        bytes.extend((body.len() as u16).to_be_bytes());
        bytes.extend(body);
        bytes
    }

    /// Reads a message at the start of `bytes`, and how many bytes it has. `None` if more are
    /// needed, of which there are never more than [`MESSAGE_BYTES_MAX`].
    ///
    /// # Errors
    /// [`MessageError`].
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, MessageError> {
        let Some(&kind) = bytes.first() else { return Ok(None) };
        if !(1..=7).contains(&kind) {
            return Err(MessageError::Kind(kind));
        }
        let Some(&[_, high, low]) = bytes.first_chunk::<3>() else { return Ok(None) };
        let len = usize::from(u16::from_be_bytes([high, low]));
        if len > MESSAGE_BYTES_MAX - 3 {
            return Err(MessageError::Length(len));
        }
        let Some(body) = bytes.get(3..3 + len) else { return Ok(None) };
        Ok(Some((Self::read(kind, body)?, 3 + len)))
    }

    fn read(kind: u8, body: &[u8]) -> Result<Self, MessageError> {
        match (kind, body) {
            (1, body) => read_target(body).map(Self::Open),
            (2, body) => read_target(body).map(Self::Opened),
            (3, [reason, text @ ..]) => {
                let reason = Reason::ALL.into_iter().find(|known| *known as u8 == *reason);
                let text = read_text(text, TEXT_BYTES_MAX)?;
                Ok(Self::Refused(reason.unwrap_or(Reason::Other), text))
            }
            (4, body) => {
                let (bytes, name) = body.split_first_chunk::<8>().ok_or(MessageError::Body)?;
                let bytes = Some(u64::from_be_bytes(*bytes)).filter(|&bytes| bytes != u64::MAX);
                Ok(Self::Offer { bytes, name: read_name(name)? })
            }
            (5, []) => Ok(Self::Accept),
            (6, body) => {
                let (bytes, sha256) = body.split_first_chunk::<8>().ok_or(MessageError::Body)?;
                let sha256 = sha256.try_into().map_err(|_| MessageError::Body)?;
                Ok(Self::Digest { bytes: u64::from_be_bytes(*bytes), sha256 })
            }
            (7, []) => Ok(Self::Done),
            _ => Err(MessageError::Body),
        }
    }
}

fn read_target(body: &[u8]) -> Result<Target, MessageError> {
    let (target, used) = Target::decode(body).map_err(MessageError::Target)?;
    if used == body.len() { Ok(target) } else { Err(MessageError::Body) }
}

fn read_text(bytes: &[u8], bytes_max: usize) -> Result<String, MessageError> {
    let fits = bytes.len() <= bytes_max && bytes.iter().all(|&byte| is_printable(byte));
    if !fits {
        return Err(MessageError::Body);
    }
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

/// The name of a file in the receiver's directory: UTF-8 without anything that leads elsewhere or
/// confuses a terminal.
fn read_name(bytes: &[u8]) -> Result<String, MessageError> {
    let name = std::str::from_utf8(bytes).map_err(|_| MessageError::Body)?;
    let harmless = |c: char| c != '/' && !c.is_control();
    let fits = name.len() <= NAME_BYTES_MAX && name.chars().all(harmless);
    if !fits || name == "." || name == ".." {
        return Err(MessageError::Body);
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message() -> impl Strategy<Value = Message> {
        let target = ("[a-z][a-z0-9-]{0,60}", 1u16..);
        let target = target.prop_map(|(host, port)| format!("{host}:{port}").parse().unwrap());
        prop_oneof![
            target.clone().prop_map(Message::Open),
            target.prop_map(Message::Opened),
            (prop::sample::select(&Reason::ALL[..]), "[ -~]{0,200}")
                .prop_map(|(reason, text)| Message::Refused(reason, text)),
            (prop::option::of(0..u64::MAX), "[a-zäöü]{0,80}")
                .prop_map(|(bytes, name)| Message::Offer { bytes, name }),
            Just(Message::Accept),
            (any::<u64>(), any::<[u8; 32]>())
                .prop_map(|(bytes, sha256)| Message::Digest { bytes, sha256 }),
            Just(Message::Done),
        ]
    }

    #[test]
    fn names_lead_nowhere() {
        for name in [&b"../x"[..], b"..", b".", b"a/b", b"\x1b[2J", b"\0", b"\xff"] {
            let body = [&8u64.to_be_bytes()[..], name].concat();
            assert_eq!(Message::read(4, &body), Err(MessageError::Body), "{name:?}");
        }
    }

    #[test]
    fn lengths_are_not_believed() {
        assert_eq!(Message::decode(&[1, 0xff, 0xff]), Err(MessageError::Length(0xffff)));
        assert_eq!(Message::decode(&[0]), Err(MessageError::Kind(0)));
        assert_eq!(Message::decode(&[5, 0, 1, 0]), Err(MessageError::Body));
        assert_eq!(Message::decode(&[3, 0, 0]), Err(MessageError::Body));
    }

    proptest! {
        #[test]
        fn messages_come_back(message in message()) {
            let bytes = message.encode();
            prop_assert!(bytes.len() <= MESSAGE_BYTES_MAX);
            for cut in 0..bytes.len() {
                prop_assert_eq!(Message::decode(&bytes[..cut]), Ok(None));
            }
            prop_assert_eq!(Message::decode(&bytes), Ok(Some((message, bytes.len()))));
        }

        #[test]
        fn any_bytes_are_read_or_refused(
            kind in 0u8..9, bytes in prop::collection::vec(any::<u8>(), 0..600),
        ) {
            let bytes = [&[kind], &bytes[..]].concat();
            match Message::decode(&bytes) {
                Ok(Some((_, used))) => prop_assert!(used <= bytes.len()),
                Ok(None) => prop_assert!(bytes.len() < MESSAGE_BYTES_MAX),
                Err(_) => {}
            }
        }
    }
}
