//! An estimate of the link's rate from the transport's answers.

use dwell_base::Instant;

use crate::estimate::smoothed;
use busy::Busy;
use climb::Climb;

mod arms;
mod busy;
mod climb;
mod report;
mod trains;
mod yielding;

pub use arms::{Advice, Arms, Confirmed};
pub use report::LinkReport;
pub use trains::Trains;
pub use yielding::Yielding;

/// Shortest time over which a rate is measured, in nanoseconds: a few ticks of a shaper.
const WINDOW_NS: u64 = 1_000_000;
/// Fewest bytes over which a rate is measured.
const WINDOW_BYTES: u64 = 16 << 10;
/// The bytes that are enough, however short the time.
const WINDOW_BYTES_ENOUGH: u64 = 1 << 20;
/// The shortest time if the link may have been idle meanwhile: the transport may hold more than
/// before, as with TCP's window, and that must not be taken for data that the link has carried.
const BROKEN_WINDOW_NS: u64 = 5_000_000;
/// Such a window also has this many pieces, each taken after a refusal: one piece more or less must
/// not matter.
const BROKEN_WINDOW_PIECES: u32 = 8;
/// ... or takes this long, in nanoseconds.
const BROKEN_WINDOW_NS_ENOUGH: u64 = 40_000_000;
const BROKEN_WINDOW_BYTES_ENOUGH: u64 = 4 << 20;
/// If the link may have been idle in all windows for this long, its rate is not known any more.
const BROKEN_NS_MAX: u64 = 500_000_000;
/// The same if it was a guess all the time.
const GUESSED_NS_MAX: u64 = 100_000_000;
/// If the transport took more than this share of its capacity between two refusals, it may have
/// been empty meanwhile, and the link idle: then it only shows the least that the link carries.
const GAP_MAX: f64 = 0.8;
/// A writer that offers more this soon after everything was taken has only fetched it, in
/// nanoseconds. After a longer pause earlier observations are not used.
const FETCH_NS: u64 = 1_000_000;
/// The weight of a new measurement in the estimate, if it took this long, in nanoseconds; shorter
/// ones weigh less.
const GAIN: f64 = 0.3;
const GAIN_NS: f64 = 5e6;
/// After this time, in nanoseconds, hardly anything is left of the earlier estimate.
const GAIN_WHOLE_NS: f64 = 5e8;
/// The factor by which a link that never refused is assumed to be faster than what it has taken.
const GROWTH: f64 = 1.5;
/// The same if its rate had been measured before, and that rate was used at least to this share.
const GROWTH_MEASURED: f64 = 1.1;
const GROWTH_FROM: f64 = 0.92;
/// The time without a refusal that means that the link has become faster, in nanoseconds.
const UNREFUSED_NS: u64 = 20_000_000;

/// A rate that a refusal has shown counts for more than what the transport says of it for this long, in
/// nanoseconds.
const MEASURED_NS_MAX: u64 = 1_000_000_000;

/// An estimate of the link's rate, and of the data that wait in the transport: what a transport
/// takes between two refusals has gone over the link.
///
/// ```
/// use dwell_base::Instant;
/// use dwell_policy::rate::LinkRate;
///
/// let at = |ms: u64| Instant::from_ns(ms * 1_000_000);
/// // It holds 200 kB, and then takes 20 kB every 10 ms.
/// let mut link = LinkRate::new(200_000);
/// link.wrote(at(0), 200_000);
/// link.blocked(at(0));
/// assert_eq!(link.rate(), None);
/// for tick in 1..=20 {
///     link.wrote(at(10 * tick), 20_000);
///     link.blocked(at(10 * tick));
/// }
/// let rate = link.measured_rate().expect("there were refusals");
/// assert!((rate - 2e6).abs() < 1.0, "2 MB/s");
/// assert!(link.drain_ns(at(200)) > 99e6, "100 ms until all of it is sent");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LinkRate {
    rate: Option<f64>,
    /// The rate for what has nothing behind it, if that is another.
    alone: Option<f64>,
    /// The most that is believed of the link until so many bytes were written.
    presumed: Option<(f64, u64)>,
    /// And then, until its rate is measured, unless the transport knows it.
    climb: Option<Climb>,
    busy: Busy,
    /// True if a refusal has shown the rate, and it is no guess.
    measured: bool,
    /// The number of measurements, and the time of the last.
    measurements: u64,
    measured_at: Instant,
    written: u64,
    /// Bytes at the last refusal.
    refused_at: u64,
    /// Time and bytes at a refusal, or at the beginning of a window without one.
    mark: Option<Mark>,
    /// The same at the last refusal.
    unrefused: Option<Mark>,
    /// The time at which all available data had been taken.
    starved_at: Option<Instant>,
    /// The time, since the rate was last measured, for which the link may have been idle in all
    /// windows; and the most that it has carried in one of them.
    broken_ns: u64,
    seen: f64,
    /// The rate that the link has at least, by the windows, smoothed.
    shown: f64,
    /// The estimated bytes that wait in the transport, and the time of this estimate.
    level: f64,
    level_at: Instant,
    /// The bytes that the transport was asked to hold before it refuses. It may hold more, as it
    /// counts only unsent bytes; that does not matter here.
    capacity: f64,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Instant,
    written: u64,
    /// True if the transport was full then.
    full: bool,
    /// True if it may have been empty since.
    broken: bool,
    /// The number of times that something was taken since, after a refusal.
    pieces: u32,
}

impl Mark {
    /// Returns true if the bytes written since, in this time, allow a measurement.
    fn is_long_enough(self, bytes: u64, ns: u64, is_known: bool) -> bool {
        if ns == 0 {
            return false;
        }
        if !self.broken {
            return bytes >= WINDOW_BYTES_ENOUGH || (ns >= WINDOW_NS && bytes >= WINDOW_BYTES);
        }
        // The first guess is needed soon.
        let pieces = !is_known || self.pieces >= BROKEN_WINDOW_PIECES;
        let time = ns >= BROKEN_WINDOW_NS_ENOUGH || (ns >= BROKEN_WINDOW_NS && pieces);
        bytes >= BROKEN_WINDOW_BYTES_ENOUGH || (time && bytes >= WINDOW_BYTES)
    }
}

/// Returns the weight of a window that took this long in an estimate.
fn gain(ns: f64) -> f64 {
    let whole = 1.0 - (-ns / GAIN_WHOLE_NS).exp();
    whole.max(GAIN * (ns / GAIN_NS).min(1.0))
}

impl LinkRate {
    /// Makes the estimate for a transport that holds this many bytes before it refuses.
    pub fn new(capacity: u32) -> Self {
        Self {
            rate: None,
            alone: None,
            presumed: None,
            climb: None,
            busy: Busy::default(),
            measured: false,
            measurements: 0,
            measured_at: Instant::ZERO,
            written: 0,
            refused_at: 0,
            mark: None,
            unrefused: None,
            starved_at: None,
            broken_ns: 0,
            seen: 0.0,
            shown: 0.0,
            level: 0.0,
            level_at: Instant::ZERO,
            capacity: capacity.into(),
        }
    }

    /// Returns the rate in bytes a second; none while it is unknown.
    pub fn rate(&self) -> Option<f64> {
        self.rate
    }

    /// Returns the rate to expect for a message with nothing behind it, in bytes a second.
    pub fn alone_rate(&self) -> Option<f64> {
        self.alone.or(self.rate)
    }

    /// Returns the rate that was found when the transport was kept full; none if it is only a
    /// guess.
    pub fn measured_rate(&self) -> Option<f64> {
        self.rate.filter(|_| self.measured)
    }

    /// Returns the number of measurements of the rate.
    pub fn measurements(&self) -> u64 {
        self.measurements
    }

    /// Returns the rate at which the link was recently seen to carry data, in bytes a second,
    /// smoothed: less than its rate if it was idle meanwhile.
    pub fn shown_rate(&self) -> f64 {
        self.shown
    }

    /// Takes the link to be full, and this to be what it carries of this stream, in bytes a second, until
    /// something is measured.
    pub fn expect(&mut self, now: Instant, rate: f64) {
        if self.rate.is_none() && rate > 0.0 {
            self.rate = Some(rate);
            self.level = self.capacity;
            self.level_at = now;
        }
    }

    /// Takes the link to be full, and to carry this many bytes a second, until something is measured; and no more
    /// than that until `bytes` were written, whatever is measured: a transport takes much at once for a link that
    /// carries little, and what went uncompressed can't be taken back.
    pub fn presume(&mut self, now: Instant, rate: f64, bytes: u64) {
        self.expect(now, rate);
        if rate > 0.0 {
            self.presumed = Some((rate, self.written.saturating_add(bytes)));
            self.climb = Some(Climb::new(now, rate, self.written as i64));
        }
    }

    /// From when what was presumed ends, takes the link to carry what the transport's window allows, whatever it has carried: for who
    /// fills no link, as he saves bytes, it would never have shown more.
    pub fn believes_windows(&mut self) {
        self.climb = None;
    }

    /// Returns true while no more is believed of the link than was presumed.
    pub fn is_presumed(&self) -> bool {
        self.presumed.is_some()
    }

    /// Believes no more than may be believed yet.
    fn restrain(&mut self) {
        let Some((most, until)) = self.presumed else { return };
        if self.written >= until {
            self.presumed = None;
        } else if self.rate.is_some_and(|rate| rate > most) {
            self.rate = Some(most);
            self.measured = false;
        }
    }

    /// Notes what the transport says of its link. That is all that is known of a link which is never
    /// kept full; if refusals have shown its rate lately, that counts.
    pub fn reported(&mut self, now: Instant, report: &LinkReport) {
        // Of another stream more may be on its way than this one has written.
        let confirmed = (self.written as i64).saturating_sub_unsigned(report.pending_bytes);
        self.busy.reported(now, confirmed, report);
        if self.measured && now.since_ns(self.measured_at) < MEASURED_NS_MAX {
            self.alone = None;
            return;
        }
        // Where messages say nothing, it is the rate of all else.
        let is_advice = report.goes_raw || report.prudent_rate > 0.0;
        self.alone = report.alone_rate().filter(|_| is_advice);
        let Some(rate) = report.rate() else { return };
        let most = self.climb.as_mut().map(|climb| climb.confirmed(now, confirmed, report));
        let most = most.filter(|_| report.is_guess()).unwrap_or(f64::INFINITY);
        self.rate = Some(rate.min(most));
        self.measured = false;
        self.restrain();
        self.level = report.waiting_bytes(self.rate.unwrap_or(rate)).min(self.capacity);
        self.level_at = now;
    }

    /// Sets the number of bytes that the transport holds before it refuses, from now on.
    pub fn holds(&mut self, capacity: u32) {
        let more = i64::from(capacity) - self.capacity as i64;
        self.capacity = capacity.into();
        // Bytes that it takes more, or has to send first, do not count as carried.
        self.refused_at = self.refused_at.saturating_add_signed(more);
        for mark in [&mut self.mark, &mut self.unrefused].into_iter().flatten() {
            mark.written = mark.written.saturating_add_signed(more);
        }
    }

    /// Returns the time for which the data that wait in the transport keep the link busy, in
    /// nanoseconds.
    pub fn drain_ns(&self, now: Instant) -> f64 {
        let Some(rate) = self.rate else { return 0.0 };
        self.level_now(now) / rate * 1e9
    }

    /// Returns the time since which nothing waits in the transport any more, in nanoseconds.
    pub fn drained_ns(&self, now: Instant) -> u64 {
        let Some(rate) = self.rate else { return u64::MAX };
        let drain_ns = self.level / rate * 1e9;
        (now.since_ns(self.level_at) as f64 - drain_ns).max(0.0) as u64
    }

    /// Notes that the transport is offered something.
    pub fn offered(&mut self, now: Instant) {
        let Some(starved_at) = self.starved_at.take() else { return };
        let (pause_ns, drain_ns) = (now.since_ns(starved_at), self.drain_ns(starved_at));
        if pause_ns as f64 <= drain_ns {
            return;
        }
        if pause_ns > FETCH_NS {
            (self.mark, self.unrefused) = (None, None);
        }
        for mark in [&mut self.mark, &mut self.unrefused].into_iter().flatten() {
            mark.broken = true;
        }
    }

    /// Notes that the transport took `len` bytes.
    pub fn wrote(&mut self, now: Instant, len: usize) {
        self.level = (self.level_now(now) + len as f64).min(self.capacity);
        self.level_at = now;
        self.written += len as u64;
        self.presumed = self.presumed.filter(|&(_, until)| self.written < until);
        let begin = Mark { at: now, written: self.written, full: false, broken: false, pieces: 0 };
        self.mark.get_or_insert(begin);
        let mark = *self.unrefused.get_or_insert(begin);
        let bytes = self.written.saturating_sub(mark.written);
        let ns = now.since_ns(mark.at);
        // A transport that was full has to take its whole capacity before that is a measurement: on
        // a slow link it takes what has drained in a long time, at once, and then refuses, which is
        // a measurement.
        let enough = match mark.full {
            true => WINDOW_BYTES.max(self.capacity as u64),
            false => WINDOW_BYTES,
        };
        if ns < UNREFUSED_NS || bytes < enough {
            return;
        }
        // It took that much and did not refuse. If it was not always offered something, this is
        // only a lower bound, and no guess.
        let at_least = bytes as f64 * 1e9 / ns as f64;
        let guess = at_least * GROWTH;
        if self.rate.map_or(!mark.broken, |rate| rate < guess) {
            self.grow(at_least);
            self.restrain();
        }
        (self.mark, self.unrefused) = (Some(begin), Some(begin));
    }

    /// Notes that the link may have been idle in a window, but has carried this much.
    fn carried(&mut self, at_least: f64, ns: u64) {
        self.seen = self.seen.max(at_least);
        self.broken_ns += ns;
        // A measured rate is nearly right: a late reading of the clock must not spoil it.
        let growth = if self.measured { 1.0 } else { GROWTH };
        let Some(rate) = self.rate.filter(|&rate| rate >= at_least) else {
            self.rate = Some(at_least * growth);
            return;
        };
        let patience_ns = if self.measured { BROKEN_NS_MAX } else { GUESSED_NS_MAX };
        if self.broken_ns > patience_ns {
            // A writer that often comes late, as it shares the processor, would never learn that
            // the link is slower than estimated.
            self.rate = Some(rate.min(self.seen * GROWTH));
            self.measured = false;
            (self.broken_ns, self.seen) = (0, 0.0);
        }
    }

    /// Notes that the link has taken `at_least` bytes a second, and not refused.
    fn grow(&mut self, at_least: f64) {
        match self.rate {
            // A measured rate is changed by small steps, and only if the link was busy.
            Some(rate) if self.measured && at_least < GROWTH * rate => {
                if at_least > GROWTH_FROM * rate {
                    self.rate = Some(at_least * GROWTH_MEASURED);
                }
            }
            _ => {
                self.rate = Some(at_least * GROWTH);
                self.measured = false;
            }
        }
    }

    /// Notes that the transport takes no more.
    pub fn blocked(&mut self, now: Instant) {
        self.refused(now);
        self.restrain();
        // Not by what is not believed.
        if self.measured {
            self.climb = None;
        }
    }

    fn refused(&mut self, now: Instant) {
        let gap = self.written.saturating_sub(self.refused_at) as f64;
        self.refused_at = self.written;
        self.level = self.capacity;
        self.level_at = now;
        let here = Mark { at: now, written: self.written, full: true, broken: false, pieces: 0 };
        self.unrefused = Some(here);
        let Some(mut mark) = self.mark.filter(|mark| mark.full) else {
            self.mark = Some(here);
            return;
        };
        mark.broken |= gap > GAP_MAX * self.capacity;
        mark.pieces += u32::from(gap > 0.0);
        let (bytes, ns) = (self.written.saturating_sub(mark.written), now.since_ns(mark.at));
        if !mark.is_long_enough(bytes, ns, self.rate.is_some()) {
            self.mark = Some(mark);
            return;
        }
        self.mark = Some(here);
        let sample = bytes as f64 * 1e9 / ns as f64;
        let gain = gain(ns as f64);
        self.shown = smoothed(self.shown, sample, gain);
        if mark.broken {
            self.carried(sample, ns);
            return;
        }
        // Who has given it nothing for a part of the time has seen less than it carries.
        let sample = sample / self.busy.part(now);
        self.rate = Some(match self.rate {
            Some(rate) if self.measured => smoothed(rate, sample, gain),
            _ => sample,
        });
        self.measured = true;
        self.measurements += 1;
        self.measured_at = now;
        (self.broken_ns, self.seen) = (0, 0.0);
    }

    /// Notes that nothing waits to be sent any more.
    pub fn starved(&mut self, now: Instant) {
        self.starved_at = Some(now);
    }

    fn level_now(&self, now: Instant) -> f64 {
        let drained = self.rate.unwrap_or(0.0) * now.since_ns(self.level_at) as f64 / 1e9;
        (self.level - drained).max(0.0)
    }
}

#[cfg(test)]
mod tests;
