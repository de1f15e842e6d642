//! The results of an analysis, as sums that add up.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Settings;
use super::blocks::Blocks;
use super::directions::Directions;
use super::distribution::Distribution;
use super::entropy::Entropy;
use super::history::Histories;
use super::pairs::{CodecSums, Pairs, PartSums};
use super::timing::{Timeline, Timing};
use crate::capture::LinkType;

/// The format of analyses, changed when older programs can't read it any more.
pub const SCHEMA: &str = "dwell-trace/2";

/// Upper ends of the classes of size, in bytes; the last has none.
pub const SIZE_ENDS: [usize; 7] = [64, 128, 256, 512, 1024, 1500, 9000];

/// The class of size of a packet.
pub(super) fn size_class(bytes: usize) -> usize {
    SIZE_ENDS.iter().position(|&end| bytes <= end).unwrap_or(SIZE_ENDS.len())
}

/// The results of analysing some captures. All of it is sums (and lists of files), so that analyses
/// of parts add up to that of the whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Analysis {
    /// [`SCHEMA`].
    pub schema: String,
    /// The settings of the analysis.
    pub settings: Settings,
    /// True if it was interrupted, and some of the captures were not read to the end.
    pub is_partial: bool,
    /// The captures.
    pub files: Vec<FileRecord>,
    /// Frames without a readable IP packet, by kind.
    pub others: BTreeMap<String, Sums>,
    /// IP packets by version and protocol.
    #[serde(with = "protocols")]
    pub protocols: BTreeMap<(u8, u8), Sums>,
    /// IP packets that are parts of larger ones.
    pub fragments: u64,
    /// Lengths of IP packets, in bytes.
    pub packet_bytes: Distribution,
    /// Sums by classes of size: up to each of [`SIZE_ENDS`], and more.
    pub sizes: Vec<PartSums>,
    /// Sums by pairs of ports.
    pub pairs: Pairs,
    /// Flows, of each capture separately.
    pub flows: Flows,
    /// The times of packets.
    pub timing: Timing,
    /// The randomness of their bytes.
    pub entropy: Entropy,
    /// The results of blocks.
    pub blocks: Blocks,
    /// The results of history.
    #[serde(default)]
    pub histories: Histories,
    /// The traffic in each direction of the link.
    pub directions: Directions,
}

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sums {
    /// The number of packets.
    pub packets: u64,
    /// Their total length.
    pub bytes: u64,
}

impl Sums {
    /// Adds a packet.
    #[inline]
    pub(super) fn add(&mut self, bytes: u64) {
        self.packets += 1;
        self.bytes += bytes;
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.packets = self.packets.saturating_add(other.packets);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// Flows: packets with the same addresses, protocol and ports, in one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flows {
    /// The number of flows.
    pub flows: u64,
    /// Packets of each.
    pub packets: Distribution,
    /// Bytes of each.
    pub bytes: Distribution,
    /// Packets of flows that came when the table was full.
    pub packets_beyond: u64,
}

impl Flows {
    pub(super) fn merge(&mut self, other: &Self) {
        self.flows = self.flows.saturating_add(other.flows);
        self.packets.merge(&other.packets);
        self.bytes.merge(&other.bytes);
        self.packets_beyond = self.packets_beyond.saturating_add(other.packets_beyond);
    }
}

/// A capture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Its name.
    pub name: String,
    /// `pcap` or `pcapng`.
    pub format: String,
    /// The kinds of its links, by number.
    pub links: Vec<u16>,
    /// All frames, with their lengths on the wire.
    pub frames: Sums,
    /// Their captured bytes.
    pub captured_bytes: u64,
    /// Frames that were captured only in part.
    pub cut_frames: u64,
    /// IP packets, with the lengths that they declare.
    pub ip: Sums,
    /// IP packets that were not captured whole, and so are not measured.
    pub cut_packets: u64,
    /// Bytes of these that the capture lacks.
    pub missing_bytes: u64,
    /// A hash of the times, lengths and ends of its frames, in hexadecimal: the same for the same
    /// capture under another name or in another packing.
    pub fingerprint: String,
    /// The damage that ended it; everything up to there was read.
    pub trouble: Option<String>,
    /// Its packets over time.
    pub timeline: Timeline,
}

/// The most kinds of links that are reported.
const LINKS_MAX: usize = 64;

impl FileRecord {
    pub(super) fn new(name: &str, format: &str) -> Self {
        Self { name: name.to_owned(), format: format.to_owned(), ..Self::default() }
    }

    #[inline]
    pub(super) fn see_link(&mut self, link: LinkType) {
        if !self.links.contains(&link.0) && self.links.len() < LINKS_MAX {
            self.links.push(link.0);
        }
    }
}

/// The largest plausible number of packets, or bytes; with room above it to add some up.
const SUM_MAX: u64 = 1 << 60;

/// A reason why two analyses don't add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MergeError {
    /// They have different settings.
    #[error(
        "they were made with different settings (what is compressed, codecs, rates): analyse the \
         captures with the same ones"
    )]
    Settings,
    /// One is not like the output of any analysis.
    #[error("it is damaged: {0} can't be right")]
    Damaged(&'static str),
    /// One is of another version of the format.
    #[error("one was made by another version of dwell: its format is not {SCHEMA}")]
    Schema,
}

impl Analysis {
    /// Creates an empty analysis.
    pub fn new(settings: Settings) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            settings,
            is_partial: false,
            files: Vec::new(),
            others: BTreeMap::new(),
            protocols: BTreeMap::new(),
            fragments: 0,
            packet_bytes: Distribution::default(),
            sizes: vec![PartSums::default(); SIZE_ENDS.len() + 1],
            pairs: Pairs::default(),
            flows: Flows::default(),
            timing: Timing::default(),
            entropy: Entropy::default(),
            blocks: Blocks::default(),
            histories: Histories::default(),
            directions: Directions::default(),
        }
    }

    /// Adds another one: the sum is the same in any order, but for that of the files. It also
    /// equals an analysis of all captures, as long as no table was full ([`Pairs::folded_packets`],
    /// [`Flows::packets_beyond`]).
    ///
    /// # Errors
    /// If they don't add up; then nothing has changed.
    pub fn merge(&mut self, other: Self) -> Result<(), MergeError> {
        if self.schema != SCHEMA || other.schema != SCHEMA {
            return Err(MergeError::Schema);
        }
        if self.settings != other.settings {
            return Err(MergeError::Settings);
        }
        self.is_partial |= other.is_partial;
        self.files.extend(other.files);
        for (reason, sums) in other.others {
            self.others.entry(reason).or_default().merge(&sums);
        }
        for (protocol, sums) in other.protocols {
            self.protocols.entry(protocol).or_default().merge(&sums);
        }
        self.fragments = self.fragments.saturating_add(other.fragments);
        self.packet_bytes.merge(&other.packet_bytes);
        self.sizes.iter_mut().zip(&other.sizes).for_each(|(sums, other)| sums.add(other));
        self.pairs.merge(&other.pairs);
        self.flows.merge(&other.flows);
        self.timing.merge(&other.timing);
        self.entropy.merge(&other.entropy);
        self.blocks.merge(&other.blocks);
        self.histories.merge(&other.histories);
        self.directions.merge(&other.directions);
        Ok(())
    }

    /// Checks an analysis that was read from a file of unknown origin: tables must have their
    /// sizes, and the parts of a sum not be more than can be added up.
    ///
    /// # Errors
    /// The first implausible value.
    pub fn check(&self) -> Result<(), MergeError> {
        let codecs = self.settings.codecs.len();
        let fits = |sums: &[CodecSums]| sums.len() <= codecs;
        let pairs = || self.pairs.iter().map(|(_, sums)| sums);
        let damage = [
            (self.sizes.len() != SIZE_ENDS.len() + 1, "the classes of size"),
            (!self.sizes.iter().all(|size| fits(&size.codecs)), "the codecs of a class of size"),
            (!adds_up(self.sizes.iter().map(|size| size.bytes)), "the bytes by size"),
            (!pairs().all(|sums| fits(&sums.codecs)), "the codecs of a pair of ports"),
            (!adds_up(pairs().map(|sums| sums.packets)), "the packets by port"),
            (!adds_up(pairs().map(|sums| sums.bytes)), "the bytes by port"),
            (!adds_up(pairs().map(|sums| sums.measured_packets)), "the measured packets"),
            (!adds_up(pairs().map(|sums| sums.measured_bytes)), "the measured bytes"),
            (!self.entropy.is_sound(SUM_MAX), "the entropy"),
            (!adds_up(self.files.iter().map(|file| file.cut_packets)), "the cut packets"),
            (!adds_up(self.files.iter().map(|file| file.ip.bytes)), "the bytes of captures"),
            (!adds_up(self.files.iter().map(|file| file.missing_bytes)), "the cut bytes"),
            (!adds_up(self.directions.sums.iter().map(|s| s.link_bytes)), "the directions"),
            (!adds_up(self.protocols.values().map(|sums| sums.bytes)), "the protocols"),
            (!self.files.iter().all(|file| file.timeline.is_sound()), "the time line of a capture"),
        ];
        damage
            .iter()
            .find(|(is_so, _)| *is_so)
            .map_or(Ok(()), |(_, what)| Err(MergeError::Damaged(what)))
    }

    /// Returns the sums of all frames.
    pub fn frames(&self) -> Sums {
        self.sum_of(|file| file.frames)
    }

    /// Returns the sums of all IP packets.
    pub fn ip(&self) -> Sums {
        self.sum_of(|file| file.ip)
    }

    fn sum_of(&self, of: impl Fn(&FileRecord) -> Sums) -> Sums {
        let mut sums = Sums::default();
        self.files.iter().for_each(|file| sums.merge(&of(file)));
        sums
    }
}

/// Returns true if the numbers can be added up, with room for more.
fn adds_up(mut counts: impl Iterator<Item = u64>) -> bool {
    counts.try_fold(0u64, u64::checked_add).is_some_and(|sum| sum <= SUM_MAX)
}

/// JSON's keys are text: `"4/6"` is TCP over IPv4.
mod protocols {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serializer, de};

    use super::Sums;

    pub(super) fn serialize<S: Serializer>(
        map: &BTreeMap<(u8, u8), Sums>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(
            map.iter().map(|((version, protocol), sums)| (format!("{version}/{protocol}"), sums)),
        )
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<(u8, u8), Sums>, D::Error> {
        let map = BTreeMap::<String, Sums>::deserialize(deserializer)?;
        let entry = |(key, sums): (String, Sums)| {
            let (version, protocol) = key.split_once('/')?;
            Some(((version.parse().ok()?, protocol.parse().ok()?), sums))
        };
        let map = map.into_iter().map(|pair| {
            let key = pair.0.clone();
            entry(pair).ok_or_else(|| {
                de::Error::custom(format!("\"{key}\" is no IP version and protocol"))
            })
        });
        map.collect()
    }
}
