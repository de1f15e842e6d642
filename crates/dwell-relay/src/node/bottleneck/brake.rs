//! Less is sent to a peer that says nothing of what it gets.
//!
//! Where both ends send many times what a thin link takes, their reports are lost with the rest: neither would ever hear
//! what the link takes, and both would go on. So each sends half as much, and half of that, until reports come; and then
//! twice as much again, as long as these show no queue. This is TCP's answer to acknowledgements that stay away (RFC 6298,
//! section 5.5), of rates in place of times.

use dwell_base::Instant;
use dwell_base::time::SECOND_NS;

use super::{ENTER_SAMPLES, ENTER_SPAN_NS, RATE_MIN_BPS};

/// Reports come each second at the least: with none for so long beyond the round trip, half as much is sent, ...
pub(super) const SILENT_NS: u64 = 3 * SECOND_NS;
/// ... and half of that each time that as long as this has gone by.
const AGAIN_NS: u64 = SECOND_NS;
/// If as little as can be brings no report for so long, the reports are not lost by what is sent: the peer alone floods its
/// own link, say. As much is sent as before then, and nothing is tried for a while.
const VAIN_NS: u64 = 10 * SECOND_NS;
pub(super) const LEFT_ALONE_NS: u64 = 80 * SECOND_NS;

/// What becomes of the brake while nothing is heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unheard {
    /// It stays as it is.
    Same,
    /// Less is sent from now on.
    Less,
    /// It was in vain.
    Vain,
}

/// The rate of what is sent to a peer that said nothing for a while, in bits per second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Brake {
    bps: f64,
    /// What was sent before.
    before_bps: f64,
    changed_at: Instant,
    /// Reports since then.
    reports: usize,
}

impl Brake {
    /// So much was sent, and nothing was said of it; none if that is next to nothing.
    pub(super) fn new(now: Instant, sent_bps: f64) -> Option<Self> {
        let brake = Self { bps: sent_bps, before_bps: sent_bps, changed_at: now, reports: 0 };
        (sent_bps > 2.0 * RATE_MIN_BPS).then(|| brake.changed(now, 0.5))
    }

    fn changed(self, now: Instant, times: f64) -> Self {
        let bps = (self.bps * times).max(RATE_MIN_BPS);
        Self { bps, changed_at: now, reports: 0, ..self }
    }

    /// The peer still says nothing.
    pub(super) fn unheard(&mut self, now: Instant) -> Unheard {
        let since_ns = now.since_ns(self.changed_at);
        if self.bps > RATE_MIN_BPS && since_ns >= AGAIN_NS {
            *self = self.changed(now, 0.5);
            return Unheard::Less;
        }
        if since_ns >= VAIN_NS { Unheard::Vain } else { Unheard::Same }
    }

    /// A report came, and no bottleneck is found by it: with as many as show one, twice as much is sent. Returns what is
    /// left of the brake; none if as much is sent as before.
    pub(super) fn heard(mut self, now: Instant) -> Option<Self> {
        self.reports += 1;
        if self.reports <= ENTER_SAMPLES || now.since_ns(self.changed_at) <= ENTER_SPAN_NS {
            return Some(self);
        }
        let more = self.changed(now, 2.0);
        (more.bps < self.before_bps).then_some(more)
    }

    pub(super) fn bps(&self) -> f64 {
        self.bps
    }
}

#[cfg(test)]
mod tests {
    use dwell_base::time::MILLI_NS;

    use super::*;

    #[test]
    fn it_halves_while_nothing_is_heard_and_doubles_while_reports_come() {
        let at = |ms: u64| Instant::from_ns(ms * MILLI_NS);
        assert!(Brake::new(at(0), 6e4).is_none());
        let mut brake = Brake::new(at(0), 1e6).expect("that is much");
        assert_eq!(brake.bps(), 5e5);
        let less: Vec<u64> =
            (1..14_000).filter(|&ms| brake.unheard(at(ms)) == Unheard::Less).collect();
        // 250, 125, 62 and 32 kbit/s; never less.
        assert_eq!((&less[..], brake.bps()), (&[1_000, 2_000, 3_000, 4_000][..], RATE_MIN_BPS));
        assert_eq!(brake.unheard(at(14_000)), Unheard::Vain);
        let (mut left, mut ms) = (Some(brake), 14_000);
        while let Some(brake) = left {
            assert!((RATE_MIN_BPS..1e6).contains(&brake.bps()), "{brake:?}");
            ms += 50;
            left = brake.heard(at(ms));
        }
        // Five times twice as much: the first after five reports, each other one after more than .4 s of them.
        assert_eq!(ms, 14_000 + 250 + 4 * 450);
    }
}
