//! Charts of measurements beside the numbers of papers: as SVG for pages and slides, and as plain
//! text for terminals.
//!
//! A chart hides nothing. Points that can't be drawn (not a number, outside of the axes) are
//! counted below it. Points at or below the floor of a logarithmic axis are drawn there with their
//! own mark. The same chart gives the same bytes on every machine.
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

/// The most names of series of a chart that have a colour and a mark of their own each.
pub const NAMES_MAX: usize = 16;

/// A chart: two axes, and series of points.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// The title, in a line.
    pub title: String,
    /// The facts that the reader needs: the meaning of error bars, what was left out.
    pub caption: String,
    /// The axis to the right.
    pub x: Axis,
    /// The axis upwards.
    pub y: Axis,
    /// The series; later ones are drawn on top.
    pub series: Vec<Series>,
}

/// The quantity and scale of an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The quantity.
    pub label: String,
    /// The unit of the points: `s`, `bit/s`, `%`; may be empty. Times, bytes and rates are
    /// labelled with SI prefixes.
    pub unit: String,
    /// The scale.
    pub scale: Scale,
    /// The lowest and highest value; without it, all points fit.
    pub range: Option<(f64, f64)>,
    /// On a logarithmic axis, the least value that is distinguished: values at or below it, above
    /// all zero, are drawn at the end of the axis. Without it, one is found if needed.
    pub floor: Option<f64>,
    /// The names of categories. If there are any, values are their indexes: 0 is the first.
    pub categories: Vec<String>,
}

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal distances are equal differences.
    Linear,
    /// Equal distances are equal ratios.
    Log,
}

/// Points that belong together.
///
/// Series with the same name have the same colour, so that a paper's points and ours can be
/// matched.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// The form in which it is drawn.
    pub kind: Kind,
    /// The origin of the numbers.
    pub role: Role,
    /// The points, in the order in which they are joined.
    pub points: Vec<Point>,
}

/// The form in which a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Marks, joined by a line. Only the line, if there are many.
    Line,
    /// Marks.
    Points,
    /// A line that stays at its height until the next point: distributions, queue lengths.
    Steps,
    /// Bars from zero, or from the end of a logarithmic axis. Where another series of bars
    /// has the same name, a paper's are marks on them.
    Bars,
}

/// The origin of a series' numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Measured or simulated by us: filled marks.
    Ours,
    /// Read from the paper: hollow diamonds.
    Paper,
    /// The best possible values: a dotted line.
    Bound,
    /// From an independent program, for comparison: crosses.
    Reference,
}

/// A value at a place, and its uncertainty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The place, in the unit of the x axis.
    pub x: f64,
    /// The value, in the unit of the y axis.
    pub y: f64,
    /// The lower end of its error bar.
    pub low: Option<f64>,
    /// The upper end of its error bar.
    pub high: Option<f64>,
}

impl Chart {
    /// Makes a chart without series.
    pub fn new(title: &str, x: Axis, y: Axis) -> Self {
        Self { title: title.to_owned(), caption: String::new(), x, y, series: Vec::new() }
    }

    /// Sets the caption, a line or two below the title.
    #[must_use]
    pub fn caption(mut self, caption: &str) -> Self {
        caption.clone_into(&mut self.caption);
        self
    }

    /// Adds a series.
    #[must_use]
    pub fn series(mut self, series: Series) -> Self {
        self.series.push(series);
        self
    }

    /// Returns the chart as an SVG file that needs nothing else, for light and dark backgrounds.
    pub fn to_svg(&self) -> String {
        svg::draw(self, svg::WIDTH, true)
    }

    /// Returns the chart as a part of a page that has [`SVG_STYLE`] once for all charts.
    pub(crate) fn to_inline_svg(&self) -> String {
        svg::draw(self, svg::WIDTH, false)
    }

    /// The same for screens of telephones.
    pub(crate) fn to_narrow_svg(&self) -> String {
        svg::draw(self, svg::WIDTH_NARROW, false)
    }

    /// Returns the chart for a terminal of `width` columns: the plot, the legend and the numbers.
    /// Ends with a line end.
    pub fn to_text(&self, width: usize) -> String {
        text::draw(self, width)
    }

    /// Returns the numbers: a row for each x, a column for each series.
    pub fn data_table(&self) -> Table {
        data::table(self, usize::MAX)
    }

    /// Returns the first rows of the numbers, and the number of rows left out.
    pub(crate) fn data_table_up_to(&self, rows_max: usize) -> (Table, usize) {
        (data::table(self, rows_max), data::row_count(self).saturating_sub(rows_max))
    }
}

impl Axis {
    /// Makes an axis of equal differences.
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

    /// Makes an axis of equal ratios.
    pub fn log(label: &str) -> Self {
        Self { scale: Scale::Log, ..Self::linear(label) }
    }

    /// Makes an axis of named categories; points have their indexes as values.
    pub fn of<S: Into<String>>(label: &str, categories: impl IntoIterator<Item = S>) -> Self {
        let categories = categories.into_iter().map(Into::into).collect();
        Self { categories, ..Self::linear(label) }
    }

    /// Sets the unit of the values: `s`, `bit/s`, `%`.
    #[must_use]
    pub fn unit(mut self, unit: &str) -> Self {
        unit.clone_into(&mut self.unit);
        self
    }

    /// Sets the range, whatever the points are.
    #[must_use]
    pub fn range(mut self, low: f64, high: f64) -> Self {
        self.range = Some((low, high));
        self
    }

    /// Sets the least value that is distinguished, for a logarithmic axis.
    #[must_use]
    pub fn floor(mut self, floor: f64) -> Self {
        self.floor = Some(floor);
        self
    }
}

impl Series {
    /// Makes an empty series of our own numbers.
    pub fn new(name: &str, kind: Kind) -> Self {
        Self { name: name.to_owned(), kind, role: Role::Ours, points: Vec::new() }
    }

    /// Makes an empty series of [`Kind::Line`].
    pub fn line(name: &str) -> Self {
        Self::new(name, Kind::Line)
    }

    /// Makes an empty series of [`Kind::Points`].
    pub fn points(name: &str) -> Self {
        Self::new(name, Kind::Points)
    }

    /// Makes an empty series of [`Kind::Steps`].
    pub fn steps(name: &str) -> Self {
        Self::new(name, Kind::Steps)
    }

    /// Makes an empty series of [`Kind::Bars`].
    pub fn bars(name: &str) -> Self {
        Self::new(name, Kind::Bars)
    }

    /// Sets the origin of the numbers.
    #[must_use]
    pub fn role(mut self, role: Role) -> Self {
        self.role = role;
        self
    }

    /// Adds a point.
    #[must_use]
    pub fn point(self, x: f64, y: f64) -> Self {
        self.with([Point { x, y, low: None, high: None }])
    }

    /// Adds a point and its error bar.
    #[must_use]
    pub fn point_between(self, x: f64, y: f64, low: f64, high: f64) -> Self {
        self.with([Point { x, y, low: Some(low), high: Some(high) }])
    }

    /// Adds points, for instance pairs of x and y.
    #[must_use]
    pub fn with<P: Into<Point>>(mut self, points: impl IntoIterator<Item = P>) -> Self {
        self.points.extend(points.into_iter().map(Into::into));
        self
    }

    /// Returns the text of the legend: the name, and the origin of the numbers.
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
