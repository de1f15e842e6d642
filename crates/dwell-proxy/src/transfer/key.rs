//! Keys for one transfer, short enough to be pasted, or read out.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use dwell_base::Secret;
use thiserror::Error;
use zeroize::{Zeroize as _, Zeroizing};

/// 128 random bits, as 26 letters and digits that can't be mistaken for each other (Crockford's
/// base 32). Not to be kept.
pub struct OneTimeKey([u8; KEY_BYTES]);

const KEY_BYTES: usize = 16;
const KEY_DIGITS: usize = 26;
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Why a text is no such key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("this is not a key of `dwell recv`: it has {KEY_DIGITS} letters and digits")]
pub struct OneTimeKeyError;

impl OneTimeKey {
    /// A new one; none if the operating system gives no random bytes.
    pub fn random() -> Option<Self> {
        let mut bytes = [0; KEY_BYTES];
        SystemRandom::new().fill(&mut bytes).ok()?;
        Some(Self(bytes))
    }

    /// Returns the secret that both ends derive their keys from.
    pub fn secret(&self) -> Secret {
        let mut bytes = [0; Secret::BYTES];
        bytes[..KEY_BYTES].copy_from_slice(&self.0);
        let secret = Secret::new(bytes);
        bytes.zeroize();
        secret
    }

    /// For the user to take to the other end. (There is no `Display`, so that it is not shown by
    /// mistake.)
    pub fn reveal(&self) -> Zeroizing<String> {
        let number = u128::from_be_bytes(self.0);
        let digit = |index: usize| {
            let shift = 5 * (KEY_DIGITS - 1 - index);
            char::from(DIGITS[(number >> shift & 31) as usize])
        };
        Zeroizing::new((0..KEY_DIGITS).map(digit).collect())
    }
}

impl Drop for OneTimeKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for OneTimeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[key]")
    }
}

impl Clone for OneTimeKey {
    fn clone(&self) -> Self {
        Self(self.0)
    }
}

/// Reads what [`OneTimeKey::reveal`] shows, also in capitals, and with O, I and L for 0 and 1.
impl FromStr for OneTimeKey {
    type Err = OneTimeKeyError;

    fn from_str(text: &str) -> Result<Self, OneTimeKeyError> {
        let text = text.trim();
        if text.len() != KEY_DIGITS {
            return Err(OneTimeKeyError);
        }
        let mut number = 0u128;
        for (index, byte) in text.bytes().enumerate() {
            let byte = match byte.to_ascii_lowercase() {
                b'o' => b'0',
                b'i' | b'l' => b'1',
                other => other,
            };
            let digit = DIGITS.iter().position(|&digit| digit == byte).ok_or(OneTimeKeyError)?;
            // 26 digits are 130 bits: the first has three of them only.
            if index == 0 && digit > 7 {
                return Err(OneTimeKeyError);
            }
            number = number << 5 | digit as u128;
        }
        Ok(Self(number.to_be_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back() {
        let key = OneTimeKey::random().unwrap();
        let text = key.reveal();
        assert_eq!(text.len(), KEY_DIGITS);
        assert_eq!(text.parse::<OneTimeKey>().unwrap().0, key.0);
        assert_eq!(text.to_uppercase().parse::<OneTimeKey>().unwrap().0, key.0);
        assert_ne!(key.0, OneTimeKey::random().unwrap().0);
        let ends = OneTimeKey([0xff; KEY_BYTES]);
        assert_eq!(ends.reveal().as_str(), "7zzzzzzzzzzzzzzzzzzzzzzzzz");
        assert_eq!(ends.reveal().parse::<OneTimeKey>().unwrap().0, ends.0);
    }

    #[test]
    fn other_texts_are_no_keys() {
        for text in ["", "abc", "8zzzzzzzzzzzzzzzzzzzzzzzzz", "7zzzzzzzzzzzzzzzzzzzzzzzz!"] {
            assert!(text.parse::<OneTimeKey>().is_err(), "{text}");
        }
        assert_eq!(format!("{:?}", OneTimeKey([1; KEY_BYTES])), "[key]");
    }
}
