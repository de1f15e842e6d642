//! A chart as plain text.

use std::fmt::Write as _;

use crate::chart::plan::Plan;
use crate::chart::ruler::{Ruler, Spot};
use crate::chart::{Chart, Kind, Role, data};

const ROWS: usize = 20;
const WIDTH_MIN: usize = 48;
const WIDTH_MAX: usize = 240;
/// The number of characters at which a label of the y axis is cut.
const LABEL_MAX: usize = 16;
/// The most rows of numbers that are printed: nobody reads more.
const DATA_ROWS_MAX: usize = 60;
/// The letter where several marks coincide.
const SEVERAL: char = '*';

/// Returns the plot, the legend and the numbers.
pub(super) fn draw(chart: &Chart, width: usize) -> String {
    let width = width.clamp(WIDTH_MIN, WIDTH_MAX);
    let plan = Plan::new(chart, width / 14, 6);
    let letters = letters(chart);
    let mut out = String::new();
    for line in [&chart.title, &chart.caption, &plan.y.title] {
        if !line.is_empty() {
            // Writing to a string can't fail.
            let _ = writeln!(out, "{}", clean(line));
        }
    }
    let plot = plot(&plan, &letters, width);
    out += &plot;
    for (series, letter) in chart.series.iter().zip(&letters) {
        let _ = writeln!(out, "  {letter}  {}", clean(&series.legend()));
    }
    if plot.contains(SEVERAL) {
        let _ = writeln!(out, "  {SEVERAL}  several");
    }
    for note in plan.notes() {
        let _ = writeln!(out, "{note}");
    }
    out.push('\n');
    out += &clean(&data::table(chart, DATA_ROWS_MAX).to_text());
    let more = data::row_count(chart).saturating_sub(DATA_ROWS_MAX);
    if more > 0 {
        let _ = writeln!(out, "and {more} more rows");
    }
    out
}

/// Replaces all characters that are not printable, which could control a terminal.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect()
}

/// Returns a letter for each series: capitals for ours, small ones for papers'; the same letter for
/// the same name, if it is free.
fn letters(chart: &Chart) -> Vec<char> {
    let mut taken: Vec<(u8, &str, Role)> = Vec::new();
    let mut letters = Vec::new();
    for series in &chart.series {
        let is_paper = series.role == Role::Paper;
        let pairs = |role: Role| matches!(role, Role::Ours | Role::Paper);
        let fits = |&&(_, name, role): &&(u8, &str, Role)| {
            name == series.name && (role == series.role || pairs(role) && pairs(series.role))
        };
        let letter = taken.iter().find(fits).map(|taken| taken.0).unwrap_or_else(|| {
            let used = |letter: &u8| taken.iter().any(|taken| taken.0 == *letter);
            (b'a'..=b'z').chain(b'0'..=b'9').find(|letter| !used(letter)).unwrap_or(b'#')
        });
        taken.push((letter, &series.name, series.role));
        letters.push(char::from(if is_paper { letter } else { letter.to_ascii_uppercase() }));
    }
    letters
}

/// Draws the area of the points, with its axes.
fn plot(plan: &Plan<'_>, letters: &[char], width: usize) -> String {
    let labels = y_labels(&plan.y);
    let margin = labels.iter().flatten().map(|label| label.chars().count()).max().unwrap_or(0);
    let mut grid = Grid::new(width - margin - 2);
    for ((series, slot), &letter) in plan.series().zip(letters) {
        let places: Vec<_> = series.points.iter().map(|point| plan.spots(slot, point)).collect();
        if matches!(series.kind, Kind::Line | Kind::Steps) {
            for pair in places.windows(2) {
                if let (Some(from), Some(to)) = (pair[0], pair[1]) {
                    grid.line(from, to, series.kind == Kind::Steps);
                }
            }
        }
        for (point, spots) in series.points.iter().zip(&places) {
            let Some((Spot::Inside(x), y)) = *spots else { continue };
            let ends = [point.low, point.high].map(|end| end.and_then(|v| plan.y.nearest(v)));
            if let [Some(low), Some(high)] = ends {
                grid.column(x, low, high, '|');
            }
            if plan.is_drawn_as_bars(series) {
                grid.column(x, plan.y.base(), y.along().clamp(0.0, 1.0), letter);
            }
            if !matches!(y, Spot::Outside(_)) {
                grid.mark(x, y.along(), letter);
            }
        }
    }
    let mut out = String::new();
    for (row, label) in grid.rows.iter().zip(&labels) {
        let edge = if label.is_some() { '┤' } else { '│' };
        let cells: String = row.iter().collect();
        let _ =
            writeln!(out, "{:>margin$} {edge}{}", label.as_deref().unwrap_or(""), cells.trim_end());
    }
    out + &x_axis(plan, margin + 1, grid.width)
}

/// Returns for each row, from the top, the label of its tick.
fn y_labels(y: &Ruler) -> Vec<Option<String>> {
    let mut labels = vec![None; ROWS];
    for tick in y.ticks.iter().filter(|tick| !tick.label.is_empty()) {
        if let Some(along) = y.nearest(tick.value) {
            labels[row(along)].get_or_insert_with(|| cut(&tick.label, LABEL_MAX));
        }
    }
    labels
}

fn x_axis(plan: &Plan<'_>, margin: usize, width: usize) -> String {
    let mut line: Vec<char> = vec!['─'; width];
    let mut text: Vec<char> = Vec::new();
    for tick in plan.x.ticks.iter().filter(|tick| !tick.label.is_empty()) {
        let Some(along) = plan.x.nearest(tick.value) else { continue };
        let at = column(along, width);
        line[at] = '┬';
        let label: Vec<char> = cut(&tick.label, width / 2).chars().collect();
        let start = (margin + 1 + at).saturating_sub(label.len() / 2);
        let start = start.min((margin + 1 + width).saturating_sub(label.len()));
        if text.is_empty() || start > text.len() {
            text.resize(start, ' ');
            text.extend(label);
        }
    }
    let indent = " ".repeat(margin);
    let (line, text): (String, String) = (line.into_iter().collect(), text.into_iter().collect());
    let name = cut(&plan.x.title, width);
    let centred = " ".repeat(margin + 1 + (width - name.chars().count()) / 2);
    match name.is_empty() {
        true => format!("{indent}└{line}\n{text}\n"),
        false => format!("{indent}└{line}\n{text}\n{centred}{name}\n"),
    }
}

fn cut(text: &str, max: usize) -> String {
    let text = clean(text).replace('\n', " ");
    match text.chars().count() > max {
        true => text.chars().take(max.saturating_sub(1)).chain(['…']).collect(),
        false => text,
    }
}

/// Cells, from the top.
struct Grid {
    rows: Vec<Vec<char>>,
    width: usize,
}

fn row(along: f64) -> usize {
    ((1.0 - along.clamp(0.0, 1.0)) * (ROWS - 1) as f64).round() as usize
}

fn column(along: f64, width: usize) -> usize {
    (along.clamp(0.0, 1.0) * (width - 1) as f64).round() as usize
}

impl Grid {
    fn new(width: usize) -> Self {
        Self { rows: vec![vec![' '; width]; ROWS], width }
    }

    fn mark(&mut self, x: f64, y: f64, letter: char) {
        let cell = &mut self.rows[row(y)][column(x, self.width)];
        let is_free = matches!(*cell, ' ' | '·' | '|') || *cell == letter;
        *cell = if is_free { letter } else { SEVERAL };
    }

    /// Fills the free cells from row to row.
    fn column(&mut self, x: f64, from: f64, to: f64, with: char) {
        let column = column(x, self.width);
        for row in row(from.max(to))..=row(from.min(to)) {
            self.dot(row, column, with);
        }
    }

    /// A dotted line between two marks.
    fn line(&mut self, from: (Spot, Spot), to: (Spot, Spot), steps: bool) {
        let (x0, y0) = (from.0.along(), from.1.along());
        let (x1, y1) = (to.0.along(), to.1.along());
        if steps {
            self.segment((x0, y0), (x1, y0));
            self.segment((x1, y0), (x1, y1));
        } else {
            self.segment((x0, y0), (x1, y1));
        }
    }

    fn segment(&mut self, (x0, y0): (f64, f64), (x1, y1): (f64, f64)) {
        // Points outside of the axes may be far away: the number of dots has a maximum.
        let cells = ((x1 - x0).abs() * self.width as f64).max((y1 - y0).abs() * ROWS as f64);
        let dots = (cells * 2.0).ceil().clamp(1.0, 4096.0) as u32;
        for at in 0..=dots {
            let share = f64::from(at) / f64::from(dots);
            let (x, y) = (x0 + (x1 - x0) * share, y0 + (y1 - y0) * share);
            if (0.0..=1.0).contains(&x) && (0.0..=1.0).contains(&y) {
                self.dot(row(y), column(x, self.width), '·');
            }
        }
    }

    fn dot(&mut self, row: usize, column: usize, with: char) {
        let cell = &mut self.rows[row][column];
        if *cell == ' ' || *cell == '·' {
            *cell = with;
        }
    }
}
