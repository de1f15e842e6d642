//! Mixing on the hull: the codecs and shares that carry most, by the linear programme of
//! [`Bound`] with what has been measured.

use dwell_base::Instant;
use dwell_codec::CodecSpec;

use crate::bound::{Bound, CodecPoint};
use crate::estimates::{Estimate, Estimates};
use crate::link::Link;
use crate::press::Pressing;

/// What each byte costs besides compressing: copies, the check sum, the kernel. In nanoseconds.
const OVERHEAD_NS: f64 = 0.4;
/// One of so many blocks is compressed with a neighbour of the best codec, to know it better.
const EXPLORE_EVERY: u32 = 24;
/// After so many blocks that were not compressed, one is, to know how long it takes.
const CURIOUS_AFTER: u32 = 200;
/// A neighbour that costs more than this many times the best codec is not explored.
const EXPLORE_COST_MAX: f64 = 6.0;
/// Past counts are forgotten at this rate, so that shares follow changes.
const FORGET: f64 = 0.95;
/// How far one observation moves the correction, and how far it may go.
const STEP: f64 = 0.02;
const CORRECTION_MIN: f64 = 0.7;
/// Past times are forgotten at this rate, block by block: some tens of blocks are a few turns of the
/// system's scheduler.
const FORGET_TIMES: f64 = 0.98;
/// Compressing is never taken to be slowed down more.
const SLOWDOWN_MAX: f64 = 20.0;
/// Below this share, raw blocks are not part of the plan.
const RAW_SHARE_MIN: f64 = 0.005;

/// The steering of hull mixing.
#[derive(Clone, Debug)]
pub(crate) struct Hull {
    estimates: Estimates,
    /// Blocks compressed with each codec, old ones counting less.
    counts: Vec<f64>,
    shares: Shares,
    /// The link is taken to be so many times faster than measured. The estimates are never quite
    /// right, and at the optimum link and processor are both full: which of them is not, tells
    /// where to go.
    correction: f64,
    slowdown: Slowdown,
    since_explored: u32,
    explore_heavier: bool,
    /// Whether the probes of an incompressible stream try the cheapest codec next, or another.
    probe_cheapest: bool,
}

/// What is to be compressed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// In bytes.
    pub(crate) len: usize,
    /// The trial after others have failed.
    pub(crate) probing: bool,
    /// The link has enough to do.
    pub(crate) busy: bool,
}

/// How many times longer compressing takes than the codecs need, because the thread is interrupted.
/// The estimates leave interruptions out, as these say nothing of a codec; but the shares must fit
/// into the time that there is.
#[derive(Clone, Copy, Debug, Default)]
struct Slowdown {
    took_ns: f64,
    estimated_ns: f64,
}

impl Slowdown {
    fn measured(&mut self, took_ns: f64, estimated_ns: f64) {
        self.took_ns = FORGET_TIMES * self.took_ns + took_ns;
        self.estimated_ns = FORGET_TIMES * self.estimated_ns + estimated_ns;
    }

    /// A block went by without being compressed: as long as nothing is measured, the last
    /// interruption must not be believed in for ever.
    fn passed_by(&mut self) {
        let excess_ns = self.took_ns - self.estimated_ns;
        self.took_ns = self.estimated_ns + FORGET_TIMES * excess_ns;
    }

    fn factor(self) -> f64 {
        if self.estimated_ns > 0.0 {
            (self.took_ns / self.estimated_ns).clamp(1.0, SLOWDOWN_MAX)
        } else {
            1.0
        }
    }
}

#[derive(Clone, Debug)]
struct Shares {
    raw: f64,
    codecs: Vec<f64>,
}

impl Hull {
    pub(crate) fn new(codecs: &[CodecSpec]) -> Self {
        let estimates = Estimates::new(codecs);
        let len = estimates.all().len();
        let mut first = vec![0.0; len];
        first[0] = 1.0;
        Self {
            estimates,
            counts: vec![0.0; len],
            shares: Shares { raw: 1.0, codecs: first },
            correction: 1.0,
            slowdown: Slowdown::default(),
            since_explored: 0,
            explore_heavier: true,
            probe_cheapest: true,
        }
    }

    /// The link is busy and everything is compressed: heavier codecs could be used.
    pub(crate) fn idle(&mut self) {
        self.correction = (self.correction * (1.0 - STEP)).max(CORRECTION_MIN);
    }

    /// A block went as it was against the plan, because the link would have become idle.
    pub(crate) fn went_raw(&mut self) {
        if self.shares.raw <= RAW_SHARE_MIN {
            self.correction = (self.correction * (1.0 + STEP)).min(1.0 / CORRECTION_MIN);
        }
    }

    /// Whether a block that could be compressed may go as it is: if that is part of the plan, or
    /// the link would be through with it sooner than with what any codec makes of it.
    pub(crate) fn lets_raw_go(
        &self,
        now: Instant,
        (len, is_full): (usize, bool),
        link: &Link,
    ) -> bool {
        let Some(rate) = link.rate().filter(|_| self.shares.raw <= RAW_SHARE_MIN) else {
            return true;
        };
        let (len, drain_ns, slowdown) = (len as f64, link.drain_ns(now), self.slowdown.factor());
        // What comes in small pieces over an idle link is not a matter of throughput.
        if !is_full && drain_ns == 0.0 {
            return true;
        }
        let raw_ns = len / rate * 1e9;
        self.estimates
            .all()
            .iter()
            .all(|codec| done_ns(codec, slowdown, len, drain_ns, rate) > raw_ns)
    }

    /// With what a block is compressed. If the plan is to compress nothing: nothing while the link
    /// is busy, the cheapest otherwise.
    pub(crate) fn codec(&mut self, now: Instant, link: &Link, block: Block) -> Option<CodecSpec> {
        self.plan(link);
        let spec = |hull: &Self, at: usize| Some(hull.estimates.all()[at].spec);
        if block.probing {
            let at = if self.probe_cheapest { 0 } else { self.estimates.all().len() / 2 };
            self.probe_cheapest = !self.probe_cheapest;
            return spec(self, at);
        }
        self.since_explored += 1;
        let planned = self.most_behind().and_then(|at| self.in_time(at, now, link, block.len));
        let Some(planned) = planned else {
            self.slowdown.passed_by();
            let curious = self.since_explored > CURIOUS_AFTER;
            if curious {
                self.since_explored = 0;
            }
            return if block.busy && !curious { None } else { spec(self, 0) };
        };
        let at = self.neighbour(planned).unwrap_or(planned);
        if at == planned {
            self.counts.iter_mut().for_each(|count| *count *= FORGET);
            self.counts[at] += 1.0;
        }
        spec(self, at)
    }

    /// Where the link is worth so much that the plan has raw blocks, it must not become idle while
    /// a block is compressed: then this codec, or a cheaper one, or none.
    ///
    /// Otherwise a cheaper one is used, if the link would be through with that sooner.
    fn in_time(&self, planned: usize, now: Instant, link: &Link, len: usize) -> Option<usize> {
        let Some(rate) = link.rate() else { return Some(planned) };
        let (drain_ns, all) = (link.drain_ns(now), self.estimates.all());
        let slowdown = self.slowdown.factor();
        if self.shares.raw <= RAW_SHARE_MIN {
            let len = len as f64;
            if slowdown * all[planned].cost_ns * len <= drain_ns {
                return Some(planned);
            }
            let done = |at: &usize| done_ns(&all[*at], slowdown, len, drain_ns, rate);
            return (0..=planned).min_by(|a, b| done(a).total_cmp(&done(b)));
        }
        (0..=planned).rev().find(|&at| slowdown * all[at].cost_ns * len as f64 <= drain_ns)
    }

    pub(crate) fn pressed(&mut self, pressing: &Pressing) {
        self.estimates.measured(pressing);
        if let Some(codec) = self.estimates.all().iter().find(|it| it.spec == pressing.codec) {
            let estimated_ns = codec.cost_ns * pressing.original_len as f64;
            self.slowdown.measured(pressing.took_ns as f64, estimated_ns);
        }
    }

    /// Solves for the shares, by what is known now.
    fn plan(&mut self, link: &Link) {
        let Some(rate) = link.rate() else { return };
        let slowdown = self.slowdown.factor();
        let cost = |own_ns: f64| slowdown * own_ns + OVERHEAD_NS;
        let mut points = vec![CodecPoint::new(cost(0.0), 1.0)];
        points.extend(self.estimates.all().iter().map(|estimate| {
            let point = estimate.point();
            CodecPoint::new(cost(point.cost_ns), point.ratio)
        }));
        let bound = Bound::of(rate * self.correction, &points);
        self.shares.raw = bound.shares[0];
        self.shares.codecs.copy_from_slice(&bound.shares[1..]);
    }

    /// The codec that has had the least of its share. If the plan is raw only, none.
    fn most_behind(&self) -> Option<usize> {
        let total: f64 = self.counts.iter().sum();
        let planned: f64 = self.shares.codecs.iter().sum();
        let behind = |at: usize| self.shares.codecs[at] / planned * (total + 1.0) - self.counts[at];
        (0..self.counts.len())
            .filter(|&at| self.shares.codecs[at] > 0.0)
            .max_by(|&a, &b| behind(a).total_cmp(&behind(b)))
    }

    /// From time to time the next cheaper or the next better codec.
    fn neighbour(&mut self, planned: usize) -> Option<usize> {
        if self.since_explored < EXPLORE_EVERY {
            return None;
        }
        self.since_explored = 0;
        self.explore_heavier = !self.explore_heavier;
        let at = if self.explore_heavier { planned + 1 } else { planned.checked_sub(1)? };
        let all = self.estimates.all();
        let affordable = all.get(at)?.cost_ns <= EXPLORE_COST_MAX * all[planned].cost_ns;
        affordable.then_some(at)
    }
}

/// When the link would be through with a block of `len` bytes that is compressed now, in
/// nanoseconds from when it is through with what it has: `drain_ns`. Compressing takes `slowdown`
/// times as long as the codec needs.
fn done_ns(codec: &Estimate, slowdown: f64, len: f64, drain_ns: f64, rate: f64) -> f64 {
    (slowdown * codec.cost_ns * len - drain_ns).max(0.0) + codec.point().ratio * len / rate * 1e9
}
