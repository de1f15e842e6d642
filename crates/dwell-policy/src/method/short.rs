//! What short blocks leave: requests, and answers of some words. Longer ones say nothing of that.

use crate::estimate::smoothed;

/// The ratio of short blocks before any was compressed, the weight of a new one, and how soon it is
/// believed again while they go as they are.
const RATIO: f64 = 0.8;
const GAIN: f64 = 0.2;
const HOPE: f64 = 0.01;
/// The ratio of those that refer to others, before any did: a request is much like the one before it.
const REFERRING_RATIO: f64 = 0.5;
/// A short block refers to others if that leaves less than this part of what it leaves alone.
const REFERRING_PART: f64 = 0.9;

/// The ratios of short blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShortRatios {
    /// Of all.
    pub(super) any: f64,
    alone: f64,
    referring: f64,
}

impl ShortRatios {
    pub(super) const fn new() -> Self {
        Self { any: RATIO, alone: RATIO, referring: REFERRING_RATIO }
    }

    /// Notes what a block has left, which referred to others or not.
    pub(super) fn compressed(&mut self, ratio: f64, refers: bool) {
        self.any = smoothed(self.any, ratio, GAIN);
        if refers {
            self.referring = smoothed(self.referring, ratio, GAIN);
        } else {
            self.alone = smoothed(self.alone, ratio, GAIN);
            self.referring += HOPE * (REFERRING_RATIO - self.referring).min(0.0);
        }
    }

    /// Notes that a block went as it is.
    pub(super) fn went_raw(&mut self) {
        self.any += HOPE * (RATIO - self.any).min(0.0);
    }

    /// Returns true if a block had better refer to others, if there are any.
    pub(super) fn refers(&self) -> bool {
        self.referring < REFERRING_PART * self.alone
    }
}
