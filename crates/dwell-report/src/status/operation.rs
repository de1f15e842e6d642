//! What an operator asks first: which configuration is in force, what was saved, and what passes now.

use serde::{Deserialize, Serialize};

/// The configuration of a node that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigurationStatus {
    /// The file that it was read from.
    pub path: String,
    /// The number of times that it was read again, whether it was taken or refused.
    pub reloads: u64,
    /// What was wrong with the file when it was last read again, if it was refused.
    #[serde(default)]
    pub refused: Option<String>,
    /// The keys whose new values need a restart.
    #[serde(default)]
    pub waits_for_restart: Option<String>,
}

/// Packets sent and what the link carried for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// Bytes that the packets would have taken on the link without dwell.
    pub plain_bytes: u64,
    /// All bytes that the link carried for the peers.
    pub taken_bytes: u64,
}

impl Saved {
    /// Returns the bytes saved; negative if dwell cost more than it saved.
    pub fn net_bytes(&self) -> i64 {
        let net = i128::from(self.plain_bytes) - i128::from(self.taken_bytes);
        i64::try_from(net).unwrap_or(if net < 0 { i64::MIN } else { i64::MAX })
    }

    /// Returns both sums with those of `other`.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            plain_bytes: self.plain_bytes.saturating_add(other.plain_bytes),
            taken_bytes: self.taken_bytes.saturating_add(other.taken_bytes),
        }
    }
}

/// What was saved on the links from this node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SavingsStatus {
    /// True if the account outlives the process.
    pub kept: bool,
    /// Since midnight, UTC.
    pub today: Saved,
    /// Of the last 30 days, today among them.
    pub days_30: Saved,
    /// Since the account began.
    pub total: Saved,
    /// The days since the account began, today among them.
    pub total_days: u64,
    /// The price of a gigabyte, if it is configured.
    #[serde(default)]
    pub cost_per_gb: Option<f64>,
    /// Its currency.
    #[serde(default)]
    pub currency: String,
}

/// The traffic of a peer in the last seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecentTraffic {
    /// The time over which it was measured.
    pub window_ns: u64,
    /// The rate of packets that came for the peer.
    pub offered_bps: u64,
    /// The rate of all that the link carried for the peer, headers included.
    pub link_bps: u64,
    /// The rate of packets that came from the peer, as they were before any compressing.
    pub received_bps: u64,
    /// The rate of datagrams that came from the peer.
    pub received_link_bps: u64,
    /// The part of the link's rate that was used, in parts per million; null while the rate is unknown.
    pub utilisation_ppm: Option<u64>,
}
