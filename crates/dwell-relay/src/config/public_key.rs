//! The public key that identifies a peer.

use std::fmt;
use std::str::FromStr;

use dwell_base::base64;
use dwell_base::secret::read_base64;
use thiserror::Error;

/// A public key of X25519 (RFC 7748): 32 bytes, written in base64.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey([u8; PublicKey::BYTES]);

impl PublicKey {
    /// Its length in bytes.
    pub const BYTES: usize = 32;

    /// The key with these bytes.
    pub const fn new(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub const fn bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}

/// 32 bytes in base64, with padding: 44 characters, as WireGuard writes keys.
pub fn base64_of(bytes: &[u8; 32]) -> String {
    base64::encode(bytes)
}

/// In base64.
impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&base64_of(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// That a text is no public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("is no public key: it has 44 characters of base64, as `dwell pubkey` prints them")]
pub struct ParsePublicKeyError;

/// Reads base64, with or without padding.
impl FromStr for PublicKey {
    type Err = ParsePublicKeyError;

    fn from_str(text: &str) -> Result<Self, ParsePublicKeyError> {
        let mut bytes = [0; Self::BYTES];
        read_base64(text.trim().as_bytes(), &mut bytes).ok_or(ParsePublicKeyError)?;
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_can_be_read(bytes: [u8; 32]) {
            let text = PublicKey::new(bytes).to_string();
            prop_assert_eq!(text.len(), 44);
            prop_assert_eq!(text.parse(), Ok(PublicKey::new(bytes)));
        }
    }

    #[test]
    fn other_texts_are_no_keys() {
        for bad in ["", "hub", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHv9="] {
            assert_eq!(bad.parse::<PublicKey>(), Err(ParsePublicKeyError), "{bad}");
        }
    }
}
