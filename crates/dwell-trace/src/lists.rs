//! Files that a relay reads: the classes that are not worth compressing, and estimates for the
//! others. `docs/exceptions.md` describes the format.

use dwell_codec::CodecSpec;
use dwell_policy::ClassKey;
use serde::{Deserialize, Serialize};

use crate::analysis::{Analysis, Over};
use crate::names::protocol_name;
use crate::summary::{Class, Ratio, Summary};

/// The format of lists, changed when older programs can't read it any more.
pub const LISTS_SCHEMA: &str = "dwell-exceptions/1";
/// The fewest packets of a class in a list: fewer say too little.
pub const PACKETS_MIN: u64 = 10;
/// The most classes of a list: as many as a relay remembers of its own.
pub const CLASSES_MAX: usize = 512;

/// Exceptions and estimates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lists {
    /// [`LISTS_SCHEMA`].
    pub schema: String,
    /// The codec that the exceptions are of.
    pub codec: CodecSpec,
    /// The part of the packets that was compressed.
    pub over: Over,
    /// Classes with an average ratio above 1.
    #[serde(default, rename = "exception")]
    pub exceptions: Vec<Exception>,
    /// The estimates of all others.
    #[serde(default, rename = "estimate")]
    pub estimates: Vec<Estimate>,
}

/// A class that compressing makes longer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exception {
    /// `tcp`, `udp`, or the number of another IP protocol, as text.
    pub protocol: String,
    /// The source or the destination port.
    pub port: u16,
    /// Its name in the IANA's registry.
    pub name: String,
    /// Compressed / original.
    pub ratio: f64,
    /// The number of packets in which it was found.
    pub packets: u64,
    /// Their total length, in bytes.
    pub bytes: u64,
}

/// The expected ratio and time of a class with a codec.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// `tcp`, `udp`, or the number of another IP protocol, as text.
    pub protocol: String,
    /// The lower of the two ports.
    pub port: u16,
    /// The codec.
    pub codec: CodecSpec,
    /// Compressed / original, with packets that don't shrink counted as they are.
    pub ratio: f64,
    /// The mean measured time for a packet, in nanoseconds.
    pub ns_per_packet: f64,
    /// The mean measured time for a byte, in nanoseconds.
    pub ns_per_byte: f64,
    /// The number of packets in which it was found.
    pub packets: u64,
}

impl Lists {
    /// Returns the lists of an analysis; none if it has no codecs. They have only classes that are
    /// the lower port of most of their packets: higher ports are given to clients and mean
    /// something else next time.
    pub fn of(analysis: &Analysis, summary: &Summary) -> Option<Self> {
        let codec = *analysis.settings.codecs.first()?;
        let is_service = |class: &&Class| {
            class.service_packets * 2 > class.packets
                && class.codecs.first().is_some_and(|found| found.packets >= PACKETS_MIN)
        };
        let services: Vec<&Class> =
            summary.classes.iter().filter(is_service).take(CLASSES_MAX).collect();
        let (listed, others): (Vec<_>, Vec<_>) =
            services.into_iter().partition(|class| class.exception.first() == Some(&true));
        let estimates = others.into_iter().flat_map(|class| {
            let codecs = analysis.settings.codecs.iter().zip(&class.codecs);
            codecs.filter_map(|(&codec, found)| estimate(class.class, codec, found))
        });
        Some(Self {
            schema: LISTS_SCHEMA.to_owned(),
            codec,
            over: analysis.settings.over,
            exceptions: listed.into_iter().filter_map(exception).collect(),
            estimates: estimates.collect(),
        })
    }

    /// Returns the text of the file, with a comment at its head.
    ///
    /// # Errors
    /// The error of the TOML writer; no list causes one.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        let head = "# Classes of packets, as `dwell trace analyze` found them. A relay leaves the\n\
                    # exceptions alone: exceptions_file in [[peer]], see docs/exceptions.md.\n\n";
        Ok(format!("{head}{}", toml::to_string(self)?))
    }
}

fn exception(class: &Class) -> Option<Exception> {
    let found = class.codecs.first()?;
    Some(Exception {
        protocol: protocol(class.class),
        port: class.class.port(),
        name: class.name.to_owned(),
        ratio: rounded(found.ratio()?),
        packets: found.packets,
        bytes: found.bytes,
    })
}

fn estimate(class: ClassKey, codec: CodecSpec, found: &Ratio) -> Option<Estimate> {
    Some(Estimate {
        protocol: protocol(class),
        port: class.port(),
        codec,
        ratio: rounded(found.sent_ratio()?),
        ns_per_packet: rounded(found.ns_per_packet()?),
        ns_per_byte: rounded(found.ns_per_byte()?),
        packets: found.packets,
    })
}

/// Returns the name of a protocol as relays write it: `tcp`, `udp`, and others by their numbers.
fn protocol(class: ClassKey) -> String {
    match class.protocol() {
        number @ (6 | 17) => protocol_name(number).unwrap_or_default().to_owned(),
        number => number.to_string(),
    }
}

/// Rounds to the digits that are significant.
fn rounded(number: f64) -> f64 {
    libm::round(number * 10_000.0) / 10_000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::{analyse, capture, settings};

    #[test]
    fn lists_have_services_and_read_back() {
        let analysis = analyse(&[capture(500)], &settings(), 1);
        let lists = Lists::of(&analysis, &Summary::of(&analysis)).unwrap();
        let exceptions: Vec<_> =
            lists.exceptions.iter().map(|e| (e.protocol.as_str(), e.port, e.packets)).collect();
        assert_eq!(exceptions, [("udp", 443, 250)]);
        assert!(lists.exceptions[0].ratio > 1.0);
        let estimates: Vec<_> =
            lists.estimates.iter().map(|e| (e.port, e.codec.to_string())).collect();
        assert_eq!(estimates, [(1883, "lz4".to_owned()), (1883, "zstd".to_owned())]);
        let text = lists.to_toml().unwrap();
        assert!(text.starts_with("# Classes") && text.contains("\n[[exception]]\n"), "{text}");
        assert_eq!(toml::from_str::<Lists>(&text).unwrap(), lists);
    }

    #[test]
    fn few_packets_are_no_reason() {
        let analysis = analyse(&[capture(10)], &settings(), 1);
        let lists = Lists::of(&analysis, &Summary::of(&analysis)).unwrap();
        assert_eq!((lists.exceptions.len(), lists.estimates.len()), (0, 0));
    }
}
