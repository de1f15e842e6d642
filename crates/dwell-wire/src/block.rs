//! Blocks, fragments and the mark of retransmitted datagrams (`docs/wire.md` section 8).

use crate::error::{PacketError, WireError};
use crate::header::COMPRESSED_HEADER_LEN;
use crate::ip::Layout;
use crate::reader::Reader;

/// Bytes before the compressed data in a block's body: the same as in a compressed packet's.
pub const BLOCK_HEADER_LEN: usize = COMPRESSED_HEADER_LEN;
/// Bytes before the data in a fragment's body.
pub const FRAGMENT_HEADER_LEN: usize = 6;
/// The most fragments that a record is cut into.
pub const FRAGMENTS_MAX: usize = 64;

const FLAG_COLUMNAR: u8 = 1;
const FLAG_KEPT: u8 = 2;

/// Several packets, compressed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block<'a> {
    /// The codec's id, 0 to 15; not checked here against those that exist.
    pub codec: u8,
    /// Four bits, see [`is_columnar`](Self::is_columnar) and [`is_kept`](Self::is_kept).
    pub flags: u8,
    /// Bytes before compression. Always more than `data` has; the output of a decoder must have
    /// exactly this length, and never exceed it.
    pub original_len: u16,
    /// The compressed bytes, at least one.
    pub data: &'a [u8],
}

impl<'a> Block<'a> {
    /// Returns the flags of a block: `columnar` if the headers of its packets are in columns,
    /// `kept` if its sender holds the datagram for retransmission.
    pub const fn flags(columnar: bool, kept: bool) -> u8 {
        (if columnar { FLAG_COLUMNAR } else { 0 }) | (if kept { FLAG_KEPT } else { 0 })
    }

    /// Returns true if not the packets themselves were compressed, but their columnar form.
    pub const fn is_columnar(&self) -> bool {
        self.flags & FLAG_COLUMNAR != 0
    }

    /// Returns true if the sender can retransmit the datagram.
    pub const fn is_kept(&self) -> bool {
        self.flags & FLAG_KEPT != 0
    }

    /// Returns true if the block needs a feature that this version does not know.
    pub const fn is_of_later_version(&self) -> bool {
        self.flags & !(FLAG_COLUMNAR | FLAG_KEPT) != 0
    }

    pub(crate) fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut rest = Reader(body);
        let coding = rest.u8().ok_or(WireError::Truncated)?;
        let original_len = rest.u16().ok_or(WireError::Truncated)?;
        let data = rest.0;
        if data.is_empty() || data.len() >= usize::from(original_len) {
            return Err(WireError::CompressedLength);
        }
        Ok(Self { codec: coding >> 4, flags: coding & 0x0f, original_len, data })
    }

    pub(crate) fn header(&self) -> [u8; BLOCK_HEADER_LEN] {
        let [high, low] = self.original_len.to_be_bytes();
        [self.codec << 4 | self.flags & 0x0f, high, low]
    }
}

/// A part of a record that is longer than a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// The id of the record that was cut, unique for its sender in this session.
    pub id: u32,
    /// The index of the part, from 0 to `last`.
    pub index: u8,
    /// The last part's index: 1 to [`FRAGMENTS_MAX`] − 1.
    pub last: u8,
    /// Its bytes, at least one.
    pub data: &'a [u8],
}

impl<'a> Fragment<'a> {
    pub(crate) fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut rest = Reader(body);
        let id = rest.u32().ok_or(WireError::Truncated)?;
        let index = rest.u8().ok_or(WireError::Truncated)?;
        let last = rest.u8().ok_or(WireError::Truncated)?;
        let fragment = Self { id, index, last, data: rest.0 };
        if fragment.exists() { Ok(fragment) } else { Err(WireError::Fragment) }
    }

    pub(crate) fn exists(&self) -> bool {
        let last = usize::from(self.last);
        !self.data.is_empty() && self.index <= self.last && (1..FRAGMENTS_MAX).contains(&last)
    }

    pub(crate) fn header(&self) -> [u8; FRAGMENT_HEADER_LEN] {
        let [a, b, c, d] = self.id.to_be_bytes();
        [a, b, c, d, self.index, self.last]
    }
}

/// The packets of a block without columnar headers, one after another: each as long as its own IP
/// header declares. After an error there are no more.
#[derive(Clone, Debug)]
pub struct BlockPackets<'a> {
    rest: &'a [u8],
}

impl<'a> BlockPackets<'a> {
    /// Returns the packets in the restored bytes of a block.
    pub const fn new(original: &'a [u8]) -> Self {
        Self { rest: original }
    }
}

impl<'a> Iterator for BlockPackets<'a> {
    type Item = Result<&'a [u8], PacketError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let packet = Layout::of(self.rest)
            .and_then(|layout| {
                self.rest.split_at_checked(layout.total_len).ok_or(PacketError::Truncated)
            })
            .map(|(packet, rest)| {
                self.rest = rest;
                packet
            });
        if packet.is_err() {
            self.rest = &[];
        }
        Some(packet)
    }
}

impl std::iter::FusedIterator for BlockPackets<'_> {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ip::tests::{v4, v6};

    #[test]
    fn packets_are_found_again_by_their_own_lengths() {
        let packets = [
            v4(6, &[], 0x4000, &[1; 700]),
            v6(&[], 17, &[2; 3]),
            v4(1, &[1; 12], 0x2000, &[]),
            v6(&[], 59, &[]),
        ];
        let original = packets.concat();
        let found: Result<Vec<_>, _> = BlockPackets::new(&original).collect();
        let all: Vec<&[u8]> = packets.iter().map(Vec::as_slice).collect();
        assert_eq!(found.as_deref(), Ok(&all[..]));
        // If the end is cut off, all packets but the last are found.
        let found: Vec<_> = BlockPackets::new(&original[..original.len() - 1]).collect();
        assert_eq!(found.len(), 4);
        assert_eq!(found[3], Err(PacketError::Truncated));
    }

    #[test]
    fn fragments_that_cannot_exist_are_refused() {
        let body = |index, last, data: &[u8]| [&[0, 0, 0, 1, index, last][..], data].concat();
        assert!(Fragment::parse(&body(63, 63, &[1])).is_ok());
        for bad in [body(2, 1, &[1]), body(0, 0, &[1]), body(0, 64, &[1]), body(0, 1, &[])] {
            assert_eq!(Fragment::parse(&bad), Err(WireError::Fragment));
        }
        assert_eq!(Fragment::parse(&[0, 0, 0, 1, 0]), Err(WireError::Truncated));
    }

    #[test]
    fn unknown_flags_are_reported() {
        for flags in 0..16 {
            let body = [0x20 | flags, 0, 9, 1];
            let block = Block::parse(&body).unwrap();
            assert_eq!(block.is_of_later_version(), flags > 3);
            assert_eq!(Block::flags(block.is_columnar(), block.is_kept()), flags & 3);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_split_into_what_lies_within_them(
            bytes in prop::collection::vec(prop_oneof![Just(0x45u8), 0u8..4, any::<u8>()], 0..300),
        ) {
            let mut used = 0;
            for packet in BlockPackets::new(&bytes).map_while(Result::ok) {
                prop_assert_eq!(packet, &bytes[used..used + packet.len()]);
                prop_assert!(!packet.is_empty());
                used += packet.len();
            }
        }
    }
}
