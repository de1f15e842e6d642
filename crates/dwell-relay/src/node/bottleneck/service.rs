//! The rate at which the link serves what stands in its queue, seen from single datagrams.
//!
//! A datagram that was sent before the one ahead of it had arrived stood behind that one: the time between
//! their arrivals is what the link takes for it, whatever the time between their sendings was. TCP sends in
//! bursts, so that there are such pairs even where no queue ever stands. This is the dispersion of packet
//! trains (Dovrolis, Ramanathan and Moore, "Packet-dispersion techniques and a capacity-estimation
//! methodology", 2004), of the traffic that there is; nothing is sent for it.
//!
//! Jitter spaces datagrams too. A link smooths: what comes is more even than what was sent. Jitter does the
//! contrary.

use std::collections::VecDeque;

use dwell_base::Instant;
use dwell_base::time::MILLI_NS;
use dwell_wire::Arrivals;
use dwell_wire::arrivals::{GAP_UNIT_NS, GAPS_MAX};

use super::base::Base;
use super::sent::{Sent, SentRing};

/// Clocks drift apart: delays are compared with the least of two to three of these.
const BASE_SPAN_NS: u64 = 1_500 * MILLI_NS;
/// What was seen lately counts for so long, ...
const WINDOW_NS: u64 = 600 * MILLI_NS;
/// ... in at most this many messages; the link must have been busy in this many of them, ...
const SPELLS_MAX: usize = 16;
const SPELLS_MIN: usize = 3;
/// ... with this many pairs in all, ...
const PAIRS_MIN: u32 = 24;
/// The same of a link that is known, to be followed.
const SPELLS_NOW: usize = 2;
const PAIRS_NOW_MIN: u32 = 8;
/// And it must have been busy for this part of the time.
const BUSY_MIN: f64 = 0.75;
/// What comes deviates from an even stream by no more than this part of it, ...
const ROUGH_MAX: f64 = 0.35;
/// ... and by no more than this part of how much what was sent deviates.
const SMOOTH_MAX: f64 = 0.6;
/// What comes takes longer than what was sent by more than chance.
const STRETCH_MIN: f64 = 1.02;
/// The rates of single messages deviate from that of all by no more than this, on the average.
const SPREAD_MAX: f64 = 0.12;

/// What one message says of datagrams that stood behind each other.
#[derive(Clone, Copy, Debug)]
struct Spell {
    at: Instant,
    pairs: u32,
    bytes: u64,
    /// The time between their arrivals and between their sendings, and from the first arrival to the last in the
    /// message.
    came_ns: u64,
    sent_ns: u64,
    all_ns: u64,
    /// The deviations from even streams, of what came and of what was sent, as parts of them.
    rough_came: f64,
    rough_sent: f64,
}

/// The rate at which the link serves, while it is busy most of the time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Service {
    pub(super) bps: f64,
    /// What came is so much more even than what was sent that a link did it.
    pub(super) is_smooth: bool,
    /// What came took longer than what was sent.
    pub(super) is_stretched: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ServiceWatch {
    sent: SentRing,
    spells: VecDeque<Spell>,
    base: Base<BASE_SPAN_NS>,
}

#[derive(Clone, Copy, Debug)]
struct Pair {
    bytes: u64,
    sent_ns: u64,
    came_ns: u64,
}

impl ServiceWatch {
    #[inline]
    pub(super) fn sent(&mut self, at: Instant, number: u64, link_bytes: u64) {
        self.sent.sent(at, number, link_bytes);
    }

    /// A new session: its numbers begin again.
    pub(super) fn begin_session(&mut self) {
        self.sent.clear();
        self.spells.clear();
        self.base = Base::default();
    }

    /// The peer says something of the datagrams from this one on.
    pub(super) fn reach(&mut self, number: u64) {
        self.sent.reach(number);
    }

    /// Returns the delays of the datagrams in a message, with what one clock is ahead of the other.
    pub(super) fn delays_ns(&self, arrivals: &Arrivals) -> impl Iterator<Item = i64> {
        arrivals.iter().filter_map(|(number, came_at_ns)| {
            let sent = self.sent.get(number)?;
            Some(came_at_ns?.wrapping_sub(sent.at.as_ns()) as i64)
        })
    }

    /// A message came, and this is the least delay in it.
    pub(super) fn on_arrivals(&mut self, now: Instant, arrivals: &Arrivals, least_ns: i64) {
        self.base.add(now, least_ns);
        let base_ns = self.base.least().unwrap_or(least_ns);
        let (mut pairs, mut count) = ([None; GAPS_MAX], 0);
        let mut before: Option<(Sent, u64)> = None;
        let last_ns = arrivals.iter().filter_map(|(_, came_at_ns)| came_at_ns).last();
        let all_ns = last_ns.map_or(0, |last_ns| last_ns.saturating_sub(arrivals.first_at_ns));
        for (number, came_at_ns) in arrivals.iter() {
            let sent = self.sent.get(number);
            let Some((sent, came_at_ns)) = sent.zip(came_at_ns) else {
                before = None;
                continue;
            };
            if let Some((first, first_came_at_ns)) = before.replace((sent, came_at_ns)) {
                let sent_ns = sent.at.since_ns(first.at);
                let came_ns = came_at_ns.saturating_sub(first_came_at_ns);
                let delay_ns = first_came_at_ns.wrapping_sub(first.at.as_ns()) as i64;
                let ahead_ns = delay_ns.saturating_sub(base_ns);
                if ahead_ns >= GAP_UNIT_NS as i64 && ahead_ns as u64 >= sent_ns {
                    pairs[count] = Some(Pair { bytes: sent.link_bytes, sent_ns, came_ns });
                    count += 1;
                }
            }
        }
        let Some(spell) = Spell::of(now, &pairs[..count], all_ns) else { return };
        if self.spells.len() == SPELLS_MAX {
            self.spells.pop_front();
        }
        self.spells.push_back(spell);
    }

    /// Returns the rate at which the link serves, if it is busy: for so long that it can be taken for a
    /// bottleneck.
    pub(super) fn service(&self, now: Instant) -> Option<Service> {
        self.service_of(now, (SPELLS_MAX, SPELLS_MIN, PAIRS_MIN))
    }

    /// The same at present, of a link that is known. What comes just as it was sent, by our own pace, says
    /// nothing about the link.
    pub(super) fn service_now(&self, now: Instant) -> Option<f64> {
        let service = self.service_of(now, (SPELLS_NOW, SPELLS_NOW, PAIRS_NOW_MIN))?;
        (service.is_smooth || service.is_stretched).then_some(service.bps)
    }

    /// The rate of single datagrams that stood behind each other of late, however often the link idled in between. It is that
    /// of the link if a queue is known to stand there, or to have stood until we were late.
    pub(super) fn pairs_now(&self, now: Instant) -> Option<f64> {
        let recent = self.spells.iter().rev().take(SPELLS_NOW);
        let recent = recent.filter(|spell| now.since_ns(spell.at) < WINDOW_NS);
        let sum = |(pairs, bytes, ns): (u32, u64, u64), spell: &Spell| {
            (pairs + spell.pairs, bytes + spell.bytes, ns + spell.came_ns)
        };
        let (pairs, bytes, came_ns) = recent.fold((0, 0, 0), sum);
        (pairs >= PAIRS_NOW_MIN && came_ns > 0).then(|| bytes as f64 * 8e9 / came_ns as f64)
    }

    fn service_of(
        &self,
        now: Instant,
        (spells_max, spells_min, pairs_min): (usize, usize, u32),
    ) -> Option<Service> {
        let is_recent = |spell: &&Spell| now.since_ns(spell.at) < WINDOW_NS;
        let recent = || self.spells.iter().rev().take(spells_max).filter(is_recent);
        let sum = |of: fn(&Spell) -> u64| recent().map(of).sum::<u64>();
        let (bytes, came_ns) = (sum(|spell| spell.bytes), sum(|spell| spell.came_ns));
        let pairs: u32 = recent().map(|spell| spell.pairs).sum();
        let all_ns = sum(|spell| spell.all_ns);
        if recent().count() < spells_min || pairs < pairs_min || came_ns == 0 {
            return None;
        }
        if (came_ns as f64) < BUSY_MIN * all_ns as f64 {
            return None;
        }
        let bps = bytes as f64 * 8e9 / came_ns as f64;
        // In nanoseconds, so that the longer count more.
        let mean = |of: &dyn Fn(&Spell) -> f64| {
            recent().map(|spell| of(spell) * spell.came_ns as f64).sum::<f64>() / came_ns as f64
        };
        let rough_came = mean(&|spell| spell.rough_came);
        let spread = mean(&|spell| (spell.bps() / bps - 1.0).abs());
        if rough_came > ROUGH_MAX || spread > SPREAD_MAX {
            return None;
        }
        let is_smooth = rough_came <= SMOOTH_MAX * mean(&|spell| spell.rough_sent);
        let is_stretched = came_ns as f64 >= STRETCH_MIN * sum(|spell| spell.sent_ns) as f64;
        Some(Service { bps, is_smooth, is_stretched })
    }
}

impl Spell {
    fn of(at: Instant, pairs: &[Option<Pair>], all_ns: u64) -> Option<Self> {
        let each = || pairs.iter().flatten();
        let bytes: u64 = each().map(|pair| pair.bytes).sum();
        let came_ns: u64 = each().map(|pair| pair.came_ns).sum();
        let sent_ns: u64 = each().map(|pair| pair.sent_ns).sum();
        let rough = |of: fn(&Pair) -> u64, total_ns: u64| {
            let per_byte = total_ns as f64 / bytes.max(1) as f64;
            let off = |pair: &Pair| (of(pair) as f64 - pair.bytes as f64 * per_byte).abs();
            each().map(off).sum::<f64>() / total_ns.max(1) as f64
        };
        let (rough_came, rough_sent) =
            (rough(|pair| pair.came_ns, came_ns), rough(|pair| pair.sent_ns, sent_ns));
        let pairs = each().count() as u32;
        (all_ns > 0).then_some(Self {
            at,
            pairs,
            bytes,
            came_ns,
            sent_ns,
            all_ns,
            rough_came,
            rough_sent,
        })
    }

    fn bps(&self) -> f64 {
        self.bytes as f64 * 8e9 / self.came_ns.max(1) as f64
    }
}
