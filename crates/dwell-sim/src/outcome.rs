//! The results of a run.

use std::collections::BTreeMap;

use dwell_policy::{Accounts, SendCause};

use crate::distribution::Distribution;

/// The results of a run. Everything but [`PortOutcome::accounts`] is about the window only.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Results by group of flows.
    pub groups: Vec<GroupOutcome>,
    /// Results by link with a port.
    pub ports: Vec<PortOutcome>,
    /// Results by link with a managed queue, losses, a rate that varies, or that is observed.
    pub links: Vec<LinkOutcome>,
    /// Packets acknowledged within the window, by flow; zero but for TCP.
    pub acknowledged: Vec<u64>,
    /// Length of the window, in nanoseconds.
    pub window_ns: u64,
    /// Packets that sources sent during the whole run.
    pub source_packets: u64,
    /// Events of the whole run.
    pub events: u64,
}

/// Packets of one group that were sent within the window.
#[derive(Clone, Debug, Default)]
pub struct GroupOutcome {
    /// Its name.
    pub name: String,
    /// Packets sent by the sources.
    pub sent: u64,
    /// Bytes sent by the sources.
    pub sent_bytes: u64,
    /// Packets that arrived.
    pub delivered: u64,
    /// Bytes that arrived.
    pub delivered_bytes: u64,
    /// Packets that were dropped.
    pub dropped: u64,
    /// Time from the source's first bit to the receiver's last.
    pub delay: Tally,
    /// `delay` as a distribution.
    pub delays: Distribution,
    /// The difference between the delays of a packet and the one of its flow that arrived before it.
    pub jitter: Changes,
    /// Packets that waited longer in a port than is acceptable.
    pub late: u64,
    /// The time by which each waited longer, in nanoseconds.
    pub excess: Tally,
    /// `excess` as a distribution.
    pub excesses: Distribution,
    /// Transfers of a finite size that began.
    pub transfers: u64,
    /// The time from the beginning of each of them to the arrival of its last byte.
    pub completion: Tally,
    /// `completion` as a distribution.
    pub completions: Distribution,
    /// Packets acknowledged; zero but for TCP.
    pub acknowledged: u64,
    /// Bytes on the wire of what was acknowledged.
    pub acknowledged_bytes: u64,
    /// The time line, from the beginning of the run.
    pub bins: Vec<Bin>,
}

/// One bin of a time line, by time of sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bin {
    /// Packets sent.
    pub sent: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Packets that arrived.
    pub delivered: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes that arrived.
    pub delivered_bytes: u64,
    /// Bytes on the wire of what was acknowledged, by the time of that.
    pub acknowledged_bytes: u64,
    /// Packets that waited too long.
    pub late: u64,
    /// Sum of the delays.
    pub delay_sum_ns: u64,
    /// The largest delay.
    pub delay_max_ns: u64,
}

/// One bin of the time line of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkBin {
    /// The number of waiting packets, integrated, in packet nanoseconds.
    pub waiting_area: u64,
    /// Bytes whose transmission began.
    pub sent_bytes: u64,
    /// Packets that the queue dropped.
    pub dropped: u64,
}

/// Count, sum, minimum and maximum of nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// The number of values.
    pub count: u64,
    /// Their sum.
    pub sum_ns: u64,
    /// The minimum; `u64::MAX` if there is none.
    pub min_ns: u64,
    /// The maximum.
    pub max_ns: u64,
}

impl Default for Tally {
    fn default() -> Self {
        Self { count: 0, sum_ns: 0, min_ns: u64::MAX, max_ns: 0 }
    }
}

impl Tally {
    /// Adds a value.
    pub fn add(&mut self, ns: u64) {
        self.count += 1;
        self.sum_ns += ns;
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// The mean in seconds, if there is one.
    pub fn mean_s(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64 / 1e9)
    }
}

/// Count, sum and maximum of nanoseconds by which something changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The number of changes.
    pub count: u64,
    /// Their sum, in either direction.
    pub sum_ns: u64,
    /// The greatest.
    pub max_ns: u64,
}

impl Changes {
    /// Returns their mean in seconds, if there are any.
    pub fn mean_s(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64 / 1e9)
    }
}

/// The results of a link that has statistics of its own. What happened within the window counts.
#[derive(Clone, Debug, Default)]
pub struct LinkOutcome {
    /// Its name.
    pub name: String,
    /// True if the queue is counted, too: all but [`Self::lost`].
    pub has_queue: bool,
    /// True if the link may lose packets.
    pub has_losses: bool,
    /// Packets that arrived at the queue.
    pub arrived: u64,
    /// Packets whose transmission began.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Packets that the queue dropped.
    pub dropped: u64,
    /// Packets that the queue marked.
    pub marked: u64,
    /// Packets that were lost behind the queue.
    pub lost: u64,
    /// The time from arrival to the beginning of the transmission, of those that were sent.
    pub wait: Tally,
    /// `wait` as a distribution.
    pub waits: Distribution,
    /// The number of waiting packets, integrated over the window, in packet nanoseconds.
    pub waiting_area: u128,
    /// Most packets waiting.
    pub waiting_max: u64,
    /// The time line, from the beginning of the run.
    pub bins: Vec<LinkBin>,
}

impl LinkOutcome {
    /// Counts a packet whose transmission begins.
    pub(crate) fn sent(&mut self, waited_ns: u64, bytes: u32, is_marked: bool) {
        self.sent += 1;
        self.sent_bytes += u64::from(bytes);
        self.marked += u64::from(is_marked);
        self.wait.add(waited_ns);
        self.waits.record(waited_ns);
    }

    fn metrics(&self, window_ns: u64, out: &mut BTreeMap<String, f64>) {
        let mut put = |key: &str, value: f64| {
            out.insert(format!("{}.{key}", self.name), value);
        };
        if self.has_losses {
            put("lost", self.lost as f64);
        }
        if !self.has_queue {
            return;
        }
        put("queue_arrived", self.arrived as f64);
        put("queue_sent", self.sent as f64);
        put("queue_dropped", self.dropped as f64);
        put("queue_marked", self.marked as f64);
        put("rate_bps", self.sent_bytes as f64 * 8e9 / window_ns as f64);
        put("queue_mean", self.waiting_area as f64 / window_ns as f64);
        put("queue_max", self.waiting_max as f64);
        if let Some(mean) = self.wait.mean_s() {
            put("wait_mean_s", mean);
            put("wait_max_s", self.wait.max_ns as f64 / 1e9);
            for (name, quantile) in QUANTILES {
                put(
                    &format!("wait_{name}_s"),
                    self.waits.quantile_ns(quantile, &self.wait) as f64 / 1e9,
                );
            }
        }
    }
}

/// The results of one port.
#[derive(Clone, Debug, Default)]
pub struct PortOutcome {
    /// The link's name.
    pub name: String,
    /// Packets that arrived within the window, by group.
    pub arrived: Vec<u64>,
    /// Of these, packets that the port itself compressed, by group.
    pub compressed: Vec<u64>,
    /// Of these, packets that it dropped, by group.
    pub dropped: Vec<u64>,
    /// Units compressed within the window, by when compressing ended.
    pub compressions: u64,
    /// Units that were lost further on and came back within the window.
    pub returned: u64,
    /// Frames sent within the window, by buffer and cause.
    pub frames: Vec<FrameCount>,
    /// The number of waiting packets, integrated over the window, in packet nanoseconds.
    pub waiting_area: u64,
    /// Most packets waiting within the window.
    pub waiting_max: u64,
    /// The time line, from the beginning of the run.
    pub bins: Vec<LinkBin>,
    /// The port's own accounts, of the whole run.
    pub accounts: Accounts,
}

/// Frames of one buffer that were sent for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameCount {
    /// The buffer.
    pub buffer: u8,
    /// The reason.
    pub cause: SendCause,
    /// The number of frames.
    pub frames: u64,
    /// Their bytes on the link.
    pub bytes: u64,
    /// Their packets.
    pub packets: u64,
}

impl PortOutcome {
    /// Counts a frame.
    pub(crate) fn count_frame(&mut self, buffer: u8, cause: SendCause, bytes: u64, packets: u64) {
        let known = self.frames.iter().position(|f| f.buffer == buffer && f.cause == cause);
        let at = known.unwrap_or_else(|| {
            self.frames.push(FrameCount { buffer, cause, frames: 0, bytes: 0, packets: 0 });
            self.frames.len() - 1
        });
        let count = &mut self.frames[at];
        count.frames += 1;
        count.bytes += bytes;
        count.packets += packets;
    }

    /// Returns frames, bytes and packets of all frames that `wanted` selects.
    pub fn frames_where(&self, wanted: impl Fn(&FrameCount) -> bool) -> (u64, u64, u64) {
        self.frames
            .iter()
            .filter(|f| wanted(f))
            .fold((0, 0, 0), |sum, f| (sum.0 + f.frames, sum.1 + f.bytes, sum.2 + f.packets))
    }
}

impl Outcome {
    /// Returns all single numbers, by name. Numbers without a value (the mean of nothing) are left
    /// out.
    ///
    /// For a group G: `G.sent`, `G.delivered`, `G.dropped`, `G.discard` (dropped / sent),
    /// `G.delay_mean_s`, `G.delay_min_s`, `G.delay_max_s`, `G.delay_p50_s`, `G.delay_p90_s`, `G.delay_p99_s`,
    /// `G.delay_p999_s`, `G.jitter_mean_s`, `G.jitter_max_s`, `G.goodput_bps`, `G.late`,
    /// `G.late_share` (late / delivered), `G.excess_mean_s`, `G.excess_max_s`; for TCP
    /// `G.throughput_bps` (by acknowledged packets' bytes on the wire).
    ///
    /// For a port on link L: `L.compressions`, `L.returned`, `L.compressed_share` and
    /// `L.compressed.G`, `L.arrived.G` (packets), `L.compressed_share.G`, `L.queue_mean`,
    /// `L.queue_max`, `L.frames`, `L.frame_bytes_mean`, `L.rate_bps` (bytes on the link),
    /// `L.frames_per_s`; for chunks `L.timer_share` and by buffer `L.timer_share.B`,
    /// `L.frame_bytes_mean.B`.
    ///
    /// And `throughput_bps`, `compressions`, `returned` (sums), `jain` (fairness of the flows'
    /// acknowledged packets).
    pub fn metrics(&self) -> BTreeMap<String, f64> {
        let mut out = BTreeMap::new();
        let seconds = self.window_ns as f64 / 1e9;
        for group in &self.groups {
            group.metrics(seconds, &mut out);
        }
        for link in &self.links {
            link.metrics(self.window_ns, &mut out);
        }
        for port in &self.ports {
            self.port_metrics(port, seconds, &mut out);
        }
        let sum = |f: fn(&PortOutcome) -> u64| self.ports.iter().map(f).sum::<u64>() as f64;
        out.insert("compressions".into(), sum(|p| p.compressions));
        out.insert("returned".into(), sum(|p| p.returned));
        let acknowledged: u64 = self.groups.iter().map(|g| g.acknowledged_bytes).sum();
        if acknowledged > 0 {
            out.insert("throughput_bps".into(), acknowledged as f64 * 8.0 / seconds);
            out.insert("jain".into(), jain(&self.acknowledged));
        }
        out
    }

    fn port_metrics(&self, port: &PortOutcome, seconds: f64, out: &mut BTreeMap<String, f64>) {
        let name = &port.name;
        let mut put = |key: &str, value: f64| {
            out.insert(format!("{name}.{key}"), value);
        };
        put("compressions", port.compressions as f64);
        put("returned", port.returned as f64);
        let share = |part: u64, of: u64| (of > 0).then(|| part as f64 / of as f64);
        let sum = |counts: &[u64]| counts.iter().sum::<u64>();
        if let Some(compressed) = share(sum(&port.compressed), sum(&port.arrived)) {
            put("compressed_share", compressed);
        }
        for (group, (&compressed, &arrived)) in
            self.groups.iter().zip(port.compressed.iter().zip(&port.arrived))
        {
            put(&format!("compressed.{}", group.name), compressed as f64);
            put(&format!("arrived.{}", group.name), arrived as f64);
            if let Some(compressed) = share(compressed, arrived) {
                put(&format!("compressed_share.{}", group.name), compressed);
            }
        }
        put("queue_mean", port.waiting_area as f64 / self.window_ns as f64);
        put("queue_max", port.waiting_max as f64);
        let (frames, bytes, _) = port.frames_where(|_| true);
        put("frames", frames as f64);
        put("frames_per_s", frames as f64 / seconds);
        put("rate_bps", bytes as f64 * 8.0 / seconds);
        if let Some(mean) = share(bytes, frames) {
            put("frame_bytes_mean", mean);
        }
        let timed = |f: &FrameCount| f.cause == SendCause::Timer;
        let chunks = port.frames.iter().any(|f| f.cause != SendCause::Ready);
        if !chunks {
            return;
        }
        if let Some(by_timer) = share(port.frames_where(timed).0, frames) {
            put("timer_share", by_timer);
        }
        let buffers: std::collections::BTreeSet<u8> =
            port.frames.iter().map(|f| f.buffer).collect();
        for buffer in buffers {
            let (frames, bytes, packets) = port.frames_where(|f| f.buffer == buffer);
            let by_timer = port.frames_where(|f| f.buffer == buffer && timed(f)).0;
            put(&format!("timer_share.{buffer}"), by_timer as f64 / frames as f64);
            put(&format!("frame_bytes_mean.{buffer}"), bytes as f64 / frames as f64);
            put(&format!("frame_packets_mean.{buffer}"), packets as f64 / frames as f64);
        }
    }
}

/// The quantiles of times among the numbers.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)];

impl GroupOutcome {
    fn metrics(&self, seconds: f64, out: &mut BTreeMap<String, f64>) {
        let mut put = |key: &str, value: f64| {
            out.insert(format!("{}.{key}", self.name), value);
        };
        put("sent", self.sent as f64);
        put("delivered", self.delivered as f64);
        put("dropped", self.dropped as f64);
        put("late", self.late as f64);
        if self.sent > 0 {
            put("discard", self.dropped as f64 / self.sent as f64);
        }
        put("offered_bps", self.sent_bytes as f64 * 8.0 / seconds);
        put("goodput_bps", self.delivered_bytes as f64 * 8.0 / seconds);
        if let Some(mean) = self.delay.mean_s() {
            put("delay_mean_s", mean);
            put("delay_min_s", self.delay.min_ns as f64 / 1e9);
            put("delay_max_s", self.delay.max_ns as f64 / 1e9);
            for (name, quantile) in QUANTILES {
                put(
                    &format!("delay_{name}_s"),
                    self.delays.quantile_ns(quantile, &self.delay) as f64 / 1e9,
                );
            }
            put("late_share", self.late as f64 / self.delivered as f64);
        }
        if let Some(mean) = self.jitter.mean_s() {
            put("jitter_mean_s", mean);
            put("jitter_max_s", self.jitter.max_ns as f64 / 1e9);
        }
        if self.transfers > 0 {
            put("transfers", self.transfers as f64);
            put("completed", self.completion.count as f64);
        }
        if let Some(mean) = self.completion.mean_s() {
            put("completion_mean_s", mean);
            put("completion_max_s", self.completion.max_ns as f64 / 1e9);
            for (name, quantile) in QUANTILES {
                let ns = self.completions.quantile_ns(quantile, &self.completion);
                put(&format!("completion_{name}_s"), ns as f64 / 1e9);
            }
        }
        if let Some(mean) = self.excess.mean_s() {
            put("excess_mean_s", mean);
        }
        put("excess_max_s", self.excess.max_ns as f64 / 1e9);
        if self.acknowledged > 0 {
            put("acknowledged", self.acknowledged as f64);
            put("throughput_bps", self.acknowledged_bytes as f64 * 8.0 / seconds);
        }
    }
}

/// Jain's index of fairness: 1 if all are equal, 1/n if one has everything.
fn jain(values: &[u64]) -> f64 {
    let sum: f64 = values.iter().map(|&v| v as f64).sum();
    let squares: f64 = values.iter().map(|&v| (v as f64).powi(2)).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (values.len() as f64 * squares) }
}
