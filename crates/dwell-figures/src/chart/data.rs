//! The numbers of a chart.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::chart::{Axis, Chart, Point};
use dwell_report::human;
use dwell_report::table::{Column, Table};

/// A row: an x, and the number of the point among those with this x.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key(Sorted, usize);

/// A number with an order.
struct Sorted(f64);

/// Returns a table with a row for each x, in order, and a column for each series; at most
/// `rows_max` rows.
pub(super) fn table(chart: &Chart, rows_max: usize) -> Table {
    let columns = chart.series.iter().map(|series| column(&series.legend(), &chart.y, true));
    let first = column(&chart.x.label, &chart.x, chart.x.categories.is_empty());
    let mut table = Table::new(std::iter::once(first).chain(columns));
    for (Key(x, _), cells) in rows(chart).into_iter().take(rows_max) {
        let x = Axis { unit: String::new(), ..chart.x.clone() }.show(x.0);
        let cells = cells.into_iter().map(|point| point.map_or_else(String::new, cell));
        table.row(std::iter::once(x).chain(cells));
    }
    table
}

/// Returns the number of rows of the whole table.
pub(super) fn row_count(chart: &Chart) -> usize {
    rows(chart).len()
}

fn rows(chart: &Chart) -> BTreeMap<Key, Vec<Option<&Point>>> {
    let mut rows: BTreeMap<Key, Vec<Option<&Point>>> = BTreeMap::new();
    for (at, series) in chart.series.iter().enumerate() {
        let mut seen: BTreeMap<Sorted, usize> = BTreeMap::new();
        for point in &series.points {
            let nth = seen.entry(Sorted(point.x)).or_default();
            let row = rows.entry(Key(Sorted(point.x), *nth));
            row.or_insert_with(|| vec![None; chart.series.len()])[at] = Some(point);
            *nth += 1;
        }
    }
    rows
}

fn column(name: &str, axis: &Axis, right: bool) -> Column {
    let column = if right { Column::right(name) } else { Column::left(name) };
    if axis.unit.is_empty() { column } else { column.unit(&axis.unit) }
}

/// `0.5 (0.4 to 0.6)`
fn cell(point: &Point) -> String {
    let y = human::number(point.y);
    match (point.low, point.high) {
        (None, None) => y,
        (low, high) => format!("{y} ({})", human::between(low, high)),
    }
}

impl PartialEq for Sorted {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Sorted {}

impl PartialOrd for Sorted {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Sorted {
    fn cmp(&self, other: &Self) -> Ordering {
        // Both zeros are one place.
        (self.0 + 0.0).total_cmp(&(other.0 + 0.0))
    }
}
