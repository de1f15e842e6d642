//! The flows that send most.

use serde::{Deserialize, Serialize};

/// A flow to a peer, counted while somebody asks for the status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowStatus {
    /// The peer that its packets go to.
    pub peer: String,
    /// The protocol's number in the IP header.
    pub protocol: u8,
    /// Its source: an address, with the port if the protocol has some.
    pub source: String,
    /// Its destination, likewise.
    pub destination: String,
    /// Packets since it was first seen.
    pub packets: u64,
    /// Their bytes, as they came.
    pub bytes: u64,
    /// The rate in the last second or so.
    pub bps: u64,
    /// The time since it was first seen.
    pub for_ns: u64,
    /// Of its packets, those that were sent.
    #[serde(default)]
    pub sent_packets: u64,
    /// Their bytes, as they came.
    #[serde(default)]
    pub sent_bytes: u64,
    /// The bytes that those would have taken on the link without dwell: their own, and for each packet what a
    /// datagram costs below IP.
    #[serde(default)]
    pub plain_bytes: u64,
    /// The bytes that they took on the link. What they had together with others is shared: a datagram among its records by
    /// their bytes, a batch among its packets by their bytes as they came. What was sent again is not in it.
    #[serde(default)]
    pub link_bytes: u64,
    /// The time from a packet's arrival to its sending, summed over those that were sent.
    #[serde(default)]
    pub sojourn_sum_ns: u64,
    /// The longest such time of the last second or two.
    #[serde(default)]
    pub sojourn_max_ns: u64,
    /// Packets that were dropped.
    #[serde(default)]
    pub dropped: u64,
}

impl FlowStatus {
    /// Returns the name of its protocol, or the number.
    pub fn protocol_name(&self) -> String {
        match self.protocol {
            1 => "icmp".to_owned(),
            6 => "tcp".to_owned(),
            17 => "udp".to_owned(),
            58 => "icmpv6".to_owned(),
            number => format!("ip{number}"),
        }
    }
}
