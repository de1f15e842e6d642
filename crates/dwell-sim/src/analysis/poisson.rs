//! The Poisson distribution, also where its mean is far larger than the number asked for.

/// ln P(X = k) for Poisson X with this mean.
fn log_mass(mean: f64, k: u32) -> f64 {
    if mean == 0.0 {
        return if k == 0 { 0.0 } else { f64::NEG_INFINITY };
    }
    let k = f64::from(k);
    // In logarithms neither the power nor the factorial overflows.
    k * libm::log(mean) - mean - libm::lgamma(k + 1.0)
}

/// P(X = k).
pub(super) fn mass(mean: f64, k: u32) -> f64 {
    libm::exp(log_mass(mean, k))
}

/// P(X < k); zero for k = 0.
pub(super) fn below(mean: f64, k: u32) -> f64 {
    (0..k).map(|k| mass(mean, k)).sum::<f64>().min(1.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn masses_are_those_of_the_definition() {
        // e^(−2) · 2^3 / 3!
        assert!((mass(2.0, 3) - 0.180_447_044_315_483_6).abs() < 1e-15);
        assert_eq!(mass(0.0, 0), 1.0);
        assert_eq!(mass(0.0, 1), 0.0);
    }

    #[test]
    fn neither_large_means_nor_large_counts_overflow() {
        // About the mean the mass is 1 / √(2π mean).
        let mode = mass(1e6, 1_000_000);
        assert!((mode * (2.0 * std::f64::consts::PI * 1e6).sqrt() - 1.0).abs() < 1e-6, "{mode}");
        // 225 of 1375 expected: one in 10^325, below the least number there is.
        assert!(log_mass(1375.0, 224) < -740.0);
        assert!(below(1375.0, 225) < 1e-320);
        assert!((below(0.5, 200) - 1.0).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn masses_follow_the_recurrence(mean in 0.01f64..500.0, k in 0u32..1000) {
            // P(k + 1) / P(k) = mean / (k + 1).
            let (here, next) = (log_mass(mean, k), log_mass(mean, k + 1));
            let ratio = libm::log(mean) - libm::log(f64::from(k + 1));
            prop_assert!((next - here - ratio).abs() < 1e-9);
        }

        #[test]
        fn below_is_a_rising_probability(mean in 0.0f64..3000.0, k in 0u32..500) {
            let (here, next) = (below(mean, k), below(mean, k + 1));
            prop_assert!((0.0..=1.0).contains(&here));
            prop_assert!(here <= next);
        }
    }
}
