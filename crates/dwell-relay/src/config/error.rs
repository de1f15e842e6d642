//! Errors of configuration files.

use dwell_base::FileErrors;
use dwell_base::file_errors::FoundErrors;

/// Gathers errors while a file is read.
pub(super) struct Errors<'a> {
    text: &'a str,
    found: FoundErrors,
}

impl<'a> Errors<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, found: FoundErrors::default() }
    }

    /// The line that the byte `offset` is on, counted from one.
    pub(super) fn line_of(&self, offset: usize) -> usize {
        let before = &self.text.as_bytes()[..offset.min(self.text.len())];
        1 + before.iter().filter(|&&byte| byte == b'\n').count()
    }

    pub(super) fn add(&mut self, line: Option<usize>, place: Option<String>, message: String) {
        self.found.add(line, place, message);
    }

    pub(super) fn into_result<T>(self, file: &str, value: Option<T>) -> Result<T, FileErrors> {
        self.found.into_result(file, value)
    }
}
