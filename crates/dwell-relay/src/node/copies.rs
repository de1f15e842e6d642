//! Second copies: on a long, lossy path each datagram goes twice while the link has little else to send.
//!
//! What is asked for comes a round trip late. Where that is long, a sender of TCP has slowed down by then, and in its
//! first doublings it stops there: a flight of few packets is two or three datagrams, each of which is a third of it. The
//! link idles meanwhile, so that a copy right behind its datagram costs nobody time, and both are lost a tenth as often as one
//! where one in ten is. A copy is what a peer would be sent that asks (`docs/wire.md` section 8.3), so that it takes either.
//! The more there is to send the fewer copies go: a full link carries none. A copy goes right behind its datagram, also
//! if a little waits, as what comes behind others is a packet overtaken to TCP.

use std::collections::VecDeque;

use dwell_base::Instant;
use dwell_base::time::{MILLI_NS, SECOND_NS};

/// A copy that comes later than this is behind too much that was sent since: to TCP it would be a packet overtaken.
const LATE_NS: u64 = 50 * MILLI_NS;
/// The most that waits for a link without anything to send.
const WAITING_BYTES_MAX: usize = 64 << 10;
/// Of a path over which fewer datagrams than these are reported it is not known whether it loses any.
const KNOWN_DATAGRAMS: u64 = 64;
/// So many go a second time meanwhile.
const UNKNOWN_MAX: u64 = 256;
/// A path that has lost so much within the latest seconds is lossy, in millionths, ...
const LOST_PPM_MIN: u64 = 5_000;
/// ... unless it has lost so much that what is sent must be too much for it, ...
const LOST_PPM_MAX: u64 = 250_000;
/// ... and stays so for this long.
const LOSSY_NS: u64 = 30 * SECOND_NS;
/// Where less is lost than this, in millionths, originals have copies while they take the link for less than one part of so
/// many of the time: a sender that looks for the link's rate must not find what copies leave of it, and loses little there.
const MUCH_LOST_PPM: u64 = 20_000;
const LINK_PARTS: u64 = 4;
/// They may have taken so much more than that at once: a flight comes in a burst.
const BURST_NS: u64 = 300 * MILLI_NS;
/// While the rate of the link is not known, nobody knows that it has nothing to send: copies take at most so many bytes in a
/// second.
const BLIND_BYTES: u64 = 32 << 10;

/// A datagram that has gone once.
#[derive(Debug)]
pub(super) struct Copy {
    pub(super) number: u64,
    sent_at: Instant,
    pub(super) body: Vec<u8>,
}

/// The datagrams that wait for being sent a second time, and what is known of the path.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    waiting: VecDeque<Copy>,
    bytes: usize,
    /// Datagrams that came over this path, by reports, and in the session by the latest of them.
    known: u64,
    reported: u64,
    /// Those that were kept while the path was not known.
    unknown: u64,
    lossy_at: Option<Instant>,
    /// Much was lost of late.
    is_much: bool,
    /// By how much originals have taken more of the link than their part, and when that was so.
    ahead: (Instant, u64),
    /// Bytes sent while the rate was not known, since a time.
    blind: (Instant, u64),
}

impl Copies {
    /// The peer reports how many datagrams have come in this session, and what it has lost of late, in millionths.
    pub(crate) fn reported(&mut self, now: Instant, datagrams: u64, recent_ppm: u64) {
        self.known = self.known.saturating_add(datagrams.saturating_sub(self.reported));
        self.reported = datagrams;
        if recent_ppm >= LOST_PPM_MAX {
            (self.lossy_at, self.known) = (None, KNOWN_DATAGRAMS);
        } else if recent_ppm >= LOST_PPM_MIN {
            (self.lossy_at, self.is_much) = (Some(now), recent_ppm >= MUCH_LOST_PPM);
        }
    }

    /// The path to the peer may be another one.
    pub(crate) fn moved(&mut self) {
        self.clear();
        (self.known, self.unknown, self.lossy_at, self.is_much) = (0, 0, None, false);
    }

    /// Returns true if the path loses some, as far as is known.
    pub(crate) fn is_lossy(&self, now: Instant) -> bool {
        self.is_unknown() || self.lossy_at.is_some_and(|at| now < at + LOSSY_NS)
    }

    fn is_unknown(&self) -> bool {
        self.known < KNOWN_DATAGRAMS && self.unknown < UNKNOWN_MAX
    }

    /// A datagram is sent that takes the link so long, if its rate is known. Returns true if it is to go a second time.
    pub(crate) fn takes(&mut self, now: Instant, transmission_ns: u64) -> bool {
        let (at, ahead_ns) = self.ahead;
        let ahead_ns = ahead_ns.saturating_sub(now.since_ns(at));
        // What a full link has carried for long is forgotten as soon as what it has carried for a moment.
        let most_ns = 2 * BURST_NS;
        let next_ns = ahead_ns.saturating_add(LINK_PARTS.saturating_mul(transmission_ns));
        self.ahead = (now, next_ns.min(most_ns));
        self.is_much || ahead_ns < BURST_NS
    }

    /// A datagram is sent that is to go a second time.
    pub(crate) fn keep(&mut self, now: Instant, number: u64, body: &[u8]) {
        self.unknown += u64::from(self.is_unknown());
        self.bytes += body.len();
        self.waiting.push_back(Copy { number, sent_at: now, body: body.to_vec() });
        while self.bytes > WAITING_BYTES_MAX {
            self.forget_first();
        }
    }

    /// Returns true if nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Forgets what would come too late.
    pub(crate) fn expire(&mut self, now: Instant) {
        while self.waiting.front().is_some_and(|first| now.since_ns(first.sent_at) > LATE_NS) {
            self.forget_first();
        }
    }

    /// Returns the next datagram to send a second time. If the link's rate is not known and too much was sent so, there is none any more.
    pub(super) fn next(&mut self, now: Instant, is_blind: bool) -> Option<Copy> {
        let len = self.waiting.front()?.body.len() as u64;
        if is_blind {
            if now.since_ns(self.blind.0) > SECOND_NS {
                self.blind = (now, 0);
            }
            if self.blind.1 + len > BLIND_BYTES {
                self.clear();
                return None;
            }
            self.blind.1 += len;
        }
        let first = self.waiting.pop_front()?;
        self.bytes -= first.body.len();
        Some(first)
    }

    /// Forgets all that waits: numbers mean something in their session only.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
        self.bytes = 0;
    }

    fn forget_first(&mut self) {
        if let Some(first) = self.waiting.pop_front() {
            self.bytes -= first.body.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + (10 * SECOND_NS + ms * MILLI_NS)
    }

    fn numbers(copies: &mut Copies, now: Instant, is_blind: bool) -> Vec<u64> {
        std::iter::from_fn(|| copies.next(now, is_blind)).map(|copy| copy.number).collect()
    }

    #[test]
    fn a_path_is_lossy_until_it_is_known_and_for_a_while_after_losses() {
        let mut copies = Copies::default();
        assert!(copies.is_lossy(at(0)));
        copies.reported(at(0), KNOWN_DATAGRAMS, 0);
        assert!(!copies.is_lossy(at(0)));
        copies.reported(at(1), 100, LOST_PPM_MIN - 1);
        assert!(!copies.is_lossy(at(1)));
        copies.reported(at(2), 200, LOST_PPM_MIN);
        copies.reported(at(3), 300, 0);
        assert!(copies.is_lossy(at(3)));
        assert!(!copies.is_lossy(at(2) + LOSSY_NS));
        copies.reported(at(3), 300, LOST_PPM_MAX);
        assert!(!copies.is_lossy(at(3)), "more would be lost of more");
        copies.reported(at(3), 300, LOST_PPM_MAX - 1);
        assert!(copies.is_lossy(at(3)));
        copies.moved();
        copies.reported(at(3), 300 + KNOWN_DATAGRAMS - 1, 0);
        assert!(copies.is_lossy(at(4)), "of another path nothing is known");
        copies.reported(at(5), 300 + KNOWN_DATAGRAMS, 0);
        assert!(!copies.is_lossy(at(5)));
    }

    #[test]
    fn few_go_twice_before_the_path_is_known() {
        let mut copies = Copies::default();
        let twice = (0..1_000).filter(|&number| {
            let is_lossy = copies.is_lossy(at(0));
            if is_lossy {
                copies.keep(at(0), number, &[7]);
            }
            is_lossy
        });
        assert_eq!(twice.count() as u64, UNKNOWN_MAX);
    }

    #[test]
    fn the_oldest_go_first_and_what_is_late_goes_no_more() {
        let mut copies = Copies::default();
        (0..3).for_each(|number| copies.keep(at(number * 40), number, &[7; 100]));
        copies.expire(at(80));
        assert_eq!(numbers(&mut copies, at(80), false), [1, 2]);
        assert!(copies.is_empty());
        assert_eq!(copies.bytes, 0);
    }

    #[test]
    fn where_little_is_lost_originals_have_copies_while_they_take_a_fourth_of_the_link() {
        let mut copies = Copies::default();
        copies.reported(at(0), 1_000, MUCH_LOST_PPM - 1);
        let part = |copies: &mut Copies, start_ms: u64, every_ms: u64, of: u64| {
            let kept = (0..of).filter(|i| copies.takes(at(start_ms + i * every_ms), MILLI_NS));
            kept.count() as u64 * 100 / of
        };
        assert_eq!(part(&mut copies, 0, 5, 2_000), 100);
        // A flight, ...
        assert_eq!(part(&mut copies, 10_000, 1, 90), 100);
        // ... and a link that is full, or half full.
        assert!(part(&mut copies, 12_000, 1, 2_000) < 10);
        assert!(part(&mut copies, 14_000, 2, 2_000) < 1);
        assert!(part(&mut copies, 18_000, 5, 2_000) > 80);
        copies.reported(at(30_000), 2_000, MUCH_LOST_PPM);
        assert_eq!(part(&mut copies, 30_000, 1, 2_000), 100);
    }

    #[test]
    fn little_waits() {
        let mut copies = Copies::default();
        (0..100).for_each(|number| copies.keep(at(0), number, &[7; 1_400]));
        let fitting = WAITING_BYTES_MAX / 1_400;
        let left = numbers(&mut copies, at(0), false);
        assert_eq!((left.len(), left.last()), (fitting, Some(&99)));
    }

    #[test]
    fn little_goes_over_a_link_of_an_unknown_rate() {
        let mut copies = Copies::default();
        (0..40).for_each(|number| copies.keep(at(0), number, &[7; 1_400]));
        let fitting = BLIND_BYTES as usize / 1_400;
        assert_eq!(numbers(&mut copies, at(0), true).len(), fitting);
        assert!(copies.is_empty(), "nobody waits for what has to wait");
        (0..5).for_each(|number| copies.keep(at(900), number, &[7; 1_400]));
        assert!(numbers(&mut copies, at(900), true).is_empty());
        (0..5).for_each(|number| copies.keep(at(1_001), number, &[7; 1_400]));
        assert_eq!(numbers(&mut copies, at(1_001), true).len(), 5);
    }
}
