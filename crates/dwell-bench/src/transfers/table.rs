//! The tables, a row for each cell, and the verdict.

use clap::ValueEnum as _;
use dwell_report::{Column, Table};

use super::super::record::Run;
use super::super::runner;
use super::super::sheet::Row;
use super::contender::Contender;
use super::{Place, Sent, Transfers};

/// What is to be kept of the best of the others.
const GOAL: f64 = 1.0;
const GOAL_ALWAYS: f64 = 1.0 / 0.95;

type Figure = fn(&Sent) -> f64;

const SECONDS: Figure = |sent| sent.took_ns as f64 / 1e9;
const MEGABYTES: Figure = |sent| sent.link_bytes as f64 / 1e6;
const CPU: Figure = |sent| sent.cpu_ns as f64 / 1e9;
const MEMORY: Figure = |sent| sent.peak_bytes as f64 / 1e6;

/// Those who took part.
fn present(runs: &[Run<Transfers>]) -> Vec<Contender> {
    let is_there = |who: &&Contender| runs.iter().any(|run| run.contender == who.to_string());
    Contender::value_variants().iter().filter(is_there).copied().collect()
}

pub(super) fn report(runs: &[Run<Transfers>]) -> String {
    let places = runner::places(runs);
    let present = present(runs);
    let mut table = Table::new(columns(&present));
    for place in &places {
        table.row(cells(place, &present, &runner::rows(runs, place)));
    }
    format!("\n{}", table.to_text()) + &verdict(runs, &places)
}

fn columns(present: &[Contender]) -> Vec<Column> {
    let mut columns =
        vec![Column::left("link"), Column::right("delay").unit("ms"), Column::left("files")];
    for (name, unit) in [("time", "s"), ("link", "MB"), ("cpu", "s"), ("memory", "MB")] {
        for who in present {
            columns.push(Column::right(&format!("{name} {}", who.short())).unit(unit));
        }
        if matches!(name, "time" | "link") {
            columns.push(Column::right("of best"));
        }
    }
    columns
}

fn cells(place: &Place, present: &[Contender], rows: &[Row<'_, Sent>]) -> Vec<String> {
    let delay = place.delay_ns as f64 / 1e6;
    let mut cells = vec![place.rate.to_string(), delay.to_string(), place.content.clone()];
    for (figure, is_compared) in [(SECONDS, true), (MEGABYTES, true), (CPU, false), (MEMORY, false)]
    {
        for &contender in present {
            let text = |value: f64| format!("{value:.3}");
            cells.push(of(rows, contender, figure).map_or_else(String::new, text));
        }
        if is_compared {
            let text = |share: f64| format!("{share:.2}");
            cells.push(of_best(rows, figure).map_or_else(String::new, text));
        }
    }
    cells
}

fn of(rows: &[Row<'_, Sent>], contender: Contender, figure: Figure) -> Option<f64> {
    let name = contender.to_string();
    rows.iter().find(|row| row.name == name)?.median(|sent| Some(figure(sent)))
}

/// Dwell's figure as a share of the best of the others, of those that took part.
fn of_best(rows: &[Row<'_, Sent>], figure: Figure) -> Option<f64> {
    of_best_of(rows, figure, |who| who != Contender::Dwell)
}

/// The same of some of them.
fn of_best_of(
    rows: &[Row<'_, Sent>],
    figure: Figure,
    counts: impl Fn(Contender) -> bool,
) -> Option<f64> {
    let others = Contender::value_variants().iter().filter(|who| counts(**who));
    let best = others.filter_map(|other| of(rows, *other, figure)).min_by(f64::total_cmp);
    Some(of(rows, Contender::Dwell, figure)? / best?)
}

fn verdict(runs: &[Run<Transfers>], places: &[&Place]) -> String {
    let mut text = String::new();
    type Counts = fn(Contender) -> bool;
    let any: Counts = |who| who != Contender::Dwell;
    let encrypts: Counts = |who| matches!(who, Contender::Rsync | Contender::Ssh);
    let parts = [
        ("time", SECONDS, any),
        ("time against rsync and ssh", SECONDS, encrypts),
        ("bytes", MEGABYTES, any),
    ];
    for (name, figure, counts) in parts {
        let shares = places.iter().filter_map(|place| {
            of_best_of(&runner::rows(runs, place), figure, counts)
                .map(|share| (share, Transfers::name_of(place)))
        });
        let mut shares: Vec<_> = shares.collect();
        shares.sort_by(|a, b| a.0.total_cmp(&b.0));
        let Some((worst, at)) = shares.last() else { continue };
        let kept = |goal: f64| shares.iter().filter(|(share, _)| *share <= goal).count();
        text.push_str(&format!(
            "{name}: in {} of {} cells as good as the best or better, in {} within 5 %; {worst:.2} at worst ({at})\n",
            kept(GOAL),
            shares.len(),
            kept(GOAL_ALWAYS),
        ));
    }
    text
}

impl Transfers {
    fn name_of(place: &Place) -> String {
        use super::super::record::Bench as _;
        Self::place(place)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Conditions;
    use super::*;
    use crate::record::tests::record;

    #[test]
    fn dwell_is_compared_with_the_best_of_those_that_took_part() {
        let conditions = Conditions { bytes: 1, longest_ns: 1, seed: 1, send: Vec::new() };
        let run = |content: &str, who: &str, ms: u64, link_bytes| {
            let rate = "5mbit".parse().unwrap();
            let place = Place { rate, delay_ns: 10_000_000, content: content.to_owned() };
            let took_ns = ms * 1_000_000;
            let sent =
                Sent { took_ns, bytes: 9, link_bytes, cpu_ns: 1_000_000, peak_bytes: 3_000_000 };
            record::<Transfers>(conditions.clone(), place, (who, 0), sent)
        };
        let runs = [
            run("sql", "dwell send", 900, 2_000_000),
            run("sql", "zstd --adapt", 1000, 1_000_000),
            run("sql", "zstd -T0 --long", 1200, 2_000_000),
            run("logs", "dwell send", 1030, 1_000_000),
            run("logs", "zstd --adapt", 1000, 1_000_000),
        ];
        let text = report(&runs);
        assert!(!text.contains("rsync"), "{text}");
        let row = text.lines().find(|line| line.contains("sql")).unwrap_or_default();
        let row: Vec<_> = row.split_whitespace().collect();
        let expected = "5 Mbit/s 10 sql 0.900 1.000 1.200 0.90 2.000 1.000 2.000 2.00 0.001 0.001 0.001 \
             3.000 3.000 3.000";
        assert_eq!(row.join(" "), expected, "{text}");
        assert!(
            text.contains("time: in 1 of 2 cells as good as the best or better, in 2 within 5 %"),
            "{text}"
        );
        assert!(text.contains("bytes: in 1 of 2 cells"), "{text}");
        let more = [&runs[..], &[run("sql", "rsync -z", 600, 900_000)]].concat();
        let text = report(&more);
        assert!(text.contains("time rsync") && text.contains("time: in 0 of 2 cells"), "{text}");
        assert!(text.contains("1.50 at worst"), "{text}");
        assert!(text.contains("time against rsync and ssh: in 0 of 1 cells"), "{text}");
    }
}
