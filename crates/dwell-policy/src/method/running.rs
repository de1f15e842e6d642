//! The codec of a running context: it is of one at a time, and to change it takes a new generation.

/// A codec takes the place of another if it is expected to carry so many times more.
pub(super) const BETTER: f64 = 1.03;
/// The bytes that are compressed, through the context or past it, before the first codec may give way to another one: it was chosen by what is
/// assumed of them.
const HOLD_FIRST_BYTES: u64 = 256 << 10;
/// The same for later ones, at least, ...
const HOLD_MIN_BYTES: u64 = 1 << 20;
/// ... and the most, to which that rises while it goes to and fro between two.
const HOLD_MAX_BYTES: u64 = 64 << 20;
/// All codecs are compared once in so many plans.
const COMPARE_EVERY: u32 = 8;

/// Which of the codecs that go on with a running context is used.
#[derive(Clone, Debug, Default)]
pub(super) struct Running {
    /// The place in the list of estimates.
    at: Option<usize>,
    /// The one before it.
    before: Option<usize>,
    /// The bytes that were compressed since the context has this codec.
    bytes: u64,
    hold_bytes: u64,
    /// The place of one that was tried, and need not wait.
    found: Option<usize>,
    /// It was chosen for a rate that was only expected.
    is_guess: bool,
    plans: u32,
}

impl Running {
    /// Returns the place of the codec that is used.
    pub(super) const fn at(&self) -> Option<usize> {
        self.at
    }

    /// Notes that this one was tried beside: the present one is not held to if it is better.
    pub(super) const fn found(&mut self, at: Option<usize>) {
        self.found = at;
    }

    /// Notes that bytes were compressed.
    pub(super) const fn went(&mut self, len: usize) {
        self.bytes = self.bytes.saturating_add(len as u64);
    }

    /// Chooses among `candidates`, by the rate that is expected with each. `is_sure` if the link is full: what was
    /// chosen before that is not held to. Nor is it if another one is expected to carry `much_better` times more.
    pub(super) fn choose(
        &mut self,
        candidates: impl Iterator<Item = usize>,
        (is_sure, much_better): (bool, f64),
        rate_with: impl Fn(Option<usize>) -> f64,
    ) {
        self.plans = self.plans.wrapping_add(1);
        let is_found = is_sure && std::mem::take(&mut self.is_guess);
        if self.at.is_some() && !self.plans.is_multiple_of(COMPARE_EVERY) && !is_found {
            return;
        }
        let is_held = self.bytes < self.hold_bytes && !is_found;
        self.is_guess = !is_sure && (self.at.is_none() || self.is_guess);
        let rates = candidates.map(|at| (at, rate_with(Some(at))));
        let Some((best, rate)) = rates.max_by(|a, b| a.1.total_cmp(&b.1)) else { return };
        let factor = if is_held && self.found != Some(best) { much_better } else { BETTER };
        let is_better = match self.at {
            None => true,
            Some(now) => now != best && rate > factor * rate_with(Some(now)),
        };
        if is_better {
            self.change(best);
        }
    }

    fn change(&mut self, to: usize) {
        let returns = self.before == Some(to);
        self.hold_bytes = match self.at {
            None => HOLD_FIRST_BYTES,
            Some(_) if returns => (2 * self.hold_bytes).clamp(HOLD_MIN_BYTES, HOLD_MAX_BYTES),
            Some(_) => HOLD_MIN_BYTES,
        };
        self.before = self.at.replace(to);
        (self.bytes, self.found) = (0, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chooses often enough to compare once.
    fn compare(running: &mut Running, rates: &[f64]) -> Option<usize> {
        for _ in 0..COMPARE_EVERY {
            running.choose(0..rates.len(), (true, 1.4), |at| rates[at.unwrap()]);
        }
        running.at()
    }

    #[test]
    fn the_first_is_the_best_and_another_must_be_better() {
        let mut running = Running::default();
        assert_eq!(compare(&mut running, &[1.0, 2.0, 1.5]), Some(1));
        running.went(HOLD_MIN_BYTES as usize);
        assert_eq!(compare(&mut running, &[2.05, 2.0, 1.5]), Some(1), "hardly better");
        assert_eq!(compare(&mut running, &[2.1, 2.0, 1.5]), Some(0));
        assert_eq!(compare(&mut running, &[2.1, 2.5, 1.5]), Some(0), "too soon");
        assert_eq!(compare(&mut running, &[2.1, 9.0, 1.5]), Some(1), "much better");
    }

    #[test]
    fn who_goes_to_and_fro_stays_longer_each_time() {
        let mut running = Running::default();
        let (a, b) = ([2.0, 1.6, 0.0], [1.6, 2.0, 0.0]);
        compare(&mut running, &a);
        let mut held = Vec::new();
        for turn in 0..10 {
            let rates = if turn % 2 == 0 { &b } else { &a };
            let before = running.at();
            let mut bytes = 0;
            while compare(&mut running, rates) == before {
                running.went(64 << 10);
                bytes += 64 << 10;
            }
            held.push(bytes >> 18);
        }
        assert_eq!(held, [1, 4, 8, 16, 32, 64, 128, 256, 256, 256]);
        // Another one begins again.
        running.went(HOLD_MAX_BYTES as usize);
        assert_eq!(compare(&mut running, &[0.0, 0.0, 1.0]), Some(2));
        assert_eq!(running.hold_bytes, HOLD_MIN_BYTES);
    }

    #[test]
    fn what_was_tried_beside_need_not_wait() {
        let mut running = Running::default();
        assert_eq!(compare(&mut running, &[1.0, 2.0, 1.5]), Some(1));
        running.found(Some(2));
        assert_eq!(compare(&mut running, &[2.2, 2.0, 2.1]), Some(1), "another is better yet");
        assert_eq!(compare(&mut running, &[2.1, 2.0, 2.2]), Some(2));
        assert_eq!(compare(&mut running, &[2.1, 2.5, 2.2]), Some(2), "too soon");
    }

    #[test]
    fn without_candidates_there_is_none() {
        let mut running = Running::default();
        running.choose(std::iter::empty(), (true, 1.4), |_| 1.0);
        assert_eq!(running.at(), None);
    }

    #[test]
    fn what_was_chosen_before_the_link_was_measured_is_not_held_to() {
        let mut running = Running::default();
        let mut choose = |is_sure, rates: [f64; 2]| {
            running.choose(0..2, (is_sure, 9.0), |at| rates[at.unwrap()]);
            running.at()
        };
        assert_eq!(choose(false, [2.0, 1.0]), Some(0));
        assert_eq!(choose(false, [1.0, 2.0]), Some(0));
        assert_eq!(choose(true, [1.0, 2.0]), Some(1));
        assert_eq!(choose(true, [2.0, 1.0]), Some(1));
    }
}
