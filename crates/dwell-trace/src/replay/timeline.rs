//! Events over time, in a bounded number of bins.

use serde::{Deserialize, Serialize};

/// The most bins: twice as many as a chart shows well.
pub const BINS_MAX: usize = 512;
const FIRST_BIN_NS: u64 = 10_000_000;

/// Bins of equal width. When time goes beyond the last of them, they are joined in pairs: memory
/// is bounded however long the capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// The width of a bin, in nanoseconds.
    pub bin_ns: u64,
    /// The bins, from the first arrival on.
    pub bins: Vec<Bin>,
}

/// The events within one bin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bin {
    /// Bytes of the packets that arrived.
    pub arrived_bytes: u64,
    /// Bytes put on the link, all overhead included.
    pub link_bytes: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Packets sent.
    pub sent: u64,
    /// The sum of their delays, in nanoseconds.
    pub delay_sum_ns: u64,
    /// The largest of their delays, in nanoseconds.
    pub delay_ns_max: u64,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { bin_ns: FIRST_BIN_NS, bins: Vec::new() }
    }
}

impl Timeline {
    /// The bin of this time.
    pub(crate) fn at(&mut self, ns: u64) -> &mut Bin {
        while ns / self.bin_ns >= BINS_MAX as u64 {
            self.halve();
        }
        let place = (ns / self.bin_ns) as usize;
        if self.bins.len() <= place {
            self.bins.resize(place + 1, Bin::default());
        }
        &mut self.bins[place]
    }

    fn halve(&mut self) {
        self.bin_ns = self.bin_ns.saturating_mul(2);
        let joined = self.bins.chunks(2).map(|pair| match pair {
            [a, b] => a.join(b),
            _ => pair[0],
        });
        self.bins = joined.collect();
    }
}

impl Bin {
    fn join(&self, other: &Self) -> Self {
        Self {
            arrived_bytes: self.arrived_bytes + other.arrived_bytes,
            link_bytes: self.link_bytes + other.link_bytes,
            dropped: self.dropped + other.dropped,
            sent: self.sent + other.sent,
            delay_sum_ns: self.delay_sum_ns.saturating_add(other.delay_sum_ns),
            delay_ns_max: self.delay_ns_max.max(other.delay_ns_max),
        }
    }

    /// Returns the mean delay of the packets sent, in nanoseconds, if there were any.
    pub fn delay_ns_mean(&self) -> Option<u64> {
        self.delay_sum_ns.checked_div(self.sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_time_has_wide_bins_and_loses_nothing() {
        let mut timeline = Timeline::default();
        for second in 0..100_000u64 {
            let bin = timeline.at(second * 1_000_000_000);
            bin.sent += 1;
            bin.delay_sum_ns += 2;
            bin.delay_ns_max = bin.delay_ns_max.max(second);
        }
        assert!(timeline.bins.len() <= BINS_MAX && timeline.bins.len() > BINS_MAX / 2);
        assert_eq!(timeline.bins.iter().map(|bin| bin.sent).sum::<u64>(), 100_000);
        assert_eq!(timeline.bins.last().unwrap().delay_ns_max, 99_999);
        assert_eq!(timeline.bins[0].delay_ns_mean(), Some(2));
        assert!(timeline.bins.iter().is_sorted_by_key(|bin| bin.delay_ns_max));
    }

    #[test]
    fn the_end_of_time_fits() {
        let mut timeline = Timeline::default();
        timeline.at(0).sent = 1;
        timeline.at(u64::MAX).sent += 1;
        assert!(timeline.bins.len() <= BINS_MAX);
    }
}
