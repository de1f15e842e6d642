//! A chart as an SVG image.

use std::fmt;

use crate::chart::Chart;
use crate::chart::plan::Plan;
use crate::markup::Markup;
use geometry::Frame;
use legend::Legend;
use series::Pen;
use style::{AXIS, GRID, INK, MUTED, PAPER};

mod geometry;
mod legend;
mod measure;
mod series;
mod style;

pub(crate) use style::STYLE;

/// The width of a drawing on a page, and that for screens of telephones, in pixels.
pub(super) const WIDTH: f64 = 720.0;
pub(super) const WIDTH_NARROW: f64 = 368.0;
const PLOT_HEIGHT: f64 = 330.0;
const MARGIN: f64 = 16.0;
const TITLE_SIZE: f64 = 17.0;
const LABEL_SIZE: f64 = 13.0;
const TICK_SIZE: f64 = 12.0;
const LINE_HEIGHT: f64 = 1.35;
const TICK_LENGTH: f64 = 5.0;
/// The distance between the y axis and the first point, so that marks are not on the axis.
const INSET: f64 = 12.0;

/// The approximate number of ticks that fit.
const X_TICKS: usize = 8;
const X_TICKS_NARROW: usize = 4;
const Y_TICKS: usize = 6;

/// The width at which names of ticks are cut, in pixels.
const TICK_WIDTH_MAX: f64 = 150.0;
/// The least distance between the labels of neighbouring ticks, in pixels.
const TICK_GAP: f64 = 8.0;
/// The angle of labels that don't fit side by side.
const TURN_DEGREES: f64 = -35.0;
const TURN_SIN: f64 = 0.574;
const TURN_COS: f64 = 0.819;

const FONTS: &str = "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif";

/// A length or place in pixels, with two decimals at most.
struct Px(f64);

impl fmt::Display for Px {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:.2}", self.0);
        let text = text.trim_end_matches('0').trim_end_matches('.');
        f.write_str(if text == "-0" { "0" } else { text })
    }
}

/// Draws a chart with this width; `alone` if no page around it contains [`STYLE`].
pub(super) fn draw(chart: &Chart, width: f64, alone: bool) -> String {
    let x_ticks = if width < WIDTH { X_TICKS_NARROW } else { X_TICKS };
    let plan = Plan::new(chart, x_ticks, Y_TICKS);
    Drawing::new(&plan, width).draw(alone)
}

/// The parts of a drawing from top to bottom: the title, the caption, the legend, the name of the y
/// axis, the plot, its ticks, the name of the x axis, notes.
struct Drawing<'a> {
    plan: &'a Plan<'a>,
    width: f64,
    title: Vec<String>,
    caption: Vec<String>,
    legend: Legend<'a>,
    legend_top: f64,
    frame: Frame,
    x_labels: XLabels,
    notes: Vec<String>,
    height: f64,
}

/// The labels of the x axis.
struct XLabels {
    texts: Vec<String>,
    turned: bool,
    height: f64,
}

impl<'a> Drawing<'a> {
    fn new(plan: &'a Plan<'a>, width: f64) -> Self {
        let (chart, inner) = (plan.chart, width - 2.0 * MARGIN);
        let title = measure::wrap(&chart.title, TITLE_SIZE * 1.06, inner, 3);
        let caption = measure::wrap(&chart.caption, LABEL_SIZE, inner, 6);
        let legend = Legend::new(plan, inner);

        let header = lines_height(&title, TITLE_SIZE) + lines_height(&caption, LABEL_SIZE);
        let legend_top = MARGIN + header + if header > 0.0 { 8.0 } else { 0.0 };
        let y_title = if plan.y.title.is_empty() { 8.0 } else { 30.0 };
        let labels = plan.y.ticks.iter().map(|tick| measure::width(&fit(&tick.label), TICK_SIZE));
        let left = MARGIN + labels.fold(0.0, f64::max) + TICK_LENGTH + 4.0 + INSET;
        let mut frame = Frame {
            left,
            top: legend_top + legend.height() + y_title,
            width: width - left - MARGIN - INSET,
            height: PLOT_HEIGHT,
        };
        let x_labels = XLabels::new(plan, &mut frame);

        let mut notes = plan.notes();
        notes.extend(legend.note().map(str::to_owned));
        let notes = measure::wrap(&notes.join("\n"), TICK_SIZE, inner, 6);
        let x_title = if plan.x.title.is_empty() { 0.0 } else { 24.0 };
        let height = frame.bottom()
            + TICK_LENGTH
            + x_labels.height
            + x_title
            + lines_height(&notes, TICK_SIZE)
            + MARGIN;
        Self { plan, width, title, caption, legend, legend_top, frame, x_labels, notes, height }
    }

    fn draw(&self, alone: bool) -> String {
        let mut out = Markup::default();
        let chart = self.plan.chart;
        let label = format!("{} {}", chart.title, chart.caption);
        let view_box = format!("0 0 {} {}", Px(self.width), Px(self.height));
        out.open(
            "svg",
            &[
                ("xmlns", &"http://www.w3.org/2000/svg"),
                ("class", &"dwell-chart"),
                ("role", &"img"),
                ("aria-label", &label.trim()),
                ("width", &Px(self.width)),
                ("height", &Px(self.height)),
                ("viewBox", &view_box),
                ("font-family", &FONTS),
                ("font-size", &TICK_SIZE),
            ],
        );
        out.line();
        if alone {
            out.element("style", &[], STYLE);
            out.line();
        }
        let (w, h) = (Px(self.width), Px(self.height));
        out.leaf("rect", &[("class", &"paper"), ("width", &w), ("height", &h), ("fill", &PAPER)]);
        out.line();
        self.header(&mut out);
        out.open("g", &[("font-size", &LABEL_SIZE)]);
        self.legend.draw(&mut out, MARGIN, self.legend_top);
        out.close();
        self.axes(&mut out);
        for (series, slot) in self.plan.series() {
            Pen { plan: self.plan, frame: self.frame, series, slot }.draw(&mut out);
        }
        self.notes(&mut out);
        out.finish() + "\n"
    }

    fn header(&self, out: &mut Markup) {
        let mut y = MARGIN;
        for line in &self.title {
            y += TITLE_SIZE * LINE_HEIGHT;
            let text = Text { size: TITLE_SIZE, bold: true, ..Text::at(MARGIN, y - 5.0) };
            text.draw(out, line);
        }
        for line in &self.caption {
            y += LABEL_SIZE * LINE_HEIGHT;
            let text = Text { size: LABEL_SIZE, muted: true, ..Text::at(MARGIN, y - 4.0) };
            text.draw(out, line);
        }
    }

    fn axes(&self, out: &mut Markup) {
        let frame = &self.frame;
        let name = Text { size: LABEL_SIZE, ..Text::at(MARGIN, frame.top - 12.0) };
        name.draw(out, &measure::fit(&self.plan.y.title, LABEL_SIZE, self.width - 2.0 * MARGIN));
        let axis = frame.left - INSET;
        let (left, right) = (Px(axis), Px(frame.right() + INSET));
        for tick in &self.plan.y.ticks {
            let Some(along) = self.plan.y.nearest(tick.value) else { continue };
            let (_, y) = frame.place(0.0, along);
            let from = Px(axis - TICK_LENGTH);
            match tick.label.as_str() {
                "" => line(out, "axis", &format!("M{} {}H{left}", Px(axis - 2.5), Px(y))),
                label => {
                    line(out, "grid", &format!("M{left} {}H{right}", Px(y)));
                    line(out, "axis", &format!("M{from} {}H{left}", Px(y)));
                    let x = axis - TICK_LENGTH - 4.0;
                    Text { anchor: "end", ..Text::at(x, y + 4.0) }.draw(out, &fit(label));
                }
            }
        }
        self.x_axis(out);
    }

    fn x_axis(&self, out: &mut Markup) {
        let frame = &self.frame;
        let (top, bottom) = (Px(frame.top), Px(frame.bottom()));
        let is_named = !self.plan.chart.x.categories.is_empty();
        for (tick, label) in self.plan.x.ticks.iter().zip(&self.x_labels.texts) {
            let Some(along) = self.plan.x.nearest(tick.value) else { continue };
            let (x, _) = frame.place(along, 0.0);
            let length = if tick.label.is_empty() { 2.5 } else { TICK_LENGTH };
            if !tick.label.is_empty() && !is_named {
                line(out, "grid", &format!("M{} {top}V{bottom}", Px(x)));
            }
            line(out, "axis", &format!("M{} {bottom}V{}", Px(x), Px(frame.bottom() + length)));
            let y = frame.bottom() + TICK_LENGTH + 14.0;
            let text = match self.x_labels.turned {
                true => Text { anchor: "end", turned: true, ..Text::at(x + 5.0, y - 2.0) },
                false => Text { anchor: "middle", ..Text::at(x, y) },
            };
            text.draw(out, label);
        }
        // The axes over the grid.
        line(
            out,
            "axis",
            &format!("M{} {top}V{bottom}H{}", Px(frame.left - INSET), Px(frame.right() + INSET)),
        );
        let (middle, _) = frame.place(0.5, 0.0);
        let y = frame.bottom() + TICK_LENGTH + self.x_labels.height + 17.0;
        let name = Text { anchor: "middle", size: LABEL_SIZE, ..Text::at(middle, y) };
        name.draw(out, &measure::fit(&self.plan.x.title, LABEL_SIZE, frame.width));
    }

    fn notes(&self, out: &mut Markup) {
        let height = lines_height(&self.notes, TICK_SIZE);
        let mut y = self.height - MARGIN - height;
        for note in &self.notes {
            y += TICK_SIZE * LINE_HEIGHT;
            Text { muted: true, ..Text::at(MARGIN, y) }.draw(out, note);
        }
    }
}

impl XLabels {
    /// Places labels side by side if they fit, and turns them otherwise; turned ones may make
    /// `frame` smaller.
    fn new(plan: &Plan<'_>, frame: &mut Frame) -> Self {
        let mut texts: Vec<String> = plan.x.ticks.iter().map(|tick| fit(&tick.label)).collect();
        let wide = |text: &String| measure::width(text, TICK_SIZE);
        let last = texts.last().map_or(0.0, wide);
        if plan.chart.x.categories.is_empty() {
            frame.width -= (last / 2.0 - MARGIN).max(0.0);
            let places = plan.x.ticks.iter().map(|tick| plan.x.nearest(tick.value).unwrap_or(0.0));
            leave_room(&mut texts, &places.collect::<Vec<_>>(), frame.width);
            return Self { texts, turned: false, height: TICK_SIZE + 6.0 };
        }
        let room = frame.width / texts.len().max(1) as f64;
        let widest = texts.iter().map(wide).fold(0.0, f64::max);
        if widest + TICK_GAP <= room {
            return Self { texts, turned: false, height: TICK_SIZE + 6.0 };
        }
        // The first one must not be cut off on the left.
        let first = texts.first().map_or(0.0, wide) * TURN_COS;
        let missing = (first - frame.left - room / 2.0 + 4.0).max(0.0);
        frame.left += missing;
        frame.width -= missing;
        let step = frame.width / texts.len().max(1) as f64;
        let places: Vec<f64> = (0..texts.len()).map(|at| at as f64 * step).collect();
        leave_out(&mut texts, &places, |_| TICK_SIZE * 1.6);
        Self { texts, turned: true, height: widest * TURN_SIN + TICK_SIZE + 4.0 }
    }
}

/// Empties labels that would touch the one before.
fn leave_room(texts: &mut [String], places: &[f64], width: f64) {
    let places: Vec<f64> = places.iter().map(|place| place * width).collect();
    leave_out(texts, &places, |text| measure::width(text, TICK_SIZE) + TICK_GAP);
}

fn leave_out(texts: &mut [String], places: &[f64], wide: impl Fn(&str) -> f64) {
    let mut free_from = f64::NEG_INFINITY;
    for (text, &place) in texts.iter_mut().zip(places) {
        let half = wide(text) / 2.0;
        if text.is_empty() {
            continue;
        } else if place - half < free_from {
            text.clear();
        } else {
            free_from = place + half;
        }
    }
}

/// Cuts the label of a tick if it is too long.
fn fit(label: &str) -> String {
    measure::fit(label, TICK_SIZE, TICK_WIDTH_MAX)
}

fn lines_height(lines: &[String], size: f64) -> f64 {
    lines.len() as f64 * size * LINE_HEIGHT
}

/// Draws a line of the grid or of an axis.
fn line(out: &mut Markup, class: &'static str, path: &str) {
    let colour = if class == "grid" { GRID } else { AXIS };
    out.leaf("path", &[("class", &class), ("d", &path), ("fill", &"none"), ("stroke", &colour)]);
    out.line();
}

/// The style and position of a line of text.
struct Text {
    x: f64,
    y: f64,
    size: f64,
    anchor: &'static str,
    bold: bool,
    muted: bool,
    turned: bool,
}

impl Text {
    fn at(x: f64, y: f64) -> Self {
        let (size, anchor) = (TICK_SIZE, "start");
        Self { x, y, size, anchor, bold: false, muted: false, turned: false }
    }

    fn draw(&self, out: &mut Markup, text: &str) {
        if text.is_empty() {
            return;
        }
        let (class, colour) = if self.muted { ("muted", MUTED) } else { ("ink", INK) };
        let (x, y) = (Px(self.x), Px(self.y));
        let turn = format!("rotate({TURN_DEGREES} {x} {y})");
        let mut attributes: Vec<(&str, &dyn fmt::Display)> =
            vec![("class", &class), ("fill", &colour), ("x", &x), ("y", &y)];
        if self.size != TICK_SIZE {
            attributes.push(("font-size", &self.size));
        }
        if self.anchor != "start" {
            attributes.push(("text-anchor", &self.anchor));
        }
        if self.bold {
            attributes.push(("font-weight", &"600"));
        }
        if self.turned {
            attributes.push(("transform", &turn));
        }
        out.element("text", &attributes, text);
        out.line();
    }
}
