//! A bottleneck beyond the next hop, found from what the peer reports.
//!
//! A slow link further on pushes nobody back: its queue fills, and what waits there can't be compressed
//! any more. But the peer reports what came and when, and so two things are known of the datagrams
//! between two reports: at what rate they came, and for how much longer than usual they were on
//! their way. While a queue stands beyond, datagrams come at the rate of the link behind it. So the
//! relay sends at that rate itself, a little below it until that queue is short: then the queue is
//! here. A slow device of this machine is found in the same way. It pushes back, but a queue in the kernel that keeps it
//! busy until a relay that is pushed back wakes up is several times as long as one that a known rate needs.
//!
//! Adopted from others: delivery rate as the measure of the link, and pacing by it, from BBR
//! (Cardwell et al., draft-ietf-ccwg-bbr, sections 4.1 and 5.5); the one-way delay above its recent
//! minimum as the measure of the queue, and a small target for it, from LEDBAT (RFC 6817, sections
//! 2.4 and 3.4); and that a queue stands only if even the least delay of a while is long, from CoDel
//! (RFC 8289, section 3.2), so that jitter is not mistaken for one. Losses mean little here: paths
//! lose by chance, and the TCP inside sees to those that its own excess makes. Only where most is lost while a queue stands is that
//! taken for a queue without room.
//!
//! It is pure: sendings, reports and times are arguments. Nothing is found, and nothing is held
//! back, before a queue of more than [`ENTER_NS`] has stood for [`ENTER_SPAN_NS`]. If sending less does
//! not shorten the queue, it is not of our making, and the relay gives up for a while: a TCP beside
//! the tunnel that fills the queue alone would otherwise get the whole link.
//!
//! A peer can lie in its reports, at its own cost: the rate to it changes by bounded steps and never
//! falls below [`RATE_MIN_BPS`], and of what it says that came no more counts than 5/4 of what was
//! sent.

mod base;
mod held;
mod marks;
mod sent;
mod service;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use dwell_base::time::{MILLI_NS, SECOND_NS};
use dwell_base::{Instant, Rate};
use dwell_wire::Arrivals;

use base::Base;
use held::{Attribution, Held, RateSample, Way};
use marks::Marks;
use service::ServiceWatch;

use super::unheard::Unreported;

/// A queue that delays by less is nobody's trouble.
const ENTER_NS: u64 = 20 * MILLI_NS;
/// It must stand for this long, and be seen in this many reports.
const ENTER_SPAN_NS: u64 = 400 * MILLI_NS;
const ENTER_SAMPLES: usize = 4;
/// A queue that is shorter than what is usually wanted stands all the same if so many times more is sent than comes: what it
/// has no room for is lost.
const FLOODED_TIMES: u64 = 2;
/// If so many times more than comes is sent for so long, no path loses the rest by chance: whatever queue there is has been full for
/// so long that nobody knows the way without it any more, and it can't be seen.
const DROWNED_TIMES: u64 = 4;
const DROWNED_NS: u64 = 3 * SECOND_NS / 2;
/// ... and from each of so many of the latest reports to the next, too.
const DROWNED_PAIRS: usize = 3;
/// Whether it is so is known when less was sent for as long, and so many datagrams.
const TELLING_DATAGRAMS: u64 = 16;
/// While the relay paces, the queue is the least that was seen in this many reports; in fewer of those that come
/// with the times of single datagrams, as each is the least of many then, ...
const HELD_SAMPLES: usize = 3;
const HELD_SAMPLES_EVEN: usize = 2;
/// ... if that changes by less from one to the next.
const EVEN_NS: u64 = MILLI_NS;
/// Rates are measured over at least this long, ...
const RATE_SPAN_NS: u64 = 200 * MILLI_NS;
/// ... and not over more than this, in which there was a pause.
const RATE_SPAN_NS_MAX: u64 = 3 * SECOND_NS;
/// Reports to look back on, each second one at least this much later.
const SAMPLES_MAX: usize = 32;
const APART_NS: u64 = 20 * MILLI_NS;
/// The least delay is that of the last two to three of these: paths change, and clocks drift
/// apart, by a tenth of a millisecond a second at the worst.
const BASE_SPAN_NS: u64 = 10 * SECOND_NS;
/// The same while the relay paces: a shorter queue is kept then, so that less of a drift would be mistaken for one, and
/// it is emptied more often.
const BASE_HELD_SPAN_NS: u64 = 3 * SECOND_NS;
/// Nothing is in transit for this long: the peer has another clock than before.
const OTHER_CLOCK_NS: u64 = 10 * SECOND_NS;
/// How fast the mean follows of what the least delay deviates by, and how much counts at most.
const NOISE_SMOOTHING: f64 = 1.0 / 16.0;
const NOISE_NS_MAX: u64 = 10 * MILLI_NS;
/// How much of it counts. √2 to √1.5 would make it what two reports differ by; with more, a path with jitter is less often
/// mistaken for a slower link.
const NOISE_WEIGHT: f64 = 1.4;
/// A delay that is the least by more than this says that there was still a queue.
const FALLS_NS: i64 = MILLI_NS as i64;
/// Above this, a queue is that of a busy receiver rather than of a link: with pacing its sender would
/// only be busier.
const RATE_MAX_BPS: f64 = 400e6;
/// The relay is never slowed down below this.
const RATE_MIN_BPS: f64 = 32e3;
/// While the local device pushes back, it is the bottleneck, and the kernel holds about this, or two packets.
const LOCAL_NS: u64 = SECOND_NS;
const LOCAL_QUEUE_NS: u64 = 4 * MILLI_NS;
/// A slow device of our own is found by reports over round trips of this length or less: over longer ones they come later than what
/// the kernel refuses.
const SHORT_NS: u64 = held::TARGET_TRIPS * LOCAL_QUEUE_NS;
/// If the local device pushes back while the relay paces, between this many reports in a row, its link is slower
/// than what was found.
const LOCAL_REPORTS: u32 = 3;
/// Before anything is found over a path as long as this, a link is assumed that carries so many times what came of late: what grows
/// with each round trip is there two of them later, and then fills the link before it is found, as long as all goes raw. That is
/// then all that a connection has seen of it.
const FAR_NS: u64 = 100 * MILLI_NS;
const ASSUMED_TIMES: f64 = 4.0;
/// Links of these rates only: on faster ones compressing all costs too much where nothing may be gained by it.
const ASSUMED_BPS_MIN: f64 = 2e6;
const ASSUMED_BPS_MAX: f64 = 100e6;
/// If the peer reports nothing of what is sent for this long, nothing is known any more; if that is more than signs
/// of life and probes of the path, which nobody reports.
const FORGET_NS: u64 = 10 * SECOND_NS;
const FORGET_BYTES: u64 = 16 << 10;
/// If a queue is not ours it is left alone for so long; twice as long each time, up to the maximum.
const BACK_OFF_NS: u64 = 5 * SECOND_NS;
const BACK_OFF_NS_MAX: u64 = 80 * SECOND_NS;

/// A report's content, in bytes on the link with the headers that the pacer counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkReport {
    /// The highest number that came, in the present session.
    pub(crate) highest: u64,
    /// When it came, by the peer's clock: only differences mean anything.
    pub(crate) highest_at_ns: u64,
    /// The bytes received in the session.
    pub(crate) bytes: u64,
    /// When the local device last pushed back.
    pub(crate) refused_at: Option<Instant>,
}

/// The result of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The rate of the link beyond.
    pub(crate) rate: Rate,
    /// The rate at which to send, so that its queue becomes or stays short.
    pub(crate) pace: Rate,
    /// How much longer packets wait because that is less for once, in nanoseconds.
    pub(crate) held_back_ns: u64,
}

/// The latest datagram that a report knows of.
#[derive(Clone, Copy, Debug)]
struct Sample {
    reported_at: Instant,
    sent_at: Instant,
    /// All that was sent up to it, and all that came; and the time in which more would have been sent, had we been awake.
    sent_bytes: u64,
    lost_ns: u64,
    came_bytes: u64,
    came_at_ns: u64,
    highest: u64,
    /// The way to the peer, and what one clock is ahead of the other: the least since the report before, if the peer says
    /// when each datagram came.
    delay_ns: i64,
    is_of_each: bool,
}

/// Rates over a while, in bits per second.
#[derive(Clone, Copy, Debug)]
struct Rates {
    /// What was sent, while we were awake.
    sent_bps: f64,
    /// What came, and what that is of the time in which we were awake.
    came_bps: f64,
    came_awake_bps: f64,
}

/// The state of the path to one peer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bottleneck {
    marks: Marks,
    service: ServiceWatch,
    samples: VecDeque<Sample>,
    base: Base<BASE_SPAN_NS>,
    base_held: Base<BASE_HELD_SPAN_NS>,
    /// The way there and the report's way back.
    trip: Base<BASE_SPAN_NS>,
    /// What chance changes the least delay by from report to report, on the average.
    noise_ns: f64,
    /// The least delay of the datagrams that the peer has said the times of since its latest report.
    least_ns: Option<i64>,
    held: Option<Held>,
    /// When the latest report came, also of a session before.
    reported_at: Instant,
    /// The queue beyond was not ours: it is left alone until then.
    alone_until: Instant,
    back_off_ns: u64,
    local_reports: u32,
    unreported: Unreported,
}

impl Bottleneck {
    /// A datagram was sent, with this number in the present session; the link was free for so long before though it waited.
    #[inline]
    pub(crate) fn sent(&mut self, now: Instant, number: u64, (link_bytes, lost_ns): (u64, u64)) {
        self.marks.sent(now, number, (link_bytes, lost_ns));
        self.service.sent(now, number, link_bytes);
    }

    /// The datagram that was just sent holds packets, so that a report follows it.
    #[inline]
    pub(crate) fn sent_packets(&mut self, now: Instant, link_bytes: u64) {
        self.unreported.sent_packets(now, link_bytes);
    }

    /// A new session, whose numbers and accounts begin again.
    pub(crate) fn begin_session(&mut self) {
        self.marks.clear();
        self.service.begin_session();
        self.samples.clear();
        self.least_ns = None;
        self.unreported = Unreported::default();
    }

    /// Another way to the peer, or another peer: nothing is known.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Forgets what was found if the peer has said nothing of what was sent for long. What idles keeps its rate, or what
    /// wakes it up would fill the queue beyond.
    pub(crate) fn forget_old(&mut self, now: Instant) {
        let since = self.unreported.since(FORGET_BYTES);
        if since.is_some_and(|since| now.since_ns(since) > FORGET_NS) {
            self.held = None;
        }
    }

    /// The rate beyond the next hop, if the slowest link is there.
    pub(crate) fn found(&self) -> Option<Found> {
        let rate = |bps: f64| Rate::clamped_bps(bps.max(RATE_MIN_BPS) as u64);
        let found = |held: &Held| Found {
            rate: rate(held.rate_bps()),
            pace: rate(held.pace_bps()),
            held_back_ns: held.held_back_ns(),
        };
        self.held.as_ref().map(found)
    }

    /// The rate of a link beyond that is only assumed, to compress for before one is found.
    pub(crate) fn assumed(&self) -> Option<Rate> {
        let is_far = self.trip.least().is_some_and(|ns| ns >= FAR_NS as i64);
        if !is_far || self.held.is_some() {
            return None;
        }
        let came_bps = self.rates_bps().map_or(0.0, |rates| rates.came_bps);
        let bps = (ASSUMED_TIMES * came_bps).max(ASSUMED_BPS_MIN);
        (bps <= ASSUMED_BPS_MAX).then(|| Rate::clamped_bps(bps as u64))
    }

    /// Returns the recent delay of the path to the peer above its least, in nanoseconds.
    pub(crate) fn queue_ns(&self) -> Option<u64> {
        // Where nobody empties the queue, what was least long ago counts.
        if self.held.is_some() {
            self.held_ns()
        } else {
            self.standing_ns(HELD_SAMPLES, self.base.least()?)
        }
    }

    /// A probe came to the peer: what is on its way takes no less than it did.
    pub(crate) fn probed(&mut self, now: Instant, sent_at: Instant, came_at_ns: u64) {
        let delay_ns = came_at_ns.wrapping_sub(sent_at.as_ns()) as i64;
        self.see_to_clocks(delay_ns);
        self.add_delay(now, delay_ns);
        self.trip.add(now, now.since_ns(sent_at) as i64);
    }

    fn add_delay(&mut self, now: Instant, delay_ns: i64) {
        self.base.add(now, delay_ns);
        self.base_held.add(now, delay_ns);
    }

    fn begin_bases(&mut self) {
        (self.base, self.base_held) = (Base::default(), Base::default());
    }

    /// The peer's clock may have begun again.
    fn see_to_clocks(&mut self, delay_ns: i64) {
        if self.base.least().is_some_and(|least| delay_ns.abs_diff(least) > OTHER_CLOCK_NS) {
            self.begin_bases();
            self.samples.clear();
        }
    }

    /// The peer says when datagrams came, before the report that it belongs to.
    pub(crate) fn on_arrivals(&mut self, now: Instant, arrivals: &Arrivals) {
        self.service.reach(arrivals.first);
        let Some(least_ns) = self.service.delays_ns(arrivals).min() else { return };
        self.see_to_clocks(least_ns);
        self.least_ns = Some(self.least_ns.map_or(least_ns, |before| before.min(least_ns)));
        self.service.on_arrivals(now, arrivals, least_ns);
    }

    /// A report came.
    pub(crate) fn on_report(&mut self, now: Instant, report: &LinkReport) {
        let Some(sample) = self.sample(now, report) else { return };
        self.least_ns = None;
        self.marks.set_lag(now.since_ns(sample.sent_at));
        if self.samples.back().is_some_and(|last| sample.sent_at.since_ns(last.sent_at) > FORGET_NS)
        {
            self.samples.clear();
            if let Some(held) = &mut self.held {
                held.resume(now);
            }
        }
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        let refused = report.refused_at;
        let refused_since = refused.is_some_and(|at| at > self.reported_at);
        self.local_reports = if refused_since { self.local_reports + 1 } else { 0 };
        self.see_to_clocks(sample.delay_ns);
        let is_least =
            self.base.least().is_some_and(|least| sample.delay_ns < least.saturating_sub(FALLS_NS));
        self.reported_at = now;
        self.unreported = Unreported::default();
        if sample.is_of_each {
            self.add_noise(sample.delay_ns);
        }
        self.push_sample(sample);
        self.add_delay(now, sample.delay_ns);
        self.trip.add(now, now.since_ns(sample.sent_at) as i64);
        match self.held {
            Some(_) if self.local_reports >= LOCAL_REPORTS => self.held = None,
            Some(_) => self.follow(now, is_least),
            None => self.look_out(now, refused.is_some_and(|at| now.since_ns(at) < LOCAL_NS)),
        }
    }

    /// Reports that are repeated come so often that those that are kept would reach back too little.
    fn push_sample(&mut self, mut sample: Sample) {
        if let [.., before, last] = self.samples.make_contiguous()
            && sample.reported_at.since_ns(before.reported_at) < APART_NS
        {
            sample.delay_ns = sample.delay_ns.min(last.delay_ns);
            self.samples.pop_back();
        }
        self.samples.push_back(sample);
    }

    /// A queue that grows or shrinks evenly is no noise (our own changes of the pace would be, and each make the next one larger):
    /// what counts is how far the report before is from the middle of those around it.
    fn add_noise(&mut self, delay_ns: i64) {
        let mut latest = self.samples.iter().rev().map(|sample| sample.delay_ns);
        let Some((last_ns, first_ns)) = latest.next().zip(latest.next()) else { return };
        let middle_ns = first_ns / 2 + delay_ns / 2;
        let off_ns = last_ns.abs_diff(middle_ns).min(NOISE_NS_MAX) as f64;
        self.noise_ns += (off_ns * NOISE_WEIGHT - self.noise_ns) * NOISE_SMOOTHING;
    }

    /// Returns the report's sample of a datagram whose time of sending is known; none if it holds
    /// nothing new, or nothing that could be true.
    fn sample(&self, now: Instant, report: &LinkReport) -> Option<Sample> {
        let mark = self.marks.at(report.highest)?;
        if let Some(last) = self.samples.back() {
            let is_newer = report.highest > last.highest
                && report.highest_at_ns > last.came_at_ns
                && report.bytes >= last.came_bytes
                && mark.at > last.sent_at;
            if !is_newer {
                return None;
            }
        }
        let delay_ns = report.highest_at_ns.wrapping_sub(mark.at.as_ns()) as i64;
        Some(Sample {
            reported_at: now,
            sent_at: mark.at,
            sent_bytes: mark.bytes,
            lost_ns: mark.lost_ns,
            came_bytes: report.bytes,
            came_at_ns: report.highest_at_ns,
            highest: report.highest,
            delay_ns: self.least_ns.map_or(delay_ns, |least_ns| least_ns.min(delay_ns)),
            is_of_each: self.least_ns.is_some(),
        })
    }

    /// The queue that stands while the relay paces.
    fn held_ns(&self) -> Option<u64> {
        let is_even = self.samples.back()?.is_of_each && self.noise_ns < EVEN_NS as f64;
        let samples = if is_even { HELD_SAMPLES_EVEN } else { HELD_SAMPLES };
        self.standing_ns(samples, self.base_held.least()?)
    }

    /// The path to the peer, if that says when each datagram came.
    fn way(&self) -> Option<Way> {
        let trip_ns = self.trip.least().and_then(|ns| u64::try_from(ns).ok())?;
        let is_of_each = self.samples.back()?.is_of_each;
        is_of_each.then_some(Way { trip_ns, noise_ns: self.noise_ns })
    }

    /// The least delay above this one in the latest reports.
    fn standing_ns(&self, samples: usize, base: i64) -> Option<u64> {
        let latest = self.samples.iter().rev().take(samples);
        let least = latest.map(|sample| sample.delay_ns).min()?;
        Some(u64::try_from(least.saturating_sub(base)).unwrap_or(0))
    }

    /// Returns the rates over the latest reports.
    fn rates_bps(&self) -> Option<Rates> {
        let last = self.samples.back()?;
        let span = |first: &&Sample| last.came_at_ns.saturating_sub(first.came_at_ns);
        let first = self.samples.iter().rev().find(|first| span(first) >= RATE_SPAN_NS)?;
        let (came_ns, sent_ns) = (span(&first), last.sent_at.since_ns(first.sent_at));
        let lost_ns = (last.lost_ns - first.lost_ns).min(sent_ns / 2);
        if came_ns > RATE_SPAN_NS_MAX || sent_ns == 0 {
            return None;
        }
        let sent_bytes = last.sent_bytes - first.sent_bytes;
        // No more can have come than was sent, whatever the peer says; but what was sent before may
        // have come late.
        let came_bytes = (last.came_bytes - first.came_bytes).min(sent_bytes * 5 / 4);
        let bps = |bytes: u64, ns: u64| bytes as f64 * 8e9 / ns as f64;
        Some(Rates {
            sent_bps: bps(sent_bytes, sent_ns - lost_ns),
            came_bps: bps(came_bytes, came_ns),
            came_awake_bps: bps(came_bytes, came_ns - lost_ns.min(came_ns / 2)),
        })
    }

    /// Looks for a queue that stands beyond, or for a link that is busy without one: the bottleneck is
    /// there then.
    fn look_out(&mut self, now: Instant, is_local: bool) {
        let Some(Rates { came_bps, .. }) = self.rates_bps() else { return };
        let is_possible = |bps: f64| (RATE_MIN_BPS..RATE_MAX_BPS).contains(&bps);
        if !is_possible(came_bps) || now < self.alone_until {
            return;
        }
        let long_ns = ENTER_NS.max(2 * held::target_ns(came_bps, None));
        let stood_ns = self.stood_ns(now);
        let long_ns = if self.is_flooded(now) { ENTER_NS } else { long_ns };
        let service = self.service.service(now).filter(|service| service.is_smooth);
        let is_drowned = self.is_drowned(now);
        let bps = match service.map(|service| service.bps) {
            _ if stood_ns.is_some_and(|ns| ns > long_ns) => came_bps,
            Some(bps) if is_possible(bps) => bps,
            _ if is_drowned => came_bps,
            _ => return,
        };
        // The kernel's queue may be as short as that by which the rate would be seen.
        let quiet = self.way().map(|way| Way { noise_ns: 0.0, ..way });
        let kernel_ns = held::packets_ns(bps).max(LOCAL_QUEUE_NS);
        // Over a long path reports come later than what the kernel refuses.
        let is_short = quiet.is_some_and(|way| way.trip_ns <= SHORT_NS);
        if is_local && (!is_short || held::target_ns(bps, quiet) > kernel_ns) {
            return;
        }
        let begin = if is_drowned { Held::presumed } else { Held::new };
        self.held = Some(begin(now, bps));
        self.follow(now, false);
    }

    /// Returns the queue that stood for a while, by some reports at least; on a thin link these take longer.
    fn stood_ns(&self, now: Instant) -> Option<u64> {
        self.standing_ns(self.stood_samples(now)?, self.base.least()?)
    }

    fn stood_samples(&self, now: Instant) -> Option<usize> {
        let is_before = |sample: &Sample| now.since_ns(sample.reported_at) >= ENTER_SPAN_NS;
        let samples = self.samples.iter().rev().position(is_before)? + 1;
        Some(samples.max(ENTER_SAMPLES)).filter(|&samples| samples <= self.samples.len())
    }

    /// True if most of what was sent for as long did not come: the queue has no room for it, so that it is no longer than this.
    fn is_flooded(&self, now: Instant) -> bool {
        let first =
            self.stood_samples(now).and_then(|samples| self.samples.iter().rev().nth(samples - 1));
        let both = first.zip(self.samples.back());
        both.is_some_and(|(first, last)| sent_times(first, last, FLOODED_TIMES))
    }

    /// True if next to nothing of what was sent for longer has come, and no more from each of the latest reports to the next: after an
    /// outage all comes again.
    fn is_drowned(&self, now: Instant) -> bool {
        let Some(first) = self.samples.front() else { return false };
        let is_long = now.since_ns(first.reported_at) >= DROWNED_NS;
        let pairs = self.samples.iter().rev().zip(self.samples.iter().rev().skip(1));
        let is_little = |(last, first): (&Sample, &Sample)| sent_times(first, last, DROWNED_TIMES);
        is_long
            && self.samples.len() > DROWNED_PAIRS
            && pairs.take(DROWNED_PAIRS).all(is_little)
            && self.samples.back().is_some_and(|last| sent_times(first, last, DROWNED_TIMES))
    }

    /// True if as much of what was sent since then is lost as if the path lost it whatever is sent; none if too little was.
    fn is_lost_still(&self, since: Instant) -> Option<bool> {
        let mut later = self.samples.iter().filter(|sample| sample.sent_at >= since);
        let (first, last) = (later.next()?, later.next_back()?);
        let is_enough = last.sent_at.since_ns(first.sent_at) >= DROWNED_NS
            && last.highest - first.highest >= TELLING_DATAGRAMS;
        is_enough.then(|| sent_times(first, last, FLOODED_TIMES))
    }

    /// The bottleneck is beyond: sets the pace.
    fn follow(&mut self, now: Instant, is_least: bool) {
        let (Some(held), Some(last)) = (self.held.as_ref(), self.samples.back()) else { return };
        let (Some(rates), Some(queue_ns)) = (self.rates_bps(), self.held_ns()) else { return };
        let before = self.samples.iter().rev().nth(1).map_or(last.sent_at, |before| before.sent_at);
        let lag_ns = now.since_ns(before).saturating_sub(queue_ns);
        let mut held = held.clone();
        let service_bps = self.service.service_now(now);
        // While we were late the link may have idled; if it did, what came faster shows it.
        let pairs_bps = self.service.pairs_now(now).unwrap_or(0.0);
        let came_bps = pairs_bps.clamp(rates.came_bps, rates.came_awake_bps);
        let way = self.way();
        let attribution = held.update(&RateSample {
            now,
            sent_bps: rates.sent_bps,
            came_bps,
            service_bps,
            queue_ns,
            lag_ns,
            way,
            is_least,
        });
        let took_ns = now.since_ns(held.since);
        let is_lost = held.is_presumed().then(|| self.is_lost_still(held.since)).flatten();
        let attribution = match is_lost {
            Some(true) => Attribution::NotOurs,
            // What grows to many times as much without a queue was none either.
            None if held.is_presumed() && attribution == Attribution::Unlimited => {
                Attribution::NotOurs
            }
            Some(false) => {
                held.confirm();
                attribution
            }
            None => attribution,
        };
        self.held = Some(held);
        match attribution {
            Attribution::Ours => {}
            Attribution::Unlimited => self.held = None,
            Attribution::NotOurs => {
                self.held = None;
                if took_ns > BACK_OFF_NS_MAX {
                    self.back_off_ns = 0; // it was ours for long
                }
                self.back_off_ns = (self.back_off_ns * 2).clamp(BACK_OFF_NS, BACK_OFF_NS_MAX);
                self.alone_until = now + self.back_off_ns;
                let delay_ns = last.delay_ns;
                self.begin_bases();
                self.add_delay(now, delay_ns);
            }
        }
    }
}

/// True if more than so many times as much was sent from one to the other as came.
fn sent_times(first: &Sample, last: &Sample, times: u64) -> bool {
    let sent_bytes = last.sent_bytes - first.sent_bytes;
    let came_bytes = last.came_bytes.saturating_sub(first.came_bytes);
    sent_bytes > came_bytes.saturating_mul(times)
}
