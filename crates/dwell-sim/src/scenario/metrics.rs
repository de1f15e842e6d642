//! Names in formulas: those that a run can have a value for, and the nearest ones to what it can't.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use dwell_base::text::{nearest, printable};
use dwell_policy::SendCause;

use crate::outcome::{Changes, FrameCount, GroupOutcome, LinkOutcome, Outcome, PortOutcome, Tally};
use crate::plan::Plan;
use crate::series;

use super::error::Errors;
use super::{Expression, Figure, FigureKind, PaperValue, Point, numeric};

/// The names that metrics can have, without those of groups and links.
struct Names {
    of_groups: BTreeSet<String>,
    of_links: BTreeSet<String>,
    of_all: BTreeSet<String>,
}

/// As results write them, when everything has happened that can happen.
static NAMES: LazyLock<Names> = LazyLock::new(|| {
    let mut once = Tally::default();
    once.add(1);
    let group = GroupOutcome {
        name: "group".to_owned(),
        sent: 1,
        delivered: 1,
        delay: once,
        jitter: Changes { count: 1, ..Changes::default() },
        excess: once,
        transfers: 1,
        completion: once,
        acknowledged: 1,
        acknowledged_bytes: 1,
        ..GroupOutcome::default()
    };
    let frames = |cause| FrameCount { buffer: 0, cause, frames: 1, bytes: 1, packets: 1 };
    let port = PortOutcome {
        name: "link".to_owned(),
        arrived: vec![1],
        compressed: vec![1],
        frames: [SendCause::Ready, SendCause::Timer].map(frames).to_vec(),
        ..PortOutcome::default()
    };
    let link = LinkOutcome {
        name: "link".to_owned(),
        has_queue: true,
        has_losses: true,
        wait: once,
        ..LinkOutcome::default()
    };
    let outcome = Outcome {
        groups: vec![group],
        ports: vec![port],
        links: vec![link],
        acknowledged: vec![1],
        window_ns: 1,
        ..Outcome::default()
    };
    let metrics: BTreeMap<String, f64> = outcome.metrics();
    let of = |owner: &str| {
        metrics.keys().filter_map(|name| name.strip_prefix(owner)).map(str::to_owned).collect()
    };
    let of_all = metrics.keys().filter(|name| !name.contains('.')).cloned().collect();
    Names { of_groups: of("group."), of_links: of("link."), of_all }
});

/// What a name stands for in runs of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Yes,
    /// It is the name of a group, a link or a model, which has no such number.
    OwnerOnly,
    No,
}

fn known(point: &Point, name: &str) -> Known {
    let is_value =
        || point.model.contains_key(name) || point.value(name).and_then(numeric).is_some();
    let Some((owner, quantity)) = name.split_once('.') else {
        return if NAMES.of_all.contains(name) || is_value() { Known::Yes } else { Known::No };
    };
    let is_group = has_group(&point.plan, owner);
    let is_link = point.plan.links.iter().any(|link| link.name == owner);
    let is_metric = (is_group && NAMES.of_groups.contains(quantity))
        || (is_link && is_of_link(&point.plan, quantity));
    match is_metric || is_value() {
        true => Known::Yes,
        false if is_group || is_link => Known::OwnerOnly,
        false => Known::No,
    }
}

fn has_group(plan: &Plan, name: &str) -> bool {
    plan.groups.iter().any(|group| group.name == name)
}

/// Some numbers of links are by group, some by buffer: in [`NAMES`] these are `group` and 0.
fn is_of_link(plan: &Plan, quantity: &str) -> bool {
    NAMES.of_links.contains(quantity)
        || quantity.split_once('.').is_some_and(|(kind, part)| {
            (has_group(plan, part) && NAMES.of_links.contains(&format!("{kind}.group")))
                || (part.parse::<u8>().is_ok() && NAMES.of_links.contains(&format!("{kind}.0")))
        })
}

/// Checks that runs of some of these points can have a value for a formula; what happens in them, and which scheme is
/// at work, is left open.
///
/// # Errors
/// Returns the name that none can have, and what it may have been meant to be.
pub(super) fn check(points: &[Point], formula: &Expression) -> Result<(), String> {
    check_but(&points.iter(), formula, false)
}

/// As [`check`]; with `some_removed`, groups and links may be missing.
fn check_but<'p>(
    points: &(impl Iterator<Item = &'p Point> + Clone),
    formula: &Expression,
    some_removed: bool,
) -> Result<(), String> {
    let Some(first) = points.clone().next() else { return Ok(()) };
    for name in formula.names() {
        let is_accepted = |point: &Point| match known(point, name) {
            Known::Yes => true,
            Known::OwnerOnly => false,
            Known::No => some_removed && name.contains('.'),
        };
        if !points.clone().any(is_accepted) {
            let hint = hint(first, name);
            return Err(format!("no run has a value \"{}\": {hint}", printable(name)));
        }
    }
    Ok(())
}

fn hint(point: &Point, name: &str) -> String {
    let plan = &point.plan;
    let groups = plan.groups.iter().map(|group| group.name.as_str());
    let links = plan.links.iter().map(|link| link.name.as_str());
    let owners: BTreeSet<&str> = groups.chain(links).collect();
    let of = |owner: &str| {
        let mut of_this = BTreeSet::new();
        if has_group(plan, owner) {
            of_this.extend(NAMES.of_groups.iter().map(|name| format!("{owner}.{name}")));
        }
        if plan.links.iter().any(|link| link.name == owner) {
            let whole = NAMES.of_links.iter().filter(|name| !name.contains('.'));
            of_this.extend(whole.map(|name| format!("{owner}.{name}")));
        }
        of_this
    };
    let (owner, quantity) = name.split_once('.').unwrap_or((name, ""));
    let mut names: BTreeSet<String> = of(owner);
    if names.is_empty() {
        let near = nearest(owner, &owners.iter().copied().collect::<Vec<_>>());
        names.extend(near.map(|owner| format!("{owner}.{quantity}")));
        names.extend(NAMES.of_all.iter().cloned());
        names.extend(point.model.keys().cloned());
        names.extend(point.values.iter().map(|(path, _)| path.clone()));
    }
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    match nearest(name, &all) {
        Some(near) => format!("did you mean `{near}`?"),
        None if owners.contains(owner) => format!("there are {}", all.join(", ")),
        None => {
            let owners: Vec<&str> = owners.into_iter().take(20).collect();
            format!(
                "groups and links have values ({}; docs/simulator.md says which), and keys of the scenario that are \
                 numbers",
                owners.join(", ")
            )
        }
    }
}

/// Refuses formulas that no point can have a value for. What is set on the command line may remove groups and links, and
/// what shows them is then left out.
pub(super) fn refuse_unknown(
    points: &[Point],
    (figures, papers): (&[Figure], &[PaperValue]),
    has_settings: bool,
    errors: &mut Errors,
) {
    for figure in figures {
        let shown = points.iter().filter(|point| point.meets(&figure.only));
        let is_of_series = matches!(figure.kind, FigureKind::Timeline | FigureKind::Cdf);
        let lines = figure.y.iter().map(|(_, formula)| formula);
        let numbers = lines.clone().filter(|_| !is_of_series).chain([&figure.x]);
        let wrong = numbers.filter_map(|it| check_but(&shown, it, has_settings).err());
        let series = lines.filter(|_| is_of_series && !has_settings);
        let wrong_series = series.filter_map(|it| check_series(shown.clone(), it).err());
        for message in wrong.chain(wrong_series) {
            errors.add(None, Some(format!("[[figure]] \"{}\"", figure.id)), message);
        }
    }
    for paper in papers {
        let meant = points.iter().filter(|point| point.meets(&paper.only));
        if let Err(message) = check_but(&meant, &paper.metric, has_settings) {
            errors.add(None, Some(format!("[[paper]] \"{}\"", paper.quantity)), message);
        }
    }
}

fn check_series<'p>(
    mut points: impl Iterator<Item = &'p Point> + Clone,
    formula: &Expression,
) -> Result<(), String> {
    let Some(name) = formula.names().first().copied() else { return Ok(()) };
    let Some(first) = points.clone().next() else { return Ok(()) };
    match points.any(|point| series::check(&point.plan, name).is_ok()) {
        true => Ok(()),
        false => series::check(&first.plan, name),
    }
}
