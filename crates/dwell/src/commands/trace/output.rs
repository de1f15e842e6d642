//! Showing analyses: text, JSON, one page, and the lists that a relay reads.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use anyhow::Context as _;
use dwell_figures::page::Provenance;
use dwell_trace::document::OfAnalysis;
use dwell_trace::{Analysis, Lists, Summary, report};

use crate::commands::whole_file::{replace, replace_with};
use dwell_cli::terminal;

/// The options that say where results are written.
#[derive(Debug, clap::Args)]
pub(super) struct Output {
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    /// Write the JSON to a file too; `dwell trace merge` adds such files up
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write the report as a page with charts
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the classes that expand, and estimates of the others, for a relay's
    /// exceptions_file
    #[arg(long, value_name = "FILE")]
    exceptions: Option<PathBuf>,
    /// Number of classes to show, those with the most bytes first
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    top: usize,
}

impl Output {
    pub(super) fn show(&self, analysis: &Analysis) -> anyhow::Result<()> {
        let summary = Summary::of(analysis);
        if let Some(path) = &self.exceptions {
            let lists = Lists::of(analysis, &summary)
                .context("without codecs there are no exceptions: leave out --no-codecs")?;
            replace(path, &lists.to_toml()?)?;
        }
        let command = terminal::command_line();
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let provenance = Provenance { version, command, ..Provenance::default() };
        let page = report::page(analysis, &summary, self.top, provenance);
        if let Some(path) = &self.html {
            replace(path, &page.to_html())?;
        }
        let document = OfAnalysis::new(analysis, &summary);
        if let Some(path) = &self.out {
            replace_with(path, |file| write(&document, file))?;
        }
        match self.json {
            true => write(&document, &mut BufWriter::new(io::stdout().lock()))?,
            false => terminal::print(&report::text(&page))?,
        }
        Ok(())
    }
}

/// Writes a line, bit by bit: as text it can be longer than all that it is about.
fn write(document: &OfAnalysis<'_>, to: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(&mut *to, document)?;
    to.write_all(b"\n")?;
    to.flush()
}
