//! The contents of a capture, and the effect of compressing it.
//!
//! Three parts work on a capture. [`Accounts`] sees every packet in order and costs little: hosts,
//! sizes, times. [`HistoryAnalyzer`] takes packets in [`Batch`]es, all in order, and compresses those
//! that refer to earlier ones. [`Analyzer`] takes them then and compresses them in all other ways; there
//! batches don't depend on each other, so that any number of threads may each take some. All give
//! an [`Analysis`], and analyses add up ([`Analysis::merge`]) to the same sums, whatever was done
//! where and in which order. Who has [`Analyzer::look`] see all batches may have [`Analyzer::measure`] see those that
//! each [`Piece`] of the capture gives, elsewhere. The sums are exact while no table was full: beyond that, the
//! distinguished pairs and flows depend on the order.

mod accounts;
mod batch;
mod blocks;
mod bound;
mod compress;
mod directions;
mod distribution;
mod entropy;
mod hash;
mod history;
mod pairs;
mod piece;
mod record;
#[cfg(test)]
pub(crate) mod tests;
mod timing;
mod ways;

use std::fmt;
use std::str::FromStr;

use dwell_base::Rate;
use dwell_codec::CodecSpec;
use serde::{Deserialize, Serialize};

pub use accounts::{Accounts, FLOWS_MAX};
pub use batch::{BATCH_PACKETS, Batch};
pub use blocks::{BlockSums, Blocks, GROUPINGS, Grouping, MS};
pub use compress::{Analyzer, Clock};
pub use directions::{DirectionSums, Directions};
pub use distribution::Distribution;
pub use entropy::{Entropy, PAYLOAD_BYTES_MIN};
pub use history::{Histories, HistoryAnalyzer, HistorySums, RECORD_BYTES};
pub use pairs::{CodecSums, PAIRS_MAX, Pair, Pairs, PartSums};
pub use piece::Piece;
pub use record::{Analysis, FileRecord, Flows, MergeError, SCHEMA, SIZE_ENDS, Sums};
pub use timing::{Burst, SPANS_NS, Timeline, Timing, Waits};
pub use ways::WAYS_MAX;

/// The part of a packet that is compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Over {
    /// The whole IP packet, as a relay compresses it and as Shimamura et al. did ("each captured
    /// packet").
    #[default]
    Packet,
    /// The payload behind the headers of IP and of TCP or UDP.
    Payload,
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Packet => "packet",
            Self::Payload => "payload",
        })
    }
}

impl FromStr for Over {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "packet" => Ok(Self::Packet),
            "payload" => Ok(Self::Payload),
            _ => Err(format!("\"{text}\" is neither \"packet\" nor \"payload\"")),
        }
    }
}

/// The settings of an analysis. Only analyses with the same settings add up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The part of a packet that is compressed.
    pub over: Over,
    /// The codecs to measure; the first one makes the exception list. None for accounts only.
    pub codecs: Vec<CodecSpec>,
    /// The codec to measure blocks with; none for no blocks.
    pub block_codec: Option<CodecSpec>,
    /// The codec to measure history with; none for no contexts.
    #[serde(default)]
    pub context_codec: Option<CodecSpec>,
    /// The rates of the links that packets would wait for.
    pub rates: Vec<Rate>,
    /// True if the least that relays could make of the bytes is not asked for, which takes many times as long as all
    /// else; there is no verdict then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_without_bound: bool,
}

impl Settings {
    /// Returns true if the least that relays could make of the bytes is asked for.
    fn has_bound(&self) -> bool {
        !self.codecs.is_empty() && !self.is_without_bound
    }
}
