//! Reads what the system's `ping` (iputils) prints.

/// The round trips of one run of `ping`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PingSummary {
    /// Each reply, in the order of arrival.
    pub replies: Vec<Reply>,
    /// The number of requests that `ping` reports as sent; known once it has ended.
    pub transmitted: Option<u64>,
}

/// One reply.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reply {
    /// Its sequence number, from 1.
    pub sequence: u64,
    /// Its round-trip time.
    pub rtt_ns: u64,
    /// The time of arrival, in seconds of the system's clock: only with `ping -D`.
    pub at_seconds: Option<f64>,
}

impl PingSummary {
    /// Collects the replies from the output of `ping`, with or without `-D` and `-n`. Lines
    /// that are no replies (errors, statistics, duplicates) are passed over.
    pub fn parse(output: &str) -> Self {
        Self {
            replies: output.lines().filter_map(parse_reply).collect(),
            transmitted: output.lines().find_map(parse_transmitted),
        }
    }

    /// Returns all round-trip times, shortest first.
    pub fn sorted_ns(&self) -> Vec<u64> {
        let mut rtts: Vec<u64> = self.replies.iter().map(|reply| reply.rtt_ns).collect();
        rtts.sort_unstable();
        rtts
    }

    /// Returns the round trip that this share (0 to 1) of all replies did not exceed; `None`
    /// without replies.
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        let rtts = self.sorted_ns();
        let rank = (share.clamp(0.0, 1.0) * rtts.len() as f64).ceil() as usize;
        rtts.get(rank.saturating_sub(1)).copied()
    }

    /// Returns the number of requests without a reply, if `ping` reported how many it sent.
    pub fn lost(&self) -> Option<u64> {
        Some(self.transmitted?.saturating_sub(self.replies.len() as u64))
    }
}

fn parse_reply(line: &str) -> Option<Reply> {
    if !line.contains("bytes from") || line.contains("(DUP!)") {
        return None;
    }
    let value = |name: &str| line.split_whitespace().find_map(|word| word.strip_prefix(name));
    let rtt_ms: f64 = value("time=")?.parse().ok()?;
    let at_seconds = line.strip_prefix('[').and_then(|rest| rest.split(']').next()?.parse().ok());
    Some(Reply {
        sequence: value("icmp_seq=")?.parse().ok()?,
        rtt_ns: (rtt_ms.max(0.0) * 1e6).round() as u64,
        at_seconds,
    })
}

fn parse_transmitted(line: &str) -> Option<u64> {
    line.split_once(" packets transmitted").and_then(|(count, _)| count.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
PING 10.2.0.2 (10.2.0.2) 56(84) bytes of data.
[1718000000.123456] 64 bytes from 10.2.0.2: icmp_seq=1 ttl=62 time=40.3 ms
[1718000000.323456] 64 bytes from 10.2.0.2: icmp_seq=2 ttl=62 time=0.051 ms
[1718000000.333456] 64 bytes from 10.2.0.2: icmp_seq=2 ttl=62 time=0.051 ms (DUP!)
[1718000000.423456] no answer yet for icmp_seq=3
From 10.1.0.1 icmp_seq=4 Destination Host Unreachable
64 bytes from fd00:2::2: icmp_seq=5 ttl=62 time=1200 ms

--- 10.2.0.2 ping statistics ---
5 packets transmitted, 3 received, 40% packet loss, time 403ms
rtt min/avg/max/mdev = 0.051/413.451/1200.000/1.000 ms
";

    #[test]
    fn reads_replies_and_only_replies() {
        let summary = PingSummary::parse(OUTPUT);
        let rtts: Vec<_> = summary.replies.iter().map(|r| (r.sequence, r.rtt_ns)).collect();
        assert_eq!(rtts, [(1, 40_300_000), (2, 51_000), (5, 1_200_000_000)]);
        assert_eq!(summary.replies[0].at_seconds, Some(1_718_000_000.123_456));
        assert_eq!(summary.replies[2].at_seconds, None);
        assert_eq!(summary.lost(), Some(2));
        assert_eq!(summary.quantile_ns(0.5), Some(40_300_000));
        assert_eq!(summary.quantile_ns(1.0), Some(1_200_000_000));
        assert_eq!(PingSummary::parse("garbage\n[x").quantile_ns(0.5), None);
    }
}
