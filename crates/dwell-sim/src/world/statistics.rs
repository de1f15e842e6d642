//! The statistics of a running world.

use crate::outcome::{Bin, GroupOutcome};
use crate::plan::{Plan, Window};

use super::packets::Packet;

/// No delay.
const NONE_NS: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Statistics {
    window: Window,
    counts_only: bool,
    bin_ns: Option<u64>,
    wait_ns_max: Vec<u64>,
    pub(crate) groups: Vec<GroupOutcome>,
    pub(crate) acknowledged: Vec<u64>,
    /// The delay of the packet that arrived last, by flow; [`NONE_NS`] before the first.
    last_delay_ns: Vec<u64>,
    pub(crate) source_packets: u64,
    pub(crate) delivered: u64,
    pub(crate) dropped: u64,
    /// Packets on a known path that arrive after the end: still in flight then.
    pub(crate) ahead_at_end: u64,
}

impl Statistics {
    pub(crate) fn new(plan: &Plan) -> Self {
        let group = |name: &str| GroupOutcome { name: name.to_owned(), ..Default::default() };
        Self {
            window: plan.window,
            counts_only: plan.counts_only,
            bin_ns: plan.bin_ns,
            wait_ns_max: plan.groups.iter().map(|g| g.wait_ns_max).collect(),
            groups: plan.groups.iter().map(|g| group(&g.name)).collect(),
            acknowledged: vec![0; plan.flows.len()],
            last_delay_ns: vec![NONE_NS; plan.flows.len()],
            source_packets: 0,
            delivered: 0,
            dropped: 0,
            ahead_at_end: 0,
        }
    }

    #[inline]
    pub(crate) fn in_window(&self, ns: u64) -> bool {
        ns >= self.window.from_ns && ns < self.window.until_ns
    }

    #[inline]
    pub(crate) fn sent(&mut self, group: usize, sent_ns: u64, bytes: u32) {
        self.source_packets += 1;
        if self.in_window(sent_ns) {
            let group = &mut self.groups[group];
            group.sent += 1;
            group.sent_bytes += u64::from(bytes);
        }
        if let Some(bin) = self.bin(group, sent_ns) {
            bin.sent += 1;
            bin.sent_bytes += u64::from(bytes);
        }
    }

    #[inline]
    pub(crate) fn delivered(&mut self, group: usize, packet: &Packet, at_ns: u64) {
        self.delivered += 1;
        let delay_ns = at_ns - packet.sent_ns;
        if self.in_window(packet.sent_ns) {
            let group = &mut self.groups[group];
            group.delivered += 1;
            group.delivered_bytes += u64::from(packet.original_bytes);
            group.delay.add(delay_ns);
            if !self.counts_only {
                group.delays.record(delay_ns);
                let last = &mut self.last_delay_ns[packet.flow as usize];
                // The first one of a flow changes nothing. How many there were follows at the end.
                let last_ns = if *last == NONE_NS { delay_ns } else { *last };
                *last = delay_ns;
                let change_ns = delay_ns.abs_diff(last_ns);
                group.jitter.sum_ns += change_ns;
                group.jitter.max_ns = group.jitter.max_ns.max(change_ns);
            }
        }
        if let Some(bin) = self.bin(group, packet.sent_ns) {
            bin.delivered += 1;
            bin.delivered_bytes += u64::from(packet.original_bytes);
            bin.delay_sum_ns += delay_ns;
            bin.delay_max_ns = bin.delay_max_ns.max(delay_ns);
        }
    }

    /// Counts what follows from other counts. `group_of` is by flow.
    pub(crate) fn finish(&mut self, group_of: impl Iterator<Item = usize>) {
        if self.counts_only {
            return;
        }
        for group in &mut self.groups {
            group.jitter.count = group.delivered;
        }
        for (group, &last_ns) in group_of.zip(&self.last_delay_ns) {
            self.groups[group].jitter.count -= u64::from(last_ns != NONE_NS);
        }
    }

    pub(crate) fn dropped(&mut self, group: usize, sent_ns: u64) {
        self.dropped += 1;
        if self.in_window(sent_ns) {
            self.groups[group].dropped += 1;
        }
        if let Some(bin) = self.bin(group, sent_ns) {
            bin.dropped += 1;
        }
    }

    /// Counts a packet that waited `wait_ns` in a port.
    #[inline(always)]
    pub(crate) fn waited(&mut self, group: usize, sent_ns: u64, wait_ns: u64) {
        let max_ns = self.wait_ns_max[group];
        if max_ns > 0 && wait_ns > max_ns {
            self.late(group, sent_ns, wait_ns - max_ns);
        }
    }

    fn late(&mut self, group: usize, sent_ns: u64, excess_ns: u64) {
        if self.in_window(sent_ns) {
            let group = &mut self.groups[group];
            group.late += 1;
            group.excess.add(excess_ns);
            group.excesses.record(excess_ns);
        }
        if let Some(bin) = self.bin(group, sent_ns) {
            bin.late += 1;
        }
    }

    /// Counts a transfer that begins.
    pub(crate) fn began(&mut self, group: usize, now_ns: u64) {
        self.groups[group].transfers += u64::from(self.in_window(now_ns));
    }

    /// Counts a transfer whose last packet has arrived; those that began within the window.
    pub(crate) fn completed(&mut self, group: usize, began_ns: u64, now_ns: u64) {
        if self.in_window(began_ns) {
            let group = &mut self.groups[group];
            group.completion.add(now_ns - began_ns);
            group.completions.record(now_ns - began_ns);
        }
    }

    /// Counts `packets` more with their `bytes` on the wire at a connection's receiver, by the time at which the sender
    /// learns of it.
    pub(crate) fn acknowledged(
        &mut self,
        (flow, group): (usize, usize),
        now_ns: u64,
        packets: u64,
        bytes: u64,
    ) {
        if self.in_window(now_ns) {
            self.acknowledged[flow] += packets;
            let group = &mut self.groups[group];
            group.acknowledged += packets;
            group.acknowledged_bytes += bytes;
        }
        if let Some(bin) = self.bin(group, now_ns) {
            bin.acknowledged_bytes += bytes;
        }
    }

    #[inline]
    fn bin(&mut self, group: usize, sent_ns: u64) -> Option<&mut Bin> {
        let bin_ns = self.bin_ns?; // most runs keep no time line
        Some(self.bin_of_width(group, sent_ns, bin_ns))
    }

    fn bin_of_width(&mut self, group: usize, sent_ns: u64, bin_ns: u64) -> &mut Bin {
        let bin = (sent_ns / bin_ns) as usize;
        let bins = &mut self.groups[group].bins;
        if bins.len() <= bin {
            bins.resize(bin + 1, Bin::default());
        }
        &mut bins[bin]
    }
}
