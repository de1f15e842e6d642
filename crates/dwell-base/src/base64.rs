//! Base64 with the alphabet of RFC 4648: keys, and what browsers send.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Returns the bytes as text, padded.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let at = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            let is_padding = digit > group.len();
            let value = (bits >> (18 - 6 * digit)) as usize & 63;
            text.push(if is_padding { '=' } else { char::from(ALPHABET[value]) });
        }
    }
    text
}

/// Reads text, with or without padding, into a buffer that the caller may wipe. Returns how many bytes it
/// was; none if it is no base64, has bits left over, or does not fit.
pub fn decode(text: &[u8], out: &mut [u8]) -> Option<usize> {
    let padding = text.iter().rev().take_while(|&&byte| byte == b'=').count();
    let digits = &text[..text.len() - padding];
    // Padding is all that a group of four lacks, or left out.
    if digits.len() % 4 == 1 || (padding > 0 && (padding > 2 || !text.len().is_multiple_of(4))) {
        return None;
    }
    let (mut bits, mut bit_count, mut len) = (0_u32, 0, 0);
    for &byte in digits {
        bits = bits << 6 | digit(byte)?;
        bit_count += 6;
        if bit_count >= 8 {
            bit_count -= 8;
            *out.get_mut(len)? = (bits >> bit_count) as u8;
            bits &= (1 << bit_count) - 1;
            len += 1;
        }
    }
    // Or two texts would be the same bytes.
    (bits == 0).then_some(len)
}

fn digit(byte: u8) -> Option<u32> {
    let digit = match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(u32::from(digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(text: &str) -> Option<Vec<u8>> {
        let mut out = [0; 8];
        decode(text.as_bytes(), &mut out).map(|len| out[..len].to_vec())
    }

    /// The vectors of RFC 4648, section 10.
    #[test]
    fn text_and_bytes_are_the_same() {
        let vectors = ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"];
        for (len, text) in vectors.into_iter().enumerate() {
            let bytes = &b"foobar"[..len];
            assert_eq!(encode(bytes), text);
            assert_eq!(decoded(text).as_deref(), Some(bytes));
            assert_eq!(decoded(text.trim_end_matches('=')).as_deref(), Some(bytes), "unpadded");
        }
        assert_eq!(encode(&[0xfb, 0xff]), "+/8=");
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in
            ["Z", "Zg=", "Zg===", "Zm9v=", "Zm8==", "=", "Zh==", "Zm9", "Zm 9", "Z_8=", "Zg==Zg=="]
        {
            assert_eq!(decoded(text), None, "{text}");
        }
        assert_eq!(decoded("MDEyMzQ1Njc4"), None, "longer than the buffer");
    }
}
