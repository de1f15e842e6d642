//! When the latest datagrams of a peer came, for a peer that wants to know.

use std::collections::VecDeque;

use dwell_base::Instant;
use dwell_wire::Arrivals;
use dwell_wire::arrivals::GAPS_MAX;

/// The latest datagrams that came in order: what comes behind a higher number says nothing about the link.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arrived {
    latest: VecDeque<(u64, Instant)>,
    gaps_max: usize,
}

impl Arrived {
    /// Sets how many gaps a message has at most.
    pub(crate) fn with_max(mut self, gaps_max: u8) -> Self {
        self.gaps_max = GAPS_MAX.min(gaps_max.into());
        self
    }

    /// The datagram with this number came.
    #[inline]
    pub(crate) fn came(&mut self, now: Instant, number: u64) {
        if self.latest.back().is_some_and(|&(last, _)| number <= last) {
            return;
        }
        self.latest.push_back((number, now));
        // A message has room for so many numbers.
        let is_far = |first: u64| number - first > self.gaps_max as u64;
        while self.latest.front().is_some_and(|&(first, _)| is_far(first)) {
            self.latest.pop_front();
        }
    }

    /// Takes what came since the last time, the newest of it; the next message begins with its last datagram.
    pub(crate) fn take(&mut self) -> Option<Arrivals> {
        let last = self.latest.len().checked_sub(1)?;
        let newest = self.latest.back().copied();
        let mut latest = self.latest.drain(..last).chain(newest);
        let (first, first_at) = latest.next()?;
        let mut arrivals = Arrivals::new(first, first_at.as_ns());
        let mut before = first;
        for (number, at) in latest {
            (before + 1..number).for_each(|_| _ = arrivals.push(None));
            arrivals.push(Some(at.as_ns()));
            before = number;
        }
        (before > first).then_some(arrivals)
    }
}

#[cfg(test)]
mod tests {
    use dwell_base::time::MILLI_NS;

    use super::*;

    fn at_ms(ms: u64) -> Instant {
        Instant::from_ns(ms * MILLI_NS)
    }

    #[test]
    fn the_newest_are_taken_once() {
        let mut arrived = Arrived::default().with_max(u8::MAX);
        assert_eq!(arrived.take(), None);
        for number in (1..=100).filter(|number| number % 10 != 0) {
            arrived.came(at_ms(number), number);
        }
        arrived.came(at_ms(101), 90); // late
        let arrivals = arrived.take().expect("much came");
        let (first, last) = (arrivals.iter().next(), arrivals.iter().last());
        assert_eq!(first, Some((59, Some(59 * MILLI_NS))));
        assert_eq!(last, Some((99, Some(99 * MILLI_NS))));
        assert_eq!(arrivals.iter().find(|&(number, _)| number == 90), Some((90, None)));
        assert_eq!(arrived.take(), None, "nothing came since");
        arrived.came(at_ms(102), 101);
        let next = arrived.take().expect("one came");
        let expected = [(99, Some(99 * MILLI_NS)), (100, None), (101, Some(102 * MILLI_NS))];
        assert_eq!(next.iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn no_more_than_was_asked_for() {
        for gaps_max in [0, 1, 5] {
            let mut arrived = Arrived::default().with_max(gaps_max);
            (1..50).for_each(|number| arrived.came(at_ms(number), number));
            let count = arrived.take().map_or(1, |arrivals| arrivals.iter().count());
            assert_eq!(count, usize::from(gaps_max) + 1);
        }
        let mut arrived = Arrived::default().with_max(40);
        arrived.came(at_ms(1), 1);
        arrived.came(at_ms(2), u64::MAX);
        assert_eq!(arrived.take(), None, "they are too far from each other");
    }
}
