//! The parts of a port that all schemes share: configuration, estimates, accounts, and the frame.

use std::collections::VecDeque;

use dwell_base::Instant;

use crate::account::{Accounts, Bypass, Count, DropReason};
use crate::action::{Action, Frame, FrameUnit, Job, JobId, SendCause};
use crate::backoff::BackOffConfig;
use crate::config::PortConfig;
use crate::cpu_share::CpuShare;
use crate::estimate::{Estimate, Estimates, Learned, Ratio};
use crate::event::{CpuLimit, LinkState, Outcome};
use crate::explore::Explorer;
use crate::packet::{ClassKey, Packet, PacketId};

/// The part of a port that its store works with.
#[derive(Clone, Debug)]
pub(super) struct Common {
    pub(super) config: PortConfig,
    pub(super) learned: Option<Box<Learned>>,
    pub(super) accounts: Accounts,
    pub(super) frame: Frame,
    pub(super) link_idle: bool,
    pub(super) link: LinkState,
    /// Dropped packets that were not reported yet.
    pub(super) dropped: VecDeque<(PacketId, DropReason)>,
    /// What was marked, and not reported yet.
    pub(super) marked: VecDeque<PacketId>,
    /// The packets of the job that is about to begin.
    pub(super) batch: Vec<PacketId>,
    /// Those under way.
    jobs: Vec<Running>,
    spare_batches: Vec<Vec<PacketId>>,
    jobs_begun: u64,
    explorer: Explorer,
    pub(super) cpu_share: CpuShare,
    /// True if the job that is about to begin is exploring, ...
    explores: bool,
    /// ... and if the one that has just ended was.
    ended_explores: bool,
    /// Those of the configuration, sorted.
    exceptions: Vec<ClassKey>,
    back_off: BackOffConfig,
}

/// A job under way.
#[derive(Clone, Debug)]
struct Running {
    id: JobId,
    batch: Vec<PacketId>,
    explores: bool,
    cost_ns: u64,
}

/// The waiting packets, as limits count them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) packets: usize,
    pub(super) bytes: u64,
}

/// A frame that is being filled.
#[derive(Debug)]
pub(super) struct Filling {
    units_bytes: u64,
    closed: bool,
}

/// Returns the share of the time that goes to what is refused, in parts per million.
fn explored_ppm(config: &PortConfig, limit: Option<CpuLimit>) -> u32 {
    let most = limit.map_or(u32::MAX, |limit| limit.explored_ppm);
    match config.estimates {
        Estimates::Fixed(_) => 0,
        Estimates::Learned(learned) => learned.explore_ppm.min(most),
    }
}

impl Common {
    pub(super) fn new() -> Self {
        Self {
            config: PortConfig::default(),
            learned: None,
            accounts: Accounts::default(),
            frame: Frame::default(),
            link_idle: true,
            link: LinkState::default(),
            dropped: VecDeque::new(),
            marked: VecDeque::new(),
            batch: Vec::new(),
            jobs: Vec::new(),
            spare_batches: Vec::new(),
            jobs_begun: 0,
            explorer: Explorer::new(0),
            cpu_share: CpuShare::new(),
            explores: false,
            ended_explores: false,
            exceptions: Vec::new(),
            back_off: BackOffConfig::default(),
        }
    }

    /// Takes a configuration that makes sense.
    pub(super) fn configure(&mut self, config: PortConfig) {
        match (config.estimates, &mut self.learned) {
            (Estimates::Fixed(_), learned) => *learned = None,
            (Estimates::Learned(l), Some(learned)) => learned.set_config(l),
            (Estimates::Learned(l), none) => *none = Some(Box::new(Learned::new(l))),
        }
        self.explorer.set_share_ppm(explored_ppm(&config, self.link.cpu_limit));
        self.exceptions.clone_from(&config.exceptions);
        self.exceptions.sort_unstable();
        self.back_off = config.scheme.method.back_off.unwrap_or_default();
        self.link.rate = config.rate;
        self.config = config;
    }

    /// Compressing may take so much from now on.
    pub(super) fn limit_cpu(&mut self, now: Instant, limit: Option<CpuLimit>) {
        self.cpu_share.limit(now, limit.map(|limit| limit.share_ppm));
        self.explorer.set_share_ppm(explored_ppm(&self.config, limit));
    }

    /// The next report of something that was dropped or marked.
    #[inline]
    pub(super) fn next_drop(&mut self) -> Option<Action> {
        if self.dropped.is_empty() && self.marked.is_empty() {
            return None;
        }
        let dropped = self.dropped.pop_front().map(|(id, reason)| Action::Drop(id, reason));
        dropped.or_else(|| self.marked.pop_front().map(Action::Mark))
    }

    /// Begins the job of compressing the packets of `batch`, of `bytes` in all, which are believed to
    /// compress like those of this flow and class.
    #[inline]
    pub(super) fn begin_job(
        &mut self,
        bytes: u32,
        key: (u64, ClassKey),
        context: Option<u64>,
    ) -> Action {
        let packets = self.batch.len() as u32;
        self.accounts.compress.tried += u64::from(packets);
        let id = JobId(self.jobs_begun);
        self.jobs_begun += 1;
        let spare = self.spare_batches.pop().unwrap_or_default();
        let batch = std::mem::replace(&mut self.batch, spare);
        let explores = std::mem::take(&mut self.explores);
        let cost_ns = self.estimate(key.0, key.1, bytes).cost_ns;
        self.cpu_share.reserve(cost_ns);
        self.jobs.push(Running { id, batch, explores, cost_ns });
        Action::Compress(Job { id, packets, bytes, cost_ns, context, is_urgent: false })
    }

    /// The job came out of the compressor; false if it is not under way.
    #[inline]
    pub(super) fn end_job(&mut self, job: JobId) -> bool {
        let Some(at) = self.jobs.iter().position(|it| it.id == job) else { return false };
        let Running { mut batch, explores, cost_ns, .. } = self.jobs.swap_remove(at);
        self.cpu_share.release(cost_ns);
        batch.clear();
        self.spare_batches.push(batch);
        self.ended_explores = explores;
        true
    }

    /// The jobs under way.
    #[cfg(test)]
    pub(super) fn job_ids(&self) -> impl Iterator<Item = JobId> {
        self.jobs.iter().map(|it| it.id)
    }

    /// The packets of a job under way.
    pub(super) fn batch_of(&self, job: JobId) -> Option<&[PacketId]> {
        self.jobs.iter().find(|it| it.id == job).map(|it| &it.batch[..])
    }

    /// The packets of each job under way.
    pub(super) fn batches(&self) -> impl Iterator<Item = &[PacketId]> {
        self.jobs.iter().map(|it| &it.batch[..])
    }

    /// Returns the reason if a packet of `bytes` finds no room beside the waiting ones.
    pub(super) fn over_limit(&self, waiting: Waiting, bytes: u32) -> Option<DropReason> {
        if waiting.packets == 0 {
            return None;
        }
        let limit = &self.config.limit;
        if waiting.packets + 1 >= limit.packets as usize {
            return Some(DropReason::QueuePackets);
        }
        let after = waiting.bytes + u64::from(bytes);
        (after > limit.bytes.min(self.bytes_in_time(0))).then_some(DropReason::QueueBytes)
    }

    /// The most bytes that may wait by the limit of time, if that is at least so long.
    pub(super) fn bytes_in_time(&self, least_ns: u64) -> u64 {
        let limit = &self.config.limit;
        match self.config.rate {
            Some(rate) if limit.time_ns < u64::MAX => {
                rate.bytes_in_ns(limit.time_ns.max(least_ns)).max(limit.time_floor_bytes)
            }
            _ => u64::MAX,
        }
    }

    /// The round trip of the path, in nanoseconds; zero if it is not known.
    pub(super) fn round_trip_ns(&self) -> u64 {
        self.link.round_trip_ns.min(LinkState::ROUND_TRIP_NS_MAX)
    }

    /// The reasons against compressing that don't depend on what waits.
    pub(super) fn fixed_bypass(&self, packet: &Packet) -> Option<Bypass> {
        if packet.compressed {
            return Some(Bypass::AlreadyCompressed);
        }
        if !self.exceptions.is_empty() {
            let listed = |class| self.exceptions.binary_search(&class).is_ok();
            if listed(packet.source) || listed(packet.destination) {
                return Some(Bypass::Exception);
            }
        }
        (packet.bytes < self.config.compress_bytes_min).then_some(Bypass::TooSmall)
    }

    /// Asks the back-off of a flow whether its next packet may be compressed.
    pub(super) fn may_try(&mut self, flow: u64, class: ClassKey) -> bool {
        match (self.config.scheme.method.back_off, &mut self.learned) {
            (Some(_), Some(learned)) => learned.may_try(flow, class, &self.back_off),
            _ => true,
        }
    }

    /// Returns true if anything that was refused may ever be compressed all the same.
    pub(super) fn may_explore(&self) -> bool {
        self.explorer.is_on()
    }

    /// What was to be explored is not what is chosen next.
    pub(super) fn forget_exploring(&mut self) {
        self.explores = false;
    }

    /// Returns true if what a rule refused is to be compressed all the same, to find out what comes
    /// of it. Then it must be given to the compressor.
    pub(super) fn explore(&mut self, now: Instant, (flow, class): (u64, ClassKey)) -> bool {
        let Some(learned) = &mut self.learned else { return false };
        let is_known = learned.is_known((flow, class), &self.back_off);
        // Its time is not spent before it is over.
        if self.jobs.iter().any(|job| job.explores) {
            return false;
        }
        self.explores = self.explorer.may_explore(now, is_known);
        self.explores
    }

    pub(super) fn estimate(&mut self, flow: u64, class: ClassKey, bytes: u32) -> Estimate {
        match (&mut self.learned, self.config.estimates) {
            (Some(learned), _) => learned.estimate(flow, class, bytes, &self.back_off),
            (None, Estimates::Fixed(estimate)) => estimate,
            (None, Estimates::Learned(_)) => Estimate { ratio: Ratio::ONE, cost_ns: 0 },
        }
    }

    /// Learns the time of a job of `bytes`; returns the part of it that is its bytes'.
    pub(super) fn learn_job(&mut self, bytes: u32, took_ns: u64) -> u64 {
        self.learned.as_mut().map_or(took_ns, |learned| learned.note_job(bytes, took_ns))
    }

    /// Returns the time that each job is believed to take beside its bytes.
    pub(super) fn fixed_ns(&self) -> u64 {
        self.learned.as_ref().map_or(0, |learned| learned.fixed_ns())
    }

    /// Forgets that time: another store does not tell it from that of the bytes.
    pub(super) fn forget_job_time(&mut self) {
        if let Some(learned) = &mut self.learned {
            learned.forget_job_time();
        }
    }

    /// Learns of one packet that compressing took `bytes` to `to_bytes`.
    pub(super) fn learn(
        &mut self,
        (flow, class): (u64, ClassKey),
        (bytes, to_bytes): (u32, u32),
        took_ns: u64,
    ) {
        if let Some(learned) = &mut self.learned {
            learned.record((flow, class), (bytes, to_bytes), took_ns, &self.back_off);
        }
    }

    /// Books a compression result: the bytes of the unit of `packets` packets if it became smaller.
    pub(super) fn book_compress(
        &mut self,
        outcome: Outcome,
        (packets, bytes): (u32, u32),
        took_ns: u64,
    ) -> Option<u32> {
        let gains = |to| self.config.frame.gains(to, (packets, bytes));
        if std::mem::take(&mut self.ended_explores) {
            self.explorer.spend(took_ns);
        }
        self.cpu_share.spend(took_ns);
        if outcome == Outcome::Declined {
            return None;
        }
        let compress = &mut self.accounts.compress;
        compress.compressions += 1;
        compress.took_ns += took_ns;
        match outcome {
            Outcome::Smaller(to_bytes) | Outcome::Committed(to_bytes)
                if gains(to_bytes) || matches!(outcome, Outcome::Committed(_)) =>
            {
                compress.compressed.packets += u64::from(packets);
                compress.compressed.bytes += u64::from(bytes);
                compress.compressed_to_bytes += u64::from(to_bytes);
                Some(to_bytes)
            }
            Outcome::Smaller(_) | Outcome::Committed(_) | Outcome::NotSmaller => {
                compress.not_smaller += u64::from(packets);
                None
            }
            Outcome::Failed => {
                compress.failed += u64::from(packets);
                None
            }
            Outcome::Declined => None,
        }
    }

    /// The key under which results of frames that are compressed as a whole are learned.
    pub(super) const FRAMES: (u64, ClassKey) = (0, ClassKey::new(0, 0));

    /// A packet that was held is dropped.
    pub(super) fn drop_held(&mut self, reason: DropReason, original_bytes: u32) {
        self.accounts.held.remove(original_bytes);
        self.accounts.drop(reason, original_bytes);
    }

    /// A packet that was held goes out with the frame that is being filled.
    pub(super) fn send_held(&mut self, original_bytes: u32) {
        self.accounts.held.remove(original_bytes);
        self.accounts.sent.add(original_bytes);
    }

    /// The same for many packets at once.
    pub(super) fn send_all_held(&mut self, sent: Count) {
        self.accounts.held.remove_all(sent);
        self.accounts.sent.add_all(sent);
    }

    /// The bytes that a unit takes of a frame.
    pub(super) fn unit_bytes(&self, bytes: u32, compressed: bool) -> u64 {
        let frame = &self.config.frame;
        let header = if compressed { frame.compressed_unit_bytes } else { frame.raw_unit_bytes };
        u64::from(bytes) + u64::from(header)
    }

    /// Returns the cost on the link of units of `units_bytes` in all, in as few frames as they
    /// need.
    pub(super) fn backlog_bytes(&self, units_bytes: u64) -> u64 {
        let frame = &self.config.frame;
        if frame.units_bytes_max == 0 || frame.frame_bytes == 0 {
            return units_bytes;
        }
        let frames = units_bytes.div_ceil(u64::from(frame.units_bytes_max));
        units_bytes + frames * u64::from(frame.frame_bytes)
    }

    /// Returns the bytes that a packet with units of `units_bytes` before it has to wait for: W of
    /// Eq. (2) of Shimamura et al.
    pub(super) fn wait_bytes(&self, units_bytes: u64) -> u64 {
        let units_bytes = if self.link.takes_all { 0 } else { units_bytes };
        self.link.ahead_bytes + self.backlog_bytes(units_bytes)
    }

    /// Begins a new frame in the storage of the last one.
    pub(super) fn open_frame(&mut self) -> Filling {
        self.frame.units.clear();
        self.frame.followers.clear();
        Filling { units_bytes: 0, closed: false }
    }

    /// Puts a unit into the frame; its packets are still to be booked by [`Self::send_held`].
    pub(super) fn put(&mut self, unit: FrameUnit) {
        self.frame.units.push(unit);
    }

    /// Puts many units into the frame, likewise.
    pub(super) fn put_all(&mut self, units: impl Iterator<Item = FrameUnit>) {
        self.frame.units.extend(units);
    }

    /// Makes a frame of a single unit, which takes `unit_bytes` of it.
    #[inline]
    pub(super) fn send_alone(&mut self, unit: FrameUnit, unit_bytes: u64) {
        match &mut self.frame.units[..] {
            [last] if self.frame.followers.is_empty() => *last = unit,
            _ => {
                self.open_frame();
                self.frame.units.push(unit);
            }
        }
        self.close_frame(&Filling::of(unit_bytes), SendCause::Ready, 0);
    }

    /// Ends the frame, and returns the bytes of its units.
    #[inline]
    pub(super) fn close_frame(&mut self, filling: &Filling, cause: SendCause, buffer: u8) -> u64 {
        let (frames, bytes) = self.config.frame.cut(filling.units_bytes);
        let frame = &mut self.frame;
        frame.link_bytes = bytes + frames * u64::from(self.config.frame.frame_bytes);
        frame.cause = cause;
        frame.buffer = buffer;
        self.accounts.frames += frames;
        self.accounts.link_bytes += frame.link_bytes;
        self.link_idle = false;
        filling.units_bytes
    }
}

impl Filling {
    /// A frame whose units are known to fit.
    pub(super) fn of(units_bytes: u64) -> Self {
        Self { units_bytes, closed: true }
    }

    /// Takes the room for a unit of `unit_bytes`, if there is room for it. The first unit goes
    /// in whatever its size.
    pub(super) fn admit(&mut self, common: &Common, unit_bytes: u64) -> bool {
        let limits = &common.config.frame;
        let units = common.frame.units.len();
        let fits = self.units_bytes + unit_bytes <= u64::from(limits.units_bytes_max)
            && units < limits.units_max as usize;
        if self.closed || (!fits && units > 0) {
            return false;
        }
        self.units_bytes += unit_bytes;
        self.closed = unit_bytes > u64::from(limits.unit_bytes_named)
            || units + 1 >= limits.units_max as usize;
        true
    }

    /// True if nothing more fits, whatever its size: nobody needs to look for it.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }
}
