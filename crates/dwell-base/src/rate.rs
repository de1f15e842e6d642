//! Link rates in bits per second.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::time::SECOND_NS;

mod parse;

pub use parse::ParseRateError;

/// The rate of a link, in bits per second. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

/// The highest rate that is accepted, 1 Tbit/s: beyond it integer arithmetic on
/// nanoseconds would lose its meaning, and no link that dwell is for is near it.
pub const RATE_MAX_BPS: u64 = 1_000_000_000_000;

impl Rate {
    /// Makes a rate of `bps` bits per second, if that is in `1..=RATE_MAX_BPS`.
    pub const fn from_bps(bps: u64) -> Option<Self> {
        if bps == 0 || bps > RATE_MAX_BPS { None } else { Some(Self(bps)) }
    }

    /// Makes a rate of `bps` bits per second, clamped to the range of possible rates.
    pub fn clamped_bps(bps: u64) -> Self {
        Self(bps.clamp(1, RATE_MAX_BPS))
    }

    /// Makes a rate of `mbps` Mbit/s, clamped to the range of possible rates.
    pub fn from_mbps(mbps: u64) -> Self {
        Self::clamped_bps(mbps.saturating_mul(1_000_000))
    }

    /// Returns the bits per second.
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// Returns the time for which `bytes` occupy the link, in nanoseconds, rounded up.
    pub const fn transmission_ns(self, bytes: u64) -> u64 {
        // Division of 128 bits is slow, and every length on a real wire fits into 64.
        if bytes <= u64::MAX / (8 * SECOND_NS) {
            return (bytes * 8 * SECOND_NS).div_ceil(self.0);
        }
        let bit_ns = bytes as u128 * 8 * SECOND_NS as u128;
        let ns = bit_ns.div_ceil(self.0 as u128);
        if ns > u64::MAX as u128 { u64::MAX } else { ns as u64 }
    }

    /// Returns the number of whole bytes that the link carries in `ns` nanoseconds.
    pub const fn bytes_in_ns(self, ns: u64) -> u64 {
        // Division of 128 bits is slow, and rarely needed.
        if let Some(bit_ns) = ns.checked_mul(self.0) {
            return bit_ns / (8 * SECOND_NS);
        }
        let bytes = ns as u128 * self.0 as u128 / (8 * SECOND_NS as u128);
        if bytes > u64::MAX as u128 { u64::MAX } else { bytes as u64 }
    }
}

/// Writes at most two digits after the point: `9.52 Mbit/s`. The alternate form, `{:#}`, is exact
/// and has no space: `9.523417Mbit`. Both can be parsed; the first gives the rounded rate.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            return self.fmt_exact(f);
        }
        let hundredths = |unit: u64| (self.0 * 100 + unit / 2) / unit;
        let (unit, prefix) = match self.0 {
            0..1_000 => (1, ""),
            // Values that would be rounded to a thousand are shown as one of the next unit.
            _ if hundredths(1_000) < 100_000 => (1_000, "k"),
            _ if hundredths(1_000_000) < 100_000 => (1_000_000, "M"),
            _ => (1_000_000_000, "G"),
        };
        let (whole, part) = (hundredths(unit) / 100, hundredths(unit) % 100);
        match part {
            0 => write!(f, "{whole} {prefix}bit/s"),
            _ => write!(f, "{whole}.{part:02} {prefix}bit/s"),
        }
    }
}

impl Rate {
    fn fmt_exact(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, digits, prefix) = match self.0 {
            1_000_000_000.. => (1_000_000_000, 9, "G"),
            1_000_000.. => (1_000_000, 6, "M"),
            1_000.. => (1_000, 3, "k"),
            _ => (1, 0, ""),
        };
        write!(f, "{}", self.0 / unit)?;
        let part = self.0 % unit;
        if part > 0 {
            let part = format!("{part:0digits$}");
            write!(f, ".{}", part.trim_end_matches('0'))?;
        }
        write!(f, "{prefix}bit")
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
    use serde::de::IntoDeserializer;
    use serde::de::value::{Error as ValueError, StrDeserializer, U64Deserializer};

    use super::*;

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
        assert_eq!(Rate(999_994).to_string(), "999.99 kbit/s");
        assert_eq!(Rate(999_995).to_string(), "1 Mbit/s");
        assert_eq!(Rate(1_001_000).to_string(), "1 Mbit/s");
        assert_eq!(Rate(RATE_MAX_BPS).to_string(), "1000 Gbit/s");
    }

    #[test]
    fn the_alternate_form_is_exact() {
        assert_eq!(format!("{:#}", Rate::from_mbps(10)), "10Mbit");
        assert_eq!(format!("{:#}", Rate(9_523_417)), "9.523417Mbit");
        assert_eq!(format!("{:#}", Rate(1_050)), "1.05kbit");
        assert_eq!(format!("{:#}", Rate(999)), "999bit");
        assert_eq!(format!("{:#}", Rate(RATE_MAX_BPS)), "1000Gbit");
    }

    /// Rates of all magnitudes, and those around which the unit changes.
    fn rates() -> impl Strategy<Value = Rate> {
        let magnitudes = (0u32..40, any::<u64>()).prop_map(|(bits, bps)| bps >> (24 + bits));
        let edges = prop_oneof![Just(1_000u64), Just(1_000_000), Just(1_000_000_000)];
        let near = (edges, -6_000i64..6_000).prop_map(|(at, by)| at.saturating_add_signed(by));
        prop_oneof![magnitudes, near].prop_map(Rate::clamped_bps)
    }

    proptest! {
        #[test]
        fn every_displayed_rate_parses_to_itself(rate in rates()) {
            let exact = format!("{rate:#}");
            prop_assert_eq!(exact.parse(), Ok(rate));
            let shown = rate.to_string();
            let parsed: Rate = shown.parse().unwrap();
            prop_assert_eq!(&parsed.to_string(), &shown);
            // Rounded, by half a hundredth of a unit at most.
            let error = parsed.as_bps().abs_diff(rate.as_bps());
            prop_assert!(error <= rate.as_bps() / 200 + 1, "{shown} is {rate:?}");
            let number: U64Deserializer<ValueError> = rate.as_bps().into_deserializer();
            prop_assert_eq!(Rate::deserialize(number).unwrap(), rate);
            let text: StrDeserializer<'_, ValueError> = exact.as_str().into_deserializer();
            prop_assert_eq!(Rate::deserialize(text).unwrap(), rate);
        }

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
