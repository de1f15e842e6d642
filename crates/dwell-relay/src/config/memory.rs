//! The memory that the contexts of all peers may take together.

use dwell_base::text::printable;
use dwell_codec::{CodecId, ContextSpec};
use dwell_policy::History;

use super::codec::PICKED_LEVEL_MAX;
use super::{Config, NodeConfig, PeerConfig};

/// A machine needs its memory for other things, too: one part in so many is theirs.
const REST_PART: u64 = 4;

impl PeerConfig {
    /// Returns the most memory that contexts to and from this peer can take, in bytes.
    pub fn context_memory_max(&self) -> u64 {
        self.context_bytes_max(self.contexts_max)
    }

    /// Returns the most memory that contexts to and from this peer can take, in bytes, if it has at most so many of
    /// each direction.
    fn context_bytes_max(&self, contexts_max: u8) -> u64 {
        let contexts = self.contexts_max.min(contexts_max);
        let model_bytes = u64::from(self.models_max.min(contexts)) << self.model_memory_log;
        let contexts = u64::from(contexts);
        let level = if self.picks_codec { PICKED_LEVEL_MAX } else { self.codec.level };
        let spec = ContextSpec { level, window_log: self.context_window_log };
        // What the peer sends is as it chooses.
        let of_receiving = contexts * spec.decoder_bytes_max() + model_bytes;
        if self.history == History::Off || self.codec.id != CodecId::Zstd {
            return of_receiving;
        }
        let has_models = self.model_kind.is_some() || self.picks_codec;
        let models = if has_models { model_bytes } else { 0 };
        of_receiving + contexts * spec.encoder_bytes_max() + models
    }
}

impl NodeConfig {
    /// Returns the memory that the contexts of all peers may take together on a machine with so much, both in bytes.
    pub fn history_memory_max(&self, machine_bytes: u64) -> u64 {
        self.history_memory_bytes.unwrap_or(machine_bytes - machine_bytes / REST_PART)
    }
}

impl Config {
    /// Returns a warning if the contexts of all peers may take more memory together than they have on a machine with so
    /// much, in bytes. Each peer alone has limits, but a hub has many.
    pub fn memory_warning(&self, machine_bytes: u64) -> Option<String> {
        let most = self.node.history_memory_max(machine_bytes);
        let all = |contexts_max| {
            let each = self.peers.iter().map(|peer| peer.context_bytes_max(contexts_max));
            each.fold(0, u64::saturating_add)
        };
        if all(u8::MAX) <= most {
            return None;
        }
        let largest = self.peers.iter().max_by_key(|peer| peer.context_bytes_max(u8::MAX))?;
        let (name, bytes) = (printable(&largest.name), largest.context_bytes_max(u8::MAX));
        let whose = match self.peers.len() {
            1 => format!("the contexts with \"{name}\""),
            peers => {
                format!("the contexts with {peers} peers (with \"{name}\" up to {})", mib(bytes))
            }
        };
        let instead = match (1..u8::MAX).rev().find(|&contexts_max| all(contexts_max) <= most) {
            Some(contexts_max) => format!("write contexts_max = {contexts_max} for each peer, or"),
            None => "write contexts_max = 1 for each peer, and".to_owned(),
        };
        Some(format!(
            "{whose} may take up to {} of memory together, and have {} (history_memory): those that were used \
             least recently are given up then. To keep all, {instead} a smaller context_window (here \"{}KiB\"), \
             models_max ({}) or model_memory (\"{}MiB\")",
            mib(all(u8::MAX)),
            mib(most),
            (1_u64 << largest.context_window_log) >> 10,
            largest.models_max,
            (1_u64 << largest.model_memory_log) >> 20,
        ))
    }
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}
