//! Summaries of an analysis: classes, exceptions, ratios.

use std::collections::{BTreeMap, BTreeSet};

use dwell_base::share;
use dwell_codec::CodecSpec;
use dwell_policy::ClassKey;
use serde::{Serialize, Serializer};

use crate::analysis::{Analysis, CodecSums, PartSums};
use crate::names::class_name;

/// The summary of an analysis, by codec and by class.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Summaries by codec, in the order of the settings.
    pub codecs: Vec<CodecSummary>,
    /// Summaries by class, those with the most bytes first. Every packet is in two of them, unless
    /// its ports are the same.
    pub classes: Vec<Class>,
}

/// The result of a codec for all packets.
#[derive(Clone, Debug, Serialize)]
pub struct CodecSummary {
    /// The codec.
    pub codec: CodecSpec,
    /// All packets that were compressed.
    pub all: Ratio,
    /// The packets of no class on the exception list (of this codec).
    pub compressible: Ratio,
    /// The number of classes on the list: those with an average ratio above 1.
    pub exceptions: usize,
}

/// The result of compressing some packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ratio {
    /// The number of compressed packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Their sums.
    #[serde(flatten)]
    pub sums: RatioSums,
}

/// [`CodecSums`] with their names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RatioSums {
    /// Bytes of the results.
    pub compressed_bytes: u64,
    /// Bytes if packets that don't shrink are sent as they are.
    pub sent_bytes: u64,
    /// Packets that became longer.
    pub expanded_packets: u64,
    /// The time taken, in nanoseconds.
    pub ns: u64,
}

impl Ratio {
    fn add(&mut self, packets: u64, bytes: u64, sums: &CodecSums) {
        self.packets = self.packets.saturating_add(packets);
        self.bytes = self.bytes.saturating_add(bytes);
        let to = &mut self.sums;
        to.compressed_bytes = to.compressed_bytes.saturating_add(sums.compressed);
        to.sent_bytes = to.sent_bytes.saturating_add(sums.sent);
        to.expanded_packets = to.expanded_packets.saturating_add(sums.expanded);
        to.ns = to.ns.saturating_add(sums.ns);
    }

    /// The average compression ratio, Σ compressed / Σ original.
    pub fn ratio(&self) -> Option<f64> {
        share(self.sums.compressed_bytes, self.bytes)
    }

    /// The average ratio if packets that don't shrink are sent as they are.
    pub fn sent_ratio(&self) -> Option<f64> {
        share(self.sums.sent_bytes, self.bytes)
    }

    /// The share of packets that became longer.
    pub fn expanded_share(&self) -> Option<f64> {
        share(self.sums.expanded_packets, self.packets)
    }

    /// Mean time for a packet, in nanoseconds.
    pub fn ns_per_packet(&self) -> Option<f64> {
        share(self.sums.ns, self.packets)
    }

    /// Mean time for a byte, in nanoseconds.
    pub fn ns_per_byte(&self) -> Option<f64> {
        share(self.sums.ns, self.bytes)
    }
}

/// Packets with the same protocol and source or destination port.
#[derive(Clone, Debug, Serialize)]
pub struct Class {
    /// Protocol and port.
    #[serde(serialize_with = "as_text")]
    pub class: ClassKey,
    /// Its name in the IANA's registry.
    pub name: &'static str,
    /// Packets.
    pub packets: u64,
    /// Bytes of their IP packets.
    pub bytes: u64,
    /// Packets in which this is the lower of the two ports, the server's in general.
    pub service_packets: u64,
    /// Bytes of IP packets that are also in no class on the exception list (of the first codec).
    pub compressible_bytes: u64,
    /// The results of its compressed packets, by codec.
    pub codecs: Vec<Ratio>,
    /// The results of those that are in no class on the codec's exception list.
    pub compressible: Vec<Ratio>,
    /// True for each codec whose exception list has it.
    pub exception: Vec<bool>,
}

fn as_text<S: Serializer>(class: &ClassKey, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(class)
}

impl Class {
    fn new(class: ClassKey, codecs: usize) -> Self {
        Self {
            class,
            name: class_name(class),
            packets: 0,
            bytes: 0,
            service_packets: 0,
            compressible_bytes: 0,
            codecs: vec![Ratio::default(); codecs],
            compressible: vec![Ratio::default(); codecs],
            exception: vec![false; codecs],
        }
    }
}

impl Summary {
    /// Sums up an analysis.
    pub fn of(analysis: &Analysis) -> Self {
        let specs = &analysis.settings.codecs;
        let mut classes = classes(analysis);
        let exceptions: Vec<BTreeSet<ClassKey>> = (0..specs.len())
            .map(|codec| {
                let expands = |class: &&mut Class| {
                    class.codecs[codec].ratio().is_some_and(|ratio| ratio > 1.0)
                };
                let listed = classes.values_mut().filter(expands);
                listed
                    .map(|class| {
                        class.exception[codec] = true;
                        class.class
                    })
                    .collect()
            })
            .collect();
        let mut codecs: Vec<CodecSummary> = specs
            .iter()
            .zip(&exceptions)
            .map(|(&codec, list)| CodecSummary {
                codec,
                all: Ratio::default(),
                compressible: Ratio::default(),
                exceptions: list.len(),
            })
            .collect();
        for (pair, sums) in analysis.pairs.iter() {
            let is_listed =
                |list: &BTreeSet<ClassKey>| pair.classes().any(|class| list.contains(&class));
            if !exceptions.first().is_some_and(is_listed) {
                for class in pair.classes() {
                    if let Some(class) = classes.get_mut(&class) {
                        class.compressible_bytes += sums.bytes;
                    }
                }
            }
            for (at, found) in sums.codecs.iter().enumerate().take(specs.len()) {
                let (packets, bytes) = (sums.measured_packets, sums.measured_bytes);
                codecs[at].all.add(packets, bytes, found);
                if is_listed(&exceptions[at]) {
                    continue;
                }
                codecs[at].compressible.add(packets, bytes, found);
                for class in pair.classes() {
                    if let Some(class) = classes.get_mut(&class) {
                        class.compressible[at].add(packets, bytes, found);
                    }
                }
            }
        }
        let mut classes: Vec<Class> = classes.into_values().collect();
        classes.sort_by_key(|class| (std::cmp::Reverse(class.bytes), class.class));
        Self { codecs, classes }
    }

    /// Returns the classes of the paper's table of compressible traffic: the `count` with the most
    /// bytes that the IANA has a name for and that are not on the first codec's exception list, by
    /// ratio, the best first.
    pub fn table_1(&self, count: usize) -> Vec<&Class> {
        let ratio = |class: &Class| class.compressible.first().and_then(Ratio::ratio);
        let named = self.classes.iter().filter(|class| {
            !class.name.is_empty()
                && ratio(class).is_some()
                && class.exception.first() == Some(&false)
        });
        let mut most: Vec<&Class> = named.take(count).collect();
        most.sort_by(|a, b| ratio(a).unwrap_or(1.0).total_cmp(&ratio(b).unwrap_or(1.0)));
        most
    }
}

/// Returns all classes with their results.
fn classes(analysis: &Analysis) -> BTreeMap<ClassKey, Class> {
    let count = analysis.settings.codecs.len();
    let mut classes: BTreeMap<ClassKey, Class> = BTreeMap::new();
    for (pair, sums) in analysis.pairs.iter() {
        let service = pair.classes().min();
        for key in pair.classes() {
            let class = classes.entry(key).or_insert_with(|| Class::new(key, count));
            class.packets += sums.packets;
            class.bytes += sums.bytes;
            if service == Some(key) {
                class.service_packets += sums.packets;
            }
            add_codecs(class, sums);
        }
    }
    classes
}

fn add_codecs(class: &mut Class, sums: &PartSums) {
    for (ratio, found) in class.codecs.iter_mut().zip(&sums.codecs) {
        ratio.add(sums.measured_packets, sums.measured_bytes, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::{analyse, capture, settings};

    #[test]
    fn exceptions_are_left_out_by_either_port() {
        // Half the packets are text to port 1883, the others noise to port 443.
        let analysis = analyse(&[capture(500)], &settings(), 1);
        let summary = Summary::of(&analysis);
        let class = |protocol, port| {
            let key = ClassKey::new(protocol, port);
            summary.classes.iter().find(|class| class.class == key).unwrap()
        };
        let (text, noise) = (class(17, 1883), class(17, 443));
        assert_eq!((text.packets, noise.packets), (250, 250));
        assert_eq!((&text.exception[..], &noise.exception[..]), (&[false; 2][..], &[true; 2][..]));
        assert_eq!(noise.service_packets, 250);
        assert_eq!(class(17, 40_002).service_packets, 0);
        for codec in &summary.codecs {
            // Port 443 and its two clients.
            assert_eq!((codec.exceptions, codec.all.packets), (3, 500));
            assert_eq!(codec.compressible.packets, 250);
            assert!(codec.compressible.ratio() < codec.all.ratio());
            assert_eq!(codec.all.expanded_share(), Some(0.5));
            assert_eq!(codec.compressible.sent_ratio(), codec.compressible.ratio());
        }
        // In every class are source and destination.
        let packets: u64 = summary.classes.iter().map(|class| class.packets).sum();
        assert_eq!(packets, 1000);
        let table: Vec<_> = summary.table_1(20).iter().map(|class| class.name).collect();
        // The IANA has a name for the client's port 40000, too.
        assert_eq!(table, ["mqtt", "safetynetp"]);
        assert_eq!(text.compressible_bytes, text.bytes);
    }
}
