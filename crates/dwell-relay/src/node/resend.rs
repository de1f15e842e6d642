//! Datagrams that are kept for a while, to be sent again if they were lost (`docs/wire.md`
//! section 8.3, sender).

use std::collections::VecDeque;

use dwell_base::Instant;
use dwell_base::time::{MILLI_NS, SECOND_NS};

/// Bytes kept for one peer.
const KEPT_BYTES_MAX: usize = 1 << 20;
/// Datagrams kept for one peer.
const KEPT_MAX: usize = 4_096;
/// A datagram is sent again so often.
pub(super) const TRIES_MAX: u8 = 3;
/// Kept for this many round trips, within limits. That the last datagram of many is missing
/// shows with the next one only, which may be the report of the second.
const KEPT_ROUND_TRIPS: u64 = 5;
const KEPT_NS_MIN: u64 = 1_500 * MILLI_NS;
const KEPT_NS_MAX: u64 = 4 * SECOND_NS;
/// What is believed of a round trip that was not measured yet.
const RTT_NS_DEFAULT: u64 = 400 * MILLI_NS;

#[derive(Debug)]
struct Datagram {
    /// The low half of its number.
    number: u32,
    sent_at: Instant,
    tries: u8,
    body: Vec<u8>,
}

/// The datagrams that are kept for one peer, in the order of their numbers.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    datagrams: VecDeque<Datagram>,
    bytes: usize,
    spare: Vec<Vec<u8>>,
}

impl Kept {
    /// Keeps the body of a datagram, and forgets what is too old or too much.
    pub(crate) fn keep(&mut self, now: Instant, number: u32, body: &[u8], rtt_ns: Option<u64>) {
        self.expire(now, rtt_ns);
        self.bytes += body.len();
        while self.bytes > KEPT_BYTES_MAX || self.datagrams.len() >= KEPT_MAX {
            if !self.forget_oldest() {
                break;
            }
        }
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.extend_from_slice(body);
        self.datagrams.push_back(Datagram { number, sent_at: now, tries: 0, body: copy });
    }

    /// Forgets what nobody asks for any more.
    pub(crate) fn expire(&mut self, now: Instant, rtt_ns: Option<u64>) {
        let kept_ns = rtt_ns.unwrap_or(RTT_NS_DEFAULT).saturating_mul(KEPT_ROUND_TRIPS);
        let kept_ns = kept_ns.clamp(KEPT_NS_MIN, KEPT_NS_MAX);
        let is_old = |oldest: &Datagram| now.since_ns(oldest.sent_at) > kept_ns;
        while self.datagrams.front().is_some_and(is_old) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) -> bool {
        let Some(oldest) = self.datagrams.pop_front() else { return false };
        self.bytes -= oldest.body.len();
        self.recycle(oldest.body);
        true
    }

    /// The body of a datagram that is to be sent again; none if it is not kept, or was sent
    /// often enough.
    pub(crate) fn again(&mut self, number: u32) -> Option<&[u8]> {
        let first = self.datagrams.front()?.number;
        let ahead = number.wrapping_sub(first);
        let at = self.datagrams.binary_search_by_key(&ahead, |it| it.number.wrapping_sub(first));
        let datagram = &mut self.datagrams[at.ok()?];
        datagram.tries = datagram.tries.saturating_add(1);
        (datagram.tries <= TRIES_MAX).then_some(&datagram.body)
    }

    /// Forgets everything: a new session begins.
    pub(crate) fn clear(&mut self) {
        self.datagrams.clear();
        self.bytes = 0;
    }

    fn recycle(&mut self, mut body: Vec<u8>) {
        if self.spare.len() < 64 {
            body.clear();
            self.spare.push(body);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_sent_again_a_few_times() {
        let mut kept = Kept::default();
        // The numbers wrap, and some datagrams are not kept.
        for number in [u32::MAX - 3, u32::MAX, 1, 2, 9] {
            kept.keep(Instant::ZERO, number, &number.to_be_bytes(), None);
        }
        for _ in 0..TRIES_MAX {
            assert_eq!(kept.again(1), Some(&[0, 0, 0, 1][..]));
        }
        for _ in 0..300 {
            assert_eq!(kept.again(1), None);
        }
        assert_eq!(kept.again(u32::MAX), Some(&[0xff; 4][..]));
        assert_eq!([0, 5, u32::MAX - 9].map(|number| kept.again(number).is_some()), [false; 3]);
        kept.clear();
        assert_eq!(kept.again(9), None);
    }

    #[test]
    fn it_is_bounded_in_time_and_memory() {
        let mut kept = Kept::default();
        for number in 0..10_000u32 {
            let now = Instant::from_ns(u64::from(number) * MILLI_NS);
            kept.keep(now, number, &[7; 100], Some(100 * MILLI_NS));
            assert!(kept.bytes <= KEPT_BYTES_MAX && kept.datagrams.len() <= 1_501);
        }
        for number in 0..10_000u32 {
            kept.keep(Instant::from_ns(20 * SECOND_NS), number, &[7; 1400], None);
        }
        assert_eq!(kept.datagrams.len(), KEPT_BYTES_MAX / 1400);
        assert_eq!(kept.bytes, kept.datagrams.len() * 1400);
        kept.expire(Instant::from_ns(25 * SECOND_NS), None);
        assert_eq!((kept.bytes, kept.datagrams.len()), (0, 0), "without more being sent");
    }
}
