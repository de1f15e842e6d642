//! The legend: the name of each line.

use crate::chart::plan::Plan;
use crate::chart::svg::style::{INK, MUTED, MarkAt, PAPER, SeriesStyle};
use crate::chart::svg::{LABEL_SIZE, Px, measure, series};
use crate::chart::{Kind, Series};
use crate::markup::Markup;

/// The legend: entries in rows.
pub(super) struct Legend<'a> {
    entries: Vec<Entry<'a>>,
    rows: usize,
    /// The meaning of an arrow, if there are any.
    floor: Option<String>,
}

struct Entry<'a> {
    series: &'a Series,
    style: SeriesStyle,
    as_bars: bool,
    text: String,
    row: usize,
    x: f64,
}

const ROW_HEIGHT: f64 = 21.0;
const SWATCH_WIDTH: f64 = 30.0;
const SWATCH_GAP: f64 = 7.0;
const ENTRY_GAP: f64 = 20.0;
const TEXT_WIDTH_MAX: f64 = 320.0;

impl<'a> Legend<'a> {
    /// Puts the entries into rows of `width`.
    pub(super) fn new(plan: &Plan<'a>, width: f64) -> Self {
        let texts: Vec<String> =
            plan.chart.series.iter().map(|series| text(series, width)).collect();
        // Ours and the paper's side by side, where they come in pairs.
        let in_pairs = plan.slots.windows(2).any(|pair| pair[0] == pair[1]);
        let places = places(&texts, width, in_pairs);
        let rows = places.last().map_or(0, |(row, _)| row + 1);
        let mut entries = Vec::new();
        for (((series, slot), text), (row, x)) in plan.series().zip(texts).zip(places) {
            let style = SeriesStyle::new(slot, series.role);
            let as_bars = plan.is_drawn_as_bars(series);
            entries.push(Entry { series, style, as_bars, text, row, x });
        }
        let any_at_floor = plan.chart.series.iter().any(|series| plan.is_at_floor(series));
        let floor = plan.y.floor_label().filter(|_| any_at_floor);
        let floor = floor.map(|label| {
            format!("Arrows: at or below the end of the axis ({label}), set side by side.")
        });
        Self { entries, rows, floor }
    }

    pub(super) fn height(&self) -> f64 {
        self.rows as f64 * ROW_HEIGHT
    }

    /// Returns a remark to be shown below the chart.
    pub(super) fn note(&self) -> Option<&str> {
        self.floor.as_deref()
    }

    pub(super) fn draw(&self, out: &mut Markup, left: f64, top: f64) {
        for entry in &self.entries {
            let (x, y) = (left + entry.x, top + (entry.row as f64 + 0.5) * ROW_HEIGHT);
            entry.draw(out, x, y);
            out.line();
        }
    }
}

fn text(series: &Series, width: f64) -> String {
    let room = (width - SWATCH_WIDTH - SWATCH_GAP).min(TEXT_WIDTH_MAX);
    measure::fit(&series.legend(), LABEL_SIZE, room)
}

/// Rows and places from the left: side by side if all fit into one row, else in columns.
fn places(texts: &[String], width: f64, in_pairs: bool) -> Vec<(usize, f64)> {
    let wide =
        |text: &String| SWATCH_WIDTH + SWATCH_GAP + measure::width(text, LABEL_SIZE) + ENTRY_GAP;
    let widths: Vec<f64> = texts.iter().map(wide).collect();
    if widths.iter().sum::<f64>() - ENTRY_GAP <= width {
        let mut x = 0.0;
        let next = |wide: &f64| {
            x += wide;
            (0, x - wide)
        };
        return widths.iter().map(next).collect();
    }
    let widest = widths.iter().copied().fold(1.0, f64::max);
    let columns = (((width + ENTRY_GAP) / widest) as usize).max(1);
    let columns = if in_pairs && columns > 1 { columns / 2 * 2 } else { columns };
    (0..texts.len()).map(|at| (at / columns, (at % columns) as f64 * widest)).collect()
}

impl Entry<'_> {
    fn draw(&self, out: &mut Markup, x: f64, y: f64) {
        let middle = x + SWATCH_WIDTH / 2.0;
        out.open("g", &[]);
        out.element("title", &[], &self.series.legend());
        if self.as_bars {
            series::bar(out, self.style, (x + 8.0, y - 6.0), (14.0, 12.0));
        } else {
            if matches!(self.series.kind, Kind::Line | Kind::Steps) {
                let path = format!("M{} {}H{}", Px(x), Px(y), Px(x + SWATCH_WIDTH));
                series::stroke(out, self.style, &path);
            }
            if series::has_marks(self.series, self.style) {
                series::mark(out, self.style, (middle, y), MarkAt::Value, PAPER);
            }
        }
        let is_ours = !self.style.is_hollow();
        let (class, colour) = if is_ours { ("ink", INK) } else { ("muted", MUTED) };
        let x = x + SWATCH_WIDTH + SWATCH_GAP;
        out.element(
            "text",
            &[("class", &class), ("fill", &colour), ("x", &Px(x)), ("y", &Px(y + 4.5))],
            &self.text,
        );
        out.close();
    }
}
