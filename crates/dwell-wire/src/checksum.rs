//! The Internet checksum (RFC 1071) and its incremental update (RFC 1624).

use std::net::IpAddr;

/// Returns the ones' complement sum of the 16-bit big-endian words of `data`; an odd last byte
/// counts as the high half of a word.
#[inline]
pub fn sum(data: &[u8]) -> u16 {
    // The sum does not depend on the byte order as long as the result is swapped back
    // (RFC 1071 2 B), and wide words can be folded at the end (2 C). Two 32-bit lanes of each
    // u64 leave their carries in the upper halves, which 16 GiB of input could not fill.
    let (words, tail) = data.as_chunks::<8>();
    let wide = words.iter().fold(0u64, |total, word| {
        let word = u64::from_ne_bytes(*word);
        total + (word & 0xffff_ffff) + (word >> 32)
    });
    let mut last = [0; 8];
    last[..tail.len()].copy_from_slice(tail);
    let last = u64::from_ne_bytes(last);
    u16::from_be(fold(wide + (last & 0xffff_ffff) + (last >> 32)))
}

/// Returns the checksum of `data`: the complement of its [`sum`]. Zero over data that contain their
/// own correct checksum.
#[inline]
pub fn checksum(data: &[u8]) -> u16 {
    !sum(data)
}

/// Returns the checksum of a TCP, UDP or ICMPv6 `segment` with its pseudo header (RFC 9293 3.1, RFC
/// 8200 8.1). Zero if the segment contains its own correct checksum. The result is meaningless if
/// the two addresses are of different families, which have no pseudo header.
pub fn transport_checksum(
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    segment: &[u8],
) -> u16 {
    let addresses = u64::from(address_sum(source)) + u64::from(address_sum(destination));
    let rest = segment.len() as u64 + u64::from(protocol) + u64::from(sum(segment));
    !fold(addresses + rest)
}

/// Returns the correct checksum for the word at `at` (an even offset) of `data`, whatever its
/// present value.
pub(crate) fn checksum_at(data: &[u8], at: usize) -> u16 {
    !fold(sum_without(data, at))
}

/// Returns the same with the pseudo header of a transport protocol ([`transport_checksum`]).
pub(crate) fn transport_checksum_at(
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    segment: &[u8],
    at: usize,
) -> u16 {
    let addresses = u64::from(address_sum(source)) + u64::from(address_sum(destination));
    !fold(addresses + segment.len() as u64 + u64::from(protocol) + sum_without(segment, at))
}

fn sum_without(data: &[u8], at: usize) -> u64 {
    let before = data.get(..at).unwrap_or_default();
    let behind = data.get(at + 2..).unwrap_or_default();
    u64::from(sum(before)) + u64::from(sum(behind))
}

/// Returns the checksum of data in which the word `old` became `new` (RFC 1624, equation 3).
#[inline]
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    !fold(u64::from(!checksum) + u64::from(!old) + u64::from(new))
}

fn address_sum(address: IpAddr) -> u16 {
    match address {
        IpAddr::V4(address) => sum(&address.octets()),
        IpAddr::V6(address) => sum(&address.octets()),
    }
}

/// Adds the carries back in until 16 bits are left.
#[inline]
fn fold(mut wide: u64) -> u16 {
    while wide > 0xffff {
        wide = (wide >> 16) + (wide & 0xffff);
    }
    wide as u16
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_example_of_rfc_1071() {
        let data = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(sum(&data), 0xddf2);
        assert_eq!(checksum(&data), !0xddf2);
    }

    #[test]
    fn the_example_of_rfc_1624() {
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    proptest! {
        #[test]
        fn as_the_naive_sum(data in prop::collection::vec(any::<u8>(), 0..200)) {
            let naive = data.chunks(2).fold(0u32, |total, pair| {
                let word = u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]);
                let total = total + u32::from(word);
                (total & 0xffff) + (total >> 16)
            });
            prop_assert_eq!(u32::from(sum(&data)), naive);
        }
    }
}
