//! The ticks of an axis and their labels.

use dwell_report::human;

/// A tick; a minor one has no label.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    pub(super) value: f64,
    pub(super) label: String,
}

/// The ticks of an axis, and the title of the axis that fits their labels.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ticks {
    pub(super) list: Vec<Tick>,
    pub(super) title: String,
}

/// A step between ticks: `mantissa` (1, 2 or 5) times ten to the `exponent`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TickStep {
    mantissa: f64,
    exponent: i32,
}

/// The most ticks of an axis; a range with more is a mistake.
const TICKS_MAX: usize = 64;

/// The prefixes of the SI, and their powers of ten.
const PREFIXES: [(i32, &str); 11] = [
    (-15, "f"),
    (-12, "p"),
    (-9, "n"),
    (-6, "µ"),
    (-3, "m"),
    (0, ""),
    (3, "k"),
    (6, "M"),
    (9, "G"),
    (12, "T"),
    (15, "P"),
];

/// Ten to the `exponent`, the nearest double on every machine.
pub(super) fn power_of_ten(exponent: i32) -> f64 {
    format!("1e{exponent}").parse().unwrap_or(0.0)
}

/// The largest power of ten that is not above `value`, which is positive and normal.
pub(super) fn exponent_of(value: f64) -> i32 {
    // Written with all digits: logarithms may round up to the next power.
    let text = format!("{value:e}");
    text.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0)
}

impl TickStep {
    /// Returns the smallest step with which `span` has no more than about `count` intervals.
    pub(super) fn nice(span: f64, count: usize) -> Self {
        let rough = (span / count.max(1) as f64).max(f64::MIN_POSITIVE);
        let exponent = exponent_of(rough);
        let scaled = rough / power_of_ten(exponent);
        let (mantissa, exponent) = match scaled {
            s if s <= 1.0 + 1e-9 => (1.0, exponent),
            s if s <= 2.0 + 1e-9 => (2.0, exponent),
            s if s <= 5.0 + 1e-9 => (5.0, exponent),
            _ => (1.0, exponent + 1),
        };
        Self { mantissa, exponent }
    }

    /// Returns `count` steps, as a number with few digits and without the rounding errors of a
    /// multiplication.
    fn times(self, count: f64) -> f64 {
        let whole = count * self.mantissa;
        match self.exponent {
            0.. => whole * power_of_ten(self.exponent),
            _ => whole / power_of_ten(-self.exponent),
        }
    }

    /// Returns the last tick at or below `value`.
    pub(super) fn below(self, value: f64) -> f64 {
        self.times((value / self.times(1.0) + 1e-9).floor())
    }

    /// Returns the first tick at or above `value`.
    pub(super) fn above(self, value: f64) -> f64 {
        self.times((value / self.times(1.0) - 1e-9).ceil())
    }

    fn between(self, low: f64, high: f64) -> Vec<f64> {
        let first = (low / self.times(1.0) - 1e-9).ceil();
        let last = (high / self.times(1.0) + 1e-9).floor();
        let values = (0..TICKS_MAX).map(|at| first + at as f64).take_while(|&at| at <= last);
        // Adding zero makes a negative zero a positive one.
        values.map(|at| self.times(at) + 0.0).collect()
    }
}

/// Returns about `count` ticks of equal differences.
pub(super) fn linear(low: f64, high: f64, count: usize, label: &str, unit: &str) -> Ticks {
    let step = TickStep::nice(high - low, count);
    let unit = Unit::for_axis(low.abs().max(high.abs()), unit);
    let decimals = usize::try_from(unit.exponent - step.exponent).unwrap_or(0);
    let show = |value: f64| {
        let scaled = match unit.exponent {
            0.. => value / power_of_ten(unit.exponent),
            _ => value * power_of_ten(-unit.exponent),
        };
        let number = human::grouped(&format!("{scaled:.decimals$}"));
        if value == 0.0 { "0".to_owned() } else { format!("{number}{}", unit.suffix) }
    };
    let values = step.between(low, high).into_iter();
    let list = values.map(|value| Tick { value, label: show(value) }).collect();
    Ticks { list, title: title(label, &unit.name) }
}

/// Returns ticks of equal ratios; no more than `count` have labels.
pub(super) fn log(low: f64, high: f64, count: usize, label: &str, unit: &str) -> Ticks {
    let (first, last) = (exponent_of(low), exponent_of(high));
    let decades = last - first;
    let stride = (decades / i32::try_from(count.max(1)).unwrap_or(1) + 1).max(1);
    let style = LogLabels::of(low, high, unit);
    let mut list = Vec::new();
    for exponent in first..=last {
        for mantissa in 1..=9u8 {
            let value = f64::from(mantissa) * power_of_ten(exponent);
            let labelled = match (mantissa, decades) {
                (1, _) => exponent.rem_euclid(stride) == 0,
                (2 | 5, 0..=1) => true,
                _ => false,
            };
            let minor = stride == 1 && decades <= 7;
            if (labelled || minor) && (low..=high).contains(&value) {
                let label = if labelled { style.show(mantissa, exponent) } else { String::new() };
                list.push(Tick { value, label });
            }
        }
    }
    let unit = if matches!(style, LogLabels::Unit(..)) { "" } else { unit };
    Ticks { list, title: title(label, unit) }
}

/// Formats a value of a logarithmic axis as its labels, for instance its floor.
pub(super) fn log_label(value: f64, low: f64, high: f64, unit: &str) -> String {
    let exponent = exponent_of(value);
    let mantissa = value / power_of_ten(exponent);
    match mantissa.fract() < 1e-9 {
        true => LogLabels::of(low, high, unit).show(mantissa as u8, exponent),
        false if unit.is_empty() => human::number(value),
        false => format!("{} {unit}", human::number(value)),
    }
}

/// The format of all labels of a logarithmic axis.
enum LogLabels<'a> {
    /// `10 ms`
    Unit(&'a str),
    /// `0.01`
    Decimal,
    /// `10⁻⁵`
    Power,
}

impl<'a> LogLabels<'a> {
    fn of(low: f64, high: f64, unit: &'a str) -> Self {
        let (first, last) = (exponent_of(low), exponent_of(high));
        match prefixed(unit) {
            Some((least, most)) if first >= least && last < most + 3 => Self::Unit(unit),
            _ if first >= -3 && last <= 4 => Self::Decimal,
            _ => Self::Power,
        }
    }

    fn show(&self, mantissa: u8, exponent: i32) -> String {
        let number = f64::from(mantissa) * power_of_ten(exponent);
        match (self, mantissa) {
            (Self::Unit(unit), _) => {
                let (least, most) = prefixed(unit).unwrap_or((0, 0));
                let (power, prefix) = prefix(exponent, least, most);
                let scaled = f64::from(mantissa) * power_of_ten(exponent - power);
                format!("{} {prefix}{unit}", human::number(scaled))
            }
            (Self::Decimal, _) => human::number(number),
            (Self::Power, 1) => power(exponent),
            (Self::Power, _) => format!("{mantissa}×{}", power(exponent)),
        }
    }
}

/// The unit of the numbers of a linear axis.
struct Unit {
    exponent: i32,
    /// The text behind the label of the axis.
    name: String,
    /// The text behind each number.
    suffix: &'static str,
}

impl Unit {
    /// Returns the unit for numbers up to `largest`.
    fn for_axis(largest: f64, unit: &str) -> Self {
        let exponent = if largest > 0.0 { exponent_of(largest) } else { 0 };
        let thousands = exponent.div_euclid(3) * 3;
        if let Some((least, most)) = prefixed(unit) {
            let (power, prefix) = prefix(exponent, least, most);
            if (-1..=3).contains(&(thousands - power)) {
                return Self { exponent: power, name: format!("{prefix}{unit}"), suffix: "" };
            }
        }
        match exponent {
            -3..=4 => Self { exponent: 0, name: unit.to_owned(), suffix: "" },
            5..15 => Self {
                exponent: thousands,
                name: unit.to_owned(),
                suffix: prefix(exponent, 0, 12).1,
            },
            _ => {
                let name = format!("×{} {unit}", power(thousands)).trim_end().to_owned();
                Self { exponent: thousands, name, suffix: "" }
            }
        }
    }
}

/// Returns the smallest and largest powers of the prefixes that a unit takes, if it takes any:
/// nobody counts in millibytes or kiloseconds.
fn prefixed(unit: &str) -> Option<(i32, i32)> {
    match unit {
        "s" => Some((-15, 0)),
        "bit" | "B" | "bit/s" | "B/s" | "packet/s" => Some((0, 15)),
        "Hz" | "W" | "J" => Some((-15, 15)),
        _ => None,
    }
}

/// The prefix for numbers of this power of ten.
fn prefix(exponent: i32, least: i32, most: i32) -> (i32, &'static str) {
    let wanted = (exponent.div_euclid(3) * 3).clamp(least, most);
    PREFIXES.into_iter().find(|&(power, _)| power == wanted).unwrap_or((0, ""))
}

/// `delay [ms]`
fn title(label: &str, unit: &str) -> String {
    match (label, unit) {
        (_, "") => label.to_owned(),
        ("", _) => format!("[{unit}]"),
        _ => format!("{label} [{unit}]"),
    }
}

/// `10⁻⁵`
fn power(exponent: i32) -> String {
    let raise = |c: char| match c {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        '0'..='9' => char::from_u32('⁰' as u32 + c as u32 - '0' as u32).unwrap_or(c),
        _ => c,
    };
    "10".chars().chain(exponent.to_string().chars().map(raise)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels(ticks: &Ticks) -> Vec<&str> {
        ticks.list.iter().map(|t| t.label.as_str()).filter(|label| !label.is_empty()).collect()
    }

    #[test]
    fn steps_are_one_two_or_five() {
        let ticks = linear(0.0, 1.0, 5, "share", "");
        assert_eq!(labels(&ticks), ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(&linear(-30.0, 20.0, 5, "", "")), ["-30", "-20", "-10", "0", "10", "20"]);
        assert_eq!(labels(&linear(0.0, 3.0, 6, "", "")).len(), 7);
    }

    #[test]
    fn linear_axes_take_prefixes() {
        let ticks = linear(0.0, 0.05, 5, "delay", "s");
        assert_eq!((labels(&ticks)[1], ticks.title.as_str()), ("10", "delay [ms]"));
        let ticks = linear(0.0, 2.5e6, 5, "goodput", "bit/s");
        assert_eq!((labels(&ticks)[1], ticks.title.as_str()), ("0.5", "goodput [Mbit/s]"));
        let ticks = linear(0.0, 7200.0, 4, "time", "s");
        assert_eq!((labels(&ticks)[1], ticks.title.as_str()), ("2,000", "time [s]"));
        let ticks = linear(0.0, 300_000.0, 3, "packets", "");
        assert_eq!((labels(&ticks)[1], ticks.title.as_str()), ("100k", "packets"));
        let ticks = linear(0.0, 4e-6, 4, "loss", "");
        assert_eq!((labels(&ticks)[1], ticks.title.as_str()), ("1", "loss [×10⁻⁶]"));
    }

    #[test]
    fn log_axes_have_decades() {
        let ticks = log(1e-5, 1.0, 8, "loss", "");
        assert_eq!(labels(&ticks), ["10⁻⁵", "10⁻⁴", "10⁻³", "10⁻²", "10⁻¹", "10⁰"]);
        assert_eq!(ticks.list.len(), 5 * 9 + 1);
        assert_eq!(labels(&log(0.1, 100.0, 8, "", "")), ["0.1", "1", "10", "100"]);
        assert_eq!(labels(&log(1.0, 10.0, 8, "", "")), ["1", "2", "5", "10"]);
        assert_eq!(labels(&log(1e-5, 1e-2, 8, "", "s")), ["10 µs", "100 µs", "1 ms", "10 ms"]);
        assert!(labels(&log(1e-300, 1e300, 8, "", "")).len() <= 9);
    }

    #[test]
    fn exponents_are_exact() {
        for exponent in -300..300 {
            assert_eq!(exponent_of(power_of_ten(exponent)), exponent);
        }
        assert_eq!(exponent_of(9.999_999_999_999_999e4), 4);
    }

    proptest! {
        #[test]
        fn ticks_are_few_and_inside(low in -1e300..1e300f64, span in 1e-3..1e300f64, count in 1..12usize) {
            let high = low + span.max(low.abs() * 1e-6);
            let ticks = linear(low, high, count, "", "").list;
            prop_assert!(ticks.len() <= count + 2, "{}", ticks.len());
            let slack = (high - low) * 1e-6;
            prop_assert!(ticks.iter().all(|t| low - slack <= t.value && t.value <= high + slack));
        }

        #[test]
        fn log_ticks_are_few_and_inside(low in -300..299i32, decades in 1..300i32, count in 1..12usize) {
            let (low, high) = (power_of_ten(low), power_of_ten((low + decades).min(300)));
            let ticks = log(low, high, count, "", "s").list;
            prop_assert!(ticks.iter().all(|t| (low..=high).contains(&t.value)));
            prop_assert!(ticks.iter().filter(|t| !t.label.is_empty()).count() <= count.max(6) + 1);
        }
    }
}
