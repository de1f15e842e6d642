//! The rate of a link, if it is limited at all.

use std::fmt;
use std::str::FromStr;

use dwell_base::Rate;
use dwell_base::rate::ParseRateError;
use serde::{Deserialize, Serialize};

/// The rate of a link; `None` is a plain cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct LinkRate(pub(super) Option<Rate>);

impl LinkRate {
    /// Bits per second, if it is limited.
    pub(super) fn bps(self) -> Option<u64> {
        self.0.map(Rate::as_bps)
    }
}

impl FromStr for LinkRate {
    type Err = ParseRateError;

    fn from_str(text: &str) -> Result<Self, ParseRateError> {
        if text == "unlimited" { Ok(Self(None)) } else { text.parse().map(|rate| Self(Some(rate))) }
    }
}

impl fmt::Display for LinkRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(rate) => rate.fmt(f),
            None => f.write_str("unlimited"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_and_written() {
        let read = |text: &str| text.parse::<LinkRate>().unwrap();
        assert_eq!(read("10mbit").to_string(), "10 Mbit/s");
        assert_eq!(read("unlimited").to_string(), "unlimited");
        assert_eq!(read("unlimited").bps(), None);
        assert!("fast".parse::<LinkRate>().is_err());
    }
}
