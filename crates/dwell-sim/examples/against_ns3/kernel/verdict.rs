//! Whether a row agrees with Linux, and how sure that is.

use crate::spread::Spread;

/// The fewest runs of Linux that say something.
const RUNS_MIN: usize = 5;
/// So many say something even where they differ by more than the limit.
const RUNS_ENOUGH: usize = 20;

/// The verdict on one quantity, or on the worst of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    /// Within the limit, and what the runs leave open is less than it, or there are enough of them.
    Within,
    /// Beyond the limit, but no farther than the intervals of both means leave open; runs as above.
    Open,
    /// One of these by fewer runs.
    TooFew,
    Beyond,
}

/// The limit of a quantity: a share of Linux's, or this much.
#[derive(Clone, Copy)]
pub(super) struct Limit {
    pub(super) share: f64,
    pub(super) much: f64,
}

impl Verdict {
    pub(super) fn of(pair: &[Spread; 2], limit: Limit, runs: usize) -> Self {
        let [theirs, ours] = pair;
        let room = (limit.share * theirs.mean).max(limit.much);
        let is_sure = runs >= RUNS_MIN && (theirs.half <= room || runs >= RUNS_ENOUGH);
        match () {
            () if ours.is_near(theirs, limit.share, limit.much) && is_sure => Self::Within,
            () if ours.is_near(theirs, limit.share, limit.much) => Self::TooFew,
            () if !ours.is_near(theirs, 0.0, ours.half.hypot(theirs.half)) => Self::Beyond,
            () if is_sure => Self::Open,
            () => Self::TooFew,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Within => "within",
            Self::Open => "within the intervals",
            Self::TooFew => "too few runs",
            Self::Beyond => "✗",
        }
    }

    pub(super) fn is_good(self) -> bool {
        self <= Self::Open
    }
}
