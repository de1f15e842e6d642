//! The counters of a stream.

use std::collections::BTreeMap;

use dwell_codec::CodecSpec;
use serde::Serialize;

use crate::compress::Compression;

/// The counters of a sender.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SenderStats {
    /// Bytes accepted from the application.
    pub accepted_bytes: u64,
    /// Bytes of the application that have been framed, compressed or not.
    pub framed_bytes: u64,
    /// Bytes taken by the transport, headers included.
    pub wire_bytes: u64,
    /// Blocks or units that were sent uncompressed.
    pub raw_blocks: u64,
    /// Their bytes.
    pub raw_bytes: u64,
    /// Blocks or units that were framed compressed.
    pub compressed_blocks: u64,
    /// Their bytes before they were compressed.
    pub compressed_original_bytes: u64,
    /// Their bytes after that, without headers.
    pub compressed_bytes: u64,
    /// The compressed blocks that refer to earlier ones.
    pub referring_blocks: u64,
    /// Attempts whose result could not be used.
    pub failures: u64,
    /// Segments, for strategies in segments.
    pub segments: u64,
    /// Time that compressing has taken, in nanoseconds.
    pub compress_ns: u64,
    /// The number of times that the transport was found busy.
    pub blocked: u64,
    /// The attempts to compress, by codec.
    pub by_codec: BTreeMap<CodecSpec, CodecStats>,
}

/// The counters of one codec.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CodecStats {
    /// Blocks that were tried.
    pub blocks: u64,
    /// Their bytes before.
    pub original_bytes: u64,
    /// Their bytes after; of those that failed, their bytes before.
    pub compressed_bytes: u64,
    /// Time that it has taken, in nanoseconds.
    pub compress_ns: u64,
}

impl SenderStats {
    /// Returns the compression efficiency of Wang et al.: bytes of the application for each byte of
    /// payload, headers not counted; 1 before anything was sent.
    pub fn efficiency(&self) -> f64 {
        let payload = self.raw_bytes + self.compressed_bytes;
        if payload == 0 { 1.0 } else { self.framed_bytes as f64 / payload as f64 }
    }

    pub(crate) fn framed(&mut self, compressed: bool, original_len: usize, payload_len: usize) {
        self.framed_bytes += original_len as u64;
        if compressed {
            self.compressed_blocks += 1;
            self.compressed_original_bytes += original_len as u64;
            self.compressed_bytes += payload_len as u64;
        } else {
            self.raw_blocks += 1;
            self.raw_bytes += original_len as u64;
        }
    }

    pub(crate) fn compressed_with(&mut self, compression: &Compression, took_ns: u64) {
        self.compress_ns += took_ns;
        let codec = self.by_codec.entry(compression.codec).or_default();
        codec.blocks += compression.blocks as u64;
        codec.original_bytes += compression.original_len as u64;
        codec.compressed_bytes += compression.used_len() as u64;
        codec.compress_ns += took_ns;
    }

    /// Returns the bytes on the wire for each byte that was framed; 1 before anything was sent.
    pub fn ratio(&self) -> f64 {
        if self.framed_bytes == 0 {
            return 1.0;
        }
        self.wire_bytes as f64 / self.framed_bytes as f64
    }
}

/// The counters of a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ReceiverStats {
    /// Bytes taken from the transport.
    pub wire_bytes: u64,
    /// Bytes restored and verified.
    pub data_bytes: u64,
    /// Blocks or units that came uncompressed.
    pub raw_blocks: u64,
    /// Blocks or units that came compressed.
    pub compressed_blocks: u64,
    /// Blocks that came before one that precedes them.
    pub early_blocks: u64,
}
