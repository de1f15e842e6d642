//! Tables of runs, whose columns are data: a name, a figure of a run, how the figures of several
//! runs become one, and how that is written.

use dwell_report::human::{self, NOTHING};
use dwell_report::{Column, Table};

use super::statistics::Summary;

/// The measurements that a row is made of.
#[derive(Clone, Debug)]
pub(super) struct Row<'a, M> {
    pub(super) name: String,
    pub(super) runs: Vec<&'a M>,
}

impl<M> Row<'_, M> {
    /// Returns the summary of a figure of the runs that have it.
    pub(super) fn summary(&self, figure: impl Fn(&M) -> Option<f64>) -> Option<Summary> {
        Summary::of(self.runs.iter().filter_map(|run| figure(run)))
    }

    /// Returns its median.
    pub(super) fn median(&self, figure: impl Fn(&M) -> Option<f64>) -> Option<f64> {
        self.summary(figure).map(|summary| summary.median)
    }
}

/// The median of a figure in the row of this name, to compare others with.
pub(super) fn base<M>(
    rows: &[Row<'_, M>],
    name: &str,
    figure: impl Fn(&M) -> Option<f64>,
) -> Option<f64> {
    rows.iter().find(|row| row.name == name)?.median(figure)
}

/// How the figures of several runs become one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Of {
    Median,
    /// The least and the largest.
    Span,
    /// What half of the runs lie between.
    Quartiles,
    Most,
    Sum,
    /// The median as a share of this one.
    Against(Option<f64>),
    /// The difference of the median from this one.
    Beyond(Option<f64>),
}

/// How a figure is written.
pub(super) type Show = fn(f64) -> String;

/// What a cell says of its row.
type Cell<'a, M> = Box<dyn Fn(&Row<'_, M>) -> String + 'a>;

/// A column and what its cells show.
pub(super) struct Figure<'a, M> {
    column: Column,
    cell: Cell<'a, M>,
}

impl<'a, M: 'a> Figure<'a, M> {
    /// Makes a column of a figure.
    pub(super) fn new(
        name: &str,
        of: Of,
        show: Show,
        figure: impl Fn(&M) -> Option<f64> + 'a,
    ) -> Self {
        Self::cell(name, move |row| {
            row.summary(&figure).and_then(|summary| of.text(&summary, show)).unwrap_or_else(nothing)
        })
    }

    /// Makes a column of figures of both ends: `1.18, 0.85`.
    pub(super) fn of_both(
        name: &str,
        show: Show,
        figure: impl Fn(&M, usize) -> Option<f64> + 'a,
    ) -> Self {
        Self::cell(name, move |row| {
            [0, 1].map(|end| shown(row.median(|run| figure(run, end)), show)).join(", ")
        })
    }

    /// Makes a column that is no figure of single runs.
    pub(super) fn cell(name: &str, cell: impl Fn(&Row<'_, M>) -> String + 'a) -> Self {
        Self { column: Column::right(name), cell: Box::new(cell) }
    }

    /// Adds the unit to the name.
    pub(super) fn unit(mut self, unit: &str) -> Self {
        self.column = self.column.unit(unit);
        self
    }
}

impl Of {
    fn text(self, summary: &Summary, show: Show) -> Option<String> {
        let Summary { runs, min, low, median, high, max, mean } = *summary;
        Some(match self {
            Self::Median => show(median),
            Self::Span => format!("{}..{}", show(min), show(max)),
            Self::Quartiles => format!("{}..{}", show(low), show(high)),
            Self::Most => show(max),
            Self::Sum => show(mean * runs as f64),
            Self::Against(base) => show(median / base?),
            Self::Beyond(base) => show(median - base?),
        })
    }
}

/// Lays out the rows, the names of which are in the first column.
pub(super) fn table<'r, M: 'r>(
    names: &str,
    rows: impl IntoIterator<Item = Row<'r, M>>,
    figures: Vec<Figure<'_, M>>,
) -> Table {
    let (columns, cells): (Vec<_>, Vec<_>) =
        figures.into_iter().map(|figure| (figure.column, figure.cell)).unzip();
    let mut table = Table::new([Column::left(names)].into_iter().chain(columns));
    for row in rows {
        let cells = cells.iter().map(|cell| cell(&row));
        table.row([row.name.clone()].into_iter().chain(cells));
    }
    table
}

/// Returns what stands where there is no figure.
pub(super) fn nothing() -> String {
    NOTHING.to_owned()
}

/// Returns a figure as it is written, if there is one.
pub(super) fn shown(value: Option<f64>, show: Show) -> String {
    value.map_or_else(nothing, show)
}

/// Three digits, or all of an integer's.
pub(super) fn figure(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// `97.3 %`
pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A number without digits behind the point.
pub(super) fn whole(value: f64) -> String {
    format!("{value:.0}")
}

/// Nanoseconds, in the unit that suits them.
pub(super) fn time(ns: f64) -> String {
    human::duration(ns as u64)
}

/// Nanoseconds, in milliseconds.
pub(super) fn ms(ns: f64) -> String {
    figure(ns / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_summaries_of_their_rows() {
        let runs = [1.0, 2.0, 3.0, 10.0];
        let rows = [
            Row { name: "a".to_owned(), runs: runs.iter().collect() },
            Row { name: "b".to_owned(), runs: vec![] },
        ];
        let value = |value: &f64| Some(*value);
        let all = [
            (Of::Median, "2.50"),
            (Of::Span, "1.00..10.0"),
            (Of::Quartiles, "1.75..4.75"),
            (Of::Most, "10.0"),
            (Of::Sum, "16.0"),
            (Of::Against(Some(5.0)), "0.50"),
            (Of::Beyond(Some(0.5)), "2.00"),
            (Of::Against(None), "-"),
        ];
        let columns = all.iter().map(|&(of, _)| Figure::new("x", of, figure, value)).collect();
        let table = table("name", rows.clone(), columns);
        let lines = table.lines();
        let expected: Vec<&str> = ["a"].into_iter().chain(all.map(|(_, cell)| cell)).collect();
        assert_eq!(lines[1], expected);
        assert!(lines[2][1..].iter().all(|cell| *cell == NOTHING));
        assert_eq!(base(&rows, "a", value), Some(2.5));
        assert_eq!(base(&rows, "c", value), None);
    }

    #[test]
    fn figures_have_three_digits() {
        let shown = [0.1234, 9.876, 98.76, 987.6, 12_345.6].map(figure);
        assert_eq!(shown, ["0.12", "9.88", "98.8", "988", "12346"]);
        assert_eq!(percent(0.9731), "97.3 %");
        assert_eq!(super::shown(None, percent), "-");
    }
}
