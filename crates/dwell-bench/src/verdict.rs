//! Checks of the promises: never slower than doing nothing, near the bound on text,
//! restrained where there is nothing to gain.

use super::link_rate::LinkRate;
use super::record::{Measured, RelayAccounts};
use super::results::Results;
use super::statistics::Summary;
use super::workload::Workload;

/// The scheme that is on trial.
const SCHEME: &str = "packet";
/// Less than this share of the better of `none` and `all` is a shortfall.
pub(super) const LEAST_SHARE: f64 = 0.97;

/// A place where `packet` is slower than it may be.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shortfall {
    pub(super) rate: LinkRate,
    pub(super) workload: Workload,
    pub(super) codec: String,
    pub(super) packet: Summary,
    pub(super) better: Summary,
    /// `none`, or `all` with the codec.
    pub(super) better_name: String,
}

impl Shortfall {
    pub(super) fn share(&self) -> f64 {
        self.packet.median / self.better.median
    }

    /// Returns true if the middle halves of the runs overlap, so that it may be chance.
    pub(super) fn may_be_chance(&self) -> bool {
        self.packet.high >= self.better.low
    }
}

/// Returns the number of comparisons, and those that fall short.
pub(super) fn shortfalls(results: &Results<'_>) -> (usize, Vec<Shortfall>) {
    let (mut compared, mut found) = (0, Vec::new());
    for (rate, workload) in results.fields() {
        for codec in results.codecs(rate, workload, SCHEME) {
            let packet = results.goodput(rate, workload, &format!("{SCHEME}/{codec}"));
            let better = results.better_of_none_and_all(rate, workload, codec);
            let (Some(packet), Some((better_name, better))) = (packet, better) else { continue };
            compared += 1;
            let codec = codec.to_owned();
            let place = Shortfall { rate, workload, codec, packet, better, better_name };
            if place.share() < LEAST_SHARE {
                found.push(place);
            }
        }
    }
    (compared, found)
}

/// The share that `packet` reaches of what its own ratio would allow.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Attainment {
    pub(super) codec: String,
    /// Bytes per second.
    pub(super) packet: f64,
    /// Bytes per second.
    pub(super) none: f64,
    /// Compressed / original, of packets that were compressed.
    pub(super) compressed_ratio: Option<f64>,
    /// The same of all packets, compressed or not.
    pub(super) sent_ratio: Option<f64>,
    /// Link bytes per byte of the application, `packet` by `none`.
    pub(super) link_ratio: Option<f64>,
}

impl Attainment {
    /// Goodput by what `none` would have if its bytes shrank by this ratio.
    pub(super) fn share(&self, ratio: Option<f64>) -> Option<f64> {
        Some(self.packet / (self.none / ratio?))
    }
}

/// For text at this rate.
pub(super) fn attainments(results: &Results<'_>, rate: LinkRate) -> Vec<Attainment> {
    let text = Workload::Text;
    let relay = |name: &str, ratio: fn(&RelayAccounts) -> Option<f64>| {
        results.median(rate, text, name, |m| ratio(m.relay.as_ref()?))
    };
    let per_byte = |name: &str| results.median(rate, text, name, Measured::link_bytes_per_byte);
    let attainment = |codec: &str| {
        let name = format!("{SCHEME}/{codec}");
        Some(Attainment {
            codec: codec.to_owned(),
            packet: results.goodput(rate, text, &name)?.median,
            none: results.goodput(rate, text, "none")?.median,
            compressed_ratio: relay(&name, RelayAccounts::compressed_ratio),
            sent_ratio: relay(&name, RelayAccounts::sent_ratio),
            link_ratio: per_byte(&name).zip(per_byte("none")).map(|(packet, none)| packet / none),
        })
    };
    results.codecs(rate, text, SCHEME).into_iter().filter_map(attainment).collect()
}

/// The behaviour of `packet` where there is nothing to gain.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Restraint {
    pub(super) codec: String,
    /// Goodput by that of `none`.
    pub(super) share_of_none: f64,
    /// The share of packets given to the compressor after the first second.
    pub(super) tried_later: Option<f64>,
}

/// For random bytes at this rate.
pub(super) fn restraints(results: &Results<'_>, rate: LinkRate) -> Vec<Restraint> {
    let random = Workload::Random;
    let restraint = |codec: &str| {
        let name = format!("{SCHEME}/{codec}");
        let goodput = |name: &str| Some(results.goodput(rate, random, name)?.median);
        Some(Restraint {
            codec: codec.to_owned(),
            share_of_none: goodput(&name)? / goodput("none")?,
            tried_later: results
                .median(rate, random, &name, |m| m.relay.as_ref()?.later_tried_share()),
        })
    };
    results.codecs(rate, random, SCHEME).into_iter().filter_map(restraint).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Link;
    use crate::record::Run;
    use crate::record::tests::run;

    fn rounds(workload: Workload, contender: &str, values: [u64; 3]) -> Vec<Run<Link>> {
        let runs = values.into_iter().zip(0..);
        runs.map(|(value, round)| run("10mbit", workload, contender, round, value)).collect()
    }

    #[test]
    fn packet_must_keep_up_with_the_better_of_the_two() {
        let runs = [
            rounds(Workload::Text, "none", [100, 101, 102]),
            rounds(Workload::Text, "all/lz4", [200, 201, 202]),
            rounds(Workload::Text, "packet/lz4", [190, 191, 192]),
            rounds(Workload::Text, "all/zstd:1", [50, 50, 50]),
            rounds(Workload::Text, "packet/zstd:1", [99, 99, 99]),
            rounds(Workload::Random, "none", [100, 100, 100]),
            rounds(Workload::Random, "packet/lz4", [90, 96, 110]),
        ]
        .concat();
        let (compared, found) = shortfalls(&Results::new(&runs));
        assert_eq!(compared, 3);
        let [random, text] = &found[..] else { panic!("{found:?}") };
        assert_eq!((text.codec.as_str(), text.better_name.as_str()), ("lz4", "all/lz4"));
        assert!((text.share() - 191.0 / 201.0).abs() < 1e-9 && !text.may_be_chance());
        assert_eq!(random.better_name, "none");
        assert!((random.share() - 0.96).abs() < 1e-9 && random.may_be_chance());
    }

    #[test]
    fn exactly_the_least_share_is_enough() {
        let runs = [
            rounds(Workload::Text, "none", [100, 100, 100]),
            rounds(Workload::Text, "packet/lz4", [97, 97, 97]),
        ]
        .concat();
        assert_eq!(shortfalls(&Results::new(&runs)), (1, vec![]));
    }

    #[test]
    fn the_bound_is_what_the_ratio_allows() {
        let mut runs = [
            rounds(Workload::Text, "none", [1000, 1000, 1000]),
            rounds(Workload::Text, "packet/lz4", [1800, 1800, 1800]),
        ]
        .concat();
        for run in runs.iter_mut().skip(3) {
            let relay = RelayAccounts {
                sent_bytes: 1000,
                compressed_bytes: 800,
                compressed_to_bytes: 400,
                ..RelayAccounts::default()
            };
            run.measured.relay = Some(relay);
            run.measured.link_bytes = 990_000;
        }
        let found = attainments(&Results::new(&runs), "10mbit".parse().unwrap());
        let [one] = &found[..] else { panic!("{found:?}") };
        assert_eq!((one.compressed_ratio, one.sent_ratio), (Some(0.5), Some(0.6)));
        assert!((one.share(one.compressed_ratio).unwrap() - 0.9).abs() < 1e-9);
        assert!((one.link_ratio.unwrap() - 0.55).abs() < 1e-9);
        assert!((one.share(one.link_ratio).unwrap() - 0.99).abs() < 1e-9);
        assert_eq!(one.share(None), None);
    }

    #[test]
    fn restraint_is_what_is_tried_late() {
        let mut runs = [
            rounds(Workload::Random, "none", [100, 100, 100]),
            rounds(Workload::Random, "packet/lz4", [99, 99, 99]),
        ]
        .concat();
        runs[4].measured.relay = Some(RelayAccounts {
            later_arrived_packets: 100,
            later_tried: 1,
            ..RelayAccounts::default()
        });
        let found = restraints(&Results::new(&runs), "10mbit".parse().unwrap());
        assert_eq!(found.len(), 1);
        assert!((found[0].share_of_none - 0.99).abs() < 1e-9);
        assert_eq!(found[0].tried_later, Some(0.01));
        assert!(restraints(&Results::new(&[]), "10mbit".parse().unwrap()).is_empty());
    }
}
