//! The times of packets, and their waiting times.

use dwell_figures::chart::{Axis, Chart, Series};
use dwell_figures::page::{Block, Section};
use dwell_report::human;

use super::{figure, table};
use crate::analysis::{Analysis, FileRecord, Timing};

/// The most time lines in one chart: more say nothing.
const LINES_MAX: usize = 8;

pub(super) fn section(analysis: &Analysis) -> Option<Section> {
    let timing = &analysis.timing;
    if timing.packets == 0 {
        return None;
    }
    if timing.span_ns == 0 {
        let text = "All packets have the same time: nothing can be said of rates and waits.";
        return Some(Section::new("Timing").block(Block::Prose(text.to_owned())));
    }
    let mut section = Section::new("Timing")
        .block(Block::Prose(summary(analysis)))
        .block(Block::Table("Bursts".to_owned(), bursts(timing)));
    if !timing.waits.is_empty() {
        section = section
            .block(Block::Prose(
                "How long packets would wait if all of the capture went over one link of this \
                 rate, uncompressed, with no limit to the queue:"
                    .to_owned(),
            ))
            .block(Block::Table("Waiting time".to_owned(), waits(timing)));
        section = figure(section, wait_chart(timing));
    }
    let lines = analysis.files.iter().filter(|file| file.timeline.bytes.len() > 1);
    for file in lines.take(LINES_MAX) {
        section = figure(section, timeline(file));
    }
    Some(section)
}

fn summary(analysis: &Analysis) -> String {
    let timing = &analysis.timing;
    let bytes = analysis.ip().bytes;
    let bps = bytes as f64 * 8e9 / timing.span_ns as f64;
    let mut text = format!(
        "{} of time in all; {} of IP packets on average. Between two packets pass {} in the \
         middle, and {} at the most.",
        human::duration(timing.span_ns),
        human::rate(bps as u64),
        human::duration(timing.gaps_ns.quantile(0.5)),
        human::duration(timing.gaps_ns.max()),
    );
    if timing.backward > 0 {
        let (have, count, they) = match timing.backward {
            1 => ("has", "counts", "it"),
            _ => ("have", "count", "they"),
        };
        text.push_str(&format!(
            " {} {have} an earlier time than the one before, and {count} as if {they} came with it.",
            human::counted(timing.backward, "packet")
        ));
    }
    text
}

fn bursts(timing: &Timing) -> dwell_report::Table {
    let mut out = table(&[
        ("over", false),
        ("mean rate", true),
        ("highest rate", true),
        ("highest / mean", true),
        ("deviation / mean", true),
    ]);
    for burst in &timing.bursts {
        let rate = |bytes: f64| human::rate((bytes * 8e9 / burst.span_ns.max(1) as f64) as u64);
        let shown = |number: Option<f64>| {
            number.map_or_else(|| human::NOTHING.to_owned(), |number| format!("{number:.1}"))
        };
        out.row([
            human::duration(burst.span_ns),
            rate(burst.bytes as f64 / burst.spans.max(1) as f64),
            rate(burst.bytes_max as f64),
            shown(burst.peak_to_mean()),
            shown(burst.variation()),
        ]);
    }
    out
}

fn waits(timing: &Timing) -> dwell_report::Table {
    let mut out = table(&[
        ("rate", false),
        ("load", true),
        ("mean", true),
        ("50 %", true),
        ("90 %", true),
        ("99 %", true),
        ("longest", true),
        ("most waiting", true),
    ]);
    for waits in &timing.waits {
        let wait = &waits.wait_ns;
        out.row([
            human::rate(waits.rate.as_bps()),
            human::share(waits.busy_ns, timing.span_ns),
            human::duration(wait.mean().unwrap_or(0.0) as u64),
            human::duration(wait.quantile(0.5)),
            human::duration(wait.quantile(0.9)),
            human::duration(wait.quantile(0.99)),
            human::duration(wait.max()),
            human::bytes(waits.backlog_bytes_max),
        ]);
    }
    out
}

fn wait_chart(timing: &Timing) -> Chart {
    let mut chart = Chart::new(
        "Waiting time",
        Axis::log("waiting time").unit("ms").floor(0.001),
        Axis::linear("packets that wait no longer").unit("%").range(0.0, 100.0),
    );
    for waits in &timing.waits {
        let points = waits.wait_ns.cumulative().into_iter();
        let points = points.map(|(ns, share)| (ns as f64 / 1e6, share * 100.0));
        chart = chart.series(Series::steps(&human::rate(waits.rate.as_bps())).with(points));
    }
    chart
}

fn timeline(file: &FileRecord) -> Chart {
    let line = &file.timeline;
    let seconds = line.bin_ns as f64 / 1e9;
    let points = line
        .bytes
        .iter()
        .enumerate()
        .map(|(bin, &bytes)| (bin as f64 * seconds, bytes as f64 * 8.0 / seconds / 1e6));
    Chart::new(
        &format!("{} over time", file.name),
        Axis::linear("time").unit("s"),
        Axis::linear("rate").unit("Mbit/s"),
    )
    .series(Series::steps("IP packets").with(points))
}
