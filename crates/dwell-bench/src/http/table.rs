//! The tables, a row for each cell, and the verdict.

use dwell_base::ByteSize;
use dwell_report::{Column, Table};

use super::super::carriers::Carrier;
use super::super::record::Run;
use super::super::runner;
use super::super::sheet::Row;
use super::{Asked, CARRIERS, Http, Place};

/// What is to be kept, from this length of answers on: time and bytes of the better of both others, and
/// its 99th percentile.
const GOAL_FROM_BYTES: usize = 10_000;
const GOAL: f64 = 1.05;
const GOAL_P99: f64 = 1.2;

type Figure = fn(&Asked) -> f64;

const P50: Figure = |asked| asked.answer_p50_ns as f64 / 1e6;
const P99: Figure = |asked| asked.answer_p99_ns as f64 / 1e6;
const BYTES: Figure = Asked::link_share;

pub(super) fn report(runs: &[Run<Http>]) -> String {
    let places = runner::places(runs);
    let mut rates = Vec::new();
    for place in &places {
        if !rates.contains(&place.rate) {
            rates.push(place.rate);
        }
    }
    let mut text = String::new();
    for rate in rates {
        let here = places.iter().filter(|place| place.rate == rate);
        let mut table = Table::new(columns());
        here.for_each(|place| table.row(cells(place, &runner::rows(runs, place))));
        text.push_str(&format!("\n{rate}\n\n{}", table.to_text()));
    }
    text + &verdict(runs, &places)
}

fn columns() -> Vec<Column> {
    let mut columns = vec![Column::left("answers"), Column::left("connection")];
    columns.push(Column::right("at once"));
    for (name, unit) in [("median", "ms"), ("p99", "ms"), ("bytes", "")] {
        for who in ["plain", "proxy", "ssh"] {
            let column = Column::right(&format!("{name} {who}"));
            columns.push(if unit.is_empty() { column } else { column.unit(unit) });
        }
        columns.push(Column::right("of best"));
    }
    columns
}

fn cells(place: &Place, rows: &[Row<'_, Asked>]) -> Vec<String> {
    let cell = place.cell;
    let mut cells = vec![
        format!("{} {}", ByteSize(cell.bytes as u64), cell.kind.name()),
        if cell.is_new { "new" } else { "kept" }.to_owned(),
        cell.at_once.to_string(),
    ];
    for (figure, digits) in [(P50, 1), (P99, 1), (BYTES, 2)] {
        for carrier in CARRIERS {
            let text = |value: f64| format!("{value:.digits$}");
            cells.push(of(rows, carrier, figure).map_or_else(String::new, text));
        }
        let text = |share: f64| format!("{share:.2}");
        cells.push(of_best(rows, figure).map_or_else(String::new, text));
    }
    cells
}

fn of(rows: &[Row<'_, Asked>], carrier: Carrier, figure: Figure) -> Option<f64> {
    let name = carrier.to_string();
    rows.iter().find(|row| row.name == name)?.median(|asked| Some(figure(asked)))
}

/// The proxies' figure as a share of the better of both others.
fn of_best(rows: &[Row<'_, Asked>], figure: Figure) -> Option<f64> {
    let [plain, proxy, ssh] = CARRIERS.map(|carrier| of(rows, carrier, figure));
    Some(proxy? / plain?.min(ssh?))
}

fn verdict(runs: &[Run<Http>], places: &[&Place]) -> String {
    let counts = |place: &&&Place| place.cell.bytes >= GOAL_FROM_BYTES;
    let counted: Vec<_> =
        places.iter().filter(counts).map(|place| runner::rows(runs, place)).collect();
    if counted.is_empty() {
        return String::new();
    }
    let mut text = format!("\nOf {} cells from {} on:\n", counted.len(), ByteSize(10_000));
    for (name, figure, goal) in
        [("median", P50, GOAL), ("p99", P99, GOAL_P99), ("bytes", BYTES, GOAL)]
    {
        let shares: Vec<f64> = counted.iter().filter_map(|rows| of_best(rows, figure)).collect();
        let kept = shares.iter().filter(|&&share| share <= goal).count();
        let worst = shares.iter().copied().fold(0.0, f64::max);
        text.push_str(&format!(
            "  {name}: at most {goal} of the better of plain and ssh in {kept}, {worst:.2} at worst\n"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::content::Kind;
    use super::super::{Cell, Conditions};
    use super::*;
    use crate::record::tests::record;

    #[test]
    fn the_proxies_are_compared_with_the_better_of_both() {
        let cell = Cell { kind: Kind::Json, bytes: 100_000, is_new: false, at_once: 8 };
        let place = Place { rate: "5mbit".parse().unwrap(), cell };
        let conditions = Conditions { delay_ns: 0, seconds: 1.0, proxy: Vec::new() };
        let run = |who, ms: u64, link_bytes| {
            let asked = Asked {
                answers: 1,
                answer_p50_ns: ms * 1_000_000,
                answer_p99_ns: 2 * ms * 1_000_000,
                body_bytes: 100_000,
                link_bytes,
            };
            record::<Http>(conditions.clone(), place, (who, 0), asked)
        };
        let runs = [
            run("plain", 160, 104_000),
            run("dwell proxy", 44, 21_000),
            run("ssh -C -L", 40, 20_000),
        ];
        let text = report(&runs);
        let row = text.lines().find(|line| line.starts_with("100.0 kB")).unwrap_or_default();
        let row: Vec<_> = row.split_whitespace().collect();
        let expected =
            "100.0 kB json kept 8 160.0 44.0 40.0 1.10 320.0 88.0 80.0 1.10 1.04 0.21 0.20 1.05";
        assert_eq!(row.join(" "), expected, "{text}");
        assert!(
            text.contains("median: at most 1.05 of the better of plain and ssh in 0"),
            "{text}"
        );
        assert!(text.contains("bytes: at most 1.05 of the better of plain and ssh in 1"), "{text}");
    }
}
