//! How the window of a connection grows that Linux makes where nothing else is asked for (RFC 9438).

use dwell_base::Instant;

/// The growth, in packets per cubed second, and what is left of the window after a loss.
const GROWTH: f64 = 0.4;
pub(super) const LEFT: f64 = 0.7;

/// Between two losses.
#[derive(Clone, Copy, Default)]
pub(super) struct Cubic {
    /// The window at the latest loss, and when it began to grow again.
    most: f64,
    since: Option<Instant>,
    /// What Reno would have, with as much left after a loss.
    reno: f64,
}

impl Cubic {
    /// Returns the window after a packet was acknowledged beyond slow start, after this round trip.
    pub(super) fn acknowledged(&mut self, now: Instant, window: f64, rtt_s: f64) -> f64 {
        let since = *self.since.get_or_insert(now);
        if since == now {
            (self.most, self.reno) = (self.most.max(window), window);
        }
        self.reno += 3.0 * (1.0 - LEFT) / (1.0 + LEFT) / window;
        let flat_s = ((self.most - self.most * LEFT) / GROWTH).cbrt();
        let at_s = now.since_ns(since) as f64 / 1e9 + rtt_s - flat_s;
        let aim = (GROWTH * at_s.powi(3) + self.most).clamp(window, 1.5 * window);
        (window + (aim - window) / window).max(self.reno)
    }

    /// Something was lost. Returns the window that is left of this one.
    pub(super) fn lost(&mut self, window: f64) -> f64 {
        // Who did not come as far as the last time leaves room for others.
        let is_less = window < self.most;
        let most = if is_less { window * (1.0 + LEFT) / 2.0 } else { window };
        *self = Self { most, ..Self::default() };
        (window * LEFT).max(2.0)
    }
}
