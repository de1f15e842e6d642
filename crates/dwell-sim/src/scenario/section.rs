//! Strict parsing of a table: every key must be known, every error has its place.

use dwell_base::text::{printable, suggest};

use super::error::Errors;
use super::tree::{Located, Origin, Table, Value};

/// A table of a scenario that is being read.
#[derive(Clone, Debug)]
pub(super) struct Section<'t> {
    path: String,
    table: &'t Table,
    origin: Origin,
}

impl<'t> Section<'t> {
    /// The table at `path`, if it is there and is one.
    pub(super) fn of(tree: &'t Table, path: &str, errors: &mut Errors) -> Option<Self> {
        Self::from(tree.at(path)?, path, errors)
    }

    pub(super) fn from(located: &'t Located, path: &str, errors: &mut Errors) -> Option<Self> {
        match &located.value {
            Value::Table(table) => {
                Some(Self { path: path.to_owned(), table, origin: located.origin })
            }
            other => {
                let message = format!("must be a table, not {}", other.described());
                errors.at(located.origin, path, message);
                None
            }
        }
    }

    /// A table within this one.
    pub(super) fn inner(&self, key: &str, errors: &mut Errors) -> Option<Self> {
        Self::from(self.table.get(key)?, &self.path_of(key), errors)
    }

    /// The tables within this table of tables, with their names.
    pub(super) fn all_inner(&self, errors: &mut Errors) -> Vec<(&'t str, Self)> {
        self.table
            .iter()
            .filter_map(|(key, located)| {
                Some((key, Self::from(located, &self.path_of(key), errors)?))
            })
            .collect()
    }

    fn path_of(&self, key: &str) -> String {
        format!("{}.{key}", self.path)
    }

    /// Returns true if a key is there, with whatever value.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.get(key).is_some()
    }

    /// Reports every key that is not one of `keys`.
    pub(super) fn refuse_unknown(&self, keys: &[&str], errors: &mut Errors) {
        self.refuse_unknown_but(keys, |_| None, errors);
    }

    /// As [`Self::refuse_unknown`]; `elsewhere` may say where a key belongs.
    pub(super) fn refuse_unknown_but(
        &self,
        keys: &[&str],
        elsewhere: impl Fn(&str) -> Option<String>,
        errors: &mut Errors,
    ) {
        for (key, located) in self.table.iter().filter(|(key, _)| !keys.contains(key)) {
            let hint = elsewhere(key).unwrap_or_else(|| suggest(key, keys));
            // The key is named in the sentence; the place is its table.
            let place = match located.origin {
                Origin::Line(_) => format!("[{}]", self.path),
                Origin::Setting => format!("--set {}", self.path_of(key)),
                Origin::Sweep(_) => format!("[[sweep]], `{}`", self.path_of(key)),
            };
            let message = format!("there is no key `{}` here: {hint}", printable(key));
            errors.add(located.origin.line(), Some(place), message);
        }
    }

    /// The value of `key`, if it is there and `read` accepts it.
    pub(super) fn get<T>(
        &self,
        key: &str,
        errors: &mut Errors,
        read: impl FnOnce(&Value) -> Result<T, String>,
    ) -> Option<T> {
        let located = self.table.get(key)?;
        match read(&located.value) {
            Ok(value) => Some(value),
            Err(message) => {
                errors.at(located.origin, &self.path_of(key), message);
                None
            }
        }
    }

    /// The value of a key that must be there; `example` is how it might be written.
    pub(super) fn need<T>(
        &self,
        key: &str,
        example: &str,
        errors: &mut Errors,
        read: impl FnOnce(&Value) -> Result<T, String>,
    ) -> Option<T> {
        if !self.has(key) {
            self.fail_whole(
                format!("`{key}` is missing: add for instance {key} = {example}"),
                errors,
            );
            return None;
        }
        self.get(key, errors, read)
    }

    /// The value of a key, or what stands for it if it is missing (or wrong, which is reported).
    pub(super) fn or<T>(
        &self,
        key: &str,
        default: T,
        errors: &mut Errors,
        read: impl FnOnce(&Value) -> Result<T, String>,
    ) -> T {
        self.get(key, errors, read).unwrap_or(default)
    }

    /// The items of a list, if it is there and `read` accepts all.
    pub(super) fn list<T>(
        &self,
        key: &str,
        example: &str,
        errors: &mut Errors,
        read: impl Fn(&Value) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let located = self.table.get(key)?;
        let Value::List(items) = &located.value else {
            let found = located.value.described();
            let message = format!("must be a list such as {example}, not {found}");
            errors.at(located.origin, &self.path_of(key), message);
            return None;
        };
        let mut out = Vec::with_capacity(items.len());
        for item in items {
            match read(&item.value) {
                Ok(value) => out.push(value),
                Err(message) => errors.at(item.origin, &self.path_of(key), message),
            }
        }
        (out.len() == items.len()).then_some(out)
    }

    /// The value of a key as it stands.
    pub(super) fn raw(&self, key: &str) -> Option<&'t Located> {
        self.table.get(key)
    }

    /// Reports what is wrong with the value of `key`.
    pub(super) fn fail(&self, key: &str, message: impl Into<String>, errors: &mut Errors) {
        let origin = self.table.get(key).map_or(self.origin, |located| located.origin);
        errors.at(origin, &self.path_of(key), message);
    }

    /// Reports what is wrong with the table as a whole.
    pub(super) fn fail_whole(&self, message: impl Into<String>, errors: &mut Errors) {
        errors.add(self.origin.line(), Some(format!("[{}]", self.path)), message);
    }
}
