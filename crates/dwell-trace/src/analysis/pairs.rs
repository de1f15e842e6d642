//! The traffic between pairs of ports: the sums that all tables by class are made of.

use dwell_policy::ClassKey;
use dwell_wire::PacketInfo;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::hash::NumberMap;

/// The most pairs of ports that are distinguished; each takes some 200 bytes.
pub const PAIRS_MAX: usize = 1 << 16;

/// A protocol and the two ports of a packet, from which come its two classes (Shimamura et al.,
/// 4.1: "each packet usually belongs to two different packet classes according to its source
/// port number and destination port number").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pair(u64);

/// A port that is not distinguished any more, since there are too many pairs.
const ANY: u64 = 1 << 16;

impl Pair {
    /// Returns the pair of a packet.
    pub fn of(info: &PacketInfo) -> Self {
        Self::new(info.protocol, Some(info.src_port), Some(info.dst_port))
    }

    fn new(protocol: u8, source: Option<u16>, destination: Option<u16>) -> Self {
        let port = |port: Option<u16>| port.map_or(ANY, u64::from);
        Self(u64::from(protocol) << 34 | port(source) << 17 | port(destination))
    }

    /// The IP protocol's number.
    pub fn protocol(self) -> u8 {
        (self.0 >> 34) as u8
    }

    /// The class by the source port, if it is known.
    pub fn source(self) -> Option<ClassKey> {
        self.class(self.0 >> 17 & 0x1ffff)
    }

    /// The class by the destination port, if it is known.
    pub fn destination(self) -> Option<ClassKey> {
        self.class(self.0 & 0x1ffff)
    }

    /// Its classes: two, or one if both are the same or only one is known.
    pub fn classes(self) -> impl Iterator<Item = ClassKey> {
        let (source, destination) = (self.source(), self.destination());
        source.into_iter().chain(destination.filter(|_| destination != source))
    }

    fn class(self, port: u64) -> Option<ClassKey> {
        (port < ANY).then(|| ClassKey::new(self.protocol(), port as u16))
    }

    /// Returns the pair without the higher port, which is the client's.
    fn without_client(self) -> Self {
        let (source, destination) = (self.0 >> 17 & 0x1ffff, self.0 & 0x1ffff);
        // Above it, ports are given to clients, and name no service.
        const CLIENTS_FROM: u64 = 32_768;
        let known =
            |port: u64, other: u64| (port <= other && port < CLIENTS_FROM).then_some(port as u16);
        Self::new(self.protocol(), known(source, destination), known(destination, source))
    }
}

/// The sums of a part of the IP packets: those of a pair, or of a class of size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartSums {
    /// The number of packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The number of compressed packets: those that were captured whole, and have the part that is
    /// compressed.
    pub measured_packets: u64,
    /// The number of bytes that the codecs read.
    pub measured_bytes: u64,
    /// Their results, by codec; empty if none was compressed.
    pub codecs: Vec<CodecSums>,
}

/// The results of packets that were compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u64; 4]", into = "[u64; 4]")]
pub struct CodecSums {
    /// Bytes of the results, including those longer than the input.
    pub compressed: u64,
    /// Bytes if packets that don't shrink are sent as they are.
    pub sent: u64,
    /// Packets that became longer.
    pub expanded: u64,
    /// The time taken, in nanoseconds.
    pub ns: u64,
}

impl CodecSums {
    /// Adds the sums of `other`.
    pub fn add(&mut self, other: &Self) {
        self.compressed = self.compressed.saturating_add(other.compressed);
        self.sent = self.sent.saturating_add(other.sent);
        self.expanded = self.expanded.saturating_add(other.expanded);
        self.ns = self.ns.saturating_add(other.ns);
    }
}

impl From<[u64; 4]> for CodecSums {
    fn from([compressed, sent, expanded, ns]: [u64; 4]) -> Self {
        Self { compressed, sent, expanded, ns }
    }
}

impl From<CodecSums> for [u64; 4] {
    fn from(sums: CodecSums) -> Self {
        [sums.compressed, sums.sent, sums.expanded, sums.ns]
    }
}

impl PartSums {
    /// Adds the sums of `other`.
    pub fn add(&mut self, other: &Self) {
        self.packets = self.packets.saturating_add(other.packets);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.measured_packets = self.measured_packets.saturating_add(other.measured_packets);
        self.measured_bytes = self.measured_bytes.saturating_add(other.measured_bytes);
        if self.codecs.len() < other.codecs.len() {
            self.codecs.resize(other.codecs.len(), CodecSums::default());
        }
        self.codecs.iter_mut().zip(&other.codecs).for_each(|(sums, other)| sums.add(other));
    }
}

/// Sums by pair.
#[derive(Clone, Default)]
pub struct Pairs {
    sums: NumberMap<PartSums>,
    /// Packets that were counted under pairs of which a port was left out.
    pub folded_packets: u64,
}

impl Pairs {
    /// Counts a packet, and returns the pair under which it did.
    #[inline]
    pub(super) fn count(&mut self, pair: Pair, bytes: u64) -> Pair {
        let is_full = self.sums.len() >= PAIRS_MAX;
        let pair = if is_full && !self.sums.contains_key(&pair.0) {
            self.folded_packets += 1;
            pair.without_client()
        } else {
            pair
        };
        let sums = self.sums.entry(pair.0).or_default();
        sums.packets += 1;
        sums.bytes += bytes;
        pair
    }

    /// Returns the sums of a pair, to add to.
    pub(super) fn entry(&mut self, pair: Pair) -> &mut PartSums {
        self.sums.entry(pair.0).or_default()
    }

    /// Adds the sums of `other`.
    pub(super) fn merge(&mut self, other: &Self) {
        for (&key, sums) in &other.sums {
            self.sums.entry(key).or_default().add(sums);
        }
        self.folded_packets = self.folded_packets.saturating_add(other.folded_packets);
    }

    /// Returns the number of pairs.
    pub fn len(&self) -> usize {
        self.sums.len()
    }

    /// Returns true if nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.sums.is_empty()
    }

    /// Returns all pairs, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (Pair, &PartSums)> {
        self.sums.iter().map(|(&key, sums)| (Pair(key), sums))
    }
}

impl std::fmt::Debug for Pairs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut all: Vec<_> = self.iter().collect();
        all.sort_unstable_by_key(|(pair, _)| *pair);
        f.debug_map().entries(all).finish()
    }
}

impl PartialEq for Pairs {
    fn eq(&self, other: &Self) -> bool {
        self.sums == other.sums && self.folded_packets == other.folded_packets
    }
}

/// The serialized form: protocol, ports (none: not distinguished), packets, bytes, measured packets
/// and bytes, and by codec the fields of [`CodecSums`].
#[derive(Serialize, Deserialize)]
struct Row(u8, Option<u16>, Option<u16>, u64, u64, u64, u64, Vec<CodecSums>);

#[derive(Serialize, Deserialize)]
struct Written {
    folded_packets: u64,
    rows: Vec<Row>,
}

impl Serialize for Pairs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut all: Vec<_> = self.iter().collect();
        all.sort_unstable_by_key(|(pair, _)| *pair);
        let rows = all.into_iter().map(|(pair, sums)| {
            let port = |class: Option<ClassKey>| class.map(ClassKey::port);
            Row(
                pair.protocol(),
                port(pair.source()),
                port(pair.destination()),
                sums.packets,
                sums.bytes,
                sums.measured_packets,
                sums.measured_bytes,
                sums.codecs.clone(),
            )
        });
        let rows = rows.collect();
        Written { folded_packets: self.folded_packets, rows }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Written::deserialize(deserializer)?;
        let mut this = Self { folded_packets: written.folded_packets, ..Self::default() };
        for Row(
            protocol,
            source,
            destination,
            packets,
            bytes,
            measured_packets,
            measured_bytes,
            codecs,
        ) in written.rows
        {
            let sums = PartSums { packets, bytes, measured_packets, measured_bytes, codecs };
            this.entry(Pair::new(protocol, source, destination)).add(&sums);
        }
        Ok(this)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_has_two_classes_or_one() {
        let pair = Pair::new(6, Some(50_000), Some(443));
        let classes: Vec<_> = pair.classes().collect();
        assert_eq!(classes, [ClassKey::new(6, 50_000), ClassKey::new(6, 443)]);
        assert_eq!(Pair::new(1, Some(0), Some(0)).classes().count(), 1);
    }

    #[test]
    fn a_full_table_gives_up_the_clients() {
        let mut pairs = Pairs::default();
        for port in 0..PAIRS_MAX as u32 {
            pairs.count(Pair::new(6, Some(80), Some(port as u16)), 1);
        }
        assert_eq!((pairs.len(), pairs.folded_packets), (PAIRS_MAX, 0));
        for client in [40_000, 50_000] {
            let pair = pairs.count(Pair::new(17, Some(client), Some(53)), 10);
            assert_eq!((pair.source(), pair.destination()), (None, Some(ClassKey::new(17, 53))));
        }
        assert_eq!(pairs.count(Pair::new(6, Some(80), Some(9)), 1).classes().count(), 2);
        assert_eq!((pairs.len(), pairs.folded_packets), (PAIRS_MAX + 1, 2));
        let high = pairs.count(Pair::new(17, Some(40_000), Some(50_000)), 10);
        assert_eq!(high.classes().count(), 0);
    }
}
