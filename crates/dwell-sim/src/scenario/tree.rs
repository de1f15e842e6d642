//! A TOML document as a tree of values, each of which knows its origin.
//!
//! Sweeps and `--set` change values of the tree by their dotted paths before anything is read from
//! it. So they can reach every value that affects runs, and errors in their values are reported
//! with the place of the sweep.

use std::fmt::Write as _;

use dwell_base::text::printable;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::Errors;

/// The origin of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A line of the scenario, counted from one.
    Line(usize),
    /// `--set` on the command line.
    Setting,
    /// A `[[sweep]]` on this line.
    Sweep(usize),
}

impl Origin {
    /// The line, if it has one.
    pub(super) fn line(self) -> Option<usize> {
        match self {
            Self::Line(line) | Self::Sweep(line) => Some(line),
            Self::Setting => None,
        }
    }
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A string.
    Text(String),
    /// A whole number.
    Whole(i64),
    /// A number with a fraction.
    Real(f64),
    /// True or false.
    Truth(bool),
    /// A list.
    List(Vec<Located>),
    /// A table.
    Table(Table),
}

/// A value and its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Located {
    /// The value.
    pub value: Value,
    /// Its origin.
    pub origin: Origin,
    /// Of a number that is written in the file with a point, its digits behind it.
    pub decimals: Option<u8>,
}

/// Keys with their values, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    entries: Vec<(String, Located)>,
}

impl Table {
    /// The value of a key of this very table.
    pub fn get(&self, key: &str) -> Option<&Located> {
        self.entries.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// Keys and values, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Located)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// The value at a dotted path.
    pub fn at(&self, path: &str) -> Option<&Located> {
        let Some((first, rest)) = path.split_once('.') else { return self.get(path) };
        self.get(first)?.value.as_table()?.at(rest)
    }

    /// Takes a key out.
    pub(super) fn remove(&mut self, key: &str) -> Option<Located> {
        let at = self.entries.iter().position(|(name, _)| name == key)?;
        Some(self.entries.remove(at).1)
    }

    /// Changes the table at a key of this very table, if there is one.
    pub(super) fn edit(&mut self, key: &str, change: impl FnOnce(&mut Self)) {
        let found = self.entries.iter_mut().find(|(name, _)| name == key);
        if let Some((_, Located { value: Value::Table(table), .. })) = found {
            change(table);
        }
    }

    fn put(&mut self, key: &str, value: Located) {
        match self.entries.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = value,
            None => self.entries.push((key.to_owned(), value)),
        }
    }

    /// Puts a value at a dotted path; missing tables along the path are made. Fails if something
    /// along the path is no table; the error names it.
    pub(super) fn set(&mut self, path: &str, value: Located) -> Result<(), String> {
        let Some((first, rest)) = path.split_once('.') else {
            self.put(path, value);
            return Ok(());
        };
        if self.get(first).is_none() {
            self.put(
                first,
                Located {
                    value: Value::Table(Self::default()),
                    origin: value.origin,
                    decimals: None,
                },
            );
        }
        let inner = self.entries.iter_mut().find(|(name, _)| name == first);
        match inner {
            Some((_, Located { value: Value::Table(table), .. })) => {
                table.set(rest, value).map_err(|within| format!("{first}.{within}"))
            }
            _ => Err(first.to_owned()),
        }
    }

    /// Returns all values that are no tables, by their dotted paths: `a.b = 1` and `"a.b" = 1`
    /// alike.
    pub(super) fn flat(&self) -> Vec<(String, &Located)> {
        let mut out = Vec::new();
        for (key, located) in self.iter() {
            match &located.value {
                Value::Table(table) => out.extend(
                    table.flat().into_iter().map(|(path, value)| (format!("{key}.{path}"), value)),
                ),
                _ => out.push((key.to_owned(), located)),
            }
        }
        out
    }
}

impl Value {
    /// Returns the name of its type, with its article.
    pub(super) fn described(&self) -> &'static str {
        match self {
            Self::Text(_) => "a string",
            Self::Whole(_) => "a number",
            Self::Real(_) => "a number with a fraction",
            Self::Truth(_) => "true or false",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
        }
    }

    /// The table, if it is one.
    pub fn as_table(&self) -> Option<&Table> {
        match self {
            Self::Table(table) => Some(table),
            _ => None,
        }
    }

    /// The string, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns true if both mean the same: `1` is `1.0`.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Whole(whole), Self::Real(real)) | (Self::Real(real), Self::Whole(whole)) => {
                *whole as f64 == *real
            }
            _ => self.canonical() == other.canonical(),
        }
    }

    /// Returns the same text for the same value, whatever the order of keys and the place in the
    /// file. Hashes are made of it.
    pub fn canonical(&self) -> String {
        let mut out = String::new();
        self.write_canonical(&mut out);
        out
    }

    fn write_canonical(&self, out: &mut String) {
        // Writing to a string can't fail.
        let _ = match self {
            Self::Text(text) => write!(out, "{text:?}"),
            Self::Whole(number) => write!(out, "{number}"),
            Self::Real(number) => write!(out, "{number:?}"),
            Self::Truth(truth) => write!(out, "{truth}"),
            Self::List(items) => {
                out.push('[');
                for item in items {
                    item.value.write_canonical(out);
                    out.push(',');
                }
                write!(out, "]")
            }
            Self::Table(table) => {
                let mut entries: Vec<_> = table.iter().collect();
                entries.sort_by_key(|&(key, _)| key);
                out.push('{');
                for (key, located) in entries {
                    let _ = write!(out, "{key:?}:");
                    located.value.write_canonical(out);
                    out.push(',');
                }
                write!(out, "}}")
            }
        };
    }

    /// Returns the value for people: as in the file, without quotes.
    pub fn shown(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            other => other.canonical(),
        }
    }
}

/// Reads a document; `None` if it is no TOML.
pub(super) fn parse(text: &str, errors: &mut Errors) -> Option<Table> {
    let lines = Lines(text);
    match DeTable::parse(text) {
        Ok(document) => table(document.get_ref(), &|offset| Origin::Line(lines.of(offset)), errors),
        Err(error) => {
            let line = error.span().map(|span| lines.of(span.start));
            let message = format!("this is not TOML: {}", printable(error.message()));
            errors.add(line, None, message);
            None
        }
    }
}

/// Reads one value as the right side of `key = …`; text that is no TOML is a string, so that quotes
/// may be left out on a command line.
pub(super) fn parse_value(text: &str) -> Value {
    let document = format!("value = {text}");
    let parsed = DeTable::parse(&document).ok().and_then(|document| {
        let document = document.get_ref();
        if document.len() != 1 {
            return None;
        }
        let mut errors = Errors::default();
        let value = convert(document.get("value")?, &|_| Origin::Setting, &mut errors)?;
        errors.is_empty().then_some(value.value)
    });
    parsed.unwrap_or_else(|| Value::Text(text.to_owned()))
}

struct Lines<'t>(&'t str);

impl Lines<'_> {
    fn of(&self, offset: usize) -> usize {
        let before = &self.0.as_bytes()[..offset.min(self.0.len())];
        1 + before.iter().filter(|&&byte| byte == b'\n').count()
    }
}

fn table(
    source: &DeTable<'_>,
    origin: &dyn Fn(usize) -> Origin,
    errors: &mut Errors,
) -> Option<Table> {
    // The library sorts by name; people's order is that of the file.
    let mut entries: Vec<_> = source.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let mut out = Table::default();
    for (key, value) in entries {
        out.put(key.get_ref(), convert(value, origin, errors)?);
    }
    Some(out)
}

fn convert(
    source: &Spanned<DeValue<'_>>,
    origin: &dyn Fn(usize) -> Origin,
    errors: &mut Errors,
) -> Option<Located> {
    let origin_here = origin(source.span().start);
    let value = match source.get_ref() {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(number) => Value::Whole(number),
            Err(_) => {
                let message = format!("{} is too large a number", printable(integer.as_str()));
                errors.add(origin_here.line(), None, message);
                return None;
            }
        },
        DeValue::Float(float) => Value::Real(float.as_str().parse().ok()?),
        DeValue::Boolean(truth) => Value::Truth(*truth),
        DeValue::Datetime(date) => Value::Text(date.to_string()),
        DeValue::Array(items) => Value::List(
            items.iter().map(|item| convert(item, origin, errors)).collect::<Option<_>>()?,
        ),
        DeValue::Table(inner) => Value::Table(table(inner, origin, errors)?),
    };
    let decimals = match source.get_ref() {
        DeValue::Float(float) => decimals(float.as_str()),
        _ => None,
    };
    Some(Located { value, origin: origin_here, decimals })
}

/// Returns the number of digits behind the point; none for what is not written out, such as `1e3` or `nan`.
fn decimals(written: &str) -> Option<u8> {
    let (_, digits) = written.split_once('.')?;
    let are_digits = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    let count = digits.bytes().filter(u8::is_ascii_digit).count();
    are_digits.then(|| u8::try_from(count).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_behind_the_point_are_those_that_are_written() {
        let counts = ["0.0003", "0.800", "1_0.2_5", "1e3", "1.5e3", "nan"].map(decimals);
        assert_eq!(counts, [Some(4), Some(3), Some(2), None, None, None]);
    }

    fn tree(text: &str) -> Table {
        let mut errors = Errors::default();
        parse(text, &mut errors).unwrap()
    }

    #[test]
    fn paths_reach_into_tables() {
        let mut tree = tree("[compress]\nratio = 0.5\n[a.b]\nc = 1\n");
        assert_eq!(tree.at("compress.ratio").unwrap().origin, Origin::Line(2));
        let nine = Located { value: Value::Whole(9), origin: Origin::Setting, decimals: None };
        tree.set("a.b.c", nine.clone()).unwrap();
        tree.set("new.key", nine.clone()).unwrap();
        assert_eq!(tree.at("a.b.c").unwrap().value, Value::Whole(9));
        assert_eq!(tree.at("new.key").unwrap().value, Value::Whole(9));
        assert_eq!(tree.set("a.b.c.d", nine), Err("a.b.c".to_owned()));
    }

    #[test]
    fn canonical_texts_do_not_depend_on_order() {
        let (one, other) = (tree("b = 1\na = [\"x\", 2.0]"), tree("a = ['x', 2.0]\n\nb = 1"));
        assert_eq!(Value::Table(one).canonical(), Value::Table(other).canonical());
        assert!(Value::Whole(2).is_same(&Value::Real(2.0)));
        assert!(!Value::Whole(2).is_same(&Value::Text("2".to_owned())));
    }

    #[test]
    fn values_on_a_command_line_need_no_quotes() {
        assert_eq!(parse_value("200us"), Value::Text("200us".to_owned()));
        assert_eq!(parse_value("\"none\""), Value::Text("none".to_owned()));
        assert_eq!(parse_value("0.5"), Value::Real(0.5));
        assert_eq!(parse_value("-3"), Value::Whole(-3));
        assert_eq!(parse_value("1\nother = 2"), Value::Text("1\nother = 2".to_owned()));
        assert!(matches!(parse_value("[1, 2]"), Value::List(items) if items.len() == 2));
    }

    #[test]
    fn keys_keep_the_order_of_the_file() {
        let tree = tree("[z]\n[a]\n[m]\n");
        assert_eq!(tree.iter().map(|(key, _)| key).collect::<Vec<_>>(), ["z", "a", "m"]);
    }
}
