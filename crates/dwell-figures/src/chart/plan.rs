//! The layout that both drawings of a chart share: the axes, the series that belong together, and
//! the points that can't be drawn.

use crate::chart::ruler::{Extent, Ruler, Spot};
use crate::chart::{Axis, Chart, Kind, Point, Role, Scale, Series};

/// A chart with its axes, ready to be drawn.
pub(super) struct Plan<'a> {
    pub(super) chart: &'a Chart,
    pub(super) x: Ruler,
    pub(super) y: Ruler,
    /// The number of each series' name, from 0: its colour.
    pub(super) slots: Vec<usize>,
    bars: Bars,
}

/// The placement of bars side by side.
struct Bars {
    /// The slots that have bars, from left to right.
    slots: Vec<usize>,
    /// The share of the axis that belongs to one x.
    room: f64,
}

/// The share of the room of an x that its bars take.
const BARS_SHARE: f64 = 0.8;

impl<'a> Plan<'a> {
    /// Lays out a chart with about the given number of ticks on each axis.
    pub(super) fn new(chart: &'a Chart, x_ticks: usize, y_ticks: usize) -> Self {
        let slots = slots(&chart.series);
        let has_bars = chart.series.iter().any(|series| series.kind == Kind::Bars);
        let (mut x, mut y) = (Extent::default(), Extent::default());
        for point in chart.series.iter().flat_map(|series| &series.points) {
            x.add(point.x);
            [Some(point.y), point.low, point.high].into_iter().flatten().for_each(|v| y.add(v));
        }
        y.with_zero = has_bars;
        // Heights are compared, and places are not: only heights begin at zero if they can.
        (x.zero_share, y.zero_share) = (0.2, 0.5);
        if has_bars {
            x.room = room_beside_bars(chart);
        }
        let x = Ruler::new(&chart.x, &x, x_ticks);
        let y = Ruler::new(&chart.y, &y, y_ticks);
        let bars = Bars::new(chart, &slots, &x);
        Self { chart, x, y, slots, bars }
    }

    /// The series with their slots.
    pub(super) fn series(&self) -> impl Iterator<Item = (&'a Series, usize)> {
        self.chart.series.iter().zip(self.slots.iter().copied())
    }

    /// Returns the position of a point, if both of its values are numbers.
    pub(super) fn spots(&self, slot: usize, point: &Point) -> Option<(Spot, Spot)> {
        let x = match self.x.spot(point.x)? {
            Spot::Inside(along) => Spot::Inside((along + self.shift(slot)).clamp(0.0, 1.0)),
            spot => spot,
        };
        Some((x, self.y.spot(point.y)?))
    }

    /// Returns the offset of a series from its x, so that it is at its bar.
    fn shift(&self, slot: usize) -> f64 {
        let Some(at) = self.bars.slots.iter().position(|&bar| bar == slot) else { return 0.0 };
        (at as f64 + 0.5) * self.bar_width() - self.bars.room * BARS_SHARE / 2.0
    }

    /// Returns the width of a bar, as a share of the axis.
    pub(super) fn bar_width(&self) -> f64 {
        self.bars.room * BARS_SHARE / self.bars.slots.len().max(1) as f64
    }

    /// Returns true if the series is drawn as bars. A paper's bars are drawn as marks on ours, if
    /// there are any.
    pub(super) fn is_drawn_as_bars(&self, series: &Series) -> bool {
        let is_ours = |other: &&Series| {
            other.name == series.name && other.kind == Kind::Bars && other.role == Role::Ours
        };
        series.kind == Kind::Bars
            && (series.role == Role::Ours || !self.chart.series.iter().any(|s| is_ours(&s)))
    }

    /// Returns true if a point of the series lies at or below the floor of the y axis.
    pub(super) fn is_at_floor(&self, series: &Series) -> bool {
        series.points.iter().any(|point| self.y.spot(point.y) == Some(Spot::Floor))
    }

    /// Returns remarks on what the drawing cannot show.
    pub(super) fn notes(&self) -> Vec<String> {
        let (mut no_number, mut outside, mut all) = (0usize, 0usize, 0usize);
        for (series, slot) in self.series() {
            for point in &series.points {
                all += 1;
                match self.spots(slot, point) {
                    None => no_number += 1,
                    Some((Spot::Outside(_), _) | (_, Spot::Outside(_))) => outside += 1,
                    Some(_) => {}
                }
            }
        }
        let mut notes = Vec::new();
        if all == 0 {
            notes.push("There are no points.".to_owned());
        }
        if no_number > 0 {
            notes.push(format!("Not drawn, because not a finite number: {}.", points(no_number)));
        }
        if outside > 0 {
            notes.push(format!("Outside of the axes: {}.", points(outside)));
        }
        notes
    }
}

impl Bars {
    fn new(chart: &Chart, slots: &[usize], x: &Ruler) -> Self {
        let with_bars = chart.series.iter().zip(slots).filter(|(s, _)| s.kind == Kind::Bars);
        let mut bars: Vec<usize> = with_bars.map(|(_, &slot)| slot).collect();
        bars.sort_unstable();
        bars.dedup();
        let mut places: Vec<f64> =
            bar_xs(chart).filter_map(|value| x.spot(value)).map(Spot::along).collect();
        places.sort_by(f64::total_cmp);
        let gaps = places.windows(2).map(|pair| pair[1] - pair[0]).filter(|gap| *gap > 1e-9);
        let narrowest = gaps.fold(0.5, f64::min);
        let room = match chart.x.categories.len() {
            0 => narrowest,
            count => 1.0 / count as f64,
        };
        Self { slots: bars, room }
    }
}

/// Half of the distance between bars, without which the first and the last would be cut.
fn room_beside_bars(chart: &Chart) -> f64 {
    let log = chart.x.scale == Scale::Log;
    let mut values: Vec<f64> = bar_xs(chart).filter(|x| x.is_finite() && x.abs() < 1e290).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    let pairs = values.windows(2);
    match log {
        true => 2.0,
        false => pairs.map(|pair| pair[1] - pair[0]).reduce(f64::min).unwrap_or(1.0) / 2.0,
    }
}

fn bar_xs(chart: &Chart) -> impl Iterator<Item = f64> {
    let bars = chart.series.iter().filter(|series| series.kind == Kind::Bars);
    bars.flat_map(|series| series.points.iter().map(|point| point.x))
}

/// Numbers the names, in the order in which they appear.
fn slots(series: &[Series]) -> Vec<usize> {
    let mut names: Vec<&str> = Vec::new();
    let mut slots = Vec::with_capacity(series.len());
    for one in series {
        let known = names.iter().position(|name| *name == one.name);
        slots.push(known.unwrap_or_else(|| {
            names.push(&one.name);
            names.len() - 1
        }));
    }
    slots
}

fn points(count: usize) -> String {
    if count == 1 { "1 point".to_owned() } else { format!("{count} points") }
}

impl Axis {
    /// A value as people read it, with its unit; a category by its name.
    pub(super) fn show(&self, value: f64) -> String {
        let index = (value.fract() == 0.0 && value >= 0.0).then_some(value as usize);
        if let Some(name) = index.and_then(|index| self.categories.get(index)) {
            return name.clone();
        }
        let number = dwell_report::human::number(value);
        if self.unit.is_empty() { number } else { format!("{number} {}", self.unit) }
    }
}
