//! Instants in integer nanoseconds.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

/// Nanoseconds in one microsecond.
pub const MICRO_NS: u64 = 1_000;
/// Nanoseconds in one millisecond.
pub const MILLI_NS: u64 = 1_000_000;
/// Nanoseconds in one second.
pub const SECOND_NS: u64 = 1_000_000_000;

/// Returns a duration in nanoseconds, at most `u64::MAX`.
pub fn duration_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A point in time: nanoseconds since an origin that the driver chose.
///
/// The relay uses the monotonic clock, a simulation starts at zero. Only differences mean
/// anything. `u64` nanoseconds last 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// Later than anything that will ever happen; stands for "no deadline".
    pub const FAR_FUTURE: Self = Self(u64::MAX);

    /// Returns the instant `ns` nanoseconds after the origin.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// Returns the nanoseconds since the origin.
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// Returns the nanoseconds from `earlier` to `self`, zero if `earlier` is later.
    pub const fn since_ns(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns `self` moved back by `ns`, but not past the origin.
    pub const fn before_ns(self, ns: u64) -> Self {
        Self(self.0.saturating_sub(ns))
    }
}

/// Adds nanoseconds; saturates at [`Instant::FAR_FUTURE`].
impl Add<u64> for Instant {
    type Output = Self;

    fn add(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / SECOND_NS, self.0 % SECOND_NS)
    }
}

/// Parses a length of time such as `250ms`, `20us`, `1.5s`, `2min`; the result is in
/// nanoseconds.
///
/// # Errors
/// A sentence about the mistake, if the text is not a number followed by one of `ns us µs ms s min
/// h`.
pub fn parse_duration_ns(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .ok_or_else(|| format!("\"{text}\" has no unit: write for instance \"{text}ms\""))?;
    let (number, unit) = text.split_at(split);
    let unit_ns = match unit.trim() {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "min" => 60e9,
        "h" => 3600e9,
        other => {
            return Err(format!("\"{other}\" is no unit of time: use ns, us, ms, s, min or h"));
        }
    };
    let number: f64 =
        number.parse().map_err(|_| format!("\"{text}\" does not begin with a number"))?;
    let ns = number * unit_ns;
    if ns.is_finite() && ns < 9.2e18 {
        Ok(ns.round() as u64)
    } else {
        Err(format!("\"{text}\" is too long a time"))
    }
}

/// Writes a length of time with the unit that suits it: `12.3 ms`.
pub fn format_duration_ns(ns: u64) -> String {
    let value = ns as f64;
    match ns {
        0..MICRO_NS => format!("{ns} ns"),
        MICRO_NS..MILLI_NS => format!("{:.1} µs", value / 1e3),
        MILLI_NS..SECOND_NS => format!("{:.1} ms", value / 1e6),
        _ => format!("{:.2} s", value / 1e9),
    }
}

/// Writes a length of time as a whole number of the largest unit that leaves nothing over: `100ms`, `1500us`.
/// [`parse_duration_ns`] reads the same length from it, up to 2^53 ns (104 days).
pub fn format_duration_exact_ns(ns: u64) -> String {
    const UNITS: [(u64, &str); 5] = [
        (3600 * SECOND_NS, "h"),
        (60 * SECOND_NS, "min"),
        (SECOND_NS, "s"),
        (MILLI_NS, "ms"),
        (MICRO_NS, "us"),
    ];
    let fits = |(unit_ns, _): &&(u64, &str)| ns > 0 && ns.is_multiple_of(*unit_ns);
    let (unit_ns, unit) = UNITS.iter().find(fits).copied().unwrap_or((1, "ns"));
    format!("{}{unit}", ns / unit_ns)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn differences_saturate() {
        let (a, b) = (Instant::from_ns(5), Instant::from_ns(9));
        assert_eq!(b.since_ns(a), 4);
        assert_eq!(a.since_ns(b), 0);
        assert_eq!(Instant::FAR_FUTURE + 1, Instant::FAR_FUTURE);
        assert_eq!(a.before_ns(10), Instant::ZERO);
    }

    #[test]
    fn durations_parse() {
        assert_eq!(parse_duration_ns("250ms"), Ok(250 * MILLI_NS));
        assert_eq!(parse_duration_ns("1.5 s"), Ok(1_500_000_000));
        assert_eq!(parse_duration_ns("20us"), Ok(20_000));
        for bad in ["", "12", "ms", "1.2.3s", "5 parsecs", "1e300s", "99999999999999999h"] {
            assert!(parse_duration_ns(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn exact_durations_have_the_largest_unit_that_fits() {
        let shown = [0, 1, 1_500, 1_500_000, 100 * MILLI_NS, 90 * SECOND_NS, 7200 * SECOND_NS];
        let shown = shown.map(format_duration_exact_ns);
        assert_eq!(shown, ["0ns", "1ns", "1500ns", "1500us", "100ms", "90s", "2h"]);
    }

    proptest! {
        #[test]
        fn every_exact_duration_parses_to_itself(number in 0u64..1 << 53, zeros in 0u32..16) {
            for ns in [number, number / 10u64.pow(zeros) * 10u64.pow(zeros)] {
                prop_assert_eq!(parse_duration_ns(&format_duration_exact_ns(ns)), Ok(ns));
            }
        }
    }
}
