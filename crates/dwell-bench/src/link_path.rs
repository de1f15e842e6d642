//! A link by its rate and delay, as a place of a bench.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use dwell_base::time::{format_duration_ns, parse_duration_ns};
use dwell_lab::lab::{Lab, LabError};
use serde::{Deserialize, Serialize};

use super::bed::Bed;
use super::link_rate::LinkRate;

/// A link's rate, and its delay each way: `20mbit/10ms`, `100mbit`, `unlimited`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct LinkPath {
    #[serde(rename = "rate_bps")]
    pub(super) rate: LinkRate,
    pub(super) delay_ns: u64,
}

impl LinkPath {
    /// Builds it.
    pub(super) fn bed(self, lab: &mut Lab) -> Result<Bed<'_>, LabError> {
        Bed::new(lab, self.rate, self.delay_ns)
    }

    /// There and back.
    pub(super) const fn round_trip(self) -> Duration {
        Duration::from_nanos(2 * self.delay_ns)
    }
}

impl FromStr for LinkPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (rate, delay) = text.split_once('/').unwrap_or((text, "0ms"));
        let rate: LinkRate = rate.parse().map_err(|error| format!("{error}"))?;
        let delay_ns = parse_duration_ns(delay)?;
        if rate.bps().is_none() && delay_ns > 0 {
            return Err(
                "an unlimited link has no delay: what emulates it would be the limit".into()
            );
        }
        Ok(Self { rate, delay_ns })
    }
}

impl fmt::Display for LinkPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.delay_ns {
            0 => self.rate.fmt(f),
            delay_ns => write!(f, "{}, {} each way", self.rate, format_duration_ns(delay_ns)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_read_and_written() {
        let read = |text: &str| text.parse::<LinkPath>().map(|line| line.to_string());
        assert_eq!(read("20mbit/10ms").unwrap(), "20 Mbit/s, 10.0 ms each way");
        assert_eq!(read("100mbit").unwrap(), "100 Mbit/s");
        assert_eq!(read("unlimited").unwrap(), "unlimited");
        assert_eq!(
            "20mbit/10ms".parse::<LinkPath>().unwrap().round_trip(),
            Duration::from_millis(20)
        );
        for text in ["", "fast/1ms", "20mbit/soon", "unlimited/1ms"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
