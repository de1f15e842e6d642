//! Compares ns-2's records with a run of the same network here, packet by packet.

use dwell_base::time::SECOND_NS;
use thiserror::Error;

use super::parking::Parking;
use super::records::{Fate, Record};
use dwell_sim::outcome::Bin;
use dwell_sim::plan::{PlanError, Traffic};
use dwell_sim::source::Source;
use dwell_sim::world::World;

/// The difference between one flow's packets here and in ns-2.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FlowComparison {
    /// Packets that ns-2 sent.
    pub packets: u64,
    /// Packets that were sent here.
    pub packets_here: u64,
    /// Packets that ns-2 dropped.
    pub dropped: u64,
    /// Packets that were dropped here.
    pub dropped_here: u64,
    /// Packets that were dropped in one and arrived in the other.
    pub fates_differ: u64,
    /// The largest difference of a packet's time of sending.
    pub sent_apart_ns_max: f64,
    /// The largest difference of a packet's delay, among those that arrived in both.
    pub delay_apart_ns_max: f64,
    /// The number of delays that differ by more than [`ROUNDING_NS`], of packets sent before the
    /// first one whose fate differs.
    pub delays_differ: u64,
    /// The same for packets sent after it: a queue that never empties keeps the one packet that it
    /// has more or less.
    pub delays_differ_after: u64,
}

/// Times here are whole nanoseconds, ns-2's are not: the time of sending of a packet, its wait and
/// the waits before it are each rounded down.
pub const ROUNDING_NS: f64 = 3.0;

/// A reason why there is nothing to compare.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CompareError {
    /// The records are of another network.
    #[error("the records have {found} flows, the network has {expected}")]
    Flows {
        /// The number of flows in the records.
        found: usize,
        /// The number of flows in the network.
        expected: usize,
    },
    /// The network can't be simulated.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// Runs `parking` with ns-2's streams of `seed` and compares it with `records`, for each flow.
///
/// # Errors
/// If the records have another number of flows than the network, or it can't be simulated.
pub fn compare(
    parking: &Parking,
    seed: u64,
    records: &[Vec<Record>],
) -> Result<Vec<FlowComparison>, CompareError> {
    if records.len() != parking.flows() {
        return Err(CompareError::Flows { found: records.len(), expected: parking.flows() });
    }
    let mut plan = parking.plan();
    // At the peak rate packets are further apart than a bin is wide: none holds two of a flow.
    let bin_ns = bin_ns(parking);
    plan.bin_ns = Some(bin_ns);
    let outcome = World::new(&plan, seed)?.run();
    let pairs: Vec<Pairs<'_>> = (0..parking.flows())
        .map(|flow| Pairs {
            bins: &outcome.groups[flow].bins,
            bin_ns,
            sent: sent_ns(parking, flow, seed),
            records: &records[flow],
        })
        .collect();
    let first_ns = pairs.iter().flat_map(Pairs::fates_differ_ns).fold(f64::INFINITY, f64::min);
    Ok(pairs.iter().map(|pairs| pairs.compare(first_ns)).collect())
}

fn bin_ns(parking: &Parking) -> u64 {
    let traffic = parking.traffic(0);
    u64::from(traffic.packet_bytes) * 8 * SECOND_NS / traffic.rate.as_bps()
}

/// Returns the times at which the source of `flow` sends.
fn sent_ns(parking: &Parking, flow: usize, seed: u64) -> Vec<u64> {
    let traffic = Traffic::OnOff(parking.traffic(flow));
    let mut source = Source::new(&traffic, seed, flow as u64);
    std::iter::from_fn(|| source.as_mut().and_then(Source::next_packet))
        .map(|(at_ns, _)| at_ns)
        .take_while(|&at_ns| at_ns < parking.until_ns)
        .collect()
}

/// A flow's packets, here and there.
struct Pairs<'a> {
    bins: &'a [Bin],
    bin_ns: u64,
    sent: Vec<u64>,
    records: &'a [Record],
}

impl Pairs<'_> {
    /// Returns for each packet the time of sending here, its fate here, and its record in ns-2.
    fn iter(&self) -> impl Iterator<Item = (u64, Bin, &Record)> {
        self.sent.iter().zip(self.records).map(|(&sent_ns, record)| {
            let bin = self.bins.get((sent_ns / self.bin_ns) as usize);
            (sent_ns, bin.copied().unwrap_or_default(), record)
        })
    }

    /// Returns the times of sending of the packets whose fates differ.
    fn fates_differ_ns(&self) -> impl Iterator<Item = f64> {
        self.iter().filter(|(_, here, there)| fates_differ(here, there)).map(|(.., r)| r.sent_ns)
    }

    fn compare(&self, first_ns: f64) -> FlowComparison {
        let mut result = FlowComparison {
            packets: self.records.len() as u64,
            packets_here: self.sent.len() as u64,
            ..FlowComparison::default()
        };
        for (sent_ns, here, there) in self.iter() {
            result.add(sent_ns, here, there, there.sent_ns > first_ns);
        }
        result
    }
}

fn fates_differ(here: &Bin, there: &Record) -> bool {
    match there.fate {
        Fate::Received { .. } => here.delivered != 1,
        Fate::Dropped { .. } => here.dropped != 1,
    }
}

impl FlowComparison {
    fn add(&mut self, sent_ns: u64, here: Bin, there: &Record, after: bool) {
        let apart = (sent_ns as f64 - there.sent_ns).abs();
        self.sent_apart_ns_max = self.sent_apart_ns_max.max(apart);
        self.dropped_here += here.dropped;
        self.dropped += u64::from(matches!(there.fate, Fate::Dropped { .. }));
        if fates_differ(&here, there) {
            self.fates_differ += 1;
        } else if let Fate::Received { at_ns } = there.fate {
            let apart = (here.delay_sum_ns as f64 - (at_ns - there.sent_ns)).abs();
            self.delay_apart_ns_max = self.delay_apart_ns_max.max(apart);
            let differs = u64::from(apart > ROUNDING_NS);
            if after {
                self.delays_differ_after += differs;
            } else {
                self.delays_differ += differs;
            }
        }
    }

    /// Returns true if every packet was sent, dropped and delayed as in ns-2.
    pub fn is_equal(&self) -> bool {
        self.is_near(0.0) && self.delays_differ_after == 0
    }

    /// Returns true if the packets are the same, and at most `share_max` of them fare differently.
    /// Delays that only follow from another packet's fate do not count.
    pub fn is_near(&self, share_max: f64) -> bool {
        let differ = self.fates_differ + self.delays_differ;
        self.packets == self.packets_here && differ as f64 <= share_max * self.packets as f64
    }
}
