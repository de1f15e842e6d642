//! What messages that are sent at once show of a link.

use dwell_base::Instant;

use super::LinkReport;

/// A message that shows the link's rate is longer than two segments by so much, in bytes: the other end confirms the first
/// two at once, and not when it is minded to.
const TRAIN_BYTES_MORE: u64 = 1_200;
/// The length of a segment if the transport does not say it, in bytes: that of Ethernet.
const SEGMENT_BYTES: u64 = 1_448;
/// With less than this to wait, nothing is to be won, and it is the machines' doing rather than the link's, in
/// nanoseconds.
const QUEUE_NS_MIN: f64 = 300_000.0;
/// What is shorter can't be distinguished from nothing, in nanoseconds: interrupts, and a clock of microseconds.
const NOISE_NS: f64 = 20_000.0;
/// The part that each confirmation's measurement is of the smoothed round trip (RFC 6298, section 2.3).
const SMOOTHING: f64 = 1.0 / 8.0;
/// If nobody counts them: the segments of a message for each confirmation by the other end.
const CONFIRMED_SEGMENTS: u64 = 2;
/// With fewer, what the average has risen by would count many times, and it rises by chance, too.
const CONFIRMATIONS_MIN: u64 = 3;
/// More of them leave nothing of what was before.
const CONFIRMATIONS_MAX: u64 = 64;
/// So many messages count.
const TRAINS: usize = 4;
/// So many of them have to find the link fast before those that found it slow are not believed: a shaper lets one pass
/// at once now and then.
const FAST_MIN: usize = 2;
/// Messages that are not given at once, but further apart than this, may each have gone before the next came, in nanoseconds.
const AT_ONCE_NS: u64 = 1_000_000;
/// A transport that says at which rate the last of its packets arrived may say it of those that a shaper let pass at once: a higher rate
/// than before counts from so many bytes on that the other end has confirmed of what is sent without a pause.
const BURST_BYTES: u64 = 64 << 10;
/// What they have shown is forgotten after this time without another one, in nanoseconds. What is known makes messages
/// short, and short ones show nothing: a link that has become faster would never be seen to be.
const FORGOTTEN_NS: u64 = 10_000_000_000;

/// The rate of a link by the messages that found it idle.
///
/// A message whose packets are sent at once arrives no faster than the link carries it, and the last of its packets
/// waits for all before it. So its length by how much longer the round trip was than without it says
/// what the link carries, or less if something else made it wait. Where the transport never is full, and only says what it
/// carried at least, nothing else shows that a link is slow. If the round trip was no longer, that is no rate, but the least
/// that the link carries: both are kept apart, as a window in each round trip may be far less than that.
///
/// The transport has an average of round trips: what that was before is taken off. Those of a handshake are as long as the
/// other end computes, and would pass for a slow link long after it. How much of them is left depends on how often the
/// other end has confirmed something: once for all where packets are joined on their way, else once for two of them.
///
/// ```
/// use dwell_base::Instant;
/// use dwell_policy::rate::{LinkReport, Trains};
///
/// let mut trains = Trains::default();
/// let mut report = LinkReport { is_least: true, queue_ns: 16_000_000, ..LinkReport::default() };
/// trains.reported(Instant::ZERO, &mut report);
/// // All of it is confirmed once, 16 ms later than the earliest that there can be.
/// trains.wrote(10_000);
/// report.confirmations += 1;
/// trains.reported(Instant::ZERO, &mut report);
/// assert_eq!(report.train_rate, 625_000.0);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Trains {
    /// Bytes since the transport had nothing to send.
    written: u64,
    latest: [Option<Train>; TRAINS],
    count: usize,
    /// The time of the latest.
    at: Instant,
    /// The time from which bytes are counted, and true if some of them came later.
    begun_at: Instant,
    is_mixed: bool,
    /// How much longer a round trip was than the shortest when the transport had nothing to send the last time, in
    /// nanoseconds.
    before_ns: Option<u64>,
    /// The confirmations until then.
    confirmations: u64,
    /// The rate that the transport has found last, as far as it is believed, and when; zero if none.
    found_rate: f64,
    found_at: Instant,
}

/// What a message has shown, in bytes a second.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Train {
    /// It had to wait, and the link carried it at this rate.
    Slow(f64),
    /// It had not, and the link carries at least this.
    Fast(f64),
}

impl Default for Trains {
    fn default() -> Self {
        Self {
            written: 0,
            latest: [None; TRAINS],
            count: 0,
            at: Instant::ZERO,
            begun_at: Instant::ZERO,
            is_mixed: false,
            before_ns: None,
            confirmations: 0,
            found_rate: 0.0,
            found_at: Instant::ZERO,
        }
    }
}

impl Trains {
    /// Notes that the transport was given `len` bytes.
    pub fn wrote(&mut self, len: usize) {
        self.written = self.written.saturating_add(len as u64);
    }

    /// Learns from a report that was made before anything more is given, and adds to it what is known.
    pub fn reported(&mut self, now: Instant, report: &mut LinkReport) {
        self.believe(now, report);
        // What a long message has shown is no guess, and all before it is of the past.
        if !report.is_least || now.since_ns(self.at) >= FORGOTTEN_NS {
            self.latest = [None; TRAINS];
        }
        if report.pending_bytes == 0 {
            let len = std::mem::take(&mut self.written);
            let before_ns = self.before_ns.replace(report.queue_ns);
            let before = std::mem::replace(&mut self.confirmations, report.confirmations);
            let confirmations = report.confirmations.saturating_sub(before);
            let confirmed_bytes = CONFIRMED_SEGMENTS * segment_bytes(report);
            let is_train = len >= confirmed_bytes + TRAIN_BYTES_MORE && report.is_least;
            if let Some(before_ns) = before_ns.filter(|_| is_train) {
                let count =
                    if report.confirmations == 0 { len / confirmed_bytes } else { confirmations };
                self.learn(now, Train::of(len, own_queue_ns(count, before_ns, report.queue_ns)));
            }
            (self.begun_at, self.is_mixed) = (now, false);
        } else {
            self.is_mixed |= now.since_ns(self.begun_at) > AT_ONCE_NS;
        }
        (report.train_rate, report.train_least) =
            (self.slow_rate().unwrap_or(0.0), self.least_rate());
    }

    /// Takes a rate out of a report that may be a shaper's burst.
    fn believe(&mut self, now: Instant, report: &mut LinkReport) {
        if report.is_least {
            return;
        }
        // Short messages never confirm enough to show that a link has become faster.
        if now.since_ns(self.found_at) >= FORGOTTEN_NS {
            self.found_rate = 0.0;
        }
        let confirmed = self.written.saturating_sub(report.pending_bytes);
        // The transport goes on saying what it has found once.
        if report.delivered_rate < self.found_rate || confirmed >= BURST_BYTES {
            (self.found_rate, self.found_at) = (report.delivered_rate, now);
        } else {
            report.delivered_rate = self.found_rate;
            report.is_least = self.found_rate == 0.0;
        }
    }

    fn learn(&mut self, now: Instant, train: Train) {
        // Several short ones that had not to wait are no long one.
        if self.is_mixed && matches!(train, Train::Fast(_)) {
            return;
        }
        self.latest[self.count % TRAINS] = Some(train);
        self.count += 1;
        self.at = now;
    }

    /// The rate of a link that makes messages wait: of the one that was carried fastest, as in the time of others may be some
    /// of the other end's.
    fn slow_rate(&self) -> Option<f64> {
        let all = || self.latest.iter().flatten();
        if all().filter(|train| matches!(train, Train::Fast(_))).count() >= FAST_MIN {
            return None;
        }
        let slow = |train: &Train| if let Train::Slow(rate) = train { Some(*rate) } else { None };
        all().filter_map(slow).reduce(f64::max)
    }

    /// The least that a link carries which has made none of the latest wait, by the one that shows least; zero if that is
    /// not known.
    fn least_rate(&self) -> f64 {
        let fast = |train: &Option<Train>| match train {
            Some(Train::Fast(rate)) => *rate,
            _ => 0.0,
        };
        self.latest.iter().map(fast).fold(f64::INFINITY, f64::min)
    }
}

fn segment_bytes(report: &LinkReport) -> u64 {
    if report.segment_bytes > 0 { report.segment_bytes } else { SEGMENT_BYTES }
}

impl Train {
    /// Of a message of this length whose confirmations were so much later than the earliest.
    fn of(len: u64, queue_ns: f64) -> Self {
        let rate = len as f64 * 1e9 / queue_ns.max(NOISE_NS);
        if queue_ns >= QUEUE_NS_MIN { Self::Slow(rate) } else { Self::Fast(rate) }
    }
}

/// How much later the last of so many confirmations of a message was than the earliest that there can be, if their average
/// was so much later before it and after it: each waits for the part of the message before it.
fn own_queue_ns(confirmations: u64, before_ns: u64, after_ns: u64) -> f64 {
    // What they may have risen by in one late confirmation is not the message's; what they fall by it has not had.
    let least = if after_ns > before_ns { CONFIRMATIONS_MIN } else { 1 };
    let count = confirmations.clamp(least, CONFIRMATIONS_MAX);
    let average = |average: f64, at: u64| {
        let part = at as f64 / count as f64;
        average + SMOOTHING * (part - average)
    };
    let left = (1.0 - SMOOTHING).powi(count as i32);
    (after_ns as f64 - left * before_ns as f64) / (1..=count).fold(0.0, average)
}

#[cfg(test)]
mod tests;
