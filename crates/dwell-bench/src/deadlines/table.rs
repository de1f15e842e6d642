//! The runs, by MTU and load.

use dwell_report::human::{self, NOTHING};
use dwell_report::{Column, Table};

use super::super::record::{Bench as _, Run};
use super::super::runner;
use super::super::sheet::Row;
use super::super::statistics::Summary;
use super::run::{ClassResult, Measured};
use super::{Conditions, Deadlines};

/// All tables, for a terminal.
pub(super) fn report(runs: &[Run<Deadlines>]) -> String {
    let mut text = runner::head(runs);
    let Some(first) = runs.first() else { return text };
    let Conditions { rate_bps, overhead_bytes, realtime, .. } = first.conditions;
    text.push_str(&format!(
        "link of {} Mbit/s, {overhead_bytes} bytes beside each datagram{}\n",
        rate_bps as f64 / 1e6,
        if realtime { "; relays with real-time priority" } else { "" },
    ));
    let mut places = runner::places(runs);
    places.sort_by(|a, b| a.mtu.cmp(&b.mtu).then(a.load.total_cmp(&b.load)));
    for place in places {
        let cores = first.origin.machine.cores;
        let table = table(&runner::rows(runs, place), &first.conditions, place.load, cores);
        text.push_str(&format!("\n{}\n\n{}", Deadlines::place(place), table.to_text()));
    }
    text
}

fn table(rows: &[Row<'_, Measured>], it: &Conditions, load: f64, cores: usize) -> Table {
    let set = it.classes_of;
    let mut table = Table::new([
        Column::left("scheme"),
        Column::right("datagrams").unit("%"),
        Column::left("class"),
        Column::right("held"),
        Column::right("after W").unit("%"),
        Column::right("paper").unit("%"),
        Column::right("late").unit("%"),
        Column::right("min..max"),
        Column::right("excess mean"),
        Column::right("most"),
        Column::right("arrived late").unit("%"),
        Column::right("excess mean"),
        Column::right("most"),
        Column::right("dropped"),
        Column::right("sources late"),
        Column::right("stolen").unit("%"),
    ]);
    for Row { name: scheme, runs } in rows {
        let stolen = stolen_percent(runs, it.seconds * cores as f64);
        for (place, class) in set.classes().iter().enumerate() {
            let of = |value: &dyn Fn(&ClassResult) -> f64| {
                Summary::of(runs.iter().filter_map(|run| run.classes.get(place)).map(value))
            };
            let median = |value: &dyn Fn(&ClassResult) -> f64| of(value).map(|s| s.median);
            let most = |value: &dyn Fn(&ClassResult) -> f64| of(value).map(|s| s.max);
            let all = |value: &dyn Fn(&Measured) -> f64| {
                let summary = Summary::of(runs.iter().map(|run| value(run)));
                summary.filter(|_| place == 0).map(|summary| summary.median)
            };
            let span = of(&ClassResult::late_percent)
                .map(|late| format!("{:.2}..{:.2}", late.min, late.max));
            let paper = set.paper_percent(class.name, scheme, load);
            table.row([
                if place == 0 { scheme.clone() } else { String::new() },
                all(&Measured::datagrams_per_hundred).map_or_else(String::new, two_digits),
                class.name.to_owned(),
                time(median(&|it| it.deadline_ns as f64)),
                median(&ClassResult::past_deadline_percent).map_or_else(String::new, two_digits),
                paper.map_or_else(|| NOTHING.to_owned(), two_digits),
                median(&ClassResult::late_percent).map_or_else(String::new, two_digits),
                span.unwrap_or_default(),
                time(median(&|it| it.excess_mean_ns as f64)),
                time(most(&|it| it.excess_max_ns as f64)),
                median(&ClassResult::received_late_percent).map_or_else(String::new, two_digits),
                time(median(&|it| it.received_excess_mean_ns as f64)),
                time(most(&|it| it.received_excess_max_ns as f64)),
                all(&|run| run.dropped_packets as f64).map_or_else(String::new, |n| n.to_string()),
                all(&|run| run.sources_late_ns as f64)
                    .map_or_else(String::new, |ns| time(Some(ns))),
                stolen.filter(|_| place == 0).map_or_else(String::new, two_digits),
            ]);
        }
    }
    table
}

/// Of the time of all cores, in all runs together, of which each takes so long.
fn stolen_percent(runs: &[&Measured], cpu_seconds: f64) -> Option<f64> {
    let stolen: u64 = runs.iter().map(|run| run.stolen_ns).sum();
    let all = cpu_seconds * runs.len() as f64;
    (all > 0.0).then(|| stolen as f64 / 1e7 / all)
}

fn two_digits(value: f64) -> String {
    format!("{value:.2}")
}

fn time(ns: Option<f64>) -> String {
    ns.filter(|ns| *ns > 0.0).map_or_else(|| NOTHING.to_owned(), |ns| human::duration(ns as u64))
}

#[cfg(test)]
mod tests {
    use super::super::Place;
    use super::super::classes::ClassSet;
    use super::*;
    use crate::record::tests::record;

    fn run(who: (&str, u32), load: f64, late: u64) -> Run<Deadlines> {
        let class = |name: &str| ClassResult {
            name: name.to_owned(),
            max_wait_ns: 5_000_000,
            deadline_ns: 3_000_000,
            sent: 1000,
            past_deadline: late + 100,
            late,
            excess_mean_ns: 2_000,
            excess_max_ns: 9_000,
            received: 500,
            received_late: 0,
            received_excess_mean_ns: 0,
            received_excess_max_ns: 0,
        };
        let conditions = Conditions {
            rate_bps: 20_000_000,
            overhead_bytes: 14,
            classes_of: ClassSet::Three,
            realtime: false,
            seconds: 1.0,
        };
        let measured = Measured {
            sent_packets: 2000,
            datagrams: 50,
            dropped_packets: 0,
            one_way_ns: Some(100_000),
            sources_late_ns: 90_000,
            stolen_ns: 40_000_000,
            classes: ClassSet::Three.classes().iter().map(|it| class(it.name)).collect(),
        };
        record::<Deadlines>(conditions, Place { mtu: 1500, load }, who, measured)
    }

    #[test]
    fn the_paper_is_beside_overloads_only() {
        let runs =
            [run(("chumq", 0), 1.2, 200), run(("chumq", 1), 1.2, 220), run(("chumq", 0), 0.5, 0)];
        let text = report(&runs);
        let (calm, overload) = text.split_once("load 1.2").unwrap();
        assert!(calm.contains("load 0.5") && !calm.contains("20.42"), "{text}");
        let row = overload.lines().find(|line| line.starts_with("chumq")).unwrap_or_default();
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(cells[..3], ["chumq", "2.50", "sensing"], "{text}");
        for cell in ["31.00", "20.42", "21.00", "20.00..22.00", "2.00"] {
            assert!(row.contains(cell), "{row}");
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let run = run(("basicq", 0), 0.8, 1);
        let line = serde_json::to_string(&run).unwrap();
        assert_eq!(serde_json::from_str::<Run<Deadlines>>(&line).unwrap(), run);
    }
}
