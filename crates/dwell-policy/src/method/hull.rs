//! Mixing on the hull: the codecs and shares that carry most, by the linear programme of [`Bound`]
//! with the measured values.

mod aside;
mod change;
mod interruptions;

use dwell_base::Instant;

use crate::rate::{LinkRate, LinkReport};

use super::balance::Balance;
use super::bound::{Bound, CodecPoint};
use super::codecs::{Choice, CodecEstimate, CodecEstimates, Measured, Prior};
use super::filled::Filled;
use super::learned::Learned;
use super::restoring::Restoring;
use super::running::Running;
use super::short::ShortRatios;
use super::write_cost::WriteCost;
use aside::Aside;
pub use aside::TriedAside;
use interruptions::Slowdown;

/// The cost of each byte besides compressing and writing: copies, the check sum. In nanoseconds.
const OVERHEAD_NS: f64 = 0.4;
/// One block in this many is compressed with a neighbour of the best codec, to measure it.
const EXPLORE_EVERY: u32 = 24;
/// Codecs that were never measured, or not for STALE_AFTER blocks, are tried more often: for one
/// block in EXPLORE_STALE_EVERY; unless they are expected to take this many times longer than the
/// best, or to leave this many times more.
const STALE_AFTER: u32 = 1000;
const EXPLORE_STALE_EVERY: u32 = 8;
const STALE_COST_MAX: f64 = 1.5;
const STALE_RATIO_MAX: f64 = 1.2;
/// After this many blocks that were not compressed, one is, to measure the time.
const CURIOUS_AFTER: u32 = 200;
/// A neighbour that costs more than this many times the best codec is not explored.
const EXPLORE_COST_MAX: f64 = 6.0;
/// The rate at which past counts are forgotten, so that shares follow changes.
const FORGET: f64 = 0.95;
/// The share below which raw blocks are not part of the plan.
const RAW_SHARE_MIN: f64 = 0.005;
/// The share of blocks that refer to others from which on sent blocks are kept as history, and the
/// number of blocks for which they still are after a plan with less.
const REFERRING_SHARE_MIN: f64 = 0.05;
const KEPT_FOR: u32 = 64;
/// If the link would become idle otherwise, this many times more blocks than planned may be sent
/// uncompressed; no more, as the transport holds more than is assumed: in flight and in queues
/// below it.
const RAW_EXCESS: f64 = 1.5;
/// To save bytes, each byte of the link is worth the time of this many: what leaves less is used although it takes longer,
/// up to so many times as long as what carries most.
const BYTES_PRICE: f64 = 4.0;
/// A link of which nothing is known yet is taken to carry so much then, in bytes a second: a block that goes as it is can't be
/// taken back.
const UNKNOWN_RATE: f64 = 5e6;
/// What is planned leaves as little as possible if it is no more than so many times that.
const LEAST_PART: f64 = 1.01;
/// The codec of a running context is chosen for a link that is taken to be no slower than so many times what was measured: until one was used,
/// nothing is known of what it takes, and whether the processor idles with the one that is used says nothing of others.
const RUNNING_CORRECTION_MIN: f64 = 0.9;
/// Shorter blocks say nothing of longer ones, and the other way round: their ratio is learned apart. In
/// bytes.
pub(super) const SHORT_LEN: usize = 1000;
/// Blocks shorter than this are not compressed to arrive sooner, in bytes.
const SOONER_LEN_MIN: usize = 64;
/// What a short block costs besides its bytes, in nanoseconds: calls, locks, a hand-over.
const SHORT_NS: f64 = 10_000.0;
/// What the other end takes to restore a block, relative to compressing it, and the most of it, in nanoseconds a byte: lz4 and
/// the levels of zstd up to 3 take .12 to .42 (2, 10 and 64 KiB of prose, SQL and JSON), heavier ones no longer than these.
const RESTORING: f64 = 0.3;
const RESTORING_NS_MAX: f64 = 2.0;
/// A message may be so much of a round trip later than with the codec that is soonest, if it leaves less: a byte of the link is worth the
/// time of so many then, as others may wait for it.
const LATER_PART: f64 = 1.0 / 64.0;
const LATER_PRICE: f64 = 3.0;
/// On an idle link another codec is tried only if the block is not expected to arrive this many times
/// later than with the best.
const EXPLORE_LATER_MAX: f64 = 1.25;

/// True if a message is about as soon there with the codec at this place as with the planned one.
type Soon<'a, C> = &'a dyn Fn(&Hull<C>, usize) -> bool;

/// The steering of hull mixing.
#[derive(Clone, Debug)]
pub(super) struct Hull<C> {
    estimates: CodecEstimates<C>,
    /// True if bytes are to be saved, and not time.
    pub(super) saves_bytes: bool,
    /// The number of blocks compressed with each codec, and of those sent uncompressed; old ones
    /// count less.
    counts: Vec<f64>,
    raw_count: f64,
    shares: Shares,
    /// The codec of the running context.
    running: Running,
    aside: Aside<C>,
    pub(super) balance: Balance,
    slowdown: Slowdown,
    restoring: Restoring,
    filled: Filled,
    short: ShortRatios,
    /// The number of further blocks that are kept so that later blocks can refer to them.
    keeps_history_for: u32,
    since_explored: u32,
    /// How much later a message may be if it leaves less, in nanoseconds.
    later_ns: f64,
    /// The blocks since a stale codec was tried, and the place in the list of the last one.
    since_stale: u32,
    stale_at: usize,
    explore_heavier: bool,
    /// True if the probes of an incompressible stream try the cheapest codec next, or false for
    /// another.
    probe_cheapest: bool,
    /// The latest block that was given a codec had nothing behind it.
    is_message: bool,
    /// The latest block that was let go uncompressed has nothing behind it, and a rate of its own to expect.
    is_alone: bool,
}

/// A block that could be sent uncompressed.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// The length in bytes.
    pub len: usize,
    /// The length of what it could refer to, in bytes.
    pub history_len: usize,
    /// True if it is as long as a block may be.
    pub is_full: bool,
    /// True if the application has more than there is room for.
    pub more: bool,
}

/// A block that is to be compressed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    /// The length in bytes.
    pub(super) len: usize,
    /// The length of what it could refer to, in bytes.
    pub(super) history_len: usize,
    /// True if its bytes are about equally frequent.
    pub(super) looks_random: bool,
    /// True if the application has more than there is room for.
    pub(super) more: bool,
    /// True if this is the trial after others have failed.
    pub(super) probing: bool,
    /// True if the link has enough to do.
    pub(super) busy: bool,
}

#[derive(Clone, Debug)]
struct Shares {
    raw: f64,
    codecs: Vec<f64>,
}

impl<C: Copy + PartialEq> Hull<C> {
    /// Makes the steering for these codecs. Without any, nothing is ever compressed.
    pub(super) fn new(priors: &[Prior<C>]) -> Self {
        let estimates = CodecEstimates::new(priors);
        let len = estimates.all().len();
        let mut first = vec![0.0; len];
        if let Some(cheapest) = first.first_mut() {
            *cheapest = 1.0;
        }
        Self {
            estimates,
            saves_bytes: false,
            counts: vec![0.0; len],
            raw_count: 0.0,
            shares: Shares { raw: 1.0, codecs: first },
            running: Running::default(),
            aside: Aside::default(),
            balance: Balance::new(),
            slowdown: Slowdown::default(),
            restoring: Restoring::new(),
            filled: Filled::default(),
            short: ShortRatios::new(),
            keeps_history_for: 0,
            since_explored: 0,
            later_ns: 0.0,
            since_stale: 0,
            stale_at: 0,
            explore_heavier: true,
            probe_cheapest: true,
            is_alone: false,
            is_message: false,
        }
    }

    /// Saves bytes from now on, and not time: everything is compressed, on an idle link, too.
    pub(super) fn save_bytes(&mut self) {
        self.saves_bytes = true;
        self.shares.raw = 0.0;
    }

    /// Returns what blocks have shown, if any have.
    pub(super) fn learned(&self) -> Option<Learned<C>> {
        let (estimates, short) = (&self.estimates, self.short);
        estimates.is_measured().then(|| Learned { estimates: estimates.clone(), short })
    }

    /// Takes over what those of another stream have shown, if it has the same codecs.
    pub(super) fn learn(&mut self, learned: &Learned<C>) {
        if self.estimates.is_like(&learned.estimates) {
            (self.estimates, self.short) = (learned.estimates.clone(), learned.short);
        }
    }

    /// Returns the rate by which is decided about a block with more behind it or without, in bytes a second: that of the link, if it is
    /// known; a lower one to save bytes.
    fn rate_for(&self, link: &LinkRate, more: bool) -> Option<f64> {
        match (self.saves_bytes, more) {
            (true, _) => Some(link.rate().unwrap_or(UNKNOWN_RATE) / BYTES_PRICE),
            (false, true) => link.rate(),
            (false, false) => link.alone_rate(),
        }
    }

    /// Returns true if what is planned leaves as little as anything that is possible now.
    pub(super) fn leaves_least(&self) -> bool {
        let ratio = |at: usize| self.estimates.all()[at].point().ratio;
        let least = self.usable().map(ratio).fold(1.0, f64::min);
        let codecs = self.shares.codecs.iter().enumerate();
        let planned = codecs.map(|(at, share)| share * ratio(at)).sum::<f64>() + self.shares.raw;
        planned <= LEAST_PART * least
    }

    /// Returns the planned share of blocks that are sent uncompressed.
    pub(super) fn raw_share(&self) -> f64 {
        self.shares.raw
    }

    /// Returns true if later blocks are to refer to the blocks that are sent now.
    pub(super) fn keeps_history(&self) -> bool {
        self.keeps_history_for > 0
    }

    /// Notes that a block was sent uncompressed: as planned, or because the link would have become
    /// idle.
    pub(super) fn went_raw(&mut self) {
        self.forget_counts();
        self.raw_count += 1.0;
        let is_alone = std::mem::take(&mut self.is_alone);
        self.short.went_raw();
        if self.shares.raw <= RAW_SHARE_MIN && !is_alone {
            self.balance.link_idle();
        }
    }

    /// Returns true if a block that could be compressed may be sent uncompressed.
    ///
    /// While the application has more than there is room for, throughput counts: if that is part of
    /// the plan, and fewer were sent so than planned, or not many more and the link would become
    /// idle while a block is compressed. Otherwise, or if nothing is planned to go uncompressed, the
    /// block's own time counts: if the link would finish it sooner than its compressed form with any
    /// codec.
    pub(super) fn lets_raw_go(&self, now: Instant, offer: Offer, link: &LinkRate) -> bool {
        let drain_ns = link.drain_ns(now);
        let mixed = self.shares.raw > RAW_SHARE_MIN;
        let alone = !offer.more || (drain_ns == 0.0 && !offer.is_full);
        let Some(rate) = self.rate_for(link, !alone) else { return true };
        if alone && offer.len < SOONER_LEN_MIN && drain_ns == 0.0 {
            return true;
        }
        if self.saves_bytes {
            return false;
        }
        let slowdown = self.slowdown.factor();
        let work =
            |codec: &CodecEstimate<C>| codec.work_ns(offer.len, offer.history_len) * slowdown;
        if mixed && !alone {
            let planned = self.estimates.all().iter().zip(&self.shares.codecs);
            let mut planned = planned.filter(|(_, share)| **share > 0.0);
            let in_time = planned.any(|(codec, _)| work(codec) <= drain_ns);
            let share = if in_time { self.shares.raw } else { RAW_EXCESS * self.shares.raw };
            return self.wants_raw(share);
        }
        let len = offer.len as f64;
        let raw_ns = len / rate * 1e9;
        let done = |codec| match offer.len < SHORT_LEN && alone {
            true => (work(codec) + SHORT_NS - drain_ns).max(0.0) + self.short.any * raw_ns,
            false => done_ns(codec, work(codec), len, drain_ns, rate),
        };
        // While more is behind it, the other end restores it meanwhile.
        let restoring = |codec: &CodecEstimate<C>| match offer.more {
            true => 0.0,
            false => self.restoring_ns(codec, (offer.len, offer.history_len)),
        };
        let done = |codec| done(codec) + restoring(codec);
        self.usable().all(|at| done(&self.estimates.all()[at]) > raw_ns)
    }

    /// Notes that a block with nothing behind it goes as it is because it is sooner so.
    pub(super) fn goes_alone(&mut self, link: &LinkRate) {
        self.is_alone = has_own_rate(link);
        self.slowdown.passed_by();
    }

    /// Returns the places of the codecs that a block may have now: of those that go on with a running context only
    /// the one that it has.
    fn usable(&self) -> impl Iterator<Item = usize> {
        let all = self.estimates.all().iter().enumerate();
        all.filter(|(at, codec)| self.is_usable(*at, codec)).map(|(at, _)| at)
    }

    /// The cheapest that a block may be given to; none if there are only models, and the context has none.
    fn cheapest(&self) -> Option<usize> {
        self.usable().next()
    }

    fn is_usable(&self, at: usize, codec: &CodecEstimate<C>) -> bool {
        !codec.continues || self.running.at() == Some(at)
    }

    /// Returns the codec for a block. If the plan is to compress nothing, or nothing planned is
    /// done in time: none while the link is busy, the cheapest otherwise.
    pub(super) fn codec(
        &mut self,
        now: Instant,
        (link, writing): (&LinkRate, WriteCost),
        block: Block,
    ) -> Option<Choice<C>> {
        self.filled.at(now, link.measured_rate().is_some());
        self.is_message = !block.more;
        match block.more || !has_own_rate(link) {
            true => self.plan(link, writing),
            false => self.plan_for(self.rate_for(link, false), 1.0, writing),
        }
        let choice = |hull: &Self, at: usize| Some(hull.estimates.all().get(at)?.choice);
        // What looks random is tried, as it may be otherwise, but not for long while the link idles.
        if block.looks_random && !block.more && link.drain_ns(now) == 0.0 {
            return choice(self, self.cheapest()?);
        }
        if block.probing {
            let middle = self.usable().count() / 2;
            let at = if self.probe_cheapest { self.cheapest() } else { self.usable().nth(middle) }?;
            self.probe_cheapest = !self.probe_cheapest;
            return choice(self, at);
        }
        self.since_explored += 1;
        self.since_stale += 1;
        let planned = self.most_behind().and_then(|at| self.in_time(at, now, link, block));
        let Some(planned) = planned else {
            self.slowdown.passed_by();
            let curious = self.since_explored > CURIOUS_AFTER;
            if curious {
                self.since_explored = 0;
            }
            if block.busy && !curious {
                return None;
            }
            self.forget_counts();
            let at = if block.more { self.cheapest() } else { self.soonest(now, link, block) }?;
            self.keeps_for(at, block);
            self.counts.iter_mut().skip(at).take(1).for_each(|count| *count += 1.0);
            return choice(self, at);
        };
        // A message that is short shows nothing of a codec.
        let other = match block.len < SHORT_LEN && !block.more {
            true => None,
            false => {
                let as_soon = |hull: &Self, at| hull.may_try(at, planned, now, link, block);
                let as_soon: Soon<'_, C> = &as_soon;
                self.stale(planned, (!block.more).then_some(as_soon))
                    .or_else(|| self.neighbour(planned))
            }
        };
        let at = other.filter(|&at| self.may_try(at, planned, now, link, block)).unwrap_or(planned);
        if at == planned {
            self.forget_counts();
            self.counts[at] += 1.0;
        }
        self.keeps_for(at, block);
        choice(self, at)
    }

    /// Has blocks kept to which the next messages can refer, if that would be worth its time for this one. The plan is for what fills a
    /// link, and says nothing of it.
    fn keeps_for(&mut self, at: usize, block: Block) {
        let rereads = |codec: &CodecEstimate<C>| codec.choice.refers && !codec.continues;
        if !block.more && self.estimates.all().get(at).is_some_and(rereads) {
            self.keeps_history_for = KEPT_FOR;
        }
    }

    /// Returns this codec, or a cheaper one, or none. If the plan has raw blocks, the link is worth
    /// so much that it must not become idle while a block is compressed.
    ///
    /// Otherwise a cheaper one is used if the link would finish the block sooner with it.
    fn in_time(
        &self,
        planned: usize,
        now: Instant,
        link: &LinkRate,
        block: Block,
    ) -> Option<usize> {
        // Nobody waits for a few milliseconds where bytes are to be saved, nor at the beginning of much.
        let begins = block.more && link.is_presumed();
        if self.saves_bytes || begins || self.rate_for(link, block.more).is_none() {
            return Some(planned);
        }
        let (drain_ns, all) = (link.drain_ns(now), self.estimates.all());
        let work = |at: usize| self.work_ns(at, block);
        // One that costs more than planned would take the time of other blocks, if there are any.
        let no_dearer = self
            .usable_for(block)
            .filter(|&at| !block.more || all[at].cost_ns <= all[planned].cost_ns);
        if self.shares.raw <= RAW_SHARE_MIN {
            if work(planned) <= drain_ns {
                return Some(planned);
            }
            if !block.more {
                return self.soonest(now, link, block);
            }
            let done = |at: &usize| self.done_ns(*at, now, link, block);
            return no_dearer.min_by(|a, b| done(a).total_cmp(&done(b)));
        }
        let ratio = |at: &usize| all[*at].point().ratio;
        no_dearer.filter(|&at| work(at) <= drain_ns).min_by(|a, b| ratio(a).total_cmp(&ratio(b)))
    }

    /// Returns the codec with which the link finishes a block first; or one that leaves less, where that is hardly later beside the
    /// round trip that it takes anyway.
    fn soonest(&self, now: Instant, link: &LinkRate, block: Block) -> Option<usize> {
        let done = |at: &usize| self.done_ns(*at, now, link, block);
        let first = self.usable_for(block).min_by(|a, b| done(a).total_cmp(&done(b)))?;
        let latest_ns = done(&first) + self.later_ns;
        let rate = self.rate_for(link, block.more).unwrap_or(f64::INFINITY);
        let costs = |at: &usize| {
            let left = self.estimates.all()[*at].point().ratio * block.len as f64;
            done(at) + (LATER_PRICE - 1.0) * left / rate * 1e9
        };
        let hardly_later = self.usable_for(block).filter(|at| done(at) <= latest_ns);
        hardly_later.min_by(|a, b| costs(a).total_cmp(&costs(b))).or(Some(first))
    }

    /// Returns the same as `usable`; for a message that is short and may refer to others either the codecs that do so or those that
    /// don't, as what longer ones leave says nothing of which leaves less.
    fn usable_for(&self, block: Block) -> impl Iterator<Item = usize> {
        let all = self.estimates.all();
        let may_refer = block.len < SHORT_LEN && !block.more && block.history_len > 0;
        let refers = self.short.refers();
        let is_wanted = move |at: &usize| all[*at].choice.refers == refers;
        let is_possible = may_refer && self.usable().any(|at| is_wanted(&at));
        self.usable().filter(move |at| !is_possible || is_wanted(at))
    }

    /// Returns true if a block may be given to another codec than planned, to measure it: if the link
    /// has enough to do meanwhile, or the block is hardly later.
    fn may_try(
        &self,
        at: usize,
        planned: usize,
        now: Instant,
        link: &LinkRate,
        block: Block,
    ) -> bool {
        let done = |at| self.done_ns(at, now, link, block);
        let in_time = self.work_ns(at, block) <= link.drain_ns(now);
        block.more || in_time || done(at) <= EXPLORE_LATER_MAX * done(planned)
    }

    /// Returns the time that compressing a block takes, in nanoseconds.
    fn work_ns(&self, at: usize, block: Block) -> f64 {
        let work_ns = self.estimates.all()[at].work_ns(block.len, block.history_len);
        self.slowdown.factor() * work_ns
    }

    /// The same for a codec, and a block that refers to nothing that would have to be read again.
    pub(super) fn work_of(&self, choice: Choice<C>, len: usize) -> Option<f64> {
        let codec = self.estimates.all().iter().find(|codec| codec.choice == choice)?;
        Some(self.slowdown.factor() * codec.work_ns(len, 0))
    }

    /// Notes that so many blocks more are compressed with a codec.
    pub(super) fn goes_on(&mut self, choice: Choice<C>, blocks: usize) {
        let Some(at) = self.estimates.all().iter().position(|codec| codec.choice == choice) else {
            return;
        };
        for _ in 0..blocks {
            self.forget_counts();
            self.counts[at] += 1.0;
        }
        self.since_explored = self.since_explored.saturating_add(blocks as u32);
        self.since_stale = self.since_stale.saturating_add(blocks as u32);
    }

    /// Returns the time at which a block would be there; see the function of this name. If nothing is behind it, it also has to be
    /// restored.
    fn done_ns(&self, at: usize, now: Instant, link: &LinkRate, block: Block) -> f64 {
        let rate = self.rate_for(link, block.more).unwrap_or(f64::INFINITY);
        let drain_ns = link.drain_ns(now);
        let work_ns = self.work_ns(at, block);
        let codec = &self.estimates.all()[at];
        let restoring_ns = match block.more {
            true => 0.0,
            false => self.restoring_ns(codec, (block.len, block.history_len)),
        };
        done_ns(codec, work_ns, block.len as f64, drain_ns, rate) + restoring_ns
    }

    /// Returns the time that the other end takes to restore a block of this length after such a history, in nanoseconds.
    /// That threads are waited for at this end says nothing of how long it takes there to do a model's work.
    fn restoring_ns(&self, codec: &CodecEstimate<C>, (len, history_len): (usize, usize)) -> f64 {
        let work_ns = codec.work_ns(len, history_len);
        match codec.takes_receiver {
            true => self.restoring.factor() * work_ns,
            false => restoring_ns(self.slowdown.factor() * work_ns, len),
        }
    }

    pub(super) fn compressed(&mut self, result: &Measured<C>) {
        if result.original_len < SHORT_LEN {
            let ratio = result.used_len as f64 / result.original_len as f64;
            self.short.compressed(ratio, result.choice.refers && result.history_len > 0);
            return;
        }
        self.estimates.measured(result, self.is_message);
        self.running.went(result.original_len);
        self.aside.went(result.original_len);
        let codec = self.estimates.all().iter().find(|it| it.choice == result.choice);
        if let Some(codec) = codec.filter(|_| !result.is_first) {
            let estimated_ns = codec.work_ns(result.original_len, result.history_len);
            // Waiting for a thread is no part of what a codec costs, but of what any of them does.
            self.slowdown.measured(result.took_ns.max(result.away_ns) as f64, estimated_ns);
        }
    }

    /// Returns how many times longer than compressing a block it takes with all that goes on beside. Both ends of a
    /// model have the same work at the same time: the slower one counts.
    fn slower(&self, codec: &CodecEstimate<C>) -> f64 {
        let there = self.restoring.factor_for(codec, self.saves_bytes);
        self.slowdown.factor().max(there)
    }

    /// Solves for the shares, by the present estimates.
    pub(super) fn plan(&mut self, link: &LinkRate, writing: WriteCost) {
        // A link that idles is what was chosen where bytes are to be saved.
        let correction = if self.saves_bytes { 1.0 } else { self.balance.correction() };
        self.plan_for(self.rate_for(link, true), correction, writing);
    }

    fn plan_for(&mut self, rate: Option<f64>, correction: f64, writing: WriteCost) {
        let Some(measured) = rate else { return };
        let rate = measured * correction;
        // Uncompressed data have to be written too, and that takes the same processor.
        let with_all = |own: CodecPoint, slower: f64| {
            let working_ns = slower * (own.cost_ns + OVERHEAD_NS);
            CodecPoint::new(working_ns + own.ratio * writing.cost_ns(), own.ratio)
        };
        // Nothing that could be compressed goes as it is to save bytes.
        let raw = match self.saves_bytes {
            true => CodecPoint::IMPOSSIBLE,
            false => with_all(CodecPoint::RAW, self.slowdown.factor()),
        };
        let mut points = vec![raw];
        let all = self.estimates.all().iter();
        points.extend(all.map(|codec| with_all(codec.point(), self.slower(codec))));
        self.choose_running(measured * correction.max(RUNNING_CORRECTION_MIN), &points);
        let bound = Bound::of(rate, &self.with_running(&points, self.running.at()));
        self.shares.raw = bound.shares[0];
        self.shares.codecs.copy_from_slice(&bound.shares[1..]);
        let planned = self.estimates.all().iter().zip(&self.shares.codecs);
        let rereads = |codec: &CodecEstimate<C>| codec.choice.refers && !codec.continues;
        let referring: f64 =
            planned.filter(|(codec, _)| rereads(codec)).map(|(_, share)| share).sum();
        self.keeps_history_for = match referring > REFERRING_SHARE_MIN {
            true => KEPT_FOR,
            false => self.keeps_history_for.saturating_sub(1),
        };
    }

    /// Notes what the transport says of the link, and of the other end.
    pub(super) fn reported(&mut self, now: Instant, report: &LinkReport) {
        let codec = self.running.at().and_then(|at| self.estimates.all().get(at));
        let is_used = codec.is_some_and(|codec| codec.takes_receiver);
        self.restoring.reported(now, report.receiver_wait_ns, is_used);
        self.later_ns = LATER_PART * report.round_trip_ns as f64;
        self.filled.reported(now, report);
    }

    /// Returns true if fewer blocks than this share were sent uncompressed.
    fn wants_raw(&self, share: f64) -> bool {
        let total = self.counts.iter().sum::<f64>() + self.raw_count;
        self.raw_count < share * (total + 1.0)
    }

    fn forget_counts(&mut self) {
        self.counts.iter_mut().for_each(|count| *count *= FORGET);
        self.raw_count *= FORGET;
    }

    /// Returns the codec that is furthest behind its share; none if the plan is raw blocks only, or there was no plan and
    /// the first codec is one that the context does not have.
    fn most_behind(&self) -> Option<usize> {
        let total: f64 = self.counts.iter().sum();
        let planned: f64 = self.shares.codecs.iter().sum();
        let behind = |at: usize| self.shares.codecs[at] / planned * (total + 1.0) - self.counts[at];
        (0..self.counts.len())
            .filter(|&at| {
                self.shares.codecs[at] > 0.0 && self.is_usable(at, &self.estimates.all()[at])
            })
            .max_by(|&a, &b| behind(a).total_cmp(&behind(b)))
    }

    /// Returns, from time to time, a codec that may be better and was never measured, or not for
    /// long; one after the other. One that refers to earlier blocks has these kept first, if they
    /// are not. For a message it is one with which that is there about as soon, by `message`.
    fn stale(&mut self, planned: usize, message: Option<Soon<'_, C>>) -> Option<usize> {
        if self.since_stale < EXPLORE_STALE_EVERY {
            return None;
        }
        self.since_stale = 0;
        let all = self.estimates.all();
        let best = all[planned].point();
        let is_wanted = |at: &usize| {
            let (codec, point) = (&all[*at], all[*at].point());
            let may_be_better = || match &message {
                Some(as_soon) => as_soon(self, *at),
                None => {
                    point.cost_ns <= STALE_COST_MAX * best.cost_ns
                        && point.ratio <= STALE_RATIO_MAX * best.ratio
                }
            };
            *at != planned
                && self.is_usable(*at, codec)
                && codec.age.is_none_or(|age| age >= STALE_AFTER)
                && may_be_better()
        };
        let at = (self.stale_at + 1..all.len()).chain(0..=self.stale_at).find(is_wanted)?;
        if all[at].choice.refers && !all[at].continues && !self.keeps_history() {
            self.keeps_history_for = KEPT_FOR;
            return None;
        }
        self.stale_at = at;
        Some(at)
    }

    /// Returns, from time to time, the next cheaper or the next better codec.
    fn neighbour(&mut self, planned: usize) -> Option<usize> {
        if self.since_explored < EXPLORE_EVERY {
            return None;
        }
        self.since_explored = 0;
        self.explore_heavier = !self.explore_heavier;
        let all = self.estimates.all();
        let mut usable = (0..all.len()).filter(|&at| self.is_usable(at, &all[at]));
        let at = match self.explore_heavier {
            true => usable.find(|&at| at > planned)?,
            false => usable.take_while(|&at| at < planned).last()?,
        };
        let affordable = all.get(at)?.cost_ns <= EXPLORE_COST_MAX * all[planned].cost_ns;
        // Beside a model, what goes past it leaves half as much again: a per cent of all to learn little.
        let ratio_max = STALE_RATIO_MAX * all[planned].point().ratio;
        let is_near = !all[planned].takes_receiver || all[at].point().ratio <= ratio_max;
        (affordable && is_near).then_some(at)
    }
}

/// Returns true if what has nothing behind it expects another rate than the link's.
fn has_own_rate(link: &LinkRate) -> bool {
    link.alone_rate() != link.rate()
}

/// Returns the time at which the link would finish a block of `len` bytes that is compressed now, which
/// takes `work_ns`: in nanoseconds from when it finishes what it has, `drain_ns`. Against the time of
/// the block as it is, len/rate, this is equation (2) of Shimamura et al., W > C − (1 − R)·S/B.
fn done_ns<C: Copy>(
    codec: &CodecEstimate<C>,
    work_ns: f64,
    len: f64,
    drain_ns: f64,
    rate: f64,
) -> f64 {
    (work_ns - drain_ns).max(0.0) + codec.point().ratio * len / rate * 1e9
}

/// Returns the time that the other end takes to restore a block that takes `work_ns` to compress, in nanoseconds.
fn restoring_ns(work_ns: f64, len: usize) -> f64 {
    (RESTORING * work_ns).min(RESTORING_NS_MAX * len as f64)
}

#[cfg(test)]
mod tests;
