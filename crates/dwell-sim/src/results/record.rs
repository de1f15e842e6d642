//! One run and its results, as a line of JSON.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::effort::packet_hops;
use crate::outcome::Outcome;
use crate::plan::PlanError;
use crate::scenario::{FigureKind, Point, RunKey, Scenario, Value};
use crate::series::series;
use crate::world::{Contents, World};

/// One run and its results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The hash of everything that the result follows from: 32 hexadecimal digits.
    pub key: String,
    /// The scenario.
    pub scenario: String,
    /// The swept keys, and their values in this run.
    pub point: BTreeMap<String, serde_json::Value>,
    /// The seed.
    pub seed: u64,
    /// The version of the code.
    pub code: String,
    /// Packets that sources sent, warm-up and drain included.
    pub source_packets: u64,
    /// All single numbers, by name.
    pub metrics: BTreeMap<String, f64>,
    /// Time lines and histograms that the scenario or a figure asked for: pairs of x and y.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub series: BTreeMap<String, Vec<(f64, f64)>>,
}

/// A run of a scenario: one of its points with one seed.
#[derive(Clone, Copy, Debug)]
pub struct Task<'s> {
    /// Its scenario.
    pub scenario: &'s Scenario,
    /// Its point.
    pub point: &'s Point,
    /// Its seed.
    pub seed: u64,
}

impl<'s> Task<'s> {
    /// Returns all runs of a scenario, in their order.
    pub fn all(scenario: &'s Scenario) -> impl Iterator<Item = Self> {
        scenario
            .points
            .iter()
            .flat_map(move |point| point.seeds().map(move |seed| Self { scenario, point, seed }))
    }

    /// Returns its key, if this version of the code runs it.
    pub fn key(&self, code: &str) -> String {
        RunKey::new(self.point.plan_hash, code, self.seed).to_string()
    }

    /// Returns the estimated work of the run, in millions of packets on links.
    pub fn effort(&self) -> f64 {
        packet_hops(&self.point.plan) / 1e6
    }
}

/// A run that is done once, for all tasks with its key: figures share runs, and so do points that
/// differ only in keys without effect on them.
#[derive(Clone, Debug)]
pub struct Run<'s> {
    /// The first of its tasks, which gives it its name.
    pub task: Task<'s>,
    /// The key that they have in common.
    pub key: String,
    /// The series that the figures of any of them draw.
    wanted: BTreeSet<String>,
    code: &'s str,
}

impl<'s> Run<'s> {
    /// Returns the runs that these tasks need, in the order of their first tasks.
    pub fn all(tasks: &[Task<'s>], code: &'s str) -> Vec<Self> {
        let mut runs: Vec<Self> = Vec::new();
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        for &task in tasks {
            let (key, wanted) = (task.key(code), wanted_series(task.scenario));
            match places.get(&key) {
                Some(&place) => runs[place].wanted.extend(wanted),
                None => {
                    places.insert(key.clone(), runs.len());
                    runs.push(Self { task, key, wanted, code });
                }
            }
        }
        runs
    }

    /// Runs it. The result depends on nothing else.
    ///
    /// # Errors
    /// If the plan is impossible.
    pub fn run(&self) -> Result<RunRecord, PlanError> {
        let world = World::new(&self.task.point.plan, self.task.seed)?;
        Ok(self.record(&world.run()))
    }

    /// Runs it, with these contents of its packets, if it has any; unless `goes_on`, called every few milliseconds with the
    /// share of it that is done, returns false.
    ///
    /// # Errors
    /// If the plan is impossible.
    pub fn run_while(
        &self,
        contents: Option<Box<dyn Contents>>,
        goes_on: impl FnMut(f64) -> bool,
    ) -> Result<Option<RunRecord>, PlanError> {
        let mut world = World::new(&self.task.point.plan, self.task.seed)?;
        if let Some(contents) = contents {
            world = world.with_contents(contents);
        }
        Ok(world.run_while(goes_on).map(|outcome| self.record(&outcome)))
    }

    fn record(&self, outcome: &Outcome) -> RunRecord {
        let Task { scenario, point, seed } = self.task;
        RunRecord {
            key: self.key.clone(),
            scenario: scenario.id.clone(),
            point: point.values.iter().map(|(key, v)| (key.clone(), json(v))).collect(),
            seed,
            code: self.code.to_owned(),
            source_packets: outcome.source_packets,
            metrics: outcome.metrics(),
            series: self.series(outcome),
        }
    }

    fn series(&self, outcome: &Outcome) -> BTreeMap<String, Vec<(f64, f64)>> {
        let bin_ns = self.task.point.plan.bin_ns;
        let found = |name: &String| Some((name.clone(), series(outcome, bin_ns, name)?));
        self.wanted.iter().filter_map(found).collect()
    }

    /// Returns true if `record` has all the series that the figures need of this run.
    pub(super) fn is_covered_by(&self, record: &RunRecord) -> bool {
        self.wanted.iter().all(|name| record.series.contains_key(name))
    }
}

/// Returns the series that the scenario asks for, and those that its figures draw.
fn wanted_series(scenario: &Scenario) -> BTreeSet<String> {
    scenario
        .figures
        .iter()
        .filter(|figure| matches!(figure.kind, FigureKind::Timeline | FigureKind::Cdf))
        .flat_map(|figure| figure.y.iter().flat_map(|(_, y)| y.names()))
        .chain(scenario.series.iter().map(String::as_str))
        .map(str::to_owned)
        .collect()
}

/// A value of a scenario as JSON.
pub fn json(value: &Value) -> serde_json::Value {
    match value {
        Value::Text(text) => text.as_str().into(),
        Value::Whole(number) => (*number).into(),
        Value::Real(number) => (*number).into(),
        Value::Truth(truth) => (*truth).into(),
        Value::List(items) => items.iter().map(|item| json(&item.value)).collect(),
        Value::Table(table) => serde_json::Value::Object(
            table.iter().map(|(key, located)| (key.to_owned(), json(&located.value))).collect(),
        ),
    }
}
