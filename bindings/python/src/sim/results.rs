//! Runs that are done, as tables, lines and figures.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::{
    Array as _, ArrayRef, BooleanArray, Float64Array, Int64Array, StringArray, UInt64Array,
};
use arrow_schema::{ArrowError, Field};
use dwell_figures::claims::{self, Claim};
use dwell_figures::page::Provenance;
use dwell_sim::results::{self, Evaluation, Run, RunRecord, Store, Task};
use dwell_sim::scenario::{Point, Scenario, Value};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::figures;
use super::scenario::code_version;
use crate::arrow::Table;
use crate::error::{Error, failed};

/// The format of the tables, changed when older programs can't read them any more.
const SCHEMA: &str = "dwell-runs/1";
const SCHEMA_KEY: &str = "dwell.schema";

/// The runs of a scenario that are done.
#[pyclass(frozen, module = "dwell._dwell")]
pub(crate) struct Results {
    scenario: Arc<Scenario>,
    store: Mutex<Store>,
}

impl Results {
    pub(super) fn new(scenario: Arc<Scenario>, store: Store) -> Self {
        Self { scenario, store: Mutex::new(store) }
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Results {
    /// Adds runs that were written as lines of JSON.
    fn add_lines(&self, lines: &[u8]) -> PyResult<()> {
        let (added, dropped) = Store::parse(&String::from_utf8_lossy(lines));
        if let Some(first) = dropped.first() {
            return Err(Error::new_err(format!("{first}: these are no runs")));
        }
        self.store().extend(added);
        Ok(())
    }

    /// The runs as lines of JSON, as `dwell sim run --json` prints them, in the order of the tasks.
    fn lines<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let tasks: Vec<Task<'_>> = Task::all(&self.scenario).collect();
        PyBytes::new(py, self.store().to_text(&tasks, &code_version()).as_bytes())
    }

    /// The number of different runs.
    fn __len__(&self) -> usize {
        self.store().len()
    }

    /// Returns which of these keys are done.
    #[expect(clippy::needless_pass_by_value, reason = "PyO3 makes the list")]
    fn has(&self, keys: Vec<String>) -> Vec<bool> {
        let store = self.store();
        keys.iter().map(|key| store.get(key).is_some()).collect()
    }

    /// The places of the tasks that have no run yet, of several with the same run the first.
    fn missing(&self) -> Vec<usize> {
        let tasks: Vec<Task<'_>> = Task::all(&self.scenario).collect();
        let (store, code) = (self.store(), code_version());
        let open = Run::all(&tasks, &code).into_iter().filter(|run| !store.has(run));
        let open: BTreeSet<String> = open.map(|run| run.key).collect();
        let mut seen = BTreeSet::new();
        let keys = tasks.iter().map(|task| task.key(&code)).enumerate();
        let first = keys.filter(|(_, key)| open.contains(key) && seen.insert(key.clone()));
        first.map(|(place, _)| place).collect()
    }

    /// The runs as CSV, as the program writes them.
    fn csv(&self) -> String {
        let (store, code) = (self.store(), code_version());
        results::csv(&[Evaluation::new(&self.scenario, &store, &code)]).to_csv()
    }

    /// The means of each point as text, as the program prints them.
    fn text(&self) -> String {
        let (store, code) = (self.store(), code_version());
        results::table(&Evaluation::new(&self.scenario, &store, &code)).to_text()
    }

    /// What the program prints after `dwell sim run`.
    fn report(&self) -> String {
        let (store, code) = (self.store(), code_version());
        let evaluation = Evaluation::new(&self.scenario, &store, &code);
        let table = results::table(&evaluation).to_text();
        let mut text = format!("{}\n\n{table}", self.scenario.about.title);
        let claims = results::claims(&evaluation);
        if !claims.is_empty() {
            text.push('\n');
            text.push_str(&claims::to_text(&claims));
        }
        text
    }

    /// The report as a page.
    fn html(&self) -> String {
        let (store, code) = (self.store(), code_version());
        let evaluations = [Evaluation::new(&self.scenario, &store, &code)];
        let command = "dwell.sim".to_owned();
        let provenance = Provenance { version: code.clone(), command, ..Provenance::default() };
        results::page(&evaluations, provenance).to_html()
    }

    /// What the paper says beside the results, in JSON as the program prints it.
    fn claims_json(&self) -> PyResult<String> {
        let (store, code) = (self.store(), code_version());
        let claims = results::claims(&Evaluation::new(&self.scenario, &store, &code));
        let assessed: Vec<_> = claims.iter().map(Claim::assessed).collect();
        serde_json::to_string(&assessed).map_err(failed)
    }

    /// The scenario's figures with the points of the runs, in JSON.
    fn figures_json(&self) -> String {
        let (store, code) = (self.store(), code_version());
        let evaluation = Evaluation::new(&self.scenario, &store, &code);
        let figures = self
            .scenario
            .figures
            .iter()
            .map(|figure| figures::json(&figure.id, &results::chart(figure, &evaluation)));
        serde_json::Value::Array(figures.collect()).to_string()
    }

    /// A figure as SVG, as the program draws it.
    fn svg(&self, id: &str) -> PyResult<String> {
        let (store, code) = (self.store(), code_version());
        let evaluation = Evaluation::new(&self.scenario, &store, &code);
        let figure = self.scenario.figures.iter().find(|figure| figure.id == id);
        let figure = figure.ok_or_else(|| {
            Error::new_err(format!("there is no figure \"{id}\" in {}", self.scenario.id))
        })?;
        Ok(results::chart(figure, &evaluation).to_svg())
    }

    /// A row for each run: names, seed, swept values, metrics.
    fn table(&self, py: Python<'_>) -> PyResult<Table> {
        py.detach(|| {
            let (store, code) = (self.store(), code_version());
            runs_table(&Evaluation::new(&self.scenario, &store, &code))
        })
        .map_err(failed)
    }

    /// A row for each point of the time lines and distributions that the figures draw.
    fn series(&self, py: Python<'_>) -> PyResult<Table> {
        py.detach(|| {
            let (store, code) = (self.store(), code_version());
            series_table(&Evaluation::new(&self.scenario, &store, &code))
        })
        .map_err(failed)
    }

    /// The values of a metric for the runs of each point, in the order of their seeds.
    fn values(&self, metric: &str) -> PyResult<Vec<Vec<f64>>> {
        let formula =
            metric.parse().map_err(|error| Error::new_err(format!("{metric}: {error}")))?;
        let (store, code) = (self.store(), code_version());
        let evaluation = Evaluation::new(&self.scenario, &store, &code);
        Ok(evaluation.points().map(|(p, runs)| Evaluation::values(p, runs, &formula)).collect())
    }
}

/// A row of the table.
type Row<'e> = (&'e Point, &'e RunRecord);

fn runs_table(evaluation: &Evaluation<'_>) -> Result<Table, ArrowError> {
    let rows: Vec<Row<'_>> = evaluation
        .points()
        .flat_map(|(point, runs)| runs.iter().map(move |run| (point, *run)))
        .collect();
    let text = |of: fn(&RunRecord) -> &str| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(rows.iter().map(|(_, run)| of(run))))
    };
    // A run that points share has the name of one of them.
    let scenario = rows.iter().map(|_| evaluation.scenario.id.as_str());
    let counts = |of: fn(&RunRecord) -> u64| -> ArrayRef {
        Arc::new(UInt64Array::from_iter_values(rows.iter().map(|(_, run)| of(run))))
    };
    let mut columns = vec![
        column("scenario", Arc::new(StringArray::from_iter_values(scenario)), false),
        column("key", text(|run| &run.key), false),
        column("code", text(|run| &run.code), false),
        column("seed", counts(|run| run.seed), false),
        column("source_packets", counts(|run| run.source_packets), false),
    ];
    let swept: Vec<&str> = evaluation
        .scenario
        .points
        .first()
        .into_iter()
        .flat_map(|point| point.values.iter().map(|(path, _)| path.as_str()))
        .collect();
    for path in swept {
        let values: Vec<Option<&Value>> = rows.iter().map(|(point, _)| point.swept(path)).collect();
        columns.push(column(path, swept_column(&values), true));
    }
    let names: BTreeSet<&str> =
        rows.iter().flat_map(|(_, run)| run.metrics.keys().map(String::as_str)).collect();
    for name in names {
        let values = rows.iter().map(|(_, run)| run.metrics.get(name).copied());
        columns.push(column(name, Arc::new(values.collect::<Float64Array>()), true));
    }
    Table::of_columns(columns, &[(SCHEMA_KEY, SCHEMA)])
}

fn column(name: &str, array: ArrayRef, is_nullable: bool) -> (Field, ArrayRef) {
    (Field::new(name, array.data_type().clone(), is_nullable), array)
}

/// Returns swept values as numbers, if all are, or truths, or else as text.
fn swept_column(values: &[Option<&Value>]) -> ArrayRef {
    let is_all = |is: &dyn Fn(&Value) -> bool| values.iter().flatten().all(|value| is(value));
    if is_all(&|value| matches!(value, Value::Whole(_))) {
        let whole = values.iter().map(|value| match value {
            Some(Value::Whole(number)) => Some(*number),
            _ => None,
        });
        return Arc::new(whole.collect::<Int64Array>());
    }
    if is_all(&|value| matches!(value, Value::Whole(_) | Value::Real(_))) {
        let real = values.iter().map(|value| match value {
            Some(Value::Whole(number)) => Some(*number as f64),
            Some(Value::Real(number)) => Some(*number),
            _ => None,
        });
        return Arc::new(real.collect::<Float64Array>());
    }
    if is_all(&|value| matches!(value, Value::Truth(_))) {
        let truth = values.iter().map(|value| match value {
            Some(Value::Truth(truth)) => Some(*truth),
            _ => None,
        });
        return Arc::new(truth.collect::<BooleanArray>());
    }
    let shown = values.iter().map(|value| value.map(Value::shown));
    Arc::new(shown.collect::<StringArray>())
}

fn series_table(evaluation: &Evaluation<'_>) -> Result<Table, ArrowError> {
    let (mut keys, mut names) = (Vec::new(), Vec::new());
    let (mut xs, mut ys) = (Vec::new(), Vec::new());
    let mut seen = BTreeSet::new();
    for run in evaluation.runs.iter().flatten().filter(|run| seen.insert(run.key.as_str())) {
        for (name, points) in &run.series {
            for &(x, y) in points {
                keys.push(run.key.as_str());
                names.push(name.as_str());
                xs.push(x);
                ys.push(y);
            }
        }
    }
    let columns = vec![
        column("key", Arc::new(StringArray::from(keys)), false),
        column("series", Arc::new(StringArray::from(names)), false),
        column("x", Arc::new(Float64Array::from(xs)), false),
        column("y", Arc::new(Float64Array::from(ys)), false),
    ];
    Table::of_columns(columns, &[(SCHEMA_KEY, "dwell-series/1")])
}
