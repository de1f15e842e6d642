//! The state of a node for Prometheus: its text format, version 0.0.4.
//!
//! Names follow Prometheus' conventions: the prefix `dwell_`, base units (seconds, bytes), and
//! `_total` for counters. All metrics of a peer have the label `peer`.

mod contexts;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::Status;
use crate::histogram::BUCKETS_NS;
use crate::status::{
    ClassStatus, ClassTraffic, Count, DeadlineStatus, HistogramSummary, PeerState, PeerStatus,
    Problem, ProblemStatus,
};

/// The content type of the format in HTTP.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Writes all metrics of a node.
pub fn metrics_text(status: &Status) -> String {
    let mut page = Page::default();
    of_node(&mut page, status);
    for peer in &status.peers {
        of_peer(&mut page, peer);
        of_sending(&mut page, peer);
        of_receiving(&mut page, peer);
        contexts::of_contexts(&mut page, peer);
        peer.classes.iter().for_each(|class| of_class(&mut page, peer, class));
        peer.deadlines.iter().for_each(|class| of_deadline(&mut page, peer, class));
        peer.traffic.iter().for_each(|class| of_traffic(&mut page, peer, class));
    }
    page.text()
}

fn of_node(page: &mut Page, status: &Status) {
    let info = [("version", status.version.as_str()), ("name", &status.name)];
    page.gauge("dwell_info", "The program and the node, always 1.", &info, 1.0);
    let seconds = |ns: u64| ns as f64 / 1e9;
    page.gauge("dwell_uptime_seconds", "Time since the start.", &[], seconds(status.uptime_ns));
    page.counter("dwell_cpu_seconds_total", "CPU time spent.", &[], seconds(status.cpu_ns));
    let tun = &status.tun;
    let help = "Packets through the interface; in are those for a peer.";
    page.counter("dwell_tun_packets_total", help, &[("direction", "in")], tun.rx_packets);
    page.counter("dwell_tun_packets_total", help, &[("direction", "out")], tun.tx_packets);
    let help = "Bytes of packets through the interface; in are those for a peer.";
    page.counter("dwell_tun_bytes_total", help, &[("direction", "in")], tun.rx_bytes);
    page.counter("dwell_tun_bytes_total", help, &[("direction", "out")], tun.tx_bytes);
    let history = &status.history;
    let help = "Memory of the contexts with all peers.";
    page.gauge("dwell_history_memory_bytes", help, &[], f(history.memory_bytes));
    if let Some(bytes) = history.memory_bytes_max {
        let help = "Memory that the contexts with all peers may take.";
        page.gauge("dwell_history_memory_max_bytes", help, &[], f(bytes));
    }
    let help = "Contexts that were given up for others.";
    page.counter("dwell_history_evicted_total", help, &[], history.evicted);
    for (reason, &count) in &status.drops {
        let help = "Packets and datagrams dropped before a peer was known.";
        page.counter("dwell_dropped_total", help, &[("reason", reason)], count);
    }
    for problem in Problem::OF_NODE {
        let help = "1 while the node has this problem.";
        let labels = [("problem", problem.name())];
        page.gauge("dwell_problem", help, &labels, has(&status.problems, problem));
    }
}

/// Returns 1 if the problem is among these.
fn has(problems: &[ProblemStatus], problem: Problem) -> f64 {
    f64::from(u8::from(problems.iter().any(|found| found.is(problem))))
}

fn of_peer(page: &mut Page, peer: &PeerStatus) {
    let label = [("peer", peer.name.as_str())];
    let up = f64::from(u8::from(peer.state == PeerState::Up));
    page.gauge("dwell_peer_up", "1 if the peer answers.", &label, up);
    for problem in Problem::OF_PEERS {
        let help = "1 while there is this problem with the peer.";
        let labels = [("peer", peer.name.as_str()), ("problem", problem.name())];
        page.gauge("dwell_peer_problem", help, &labels, has(&peer.problems, problem));
    }
    let mut maybe = |name, help, value: Option<f64>| {
        if let Some(value) = value {
            page.gauge(name, help, &label, value);
        }
    };
    let seconds = |ns: u64| ns as f64 / 1e9;
    maybe("dwell_link_rate_bps", "The link's rate, in bits per second.", peer.rate_bps.map(f));
    let help = "The rate of the slowest link on the path, if the peer's reports show one.";
    maybe("dwell_bottleneck_rate_bps", help, peer.bottleneck_bps.map(f));
    let help = "The queue on the path to the peer, by its reports.";
    maybe("dwell_beyond_seconds", help, peer.beyond_ns.map(seconds));
    let there = peer.rx.reported;
    let help = "Bytes that wait at the peer for its link to here, by its reports.";
    maybe("dwell_peer_waiting_bytes", help, there.map(|there| f(there.waiting_bytes)));
    let help = "Time that a packet that arrives at the peer would wait there.";
    maybe("dwell_peer_waiting_seconds", help, there.map(|there| seconds(there.waiting_ns)));
    maybe("dwell_rtt_seconds", "The latest round trip.", peer.rtt_ns.map(seconds));
    let help = "Estimated time of a datagram to the peer, D.";
    maybe("dwell_one_way_seconds", help, peer.one_way_ns.map(seconds));
    let help = "Time since the last datagram from the peer.";
    maybe("dwell_peer_silence_seconds", help, peer.since_received_ns.map(seconds));
    let help = "Datagrams that arrived at the peer a second, by its reports, in bits.";
    let delivered = peer.rx.reported.map(|report| f(report.delivery_bps));
    maybe("dwell_peer_delivery_bps", help, delivered);
    for (direction, loss) in [("in", peer.rx.loss), ("out", peer.tx.loss)] {
        let label = [("peer", peer.name.as_str()), ("direction", direction)];
        if let Some(loss) = loss {
            let help = "The part of the datagrams of the last seconds that was lost on the path.";
            page.gauge("dwell_loss_ratio", help, &label, f(loss.ppm) / 1e6);
        }
    }
    page.gauge("dwell_waiting_packets", "Packets waiting.", &label, f(peer.waiting_packets));
    page.gauge("dwell_waiting_bytes", "Bytes of packets waiting.", &label, f(peer.waiting_bytes));
    let help = "Time that a packet that arrives now would wait.";
    page.gauge("dwell_waiting_seconds", help, &label, seconds(peer.waiting_ns));
}

fn of_sending(page: &mut Page, peer: &PeerStatus) {
    let (tx, name) = (&peer.tx, peer.name.as_str());
    let label = [("peer", name)];
    let seconds = |ns: u64| ns as f64 / 1e9;
    let help = "Packets that arrived for the peer.";
    both(
        page,
        ["dwell_arrived_packets_total", "dwell_arrived_bytes_total"],
        help,
        &label,
        tx.arrived,
    );
    let help = "Packets sent.";
    both(page, ["dwell_sent_packets_total", "dwell_sent_bytes_total"], help, &label, tx.sent);
    let help = "Packets sent compressed.";
    both(
        page,
        ["dwell_compressed_packets_total", "dwell_compressed_bytes_total"],
        help,
        &label,
        tx.compressed,
    );
    let mut one = |name, help, value: f64| page.counter(name, help, &label, value);
    let help = "Bytes that compression took off packets, before any header.";
    one("dwell_saved_bytes_total", help, f(tx.saved_bytes()));
    let help = "Bytes that the packets sent would have taken on the link without dwell.";
    one("dwell_plain_bytes_total", help, f(tx.plain_bytes));
    let help = "Bytes on the link for retransmitted datagrams.";
    one("dwell_resent_bytes_total", help, f(tx.resent_bytes));
    let help = "Compressed packets and blocks forwarded to the peer without decompression.";
    one("dwell_forwarded_compressed_records_total", help, f(tx.forwarded_compressed.packets));
    let help =
        "Bytes of compressed packets and blocks forwarded to the peer without decompression.";
    one("dwell_forwarded_compressed_bytes_total", help, f(tx.forwarded_compressed.bytes));
    one("dwell_frames_total", "Datagrams sent with packets.", f(tx.frames));
    one("dwell_wire_bytes_total", "Bytes on the link, overhead included.", f(tx.link_bytes));
    one(
        "dwell_compressions_total",
        "Packets or blocks given to the compressor.",
        f(tx.compressions),
    );
    one("dwell_tried_packets_total", "Packets given to the compressor.", f(tx.tried));
    let help = "Packets that would not have become smaller, and were sent as they were.";
    one("dwell_expansions_avoided_total", help, f(tx.not_smaller));
    one("dwell_compress_failed_total", "Packets that the codec failed on.", f(tx.failed));
    one("dwell_compress_seconds_total", "Time spent compressing.", seconds(tx.compress_ns));
    let help = "Datagrams without packets: handshakes, probes, reports.";
    one("dwell_control_datagrams_total", help, f(tx.control_datagrams));
    let help = "Bytes of datagrams without packets: handshakes, probes, reports.";
    one("dwell_control_bytes_total", help, f(tx.control_bytes));
    let help = "Datagrams sent in sessions, whatever their content.";
    one("dwell_datagrams_total", help, f(tx.datagrams));
    let help = "Datagrams that the peer got, by its reports.";
    one("dwell_peer_got_datagrams_total", help, f(tx.peer_got_datagrams));
    let help = "Datagrams that were lost on the path to the peer, by its reports.";
    one("dwell_peer_lost_datagrams_total", help, f(tx.peer_lost_datagrams));
    for (reason, count) in &tx.dropped {
        let label = [("peer", name), ("reason", reason)];
        let help = "Packets for the peer that were dropped.";
        page.counter("dwell_peer_dropped_packets_total", help, &label, count.packets);
    }
    for (reason, &count) in &tx.bypassed {
        let label = [("peer", name), ("reason", reason)];
        page.counter(
            "dwell_bypassed_packets_total",
            "Packets sent without an attempt to compress them.",
            &label,
            count,
        );
    }
    for (reason, &count) in &tx.send_errors {
        let label = [("peer", name), ("reason", reason)];
        page.counter("dwell_send_errors_total", "Datagrams that could not be sent.", &label, count);
    }
    let help = "Bytes saved on the link against sending without dwell, all headers counted.";
    page.gauge("dwell_net_saved_bytes", help, &label, tx.net_saved_bytes as f64);
    let help = "From a packet's arrival to its sending: the delay that the relay adds.";
    times(page, ("dwell_sojourn_seconds", help), &label, &tx.sojourn);
}

/// Adds counters of packets and of their bytes before compression. Metrics are sorted by name, so
/// that bytes come first: each help text must be clear alone.
fn both(
    page: &mut Page,
    [packets, bytes]: [&'static str; 2],
    help: &str,
    label: &[(&str, &str)],
    count: Count,
) {
    page.counter(packets, help, label, count.packets);
    let rest = help.strip_prefix("Packets ").unwrap_or(help);
    let help = format!("Bytes, uncompressed, of packets {rest}");
    page.counter(bytes, &help, label, count.bytes);
}

/// Adds the metrics of a class that the configuration names.
fn of_traffic(page: &mut Page, peer: &PeerStatus, class: &ClassTraffic) {
    let (peer, name) = (peer.name.as_str(), class.class.as_str());
    let label = [("peer", peer), ("class", name)];
    let help = "Packets of the class that arrived for the peer.";
    let names = ["dwell_traffic_arrived_packets_total", "dwell_traffic_arrived_bytes_total"];
    both(page, names, help, &label, class.arrived);
    let help = "Packets of the class that were sent.";
    let names = ["dwell_traffic_sent_packets_total", "dwell_traffic_sent_bytes_total"];
    both(page, names, help, &label, class.sent);
    let help = "Packets of the class that were sent compressed.";
    let names = ["dwell_traffic_compressed_packets_total", "dwell_traffic_compressed_bytes_total"];
    both(page, names, help, &label, class.compressed);
    let help = "Bytes that the class's packets would have taken on the link without dwell.";
    page.counter("dwell_traffic_plain_bytes_total", help, &label, class.plain_bytes);
    let help = "Bytes that the class's packets took on the link.";
    page.counter("dwell_traffic_link_bytes_total", help, &label, class.link_bytes);
    let help = "Packets of the class that came from the peer.";
    let names = ["dwell_traffic_received_packets_total", "dwell_traffic_received_bytes_total"];
    both(page, names, help, &label, class.received);
    for (reason, &count) in &class.dropped {
        let label = [("peer", peer), ("class", name), ("reason", reason)];
        let help = "Packets of the class that were dropped.";
        page.counter("dwell_traffic_dropped_packets_total", help, &label, count);
    }
    for (reason, &count) in &class.bypassed {
        let label = [("peer", peer), ("class", name), ("reason", reason)];
        let help = "Packets of the class that were sent without an attempt to compress them.";
        page.counter("dwell_traffic_bypassed_packets_total", help, &label, count);
    }
    let help = "From arrival to sending of the class's packets.";
    times(page, ("dwell_traffic_sojourn_seconds", help), &label, &class.sojourn);
}

/// Adds the queueing delays as a histogram; those of several relays can be added up.
fn times(
    page: &mut Page,
    (name, help): (&'static str, &str),
    label: &[(&str, &str)],
    times: &HistogramSummary,
) {
    let kind = (name, "histogram", help);
    let seconds = |ns: u64| ns as f64 / 1e9;
    let mut bucket = |bound: &str, count: u64| {
        let mut labels = label.to_vec();
        labels.push(("le", bound));
        page.add(kind, "_bucket", &labels, count);
    };
    for (&bound_ns, count) in BUCKETS_NS.iter().zip(times.at_most) {
        bucket(&seconds(bound_ns).to_string(), count);
    }
    bucket("+Inf", times.count);
    page.add(kind, "_sum", label, seconds(times.mean_ns) * f(times.count));
    page.add(kind, "_count", label, times.count);
}

/// Adds the metrics of a class with a deadline.
fn of_deadline(page: &mut Page, peer: &PeerStatus, class: &DeadlineStatus) {
    let label = [("peer", peer.name.as_str()), ("class", &class.class)];
    let seconds = |ns: u64| ns as f64 / 1e9;
    let help = "Time that a packet of the class may take to the peer.";
    page.gauge("dwell_deadline_max_wait_seconds", help, &label, seconds(class.max_wait_ns));
    let help = "Packets sent of a class with a deadline.";
    page.counter("dwell_deadline_packets_total", help, &label, class.packets);
    let help =
        "Packets that left after their time to be held, for which a frame is kept in reserve.";
    page.counter("dwell_deadline_past_total", help, &label, class.past_deadline);
    let help =
        "Packets that were held, and left too late for what their class may take: violations.";
    page.counter("dwell_deadline_violations_total", help, &label, class.late);
    let help = "Time by which the latest packet that violated its deadline was too late.";
    page.gauge("dwell_deadline_excess_max_seconds", help, &label, seconds(class.excess_max_ns));
}

fn of_receiving(page: &mut Page, peer: &PeerStatus) {
    let (rx, name) = (&peer.rx, peer.name.as_str());
    let label = [("peer", name)];
    let mut one = |name, help, value: u64| page.counter(name, help, &label, value);
    one("dwell_received_datagrams_total", "Datagrams accepted.", rx.datagrams);
    one("dwell_received_wire_bytes_total", "Bytes of datagrams accepted.", rx.bytes);
    one("dwell_received_packets_total", "Packets delivered.", rx.packets.packets);
    one("dwell_received_bytes_total", "Bytes of packets delivered, restored.", rx.packets.bytes);
    one("dwell_restored_packets_total", "Packets that came compressed.", rx.compressed);
    one("dwell_restored_blocks_total", "Blocks of several packets.", rx.blocks);
    let help = "Compressed packets and blocks forwarded to another peer without decompression.";
    one("dwell_received_forwarded_compressed_records_total", help, rx.forwarded_compressed.packets);
    let help =
        "Bytes of compressed packets and blocks forwarded to another peer without decompression.";
    one("dwell_received_forwarded_compressed_bytes_total", help, rx.forwarded_compressed.bytes);
    let help = "Packets that went to another peer without passing the interface.";
    one("dwell_received_forwarded_packets_total", help, rx.forwarded.packets);
    let help = "Bytes of packets that went to another peer without passing the interface.";
    one("dwell_received_forwarded_bytes_total", help, rx.forwarded.bytes);
    one("dwell_lost_datagrams_total", "Datagrams that never came.", rx.lost_datagrams);
    let help = "Datagrams that waited because the peer had used up its turn.";
    one("dwell_received_deferred_datagrams_total", help, rx.deferred_datagrams);
    let help = "Jumps of the peer's sequence numbers that no loss explains.";
    one("dwell_received_sequence_jumps_total", help, rx.sequence_jumps);
    for (reason, count) in [
        ("replayed", rx.replayed),
        ("auth_failed", rx.auth_failed),
        ("malformed", rx.malformed),
        ("decode_failed", rx.decode_failed),
        ("skipped_record", rx.skipped_records),
        ("not_allowed", rx.not_allowed),
        ("hop_limit", rx.hop_limit),
        ("over_budget", rx.over_budget),
        ("too_many_packets", rx.too_many_packets),
    ] {
        let label = [("peer", name), ("reason", reason)];
        let help = "Packets and datagrams from the peer that were refused.";
        page.counter("dwell_received_refused_total", help, &label, count);
    }
}

fn of_class(page: &mut Page, peer: &PeerStatus, class: &ClassStatus) {
    let label = [("peer", peer.name.as_str()), ("class", &class.class)];
    let help = "Expected compressed / original.";
    page.gauge("dwell_class_ratio", help, &label, class.ratio);
    let help = "Expected time to compress a byte.";
    page.gauge("dwell_class_compress_seconds_per_byte", help, &label, class.ns_per_byte / 1e9);
    let backing_off = f64::from(u8::from(class.backing_off));
    page.gauge(
        "dwell_class_backing_off",
        "1 while not compressed, because it brought nothing.",
        &label,
        backing_off,
    );
}

fn f(count: u64) -> f64 {
    count as f64
}

/// The value of a counter: whole numbers are written without a point.
trait Number {
    fn write(self) -> String;
}

impl Number for u64 {
    fn write(self) -> String {
        self.to_string()
    }
}

impl Number for f64 {
    fn write(self) -> String {
        self.to_string()
    }
}

/// Metrics by name: the format requires all samples of one metric together.
#[derive(Default)]
struct Page {
    metrics: BTreeMap<&'static str, String>,
}

impl Page {
    fn counter(
        &mut self,
        name: &'static str,
        help: &str,
        labels: &[(&str, &str)],
        value: impl Number,
    ) {
        self.add((name, "counter", help), "", labels, value);
    }

    fn gauge(&mut self, name: &'static str, help: &str, labels: &[(&str, &str)], value: f64) {
        self.add((name, "gauge", help), "", labels, value);
    }

    fn add(
        &mut self,
        (name, kind, help): (&'static str, &str, &str),
        suffix: &str,
        labels: &[(&str, &str)],
        value: impl Number,
    ) {
        let text = self
            .metrics
            .entry(name)
            .or_insert_with(|| format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
        text.push_str(name);
        text.push_str(suffix);
        for (at, (key, value)) in labels.iter().enumerate() {
            // Writing to a string can't fail.
            let _ = write!(text, "{}{key}=\"{}\"", if at == 0 { '{' } else { ',' }, escaped(value));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(text, "{end} {}", value.write());
    }

    fn text(self) -> String {
        self.metrics.into_values().collect()
    }
}

/// Escapes a label's value.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::status::{RecentLoss, TxStatus};

    fn status(peer: &str) -> Status {
        let sojourn = HistogramSummary {
            count: 4,
            mean_ns: 500_000_000,
            at_most: [1; 16],
            ..HistogramSummary::default()
        };
        let tx = TxStatus {
            compressed: Count { packets: 3, bytes: 3000 },
            compressed_to_bytes: 1000,
            plain_bytes: 5000,
            net_saved_bytes: -70,
            loss: RecentLoss::of(200, 78),
            bypassed: BTreeMap::from([("exception".to_owned(), 7)]),
            sojourn,
            ..TxStatus::default()
        };
        let one = PeerStatus {
            name: peer.to_owned(),
            state: PeerState::Up,
            rtt_ns: Some(42_000_000),
            problems: vec![ProblemStatus { problem: "path_mtu".into(), ..Default::default() }],
            tx,
            traffic: vec![ClassTraffic {
                class: "meters".to_owned(),
                sent: Count { packets: 9, bytes: 900 },
                dropped: BTreeMap::from([("queue_full".to_owned(), 2)]),
                bypassed: BTreeMap::from([("back_off".to_owned(), 4)]),
                ..ClassTraffic::default()
            }],
            ..PeerStatus::default()
        };
        let two = PeerStatus { name: "two".to_owned(), ..PeerStatus::default() };
        Status { name: "a".to_owned(), peers: vec![one, two], ..Status::default() }
    }

    #[test]
    fn values_come_out_in_base_units() {
        let text = metrics_text(&status("hub"));
        for line in [
            "# TYPE dwell_saved_bytes_total counter",
            "dwell_saved_bytes_total{peer=\"hub\"} 2000",
            "dwell_plain_bytes_total{peer=\"hub\"} 5000",
            "dwell_net_saved_bytes{peer=\"hub\"} -70",
            "dwell_rtt_seconds{peer=\"hub\"} 0.042",
            "dwell_peer_up{peer=\"hub\"} 1",
            "dwell_loss_ratio{peer=\"hub\",direction=\"out\"} 0.39",
            "dwell_peer_up{peer=\"two\"} 0",
            "# TYPE dwell_peer_problem gauge",
            "dwell_peer_problem{peer=\"hub\",problem=\"path_mtu\"} 1",
            "dwell_peer_problem{peer=\"hub\",problem=\"no_answer\"} 0",
            "dwell_problem{problem=\"unknown_peer\"} 0",
            "dwell_bypassed_packets_total{peer=\"hub\",reason=\"exception\"} 7",
            "dwell_traffic_bypassed_packets_total{peer=\"hub\",class=\"meters\",reason=\"back_off\"} 4",
            "dwell_peer_lost_datagrams_total{peer=\"hub\"} 0",
            "dwell_traffic_sent_bytes_total{peer=\"hub\",class=\"meters\"} 900",
            "dwell_traffic_dropped_packets_total{peer=\"hub\",class=\"meters\",reason=\"queue_full\"} 2",
            "dwell_traffic_sojourn_seconds_count{peer=\"hub\",class=\"meters\"} 0",
            "dwell_sojourn_seconds_bucket{peer=\"hub\",le=\"0.0001\"} 1",
            "dwell_sojourn_seconds_bucket{peer=\"hub\",le=\"10\"} 1",
            "dwell_sojourn_seconds_bucket{peer=\"hub\",le=\"+Inf\"} 4",
            "dwell_sojourn_seconds_sum{peer=\"hub\"} 2",
            "dwell_sojourn_seconds_count{peer=\"hub\"} 4",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("dwell_rtt_seconds{peer=\"two\"}"), "unknown is not zero");
        assert!(!text.contains("dwell_loss_ratio{peer=\"hub\",direction=\"in\"}"));
    }

    #[test]
    fn help_and_type_stand_before_the_samples_and_speak_for_themselves() {
        let mut all = status("hub");
        all.drops.insert("no_route".to_owned(), 1);
        let class = ClassStatus {
            class: "tcp/80".to_owned(),
            ratio: 0.5,
            ns_per_byte: 3.0,
            backing_off: false,
        };
        all.peers[0].classes.push(class);
        all.peers[0].deadlines.push(DeadlineStatus::default());
        let text = metrics_text(&all);
        let mut lines = text.lines().peekable();
        let mut families = 0;
        while let Some(line) = lines.next() {
            let help = line.strip_prefix("# HELP ").unwrap_or_else(|| panic!("{line} has no help"));
            let (name, help) = help.split_once(' ').unwrap();
            // The page is sorted by name: text about another metric may come later.
            assert!(!help.split(' ').any(|word| ["Their", "Those"].contains(&word)), "{line}");
            assert!(help.ends_with('.') && help.len() > 10, "{line}");
            let kind = lines.next().unwrap_or_default();
            assert!(kind.starts_with(&format!("# TYPE {name} ")), "{kind} behind {line}");
            let mut samples = 0;
            while lines.next_if(|line| !line.starts_with('#')).is_some() {
                samples += 1;
            }
            assert!(samples > 0, "{name} has no samples");
            families += 1;
        }
        assert!(families > 60, "{families}");
    }

    proptest! {
        #[test]
        fn every_sample_has_one_type_and_comes_once(peer in "[ -~\n\\\\\"]{0,12}") {
            let text = metrics_text(&status(&peer));
            prop_assert!(text.ends_with('\n'));
            let (mut types, mut samples) = (BTreeSet::new(), BTreeSet::new());
            let mut present = String::new();
            for line in text.lines() {
                if let Some(rest) = line.strip_prefix("# TYPE ") {
                    present = rest.split(' ').next().unwrap().to_owned();
                    prop_assert!(types.insert(present.clone()), "{} comes twice", present);
                } else if !line.starts_with('#') {
                    prop_assert!(line.starts_with(&present), "{} under {}", line, present);
                    let (sample, value) = line.rsplit_once(' ').unwrap();
                    prop_assert!(value.parse::<f64>().is_ok(), "{}", line);
                    if !sample.contains("two") {
                        prop_assert!(samples.insert(sample.to_owned()), "{} twice", sample);
                    }
                }
            }
        }
    }
}
