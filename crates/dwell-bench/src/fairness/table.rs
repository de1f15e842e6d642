//! The table, a row for each contender beside each greedy stream, and the verdict.

use dwell_report::{Column, Table};

use super::super::record::Run;
use super::super::runner;
use super::super::sheet::{Row, figure, nothing, shown};
use super::{Fairness, Greedy, Place, Waited};

/// What requests may take beside a greedy stream, as a multiple of what they take alone.
const GOAL: f64 = 2.0;

pub(super) fn report(runs: &[Run<Fairness>]) -> String {
    let mut table = Table::new(columns());
    let mut verdict = String::new();
    for place in runner::places(runs) {
        for row in runner::rows(runs, place) {
            let times = times_alone(runs, place, &row);
            table.row(cells(place, &row, times));
            if let Some(times) = times.filter(|_| place.greedy != Greedy::None) {
                let is_kept = if times <= GOAL { "within" } else { "beyond" };
                let place = <Fairness as super::Bench>::place(place);
                verdict += &format!("{place}, {}: {is_kept} {GOAL} times alone\n", row.name);
            }
        }
    }
    format!("\n{}\n{verdict}", table.to_text())
}

fn columns() -> Vec<Column> {
    let mut columns = ["link", "bottleneck", "beside", "through"].map(Column::left).to_vec();
    columns.push(Column::right("answers"));
    columns
        .extend(["median", "p99", "least..most", "longest"].map(|it| Column::right(it).unit("ms")));
    columns.push(Column::right("times alone"));
    columns.push(Column::right("beside").unit("Mbit/s"));
    columns.push(Column::right("CPU out, in").unit("%"));
    columns
}

fn cells(place: &Place, row: &Row<'_, Waited>, times_alone: Option<f64>) -> Vec<String> {
    let median = |value: fn(&Waited) -> f64| shown(row.median(|run| Some(value(run))), figure);
    let span = row.summary(p99_ms);
    let cpu = |end: usize| {
        let share =
            |run: &Waited| run.cpu_ns.map(|ns| 100.0 * ns[end] as f64 / run.window_ns as f64);
        shown(row.median(share), figure)
    };
    vec![
        place.link.to_string(),
        place.bottleneck.name().to_owned(),
        place.greedy.name().to_owned(),
        row.name.clone(),
        median(|run| run.answers as f64),
        median(|run| run.answer_p50_ns as f64 / 1e6),
        shown(row.median(p99_ms), figure),
        span.map_or_else(nothing, |it| format!("{}..{}", figure(it.min), figure(it.max))),
        median(|run| run.answer_max_ns as f64 / 1e6),
        shown(times_alone, figure),
        median(Waited::greedy_mbps),
        [0, 1].map(cpu).join(", "),
    ]
}

fn p99_ms(run: &Waited) -> Option<f64> {
    Some(run.answer_p99_ns as f64 / 1e6)
}

/// The row's 99th percentile against that of the same carrier with nothing beside.
fn times_alone(runs: &[Run<Fairness>], place: &Place, row: &Row<'_, Waited>) -> Option<f64> {
    let alone = Place { greedy: Greedy::None, ..*place };
    let alone = runner::rows(runs, &alone);
    let alone = alone.iter().find(|other| other.name == row.name)?.median(p99_ms)?;
    Some(row.median(p99_ms)? / alone)
}

#[cfg(test)]
mod tests {
    use super::super::{Bottleneck, Conditions};
    use super::*;
    use crate::record::tests::record;

    #[test]
    fn requests_are_compared_with_those_that_were_alone() {
        let conditions = Conditions {
            clients: 100,
            answer_bytes: 1000,
            pause_ns: 1,
            seconds: 1.0,
            congestion_control: "cubic".to_owned(),
            proxy: Vec::new(),
        };
        let run = |greedy, who, ms: u64| {
            let link = "20mbit/10ms".parse().unwrap();
            let place = Place { link, bottleneck: Bottleneck::Here, greedy };
            let waited = Waited {
                answers: 1200,
                answer_p50_ns: 20_000_000,
                answer_p99_ns: ms * 1_000_000,
                answer_max_ns: 2 * ms * 1_000_000,
                window_ns: 1_000_000_000,
                greedy_bytes: 2_000_000,
                link_bytes: 1,
                cpu_ns: Some([100_000_000, 50_000_000]),
            };
            record::<Fairness>(conditions.clone(), place, (who, 0), waited)
        };
        let runs = [
            run(Greedy::None, "plain", 25),
            run(Greedy::None, "dwell proxy", 25),
            run(Greedy::Text, "plain", 125),
            run(Greedy::Text, "dwell proxy", 40),
        ];
        let text = report(&runs);
        let row = text.lines().rfind(|line| line.contains("40.0..40.0")).unwrap_or_default();
        let row: Vec<_> = row.split_whitespace().collect();
        let expected = "20 Mbit/s, 10.0 ms each way here text dwell proxy 1200 20.0 40.0 40.0..40.0 80.0 1.60 16.0 10.0, 5.00";
        assert_eq!(row.join(" "), expected, "{text}");
        assert!(text.contains("beside text, plain: beyond 2 times alone"), "{text}");
        assert!(text.contains("beside text, dwell proxy: within 2 times alone"), "{text}");
    }
}
