//! How much longer the other end takes to restore what a slow decoder restores than this one to compress it.

use dwell_base::Instant;

use super::codecs::CodecEstimate;

/// Before anything is known: a decoder of such codecs has as much to do as the encoder, and other work beside it.
const AT_FIRST: f64 = 1.15;
/// While the other end is what is waited for, it is taken to be so many times slower still, ...
const SLOWER: f64 = 1.5;
/// ... up to this many times.
const MOST: f64 = 8.0;
/// To save time, what takes it long is used only if it may be so many times slower than it is taken to be: that it is shows only when what it has not
/// restored yet fills its buffers, and the last of this is as late then.
const SLOW_MARGIN: f64 = 1.3;
/// The time over which is looked at how much of it was waited for the other end, in nanoseconds; and the part from which on that is
/// too much.
const LOOK_NS: u64 = 500_000_000;
const WAITED_SHARE: f64 = 0.25;
/// What was found is half forgotten after this time without such a wait, as the other end may have been busy, in nanoseconds.
const HALF_NS: u64 = 30_000_000_000;

/// The restoring at the other end, as far as the transport shows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Restoring {
    factor: f64,
    /// When it was looked at last, and what the transport had waited for the other end until then.
    looked: Option<(Instant, u64)>,
    /// When the factor changed last.
    changed: Instant,
}

impl Restoring {
    pub(super) const fn new() -> Self {
        Self { factor: AT_FIRST, looked: None, changed: Instant::ZERO }
    }

    /// Returns how many times longer than compressing it takes.
    pub(super) const fn factor(&self) -> f64 {
        self.factor
    }

    /// Returns how many times longer than compressing it takes with this codec, as far as it counts for the choice; 0 if it does not.
    pub(super) fn factor_for<C>(&self, codec: &CodecEstimate<C>, saves_bytes: bool) -> f64 {
        let margin = if codec.is_slow && !saves_bytes { SLOW_MARGIN } else { 1.0 };
        if codec.takes_receiver { margin * self.factor } else { 0.0 }
    }

    /// Notes how long the transport has waited for the other end since it began, in nanoseconds. `is_used` while blocks
    /// are compressed so that restoring them is slow: else the other end waits for something else.
    pub(super) fn reported(&mut self, now: Instant, waited_ns: u64, is_used: bool) {
        if now.since_ns(self.changed) >= HALF_NS {
            self.factor = AT_FIRST + (self.factor - AT_FIRST) / 2.0;
            self.changed = now;
        }
        let Some((at, waited_before)) = self.looked.filter(|_| is_used) else {
            self.looked = is_used.then_some((now, waited_ns));
            return;
        };
        let ns = now.since_ns(at);
        if ns < LOOK_NS {
            return;
        }
        self.looked = Some((now, waited_ns));
        if waited_ns.saturating_sub(waited_before) as f64 > WAITED_SHARE * ns as f64 {
            self.factor = (SLOWER * self.factor).min(MOST);
            self.changed = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Reports each millisecond from one second to another; the part of the time that was waited.
    fn seconds(restoring: &mut Restoring, from: u64, to: u64, (share, is_used): (f64, bool)) {
        for ms in from * 1000..to * 1000 {
            let waited_ns = (share * (ms * MS) as f64) as u64;
            restoring.reported(Instant::from_ns(ms * MS), waited_ns, is_used);
        }
    }

    #[test]
    fn who_is_waited_for_is_taken_to_be_slower() {
        let mut restoring = Restoring::new();
        seconds(&mut restoring, 0, 2, (0.2, true));
        assert_eq!(restoring.factor(), AT_FIRST);
        seconds(&mut restoring, 2, 3, (0.3, true));
        assert!(restoring.factor() > 1.7, "{}", restoring.factor());
        seconds(&mut restoring, 3, 20, (0.3, true));
        assert_eq!(restoring.factor(), MOST);
    }

    #[test]
    fn a_wait_for_something_else_does_not_count() {
        let mut restoring = Restoring::new();
        seconds(&mut restoring, 0, 10, (0.9, false));
        seconds(&mut restoring, 10, 11, (0.1, true));
        assert_eq!(restoring.factor(), AT_FIRST);
    }

    #[test]
    fn what_was_found_is_forgotten() {
        let mut restoring = Restoring::new();
        seconds(&mut restoring, 0, 10, (0.5, true));
        assert_eq!(restoring.factor(), MOST);
        seconds(&mut restoring, 10, 45, (0.0, false));
        assert!(restoring.factor() < 5.0, "{}", restoring.factor());
        seconds(&mut restoring, 45, 300, (0.0, false));
        assert!(restoring.factor() < 1.2, "{}", restoring.factor());
    }
}
