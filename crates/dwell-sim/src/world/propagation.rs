//! The way of packets along a link.

use dwell_base::Rng;

use crate::moment::{Moment, Span};

/// The propagation delay of a link: constant, or constant and a part that varies by chance.
#[derive(Clone, Debug, Default)]
pub(crate) struct Propagation {
    least: Span,
    jitter: Option<Box<Jitter>>,
}

#[derive(Clone, Debug)]
struct Jitter {
    most_ns: u64,
    rng: Rng,
    /// The last arrival: no packet overtakes another.
    last: Moment,
}

impl Propagation {
    /// A delay of `least_ns` and up to `jitter_ns` more, evenly distributed by `rng`.
    pub(crate) fn new(least_ns: u64, jitter_ns: u64, rng: impl FnOnce() -> Rng) -> Self {
        let jitter = || Box::new(Jitter { most_ns: jitter_ns, rng: rng(), last: Moment::at(0) });
        Self { least: Span::of(least_ns), jitter: (jitter_ns > 0).then(jitter) }
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
            Some(jitter) => jitter.arrival(arrives),
        }
    }
}

impl Jitter {
    fn arrival(&mut self, least: Moment) -> Moment {
        let arrives = least.after(Span::of(self.rng.below(self.most_ns + 1)));
        if arrives.ns > self.last.ns {
            self.last = arrives;
        }
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_keeps_the_order() {
        let mut way = Propagation::new(100, 50, || Rng::from_seed(1));
        let begins = (0..1000).map(|n| Moment::at(n * 10));
        let arrivals: Vec<u64> = begins.map(|at| way.arrival(at, Span::of(5)).ns).collect();
        assert!(arrivals.is_sorted());
        for (n, &arrives_ns) in arrivals.iter().enumerate() {
            let least_ns = n as u64 * 10 + 105;
            assert!((least_ns..=least_ns + 50).contains(&arrives_ns));
        }
        assert!(arrivals.windows(2).any(|pair| pair[1] - pair[0] != 10));
    }
}
