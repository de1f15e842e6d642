//! `dwell trace merge`: adding analyses up.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use dwell_report::human;
use dwell_trace::Analysis;

use super::output::Output;
use dwell_cli::terminal;

const AFTER_HELP: &str = "\
Examples:
  dwell trace merge monday.json tuesday.json                 as if both were analysed at once
  dwell trace merge day-*.json --html week.html --out week.json

The parts are files that `dwell trace analyze --out` has written, all with the same settings. The
sum is exact as long as none of them had more pairs of ports than are distinguished (65,536).

Exit codes:
  0  the job is done
  1  a part can't be read, they don't add up, or two have the same capture
  2  the command line is wrong";

/// Add up what several analyses found
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Merge {
    /// Files that `dwell trace analyze --out` has written
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    output: Output,
}

impl Merge {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let mut whole: Option<Analysis> = None;
        for path in &self.files {
            let part = read(path).with_context(|| {
                format!("{} is no analysis of `dwell trace analyze --out`", path.display())
            })?;
            match &mut whole {
                None => whole = Some(part),
                Some(whole) => distinct(whole, &part)
                    .and_then(|()| whole.merge(part).map_err(anyhow::Error::from))
                    .with_context(|| format!("{} can't be added to the others", path.display()))?,
            }
        }
        // The command line has at least one.
        let whole = whole.context("there is nothing to merge")?;
        let folded = whole.pairs.folded_packets;
        if folded > 0 {
            terminal::note(&format!(
                "of {} only the server's port is counted, as a part had too many pairs of ports: analysed at \
                 once, that might be of others",
                human::counted(folded, "packet")
            ));
        }
        self.output.show(&whole)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Refuses a part with a capture that is there already: it would count twice.
fn distinct(whole: &Analysis, part: &Analysis) -> anyhow::Result<()> {
    for file in part.files.iter().filter(|file| file.frames.packets > 0) {
        if let Some(same) = whole.files.iter().find(|other| other.fingerprint == file.fingerprint) {
            anyhow::bail!(
                "its capture {} has the same packets as {}, which another part has: they would \
                 count twice, so leave one of the parts out",
                file.name,
                same.name
            );
        }
    }
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<Analysis> {
    let analysis: Analysis = serde_json::from_reader(BufReader::new(File::open(path)?))?;
    let expected = dwell_trace::analysis::SCHEMA;
    anyhow::ensure!(
        analysis.schema == expected,
        "its format is {}, and this program reads {expected}",
        analysis.schema
    );
    analysis.check()?;
    Ok(analysis)
}
