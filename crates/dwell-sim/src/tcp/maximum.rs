//! The greatest value of the last rounds, as Linux keeps it (`lib/win_minmax.c`, after Kathleen Nichols): the best,
//! and the best of what came after it, twice.

/// The greatest values, each with its round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Maximum {
    best: [(u64, f64); 3],
}

impl Maximum {
    pub(super) fn get(&self) -> f64 {
        self.best[0].1
    }

    /// Takes in a value of this round; those of more than `window` rounds before are forgotten.
    pub(super) fn update(&mut self, round: u64, window: u64, value: f64) {
        let now = (round, value);
        let best = &mut self.best;
        if value >= best[0].1 || round - best[2].0 > window {
            *best = [now; 3];
            return;
        }
        if value >= best[1].1 {
            (best[1], best[2]) = (now, now);
        } else if value >= best[2].1 {
            best[2] = now;
        }
        let age = round - best[0].0;
        if age > window {
            *best = [best[1], best[2], now];
            if round - best[0].0 > window {
                *best = [best[1], best[2], now];
            }
        } else if best[1].0 == best[0].0 && age > window / 4 {
            (best[1], best[2]) = (now, now);
        } else if best[2].0 == best[1].0 && age > window / 2 {
            best[2] = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_of_the_last_rounds_counts() {
        let mut maximum = Maximum::default();
        let values =
            [1.0, 9.0, 3.0, 5.0, 4.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0];
        let greatest: Vec<f64> = (0..)
            .zip(values)
            .map(|(round, value)| {
                maximum.update(round, 10, value);
                maximum.get()
            })
            .collect();
        assert_eq!(greatest[..12], [1.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0]);
        assert!(greatest[12] < 9.0, "{greatest:?}");
        assert_eq!(greatest[15], 2.0);
    }
}
