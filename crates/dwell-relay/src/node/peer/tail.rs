//! A sign of life behind the last datagram of many: that it was lost shows only with the next one.

use dwell_base::Instant;
use dwell_base::time::MILLI_NS;

/// What would come later than this comes at least as soon as the sender's own transport notices: TCP
/// waits for two round trips before it probes (RFC 8985, section 7.2).
const PART_OF_RTT: u64 = 4;
const WAIT_NS_MIN: u64 = 5 * MILLI_NS;
const WAIT_NS_MAX: u64 = 200 * MILLI_NS;
/// The round trip assumed until one is measured.
const RTT_NS_DEFAULT: u64 = 100 * MILLI_NS;

/// Remembers whether the last datagram was one that the peer would ask for again, on a path that loses
/// some. If nothing follows it a report does, once.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    sent_at: Option<Instant>,
}

impl Tail {
    /// A datagram was sent. `is_needed` if it will be asked for when it is missed, and may well be.
    pub(crate) fn sent(&mut self, now: Instant, is_needed: bool) {
        self.sent_at = is_needed.then_some(now);
    }

    /// When something should follow.
    pub(crate) fn deadline(&self, rtt_ns: Option<u64>) -> Instant {
        let wait_ns = rtt_ns.unwrap_or(RTT_NS_DEFAULT) / PART_OF_RTT;
        let after = |sent_at| sent_at + wait_ns.clamp(WAIT_NS_MIN, WAIT_NS_MAX);
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
        tail.sent(at(25), false);
        assert_eq!(tail.deadline(Some(40 * MILLI_NS)), Instant::FAR_FUTURE);
    }
}
