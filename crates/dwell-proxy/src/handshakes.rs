//! Admission of connections that are about to show that they have the key, and their eviction. No
//! sockets, and no clock: the time is an argument.
//!
//! Connections that have shown nothing yet share a table of fixed size. Nobody has to wait until one
//! of them gives up: when the table is full, the newest comes in and another one goes. Silent
//! connections go first, and then those of the source that has most, the oldest of these first. So
//! whoever fills the table from one address pushes out itself. Sources that have shown the key before
//! keep what makes progress: if only such connections are left, the next one waits where it is, in
//! the kernel's queue.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::source::Source;

/// A connection of a known source that has said nothing for this long may be pushed out. A proxy speaks
/// as soon as it is connected.
const SILENT_TIME: Duration = Duration::from_millis(200);
/// A connection of a known source that has not finished for this long may be pushed out: that is
/// several round trips over a satellite.
const STALLED_TIME: Duration = Duration::from_secs(4);
/// A source that has shown the key is remembered for this long.
const KNOWN_TIME: Duration = Duration::from_secs(3600);
/// This many of these are remembered.
const KNOWN_MAX: usize = 1024;

/// Stands for a connection in the table.
#[derive(Debug)]
pub(crate) struct Ticket {
    source: Source,
    number: u64,
}

/// When something began, and what ends with it when it is pushed out.
type Place<T> = (Instant, T);

/// The connections of one source, by number, which is by age.
#[derive(Debug)]
struct Queues<T> {
    silent: BTreeMap<u64, Place<T>>,
    speaking: BTreeMap<u64, Place<T>>,
}

impl<T> Default for Queues<T> {
    fn default() -> Self {
        Self { silent: BTreeMap::new(), speaking: BTreeMap::new() }
    }
}

/// The table. `T` is dropped, or handed back, when its connection has to go.
#[derive(Debug)]
pub(crate) struct Handshakes<T> {
    max: usize,
    len: usize,
    next: u64,
    sources: HashMap<Source, Queues<T>>,
    /// Sources that have shown the key, and when they did so last.
    known: HashMap<Source, Instant>,
}

impl<T> Handshakes<T> {
    /// For at most `max` connections, at least one.
    pub(crate) fn new(max: usize) -> Self {
        let (sources, known) = (HashMap::new(), HashMap::new());
        Self { max: max.max(1), len: 0, next: 0, sources, known }
    }

    /// The number of connections in the table.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the key was shown from where this connection comes, not long ago.
    pub(crate) fn is_known(&self, now: Instant, ticket: &Ticket) -> bool {
        let known = self.known.get(&ticket.source);
        known.is_some_and(|&at| now.saturating_duration_since(at) < KNOWN_TIME)
    }

    /// Takes a connection in, and gives back what belongs to the one that has to go for it, if one
    /// has to.
    ///
    /// # Errors
    /// The table is full of connections that make progress: `place` comes back, to be tried again
    /// when one of them has ended, or a moment later.
    pub(crate) fn arrive(
        &mut self,
        now: Instant,
        from: IpAddr,
        place: T,
    ) -> Result<(Ticket, Option<T>), T> {
        let mut evicted = None;
        if self.len >= self.max {
            let Some(ticket) = self.victim(now) else { return Err(place) };
            evicted = self.remove(&ticket);
        }
        let ticket = Ticket { source: Source::of(from), number: self.next };
        self.next += 1;
        self.len += 1;
        let queues = self.sources.entry(ticket.source).or_default();
        queues.silent.insert(ticket.number, (now, place));
        Ok((ticket, evicted))
    }

    /// A connection has said its first byte.
    pub(crate) fn spoke(&mut self, now: Instant, ticket: &Ticket) {
        if let Some(queues) = self.sources.get_mut(&ticket.source)
            && let Some((_, place)) = queues.silent.remove(&ticket.number)
        {
            queues.speaking.insert(ticket.number, (now, place));
        }
    }

    /// A connection has shown the key, or is gone.
    pub(crate) fn ended(&mut self, now: Instant, ticket: &Ticket, has_key: bool) {
        self.remove(ticket);
        if has_key {
            self.remember(now, ticket.source);
        }
    }

    fn remove(&mut self, ticket: &Ticket) -> Option<T> {
        let queues = self.sources.get_mut(&ticket.source)?;
        let number = &ticket.number;
        let (_, place) = queues.silent.remove(number).or_else(|| queues.speaking.remove(number))?;
        if queues.silent.is_empty() && queues.speaking.is_empty() {
            self.sources.remove(&ticket.source);
        }
        self.len -= 1;
        Some(place)
    }

    /// Only who has the key comes here.
    fn remember(&mut self, now: Instant, source: Source) {
        if self.known.len() >= KNOWN_MAX && !self.known.contains_key(&source) {
            let oldest = self.known.iter().min_by_key(|&(_, &at)| at).map(|(&source, _)| source);
            oldest.map(|oldest| self.known.remove(&oldest));
        }
        self.known.insert(source, now);
    }

    /// Which connection has to go for another one, if any may.
    fn victim(&self, now: Instant) -> Option<Ticket> {
        let age = |since: Instant| now.saturating_duration_since(since);
        let candidates = self.sources.iter().flat_map(|(&source, queues)| {
            let known = self.known.get(&source).is_some_and(|&at| age(at) < KNOWN_TIME);
            let stages = [(0, &queues.silent, SILENT_TIME), (2, &queues.speaking, STALLED_TIME)];
            stages.into_iter().filter_map(move |(class, queue, patience)| {
                let (&number, &(since, _)) = queue.first_key_value()?;
                let may_go = !known || age(since) >= patience;
                let class = class + u8::from(known);
                may_go.then_some((class, Reverse(queue.len()), number, source))
            })
        });
        let first = candidates.min_by_key(|&(class, len, number, _)| (class, len, number));
        first.map(|(_, _, number, source)| Ticket { source, number })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn at(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    /// Full, with connections of `from` that have the names 0, 1, 2...
    fn full(max: usize, from: IpAddr, now: Instant) -> (Handshakes<usize>, Vec<Ticket>) {
        let mut table = Handshakes::new(max);
        let tickets = (0..max).map(|name| table.arrive(now, from, name).unwrap().0).collect();
        (table, tickets)
    }

    #[test]
    fn who_fills_the_table_pushes_out_itself() {
        let start = Instant::now();
        let (mut table, _) = full(4, ip("192.0.2.1"), start);
        let honest = ip("198.51.100.1");
        let (ticket, evicted) = table.arrive(at(start, 1), honest, 100).unwrap();
        assert_eq!(evicted, Some(0));
        for name in 1..50 {
            let (_, evicted) = table.arrive(at(start, 2), ip("192.0.2.1"), name + 100).unwrap();
            assert_ne!(evicted, Some(100));
            assert_eq!(table.len(), 4);
        }
        table.spoke(at(start, 3), &ticket);
        table.ended(at(start, 4), &ticket, true);
        assert_eq!(table.len(), 3);
    }

    #[test]
    fn silent_ones_go_before_those_that_speak() {
        let start = Instant::now();
        let (mut table, tickets) = full(3, ip("192.0.2.1"), start);
        table.spoke(start, &tickets[0]);
        assert_eq!(table.arrive(start, ip("192.0.2.2"), 3).unwrap().1, Some(1));
        // Each source has one that is silent now.
        assert_eq!(table.arrive(start, ip("192.0.2.2"), 4).unwrap().1, Some(2));
        assert_eq!(table.arrive(start, ip("192.0.2.3"), 5).unwrap().1, Some(3));
    }

    /// Many addresses with a connection each, as a botnet has: the silent ones go, and not the one
    /// that has most.
    #[test]
    fn many_silent_sources_do_not_push_out_one_that_speaks() {
        let start = Instant::now();
        let mut table = Handshakes::new(64);
        let honest = ip("198.51.100.1");
        for name in 0..32 {
            let (ticket, _) = table.arrive(start, honest, name).unwrap();
            table.spoke(start, &ticket);
        }
        for name in 32..10_000_u32 {
            let from = IpAddr::from((name + (10 << 24)).to_be_bytes());
            let (_, evicted) = table.arrive(at(start, 1), from, name).unwrap();
            assert!(evicted.is_none_or(|name| name >= 32));
        }
        assert_eq!(table.len(), 64);
    }

    #[test]
    fn who_has_shown_the_key_is_not_pushed_out_while_it_gets_on() {
        let start = Instant::now();
        let (honest, hostile) = (ip("198.51.100.1"), ip("192.0.2.1"));
        let mut table = Handshakes::new(4);
        let (first, _) = table.arrive(start, honest, 0).unwrap();
        table.ended(start, &first, true);
        let tickets: Vec<_> =
            (1..5).map(|name| table.arrive(start, honest, name).unwrap().0).collect();
        // It has just come, and speaks, and has got on so far: whoever else comes has to wait.
        assert_eq!(table.arrive(start, hostile, 9).unwrap_err(), 9);
        tickets.iter().for_each(|ticket| table.spoke(at(start, 500), ticket));
        assert_eq!(table.arrive(at(start, 4400), hostile, 9).unwrap_err(), 9);
        // But not for ever.
        assert_eq!(table.arrive(at(start, 4500), hostile, 9).unwrap().1, Some(1));
        // Others go before.
        assert_eq!(table.arrive(at(start, 4500), honest, 10).unwrap().1, Some(9));
    }

    #[test]
    fn a_network_of_ipv6_is_one_source() {
        let start = Instant::now();
        let (mut table, _) = full(2, ip("2001:db8::1"), start);
        let other = table.arrive(start, ip("2001:db8:0:1::1"), 5).unwrap();
        assert_eq!(other.1, Some(0));
        assert_eq!(table.arrive(start, ip("2001:db8::ffff"), 6).unwrap().1, Some(1));
    }

    #[test]
    fn few_sources_are_remembered() {
        let start = Instant::now();
        let mut table = Handshakes::new(1);
        for name in 0..2 * KNOWN_MAX as u32 {
            let from = IpAddr::from(name.to_be_bytes());
            let (ticket, _) = table.arrive(start, from, ()).unwrap();
            table.ended(at(start, u64::from(name)), &ticket, true);
        }
        assert_eq!(table.known.len(), KNOWN_MAX);
        assert!(table.known.contains_key(&Source::of(IpAddr::from(2047_u32.to_be_bytes()))));
    }

    proptest! {
        /// Whatever happens in which order, the numbers fit, and nothing is kept of what has gone.
        #[test]
        fn the_table_is_bounded(steps in prop::collection::vec((0..4_u8, any::<u8>()), 0..400)) {
            let start = Instant::now();
            let mut table = Handshakes::new(8);
            let mut tickets = Vec::new();
            for (time, (step, choice)) in steps.into_iter().enumerate() {
                let now = at(start, time as u64 * 100);
                if step < 2 {
                    if let Ok((ticket, _)) = table.arrive(now, [10, 0, 0, choice % 5].into(), ()) {
                        tickets.push(ticket);
                    }
                } else if !tickets.is_empty() {
                    let at = usize::from(choice) % tickets.len();
                    match step {
                        2 => table.spoke(now, &tickets[at]),
                        _ => table.ended(now, &tickets.swap_remove(at), choice & 1 == 0),
                    }
                }
                let held: usize =
                    table.sources.values().map(|q| q.silent.len() + q.speaking.len()).sum();
                prop_assert!(table.len() == held && held <= 8);
                prop_assert!(table.sources.values().all(|q| q.silent.len() + q.speaking.len() > 0));
            }
        }
    }
}
