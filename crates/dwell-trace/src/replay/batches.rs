//! Which packets are compressed together, and compressing them: what a replay and a simulation of the same
//! capture have in common.

use dwell_base::Instant;
use dwell_drive::{FlowHistories, Passed, gather};
use dwell_policy::{FrameCost, Gather, Job as PortJob, Outcome, Packet};

use super::compress::{Compress, Job};
use super::lane::Arriving;
use crate::contexts::WINDOW_LOG;

/// What a context takes, with its ring, its window and tables of medium size.
const CONTEXT_BYTES: usize = 6 << WINDOW_LOG;
/// The name of the codec, of which a replay has one.
const CODEC: u64 = 0;

/// The compressor of a port, and the groups of its packets.
pub(super) struct Batches {
    gather: Gather,
    /// Which flows refer to themselves alone, as in relays.
    flows: FlowHistories,
    compress: Box<dyn Compress>,
    columnar: bool,
    block: Vec<u8>,
}

impl Batches {
    pub(super) fn new(
        gather: Gather,
        compress: Box<dyn Compress>,
        columnar: bool,
        chosen_contexts: usize,
    ) -> Self {
        let flows = FlowHistories::new(chosen_contexts);
        Self { gather, flows, compress, columnar, block: Vec::new() }
    }

    /// Returns the key of the packets that an arriving one may be compressed with.
    pub(super) fn group_of(&mut self, now: Instant, packet: &Arriving) -> u64 {
        match self.gather {
            Gather::Service => packet.service,
            Gather::HostPair if !packet.looks_random => {
                let bytes = packet.bytes.len() as u32;
                self.flows.group_of(now, packet.hosts, packet.flow, bytes)
            }
            Gather::HostPair => packet.hosts,
            Gather::Edge => 0, // the link leads to one peer
            _ => packet.flow,
        }
    }

    /// Returns the longest that a port may hold a packet back, in nanoseconds, by its class.
    pub(super) fn max_wait_ns(packet: &Arriving, waits_ns_max: &[u64]) -> u64 {
        let class = packet.class.and_then(|class| waits_ns_max.get(usize::from(class)));
        class.copied().unwrap_or(Packet::NEVER_HELD)
    }

    /// A packet of the flow went raw for want of time.
    pub(super) fn passed_raw(&mut self, flow: u64, bytes: u32) {
        self.flows.passed_raw(flow, u64::from(bytes));
    }

    /// Compresses a batch; returns the outcome and the time taken, in nanoseconds. `first` has service and flow of its
    /// first packet.
    pub(super) fn compress<'p>(
        &mut self,
        now: Instant,
        packets: impl Iterator<Item = &'p [u8]> + Clone,
        (job, frame): (&PortJob, &FrameCost),
        (class, flow): (dwell_policy::ClassKey, u64),
    ) -> (Outcome, u64) {
        gather(packets, self.columnar && job.packets > 1, &mut self.block);
        // One byte less than the packets, with a header: a result that doesn't fit is not smaller.
        let header = frame.compressed_unit_bytes.saturating_sub(frame.raw_unit_bytes) as usize;
        let room = self.block.len().saturating_sub(header + 1);
        let compressed =
            self.compress.compress(Job { class, bytes: &self.block, room, context: job.context });
        let gains = |len: usize| frame.gains(len as u32, (job.packets, job.bytes));
        let outcome = match compressed.len {
            Ok(Some(len)) if compressed.in_context => {
                let group = job.context.unwrap_or_default();
                let passed = Passed {
                    codec: CODEC,
                    from_bytes: u64::from(job.bytes),
                    to_bytes: len as u64,
                    took_ns: compressed.took_ns,
                };
                self.flows.compressed(now, (group, flow), passed, CONTEXT_BYTES);
                Outcome::Committed(len as u32)
            }
            Ok(Some(len)) if gains(len) => Outcome::Smaller(len as u32),
            Ok(_) => Outcome::NotSmaller,
            Err(_) => Outcome::Failed,
        };
        (outcome, compressed.took_ns)
    }
}
