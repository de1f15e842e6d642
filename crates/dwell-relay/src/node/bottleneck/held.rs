//! The pace, once the bottleneck is known to be beyond.

use dwell_base::Instant;
use dwell_base::time::{MILLI_NS, SECOND_NS};

use super::{ENTER_NS, RATE_MIN_BPS};

/// The queue beyond is kept about this long: enough to see that the link is busy, so that what comes
/// is all that it carries.
const TARGET_NS: u64 = 10 * MILLI_NS;
/// ... and at least this many packets of full length.
const TARGET_BITS: f64 = 2.0 * 1500.0 * 8.0;
/// Less is enough if the times of single datagrams show what stands, since it is the least of all that then has to be so
/// long: this part of the round trip, ...
pub(super) const TARGET_TRIPS: u64 = 4;
/// ... or this, with which it is known from what wake-ups are late by, ...
const TARGET_SHORT_NS: u64 = MILLI_NS;
/// ... or so many times what the least delay changes by from report to report, on machines that have other things to do and paths
/// whose delay varies: what is less than that is not known to be a queue; ...
const TARGET_NOISES: f64 = 6.0;
/// The same if the link's rate is seen from datagrams that stood behind each other, in this part of the reports of late:
/// then a queue that is mistaken costs a little of the link, and no rate is lost by it.
const TARGET_NOISES_SERVED: f64 = 1.0;
const SERVED_MIN: f64 = 0.75;
const SERVED_SMOOTHING: f64 = 1.0 / 16.0;
/// ... and at least a packet: that with the least delay has one in front of it.
const TARGET_SHORT_BITS: f64 = 1500.0 * 8.0;
/// A deviation of the queue is made good in this time, or in three times that after which the effect
/// is seen: less would swing.
const SETTLE_NS_MIN: u64 = 250 * MILLI_NS;
const SETTLE_LAGS: u64 = 3;
/// The pace stands off the link's rate by no more than this.
const GAIN_MIN: f64 = -0.4;
const GAIN_MAX: f64 = 0.25;
/// The first step upwards, which makes half of the wanted queue until it is seen; each one that meets no queue is followed
/// by one twice as large.
const GAIN_UP_MIN: f64 = 0.015;
const GAIN_UP_MAX: f64 = 0.04;
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
/// While so many times more is sent than comes, and a queue stands, the rest is lost in that.
const FLOODED: f64 = 1.2;
/// The queue beyond is emptied this often, to measure the path without it. (BBR's ProbeRTT.)
/// The first time comes sooner: what was believed before is from a time with a queue, perhaps.
const REFRESH_NS: u64 = 4 * SECOND_NS;
/// ... and no more than one part in so many of the time.
const REFRESH_PART: u64 = 8;
const REFRESH_FIRST_NS: u64 = SECOND_NS;
/// By so much less at the most, and at the least.
const REFRESH_GAIN_MIN: f64 = -0.3;
const REFRESH_GAIN_MAX: f64 = -0.05;
/// More than the wanted queue goes, as it may be longer: by half, and by this.
const REFRESH_MORE_NS: u64 = 2 * MILLI_NS;
/// What waits here because of that has gone so many lags later.
const HELD_BACK_LAGS: u64 = 2;
/// It goes on while the delay falls below what was known, but not for longer than this.
const REFRESH_NS_MAX: u64 = 2 * SECOND_NS;
/// Sending less must have made a queue half as long after this time, and some more on long paths.
const PROOF_NS: u64 = 3 * SECOND_NS / 2;
const PROOF_LAGS: u64 = 4;
/// Deliveries that shrink while the queue stands may be the link's decline, or our giving way to
/// others: below this part of the rate that was known for sure it counts as theirs.
const YIELD_MAX: f64 = 0.6;
/// But if this much more was sent than came, the link's rate has fallen.
const STEP: f64 = 1.2;

/// A sample from the latest reports.
#[derive(Clone, Copy, Debug)]
pub(super) struct RateSample {
    pub(super) now: Instant,
    /// The rate at which was sent, in bits per second.
    pub(super) sent_bps: f64,
    pub(super) came_bps: f64,
    /// The rate at which the link serves what stands in its queue, if it is busy.
    pub(super) service_bps: Option<f64>,
    /// The queue beyond.
    pub(super) queue_ns: u64,
    /// The time until a change of the pace is seen, without the queue.
    pub(super) lag_ns: u64,
    /// The path, if the peer says when each datagram came.
    pub(super) way: Option<Way>,
    /// The delay is below any that was known.
    pub(super) is_least: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attribution {
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
    /// The first step upwards.
    gain_up: f64,
    /// Steps upwards that met no queue, and when the latest was.
    steps: u32,
    step_bps: f64,
    stepped_at: Instant,
    /// When the queue is emptied next, and until when it is.
    refresh_began: Instant,
    refresh_at: Instant,
    refresh_until: Instant,
    refresh_gain: f64,
    /// What waits here for longer because of that, until it has gone.
    held_back_ns: u64,
    /// The queue that is being shortened.
    proof: Option<Proof>,
    /// No queue was seen, but that next to nothing came; and it is not known yet whether that was so because too much was sent.
    is_presumed: bool,
    /// The part of the latest reports in which the rate was seen from datagrams that stood behind each other.
    served: f64,
}

/// What is known of a path on which single datagrams are seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    /// The round trip without a queue.
    pub(super) trip_ns: u64,
    /// What chance changes the least delay by from report to report.
    pub(super) noise_ns: f64,
}

/// Returns the time that two packets of full length take.
pub(super) fn packets_ns(bps: f64) -> u64 {
    (TARGET_BITS * 1e9 / bps.max(1.0)) as u64
}

/// Returns the wanted length of the queue beyond, on a link of this rate at the end of such a path.
pub(super) fn target_ns(bps: f64, way: Option<Way>) -> u64 {
    let takes_ns = |bits: f64| (bits * 1e9 / bps.max(1.0)) as u64;
    match way {
        Some(way) => {
            let least_ns = (way.trip_ns / TARGET_TRIPS).max(TARGET_SHORT_NS);
            let known_ns = (way.noise_ns * TARGET_NOISES) as u64;
            least_ns.max(known_ns).min(TARGET_NS).max(takes_ns(TARGET_SHORT_BITS))
        }
        None => TARGET_NS.max(packets_ns(bps)),
    }
}

impl RateSample {
    /// A queue stands that has no room for much of what was sent: on a thin link it may be shorter than what is wanted.
    fn is_flooded(&self) -> bool {
        self.queue_ns >= ENTER_NS && self.sent_bps > FLOODED * self.came_bps
    }
}

impl Held {
    pub(super) fn new(now: Instant, rate_bps: f64) -> Self {
        Self {
            since: now,
            rate_bps,
            sure_bps: rate_bps,
            gain: 0.0,
            gain_up: GAIN_UP_MAX,
            steps: 0,
            step_bps: rate_bps,
            stepped_at: now,
            refresh_began: Instant::ZERO,
            refresh_at: now + REFRESH_FIRST_NS,
            refresh_until: Instant::ZERO,
            refresh_gain: 0.0,
            held_back_ns: 0,
            proof: None,
            is_presumed: false,
            served: 0.0,
        }
    }

    /// The rate of a link of which no queue is seen.
    pub(super) fn presumed(now: Instant, rate_bps: f64) -> Self {
        Self { is_presumed: true, ..Self::new(now, rate_bps) }
    }

    /// The link has idled: what was under way before is over, and its rate is what it was until something else is seen.
    pub(super) fn resume(&mut self, now: Instant) {
        *self = Self { since: self.since, ..Self::new(now, self.rate_bps) };
    }

    pub(super) fn rate_bps(&self) -> f64 {
        self.rate_bps
    }

    pub(super) fn pace_bps(&self) -> f64 {
        self.rate_bps * (1.0 + self.gain)
    }

    /// Returns how much longer packets wait here because the queue beyond is emptied, in nanoseconds.
    pub(super) fn held_back_ns(&self) -> u64 {
        self.held_back_ns
    }

    pub(super) fn update(&mut self, sample: &RateSample) -> Attribution {
        let target_ns = self.target_ns(sample);
        self.gain_up =
            (target_ns as f64 / (2 * sample.lag_ns.max(1)) as f64).clamp(GAIN_UP_MIN, GAIN_UP_MAX);
        let attribution = if sample.queue_ns <= target_ns / 2 {
            match sample.service_bps {
                _ if sample.is_flooded() => self.keep(sample),
                Some(_) => self.keep(sample),
                None => self.rise(sample),
            }
        } else {
            (self.steps, self.step_bps) = (0, self.rate_bps);
            match self.learn(sample) {
                Attribution::Ours => self.prove(sample, target_ns),
                not_ours => not_ours,
            }
        };
        self.gain = self.next_gain(sample, target_ns);
        attribution
    }

    /// True until it was seen whether less is lost as less is sent.
    pub(super) fn is_presumed(&self) -> bool {
        self.is_presumed
    }

    pub(super) fn confirm(&mut self) {
        self.is_presumed = false;
    }

    /// Returns the wanted length of the queue beyond.
    fn target_ns(&mut self, sample: &RateSample) -> u64 {
        let served = if sample.service_bps.is_some() { 1.0 } else { 0.0 };
        self.served += (served - self.served) * SERVED_SMOOTHING;
        let part =
            if self.served >= SERVED_MIN { TARGET_NOISES_SERVED / TARGET_NOISES } else { 1.0 };
        let way = sample.way.map(|way| Way { noise_ns: way.noise_ns * part, ..way });
        target_ns(self.rate_bps, way)
    }

    /// There is no queue that stands, and yet the link is busy.
    fn keep(&mut self, sample: &RateSample) -> Attribution {
        self.proof = None;
        (self.steps, self.step_bps) = (0, self.rate_bps);
        self.learn(sample)
    }

    /// There is no queue: the link carries at least what was sent.
    fn rise(&mut self, sample: &RateSample) -> Attribution {
        self.proof = None;
        let since_step_ns = sample.now.since_ns(self.stepped_at);
        if since_step_ns > STEP_LAGS * sample.lag_ns {
            // Who does not take the room that there is says nothing about the link.
            (self.steps, self.step_bps, self.stepped_at) = (0, self.rate_bps, sample.now);
        }
        if sample.sent_bps > self.rate_bps * (1.0 + self.gain_up / 4.0) {
            self.rate_bps = sample.sent_bps.min(self.rate_bps * RISE_MAX);
            self.sure_bps = self.sure_bps.max(self.rate_bps);
        }
        let is_step = self.rate_bps >= self.step_bps * (1.0 + self.gain_up / 2.0);
        if is_step && since_step_ns >= sample.lag_ns {
            (self.step_bps, self.stepped_at) = (self.rate_bps, sample.now);
            self.steps += 1;
        }
        if self.steps > STEPS_MAX { Attribution::Unlimited } else { Attribution::Ours }
    }

    /// There is a queue: what comes is what the link carries. But if others fill the queue, what
    /// comes is what we send: to follow that down would leave them everything.
    fn learn(&mut self, sample: &RateSample) -> Attribution {
        // The time that single datagrams take is of now, what came in a while may be of before.
        let came = sample.service_bps.unwrap_or(sample.came_bps);
        let aim = came.clamp(self.rate_bps * FALL_MAX, self.rate_bps * RISE_MAX);
        let is_near = (came / self.rate_bps - 1.0).abs() < NEAR;
        let is_sure = came >= self.rate_bps || sample.sent_bps >= came * EXCESS;
        let share = match (is_sure, is_near) {
            (true, false) => 1.0,
            (true, true) => SMOOTHING,
            (false, _) => SMOOTHING_UNSURE,
        };
        let bps = self.rate_bps + (aim - self.rate_bps) * share;
        let is_step = sample.sent_bps >= came * STEP;
        self.sure_bps = if is_step { bps } else { self.sure_bps.max(bps) };
        self.rate_bps = bps.max(self.sure_bps * YIELD_MAX).max(RATE_MIN_BPS);
        if bps < self.rate_bps { Attribution::NotOurs } else { Attribution::Ours }
    }

    /// Returns true if the queue becomes shorter.
    fn prove(&mut self, sample: &RateSample, target_ns: u64) -> Attribution {
        if sample.queue_ns <= 2 * target_ns {
            self.proof = None;
            return Attribution::Ours;
        }
        let fresh = Proof { since: sample.now, queue_ns: sample.queue_ns };
        let proof = self.proof.get_or_insert(fresh);
        let is_longer = sample.queue_ns > proof.queue_ns.saturating_add(proof.queue_ns / 4);
        if sample.queue_ns <= proof.queue_ns / 2 || is_longer {
            *proof = fresh;
        }
        let took_ns = sample.now.since_ns(proof.since);
        let is_late = took_ns > PROOF_NS + PROOF_LAGS * sample.lag_ns;
        if is_late { Attribution::NotOurs } else { Attribution::Ours }
    }

    fn next_gain(&mut self, sample: &RateSample, target_ns: u64) -> f64 {
        if let Some(gain) = self.refreshes(sample, target_ns) {
            return gain;
        }
        if sample.queue_ns <= target_ns / 2 && sample.is_flooded() {
            return 0.0;
        }
        if sample.queue_ns <= target_ns / 2 {
            return (self.gain_up * f64::from(1u32 << self.steps.min(8))).min(GAIN_MAX);
        }
        let settle_ns = SETTLE_NS_MIN.max(SETTLE_LAGS * sample.lag_ns) as f64;
        ((target_ns as f64 - sample.queue_ns as f64) / settle_ns).clamp(GAIN_MIN, self.gain_up)
    }

    /// Returns the gain by which the queue is being emptied for once.
    fn refreshes(&mut self, sample: &RateSample, target_ns: u64) -> Option<f64> {
        if sample.now >= self.refresh_until + HELD_BACK_LAGS * sample.lag_ns {
            self.held_back_ns = 0;
        }
        let is_due = sample.now >= self.refresh_at;
        if !is_due && sample.now >= self.refresh_until {
            return None;
        }
        if is_due {
            let queue_ns = sample.queue_ns.clamp(target_ns, 2 * target_ns);
            let more_ns = (queue_ns + queue_ns / 2 + REFRESH_MORE_NS) as f64;
            let gain = -more_ns / sample.lag_ns.max(1) as f64;
            self.refresh_gain = gain.clamp(REFRESH_GAIN_MIN, REFRESH_GAIN_MAX);
            // On a thin link the queue is so long that emptying it would take most of the time.
            let length_ns = ((more_ns / -self.refresh_gain) as u64).min(REFRESH_NS_MAX);
            self.refresh_began = sample.now;
            self.refresh_until = sample.now + length_ns;
            self.refresh_at = sample.now + REFRESH_NS.max(REFRESH_PART * length_ns);
            self.held_back_ns = (length_ns as f64 * -self.refresh_gain) as u64;
        } else if sample.is_least {
            let until = sample.now + sample.lag_ns;
            let latest = self.refresh_began + REFRESH_NS_MAX;
            self.refresh_until = self.refresh_until.max(until.min(latest));
            self.refresh_gain = REFRESH_GAIN_MIN;
        }
        Some(self.refresh_gain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The part of a minute in which the queue beyond a link of this rate, as long as it is wanted, is being emptied, as seen
    /// by reports 50 ms apart.
    fn emptied(bps: f64, lag_ns: u64) -> f64 {
        let queue_ns = target_ns(bps, None);
        let mut held = Held::new(Instant::ZERO, bps);
        let reports = (0..1_200u64).map(|i| Instant::from_ns(i * 50 * MILLI_NS));
        let emptying = reports.filter(|&now| {
            let (sent_bps, came_bps, service_bps) = (bps, bps, None);
            let (way, is_least) = (None, false);
            let sample = RateSample {
                now,
                sent_bps,
                came_bps,
                service_bps,
                queue_ns,
                lag_ns,
                way,
                is_least,
            };
            held.refreshes(&sample, queue_ns).is_some()
        });
        emptying.count() as f64 / 1_200.0
    }

    /// On a link of 32 kbit/s the queue is two packets long, which are most of a second.
    #[test]
    fn the_queue_is_emptied_for_an_eighth_of_the_time_at_most() {
        for (bps, lag_ms) in [(32e3, 50), (32e3, 700), (64e3, 100), (1e6, 100), (20e6, 5)] {
            let part = emptied(bps, lag_ms * MILLI_NS);
            // A report may come when it is over, and the last time may begin just before the end.
            assert!(part > 0.0 && part <= 0.125 + 0.04, "{bps} bit/s, {lag_ms} ms: {part}");
        }
    }
}
