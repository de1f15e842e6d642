//! A capture as the source of a simulation: its packets at their times, with their contents and real codecs.
//!
//! Where a simulated network is the link of a replay, the result is the replay's to the byte; in others the packets
//! go on, meet other traffic, and are lost or delayed.

mod captured;
mod scenario;

use std::collections::BTreeMap;
use std::sync::Arc;

use dwell_base::Instant;
use dwell_policy::{FrameCost, Gather, Job as PortJob, Outcome};
use dwell_sim::plan::Traffic;
use dwell_sim::world::{Content, Contents, Described};

use super::batches::Batches;
use super::compress::Compress;
use super::lane::Arriving;

pub use captured::contents;
pub use scenario::{Beside, Refused, parse, run, run_while};

/// The packets of a capture in order of time, as a flow of a simulation sends them.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    packets: Vec<(u64, Arriving)>,
    /// The longest that a port may hold any of them back, in nanoseconds; without it their classes say so.
    max_wait_ns: Option<u64>,
}

impl Recorded {
    /// Adds a packet; one that is earlier than the one before it counts as simultaneous, as in replays.
    pub fn push(&mut self, at_ns: u64, packet: Arriving) {
        let last_ns = self.packets.last().map_or(0, |&(at_ns, _)| at_ns);
        self.packets.push((at_ns.max(last_ns), packet));
    }

    /// Gives each packet and its time to `take`, in order.
    pub fn for_each(&self, mut take: impl FnMut(u64, &Arriving)) {
        self.packets.iter().for_each(|(at_ns, packet)| take(*at_ns, packet));
    }

    /// Returns them as the traffic of a flow.
    pub fn traffic(&self) -> Traffic {
        let packets = self.packets.iter().map(|(at_ns, p)| (*at_ns, p.bytes.len() as u32));
        Traffic::Trace(packets.collect::<Vec<_>>().into())
    }
}

/// A port that compresses what it is given.
pub struct RealPort {
    /// The index of its link.
    pub link: usize,
    /// The packets that its scheme gathers.
    pub gather: Gather,
    /// The compressor.
    pub compress: Box<dyn Compress>,
    /// True if the headers of a block's packets are rearranged in columns.
    pub columnar: bool,
    /// The contexts of the peer, if long transfers get one each where that gains; zero for a fixed scope.
    pub chosen_contexts: usize,
    /// The longest that packets of each class with a deadline may wait, in nanoseconds.
    pub waits_ns_max: Vec<u64>,
}

/// The contents of captures in a simulation: give it to
/// [`World::with_contents`](dwell_sim::World::with_contents).
#[derive(Default)]
pub struct CaptureContents {
    flows: BTreeMap<usize, Arc<Recorded>>,
    ports: BTreeMap<usize, (Batches, Vec<u64>)>,
}

impl CaptureContents {
    /// Lets a flow, by its index, send these packets.
    #[must_use]
    pub fn with_flow(mut self, flow: usize, recorded: Arc<Recorded>) -> Self {
        self.flows.insert(flow, recorded);
        self
    }

    /// Lets a port compress really.
    #[must_use]
    pub fn with_port(mut self, port: RealPort) -> Self {
        let RealPort { link, gather, compress, columnar, chosen_contexts, waits_ns_max } = port;
        let batches = Batches::new(gather, compress, columnar, chosen_contexts);
        self.ports.insert(link, (batches, waits_ns_max));
        self
    }

    fn packet(flows: &BTreeMap<usize, Arc<Recorded>>, of: Content) -> Option<&Arriving> {
        Some(&flows.get(&of.flow)?.packets.get(of.number)?.1)
    }
}

impl Contents for CaptureContents {
    fn describe(&mut self, now: Instant, link: usize, packet: Content) -> Option<Described> {
        let flow_wait_ns = self.flows.get(&packet.flow)?.max_wait_ns;
        let packet = Self::packet(&self.flows, packet)?;
        let (batches, waits_ns_max) = self.ports.get_mut(&link)?;
        Some(Described {
            source: packet.source,
            destination: packet.destination,
            flow: packet.flow,
            group: batches.group_of(now, packet),
            looks_random: packet.looks_random,
            max_wait_ns: flow_wait_ns.unwrap_or_else(|| Batches::max_wait_ns(packet, waits_ns_max)),
        })
    }

    fn compress(
        &mut self,
        now: Instant,
        link: usize,
        batch: &[Content],
        job: (&PortJob, &FrameCost),
    ) -> Option<(Outcome, u64)> {
        let (batches, _) = self.ports.get_mut(&link)?;
        let packets = batch.iter().map(|&of| Self::packet(&self.flows, of));
        let packets: Vec<&Arriving> = packets.collect::<Option<_>>()?;
        let first = packets.first()?;
        let first = (first.source.min(first.destination), first.flow);
        Some(batches.compress(now, packets.iter().map(|packet| &*packet.bytes), job, first))
    }
}

#[cfg(test)]
mod tests;
