//! Contexts: batches that refer to those before them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::HistogramSummary;

/// The contexts of the traffic to a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TxContexts {
    /// Contexts that are in use.
    pub open: u64,
    /// The memory of their encoders, and of what may have to be compressed once more, in bytes.
    pub memory_bytes: u64,
    /// Bytes of datagrams that are kept to be sent again, because contexts refer to them.
    pub kept_bytes: u64,
    /// Generations begun, by reason; every reason is there, if only with zero.
    pub generations: BTreeMap<String, u64>,
    /// Of these, those that began from nothing.
    pub cold_starts: u64,
    /// Of the generations, those that began from the dictionary.
    pub dictionary_starts: u64,
    /// Of the generations, those whose batches stand alone.
    pub acknowledged_generations: u64,
    /// Of the generations, those with a model of the codecs ppm and mix.
    pub model_generations: u64,
    /// The codecs in use, each with the number of contexts that have it.
    pub codecs: BTreeMap<String, u64>,
    /// The codec of batches in no context, if that is picked and there were some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub codec_without_context: Option<String>,
    /// How batches refer to others now: `running`, `acknowledged` (each alone, to what was confirmed), or `stateless` (to nothing).
    pub mode: String,
    /// Batches compressed in contexts.
    pub batches: u64,
    /// Of these, those that stand alone.
    pub alone_batches: u64,
    /// Packets that kept their place among the batches of their context without being compressed.
    pub raw: u64,
    /// Bytes of packets in those batches, before compression.
    pub bytes_in: u64,
    /// Their bytes after compression.
    pub bytes_out: u64,
    /// Batches whose generation ended before they were sent: their packets were sent uncompressed.
    pub undone_batches: u64,
    /// Packets that were lost with their generation and were sent once more; they count again among
    /// those that arrived and those that were sent.
    pub encoded_again_packets: u64,
    /// Batches that were compressed without a context, by reason: all contexts were in use, or the
    /// next generation had to wait because those before were short.
    pub without_context: BTreeMap<String, u64>,
    /// Contexts that were taken from a group that was idle, for another group.
    pub evicted: u64,
    /// Times that the peer began with empty decoders.
    pub restarts: u64,
    /// Reports of the peer about something that was never sent.
    pub false_reports: u64,
}

/// The contexts of the traffic from a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RxContexts {
    /// Contexts that are in use.
    pub open: u64,
    /// The memory of their decoders, and of records that wait, in bytes.
    pub memory_bytes: u64,
    /// Bytes of records that wait for one that is missing.
    pub held_bytes: u64,
    /// Batches decoded.
    pub batches: u64,
    /// Of these, those that stand alone, and waited for nothing.
    pub alone_batches: u64,
    /// Packets that came uncompressed in their place among the batches.
    pub raw: u64,
    /// Compressed bytes of the batches.
    pub bytes_in: u64,
    /// Bytes of their packets, after decompression.
    pub bytes_out: u64,
    /// Generations begun.
    pub generations: u64,
    /// Of these, those that began from the dictionary.
    pub dictionary_starts: u64,
    /// Of these, those whose batches stand alone.
    pub acknowledged_generations: u64,
    /// Of these, those with a model of the codecs ppm and mix.
    pub model_generations: u64,
    /// Times that a record was missing and others waited for it.
    pub gaps: u64,
    /// Of these, those in which it did not come.
    pub gaps_given_up: u64,
    /// Records that were given up.
    pub missing_records: u64,
    /// Generations that could not go on.
    pub lost_generations: u64,
    /// Uncompressed packets that came after they were given up, and were delivered late.
    pub late_raw: u64,
    /// Records that were dropped, by reason; every reason is there, if only with zero.
    pub dropped: BTreeMap<String, u64>,
    /// How long records waited for one that was missing before them.
    pub waited: HistogramSummary,
}

/// The dictionary that contexts with a peer begin from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DictionaryStatus {
    /// Its length.
    pub bytes: u64,
    /// Its name, in hexadecimal: the hash of its bytes.
    pub name: String,
    /// That of the peer: `"same"`, `"other"`, `"none"`, or `"unknown"` before there is a session.
    pub of_peer: String,
}

impl TxContexts {
    /// Returns true if there was no context.
    pub fn is_unused(&self) -> bool {
        *self == Self::default()
    }
}

impl RxContexts {
    /// Returns true if there was no context.
    pub fn is_unused(&self) -> bool {
        *self == Self::default()
    }
}
