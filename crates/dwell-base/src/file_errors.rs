//! Everything that is wrong with a file that people write: configurations, scenarios.

use std::fmt;

use thiserror::Error;

/// One thing that is wrong: a sentence that says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// The line that it is on, counted from one; `None` if it is about the whole file, or about the
    /// command line.
    pub line: Option<usize>,
    /// The table, and perhaps the key, that it is about: ``[node], `tun` ``.
    pub place: Option<String>,
    /// The sentence.
    pub message: String,
}

/// Everything that is wrong with a file, in the order of its lines. Never empty.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct FileErrors {
    /// The file, as it was named.
    pub file: String,
    /// All errors that were found.
    pub errors: Vec<FileError>,
}

impl FileErrors {
    /// Returns the error of a file that could not even be read.
    pub fn whole_file(file: &str, message: String) -> Self {
        let error = FileError { line: None, place: None, message };
        Self { file: file.to_owned(), errors: vec![error] }
    }
}

/// One line for each error: ``site-a.toml:7: [node], `tun`: …``.
impl fmt::Display for FileErrors {
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

/// The errors that have been found while a file is being read.
#[derive(Clone, Debug, Default)]
pub struct FoundErrors(Vec<FileError>);

impl FoundErrors {
    /// Adds an error, unless it is there: what is wrong in a table of defaults, or in one point of a sweep,
    /// comes up again elsewhere.
    pub fn add(&mut self, line: Option<usize>, place: Option<String>, message: String) {
        let error = FileError { line, place, message };
        if !self.0.contains(&error) {
            self.0.push(error);
        }
    }

    /// Returns true if nothing is wrong so far.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns what was read of `file`, if it is all and nothing is wrong.
    ///
    /// # Errors
    /// All that were found, in the order of their lines.
    pub fn into_result<T>(mut self, file: &str, value: Option<T>) -> Result<T, FileErrors> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            _ => {
                self.0.sort_by_key(|error| error.line.unwrap_or(usize::MAX));
                Err(FileErrors { file: file.to_owned(), errors: self.0 })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_reported_once_and_by_line() {
        let mut found = FoundErrors::default();
        found.add(None, None, "[node] is missing".to_owned());
        for line in [9, 3, 9] {
            found.add(Some(line), Some("[node], `tun`".to_owned()), "is too long".to_owned());
        }
        let errors = found.clone().into_result("a.toml", Some(1)).unwrap_err();
        let lines = "a.toml:3: [node], `tun`: is too long\n\
                     a.toml:9: [node], `tun`: is too long\n\
                     a.toml: [node] is missing";
        assert_eq!(errors.to_string(), lines);
        assert!(!found.is_empty());
        assert_eq!(found.into_result::<u8>("a.toml", None), Err(errors));
        assert_eq!(FoundErrors::default().into_result("a.toml", Some(1)), Ok(1));
    }
}
