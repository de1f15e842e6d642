//! A status as Prometheus reads it: the text exposition format, version 0.0.4.
//!
//! Names follow the conventions of Prometheus: `dwell_`, what is measured, its unit (base units:
//! seconds, bytes), `_total` for what only grows. Peers, reasons and classes are labels.

use std::fmt::{Display, Write as _};

use crate::histogram::BUCKETS_NS;
use crate::status::{HistogramSummary, PeerState, PeerStatus, RateSource, Status};

/// The content type of [`metrics`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Everything in a status, as a page of metrics.
pub fn metrics(status: &Status) -> String {
    let mut page = Page::default();
    node(&mut page, status);
    links(&mut page, &status.peers);
    sent(&mut page, &status.peers);
    pressed(&mut page, &status.peers);
    received(&mut page, &status.peers);
    classes(&mut page, &status.peers);
    page.text
}

/// Kinds of metrics.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// A page that is being written. Writing to a string can't fail.
#[derive(Debug, Default)]
struct Page {
    text: String,
}

impl Page {
    /// Begins a metric; its samples follow.
    fn metric(&mut self, name: &'static str, kind: Kind, help: &str) -> Metric<'_> {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Metric { text: &mut self.text, name }
    }

    fn counter(&mut self, name: &'static str, help: &str) -> Metric<'_> {
        self.metric(name, Kind::Counter, help)
    }

    fn gauge(&mut self, name: &'static str, help: &str) -> Metric<'_> {
        self.metric(name, Kind::Gauge, help)
    }

    /// A counter with a sample for each peer.
    fn of_peers(
        &mut self,
        name: &'static str,
        help: &str,
        peers: &[PeerStatus],
        value: impl Fn(&PeerStatus) -> u64,
    ) {
        let mut metric = self.counter(name, help);
        for peer in peers {
            metric.sample(&[("peer", &peer.name)], value(peer));
        }
    }
}

/// A metric whose samples are being written.
#[derive(Debug)]
struct Metric<'p> {
    text: &'p mut String,
    name: &'static str,
}

impl Metric<'_> {
    fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.sample_of("", labels, value);
    }

    fn sample_of(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(self.name);
        self.text.push_str(suffix);
        for (n, (label, value)) in labels.iter().enumerate() {
            self.text.push(if n == 0 { '{' } else { ',' });
            let _ = write!(self.text, "{label}=\"");
            escape(self.text, value);
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }

    /// The samples of a distribution of times.
    fn times(&mut self, labels: &[(&str, &str)], times: &HistogramSummary) {
        let mut with_bound = labels.to_vec();
        for (bound_ns, count) in BUCKETS_NS.iter().zip(times.at_most) {
            let bound = Seconds(*bound_ns).to_string();
            with_bound.truncate(labels.len());
            let bound: &str = &bound;
            let mut all = with_bound.clone();
            all.push(("le", bound));
            self.sample_of("_bucket", &all, count);
        }
        let mut all = labels.to_vec();
        all.push(("le", "+Inf"));
        self.sample_of("_bucket", &all, times.count);
        self.sample_of("_sum", labels, Seconds(times.mean_ns.saturating_mul(times.count)));
        self.sample_of("_count", labels, times.count);
    }
}

/// Nanoseconds, written as seconds.
#[derive(Clone, Copy, Debug)]
struct Seconds(u64);

impl Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, rest) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let digits = format!("{rest:09}");
        write!(f, "{whole}.{}", digits.trim_end_matches('0'))
    }
}

/// A label's value: backslashes, quotes and line ends are escaped, as the format has it.
fn escape(out: &mut String, value: &str) {
    for c in value.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
}

fn node(page: &mut Page, status: &Status) {
    page.gauge("dwell_build_info", "The version that runs; always 1.")
        .sample(&[("version", &status.version), ("name", &status.name)], 1);
    page.gauge("dwell_uptime_seconds", "How long the relay has been running.")
        .sample(&[], Seconds(status.uptime_ns));
    page.counter("dwell_cpu_seconds_total", "CPU time of the process, user and system.")
        .sample(&[], Seconds(status.cpu_ns));
    let tun = &status.tun;
    let mut packets = page.counter("dwell_tun_packets_total", "Packets through the interface.");
    packets.sample(&[("direction", "in")], tun.rx_packets);
    packets.sample(&[("direction", "out")], tun.tx_packets);
    let mut bytes = page.counter("dwell_tun_bytes_total", "Bytes through the interface.");
    bytes.sample(&[("direction", "in")], tun.rx_bytes);
    bytes.sample(&[("direction", "out")], tun.tx_bytes);
    let help = "Packets and datagrams dropped before a peer was known, by reason.";
    let mut drops = page.counter("dwell_node_drops_total", help);
    for (reason, count) in &status.drops {
        drops.sample(&[("reason", reason)], count);
    }
}

fn links(page: &mut Page, peers: &[PeerStatus]) {
    let mut up = page.gauge("dwell_peer_up", "Whether the peer answers: 1 or 0.");
    for peer in peers {
        up.sample(&[("peer", &peer.name)], u8::from(peer.state == PeerState::Up));
    }
    let help = "The rate that the link is believed to have; none while it is unlimited.";
    let mut rate = page.gauge("dwell_link_rate_bits_per_second", help);
    for peer in peers {
        if let (Some(bps), false) = (peer.rate_bps, peer.rate_source == RateSource::Unlimited) {
            rate.sample(&[("peer", &peer.name), ("source", peer.rate_source.name())], bps);
        }
    }
    let mut times = |name, help: &str, value: fn(&PeerStatus) -> Option<u64>| {
        let mut metric = page.gauge(name, help);
        for peer in peers {
            if let Some(ns) = value(peer) {
                metric.sample(&[("peer", &peer.name)], Seconds(ns));
            }
        }
    };
    times("dwell_round_trip_seconds", "The latest round trip to the peer.", |p| p.rtt_ns);
    times("dwell_one_way_delay_seconds", "The delay to the peer, D, as deadlines count it.", |p| {
        p.one_way_ns
    });
    times("dwell_since_heard_seconds", "Since something authentic came from the peer.", |p| {
        p.since_heard_ns
    });
    times("dwell_queue_wait_seconds", "How long a packet that arrives now would wait.", |p| {
        Some(p.waiting_ns)
    });
    let mut gauges = |name, help: &str, value: fn(&PeerStatus) -> u64| {
        let mut metric = page.gauge(name, help);
        for peer in peers {
            metric.sample(&[("peer", &peer.name)], value(peer));
        }
    };
    gauges("dwell_queue_packets", "Packets that wait for the link.", |p| p.waiting_packets);
    gauges("dwell_queue_bytes", "Bytes that wait for the link.", |p| p.waiting_bytes);
    gauges("dwell_mtu_bytes", "The largest packet that fits into a datagram.", |p| {
        u64::from(p.mtu)
    });
}

fn sent(page: &mut Page, peers: &[PeerStatus]) {
    let mut count = |name, help: &str, value: fn(&PeerStatus) -> u64| {
        page.of_peers(name, help, peers, value);
    };
    count("dwell_arrived_packets_total", "Packets that came for the peer.", |p| {
        p.tx.arrived.packets
    });
    count("dwell_arrived_bytes_total", "Their bytes.", |p| p.tx.arrived.bytes);
    count("dwell_sent_packets_total", "Packets sent to the peer.", |p| p.tx.sent.packets);
    count("dwell_sent_bytes_total", "Their bytes, before any pressing.", |p| p.tx.sent.bytes);
    count("dwell_link_bytes_total", "What the link carried for them, all headers included.", |p| {
        p.tx.link_bytes
    });
    count("dwell_saved_bytes_total", "Bytes that pressing took off the link.", |p| {
        p.tx.saved_bytes()
    });
    count("dwell_sent_datagrams_total", "Datagrams with packets.", |p| p.tx.frames);
    count("dwell_control_datagrams_total", "Datagrams of the relay's own talk.", |p| {
        p.tx.control_datagrams
    });
    count("dwell_control_bytes_total", "Their bytes.", |p| p.tx.control_bytes);
    let mut packets =
        page.counter("dwell_dropped_packets_total", "Packets that were dropped, by reason.");
    for peer in peers {
        for (reason, dropped) in &peer.tx.dropped {
            packets.sample(&[("peer", &peer.name), ("reason", reason)], dropped.packets);
        }
    }
    let mut bytes = page.counter("dwell_dropped_bytes_total", "Their bytes.");
    for peer in peers {
        for (reason, dropped) in &peer.tx.dropped {
            bytes.sample(&[("peer", &peer.name), ("reason", reason)], dropped.bytes);
        }
    }
    let help = "Datagrams that the operating system did not take, by error.";
    let mut errors = page.counter("dwell_send_errors_total", help);
    for peer in peers {
        for (error, count) in &peer.tx.send_errors {
            errors.sample(&[("peer", &peer.name), ("error", error)], count);
        }
    }
    let help = "The time from a packet's arrival to its sending: what the relay adds to its way.";
    let mut sojourn = page.metric("dwell_sojourn_seconds", Kind::Histogram, help);
    for peer in peers {
        sojourn.times(&[("peer", &peer.name)], &peer.tx.sojourn);
    }
}

fn pressed(page: &mut Page, peers: &[PeerStatus]) {
    let mut count = |name, help: &str, value: fn(&PeerStatus) -> u64| {
        page.of_peers(name, help, peers, value);
    };
    count("dwell_presses_total", "Packets or blocks given to the press.", |p| p.tx.presses);
    count("dwell_pressed_packets_total", "Packets that became smaller.", |p| p.tx.pressed.packets);
    count("dwell_pressed_bytes_total", "Bytes of these packets before.", |p| p.tx.pressed.bytes);
    count("dwell_pressed_to_bytes_total", "Bytes of these packets after.", |p| {
        p.tx.pressed_to_bytes
    });
    count("dwell_not_smaller_packets_total", "Packets that would have grown: sent raw.", |p| {
        p.tx.not_smaller
    });
    count("dwell_press_failures_total", "Packets that the codec failed on: sent raw.", |p| {
        p.tx.failed
    });
    let mut time = page.counter("dwell_press_seconds_total", "Time spent pressing.");
    for peer in peers {
        time.sample(&[("peer", &peer.name)], Seconds(peer.tx.press_ns));
    }
    let help = "Packets that went past the press, by reason.";
    let mut bypassed = page.counter("dwell_bypassed_packets_total", help);
    for peer in peers {
        for (reason, count) in &peer.tx.bypassed {
            bypassed.sample(&[("peer", &peer.name), ("reason", reason)], count);
        }
    }
}

fn received(page: &mut Page, peers: &[PeerStatus]) {
    let mut count = |name, help: &str, value: fn(&PeerStatus) -> u64| {
        page.of_peers(name, help, peers, value);
    };
    count("dwell_received_datagrams_total", "Datagrams accepted.", |p| p.rx.datagrams);
    count("dwell_received_link_bytes_total", "Their bytes.", |p| p.rx.bytes);
    count("dwell_received_packets_total", "Packets taken out of them.", |p| p.rx.packets.packets);
    count("dwell_received_bytes_total", "The bytes of these packets, restored.", |p| {
        p.rx.packets.bytes
    });
    count("dwell_received_pressed_packets_total", "Packets that came pressed.", |p| p.rx.pressed);
    count("dwell_received_blocks_total", "Blocks of several packets.", |p| p.rx.blocks);
    count("dwell_lost_datagrams_total", "Datagrams that never came.", |p| p.rx.lost_datagrams);
    let mut refused =
        page.counter("dwell_refused_total", "Datagrams, records and packets refused, by reason.");
    for peer in peers {
        let rx = &peer.rx;
        for (reason, count) in [
            ("replayed", rx.replayed),
            ("auth_failed", rx.auth_failed),
            ("malformed", rx.malformed),
            ("decode_failed", rx.decode_failed),
            ("not_allowed", rx.not_allowed),
        ] {
            refused.sample(&[("peer", &peer.name), ("reason", reason)], count);
        }
    }
    let help = "The rate at which the peer says that datagrams from here arrived lately.";
    let mut rate = page.gauge("dwell_delivery_bits_per_second", help);
    for peer in peers {
        if let Some(report) = &peer.rx.reported {
            rate.sample(&[("peer", &peer.name)], report.delivery_bps);
        }
    }
    let help = "Datagrams from here that the peer takes for lost.";
    let mut lost = page.counter("dwell_reported_lost_datagrams_total", help);
    for peer in peers {
        if let Some(report) = &peer.rx.reported {
            lost.sample(&[("peer", &peer.name)], report.lost);
        }
    }
}

fn classes(page: &mut Page, peers: &[PeerStatus]) {
    let mut ratios = page.gauge("dwell_class_ratio", "The ratio expected of a class of packets.");
    for (peer, class) in peers.iter().flat_map(|p| p.classes.iter().map(move |c| (p, c))) {
        ratios.sample(&[("peer", &peer.name), ("class", &class.class)], class.ratio);
    }
    let help = "The time expected to press a byte of a class.";
    let mut times = page.gauge("dwell_class_press_seconds_per_byte", help);
    for (peer, class) in peers.iter().flat_map(|p| p.classes.iter().map(move |c| (p, c))) {
        let labels = [("peer", peer.name.as_str()), ("class", class.class.as_str())];
        times.sample(&labels, class.ns_per_byte / 1e9);
    }
    let deadlines = || peers.iter().flat_map(|p| p.deadlines.iter().map(move |d| (p, d)));
    let mut packets =
        page.counter("dwell_deadline_packets_total", "Packets sent of a class with a deadline.");
    for (peer, class) in deadlines() {
        packets.sample(&[("peer", &peer.name), ("class", &class.class)], class.packets);
    }
    let help = "Packets that waited for longer than their class may: violations.";
    let mut late = page.counter("dwell_deadline_violations_total", help);
    for (peer, class) in deadlines() {
        late.sample(&[("peer", &peer.name), ("class", &class.class)], class.late);
    }
    let mut excess = page
        .gauge("dwell_deadline_excess_max_seconds", "By how much the latest of them was too late.");
    for (peer, class) in deadlines() {
        let labels = [("peer", peer.name.as_str()), ("class", class.class.as_str())];
        excess.sample(&labels, Seconds(class.excess_max_ns));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::Histogram;
    use crate::status::tests::example;

    #[test]
    fn every_line_is_as_the_format_has_it() {
        let page = metrics(&example());
        let (mut typed, mut seen) = (BTreeSet::new(), BTreeSet::new());
        let mut current = "";
        for line in page.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                current = rest.split(' ').next().unwrap();
                assert!(typed.insert(current), "{current} comes twice");
            } else if !line.starts_with('#') {
                let (series, value) = line.rsplit_once(' ').unwrap();
                assert!(series.starts_with(current), "{series} is not of {current}");
                assert!(value.parse::<f64>().is_ok(), "{line}");
                assert!(seen.insert(series), "{series} comes twice");
                assert_eq!(series.contains('{'), series.ends_with('}'));
            }
        }
        assert!(typed.len() > 40);
        assert!(typed.iter().all(|name| name.starts_with("dwell_")));
    }

    #[test]
    fn names_from_outside_can_not_break_out() {
        let mut status = example();
        status.peers[0].name = "a\"} 1\n\\".to_owned();
        let page = metrics(&status);
        assert!(page.contains(r#"dwell_peer_up{peer="a\"} 1\n\\"} "#), "{page}");
    }

    #[test]
    fn times_are_cumulative() {
        let mut histogram = Histogram::new();
        for ns in [50_000, 3_000_000, 3_000_000, 20_000_000_000] {
            histogram.record(ns);
        }
        let mut page = Page::default();
        let mut metric = page.metric("dwell_sojourn_seconds", Kind::Histogram, "Times.");
        metric.times(&[("peer", "hub")], &histogram.summary());
        for line in [
            r#"dwell_sojourn_seconds_bucket{peer="hub",le="0.0001"} 1"#,
            r#"dwell_sojourn_seconds_bucket{peer="hub",le="0.002"} 1"#,
            r#"dwell_sojourn_seconds_bucket{peer="hub",le="0.005"} 3"#,
            r#"dwell_sojourn_seconds_bucket{peer="hub",le="10"} 3"#,
            r#"dwell_sojourn_seconds_bucket{peer="hub",le="+Inf"} 4"#,
            r#"dwell_sojourn_seconds_count{peer="hub"} 4"#,
        ] {
            assert!(page.text.lines().any(|found| found == line), "{line}\n{}", page.text);
        }
    }

    #[test]
    fn seconds_are_exact() {
        let text = |ns| Seconds(ns).to_string();
        assert_eq!(
            (text(0), text(1), text(1_500_000_000)),
            ("0".into(), "0.000000001".into(), "1.5".into())
        );
    }
}
