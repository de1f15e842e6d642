//! The settings of TCPComp, and the length of its units (Wang et al., sections 3.2 and 3.3).

use dwell_policy::BackOffConfig;
use serde::{Deserialize, Serialize};

/// The settings of TCPComp. The defaults are the paper's (table 3), except for the limit of the
/// back-off, which the paper does not have.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct TcpCompConfig {
    /// The length that a unit should have when compressed, in bytes. Default 1400 of 1446.
    pub target_len: usize,
    /// A unit whose factor (original / compressed) is below this counts as hard to compress.
    pub factor_min: f64,
    /// The number of such units in a row that begin a back-off.
    pub poor_units: u8,
    /// The number of segments then sent without trying; doubled each time that the unit tried after
    /// them is poor too.
    pub skip_first: u16,
    /// The number up to which it is doubled. The paper sets no limit. Default 320.
    pub skip_max: u16,
    /// True if there is a back-off at all; for comparison.
    pub backoff: bool,
    /// The variance of the first estimate, P₀.
    pub variance_first: f64,
    /// The drift that is added to the estimate at each step, u.
    pub drift: f64,
    /// The variance of the process, Q.
    pub process_variance: f64,
    /// The variance of a measurement, R.
    pub measurement_variance: f64,
}

impl Default for TcpCompConfig {
    fn default() -> Self {
        Self {
            target_len: 1400,
            factor_min: 1.2,
            poor_units: 5,
            skip_first: 5,
            skip_max: 320,
            backoff: true,
            variance_first: 10.0,
            drift: 1e-3,
            process_variance: 1e-6,
            measurement_variance: 1e-1,
        }
    }
}

impl TcpCompConfig {
    /// Returns the back-off of section 3.2.2, if there is one.
    pub(crate) fn back_off(&self) -> Option<BackOffConfig> {
        let &Self { poor_units, skip_first, skip_max, .. } = self;
        self.backoff.then_some(BackOffConfig { poor_run: poor_units, skip_first, skip_max })
    }
}

/// The scalar Kalman filter that estimates the factor of the next unit: equations (5) and (6).
///
/// Its gain K falls towards √(Q / R), 0.003 with the defaults: after some hundred units it hardly
/// follows changes. The drift is then more than the gain corrects: the estimate goes to the true
/// factor + u / K, 0.3 too much, so that sooner or later a unit does not fit, and the failure
/// restarts the filter.
#[derive(Clone, Copy, Debug)]
pub struct FactorFilter {
    config: TcpCompConfig,
    estimate: f64,
    variance: f64,
}

impl FactorFilter {
    /// Makes the filter. Before the first unit the factor is assumed to be 1; the paper does not
    /// specify it.
    pub fn new(config: TcpCompConfig) -> Self {
        Self { config, estimate: 1.0, variance: config.variance_first }
    }

    /// Returns the estimated factor of the next unit: the estimate a priori, which includes the
    /// drift.
    pub fn estimate(&self) -> f64 {
        self.estimate + self.config.drift
    }

    /// Notes that a unit was compressed by this factor.
    pub fn measured(&mut self, factor: f64) {
        let estimate = self.estimate();
        let variance = self.variance + self.config.process_variance;
        let gain = variance / (variance + self.config.measurement_variance);
        self.estimate = estimate + gain * (factor - estimate);
        self.variance = (1.0 - gain) * variance;
    }

    /// Notes that a unit did not fit into its segment: the estimation begins again.
    pub fn failed(&mut self) {
        *self = Self::new(self.config);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_believes_the_first_measurement_and_later_ones_less_and_less() {
        let mut filter = FactorFilter::new(TcpCompConfig::default());
        filter.measured(2.0);
        // K = 10.000001 / 10.100001.
        assert!((filter.estimate - (1.001 + 0.990_099 * 0.999)).abs() < 1e-6, "{filter:?}");
        for _ in 0..200 {
            filter.measured(2.0);
        }
        let before = filter.estimate();
        assert!((2.05..2.3).contains(&before), "it drifts: {filter:?}");
        filter.measured(3.0);
        assert!(filter.estimate() < before + 0.02, "{filter:?}");
        filter.failed();
        assert_eq!(filter.estimate(), 1.001);
    }
}
