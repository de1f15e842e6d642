//! The table, and whether what deviates is explained.

use std::collections::BTreeMap;

use crate::case::{Case, Test, cases};
use crate::reasons;

/// The largest deviation of throughput, as a share of ns-3's.
const THROUGHPUT_MAX: f64 = 0.03;
/// The same of the mean wait.
const WAIT_MAX: f64 = 0.1;

/// A case, with means over its seeds: throughput, mean wait, drops, marks, fairness.
pub(crate) struct Row {
    pub(crate) case: Case,
    pub(crate) there: [f64; 5],
    pub(crate) here: [f64; 5],
}

impl Row {
    /// Deviation of throughput, as a share.
    pub(crate) fn throughput(&self) -> f64 {
        self.here[0] / self.there[0] - 1.0
    }

    /// Deviation of the mean wait, as a share.
    pub(crate) fn wait(&self) -> f64 {
        self.here[1] / self.there[1] - 1.0
    }

    /// Returns true if the throughput is within its limit.
    pub(crate) fn throughput_is_near(&self) -> bool {
        self.throughput().abs() <= THROUGHPUT_MAX
    }

    /// Returns true if the mean wait is within its limit.
    pub(crate) fn wait_is_near(&self) -> bool {
        self.wait().abs() <= WAIT_MAX
    }

    /// The difference of the mean waits, in transmissions of a packet.
    pub(crate) fn wait_packets(&self) -> f64 {
        (self.here[1] - self.there[1]) / self.case.transmission_s()
    }

    pub(crate) fn is_near(&self) -> bool {
        self.throughput_is_near() && self.wait_is_near()
    }

    fn print(&self, verdict: &str) {
        let (there, here) = (self.there, self.here);
        println!(
            "| {} | {:.2} | {:.2} | {:+.1} % | {:.1} ms | {:.1} ms | {:+.0} % | {:.0} | {:.0} | {:.2} | {:.2} | {verdict} |",
            self.case.name(),
            there[0] / 1e6,
            here[0] / 1e6,
            self.throughput() * 100.0,
            there[1] * 1e3,
            here[1] * 1e3,
            self.wait() * 100.0,
            there[2] + there[3],
            here[2] + here[3],
            there[4],
            here[4]
        );
    }
}

fn mean(runs: &[[f64; 5]]) -> [f64; 5] {
    std::array::from_fn(|n| runs.iter().map(|run| run[n]).sum::<f64>() / runs.len() as f64)
}

/// Lines of `words|throughput wait wait_max drops marks fairness`, by their words; the largest wait stands beside the rest.
fn theirs(text: &str) -> BTreeMap<&str, Vec<([f64; 5], f64)>> {
    let mut out: BTreeMap<&str, Vec<([f64; 5], f64)>> = BTreeMap::new();
    for line in text.lines() {
        let (words, numbers) = line.split_once('|').expect("words and numbers");
        let numbers: Vec<f64> = numbers.split(' ').map(|n| n.parse().expect("a number")).collect();
        let [rate, wait, wait_max, drops, marks, fairness] = numbers[..] else { panic!("{line}") };
        out.entry(words).or_default().push(([rate, wait, drops, marks, fairness], wait_max));
    }
    out
}

/// Prints the table; returns true if all is within the limits or explained.
pub(crate) fn compare(text: &str) -> bool {
    let theirs = theirs(text);
    println!(
        "| queue | traffic | link | Mbit/s, ns-3 | here | | mean wait, ns-3 | here | | drops + marks, ns-3 | here | fairness, ns-3 | here | |"
    );
    println!("|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|");
    let mut absent = 0;
    let row = |case: Case| {
        let Some(runs) = theirs.get(case.words().as_str()) else {
            absent += 1;
            return None;
        };
        assert_eq!(runs.len() as u64, case.seeds, "runs of {}", case.words());
        let calm = |run: &&([f64; 5], f64)| case.test != Test::Bbr || run.1 < case.rtt_s() / 2.0;
        let counted: Vec<[f64; 5]> = runs.iter().filter(calm).map(|run| run.0).collect();
        let mut there = mean(&counted);
        there[1] += case.behind_s();
        let ours: Vec<[f64; 5]> = (1..=case.seeds).map(|seed| case.run(seed)).collect();
        Some(Row { here: mean(&ours), there, case })
    };
    let rows: Vec<Row> = cases().into_iter().filter_map(row).collect();
    let (mut near, mut explained, mut in_part, mut open) = (0, 0, 0, 0);
    let mut used = std::collections::BTreeMap::new();
    for (at, row) in rows.iter().enumerate() {
        if row.case.test != Test::None {
            row.print("");
            continue;
        }
        let test = rows.get(at + 1).filter(|next| next.case.test != Test::None);
        if row.is_near() {
            near += 1;
            row.print("within");
        } else if let Some(reason) = reasons::find(row, test) {
            used.insert(reason.letter, reason.sentence);
            *(if reason.is_whole { &mut explained } else { &mut in_part }) += 1;
            let part = if reason.is_whole { "" } else { " in part" };
            row.print(&format!("[{}]{part}", reason.letter));
        } else {
            open += 1;
            row.print("✗");
        }
    }
    println!();
    for (letter, sentence) in used {
        println!("* [{letter}] {sentence}.");
    }
    println!(
        "\n{near} rows within {:.0} % of throughput and {:.0} % of the mean wait, {explained} explained, {in_part} in part, {open} not",
        100.0 * THROUGHPUT_MAX,
        100.0 * WAIT_MAX
    );
    if absent > 0 {
        println!("{absent} cases are left out, since ns-3 did not run them");
    }
    open == 0 && absent == 0
}
