//! What is measured of a node, a peer or a class in a second.

use dwell_base::time::SECOND_NS;

use crate::status::{ClassTraffic, HistogramSummary, PeerStatus};

/// What a point says. Rates are means of its time and sums over peers, the others are the worst of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Measure {
    /// Packets that came, as they were, in bits per second.
    Offered,
    /// What the packets sent would have taken on the link without dwell, in bits per second.
    Plain,
    /// All that the link carried, in bits per second.
    Link,
    /// Packets that came from peers, as they were, in bits per second.
    Received,
    /// Datagrams that came from peers, in bits per second.
    ReceivedLink,
    /// Packets that were sent compressed, as they were, in bits per second.
    Compressed,
    /// Packets dropped, in packets per second.
    Dropped,
    /// The time that a packet that comes now waits, in nanoseconds.
    Wait,
    /// The time that one packet in a hundred exceeded, in nanoseconds.
    P99,
    /// The processor time, in parts per million of one: of the whole process, or of compressing for a peer.
    Cpu,
}

impl Measure {
    /// Every measure, in the order of a point's values.
    pub const ALL: [Self; 10] = [
        Self::Offered,
        Self::Plain,
        Self::Link,
        Self::Received,
        Self::ReceivedLink,
        Self::Compressed,
        Self::Dropped,
        Self::Wait,
        Self::P99,
        Self::Cpu,
    ];

    /// Returns the name in messages, with its unit.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Offered => "offered_bps",
            Self::Plain => "plain_bps",
            Self::Link => "link_bps",
            Self::Received => "received_bps",
            Self::ReceivedLink => "received_link_bps",
            Self::Compressed => "compressed_bps",
            Self::Dropped => "dropped_per_s",
            Self::Wait => "wait_ns",
            Self::P99 => "p99_ns",
            Self::Cpu => "cpu_ppm",
        }
    }

    const fn is_worst(self) -> bool {
        matches!(self, Self::Wait | Self::P99)
    }
}

const MEASURES: usize = Measure::ALL.len();

/// The values of all measures at some time; what is not known is missing.
#[derive(Clone, Copy, Debug)]
pub struct Point([f32; MEASURES]);

impl Point {
    /// Nothing is known.
    pub const MISSING: Self = Self([f32::NAN; MEASURES]);

    /// Returns the value of a measure, if it is known.
    pub fn get(&self, measure: Measure) -> Option<f64> {
        let value = self.0[measure as usize];
        (!value.is_nan()).then_some(value.into())
    }

    pub(super) fn set(&mut self, measure: Measure, value: f64) {
        self.0[measure as usize] = value as f32;
    }

    /// Adds another peer's point of the same time.
    pub(super) fn add_peer(&mut self, other: &Self) {
        for measure in Measure::ALL {
            let (sum, value) = (&mut self.0[measure as usize], other.0[measure as usize]);
            *sum = match (sum.is_nan(), value.is_nan()) {
                (_, true) => *sum,
                (true, false) => value,
                _ if measure.is_worst() => sum.max(value),
                _ => *sum + value,
            };
        }
    }
}

/// Points of one scope that are joined to one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Joined {
    sum: Point,
    counts: [u16; MEASURES],
}

impl Joined {
    pub(super) const NONE: Self = Self { sum: Point::MISSING, counts: [0; MEASURES] };

    pub(super) fn add(&mut self, point: &Point) {
        self.sum.add_peer(point);
        for (count, value) in self.counts.iter_mut().zip(point.0) {
            *count += u16::from(!value.is_nan());
        }
    }

    pub(super) fn point(&self) -> Point {
        let mut point = self.sum;
        for measure in Measure::ALL.into_iter().filter(|measure| !measure.is_worst()) {
            let count = self.counts[measure as usize];
            if count > 0 {
                point.0[measure as usize] /= f32::from(count);
            }
        }
        point
    }
}

/// The counters of a peer or a class, of which points are the differences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    offered_bytes: u64,
    plain_bytes: u64,
    link_bytes: u64,
    received_bytes: u64,
    received_link_bytes: u64,
    compressed_bytes: u64,
    dropped: u64,
    busy_ns: u64,
    sojourn: HistogramSummary,
}

impl Counters {
    pub(super) fn of_peer(peer: &PeerStatus) -> Self {
        let (tx, rx) = (&peer.tx, &peer.rx);
        Self {
            offered_bytes: tx.arrived.bytes,
            plain_bytes: tx.plain_bytes,
            link_bytes: tx.link_bytes + tx.resent_bytes + tx.control_bytes,
            received_bytes: rx.packets.bytes,
            received_link_bytes: rx.bytes,
            compressed_bytes: tx.compressed.bytes,
            dropped: tx.dropped_total().packets,
            busy_ns: tx.compress_ns,
            sojourn: tx.sojourn,
        }
    }

    /// Adds a peer's traffic of a class.
    pub(super) fn add_class(&mut self, class: &ClassTraffic) {
        self.offered_bytes += class.arrived.bytes;
        self.plain_bytes += class.plain_bytes;
        self.link_bytes += class.link_bytes;
        self.received_bytes += class.received.bytes;
        self.compressed_bytes += class.compressed.bytes;
        self.dropped += class.dropped.values().sum::<u64>();
        self.sojourn.count += class.sojourn.count;
        self.sojourn.max_ns = self.sojourn.max_ns.max(class.sojourn.max_ns);
        for (sum, count) in self.sojourn.at_most.iter_mut().zip(class.sojourn.at_most) {
            *sum += count;
        }
    }

    /// Returns what happened since `before`, which was `window_ns` earlier. Nothing is known if no time
    /// has passed or the counters began again.
    pub(super) fn since(&self, before: &Self, window_ns: u64) -> Point {
        let mut point = Point::MISSING;
        if window_ns == 0 || !self.is_later_than(before) {
            return point;
        }
        let seconds = window_ns as f64 / SECOND_NS as f64;
        let mut set = |measure, now: u64, then: u64, unit: f64| {
            point.set(measure, (now - then) as f64 * unit / seconds);
        };
        set(Measure::Offered, self.offered_bytes, before.offered_bytes, 8.0);
        set(Measure::Plain, self.plain_bytes, before.plain_bytes, 8.0);
        set(Measure::Link, self.link_bytes, before.link_bytes, 8.0);
        set(Measure::Received, self.received_bytes, before.received_bytes, 8.0);
        set(Measure::ReceivedLink, self.received_link_bytes, before.received_link_bytes, 8.0);
        set(Measure::Compressed, self.compressed_bytes, before.compressed_bytes, 8.0);
        set(Measure::Dropped, self.dropped, before.dropped, 1.0);
        set(Measure::Cpu, self.busy_ns, before.busy_ns, 1e6 / SECOND_NS as f64);
        if let Some(ns) = self.sojourn.quantile_since_ns(&before.sojourn, 0.99) {
            point.set(Measure::P99, ns as f64);
        }
        point
    }

    fn is_later_than(&self, before: &Self) -> bool {
        let pairs = [
            (self.offered_bytes, before.offered_bytes),
            (self.plain_bytes, before.plain_bytes),
            (self.link_bytes, before.link_bytes),
            (self.received_bytes, before.received_bytes),
            (self.received_link_bytes, before.received_link_bytes),
            (self.compressed_bytes, before.compressed_bytes),
            (self.dropped, before.dropped),
            (self.busy_ns, before.busy_ns),
        ];
        pairs.iter().all(|(now, then)| now >= then)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_time_between() {
        let before = Counters { offered_bytes: 1_000, dropped: 5, ..Counters::default() };
        let now = Counters {
            offered_bytes: 251_000,
            link_bytes: 125_000,
            dropped: 15,
            busy_ns: SECOND_NS / 5,
            ..Counters::default()
        };
        let point = now.since(&before, 2 * SECOND_NS);
        assert_eq!(point.get(Measure::Offered), Some(1e6));
        assert_eq!(point.get(Measure::Link), Some(5e5));
        assert_eq!(point.get(Measure::Dropped), Some(5.0));
        assert_eq!(point.get(Measure::Cpu), Some(1e5), "a tenth of a processor");
        assert_eq!(point.get(Measure::P99), None, "nothing was sent");
        assert_eq!(before.since(&now, SECOND_NS).get(Measure::Link), None, "they began again");
        assert_eq!(now.since(&before, 0).get(Measure::Link), None, "no time has passed");
    }

    #[test]
    fn points_are_joined_over_peers_and_over_time() {
        let point = |link: f64, p99: f64| {
            let mut point = Point::MISSING;
            point.set(Measure::Link, link);
            point.set(Measure::P99, p99);
            point
        };
        let mut peers = point(10.0, 3.0);
        peers.add_peer(&point(20.0, 2.0));
        peers.add_peer(&Point::MISSING);
        assert_eq!((peers.get(Measure::Link), peers.get(Measure::P99)), (Some(30.0), Some(3.0)));
        let mut time = Joined::NONE;
        assert_eq!(time.point().get(Measure::Link), None);
        for point in [point(10.0, 3.0), Point::MISSING, point(20.0, 2.0)] {
            time.add(&point);
        }
        let mean = time.point();
        assert_eq!((mean.get(Measure::Link), mean.get(Measure::P99)), (Some(15.0), Some(3.0)));
        assert_eq!(mean.get(Measure::Wait), None);
    }
}
