//! The traffic by protocol and by size.

use dwell_figures::chart::{Axis, Chart, Series};
use dwell_figures::page::{Block, Section};
use dwell_report::human;

use super::{figure, table};
use crate::analysis::{Analysis, SIZE_ENDS};
use crate::names::protocol_name;

pub(super) fn section(analysis: &Analysis) -> Section {
    let section = Section::new("Traffic")
        .block(Block::Table("Captures".to_owned(), files(analysis)))
        .block(Block::Table("IP packets by protocol".to_owned(), protocols(analysis)));
    let section = if analysis.others.is_empty() {
        section
    } else {
        section.block(Block::Table("Frames without an IP packet".to_owned(), others(analysis)))
    };
    let section = section.block(Block::Table(
        "IP packets by their length; ratio of the first codec".to_owned(),
        sizes(analysis),
    ));
    let cumulative = analysis.packet_bytes.cumulative();
    let points = cumulative.into_iter().map(|(bytes, share)| (bytes as f64, share * 100.0));
    let chart = Chart::new(
        "Length of IP packets",
        Axis::linear("length").unit("bytes"),
        Axis::linear("packets up to this length").unit("%").range(0.0, 100.0),
    )
    .series(Series::steps("packets").with(points));
    figure(section, chart).block(Block::Prose(flows(analysis)))
}

fn files(analysis: &Analysis) -> dwell_report::Table {
    let mut out = table(&[
        ("capture", false),
        ("format", false),
        ("links", false),
        ("frames", true),
        ("wire bytes", true),
        ("captured bytes", true),
        ("IP packets", true),
        ("IP bytes", true),
        ("cut", true),
    ]);
    for file in &analysis.files {
        let links: Vec<String> = file.links.iter().map(ToString::to_string).collect();
        out.row([
            file.name.clone(),
            file.format.clone(),
            links.join(" "),
            human::count(file.frames.packets),
            human::count(file.frames.bytes),
            human::count(file.captured_bytes),
            human::count(file.ip.packets),
            human::count(file.ip.bytes),
            human::count(file.cut_frames),
        ]);
    }
    out
}

fn protocols(analysis: &Analysis) -> dwell_report::Table {
    let mut out = table(&[
        ("IP", false),
        ("protocol", false),
        ("packets", true),
        ("bytes", true),
        ("of all bytes", true),
    ]);
    let all = analysis.ip().bytes;
    let mut rows: Vec<_> = analysis.protocols.iter().collect();
    rows.sort_by_key(|(key, sums)| (std::cmp::Reverse(sums.bytes), **key));
    for ((version, protocol), sums) in rows {
        out.row([
            format!("v{version}"),
            protocol_name(*protocol).map_or_else(|| protocol.to_string(), ToOwned::to_owned),
            human::count(sums.packets),
            human::count(sums.bytes),
            human::share(sums.bytes, all),
        ]);
    }
    out
}

fn others(analysis: &Analysis) -> dwell_report::Table {
    let mut out = table(&[("what", false), ("frames", true), ("bytes", true)]);
    for (reason, sums) in &analysis.others {
        out.row([reason.clone(), human::count(sums.packets), human::count(sums.bytes)]);
    }
    out
}

fn sizes(analysis: &Analysis) -> dwell_report::Table {
    let mut out = table(&[
        ("bytes", false),
        ("packets", true),
        ("of all", true),
        ("bytes of all", true),
        ("ratio", true),
        ("ns/packet", true),
    ]);
    let all = analysis.ip();
    for (at, size) in analysis.sizes.iter().enumerate() {
        let name = match (at.checked_sub(1).map(|at| SIZE_ENDS[at]), SIZE_ENDS.get(at)) {
            (_, Some(end)) => format!("to {end}"),
            (Some(above), None) => format!("above {above}"),
            (None, None) => String::new(),
        };
        let sums = size.codecs.first().copied().unwrap_or_default();
        let per = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        out.row([
            name,
            human::count(size.packets),
            human::share(size.packets, all.packets),
            human::share(size.bytes, all.bytes),
            human::ratio(per(sums.compressed, size.measured_bytes)),
            super::nanoseconds(per(sums.ns, size.measured_packets)),
        ]);
    }
    out
}

fn flows(analysis: &Analysis) -> String {
    let flows = &analysis.flows;
    let mut text = format!(
        "{}: half of them have at most {}, the longest {}; half at most {}, the \
         largest {}.",
        human::counted(flows.flows, "flow"),
        human::counted(flows.packets.quantile(0.5), "packet"),
        human::count(flows.packets.max()),
        human::bytes(flows.bytes.quantile(0.5)),
        human::bytes(flows.bytes.max()),
    );
    if let Some(bits) = analysis.entropy.of_all() {
        text.push_str(&format!(" All payloads together have {bits:.2} bits of entropy per byte."));
    }
    text
}
