//! Back-off: blocks are not tried after several poor results (Wang et al., section 3.2.2, for
//! blocks).

/// Poor results in a row after which some blocks are not tried.
const POOR_IN_A_ROW: u32 = 4;
/// The number of blocks skipped first; doubled each time that the trial after them is poor.
const SKIP_FIRST: u32 = 4;
/// The most blocks that are skipped in a row. The paper sets no limit; without one, a stream that
/// began with a long archive would hardly be tried again.
const SKIP_MAX: u32 = 64;

/// Decides for each block whether compression is tried at all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Trying {
        poor: u32,
    },
    Skipping {
        left: u32,
        length: u32,
    },
    /// One block is being tried; the others are skipped until its result is there.
    Probing {
        length: u32,
    },
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { state: State::Trying { poor: 0 } }
    }

    /// Returns true if the next block is to be tried. Call it once for each block.
    pub(crate) fn admits(&mut self) -> bool {
        match self.state {
            State::Trying { .. } => true,
            State::Skipping { left: 0, length } => {
                self.state = State::Probing { length };
                true
            }
            State::Skipping { left, length } => {
                self.state = State::Skipping { left: left - 1, length };
                false
            }
            State::Probing { .. } => false,
        }
    }

    /// Returns true if the block that was admitted last is a trial after others were skipped.
    pub(crate) fn is_probing(&self) -> bool {
        matches!(self.state, State::Probing { .. })
    }

    /// Notes that a block that was to be tried was not.
    pub(crate) fn passed_by(&mut self) {
        if let State::Probing { length } = self.state {
            self.state = State::Skipping { left: 0, length };
        }
    }

    /// Notes that a block was tried, with this result.
    pub(crate) fn tried(&mut self, poor: bool) {
        self.state = match self.state {
            _ if !poor => State::Trying { poor: 0 },
            State::Trying { poor } if poor + 1 < POOR_IN_A_ROW => State::Trying { poor: poor + 1 },
            State::Trying { .. } => State::Skipping { left: SKIP_FIRST, length: SKIP_FIRST },
            State::Probing { length } => {
                let length = (2 * length).min(SKIP_MAX);
                State::Skipping { left: length, length }
            }
            // The result of a block that was admitted before the others failed.
            State::Skipping { .. } => self.state,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skips_longer_and_longer_and_returns_at_once() {
        let mut backoff = Backoff::new();
        let mut skipped = Vec::new();
        let mut run = 0;
        for _ in 0..1000 {
            if backoff.admits() {
                skipped.push(run);
                run = 0;
                backoff.tried(true);
            } else {
                run += 1;
            }
        }
        assert_eq!(skipped[..10], [0, 0, 0, 0, 4, 8, 16, 32, 64, 64]);
        while !backoff.admits() {}
        assert!(!backoff.admits(), "one probe at a time");
        backoff.tried(false);
        assert!(backoff.admits() && backoff.admits());
    }

    #[test]
    fn a_probe_that_is_overtaken_is_repeated() {
        let mut backoff = Backoff::new();
        (0..POOR_IN_A_ROW).for_each(|_| backoff.tried(true));
        (0..SKIP_FIRST).for_each(|_| assert!(!backoff.admits()));
        assert!(backoff.admits());
        backoff.passed_by();
        assert!(backoff.admits());
    }
}
