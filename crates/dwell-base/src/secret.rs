//! Keys that two ends share.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;
use zeroize::Zeroize;

use crate::base64;

/// A secret of 32 bytes. It is wiped from memory when dropped, and is never shown.
#[derive(Clone)]
pub struct Secret([u8; Secret::BYTES]);

impl Secret {
    /// Its length in bytes.
    pub const BYTES: usize = 32;

    /// Makes a secret of these bytes.
    pub const fn new(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// Returns its bytes. They should not be copied.
    pub const fn bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// Compares in a time that does not depend on where the difference is.
impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).fold(0, |differences, (a, b)| differences | (a ^ b)) == 0
    }
}

impl Eq for Secret {}

/// The reason why a text is not a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "it holds no key: there must be 32 bytes, as 64 hex digits or in base64; `dwell genpsk` makes \
     one"
)]
pub struct SecretFormatError;

/// Reads 64 hex digits or base64 of 32 bytes; space around it does not matter.
impl FromStr for Secret {
    type Err = SecretFormatError;

    fn from_str(text: &str) -> Result<Self, SecretFormatError> {
        let text = text.trim().as_bytes();
        let mut secret = Self([0; Self::BYTES]);
        let read = match text.len() {
            64 => read_hex(text, &mut secret.0),
            43 | 44 => read_base64(text, &mut secret.0),
            _ => None,
        };
        read.ok_or(SecretFormatError)?;
        Ok(secret)
    }
}

fn read_hex(text: &[u8], out: &mut [u8; Secret::BYTES]) -> Option<()> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    for (out, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
        *out = u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok()?;
    }
    Some(())
}

/// Reads 32 bytes in base64, with or without padding. None if it is anything else.
pub fn read_base64(text: &[u8], out: &mut [u8; Secret::BYTES]) -> Option<()> {
    base64::decode(text, out).filter(|len| *len == out.len()).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1efF";
    const BASE64: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHv8=";

    #[test]
    fn hex_and_base64_are_the_same_key() {
        let hex: Secret = format!(" {HEX}\n").parse().unwrap();
        assert_eq!(hex.bytes()[..3], [0, 1, 2]);
        assert_eq!(hex.bytes()[31], 0xff);
        assert_eq!(hex, BASE64.parse().unwrap());
        assert_eq!(hex, BASE64.trim_end_matches('=').parse().unwrap());
    }

    #[test]
    fn other_texts_are_no_keys() {
        let almost = HEX.replace("0a", "0g");
        let bits_left_over = BASE64.replace("v8=", "v9=");
        for bad in ["", "secret", &HEX[1..], &almost, &BASE64[1..], &bits_left_over] {
            assert!(bad.parse::<Secret>().is_err(), "{bad}");
        }
    }

    #[test]
    fn it_is_never_shown() {
        assert_eq!(format!("{:?}", Secret::new([7; 32])), "[secret]");
    }
}
