//! The demo as pictures: a line of blocks for each run in the terminal, and a page.

use std::fmt::Write as _;

use dwell_figures::chart::{Axis, Chart, Kind, Point, Role, Series};
use dwell_figures::page::{Block, Page, Provenance, Section};
use dwell_report::human;
use serde::Serialize;

use super::summary::{Run, Summary};

/// Moments of a download that are kept; of longer ones every second, fourth... of them.
const MOMENTS_MAX: usize = 512;
/// Columns of the longest run: with its name they fit a terminal.
const COLUMNS: usize = 60;
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// How far a download was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Moment {
    /// The time since its begin.
    pub(super) at_ns: u64,
    /// Bytes of the file that had arrived.
    pub(super) bytes: u64,
}

/// The course of a download, in bounded memory.
#[derive(Clone, Debug)]
pub(super) struct Course {
    moments: Vec<Moment>,
    stride: usize,
    seen: usize,
}

impl Course {
    pub(super) fn new() -> Self {
        Self { moments: Vec::new(), stride: 1, seen: 0 }
    }

    pub(super) fn note(&mut self, moment: Moment) {
        if self.seen.is_multiple_of(self.stride) {
            if self.moments.len() == MOMENTS_MAX {
                let mut at = 0;
                self.moments.retain(|_| {
                    at += 1;
                    at % 2 == 1
                });
                self.stride *= 2;
            }
            self.moments.push(moment);
        }
        self.seen += 1;
    }

    /// Returns the moments, the end last.
    pub(super) fn ended(mut self, end: Moment) -> Vec<Moment> {
        self.moments.retain(|moment| moment.at_ns < end.at_ns);
        self.moments.push(end);
        self.moments
    }
}

/// Returns the bytes that had arrived at a time, evenly between two moments.
fn bytes_at(moments: &[Moment], at_ns: u64) -> f64 {
    let next = moments.partition_point(|moment| moment.at_ns < at_ns);
    let before = next.checked_sub(1).map_or(Moment { at_ns: 0, bytes: 0 }, |at| moments[at]);
    let Some(after) = moments.get(next) else { return before.bytes as f64 };
    let span = after.at_ns.saturating_sub(before.at_ns).max(1) as f64;
    let part = at_ns.saturating_sub(before.at_ns) as f64 / span;
    before.bytes as f64 + (after.bytes.saturating_sub(before.bytes)) as f64 * part.min(1.0)
}

/// Returns the goodput in steps of this length, in bits per second; the last step may be shorter.
fn goodputs(moments: &[Moment], step_ns: u64) -> Vec<f64> {
    let end_ns = moments.last().map_or(0, |moment| moment.at_ns);
    let steps = end_ns.div_ceil(step_ns.max(1));
    let of_step = |step: u64| {
        let (from, to) = (step * step_ns, ((step + 1) * step_ns).min(end_ns));
        (bytes_at(moments, to) - bytes_at(moments, from)) * 8e9 / (to - from).max(1) as f64
    };
    (0..steps).map(of_step).collect()
}

/// Draws the goodput of some runs of a file over time, a line each. A shorter line was done sooner.
pub(super) fn lines(runs: &[&Run]) -> String {
    let longest_ns = runs.iter().map(|run| run.download.duration_ns).max().unwrap_or(0);
    let step_ns = longest_ns.div_ceil(COLUMNS as u64).max(1);
    let all: Vec<Vec<f64>> =
        runs.iter().map(|run| goodputs(&run.download.course, step_ns)).collect();
    let most = all.iter().flatten().copied().fold(1.0, f64::max);
    let name_len = runs.iter().map(|run| run.name().chars().count()).max().unwrap_or(0);
    let mut out = format!(
        "goodput over time, {} a column, up to {}:\n",
        human::duration(step_ns),
        human::rate(most as u64)
    );
    for (run, goodputs) in runs.iter().zip(&all) {
        let block = |bps: &f64| {
            let level = (bps / most * LEVELS.len() as f64).ceil() as usize;
            LEVELS[level.clamp(1, LEVELS.len()) - 1]
        };
        let blocks: String = goodputs.iter().map(block).collect();
        // Writing to a string can't fail.
        let _ = writeln!(out, "{:name_len$}  {blocks}", run.name());
    }
    out
}

/// The whole demo as a page.
pub(super) fn page(summary: &Summary, command: &str) -> String {
    let mut sections = vec![
        Section::new("What was gained, and what was lost")
            .block(Block::Prose(summary.balance().join("\n\n"))),
    ];
    for file in summary.files() {
        let runs: Vec<&Run> = summary.runs.iter().filter(|run| run.file == file).collect();
        let section = Section::new(&format!("The file \"{file}\""))
            .block(Block::Chart(over_time(file, &runs)))
            .block(Block::Table("Each run in figures".to_owned(), summary.table(file, &runs)));
        sections.push(section);
    }
    let how = format!(
        "{}\n\n{}",
        summary.introduction().replace('\n', " "),
        summary.sentences().join("\n\n")
    );
    sections.push(Section::new("How it was made").block(Block::Prose(how)));
    let page = Page {
        title: "dwell on a slow link".to_owned(),
        provenance: Provenance {
            version: summary.version.to_owned(),
            command: command.to_owned(),
            ..Provenance::default()
        },
        sections,
    };
    page.to_html()
}

fn over_time(file: &str, runs: &[&Run]) -> Chart {
    let mut x = Axis::linear("time");
    x.unit = "s".to_owned();
    let mut y = Axis::linear("goodput");
    y.unit = "bit/s".to_owned();
    let caption = "Each line ends when the file is there: shorter is better.";
    let chart = Chart::new(&format!("Goodput of the download of {file}"), x, y).caption(caption);
    runs.iter().fold(chart, |chart, run| {
        let course = &run.download.course;
        let step_ns = (run.download.duration_ns / 100).max(250_000_000);
        let goodputs = goodputs(course, step_ns);
        let point = |(step, bps): (usize, f64)| Point {
            x: (step as f64 + 0.5) * step_ns as f64 / 1e9,
            y: bps,
            low: None,
            high: None,
        };
        chart.series(Series {
            name: run.name().to_owned(),
            kind: Kind::Line,
            role: Role::Ours,
            points: goodputs.into_iter().enumerate().map(point).collect(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(at_s: f64, bytes: u64) -> Moment {
        Moment { at_ns: (at_s * 1e9) as u64, bytes }
    }

    #[test]
    fn goodput_is_of_the_time_between() {
        let moments = [moment(1.0, 1_000), moment(2.0, 1_000), moment(2.5, 2_000)];
        assert_eq!(goodputs(&moments, 1_000_000_000), [8_000.0, 0.0, 16_000.0]);
        assert_eq!(goodputs(&moments, 500_000_000), [8_000.0, 8_000.0, 0.0, 0.0, 16_000.0]);
        assert_eq!(goodputs(&[], 5), [0.0; 0]);
        assert_eq!(goodputs(&[moment(0.0, 5)], 5), [0.0; 0]);
    }

    #[test]
    fn a_long_download_is_kept_in_bounded_memory() {
        let mut course = Course::new();
        for at in 0..100_000 {
            course.note(Moment { at_ns: at, bytes: at });
        }
        let moments = course.ended(Moment { at_ns: 100_000, bytes: 100_000 });
        assert!(moments.len() <= MOMENTS_MAX + 1, "{}", moments.len());
        assert!(moments.is_sorted_by_key(|moment| moment.at_ns));
        assert!(goodputs(&moments, 10_000).iter().all(|bps| (bps - 8e9).abs() < 1e8));
    }
}
