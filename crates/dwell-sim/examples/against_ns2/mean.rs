//! Means over seeds.

/// A mean with its 95 % interval.
pub(crate) struct Mean {
    pub(crate) mean: f64,
    pub(crate) half_width: f64,
}

/// Student's t for 95 %, two-sided, by degrees of freedom from 1 on.
const STUDENT: [f64; 9] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262];

impl Mean {
    pub(crate) fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let n = values.clone().count();
        let mean = values.clone().sum::<f64>() / n as f64;
        let squares: f64 = values.map(|value| (value - mean).powi(2)).sum();
        let student = n.checked_sub(2).map(|at| STUDENT.get(at).copied().unwrap_or(1.96));
        let half_width =
            student.map_or(f64::NAN, |t| t * (squares / (n - 1) as f64 / n as f64).sqrt());
        Self { mean, half_width }
    }

    /// The half width as it is printed: a single run has none.
    pub(crate) fn plus_minus(&self) -> String {
        if self.half_width.is_nan() { "–".to_owned() } else { format!("{:.2}", self.half_width) }
    }
}
