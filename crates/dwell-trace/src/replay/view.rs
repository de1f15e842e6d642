//! A replay's report for people and for spreadsheets.

use dwell_figures::Records;
use dwell_figures::chart::{Axis, Chart, Series};
use dwell_figures::csv::Cell;
use dwell_figures::page::{Block, Page, Provenance, Section};
use dwell_policy::Scheme;
use dwell_report::{Column, Table, human};

use super::report::{LaneReport, ReplayReport};
use crate::sides::Rule;
use crate::verdict::Verdict;

/// The most lanes in a chart: more lines can't be distinguished.
const LANES_SHOWN_MAX: usize = 6;

/// Returns the report's direction, and the rule that found it, in words.
pub fn directions(report: &ReplayReport) -> String {
    let direction = &report.direction;
    match (direction.rule, &report.other_direction) {
        (Rule::OneWay, _) => String::new(),
        (rule, other) => {
            let busier =
                if other.is_some() { "the busier direction" } else { "the only direction" };
            format!(
                "Judged: {}, {busier} (by {}: {:.0} % of the bytes agree)\n",
                direction.words(),
                rule.words(),
                direction.agreed * 100.0
            )
        }
    }
}

/// Returns a line about the other direction.
pub fn other_direction(report: &ReplayReport, verdict: Option<&Verdict>) -> Option<String> {
    let (other, verdict) = (report.other_direction.as_ref()?, verdict?);
    Some(format!(
        "The other direction, {}, has {} and {} (load {:.2}). {}",
        other.direction.words(),
        human::counted(other.input.selected.packets, "packet"),
        human::bytes(other.input.selected.bytes),
        other.load(),
        verdict.headline
    ))
}

/// Returns the input of the replay, in a few lines.
pub fn summary(report: &ReplayReport) -> String {
    let input = &report.input;
    // Without any time there is no load.
    let load = match report.span_ns {
        0 => String::new(),
        _ => format!(" (load {:.2})", report.load()),
    };
    let mut text = format!(
        "{}, {} in {}, over a link of {}{load}\n",
        human::counted(input.selected.packets, "packet"),
        human::bytes(input.selected.bytes),
        human::duration(report.span_ns),
        human::rate(report.rate_bps),
    );
    let mut note = |packets: u64, what: &str| {
        if packets > 0 {
            text.push_str(&format!("  {} {what}\n", human::counted(packets, "packet")));
        }
    };
    note(input.not_selected, "from or to elsewhere, left out");
    note(input.malformed, "with broken or cut headers, left out");
    note(input.missing.packets, "cut off in the capture; what lacks counts as incompressible");
    note(input.shortened, "too long for a datagram, cut as their senders would");
    note(input.same_side.packets, "between hosts of one side of the link, left out");
    note(input.too_big.packets, "too long and not to be cut, left out");
    note(input.unordered, "with a time before that of the packet before");
    text
}

/// Returns sentences about schemes with exactly the same result as another before them; they have
/// no row of their own in [`lanes`].
pub fn alike(report: &ReplayReport) -> Vec<String> {
    let mut sentences = Vec::new();
    for (n, lane) in report.lanes.iter().enumerate() {
        let others = report.lanes[n + 1..].iter().filter(|other| first_alike(report, other) == n);
        let others: Vec<&str> = others.map(|other| other.name.as_str()).collect();
        if first_alike(report, lane) == n && !others.is_empty() {
            let chunks = Scheme::preset(others[0]).is_ok_and(|scheme| scheme.fills_frames());
            let why = match chunks && lane.classes.is_empty() {
                true => " (they hold back packets of classes with a deadline, and there are none)",
                false => "",
            };
            sentences.push(format!("The same as {}: {}{why}.", lane.name, others.join(", ")));
        }
    }
    sentences
}

/// Returns the place of the first lane with exactly the same result.
fn first_alike(report: &ReplayReport, lane: &LaneReport) -> usize {
    let same = |other: &LaneReport| {
        let (a, b) = (lane.tx(), other.tx());
        (a.sent, a.link_bytes, a.frames, a.compressed, &a.dropped)
            == (b.sent, b.link_bytes, b.frames, b.compressed, &b.dropped)
            && (lane.delay, &lane.classes) == (other.delay, &other.classes)
            && lane.is_without() == other.is_without()
            && a.tried == b.tried
    };
    report.lanes.iter().position(same).unwrap_or(0)
}

/// The schemes side by side, those left out that are [`alike`].
pub fn lanes(report: &ReplayReport) -> Table {
    let mut table = Table::new([
        Column::left("scheme"),
        Column::right("sent"),
        Column::right("dropped"),
        Column::right("on the link"),
        Column::right("ratio"),
        Column::right("compressed"),
        Column::right("saved"),
        Column::right("delay mean"),
        Column::right("p50"),
        Column::right("p90"),
        Column::right("p99"),
        Column::right("max"),
        Column::right("CPU"),
    ]);
    for lane in distinct(report) {
        let tx = lane.tx();
        let delay = |ns: u64| if tx.sent.packets > 0 { human::duration(ns) } else { "-".into() };
        table.row([
            lane.name.clone(),
            human::count(tx.sent.packets),
            human::share(tx.dropped_total().packets, tx.arrived.packets),
            human::bytes(tx.link_bytes),
            human::ratio(tx.link_ratio()),
            human::share(tx.compressed.packets, tx.sent.packets),
            human::bytes(tx.saved_bytes()),
            delay(lane.delay.mean_ns),
            delay(lane.delay.p50_ns),
            delay(lane.delay.p90_ns),
            delay(lane.delay.p99_ns),
            delay(lane.delay.max_ns),
            human::duration(tx.compress_ns),
        ]);
    }
    table
}

fn distinct(report: &ReplayReport) -> impl Iterator<Item = &LaneReport> {
    let lanes = report.lanes.iter().enumerate();
    lanes.filter(|(n, lane)| first_alike(report, lane) == *n).map(|(_, lane)| lane)
}

/// Returns drops by reason; none if nothing was dropped.
pub fn drops(report: &ReplayReport) -> Option<Table> {
    let reasons: Vec<&String> = report.lanes.first()?.tx().dropped.keys().collect();
    let happened = |reason: &&&String| {
        report
            .lanes
            .iter()
            .any(|lane| lane.tx().dropped.get(**reason).is_some_and(|c| c.packets > 0))
    };
    let reasons: Vec<&&String> = reasons.iter().filter(happened).collect();
    if reasons.is_empty() {
        return None;
    }
    let columns = reasons.iter().map(|reason| Column::right(&reason.replace('_', " ")));
    let mut table = Table::new([Column::left("dropped for")].into_iter().chain(columns));
    for lane in distinct(report) {
        let packets = |reason: &&&String| {
            human::count(lane.tx().dropped.get(**reason).map_or(0, |count| count.packets))
        };
        table.row([lane.name.clone()].into_iter().chain(reasons.iter().map(packets)));
    }
    Some(table)
}

/// Returns classes with a deadline, by scheme; none if there are none.
pub fn deadlines(report: &ReplayReport) -> Option<Table> {
    let mut table = Table::new([
        Column::left("class"),
        Column::left("scheme"),
        Column::right("may wait"),
        Column::right("packets"),
        Column::right("dropped"),
        Column::right("late"),
        Column::right("waited p50"),
        Column::right("p99"),
        Column::right("largest excess"),
    ]);
    let classes = report.lanes.first().map_or(0, |lane| lane.classes.len());
    for n in 0..classes {
        for lane in distinct(report) {
            let Some(class) = lane.classes.get(n) else { continue };
            table.row([
                class.name.clone(),
                lane.name.clone(),
                human::duration(class.wait_ns_max),
                human::count(class.arrived),
                human::share(class.dropped, class.arrived),
                human::share(class.late, class.wait.count),
                human::duration(class.wait.p50_ns),
                human::duration(class.wait.p99_ns),
                if class.late > 0 { human::duration(class.excess.max_ns) } else { "-".into() },
            ]);
        }
    }
    (!table.is_empty()).then_some(table)
}

/// A record for each lane, for spreadsheets.
pub fn records(report: &ReplayReport) -> Records {
    let mut records = Records::default();
    for lane in &report.lanes {
        let tx = lane.tx();
        let mut row: Vec<(String, Cell)> = Vec::new();
        let mut put = |name: &str, cell: Cell| row.push((name.to_owned(), cell));
        put("scheme", lane.name.as_str().into());
        put("rate_bps", report.rate_bps.into());
        put("span_ns", report.span_ns.into());
        for (name, count) in [("arrived", tx.arrived), ("sent", tx.sent)] {
            put(&format!("{name}_packets"), count.packets.into());
            put(&format!("{name}_bytes"), count.bytes.into());
        }
        for (reason, count) in &tx.dropped {
            put(&format!("dropped_{reason}_packets"), count.packets.into());
        }
        put("frames", tx.frames.into());
        put("link_bytes", tx.link_bytes.into());
        put("link_ratio", tx.link_ratio().into());
        put("compressed_packets", tx.compressed.packets.into());
        put("saved_bytes", tx.saved_bytes().into());
        put("compress_ns", tx.compress_ns.into());
        put("busy_ns", lane.busy_ns.into());
        for (name, summary) in [("wait", &tx.sojourn), ("delay", &lane.delay)] {
            put(&format!("{name}_mean_ns"), summary.mean_ns.into());
            put(&format!("{name}_p50_ns"), summary.p50_ns.into());
            put(&format!("{name}_p90_ns"), summary.p90_ns.into());
            put(&format!("{name}_p99_ns"), summary.p99_ns.into());
            put(&format!("{name}_max_ns"), summary.max_ns.into());
        }
        for class in &lane.classes {
            put(&format!("class_{}_packets", class.name), class.arrived.into());
            put(&format!("class_{}_late", class.name), class.late.into());
        }
        records.record(row);
    }
    records
}

/// Returns everything on one page.
pub fn page(report: &ReplayReport, verdict: &Verdict, provenance: Provenance) -> Page {
    let mut answer = Section::new("Would dwell help?")
        .block(Block::Prose(verdict.to_text().replace('\n', "\n\n")));
    if let Some(table) = verdict.to_table() {
        answer = answer.block(Block::Table("What changes".into(), table));
    }
    let mut schemes = Section::new("Schemes")
        .block(Block::Prose(directions(report)))
        .block(Block::Prose(summary(report).replace('\n', "\n\n")))
        .block(Block::Table("All schemes, on the same packets".into(), lanes(report)))
        .block(Block::Prose(alike(report).join(" ")));
    if let Some(table) = drops(report) {
        schemes = schemes.block(Block::Table("Packets dropped, by reason".into(), table));
    }
    let mut sections = vec![answer, schemes];
    if let Some(table) = deadlines(report) {
        let table = Block::Table("Packets that waited longer than they may".into(), table);
        sections.push(Section::new("Deadlines").block(table));
    }
    let shown = shown(report, verdict);
    sections.push(Section::new("Delay").block(Block::Chart(delays(&shown))));
    sections.push(
        Section::new("Time line")
            .block(Block::Chart(delay_line(&shown)))
            .block(Block::Chart(rate_line(report, &shown)))
            .block(Block::Chart(drop_line(&shown))),
    );
    Page { title: "A capture, replayed".into(), provenance, sections }
}

/// Returns the lanes that charts show: without dwell, the best, and the first others in their
/// order.
fn shown<'r>(report: &'r ReplayReport, verdict: &Verdict) -> Vec<&'r LaneReport> {
    let best = verdict.best.as_ref().map(|best| best.scheme.as_str());
    let always = ["none", "all", "packet"];
    let mut lanes: Vec<&LaneReport> = distinct(report).collect();
    lanes.sort_by_key(|lane| {
        let is_best = Some(lane.name.as_str()) == best;
        !(lane.is_without() || is_best || always.contains(&lane.name.as_str()))
    });
    lanes.truncate(LANES_SHOWN_MAX);
    lanes
}

fn delays(lanes: &[&LaneReport]) -> Chart {
    let x = Axis::log("delay").unit("s").floor(1e-6);
    let y = Axis::linear("packets with at most this delay").unit("%").range(0.0, 100.0);
    let chart = Chart::new("Delay from arrival to the last bit on the link", x, y)
        .caption("Packets that were dropped have no delay and are not here.");
    lanes.iter().fold(chart, |chart, lane| {
        let points = lane.delay_quantiles.iter();
        let points = points.map(|&(permille, ns)| (ns as f64 / 1e9, f64::from(permille) / 10.0));
        chart.series(points.fold(Series::line(&lane.name), |series, (x, y)| series.point(x, y)))
    })
}

fn delay_line(lanes: &[&LaneReport]) -> Chart {
    let y = Axis::linear("mean delay").unit("s");
    line("Delay over time", y, lanes, |bin, _| bin.delay_ns_mean().map(|ns| ns as f64 / 1e9))
        .caption("By the time at which packets began to be sent.")
}

fn drop_line(lanes: &[&LaneReport]) -> Chart {
    let y = Axis::linear("packets dropped");
    line("Drops over time", y, lanes, |bin, _| Some(bin.dropped as f64))
}

fn rate_line(report: &ReplayReport, lanes: &[&LaneReport]) -> Chart {
    let y = Axis::linear("rate").unit("bit/s");
    let bps = |bytes: u64, bin_ns: u64| Some(bytes as f64 * 8e9 / bin_ns as f64);
    let mut chart = line("On the link over time", y, lanes, |bin, ns| bps(bin.link_bytes, ns))
        .caption("What arrives is counted without the link's own headers.");
    if let Some(lane) = report.without() {
        chart = chart.series(over_time("arriving", lane, |bin, ns| bps(bin.arrived_bytes, ns)));
    }
    chart
}

fn line(
    title: &str,
    y: Axis,
    lanes: &[&LaneReport],
    value: impl Fn(&super::timeline::Bin, u64) -> Option<f64>,
) -> Chart {
    let chart = Chart::new(title, Axis::linear("time").unit("s"), y);
    lanes.iter().fold(chart, |chart, lane| chart.series(over_time(&lane.name, lane, &value)))
}

fn over_time(
    name: &str,
    lane: &LaneReport,
    value: impl Fn(&super::timeline::Bin, u64) -> Option<f64>,
) -> Series {
    let bin_ns = lane.timeline.bin_ns;
    let points = lane.timeline.bins.iter().enumerate().filter_map(|(n, bin)| {
        let middle_s = (n as f64 + 0.5) * bin_ns as f64 / 1e9;
        Some((middle_s, value(bin, bin_ns)?))
    });
    points.fold(Series::line(name), |series, (x, y)| series.point(x, y))
}
