//! The times of packets: rates, bursts, and the waiting times for a link.

use dwell_base::Rate;
use dwell_base::time::{MILLI_NS, SECOND_NS};
use serde::{Deserialize, Serialize};

use super::distribution::Distribution;

/// The spans over which traffic is added up to measure its bursts.
pub const SPANS_NS: [u64; 3] = [10 * MILLI_NS, 100 * MILLI_NS, SECOND_NS];
/// The most bins of a time line; with more, pairs of them are joined.
const BINS_MAX: usize = 512;

/// The timing of one or more captures, each separately.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// Packets that have a time.
    pub packets: u64,
    /// Packets whose time is before that of the packet before. They count as if they came with
    /// it.
    pub backward: u64,
    /// The time from the first to the last packet, in nanoseconds, of all captures together.
    pub span_ns: u64,
    /// Times between packets, in nanoseconds.
    pub gaps_ns: Distribution,
    /// The burstiness of the traffic over each of [`SPANS_NS`].
    pub bursts: Vec<Burst>,
    /// The waiting times of packets for links.
    pub waits: Vec<Waits>,
}

/// Bytes per span of time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Burst {
    /// The span, in nanoseconds.
    pub span_ns: u64,
    /// The number of spans, including those without a packet.
    pub spans: u64,
    /// All bytes.
    pub bytes: u64,
    /// The sum of the squares of the spans' bytes, in decimal.
    #[serde(with = "decimal")]
    pub squares: u128,
    /// The most bytes of a span.
    pub bytes_max: u64,
}

impl Burst {
    /// The busiest span over the mean.
    pub fn peak_to_mean(&self) -> Option<f64> {
        (self.bytes > 0).then(|| self.bytes_max as f64 * self.spans as f64 / self.bytes as f64)
    }

    /// The standard deviation of a span's bytes over their mean: 0 for a steady stream.
    pub fn variation(&self) -> Option<f64> {
        let (spans, bytes) = (self.spans as f64, self.bytes as f64);
        let variance = (self.squares as f64 / spans - (bytes / spans) * (bytes / spans)).max(0.0);
        (self.bytes > 0).then(|| libm::sqrt(variance) * spans / bytes)
    }

    fn end_span(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.squares += u128::from(bytes) * u128::from(bytes);
        self.bytes_max = self.bytes_max.max(bytes);
    }

    fn merge(&mut self, other: &Self) {
        self.spans = self.spans.saturating_add(other.spans);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.squares = self.squares.saturating_add(other.squares);
        self.bytes_max = self.bytes_max.max(other.bytes_max);
    }
}

/// The waiting times of packets if all of them were to go over one link, uncompressed, from an
/// unlimited queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    /// The link's rate.
    pub rate: Rate,
    /// The wait from arrival to the beginning of transmission, in nanoseconds.
    pub wait_ns: Distribution,
    /// The time for which the link would be busy, in nanoseconds.
    pub busy_ns: u64,
    /// The most bytes that would wait at once, including the packet that is being transmitted.
    pub backlog_bytes_max: u64,
}

/// Packets and bytes over the time of one capture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// The time of the first packet, in nanoseconds since 1970.
    pub start_ns: u64,
    /// The length of a bin, in nanoseconds.
    pub bin_ns: u64,
    /// Packets in each bin.
    pub packets: Vec<u64>,
    /// Bytes in each bin.
    pub bytes: Vec<u64>,
}

impl Timeline {
    /// Returns true if it could have been recorded.
    pub(super) fn is_sound(&self) -> bool {
        self.packets.len() == self.bytes.len() && self.packets.len() <= BINS_MAX
    }

    fn record(&mut self, since_ns: u64, bytes: u64) {
        let mut bin = (since_ns / self.bin_ns.max(1)) as usize;
        while bin >= BINS_MAX {
            for bins in [&mut self.packets, &mut self.bytes] {
                *bins = bins.chunks(2).map(|pair| pair.iter().sum()).collect();
            }
            self.bin_ns = self.bin_ns.saturating_mul(2);
            bin = (since_ns / self.bin_ns) as usize;
        }
        if bin >= self.packets.len() {
            self.packets.resize(bin + 1, 0);
            self.bytes.resize(bin + 1, 0);
        }
        self.packets[bin] += 1;
        self.bytes[bin] += bytes;
    }
}

impl Timing {
    /// Adds the bins of `other`.
    pub(super) fn merge(&mut self, other: &Self) {
        self.packets = self.packets.saturating_add(other.packets);
        self.backward = self.backward.saturating_add(other.backward);
        self.span_ns = self.span_ns.saturating_add(other.span_ns);
        self.gaps_ns.merge(&other.gaps_ns);
        self.bursts.extend(
            other
                .bursts
                .iter()
                .skip(self.bursts.len())
                .map(|burst| Burst { span_ns: burst.span_ns, ..Burst::default() }),
        );
        self.bursts.iter_mut().zip(&other.bursts).for_each(|(burst, other)| burst.merge(other));
        self.waits
            .extend(other.waits.iter().skip(self.waits.len()).map(|waits| Waits::new(waits.rate)));
        self.waits.iter_mut().zip(&other.waits).for_each(|(waits, other)| waits.merge(other));
    }
}

impl Waits {
    fn new(rate: Rate) -> Self {
        Self { rate, wait_ns: Distribution::default(), busy_ns: 0, backlog_bytes_max: 0 }
    }

    fn merge(&mut self, other: &Self) {
        self.wait_ns.merge(&other.wait_ns);
        self.busy_ns = self.busy_ns.saturating_add(other.busy_ns);
        self.backlog_bytes_max = self.backlog_bytes_max.max(other.backlog_bytes_max);
    }
}

/// The timing of one capture that is being read.
pub(super) struct Stopwatch {
    timing: Timing,
    timeline: Timeline,
    last_ns: u64,
    /// The open span of each length, and its bytes.
    open: [(u64, u64); SPANS_NS.len()],
    links: Vec<Link>,
}

struct Link {
    waits: Waits,
    free_at_ns: u64,
}

impl Stopwatch {
    pub(super) fn new(rates: &[Rate]) -> Self {
        let burst = |span_ns| Burst { span_ns, ..Burst::default() };
        Self {
            timing: Timing { bursts: SPANS_NS.map(burst).to_vec(), ..Timing::default() },
            timeline: Timeline { bin_ns: MILLI_NS, ..Timeline::default() },
            last_ns: 0,
            open: [(0, 0); SPANS_NS.len()],
            links: rates
                .iter()
                .map(|&rate| Link { waits: Waits::new(rate), free_at_ns: 0 })
                .collect(),
        }
    }

    /// Records a packet.
    #[inline]
    pub(super) fn record(&mut self, at_ns: u64, bytes: u64) {
        if self.timing.packets == 0 {
            self.timeline.start_ns = at_ns;
            self.last_ns = at_ns;
        } else if at_ns < self.last_ns {
            self.timing.backward += 1;
        }
        let at_ns = at_ns.max(self.last_ns);
        if self.timing.packets > 0 {
            self.timing.gaps_ns.record(at_ns - self.last_ns);
        }
        self.timing.packets += 1;
        self.last_ns = at_ns;
        let since_ns = at_ns - self.timeline.start_ns;
        self.timeline.record(since_ns, bytes);
        for ((burst, open), span_ns) in
            self.timing.bursts.iter_mut().zip(&mut self.open).zip(SPANS_NS)
        {
            let span = since_ns / span_ns;
            if span != open.0 {
                burst.end_span(open.1);
                *open = (span, 0);
            }
            open.1 += bytes;
        }
        self.links.iter_mut().for_each(|link| link.record(since_ns, bytes));
    }

    pub(super) fn finish(mut self) -> (Timing, Timeline) {
        if self.timing.packets > 0 {
            self.timing.span_ns = self.last_ns - self.timeline.start_ns;
            for (burst, (span, bytes)) in self.timing.bursts.iter_mut().zip(self.open) {
                burst.end_span(bytes);
                burst.spans = span + 1;
            }
        }
        self.timing.waits = self.links.into_iter().map(|link| link.waits).collect();
        (self.timing, self.timeline)
    }
}

impl Link {
    fn record(&mut self, since_ns: u64, bytes: u64) {
        let wait_ns = self.free_at_ns.saturating_sub(since_ns);
        let takes_ns = self.waits.rate.transmission_ns(bytes);
        self.waits.wait_ns.record(wait_ns);
        self.waits.busy_ns = self.waits.busy_ns.saturating_add(takes_ns);
        self.free_at_ns = since_ns.max(self.free_at_ns).saturating_add(takes_ns);
        let backlog_bytes = self.waits.rate.bytes_in_ns(wait_ns).saturating_add(bytes);
        self.waits.backlog_bytes_max = self.waits.backlog_bytes_max.max(backlog_bytes);
    }
}

/// Numbers that JSON has no room for.
mod decimal {
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(
        number: &u128,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(number)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<u128, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_stream_at_half_the_rate_never_waits() {
        let mut watch = Stopwatch::new(&[Rate::from_mbps(8)]);
        // 1000 bytes take 1 ms at 8 Mbit/s.
        (0..1000).for_each(|n| watch.record(SECOND_NS + n * 2 * MILLI_NS, 1000));
        let (timing, timeline) = watch.finish();
        assert_eq!((timing.span_ns, timing.packets), (1998 * MILLI_NS, 1000));
        let waits = &timing.waits[0];
        assert_eq!(
            (waits.wait_ns.max(), waits.busy_ns, waits.backlog_bytes_max),
            (0, SECOND_NS, 1000)
        );
        assert_eq!(timing.bursts[0].peak_to_mean(), Some(1.0));
        assert_eq!(timing.bursts[2].variation(), Some(0.0));
        assert!(timeline.packets.len() <= BINS_MAX && timeline.packets.iter().sum::<u64>() == 1000);
    }

    #[test]
    fn a_burst_waits_for_itself() {
        let mut watch = Stopwatch::new(&[Rate::from_mbps(8)]);
        (0..10).for_each(|_| watch.record(0, 1000));
        watch.record(10 * SECOND_NS, 1000);
        watch.record(5 * SECOND_NS, 1000);
        let (timing, _) = watch.finish();
        assert_eq!(timing.waits[0].wait_ns.max(), 9 * MILLI_NS);
        assert_eq!((timing.waits[0].backlog_bytes_max, timing.backward), (10_000, 1));
        let burst = &timing.bursts[2];
        assert_eq!((burst.spans, burst.bytes, burst.bytes_max), (11, 12_000, 10_000));
        assert_eq!(burst.squares, 10_000 * 10_000 + 2000 * 2000);
    }

    #[test]
    fn years_fit_into_a_time_line() {
        let mut watch = Stopwatch::new(&[]);
        [0, 1, u64::MAX / 2, u64::MAX].into_iter().for_each(|at_ns| watch.record(at_ns, 1));
        let (timing, timeline) = watch.finish();
        assert_eq!((timing.packets, timeline.packets.iter().sum::<u64>()), (4, 4));
        assert!(timeline.packets.len() <= BINS_MAX);
    }
}
