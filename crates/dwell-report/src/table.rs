//! Tables of text, for terminals and for Markdown pages.

use std::fmt::Write as _;

/// A column: its name, its unit, and the alignment of its cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    header: String,
    right: bool,
}

impl Column {
    /// Makes a column of words.
    pub fn left(header: &str) -> Self {
        Self { header: header.to_owned(), right: false }
    }

    /// Makes a column of numbers.
    pub fn right(header: &str) -> Self {
        Self { header: header.to_owned(), right: true }
    }

    /// Adds the unit of the numbers to the header: `delay [ms]`.
    #[must_use]
    pub fn unit(mut self, unit: &str) -> Self {
        // Writing to a string can't fail.
        let _ = write!(self.header, " [{unit}]");
        self
    }

    /// True for a column of numbers.
    pub fn is_right(&self) -> bool {
        self.right
    }
}

/// A table: columns, and rows of cells. All cells are text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

/// The gap between the columns of a text table.
const GAP: &str = "  ";

impl Table {
    /// Makes a table without rows.
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self { columns: columns.into_iter().collect(), rows: Vec::new() }
    }

    /// Adds a row. Missing cells are empty; cells beyond the last column are left out.
    pub fn row<C: Into<String>>(&mut self, cells: impl IntoIterator<Item = C>) {
        let mut row: Vec<String> = cells.into_iter().map(Into::into).collect();
        debug_assert_eq!(row.len(), self.columns.len(), "a cell for each column");
        row.resize(self.columns.len(), String::new());
        self.rows.push(row);
    }

    /// Returns true if it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the table as plain text: a header, and columns that are as wide as they must be.
    /// Ends with a line end.
    pub fn to_text(&self) -> String {
        let widths = self.widths();
        let mut out = String::new();
        for row in self.lines() {
            let start = out.len();
            for ((cell, column), &width) in row.iter().zip(&self.columns).zip(&widths) {
                if out.len() > start {
                    out.push_str(GAP);
                }
                pad(&mut out, cell, column.right, width);
            }
            out.truncate(out.trim_end_matches(' ').len());
            out.push('\n');
        }
        out
    }

    /// Returns the table in Markdown. Ends with a line end.
    pub fn to_markdown(&self) -> String {
        let mut out = String::new();
        for (at, row) in self.lines().into_iter().enumerate() {
            for cell in row {
                let _ = write!(out, "| {} ", cell.replace('|', "\\|"));
            }
            out.push_str("|\n");
            if at == 0 {
                for column in &self.columns {
                    out.push_str(if column.right { "|---:" } else { "|---" });
                }
                out.push_str("|\n");
            }
        }
        out
    }

    /// Returns the columns.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Returns the header and the rows.
    pub fn lines(&self) -> Vec<Vec<&str>> {
        let header = self.columns.iter().map(|column| column.header.as_str()).collect();
        let rows = self.rows.iter().map(|row| row.iter().map(String::as_str).collect());
        std::iter::once(header).chain(rows).collect()
    }

    fn widths(&self) -> Vec<usize> {
        let width = |column: usize| {
            self.lines().iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
        };
        (0..self.columns.len()).map(width).collect()
    }
}

fn pad(out: &mut String, cell: &str, right: bool, width: usize) {
    let space = width - cell.chars().count().min(width);
    let (before, after) = if right { (space, 0) } else { (0, space) };
    out.extend(std::iter::repeat_n(' ', before));
    out.push_str(cell);
    out.extend(std::iter::repeat_n(' ', after));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table() -> Table {
        let mut table = Table::new([
            Column::left("scheme"),
            Column::right("delay").unit("µs"),
            Column::left("outcome"),
        ]);
        table.row(["none", "39.2", "slow"]);
        table.row(["packet", "0.3", "a|b"]);
        table
    }

    #[test]
    fn numbers_are_on_the_right() {
        let text = "scheme  delay [µs]  outcome\n\
                    none          39.2  slow\n\
                    packet         0.3  a|b\n";
        assert_eq!(table().to_text(), text);
    }

    #[test]
    fn markdown_has_the_same_columns() {
        let text = "| scheme | delay [µs] | outcome |\n\
                    |---|---:|---|\n\
                    | none | 39.2 | slow |\n\
                    | packet | 0.3 | a\\|b |\n";
        assert_eq!(table().to_markdown(), text);
    }

    #[test]
    fn a_table_may_be_empty() {
        assert_eq!(Table::new([]).to_text(), "\n");
        assert_eq!(Table::new([Column::left("a")]).to_text(), "a\n");
        assert!(Table::new([]).is_empty() && !table().is_empty());
    }

    proptest! {
        #[test]
        fn columns_line_up(cells in prop::collection::vec("[a-z0-9]{1,9}", 1..20)) {
            let mut table = Table::new([Column::right("left"), Column::right("right")]);
            cells.iter().for_each(|cell| table.row([cell, "1"]));
            let text = table.to_text();
            let widths: Vec<usize> = text.lines().map(|line| line.chars().count()).collect();
            prop_assert!(widths.iter().all(|width| *width == widths[0]), "{text}");
        }
    }
}
