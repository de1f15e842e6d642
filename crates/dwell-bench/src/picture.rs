//! `./x bench picture`: draws the documents' pictures from the figures that were measured.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use dwell_figures::chart::{Axis, Chart, Kind, Series};
use serde::Deserialize;

const AFTER_HELP: &str = "\
Examples:
  ./x bench picture                      docs/figures/*.json to docs/figures/*.svg
  ./x bench picture my/figures.json      my/figures.json to my/figures.svg

A file holds measured figures, each beside the one without a tunnel of the same runs; the picture
shows their quotient. After new measurements, write the figures into the page that they come from and
into the file, and draw again: a test compares all three.

Exit codes:
  0    everything is drawn
  1    a file can't be read or written
  2    the command line is wrong";

/// Draw the documents' pictures from their measured figures
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Picture {
    /// Files of figures; each picture is written beside its file
    #[arg(value_name = "FILE", default_values = ["docs/figures/links.json", "docs/figures/streams.json"])]
    files: Vec<PathBuf>,
}

/// The figures of a picture, as a file has them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Figures {
    title: String,
    /// The name of the groups of bars.
    x: String,
    y: String,
    caption: String,
    /// The name of the line at 1.
    line: String,
    rows: Vec<Row>,
}

/// A figure: the height of a bar.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// The group of bars.
    contender: String,
    /// The bar's place in its group.
    workload: String,
    /// The figure as its page prints it: `9.49`, `27,689`.
    value: String,
    /// The figure without a tunnel, of the same runs and in the same unit.
    without: String,
    /// The page that has both, from the project's root.
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers and the test"))]
    page: String,
}

impl Picture {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        for file in &self.files {
            let picture = file.with_extension("svg");
            let svg = Figures::read(file)?.chart()?.to_svg();
            fs::write(&picture, svg).with_context(|| picture.display().to_string())?;
            println!("{}", picture.display());
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Figures {
    fn read(file: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        serde_json::from_str(&text).with_context(|| file.display().to_string())
    }

    /// Lays the figures out as groups of bars, in the order in which the file names them, with a
    /// line at 1.
    fn chart(&self) -> anyhow::Result<Chart> {
        let groups = distinct(self.rows.iter().map(|row| row.contender.as_str()));
        let workloads = distinct(self.rows.iter().map(|row| row.workload.as_str()));
        let mut chart = Chart::new(
            &self.title,
            Axis::of(&self.x, groups.iter().copied()),
            Axis::linear(&self.y),
        )
        .caption(&self.caption);
        for workload in workloads {
            let mut bars = Series::bars(workload);
            for row in self.rows.iter().filter(|row| row.workload == workload) {
                let group = groups.iter().position(|group| *group == row.contender);
                bars = bars.point(group.unwrap_or_default() as f64, row.quotient()?);
            }
            chart = chart.series(bars);
        }
        let level = [-0.5, groups.len() as f64 - 0.5].map(|x| (x, 1.0));
        Ok(chart.series(Series::new(&self.line, Kind::Steps).with(level)))
    }
}

impl Row {
    fn quotient(&self) -> anyhow::Result<f64> {
        let [value, without] = [number(&self.value)?, number(&self.without)?];
        ensure!(
            without > 0.0,
            "{}, {}: nothing can be divided by 0",
            self.contender,
            self.workload
        );
        Ok(value / without)
    }
}

/// Reads a number as pages print it, with commas between thousands.
fn number(text: &str) -> anyhow::Result<f64> {
    text.replace(',', "").parse().with_context(|| format!("{text:?} is not a number"))
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

    fn all() -> Vec<(PathBuf, Figures)> {
        ["links", "streams"]
            .map(|name| Path::new(ROOT).join(format!("docs/figures/{name}.json")))
            .map(|file| (file.clone(), Figures::read(&file).unwrap()))
            .into()
    }

    #[test]
    fn the_pictures_are_drawn_from_their_figures() {
        for (file, figures) in all() {
            let drawn = figures.chart().unwrap().to_svg();
            let kept = fs::read_to_string(file.with_extension("svg")).unwrap();
            assert!(drawn == kept, "{}: draw it again with ./x bench picture", file.display());
        }
    }

    #[test]
    fn the_figures_are_those_of_their_pages() {
        for (file, figures) in all() {
            for row in &figures.rows {
                let page = fs::read_to_string(Path::new(ROOT).join(&row.page)).unwrap();
                let cells = |line: &str| -> Vec<String> {
                    line.split('|').flat_map(|cell| cell.split_whitespace()).map(plain).collect()
                };
                for figure in [&row.value, &row.without] {
                    let is_there = page
                        .lines()
                        .filter(|line| line.starts_with('|'))
                        .any(|line| cells(line).contains(figure));
                    assert!(is_there, "{}: no table of {} has {figure}", file.display(), row.page);
                }
            }
        }
    }

    fn plain(word: &str) -> String {
        word.trim_matches('*').to_owned()
    }

    #[test]
    fn a_picture_shows_quotients_and_where_nothing_is_gained() {
        let figures: Figures = serde_json::from_str(
            r#"{"title": "t", "x": "x", "y": "y", "caption": "", "line": "no tunnel", "rows": [
                {"contender": "a", "workload": "w", "value": "27,000", "without": "9,000", "page": ""},
                {"contender": "b", "workload": "w", "value": "0.5", "without": "1", "page": ""},
                {"contender": "b", "workload": "v", "value": "1", "without": "1", "page": ""}]}"#,
        )
        .unwrap();
        let chart = figures.chart().unwrap();
        assert_eq!(chart.x.categories, ["a", "b"]);
        let points = |at: usize| -> Vec<(f64, f64)> {
            chart.series[at].points.iter().map(|point| (point.x, point.y)).collect()
        };
        assert_eq!((points(0), points(1)), (vec![(0.0, 3.0), (1.0, 0.5)], vec![(1.0, 1.0)]));
        assert_eq!(points(2), [(-0.5, 1.0), (1.5, 1.0)]);
    }

    #[test]
    fn a_figure_that_is_no_number_is_an_error() {
        for (value, without) in [("fast", "1"), ("1", "0"), ("1", "")] {
            let row = Row {
                contender: String::new(),
                workload: String::new(),
                value: value.to_owned(),
                without: without.to_owned(),
                page: String::new(),
            };
            assert!(row.quotient().is_err(), "{value} {without}");
        }
    }
}
