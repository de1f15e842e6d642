//! The tables, and what is said of the rows that are beyond the limits.

use std::collections::BTreeMap;
use std::path::Path;

use super::verdict::{Limit, Verdict};
use super::{Case, DATA, Numbers, SEEDS, TEST};
use crate::spread::Spread;

const THROUGHPUT: Limit = Limit { share: 0.03, much: 0.0 };
const WAIT: Limit = Limit { share: 0.1, much: 0.0 };
/// Of drops and marks; five of them in half a minute are no matter.
const DROPS: Limit = Limit { share: 0.1, much: 5.0 };

const CONNECTIONS: &str = "| | runs | Mbit/s, Linux | here | | mean wait, Linux | here | | dropped or marked, Linux | here | |\n\
     |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|";
const DATAGRAMS: &str = "| | runs | mean wait, Linux | here | lost, Linux | here | mean run, Linux | here | delay: mean, 50, 90, 99 %, Linux | here | |\n\
     |---|---:|---:|---:|---:|---:|---:|---:|---|---|---|";

/// A case, its runs there and here, and what comes of it.
struct Row<'a> {
    case: Case<'a>,
    there: Vec<Numbers>,
    here: Vec<Numbers>,
    verdict: Verdict,
}

impl<'a> Row<'a> {
    fn new(case: Case<'a>, there: Vec<Numbers>) -> Self {
        let window = there.iter().map(|run| run.window).fold(0.0, f64::max);
        let here = (1..=SEEDS).map(|seed| case.run(seed, window)).collect();
        let mut row = Self { case, there, here, verdict: Verdict::Beyond };
        let limits = row.quantities();
        let verdicts =
            limits.iter().map(|(pair, limit)| Verdict::of(pair, *limit, row.there.len()));
        row.verdict = verdicts.max().expect("quantities");
        row
    }

    fn pair(&self, of: impl Fn(&Numbers) -> f64) -> [Spread; 2] {
        [&self.there, &self.here]
            .map(|runs| Spread::of(&runs.iter().map(&of).collect::<Vec<f64>>()))
    }

    fn rate(&self) -> [Spread; 2] {
        self.pair(|run| run.rate / DATA * 1.5e-3)
    }

    fn wait(&self) -> [Spread; 2] {
        self.pair(|run| run.wait * 1e3)
    }

    fn hits(&self) -> [Spread; 2] {
        self.pair(|run| run.drops + run.marks)
    }

    fn losses(&self) -> [[Spread; 2]; 2] {
        [self.pair(|run| run.lost * 100.0), self.pair(|run| run.run)]
    }

    fn delays(&self) -> [[Spread; 2]; 4] {
        std::array::from_fn(|n| self.pair(|run| run.delays[n] * 1e3))
    }

    /// What is compared, with its limits.
    fn quantities(&self) -> Vec<([Spread; 2], Limit)> {
        if self.case.is_datagrams() {
            // Without losses there is nothing to count; with jitter what is lost is not known here.
            let losses = self.losses().into_iter().filter(|_| self.case.loses());
            let others = losses.chain(self.delays()).map(|pair| (pair, THROUGHPUT));
            return others.chain([(self.wait(), WAIT)]).collect();
        }
        // A transmission of a packet is no matter.
        let wait = Limit { much: self.case.transmission_s() * 1e3, ..WAIT };
        vec![(self.rate(), THROUGHPUT), (self.wait(), wait), (self.hits(), DROPS)]
    }

    fn print(&self, verdict: &str) {
        let (title, runs) = (self.case.title, self.there.len());
        let (rate, wait) = (self.rate(), self.wait());
        if !self.case.is_datagrams() {
            let hits = self.hits();
            println!(
                "| {title} | {runs} | {:.2} | {:.2} | {:+.1} % | {:.1} ms | {:.1} ms | {:+.1} ms | {:.0} | {:.0} | {verdict} |",
                rate[0],
                rate[1],
                rate[1].from(&rate[0]) * 100.0,
                wait[0],
                wait[1],
                wait[1].mean - wait[0].mean,
                hits[0],
                hits[1],
            );
            return;
        }
        let [lost, run] = self.losses();
        let delays = self.delays();
        let all = |which: usize| delays.map(|pair| format!("{:.1}", pair[which].mean)).join(", ");
        let shown = match self.case.loses() {
            true => format!("{:.2} % | {:.2} % | {:.2} | {:.2}", lost[0], lost[1], run[0], run[1]),
            false => "– | – | – | –".to_owned(),
        };
        println!(
            "| {title} | {runs} | {:.2} ms | {:.2} ms | {shown} | {} ms | {} ms | {verdict} |",
            wait[0],
            wait[1],
            all(0),
            all(1),
        );
    }
}

/// Why rows are beyond the limits, by how their titles begin: `reasons.txt` beside the list of cases.
struct Reasons<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Reasons<'a> {
    fn read(text: &'a str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Self(lines.filter_map(|line| line.split_once(" | ")).collect())
    }

    /// The number of the reason for a title.
    fn find(&self, title: &str) -> Option<usize> {
        self.0.iter().position(|(begin, _)| title.starts_with(begin))
    }
}

/// How many rows are what.
#[derive(Default)]
struct Sums {
    within: usize,
    explained: usize,
    few: usize,
    open: usize,
    absent: usize,
}

/// Prints the tables; returns true if all rows are within the limits, or explained by a reason whose test holds.
pub(crate) fn compare(list: &Path, runs: &Path) -> bool {
    let read = |path: &Path| {
        std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let (text, runs, reasons) = (read(list), read(runs), read(&list.with_file_name("reasons.txt")));
    let reasons = Reasons::read(&reasons);
    let mut theirs: BTreeMap<(&str, &str), Vec<Numbers>> = BTreeMap::new();
    for line in runs.lines() {
        let [title, words, numbers] = line.splitn(3, '|').collect::<Vec<_>>()[..] else { continue };
        let words = words.split(" seed=").next().unwrap_or_default();
        theirs.entry((title, words)).or_default().push(Numbers::read(numbers));
    }
    let mut sums = Sums::default();
    let mut rows = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (case, words) = (Case::read(line), line.split(" | ").nth(2).unwrap_or_default());
        match theirs.get(&(case.title.trim_end_matches(TEST), words)) {
            Some(there) => rows.push(Row::new(case, there.clone())),
            None => {
                println!("{}: not run in Linux", case.title);
                sums.absent += 1;
            }
        }
    }
    let mut used = std::collections::BTreeSet::new();
    for is_datagrams in [false, true] {
        println!("{}", if is_datagrams { DATAGRAMS } else { CONNECTIONS });
        for (at, row) in rows.iter().enumerate() {
            if row.case.is_datagrams() == is_datagrams {
                used.extend(judge(row, rows.get(at + 1), &reasons, &mut sums));
            }
        }
        println!();
    }
    for reason in used {
        println!("* [{}] {}", letter(reason), reasons.0[reason].1);
    }
    println!(
        "\n{} rows within, {} explained, {} by too few runs, {} not explained, {} not run in Linux",
        sums.within, sums.explained, sums.few, sums.open, sums.absent
    );
    sums.few + sums.open + sums.absent == 0 && sums.within + sums.explained > 0
}

fn letter(reason: usize) -> char {
    char::from(b'a' + reason as u8)
}

/// Prints a row with what is to be said of it, and counts it; returns the number of the reason that explains it.
fn judge(
    row: &Row<'_>,
    next: Option<&Row<'_>>,
    reasons: &Reasons<'_>,
    sums: &mut Sums,
) -> Option<usize> {
    let title = row.case.title;
    if title.ends_with(TEST) {
        row.print(row.verdict.word());
        return None;
    }
    if row.verdict != Verdict::Beyond {
        *(if row.verdict.is_good() { &mut sums.within } else { &mut sums.few }) += 1;
        row.print(row.verdict.word());
        return None;
    }
    let tests = next.is_some_and(|next| {
        next.case.title.strip_suffix(TEST) == Some(title) && next.verdict.is_good()
    });
    let reason = reasons.find(title).filter(|_| tests);
    match reason {
        Some(reason) => {
            sums.explained += 1;
            row.print(&format!("[{}]", letter(reason)));
        }
        None => {
            sums.open += 1;
            row.print(row.verdict.word());
        }
    }
    reason
}
