//! The retransmit buffer: datagrams that may have been lost and are then sent again (`docs/wire.md`
//! section 8.3, sender).

mod bodies;

use std::collections::VecDeque;

use dwell_base::Instant;
use dwell_base::time::{MILLI_NS, SECOND_NS};

use bodies::{Bodies, Place};

/// The limits of the buffer of one peer.
#[derive(Clone, Copy, Debug)]
struct Limits {
    bytes: usize,
    datagrams: usize,
    /// A datagram is retransmitted at most this often.
    tries: u8,
    /// The retransmission budget grows to at most this: as many full datagrams as a receiver misses at
    /// a time.
    budget_bytes: usize,
}

/// If all that is lost with a datagram is the blocks in it.
const BLOCKS: Limits =
    Limits { bytes: 1 << 20, datagrams: 4_096, tries: TRIES_MAX, budget_bytes: 256 * 1_500 };
/// If nothing that comes later can be decoded without it.
const CONTEXTS: Limits =
    Limits { bytes: 16 << 20, datagrams: 16_384, tries: 10, budget_bytes: 1_024 * 1_500 };
/// A datagram with blocks is retransmitted at most this often.
pub(super) const TRIES_MAX: u8 = 3;
/// Datagrams are kept for this many round trips, within limits. That the last datagram of many is missing
/// shows with the next one only, which may be the report of the second.
const KEEP_ROUND_TRIPS: u64 = 5;
const KEEP_NS_MIN: u64 = 1_500 * MILLI_NS;
const KEEP_NS_MAX: u64 = 4 * SECOND_NS;
/// The round trip assumed until one is measured.
const RTT_NS_DEFAULT: u64 = 400 * MILLI_NS;

#[derive(Debug)]
struct Datagram {
    /// The low half of its number.
    number: u32,
    sent_at: Instant,
    resent_at: Option<Instant>,
    tries: u8,
    body: Place,
}

/// The datagrams that may be retransmitted to one peer, in the order of their numbers.
///
/// Each byte that enters the buffer allows for one byte to be retransmitted: on a link that loses half of all
/// datagrams, each is sent twice. A peer that asks for everything as often as it may therefore costs its
/// link as much again as what is meant for it, and not three times as much.
#[derive(Debug)]
pub(crate) struct RetransmitBuffer {
    limits: Limits,
    /// What the node has for it, if that is less.
    share_bytes: usize,
    datagrams: VecDeque<Datagram>,
    bodies: Bodies,
    bytes: usize,
    /// Bytes that may be retransmitted.
    budget_bytes: usize,
}

impl Default for RetransmitBuffer {
    fn default() -> Self {
        let (datagrams, bodies) = (VecDeque::new(), Bodies::default());
        let share_bytes = usize::MAX;
        Self { limits: BLOCKS, share_bytes, datagrams, bodies, bytes: 0, budget_bytes: 0 }
    }
}

impl RetransmitBuffer {
    /// Takes the limits for a peer that batches of contexts are sent to, or not.
    pub(crate) fn set_limits(&mut self, has_contexts: bool) {
        self.limits = if has_contexts { CONTEXTS } else { BLOCKS };
    }

    /// Returns true if it keeps as much as contexts need.
    pub(crate) fn is_for_contexts(&self) -> bool {
        self.limits.bytes == CONTEXTS.bytes
    }

    /// Takes what the node has for it: no more is kept from now on, whatever the limits.
    pub(crate) fn set_share(&mut self, bytes: usize) {
        self.share_bytes = bytes;
        self.keep_within(self.limits.datagrams);
    }

    /// Returns an empty one with the same share of the node's memory.
    pub(crate) fn take(&mut self) -> Self {
        let share_bytes = self.share_bytes;
        std::mem::replace(self, Self { share_bytes, ..Self::default() })
    }

    fn keep_within(&mut self, datagrams_max: usize) {
        let bytes_max = self.limits.bytes.min(self.share_bytes);
        while self.bytes > bytes_max || self.datagrams.len() > datagrams_max {
            if !self.forget_oldest() {
                break;
            }
        }
    }

    /// Keeps the body of a datagram, and forgets what is too old or too much.
    pub(crate) fn keep(&mut self, now: Instant, number: u32, body: &[u8], rtt_ns: Option<u64>) {
        self.expire(now, rtt_ns);
        self.bytes += body.len();
        self.keep_within(self.limits.datagrams - 1);
        self.budget_bytes = (self.budget_bytes + body.len()).min(self.limits.budget_bytes);
        let body = self.bodies.push(body);
        let datagram = Datagram { number, sent_at: now, resent_at: None, tries: 0, body };
        self.datagrams.push_back(datagram);
    }

    /// Forgets what nobody asks for any more.
    pub(crate) fn expire(&mut self, now: Instant, rtt_ns: Option<u64>) {
        let keep_ns = rtt_ns.unwrap_or(RTT_NS_DEFAULT).saturating_mul(KEEP_ROUND_TRIPS);
        let keep_ns = keep_ns.clamp(KEEP_NS_MIN, KEEP_NS_MAX);
        let is_old = |oldest: &Datagram| now.since_ns(oldest.sent_at) > keep_ns;
        while self.datagrams.front().is_some_and(is_old) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) -> bool {
        let Some(oldest) = self.datagrams.pop_front() else { return false };
        self.bytes -= oldest.body.len();
        self.bodies.forget_before(self.datagrams.front().map(|it| it.body));
        true
    }

    fn position(&self, number: u32) -> Option<usize> {
        let first = self.datagrams.front()?.number;
        let ahead = number.wrapping_sub(first);
        self.datagrams.binary_search_by_key(&ahead, |it| it.number.wrapping_sub(first)).ok()
    }

    fn may_send(&self, datagram: &Datagram) -> bool {
        datagram.tries < self.limits.tries && datagram.body.len() <= self.budget_bytes
    }

    /// Returns whether [`Self::retransmit`] has the datagram with this number.
    pub(crate) fn has(&self, number: u32) -> bool {
        self.bytes_of(number).is_some()
    }

    /// Returns true if it was retransmitted less than a round trip ago: it may yet come.
    pub(crate) fn is_on_its_way(&self, now: Instant, number: u32, rtt_ns: Option<u64>) -> bool {
        let resent_at = self.position(number).and_then(|at| self.datagrams[at].resent_at);
        resent_at.is_some_and(|at| now.since_ns(at) < rtt_ns.unwrap_or(RTT_NS_DEFAULT))
    }

    /// Returns the length of the body that [`Self::retransmit`] has.
    pub(crate) fn bytes_of(&self, number: u32) -> Option<usize> {
        let datagram = &self.datagrams[self.position(number)?];
        self.may_send(datagram).then_some(datagram.body.len())
    }

    /// Returns the body of a datagram to retransmit; none if it is not in the buffer, was sent
    /// often enough, or exceeds the budget by now.
    pub(crate) fn retransmit(&mut self, now: Instant, number: u32) -> Option<&[u8]> {
        let at = self.position(number)?;
        if !self.may_send(&self.datagrams[at]) {
            return None;
        }
        let datagram = &mut self.datagrams[at];
        datagram.tries += 1;
        datagram.resent_at = Some(now);
        self.budget_bytes -= datagram.body.len();
        Some(self.bodies.get(datagram.body))
    }

    /// Returns the bytes of all datagrams that are kept.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns true if nothing is kept.
    pub(crate) fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    /// The bytes that may be sent again at present.
    pub(crate) fn budget_bytes(&self) -> u64 {
        self.budget_bytes as u64
    }

    /// Forgets everything: a new session begins.
    pub(crate) fn clear(&mut self) {
        self.datagrams.clear();
        self.bodies.clear();
        self.bytes = 0;
        self.budget_bytes = 0;
    }
}

/// At most this many of the datagrams that the peer misses may wait for the link.
const AWAITED_MAX: usize = 256;

/// The datagrams that the peer misses and the link has not taken yet, in the order of its requests.
#[derive(Debug, Default)]
pub(crate) struct Awaited {
    /// Numbers, and the bytes that each had when it was asked for.
    datagrams: VecDeque<(u64, usize)>,
    bytes: usize,
}

impl Awaited {
    /// Puts one behind the others, if it is not among them and there is room: the peer asks again.
    pub(crate) fn push(&mut self, number: u64, bytes: usize) {
        if self.datagrams.len() < AWAITED_MAX && !self.contains(number) {
            self.datagrams.push_back((number, bytes));
            self.bytes += bytes;
        }
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        self.datagrams.iter().any(|it| it.0 == number)
    }

    pub(crate) fn first(&self) -> Option<u64> {
        self.datagrams.front().map(|it| it.0)
    }

    pub(crate) fn remove_first(&mut self) {
        if let Some((_, bytes)) = self.datagrams.pop_front() {
            self.bytes -= bytes;
        }
    }

    /// The bytes that the link is to take before anything else.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.datagrams.len()
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use dwell_base::Rng;

    use super::*;

    #[test]
    fn datagrams_are_retransmitted_a_few_times() {
        let mut buffer = RetransmitBuffer::default();
        // The numbers wrap, and some datagrams are not kept.
        for number in [u32::MAX - 3, u32::MAX, 1, 2, 9] {
            buffer.keep(Instant::ZERO, number, &number.to_be_bytes(), None);
        }
        for _ in 0..TRIES_MAX {
            assert_eq!(buffer.retransmit(Instant::ZERO, 1), Some(&[0, 0, 0, 1][..]));
        }
        for _ in 0..300 {
            assert_eq!(buffer.retransmit(Instant::ZERO, 1), None);
        }
        assert_eq!(buffer.retransmit(Instant::ZERO, u32::MAX), Some(&[0xff; 4][..]));
        assert_eq!(
            [0, 5, u32::MAX - 9].map(|number| buffer.retransmit(Instant::ZERO, number).is_some()),
            [false; 3]
        );
        buffer.clear();
        assert_eq!(buffer.retransmit(Instant::ZERO, 9), None);
    }

    #[test]
    fn what_was_just_retransmitted_is_on_its_way() {
        let mut buffer = RetransmitBuffer::default();
        let at = |ms: u64| Instant::from_ns(ms * MILLI_NS);
        buffer.keep(at(0), 7, &[7; 100], None);
        let is_on_its_way = |buffer: &RetransmitBuffer, ms, rtt_ms: Option<u64>| {
            buffer.is_on_its_way(at(ms), 7, rtt_ms.map(|ms| ms * MILLI_NS))
        };
        assert!(!is_on_its_way(&buffer, 0, None));
        assert!(buffer.retransmit(at(10), 7).is_some());
        // Nothing is left to send it again with, and yet it is not gone.
        assert!(!buffer.has(7) && is_on_its_way(&buffer, 12, Some(40)));
        assert!(!is_on_its_way(&buffer, 50, Some(40)) && is_on_its_way(&buffer, 50, None));
        assert!(!buffer.is_on_its_way(at(12), 8, None));
    }

    #[test]
    fn who_asks_for_everything_gets_each_byte_once_more() {
        let mut buffer = RetransmitBuffer::default();
        let (mut bytes, mut again) = (0, 0);
        for number in 0..2_000u32 {
            let body = vec![7; 100 + number as usize % 1_300];
            let now = Instant::from_ns(u64::from(number) * 10 * MILLI_NS);
            buffer.keep(now, number, &body, None);
            bytes += body.len();
            for asked in (number.saturating_sub(63)..=number).rev().cycle().take(256) {
                let has = buffer.has(asked);
                let body = buffer.retransmit(now, asked).map(<[u8]>::len);
                assert_eq!(body.is_some(), has);
                again += body.unwrap_or(0);
            }
            assert!(again <= bytes, "{again} of {bytes}");
        }
        assert!(again > bytes * 9 / 10, "{again} of {bytes}");
        // What nobody asks for is not saved up without end.
        for number in 2_000..9_000 {
            buffer.keep(Instant::from_ns(21 * SECOND_NS), number, &[7; 1_000], None);
        }
        let burst: usize = (2_000..9_000)
            .flat_map(|number| [number; 3])
            .map(|number| buffer.retransmit(Instant::ZERO, number).map_or(0, <[u8]>::len))
            .sum();
        assert!((BLOCKS.budget_bytes - 1_000..=BLOCKS.budget_bytes).contains(&burst), "{burst}");
    }

    #[test]
    fn a_link_that_loses_nearly_half_is_refused_nothing() {
        for seed in 0..8 {
            let (mut buffer, mut rng) = (RetransmitBuffer::default(), Rng::from_seed(seed));
            for number in 0..10_000u32 {
                let now = Instant::from_ns(u64::from(number) * 10 * MILLI_NS);
                buffer.keep(now, number, &[7; 1_000], None);
                let mut tries = 0;
                while rng.chance(0.45) && tries < TRIES_MAX {
                    assert!(number < 100 || buffer.retransmit(now, number).is_some(), "{number}");
                    tries += 1;
                }
            }
        }
    }

    #[test]
    fn it_is_bounded_in_time_and_memory() {
        let mut buffer = RetransmitBuffer::default();
        for number in 0..10_000u32 {
            let now = Instant::from_ns(u64::from(number) * MILLI_NS);
            buffer.keep(now, number, &[7; 100], Some(100 * MILLI_NS));
            assert!(buffer.bytes <= BLOCKS.bytes && buffer.datagrams.len() <= 1_501);
        }
        for number in 0..10_000u32 {
            buffer.keep(Instant::from_ns(20 * SECOND_NS), number, &[7; 1400], None);
        }
        assert_eq!(buffer.datagrams.len(), BLOCKS.bytes / 1400);
        assert_eq!(buffer.bytes, buffer.datagrams.len() * 1400);
        buffer.expire(Instant::from_ns(25 * SECOND_NS), None);
        assert_eq!((buffer.bytes, buffer.datagrams.len()), (0, 0), "without more being sent");
    }
}
