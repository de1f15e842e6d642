//! What a run of a stream and its record are about.

use serde::{Deserialize, Serialize};

use super::super::link_rate::LinkRate;
use super::super::record::Run;
use super::Stream;
use super::speed::Speed;

/// The conditions of all runs of a file: runs may be compared if these are the same.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Conditions {
    /// The least time for which a run is measured.
    pub(super) seconds: f64,
    pub(super) seed: u64,
}

/// The settings at both ends and on the path, besides the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Setting {
    /// The link's delay each way.
    pub(super) delay_ns: u64,
    /// True if another stream takes half of the link.
    pub(super) competing: bool,
    pub(super) block_bytes: usize,
    pub(super) buffer_bytes: usize,
}

impl Setting {
    /// The usual configuration of a stream, with these lengths.
    pub(super) fn config(self, strategy: dwell_stream::Strategy) -> dwell_stream::Config {
        let mut config = dwell_stream::Config::new(strategy);
        config.block_len = self.block_bytes;
        config.buffer_len = self.buffer_bytes;
        config
    }
}

impl Default for Setting {
    fn default() -> Self {
        let usual = dwell_stream::Config::default();
        Self {
            delay_ns: 0,
            competing: false,
            block_bytes: usual.block_len,
            buffer_bytes: usual.buffer_len,
        }
    }
}

/// A link, and what is sent over it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Place {
    #[serde(flatten)]
    pub(super) setting: Setting,
    #[serde(rename = "rate_bps")]
    pub(super) rate: LinkRate,
    pub(super) workload: String,
}

/// One run.
pub(super) type StreamRun = Run<Stream>;

/// The measurements, and what the bounds are made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Found {
    /// The one codec that the contender has.
    pub(super) codec: Option<String>,
    /// The speeds and ratios of codecs on these data.
    pub(super) speeds: Vec<Speed>,
    #[serde(flatten)]
    pub(super) transfer: Measured,
}

/// The measurements.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(super) window_ns: u64,
    /// Bytes that arrived for the application in the window, each compared with what was sent.
    pub(super) application_bytes: u64,
    /// The bytes that the sender's host put on the link in the window, Ethernet headers included.
    pub(super) link_bytes: u64,
    /// CPU time in the window of everything that sends and receives.
    pub(super) cpu_ns: u64,
    /// Of the whole run, for strategies of ours.
    pub(super) stream: Option<StreamAccounts>,
}

/// The accounts of a sender of ours.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StreamAccounts {
    pub(super) framed_bytes: u64,
    pub(super) wire_bytes: u64,
    pub(super) raw_bytes: u64,
    pub(super) compressed_original_bytes: u64,
    pub(super) compressed_bytes: u64,
    pub(super) compress_ns: u64,
    /// CPU time of the thread that sends, and compresses unless another one does.
    pub(super) thread_cpu_ns: u64,
    /// Writes of one unit each, for strategies in units.
    pub(super) segments: u64,
    /// The segments that TCP has made of all that was written, without those that were sent again.
    #[serde(default)]
    pub(super) tcp_segments: u64,
    pub(super) failures: u64,
    pub(super) efficiency: f64,
    /// The mean share of the sender's buffer that was full.
    pub(super) fill: f64,
    /// Original bytes by codec.
    pub(super) by_codec: Vec<(String, u64)>,
}

impl Measured {
    pub(super) fn goodput_bps(&self) -> f64 {
        self.application_bytes as f64 * 8e9 / self.window_ns.max(1) as f64
    }
}
