//! The processor time that compressing may take, of all peers together.
//!
//! What compresses for one peer compresses for all of them. So each peer may plan with what the others leave, and with
//! at least as large a part as they have. Where the process has a quota, and the processor is what packets wait for, all
//! that a packet costs comes out of it: then compressing is worth what it saves, and costs what then can't be sent.

mod probes;
#[cfg(test)]
mod tests;

use dwell_base::Instant;
use dwell_base::time::{MILLI_NS, SECOND_NS};
use dwell_policy::method::{Budget, CodecPoint, Processor, Slowdown, TrialBudget};
use dwell_policy::{CpuLimit, PortConfig};

use super::Node;
use super::peer::Peer;
use probes::{Planned, Probes};

/// What peers use is measured over at least so long, ...
const WINDOW_NS: u64 = 200 * MILLI_NS;
/// ... and each window counts so much.
const WINDOW_WEIGHT: f64 = 0.4;
/// A peer that takes less of a processor than this is not counted among those that share it.
const LOAD_MIN: f64 = 0.01;
/// In windows with less traffic nothing is learned of what a byte costs.
const BYTES_MIN: f64 = 64_000.0;
/// What a byte of each kind is believed to cost, compared with the others: packets are read and delivered many at once,
/// but each datagram has a time of its own to be sent at.
const WEIGHTS: Bytes<f64> =
    Bytes { read: 1.0, kept: 0.0, departed: 0.0, sent: 4.0, received: 4.0, delivered: 1.0 };
/// Of what a byte costs that goes raw, the part for sending it, as long as that is not known.
const SENT_PART: f64 = 0.8;
/// What it costs, in nanoseconds, before anything was measured.
const RAW_NS: f64 = 6.0;
/// A window in which so many times more came than left, or the reverse, says nothing of what a byte costs: some of them cost what they do in
/// another one.
const STEADY: f64 = 1.25;
/// After so many such windows one counts all the same: there may be no others.
const UNSTEADY_MAX: u32 = 5;
/// While as good as nothing is compressed, what that was seen to cost comes nearer to what it should by all that is known of raw bytes, by
/// this part in each window.
const DOUBT: f64 = 0.05;
/// A window says what bytes of one kind cost if there were so few of the other.
const OTHER_PART_MAX: f64 = 0.1;
/// What was learned of a kind so many windows ago counts for what it is worth then, and no less after longer.
const AGE_MAX: i32 = 3;
/// A window is one of compressed bytes, and says what codecs leave, if so many were.
const COMPRESSED_PART_MIN: f64 = 0.5;
/// The processor is what packets wait for if it was withheld for this part of the time.
const WITHHELD_MIN: f64 = 0.01;
/// What of a quota is planned with: the rest is for what is not counted.
const QUOTA_PART: f64 = 0.95;
/// Of a quota, the part that decoding what models make may take.
const DECODING_PART: f64 = 0.5;
/// A codec is not limited where it would take no more than this part beyond the limit.
const ENOUGH: f64 = 0.95;
/// Some is always compressed, to learn what it costs and leaves: one part in so many of what there is.
const EXPLORED_PART: f64 = CpuLimit::EXPLORED_PART as f64;

/// Trials of codecs take at most one part in so many of the time, which is saved up to so much.
const TRIALS_PART: u64 = 16;
const TRIALS_SAVED_NS_MAX: u64 = SECOND_NS;
/// Where the processor is what packets wait for, less is saved up: a trial is time in which nothing is carried.
const TRIALS_SAVED_SHORT_NS_MAX: u64 = SECOND_NS / 8;
/// There it is found out first what either way costs, in at most so many windows with traffic: all is compressed until one
/// has shown what that costs, and then nothing.
const OPENING_WINDOWS: u32 = 10;
/// Compressing need not be tried again soon if a byte that is compressed takes so many times as long as a raw one.
const CLEARLY: f64 = 2.0;
/// So many are made, or wait, at a time; nobody remembers one of which nothing was heard for so long.
const TRIALS_MAX: usize = 2;
const TRIAL_NS_MAX: u64 = 60 * SECOND_NS;

/// What the process has used of processors, by its driver. Both only ever grow.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuTimes {
    /// The time that its threads ran, in nanoseconds.
    pub used_ns: u64,
    /// The time for which they were kept from it because the quota was used up, in nanoseconds.
    pub withheld_ns: u64,
    /// The number of processors that it may use, if there is a limit: a quarter, say.
    pub quota: Option<f64>,
}

/// Bytes, or what they cost, by what is done with them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Bytes<T> {
    /// Packets from the TUN or other peers.
    read: T,
    /// Those of them that were not dropped, and those that came back to be sent again.
    kept: T,
    /// Packets that were put on links, as they were read; what that costs is counted as `sent`.
    departed: T,
    /// What was put on links.
    sent: T,
    /// What came from them.
    received: T,
    /// Packets for the TUN or other peers.
    delivered: T,
}

/// The sums of a peer since its beginning.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    generation: u64,
    bytes: Bytes<u64>,
    /// What was compressed: before, after, and nanoseconds.
    original: u64,
    left: u64,
    took_ns: u64,
}

/// What was compressed: bytes before and after, and nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Compressed {
    original: f64,
    left: f64,
    took_ns: f64,
}

/// What was measured of a peer lately.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    sums: Sums,
    /// The part of a processor that compressing takes for it.
    processors: f64,
    /// As many threads can compress for it at the same time; one if nothing is known.
    parallel: f64,
    compressed: Compressed,
    /// What its codec costs and leaves, by windows in which most of what came was compressed: a little that is compressed
    /// costs more.
    codec: Option<CodecPoint>,
    /// The windows since that was learned, the present one among them.
    codec_age: i32,
    limit: Option<CpuLimit>,
}

/// What all peers share.
#[derive(Debug)]
pub(super) struct Processors {
    /// The number of threads that compress.
    pub(super) threads: f64,
    pub(super) slowdown: Slowdown,
    looked_at: Instant,
    loads: Vec<Load>,
    /// What the driver has measured at the latest look, if it measures it.
    times: Option<CpuTimes>,
    /// The part of the time for which the processor is withheld, and the number of them that may be had, if they are
    /// limited.
    withheld: f64,
    available: Option<f64>,
    /// What a byte costs that goes raw, and one that is compressed, in nanoseconds of the processor, with all that is done
    /// with it, as far as that is known; and what is left of the available ones beside what comes in.
    raw_ns: Option<f64>,
    compressed_ns: Option<f64>,
    /// The windows since that of either was learned, the present one among them.
    raw_age: i32,
    compressed_age: i32,
    /// There were windows of nothing else.
    has_seen_raw: bool,
    has_seen_compressed: bool,
    /// The windows in which there was traffic, up to [`OPENING_WINDOWS`].
    windows: u32,
    /// The latest ones, one after the other, in which the queue filled up or emptied.
    unsteady: u32,
    /// What the codecs of all peers cost and left in the windows that say what a compressed byte costs.
    codec: Option<CodecPoint>,
    for_sending: f64,
    probes: Probes,
    trials: TrialBudget,
    /// When those began that have not ended.
    trials_began: Vec<Instant>,
    trial_ns: u64,
    /// One was made in the window that is not over.
    has_tried: bool,
}

impl Processors {
    pub(super) fn new() -> Self {
        Self {
            threads: 1.0,
            slowdown: Slowdown::default(),
            looked_at: Instant::ZERO,
            loads: Vec::new(),
            times: None,
            withheld: 0.0,
            available: None,
            raw_ns: None,
            compressed_ns: None,
            raw_age: 0,
            compressed_age: 0,
            has_seen_raw: false,
            has_seen_compressed: false,
            windows: 0,
            unsteady: 0,
            codec: None,
            for_sending: 0.0,
            probes: Probes::new(),
            trials: TrialBudget::new(TRIALS_PART, TRIALS_SAVED_NS_MAX),
            trials_began: Vec::new(),
            trial_ns: 0,
            has_tried: false,
        }
    }

    /// Returns the processor time that compressing may take for a peer.
    pub(super) fn of_peer(&self, now: Instant, index: usize) -> Processor {
        let usual = Processor::default().share;
        let of = |load: &Load| load.processors;
        let own = self.loads.get(index).map_or(0.0, of);
        let others = || self.loads.iter().enumerate().filter(|it| it.0 != index).map(|it| of(it.1));
        let peers = 1.0 + others().filter(|&it| it >= LOAD_MIN).count() as f64;
        let all = usual * self.threads;
        let fair = all / peers;
        let taken: f64 = others().map(|it| it.min(fair)).sum();
        debug_assert!(own >= 0.0, "time goes on");
        // While the quota is used up nobody works: that is no time for which somebody waits for others.
        let slowdown = (self.slowdown.factor(now) * (1.0 - self.withheld)).max(1.0);
        let parallel = self.loads.get(index).map_or(1.0, |load| load.parallel.max(1.0));
        let share = (all - taken).max(fair).min(usual * parallel) / slowdown;
        let budget = self.available.map(|_| {
            let (in_ns, out_ns) = self.costs();
            Budget { processors: (self.for_sending / peers).max(1e-4), in_ns, out_ns }
        });
        Processor { share, budget }
    }

    /// For a peer so many threads can compress at the same time, by the contexts that its packets go through.
    pub(super) fn set_parallel(&mut self, index: usize, threads: f64) {
        if let Some(load) = self.loads.get_mut(index) {
            load.parallel = threads;
        }
    }

    /// Returns the part of a processor that decoding may take for one of so many peers: what one peer sends is decoded
    /// in its order, by one thread at a time.
    fn for_decoding(&self, peers: usize) -> f64 {
        let usual = Processor::default().share;
        let threads = (usual * self.threads).min(self.available.map_or(f64::INFINITY, |all| {
            // The rest of a quota is for all else that a packet costs.
            QUOTA_PART * DECODING_PART * all
        }));
        (threads / peers.max(1) as f64).min(usual)
    }

    /// Returns what a byte costs that comes in, and one that goes out, in nanoseconds: so that a raw byte and a compressed
    /// one cost what was measured, beside the codec.
    fn costs(&self) -> (f64, f64) {
        let raw_ns = match (self.raw_ns, self.compressed_ns, self.codec) {
            (Some(raw_ns), ..) => raw_ns,
            (None, Some(compressed_ns), Some(codec)) => {
                let part = 1.0 - SENT_PART + SENT_PART * codec.ratio;
                (compressed_ns - codec.cost_ns).max(0.0) / part
            }
            _ => RAW_NS,
        };
        let out_ns = match (self.raw_ns, self.compressed_ns, self.codec) {
            (Some(_), Some(compressed_ns), Some(codec)) if codec.ratio < 0.95 => {
                (raw_ns + codec.cost_ns - compressed_ns) / (1.0 - codec.ratio)
            }
            _ => SENT_PART * raw_ns,
        };
        let out_ns = out_ns.clamp(0.0, raw_ns);
        (raw_ns - out_ns, out_ns)
    }

    /// Returns the most time that compressing may take for a peer, if what it brings is not worth more.
    pub(super) fn limit(&self, index: usize) -> Option<CpuLimit> {
        self.loads.get(index)?.limit
    }

    /// Returns true if another trial may begin.
    pub(super) fn may_try(&mut self, now: Instant) -> bool {
        self.forget_lost_trials(now);
        let is_short = self.is_short();
        let saved_ns_max = if is_short { TRIALS_SAVED_SHORT_NS_MAX } else { TRIALS_SAVED_NS_MAX };
        self.trials.limit(now, saved_ns_max);
        // What bytes cost can't be learned meanwhile.
        let may_begin = !self.is_opening() && self.trials_began.len() < TRIALS_MAX;
        may_begin && self.trials.allows(now, self.trial_ns)
    }

    /// Returns true if the processor is what packets wait for.
    fn is_short(&self) -> bool {
        self.available.is_some() && self.withheld >= WITHHELD_MIN
    }

    /// Returns true while it is found out what either way costs, where the processor is what packets wait for.
    fn is_opening(&self) -> bool {
        self.is_short() && !self.are_costs_known() && self.windows < OPENING_WINDOWS
    }

    /// Returns true if there were windows that show what a byte costs, of either kind.
    fn are_costs_known(&self) -> bool {
        self.has_seen_raw && self.has_seen_compressed
    }

    /// Returns true if a compressed byte takes so much longer than a raw one that it need not be tried again soon.
    fn is_raw_cheaper(&self) -> bool {
        let both = self.raw_ns.zip(self.compressed_ns).filter(|_| self.are_costs_known());
        both.is_some_and(|(raw_ns, compressed_ns)| compressed_ns > CLEARLY * raw_ns)
    }

    /// Else nothing would be learned of bytes any more while nothing is compressed, and so nothing asks for another one.
    fn forget_lost_trials(&mut self, now: Instant) {
        self.trials_began.retain(|&at| now.since_ns(at) < TRIAL_NS_MAX);
    }

    pub(super) fn trial_began(&mut self, now: Instant) {
        self.trials_began.push(now);
        self.has_tried = true;
    }

    /// One has ended that took so long of a processor.
    pub(super) fn trial_ended(&mut self, now: Instant, took_ns: u64, processor: Processor) {
        if !self.trials_began.is_empty() {
            self.trials_began.remove(0);
        }
        if took_ns == 0 {
            return; // it was not made
        }
        self.has_tried = true;
        // Where little may be had of a processor, others wait for longer.
        self.trial_ns = (took_ns as f64 * processor.slowdown().max(1.0)) as u64;
        self.trials.spend(now, self.trial_ns);
    }

    /// Looks at what peers have used since the latest look.
    fn look(&mut self, now: Instant, peers: &[Peer], elapsed_ns: u64, times: Option<CpuTimes>) {
        self.loads.resize(peers.len(), Load::default());
        let (mut bytes, mut compressed) = (Bytes::default(), Compressed::default());
        for (load, peer) in self.loads.iter_mut().zip(peers) {
            load.look(peer, elapsed_ns, &mut bytes, &mut compressed);
        }
        let before = std::mem::replace(&mut self.times, times);
        self.forget_lost_trials(now);
        match (before, times) {
            (Some(before), Some(times)) => {
                self.measure((before, times), elapsed_ns, (bytes, compressed));
            }
            // Nothing was measured yet, but a quota is known.
            _ => {
                self.available = times.and_then(|times| times.quota);
                self.for_sending = self.available.map_or(0.0, |available| QUOTA_PART * available);
            }
        }
        self.plan(now, &peers.iter().map(link_to_plan_for).collect::<Vec<_>>());
    }

    /// Finds what is best for each peer now, with links of so many bytes a second, where that is known.
    fn plan(&mut self, now: Instant, links: &[Option<f64>]) {
        let planned = |(index, link): (usize, &Option<f64>)| {
            self.planned(self.of_peer(now, index), index, (*link)?)
        };
        let planned: Vec<_> = links.iter().enumerate().map(planned).collect();
        // Before anything comes there is nothing to try.
        if self.windows > 0 || planned.iter().any(Option::is_some) {
            self.probes.next(planned, self.are_costs_known(), self.is_raw_cheaper());
        }
        for (index, &link) in links.iter().enumerate() {
            let processor = self.of_peer(now, index);
            self.loads[index].limit = link.and_then(|link| self.limit_of(processor, index, link));
        }
    }

    /// Returns what is best for a peer, and by what; none if nothing limits what compressing may take for it, or is known of
    /// that.
    fn planned(&self, processor: Processor, index: usize, link: f64) -> Option<Planned> {
        processor.budget?;
        let codec = self.loads.get(index)?.codec()?;
        let best = processor.carried(link, codec);
        let is_raw = best.compressed * EXPLORED_PART < best.rate;
        Some(Planned { link, ratio: codec.ratio, quota: self.available?, is_raw })
    }

    /// Learns what there is of processors, and what bytes cost.
    fn measure(
        &mut self,
        (before, now): (CpuTimes, CpuTimes),
        elapsed_ns: u64,
        (bytes, compressed): (Bytes<f64>, Compressed),
    ) {
        let used_ns = now.used_ns.saturating_sub(before.used_ns) as f64;
        let (elapsed, used) = (elapsed_ns as f64, used_ns / elapsed_ns as f64);
        let withheld = now.withheld_ns.saturating_sub(before.withheld_ns) as f64 / elapsed;
        self.withheld = mixed(self.withheld, withheld.min(0.99), 1);
        let was_limited = self.available.is_some() && self.for_sending > 0.0;
        // Others may be in the same group: then less is to be had than its quota.
        self.available = match (self.available, now.quota) {
            (before, quota) if withheld >= WITHHELD_MIN => {
                let used = before.map_or(used, |before| mixed(before, used, 1));
                Some(quota.map_or(used, |quota| used.min(quota)))
            }
            (before, Some(quota)) => Some(before.map_or(quota, |before| mixed(before, quota, 1))),
            // Nothing says how much there is, but that it is enough.
            (_, None) => None,
        };
        let Bytes { read, kept, departed, sent, received, delivered } = bytes;
        // With too little to learn from it must come to an end, too.
        if read >= BYTES_MIN || (read > 0.0 && self.is_short()) {
            self.windows = (self.windows + 1).min(OPENING_WINDOWS);
        }
        let incoming = WEIGHTS.received * received + WEIGHTS.delivered * delivered;
        let outgoing = WEIGHTS.read * read + WEIGHTS.sent * sent;
        let rest_ns = (used_ns - compressed.took_ns).max(0.0);
        let incoming_ns = rest_ns * incoming / (incoming + outgoing).max(1.0);
        // What a trial takes is no cost of bytes; and where it has a part of a small quota, it is most of what was used.
        let has_tried = std::mem::replace(&mut self.has_tried, !self.trials_began.is_empty());
        let is_steady = kept.max(departed) <= STEADY * kept.min(departed);
        self.unsteady = if is_steady { 0 } else { self.unsteady.saturating_add(1) };
        let is_steady = is_steady || self.unsteady > UNSTEADY_MAX;
        if read >= BYTES_MIN && is_steady && !has_tried {
            // Most of what a byte costs it costs when it leaves, which may be in another window than that in which it came.
            let passed =
                (WEIGHTS.read * read + WEIGHTS.sent * departed) / (WEIGHTS.read + WEIGHTS.sent);
            self.learn_costs(passed, used_ns - incoming_ns, compressed);
        }
        let incoming = incoming_ns / elapsed;
        let Some(available) = self.available.map(|it| QUOTA_PART * it) else { return };
        let for_sending = (available - incoming).max(available / 8.0);
        self.for_sending =
            if was_limited { mixed(self.for_sending, for_sending, 1) } else { for_sending };
    }

    /// So many bytes were read, some of them compressed, and all that was done with them took so long.
    fn learn_costs(&mut self, read: f64, took_ns: f64, compressed: Compressed) {
        let original = compressed.original.min(read);
        let raw = read - original;
        let age = |windows: i32| (windows + 1).min(AGE_MAX);
        (self.raw_age, self.compressed_age) = (age(self.raw_age), age(self.compressed_age));
        // As long as nothing is known of a kind it costs what all do in the mean.
        let mean_ns = took_ns / read;
        let (raw_ns, compressed_ns) =
            (self.raw_ns.unwrap_or(mean_ns), self.compressed_ns.unwrap_or(mean_ns));
        let codec_ns = compressed.took_ns / original.max(1.0);
        let learned = |before: Option<f64>, now: f64, age: i32| {
            Some(before.map_or(now, |before| mixed(before, now, age))).filter(|it| *it > 0.0)
        };
        if original <= OTHER_PART_MAX * read {
            let now_ns = (took_ns - compressed.took_ns).max(0.0) / raw;
            self.raw_ns = learned(self.raw_ns.filter(|_| self.has_seen_raw), now_ns, self.raw_age);
            self.has_seen_raw = true;
            self.probes.saw(true);
            self.doubt_compressed();
        } else if raw <= OTHER_PART_MAX * read {
            let now_ns = ((took_ns - raw_ns * raw) / original).max(codec_ns);
            let before = self.compressed_ns.filter(|_| self.has_seen_compressed);
            self.compressed_ns = learned(before, now_ns, self.compressed_age);
            self.has_seen_compressed = true;
        } else {
            // What all of it took beyond what was believed is either's, by the share that it has in it (normalized least mean
            // squares): if only one were corrected, the other would be believed for ever.
            let beyond_ns = took_ns - raw_ns * raw - compressed_ns * original;
            let step = WINDOW_WEIGHT * beyond_ns / (raw * raw + original * original);
            self.raw_ns = Some(raw_ns + step * raw).filter(|it| *it > 0.0);
            self.compressed_ns = Some((compressed_ns + step * original).max(codec_ns));
        }
        if original >= COMPRESSED_PART_MIN * read {
            self.codec = mixed_codec(self.codec, compressed.codec(), self.compressed_age);
            self.compressed_age = 0;
            self.probes.saw(false);
        } else {
            self.raw_age = 0;
        }
    }

    /// What compressing costs beside the codec is nearly all in what is sent: one window in which it seemed to cost more must not be believed
    /// for ever. What seemed to cost less is tried, and so corrected.
    fn doubt_compressed(&mut self) {
        let Some((raw_ns, codec)) = self.raw_ns.zip(self.codec) else { return };
        let expected_ns = raw_ns * (1.0 - SENT_PART + SENT_PART * codec.ratio) + codec.cost_ns;
        if let Some(compressed_ns) = self.compressed_ns.as_mut().filter(|it| **it > expected_ns) {
            *compressed_ns += DOUBT * (expected_ns - *compressed_ns);
        }
    }

    /// Returns the most that a peer's codec should take over a link of so many bytes a second, if that is less than it
    /// would.
    fn limit_of(&self, processor: Processor, index: usize, link: f64) -> Option<CpuLimit> {
        let budget = processor.budget?;
        let codec = self.loads.get(index)?.codec()?;
        if self.is_opening() {
            return self.has_seen_compressed.then_some(CpuLimit::NOTHING);
        }
        let best = processor.carried(link, codec);
        let least = budget.processors / EXPLORED_PART;
        let ppm = |share: f64| (share * 1e6).clamp(1.0, 1e6) as u32;
        let limit = |share: f64| CpuLimit { share_ppm: ppm(share), explored_ppm: ppm(least) };
        let is_raw = best.compressed * EXPLORED_PART < best.rate;
        let probes = (is_raw || self.withheld >= WITHHELD_MIN) && self.probes.are_on(is_raw);
        if is_raw && !probes {
            // What contexts cost beside compressing is saved, too, if nothing is in any.
            return Some(CpuLimit::NOTHING);
        }
        // If nothing should go raw, or as much is compressed as there is time for, there needs no limit.
        let enough = Processor { budget: None, ..processor }.carried(link, codec);
        if best.compressed >= ENOUGH * enough.compressed.min(best.rate) {
            return probes.then(|| limit(least));
        }
        // While the processor is withheld nothing is earned.
        let share = best.compressed * codec.cost_ns / 1e9 / (1.0 - self.withheld);
        let share = share.max(least);
        (!probes).then(|| limit(share))
    }
}

impl Load {
    /// Adds what it has done since the latest look to the others'.
    fn look(
        &mut self,
        peer: &Peer,
        elapsed_ns: u64,
        bytes: &mut Bytes<f64>,
        compressed: &mut Compressed,
    ) {
        let sums = Sums::of(peer);
        let before = std::mem::replace(&mut self.sums, sums);
        if before.generation != sums.generation {
            *self = Self { sums, ..Self::default() };
            return;
        }
        let more = |is: u64, was: u64| is.saturating_sub(was) as f64;
        bytes.read += more(sums.bytes.read, before.bytes.read);
        bytes.kept += more(sums.bytes.kept, before.bytes.kept);
        bytes.departed += more(sums.bytes.departed, before.bytes.departed);
        bytes.sent += more(sums.bytes.sent, before.bytes.sent);
        bytes.received += more(sums.bytes.received, before.bytes.received);
        bytes.delivered += more(sums.bytes.delivered, before.bytes.delivered);
        let lately = Compressed {
            original: more(sums.original, before.original),
            left: more(sums.left, before.left),
            took_ns: more(sums.took_ns, before.took_ns),
        };
        compressed.add(lately, 1.0);
        self.processors = mixed(self.processors, lately.took_ns / elapsed_ns as f64, 1);
        if lately.original > 0.0 {
            self.compressed.add(lately, 1.0 - WINDOW_WEIGHT);
        }
        let read = more(sums.bytes.read, before.bytes.read);
        self.codec_age = (self.codec_age + 1).min(AGE_MAX);
        if read >= BYTES_MIN && lately.original >= COMPRESSED_PART_MIN * read {
            self.codec = mixed_codec(self.codec, lately.codec(), self.codec_age);
            self.codec_age = 0;
        }
    }

    /// What compressing costs and leaves of what this peer is sent, as far as that is known.
    fn codec(&self) -> Option<CodecPoint> {
        self.codec.or_else(|| self.compressed.codec())
    }
}

impl Compressed {
    /// Adds others, after as much of these was forgotten.
    fn add(&mut self, others: Self, kept: f64) {
        self.original = kept * self.original + others.original;
        self.left = kept * self.left + others.left;
        self.took_ns = kept * self.took_ns + others.took_ns;
    }

    /// Returns what compressing costs and leaves; none if that is not known.
    fn codec(&self) -> Option<CodecPoint> {
        let is_known = self.original >= 1_000.0 && self.took_ns > 0.0;
        is_known.then(|| CodecPoint::new(self.took_ns / self.original, self.left / self.original))
    }
}

impl Sums {
    fn of(peer: &Peer) -> Self {
        let accounts = peer.port.accounts();
        let bytes = Bytes {
            read: accounts.arrived.bytes,
            kept: (accounts.arrived.bytes + accounts.put_back.bytes)
                .saturating_sub(accounts.dropped_total().bytes),
            // What comes back because it was lost costs sending twice.
            departed: accounts.sent.bytes,
            sent: accounts.link_bytes + peer.extra.split_bytes,
            received: peer.rx.bytes,
            delivered: peer.rx.packets.bytes,
        };
        let compress = &accounts.compress;
        Self {
            generation: peer.generation,
            bytes,
            original: compress.compressed.bytes,
            left: compress.compressed_to_bytes,
            took_ns: compress.took_ns,
        }
    }
}

/// The same of the link that it is compressed for, which may only be assumed: what is compressed for that must fit a quota, too.
fn link_to_plan_for(peer: &Peer) -> Option<f64> {
    peer.pacer.rate_to_compress_for().map(|rate| rate.as_bps() as f64 / 8.0)
}

/// The bytes a second of the link to a peer, if its rate is known.
fn link_of(peer: &Peer) -> Option<f64> {
    peer.pacer.lasting_rate().map(|rate| rate.as_bps() as f64 / 8.0)
}

/// Returns the mean of what was known so many windows ago and what was measured in the present one.
fn mixed(before: f64, now: f64, windows: i32) -> f64 {
    now + (1.0 - WINDOW_WEIGHT).powi(windows) * (before - now)
}

fn mixed_codec(
    before: Option<CodecPoint>,
    now: Option<CodecPoint>,
    windows: i32,
) -> Option<CodecPoint> {
    let (Some(old), Some(new)) = (before, now) else { return now.or(before) };
    let mixed = |old: f64, new: f64| mixed(old, new, windows);
    Some(CodecPoint::new(mixed(old.cost_ns, new.cost_ns), mixed(old.ratio, new.ratio)))
}

impl Peer {
    /// So many batches for it are compressed at the same time at most.
    pub(super) fn set_jobs_max(&mut self, jobs_max: usize) {
        let jobs_max = u8::try_from(jobs_max).unwrap_or(u8::MAX);
        let done = self.port.configure(PortConfig { jobs_max, ..self.port.config().clone() });
        debug_assert!(done.is_ok(), "{done:?}");
    }
}

impl Node {
    /// Compressing is done by so many threads.
    pub fn set_threads(&mut self, threads: usize) {
        self.processors.threads = threads.max(1) as f64;
        self.peers.iter_mut().for_each(|peer| peer.set_jobs_max(threads));
    }

    /// Returns the rate of packets at which there is time to decode what models of a peer make, in bits per second.
    pub(super) fn model_bps(&self, index: usize) -> u64 {
        let has_models = |peer: &Peer| !peer.removed && peer.contexts.incoming.has_models();
        let others = self.peers.iter().enumerate().filter(|it| it.0 != index);
        let peers = 1 + others.filter(|it| has_models(it.1)).count();
        let speed = self.peers[index].contexts.incoming.model_speed();
        // Zero would say nothing.
        (8.0 * speed * self.processors.for_decoding(peers)).max(1.0) as u64
    }

    /// Returns true if it is time for [`Self::look_at_processors`].
    pub fn is_look_due(&self, now: Instant) -> bool {
        now.since_ns(self.processors.looked_at) >= WINDOW_NS
    }

    /// Looks at what peers have used of processors, and the whole process, if its driver knows that. A driver that is
    /// never asked to wait for processors need not call it.
    pub fn look_at_processors(&mut self, now: Instant, times: Option<CpuTimes>) {
        let elapsed_ns = now.since_ns(self.processors.looked_at);
        if elapsed_ns >= WINDOW_NS {
            self.processors.looked_at = now;
            self.processors.look(now, &self.peers, elapsed_ns, times);
            for (index, peer) in self.peers.iter_mut().enumerate() {
                peer.leaves_raw = self.processors.limit(index) == Some(CpuLimit::NOTHING);
                let processor = self.processors.of_peer(now, index);
                peer.contexts.outgoing.quota = self.processors.available;
                peer.contexts.flows.set_link(link_of(peer).map(|link| (link, processor)));
            }
        }
    }
}
