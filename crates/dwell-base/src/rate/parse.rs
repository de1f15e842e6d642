//! Parsing of rates.
//!
//! Text that may mean bits or bytes differs by a factor of eight. It is refused, and the error
//! shows both ways to write it.

use std::str::FromStr;

use thiserror::Error;

use super::Rate;
use crate::text::printable;

/// The reason why a text is not a rate.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParseRateError {
    /// No number at the beginning.
    #[error(
        "\"{0}\" does not begin with a number: write for instance \"10Mbit\" (bits per second) \
         or \"10MB/s\" (bytes per second)"
    )]
    NoNumber(String),
    /// A number without a unit.
    #[error(
        "\"{0}\" has no unit: write for instance \"{0}kbit\" or \"{0}Mbit\" (bits per second), or \
         \"{0}kB/s\" or \"{0}MB/s\" (bytes per second)"
    )]
    NoUnit(String),
    /// The unit is unknown.
    #[error(
        "\"{0}\" is no unit of rate: use bit, kbit, Mbit or Gbit (bits per second), or B/s, kB/s, \
         MB/s, GB/s, KiB/s, MiB/s or GiB/s (bytes per second)"
    )]
    Unit(String),
    /// The unit may mean bits or bytes.
    #[error(
        "\"{text}\" may mean bits or bytes: write \"{bits}\" for bits per second, or \"{bytes}\" for \
         bytes per second"
    )]
    BitsOrBytes {
        /// The text.
        text: String,
        /// The same number of bits.
        bits: String,
        /// The same number of bytes.
        bytes: String,
    },
    /// Zero, or beyond [`RATE_MAX_BPS`](super::RATE_MAX_BPS).
    #[error("a rate must be between 1bit and 1000Gbit, not \"{0}\"")]
    Range(String),
}

/// Parses a number and a unit, with or without a space between them: `10mbit`, `2.5 Mbit/s`,
/// `512kbps`, `10M` (bits per second), `250kB/s`, `2MiB/s` (bytes per second).
///
/// * Bits: `bit`, `bit/s` or `bps` behind `k`, `M`, `G` or nothing, or the prefix alone. Only the
///   letters of `bps` must be small; the case of all others makes no difference.
/// * Bytes: `B/s` behind `k`, `M`, `G`, `Ki`, `Mi`, `Gi` or nothing. Only the case of the prefix's
///   first letter makes no difference.
///
/// # Errors
/// All other texts: above all those that may mean bits or bytes, such as `250KB` and `10MBps`.
impl FromStr for Rate {
    type Err = ParseRateError;

    fn from_str(text: &str) -> Result<Self, ParseRateError> {
        let text = text.trim();
        let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let no_number = || ParseRateError::NoNumber(printable(text));
        let amount = Amount::parse(number).ok_or_else(no_number)?;
        let unit = unit.trim_start();
        let factor = match Unit::parse(unit) {
            Some(Unit::Bits(factor)) => factor,
            Some(Unit::Bytes(factor)) => 8 * factor,
            Some(Unit::Either(prefix)) => return Err(either(text, number, &amount, prefix)),
            None if unit.is_empty() => return Err(ParseRateError::NoUnit(printable(number))),
            None => return Err(ParseRateError::Unit(printable(unit))),
        };
        amount.times(factor).ok_or_else(|| ParseRateError::Range(printable(text)))
    }
}

/// A decimal number, exact to 12 digits after the point.
struct Amount(u128);

const DIGITS: usize = 12;
/// Digits before the point of the highest rate, in bits per second.
const WHOLE_DIGITS: usize = 13;
const ONE: u128 = 10u128.pow(DIGITS as u32);

impl Amount {
    /// Returns the number that digits and points form. A number beyond all rates stays beyond them,
    /// but may be made smaller.
    fn parse(text: &str) -> Option<Self> {
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        if (whole.is_empty() && part.is_empty()) || part.contains('.') {
            return None;
        }
        let whole = whole.trim_start_matches('0');
        if whole.len() > WHOLE_DIGITS {
            return Some(Self(10u128.pow((WHOLE_DIGITS + DIGITS) as u32)));
        }
        let part = &part[..part.len().min(DIGITS)];
        format!("{whole}{part:0<DIGITS$}").parse().ok().map(Self)
    }

    /// Returns this many times `factor` bits per second, if that is a possible rate.
    fn times(&self, factor: u64) -> Option<Rate> {
        let bps = (self.0 * u128::from(factor) + ONE / 2) / ONE;
        u64::try_from(bps).ok().and_then(Rate::from_bps)
    }
}

/// The meaning of a unit; the factors are those of its prefix.
enum Unit {
    Bits(u64),
    Bytes(u64),
    /// Bits or bytes.
    Either(&'static Prefix),
}

struct Prefix {
    /// The correct spelling for bytes.
    name: &'static str,
    factor: u64,
    is_binary: bool,
}

/// The longer ones first, so that `Ki` isn't taken for `K`.
const PREFIXES: [Prefix; 7] = [
    Prefix { name: "Ki", factor: 1 << 10, is_binary: true },
    Prefix { name: "Mi", factor: 1 << 20, is_binary: true },
    Prefix { name: "Gi", factor: 1 << 30, is_binary: true },
    Prefix { name: "k", factor: 1_000, is_binary: false },
    Prefix { name: "M", factor: 1_000_000, is_binary: false },
    Prefix { name: "G", factor: 1_000_000_000, is_binary: false },
    Prefix { name: "", factor: 1, is_binary: false },
];

impl Unit {
    fn parse(text: &str) -> Option<Self> {
        PREFIXES.iter().find_map(|prefix| Self::behind(prefix, text))
    }

    /// Returns the unit, if it begins with this prefix.
    fn behind(prefix: &'static Prefix, text: &str) -> Option<Self> {
        let (start, rest) = text.split_at_checked(prefix.name.len())?;
        if !start.eq_ignore_ascii_case(prefix.name) {
            return None;
        }
        let lower = rest.to_ascii_lowercase();
        match (rest, lower.as_str()) {
            ("", _) if !start.is_empty() && !prefix.is_binary => Some(Self::Bits(prefix.factor)),
            (_, "bit" | "bits" | "bit/s" | "bits/s") | ("bps", _) if !prefix.is_binary => {
                Some(Self::Bits(prefix.factor))
            }
            ("B/s", _) if start.ends_with('i') || !prefix.is_binary => {
                Some(Self::Bytes(prefix.factor))
            }
            (_, "b" | "b/s" | "bps" | "byte" | "bytes" | "byte/s" | "bytes/s") => {
                Some(Self::Either(prefix))
            }
            _ => None,
        }
    }
}

/// Returns the error that shows both ways to write `number`.
fn either(text: &str, number: &str, amount: &Amount, prefix: &Prefix) -> ParseRateError {
    let bits = match amount.times(prefix.factor) {
        Some(rate) if prefix.is_binary => format!("{rate:#}"),
        _ => format!("{number}{}bit", prefix.name),
    };
    let (text, number) = (printable(text), printable(number));
    ParseRateError::BitsOrBytes { text, bits, bytes: format!("{number}{}B/s", prefix.name) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rate::RATE_MAX_BPS;

    fn bps(text: &str) -> u64 {
        text.parse::<Rate>().unwrap_or_else(|error| panic!("{error}")).as_bps()
    }

    fn error(text: &str) -> String {
        text.parse::<Rate>().expect_err(text).to_string()
    }

    #[test]
    fn bits_are_parsed() {
        for text in ["10mbit", "10 Mbit/s", "10Mbps", "10mbps", "10M", "10m", "10.0MBIT", "10Mbits"]
        {
            assert_eq!(bps(text), 10_000_000, "{text}");
        }
        for text in ["512kbit", "512 kbit/s", "512Kbps", "512k", "512K", "0.512m", " 512kbits/s "] {
            assert_eq!(bps(text), 512_000, "{text}");
        }
        assert_eq!(
            (bps("1gbit"), bps("1G"), bps(".5g")),
            (1_000_000_000, 1_000_000_000, 500_000_000)
        );
        assert_eq!((bps("9600bit"), bps("9600 bit/s"), bps("9600bps")), (9_600, 9_600, 9_600));
        assert_eq!(bps("1000Gbit"), RATE_MAX_BPS);
    }

    #[test]
    fn bytes_are_parsed() {
        assert_eq!(
            (bps("1500B/s"), bps("250kB/s"), bps("250 KB/s")),
            (12_000, 2_000_000, 2_000_000)
        );
        assert_eq!((bps("2MB/s"), bps("1GB/s")), (16_000_000, 8_000_000_000));
        assert_eq!((bps("64KiB/s"), bps("64 kiB/s")), (524_288, 524_288));
        assert_eq!((bps("1.5MiB/s"), bps("1GiB/s")), (12_582_912, 8_589_934_592));
    }

    #[test]
    fn what_may_be_either_is_refused_with_both_ways_to_write_it() {
        assert_eq!(
            error("250KB"),
            "\"250KB\" may mean bits or bytes: write \"250kbit\" for bits per second, or \"250kB/s\" \
             for bytes per second"
        );
        for (text, bits, bytes) in [
            ("2MB", "2Mbit", "2MB/s"),
            ("2 mb/s", "2Mbit", "2MB/s"),
            ("10MBps", "10Mbit", "10MB/s"),
            ("10MBPS", "10Mbit", "10MB/s"),
            ("100Mb", "100Mbit", "100MB/s"),
            ("9600b", "9600bit", "9600B/s"),
            ("9600B", "9600bit", "9600B/s"),
            ("1.5 gbytes/s", "1.5Gbit", "1.5GB/s"),
            ("250KiB", "256kbit", "250KiB/s"),
            ("3mib/s", "3.145728Mbit", "3MiB/s"),
        ] {
            let error = error(text);
            assert!(error.contains(&format!("\"{bits}\" for bits")), "{text}: {error}");
            assert!(error.contains(&format!("\"{bytes}\" for bytes")), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        for (text, why) in [
            ("", "does not begin with a number"),
            ("mbit", "does not begin with a number"),
            ("-1mbit", "does not begin with a number"),
            ("10", "\"10Mbit\" (bits per second), or \"10kB/s\""),
            ("1 parsec", "\"parsec\" is no unit of rate"),
            ("10Kibit", "no unit of rate"),
            ("10Ki", "no unit of rate"),
            ("1,000kbit", "no unit of rate"),
            ("1e3kbit", "no unit of rate"),
            ("10mbit 5", "no unit of rate"),
            ("10µ", "no unit of rate"),
            ("0mbit", "between 1bit and 1000Gbit"),
            ("0.4bit", "between 1bit and 1000Gbit"),
            ("1001gbit", "between 1bit and 1000Gbit"),
            ("126GB/s", "between 1bit and 1000Gbit"),
            ("99999999999999999999999999999999999999999bit", "between 1bit and 1000Gbit"),
            ("1.2.3mbit", "does not begin with a number"),
            (".mbit", "does not begin with a number"),
            ("\u{1b}[31m", "\\u{1b}"),
        ] {
            assert!(error(text).contains(why), "{text}: {}", error(text));
        }
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(text in "[0-9.]{0,45} ?[kKmMgGiIbBpPsS/tyeµ]{0,8}") {
            if let Err(ParseRateError::BitsOrBytes { bits, bytes, .. }) = text.parse::<Rate>() {
                // The proposals of an error can be parsed, and differ by a factor of eight.
                if let (Ok(bits), Ok(bytes)) = (bits.parse::<Rate>(), bytes.parse::<Rate>()) {
                    let eightfold = bits.as_bps() * 8;
                    prop_assert!(eightfold.abs_diff(bytes.as_bps()) <= 4, "{text}");
                }
            }
        }

        #[test]
        fn bytes_are_eight_bits(amount in 1u64..125_000, prefix in "[kM]?") {
            let bits = format!("{}{prefix}bit", amount * 8);
            prop_assert_eq!(bps(&format!("{amount}{prefix}B/s")), bps(&bits));
        }
    }
}
