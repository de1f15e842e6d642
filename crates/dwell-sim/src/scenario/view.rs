//! `[[figure]]` and `[[paper]]`: the shown results, and the values that they are compared with.

use super::error::Errors;
use super::expression::Expression;
use super::section::Section;
use super::tree::{Located, Table, Value};
use super::value;

/// The way in which replications become one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Over {
    /// Their mean.
    #[default]
    Mean,
    /// The least.
    Min,
    /// The largest.
    Max,
}

const OVERS: [(&str, Over); 3] = [("mean", Over::Mean), ("min", Over::Min), ("max", Over::Max)];

/// The form of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureKind {
    /// A line through the points.
    Line,
    /// Points only.
    Points,
    /// A quantity over simulated time, of the first replication.
    Timeline,
    /// A cumulative distribution, of all replications together.
    Cdf,
}

const KINDS: [(&str, FigureKind); 4] = [
    ("line", FigureKind::Line),
    ("points", FigureKind::Points),
    ("timeline", FigureKind::Timeline),
    ("cdf", FigureKind::Cdf),
];

/// The span of a point's bars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bars {
    /// There are none.
    None,
    /// The range from the least to the largest replication, as in Shimamura et al.
    Range,
    /// The 95 % confidence interval of the mean.
    Confidence,
}

const BARS: [(&str, Bars); 3] =
    [("none", Bars::None), ("range", Bars::Range), ("confidence", Bars::Confidence)];

/// A condition: swept keys and the values that they must have.
pub type Where = Vec<(String, Value)>;

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The text beside it.
    pub label: String,
    /// True if the axis is logarithmic.
    pub is_log: bool,
    /// The ends of the axis; those of the data if none.
    pub range: Option<(f64, f64)>,
}

/// A figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Its name within the scenario, for files: `a`.
    pub id: String,
    /// Its caption.
    pub title: String,
    /// Its form.
    pub kind: FigureKind,
    /// The values on the x axis: a formula over swept keys (and metrics). For time lines and
    /// distributions the divisor of times or values.
    pub x: Expression,
    /// The x axis.
    pub x_axis: Axis,
    /// The lines, each with its name (empty if there is one only). For time lines and distributions
    /// the name of a series instead of a metric.
    pub y: Vec<(String, Expression)>,
    /// The y axis.
    pub y_axis: Axis,
    /// Zero can't be drawn on a logarithmic axis; it is drawn here.
    pub floor: Option<f64>,
    /// The swept keys that distinguish the lines.
    pub series: Vec<String>,
    /// The span of the bars.
    pub bars: Bars,
    /// A condition; points that do not meet it are left out.
    pub only: Where,
}

/// A number that a paper states (or an independent reference has), and the formula of ours.
#[derive(Clone, Debug, PartialEq)]
pub struct PaperValue {
    /// Its place in the paper: `Section 5.2`, `Table 3`.
    pub place: String,
    /// The name of the quantity.
    pub quantity: String,
    /// The condition that selects the point of the sweep; must leave exactly one.
    pub only: Where,
    /// Our number.
    pub metric: Expression,
    /// The way in which replications become one number.
    pub over: Over,
    /// The keys of the point to compare with, if any: our number is the change in percent from the
    /// point that differs in these keys.
    pub against: Where,
    /// The paper's number as a range: both ends are the same unless it is one, as "less than 0.0008
    /// s" or a value read from a figure.
    pub value: Option<(f64, f64)>,
    /// Half a unit of the last digit that the paper writes; zero for a range.
    pub precision: f64,
    /// The paper's statement, if it is no number.
    pub says: String,
    /// The result of an independent reference.
    pub reference: Option<f64>,
    /// The unit, as it is written after numbers.
    pub unit: String,
    /// A comment on a difference.
    pub comment: String,
}

/// Takes `[[figure]]` out of the tree.
pub(super) fn take_figures(tree: &mut Table, errors: &mut Errors) -> Vec<Figure> {
    let figures: Vec<Figure> = take(tree, "figure", errors)
        .iter()
        .filter_map(|item| figure(&Section::from(item, "figure", errors)?, errors))
        .collect();
    for (index, figure) in figures.iter().enumerate() {
        if figures[..index].iter().any(|before| before.id == figure.id) {
            let message = format!("two figures have the id \"{}\": rename one", figure.id);
            errors.add(None, Some("[[figure]]".to_owned()), message);
        }
    }
    figures
}

/// Takes `[[paper]]` out of the tree. A table whose values are lists stands for one for each item.
pub(super) fn take_papers(tree: &mut Table, errors: &mut Errors) -> Vec<PaperValue> {
    let mut out = Vec::new();
    for item in take(tree, "paper", errors) {
        for row in spread(&item, errors) {
            if let Some(section) = Section::from(&row, "paper", errors) {
                out.extend(paper_value(&section, errors));
            }
        }
    }
    out
}

fn take(tree: &mut Table, name: &str, errors: &mut Errors) -> Vec<Located> {
    let Some(located) = tree.remove(name) else { return Vec::new() };
    match located.value {
        Value::List(items) => items,
        _ => {
            let message = format!("write two brackets: [[{name}]]");
            errors.add(located.origin.line(), None, message);
            Vec::new()
        }
    }
}

const FIGURE_KEYS: [&str; 16] = [
    "id", "title", "kind", "x", "x_label", "x_log", "x_range", "y", "y_label", "y_log", "y_range",
    "floor", "series", "bars", "where", "note",
];

fn figure(section: &Section<'_>, errors: &mut Errors) -> Option<Figure> {
    section.refuse_unknown(&FIGURE_KEYS, errors);
    let id = section.need("id", "\"a\"", errors, value::name);
    let title = section.need("title", "\"…\"", errors, value::text);
    let kind = section.or("kind", FigureKind::Line, errors, |v| value::one_of(v, &KINDS));
    let x = match kind {
        FigureKind::Line | FigureKind::Points => {
            section.need("x", "\"compress.ratio\"", errors, expression)
        }
        FigureKind::Timeline | FigureKind::Cdf if section.has("x") => {
            section.get("x", errors, expression)
        }
        FigureKind::Timeline | FigureKind::Cdf => "1".parse().ok(),
    };
    let y = lines(section, errors);
    let series = section.list("series", "[\"scheme.preset\"]", errors, value::text);
    let default = if kind == FigureKind::Line { Bars::Range } else { Bars::None };
    Some(Figure {
        id: id?,
        title: title?,
        kind,
        x: x?,
        x_axis: axis(section, "x", errors),
        y: y?,
        y_axis: axis(section, "y", errors),
        floor: section.get("floor", errors, |v| value::number(v, 0.0..=f64::MAX)),
        series: series.unwrap_or_default(),
        bars: section.or("bars", default, errors, |v| value::one_of(v, &BARS)),
        only: conditions(section, "where", errors),
    })
}

fn axis(section: &Section<'_>, name: &str, errors: &mut Errors) -> Axis {
    let range = section
        .list(&format!("{name}_range"), "[0, 1]", errors, |v| value::number(v, f64::MIN..=f64::MAX))
        .and_then(|range| match range[..] {
            [from, to] if from < to => Some((from, to)),
            _ => {
                let message = "must be two numbers, the lower one first, as in [0, 1]";
                section.fail(&format!("{name}_range"), message, errors);
                None
            }
        });
    let is_log = section.or(&format!("{name}_log"), false, errors, value::truth);
    if let (true, Some((from, _))) = (is_log, range)
        && from <= 0.0
    {
        let message = "a logarithmic axis can't begin at zero or below: begin for instance at 1e-5";
        section.fail(&format!("{name}_range"), message, errors);
    }
    Axis {
        label: section.or(&format!("{name}_label"), String::new(), errors, value::text),
        is_log,
        range,
    }
}

/// `y = "metric"`, or a table of names and metrics.
fn lines(section: &Section<'_>, errors: &mut Errors) -> Option<Vec<(String, Expression)>> {
    match section.raw("y").map(|located| &located.value) {
        Some(Value::Table(table)) => {
            let mut out = Vec::new();
            for (name, located) in table.iter() {
                match expression(&located.value) {
                    Ok(expression) => out.push((name.to_owned(), expression)),
                    Err(message) => section.fail("y", format!("{name}: {message}"), errors),
                }
            }
            (!out.is_empty()).then_some(out)
        }
        _ => {
            let one = section.need("y", "\"target.discard\"", errors, expression)?;
            Some(vec![(String::new(), one)])
        }
    }
}

fn expression(found: &Value) -> Result<Expression, String> {
    match found {
        Value::Text(text) => {
            text.parse().map_err(|error| format!("\"{text}\" is no formula: {error}"))
        }
        Value::Whole(number) => number.to_string().parse(),
        Value::Real(number) => format!("{number:?}").parse(),
        other => Err(format!("must be a formula in quotes, not {}", other.described())),
    }
}

fn conditions(section: &Section<'_>, key: &str, errors: &mut Errors) -> Where {
    match section.raw(key).map(|located| &located.value) {
        None => Vec::new(),
        Some(Value::Table(table)) => {
            table.flat().into_iter().map(|(path, located)| (path, located.value.clone())).collect()
        }
        Some(other) => {
            let message = format!(
                "must be keys and values as in {{ compress.ratio = 0.95 }}, not {}",
                other.described()
            );
            section.fail(key, message, errors);
            Vec::new()
        }
    }
}

const PAPER_KEYS: [&str; 12] = [
    "place",
    "quantity",
    "where",
    "metric",
    "over",
    "against",
    "value",
    "precision",
    "says",
    "reference",
    "unit",
    "comment",
];

fn paper_value(section: &Section<'_>, errors: &mut Errors) -> Option<PaperValue> {
    section.refuse_unknown(&PAPER_KEYS, errors);
    let place = section.need("place", "\"Section 5.2\"", errors, value::text);
    let quantity = section.need("quantity", "\"discard rate\"", errors, value::text);
    let metric = section.need("metric", "\"target.discard\"", errors, expression);
    // `nan` in a list: this one has none.
    let number = |v: &Value| match v {
        Value::Real(number) if number.is_nan() => Ok(None),
        other => value::number(other, f64::MIN..=f64::MAX).map(Some),
    };
    let stated = section
        .get("value", errors, |v| match v {
            Value::List(ends) => range(ends).map(Some),
            other => number(other).map(|number| number.map(|number| (number, number))),
        })
        .flatten();
    let reference = section.get("reference", errors, number).flatten();
    if !["value", "says", "reference"].iter().any(|key| section.has(key)) {
        let message = "there is nothing to compare with: add `value` (the paper's number), `says` \
                       (its words) or `reference`";
        section.fail_whole(message, errors);
    }
    Some(PaperValue {
        place: place?,
        quantity: quantity?,
        only: conditions(section, "where", errors),
        metric: metric?,
        over: section.or("over", Over::Mean, errors, |v| value::one_of(v, &OVERS)),
        against: conditions(section, "against", errors),
        value: stated,
        precision: precision(section, errors),
        says: section.or("says", String::new(), errors, value::text),
        reference,
        unit: section.or("unit", String::new(), errors, value::text),
        comment: section.or("comment", String::new(), errors, value::text),
    })
}

/// Half a unit of the last digit of the paper's number, as the scenario writes it. A whole number may be a
/// count, which is exact: if it is rounded, the scenario says so.
fn precision(section: &Section<'_>, errors: &mut Errors) -> f64 {
    let decimals = section.raw("value").and_then(|value| value.decimals);
    let written = decimals.map_or(0.0, |decimals| 0.5 / 10_f64.powi(i32::from(decimals)));
    section.or("precision", written, errors, |v| value::number(v, 0.0..=f64::MAX))
}

/// A range that a paper states.
fn range(ends: &[Located]) -> Result<(f64, f64), String> {
    let end = |end: &Located| value::number(&end.value, f64::MIN..=f64::MAX);
    match ends {
        [low, high] => match (end(low)?, end(high)?) {
            (low, high) if low < high => Ok((low, high)),
            _ => Err("the lower end of a range comes first, as in [0, 0.0008]".to_owned()),
        },
        _ => Err("a range has two ends, as in [0, 0.0008]".to_owned()),
    }
}

/// A table whose lists have n items becomes n tables, the lists' items in turn. A `value`
/// that is the only list is a range and stays; so do ranges among the items.
fn spread(item: &Located, errors: &mut Errors) -> Vec<Located> {
    let Value::Table(table) = &item.value else { return vec![item.clone()] };
    let lists: Vec<(String, Vec<Located>)> = table
        .flat()
        .into_iter()
        .filter_map(|(path, located)| match &located.value {
            Value::List(items) => Some((path, items.clone())),
            _ => None,
        })
        .collect();
    // Several numbers need other lists that distinguish them.
    if lists.iter().all(|(path, _)| path == "value") {
        return vec![item.clone()];
    }
    let Some((first, items)) = lists.first() else { return vec![item.clone()] };
    if let Some((other, others)) = lists.iter().find(|(_, others)| others.len() != items.len()) {
        let message = format!(
            "`{first}` has {} values and `{other}` has {}: the lists of one table go together",
            items.len(),
            others.len()
        );
        errors.add(item.origin.line(), Some("[[paper]]".to_owned()), message);
        return Vec::new();
    }
    (0..items.len())
        .map(|at| {
            let mut row = table.clone();
            for (path, items) in &lists {
                // The path exists, so that its tables do.
                let _ = row.set(path, items[at].clone());
            }
            Located { value: Value::Table(row), origin: item.origin, decimals: None }
        })
        .collect()
}
