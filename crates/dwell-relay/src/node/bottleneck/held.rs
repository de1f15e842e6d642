//! The pace, once the bottleneck is known to be beyond.

use dwell_base::Instant;
use dwell_base::time::{MILLI_NS, SECOND_NS};

use super::RATE_MIN_BPS;

/// The queue beyond is kept about this long: enough to see that the link is busy, so that what comes
/// is all that it carries.
const TARGET_NS: u64 = 10 * MILLI_NS;
/// ... and at least so many packets of full length.
const TARGET_BITS: f64 = 2.0 * 1500.0 * 8.0;
/// A deviation of the queue is made good in this time, or in three times that after which the effect
/// is seen: less would swing.
const SETTLE_NS_MIN: u64 = 250 * MILLI_NS;
const SETTLE_LAGS: u64 = 3;
/// The pace stands off the link's rate by no more than this.
const GAIN_MIN: f64 = -0.4;
const GAIN_MAX: f64 = 0.25;
/// The first step upwards; each one that meets no queue is followed by one twice as large.
const GAIN_UP: f64 = 0.04;
/// A step that was not taken after this has to be begun again.
const STEP_LAGS: u64 = 6;
/// After this many such steps in a row, 14 times the rate in all, there is no bottleneck.
const STEPS_MAX: u32 = 14;
/// The link's rate is believed to fall and to rise by no more than this from report to report.
const FALL_MAX: f64 = 0.5;
const RISE_MAX: f64 = 1.25;
/// Smaller deviations are smoothed; more so if it may be others that take what we leave.
const NEAR: f64 = 0.2;
const SMOOTHING: f64 = 0.35;
const SMOOTHING_UNSURE: f64 = 0.1;
/// More was sent than came, by more than chance.
const EXCESS: f64 = 1.03;
/// So often the queue beyond is emptied once, to see what the way takes without it. (BBR's ProbeRTT.)
/// The first time comes sooner: what was believed before is from a time with a queue, perhaps.
const REFRESH_NS: u64 = 8 * SECOND_NS;
const REFRESH_FIRST_NS: u64 = SECOND_NS;
const REFRESH_GAIN: f64 = -0.3;
/// It goes on while the delay falls below what was known, but not for longer than this.
const REFRESH_NS_MAX: u64 = 2 * SECOND_NS;
/// Sending less must have made a queue half as long after this time, and some more on long ways.
const PROOF_NS: u64 = 3 * SECOND_NS / 2;
const PROOF_LAGS: u64 = 4;
/// Deliveries that shrink while the queue stands may be the link's decline, or our giving way to
/// others: below this part of the rate that was known for sure it counts as theirs.
const YIELD_MAX: f64 = 0.6;
/// But so much more sent than came says that the link's rate has fallen.
const STEP: f64 = 1.2;

/// A sample from the latest reports.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) now: Instant,
    /// The rate at which was sent, in bits per second.
    pub(super) sent_bps: f64,
    pub(super) came_bps: f64,
    /// The queue beyond.
    pub(super) queue_ns: u64,
    /// The time until a change of the pace is seen, without the queue.
    pub(super) lag_ns: u64,
    /// The delay is below any that was known.
    pub(super) is_least: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Go on.
    Ours,
    /// It does not become shorter by our sending less: others fill it.
    NotOurs,
    /// There is no bottleneck any more.
    Unlimited,
}

/// A queue that is to become shorter by our sending less.
#[derive(Clone, Copy, Debug)]
struct Proof {
    since: Instant,
    /// The longest that it was.
    queue_ns: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) since: Instant,
    /// The rate of the link, and its value when that was last known for sure.
    rate_bps: f64,
    sure_bps: f64,
    /// The ratio of the pace to it.
    gain: f64,
    /// Steps upwards that met no queue, and when the latest was.
    steps: u32,
    step_bps: f64,
    stepped_at: Instant,
    /// When the queue is emptied next, and until when it is.
    refresh_at: Instant,
    refresh_until: Instant,
    /// The queue that is being shortened.
    proof: Option<Proof>,
}

/// Returns the wanted length of the queue beyond, on a link of this rate.
pub(super) fn target_ns(bps: f64) -> u64 {
    TARGET_NS.max((TARGET_BITS * 1e9 / bps.max(1.0)) as u64)
}

impl Held {
    pub(super) fn new(now: Instant, rate_bps: f64) -> Self {
        Self {
            since: now,
            rate_bps,
            sure_bps: rate_bps,
            gain: 0.0,
            steps: 0,
            step_bps: rate_bps,
            stepped_at: now,
            refresh_at: now + REFRESH_FIRST_NS,
            refresh_until: Instant::ZERO,
            proof: None,
        }
    }

    pub(super) fn rate_bps(&self) -> f64 {
        self.rate_bps
    }

    pub(super) fn pace_bps(&self) -> f64 {
        self.rate_bps * (1.0 + self.gain)
    }

    pub(super) fn update(&mut self, look: &Look) -> Verdict {
        let target_ns = target_ns(self.rate_bps);
        let verdict = if look.queue_ns <= target_ns / 2 {
            self.rise(look)
        } else {
            (self.steps, self.step_bps) = (0, self.rate_bps);
            match self.learn(look) {
                Verdict::Ours => self.prove(look, target_ns),
                not_ours => not_ours,
            }
        };
        self.gain = self.next_gain(look, target_ns);
        verdict
    }

    /// There is no queue: the link carries at least what was sent.
    fn rise(&mut self, look: &Look) -> Verdict {
        self.proof = None;
        let since_step_ns = look.now.since_ns(self.stepped_at);
        if since_step_ns > STEP_LAGS * look.lag_ns {
            // Who does not take the room that there is says nothing about the link.
            (self.steps, self.step_bps, self.stepped_at) = (0, self.rate_bps, look.now);
        }
        if look.sent_bps > self.rate_bps * (1.0 + GAIN_UP / 4.0) {
            self.rate_bps = look.sent_bps.min(self.rate_bps * RISE_MAX);
            self.sure_bps = self.sure_bps.max(self.rate_bps);
        }
        let is_step = self.rate_bps >= self.step_bps * (1.0 + GAIN_UP / 2.0);
        if is_step && since_step_ns >= look.lag_ns {
            (self.step_bps, self.stepped_at) = (self.rate_bps, look.now);
            self.steps += 1;
        }
        if self.steps > STEPS_MAX { Verdict::Unlimited } else { Verdict::Ours }
    }

    /// There is a queue: what comes is what the link carries. But if others fill the queue, what
    /// comes is what we send: to follow that down would leave them everything.
    fn learn(&mut self, look: &Look) -> Verdict {
        let came = look.came_bps;
        let aim = came.clamp(self.rate_bps * FALL_MAX, self.rate_bps * RISE_MAX);
        let is_near = (came / self.rate_bps - 1.0).abs() < NEAR;
        let is_sure = came >= self.rate_bps || look.sent_bps >= came * EXCESS;
        let share = match (is_sure, is_near) {
            (true, false) => 1.0,
            (true, true) => SMOOTHING,
            (false, _) => SMOOTHING_UNSURE,
        };
        let bps = self.rate_bps + (aim - self.rate_bps) * share;
        let is_step = look.sent_bps >= came * STEP;
        self.sure_bps = if is_step { bps } else { self.sure_bps.max(bps) };
        self.rate_bps = bps.max(self.sure_bps * YIELD_MAX).max(RATE_MIN_BPS);
        if bps < self.rate_bps { Verdict::NotOurs } else { Verdict::Ours }
    }

    /// Returns true if the queue becomes shorter.
    fn prove(&mut self, look: &Look, target_ns: u64) -> Verdict {
        if look.queue_ns <= 2 * target_ns {
            self.proof = None;
            return Verdict::Ours;
        }
        let fresh = Proof { since: look.now, queue_ns: look.queue_ns };
        let proof = self.proof.get_or_insert(fresh);
        let is_longer = look.queue_ns > proof.queue_ns.saturating_add(proof.queue_ns / 4);
        if look.queue_ns <= proof.queue_ns / 2 || is_longer {
            *proof = fresh;
        }
        let took_ns = look.now.since_ns(proof.since);
        let is_late = took_ns > PROOF_NS + PROOF_LAGS * look.lag_ns;
        if is_late { Verdict::NotOurs } else { Verdict::Ours }
    }

    fn next_gain(&mut self, look: &Look, target_ns: u64) -> f64 {
        if self.refreshes(look, target_ns) {
            return REFRESH_GAIN;
        }
        if look.queue_ns <= target_ns / 2 {
            return (GAIN_UP * f64::from(1u32 << self.steps.min(8))).min(GAIN_MAX);
        }
        let settle_ns = SETTLE_NS_MIN.max(SETTLE_LAGS * look.lag_ns) as f64;
        ((target_ns as f64 - look.queue_ns as f64) / settle_ns).clamp(GAIN_MIN, GAIN_UP)
    }

    /// Returns true if the queue is being emptied for once.
    fn refreshes(&mut self, look: &Look, target_ns: u64) -> bool {
        let empty_ns = (target_ns as f64 / -REFRESH_GAIN) as u64;
        if look.now < self.refresh_until {
            if look.is_least {
                let until = look.now + look.lag_ns + empty_ns;
                self.refresh_until =
                    until.min(self.refresh_at.before_ns(REFRESH_NS - REFRESH_NS_MAX));
            }
            return true;
        }
        let is_due = look.now >= self.refresh_at;
        if is_due {
            self.refresh_until = look.now + look.lag_ns + empty_ns;
            self.refresh_at = look.now + REFRESH_NS;
        }
        is_due
    }
}
