//! Link rates in bits per second.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use crate::time::SECOND_NS;

/// How fast a link is, in bits per second. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

/// The highest rate that is accepted, 1 Tbit/s: beyond it integer arithmetic on
/// nanoseconds would lose its meaning, and no link that dwell is for is near it.
pub const RATE_MAX_BPS: u64 = 1_000_000_000_000;

impl Rate {
    /// A rate of `bps` bits per second, if that is in `1..=RATE_MAX_BPS`.
    pub const fn from_bps(bps: u64) -> Option<Self> {
        if bps == 0 || bps > RATE_MAX_BPS { None } else { Some(Self(bps)) }
    }

    /// A rate of `bps` bits per second, moved into the range of possible rates.
    pub fn clamped_bps(bps: u64) -> Self {
        Self(bps.clamp(1, RATE_MAX_BPS))
    }

    /// A rate of `mbps` Mbit/s; moved into the range of possible rates.
    pub fn from_mbps(mbps: u64) -> Self {
        Self::clamped_bps(mbps.saturating_mul(1_000_000))
    }

    /// Bits per second.
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// How long `bytes` occupy the link, in nanoseconds, rounded up.
    pub const fn transmission_ns(self, bytes: u64) -> u64 {
        // Division of 128 bits is slow, and what fits 64 is all that is ever on a wire.
        if bytes <= u64::MAX / (8 * SECOND_NS) {
            return (bytes * 8 * SECOND_NS).div_ceil(self.0);
        }
        let bit_ns = bytes as u128 * 8 * SECOND_NS as u128;
        let ns = bit_ns.div_ceil(self.0 as u128);
        if ns > u64::MAX as u128 { u64::MAX } else { ns as u64 }
    }

    /// How many whole bytes the link carries in `ns` nanoseconds.
    pub const fn bytes_in_ns(self, ns: u64) -> u64 {
        let bytes = ns as u128 * self.0 as u128 / (8 * SECOND_NS as u128);
        if bytes > u64::MAX as u128 { u64::MAX } else { bytes as u64 }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            1_000_000_000.. => (1e9, "Gbit/s"),
            1_000_000.. => (1e6, "Mbit/s"),
            1_000.. => (1e3, "kbit/s"),
            _ => (1.0, "bit/s"),
        };
        let value = self.0 as f64 / unit;
        if value.fract() == 0.0 {
            write!(f, "{value:.0} {name}")
        } else {
            write!(f, "{value:.2} {name}")
        }
    }
}

/// Why a text is not a rate.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParseRateError {
    /// No number at the beginning.
    #[error("\"{0}\" does not begin with a number: write for instance \"10mbit\"")]
    NoNumber(String),
    /// The unit is missing or unknown.
    #[error("\"{0}\" is no unit of rate: use bit, kbit, mbit or gbit (per second)")]
    Unit(String),
    /// Zero, or beyond [`RATE_MAX_BPS`].
    #[error("a rate must be between 1bit and 1000gbit, not \"{0}\"")]
    Range(String),
}

/// Reads `10mbit`, `2.5 Mbit/s`, `512kbit`, `1gbit`, `9600bit` (the units of `tc`).
impl FromStr for Rate {
    type Err = ParseRateError;

    fn from_str(text: &str) -> Result<Self, ParseRateError> {
        let text = text.trim();
        let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let number: f64 = number.parse().map_err(|_| ParseRateError::NoNumber(text.to_owned()))?;
        let unit = unit.trim().to_ascii_lowercase();
        let unit = unit.strip_suffix("/s").or_else(|| unit.strip_suffix("ps")).unwrap_or(&unit);
        let factor = match unit {
            "bit" | "b" => 1.0,
            "kbit" | "kb" => 1e3,
            "mbit" | "mb" => 1e6,
            "gbit" | "gb" => 1e9,
            other => return Err(ParseRateError::Unit(other.to_owned())),
        };
        let bps = number * factor;
        if !(1.0..=RATE_MAX_BPS as f64).contains(&bps) {
            return Err(ParseRateError::Range(text.to_owned()));
        }
        Ok(Self(bps.round() as u64))
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Raw {
            Bps(u64),
            Text(String),
        }
        match Raw::deserialize(deserializer)? {
            Raw::Bps(bps) => Self::from_bps(bps)
                .ok_or_else(|| serde::de::Error::custom(ParseRateError::Range(bps.to_string()))),
            Raw::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_the_units_of_tc() {
        assert_eq!("10mbit".parse(), Ok(Rate::from_mbps(10)));
        assert_eq!("2.5 Mbit/s".parse(), Ok(Rate(2_500_000)));
        assert_eq!("512kbit".parse(), Ok(Rate(512_000)));
        assert_eq!("1Gbps".parse(), Ok(Rate(1_000_000_000)));
        for bad in ["", "mbit", "10", "0mbit", "-1mbit", "5000gbit", "1 parsec", "nanmbit"] {
            assert!(bad.parse::<Rate>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_500_byte_packet_takes_40_us_at_100_mbit() {
        assert_eq!(Rate::from_mbps(100).transmission_ns(500), 40_000);
        assert_eq!(Rate::from_mbps(100).bytes_in_ns(40_000), 500);
    }

    #[test]
    fn shows_a_fitting_unit() {
        assert_eq!(Rate::from_mbps(10).to_string(), "10 Mbit/s");
        assert_eq!(Rate(2_500_000).to_string(), "2.50 Mbit/s");
        assert_eq!(Rate(999).to_string(), "999 bit/s");
    }

    proptest! {
        #[test]
        fn time_and_bytes_are_inverse(bps in 1u64..RATE_MAX_BPS, bytes in 0u64..1 << 40) {
            let rate = Rate(bps);
            let ns = rate.transmission_ns(bytes);
            if ns < u64::MAX {
                prop_assert!(rate.bytes_in_ns(ns) >= bytes);
                // One nanosecond less is not enough for them all.
                prop_assert!(ns == 0 || rate.bytes_in_ns(ns - 1) < bytes);
            }
        }
    }
}
