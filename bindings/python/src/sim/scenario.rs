//! A scenario that was read, and its runs.

use std::sync::Arc;

use dwell_sim::results::{Run, Store, Task};
use dwell_sim::scenario::{Expression, Options, Setting};
use dwell_trace::replay::simulated::{self, Beside, Refused};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;

use super::results::Results;
use crate::error::{Error, ScenarioError};
use crate::jobs;

/// The version of the code that results follow from, as the program writes it.
pub(crate) fn code_version() -> String {
    format!("{}+{}", env!("CARGO_PKG_VERSION"), dwell_sim::CODE)
}

/// A scenario: points to simulate, figures to draw, and what a paper says.
#[pyclass(frozen, module = "dwell._dwell")]
pub(crate) struct Scenario(Arc<dwell_sim::scenario::Scenario>);

#[pymethods]
impl Scenario {
    /// Reads a scenario. `read` is called with the name of each file that it names, and returns its bytes.
    #[new]
    #[pyo3(signature = (text, *, file, id, settings, quick, read))]
    #[expect(clippy::needless_pass_by_value, reason = "PyO3 makes the list")]
    fn new(
        text: &str,
        file: &str,
        id: &str,
        settings: Vec<String>,
        quick: bool,
        read: Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let settings = settings.iter().map(|setting| setting.parse::<Setting>());
        let settings = settings.collect::<Result<_, _>>().map_err(ScenarioError::new_err)?;
        let options = Options { settings, is_quick: quick };
        let beside = Beside(|name: &str| {
            let bytes = read.call1((name,)).and_then(|bytes| bytes.extract::<Vec<u8>>());
            bytes.map_err(|error| error.value(read.py()).to_string())
        });
        let scenario = simulated::parse(text, file, id, &options, &beside);
        let scenario = scenario.map_err(|refused| match refused {
            Refused::Written(errors) => ScenarioError::new_err(errors.to_string()),
            Refused::Codec(why) => ScenarioError::new_err(why),
        })?;
        Ok(Self(Arc::new(scenario)))
    }

    /// The name that results have.
    #[getter]
    fn id(&self) -> &str {
        &self.0.id
    }

    /// The title.
    #[getter]
    fn title(&self) -> &str {
        &self.0.about.title
    }

    /// The paper that it comes from; may be empty.
    #[getter]
    fn paper(&self) -> &str {
        &self.0.about.paper
    }

    /// The figure, table or equation of the paper; may be empty.
    #[getter]
    fn figure(&self) -> &str {
        &self.0.about.figure
    }

    /// Notes for readers; may be empty.
    #[getter]
    fn note(&self) -> &str {
        &self.0.about.note
    }

    /// The swept values of each point, as a list of objects in JSON.
    fn points_json(&self) -> String {
        let points = self.0.points.iter().map(|point| {
            let values = point.values.iter();
            let values = values.map(|(key, value)| (key.clone(), dwell_sim::results::json(value)));
            serde_json::Value::Object(values.collect())
        });
        serde_json::Value::Array(points.collect()).to_string()
    }

    /// The number of replications of each point.
    fn replications(&self) -> Vec<u32> {
        self.0.points.iter().map(|point| point.runs.replications).collect()
    }

    /// Checks that some of its runs can have a value for a formula over metrics.
    fn check(&self, metric: &str) -> PyResult<()> {
        let formula = metric.parse::<Expression>();
        let formula =
            formula.map_err(|why| PyValueError::new_err(format!("\"{metric}\": {why}")))?;
        self.0.check(&formula).map_err(PyValueError::new_err)
    }

    /// All runs, in their order: (key, index of the point, seed, estimated work in millions of packets on
    /// links). Runs with the same key are the same run.
    fn tasks(&self) -> Vec<(String, usize, u64, f64)> {
        let code = code_version();
        let points = self.0.points.iter().enumerate();
        points
            .flat_map(|(at, point)| {
                let code = &code;
                let effort = dwell_sim::effort::packet_hops(&point.plan) / 1e6;
                point.seeds().map(move |seed| {
                    let key = Task { scenario: &self.0, point, seed }.key(code);
                    (key, at, seed, effort)
                })
            })
            .collect()
    }

    /// Does the runs at these places among the tasks, or all, on a number of threads.
    #[pyo3(signature = (places=None, *, jobs=None))]
    fn run(
        &self,
        py: Python<'_>,
        places: Option<Vec<usize>>,
        jobs: Option<usize>,
    ) -> PyResult<Results> {
        let all: Vec<Task<'_>> = Task::all(&self.0).collect();
        let tasks = match places {
            None => all,
            Some(places) => places
                .iter()
                .map(|&at| all.get(at).copied().ok_or_else(|| PyIndexError::new_err(at)))
                .collect::<PyResult<_>>()?,
        };
        let store = run(py, &tasks, jobs::count(jobs)?)?;
        Ok(Results::new(Arc::clone(&self.0), store))
    }

    /// Returns results without any run.
    fn no_results(&self) -> Results {
        Results::new(Arc::clone(&self.0), Store::default())
    }
}

fn run(py: Python<'_>, tasks: &[Task<'_>], jobs: usize) -> PyResult<Store> {
    let code = code_version();
    let mut runs = Run::all(tasks, &code);
    // Long runs first, so that no core is left alone with one at the end.
    runs.sort_by(|a, b| b.task.effort().total_cmp(&a.task.effort()));
    let mut store = Store::default();
    jobs::run(py, &runs, jobs, simulated::run, |at, result| {
        let record = result.map_err(|message| {
            let task = &runs[at].task;
            Error::new_err(format!("{}, seed {}: {message}", task.scenario.id, task.seed))
        })?;
        store.put(record);
        Ok(())
    })?;
    Ok(store)
}
