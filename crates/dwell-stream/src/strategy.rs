//! The names of the strategies.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::ParseStrategyError;

/// The strategy by which a sender decides which blocks are compressed, and with which codec.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Strategy {
    /// Nothing is compressed ("Non-Compressed").
    Raw,
    /// Everything is compressed before it is sent ("All-Compressed").
    All,
    /// All or nothing, whichever carried more recently, with probes of 5 % ("Simple Switching", Pu
    /// and Singaravelu, section 3).
    Switch,
    /// Data that wait are compressed with one codec; the rest is sent raw ("Single-Thread FG
    /// Mixing", section 4.3).
    Mix,
    /// The same with a thread that compresses, in order ("send-in-order", section 4.1).
    MixInOrder,
    /// The same, but blocks that are being compressed may be overtaken, and the receiver sorts
    /// ("send-out-of-order", section 4.1).
    MixOutOfOrder,
    /// Mixing with several codecs and levels at once, in the shares that carry most: ours.
    #[default]
    Hull,
    /// Units that fill one TCP segment each when compressed (Wang et al., "TCPComp").
    TcpComp,
    /// Units of at most one segment before compression (Lee et al., "kernel-level").
    KernelLevel,
    /// No framing at all: the bytes as they are, to compare with.
    Plain,
}

impl Strategy {
    /// All strategies.
    pub const ALL: [Self; 10] = [
        Self::Raw,
        Self::All,
        Self::Switch,
        Self::Mix,
        Self::MixInOrder,
        Self::MixOutOfOrder,
        Self::Hull,
        Self::TcpComp,
        Self::KernelLevel,
        Self::Plain,
    ];

    /// Returns the name that users write and read.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::All => "all",
            Self::Switch => "switch",
            Self::Mix => "mix",
            Self::MixInOrder => "mix-2in",
            Self::MixOutOfOrder => "mix-2out",
            Self::Hull => "hull",
            Self::TcpComp => "tcpcomp",
            Self::KernelLevel => "kernel-level",
            Self::Plain => "plain",
        }
    }

    /// Returns true if it cuts the stream to segments of the transport.
    pub const fn is_segmented(self) -> bool {
        matches!(self, Self::TcpComp | Self::KernelLevel | Self::Plain)
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Strategy {
    type Err = ParseStrategyError;

    fn from_str(text: &str) -> Result<Self, ParseStrategyError> {
        let name = text.trim();
        Self::ALL
            .into_iter()
            .find(|strategy| strategy.name().eq_ignore_ascii_case(name))
            .ok_or_else(|| ParseStrategyError(name.to_owned()))
    }
}

impl Serialize for Strategy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Strategy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_can_be_read_back() {
        for strategy in Strategy::ALL {
            assert_eq!(strategy.to_string().parse(), Ok(strategy));
        }
        let error = "zip".parse::<Strategy>().unwrap_err().to_string();
        assert!(error.starts_with("\"zip\" is no strategy: use raw, all, switch, mix"), "{error}");
    }
}
