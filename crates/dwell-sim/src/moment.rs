//! An instant of virtual time, and a span of it.

use dwell_base::Rate;

/// An instant: in whole nanoseconds, which decide what comes first, and as ns-2 would compute it, which may
/// decide among events of the same nanosecond ([`Ties::Ns2`](crate::plan::Ties::Ns2)).
///
/// ns-2 adds seconds in floating point. What happens at one instant there happens some femtoseconds apart,
/// in an order that lasts, because the same sums are rounded in the same way again and again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// Nanoseconds since the beginning.
    pub ns: u64,
    /// Seconds since the beginning, rounded whenever something was added.
    pub s: f64,
    /// The seconds when this instant was put on the agenda: of equal ones, what was put there first is first.
    pub since_s: f64,
}

impl Moment {
    /// Later than anything: nothing is pending.
    pub const NEVER: Self = Self { ns: u64::MAX, s: f64::INFINITY, since_s: f64::INFINITY };

    /// Returns the instant of whole nanoseconds.
    #[inline]
    pub fn at(ns: u64) -> Self {
        // A division would be exact to the last bit, and cost every packet of every source its time.
        Self { ns, s: ns as f64 * 1e-9, since_s: 0.0 }
    }

    /// Returns true if ns-2 would take what happens at this instant before what happens at the other.
    #[inline]
    pub fn precedes_in_ns2(self, other: Self) -> bool {
        (self.s, self.since_s) < (other.s, other.since_s)
    }

    /// Returns the instant that is this much later.
    #[inline]
    pub fn after(self, span: Span) -> Self {
        Self { ns: self.ns.saturating_add(span.ns), s: self.s + span.s, since_s: self.s }
    }
}

/// A span of time, in both ways.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Span {
    /// Nanoseconds.
    pub ns: u64,
    /// Seconds.
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
            let ns = self.rate.transmission_ns(bytes).max(self.frame_ns_min);
            self.last = (bytes, Span::of(ns));
        }
        self.last.1
    }
}
