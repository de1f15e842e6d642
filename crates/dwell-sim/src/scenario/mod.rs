//! Scenarios: what to simulate, written as TOML, and what to show of it.
//!
//! ```toml
//! [about]
//! title = "Effect of compression ratio"
//! paper = "Shimamura et al. 2010"
//! figure = "Fig. 8"
//!
//! [run]
//! warm_up = "10s"
//! measure = "20s"
//! replications = 10
//!
//! [topology]
//! kind = "parking-lot"
//! relays = 2
//! rate = "100mbit"
//! buffer_packets = 1000
//!
//! [traffic]
//! kind = "on-off"
//! packet_bytes = 500
//! rate = "60mbit"
//! on = "250us"
//! off = "50us"
//!
//! [scheme]
//! preset = "packet"
//!
//! [compress]
//! ratio = 0.95
//! time = "200us"
//!
//! [[sweep]]
//! compress.ratio = [0.7, 0.95]
//! ```
//!
//! Parsing is strict: a key that is unknown, a value of the wrong type and a value that makes no
//! sense are all errors, at any point of a sweep, and all are reported at once, each with its line
//! and what to do about it. Parsing is pure too: files that a scenario names come in through a
//! function.
//!
//! The tables about a scenario's runs are first a tree of values ([`Value`]); sweeps and settings
//! (`--set compress.ratio=0.9`) change that tree by dotted paths; then each point is read from its
//! tree into a [`Plan`].

mod compress;
mod error;
mod estimates;
mod expression;
mod key;
mod lines;
mod metrics;
mod model;
mod run;
mod scheme;
mod section;
mod source;
mod sweep;
#[cfg(test)]
mod tests;
mod topology;
mod tree;
mod value;
mod view;

use std::collections::BTreeMap;

use dwell_base::FileErrors;

use crate::plan::{Plan, PlanError};

pub use expression::Expression;
pub use key::RunKey;
pub use run::{Runs, Seeds};
pub use source::{Files, Selection};
pub use sweep::{LABEL, Setting};
pub use tree::{Located, Origin, Table, Value};
pub use value::numeric;
pub use view::{Axis, Bars, Figure, FigureKind, Over, PaperValue, Where};

use error::Errors;
use section::Section;
use source::Inputs;

/// Options for reading a scenario.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Values from the command line, in their order.
    pub settings: Vec<Setting>,
    /// The quick variant: `[run.quick]` over `[run]`, and fewer points where sweeps say so.
    pub is_quick: bool,
}

/// A scenario: what to run, and what to show.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name in results: `shimamura/fig-8`.
    pub id: String,
    /// The word by which `dwell sim run` finds it: its name if the program carries it, and its file's path otherwise.
    pub found_by: String,
    /// Its description.
    pub about: About,
    /// Its points. At least one.
    pub points: Vec<Point>,
    /// Its figures.
    pub figures: Vec<Figure>,
    /// The names of series that its results keep of each run.
    pub series: Vec<String>,
    /// The papers' claims about its results.
    pub papers: Vec<PaperValue>,
    /// What is shorter in the quick variant, if it is that: `measure 1s for 20s, replications 2 for 10`.
    pub quick: Option<String>,
}

/// The description of a scenario.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// A title of a few words.
    pub title: String,
    /// The paper that it comes from; may be empty.
    pub paper: String,
    /// The figure, table or equation of the paper; may be empty.
    pub figure: String,
    /// Notes for readers: readings, differences.
    pub note: String,
}

/// One point of a scenario's sweeps.
#[derive(Clone, Debug)]
pub struct Point {
    /// The swept keys and their values here, in the order of the file.
    pub values: Vec<(String, Value)>,
    /// The hash of everything that determines its runs, except the code and the seed. Points that
    /// differ only in keys without effect on them, such as the ratio for a scheme that never
    /// compresses, have the same hash.
    pub plan_hash: u128,
    /// The predictions of an analytic model, by names as metrics have them; empty if there is none.
    pub model: BTreeMap<String, f64>,
    /// The plan to simulate.
    pub plan: Plan,
    /// The number of runs, and their seeds.
    pub runs: Runs,
    /// The index of the `[[sweep]]` of each swept value.
    sweeps: Vec<usize>,
    tree: Table,
}

impl Point {
    /// Returns the seeds of its runs, one for each replication.
    pub fn seeds(&self) -> impl Iterator<Item = u64> + '_ {
        (0..u64::from(self.runs.replications)).map(|replication| {
            let seed = self.runs.seed.wrapping_add(replication);
            match self.runs.seeds {
                Seeds::Common => seed,
                Seeds::Independent => key::mixed(self.plan_hash, seed),
            }
        })
    }

    /// Returns the value of a swept key here.
    pub fn swept(&self, path: &str) -> Option<&Value> {
        self.values.iter().find(|(key, _)| key == path).map(|(_, value)| value)
    }

    /// Returns the value that any key of the scenario has here, swept or not.
    pub fn value(&self, path: &str) -> Option<&Value> {
        self.swept(path).or_else(|| self.tree.at(path).map(|located| &located.value))
    }

    /// Returns the swept values here, with those of `changes` in their place. Keys that advance
    /// together with a changed key, such as a label, are left open.
    pub fn elsewhere(&self, changes: &[(String, Value)]) -> Where {
        let is_changed = |path: &str| changes.iter().any(|(changed, _)| changed == path);
        let swept = || self.values.iter().zip(&self.sweeps);
        let open: Vec<usize> =
            swept().filter(|((path, _), _)| is_changed(path)).map(|(_, &sweep)| sweep).collect();
        let kept = swept().filter(|(_, sweep)| !open.contains(sweep)).map(|(value, _)| value);
        changes.iter().chain(kept).cloned().collect()
    }

    /// Returns true if all keys have these values here; of a list of values, one of them.
    pub fn meets(&self, conditions: &[(String, Value)]) -> bool {
        conditions.iter().all(|(path, wanted)| {
            let Some(value) = self.value(path) else { return false };
            match wanted {
                Value::List(any) if !matches!(value, Value::List(_)) => {
                    any.iter().any(|wanted| is_same(value, &wanted.value))
                }
                wanted => is_same(value, wanted),
            }
        })
    }
}

/// Returns true if both are the same value, however it is written: `"200us"` is `"0.2ms"`.
fn is_same(one: &Value, other: &Value) -> bool {
    if one.is_same(other) {
        return true;
    }
    match (one, other) {
        (Value::Text(_), Value::Text(_)) => {
            numeric(one).is_some_and(|number| Some(number) == numeric(other))
        }
        _ => false,
    }
}

const TABLES: [&str; 4] = ["about", "sweep", "figure", "paper"];

impl Scenario {
    /// Reads a scenario. `file` names it in messages, `id` in results; `files` are those that it names: a function
    /// from a name to a text will do where there are no captures.
    ///
    /// # Errors
    /// Returns everything that is wrong with it, at any of its points.
    pub fn parse(
        text: &str,
        file: &str,
        id: &str,
        options: &Options,
        files: &dyn Files,
    ) -> Result<Self, FileErrors> {
        let mut errors = Errors::default();
        let scenario = parse(text, (file, id), options, &mut Inputs::new(files), &mut errors);
        errors.into_result(file, scenario)
    }

    /// Checks that some of its runs can have a value for a formula.
    ///
    /// # Errors
    /// The name in it that none can have, with the nearest one that there is.
    pub fn check(&self, formula: &Expression) -> Result<(), String> {
        metrics::check(&self.points, formula)
    }

    /// Returns the number of its runs.
    pub fn runs(&self) -> usize {
        self.points.iter().map(|point| point.runs.replications as usize).sum()
    }
}

fn parse(
    text: &str,
    (file, id): (&str, &str),
    options: &Options,
    inputs: &mut Inputs<'_>,
    errors: &mut Errors,
) -> Option<Scenario> {
    let mut tree = tree::parse(text, errors)?;
    let mut sweeps = sweep::take(&mut tree, errors);
    let figures = view::take_figures(&mut tree, errors);
    let papers = view::take_papers(&mut tree, errors);
    let about = about(&mut tree, errors);
    let quick = run::apply_quick(&mut tree, options.is_quick, errors);
    let settings = settable(&options.settings, errors);
    sweep::apply(&settings, &mut tree, &mut sweeps, errors);
    let (series, series_origin) = run::take_series(&mut tree, errors);
    refuse_unknown_tables(&tree, errors);
    let steps = sweep::cross(&sweeps, options.is_quick, errors);
    let points: Vec<Point> =
        steps.into_iter().filter_map(|step| point(&tree, step, inputs, errors)).collect();
    refuse_unknown_conditions(&points, &figures, &papers, errors);
    refuse_unknown_series(&points, &series, series_origin, errors);
    metrics::refuse_unknown(&points, (&figures, &papers), !settings.is_empty(), errors);
    if !options.is_quick {
        let lengths = points.iter().map(|point| (&point.tree, &point.plan));
        run::refuse_late_starts(lengths, errors);
    }
    run::refuse_idle_jitter(points.iter().map(|point| (&point.tree, point.plan.ties)), errors);
    let (id, found_by) = (id.to_owned(), file.to_owned());
    let scenario = Scenario { id, found_by, about, points, figures, series, papers, quick };
    (!scenario.points.is_empty()).then_some(scenario)
}

fn about(tree: &mut Table, errors: &mut Errors) -> About {
    let Some(located) = tree.remove("about") else {
        errors.add(None, None, "[about] is missing: it gives the scenario its title");
        return About::default();
    };
    let Some(section) = Section::from(&located, "about", errors) else { return About::default() };
    section.refuse_unknown(&["title", "paper", "figure", "note"], errors);
    let text = |key: &str, errors: &mut Errors| {
        section.or(key, String::new(), errors, value::text).trim().to_owned()
    };
    About {
        title: section.need("title", "\"…\"", errors, value::text).unwrap_or_default(),
        paper: text("paper", errors),
        figure: text("figure", errors),
        note: text("note", errors),
    }
}

/// Returns the settings that can affect runs, and reports the others. The tables that the others
/// would be in are out of the tree already.
fn settable(settings: &[Setting], errors: &mut Errors) -> Vec<Setting> {
    let is_shown = |setting: &&Setting| {
        let table = setting.path.split('.').next().unwrap_or_default();
        TABLES.contains(&table)
    };
    for setting in settings.iter().filter(is_shown) {
        let message = format!(
            "only values that affect runs can be set, as in compress.ratio=0.9, but not [{}]: edit \
             a copy of the scenario's file",
            setting.path.split('.').next().unwrap_or_default()
        );
        errors.at(Origin::Setting, &setting.path, message);
    }
    settings.iter().filter(|setting| !is_shown(setting)).cloned().collect()
}

fn refuse_unknown_tables(tree: &Table, errors: &mut Errors) {
    let known: Vec<&str> = [&topology::TABLES[..], &TABLES[..]].concat();
    for (name, located) in tree.iter().filter(|(name, _)| !topology::TABLES.contains(name)) {
        let hint = dwell_base::text::suggest(name, &known).replace("the keys here", "the tables");
        let message = format!(
            "there is no table `{}` in a scenario: {hint}",
            dwell_base::text::printable(name)
        );
        match located.origin {
            Origin::Line(line) => errors.add(Some(line), None, message),
            origin => errors.at(origin, name, message),
        }
    }
}

fn point(
    tree: &Table,
    step: sweep::SweepStep,
    inputs: &mut Inputs<'_>,
    errors: &mut Errors,
) -> Option<Point> {
    let mut tree = tree.clone();
    for (path, value) in step.changes {
        let origin = value.origin;
        if let Err(at) = tree.set(&path, value) {
            errors.at(origin, &path, format!("`{at}` is no table, so that nothing is in it"));
            return None;
        }
    }
    let (plan, runs) = topology::read(&tree, inputs, errors)?;
    run::refuse_useless_times(&tree, &plan, errors);
    if let Err(error) = plan.check() {
        let place = match error {
            // Too many bins result from a window and the width of a bin.
            PlanError::Value(_) if plan.bin_ns.is_some() => "run.bin",
            _ => "topology",
        };
        match tree.at(place) {
            Some(located) => errors.at(located.origin, place, error.to_string()),
            None => errors.add(None, None, error.to_string()),
        }
        return None;
    }
    Some(Point {
        values: step.values,
        sweeps: step.sweeps,
        plan_hash: key::plan_hash(&plan),
        model: model::values(&plan),
        plan,
        runs,
        tree,
    })
}

/// Refuses series that no run has.
fn refuse_unknown_series(
    points: &[Point],
    series: &[String],
    origin: Option<Origin>,
    errors: &mut Errors,
) {
    for name in series {
        let found = points.iter().map(|point| crate::series::check(&point.plan, name));
        if let Some(message) = found.reduce(|one, other| one.or(other)).and_then(Result::err) {
            errors.at(origin.unwrap_or(Origin::Setting), "run.series", message);
        }
    }
}

/// Refuses conditions of figures and paper values that no point can meet.
fn refuse_unknown_conditions(
    points: &[Point],
    figures: &[Figure],
    papers: &[PaperValue],
    errors: &mut Errors,
) {
    let Some(first) = points.first() else { return };
    let swept: Vec<&str> = first.values.iter().map(|(path, _)| path.as_str()).collect();
    let mut check = |place: String, path: &str| {
        if first.value(path).is_none() {
            let hint = dwell_base::text::suggest(path, &swept).replace("the keys here", "swept");
            let message = format!("`{path}` is no key of this scenario: {hint}");
            errors.add(None, Some(place), message);
        }
    };
    for figure in figures {
        let keys = figure.only.iter().map(|(path, _)| path).chain(&figure.series);
        keys.for_each(|path| check(format!("[[figure]] \"{}\"", figure.id), path));
    }
    for paper in papers {
        let keys = paper.only.iter().chain(&paper.against).map(|(path, _)| path);
        keys.for_each(|path| check(format!("[[paper]] \"{}\"", paper.quantity), path));
    }
}
