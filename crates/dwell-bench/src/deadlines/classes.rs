//! The classes of packets, more patient than those of the paper as the lab's links are slower. Its
//! largest packets have 1500 bytes: too many to go whole through a tunnel over a link of 1500.

use serde::{Deserialize, Serialize};

/// Which classes there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ClassSet {
    /// Three, each a third of the bytes: 40 bytes within 5 ms, 200 within 20, 1400 within 100
    #[default]
    Three,
    /// The ten of the paper's Table VI, nine tenths of the bytes of the first one, within 50 to 200 ms
    Ten,
    /// The same ten, but the relay is given only three different times, by their sizes
    TenInThree,
}

/// A class: its name, what its packets are like, and how long they may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Class {
    pub(super) name: &'static str,
    /// With IP and UDP headers.
    pub(super) packet_bytes: usize,
    pub(super) max_wait_ms: u64,
    /// The relay's belief about the latter.
    reported_ms: u64,
    pub(super) port: u16,
    /// Of all bytes, in hundredths of what all classes together have.
    share: u32,
}

/// IPv4 and UDP.
pub(super) const HEADER_BYTES: usize = 28;

const THREE: [Class; 3] = [
    class("sensing", 40, 5, 5010, 1),
    class("real-time", 200, 20, 5020, 1),
    class("file", 1400, 100, 5030, 1),
];

const TEN: [Class; 10] = [
    class("app1", 40, 50, 5010, 81),
    class("app2", 40, 60, 5020, 1),
    class("app3", 40, 70, 5030, 1),
    class("app4", 40, 80, 5040, 1),
    class("app5", 200, 100, 5050, 1),
    class("app6", 200, 120, 5060, 1),
    class("app7", 200, 140, 5070, 1),
    class("app8", 1400, 160, 5080, 1),
    class("app9", 1400, 180, 5090, 1),
    class("app10", 1400, 200, 5100, 1),
];

const TEN_IN_THREE: [Class; 10] = {
    let mut classes = TEN;
    let mut at = 0;
    while at < classes.len() {
        classes[at].reported_ms = match classes[at].packet_bytes {
            40 => 50,
            200 => 100,
            _ => 160,
        };
        at += 1;
    }
    classes
};

const fn class(
    name: &'static str,
    packet_bytes: usize,
    max_wait_ms: u64,
    port: u16,
    share: u32,
) -> Class {
    Class { name, packet_bytes, max_wait_ms, reported_ms: max_wait_ms, port, share }
}

impl ClassSet {
    /// The classes.
    pub(super) fn classes(self) -> &'static [Class] {
        match self {
            Self::Three => &THREE,
            Self::Ten => &TEN,
            Self::TenInThree => &TEN_IN_THREE,
        }
    }

    /// Packets a second of one of the classes if all together make up this many bits a second.
    pub(super) fn per_second(self, class: &Class, bps: f64) -> f64 {
        let shares: u32 = self.classes().iter().map(|class| class.share).sum();
        let share = f64::from(class.share) / f64::from(shares);
        bps * share / (class.packet_bytes as f64 * 8.0)
    }

    /// The paper's share of late packets of a class, in percent: during an overload of the three
    /// (Table IV), and of the ten at a load of 0.9 or so (Table VI; of ChuTQ it says that all are in time).
    pub(super) fn paper_percent(self, class: &str, scheme: &str, load: f64) -> Option<f64> {
        let place = self.classes().iter().position(|known| known.name == class)?;
        let row: &[f64] = match (self, scheme) {
            (Self::Three, _) if load <= 1.0 => return None,
            (Self::Three, "basicq") => &[99.88, 99.76, 99.55],
            (Self::Three, "chumq") => &[20.42, 38.33, 99.84],
            (Self::Three, "chutq-dcf") => &[0.0, 0.0, 99.79],
            (Self::Three, "chutq-tpf") => &[99.90, 0.0, 0.0],
            (Self::Ten | Self::TenInThree, _) if !(0.8..=1.0).contains(&load) => return None,
            (Self::Ten, "chumq+cea") => {
                &[0.0, 8.519, 7.316, 6.58, 13.778, 12.622, 10.748, 38.36, 34.04, 33.821]
            }
            (Self::TenInThree, "chumq+cea") => {
                &[0.0, 0.0, 0.0, 0.0, 8.601, 0.0, 0.0, 24.727, 0.0, 0.0]
            }
            (Self::Ten | Self::TenInThree, "chutq-dcf+cea") => &[0.0; 10],
            _ => return None,
        };
        row.get(place).copied()
    }
}

impl Class {
    /// Its table of a configuration.
    pub(super) fn config(&self) -> String {
        let Self { name, port, reported_ms, .. } = self;
        let last = port + 9;
        format!(
            "[[class]]\nname = \"{name}\"\nports = [\"udp/{port}-{last}\"]\n\
             max_wait = \"{reported_ms}ms\"\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_bytes_add_up() {
        for set in [ClassSet::Three, ClassSet::Ten, ClassSet::TenInThree] {
            let bps = |class: &Class| set.per_second(class, 12e6) * class.packet_bytes as f64 * 8.0;
            let all: f64 = set.classes().iter().map(bps).sum();
            assert!((all - 12e6).abs() < 1.0, "{all}");
        }
        let bps = ClassSet::Ten.per_second(&TEN[0], 9e6) * 320.0;
        assert!((bps - 8.1e6).abs() < 1.0, "{bps}");
    }

    #[test]
    fn what_the_relay_is_reported_is_no_more_than_is_true() {
        let reported: Vec<u64> = TEN_IN_THREE.iter().map(|class| class.reported_ms).collect();
        assert_eq!(reported, [50, 50, 50, 50, 100, 100, 100, 160, 160, 160]);
        assert!(TEN_IN_THREE.iter().all(|class| class.reported_ms <= class.max_wait_ms));
        assert!(TEN_IN_THREE[9].config().contains("max_wait = \"160ms\""));
    }

    #[test]
    fn the_paper_is_beside_what_it_measured() {
        assert_eq!(ClassSet::Three.paper_percent("sensing", "chumq", 1.2), Some(20.42));
        assert_eq!(ClassSet::Three.paper_percent("sensing", "chumq", 0.8), None);
        assert_eq!(ClassSet::Ten.paper_percent("app10", "chumq+cea", 0.9), Some(33.821));
        assert_eq!(ClassSet::Ten.paper_percent("app10", "chumq+cea", 0.5), None);
        assert_eq!(ClassSet::Ten.paper_percent("app10", "basicq", 0.9), None);
        assert_eq!(ClassSet::Ten.paper_percent("file", "chumq+cea", 0.9), None);
    }
}
