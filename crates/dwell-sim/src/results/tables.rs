//! Results as tables: for spreadsheets, and for terminals.

use std::collections::BTreeSet;

use dwell_figures::csv::{Cell, Records};
use dwell_report::{Column, Table, human};

use crate::scenario::numeric;

use super::evaluation::Evaluation;
use super::record::RunRecord;

/// A row for each run: scenario, swept values, seed, metrics.
pub fn csv(evaluations: &[Evaluation<'_>]) -> Records {
    let mut records = Records::new(["scenario", "seed", "key"]);
    for evaluation in evaluations {
        for (point, runs) in evaluation.points() {
            for run in runs {
                let swept = point
                    .values
                    .iter()
                    .map(|(key, value)| (key.clone(), Cell::Text(value.shown())));
                let first = first_cells(&evaluation.scenario.id, run);
                records.record(first.into_iter().chain(swept).chain(metrics(run)));
            }
        }
    }
    records
}

/// A row for each value of each series: scenario, swept values, seed, name of the series, x and y. None if no run has
/// any.
pub fn series_csv(evaluations: &[Evaluation<'_>]) -> Option<Records> {
    let mut records = Records::new(["scenario", "seed", "key"]);
    let mut has_any = false;
    for evaluation in evaluations {
        let runs =
            evaluation.points().flat_map(|(point, runs)| runs.iter().map(move |r| (point, r)));
        for (point, run) in runs {
            let swept =
                point.values.iter().map(|(key, value)| (key.clone(), Cell::Text(value.shown())));
            let first: Vec<_> =
                first_cells(&evaluation.scenario.id, run).into_iter().chain(swept).collect();
            for (name, points) in &run.series {
                for &(x, y) in points {
                    let name = ("series".to_owned(), Cell::Text(name.clone()));
                    let values = [
                        name,
                        ("x".to_owned(), Cell::Number(x)),
                        ("y".to_owned(), Cell::Number(y)),
                    ];
                    records.record(first.iter().cloned().chain(values));
                    has_any = true;
                }
            }
        }
    }
    has_any.then_some(records)
}

fn first_cells(scenario: &str, run: &RunRecord) -> Vec<(String, Cell)> {
    vec![
        ("scenario".to_owned(), Cell::Text(scenario.to_owned())),
        ("seed".to_owned(), Cell::Count(run.seed)),
        ("key".to_owned(), Cell::Text(run.key.clone())),
    ]
}

fn metrics(run: &RunRecord) -> impl Iterator<Item = (String, Cell)> {
    run.metrics.iter().map(|(name, value)| (name.clone(), Cell::Number(*value)))
}

/// Returns a table for a terminal: a row for each point, with the means of the metrics in its
/// figures and claims, or of all metrics if there are neither.
pub fn table(evaluation: &Evaluation<'_>) -> Table {
    let scenario = evaluation.scenario;
    let swept: Vec<&str> = scenario
        .points
        .first()
        .into_iter()
        .flat_map(|point| point.values.iter().map(|(path, _)| path.as_str()))
        .collect();
    let names = interesting(evaluation);
    let columns = swept
        .iter()
        .map(|path| Column::left(path))
        .chain([Column::right("runs")])
        .chain(names.iter().map(|name| Column::right(name)));
    let mut table = Table::new(columns.collect::<Vec<_>>());
    for (point, runs) in evaluation.points() {
        let values =
            swept.iter().map(|path| point.swept(path).map_or_else(String::new, |v| v.shown()));
        let means = names.iter().map(|name| {
            let values: Vec<f64> =
                runs.iter().filter_map(|run| run.metrics.get(name).copied()).collect();
            match values.len() {
                0 => human::NOTHING.to_owned(),
                count => human::number(values.iter().sum::<f64>() / count as f64),
            }
        });
        table.row(values.chain([runs.len().to_string()]).chain(means).collect::<Vec<_>>());
    }
    table
}

/// Returns the metrics that the scenario's figures and claims use.
fn interesting(evaluation: &Evaluation<'_>) -> Vec<String> {
    let scenario = evaluation.scenario;
    let known: BTreeSet<&str> = evaluation
        .runs
        .iter()
        .flatten()
        .flat_map(|run| run.metrics.keys().map(String::as_str))
        .collect();
    let figures = scenario.figures.iter().flat_map(|f| f.y.iter().map(|(_, y)| y).chain([&f.x]));
    let formulas = figures.chain(scenario.papers.iter().map(|paper| &paper.metric));
    let mut names: Vec<String> = Vec::new();
    for name in formulas.flat_map(|formula| formula.names()) {
        if known.contains(name) && !names.iter().any(|before| before == name) {
            names.push(name.to_owned());
        }
    }
    if names.is_empty() {
        // A scenario without figures shows all metrics that depend on more than its values.
        names = known.iter().map(|name| (*name).to_owned()).collect();
    }
    names.retain(|name| scenario.points.iter().all(|p| p.value(name).and_then(numeric).is_none()));
    names
}
