//! The world of a node in virtual time, with a processor where compressing takes as long as is assumed of each codec.
//!
//! It does one job after another, as a relay's worker does them, on a processor of which only a share may be had; with all
//! of it to be had there may be several such workers, with a processor each. Short
//! ones are done at once, as by the relay's own thread, whose time is not modelled. Trials of codecs are done beside, as
//! by a thread of low priority that has as large a share. So a seed gives the same run everywhere. Costs may vary by
//! chance, as those that are measured do, and decoding takes time then, too.

use std::collections::VecDeque;
use std::net::SocketAddr;

use dwell_base::{Instant, Rng};
use dwell_codec::{CodecSpec, Compressor};
use dwell_relay::node::{
    CodecTrial, CompressJob, Compression, ContextJob, CpuTimes, DecodeJob, Destination, Env, Node,
    NodeEvent,
};

/// What is expected to take no longer is done at once, in nanoseconds.
const AT_ONCE_NS: u64 = 150_000;
/// Where costs vary, one takes from so much of what is assumed to so much more, ...
const VARIES: (f64, f64) = (0.7, 0.7);
/// ... and one of so many so many times as long: something else ran meanwhile, or nothing was in the caches.
const STALLED_PART: f64 = 1.0 / 64.0;
const STALLED_TIMES: f64 = 6.0;
/// What a datagram costs, or a packet from or to the network of the site, in nanoseconds.
const PACKET_NS: u64 = 6_000;
/// A model decodes in this part of the time that is set aside for it.
const DECODED_PART: f64 = 80.0 / 256.0;

/// What compresses for a node, and tries codecs.
#[derive(Debug)]
pub(crate) struct Processor {
    /// The part of its time that may be had: at most 1.
    share: f64,
    /// Costs vary by this chance, if they do.
    chance: Option<Rng>,
    /// When each worker has done what it was given.
    free_at: Vec<Instant>,
    /// What is being done, and when it is done.
    jobs: VecDeque<(Instant, ContextJob)>,
    trials: VecDeque<(Instant, CodecTrial)>,
    /// What there was to do since it was looked at last, or is left of before, in nanoseconds.
    due_ns: u64,
    looked_at: Instant,
    times: CpuTimes,
}

impl Processor {
    pub(crate) fn new(share: f64) -> Self {
        let (jobs, trials) = (VecDeque::new(), VecDeque::new());
        let (free_at, looked_at) = (vec![Instant::ZERO], Instant::ZERO);
        let times = CpuTimes::default();
        Self { share, chance: None, free_at, jobs, trials, due_ns: 0, looked_at, times }
    }

    fn elapsed_ns(&self, cpu_ns: u64) -> u64 {
        (cpu_ns as f64 / self.share) as u64
    }

    /// From now on so much of its time may be had.
    #[allow(dead_code, reason = "not every example changes it")]
    pub(crate) fn set_share(&mut self, share: f64) {
        self.share = share;
    }

    /// So many workers.
    #[allow(dead_code, reason = "not every example has several")]
    pub(crate) fn set_threads(&mut self, threads: usize) {
        self.free_at.resize(threads.max(1), Instant::ZERO);
    }

    /// How many processors there are at a time.
    fn processors(&self) -> usize {
        if self.share < 1.0 { 1 } else { self.free_at.len() }
    }

    /// From now on costs vary.
    #[allow(dead_code, reason = "not every example has them vary")]
    pub(crate) fn vary(&mut self, chance: Rng) {
        self.chance = Some(chance);
    }

    /// Returns the time that something takes which is assumed to take so long.
    fn varied(&mut self, ns: u64) -> u64 {
        let Some(chance) = &mut self.chance else { return ns };
        let times = VARIES.0 + VARIES.1 * chance.unit();
        let stalled = if chance.chance(STALLED_PART) { STALLED_TIMES } else { 1.0 };
        (ns as f64 * times * stalled) as u64
    }

    /// A packet came from somewhere or went there.
    pub(crate) fn moved_packet(&mut self) {
        self.due_ns += self.varied(PACKET_NS);
    }

    /// Returns what was used until now, and withheld, as a control group says: its share is a quota.
    #[allow(dead_code, reason = "not every example has its node look at it")]
    pub(crate) fn times(&mut self, now: Instant) -> CpuTimes {
        let elapsed_ns = now.since_ns(std::mem::replace(&mut self.looked_at, now));
        let allowed_ns = (elapsed_ns as f64 * self.share * self.processors() as f64) as u64;
        let used_ns = self.due_ns.min(allowed_ns);
        if self.due_ns > allowed_ns {
            self.times.withheld_ns += elapsed_ns.saturating_sub(allowed_ns);
        }
        // What was late for long is not done at all.
        self.due_ns = (self.due_ns - used_ns).min(allowed_ns);
        self.times.used_ns += used_ns;
        self.times.quota = (self.share < 1.0).then_some(self.share);
        self.times
    }

    /// Decodes at once. Where costs don't vary it takes no time.
    pub(crate) fn decode(&mut self, mut job: Box<DecodeJob>) -> Box<DecodeJob> {
        job.run();
        if self.chance.is_some() {
            let cost_ns = (job.cost_ns as f64 * DECODED_PART) as u64;
            let took_ns = self.varied(cost_ns);
            self.due_ns += took_ns;
            job.took_ns = self.elapsed_ns(took_ns);
        }
        job
    }

    /// Does a short batch at once.
    pub(crate) fn compress_at_once(&mut self, mut job: ContextJob) -> ContextJob {
        job.run_in_no_time();
        job.took_ns = self.varied(job.took_ns);
        self.due_ns += job.took_ns;
        job.elapsed_ns = Some(self.elapsed_ns(job.took_ns));
        job
    }

    /// Begins with a batch as soon as those before it are done.
    pub(crate) fn compress(&mut self, now: Instant, mut job: ContextJob) {
        job.run_in_no_time();
        job.took_ns = self.varied(job.took_ns);
        self.due_ns += job.took_ns;
        let elapsed_ns = self.elapsed_ns(job.took_ns);
        job.elapsed_ns = Some(elapsed_ns);
        let processors = self.processors();
        let workers = self.free_at[..processors].iter_mut();
        let Some(free_at) = workers.min() else { return };
        *free_at = (*free_at).max(now) + elapsed_ns;
        self.jobs.push_back((*free_at, job));
    }

    /// Begins with a trial.
    pub(crate) fn try_codecs(&mut self, now: Instant, mut trial: CodecTrial) {
        trial.run_in_no_time();
        self.due_ns += trial.took_ns();
        let done_at = now + self.elapsed_ns(trial.took_ns());
        self.trials.push_back((done_at, trial));
    }

    /// Returns when something is done.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let jobs = self.jobs.iter().map(|it| it.0);
        self.trials.iter().map(|it| it.0).chain(jobs).min()
    }

    /// Returns a batch that is compressed by now.
    pub(crate) fn compressed(&mut self, now: Instant) -> Option<ContextJob> {
        let first = (0..self.jobs.len()).min_by_key(|&at| self.jobs[at].0)?;
        let is_done = self.jobs[first].0 <= now;
        is_done.then(|| self.jobs.remove(first)).flatten().map(|it| it.1)
    }

    /// Returns a trial that has ended by now.
    pub(crate) fn tried(&mut self, now: Instant) -> Option<CodecTrial> {
        let at = self.trials.iter().position(|it| it.0 <= now)?;
        self.trials.remove(at).map(|it| it.1)
    }
}

/// The environment of a node: vectors, and a processor.
pub(crate) struct World {
    pub(crate) now: Instant,
    /// One for each codec that was asked for.
    compressors: Vec<(CodecSpec, Compressor)>,
    /// What compresses in contexts.
    pub(crate) processor: Processor,
    room: Vec<u8>,
    /// Datagrams, and where to if not to the peer.
    pub(crate) sent: Vec<(Option<SocketAddr>, Vec<u8>)>,
    pub(crate) delivered: Vec<Vec<u8>>,
}

impl World {
    /// With a processor of which so much may be had.
    pub(crate) fn new(share: f64) -> Self {
        Self {
            now: Instant::ZERO,
            compressors: Vec::new(),
            processor: Processor::new(share),
            room: vec![0; 65_536],
            sent: Vec::new(),
            delivered: Vec::new(),
        }
    }

    /// Gives the node what is compressed, and what was tried.
    pub(crate) fn hand_over(&mut self, node: &mut Node) {
        while let Some(job) = self.processor.compressed(self.now) {
            node.compressed_in_context(self.now, job);
        }
        while let Some(trial) = self.processor.tried(self.now) {
            node.tried(self.now, &trial);
        }
    }
}

impl Env for World {
    fn now(&self) -> Instant {
        self.now
    }

    fn unix_ns(&self) -> u64 {
        self.now.as_ns()
    }

    fn compress(&mut self, job: CompressJob<'_>) -> Compression {
        // A modelled cost, so that a seed gives the same run everywhere: 5 ns a byte.
        let took_ns = 5 * job.packet.len() as u64;
        if !self.compressors.iter().any(|(codec, _)| *codec == job.codec) {
            let Ok(compressor) = Compressor::new(job.codec, None) else {
                return Compression::Failed;
            };
            self.compressors.push((job.codec, compressor));
        }
        let mut all = self.compressors.iter_mut();
        let Some((_, compressor)) = all.find(|(codec, _)| *codec == job.codec) else {
            return Compression::Failed;
        };
        match compressor.compress(job.packet, job.out) {
            Ok(len) => Compression::Done { len, took_ns },
            Err(_) => Compression::Failed,
        }
    }

    fn compress_in_context(&mut self, job: ContextJob) -> Option<ContextJob> {
        if job.cost_ns <= AT_ONCE_NS && !job.primes() {
            return Some(self.processor.compress_at_once(job));
        }
        self.processor.compress(self.now, job);
        None
    }

    fn decode_in_context(&mut self, job: Box<DecodeJob>) -> Option<Box<DecodeJob>> {
        Some(self.processor.decode(job))
    }

    fn try_codecs(&mut self, trial: CodecTrial) -> Option<CodecTrial> {
        self.processor.try_codecs(self.now, trial);
        None
    }

    fn datagram(&mut self, _: usize) -> &mut [u8] {
        &mut self.room
    }

    fn commit(&mut self, _: usize, len: usize, _: u64) -> bool {
        self.processor.moved_packet();
        self.sent.push((None, self.room[..len].to_vec()));
        true
    }

    fn hello(&mut self, to: Destination, datagram: &[u8]) {
        let address = match to {
            Destination::Peer(_) => None,
            Destination::Address(address) => Some(address),
        };
        self.sent.push((address, datagram.to_vec()));
    }

    fn deliver(&mut self, packet: &[u8]) {
        self.processor.moved_packet();
        self.delivered.push(packet.to_vec());
    }

    fn event(&mut self, _: NodeEvent) {}
}
