//! Keys for one transfer, short enough to be pasted, or read out.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use dwell_base::Secret;
use thiserror::Error;
use zeroize::{Zeroize as _, Zeroizing};

/// 80 random bits, as 16 letters and digits that can't be mistaken for each other (Crockford's
/// base 32). Not to be kept: whoever wants to guess one has as long as the receiver waits, and what was recorded
/// stays closed even with the key, unless the sender has its first bytes go early.
pub struct OneTimeKey(pub(super) [u8; KEY_BYTES]);

/// The length of a key.
pub(super) const KEY_BYTES: usize = 10;
const KEY_DIGITS: usize = 16;
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
        Zeroizing::new(digits(&self.0))
    }
}

/// Bytes as digits, five bits each; the last one is filled up with zeros.
pub(super) fn digits(bytes: &[u8]) -> String {
    let bit = |at: usize| bytes.get(at / 8).map_or(0, |byte| byte >> (7 - at % 8) & 1);
    let digit = |index: usize| (0..5).fold(0, |digit, at| digit << 1 | bit(5 * index + at));
    (0..(8 * bytes.len()).div_ceil(5))
        .map(|index| char::from(DIGITS[usize::from(digit(index))]))
        .collect()
}

/// The reverse, also of capitals, and with O, I and L for 0 and 1. None if it is something else.
pub(super) fn read_digits(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut held, mut held_bits) = (Vec::new(), 0u16, 0);
    for byte in text.bytes() {
        let byte = match byte.to_ascii_lowercase() {
            b'o' => b'0',
            b'i' | b'l' => b'1',
            other => other,
        };
        let digit = DIGITS.iter().position(|&digit| digit == byte)?;
        held = held << 5 | digit as u16;
        held_bits += 5;
        if held_bits >= 8 {
            held_bits -= 8;
            bytes.push((held >> held_bits) as u8);
            held &= (1 << held_bits) - 1;
        }
    }
    (held == 0 && held_bits < 5).then_some(bytes)
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
        let bytes = read_digits(text.trim()).ok_or(OneTimeKeyError)?;
        bytes.try_into().map(Self).map_err(|_| OneTimeKeyError)
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
        assert_eq!(ends.reveal().as_str(), "zzzzzzzzzzzzzzzz");
        assert_eq!(ends.reveal().parse::<OneTimeKey>().unwrap().0, ends.0);
    }

    #[test]
    fn other_texts_are_no_keys() {
        for text in ["", "abc", "zzzzzzzzzzzzzzzzz", "zzzzzzzzzzzzzzz!", "zzzzzzzzzzzzzzz"] {
            assert!(text.parse::<OneTimeKey>().is_err(), "{text}");
        }
        assert_eq!(format!("{:?}", OneTimeKey([1; KEY_BYTES])), "[key]");
    }
}
