//! The runs, by MTU and load.

use dwell_report::human::{self, NOTHING};
use dwell_report::{Column, Table};

use super::super::statistics::Summary;
use super::DeadlineRun;
use super::run::{ClassResult, Measured};

/// All tables, for a terminal.
pub(super) fn report(runs: &[DeadlineRun]) -> String {
    let Some(first) = runs.first() else { return "There are no runs.\n".to_owned() };
    let mut text = format!(
        "\n{}\nlink of {} Mbit/s, {} bytes beside each datagram{}\n",
        first.origin.line(),
        first.rate_bps as f64 / 1e6,
        first.overhead_bytes,
        if first.realtime { "; relays with real-time priority" } else { "" },
    );
    let mut fields: Vec<(u32, f64)> = Vec::new();
    for run in runs {
        if !fields.contains(&(run.mtu, run.load)) {
            fields.push((run.mtu, run.load));
        }
    }
    fields.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    for (mtu, load) in fields {
        let here: Vec<&DeadlineRun> =
            runs.iter().filter(|run| (run.mtu, run.load) == (mtu, load)).collect();
        text.push_str(&format!("\nMTU {mtu}, load {load}\n\n{}", table(&here, load).to_text()));
    }
    text
}

fn table(runs: &[&DeadlineRun], load: f64) -> Table {
    let Some(set) = runs.first().map(|run| run.classes_of) else { return Table::new([]) };
    let mut table = Table::new([
        Column::left("scheme"),
        Column::right("datagrams").unit("%"),
        Column::left("class"),
        Column::right("held"),
        Column::right("after W").unit("%"),
        Column::right("paper").unit("%"),
        Column::right("late").unit("%"),
        Column::right("least..most"),
        Column::right("excess mean"),
        Column::right("most"),
        Column::right("arrived late").unit("%"),
        Column::right("excess mean"),
        Column::right("most"),
        Column::right("dropped"),
        Column::right("sources late"),
        Column::right("stolen").unit("%"),
    ]);
    let mut schemes: Vec<&str> = Vec::new();
    for run in runs {
        if !schemes.contains(&run.scheme.as_str()) {
            schemes.push(&run.scheme);
        }
    }
    for scheme in schemes {
        let here: Vec<&DeadlineRun> =
            runs.iter().filter(|run| run.scheme == scheme).copied().collect();
        let runs: Vec<&Measured> = here.iter().map(|run| &run.measured).collect();
        let stolen = stolen_percent(&here);
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
                if place == 0 { scheme.to_owned() } else { String::new() },
                all(&Measured::datagrams_per_hundred).map_or_else(String::new, two_digits),
                class.name.to_owned(),
                time(median(&|it| it.hold_ns as f64)),
                median(&ClassResult::past_hold_percent).map_or_else(String::new, two_digits),
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

/// Of the time of all cores, in all runs together.
fn stolen_percent(runs: &[&DeadlineRun]) -> Option<f64> {
    let time = |run: &&DeadlineRun| run.seconds * run.origin.machine.cores as f64;
    let stolen: u64 = runs.iter().map(|run| run.measured.stolen_ns).sum();
    let all: f64 = runs.iter().map(time).sum();
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
    use super::super::super::machine::Machine;
    use super::super::super::record::Origin;
    use super::super::classes::ClassSet;
    use super::*;

    fn run(scheme: &str, load: f64, late: u64) -> DeadlineRun {
        let class = |name: &str| ClassResult {
            name: name.to_owned(),
            max_wait_ns: 5_000_000,
            hold_ns: 3_000_000,
            sent: 1000,
            past_hold: late + 100,
            late,
            excess_mean_ns: 2_000,
            excess_max_ns: 9_000,
            received: 500,
            received_late: 0,
            received_excess_mean_ns: 0,
            received_excess_max_ns: 0,
        };
        DeadlineRun {
            at_unix_seconds: 0,
            origin: Origin {
                version: "0".into(),
                machine: Machine { cores: 2, cpu: "cpu".into(), kernel: "6".into() },
            },
            rate_bps: 20_000_000,
            overhead_bytes: 14,
            classes_of: ClassSet::Three,
            mtu: 1500,
            load,
            realtime: false,
            scheme: scheme.to_owned(),
            round: 0,
            seconds: 1.0,
            measured: Measured {
                sent_packets: 2000,
                datagrams: 50,
                dropped_packets: 0,
                one_way_ns: Some(100_000),
                sources_late_ns: 90_000,
                stolen_ns: 40_000_000,
                classes: ClassSet::Three.classes().iter().map(|it| class(it.name)).collect(),
            },
        }
    }

    #[test]
    fn the_paper_is_beside_overloads_only() {
        let runs = [run("chumq", 1.2, 200), run("chumq", 1.2, 220), run("chumq", 0.5, 0)];
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
        let run = run("basicq", 0.8, 1);
        let line = serde_json::to_string(&run).unwrap();
        assert_eq!(serde_json::from_str::<DeadlineRun>(&line).unwrap(), run);
    }
}
