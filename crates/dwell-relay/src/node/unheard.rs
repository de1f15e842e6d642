//! Whether our reports should be repeated, since the peer may not have heard them.
//!
//! Where both ends send far more than a thin link takes, and nothing of it compresses, their reports are lost with the
//! rest: neither end learns of it, and both go on. With enough of them among what is sent, as many come as the link takes
//! packets. Nothing else follows from a peer that says nothing: an outage, a pause or a peer that has gone look the same, and
//! a relay that sends less then is slow for long once they are over.
//!
//! It is pure: sendings, reports and times are arguments.

use dwell_base::Instant;
use dwell_base::time::SECOND_NS;
use dwell_wire::Report;

/// A peer that has said nothing of what is sent for this long, though it was so much, is hardly heard; ...
const SILENT_NS: u64 = 2 * SECOND_NS;
const SILENT_BYTES: u64 = 16 << 10;
/// ... and one that lost more than three of four datagrams lately hardly hears us.
const LOST_TIMES: u64 = 4;
const LOST_MIN: u64 = 32;
/// A pause of so long ends what a report was waited for: the last one before it may be lost.
const PAUSE_NS: u64 = 2 * SECOND_NS;
/// Reports are repeated when so much was sent since the latest, ...
const REPEAT_BYTES: u64 = 4 << 10;
/// ... and when half as much was each time that the silence is longer by as much, so many times: on a link of 64 kbit/s that is sent
/// 2,000 packets a second, one of 400 arrives.
const HALVED_MAX: u32 = 3;
/// To who says that it loses most, when that much was.
const REPEAT_LOST_BYTES: u64 = 1 << 10;

/// What was sent since the peer's latest report.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unreported {
    /// When the first and the latest of it was.
    span: Option<(Instant, Instant)>,
    bytes: u64,
}

impl Unreported {
    /// Packets were sent, in a datagram that takes this of the link.
    #[inline]
    pub(super) fn sent_packets(&mut self, now: Instant, link_bytes: u64) {
        let is_on = |(_, latest): &(Instant, Instant)| now.since_ns(*latest) <= PAUSE_NS;
        match self.span.filter(is_on) {
            Some((since, _)) => self.span = Some((since, now)),
            None => *self = Self { span: Some((now, now)), bytes: 0 },
        }
        self.bytes += link_bytes;
    }

    /// Since when it was sent, if it is more than this.
    pub(super) fn since(&self, bytes: u64) -> Option<Instant> {
        self.span.filter(|_| self.bytes > bytes).map(|(since, _)| since)
    }
}

/// What is known of whether the peer hears us, and we it.
#[derive(Clone, Debug, Default)]
pub(super) struct Unheard {
    unreported: Unreported,
    loses_most: bool,
    /// What was sent since our own latest report.
    since_ours_bytes: u64,
}

impl Unheard {
    /// Packets were sent, in a datagram that takes this of the link.
    #[inline]
    pub(super) fn sent_packets(&mut self, now: Instant, link_bytes: u64) {
        self.unreported.sent_packets(now, link_bytes);
        self.since_ours_bytes += link_bytes;
    }

    /// A report of ours goes out.
    pub(super) fn reported(&mut self) {
        self.since_ours_bytes = 0;
    }

    /// The peer's latest report.
    pub(super) fn on_report(&mut self, report: &Report) {
        self.unreported = Unreported::default();
        let came = report.recent_sent.saturating_sub(report.recent_lost);
        self.loses_most =
            report.recent_sent >= LOST_MIN && report.recent_sent > came.saturating_mul(LOST_TIMES);
    }

    /// True if the peer says that it loses most, and enough was sent since our latest report for another one.
    pub(super) fn is_lossy(&self) -> bool {
        self.loses_most && self.since_ours_bytes >= REPEAT_LOST_BYTES
    }

    /// When our latest report is to be repeated to a peer that is silent; none if it is not, or little was sent since.
    pub(super) fn repeat_at(&self) -> Option<Instant> {
        let since = self.unreported.since(SILENT_BYTES)?;
        let is_enough = |halved: &u32| self.since_ours_bytes >= REPEAT_BYTES >> halved;
        let halved = (0..=HALVED_MAX).find(is_enough)?;
        Some(since + SILENT_NS * u64::from(halved + 1))
    }
}

#[cfg(test)]
mod tests {
    use dwell_base::time::MILLI_NS;

    use super::*;

    fn at_ms(ms: u64) -> Instant {
        Instant::from_ns(ms * MILLI_NS)
    }

    /// A full packet each `every_ms`, until then.
    fn send(unheard: &mut Unheard, (from_ms, until_ms): (u64, u64), every_ms: u64) {
        (from_ms..until_ms)
            .step_by(every_ms as usize)
            .for_each(|ms| unheard.sent_packets(at_ms(ms), 1_500));
    }

    fn lost(recent_sent: u64, recent_lost: u64) -> Report {
        Report { recent_sent, recent_lost, ..Report::default() }
    }

    #[test]
    fn reports_are_repeated_to_a_peer_that_says_nothing_of_what_is_sent() {
        let mut unheard = Unheard::default();
        assert_eq!(unheard.repeat_at(), None);
        send(&mut unheard, (0, 1_000), 10);
        assert_eq!(unheard.repeat_at(), Some(at_ms(2_000)));
        unheard.reported();
        assert_eq!(unheard.repeat_at(), None, "little was sent since");
        send(&mut unheard, (1_000, 1_010), 10);
        assert_eq!(unheard.repeat_at(), Some(at_ms(6_000)));
        send(&mut unheard, (1_010, 1_030), 10);
        assert_eq!(unheard.repeat_at(), Some(at_ms(2_000)));
        unheard.on_report(&lost(0, 0));
        assert_eq!(unheard.repeat_at(), None, "it was heard");
    }

    #[test]
    fn reports_are_repeated_to_a_peer_that_loses_most() {
        let mut unheard = Unheard::default();
        send(&mut unheard, (0, 1_000), 10);
        for (report, is_lossy) in [
            (lost(100, 74), false),
            (lost(100, 76), true),
            (lost(20, 20), false),
            (lost(u64::MAX, u64::MAX), true),
            (lost(100, u64::MAX), true),
            (lost(u64::MAX, 0), false),
        ] {
            unheard.on_report(&report);
            assert_eq!((unheard.is_lossy(), unheard.repeat_at()), (is_lossy, None), "{report:?}");
        }
        unheard.on_report(&lost(100, 76));
        unheard.reported();
        assert!(!unheard.is_lossy(), "little was sent since");
    }

    #[test]
    fn a_pause_is_no_silence_and_little_is_none_either() {
        let mut unheard = Unheard::default();
        send(&mut unheard, (0, 100), 10);
        send(&mut unheard, (9_000, 9_200), 10);
        assert_eq!(unheard.repeat_at(), Some(at_ms(11_000)));
        let mut unheard = Unheard::default();
        send(&mut unheard, (0, 10_000), 1_000);
        assert_eq!(unheard.repeat_at(), None);
    }
}
