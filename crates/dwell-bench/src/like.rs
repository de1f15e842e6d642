//! A configuration file as a variant of dwell: what it says of links and traffic, between the relays
//! of the bench.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use toml::{Table, Value};

/// What the bench has of its own, in `[node]` and in `[[peer]]`.
const NODE_KEYS_OF_PLACE: [&str; 8] =
    ["name", "addresses", "private_key_file", "local", "listen", "tun", "status", "offload"];
const PEER_KEYS_OF_PLACE: [&str; 6] =
    ["name", "endpoint", "prefixes", "public_key", "psk_file", "security"];

/// What relays have of a configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Like {
    /// The file's name without directories.
    pub(super) name: String,
    pub(super) scheme: Option<String>,
    pub(super) codec: Option<String>,
    /// Lines for `[node]`.
    pub(super) node: String,
    /// Lines for `[defaults]`, and behind them the tables of classes.
    pub(super) lines: String,
}

impl Like {
    /// Reads a configuration: `[node]`, `[defaults]`, the first `[[peer]]`, which goes before
    /// `[defaults]`, and every `[[class]]`. Fails if the file can't be read or has no peer.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("{} can't be read", path.display()))?;
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Self::parse(name, &text).with_context(|| format!("{} is no configuration", path.display()))
    }

    fn parse(name: String, text: &str) -> anyhow::Result<Self> {
        let file: Table = text.parse()?;
        let table =
            |key: &str| file.get(key).and_then(Value::as_table).cloned().unwrap_or_default();
        let peers = file.get("peer").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let peer = peers.first().and_then(Value::as_table).cloned().unwrap_or_default();
        ensure!(!peer.is_empty(), "it has no [[peer]]");
        let mut node = table("node");
        node.retain(|key, _| !NODE_KEYS_OF_PLACE.contains(&key));
        let mut keys = table("defaults");
        keys.extend(peer);
        keys.retain(|key, _| !PEER_KEYS_OF_PLACE.contains(&key));
        let mut take = |key: &str| keys.remove(key).and_then(|it| it.as_str().map(str::to_owned));
        let (scheme, codec) = (take("scheme"), take("codec"));
        let classes: Table =
            file.get("class").map(|it| ("class".to_owned(), it.clone())).into_iter().collect();
        let lines = format!("{keys}\n{classes}");
        Ok(Self { name, scheme, codec, node: node.to_string(), lines })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_of_a_place_stays_there() {
        let text = r#"
            [node]
            name = "vessel"
            threads = 2
            [defaults]
            rate = "auto"
            queue_time = "20ms"
            [[peer]]
            name = "shore"
            endpoint = "203.0.113.10:7733"
            prefixes = ["10.0.0.0/16"]
            rate = "512kbit"
            codec = "ppm:6"
            exceptions = ["udp/443"]
            [[class]]
            name = "bridge"
            ports = ["udp/10110"]
        "#;
        let like = Like::parse("a.toml".to_owned(), text).unwrap();
        assert_eq!((like.scheme, like.codec.as_deref()), (None, Some("ppm:6")));
        assert_eq!(like.node, "threads = 2\n");
        let lines: Table = like.lines.parse().unwrap();
        assert_eq!(lines["rate"].as_str(), Some("512kbit"), "the peer's goes before [defaults]");
        assert_eq!(lines["queue_time"].as_str(), Some("20ms"));
        assert_eq!(lines["exceptions"].as_array().unwrap().len(), 1);
        assert_eq!(lines["class"].as_array().unwrap().len(), 1);
        assert_eq!(lines.len(), 4);
        assert!(Like::parse("a.toml".to_owned(), "[node]\nname = \"a\"").is_err());
        assert!(Like::parse("a.toml".to_owned(), "no").is_err());
    }
}
