//! An instant of virtual time, and a span of it.

use dwell_base::Rate;

use crate::plan::Ties;

/// An instant: in whole nanoseconds, or, with [`Ties::Ns2`], in seconds as ns-2 adds them up.
///
/// ns-2 adds seconds in floating point. What happens at one instant there happens some femtoseconds apart,
/// in an order that lasts, because the same sums are rounded in the same way again and again. Then the
/// nanoseconds are the seconds, rounded: they never decide against them.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Nanoseconds since the beginning.
    pub ns: u64,
    /// Seconds since the beginning, rounded whenever something was added; not a number if time is kept in
    /// nanoseconds.
    pub s: f64,
    /// The number of times that anything had been put on the agenda when this was: of equal seconds, what was
    /// put there first is first. Zero: not yet.
    pub order: u64,
}

impl Moment {
    /// Later than anything: nothing is pending.
    pub const NEVER: Self = Self { ns: u64::MAX, s: f64::INFINITY, order: 0 };

    /// Returns the instant of whole nanoseconds.
    #[inline]
    pub const fn at(ns: u64) -> Self {
        Self { ns, s: f64::NAN, order: 0 }
    }

    /// Returns the instant at these seconds.
    #[inline]
    pub fn at_seconds(s: f64) -> Self {
        Self { ns: (s * 1e9).round() as u64, s, order: 0 }
    }

    /// Returns true if ns-2 would take what happens at this instant before what happens at the other.
    #[inline]
    pub fn precedes_in_ns2(self, other: Self) -> bool {
        self.s < other.s || (self.s == other.s && self.order < other.order)
    }

    /// Returns the instant that is this much later.
    #[inline]
    pub fn after(self, span: Span) -> Self {
        match self.s.is_nan() {
            true => Self::at(self.ns.saturating_add(span.ns)),
            false => Self::at_seconds(self.s + span.s),
        }
    }
}

/// The way in which a world keeps time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    Nanoseconds,
    Seconds,
}

impl Clock {
    pub(crate) fn of(ties: Ties) -> Self {
        match ties {
            Ties::Ns2 => Self::Seconds,
            Ties::Random | Ties::Jitter(_) => Self::Nanoseconds,
        }
    }

    /// Returns the instant of whole nanoseconds.
    #[inline]
    pub(crate) fn at(self, ns: u64) -> Moment {
        match self {
            Self::Nanoseconds => Moment::at(ns),
            Self::Seconds if ns == u64::MAX => Moment::NEVER,
            Self::Seconds => Moment { ns, s: ns as f64 / 1e9, order: 0 },
        }
    }
}

/// A span of time, in both ways.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Span {
    /// Nanoseconds.
    pub ns: u64,
    /// Seconds, which need not be whole nanoseconds.
    pub s: f64,
}

impl Span {
    /// Returns the span of whole nanoseconds.
    #[inline]
    pub fn of(ns: u64) -> Self {
        Self { ns, s: ns as f64 / 1e9 }
    }

    /// Returns both spans together.
    #[inline]
    pub fn and(self, other: Self) -> Self {
        Self { ns: self.ns + other.ns, s: self.s + other.s }
    }
}

/// The times of frames on a link. The last one is kept: sizes repeat.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transmissions {
    rate: Rate,
    frame_ns_min: u64,
    last: (u64, Span),
}

impl Transmissions {
    pub(crate) fn new(rate: Rate, frame_ns_min: u64) -> Self {
        Self { rate, frame_ns_min, last: (0, Span::of(frame_ns_min)) }
    }

    /// Returns the least time of a frame.
    pub(crate) fn least_ns(&self) -> u64 {
        self.frame_ns_min
    }

    /// Returns the time that `bytes` take on the wire.
    #[inline]
    pub(crate) fn of(&mut self, bytes: u64) -> Span {
        if self.last.0 != bytes {
            self.last = (bytes, self.compute(bytes));
        }
        self.last.1
    }

    fn compute(&self, bytes: u64) -> Span {
        let ns = self.rate.transmission_ns(bytes);
        match ns < self.frame_ns_min {
            true => Span::of(self.frame_ns_min),
            false => Span { ns, s: 8.0 * bytes as f64 / self.rate.as_bps() as f64 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_added_as_ns2_adds_them() {
        // A third of a nanosecond is lost in whole ones, and not in seconds.
        let mut link = Transmissions::new(Rate::from_bps(70_000_000).unwrap(), 0);
        let span = link.of(1_500);
        assert_eq!(span.ns, 171_429);
        let end = |start: Moment| (0..7_000).fold(start, |at, _| at.after(span)).ns;
        assert_eq!(end(Clock::Nanoseconds.at(0)), 1_200_003_000);
        assert_eq!(end(Clock::Seconds.at(0)), 1_200_000_000);
    }
}
