//! A sign of life behind the last datagram of many: that it was lost shows only with the next one.

use dwell_base::Instant;
use dwell_base::time::MILLI_NS;

/// What would come later than this comes at least as soon as the sender's own transport notices: TCP
/// waits for two round trips before it probes (RFC 8985, section 7.2).
const PART_OF_RTT: u64 = 4;
const WAIT_NS_MIN: u64 = 5 * MILLI_NS;
const WAIT_NS_MAX: u64 = 200 * MILLI_NS;
/// What is sent regularly, and is always the last for a while, is not followed each time.
const PAUSE_NS_MIN: u64 = 100 * MILLI_NS;
/// The round trip assumed until one is measured.
const RTT_NS_DEFAULT: u64 = 100 * MILLI_NS;

/// Remembers whether the last datagram was one that the peer would ask for again, on a path that loses
/// some. If nothing follows it a report does, once.
#[derive(Debug)]
pub(crate) struct Tail {
    sent_at: Option<Instant>,
    /// No report follows before this.
    next_at: Instant,
}

impl Default for Tail {
    fn default() -> Self {
        Self { sent_at: None, next_at: Instant::ZERO }
    }
}

impl Tail {
    /// A datagram was sent. `is_needed` if it will be asked for when it is missed, and may well be.
    pub(crate) fn sent(&mut self, now: Instant, is_needed: bool) {
        self.sent_at = is_needed.then_some(now);
    }

    /// A report follows; the next one that does comes so much later. Whether it can be sent or not,
    /// once is enough.
    pub(crate) fn reported(&mut self, now: Instant, pause_ns: u64) {
        (self.sent_at, self.next_at) = (None, now + pause_ns.max(PAUSE_NS_MIN));
    }

    /// When something should follow.
    pub(crate) fn deadline(&self, rtt_ns: Option<u64>) -> Instant {
        let wait_ns = rtt_ns.unwrap_or(RTT_NS_DEFAULT) / PART_OF_RTT;
        let wait_ns = wait_ns.clamp(WAIT_NS_MIN, WAIT_NS_MAX);
        let after = |sent_at: Instant| (sent_at + wait_ns).max(self.next_at);
        self.sent_at.map_or(Instant::FAR_FUTURE, after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_ns(ms * MILLI_NS)
    }

    #[test]
    fn only_the_last_one_is_followed_and_once() {
        let mut tail = Tail::default();
        assert_eq!(tail.deadline(None), Instant::FAR_FUTURE);
        tail.sent(at(10), true);
        assert_eq!(tail.deadline(Some(40 * MILLI_NS)), at(20));
        tail.sent(at(15), true);
        assert_eq!(tail.deadline(Some(40 * MILLI_NS)), at(25));
        assert_eq!(tail.deadline(Some(4 * MILLI_NS)), at(20));
        assert_eq!(tail.deadline(Some(4_000 * MILLI_NS)), at(215));
        tail.reported(at(220), 0);
        tail.sent(at(221), true);
        assert_eq!(tail.deadline(None), at(320), "not so soon again");
        tail.sent(at(225), false);
        assert_eq!(tail.deadline(Some(40 * MILLI_NS)), Instant::FAR_FUTURE);
    }
}
