//! The mapping from values to positions along an axis.

use crate::chart::ticks::{self, Tick, TickStep, Ticks};
use crate::chart::{Axis, Scale};

/// Values beyond these can't be distinguished from them; so differences stay finite.
const LARGEST: f64 = 1e300;
const SMALLEST: f64 = 1e-300;

/// An axis with its ends and ticks.
#[derive(Clone, Debug)]
pub(super) struct Ruler {
    low: f64,
    high: f64,
    scale: Scale,
    floor: Option<f64>,
    pub(super) ticks: Vec<Tick>,
    /// Label and unit, as the ticks are written.
    pub(super) title: String,
}

/// The position of a value: 0 at the low end, 1 at the high end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Spot {
    /// On the axis.
    Inside(f64),
    /// At or below the floor of a logarithmic axis: at its low end.
    Floor,
    /// Beyond an end, but not without bounds.
    Outside(f64),
}

/// The values that an axis has to show.
#[derive(Clone, Debug, Default)]
pub(super) struct Extent {
    values: Vec<f64>,
    /// Zero belongs on the axis.
    pub(super) with_zero: bool,
    /// Or else if the least value is not more than this share of the largest.
    pub(super) zero_share: f64,
    /// Room at both ends, as a difference or, on a logarithmic axis, a ratio above one.
    pub(super) room: f64,
}

impl Extent {
    /// Adds a value if it is a number.
    pub(super) fn add(&mut self, value: f64) {
        if value.is_finite() {
            self.values.push(value.clamp(-LARGEST, LARGEST));
        }
    }

    fn ends(&self) -> Option<(f64, f64)> {
        let low = self.values.iter().copied().reduce(f64::min)?;
        let high = self.values.iter().copied().reduce(f64::max)?;
        Some((low, high))
    }
}

impl Ruler {
    /// Returns an axis on which everything in `extent` has its place, with about `count` ticks.
    pub(super) fn new(axis: &Axis, extent: &Extent, count: usize) -> Self {
        if !axis.categories.is_empty() {
            return Self::of_categories(axis);
        }
        match axis.scale {
            Scale::Linear => Self::linear(axis, extent, count),
            Scale::Log => Self::log(axis, extent, count),
        }
    }

    fn of_categories(axis: &Axis) -> Self {
        let label = |(at, name): (usize, &String)| Tick { value: at as f64, label: name.clone() };
        Self {
            low: -0.5,
            high: axis.categories.len() as f64 - 0.5,
            scale: Scale::Linear,
            floor: None,
            ticks: axis.categories.iter().enumerate().map(label).collect(),
            title: ticks::linear(0.0, 1.0, 1, &axis.label, &axis.unit).title,
        }
    }

    fn linear(axis: &Axis, extent: &Extent, count: usize) -> Self {
        let (low, high) = given_range(axis).unwrap_or_else(|| {
            let (mut low, mut high) = extent.ends().unwrap_or((0.0, 1.0));
            (low, high) = (low - extent.room, high + extent.room);
            if low >= 0.0 && low <= high * extent.zero_share {
                low = 0.0;
            }
            if extent.with_zero {
                (low, high) = (low.min(0.0), high.max(0.0));
            }
            let (low, high) = apart(low, high);
            let step = TickStep::nice(high - low, count);
            (step.below(low), step.above(high))
        });
        let (low, high) = apart(low, high);
        let Ticks { list, title } = ticks::linear(low, high, count, &axis.label, &axis.unit);
        Self { low, high, scale: Scale::Linear, floor: None, ticks: list, title }
    }

    fn log(axis: &Axis, extent: &Extent, count: usize) -> Self {
        let usable = |value: &f64| (SMALLEST..=LARGEST).contains(value);
        let positive: Vec<f64> = extent.values.iter().copied().filter(usable).collect();
        let least = positive.iter().copied().reduce(f64::min);
        let most = positive.iter().copied().reduce(f64::max);
        let given = given_range(axis).filter(|(low, _)| usable(low));
        let wanted = axis.floor.filter(usable);
        // A value that is not positive needs an end of the axis at which it is drawn.
        let needed = extent.values.iter().any(|&value| value < SMALLEST);
        let found = || match (given, least) {
            (Some((low, _)), _) => low,
            (None, Some(least)) => decade_below(decade_below(least) / 2.0),
            (None, None) => 0.1,
        };
        let floor = wanted.or_else(|| needed.then(found)).map(|floor| floor.max(SMALLEST));

        let high = given.map(|(_, high)| high).or(most.map(decade_above)).unwrap_or(1.0);
        let low = match (floor, given, least) {
            (Some(floor), Some((low, _)), _) => low.max(floor),
            (Some(floor), None, _) => floor,
            (None, Some((low, _)), _) => low,
            (None, None, least) => least.map_or(high / 10.0, decade_below),
        };
        let high = if high > low * (1.0 + 1e-9) { high } else { low * 10.0 };
        let (low, high) = match given {
            Some(_) => (low, high),
            None => (low, high * extent.room.max(1.0)),
        };

        let Ticks { mut list, title } = ticks::log(low, high, count, &axis.label, &axis.unit);
        let floor =
            floor.filter(|&floor| floor >= low && extent.values.iter().any(|v| *v <= floor));
        if let Some(floor) = floor {
            let label = ticks::log_label(floor, low, high, &axis.unit);
            list.retain(|tick| tick.value > low * (1.0 + 1e-9));
            list.insert(0, Tick { value: low, label: format!("≤ {label}") });
        }
        Self { low, high, scale: Scale::Log, floor, ticks: list, title }
    }

    /// Returns the position of a value; none if it is not a number.
    pub(super) fn spot(&self, value: f64) -> Option<Spot> {
        if value.is_nan() {
            return None;
        }
        if self.floor.is_some_and(|floor| value <= floor) {
            return Some(Spot::Floor);
        }
        if value.is_infinite() {
            return None;
        }
        let along = match self.scale {
            Scale::Linear => (value.clamp(-LARGEST, LARGEST) - self.low) / (self.high - self.low),
            Scale::Log if value < SMALLEST => -1.0,
            Scale::Log => {
                let ratio = libm::log10(value) - libm::log10(self.low);
                ratio / (libm::log10(self.high) - libm::log10(self.low))
            }
        };
        // Rounding must not push an end off the axis.
        Some(match along {
            a if (-1e-9..=1.0 + 1e-9).contains(&a) => Spot::Inside(a.clamp(0.0, 1.0)),
            a => Spot::Outside(a.clamp(-1e3, 1e3)),
        })
    }

    /// Returns the position of a value on the axis, or the end that is next to it.
    pub(super) fn nearest(&self, value: f64) -> Option<f64> {
        self.spot(value).map(|spot| spot.along().clamp(0.0, 1.0))
    }

    /// Returns the position at which bars begin.
    pub(super) fn base(&self) -> f64 {
        match self.scale {
            Scale::Linear => self.nearest(0.0).unwrap_or(0.0),
            Scale::Log => 0.0,
        }
    }

    /// The least value that is distinguished, if something is at or below it.
    pub(super) fn floor_label(&self) -> Option<&str> {
        self.floor.and(self.ticks.first()).map(|tick| tick.label.as_str())
    }
}

impl Spot {
    /// 0 at the low end, 1 at the high end.
    pub(super) fn along(self) -> f64 {
        match self {
            Self::Inside(along) | Self::Outside(along) => along,
            Self::Floor => 0.0,
        }
    }
}

/// Returns the range that was asked for, if it is valid.
fn given_range(axis: &Axis) -> Option<(f64, f64)> {
    let (a, b) = axis.range?;
    let range = (a.min(b).max(-LARGEST), a.max(b).min(LARGEST));
    (a.is_finite() && b.is_finite() && range.0 < range.1).then_some(range)
}

/// Ends that can be distinguished.
fn apart(low: f64, high: f64) -> (f64, f64) {
    let largest = low.abs().max(high.abs());
    if high - low > largest * 1e-9 && largest > SMALLEST {
        return (low, high);
    }
    if largest <= SMALLEST {
        return (0.0, 1.0);
    }
    let middle = low / 2.0 + high / 2.0;
    (middle - largest / 10.0, middle + largest / 10.0)
}

fn decade_below(value: f64) -> f64 {
    ticks::power_of_ten(ticks::exponent_of(value).max(-300))
}

fn decade_above(value: f64) -> f64 {
    let decade = decade_below(value);
    if value > decade { decade * 10.0 } else { decade }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ruler(axis: &Axis, values: &[f64]) -> Ruler {
        let mut extent = Extent { zero_share: 0.5, ..Extent::default() };
        values.iter().for_each(|&value| extent.add(value));
        Ruler::new(axis, &extent, 6)
    }

    #[test]
    fn a_linear_axis_has_round_ends() {
        let axis = ruler(&Axis::linear(""), &[0.3, 0.97]);
        assert_eq!((axis.low, axis.high), (0.0, 1.0));
        assert_eq!(axis.spot(0.5), Some(Spot::Inside(0.5)));
        assert_eq!(axis.spot(2.0), Some(Spot::Outside(2.0)));
        assert_eq!(axis.spot(f64::NAN), None);
        let far = ruler(&Axis::linear(""), &[100.0, 104.0]);
        assert_eq!((far.low, far.high), (100.0, 104.0));
    }

    #[test]
    fn zero_is_at_the_floor_and_the_axis_says_so() {
        let axis = ruler(&Axis::log("").floor(1e-5), &[0.0, 3e-3]);
        assert_eq!((axis.low, axis.high), (1e-5, 1e-2));
        assert_eq!((axis.spot(0.0), axis.spot(1e-5)), (Some(Spot::Floor), Some(Spot::Floor)));
        assert_eq!(axis.ticks[0].label, "≤ 10⁻⁵");
        let clean = ruler(&Axis::log("").floor(1e-5), &[2e-5, 3e-3]);
        assert_eq!((clean.low, clean.ticks[0].label.as_str()), (1e-5, "10⁻⁵"));
    }

    #[test]
    fn a_floor_is_found_for_what_has_no_logarithm() {
        let axis = ruler(&Axis::log(""), &[0.0, 2.0, 30.0]);
        assert_eq!((axis.low, axis.high, axis.floor), (0.1, 100.0, Some(0.1)));
        let nothing = ruler(&Axis::log(""), &[-1.0, 0.0]);
        assert_eq!(nothing.spot(0.0), Some(Spot::Floor));
    }

    #[test]
    fn categories_are_between_their_neighbours() {
        let axis = ruler(&Axis::of("", ["a", "b"]), &[]);
        assert_eq!(axis.spot(0.0), Some(Spot::Inside(0.25)));
        assert_eq!(axis.ticks[1].label, "b");
    }

    proptest! {
        #[test]
        fn everything_that_is_finite_has_a_place(
            values in prop::collection::vec(any::<f64>(), 0..8),
            range in prop::option::of(any::<(f64, f64)>()),
            floor in prop::option::of(any::<f64>()),
            log in any::<bool>(),
        ) {
            let scale = if log { Scale::Log } else { Scale::Linear };
            let axis = Axis { scale, range, floor, ..Axis::linear("") };
            let ruler = ruler(&axis, &values);
            prop_assert!(ruler.low < ruler.high && (ruler.high - ruler.low).is_finite(), "{ruler:?}");
            for &value in &values {
                match ruler.spot(value) {
                    Some(spot) => prop_assert!(spot.along().is_finite()),
                    None => prop_assert!(!value.is_finite()),
                }
                let fits = range.is_none() && floor.is_none() && value.is_finite();
                let outside = matches!(ruler.spot(value), Some(Spot::Outside(_)));
                prop_assert!(!fits || !outside || value.abs() > LARGEST, "{value} {ruler:?}");
            }
        }
    }
}
