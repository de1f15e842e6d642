//! Numbers for people: few digits, and the unit that suits.

use dwell_base::Rate;
use dwell_base::time::{SECOND_NS, format_duration_ns};

/// The text for a number that is missing.
pub const NOTHING: &str = "-";

/// `1,234,567`
pub fn count(number: u64) -> String {
    grouped(&number.to_string())
}

/// `1 packet`, `1,234 packets`: for nouns that take an s.
pub fn counted(number: u64, noun: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{} {noun}{s}", count(number))
}

/// `0.001235`, `12.35`, `123,457`, `1.235e-7`: any number, with four significant digits. Whole
/// digits are never rounded away below ten million.
pub fn number(number: f64) -> String {
    if !number.is_finite() || number == 0.0 {
        return if number == 0.0 { "0".to_owned() } else { number.to_string() };
    }
    // Rounded first: 9.9996 has two digits before the point, then.
    let rounded = format!("{number:.3e}");
    let (mantissa, exponent) = rounded.split_once('e').unwrap_or((&rounded, "0"));
    match exponent.parse::<i32>() {
        Ok(exponent @ -4..=6) => {
            let decimals = usize::try_from(3 - exponent).unwrap_or(0);
            grouped(without_zeros(&format!("{number:.decimals$}")))
        }
        _ => format!("{}e{exponent}", without_zeros(mantissa)),
    }
}

/// `1.5 to 2`; a question mark stands for an unknown end.
pub fn between(low: Option<f64>, high: Option<f64>) -> String {
    let end = |end: Option<f64>| end.map_or_else(|| "?".to_owned(), number);
    format!("{} to {}", end(low), end(high))
}

/// `12,345.6`: commas between the whole digits of a decimal number, if there are four or more.
pub fn grouped(decimal: &str) -> String {
    let start = decimal.find(|c: char| c.is_ascii_digit()).unwrap_or(0);
    let end = decimal.find('.').unwrap_or(decimal.len()).max(start);
    let (sign, whole, rest) = (&decimal[..start], &decimal[start..end], &decimal[end..]);
    let mut out = sign.to_owned();
    for (at, digit) in whole.char_indices() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out + rest
}

/// `1.50` is `1.5`.
fn without_zeros(decimal: &str) -> &str {
    match decimal.contains('.') {
        true => decimal.trim_end_matches('0').trim_end_matches('.'),
        false => decimal,
    }
}

/// `12.3 MB`: decimal, as rates are.
pub fn bytes(bytes: u64) -> String {
    let (unit, name) = match bytes {
        0..1_000 => return format!("{bytes} B"),
        1_000..1_000_000 => (1e3, "kB"),
        1_000_000..1_000_000_000 => (1e6, "MB"),
        1_000_000_000..1_000_000_000_000 => (1e9, "GB"),
        _ => (1e12, "TB"),
    };
    format!("{:.1} {name}", bytes as f64 / unit)
}

/// `2.50 Mbit/s`; zero is allowed, for measured rates.
pub fn rate(bps: u64) -> String {
    match Rate::from_bps(bps) {
        Some(rate) => rate.to_string(),
        None if bps == 0 => "0 bit/s".to_owned(),
        None => format!("{:.2} Gbit/s", bps as f64 / 1e9),
    }
}

/// `0.529`: compressed / original.
pub fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| NOTHING.to_owned(), |ratio| format!("{ratio:.3}"))
}

/// `47.1 %` of `whole`; a dash if `whole` is zero.
pub fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return NOTHING.to_owned();
    }
    let percent = part as f64 * 100.0 / whole as f64;
    // 0.0 % and 100.0 % are shown only if they are exact.
    match part {
        0 => "0 %".to_owned(),
        _ if part == whole => "100 %".to_owned(),
        _ if percent < 0.1 => "<0.1 %".to_owned(),
        _ if percent > 99.9 && part < whole => ">99.9 %".to_owned(),
        _ => format!("{percent:.1} %"),
    }
}

/// `12.3 ms`, `4.20 s`, `3 h 12 min`, `2 d 4 h`
pub fn duration(ns: u64) -> String {
    let seconds = ns / SECOND_NS;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format_duration_ns(ns),
        60..3600 => format!("{minutes} min {} s", seconds % 60),
        3600..86_400 => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_no_plural() {
        let shown = [0, 1, 1_234].map(|number| counted(number, "packet"));
        assert_eq!(shown, ["0 packets", "1 packet", "1,234 packets"]);
    }

    #[test]
    fn counts_are_grouped() {
        let shown = [0, 999, 1000, 12_345, 1_234_567].map(count);
        assert_eq!(shown, ["0", "999", "1,000", "12,345", "1,234,567"]);
    }

    #[test]
    fn numbers_have_four_digits() {
        let shown =
            [0.0, -0.0, 0.5, 1.0, 9.9996, 12.345_6, 1e-4, 123_456.7, -0.001_234_56].map(number);
        let expected = ["0", "0", "0.5", "1", "10", "12.35", "0.0001", "123,457", "-0.001235"];
        assert_eq!(shown, expected);
        let shown = [1.5e-7, 2e300, f64::NAN, f64::INFINITY, 5e-324].map(number);
        assert_eq!(shown, ["1.5e-7", "2e300", "NaN", "inf", "4.941e-324"]);
        assert_eq!(between(Some(0.1), None), "0.1 to ?");
    }

    #[test]
    fn bytes_have_decimal_units() {
        let shown = [0, 999, 1000, 1_200_000, 3_000_000_000, 4_500_000_000_000].map(bytes);
        assert_eq!(shown, ["0 B", "999 B", "1.0 kB", "1.2 MB", "3.0 GB", "4.5 TB"]);
    }

    #[test]
    fn shares_do_not_round_to_all_or_nothing() {
        let shown = [0, 1, 300, 5000, 9999, 10_000, 20_000].map(|part| share(part, 10_000));
        assert_eq!(shown, ["0 %", "<0.1 %", "3.0 %", "50.0 %", ">99.9 %", "100 %", "200.0 %"]);
        assert_eq!(share(0, 0), "-");
    }

    #[test]
    fn durations_change_units() {
        let shown = [0, 1_500_000, 59, 60, 3_599, 3_600, 90_000]
            .map(|n| duration(if n > 100_000 { n } else { n * SECOND_NS }));
        assert_eq!(
            shown,
            ["0 ns", "1.5 ms", "59.00 s", "1 min 0 s", "59 min 59 s", "1 h 0 min", "1 d 1 h"]
        );
    }

    #[test]
    fn rates_and_ratios() {
        assert_eq!(rate(0), "0 bit/s");
        assert_eq!(rate(2_500_000), "2.50 Mbit/s");
        assert_eq!(rate(2_000_000_000_000), "2000.00 Gbit/s");
        assert_eq!((ratio(None).as_str(), ratio(Some(0.5)).as_str()), ("-", "0.500"));
    }
}
