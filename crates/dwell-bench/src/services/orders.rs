//! A table of orders, as COPY writes it: a line for each row, its values separated by tabs.

use std::fmt::Write as _;

use dwell_base::Rng;
use dwell_lab::corpus;

use super::super::http::content::{CITIES, STATES};

/// The columns, in the order of the values.
pub(super) const COLUMNS: &str = "id bigint PRIMARY KEY, reference text, customer integer, city text, \
                                  state text, total numeric(10,2), created timestamp, note text";
/// Notes are sentences of prose, cut to this length, in bytes.
const NOTE_BYTES: usize = 120;

/// Rows, numbered from 1.
#[derive(Debug)]
pub(super) struct Orders {
    text: String,
    /// Where each row ends in the text.
    ends: Vec<usize>,
}

impl Orders {
    /// Makes as many rows as have so many bytes.
    pub(super) fn make(bytes: usize, seed: u64) -> Self {
        let mut rng = Rng::from_seed(seed);
        let prose = String::from_utf8_lossy(&corpus::text(bytes / 2 + 1024, seed)).into_owned();
        let mut notes = prose.split('.').map(plain).filter(|note| !note.is_empty()).cycle();
        let mut this = Self { text: String::with_capacity(bytes + 1024), ends: Vec::new() };
        while this.text.len() < bytes {
            let note = notes.next().unwrap_or_default();
            this.add(&mut rng, &note);
        }
        this
    }

    fn add(&mut self, rng: &mut Rng, note: &str) {
        let mut below = |limit: usize| rng.below(limit as u64);
        let (city, state) =
            (CITIES[below(CITIES.len()) as usize], STATES[below(STATES.len()) as usize]);
        let (reference, customer) = (below(usize::MAX), below(100_000));
        let (euros, cents) = (below(10_000), below(100));
        let (day, hour, minute, second) = (1 + below(28), below(24), below(60), below(60));
        // A `String` takes everything.
        let _ = writeln!(
            self.text,
            "{}\t{reference:016x}\t{customer}\t{city}\t{state}\t{euros}.{cents:02}\t\
             2026-03-{day:02} {hour:02}:{minute:02}:{second:02}\t{note}",
            self.ends.len() + 1,
        );
        self.ends.push(self.text.len());
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the number of first rows that are no longer than this, one at least.
    pub(super) fn rows_in(&self, bytes: usize) -> usize {
        self.ends.partition_point(|&end| end <= bytes).max(1)
    }

    /// Returns the first rows.
    pub(super) fn first(&self, rows: usize) -> &str {
        &self.text[..self.ends[rows - 1]]
    }
}

/// A sentence without what COPY writes in another form.
fn plain(sentence: &str) -> String {
    let words = sentence.split(|c: char| c.is_whitespace() || c.is_control() || c == '\\');
    let mut note = String::with_capacity(NOTE_BYTES + 32);
    for word in words.filter(|word| !word.is_empty()) {
        if note.len() + word.len() > NOTE_BYTES {
            break;
        }
        if !note.is_empty() {
            note.push(' ');
        }
        note.push_str(word);
    }
    note
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_all_columns_and_are_the_same_for_a_seed() {
        let orders = Orders::make(50_000, 1);
        assert!(orders.text.len() >= 50_000 && orders.len() > 200, "{}", orders.len());
        let columns = COLUMNS.replace("(10,2)", "").split(',').count();
        for (number, row) in orders.text.lines().enumerate() {
            assert_eq!(row.split('\t').count(), columns, "{row}");
            assert!(row.starts_with(&format!("{}\t", number + 1)), "{row}");
        }
        assert_eq!(orders.text, Orders::make(50_000, 1).text);
        assert_ne!(orders.text, Orders::make(50_000, 2).text);
    }

    #[test]
    fn first_rows_are_whole() {
        let orders = Orders::make(10_000, 1);
        let rows = orders.rows_in(1000);
        let first = orders.first(rows);
        assert!(first.len() <= 1000 && first.ends_with('\n') && first.lines().count() == rows);
        assert_eq!(orders.rows_in(0), 1);
        assert_eq!(orders.rows_in(usize::MAX), orders.len());
    }
}
