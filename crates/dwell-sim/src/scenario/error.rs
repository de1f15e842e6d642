//! Errors in a scenario.

use dwell_base::FileErrors;
use dwell_base::file_errors::FoundErrors;

use super::tree::Origin;

/// Collects errors while a scenario is read.
#[derive(Debug, Default)]
pub(super) struct Errors(FoundErrors);

impl Errors {
    /// Adds an error about the key `path`, which came from `origin`.
    pub(super) fn at(&mut self, origin: Origin, path: &str, message: impl Into<String>) {
        let place = match origin {
            Origin::Setting => format!("--set {path}"),
            Origin::Sweep(_) => format!("[[sweep]], `{path}`"),
            Origin::Line(_) => match path.rsplit_once('.') {
                Some((table, key)) => format!("[{table}], `{key}`"),
                None => format!("[{path}]"),
            },
        };
        self.add(origin.line(), Some(place), message);
    }

    pub(super) fn add(
        &mut self,
        line: Option<usize>,
        place: Option<String>,
        message: impl Into<String>,
    ) {
        self.0.add(line, place, message.into());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn into_result<T>(self, file: &str, value: Option<T>) -> Result<T, FileErrors> {
        self.0.into_result(file, value)
    }
}
