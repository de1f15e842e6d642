//! `[run]`: the measurement window, the number of runs and their seeds.

use std::collections::BTreeMap;

use dwell_base::time::SECOND_NS;

use crate::plan::{Jitter, Plan, Ties, Window};

use super::error::Errors;
use super::section::Section;
use super::tree::{Located, Origin, Table};
use super::value;

/// The way in which the runs of different points get their seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Seeds {
    /// Replication r has the same seed at each point, so that schemes are compared on the same
    /// traffic.
    #[default]
    Common,
    /// Each run has its own seed.
    Independent,
}

/// The contents of `[run]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runs {
    /// The measurement window.
    pub window: Window,
    /// The width of a bin of time lines; none are kept without.
    pub bin_ns: Option<u64>,
    /// The number of runs of each point.
    pub replications: u32,
    /// The seed of the first one; the others follow.
    pub seed: u64,
    /// The way in which points get their seeds.
    pub seeds: Seeds,
    /// The order of what happens at the same instant.
    pub ties: Ties,
}

const KEYS: [&str; 11] = [
    "warm_up",
    "measure",
    "drain",
    "bin",
    "replications",
    "seed",
    "seeds",
    "ties",
    "jitter",
    "quick",
    "series",
];

/// The jitter if none is given: less than any transmission, and more than what clocks differ by.
const JITTER_NS: u64 = 1_000;

/// The most replications: more are certainly a mistake.
const REPLICATIONS_MAX: u32 = 10_000;

/// Puts the values of `[run.quick]` over those of `[run]` for the quick variant. Takes
/// `[run.quick]` out in any case, so that it does not count as a difference between runs. Returns what is
/// different: `measure 1s for 20s, replications 2 for 10`.
pub(super) fn apply_quick(tree: &mut Table, is_quick: bool, errors: &mut Errors) -> Option<String> {
    let quick = tree.at("run.quick").cloned()?;
    if let Some(section) = Section::from(&quick, "run.quick", errors) {
        section.refuse_unknown(&["warm_up", "measure", "drain", "bin", "replications"], errors);
    }
    let values: Vec<(String, Located)> = quick
        .value
        .as_table()
        .into_iter()
        .flat_map(|table| table.iter().map(|(key, value)| (key.to_owned(), value.clone())))
        .collect();
    let mut changes = Vec::new();
    for (key, value) in values.into_iter().filter(|_| is_quick) {
        let path = format!("run.{key}");
        let usual = tree.at(&path).map_or_else(|| "none".to_owned(), |usual| usual.value.shown());
        changes.push(format!("{key} {} for {usual}", value.value.shown()));
        // `run` is a table, or `run.quick` would not have been found.
        let _ = tree.set(&path, value);
    }
    tree.edit("run", |run| {
        run.remove("quick");
    });
    (!changes.is_empty()).then(|| changes.join(", "))
}

/// Takes the names of the series that results keep out of `[run]`, with their origin: they make no run different.
pub(super) fn take_series(tree: &mut Table, errors: &mut Errors) -> (Vec<String>, Option<Origin>) {
    let mut series = Vec::new();
    let origin = tree.at("run.series").map(|located| located.origin);
    if origin.is_some()
        && let Some(section) = Section::of(tree, "run", errors)
    {
        series = section
            .list("series", "[\"tcp.throughput_bps\"]", errors, value::text)
            .unwrap_or_default();
    }
    tree.edit("run", |run| {
        run.remove("series");
    });
    (series, origin)
}

/// Refuses jitter beyond the run's length.
pub(super) fn refuse_useless_times(tree: &Table, plan: &Plan, errors: &mut Errors) {
    let Window { until_ns, drain_ns, .. } = plan.window;
    let end_ns = until_ns + drain_ns;
    let mut refuse = |path: &str, message: &str| {
        let origin = tree.at(path).map(|located| located.origin);
        errors.at(origin.unwrap_or(Origin::Line(1)), path, message);
    };
    if matches!(plan.ties, Ties::Jitter(ns) if ns >= end_ns) {
        refuse("run.jitter", "it is longer than the whole run: write for instance \"1us\"");
    }
    for link in &plan.links {
        let longest = match link.medium.jitter {
            Some(Jitter::Uniform(ns) | Jitter::Exponential(ns)) => ns,
            None => 0,
        };
        let path = format!("link.{}.jitter", link.name.trim_end_matches("-back"));
        if longest >= end_ns && tree.at(&path).is_some() {
            refuse(&path, "it is longer than the whole run: write for instance \"5ms\"");
        }
    }
}

/// Refuses sources that begin after the end of every point's run. In a quick variant, by a setting or in a sweep that
/// may be meant: such a source is silent.
pub(super) fn refuse_late_starts<'p>(
    points: impl Iterator<Item = (&'p Table, &'p Plan)>,
    errors: &mut Errors,
) {
    let mut late: BTreeMap<String, (Origin, bool)> = BTreeMap::new();
    for (tree, plan) in points {
        let end_ns = plan.window.until_ns + plan.window.drain_ns;
        let is_written = |path: &str| {
            tree.at(path).is_none_or(|located| matches!(located.origin, Origin::Line(_)))
        };
        let is_length_written =
            ["run.warm_up", "run.measure", "run.drain"].into_iter().all(is_written);
        for path in starts(tree) {
            let Some(located) = tree.at(&path) else { continue };
            let is_late = value::time_ns(&located.value).is_ok_and(|start_ns| start_ns >= end_ns)
                && is_length_written
                && is_written(&path);
            late.entry(path).or_insert((located.origin, true)).1 &= is_late;
        }
    }
    for (path, (origin, _)) in late.into_iter().filter(|(_, (_, is_late))| *is_late) {
        errors.at(origin, &path, "the run is over then (warm_up + measure + drain): begin earlier");
    }
}

/// Where a scenario may say when a source begins.
fn starts(tree: &Table) -> impl Iterator<Item = String> {
    let flows = tree.get("flow").and_then(|located| located.value.as_table());
    let flows = flows.into_iter().flat_map(Table::iter).map(|(name, _)| format!("flow.{name}"));
    let tables = ["traffic".to_owned(), "traffic.cross".to_owned()];
    tables.into_iter().chain(flows).map(|table| format!("{table}.start"))
}

/// Refuses a jitter that no point has a use for; what a setting makes useless is left alone.
pub(super) fn refuse_idle_jitter<'p>(
    points: impl Iterator<Item = (&'p Table, Ties)>,
    errors: &mut Errors,
) {
    let mut idle = None;
    for (tree, ties) in points {
        if matches!(ties, Ties::Jitter(_)) {
            return;
        }
        let is_set = tree.at("run.ties").is_some_and(|ties| ties.origin == Origin::Setting);
        let jitter = tree.at("run.jitter").map(|jitter| jitter.origin);
        idle = idle.or(jitter.filter(|&jitter| jitter == Origin::Setting || !is_set));
    }
    if let Some(origin) = idle {
        errors.at(origin, "run.jitter", "it belongs to ties = \"jitter\": add that, or remove it");
    }
}

/// Reads `[run]`.
pub(super) fn read(tree: &Table, errors: &mut Errors) -> Option<Runs> {
    let default = Runs {
        window: Window { from_ns: 0, until_ns: SECOND_NS, drain_ns: SECOND_NS },
        bin_ns: None,
        replications: 1,
        seed: 1,
        seeds: Seeds::Common,
        ties: Ties::Random,
    };
    if tree.get("run").is_none() {
        return Some(default);
    }
    let section = Section::of(tree, "run", errors)?;
    section.refuse_unknown(&KEYS, errors);
    // Those of the scenario and of settings are taken out before.
    for key in ["series", "quick"].into_iter().filter(|key| section.has(key)) {
        section.fail(key, "it is one for the whole scenario: write it in the file's [run]", errors);
    }
    let from_ns = section.or("warm_up", 0, errors, value::time_ns);
    let measure_ns = section.or("measure", SECOND_NS, errors, value::some_time_ns);
    let drain_ns = section.or("drain", SECOND_NS, errors, value::time_ns);
    Some(Runs {
        window: Window { from_ns, until_ns: from_ns + measure_ns, drain_ns },
        bin_ns: section.get("bin", errors, value::some_time_ns),
        replications: section
            .or("replications", 1, errors, |v| value::whole32(v, 1..=REPLICATIONS_MAX)),
        seed: section.or("seed", 1, errors, |v| value::whole(v, 0..=i64::MAX as u64)),
        seeds: section.or("seeds", Seeds::Common, errors, |found| {
            value::one_of(found, &[("common", Seeds::Common), ("independent", Seeds::Independent)])
        }),
        ties: ties(&section, errors),
    })
}

fn ties(section: &Section<'_>, errors: &mut Errors) -> Ties {
    let kinds =
        [("random", Ties::Random), ("ns-2", Ties::Ns2), ("jitter", Ties::Jitter(JITTER_NS))];
    let ties = section.or("ties", Ties::Random, errors, |found| value::one_of(found, &kinds));
    let jitter_ns = section.or("jitter", JITTER_NS, errors, value::some_time_ns);
    match ties {
        Ties::Jitter(_) => Ties::Jitter(jitter_ns),
        Ties::Random | Ties::Ns2 => ties,
    }
}
