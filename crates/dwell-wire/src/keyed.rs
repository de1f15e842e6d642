//! The handshake that begins a session between holders of key pairs (`docs/wire.md`, section 4.3):
//! initiation, response, and the cookie that a busy node asks for.
//!
//! Noise's messages are opaque here; this module has the fields around them.

use crate::error::WireError;
use crate::header::{Kind, SEAL_TAG_LEN};
use crate::hello::{HELLO_BODY_LEN, HELLO_BODY_MIN, SALT_LEN};
use crate::reader::Reader;
use crate::{Hello, header};

/// Bytes of a MAC: HMAC-SHA256, cut short.
pub const MAC_LEN: usize = 16;
/// Bytes of a public key.
pub const KEY_LEN: usize = 32;
/// The longest initiation or response; a longer datagram is neither.
pub const KEYED_LEN_MAX: usize = 512;
/// Bytes of an initiation before Noise's message.
pub const INITIATION_HEADER_LEN: usize = 1 + 4;
/// Bytes of a response before Noise's message.
pub const RESPONSE_HEADER_LEN: usize = 1 + 4 + 4;
/// Bytes of the random salt in a cookie datagram.
pub const COOKIE_SALT_LEN: usize = 16;
/// Bytes of a cookie datagram.
pub const COOKIE_LEN: usize = 1 + 4 + COOKIE_SALT_LEN + MAC_LEN + SEAL_TAG_LEN;
/// Bytes of the time in front of an initiation's payload.
pub const TIME_LEN: usize = 8;
/// Bytes of an offer, as this version writes it: a hello without its salts.
pub const OFFER_LEN: usize = HELLO_BODY_LEN - 2 * SALT_LEN;
/// Bytes of an offer as the first version wrote it.
pub const OFFER_LEN_MIN: usize = HELLO_BODY_MIN - 2 * SALT_LEN;

/// The shortest first message of Noise: ephemeral key, sealed static key, sealed payload.
const NOISE_INITIATION_MIN: usize =
    KEY_LEN + (KEY_LEN + SEAL_TAG_LEN) + (TIME_LEN + OFFER_LEN_MIN + SEAL_TAG_LEN);
/// The shortest second message of Noise: ephemeral key, sealed payload.
const NOISE_RESPONSE_MIN: usize = KEY_LEN + OFFER_LEN_MIN + SEAL_TAG_LEN;

/// The first datagram of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Initiation<'a> {
    /// The sender's id of the future session.
    pub sender: u32,
    /// Noise's message.
    pub noise: &'a [u8],
    bytes: &'a [u8],
}

impl<'a> Initiation<'a> {
    /// Returns the bytes before Noise's message.
    pub const fn header(sender: u32) -> [u8; INITIATION_HEADER_LEN] {
        let [a, b, c, d] = sender.to_be_bytes();
        [Kind::Initiation.first_byte(), a, b, c, d]
    }

    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let body =
            bytes.get(..bytes.len().wrapping_sub(2 * MAC_LEN)).ok_or(WireError::Truncated)?;
        let mut rest = Reader(body.get(1..).ok_or(WireError::Truncated)?);
        let sender = rest.u32().ok_or(WireError::Truncated)?;
        let noise = rest.0;
        if noise.len() < NOISE_INITIATION_MIN || bytes.len() > KEYED_LEN_MAX {
            return Err(WireError::Truncated);
        }
        Ok(Self { sender, noise, bytes })
    }

    /// Returns the bytes that the first MAC covers.
    pub fn under_mac1(&self) -> &'a [u8] {
        &self.bytes[..self.bytes.len() - 2 * MAC_LEN]
    }

    /// Returns the bytes that the second MAC covers.
    pub fn under_mac2(&self) -> &'a [u8] {
        &self.bytes[..self.bytes.len() - MAC_LEN]
    }

    /// Returns the MAC that proves that the sender knows the receiver's public key.
    pub fn mac1(&self) -> &'a [u8] {
        &self.bytes[self.bytes.len() - 2 * MAC_LEN..][..MAC_LEN]
    }

    /// Returns the MAC that proves that the sender got a cookie; zeros if it got none.
    pub fn mac2(&self) -> &'a [u8] {
        &self.bytes[self.bytes.len() - MAC_LEN..]
    }
}

/// The answer to an [`Initiation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response<'a> {
    /// The sender's id of the session.
    pub sender: u32,
    /// The id that the initiation's sender chose.
    pub receiver: u32,
    /// Noise's message.
    pub noise: &'a [u8],
    bytes: &'a [u8],
}

impl<'a> Response<'a> {
    /// Returns the bytes before Noise's message.
    pub const fn header(sender: u32, receiver: u32) -> [u8; RESPONSE_HEADER_LEN] {
        let ([a, b, c, d], [e, f, g, h]) = (sender.to_be_bytes(), receiver.to_be_bytes());
        [Kind::Response.first_byte(), a, b, c, d, e, f, g, h]
    }

    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let body = bytes.get(..bytes.len().wrapping_sub(MAC_LEN)).ok_or(WireError::Truncated)?;
        let mut rest = Reader(body.get(1..).ok_or(WireError::Truncated)?);
        let sender = rest.u32().ok_or(WireError::Truncated)?;
        let receiver = rest.u32().ok_or(WireError::Truncated)?;
        let noise = rest.0;
        if noise.len() < NOISE_RESPONSE_MIN || bytes.len() > KEYED_LEN_MAX {
            return Err(WireError::Truncated);
        }
        Ok(Self { sender, receiver, noise, bytes })
    }

    /// Returns the bytes that the MAC covers.
    pub fn under_mac1(&self) -> &'a [u8] {
        &self.bytes[..self.bytes.len() - MAC_LEN]
    }

    /// Returns the MAC that proves that the sender knows the receiver's public key.
    pub fn mac1(&self) -> &'a [u8] {
        &self.bytes[self.bytes.len() - MAC_LEN..]
    }
}

/// The answer of a busy node to an [`Initiation`]: it is to be sent again with this cookie, which
/// proves the sender's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie {
    /// The id that the initiation's sender chose.
    pub receiver: u32,
    /// Random; the key of `sealed` depends on it.
    pub salt: [u8; COOKIE_SALT_LEN],
    /// The cookie, encrypted and authenticated.
    pub sealed: [u8; MAC_LEN + SEAL_TAG_LEN],
}

impl Cookie {
    /// Returns the whole datagram.
    pub fn encode(&self) -> [u8; COOKIE_LEN] {
        let mut out = [0; COOKIE_LEN];
        out[0] = Kind::Cookie.first_byte();
        out[1..5].copy_from_slice(&self.receiver.to_be_bytes());
        out[5..21].copy_from_slice(&self.salt);
        out[21..].copy_from_slice(&self.sealed);
        out
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let mut rest = Reader(bytes.get(1..).ok_or(WireError::Truncated)?);
        let mut read =
            || Some(Self { receiver: rest.u32()?, salt: rest.array()?, sealed: rest.array()? });
        let cookie = read().ok_or(WireError::Truncated)?;
        if rest.0.is_empty() { Ok(cookie) } else { Err(WireError::Truncated) }
    }
}

/// Splits a payload into its first field, the time at which the initiation was made, in nanoseconds
/// of UTC since 1970 (leap seconds not counted) and never twice the same, and the rest.
///
/// # Errors
/// [`WireError::Truncated`] if it is not all there.
pub fn split_time(payload: &[u8]) -> Result<(u64, &[u8]), WireError> {
    let mut rest = Reader(payload);
    let time = rest.array().map(u64::from_be_bytes).ok_or(WireError::Truncated)?;
    Ok((time, rest.0))
}

/// Reads the offer in the payload of an initiation (behind the time) or a response: a hello's body
/// after its salts.
///
/// # Errors
/// [`WireError::Truncated`] if a field is missing.
pub fn parse_offer(payload: &[u8]) -> Result<Hello, WireError> {
    let mut body = [0; header::DATA_HEADER_LEN + KEYED_LEN_MAX];
    let len = 2 * SALT_LEN + payload.len();
    body.get_mut(2 * SALT_LEN..len).ok_or(WireError::Truncated)?.copy_from_slice(payload);
    Hello::parse(&body[..len])
}

/// Returns the offer of a hello: its body without the salts.
pub fn encode_offer(hello: &Hello) -> [u8; OFFER_LEN] {
    let mut out = [0; OFFER_LEN];
    out.copy_from_slice(&hello.encode()[2 * SALT_LEN..]);
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Datagram;
    use crate::hello::tests::any_contexts;

    proptest! {
        #[test]
        fn initiations_and_responses_round_trip(
            (sender, receiver) in any::<(u32, u32)>(),
            noise in prop::collection::vec(any::<u8>(), 0..600),
            (mac1, mac2) in any::<([u8; MAC_LEN], [u8; MAC_LEN])>(),
        ) {
            let bytes = [&Initiation::header(sender)[..], &noise, &mac1, &mac2].concat();
            match Datagram::parse(&bytes) {
                Ok(Datagram::Initiation(it)) => {
                    prop_assert_eq!((it.sender, it.noise), (sender, &noise[..]));
                    prop_assert_eq!((it.mac1(), it.mac2()), (&mac1[..], &mac2[..]));
                    prop_assert_eq!([it.under_mac1(), it.mac1()].concat(), it.under_mac2());
                    prop_assert_eq!([it.under_mac2(), it.mac2()].concat(), bytes);
                }
                other => {
                    prop_assert_eq!(other, Err(WireError::Truncated));
                    prop_assert!(noise.len() < NOISE_INITIATION_MIN || bytes.len() > KEYED_LEN_MAX);
                }
            }
            let bytes = [&Response::header(sender, receiver)[..], &noise, &mac1].concat();
            match Datagram::parse(&bytes) {
                Ok(Datagram::Response(it)) => {
                    prop_assert_eq!((it.sender, it.receiver), (sender, receiver));
                    prop_assert_eq!((it.noise, it.mac1()), (&noise[..], &mac1[..]));
                    prop_assert_eq!([it.under_mac1(), it.mac1()].concat(), bytes);
                }
                other => {
                    prop_assert_eq!(other, Err(WireError::Truncated));
                    prop_assert!(noise.len() < NOISE_RESPONSE_MIN || bytes.len() > KEYED_LEN_MAX);
                }
            }
        }

        #[test]
        fn cookies_round_trip(receiver: u32, salt: [u8; 16], sealed: [u8; 32]) {
            let cookie = Cookie { receiver, salt, sealed };
            let bytes = cookie.encode();
            prop_assert_eq!(Datagram::parse(&bytes), Ok(Datagram::Cookie(cookie)));
            prop_assert_eq!(Datagram::parse(&bytes[..52]), Err(WireError::Truncated));
            let longer = [&bytes[..], &[0]].concat();
            prop_assert_eq!(Datagram::parse(&longer), Err(WireError::Truncated));
        }

        #[test]
        fn offers_are_hellos_without_salts(
            (datagram_max, codecs, flags) in any::<(u16, u16, u16)>(),
            contexts in any_contexts(),
            more in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let hello =
                Hello { salt: [0; 16], echo: [0; 16], datagram_max, codecs, flags, contexts };
            let payload = [&encode_offer(&hello)[..], &more].concat();
            prop_assert_eq!(parse_offer(&payload), Ok(hello));
            prop_assert_eq!(parse_offer(&payload[..OFFER_LEN_MIN - 1]), Err(WireError::Truncated));
        }
    }

    #[test]
    fn no_payload_is_too_long_to_be_refused() {
        assert_eq!(parse_offer(&[0; 65_535]), Err(WireError::Truncated));
        assert_eq!(split_time(&[0; 7]), Err(WireError::Truncated));
        assert_eq!(split_time(&[0, 0, 0, 0, 0, 0, 1, 2, 3]), Ok((258, &[3][..])));
    }
}
