//! Ratio and time by codec and by class.

use dwell_figures::chart::{Axis, Chart, Series};
use dwell_figures::page::{Block, Section};
use dwell_report::human;

use super::{figure, nanoseconds, table};
use crate::analysis::{Analysis, Over};
use crate::summary::{Class, Ratio, Summary};

pub(super) fn codecs(analysis: &Analysis, summary: &Summary) -> Option<Section> {
    if summary.codecs.is_empty() {
        return None;
    }
    let mut out = table(&[
        ("codec", false),
        ("packets", true),
        ("ratio", true),
        ("sent", true),
        ("expanding", true),
        ("ns/packet", true),
        ("ns/byte", true),
        ("exceptions", true),
        ("left out", true),
        ("ratio after", true),
        ("sent, all", true),
    ]);
    for row in &summary.codecs {
        let (all, rest) = (&row.all, &row.compressible);
        // Packets on the exception list are sent as they are.
        let left_out = all.bytes - rest.bytes;
        let sent =
            (all.bytes > 0).then(|| (rest.sums.sent_bytes + left_out) as f64 / all.bytes as f64);
        out.row([
            row.codec.to_string(),
            human::count(all.packets),
            human::ratio(all.ratio()),
            human::ratio(all.sent_ratio()),
            percent(all.expanded_share()),
            nanoseconds(all.ns_per_packet()),
            nanoseconds(all.ns_per_byte()),
            human::count(row.exceptions as u64),
            human::share(all.packets - rest.packets, all.packets),
            human::ratio(rest.ratio()),
            human::ratio(sent),
        ]);
    }
    let what = match analysis.settings.over {
        Over::Packet => "whole IP packets, headers and all, as a relay compresses them",
        Over::Payload => {
            "the payload behind the headers of IP and TCP or UDP; packets without one are left out"
        }
    };
    let text = format!(
        "Each packet is compressed alone: {what}. `ratio` is the sum of the results over the \
         sum of the originals, longer results among them; `sent` counts packets that don't shrink \
         as they are. `left out` are the packets of classes with a ratio above 1 (the exceptions), `ratio \
         after` is that of the others, `sent, all` that of all if the exceptions are not compressed. \
         Times are of this machine, with one reading of the clock for each packet."
    );
    let section = Section::new("Codecs");
    Some(section.block(Block::Prose(text)).block(Block::Table(String::new(), out)))
}

pub(super) fn classes(summary: &Summary, count: usize) -> Section {
    let codecs: Vec<String> = summary.codecs.iter().map(|row| row.codec.to_string()).collect();
    let mut columns = vec![
        ("class", false),
        ("name", false),
        ("packets", true),
        ("bytes", true),
        ("lower port in", true),
    ];
    columns.extend(codecs.iter().map(|codec| (codec.as_str(), true)));
    if !codecs.is_empty() {
        columns.extend([("expanding", true), ("ns/packet", true), ("exception", false)]);
    }
    let mut out = table(&columns);
    for class in summary.classes.iter().take(count) {
        out.row(class_row(class));
    }
    let more = summary.classes.len().saturating_sub(count);
    let rest = if more == 0 { String::new() } else { format!(" {more} more are not shown.") };
    let text = format!(
        "A packet is in the class of its source port and in that of its destination port. Ratios \
         by codec; `expanding` and `ns/packet` are of the first one.{rest}"
    );
    let section = Section::new("Classes").block(Block::Prose(text));
    let section = section.block(Block::Table(String::new(), out));
    match ratio_chart(summary) {
        Some(chart) => figure(section, chart),
        None => section,
    }
}

fn class_row(class: &Class) -> Vec<String> {
    let mut row = vec![
        class.class.to_string(),
        class.name.to_owned(),
        human::count(class.packets),
        human::count(class.bytes),
        human::share(class.service_packets, class.packets),
    ];
    row.extend(class.codecs.iter().map(|found| human::ratio(found.ratio())));
    if let Some(first) = class.codecs.first() {
        row.push(percent(first.expanded_share()));
        row.push(nanoseconds(first.ns_per_packet()));
        let is_listed = class.exception.first() == Some(&true);
        row.push(if is_listed { "yes" } else { "" }.to_owned());
    }
    row
}

/// Bars for the largest services.
fn ratio_chart(summary: &Summary) -> Option<Chart> {
    const CLASSES: usize = 12;
    if summary.codecs.is_empty() {
        return None;
    }
    let services = summary.classes.iter().filter(|class| class.service_packets * 2 > class.packets);
    let services: Vec<&Class> = services.take(CLASSES).collect();
    let names = services.iter().map(|class| class.class.to_string());
    let mut chart = Chart::new(
        "Ratio by class",
        Axis::of("class, by its bytes", names),
        Axis::linear("compressed / original"),
    )
    .caption("The largest classes that are the lower port of most of their packets.");
    for (at, codec) in summary.codecs.iter().enumerate() {
        let points = services.iter().enumerate().filter_map(|(x, class)| {
            Some((x as f64, class.codecs.get(at).and_then(Ratio::ratio)?))
        });
        chart = chart.series(Series::bars(&codec.codec.to_string()).with(points));
    }
    Some(chart)
}

/// The paper's Table 1.
pub(super) fn table_1(analysis: &Analysis, summary: &Summary) -> Option<Section> {
    const CLASSES: usize = 20;
    let codec = summary.codecs.first()?;
    let mut out = table(&[
        ("protocol", false),
        ("port", true),
        ("average ratio", true),
        ("compressible traffic", true),
        ("original traffic", true),
        ("name", false),
    ]);
    let all = analysis.ip().bytes;
    for class in summary.table_1(CLASSES) {
        let key = class.class;
        out.row([
            crate::names::protocol_name(key.protocol()).unwrap_or("").to_uppercase(),
            key.port().to_string(),
            human::ratio(class.compressible.first().and_then(Ratio::ratio)),
            human::share(class.compressible_bytes, all),
            human::share(class.bytes, all),
            class.name.to_owned(),
        ]);
    }
    let text = format!(
        "As in Shimamura et al., Table 1: the {CLASSES} classes with the most bytes that the IANA \
         has a name for and that are not exceptions, by their ratio with {}. `compressible \
         traffic` and the ratio are of those of their packets that are in no exception by their \
         other port either.",
        codec.codec
    );
    let section = Section::new("Compressible classes").block(Block::Prose(text));
    Some(section.block(Block::Table(String::new(), out)))
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| human::NOTHING.to_owned(), |share| format!("{:.1} %", share * 100.0))
}
