//! As many runs as a wanted interval takes.

use std::str::FromStr;

use dwell_sim::results::Evaluation;
use dwell_sim::scenario::Expression;

/// The fewest runs of which an interval is believed.
const FEWEST: u32 = 3;

/// A metric, and the half width of its interval that is wanted, as a share of its mean.
#[derive(Clone, Debug)]
pub(super) struct Precision {
    name: String,
    pub(super) metric: Expression,
    share: f64,
}

/// What a number of runs has brought.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reached {
    /// The interval that is wanted.
    Enough(String),
    /// It takes about so many runs of each point.
    More(u32, String),
    /// There are as many runs as there may be.
    Most(String),
    /// No run has a value, and more would not help.
    Nothing(String),
}

impl FromStr for Precision {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("\"{text}\" is no metric with a share: write for instance throughput_bps=0.02")
        };
        let (name, share) = text.rsplit_once('=').ok_or_else(wrong)?;
        let metric: Expression = name.parse().map_err(|error| format!("\"{name}\": {error}"))?;
        let share = share.trim();
        let parsed = match share.strip_suffix('%') {
            Some(percent) => percent.trim().parse::<f64>().map(|percent| percent / 100.0),
            None => share.parse::<f64>(),
        };
        let share = parsed.ok().filter(|share| *share > 0.0 && *share < 1.0).ok_or_else(wrong)?;
        Ok(Self { name: name.to_owned(), metric, share })
    }
}

impl Precision {
    /// Says if all points that have a value are as precise as wanted, and if not how many runs of each it takes.
    pub(super) fn reached(&self, evaluation: &Evaluation<'_>, most: u32) -> Reached {
        let mut worst: f64 = 0.0;
        let (mut runs_least, mut is_known) = (u32::MAX, false);
        for (point, runs) in evaluation.points() {
            runs_least = runs_least.min(runs.len() as u32);
            let Some(summary) = Evaluation::summary(point, runs, &self.metric) else { continue };
            is_known = true;
            worst = worst.max(match summary.interval() {
                _ if summary.mean == 0.0 && summary.min == summary.max => 0.0,
                Some((low, high)) if summary.mean != 0.0 => (high - low) / 2.0 / summary.mean.abs(),
                _ => f64::INFINITY,
            });
        }
        let name = &self.name;
        if !is_known {
            return Reached::Nothing(format!(
                "no run has a value for {name}: nothing of the kind happened"
            ));
        }
        let found = match (worst.is_finite(), runs_least) {
            (true, _) => {
                format!(
                    "{name}: within {:.1} % with {runs_least} runs of each point",
                    worst * 100.0
                )
            }
            (false, 1) => format!("{name}: one run of a point has no interval"),
            (false, _) => format!("{name}: its mean is zero, of which no interval is a share"),
        };
        if worst <= self.share && runs_least >= FEWEST {
            return Reached::Enough(found);
        }
        if runs_least >= most {
            return Reached::Most(format!("{found}, the most that --most lets it do: not reached"));
        }
        // Intervals shrink with the square root; of few runs they say little, so that there is no long leap.
        let wanted = f64::from(runs_least) * (worst / self.share).powi(2) * 1.05;
        let leap = wanted.clamp(f64::from(runs_least) + 1.0, 3.0 * f64::from(runs_least) + 2.0);
        let next = (leap.ceil() as u32).clamp(FEWEST, most.max(FEWEST));
        Reached::More(next, format!("{found}; {next} next"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_precision_is_a_metric_and_a_share() {
        let parsed: Precision = "a.x / 2=0.05".parse().expect("a formula");
        assert_eq!((parsed.name.as_str(), parsed.share), ("a.x / 2", 0.05));
        assert_eq!("b=5%".parse::<Precision>().expect("percent").share, 0.05);
        for bad in ["", "a", "a=", "a=0", "a=1.5", "=0.1", "a=-1%"] {
            assert!(bad.parse::<Precision>().is_err(), "{bad}");
        }
    }
}
