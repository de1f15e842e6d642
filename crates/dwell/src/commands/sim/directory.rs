//! The directory of results: a file of JSON lines, with which an interrupted sweep goes on.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use dwell_sim::results::{Dropped, RunRecord, Store, Task, line};

use crate::commands::whole_file::replace;
use dwell_cli::terminal;

/// The file in a directory of results.
pub(super) const RESULTS: &str = "results.jsonl";

/// A file that runs are appended to; or none, if nobody wants to keep them.
#[derive(Debug)]
pub(super) struct Journal {
    file: Option<(PathBuf, File)>,
}

impl Journal {
    /// Keeps nothing.
    pub(super) fn none() -> Self {
        Self { file: None }
    }

    /// Opens a file of results, with what is in it.
    pub(super) fn open(path: &Path) -> anyhow::Result<(Self, Store)> {
        let shown = path.display();
        if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty())
        {
            let made = fs::create_dir_all(directory);
            made.with_context(|| format!("{} can't be made", directory.display()))?;
        }
        let (store, dropped) = read(path)?;
        if !dropped.is_empty() {
            if store.is_empty() {
                bail!(
                    "{shown} has no run in it: it is no file of results; name another one, or \
                       remove it"
                );
            }
            let aside = set_aside(path, &dropped)?;
            terminal::note(&format!(
                "{shown}: {}; moved to {}",
                reported(&dropped),
                aside.display()
            ));
            // Or the next run would be written behind half a line.
            replace(path, &store.to_text(&[], ""))?;
        }
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.with_context(|| format!("{shown} can't be written"))?;
        Ok((Self { file: Some((path.to_owned(), file)) }, store))
    }

    /// Adds a run.
    pub(super) fn append(&mut self, record: &RunRecord) -> anyhow::Result<()> {
        if let Some((path, file)) = &mut self.file {
            file.write_all(line(record).as_bytes())
                .with_context(|| format!("{} can't be written", path.display()))?;
        }
        Ok(())
    }

    /// Leaves no file behind that has no run in it, nor a directory that was made for it.
    pub(super) fn discard_empty(self) {
        let Some((path, file)) = self.file else { return };
        if file.metadata().is_ok_and(|about| about.len() == 0) && fs::remove_file(&path).is_ok() {
            // A directory with anything else in it stays.
            let directory = path.parent().filter(|_| path.ends_with(RESULTS));
            drop(directory.map(fs::remove_dir));
        }
    }

    /// Puts the runs in the order of the tasks, whatever order they were run in.
    pub(super) fn sort(self, store: &Store, tasks: &[Task<'_>], code: &str) -> anyhow::Result<()> {
        match self.file {
            Some((path, _)) => replace(&path, &store.to_text(tasks, code)),
            None => Ok(()),
        }
    }
}

/// The runs in a file; none if there is no file.
pub(super) fn read(path: &Path) -> anyhow::Result<(Store, Vec<Dropped>)> {
    match fs::read(path) {
        // A crash can leave anything at the end of a file.
        Ok(bytes) => Ok(Store::parse(&String::from_utf8_lossy(&bytes))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Default::default()),
        Err(error) => Err(error).with_context(|| format!("{} can't be read", path.display())),
    }
}

/// Returns a sentence on the lines that are no runs, and what is wrong with the first:
/// `1 line is no run: line 3 is only half written`.
pub(super) fn reported(dropped: &[Dropped]) -> String {
    let count = match dropped.len() {
        1 => "1 line is no run".to_owned(),
        count => format!("{count} lines are no runs, the first of them"),
    };
    dropped.first().map(|first| format!("{count}: {first}")).unwrap_or_default()
}

/// Adds lines to FILE.dropped.
fn set_aside(path: &Path, dropped: &[Dropped]) -> anyhow::Result<PathBuf> {
    let aside = beside(path, ".dropped");
    let text: String = dropped.iter().map(|dropped| format!("{}\n", dropped.text)).collect();
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(&aside)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("{} can't be written", aside.display()))?;
    Ok(aside)
}

/// The file with this at the end of its name.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(ending);
    path.with_file_name(name)
}
