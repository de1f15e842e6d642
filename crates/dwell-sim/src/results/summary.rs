//! Replications together: mean, range and confidence.

/// The summary of several runs of one point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The number of runs.
    pub count: usize,
    /// Their mean.
    pub mean: f64,
    /// The least.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// Half the 95 % confidence interval of the mean (Student's t); none of one run.
    pub confidence: Option<f64>,
}

impl Summary {
    /// The summary of these values, if there are any.
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() {
            return None;
        }
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count as f64;
        let confidence = (count > 1).then(|| {
            let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
            let deviation = (squares / (count - 1) as f64).sqrt();
            student_95(count - 1) * deviation / (count as f64).sqrt()
        });
        Some(Self {
            count,
            mean,
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            confidence,
        })
    }

    /// The ends of the confidence interval.
    pub fn interval(&self) -> Option<(f64, f64)> {
        self.confidence.map(|half| (self.mean - half, self.mean + half))
    }
}

/// The 97.5 % quantile of Student's t distribution.
fn student_95(freedom: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    match freedom {
        0 => f64::NAN,
        1..=30 => TABLE[freedom - 1],
        // Cornish and Fisher's expansion, right to three digits from here on.
        more => 1.960 + 2.372 / more as f64 + 2.823 / (more * more) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_mean_range_and_confidence() {
        let summary = Summary::of(&[1.0, 2.0, 3.0]).unwrap();
        assert_eq!((summary.mean, summary.min, summary.max), (2.0, 1.0, 3.0));
        assert!((summary.confidence.unwrap() - 4.303 / 3f64.sqrt()).abs() < 1e-9);
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[5.0]).unwrap().interval(), None);
    }

    #[test]
    fn quantiles_fall_towards_those_of_the_normal_distribution() {
        let quantiles: Vec<f64> = (1..200).map(student_95).collect();
        assert!(quantiles.windows(2).all(|pair| pair[0] >= pair[1]), "{quantiles:?}");
        assert!((student_95(60) - 2.000).abs() < 0.002);
        assert!((student_95(1_000_000) - 1.960).abs() < 0.001);
    }
}
