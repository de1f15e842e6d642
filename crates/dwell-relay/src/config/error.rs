//! Errors of configuration files.

use std::fmt;

use thiserror::Error;

/// One thing that is wrong: a sentence that says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The line that it is on, counted from one; `None` if it is about the whole file.
    pub line: Option<usize>,
    /// The table, and perhaps the key, that it is in: ``[node], `tun` ``.
    pub place: Option<String>,
    /// The sentence.
    pub message: String,
}

/// Everything that is wrong with a configuration file, in the order of its lines. Never empty.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct ConfigErrors {
    /// The file, as it was named.
    pub file: String,
    /// All errors that were found.
    pub errors: Vec<ConfigError>,
}

impl ConfigErrors {
    /// That a file could not even be read.
    pub(super) fn whole_file(file: &str, message: String) -> Self {
        let error = ConfigError { line: None, place: None, message };
        Self { file: file.to_owned(), errors: vec![error] }
    }
}

/// One line for each error: `site-a.toml:7: [node], `tun`: …`.
impl fmt::Display for ConfigErrors {
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

/// Gathers errors while a file is read.
pub(super) struct Errors<'a> {
    text: &'a str,
    errors: Vec<ConfigError>,
}

impl<'a> Errors<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, errors: Vec::new() }
    }

    /// The line that the byte `offset` is on, counted from one.
    pub(super) fn line_of(&self, offset: usize) -> usize {
        let before = &self.text.as_bytes()[..offset.min(self.text.len())];
        1 + before.iter().filter(|&&byte| byte == b'\n').count()
    }

    pub(super) fn add(&mut self, line: Option<usize>, place: Option<String>, message: String) {
        let error = ConfigError { line, place, message };
        // What is wrong in [defaults] may come up again with every peer.
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    pub(super) fn into_errors(mut self, file: &str) -> ConfigErrors {
        self.errors.sort_by_key(|error| error.line.unwrap_or(usize::MAX));
        ConfigErrors { file: file.to_owned(), errors: self.errors }
    }
}
