//! Losses on a link.

use dwell_base::Rng;

use crate::plan::Loss;

/// A model of losses, and its state.
#[derive(Clone, Debug)]
pub(crate) struct Losses {
    model: Loss,
    is_bad: bool,
    rng: Rng,
}

impl Losses {
    pub(crate) fn new(model: Loss, rng: Rng) -> Self {
        Self { model, is_bad: false, rng }
    }

    /// Returns true if the next packet is lost.
    pub(crate) fn next_is_lost(&mut self) -> bool {
        match self.model {
            Loss::Random(share) => self.rng.chance(share),
            Loss::Bursty { to_bad, to_good, lost: (good, bad) } => {
                let is_lost = self.rng.chance(if self.is_bad { bad } else { good });
                if self.rng.chance(if self.is_bad { to_good } else { to_bad }) {
                    self.is_bad = !self.is_bad;
                }
                is_lost
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_have_their_share_and_the_length_of_their_bursts() {
        let model = Loss::Bursty { to_bad: 0.01, to_good: 0.25, lost: (0.0, 1.0) };
        let mut losses = Losses::new(model, Rng::from_seed(1));
        let lost: Vec<bool> = (0..400_000).map(|_| losses.next_is_lost()).collect();
        let count = lost.iter().filter(|&&lost| lost).count() as f64;
        assert!((count / 400_000.0 - model.share()).abs() < 0.002, "{count}");
        let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
        assert!((3.8..4.2).contains(&(count / bursts)));
        let mut losses = Losses::new(Loss::Random(0.1), Rng::from_seed(1));
        let count = (0..100_000).filter(|_| losses.next_is_lost()).count();
        assert!((9_500..10_500).contains(&count));
    }
}
