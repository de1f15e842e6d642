//! The hello, which opens and renews a session (`docs/wire.md` section 4).

use crate::error::WireError;
use crate::reader::Reader;

/// Bytes of a hello's body as this version writes it.
pub const HELLO_BODY_LEN: usize = 38;
/// Bytes of a salt.
pub const SALT_LEN: usize = 16;
/// Flag, bit 0: the sender has installed the session of these two salts; there is no answer.
pub const HELLO_FINAL: u16 = 1;
/// Flag, bit 1: the sender forwards compressed units without decompression, and asks for them as
/// [`Carried`](crate::Carried).
pub const HELLO_CARRIES: u16 = 2;

/// The message by which one node describes itself to the other when a session begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Random bytes of the sender, new for each session.
    pub salt: [u8; SALT_LEN],
    /// The latest salt of the receiver that the sender received; zeros if none was.
    pub echo: [u8; SALT_LEN],
    /// The longest datagram that the sender can receive, in bytes of UDP payload.
    pub datagram_max: u16,
    /// The codecs that the sender can decode: bit *i*, counted from the lowest, for codec
    /// id *i*.
    pub codecs: u16,
    /// [`HELLO_FINAL`] and [`HELLO_CARRIES`]; the other bits are sent as zero and ignored on
    /// receipt.
    pub flags: u16,
}

impl Hello {
    /// Returns the bytes of the body.
    pub fn encode(&self) -> [u8; HELLO_BODY_LEN] {
        let mut out = [0; HELLO_BODY_LEN];
        out[..16].copy_from_slice(&self.salt);
        out[16..32].copy_from_slice(&self.echo);
        out[32..34].copy_from_slice(&self.datagram_max.to_be_bytes());
        out[34..36].copy_from_slice(&self.codecs.to_be_bytes());
        out[36..].copy_from_slice(&self.flags.to_be_bytes());
        out
    }

    /// Reads a decrypted body (without the tag of a sealed one). Bytes after the known fields are
    /// ignored, so that later versions of dwell can add fields.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if a field is missing.
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        let mut rest = Reader(body);
        let mut read = || {
            Some(Self {
                salt: rest.array()?,
                echo: rest.array()?,
                datagram_max: rest.u16()?,
                codecs: rest.u16()?,
                flags: rest.u16()?,
            })
        };
        read().ok_or(WireError::Truncated)
    }

    /// Returns true if the sender can decode the codec of this id.
    pub const fn decodes(&self, codec: u8) -> bool {
        codec < 16 && self.codecs >> codec & 1 == 1
    }

    /// Returns true if the sender forwards compressed units without decompression.
    pub const fn carries(&self) -> bool {
        self.flags & HELLO_CARRIES != 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn round_trips_and_grows(
            (salt, echo) in any::<([u8; 16], [u8; 16])>(),
            (datagram_max, codecs, flags) in any::<(u16, u16, u16)>(),
            more in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let hello = Hello { salt, echo, datagram_max, codecs, flags };
            let body = [&hello.encode()[..], &more].concat();
            prop_assert_eq!(Hello::parse(&body), Ok(hello));
            let short = &body[..HELLO_BODY_LEN - 1];
            prop_assert_eq!(Hello::parse(short), Err(WireError::Truncated));
        }
    }

    #[test]
    fn the_bitmap_counts_from_the_lowest_bit() {
        let body = [0; HELLO_BODY_LEN];
        let hello = Hello { codecs: 0b1_0110, ..Hello::parse(&body).unwrap() };
        let decoded: Vec<u8> = (0..=255).filter(|&id| hello.decodes(id)).collect();
        assert_eq!(decoded, [1, 2, 4]);
    }
}
