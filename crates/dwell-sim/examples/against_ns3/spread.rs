//! Means of runs, and what they leave open.

use std::fmt;

/// A mean and the half of its 95 % interval.
#[derive(Clone, Copy)]
pub(crate) struct Spread {
    pub(crate) mean: f64,
    pub(crate) half: f64,
}

/// Student's t for 95 %, by the number of runs less one; what is not there takes the next before.
const STUDENT: [(usize, f64); 9] = [
    (1, 12.706),
    (2, 4.303),
    (3, 3.182),
    (4, 2.776),
    (5, 2.571),
    (7, 2.365),
    (9, 2.262),
    (14, 2.145),
    (19, 2.093),
];

impl Spread {
    pub(crate) fn of(values: &[f64]) -> Self {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        let free = values.len().saturating_sub(1);
        let student = STUDENT.iter().rev().find(|(least, _)| free >= *least);
        let half = student.map_or(f64::NAN, |(_, t)| t * (squares / free as f64 / count).sqrt());
        Self { mean, half }
    }

    /// The deviation from another mean, as a share of it.
    pub(crate) fn from(&self, other: &Self) -> f64 {
        self.mean / other.mean - 1.0
    }

    /// Returns true if both differ by no more than this share, or this much.
    pub(crate) fn is_near(&self, other: &Self, share: f64, much: f64) -> bool {
        let apart = (self.mean - other.mean).abs();
        apart <= share * other.mean || apart <= much
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(2);
        write!(f, "{:.digits$} ± {:.digits$}", self.mean, self.half)
    }
}
