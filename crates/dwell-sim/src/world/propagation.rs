//! The way of packets along a link.

use dwell_base::Rng;

use crate::moment::{Moment, Span};
use crate::plan::Jitter as Kind;

/// The propagation delay of a link: constant, or constant and a part that varies by chance.
#[derive(Clone, Debug, Default)]
pub(crate) struct Propagation {
    least: Span,
    jitter: Option<Box<Jitter>>,
}

#[derive(Clone, Debug)]
struct Jitter {
    kind: Kind,
    rng: Rng,
    /// The last arrival: no packet overtakes another.
    last_ns: u64,
}

impl Propagation {
    /// A delay of `least_ns` and what `jitter` adds by `rng`.
    pub(crate) fn new(least_ns: u64, jitter: Option<Kind>, rng: impl FnOnce() -> Rng) -> Self {
        let some = jitter.filter(|(Kind::Uniform(ns) | Kind::Exponential(ns))| *ns > 0);
        let jitter = some.map(|kind| Box::new(Jitter { kind, rng: rng(), last_ns: 0 }));
        Self { least: Span::of(least_ns), jitter }
    }

    /// Returns true if packets arrive when their transmission ends.
    pub(crate) fn is_none(&self) -> bool {
        self.least.ns == 0 && self.jitter.is_none()
    }

    /// Returns the arrival of a packet whose transmission begins now and takes this long.
    #[inline]
    pub(crate) fn arrival(&mut self, begins: Moment, transmission: Span) -> Moment {
        // ns-2 adds both to the clock at once.
        let arrives = begins.after(transmission.and(self.least));
        match &mut self.jitter {
            None => arrives,
            Some(jitter) => {
                let later_ns = jitter.arrival_ns(arrives.ns) - arrives.ns;
                arrives.after(Span::of(later_ns))
            }
        }
    }

    /// Returns the time of arrival of a packet whose transmission ends at this time.
    #[inline]
    pub(crate) fn arrival_ns(&mut self, end_ns: u64) -> u64 {
        let arrives_ns = end_ns.saturating_add(self.least.ns);
        match &mut self.jitter {
            None => arrives_ns,
            Some(jitter) => jitter.arrival_ns(arrives_ns),
        }
    }
}

impl Jitter {
    /// Returns the time of arrival of a packet that would arrive at this time without jitter.
    fn arrival_ns(&mut self, least_ns: u64) -> u64 {
        let more_ns = match self.kind {
            Kind::Uniform(most_ns) => self.rng.below(most_ns.saturating_add(1)),
            Kind::Exponential(mean_ns) => self.rng.exponential(mean_ns as f64) as u64,
        };
        self.last_ns = self.last_ns.max(least_ns.saturating_add(more_ns));
        self.last_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_keeps_the_order() {
        let mut way = Propagation::new(100, Some(Kind::Uniform(50)), || Rng::from_seed(1));
        let arrivals: Vec<u64> = (0..1000).map(|n| way.arrival_ns(n * 10 + 5)).collect();
        assert!(arrivals.is_sorted());
        for (n, &arrives_ns) in arrivals.iter().enumerate() {
            let least_ns = n as u64 * 10 + 105;
            assert!((least_ns..=least_ns + 50).contains(&arrives_ns));
        }
        assert!(arrivals.windows(2).any(|pair| pair[1] - pair[0] != 10));
    }
}
