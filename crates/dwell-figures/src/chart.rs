//! Charts of what runs measured, beside what papers say: as SVG for pages and slides, and as
//! plain text for terminals.
//!
//! A chart hides nothing. What can't be drawn (not a number, outside of the axes) is counted
//! below it, and what lies at or below the floor of a logarithmic axis is drawn there with a
//! mark of its own. The same chart gives the same bytes on every machine.
//!
//! ```
//! use dwell_figures::chart::{Axis, Chart, Role, Series};
//!
//! let chart = Chart::new("Loss", Axis::linear("load"), Axis::log("packet loss").floor(1e-5))
//!     .series(Series::line("packet").point(0.5, 0.0).point_between(1.0, 2e-3, 1e-3, 4e-3))
//!     .series(Series::points("packet").role(Role::Paper).point(1.0, 2.2e-3));
//! assert!(chart.to_svg().starts_with("<svg "));
//! println!("{}", chart.to_text(80));
//! ```

use dwell_report::table::Table;

mod data;
mod plan;
mod ruler;
mod svg;
#[cfg(test)]
mod tests;
mod text;
mod ticks;

pub(crate) use svg::STYLE as SVG_STYLE;

/// A chart: two axes, and series of points.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// What it shows, in a line.
    pub title: String,
    /// What the reader must know to read it: what error bars are, what was left out.
    pub caption: String,
    /// The axis to the right.
    pub x: Axis,
    /// The axis upwards.
    pub y: Axis,
    /// What is drawn; later ones on top.
    pub series: Vec<Series>,
}

/// What an axis measures, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What is measured.
    pub label: String,
    /// The unit of the points: `s`, `bit/s`, `%`; may be empty. Times, bytes and rates are
    /// labelled with SI prefixes.
    pub unit: String,
    /// How values are spread.
    pub scale: Scale,
    /// From where to where; without it, all points fit.
    pub range: Option<(f64, f64)>,
    /// On a logarithmic axis, the least value that is distinguished: what is at or below it,
    /// zero above all, is drawn at the end of the axis. Without it, one is found if needed.
    pub floor: Option<f64>,
    /// If there are any, values are their indexes: 0 is the first.
    pub categories: Vec<String>,
}

/// How the values of an axis are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal distances are equal differences.
    Linear,
    /// Equal distances are equal ratios.
    Log,
}

/// Points that belong together.
///
/// Series with the same name have the same colour: so a paper's points and ours find each
/// other.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// What the legend calls it.
    pub name: String,
    /// How it is drawn.
    pub kind: Kind,
    /// Whose numbers these are.
    pub role: Role,
    /// The points, in the order in which they are joined.
    pub points: Vec<Point>,
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Marks, joined by a line. Only the line, if there are many.
    Line,
    /// Marks.
    Points,
    /// A line that keeps its height until the next point: distributions, queue lengths.
    Steps,
    /// Bars from zero, or from the end of a logarithmic axis. Where another series of bars
    /// has the same name, a paper's are marks on them.
    Bars,
}

/// Whose numbers a series is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Measured or simulated by us: filled marks.
    Ours,
    /// Read from the paper: hollow diamonds.
    Paper,
    /// What is the best possible: a dotted line.
    Bound,
    /// From somebody else's program, to compare with: crosses.
    Reference,
}

/// A value at a place, and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Where, in the unit of the x axis.
    pub x: f64,
    /// How much, in the unit of the y axis.
    pub y: f64,
    /// The lower end of its error bar.
    pub low: Option<f64>,
    /// The upper end of its error bar.
    pub high: Option<f64>,
}

impl Chart {
    /// A chart without series.
    pub fn new(title: &str, x: Axis, y: Axis) -> Self {
        Self { title: title.to_owned(), caption: String::new(), x, y, series: Vec::new() }
    }

    /// With a line or two below the title.
    #[must_use]
    pub fn caption(mut self, caption: &str) -> Self {
        caption.clone_into(&mut self.caption);
        self
    }

    /// With another series.
    #[must_use]
    pub fn series(mut self, series: Series) -> Self {
        self.series.push(series);
        self
    }

    /// As a file: an SVG image that needs nothing else, for light and dark backgrounds.
    pub fn to_svg(&self) -> String {
        svg::draw(self, true)
    }

    /// As a part of a page that has [`SVG_STYLE`] once for all charts.
    pub(crate) fn to_inline_svg(&self) -> String {
        svg::draw(self, false)
    }

    /// For a terminal of `width` columns: the plot, the legend and the numbers. Ends with a
    /// line end.
    pub fn to_text(&self, width: usize) -> String {
        text::draw(self, width)
    }

    /// The numbers: a row for each x, a column for each series.
    pub fn data_table(&self) -> Table {
        data::table(self, usize::MAX)
    }

    /// The first rows of the numbers, and how many more there are.
    pub(crate) fn data_table_up_to(&self, rows_max: usize) -> (Table, usize) {
        (data::table(self, rows_max), data::row_count(self).saturating_sub(rows_max))
    }
}

impl Axis {
    /// An axis of equal differences.
    pub fn linear(label: &str) -> Self {
        Self {
            label: label.to_owned(),
            unit: String::new(),
            scale: Scale::Linear,
            range: None,
            floor: None,
            categories: Vec::new(),
        }
    }

    /// An axis of equal ratios.
    pub fn log(label: &str) -> Self {
        Self { scale: Scale::Log, ..Self::linear(label) }
    }

    /// An axis of things with names; points have their indexes as values.
    pub fn of<S: Into<String>>(label: &str, categories: impl IntoIterator<Item = S>) -> Self {
        let categories = categories.into_iter().map(Into::into).collect();
        Self { categories, ..Self::linear(label) }
    }

    /// With the unit of its values: `s`, `bit/s`, `%`.
    #[must_use]
    pub fn unit(mut self, unit: &str) -> Self {
        unit.clone_into(&mut self.unit);
        self
    }

    /// From `low` to `high`, whatever the points are.
    #[must_use]
    pub fn range(mut self, low: f64, high: f64) -> Self {
        self.range = Some((low, high));
        self
    }

    /// With the least value that is distinguished, for a logarithmic axis.
    #[must_use]
    pub fn floor(mut self, floor: f64) -> Self {
        self.floor = Some(floor);
        self
    }
}

impl Series {
    /// An empty series of our own numbers.
    pub fn new(name: &str, kind: Kind) -> Self {
        Self { name: name.to_owned(), kind, role: Role::Ours, points: Vec::new() }
    }

    /// An empty [`Kind::Line`].
    pub fn line(name: &str) -> Self {
        Self::new(name, Kind::Line)
    }

    /// An empty series of [`Kind::Points`].
    pub fn points(name: &str) -> Self {
        Self::new(name, Kind::Points)
    }

    /// An empty series of [`Kind::Steps`].
    pub fn steps(name: &str) -> Self {
        Self::new(name, Kind::Steps)
    }

    /// An empty series of [`Kind::Bars`].
    pub fn bars(name: &str) -> Self {
        Self::new(name, Kind::Bars)
    }

    /// With somebody else's numbers.
    #[must_use]
    pub fn role(mut self, role: Role) -> Self {
        self.role = role;
        self
    }

    /// With another point.
    #[must_use]
    pub fn point(self, x: f64, y: f64) -> Self {
        self.with([Point { x, y, low: None, high: None }])
    }

    /// With another point, and its error bar.
    #[must_use]
    pub fn point_between(self, x: f64, y: f64, low: f64, high: f64) -> Self {
        self.with([Point { x, y, low: Some(low), high: Some(high) }])
    }

    /// With more points: pairs of x and y will do.
    #[must_use]
    pub fn with<P: Into<Point>>(mut self, points: impl IntoIterator<Item = P>) -> Self {
        self.points.extend(points.into_iter().map(Into::into));
        self
    }

    /// What the legend says: the name, and whose it is.
    pub(crate) fn legend(&self) -> String {
        let whose = match self.role {
            Role::Ours => return self.name.clone(),
            Role::Paper => "paper",
            Role::Bound => "bound",
            Role::Reference => "reference",
        };
        match self.name.to_lowercase().contains(whose) {
            true => self.name.clone(),
            false if self.name.is_empty() => whose.to_owned(),
            false => format!("{} ({whose})", self.name),
        }
    }
}

impl From<(f64, f64)> for Point {
    fn from((x, y): (f64, f64)) -> Self {
        Self { x, y, low: None, high: None }
    }
}
