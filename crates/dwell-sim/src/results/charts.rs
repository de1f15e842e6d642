//! A figure of a scenario as a chart.

use std::collections::{BTreeMap, BTreeSet};

use dwell_figures::chart::{self, Chart, Kind, Point as Dot, Role, Series};

use crate::scenario::{
    Axis, Bars, Expression, Figure, FigureKind, LABEL, PaperValue, Point, numeric,
};

use super::evaluation::Evaluation;
use super::record::RunRecord;
use super::summary::Summary;

/// Draws a figure with the existing runs.
pub fn chart(figure: &Figure, evaluation: &Evaluation<'_>) -> Chart {
    let drawn = match figure.kind {
        FigureKind::Line | FigureKind::Points => lines(figure, evaluation),
        FigureKind::Timeline => timelines(figure, evaluation),
        FigureKind::Cdf => distributions(figure, evaluation),
    };
    let mut chart =
        Chart::new(&figure.title, axis(&figure.x_axis, None), axis(&figure.y_axis, figure.floor));
    chart.caption = caption(figure, evaluation);
    chart.caption.push_str(&of_marks(figure, evaluation, &drawn));
    chart.series = drawn;
    chart
}

fn axis(axis: &Axis, floor: Option<f64>) -> chart::Axis {
    let mut out = match axis.is_log {
        true => chart::Axis::log(&axis.label),
        false => chart::Axis::linear(&axis.label),
    };
    out.range = axis.range;
    out.floor = floor.filter(|_| axis.is_log);
    out
}

fn caption(figure: &Figure, evaluation: &Evaluation<'_>) -> String {
    let all = evaluation.scenario.runs();
    let mut caption = match (figure.kind, figure.bars) {
        (FigureKind::Timeline, _) => "The first run of each.".to_owned(),
        (FigureKind::Cdf, _) => "All runs of each together.".to_owned(),
        (_, Bars::None) => "Means of all runs.".to_owned(),
        (FigureKind::Line, Bars::Range) => {
            "Means of all runs; bands from the least to the largest.".to_owned()
        }
        (_, Bars::Range) => "Means of all runs; bars from the least to the largest.".to_owned(),
        (_, Bars::Confidence) => "Means of all runs with their 95 % intervals.".to_owned(),
    };
    if evaluation.done() < all {
        caption.push_str(&format!(" {} of {all} runs are done.", evaluation.done()));
    }
    caption
}

/// What marks mean that the legend alone does not say.
fn of_marks(figure: &Figure, evaluation: &Evaluation<'_>, drawn: &[Series]) -> String {
    let mut out = String::new();
    let has = |role: Role| drawn.iter().any(|series| series.role == role);
    if has(Role::Paper) {
        out.push_str(" Hollow diamonds: numbers in the paper's text.");
    }
    if has(Role::Reference) {
        out.push_str(" Crosses: an independent program's numbers.");
    }
    let is_change = |paper: &PaperValue| {
        !paper.against.is_empty()
            && (paper.value.is_some() || paper.reference.is_some())
            && evaluation.scenario.points.first().is_some_and(|point| {
                figure.y.iter().any(|(_, formula)| factor(&paper.metric, formula, point).is_some())
            })
    };
    if (has(Role::Paper) || has(Role::Reference))
        && evaluation.scenario.papers.iter().any(is_change)
    {
        out.push_str(
            " Changes in percent are drawn from our number at the point that they refer to.",
        );
    }
    let names: BTreeSet<&str> = drawn.iter().map(|series| series.name.as_str()).collect();
    if names.len() > chart::NAMES_MAX {
        out.push_str(&format!(
            " With {} names there are not enough colours and marks: after {} they begin again, in the order of the \
             legend. Figures with `where` keep them apart.",
            names.len(),
            chart::NAMES_MAX
        ));
    }
    out
}

/// A point with its runs.
type Run<'e, 'r> = (&'r Point, &'e [&'r RunRecord]);

/// The points that a figure shows, by series, in the order of the file.
fn by_series<'e, 'r>(
    figure: &Figure,
    evaluation: &'e Evaluation<'r>,
) -> Vec<(String, Vec<Run<'e, 'r>>)> {
    let mut out: Vec<(String, Vec<Run<'e, 'r>>)> = Vec::new();
    for (point, runs) in evaluation.points().filter(|(point, _)| point.meets(&figure.only)) {
        let name = series_name(figure, point);
        match out.iter_mut().find(|(known, _)| *known == name) {
            Some((_, points)) => points.push((point, runs)),
            None => out.push((name, vec![(point, runs)])),
        }
    }
    out
}

fn series_name(figure: &Figure, point: &Point) -> String {
    let values: Vec<String> = figure
        .series
        .iter()
        .filter_map(|path| {
            let shown = point.value(path)?.shown();
            // A label and a preset need no key.
            let speaks = path == LABEL || path == "scheme.preset";
            let key = path.rsplit('.').next().unwrap_or(path);
            Some(if speaks { shown } else { format!("{key} = {shown}") })
        })
        .collect();
    values.join(", ")
}

fn full_name(series: &str, line: &str) -> String {
    match (series, line) {
        ("", line) => line.to_owned(),
        (series, "") => series.to_owned(),
        (series, line) => format!("{series}: {line}"),
    }
}

fn lines(figure: &Figure, evaluation: &Evaluation<'_>) -> Vec<Series> {
    let kind = if figure.kind == FigureKind::Line { Kind::Line } else { Kind::Points };
    // What is stated is drawn on top.
    let (mut out, mut stated) = (Vec::new(), Vec::new());
    for (name, points) in by_series(figure, evaluation) {
        for (line, formula) in &figure.y {
            let dots = points.iter().filter_map(|(point, runs)| {
                let x = Evaluation::summary(point, runs, &figure.x)?.mean;
                let y = Evaluation::summary(point, runs, formula)?;
                Some(dot(x, &y, figure.bars))
            });
            out.push(Series::new(&full_name(&name, line), kind).with(dots));
            for (role, of) in STATED {
                let dots = stated_dots(figure, formula, &points, (evaluation, of));
                stated.push(Series::points(&full_name(&name, line)).role(role).with(dots));
            }
        }
    }
    out.append(&mut stated);
    out.retain(|series| !series.points.is_empty());
    out
}

/// How a stated number is found: as a range, whose ends may be the same.
type Stated = fn(&PaperValue) -> Option<(f64, f64)>;

/// The origins of stated numbers.
const STATED: [(Role, Stated); 2] = [
    (Role::Paper, |paper| paper.value),
    (Role::Reference, |paper| paper.reference.map(|number| (number, number))),
];

/// The numbers that the paper's text states of points of a line, or an independent program has, in the line's unit. A
/// change in percent is drawn from our number at the point that it is a change from.
fn stated_dots(
    figure: &Figure,
    formula: &Expression,
    points: &[Run<'_, '_>],
    (evaluation, stated): (&Evaluation<'_>, Stated),
) -> Vec<Dot> {
    let dots = evaluation.scenario.papers.iter().filter_map(|paper| {
        let (low, high) = stated(paper)?;
        let found = points.iter().find(|(point, _)| point.meets(&paper.only));
        let (point, runs) = found.filter(|_| evaluation.find(&paper.only).is_some())?;
        let factor_at = |point: &Point| factor(&paper.metric, formula, point);
        let factor = factor_at(point)?;
        let x = Evaluation::summary(point, runs, &figure.x)?.mean;
        let base = match paper.against.is_empty() {
            true => None,
            false => {
                let (other, other_runs) = evaluation.find(&point.elsewhere(&paper.against))?;
                factor_at(other).filter(|other| (other / factor - 1.0).abs() < 1e-9)?;
                Some(Evaluation::summary(other, other_runs, formula)?.mean)
            }
        };
        let y = |number: f64| match base {
            None => number / factor,
            Some(base) => base * (1.0 + number / 100.0),
        };
        let ends = (low < high).then_some((y(low), y(high)));
        let y = y((low + high) / 2.0);
        Some(Dot { x, y, low: ends.map(|(low, _)| low), high: ends.map(|(_, high)| high) })
    });
    dots.collect()
}

/// Returns the number by which one formula is a multiple of another at a point, if it is one whatever the runs' numbers
/// are: the units in which a text and a figure state a quantity may differ, and a figure may show a share of it.
fn factor(one: &Expression, other: &Expression, point: &Point) -> Option<f64> {
    let ratio = |trial: u64| {
        // Any numbers will do, as long as they have nothing to do with each other.
        let value = |name: &str| {
            let mixed = name.bytes().fold(trial, |sum, byte| {
                (sum ^ u64::from(byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            });
            let of_scenario = point.value(name).and_then(numeric);
            of_scenario.or(Some(1.0 + (mixed >> 40) as f64 / 1e7))
        };
        let (one, other) = (one.value(&value)?, other.value(&value)?);
        (other != 0.0 && one.is_finite()).then(|| one / other)
    };
    let ratios: Vec<f64> = (1..=4).map(ratio).collect::<Option<_>>()?;
    let is_same = ratios.iter().all(|ratio| (ratio / ratios[0] - 1.0).abs() < 1e-9);
    is_same.then_some(ratios[0]).filter(|factor| *factor != 0.0)
}

fn dot(x: f64, y: &Summary, bars: Bars) -> Dot {
    let ends = match bars {
        Bars::None => None,
        Bars::Range => Some((y.min, y.max)),
        Bars::Confidence => y.interval(),
    };
    Dot { x, y: y.mean, low: ends.map(|(low, _)| low), high: ends.map(|(_, high)| high) }
}

/// Returns the lines of a time line or a distribution. In the records, a line is named by its
/// formula: the name of a series, perhaps with a factor.
fn timelines(figure: &Figure, evaluation: &Evaluation<'_>) -> Vec<Series> {
    let mut out = Vec::new();
    for (name, points) in by_series(figure, evaluation) {
        for (line, formula) in &figure.y {
            let Some((point, run)) =
                points.iter().find_map(|(point, runs)| Some((*point, *runs.first()?)))
            else {
                continue;
            };
            let Some(source) = formula.names().first().and_then(|name| run.series.get(*name))
            else {
                continue;
            };
            let unit = Evaluation::summary(point, &[], &figure.x).map_or(1.0, |unit| unit.mean);
            let dots =
                source.iter().filter_map(|&(x, y)| Some((x / unit, formula.value(&|_| Some(y))?)));
            out.push(Series::line(&full_name(&name, line)).with(dots));
        }
    }
    out
}

fn distributions(figure: &Figure, evaluation: &Evaluation<'_>) -> Vec<Series> {
    let mut out = Vec::new();
    for (name, points) in by_series(figure, evaluation) {
        for (line, formula) in &figure.y {
            let Some(source) = formula.names().first().copied() else { continue };
            let runs = points.iter().flat_map(|(_, runs)| runs.iter());
            let counts = together(runs.filter_map(|run| run.series.get(source)));
            let total: f64 = counts.iter().map(|(_, count)| count).sum();
            let unit = points.first().and_then(|(point, runs)| {
                Evaluation::summary(point, runs, &figure.x).map(|unit| unit.mean)
            });
            let unit = unit.unwrap_or(1.0);
            let mut sum = 0.0;
            let dots = counts.iter().map(|(x, count)| {
                sum += count;
                (x / unit, sum / total)
            });
            let series = Series::steps(&full_name(&name, line)).with(dots.collect::<Vec<_>>());
            if total > 0.0 {
                out.push(series);
            }
        }
    }
    out
}

/// Histograms added up, in the order of their values.
fn together<'r>(histograms: impl Iterator<Item = &'r Vec<(f64, f64)>>) -> Vec<(f64, f64)> {
    // Positive numbers have the order of their bits.
    let mut sums: BTreeMap<u64, f64> = BTreeMap::new();
    for &(x, count) in histograms.flatten() {
        *sums.entry(x.to_bits()).or_default() += count;
    }
    sums.into_iter().map(|(bits, count)| (f64::from_bits(bits), count)).collect()
}

#[cfg(test)]
mod tests {
    use crate::results::fixture::{CODE, scenario, store};
    use crate::results::store::Store;
    use crate::scenario::Options;

    use super::*;

    /// A figure of the scenario, with the existing runs.
    fn drawn(id: &str) -> Chart {
        let scenario = scenario();
        let store = store(&scenario);
        let evaluation = Evaluation::new(&scenario, &store, CODE);
        let figure = scenario.figures.iter().find(|figure| figure.id == id).unwrap();
        chart(figure, &evaluation)
    }

    fn points(series: &Series) -> Vec<(f64, f64)> {
        let in_parts = |x: f64| (x * 1e6).round() / 1e6;
        series.points.iter().map(|dot| (in_parts(dot.x), in_parts(dot.y))).collect()
    }

    #[test]
    fn lines_have_means_with_bars_where_runs_are() {
        let chart = drawn("lines");
        let names: Vec<&str> = chart.series.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names, ["none", "packet", "none", "packet", "packet"], "the last are stated");
        // A change of -70 % from our 1.5, and of -80 % by an independent program.
        assert_eq!(
            (chart.series[3].role, points(&chart.series[3])),
            (Role::Paper, vec![(0.7, 0.45)])
        );
        assert_eq!(
            (chart.series[4].role, points(&chart.series[4])),
            (Role::Reference, vec![(0.7, 0.3)])
        );
        for words in
            ["diamonds: numbers in the paper's text", "Crosses: an indep", "Changes in perc"]
        {
            assert!(chart.caption.contains(words), "{}", chart.caption);
        }
        assert_eq!(
            (chart.series[2].role, points(&chart.series[2])),
            (Role::Paper, vec![(0.7, 1.6)])
        );
        assert_eq!(points(&chart.series[0]), [(0.7, 1.5), (0.95, 1.5)]);
        assert_eq!(points(&chart.series[1]), [(0.7, 0.45)], "the other has not run");
        let dot = chart.series[1].points[0];
        assert_eq!((dot.low, dot.high), (Some(0.4), Some(0.5)));
        assert!(chart.caption.contains("6 of 8 runs are done."), "{}", chart.caption);
    }

    #[test]
    fn too_many_names_for_the_marks_are_noted() {
        let scenario = scenario();
        let store = store(&scenario);
        let evaluation = Evaluation::new(&scenario, &store, CODE);
        let noted = |count: usize| {
            let series: Vec<Series> = (0..count).map(|n| Series::line(&n.to_string())).collect();
            of_marks(&scenario.figures[0], &evaluation, &series)
        };
        assert_eq!(noted(chart::NAMES_MAX), "");
        assert!(noted(chart::NAMES_MAX + 1).contains("With 17 names there are not enough"));
    }

    #[test]
    fn time_lines_are_those_of_the_first_run() {
        let chart = drawn("times");
        let [series] = &chart.series[..] else { panic!("{:?}", chart.series) };
        assert_eq!(series.name, "delay [ms]");
        assert_eq!(points(series), [(0.5, 1.0), (1.5, 2.0)]);
    }

    #[test]
    fn distributions_are_those_of_all_runs_together() {
        let chart = drawn("shares");
        let [series] = &chart.series[..] else { panic!("{:?}", chart.series) };
        // 5 in time, 2 late by 1 us, 1 by 2 us; x is in microseconds.
        assert_eq!(points(series), [(0.0, 0.625), (1.0, 0.875), (2.0, 1.0)]);
    }

    #[test]
    fn series_are_named_by_what_distinguishes_them() {
        let scenario = scenario();
        let named = |keys: &[&str]| {
            let series = keys.iter().map(|&key| key.to_owned()).collect();
            series_name(&Figure { series, ..scenario.figures[0].clone() }, &scenario.points[0])
        };
        assert_eq!(named(&["scheme.preset", "compress.ratio"]), "none, ratio = 0.7");
        assert_eq!(named(&[]), "");
        assert_eq!(full_name("", "delay"), "delay");
        assert_eq!(full_name("none", "delay"), "none: delay");
    }

    #[test]
    fn no_figure_has_a_colour_or_a_mark_twice() {
        let nothing = Store::default();
        let mut most = 0;
        for entry in crate::library::all() {
            let scenario = entry.read(&Options::default()).unwrap();
            let evaluation = Evaluation::new(&scenario, &nothing, CODE);
            for figure in &scenario.figures {
                let mut names: Vec<String> = by_series(figure, &evaluation)
                    .iter()
                    .flat_map(|(name, _)| {
                        figure.y.iter().map(move |(line, _)| full_name(name, line))
                    })
                    .collect();
                let all = names.len();
                names.sort();
                names.dedup();
                assert_eq!(names.len(), all, "{} {}: {names:?}", scenario.id, figure.id);
                assert!(all <= chart::NAMES_MAX, "{} {}: {all} names", scenario.id, figure.id);
                most = most.max(all);
            }
        }
        assert!(most > 5, "the figures have at most {most} names");
    }

    #[test]
    fn formulas_that_differ_by_a_factor_are_found() {
        let scenario = scenario();
        let factor = |one: &str, other: &str| {
            factor(&one.parse().unwrap(), &other.parse().unwrap(), &scenario.points[0])
                .map(|f| (f * 1e6).round() / 1e6)
        };
        assert_eq!(factor("100 * a.discard", "a.discard"), Some(100.0));
        assert_eq!(factor("a.x / a.y", "a.x / a.y / 4"), Some(4.0));
        assert_eq!(factor("a.x", "a.x / (topology.relays + 1)"), Some(3.0));
        assert_eq!(factor("a.x + 1", "a.x"), None);
        assert_eq!(factor("a.x", "b.x"), None);
    }
}
