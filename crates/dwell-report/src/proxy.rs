//! The state of a proxy, as `dwell status` shows it.
//!
//! The rules are those of [`status`](crate::status): field names are the format, units are in
//! the names, counters start with the process.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::human;
use crate::status::SCHEMA;

/// The value of [`ProxyStatus::kind`], which distinguishes a proxy's status from a relay's. A
/// relay's status has none.
pub const KIND: &str = "proxy";

/// A proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxyStatus {
    /// The version of this format: [`SCHEMA`].
    pub schema: u32,
    /// [`KIND`].
    pub kind: String,
    /// The version of the program.
    pub version: String,
    /// The proxy's name.
    pub name: String,
    /// `"ingress"` or `"egress"`.
    pub role: String,
    /// The addresses at which it listens, and their purpose.
    pub listens: Vec<String>,
    /// The address of its egress, if it is an ingress.
    pub egress: Option<String>,
    /// The protection of the connection to the other proxy: `"psk"`, `"certificates"` or `"none"`.
    pub security: String,
    /// The time since it was started.
    pub uptime_ns: u64,
    /// CPU time of the whole process, user and system.
    pub cpu_ns: u64,
    /// True if the kernel allows it only the system calls that it needs.
    #[serde(default)]
    pub seccomp: bool,
    /// The streams of programs.
    pub streams: StreamCounts,
    /// The connections between the two proxies.
    pub connections: ConnectionCounts,
    /// The traffic to the other proxy.
    pub tx: StreamTx,
    /// The traffic from the other proxy.
    pub rx: StreamRx,
}

impl Default for ProxyStatus {
    fn default() -> Self {
        Self {
            schema: SCHEMA,
            kind: KIND.to_owned(),
            version: String::new(),
            name: String::new(),
            role: String::new(),
            listens: Vec::new(),
            egress: None,
            security: String::new(),
            uptime_ns: 0,
            cpu_ns: 0,
            seccomp: false,
            streams: StreamCounts::default(),
            connections: ConnectionCounts::default(),
            tx: StreamTx::default(),
            rx: StreamRx::default(),
        }
    }
}

/// The streams of programs. opened = open + finished + reset + idle + stalled + cut + damaged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamCounts {
    /// The most streams that may be open at once.
    pub max: u64,
    /// Open now.
    pub open: u64,
    /// Opened so far.
    pub opened: u64,
    /// Running contexts of long streams that are held now, in either direction.
    #[serde(default)]
    pub contexts: u64,
    /// Ended normally in both directions.
    pub finished: u64,
    /// Reset by one of the programs.
    pub reset: u64,
    /// Given up because nothing moved.
    pub idle: u64,
    /// Given up because their program did not read while others waited for room.
    #[serde(default)]
    pub stalled: u64,
    /// Ended because the connection between the proxies did.
    pub cut: u64,
    /// Ended because the data from the other proxy were damaged, or not a stream.
    pub damaged: u64,
    /// Clients that did not name a destination: no SOCKS, wrong password.
    pub client_errors: u64,
    /// Streams that were not opened, by reason; every reason is there, if only with zero. At an ingress also those for which
    /// there was no connection to the egress (`no_connection`), and of these apart those whose egress has another key
    /// (`wrong_key`).
    pub refused: BTreeMap<String, u64>,
}

/// The connections between the two proxies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionCounts {
    /// Open now.
    pub open: u64,
    /// Of these, ready for a stream and without one.
    pub warm: u64,
    /// Made so far.
    pub made: u64,
    /// The number of times that one was used again for another stream.
    pub reused: u64,
    /// Attempts to connect that failed.
    pub failed: u64,
    /// Attempts to connect that were repeated for a stream.
    #[serde(default)]
    pub retried: u64,
    /// Connections that were rejected: no proxy, another key, another version, too slow.
    pub unknown_peers: u64,
    /// Of those that failed, and of those that were rejected, the ones between ends whose keys differ.
    #[serde(default)]
    pub wrong_keys: u64,
    /// Connections open now whose peer has not proved the key yet.
    #[serde(default)]
    pub handshakes: u64,
    /// Of the rejected connections, those that had to make room for others.
    #[serde(default)]
    pub evicted: u64,
    /// The number of times that a connection had to wait because the process was out of file
    /// descriptors.
    #[serde(default)]
    pub no_descriptors: u64,
}

/// The traffic to the other proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamTx {
    /// Bytes of programs.
    pub bytes: u64,
    /// Their bytes on the connection, headers included, TLS not.
    pub link_bytes: u64,
    /// Blocks sent uncompressed.
    pub raw_blocks: u64,
    /// Blocks sent compressed.
    pub compressed_blocks: u64,
    /// Bytes in these.
    pub compressed_bytes: u64,
    /// Bytes that these became.
    pub compressed_to_bytes: u64,
    /// Time spent compressing.
    pub compress_ns: u64,
}

/// The traffic from the other proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamRx {
    /// Bytes for programs.
    pub bytes: u64,
    /// Their bytes on the connection, headers included, TLS not.
    pub link_bytes: u64,
    /// Blocks received uncompressed.
    pub raw_blocks: u64,
    /// Blocks received compressed.
    pub compressed_blocks: u64,
}

/// The line about a process that may make any system call.
pub(crate) const UNFILTERED: &str = "system calls: not filtered\n";

/// Describes the state of a proxy in a few lines of plain text. Ends with a line end.
pub fn proxy_text(status: &ProxyStatus) -> String {
    let ProxyStatus { name, version, role, streams, connections, tx, rx, .. } = status;
    let mut out = format!(
        "{name}: dwell {version}, {role}, running for {}, {} of a CPU\n",
        human::duration(status.uptime_ns),
        human::share(status.cpu_ns, status.uptime_ns)
    );
    if !status.seccomp {
        out += UNFILTERED;
    }
    // Writing to a string can't fail.
    for listens in &status.listens {
        let _ = writeln!(out, "listens at {listens}");
    }
    if let Some(egress) = &status.egress {
        let _ = writeln!(out, "egress at {egress}");
    }
    let _ = writeln!(
        out,
        "\nstreams: {} open of at most {}, {} opened, {} finished, {} reset, {} idle, {} cut, {} damaged",
        human::count(streams.open),
        human::count(streams.max),
        human::count(streams.opened),
        human::count(streams.finished),
        human::count(streams.reset),
        human::count(streams.idle),
        human::count(streams.cut),
        human::count(streams.damaged),
    );
    let wrong_keys = match connections.wrong_keys {
        0 => String::new(),
        some => format!(", {} with another key", human::count(some)),
    };
    let _ = writeln!(
        out,
        "connections: {} open, {} warm, {} made, {} reused, {} failed, {}{}, security {}",
        human::count(connections.open),
        human::count(connections.warm),
        human::count(connections.made),
        human::counted(connections.reused, "time"),
        human::count(connections.failed),
        human::counted(connections.unknown_peers, "unknown peer"),
        wrong_keys,
        status.security,
    );
    let ConnectionCounts { handshakes, evicted, retried, no_descriptors, .. } = *connections;
    if evicted + retried + no_descriptors + streams.stalled > 0 {
        let _ = writeln!(
            out,
            "under pressure: {} made room, {} under way, {} evicted, {} retried, {} out of file descriptors",
            human::counted(streams.stalled, "stream"),
            human::counted(handshakes, "handshake"),
            human::count(evicted),
            human::count(retried),
            human::counted(no_descriptors, "time"),
        );
    }
    let _ = writeln!(
        out,
        "sent: {} as {} on the link (ratio {}), {} of the blocks compressed, {} compressing",
        human::bytes(tx.bytes),
        human::bytes(tx.link_bytes),
        human::ratio(ratio(tx.link_bytes, tx.bytes)),
        human::share(tx.compressed_blocks, tx.compressed_blocks + tx.raw_blocks),
        human::duration(tx.compress_ns),
    );
    let _ = writeln!(
        out,
        "received: {} as {} on the link (ratio {}), {} of the blocks compressed",
        human::bytes(rx.bytes),
        human::bytes(rx.link_bytes),
        human::ratio(ratio(rx.link_bytes, rx.bytes)),
        human::share(rx.compressed_blocks, rx.compressed_blocks + rx.raw_blocks),
    );
    let refused: Vec<String> = streams
        .refused
        .iter()
        .chain([(&"client_errors".to_owned(), &streams.client_errors)])
        .filter(|&(_, &count)| count > 0)
        .map(|(reason, &count)| format!("{reason} {}", human::count(count)))
        .collect();
    if !refused.is_empty() {
        let _ = writeln!(out, "not opened: {}", refused.join(", "));
    }
    out
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_fills_a_few_lines() {
        let status = ProxyStatus {
            version: "0.1.0".into(),
            name: "ingress".into(),
            role: "ingress".into(),
            listens: vec!["127.0.0.1:5432 to db:5432".into()],
            egress: Some("hub:7734".into()),
            security: "psk".into(),
            uptime_ns: 3_600_000_000_000,
            seccomp: true,
            cpu_ns: 36_000_000_000,
            streams: StreamCounts {
                max: 1000,
                open: 2,
                opened: 1200,
                finished: 1195,
                reset: 3,
                refused: BTreeMap::from([("not_allowed".into(), 4), ("full".into(), 0)]),
                ..StreamCounts::default()
            },
            connections: ConnectionCounts { open: 6, warm: 4, made: 10, ..Default::default() },
            tx: StreamTx {
                bytes: 1_000_000,
                link_bytes: 250_000,
                raw_blocks: 1,
                compressed_blocks: 3,
                compressed_bytes: 900_000,
                compressed_to_bytes: 150_000,
                compress_ns: 2_000_000,
            },
            ..ProxyStatus::default()
        };
        let expected = "\
ingress: dwell 0.1.0, ingress, running for 1 h 0 min, 1.0 % of a CPU
listens at 127.0.0.1:5432 to db:5432
egress at hub:7734

streams: 2 open of at most 1,000, 1,200 opened, 1,195 finished, 3 reset, 0 idle, 0 cut, 0 damaged
connections: 6 open, 4 warm, 10 made, 0 times reused, 0 failed, 0 unknown peers, security psk
sent: 1.0 MB as 250.0 kB on the link (ratio 0.250), 75.0 % of the blocks compressed, 2.0 ms compressing
received: 0 B as 0 B on the link (ratio -), - of the blocks compressed
not opened: not_allowed 4
";
        assert_eq!(proxy_text(&status), expected);
        let mut busy = status.clone();
        busy.connections.evicted = 1200;
        busy.connections.wrong_keys = 3;
        let line = ", 0 unknown peers, 3 with another key, security psk\n";
        assert!(proxy_text(&busy).contains(line), "{}", proxy_text(&busy));
        let line = "\nunder pressure: 0 streams made room, 0 handshakes under way, 1,200 evicted, 0 retried, \
                    0 times out of file descriptors\nsent: ";
        assert!(proxy_text(&busy).contains(line), "{}", proxy_text(&busy));
        let json = serde_json::to_string(&status).unwrap();
        assert_eq!(serde_json::from_str::<ProxyStatus>(&json).unwrap(), status);
    }
}
