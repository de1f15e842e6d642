//! Headers of datagrams (`docs/wire.md` sections 2 to 4).

use crate::error::WireError;
use crate::keyed::{Cookie, Initiation, Response};
use crate::reader::Reader;

/// The version of the format, in the high nibble of every datagram's first byte.
pub const VERSION: u8 = 1;
/// Bytes before the body of a data datagram. A sealed one authenticates them too.
pub const DATA_HEADER_LEN: usize = 6;
/// Bytes of the authentication tag at the end of a sealed body.
pub const SEAL_TAG_LEN: usize = 16;
/// Bytes of the random nonce in a sealed hello.
pub const HELLO_NONCE_LEN: usize = 12;
/// Bytes before the body of a record.
pub const RECORD_HEADER_LEN: usize = 2;
/// Bytes before the compressed data in a compressed record's body.
pub const COMPRESSED_HEADER_LEN: usize = 3;

/// The kind of a datagram: the low nibble of its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Records as they are, for use inside a tunnel that encrypts (kind 0).
    DataPlain,
    /// Encrypted and authenticated records (kind 1).
    DataSealed,
    /// Opens or renews a session, encrypted and authenticated (kind 2).
    HelloSealed,
    /// Opens or renews an unencrypted session (kind 3).
    HelloPlain,
    /// Begins the handshake between holders of key pairs (kind 4).
    Initiation,
    /// Answers an initiation (kind 5).
    Response,
    /// Asks for an initiation with a cookie (kind 6).
    Cookie,
}

impl Kind {
    /// Returns the first byte of a datagram of this kind.
    pub const fn first_byte(self) -> u8 {
        let kind = match self {
            Self::DataPlain => 0,
            Self::DataSealed => 1,
            Self::HelloSealed => 2,
            Self::HelloPlain => 3,
            Self::Initiation => 4,
            Self::Response => 5,
            Self::Cookie => 6,
        };
        VERSION << 4 | kind
    }
}

/// Returns the kind of a datagram, from its first byte alone.
///
/// # Errors
/// [`WireError::Truncated`] if there is no byte, [`WireError::Version`] or
/// [`WireError::Kind`] if the byte is not one of this version.
#[inline]
pub fn peek_kind(datagram: &[u8]) -> Result<Kind, WireError> {
    let first = *datagram.first().ok_or(WireError::Truncated)?;
    if first >> 4 != VERSION {
        return Err(WireError::Version(first >> 4));
    }
    match first & 0x0f {
        0 => Ok(Kind::DataPlain),
        1 => Ok(Kind::DataSealed),
        2 => Ok(Kind::HelloSealed),
        3 => Ok(Kind::HelloPlain),
        4 => Ok(Kind::Initiation),
        5 => Ok(Kind::Response),
        6 => Ok(Kind::Cookie),
        other => Err(WireError::Kind(other)),
    }
}

/// The header of a data datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DataHeader {
    /// True if the body is encrypted and authenticated.
    pub sealed: bool,
    /// The sender's id of the session, by which datagrams that are under way during a renewal find
    /// their keys.
    pub session: u8,
    /// The low half of the datagram's sequence number; see
    /// [`reconstruct_sequence`](crate::reconstruct_sequence).
    pub sequence_low: u32,
}

impl DataHeader {
    /// Returns the bytes on the wire.
    #[inline]
    pub const fn encode(&self) -> [u8; DATA_HEADER_LEN] {
        let kind = if self.sealed { Kind::DataSealed } else { Kind::DataPlain };
        let [a, b, c, d] = self.sequence_low.to_be_bytes();
        [kind.first_byte(), self.session, a, b, c, d]
    }
}

/// Returns the nonce that seals the data datagram of this 64-bit sequence number: four zero bytes,
/// then the number, big endian. (The construction of RFC 8439 2.8 with a zero constant.)
pub const fn seal_nonce(sequence: u64) -> [u8; 12] {
    let [a, b, c, d, e, f, g, h] = sequence.to_be_bytes();
    [0, 0, 0, 0, a, b, c, d, e, f, g, h]
}

/// A parsed datagram. A sealed body is still encrypted and ends in its
/// [`SEAL_TAG_LEN`] bytes of tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datagram<'a> {
    /// Records; read them with [`Records`](crate::Records) once the body is decrypted.
    Data {
        /// The header's fields.
        header: DataHeader,
        /// The bytes after the header. May be empty if plain.
        body: &'a [u8],
    },
    /// A hello; read it with [`Hello::parse`](crate::Hello::parse) once the body is decrypted.
    Hello {
        /// True if the body is encrypted and authenticated.
        sealed: bool,
        /// The nonce of a sealed hello, zeros in a plain one.
        nonce: [u8; HELLO_NONCE_LEN],
        /// The bytes after the nonce.
        body: &'a [u8],
    },
    /// Begins a handshake between holders of key pairs.
    Initiation(Initiation<'a>),
    /// Answers an initiation.
    Response(Response<'a>),
    /// Asks for another initiation, with a cookie.
    Cookie(Cookie),
}

impl<'a> Datagram<'a> {
    /// Parses a datagram, without decrypting its body.
    ///
    /// # Errors
    /// Those of [`peek_kind`], and [`WireError::Truncated`] if a header or a sealed body's tag
    /// is not all there.
    #[inline]
    pub fn parse(datagram: &'a [u8]) -> Result<Self, WireError> {
        let kind = peek_kind(datagram)?;
        let mut rest = Reader(&datagram[1..]);
        let parsed = match kind {
            Kind::DataPlain | Kind::DataSealed => {
                let session = rest.u8().ok_or(WireError::Truncated)?;
                let sequence_low = rest.u32().ok_or(WireError::Truncated)?;
                let sealed = kind == Kind::DataSealed;
                let header = DataHeader { sealed, session, sequence_low };
                Self::Data { header, body: rest.0 }
            }
            Kind::HelloSealed => {
                let nonce = rest.array().ok_or(WireError::Truncated)?;
                Self::Hello { sealed: true, nonce, body: rest.0 }
            }
            Kind::HelloPlain => {
                Self::Hello { sealed: false, nonce: [0; HELLO_NONCE_LEN], body: rest.0 }
            }
            Kind::Initiation => return Initiation::parse(datagram).map(Self::Initiation),
            Kind::Response => return Response::parse(datagram).map(Self::Response),
            Kind::Cookie => return Cookie::parse(datagram).map(Self::Cookie),
        };
        let sealed = matches!(kind, Kind::DataSealed | Kind::HelloSealed);
        if sealed && rest.0.len() < SEAL_TAG_LEN { Err(WireError::Truncated) } else { Ok(parsed) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_first_byte_has_one_meaning() {
        for first in 0..=u8::MAX {
            let expected = match (first >> 4, first & 15) {
                (1, 0) => Ok(Kind::DataPlain),
                (1, 1) => Ok(Kind::DataSealed),
                (1, 2) => Ok(Kind::HelloSealed),
                (1, 3) => Ok(Kind::HelloPlain),
                (1, 4) => Ok(Kind::Initiation),
                (1, 5) => Ok(Kind::Response),
                (1, 6) => Ok(Kind::Cookie),
                (1, kind) => Err(WireError::Kind(kind)),
                (version, _) => Err(WireError::Version(version)),
            };
            assert_eq!(peek_kind(&[first]), expected);
            if let Ok(kind) = expected {
                assert_eq!(kind.first_byte(), first);
            }
        }
        assert_eq!(peek_kind(&[]), Err(WireError::Truncated));
    }

    #[test]
    fn too_short_is_truncated() {
        let shortest = [
            (0x10, 6),
            (0x11, 6 + 16),
            (0x12, 1 + 12 + 16),
            (0x13, 1),
            (0x14, 147),
            (0x15, 79),
            (0x16, 53),
        ];
        for (first, least) in shortest {
            let mut datagram = vec![0; least];
            datagram[0] = first;
            assert!(Datagram::parse(&datagram).is_ok(), "{first:x}");
            assert_eq!(Datagram::parse(&datagram[..least - 1]), Err(WireError::Truncated));
        }
    }

    proptest! {
        #[test]
        fn data_headers_round_trip(
            sealed: bool,
            session: u8,
            sequence_low: u32,
            body in prop::collection::vec(any::<u8>(), SEAL_TAG_LEN..100),
        ) {
            let header = DataHeader { sealed, session, sequence_low };
            let datagram = [&header.encode()[..], &body].concat();
            let parsed = Datagram::parse(&datagram);
            prop_assert_eq!(parsed, Ok(Datagram::Data { header, body: &body }));
        }
    }
}
