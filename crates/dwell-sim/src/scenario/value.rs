//! Parsing of one value: its type and range, and the message if it has others.

use std::ops::RangeInclusive;

use dwell_base::text::{nearest, printable};
use dwell_base::time::{format_duration_ns, parse_duration_ns};
use dwell_base::{ByteSize, Rate};

use super::tree::Value;

type Read<T> = Result<T, String>;

/// The longest time that a scenario can name: about eleven days.
const TIME_NS_MAX: u64 = 1_000_000_000_000_000;

/// Any string.
pub(super) fn text(value: &Value) -> Read<String> {
    value
        .as_text()
        .map(str::to_owned)
        .ok_or_else(|| format!("must be a string in quotes, not {}", value.described()))
}

/// A name for people and files.
pub(super) fn name(value: &Value) -> Read<String> {
    let name = text(value)?;
    if is_name(&name) {
        return Ok(name);
    }
    Err(format!(
        "\"{}\" can't be a name: use 1 to 63 letters, digits, hyphens and underscores",
        printable(&name)
    ))
}

/// Returns true if `name` can be part of a metric's name and of a file's.
pub(super) fn is_name(name: &str) -> bool {
    (1..=63).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
}

/// True or false.
pub(super) fn truth(value: &Value) -> Read<bool> {
    match value {
        Value::Truth(truth) => Ok(*truth),
        other => Err(format!("must be true or false (without quotes), not {}", other.described())),
    }
}

/// A whole number in `range`.
pub(super) fn whole(value: &Value, range: RangeInclusive<u64>) -> Read<u64> {
    let must = format!("must be a whole number from {} to {}", range.start(), range.end());
    match value {
        Value::Whole(number) => u64::try_from(*number)
            .ok()
            .filter(|number| range.contains(number))
            .ok_or_else(|| format!("{must}, not {number}")),
        other => Err(format!("{must}, not {}", other.described())),
    }
}

/// Reads a whole number in `range` as a `u32`.
pub(super) fn whole32(value: &Value, range: RangeInclusive<u32>) -> Read<u32> {
    whole(value, u64::from(*range.start())..=u64::from(*range.end()))
        .map(|number| u32::try_from(number).unwrap_or(*range.end()))
}

/// A number, with a fraction or without, in `range`.
pub(super) fn number(value: &Value, range: RangeInclusive<f64>) -> Read<f64> {
    let must = || format!("must be a number from {} to {}", range.start(), range.end());
    let number = match value {
        Value::Whole(number) => *number as f64,
        Value::Real(number) => *number,
        other => return Err(format!("{}, not {}", must(), other.described())),
    };
    if range.contains(&number) { Ok(number) } else { Err(format!("{}, not {number}", must())) }
}

/// Compressed / original: more than zero, at most one.
pub(super) fn ratio(value: &Value) -> Read<f64> {
    number(value, 0.000_001..=1.0)
        .map_err(|error| format!("{error} (compressed / original: 0.95 saves 5 %)"))
}

/// A length of time, in nanoseconds; zero is one.
pub(super) fn time_ns(value: &Value) -> Read<u64> {
    let text = match value {
        Value::Text(text) => text.trim(),
        Value::Whole(number) => {
            return Err(format!("{number} has no unit: write for instance \"{number}us\""));
        }
        other => {
            return Err(format!("must be a time such as \"200us\", not {}", other.described()));
        }
    };
    if text.starts_with('-') {
        return Err(format!("\"{}\" is negative: times begin at \"0s\"", printable(text)));
    }
    let ns = parse_duration_ns(text)?;
    if ns <= TIME_NS_MAX {
        return Ok(ns);
    }
    let max = format_duration_ns(TIME_NS_MAX);
    Err(format!("\"{}\" is too long: the longest time is {max}", printable(text)))
}

/// A length of time that is more than zero.
pub(super) fn some_time_ns(value: &Value) -> Read<u64> {
    match time_ns(value)? {
        0 => Err("must be more than zero: write for instance \"200us\"".to_owned()),
        ns => Ok(ns),
    }
}

/// A rate; never zero.
pub(super) fn rate(value: &Value) -> Read<Rate> {
    match value {
        Value::Text(text) => text.parse::<Rate>().map_err(|error| error.to_string()),
        other => Err(format!(
            "must be a rate with its unit such as \"100mbit\", not {}",
            other.described()
        )),
    }
}

/// The size of a packet.
pub(super) fn packet_bytes(value: &Value) -> Read<u32> {
    const BYTES_MAX: u64 = 65_535;
    let bytes = match value {
        Value::Whole(number) => {
            u64::try_from(*number).map_err(|_| format!("{number} is negative"))?
        }
        Value::Text(text) => text.parse::<ByteSize>()?.0,
        other => return Err(format!("must be a size such as 1500, not {}", other.described())),
    };
    u32::try_from(bytes)
        .ok()
        .filter(|_| (1..=BYTES_MAX).contains(&bytes))
        .ok_or_else(|| format!("must be from 1 to {BYTES_MAX} bytes, not {bytes}"))
}

/// One of the `possible` values, by its name.
pub(super) fn one_of<T: Copy>(value: &Value, possible: &[(&str, T)]) -> Read<T> {
    let names: Vec<&str> = possible.iter().map(|&(name, _)| name).collect();
    let quoted = || format!("must be one of \"{}\"", names.join("\", \""));
    let Some(text) = value.as_text() else {
        return Err(format!("{}, not {}", quoted(), value.described()));
    };
    if let Some(&(_, found)) = possible.iter().find(|&&(name, _)| name == text) {
        return Ok(found);
    }
    Err(match nearest(text, &names) {
        Some(near) => format!("\"{}\" is unknown: did you mean \"{near}\"?", printable(text)),
        None => format!("{}, not \"{}\"", quoted(), printable(text)),
    })
}

/// Returns the number that a value stands for in formulas and on axes: times in seconds, rates in
/// bits per second, sizes in bytes.
pub fn numeric(value: &Value) -> Option<f64> {
    match value {
        Value::Whole(number) => Some(*number as f64),
        Value::Real(number) => Some(*number),
        Value::Text(text) => parse_duration_ns(text)
            .map(|ns| ns as f64 / 1e9)
            .ok()
            .or_else(|| text.parse::<Rate>().map(|rate| rate.as_bps() as f64).ok())
            .or_else(|| text.parse::<ByteSize>().map(|size| size.0 as f64).ok()),
        Value::Truth(_) | Value::List(_) | Value::Table(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(text: &str) -> Value {
        Value::Text(text.to_owned())
    }

    #[test]
    fn times_need_units_and_are_not_negative() {
        assert_eq!(time_ns(&quoted("200us")), Ok(200_000));
        assert_eq!(time_ns(&quoted("0s")), Ok(0));
        assert!(time_ns(&Value::Whole(3)).unwrap_err().contains("\"3us\""));
        assert!(time_ns(&quoted("-3us")).unwrap_err().contains("negative"));
        assert!(time_ns(&quoted("500h")).unwrap_err().contains("too long"));
        assert!(some_time_ns(&quoted("0s")).unwrap_err().contains("more than zero"));
    }

    #[test]
    fn names_are_guessed() {
        let kinds = [("poisson", 1), ("cbr", 2)];
        assert_eq!(one_of(&quoted("cbr"), &kinds), Ok(2));
        assert!(one_of(&quoted("poison"), &kinds).unwrap_err().contains("did you mean"));
        assert!(one_of(&quoted("x"), &kinds).unwrap_err().contains("\"poisson\", \"cbr\""));
    }

    #[test]
    fn values_become_numbers() {
        assert_eq!(numeric(&quoted("200us")), Some(0.0002));
        assert_eq!(numeric(&quoted("100mbit")), Some(1e8));
        assert_eq!(numeric(&quoted("packet")), None);
        assert_eq!(numeric(&Value::Whole(5)), Some(5.0));
    }
}
