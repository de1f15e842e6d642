//! Showing results: files in a directory, and text for terminals.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use dwell_figures::claims;
use dwell_figures::page::Provenance;
use dwell_sim::results::{self, Evaluation};

use crate::commands::whole_file::replace;

/// Writes `results.csv`, `report.html` and `figures/*.svg` to a directory, and `series.csv` if there are series.
pub(super) fn write(
    directory: &Path,
    evaluations: &[Evaluation<'_>],
    code: &str,
) -> anyhow::Result<()> {
    replace(&directory.join("results.csv"), &results::csv(evaluations).to_csv())?;
    if let Some(series) = results::series_csv(evaluations) {
        replace(&directory.join("series.csv"), &series.to_csv())?;
    }
    let command = dwell_cli::terminal::command_line();
    let provenance = Provenance { version: code.to_owned(), command, ..Provenance::default() };
    replace(&directory.join("report.html"), &results::page(evaluations, provenance).to_html())?;
    let figures = directory.join("figures");
    fs::create_dir_all(&figures).with_context(|| format!("{} can't be made", figures.display()))?;
    for evaluation in evaluations {
        let scenario = evaluation.scenario;
        for figure in &scenario.figures {
            let name = format!("{}-{}.svg", scenario.id.replace('/', "-"), figure.id);
            replace(&figures.join(name), &results::chart(figure, evaluation).to_svg())?;
        }
    }
    Ok(())
}

/// Writes `tally.md` to a directory: how many of the papers' numbers come out, and what is known about the others.
pub(super) fn write_tally(
    directory: &Path,
    evaluations: &[Evaluation<'_>],
    command: &str,
) -> anyhow::Result<()> {
    replace(&directory.join("tally.md"), &results::tally(evaluations, command))
}

/// For a terminal: what papers say beside what we found.
pub(super) fn claims_text(evaluations: &[Evaluation<'_>]) -> String {
    let all: Vec<_> = evaluations.iter().flat_map(results::claims).collect();
    claims::to_text(&all)
}

/// The same for programs.
pub(super) fn claims_json(evaluations: &[Evaluation<'_>]) -> anyhow::Result<String> {
    let all: Vec<_> = evaluations.iter().flat_map(results::claims).collect();
    let assessed: Vec<_> = all.iter().map(claims::Claim::assessed).collect();
    Ok(serde_json::to_string_pretty(&assessed)? + "\n")
}
