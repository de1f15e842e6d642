//! Lines, marks, bars and error bars.

use crate::chart::plan::Plan;
use crate::chart::ruler::Spot;
use crate::chart::svg::geometry::{Frame, Place, thin};
use crate::chart::svg::style::{MarkAt, PAPER, SeriesStyle};
use crate::chart::svg::{INSET, Px};
use crate::chart::{Kind, Point, Series};
use crate::markup::Markup;
use dwell_report::human;

/// With more points than these a line has no marks.
const MARKS_MAX: usize = 60;

/// The largest distance between the arrows of different series, and from the first to the last.
const FLOOR_STEP: f64 = 9.0;
const FLOOR_SPREAD: f64 = 54.0;

/// Half of the width of an error bar's ends.
const CAP: f64 = 4.0;

/// A series within the frame of its chart.
pub(super) struct Pen<'a> {
    pub(super) plan: &'a Plan<'a>,
    pub(super) frame: Frame,
    pub(super) series: &'a Series,
    pub(super) slot: usize,
}

/// Returns true if its points have marks.
pub(super) fn has_marks(series: &Series, style: SeriesStyle) -> bool {
    match series.kind {
        Kind::Points | Kind::Bars => true,
        Kind::Line => style.has_marks() && series.points.len() <= MARKS_MAX,
        Kind::Steps => false,
    }
}

impl Pen<'_> {
    /// Draws the series.
    pub(super) fn draw(&self, out: &mut Markup) {
        out.open("g", &[]);
        out.element("title", &[], &self.series.legend());
        let as_bars = self.plan.is_drawn_as_bars(self.series);
        if as_bars {
            self.bars(out);
        }
        if matches!(self.series.kind, Kind::Line | Kind::Steps) {
            self.area(out);
        } else {
            self.series.points.iter().for_each(|point| self.error_bar(out, point));
        }
        if matches!(self.series.kind, Kind::Line | Kind::Steps) {
            self.line(out);
        }
        if has_marks(self.series, self.style()) {
            self.series.points.iter().for_each(|point| self.mark(out, point, as_bars));
        }
        out.close();
        out.line();
    }

    fn style(&self) -> SeriesStyle {
        SeriesStyle::new(self.slot, self.series.role)
    }

    /// A point's place, which may be outside.
    fn place(&self, point: &Point) -> Option<Place> {
        let (x, y) = self.plan.spots(self.slot, point)?;
        Some(self.frame.place(x.along(), y.along()))
    }

    fn line(&self, out: &mut Markup) {
        let points: Vec<_> = self.series.points.iter().map(|point| self.place(point)).collect();
        let mut path = String::new();
        let mut pen: Option<Place> = None;
        for pair in thin(&points).windows(2) {
            let (Some(from), Some(to)) = (pair[0], pair[1]) else { continue };
            let corner = (to.0, from.1);
            let legs = match self.series.kind {
                Kind::Steps => vec![(from, corner), (corner, to)],
                _ => vec![(from, to)],
            };
            for (from, to) in legs.into_iter().filter_map(|(a, b)| self.frame.clip(a, b)) {
                if pen != Some(from) {
                    path += &format!("M{} {}", Px(from.0), Px(from.1));
                }
                path += &format!("L{} {}", Px(to.0), Px(to.1));
                pen = Some(to);
            }
        }
        if !path.is_empty() {
            stroke(out, self.style(), &path);
            out.line();
        }
    }

    fn mark(&self, out: &mut Markup, point: &Point, on_bar: bool) {
        let Some((Spot::Inside(x), y)) = self.plan.spots(self.slot, point) else { return };
        let at = match y {
            Spot::Inside(_) if on_bar => return,
            Spot::Inside(_) => MarkAt::Value,
            Spot::Floor => MarkAt::Floor,
            Spot::Outside(_) => return,
        };
        out.open("g", &[]);
        out.element("title", &[], &self.tip(point));
        let (x, y) = self.frame.place(x, y.along());
        let shift = if at == MarkAt::Floor { self.floor_shift() } else { 0.0 };
        let place = ((x + shift).clamp(self.frame.left - INSET, self.frame.right() + INSET), y);
        // A paper's mark does not hide ours; on a bar it would not be seen without a ground.
        let ground = if self.series.kind == Kind::Bars { PAPER } else { "none" };
        mark(out, self.style(), place, at, ground);
        out.close();
        out.line();
    }

    /// Arrows at the floor are drawn side by side, because all of them have the same height.
    fn floor_shift(&self) -> f64 {
        let all = &self.plan.chart.series;
        let at_floor: Vec<&Series> = all.iter().filter(|s| self.plan.is_at_floor(s)).collect();
        let here = at_floor.iter().position(|other| std::ptr::eq(*other, self.series));
        let middle = (at_floor.len().max(1) - 1) as f64 / 2.0;
        let step = (FLOOR_SPREAD / at_floor.len().max(1) as f64).min(FLOOR_STEP);
        (here.unwrap_or(0) as f64 - middle) * step
    }

    fn bars(&self, out: &mut Markup) {
        let width = self.plan.bar_width() * self.frame.width;
        let width = if width > 4.0 { width - 1.0 } else { width }.clamp(0.5, 70.0);
        for point in &self.series.points {
            let Some((Spot::Inside(x), y)) = self.plan.spots(self.slot, point) else { continue };
            let (middle, end) = self.frame.place(x, y.along().clamp(0.0, 1.0));
            let (_, base) = self.frame.place(x, self.plan.y.base());
            let left = (middle - width / 2.0).max(self.frame.left);
            let right = (middle + width / 2.0).min(self.frame.right());
            out.open("g", &[]);
            out.element("title", &[], &self.tip(point));
            let size = (right - left, (end - base).abs());
            bar(out, self.style(), (left, end.min(base)), size);
            out.close();
            out.line();
        }
    }

    fn error_bar(&self, out: &mut Markup, point: &Point) {
        let Some((low, high)) = ends(point) else { return };
        let Some((Spot::Inside(x), _)) = self.plan.spots(self.slot, point) else { return };
        let mut path = String::new();
        let (Some(bottom), Some(top)) = (self.plan.y.nearest(low), self.plan.y.nearest(high))
        else {
            return;
        };
        let (x, bottom) = self.frame.place(x, bottom);
        let (_, top) = self.frame.place(0.0, top);
        path += &format!("M{} {}V{}", Px(x), Px(bottom), Px(top));
        for (value, y) in [(low, bottom), (high, top)] {
            // A bar whose end is outside of the axes has no cap.
            if matches!(self.plan.y.spot(value), Some(Spot::Inside(_))) {
                path += &format!("M{} {}H{}", Px(x - CAP), Px(y), Px(x + CAP));
            }
        }
        let style = self.style();
        let on_bar = self.plan.is_drawn_as_bars(self.series);
        let (class, colour) = match on_bar {
            true => ("axis".to_owned(), "#333333"),
            false => (style.stroke_class(), style.colour()),
        };
        out.leaf(
            "path",
            &[
                ("class", &class),
                ("d", &path),
                ("fill", &"none"),
                ("stroke", &colour),
                ("stroke-width", &1.3),
            ],
        );
        out.line();
    }

    /// From the lower ends to the upper ends, where there are both.
    fn area(&self, out: &mut Markup) {
        let place = |point: &Point| {
            let (low, high) = ends(point)?;
            let (x, _) = self.plan.spots(self.slot, point)?;
            let x = x.along().clamp(0.0, 1.0);
            let y = |value| self.plan.y.nearest(value).map(|y| self.frame.place(x, y));
            Some((y(low)?, y(high)?))
        };
        let places: Vec<_> = self.series.points.iter().map(place).collect();
        for run in places.split(Option::is_none) {
            let lows = run.iter().flatten().map(|(low, _)| *low);
            let highs = run.iter().rev().flatten().map(|(_, high)| *high);
            let mut path = String::new();
            for (x, y) in lows.chain(highs) {
                let command = if path.is_empty() { 'M' } else { 'L' };
                path += &format!("{command}{} {}", Px(x), Px(y));
            }
            if run.len() > 1 {
                let style = self.style();
                let (class, colour) = (style.fill_class(), style.colour());
                out.leaf(
                    "path",
                    &[
                        ("class", &class),
                        ("d", &format!("{path}Z")),
                        ("fill", &colour),
                        ("fill-opacity", &0.18),
                    ],
                );
                out.line();
            }
        }
    }

    /// Returns the text shown beside the pointer.
    fn tip(&self, point: &Point) -> String {
        let chart = self.plan.chart;
        let (x, y) = (chart.x.show(point.x), chart.y.show(point.y));
        let mut tip =
            format!("{}\n{}: {x}\n{}: {y}", self.series.legend(), chart.x.label, chart.y.label);
        if point.low.is_some() || point.high.is_some() {
            tip += &format!(" ({})", human::between(point.low, point.high));
        }
        tip
    }
}

/// The ends of an error bar; one that is missing is the point itself.
fn ends(point: &Point) -> Option<(f64, f64)> {
    let (low, high) = (point.low.unwrap_or(point.y), point.high.unwrap_or(point.y));
    (point.low.or(point.high).is_some() && low.is_finite() && high.is_finite())
        .then_some((low, high))
}

/// Draws a line in the style of a series.
pub(super) fn stroke(out: &mut Markup, style: SeriesStyle, path: &str) {
    out.leaf(
        "path",
        &[
            ("class", &style.stroke_class()),
            ("d", &path),
            ("fill", &"none"),
            ("stroke", &style.colour()),
            ("stroke-width", &style.line_width()),
            ("stroke-linejoin", &"round"),
            ("stroke-linecap", &"round"),
            ("stroke-dasharray", &if style.dash().is_empty() { "none" } else { style.dash() }),
        ],
    );
}

/// Draws a mark in the style of a series; hollow ones on this `ground`.
pub(super) fn mark(out: &mut Markup, style: SeriesStyle, (x, y): Place, at: MarkAt, ground: &str) {
    let path = style.mark(x, y, at);
    let (class, fill, stroke, width) = match style.is_hollow() {
        true => (hollow_class(style, ground), ground, style.colour(), 1.7),
        false => (format!("f {}", style.fill_class()), style.colour(), PAPER, 1.0),
    };
    out.leaf(
        "path",
        &[
            ("class", &class),
            ("d", &path),
            ("fill", &fill),
            ("stroke", &stroke),
            ("stroke-width", &width),
        ],
    );
}

/// `h` has the colour of the paper, also where that is dark.
fn hollow_class(style: SeriesStyle, ground: &str) -> String {
    let ground = if ground == PAPER { "h" } else { "o" };
    format!("{ground} {}", style.stroke_class())
}

/// Draws a bar in the style of a series: its upper left corner, its width and height.
pub(super) fn bar(
    out: &mut Markup,
    style: SeriesStyle,
    (x, y): Place,
    (width, height): (f64, f64),
) {
    let (class, fill, stroke) = match style.is_hollow() {
        true => (hollow_class(style, PAPER), PAPER, style.colour()),
        false => (format!("f {}", style.fill_class()), style.colour(), PAPER),
    };
    out.leaf(
        "rect",
        &[
            ("class", &class),
            ("x", &Px(x)),
            ("y", &Px(y)),
            ("width", &Px(width)),
            ("height", &Px(height)),
            ("fill", &fill),
            ("stroke", &stroke),
            ("stroke-width", &if style.is_hollow() { 1.7 } else { 0.6 }),
        ],
    );
}
