//! Tables of runs along a chain, beside the paper's.

use dwell_report::{Column, Table, human};

use super::super::record::{OnlyPlace, Run};
use super::super::runner;
use super::super::sheet::Row;
use super::super::statistics::{Summary, median};
use super::Chain;
use super::record::{Counts, FORWARDED, FlowCounts, NodeCounts, OPENED};

/// The share of packets compressed at R1 to R9, in percent: Shimamura et al., Table 3.
const TABLE_3: [f64; 9] = [15.8, 11.7, 10.2, 8.6, 7.5, 6.3, 6.0, 5.6, 5.0];

/// All runs, those with transit first.
pub(super) fn all(runs: &[Run<Chain>]) -> String {
    let mut text = runner::head(runs);
    let Some(first) = runs.first() else { return text };
    let conditions = &first.conditions;
    text += &format!(
        "{} relays, links of {}, load {}, packets of {} bytes with {:.0} % text, {} with {}\n",
        conditions.relays,
        conditions.rate,
        conditions.load,
        conditions.packet_bytes,
        conditions.text * 100.0,
        conditions.scheme,
        conditions.codec,
    );
    let rows = runner::rows(runs, &OnlyPlace {});
    for (name, what) in [
        (FORWARDED, "forwarded without decompression"),
        (OPENED, "decompressed and compressed again"),
    ] {
        let Some(Row { runs, .. }) = rows.iter().find(|row| row.name == name) else { continue };
        text += &format!("\nWhat comes compressed is {what}; {} runs\n\n", runs.len());
        text += &nodes(runs).to_text();
        text += &verdict(runs);
        text += "\n";
        text += &flows(runs).to_text();
    }
    text
}

/// Returns the nodes' compression, in medians of the runs.
fn nodes(runs: &[&Counts]) -> Table {
    let mut table = Table::new([
        Column::left("node"),
        Column::right("packets"),
        Column::right("came compressed").unit("%"),
        Column::right("compressed here").unit("%"),
        Column::right("min..max"),
        Column::right("Table 3").unit("%"),
        Column::right("to"),
        Column::right("compress").unit("µs"),
        Column::right("dropped").unit("‰"),
        Column::right("opened here"),
    ]);
    for at in 0..runs.first().map_or(0, |run| run.nodes.len()) {
        let of = |value: fn(&NodeCounts) -> f64| {
            median(runs.iter().filter_map(|run| run.nodes.get(at)).map(value)).unwrap_or_default()
        };
        let Some(share) = shares(runs, at) else { continue };
        let paper = TABLE_3.get(at);
        table.row([
            format!("R{}", at + 1),
            human::count(of(|node| node.arrived as f64) as u64),
            format!("{:.1}", of(NodeCounts::carried_share) * 100.0),
            format!("{:.1}", share.median * 100.0),
            format!("{:.1}..{:.1}", share.min * 100.0, share.max * 100.0),
            paper.map_or_else(|| human::NOTHING.to_owned(), |share| format!("{share:.1}")),
            ratio(
                of(|node| node.compressed_to_bytes as f64),
                of(|node| node.compressed_bytes as f64),
            ),
            format!("{:.0}", of(|node| node.compress_ns as f64 / 1e3 / node.tried.max(1) as f64)),
            format!("{:.1}", of(|node| node.dropped as f64 * 1e3 / node.arrived.max(1) as f64)),
            human::count(of(|node| node.opened as f64) as u64),
        ]);
    }
    table
}

fn ratio(part: f64, whole: f64) -> String {
    if whole > 0.0 { format!("{:.3}", part / whole) } else { human::NOTHING.to_owned() }
}

fn shares(runs: &[&Counts], at: usize) -> Option<Summary> {
    Summary::of(runs.iter().filter_map(|run| run.nodes.get(at)).map(NodeCounts::share))
}

/// Returns a sentence on whether the share falls from node to node, as in the paper.
fn verdict(runs: &[&Counts]) -> String {
    let medians: Vec<f64> = (0..).map_while(|at| shares(runs, at)).map(|it| it.median).collect();
    let falls = medians.first() > medians.last();
    match medians.windows(2).position(|pair| pair[1] >= pair[0]) {
        None => "The share falls from node to node, as in the paper.\n".to_owned(),
        Some(at) if falls => format!(
            "The share falls from the first node to the last, but not from R{} to R{}.\n",
            at + 1,
            at + 2
        ),
        Some(_) => "The share does not fall along the chain, unlike in the paper.\n".to_owned(),
    }
}

/// Returns the delivery of packets, in medians of the runs.
fn flows(runs: &[&Counts]) -> Table {
    let mut table = Table::new([
        Column::left("flow"),
        Column::right("packets"),
        Column::right("lost").unit("‰"),
        Column::right("altered"),
        Column::right("late"),
        Column::right("delay p50"),
        Column::right("p99"),
    ]);
    for at in 0..runs.first().map_or(0, |run| run.flows.len()) {
        let flows = || runs.iter().filter_map(|run| run.flows.get(at));
        let of = |value: fn(&FlowCounts) -> f64| median(flows().map(value)).unwrap_or_default();
        let delay = |value: fn(&FlowCounts) -> Option<u64>| {
            let delay = median(flows().filter_map(value).map(|ns| ns as f64));
            delay.map_or_else(|| human::NOTHING.to_owned(), |ns| human::duration(ns as u64))
        };
        let lost = |flow: &FlowCounts| {
            (flow.sent - flow.received.min(flow.sent)) as f64 * 1e3 / flow.sent.max(1) as f64
        };
        table.row([
            flows().next().map_or_else(String::new, |flow| flow.flow.clone()),
            human::count(of(|flow| flow.sent as f64) as u64),
            format!("{:.1}", of(lost)),
            flows().map(|flow| flow.altered).sum::<u64>().to_string(),
            flows().map(|flow| flow.late).sum::<u64>().to_string(),
            delay(|flow| flow.delay_p50_ns),
            delay(|flow| flow.delay_p99_ns),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::record::Conditions;
    use super::*;
    use crate::record::tests::record;

    fn run(compressed: [u64; 3]) -> Run<Chain> {
        let conditions = Conditions {
            relays: 4,
            rate: dwell_base::Rate::from_mbps(10),
            load: 1.0,
            packet_bytes: 500,
            text: 0.3,
            scheme: "packet".into(),
            codec: "zstd:1".into(),
            seconds: 20.0,
            seed: 1,
        };
        let node = |compressed| NodeCounts {
            arrived: 1000,
            carried: 100,
            compressed,
            tried: 200,
            compress_ns: 24_000_000,
            compressed_bytes: 100,
            compressed_to_bytes: 90,
            ..NodeCounts::default()
        };
        let flow = FlowCounts { sent: 1000, received: 990, ..FlowCounts::default() };
        let counts = Counts {
            nodes: compressed.map(node).to_vec(),
            flows: vec![FlowCounts { flow: "site1 to site4".into(), ..flow }],
        };
        record::<Chain>(conditions, OnlyPlace {}, (FORWARDED, 0), counts)
    }

    #[test]
    fn shares_stand_beside_the_papers() {
        let text = all(&[run([160, 120, 100]), run([150, 110, 90]), run([170, 130, 80])]);
        let row = text.lines().find(|line| line.starts_with("R2")).unwrap_or_default();
        let cells: Vec<_> = row.split_whitespace().collect();
        let expected =
            ["R2", "1,000", "10.0", "12.0", "11.0..13.0", "11.7", "0.900", "120", "0.0", "0"];
        assert_eq!(cells, expected);
        assert!(text.contains("falls from node to node") && !text.contains("fresh"), "{text}");
        let row = text.lines().find(|line| line.starts_with("site1")).unwrap_or_default();
        assert!(row.contains("10.0"), "lost: {row}");
    }

    #[test]
    fn a_share_that_rises_is_reported() {
        let text = all(&[run([100, 90, 95])]);
        assert!(text.contains("to the last, but not from R2 to R3"), "{text}");
        let text = all(&[run([90, 80, 95])]);
        assert!(text.contains("does not fall along the chain"), "{text}");
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let run = run([3, 2, 1]);
        let line = serde_json::to_string(&run).unwrap();
        assert_eq!(serde_json::from_str::<Run<Chain>>(&line).unwrap(), run);
    }
}
