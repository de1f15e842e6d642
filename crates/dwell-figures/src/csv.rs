//! Records as CSV (RFC 4180), for spreadsheets, R and pandas.

use std::collections::BTreeMap;
use std::io;

/// Records with named values. A column exists as soon as one record has it; records that
/// don't have it are empty there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Records {
    columns: Vec<String>,
    places: BTreeMap<String, usize>,
    rows: Vec<Vec<Cell>>,
}

/// A value of a record.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Cell {
    /// No value: nothing is written.
    #[default]
    Empty,
    /// Text, unchanged.
    Text(String),
    /// A count.
    Count(u64),
    /// A number, with as many digits as are needed to read the same number back. Values that are
    /// not numbers are written as `NaN`, `inf` or `-inf`: empty cells would look like values that
    /// were not asked for.
    Number(f64),
}

impl Records {
    /// Makes an empty list of records; these columns come first, in this order.
    pub fn new<'a>(columns: impl IntoIterator<Item = &'a str>) -> Self {
        let mut records = Self::default();
        columns.into_iter().for_each(|column| {
            records.place(column);
        });
        records
    }

    /// Adds a record. New names become columns on the right; if a name comes twice, the
    /// last value counts.
    pub fn record<N, C>(&mut self, values: impl IntoIterator<Item = (N, C)>)
    where
        N: AsRef<str>,
        C: Into<Cell>,
    {
        let mut row = Vec::new();
        for (name, value) in values {
            let place = self.place(name.as_ref());
            if row.len() <= place {
                row.resize(place + 1, Cell::Empty);
            }
            row[place] = value.into();
        }
        self.rows.push(row);
    }

    /// Returns the number of records.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns true if there are no records.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Writes a line with the names and a line for each record. Lines end with `\n`, as Unix
    /// programs expect.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write_to(&self, out: impl io::Write) -> io::Result<()> {
        if self.columns.is_empty() {
            return Ok(());
        }
        let mut writer = csv::Writer::from_writer(out);
        writer.write_record(&self.columns)?;
        for row in &self.rows {
            let missing = self.columns.len() - row.len();
            let cells = row.iter().map(Cell::text);
            writer.write_record(cells.chain(std::iter::repeat_n(String::new(), missing)))?;
        }
        writer.flush()
    }

    /// Returns the same as text.
    pub fn to_csv(&self) -> String {
        let mut out = Vec::new();
        // Writing to memory can't fail.
        let written = self.write_to(&mut out);
        debug_assert!(written.is_ok());
        String::from_utf8_lossy(&out).into_owned()
    }

    fn place(&mut self, column: &str) -> usize {
        if let Some(&place) = self.places.get(column) {
            return place;
        }
        let place = self.columns.len();
        self.columns.push(column.to_owned());
        self.places.insert(column.to_owned(), place);
        place
    }
}

impl Cell {
    fn text(&self) -> String {
        match self {
            Self::Empty => String::new(),
            Self::Text(text) => text.clone(),
            Self::Count(count) => count.to_string(),
            Self::Number(number) if (1e-5..1e16).contains(&number.abs()) => number.to_string(),
            Self::Number(number) if *number == 0.0 || !number.is_finite() => number.to_string(),
            Self::Number(number) => format!("{number:e}"),
        }
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl<C: Into<Self>> From<Option<C>> for Cell {
    fn from(value: Option<C>) -> Self {
        value.map_or(Self::Empty, Into::into)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn records_may_differ() {
        let mut records = Records::new(["scheme", "load"]);
        records.record([("load", Cell::from(0.5)), ("scheme", "none".into())]);
        records.record([("scheme", Cell::from("a,\"b\"\nc")), ("loss", 1e-7.into())]);
        records.record([("runs", Cell::from(10u64)), ("loss", f64::NAN.into())]);
        let expected = "scheme,load,loss,runs\n\
                        none,0.5,,\n\
                        \"a,\"\"b\"\"\nc\",,1e-7,\n\
                        ,,NaN,10\n";
        assert_eq!(records.to_csv(), expected);
        assert_eq!((records.len(), records.is_empty()), (3, false));
    }

    #[test]
    fn nothing_is_an_empty_file() {
        assert_eq!(Records::default().to_csv(), "");
        assert_eq!(Records::new(["a"]).to_csv(), "a\n");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            texts in prop::collection::vec("\\PC{0,9}|[\",\r\n ]{0,5}", 3),
            numbers in prop::collection::vec(any::<f64>(), 3),
        ) {
            let mut records = Records::new(["text", "number"]);
            for (text, number) in texts.iter().zip(&numbers) {
                records.record([("text", Cell::from(text.as_str())), ("number", Cell::from(*number))]);
            }
            let file = records.to_csv();
            let mut reader = csv::Reader::from_reader(file.as_bytes());
            for ((text, number), row) in texts.iter().zip(&numbers).zip(reader.records()) {
                let row = row.unwrap();
                prop_assert_eq!(&row[0], text);
                let back: f64 = row[1].parse().unwrap();
                prop_assert!(back == *number || (back.is_nan() && number.is_nan()));
            }
        }
    }
}
