//! The three classes of packets, a hundred times and more as patient as those of the paper. Its
//! largest packets have 1500 bytes: too many to go whole through a tunnel over a link of 1500.

/// A class: its name, what its packets are like, and how long they may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Class {
    pub(super) name: &'static str,
    /// With IP and UDP headers.
    pub(super) packet_bytes: usize,
    pub(super) max_wait_ms: u64,
    pub(super) port: u16,
}

/// IPv4 and UDP.
pub(super) const HEADER_BYTES: usize = 28;

pub(super) const CLASSES: [Class; 3] = [
    Class { name: "sensing", packet_bytes: 40, max_wait_ms: 5, port: 5010 },
    Class { name: "real-time", packet_bytes: 200, max_wait_ms: 20, port: 5020 },
    Class { name: "file", packet_bytes: 1400, max_wait_ms: 100, port: 5030 },
];

impl Class {
    /// Its table of a configuration.
    pub(super) fn config(&self) -> String {
        let Self { name, port, max_wait_ms, .. } = self;
        let last = port + 9;
        format!(
            "[[class]]\nname = \"{name}\"\nports = [\"udp/{port}-{last}\"]\n\
             max_wait = \"{max_wait_ms}ms\"\n"
        )
    }

    /// The paper's share of late packets during an overload (Table IV), in percent.
    pub(super) fn paper_percent(&self, scheme: &str) -> Option<f64> {
        let place = CLASSES.iter().position(|class| class.name == self.name)?;
        let row = match scheme {
            "basicq" => [99.88, 99.76, 99.55],
            "chumq" => [20.42, 38.33, 99.84],
            "chutq-dcf" => [0.0, 0.0, 99.79],
            "chutq-tpf" => [99.90, 0.0, 0.0],
            _ => return None,
        };
        row.get(place).copied()
    }
}

/// Packets a second of a class that makes up a third of this many bits a second.
pub(super) fn per_second(class: &Class, bps: f64) -> f64 {
    bps / CLASSES.len() as f64 / (class.packet_bytes as f64 * 8.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_has_a_third_of_the_bytes() {
        for class in &CLASSES {
            let bps = per_second(class, 12e6) * class.packet_bytes as f64 * 8.0;
            assert!((bps - 4e6).abs() < 1.0);
        }
    }
}
