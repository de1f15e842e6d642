//! The report on runs over links: a table for each rate and workload, then verdicts.

use std::fmt::Write as _;

use dwell_report::human;

use super::bound::Best;
use super::link::Place;
use super::link_rate::LinkRate;
use super::record::{Measured, RelayAccounts};
use super::results::Results;
use super::runner;
use super::sheet::{self, Figure, Of, Row, figure, time, whole};
use super::statistics::Summary;
use super::verdict::{self, LEAST_SHARE};
use super::workload::Workload;

/// The rate at which text and random bytes are looked at more closely.
const CLOSE_LOOK: &str = "10mbit";

/// The part of a processor that the bound counts with for each relay. What sends and receives shares it with them.
const RELAY_PROCESSORS: f64 = 1.0;

/// Everything, for a terminal.
pub(super) fn link(results: &Results<'_>) -> String {
    let mut text = String::new();
    for (rate, workload) in results.fields() {
        // Writing to a string can't fail.
        let _ = write!(text, "\n{rate}, {}\n\n{}", workload.name(), table(results, rate, workload));
    }
    text.push_str(&verdicts(results));
    text
}

fn table(results: &Results<'_>, rate: LinkRate, workload: Workload) -> String {
    let (unit, one) = workload.unit();
    let rows = runner::rows(results.runs(), &Place { rate, workload });
    let goodput = move |run: &Measured| Some(run.per_second() / one);
    let off = sheet::base(&rows, "off", goodput);
    let best = Best::of(&rows, rate.0, RELAY_PROCESSORS);
    let bound = best.as_ref().map(Best::mbps);
    // Only for the scheme that promises something.
    let against_better = |row: &Row<'_, Measured>| {
        let codec = row.name.strip_prefix("packet/")?;
        let (_, better) = results.better_of_none_and_all(rate, workload, codec)?;
        Some(row.median(|run| Some(run.per_second()))? / better.median)
    };
    let relay = |name, show, value: fn(&RelayAccounts) -> Option<f64>| {
        Figure::new(name, Of::Median, show, move |run: &Measured| value(run.relay.as_ref()?))
    };
    let ns = |name, value: fn(&Measured) -> Option<u64>| {
        Figure::new(name, Of::Median, time, move |run| value(run).map(|ns| ns as f64))
    };
    let mut figures = vec![
        Figure::new(unit, Of::Median, figure, goodput),
        Figure::new("quartiles", Of::Quartiles, figure, goodput),
        Figure::new("min..max", Of::Span, figure, goodput),
        Figure::new("/off", Of::Against(off), sheet::percent, goodput),
        Figure::new("/bound", Of::Against(bound), sheet::percent, |run: &Measured| {
            Some(run.mbps())
        }),
        Figure::cell("/better", move |row| percent(against_better(row))),
        relay("ratio", |ratio| human::ratio(Some(ratio)), RelayAccounts::compressed_ratio),
        Figure::new("link B/B", Of::Median, |n| format!("{n:.3}"), Measured::link_bytes_per_byte),
        relay("tried", sheet::percent, RelayAccounts::tried_share),
        relay("dropped", whole, |relay| Some(relay.dropped_packets as f64)),
        Figure::of_both("CPU out, in", sheet::percent, |run: &Measured, end| {
            Some(run.cpu_ns?[end] as f64 / run.window_ns.max(1) as f64)
        }),
        ns("ping p50", |run| run.ping_p50_ns),
        ns("ping p99", |run| run.ping_p99_ns),
    ];
    if workload.overload().is_some() || workload == Workload::Requests {
        figures.push(ns("delay p50", |run| run.delay_p50_ns));
        figures.push(ns("delay p99", |run| run.delay_p99_ns));
    }
    let text = sheet::table("contender", rows, figures).to_text();
    text + &best.map_or_else(String::new, |best| best.line())
}

fn verdicts(results: &Results<'_>) -> String {
    let mut text = String::from("\nVerdicts\n\n");
    text.push_str(&shortfalls(results));
    if let Ok(rate) = CLOSE_LOOK.parse() {
        text.push_str(&attainments(results, rate));
        text.push_str(&restraints(results, rate));
    }
    text
}

fn shortfalls(results: &Results<'_>) -> String {
    let (compared, found) = verdict::shortfalls(results);
    let least = percent(Some(LEAST_SHARE));
    let mut text = format!(
        "Of {compared} comparisons, packet is below {least} of the better of none and all in {}.\n",
        found.len()
    );
    for place in found {
        let (unit, one) = place.workload.unit();
        let show = |summary: &Summary| {
            let Summary { low, median, high, .. } = summary;
            format!("{} ({}..{})", figure(median / one), figure(low / one), figure(high / one))
        };
        let _ = writeln!(
            text,
            "  {}, {}, {}: {} = {} by {} of {} {unit}{}",
            place.rate,
            place.workload.name(),
            place.codec,
            percent(Some(place.share())),
            show(&place.packet),
            show(&place.better),
            place.better_name,
            if place.may_be_chance() { " (the middle halves of the runs overlap)" } else { "" },
        );
    }
    text
}

fn attainments(results: &Results<'_>, rate: LinkRate) -> String {
    let mut text = String::new();
    for one in verdict::attainments(results, rate) {
        let share = |ratio| percent(one.share(ratio));
        let _ = writeln!(
            text,
            "Text at {rate}, {}: {} Mbit/s by none's {} is {} of what the ratio of compressed packets \
             allows ({}), {} of what that of all packets allows ({}), and {} of what link bytes \
             per byte allow ({}).",
            one.codec,
            figure(one.packet * 8e-6),
            figure(one.none * 8e-6),
            share(one.compressed_ratio),
            human::ratio(one.compressed_ratio),
            share(one.sent_ratio),
            human::ratio(one.sent_ratio),
            share(one.link_ratio),
            human::ratio(one.link_ratio),
        );
    }
    text
}

fn restraints(results: &Results<'_>, rate: LinkRate) -> String {
    let mut text = String::new();
    for one in verdict::restraints(results, rate) {
        let _ = writeln!(
            text,
            "Random bytes at {rate}, {}: {} of none; {} of the packets tried after the first second.",
            one.codec,
            percent(Some(one.share_of_none)),
            percent(one.tried_later),
        );
    }
    text
}

/// `97.3 %`
fn percent(share: Option<f64>) -> String {
    sheet::shown(share, sheet::percent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::run;

    #[test]
    fn the_report_has_tables_and_verdicts() {
        let mut runs = vec![
            run("10mbit", Workload::Text, "off", 0, 1_000_000),
            run("10mbit", Workload::Text, "none", 0, 900_000),
            run("10mbit", Workload::Text, "packet/lz4", 0, 500_000),
        ];
        runs[2].measured.ping_p50_ns = Some(12_000_000);
        let text = link(&Results::new(&runs));
        for expected in ["10 Mbit/s, text", "packet/lz4", "12.0 ms", "55.6 %", "in 1.\n"] {
            assert!(text.contains(expected), "{expected} is not in {text}");
        }
    }
}
