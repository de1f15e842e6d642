//! Rates that vary.

use std::sync::Arc;

use dwell_base::Rng;
use dwell_base::time::SECOND_NS;

use crate::plan::Variation;

/// A rate by time; time only goes on.
#[derive(Clone, Debug)]
pub(crate) struct Varying {
    source: Source,
    /// The present rate, and the time until which it holds.
    bps: u64,
    until_ns: u64,
}

#[derive(Clone, Debug)]
enum Source {
    Steps {
        steps: Arc<[(u64, u64)]>,
        repeat_ns: Option<u64>,
        /// The number of the next step, and the time at which the present repetition began.
        next: usize,
        began_ns: u64,
    },
    Walk(Box<Walk>),
}

#[derive(Clone, Debug)]
struct Walk {
    base_bps: f64,
    step_ns: u64,
    /// The correlation of one step with the next, and the deviation of what is new in it.
    keeps: f64,
    news: f64,
    sigma: f64,
    bounds: (f64, f64),
    rng: Rng,
    logarithm: f64,
}

impl Varying {
    /// The rate at the beginning, of a link that has `base_bps` without variation.
    pub(crate) fn new(plan: &Variation, base_bps: u64, rng: impl FnOnce() -> Rng) -> Self {
        let source = match plan {
            Variation::Steps { steps, repeat_ns } => Source::Steps {
                steps: Arc::clone(steps),
                repeat_ns: *repeat_ns,
                next: 0,
                began_ns: 0,
            },
            Variation::Walk { step_ns, correlation_ns, sigma, bounds } => {
                let ratio = *step_ns as f64 / (*correlation_ns).max(1) as f64;
                let keeps = libm::exp(-ratio);
                let mut rng = rng();
                let logarithm = sigma * normal(&mut rng);
                Source::Walk(Box::new(Walk {
                    base_bps: base_bps as f64,
                    step_ns: *step_ns,
                    keeps,
                    news: sigma * (1.0 - keeps * keeps).max(0.0).sqrt(),
                    sigma: *sigma,
                    bounds: *bounds,
                    rng,
                    logarithm,
                }))
            }
        };
        let mut varying = Self { source, bps: 0, until_ns: 0 };
        varying.go_on();
        varying
    }

    /// Returns the rate at `at_ns`, and the time until which it holds.
    pub(crate) fn at(&mut self, at_ns: u64) -> (u64, u64) {
        while self.until_ns <= at_ns {
            self.go_on();
        }
        (self.bps, self.until_ns)
    }

    /// Returns the end of a transmission that begins at `at_ns`.
    pub(crate) fn transmission_end(&mut self, mut at_ns: u64, bytes: u64) -> u64 {
        let mut left = u128::from(bytes) * 8 * u128::from(SECOND_NS);
        loop {
            let (bps, until_ns) = self.at(at_ns);
            let most = u128::from(bps) * u128::from(until_ns - at_ns);
            if left <= most && bps > 0 {
                return at_ns.saturating_add(left.div_ceil(u128::from(bps)) as u64);
            }
            left -= most;
            at_ns = until_ns;
        }
    }

    fn go_on(&mut self) {
        match &mut self.source {
            Source::Steps { steps, repeat_ns, next, began_ns } => {
                if *next == steps.len() {
                    // Without a repetition the last step has no end.
                    *began_ns = began_ns.saturating_add(repeat_ns.unwrap_or(u64::MAX));
                    *next = 0;
                }
                self.bps = steps[*next].1;
                *next += 1;
                let end_ns = steps.get(*next).map(|&(at, _)| at).or(*repeat_ns);
                self.until_ns = end_ns.map_or(u64::MAX, |end_ns| began_ns.saturating_add(end_ns));
            }
            Source::Walk(walk) => {
                self.bps = walk.bps();
                walk.logarithm = walk.keeps * walk.logarithm + walk.news * normal(&mut walk.rng);
                self.until_ns += walk.step_ns;
            }
        }
    }
}

impl Walk {
    fn bps(&self) -> u64 {
        // The mean of exp(x) is exp(sigma² / 2) for a normal x.
        let factor = libm::exp(self.logarithm - self.sigma * self.sigma / 2.0);
        ((self.base_bps * factor.clamp(self.bounds.0, self.bounds.1)) as u64).max(1)
    }
}

/// A normal random number, by the method of Box and Muller.
fn normal(rng: &mut Rng) -> f64 {
    let (radius, angle) = (1.0 - rng.unit(), rng.unit() * std::f64::consts::TAU);
    (-2.0 * libm::log(radius)).sqrt() * libm::cos(angle)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn transmissions_go_over_steps_and_outages() {
        let steps = Arc::from([(0, 8_000_000), (10 * MS, 0), (20 * MS, 4_000_000)]);
        let plan = Variation::Steps { steps, repeat_ns: Some(40 * MS) };
        let mut rate = Varying::new(&plan, 1, || Rng::from_seed(1));
        // 1,000 bytes a millisecond, then nothing for 10 ms, then 500.
        assert_eq!(rate.transmission_end(0, 1_000), MS);
        assert_eq!(rate.transmission_end(9 * MS, 2_000), 22 * MS);
        // All begins again after 40 ms.
        assert_eq!(rate.transmission_end(39 * MS, 1_500), 41 * MS);
        assert_eq!(rate.at(59 * MS), (0, 60 * MS));
    }

    #[test]
    fn a_wandering_rate_has_its_mean_and_keeps_to_its_bounds() {
        let walk = Variation::Walk {
            step_ns: 20 * MS,
            correlation_ns: 1_000 * MS,
            sigma: 0.5,
            bounds: (0.1, 3.0),
        };
        let mut rate = Varying::new(&walk, 10_000_000, || Rng::from_seed(3));
        let rates: Vec<f64> = (0..200_000).map(|n| rate.at(n * 20 * MS).0 as f64 / 1e7).collect();
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        assert!((0.95..1.05).contains(&mean), "{mean}");
        assert!(rates.iter().all(|rate| (0.1..=3.0).contains(rate)));
        // Neighbours resemble each other.
        let steps = rates.windows(2).map(|pair| (pair[1] - pair[0]).abs()).sum::<f64>();
        assert!(steps / (rates.len() as f64) < 0.12);
    }
}
