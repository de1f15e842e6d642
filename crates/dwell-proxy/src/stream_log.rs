//! What each stream did, for whoever asked for it.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// A stream after its end, or one that was not opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamRecord {
    /// Who opened it: at the ingress the program, at the egress the ingress.
    pub from: SocketAddr,
    /// The client's address, at an egress to which the ingress has said it.
    pub client: Option<SocketAddr>,
    /// Where it went.
    pub target: String,
    /// How it ended, by the names of `dwell status`: `finished`, `reset` and so on; or why it was not opened.
    pub end: &'static str,
    /// How long it was open.
    pub time: Duration,
    /// Bytes that were taken from this side, and what they were on the link.
    pub sent_bytes: u64,
    /// Those on the link.
    pub sent_link_bytes: u64,
    /// Bytes that were given to this side, and what they were on the link.
    pub received_bytes: u64,
    /// Those on the link.
    pub received_link_bytes: u64,
}

impl StreamRecord {
    /// Returns the record as a line of JSON.
    pub fn to_json(&self) -> String {
        serde_json::json!({
            "from": self.from.to_string(),
            "client": self.client.map(|client| client.to_string()),
            "target": self.target,
            "end": self.end,
            "time_ns": u64::try_from(self.time.as_nanos()).unwrap_or(u64::MAX),
            "sent_bytes": self.sent_bytes,
            "sent_link_bytes": self.sent_link_bytes,
            "received_bytes": self.received_bytes,
            "received_link_bytes": self.received_link_bytes,
        })
        .to_string()
    }
}

impl fmt::Display for StreamRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, target, end, time, .. } = self;
        write!(f, "{from}")?;
        if let Some(client) = self.client {
            write!(f, " for {client}")?;
        }
        write!(
            f,
            " to {target}: {end} after {:.3} s, {} bytes sent as {}, {} received as {}",
            time.as_secs_f64(),
            self.sent_bytes,
            self.sent_link_bytes,
            self.received_bytes,
            self.received_link_bytes,
        )
    }
}

/// Whoever is notified of each stream.
#[derive(Clone)]
pub struct StreamLog(Arc<dyn Fn(&StreamRecord) + Send + Sync>);

impl StreamLog {
    /// Notifies `log`, which must not wait for anything.
    pub fn new(log: impl Fn(&StreamRecord) + Send + Sync + 'static) -> Self {
        Self(Arc::new(log))
    }

    pub(crate) fn note(&self, record: &StreamRecord) {
        (self.0)(record);
    }
}

impl fmt::Debug for StreamLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StreamLog")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_a_line_in_either_form() {
        let mut record = StreamRecord {
            from: "127.0.0.1:1234".parse().unwrap(),
            client: None,
            target: "db:5432".to_owned(),
            end: "finished",
            time: Duration::from_millis(1500),
            sent_bytes: 100,
            sent_link_bytes: 60,
            received_bytes: 1000,
            received_link_bytes: 300,
        };
        let text = "127.0.0.1:1234 to db:5432: finished after 1.500 s, 100 bytes sent as 60, \
                    1000 received as 300";
        assert_eq!(record.to_string(), text);
        record.client = Some("192.0.2.1:9".parse().unwrap());
        assert!(record.to_string().starts_with("127.0.0.1:1234 for 192.0.2.1:9 to db:5432"));
        let json: serde_json::Value = serde_json::from_str(&record.to_json()).unwrap();
        assert_eq!(
            (&json["time_ns"], &json["target"]),
            (&1_500_000_000u64.into(), &"db:5432".into())
        );
    }
}
