//! Reading a TOML table strictly: every key must be known, every error has its place.

use dwell_base::text::{printable, suggest};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::Errors;

/// A value and the line that it is on.
#[derive(Clone, Debug)]
pub(super) struct Located<T> {
    pub(super) value: T,
    pub(super) line: usize,
}

/// A table and what it is called.
pub(super) struct Table<'t> {
    place: String,
    table: &'t DeTable<'t>,
    /// The line that it begins on.
    pub(super) line: usize,
}

impl<'t> Table<'t> {
    pub(super) fn new(place: String, table: &'t DeTable<'t>, line: usize) -> Self {
        Self { place, table, line }
    }

    /// Tells every key that is not one of `keys`; `elsewhere` may say where it belongs.
    pub(super) fn refuse_unknown(
        &self,
        keys: &[&str],
        elsewhere: impl Fn(&str) -> Option<String>,
        errors: &mut Errors<'_>,
    ) {
        for key in self.table.keys() {
            let name = key.get_ref().as_ref();
            if keys.contains(&name) {
                continue;
            }
            let hint = elsewhere(name).unwrap_or_else(|| suggest(name, keys));
            let line = errors.line_of(key.span().start);
            let message = format!("there is no key `{}` here: {hint}", printable(name));
            errors.add(Some(line), Some(self.place.clone()), message);
        }
    }

    /// Returns true if `key` is there, with whatever value.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Returns true if `key` is there, and something in its list (or it is no list at all).
    pub(super) fn has_items(&self, key: &str) -> bool {
        let value = self.table.get(key).map(Spanned::get_ref);
        value.is_some_and(|value| value.as_array().is_none_or(|items| !items.is_empty()))
    }

    /// The value of `key`, if it is there and `read` accepts it.
    pub(super) fn get<T>(
        &self,
        key: &str,
        errors: &mut Errors<'_>,
        read: impl FnOnce(&DeValue<'_>) -> Result<T, String>,
    ) -> Option<Located<T>> {
        let value = self.table.get(key)?;
        self.read_at(key, value, errors, read)
    }

    /// The items of the array `key`; those that `read` does not accept are left out.
    pub(super) fn get_list<T>(
        &self,
        key: &str,
        example: &str,
        errors: &mut Errors<'_>,
        read: impl Fn(&DeValue<'_>) -> Result<T, String>,
    ) -> Option<Vec<Located<T>>> {
        let value = self.table.get(key)?;
        let Some(items) = value.get_ref().as_array() else {
            let found = super::value::describe(value.get_ref());
            let message = format!("must be a list such as {example}, not {found}");
            self.fail(key, errors.line_of(value.span().start), message, errors);
            return None;
        };
        Some(items.iter().filter_map(|item| self.read_at(key, item, errors, &read)).collect())
    }

    fn read_at<T>(
        &self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        errors: &mut Errors<'_>,
        read: impl FnOnce(&DeValue<'_>) -> Result<T, String>,
    ) -> Option<Located<T>> {
        let line = errors.line_of(value.span().start);
        match read(value.get_ref()) {
            Ok(value) => Some(Located { value, line }),
            Err(message) => {
                self.fail(key, line, message, errors);
                None
            }
        }
    }

    /// Tells what is wrong with the value of `key`.
    pub(super) fn fail(&self, key: &str, line: usize, message: String, errors: &mut Errors<'_>) {
        errors.add(Some(line), Some(format!("{}, `{key}`", self.place)), message);
    }

    /// Tells what is wrong with the table as a whole.
    pub(super) fn fail_whole(&self, message: String, errors: &mut Errors<'_>) {
        errors.add(Some(self.line), Some(self.place.clone()), message);
    }
}
