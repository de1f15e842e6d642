//! Leaving incompressible traffic alone, with retries that grow rarer.
//!
//! The rule is that of Wang et al., TCPComp, section 3.2.2: if n consecutive units were
//! poor, the next m go without a try; if the try after them is poor as well, m doubles. The
//! paper leaves m unbounded; here it has a bound, so that traffic that becomes compressible
//! is found again.
//!
//! [`BackOff`] is the rule. [`ProbingBackOff`] is the same where results come late.

use serde::{Deserialize, Serialize};

/// The parameters of the back-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackOffConfig {
    /// This many poor results in a row start the back-off (n).
    pub poor_run: u8,
    /// This many packets, or blocks of a stream, are left alone at first (m).
    pub skip_first: u16,
    /// The most that are left alone at a time.
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
        let skip_len = config.skip_first.min(config.skip_max);
        Self { poor_run: config.poor_run, skip_len, skip_left: skip_len }
    }

    /// True if the traffic is being left alone, between rare tries.
    pub fn is_backing_off(&self) -> bool {
        self.skip_len > 0
    }

    /// True if the next packet is left alone; asking does not count it.
    pub fn is_skipping(&self) -> bool {
        self.skip_left > 0
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
                0 => config.skip_first.min(config.skip_max),
                len => len.saturating_mul(2).min(config.skip_max),
            };
            self.skip_left = self.skip_len;
        }
    }
}

/// A back-off for results that come late: others are admitted before the result of one is there,
/// as with the blocks of a stream.
///
/// Once traffic is left alone, there is one try at a time, and the others are left alone until its
/// result is there. Results of what was admitted before are not counted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbingBackOff {
    config: BackOffConfig,
    state: BackOff,
    is_probing: bool,
}

impl ProbingBackOff {
    /// A back-off that begins with trying everything.
    pub const fn new(config: BackOffConfig) -> Self {
        let state = BackOff { poor_run: 0, skip_len: 0, skip_left: 0 };
        Self { config, state, is_probing: false }
    }

    /// Returns true if the next block is to be tried. Call it once for each block.
    pub fn admits(&mut self) -> bool {
        if self.is_probing {
            return false;
        }
        let admitted = self.state.may_try();
        self.is_probing = admitted && self.state.is_backing_off();
        admitted
    }

    /// Returns true if the block that was admitted last is a try after others were left alone.
    pub fn is_probing(&self) -> bool {
        self.is_probing
    }

    /// Notes that a block that was to be tried was not.
    pub fn passed_by(&mut self) {
        self.is_probing = false;
    }

    /// Notes that a block was tried, with this result.
    pub fn record(&mut self, poor: bool) {
        let is_late = self.state.is_backing_off() && !self.is_probing;
        if poor && is_late {
            return;
        }
        self.is_probing = false;
        self.state.record(poor, &self.config);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many were left alone before each of the tries, all poor.
    fn skipped(mut may_try: impl FnMut() -> bool) -> Vec<u32> {
        let (mut skipped, mut run) = (Vec::new(), 0);
        for _ in 0..2_000 {
            if may_try() {
                skipped.push(run);
                run = 0;
            } else {
                run += 1;
            }
        }
        skipped
    }

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

    /// The numbers of TCPComp.
    #[test]
    fn the_back_off_doubles_up_to_its_limit_and_ends_at_once() {
        let (mut state, config) = (BackOff::default(), BackOffConfig::default());
        let skipped = skipped(|| {
            let may_try = state.may_try();
            if may_try {
                state.record(true, &config);
            }
            may_try
        });
        assert_eq!(skipped[..12], [0, 0, 0, 0, 0, 5, 10, 20, 40, 80, 160, 320]);
        assert_eq!(skipped[12], 320);
        while state.is_skipping() {
            state.may_try();
        }
        state.record(false, &config);
        (0..4).for_each(|_| state.record(true, &config));
        assert!(!state.is_skipping());
    }

    #[test]
    fn the_first_skip_keeps_to_the_bound() {
        let config = BackOffConfig { poor_run: 1, skip_first: 9, skip_max: 3 };
        let mut state = BackOff::default();
        state.record(true, &config);
        assert_eq!((0..9).filter(|_| !state.may_try()).count(), 3);
        let mut state = BackOff::suspicious(&config);
        assert_eq!((0..9).filter(|_| !state.may_try()).count(), 3);
    }

    const BLOCKS: BackOffConfig = BackOffConfig { poor_run: 4, skip_first: 4, skip_max: 64 };

    #[test]
    fn skips_longer_and_longer_and_returns_at_once() {
        let mut back_off = ProbingBackOff::new(BLOCKS);
        let skipped = skipped(|| {
            let admitted = back_off.admits();
            if admitted {
                back_off.record(true);
            }
            admitted
        });
        assert_eq!(skipped[..10], [0, 0, 0, 0, 4, 8, 16, 32, 64, 64]);
        while !back_off.admits() {}
        assert!(!back_off.admits(), "one probe at a time");
        back_off.record(false);
        assert!(back_off.admits() && back_off.admits());
    }

    #[test]
    fn a_probe_that_is_overtaken_is_repeated() {
        let mut back_off = ProbingBackOff::new(BLOCKS);
        (0..4).for_each(|_| back_off.record(true));
        (0..4).for_each(|_| assert!(!back_off.admits()));
        assert!(back_off.admits() && back_off.is_probing());
        back_off.passed_by();
        assert!(!back_off.is_probing() && back_off.admits());
    }

    #[test]
    fn results_of_what_was_admitted_before_do_not_count_again() {
        let mut back_off = ProbingBackOff::new(BLOCKS);
        assert!((0..20).all(|_| back_off.admits()));
        (0..20).for_each(|_| back_off.record(true));
        assert_eq!((0..100).take_while(|_| !back_off.admits()).count(), 4);
        // But one that is not poor ends it, whenever it was admitted.
        back_off.passed_by();
        back_off.record(false);
        assert!(back_off.admits() && back_off.admits());
    }

    #[test]
    fn what_is_left_alone_says_so_until_the_next_try() {
        let mut state = BackOff::default();
        assert!(!state.is_skipping());
        tries(&mut state, 5, true);
        for _ in 0..5 {
            assert!(state.is_skipping());
            assert!(!state.may_try());
        }
        assert!(!state.is_skipping() && state.is_backing_off());
    }
}
