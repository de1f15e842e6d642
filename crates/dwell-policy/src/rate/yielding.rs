//! How a stream that fills a path leaves room to small ones beside it.

use dwell_base::Instant;
use dwell_base::time::{MILLI_NS, SECOND_NS};

use super::LinkReport;

/// The part of a round trip that may wait in the path's queue: so small answers take a quarter longer.
const QUEUE_PART: f64 = 0.25;
/// Less than this may be the machines' doing, in nanoseconds.
const QUEUE_NS_MIN: f64 = 5.0 * MILLI_NS as f64;
/// What is wrong with the queue is to be mended in so many round trips: by less than that it would swing, as what is done is seen a
/// round trip later.
const MENDED_ROUND_TRIPS: f64 = 4.0;
/// The most that is taken off the rate of the path, and added to it.
const CUT_MAX: f64 = 0.25;
const GROWTH_MAX: f64 = 0.05;
/// If nothing waits and all of the limit arrives, step after step, the path is faster than it was: then this is added to that in each,
/// up to so much.
const GROWTH_STEP: f64 = 0.025;
const GROWTH_FREE_MAX: f64 = 0.25;
/// That is so if this part of what may wait does not, for more than so many steps.
const QUEUE_FREE_PART: f64 = 0.75;
const FREE_STEPS: u32 = 3;
/// The part of what it had that is believed when something waits again: the path may have become slower.
const HAD_BELIEVED: f64 = 0.98;
/// The same once to have less was of no use, ...
const HAD_BELIEVED_IN_VAIN: f64 = 0.9;
/// ... if at least this part of the limit arrived. Otherwise it is no limit.
const REACHED_PART: f64 = 0.9;
/// It rises to no more than so many times that while there is too little to send: nothing shows that the path carries more.
const UNTRIED: f64 = 1.25;
/// Too much has to wait for so many round trips before there is a limit: a path that stood still for a moment is no slow one.
const PATIENCE_STEPS: u64 = 2;
/// But for no longer than this, in nanoseconds: where the queue is longest the small ones are heard of least often.
const PATIENCE_NS_MAX: u64 = SECOND_NS / 2;
/// What waits when a limit begins leaves the queue while the stream has this part of its rate, and with that the link is not idle.
const DRAIN_PART: f64 = 0.5;
/// At most so much of it: more is no router's queue.
const DRAINED_NS_MAX: f64 = 0.25 * SECOND_NS as f64;
/// It is more than that part where it would be over before the next report, which comes when TCP has taken about so many bytes.
const REPORTED_BYTES: f64 = (16 << 10) as f64;
/// But it takes no longer for that, as nothing is mended meanwhile.
const DRAINING_NS_MAX: f64 = SECOND_NS as f64;
/// Once it has spared so many times the queue that there was, what still waits is not its doing.
const SPARED_QUEUES: f64 = 3.0;
/// But if it has fallen to this part meanwhile, it begins to count again.
const FALLEN_PART: f64 = 0.5;
/// And first, once it has spared so many times that, it is the path that is taken to be slower than it was, ...
const DOUBTED_QUEUES: f64 = 2.0;
/// ... down to this part.
const DOUBTED_PART: f64 = 0.75;
/// Without a report for more than so many steps the stream did not send, and spared nothing.
const SPARED_STEPS_MAX: u64 = 4;
/// If what is left is so many times what may wait, the stream does as if nobody were there, ...
const GIVEN_UP_QUEUES: f64 = 6.0;
/// ... and believes it for so long.
const FOREIGN_NS: u64 = 10 * SECOND_NS;

/// The limit of a stream that fills a path, for the sake of small streams beside it.
///
/// Routers have one queue for all. BBR keeps as much in it as a round trip carries, cubic all that there is room for, and each
/// small answer waits behind that. While there are small streams over the same path, a large one is paced to what the path delivers of
/// it: at half of that for as long as what waits needs to leave the queue, and then a little less while more waits than a quarter of a
/// round trip, else a little more. So it loses nothing of the link, and the small ones next to none of their time. It is what LEDBAT
/// does for the sake of everybody (RFC 6817), with a queue in proportion to the path, and for the sake of the streams of two proxies
/// only: what goes on waiting though this stream has less is due to others, to whom it would lose, or to machines that are late.
///
/// ```
/// use dwell_base::Instant;
/// use dwell_policy::rate::{LinkReport, Yielding};
///
/// let mut yielding = Yielding::default();
/// let report = LinkReport {
///     delivered_rate: 10e6,
///     round_trip_ns: 20_000_000,
///     queue_ns: 13_000_000,
///     ..LinkReport::default()
/// };
/// let at = |ms: u64| Instant::from_ns(ms * 1_000_000);
/// let mut limit = |ms, is_due| yielding.limit(at(ms), &report, is_due);
/// // 8 ms too much in a queue, for two round trips: they leave it in 16 at half the rate.
/// assert_eq!(limit(0, false), None);
/// assert_eq!(limit(66, false), None);
/// assert_eq!(limit(67, true), Some(5e6));
/// assert_eq!(limit(82, true), Some(5e6));
/// assert_eq!(limit(83, true), Some(10e6));
/// // They are there still after a round trip: 8 ms are a tenth of four.
/// assert_eq!(limit(116, true), Some(9e6));
/// assert_eq!(limit(116, false), None);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Yielding {
    /// Too much waits, and there is no limit yet.
    waits: Option<Waits>,
    limit: Option<Limit>,
    /// What the latest limit had spared when it ended, and when: small streams come and go, and what waits stays whose it is.
    before: Option<(Instant, Spared)>,
    foreign: Option<Foreign>,
}

/// What was seen since too much waits.
#[derive(Clone, Copy, Debug)]
struct Waits {
    since: Instant,
    /// The most that was delivered lately, in bytes a second: in the present time of [`patience_ns`] and the one before it.
    rates: [f64; 2],
    turned_at: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Limit {
    /// In bytes a second.
    rate: f64,
    /// What the path is believed to carry of the stream, in bytes a second: what it had without a limit, and what it has had since.
    had: f64,
    set_at: Instant,
    /// What had waited when it began leaves the queue until then.
    drained_at: Option<Instant>,
    /// The shortest queue in the reports since then, in nanoseconds: what stands is in all of them.
    least_ns: u64,
    /// The steps without a queue, one after the other, in which all of it arrived.
    free_steps: u32,
    spared: Spared,
}

/// What a stream has spared the path since too much waits; zero while it does not.
#[derive(Clone, Copy, Debug, Default)]
struct Spared {
    /// The longest queue since then, in nanoseconds.
    queue_ns: f64,
    /// In nanoseconds of the path.
    ns: f64,
    /// What the path carries was doubted.
    is_doubted: bool,
}

/// A queue that is not this stream's doing.
#[derive(Clone, Copy, Debug)]
struct Foreign {
    queue_ns: u64,
    until: Instant,
}

impl Yielding {
    /// Of a stream that is not limited yet.
    pub const fn new() -> Self {
        Self { waits: None, limit: None, before: None, foreign: None }
    }

    /// Learns from a report, and returns the rate to which the stream had better be paced, in bytes a second, if it had better be.
    /// `is_due` says whether it goes on and on, and streams share the path that send a little at a time.
    ///
    /// It is called for each report, with times that do not go back. A report without a rate says nothing of the path.
    pub fn limit(&mut self, now: Instant, report: &LinkReport, is_due: bool) -> Option<f64> {
        let delivered = report.delivered_rate;
        if !is_due {
            // What is others' doing is remembered for its time: there may be small streams again in a moment. And that something waits
            // is known when they come.
            let ended = self.limit.take().map(|limit| (limit.set_at, limit.spared));
            self.before = ended.or(self.before);
        }
        if delivered.is_finite() && delivered > 0.0 {
            self.step(now, report, is_due);
        }
        self.limit.map(|limit| limit.rate)
    }

    fn step(&mut self, now: Instant, report: &LinkReport, is_due: bool) {
        self.foreign = self.foreign.filter(|foreign| now < foreign.until);
        if let Some(foreign) = &mut self.foreign {
            foreign.queue_ns = foreign.queue_ns.min(report.queue_ns);
        }
        let Some(mut limit) = self.limit else {
            let waits = self.waited(now, report);
            self.limit = waits.filter(|_| is_due).map(|waits| self.begun(now, report, waits));
            return;
        };
        if let Some(at) = limit.drained_at {
            self.limit = Some(if now < at { limit } else { limit.drained(now, at) });
            return;
        }
        limit.least_ns = limit.least_ns.min(report.queue_ns);
        if now.since_ns(limit.set_at) < step_ns(report) {
            self.limit = Some(limit);
            return;
        }
        let queue_ns = std::mem::replace(&mut limit.least_ns, u64::MAX);
        let passed_ns = now.since_ns(std::mem::replace(&mut limit.set_at, now));
        let mut excess_ns = self.excess_ns(report, queue_ns);
        if limit.spares(passed_ns, excess_ns, report) {
            let until = self.foreign.map_or(now + FOREIGN_NS, |foreign| foreign.until);
            self.foreign = Some(Foreign { queue_ns, until });
            excess_ns = self.excess_ns(report, queue_ns);
        }
        self.limit = (!self.is_given_up(report)).then(|| limit.mended(excess_ns, report));
    }

    /// Returns what was seen of a queue that is too long, once that was so for a while.
    fn waited(&mut self, now: Instant, report: &LinkReport) -> Option<Waits> {
        let is_short = self.excess_ns(report, report.queue_ns) <= 0.0;
        if is_short || self.is_given_up(report) {
            self.waits = None;
            self.before = self.before.filter(|_| !is_short);
            return None;
        }
        let none = Waits { since: now, rates: [0.0; 2], turned_at: now };
        let waits = self.waits.get_or_insert(none);
        let patience_ns = patience_ns(report);
        if now.since_ns(waits.turned_at) >= patience_ns {
            (waits.rates, waits.turned_at) = ([0.0, waits.rates[0]], now);
        }
        waits.rates[0] = waits.rates[0].max(report.delivered_rate);
        (now.since_ns(waits.since) >= patience_ns).then_some(*waits)
    }

    /// Returns a limit after so much of that.
    fn begun(&mut self, now: Instant, report: &LinkReport, waits: Waits) -> Limit {
        self.waits = None;
        let had = waits.rates[0].max(waits.rates[1]);
        let excess_ns = self.excess_ns(report, report.queue_ns);
        let before = self.before.take().filter(|(at, _)| now.since_ns(*at) < FOREIGN_NS);
        let mut spared = before.map_or(Spared::default(), |(_, spared)| spared);
        spared.queue_ns = spared.queue_ns.max(excess_ns + queue_max_ns(report));
        let drained_ns = excess_ns.min(DRAINED_NS_MAX);
        let report_ns = REPORTED_BYTES / (DRAIN_PART * had) * SECOND_NS as f64;
        let takes_ns = (drained_ns / (1.0 - DRAIN_PART)).max(report_ns.min(DRAINING_NS_MAX));
        let rate = had * (1.0 - drained_ns / takes_ns);
        let drained_at = Some(now + takes_ns as u64);
        Limit { rate, had, set_at: now, drained_at, least_ns: u64::MAX, free_steps: 0, spared }
    }

    /// Returns by how much more waits of this stream than may, in nanoseconds.
    fn excess_ns(&self, report: &LinkReport, queue_ns: u64) -> f64 {
        let foreign_ns = self.foreign.map_or(0, |foreign| foreign.queue_ns);
        queue_ns.saturating_sub(foreign_ns) as f64 - queue_max_ns(report)
    }

    /// Returns true if so much waits without this stream that its own is no matter.
    fn is_given_up(&self, report: &LinkReport) -> bool {
        self.foreign
            .is_some_and(|foreign| foreign.queue_ns as f64 > GIVEN_UP_QUEUES * queue_max_ns(report))
    }
}

impl Limit {
    /// What had waited has left the queue since `at`, which is seen a round trip later.
    fn drained(mut self, now: Instant, at: Instant) -> Self {
        self.spared.ns += (1.0 - self.rate / self.had) * at.since_ns(self.set_at) as f64;
        (self.rate, self.set_at, self.drained_at) = (self.had, now, None);
        self
    }

    /// Notes what this has spared the path in a time, in nanoseconds, at whose end so much more waits of this stream than may. Returns true
    /// if that is far more than there was to wait of it.
    fn spares(&mut self, passed_ns: u64, excess_ns: f64, report: &LinkReport) -> bool {
        if excess_ns <= 0.0 {
            self.spared = Spared::default();
            return false;
        }
        let spared = &mut self.spared;
        if spared.queue_ns == 0.0 {
            self.had = report.delivered_rate.max(HAD_BELIEVED * self.had);
        }
        let queue_ns = excess_ns + queue_max_ns(report);
        if queue_ns < FALLEN_PART * spared.queue_ns {
            // That was not in vain.
            *spared = Spared { queue_ns, ..Spared::default() };
        }
        spared.queue_ns = spared.queue_ns.max(queue_ns);
        let part = (1.0 - self.rate / self.had).max(0.0);
        let passed_ns = passed_ns.min(SPARED_STEPS_MAX.saturating_mul(step_ns(report)));
        spared.ns += part * passed_ns as f64;
        let queues = spared.ns / spared.queue_ns;
        if queues > DOUBTED_QUEUES && !spared.is_doubted {
            self.had = report.delivered_rate.max(DOUBTED_PART * self.had);
            spared.is_doubted = true;
        }
        let is_in_vain = queues > SPARED_QUEUES;
        if is_in_vain {
            // Who has less than may be sent has all that the path carries of it.
            let is_limited = report.delivered_rate > REACHED_PART * self.rate;
            let believed = if is_limited { HAD_BELIEVED_IN_VAIN * self.had } else { 0.0 };
            self.had = report.delivered_rate.max(believed);
            self.spared = Spared::default();
        }
        is_in_vain
    }

    /// Returns it with a rate by which so much more than there may be, or less, is out of the queue soon.
    fn mended(mut self, excess_ns: f64, report: &LinkReport) -> Self {
        let is_free = -excess_ns > QUEUE_FREE_PART * queue_max_ns(report)
            && report.delivered_rate > REACHED_PART * self.rate;
        self.free_steps = if is_free { self.free_steps.saturating_add(1) } else { 0 };
        let growth =
            GROWTH_MAX + GROWTH_STEP * f64::from(self.free_steps.saturating_sub(FREE_STEPS));
        let round_trips = MENDED_ROUND_TRIPS * (report.round_trip_ns as f64).max(QUEUE_NS_MIN);
        let change = match is_free {
            true => growth.min(GROWTH_FREE_MAX),
            false => (-excess_ns / round_trips).clamp(-CUT_MAX, GROWTH_MAX),
        };
        // While it is limited, less than before is no slower path.
        self.had = self.had.max(report.delivered_rate);
        // (TCP whose window is far more than what there is to send has never enough, and says that it is the least.)
        self.rate = match excess_ns <= 0.0 && report.is_least {
            true => (self.rate * (1.0 + change)).min(UNTRIED * self.had).max(self.rate),
            false => self.had * (1.0 + change),
        };
        self
    }
}

/// Returns how long may wait in the path's queue, in nanoseconds.
fn queue_max_ns(report: &LinkReport) -> f64 {
    (QUEUE_PART * report.round_trip_ns as f64).max(QUEUE_NS_MIN)
}

/// Returns for how long too much has to wait before there is a limit, in nanoseconds.
fn patience_ns(report: &LinkReport) -> u64 {
    PATIENCE_STEPS.saturating_mul(step_ns(report)).min(PATIENCE_NS_MAX)
}

/// Returns after which time it is seen what a limit has brought, in nanoseconds.
fn step_ns(report: &LinkReport) -> u64 {
    report.round_trip_ns.saturating_add(report.queue_ns).max(MILLI_NS)
}

#[cfg(test)]
mod tests;
