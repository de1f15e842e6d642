//! Records that are forwarded without decompression (`docs/wire.md` section 8.5): a compressed
//! packet or block, and the destination of its packets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::block::Block;
use crate::error::{Full, WireError};
use crate::reader::Reader;
use crate::record::{Compressed, TYPE_BLOCK, TYPE_COMPRESSED};

/// The most bytes that a label takes.
pub const LABEL_LEN_MAX: usize = 17;
/// The most bytes that a carried record takes beyond those of its packet or block alone.
pub const CARRIED_EXTRA_MAX: usize = 2 + LABEL_LEN_MAX;

/// The encoding of an IPv6 label of zero bits; those of IPv4 begin with 0.
const SIX: u8 = 64;
const BITS_V4: u8 = 32;
const BITS_V6: u8 = 128;

/// The destination of all packets of a unit: a prefix of all their destination addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Label {
    /// The address; its bits after the prefix are zero.
    address: IpAddr,
    bits: u8,
}

impl Label {
    /// Makes the prefix of `bits` bits of an address; the whole address if it has no more.
    pub fn new(address: IpAddr, bits: u8) -> Self {
        match address {
            IpAddr::V4(four) => {
                let bits = bits.min(BITS_V4);
                let mask = u32::MAX.checked_shl(u32::from(BITS_V4 - bits)).unwrap_or(0);
                Self { address: Ipv4Addr::from_bits(four.to_bits() & mask).into(), bits }
            }
            IpAddr::V6(six) => {
                let bits = bits.min(BITS_V6);
                let mask = u128::MAX.checked_shl(u32::from(BITS_V6 - bits)).unwrap_or(0);
                Self { address: Ipv6Addr::from_bits(six.to_bits() & mask).into(), bits }
            }
        }
    }

    /// Makes a label of a single address.
    pub fn host(address: IpAddr) -> Self {
        Self::new(address, BITS_V6)
    }

    /// Returns the prefix's address; its bits after the prefix are zero.
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns the length of the prefix, in bits.
    pub const fn bits(&self) -> u8 {
        self.bits
    }

    /// Returns the longest prefix that this one and an address have in common; none if they are of
    /// different versions of IP.
    pub fn common(&self, address: IpAddr) -> Option<Self> {
        let same = match (self.address, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
            _ => return None,
        };
        Some(Self::new(self.address, self.bits.min(same as u8))) // at most 128
    }

    /// Returns the longest common prefix of all these addresses; none if there are none, or of both
    /// versions.
    pub fn of_all(addresses: impl IntoIterator<Item = IpAddr>) -> Option<Self> {
        let mut addresses = addresses.into_iter();
        let first = Self::host(addresses.next()?);
        addresses.try_fold(first, |label, address| label.common(address))
    }

    /// Returns the bytes that it takes.
    pub const fn len(&self) -> usize {
        1 + self.bits.div_ceil(8) as usize
    }

    /// Returns false: a label is never empty, as its length takes a byte.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Reads a label from the front.
    fn read(rest: &mut Reader<'_>) -> Option<Self> {
        let label = match rest.u8()? {
            bits @ 0..=BITS_V4 => {
                let octets = padded(rest.bytes(usize::from(bits.div_ceil(8)))?)?;
                (Self::new(Ipv4Addr::from(octets).into(), bits), IpAddr::from(octets))
            }
            coded => {
                let bits = coded.checked_sub(SIX).filter(|bits| *bits <= BITS_V6)?;
                let octets = padded(rest.bytes(usize::from(bits.div_ceil(8)))?)?;
                (Self::new(Ipv6Addr::from(octets).into(), bits), IpAddr::from(octets))
            }
        };
        // Each label has only one valid encoding.
        (label.0.address == label.1).then_some(label.0)
    }

    fn write(&self, out: &mut Vector) {
        match self.address {
            IpAddr::V4(four) => {
                out.push(&[self.bits]);
                out.push(&four.octets()[..self.len() - 1]);
            }
            IpAddr::V6(six) => {
                out.push(&[SIX + self.bits]);
                out.push(&six.octets()[..self.len() - 1]);
            }
        }
    }
}

/// Returns the bytes, padded with zeros.
fn padded<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    let mut all = [0; N];
    all.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(all)
}

/// The content of a carried record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit<'a> {
    /// A compressed packet.
    Compressed(Compressed<'a>),
    /// Packets that were compressed together.
    Block(Block<'a>),
}

/// A compressed packet or block on a path of several nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried<'a> {
    /// The number of links that it may still take, including this one: 1 or more.
    pub hop_limit: u8,
    /// The destination of its packets.
    pub label: Label,
    /// The content.
    pub unit: Unit<'a>,
}

/// Returns the bytes that a carried unit with this label takes beyond those of the unit alone.
pub const fn carried_extra_len(label: &Label) -> usize {
    2 + label.len() // hop limit and type
}

impl<'a> Carried<'a> {
    pub(crate) fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut rest = Reader(body);
        let hop_limit = rest.u8().filter(|limit| *limit > 0).ok_or(WireError::Carried)?;
        let label = Label::read(&mut rest).ok_or(WireError::Carried)?;
        let unit = match rest.u8() {
            Some(TYPE_COMPRESSED) => Unit::Compressed(Compressed::parse(rest.0)?),
            Some(TYPE_BLOCK) => Unit::Block(Block::parse(rest.0)?),
            _ => return Err(WireError::Carried),
        };
        Ok(Self { hop_limit, label, unit })
    }

    /// Returns the bytes before the compressed bytes.
    pub(crate) fn header(&self) -> Result<Vector, Full> {
        if self.hop_limit == 0 {
            return Err(Full);
        }
        let mut out = Vector::default();
        out.push(&[self.hop_limit]);
        self.label.write(&mut out);
        match &self.unit {
            Unit::Compressed(compressed) => {
                out.push(&[TYPE_COMPRESSED]);
                out.push(&compressed.header());
            }
            Unit::Block(block) => {
                out.push(&[TYPE_BLOCK]);
                out.push(&block.header());
            }
        }
        Ok(out)
    }

    /// Returns the compressed bytes, and the length before compression.
    pub const fn data(&self) -> (&'a [u8], u16) {
        match self.unit {
            Unit::Compressed(compressed) => (compressed.data, compressed.original_len),
            Unit::Block(block) => (block.data, block.original_len),
        }
    }

    /// Returns true if it is a block whose sender holds the datagram for retransmission.
    pub const fn is_kept(&self) -> bool {
        matches!(self.unit, Unit::Block(block) if block.is_kept())
    }
}

/// A few bytes with their number.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Vector {
    bytes: [u8; 32],
    len: usize,
}

impl Vector {
    /// Appends the bytes that fit, which is all of any header.
    fn push(&mut self, bytes: &[u8]) {
        for (to, from) in self.bytes.iter_mut().skip(self.len).zip(bytes) {
            *to = *from;
            self.len += 1;
        }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn any_label() -> impl Strategy<Value = Label> {
        (any::<IpAddr>(), any::<u8>()).prop_map(|(address, bits)| Label::new(address, bits))
    }

    fn label(text: &str) -> Label {
        let (address, bits) = text.split_once('/').unwrap();
        Label::new(address.parse().unwrap(), bits.parse().unwrap())
    }

    #[test]
    fn a_label_is_what_addresses_have_in_common() {
        let of = |addresses: &[&str]| Label::of_all(addresses.iter().map(|a| a.parse().unwrap()));
        assert_eq!(of(&["10.2.3.4"]), Some(label("10.2.3.4/32")));
        assert_eq!(of(&["10.2.3.4", "10.2.3.4"]), Some(label("10.2.3.4/32")));
        assert_eq!(of(&["10.2.3.4", "10.2.3.5", "10.2.2.9"]), Some(label("10.2.2.0/23")));
        assert_eq!(of(&["10.2.3.4", "192.0.2.1"]), Some(label("0.0.0.0/0")));
        assert_eq!(of(&["fd00::1", "fd00::8000:0:0:1"]), Some(label("fd00::/64")));
        assert_eq!(of(&["::1", "8000::1"]), Some(label("::/0")));
        assert_eq!(of(&["10.2.3.4", "fd00::1"]), None);
        assert_eq!(of(&[]), None);
        assert_eq!([label("10.2.2.0/23"), label("::/0")].map(|it| it.len()), [4, 1]);
        assert_eq!(Label::host("::1".parse().unwrap()).len(), LABEL_LEN_MAX);
    }

    #[test]
    fn what_cannot_be_carried_is_refused() {
        let compressed = [TYPE_COMPRESSED, 0x20, 0, 9, 1];
        let body = |head: &[u8]| [head, &compressed].concat();
        assert!(Carried::parse(&body(&[1, 8, 10])).is_ok());
        assert!(Carried::parse(&body(&[1, 64 + 7, 0xfc])).is_ok());
        for bad in [
            body(&[0, 8, 10]),           // it may take no link
            body(&[1, 33, 10, 0, 0, 0]), // no version of IP
            body(&[1, 63]),
            body(&[1, 193]),
            body(&[1, 7, 1]),            // a bit behind the prefix
            body(&[1, 64 + 9, 0xfd, 1]), // the same
            vec![1, 24, 10, 0],
            vec![1, 0, 1, 0x45],             // a raw packet
            vec![1, 0, 8, 1, 0, 2, 0, 9, 1], // in itself
            vec![1, 0],
        ] {
            assert_eq!(Carried::parse(&bad), Err(WireError::Carried), "{bad:?}");
        }
        assert_eq!(Carried::parse(&[1, 0, 2, 0x20, 0, 1, 1]), Err(WireError::CompressedLength));
    }

    proptest! {
        #[test]
        fn any_label_round_trips(label in any_label()) {
            let mut bytes = Vector::default();
            label.write(&mut bytes);
            prop_assert_eq!(bytes.as_slice().len(), label.len());
            let mut rest = Reader(bytes.as_slice());
            prop_assert_eq!(Label::read(&mut rest), Some(label));
            prop_assert!(rest.0.is_empty());
        }

        #[test]
        fn what_is_common_holds_both(label in any_label(), address in any::<IpAddr>()) {
            let Some(common) = label.common(address) else {
                prop_assert_ne!(label.address.is_ipv4(), address.is_ipv4());
                return Ok(());
            };
            prop_assert_eq!(Label::new(label.address, common.bits), common);
            prop_assert_eq!(Label::new(address, common.bits), common);
            // No longer prefix contains both, unless the label itself ends there.
            if common.bits < label.bits {
                let longer = common.bits + 1;
                prop_assert_ne!(Label::new(label.address, longer), Label::new(address, longer));
            }
        }
    }
}
