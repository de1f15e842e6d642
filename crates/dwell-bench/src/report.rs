//! The report on runs over links: a table for each rate and workload, then verdicts.

use std::fmt::Write as _;

use dwell_report::human::{self, NOTHING};
use dwell_report::{Column, Table};

use super::link_rate::LinkRate;
use super::record::{Measured, RelayAccounts};
use super::results::Results;
use super::statistics::Summary;
use super::verdict::{self, LEAST_SHARE};
use super::workload::Workload;

/// The rate at which text and random bytes are looked at more closely.
const CLOSE_LOOK: &str = "10mbit";

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
    let (unit, _) = workload.unit();
    let delays = workload == Workload::Telemetry;
    let mut columns = vec![
        Column::left("contender"),
        Column::right(unit),
        Column::right("quartiles"),
        Column::right("min..max"),
        Column::right("/off"),
        Column::right("/better"),
        Column::right("ratio"),
        Column::right("link B/B"),
        Column::right("tried"),
        Column::right("dropped"),
        Column::right("CPU out, in"),
        Column::right("ping p50"),
        Column::right("ping p99"),
    ];
    if delays {
        columns.extend(["delay p50", "delay p99"].map(Column::right));
    }
    let mut table = Table::new(columns);
    for contender in results.contenders(rate, workload) {
        table.row(Row { results, rate, workload, contender }.cells(delays));
    }
    table.to_text()
}

struct Row<'a> {
    results: &'a Results<'a>,
    rate: LinkRate,
    workload: Workload,
    contender: &'a str,
}

impl Row<'_> {
    fn cells(&self, delays: bool) -> Vec<String> {
        let mut cells = vec![self.contender.to_owned()];
        cells.extend(self.goodput());
        cells.push(percent(self.against_off()));
        cells.push(percent(self.against_better()));
        cells.push(human::ratio(self.relay(RelayAccounts::compressed_ratio)));
        cells.push(number(self.median(Measured::link_bytes_per_byte), 3));
        cells.push(percent(self.relay(RelayAccounts::tried_share)));
        cells.push(number(self.relay(|relay| Some(relay.dropped_packets as f64)), 0));
        cells.push(self.cpu());
        cells.push(self.time(|m| m.ping_p50_ns));
        cells.push(self.time(|m| m.ping_p99_ns));
        if delays {
            cells.push(self.time(|m| m.delay_p50_ns));
            cells.push(self.time(|m| m.delay_p99_ns));
        }
        cells
    }

    fn goodput(&self) -> [String; 3] {
        let (_, one) = self.workload.unit();
        let Some(summary) = self.results.goodput(self.rate, self.workload, self.contender) else {
            return [NOTHING, NOTHING, NOTHING].map(str::to_owned);
        };
        let Summary { min, low, median, high, max, .. } = summary;
        let show = |value: f64| figure(value / one);
        [
            show(median),
            format!("{}..{}", show(low), show(high)),
            format!("{}..{}", show(min), show(max)),
        ]
    }

    fn against_off(&self) -> Option<f64> {
        let goodput = |name: &str| self.results.goodput(self.rate, self.workload, name);
        Some(goodput(self.contender)?.median / goodput("off")?.median)
    }

    /// Only for the scheme that promises something.
    fn against_better(&self) -> Option<f64> {
        let codec = self.contender.strip_prefix("packet/")?;
        let (_, better) = self.results.better_of_none_and_all(self.rate, self.workload, codec)?;
        let own = self.results.goodput(self.rate, self.workload, self.contender)?;
        Some(own.median / better.median)
    }

    fn cpu(&self) -> String {
        let busy = |end: usize| {
            let share = self.median(|m| Some(m.cpu_ns?[end] as f64 / m.window_ns.max(1) as f64));
            percent(share)
        };
        format!("{}, {}", busy(0), busy(1))
    }

    fn relay(&self, value: impl Fn(&RelayAccounts) -> Option<f64>) -> Option<f64> {
        self.median(|m| value(m.relay.as_ref()?))
    }

    fn time(&self, value: impl Fn(&Measured) -> Option<u64>) -> String {
        let ns = self.median(|m| value(m).map(|ns| ns as f64));
        ns.map_or_else(|| NOTHING.to_owned(), |ns| human::duration(ns as u64))
    }

    fn median(&self, value: impl Fn(&Measured) -> Option<f64>) -> Option<f64> {
        self.results.median(self.rate, self.workload, self.contender, value)
    }
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

/// Three digits, or all of an integer's.
pub(super) fn figure(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// `97.3 %`
pub(super) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| NOTHING.to_owned(), |share| format!("{:.1} %", share * 100.0))
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| NOTHING.to_owned(), |value| format!("{value:.digits$}"))
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

    #[test]
    fn figures_have_three_digits() {
        let shown = [0.1234, 9.876, 98.76, 987.6, 12_345.6].map(figure);
        assert_eq!(shown, ["0.12", "9.88", "98.8", "988", "12346"]);
        assert_eq!(percent(Some(0.9731)), "97.3 %");
        assert_eq!(percent(None), "-");
    }
}
