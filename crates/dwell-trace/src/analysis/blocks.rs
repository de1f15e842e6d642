//! The ratio of blocks of packets, by their size and by their grouping (Yoshino et al., III.A).

use std::collections::HashMap;
use std::net::IpAddr;

use dwell_codec::{CodecError, Compressor, SRC_LEN_MAX};
use dwell_wire::columnar::{PACKETS_MAX, columnar, grown_bytes_max};
use serde::{Deserialize, Serialize};

use super::batch::{Batch, InBatch};

/// The numbers of packets in a block.
pub const MS: [usize; 8] = [1, 2, 3, 5, 10, 20, 50, 100];
const _: () = assert!(MS[MS.len() - 1] <= PACKETS_MAX);

/// All groupings, in this order everywhere.
pub const GROUPINGS: [Grouping; 5] =
    [Grouping::Flow, Grouping::Service, Grouping::HostPair, Grouping::Edge, Grouping::Link];

/// The packets that are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Grouping {
    /// Those of one flow: addresses, protocol and ports are the same.
    Flow,
    /// Those to one service: destination address, destination port and protocol are.
    Service,
    /// Those from one host to another.
    HostPair,
    /// Those to one network, in place of an egress, which a capture doesn't know: the first 16
    /// bits of the destination's IPv4 address are the same, or the first 48 of its IPv6 address.
    Edge,
    /// All, as if there were only one peer.
    Link,
}

impl Grouping {
    /// Returns its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flow => "flow",
            Self::Service => "service",
            Self::HostPair => "host-pair",
            Self::Edge => "edge",
            Self::Link => "link",
        }
    }

    fn key(self, packet: &InBatch<'_>) -> Key {
        let info = packet.info;
        let ports = (info.src_port, info.dst_port);
        match self {
            Self::Flow => (Some(info.src), Some(info.dst), Some(info.protocol), ports),
            Self::Service => (None, Some(info.dst), Some(info.protocol), (0, ports.1)),
            Self::HostPair => (Some(info.src), Some(info.dst), None, (0, 0)),
            Self::Edge => (None, Some(network(info.dst)), None, (0, 0)),
            Self::Link => (None, None, None, (0, 0)),
        }
    }
}

type Key = (Option<IpAddr>, Option<IpAddr>, Option<u8>, (u16, u16));

fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) => IpAddr::V4((address.to_bits() & 0xffff_0000).into()),
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 80 << 80).into()),
    }
}

/// The results of blocks: one row for each grouping, with one entry for each of [`MS`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocks {
    /// Packets of which blocks were made.
    pub packets: u64,
    /// Sums in the order of [`GROUPINGS`] and [`MS`].
    pub sums: Vec<Vec<BlockSums>>,
}

/// The results of blocks of one kind. A block that did not shrink counts as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockSums {
    /// Blocks, including those that had to be closed with fewer packets.
    pub blocks: u64,
    /// Bytes of their packets.
    pub bytes: u64,
    /// Bytes of the results, the packets one behind the other.
    pub plain: u64,
    /// Bytes of the results, the packets rearranged first.
    pub columnar: u64,
    /// Time for the first, in nanoseconds.
    pub plain_ns: u64,
    /// Time for the second, with the rearranging.
    pub columnar_ns: u64,
}

impl BlockSums {
    fn add(&mut self, other: &Self) {
        self.blocks = self.blocks.saturating_add(other.blocks);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.plain = self.plain.saturating_add(other.plain);
        self.columnar = self.columnar.saturating_add(other.columnar);
        self.plain_ns = self.plain_ns.saturating_add(other.plain_ns);
        self.columnar_ns = self.columnar_ns.saturating_add(other.columnar_ns);
    }
}

impl Blocks {
    /// Adds the sums of `other`.
    pub(super) fn merge(&mut self, other: &Self) {
        self.packets = self.packets.saturating_add(other.packets);
        if self.sums.len() < other.sums.len() {
            self.sums.resize(other.sums.len(), Vec::new());
        }
        for (row, others) in self.sums.iter_mut().zip(&other.sums) {
            if row.len() < others.len() {
                row.resize(others.len(), BlockSums::default());
            }
            row.iter_mut().zip(others).for_each(|(sums, other)| sums.add(other));
        }
    }

    /// Returns the results of blocks of `m` packets of a grouping, if they were measured.
    pub fn of(&self, grouping: Grouping, m: usize) -> Option<&BlockSums> {
        let row = GROUPINGS.iter().position(|&other| other == grouping)?;
        let at = MS.iter().position(|&other| other == m)?;
        self.sums.get(row)?.get(at).filter(|sums| sums.blocks > 0)
    }
}

/// Returns true if blocks are made of the batch with this number of a capture: of all at the
/// beginning, then of ever fewer, 8 of each doubling. The cost grows with the logarithm of the
/// capture, and the choice depends on nothing but the number.
pub(super) fn is_chosen(batch: u64) -> bool {
    const ALL_BELOW: u64 = 16;
    batch < ALL_BELOW || batch.is_multiple_of(1 << (batch.ilog2() - 3))
}

/// Makes blocks.
pub(super) struct Analyzer {
    compressor: Compressor,
    joined: Vec<u8>,
    columnar: Vec<u8>,
    out: Vec<u8>,
}

impl Analyzer {
    pub(super) fn new(compressor: Compressor) -> Self {
        let room = SRC_LEN_MAX + grown_bytes_max(PACKETS_MAX);
        let (columnar, out) = (vec![0; room], vec![0; 2 * SRC_LEN_MAX]);
        Self { compressor, joined: Vec::with_capacity(SRC_LEN_MAX), columnar, out }
    }

    /// All blocks of a batch.
    pub(super) fn batch(
        &mut self,
        batch: &Batch,
        blocks: &mut Blocks,
        now_ns: &mut dyn FnMut() -> u64,
    ) -> Result<(), CodecError> {
        let packets: Vec<InBatch<'_>> =
            batch.iter().filter(|packet| packet.bytes.len() <= usize::from(u16::MAX)).collect();
        blocks.packets += packets.len() as u64;
        blocks.sums.resize(GROUPINGS.len(), Vec::new());
        for (row, grouping) in blocks.sums.iter_mut().zip(GROUPINGS) {
            row.resize(MS.len(), BlockSums::default());
            for group in groups(&packets, grouping) {
                for (sums, m) in row.iter_mut().zip(MS) {
                    self.group(&packets, &group, m, sums, now_ns)?;
                }
            }
        }
        Ok(())
    }

    /// The packets of one group, in blocks of `m`, or fewer if they would be too long.
    fn group(
        &mut self,
        packets: &[InBatch<'_>],
        group: &[usize],
        m: usize,
        sums: &mut BlockSums,
        now_ns: &mut dyn FnMut() -> u64,
    ) -> Result<(), CodecError> {
        let mut block: Vec<&[u8]> = Vec::with_capacity(m);
        self.joined.clear();
        for &at in group {
            let bytes = packets[at].bytes;
            if block.len() == m || self.joined.len() + bytes.len() > SRC_LEN_MAX {
                self.block(&block, sums, now_ns)?;
                block.clear();
                self.joined.clear();
            }
            block.push(bytes);
            self.joined.extend_from_slice(bytes);
        }
        if block.is_empty() { Ok(()) } else { self.block(&block, sums, now_ns) }
    }

    fn block(
        &mut self,
        block: &[&[u8]],
        sums: &mut BlockSums,
        now_ns: &mut dyn FnMut() -> u64,
    ) -> Result<(), CodecError> {
        let bytes = self.joined.len();
        let start_ns = now_ns();
        let plain = self.compressor.compress(&self.joined, &mut self.out)?.unwrap_or(bytes);
        let middle_ns = now_ns();
        // A block that is too long when it is rearranged is left as it is.
        let columnar = match columnar(block, &mut self.columnar) {
            Some(len) if len <= SRC_LEN_MAX => {
                self.compressor.compress(&self.columnar[..len], &mut self.out)?.unwrap_or(len)
            }
            _ => plain,
        };
        let end_ns = now_ns();
        sums.add(&BlockSums {
            blocks: 1,
            bytes: bytes as u64,
            plain: plain.min(bytes) as u64,
            columnar: columnar.min(bytes) as u64,
            plain_ns: middle_ns.saturating_sub(start_ns),
            columnar_ns: end_ns.saturating_sub(middle_ns),
        });
        Ok(())
    }
}

/// The packets of each group, in their order; the groups in the order of their first packets.
fn groups(packets: &[InBatch<'_>], grouping: Grouping) -> Vec<Vec<usize>> {
    let mut places: HashMap<Key, usize> = HashMap::new();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (at, packet) in packets.iter().enumerate() {
        let place = *places.entry(grouping.key(packet)).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[place].push(at);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_and_fewer_batches_are_chosen() {
        let chosen: Vec<u64> = (0..64).filter(|&batch| is_chosen(batch)).collect();
        assert!(chosen.starts_with(&(0..16).collect::<Vec<_>>()));
        assert_eq!(chosen[16..], [16, 18, 20, 22, 24, 26, 28, 30, 32, 36, 40, 44, 48, 52, 56, 60]);
    }

    #[test]
    fn networks() {
        let of = |text: &str| network(text.parse().unwrap()).to_string();
        assert_eq!(
            (of("10.1.2.3"), of("2001:db8:1:2::3")),
            ("10.1.0.0".into(), "2001:db8:1::".into())
        );
    }
}
