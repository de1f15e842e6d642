//! Datagrams as a stream: each is its length (2 bytes), an address in the form of RFC 1928, and its payload. Towards
//! the egress the address is the target's, and on the way back the sender's.
//!
//! What comes in a datagram of UDP is lost if there is no room for it, as UDP has it; what is on a stream is not. Bytes
//! in, datagrams out; no sockets.

use thiserror::Error;

use crate::target::{Target, TargetError};

/// The longest datagram with its address, in bytes: what IPv4 carries, and no more than the length can say.
pub const DATAGRAM_BYTES_MAX: usize = 65_535;

/// Why a stream is none of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the other end sent a malformed datagram: {0}")]
pub struct DatagramError(TargetError);

/// Adds a datagram to what is sent. Returns false if it is too long.
pub fn encode(address: &Target, payload: &[u8], out: &mut Vec<u8>) -> bool {
    let start = out.len();
    out.extend([0, 0]);
    address.encode(out);
    let len = out.len() - start - 2 + payload.len();
    let fits = len <= DATAGRAM_BYTES_MAX;
    if fits {
        out[start..start + 2].copy_from_slice(&(len as u16).to_be_bytes());
        out.extend_from_slice(payload);
    } else {
        out.truncate(start);
    }
    fits
}

/// What has come of a stream of datagrams.
#[derive(Debug, Default)]
pub struct Datagrams {
    bytes: Vec<u8>,
}

impl Datagrams {
    /// Returns how many of these bytes belong to the datagram that is coming, after having taken them.
    pub fn feed(&mut self, bytes: &[u8]) -> usize {
        let wanted = match self.bytes.first_chunk::<2>() {
            Some(&len) => 2 + usize::from(u16::from_be_bytes(len)),
            None => 2,
        };
        let len = wanted.saturating_sub(self.bytes.len()).min(bytes.len());
        self.bytes.extend_from_slice(&bytes[..len]);
        len
    }

    /// Returns the datagram that is complete, if one is: its address and its payload. It stays until
    /// [`Datagrams::advance`].
    ///
    /// # Errors
    /// Its address is none.
    pub fn complete(&self) -> Result<Option<(Target, &[u8])>, DatagramError> {
        let Some(&len) = self.bytes.first_chunk::<2>() else { return Ok(None) };
        let body = &self.bytes[2..];
        if body.len() < usize::from(u16::from_be_bytes(len)) {
            return Ok(None);
        }
        let (address, used) = Target::decode(body).map_err(DatagramError)?;
        Ok(Some((address, &body[used..])))
    }

    /// Returns the bytes that it has room for.
    pub(crate) const fn held(&self) -> usize {
        self.bytes.capacity()
    }

    /// Goes on to the next one.
    pub fn advance(&mut self) {
        self.bytes = Vec::new();
    }
}

/// Returns the address and the payload of a datagram of a SOCKS client (RFC 1928, section 7). None if it is a fragment,
/// which nobody has to understand, or none at all.
pub fn from_client(bytes: &[u8]) -> Option<(Target, &[u8])> {
    match bytes {
        [0, 0, 0, body @ ..] => {
            let (target, used) = Target::decode(body).ok()?;
            Some((target, &body[used..]))
        }
        _ => None,
    }
}

/// Returns a datagram for a SOCKS client.
pub fn for_client(from: &Target, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0];
    from.encode(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However the bytes are cut.
        #[test]
        fn datagrams_come_back(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..8),
            piece in 1usize..500,
        ) {
            let address: Target = "dns.example:53".parse().unwrap();
            let mut bytes = Vec::new();
            for payload in &payloads {
                prop_assert!(encode(&address, payload, &mut bytes));
            }
            let (mut datagrams, mut got) = (Datagrams::default(), Vec::new());
            for mut piece in bytes.chunks(piece) {
                while !piece.is_empty() {
                    let taken = datagrams.feed(piece);
                    prop_assert!(taken > 0);
                    piece = &piece[taken..];
                    if let Some((from, payload)) = datagrams.complete().unwrap() {
                        prop_assert_eq!(&from, &address);
                        got.push(payload.to_vec());
                        datagrams.advance();
                    }
                }
            }
            prop_assert_eq!(got, payloads);
        }

        #[test]
        fn any_bytes_are_taken_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let mut datagrams = Datagrams::default();
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let taken = datagrams.feed(rest);
                prop_assert!(taken > 0);
                rest = &rest[taken..];
                match datagrams.complete() {
                    Ok(Some(_)) => datagrams.advance(),
                    Ok(None) => {}
                    Err(_) => break,
                }
            }
            let _ = from_client(&bytes);
        }
    }

    #[test]
    fn clients_have_their_own_form() {
        let (target, payload) = from_client(&[0, 0, 0, 1, 10, 0, 0, 7, 0, 53, b'q']).unwrap();
        assert_eq!((target.to_string().as_str(), payload), ("10.0.0.7:53", &b"q"[..]));
        assert_eq!(for_client(&target, b"q"), [0, 0, 0, 1, 10, 0, 0, 7, 0, 53, b'q']);
        assert_eq!(from_client(&[0, 0, 1, 1, 10, 0, 0, 7, 0, 53]), None, "a fragment");
        assert_eq!(from_client(&[0, 0]), None);
    }

    #[test]
    fn what_is_too_long_is_not_sent() {
        let mut out = vec![7];
        let address: Target = "10.0.0.1:1".parse().unwrap();
        assert!(!encode(&address, &vec![0; DATAGRAM_BYTES_MAX], &mut out));
        assert_eq!(out, [7]);
        assert!(encode(&address, &vec![0; DATAGRAM_BYTES_MAX - 7], &mut out));
    }
}
