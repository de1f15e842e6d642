//! Errors in a scenario.

use std::fmt;

use thiserror::Error;

use super::tree::Origin;

/// One error: a sentence that says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    /// The line that it is on, counted from one; `None` if it is about the whole file or about
    /// the command line.
    pub line: Option<usize>,
    /// The table and the key that it is about: ``[compress], `ratio` ``.
    pub place: Option<String>,
    /// The sentence.
    pub message: String,
}

/// Everything that is wrong with a scenario, in the order of its lines. Never empty.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct ScenarioErrors {
    /// The file, as it was named.
    pub file: String,
    /// The errors.
    pub errors: Vec<ScenarioError>,
}

impl ScenarioErrors {
    /// Creates the error of a file that can't be read.
    pub fn whole_file(file: &str, message: String) -> Self {
        let error = ScenarioError { line: None, place: None, message };
        Self { file: file.to_owned(), errors: vec![error] }
    }
}

/// One line for each error: ``fig-8.toml:7: [compress], `ratio`: …``.
impl fmt::Display for ScenarioErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{}:", self.file)?;
            if let Some(line) = error.line {
                write!(f, "{line}:")?;
            }
            if let Some(place) = &error.place {
                write!(f, " {place}:")?;
            }
            write!(f, " {}", error.message)?;
        }
        Ok(())
    }
}

/// Collects errors while a scenario is read.
#[derive(Debug, Default)]
pub(super) struct Errors {
    errors: Vec<ScenarioError>,
}

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
        let error = ScenarioError { line, place, message: message.into() };
        // An error in one point of a sweep occurs in the others too.
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    pub(super) fn into_result<T>(
        mut self,
        file: &str,
        value: Option<T>,
    ) -> Result<T, ScenarioErrors> {
        match value {
            Some(value) if self.errors.is_empty() => Ok(value),
            _ => {
                self.errors.sort_by_key(|error| error.line.unwrap_or(usize::MAX));
                Err(ScenarioErrors { file: file.to_owned(), errors: self.errors })
            }
        }
    }
}
