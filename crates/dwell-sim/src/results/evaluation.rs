//! A scenario's points with their existing runs.

use crate::scenario::{Expression, Over, Point, Scenario, Where, numeric};

use super::record::{RunRecord, Task};
use super::store::Store;
use super::summary::Summary;

/// A scenario's points with their existing runs.
#[derive(Debug)]
pub struct Evaluation<'r> {
    /// The scenario.
    pub scenario: &'r Scenario,
    /// The finished runs of each point, in the order of their seeds.
    pub runs: Vec<Vec<&'r RunRecord>>,
}

impl<'r> Evaluation<'r> {
    /// Finds the runs of a scenario.
    pub fn new(scenario: &'r Scenario, store: &'r Store, code: &str) -> Self {
        let runs = scenario
            .points
            .iter()
            .map(|point| {
                let seeds = point.seeds();
                seeds
                    .filter_map(|seed| store.get(&Task { scenario, point, seed }.key(code)))
                    .collect()
            })
            .collect();
        Self { scenario, runs }
    }

    /// Returns the number of finished runs.
    pub fn done(&self) -> usize {
        self.runs.iter().map(Vec::len).sum()
    }

    /// Returns the points with their runs.
    pub fn points(&self) -> impl Iterator<Item = (&'r Point, &[&'r RunRecord])> {
        self.scenario.points.iter().zip(self.runs.iter().map(Vec::as_slice))
    }

    /// Returns the point that meets these conditions; of several the first. None if there is none,
    /// or if it has no runs.
    pub fn find(&self, conditions: &Where) -> Option<(&'r Point, &[&'r RunRecord])> {
        self.points()
            .find(|(point, _)| point.meets(conditions))
            .filter(|(_, runs)| !runs.is_empty())
    }

    /// Returns the values of a formula over each run of a point.
    pub fn values(point: &Point, runs: &[&RunRecord], formula: &Expression) -> Vec<f64> {
        runs.iter()
            .filter_map(|run| formula.value(&|name| lookup(point, Some(run), name)))
            .collect()
    }

    /// Returns a summary of a formula over the runs of a point. A formula over the scenario's
    /// values only needs no runs.
    pub fn summary(point: &Point, runs: &[&RunRecord], formula: &Expression) -> Option<Summary> {
        match formula.value(&|name| lookup(point, None, name)) {
            Some(constant) => Summary::of(&[constant]),
            None => Summary::of(&Self::values(point, runs, formula)),
        }
    }

    /// Returns the change in percent of the mean from the point that differs in `against`, with its
    /// 95 % interval over the seeds that both have a value for; none if there are fewer than two.
    pub fn change(
        &self,
        point: &Point,
        runs: &[&RunRecord],
        formula: &Expression,
        against: &Where,
    ) -> Option<Summary> {
        let (other, other_runs) = self.find(&point.elsewhere(against))?;
        let base_mean = Self::summary(other, other_runs, formula)?.mean;
        let mean = Self::summary(point, runs, formula)?.mean;
        if base_mean == 0.0 {
            return None;
        }
        let percent = |ours: f64, base: f64| 100.0 * (ours - base) / base;
        let value =
            |point: &Point, run: &RunRecord| formula.value(&|name| lookup(point, Some(run), name));
        // The same replication of both, whichever runs or values are missing: seeds that are each
        // point's own pair by their places.
        let pairs: Vec<f64> = point
            .seeds()
            .zip(other.seeds())
            .filter_map(|(seed, other_seed)| {
                let ours = value(point, runs.iter().find(|run| run.seed == seed)?)?;
                let base = value(other, other_runs.iter().find(|run| run.seed == other_seed)?)?;
                (base != 0.0).then(|| percent(ours, base))
            })
            .collect();
        let change = percent(mean, base_mean);
        let Some(spread) = Summary::of(&pairs) else {
            return Summary::of(&[change]);
        };
        // The paper compares means; single seeds only show how certain that is.
        Some(Summary { mean: change, ..spread })
    }
}

impl Summary {
    /// Returns one number of it.
    pub fn over(&self, over: Over) -> f64 {
        match over {
            Over::Mean => self.mean,
            Over::Min => self.min,
            Over::Max => self.max,
        }
    }
}

/// Returns a metric of the run, a prediction of the model, or a value of the scenario.
fn lookup(point: &Point, run: Option<&RunRecord>, name: &str) -> Option<f64> {
    let metric = run.and_then(|run| run.metrics.get(name).copied());
    metric
        .or_else(|| point.model.get(name).copied())
        .or_else(|| point.value(name).and_then(numeric))
}

#[cfg(test)]
mod tests {
    use crate::results::fixture::{CODE, scenario, store};
    use crate::scenario::Value;

    use super::*;

    fn preset(name: &str) -> (String, Value) {
        ("scheme.preset".to_owned(), Value::Text(name.to_owned()))
    }

    fn ratio(ratio: f64) -> (String, Value) {
        ("compress.ratio".to_owned(), Value::Real(ratio))
    }

    #[test]
    fn points_are_found_with_their_runs() {
        let scenario = scenario();
        let store = store(&scenario);
        let evaluation = Evaluation::new(&scenario, &store, CODE);
        assert_eq!((scenario.runs(), evaluation.done()), (8, 6));
        let (point, runs) = evaluation.find(&vec![preset("packet")]).unwrap();
        assert!(point.meets(&[ratio(0.7)]), "of several the first");
        assert!(runs.iter().map(|run| run.seed).eq([1, 2]));
        assert!(evaluation.find(&vec![preset("packet"), ratio(0.95)]).is_none(), "not run");
        assert_eq!(Evaluation::new(&scenario, &store, "other code").done(), 0);
    }

    #[test]
    fn formulas_are_of_metrics_and_of_values() {
        let scenario = scenario();
        let store = store(&scenario);
        let evaluation = Evaluation::new(&scenario, &store, CODE);
        let (point, runs) = evaluation.find(&vec![preset("none")]).unwrap();
        let summary = |runs: &[&RunRecord], formula: &str| {
            Evaluation::summary(point, runs, &formula.parse().unwrap())
        };
        let discards = summary(runs, "100 * target.discard").unwrap();
        assert_eq!((discards.min, discards.mean, discards.max), (1.0, 1.5, 2.0));
        assert_eq!(summary(&[], "1000 * compress.time").unwrap().mean, 0.2);
        assert_eq!(summary(&[], "target.discard"), None);
        assert_eq!(summary(runs, "target.nothing"), None);
    }

    #[test]
    fn a_change_is_that_of_the_means_and_spreads_as_the_seeds_do() {
        let scenario = scenario();
        let store = store(&scenario);
        let evaluation = Evaluation::new(&scenario, &store, CODE);
        let (point, runs) = evaluation.find(&vec![preset("packet"), ratio(0.7)]).unwrap();
        let discard = "target.discard".parse().unwrap();
        let change = evaluation.change(point, runs, &discard, &vec![preset("none")]).unwrap();
        let rounded = [change.min, change.mean, change.max].map(f64::round);
        // 0.5 from 1 and 0.4 from 2; 0.45 from 1.5.
        assert_eq!(rounded, [-80.0, -70.0, -50.0]);
        // Of ours the first seed is missing: the second one has its own partner, 2.
        let change = evaluation.change(point, &runs[1..], &discard, &vec![preset("none")]).unwrap();
        assert_eq!((change.count, change.min.round()), (1, -80.0));
        let nothing = "0 * target.discard".parse().unwrap();
        assert_eq!(evaluation.change(point, runs, &nothing, &vec![preset("none")]), None);
    }
}
