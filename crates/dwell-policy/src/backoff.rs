//! Leaving incompressible traffic alone, with retries that grow rarer.
//!
//! The rule is that of Wang et al., TCPComp, section 3.2.2: if n consecutive units were
//! poor, the next m go without a try; if the try after them is poor as well, m doubles. The
//! paper leaves m unbounded; here it has a bound, so that traffic that becomes compressible
//! is found again.

use serde::{Deserialize, Serialize};

/// The parameters of the back-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackOffConfig {
    /// This many poor results in a row start the back-off (n).
    pub poor_run: u8,
    /// This many packets are left alone at first (m).
    pub skip_first: u16,
    /// The most packets that are left alone at a time.
    pub skip_max: u16,
}

impl Default for BackOffConfig {
    fn default() -> Self {
        Self { poor_run: 5, skip_first: 5, skip_max: 320 }
    }
}

/// The state of one flow or class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackOff {
    poor_run: u8,
    skip_len: u16,
    skip_left: u16,
}

impl BackOff {
    /// A state that starts with leaving the traffic alone: for a new flow of a class that is
    /// known to be poor.
    pub fn suspicious(config: &BackOffConfig) -> Self {
        Self {
            poor_run: config.poor_run,
            skip_len: config.skip_first,
            skip_left: config.skip_first,
        }
    }

    /// True if the traffic is being left alone, between rare tries.
    pub fn is_backing_off(&self) -> bool {
        self.skip_len > 0
    }

    /// Asks whether the next packet may be tried, and counts it as left alone if not.
    pub fn may_try(&mut self) -> bool {
        if self.skip_left == 0 {
            return true;
        }
        self.skip_left -= 1;
        false
    }

    /// Takes in the result of a try.
    pub fn record(&mut self, poor: bool, config: &BackOffConfig) {
        if !poor {
            *self = Self::default();
            return;
        }
        self.poor_run = self.poor_run.saturating_add(1);
        if self.poor_run >= config.poor_run {
            self.skip_len = match self.skip_len {
                0 => config.skip_first,
                len => len.saturating_mul(2).min(config.skip_max),
            };
            self.skip_left = self.skip_len;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tries(state: &mut BackOff, packets: usize, poor: bool) -> usize {
        let config = BackOffConfig::default();
        let mut tries = 0;
        for _ in 0..packets {
            if state.may_try() {
                tries += 1;
                state.record(poor, &config);
            }
        }
        tries
    }

    #[test]
    fn five_poor_results_then_five_untried_then_ten() {
        let mut state = BackOff::default();
        assert_eq!(tries(&mut state, 5, true), 5);
        assert_eq!(tries(&mut state, 5, true), 0);
        assert_eq!(tries(&mut state, 1, true), 1);
        assert_eq!(tries(&mut state, 10, true), 0);
        assert_eq!(tries(&mut state, 1, true), 1);
    }

    #[test]
    fn the_share_of_tries_falls_to_the_bound_and_a_success_ends_it() {
        let mut state = BackOff::default();
        tries(&mut state, 1_000, true);
        let late = tries(&mut state, 32_100, true);
        assert!((90..=101).contains(&late), "{late}");
        tries(&mut state, 321, false);
        assert!(!state.is_backing_off());
        assert_eq!(tries(&mut state, 10, false), 10);
    }
}
