//! A [`Status`] for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::human::{self, NOTHING};
use crate::lately::lately;
use crate::status::{
    DictionaryStatus, HistoryStatus, PeerState, PeerStatus, ProblemStatus, RateSource, RecentLoss,
    RxStatus, Status,
};
use crate::table::{Column, Table};

/// The explanation of the column `saved`.
const SAVED: &str = "saved: against the same packets sent without dwell, all headers counted\n";

/// Describes the state of a node in plain text: what is asked first, then the details. Ends with a line end. The
/// time, in nanoseconds since 1970, tells how long ago something happened.
pub fn status_text(status: &Status, now_unix_ns: u64) -> String {
    let mut out = crate::answer(status) + &problems(status) + &lately(status, now_unix_ns);
    out = out + "\n" + &node_lines(status);
    if status.peers.is_empty() {
        return out;
    }
    let tables = [(links(status), ""), (sent(status), SAVED), (received(status), "")];
    for (table, caption) in tables {
        out.push('\n');
        out.push_str(&table.to_text());
        out.push_str(caption);
    }
    let notes: String = status.peers.iter().map(notes).collect();
    if !notes.is_empty() {
        out.push('\n');
        out.push_str(&notes);
    }
    out
}

fn node_lines(status: &Status) -> String {
    let Status { name, version, uptime_ns, cpu_ns, tun, drops, .. } = status;
    let mut out = format!(
        "{name}: dwell {version}, running for {}, {} of a CPU\n",
        human::duration(*uptime_ns),
        human::share(*cpu_ns, *uptime_ns)
    );
    if !status.seccomp {
        out += crate::proxy::UNFILTERED;
    }
    let offload = if tun.offload { "on" } else { "off" };
    // Writing to a string can't fail.
    let _ = writeln!(
        out,
        "{}: MTU {}, offload {offload}, read {} ({}), wrote {} ({})",
        tun.name,
        tun.mtu,
        human::counted(tun.rx_packets, "packet"),
        human::bytes(tun.rx_bytes),
        human::counted(tun.tx_packets, "packet"),
        human::bytes(tun.tx_bytes)
    );
    if let Some(address) = &status.web {
        let _ = writeln!(out, "web page: {address}");
    }
    out += &history_line(&status.history);
    if let Some(reasons) = reasons(drops.iter().map(|(reason, &count)| (reason, count))) {
        let _ = writeln!(out, "dropped before a peer was known: {reasons}");
    }
    out
}

/// The memory of all contexts, if there are any.
fn history_line(history: &HistoryStatus) -> String {
    let HistoryStatus { memory_bytes, memory_bytes_max, evicted } = *history;
    if memory_bytes == 0 && evicted == 0 {
        return String::new();
    }
    let of = memory_bytes_max.map_or_else(String::new, |max| format!(" of {}", human::bytes(max)));
    let given_up = match evicted {
        0 => String::new(),
        _ => format!(", {} given up for others", human::counted(evicted, "context")),
    };
    format!("history: {}{of}{given_up}\n", human::bytes(memory_bytes))
}

/// Lists the problems and their remedies: before anything else, since they explain the rest.
fn problems(status: &Status) -> String {
    let of_node = status.problems.iter().map(|problem| (&status.name, problem));
    let of_peers = status
        .peers
        .iter()
        .flat_map(|peer| peer.problems.iter().map(move |problem| (&peer.name, problem)));
    let mut out = String::new();
    for (name, ProblemStatus { problem, for_ns, why, remedy }) in of_node.chain(of_peers) {
        let begin = if out.is_empty() { "\n" } else { "" };
        let time = human::duration(*for_ns);
        // Writing to a string can't fail.
        let _ = writeln!(out, "{begin}{name}: {problem} for {time}: {why} {remedy}");
    }
    out
}

fn links(status: &Status) -> Table {
    let mut table = Table::new([
        Column::left("peer"),
        Column::left("state"),
        Column::left("endpoint"),
        Column::left("security"),
        Column::left("scheme"),
        Column::left("codec"),
        Column::right("rate"),
        Column::right("round trip"),
        Column::right("last received"),
    ]);
    for peer in &status.peers {
        table.row([
            peer.name.clone(),
            peer.state.name().to_owned(),
            peer.endpoint.clone().unwrap_or_else(|| NOTHING.to_owned()),
            peer.security.clone(),
            peer.scheme.clone(),
            peer.codec.clone(),
            rate(peer),
            optional(peer.rtt_ns, human::duration),
            optional(peer.since_received_ns, |ns| format!("{} ago", human::duration(ns))),
        ]);
    }
    table
}

/// Formats a link's rate: `~10 Mbit/s` was measured, and `10 Mbit/s (share)` is part of a link that all peers share.
fn rate(peer: &PeerStatus) -> String {
    match (peer.rate_source, peer.rate_bps) {
        (RateSource::Unlimited, _) => "unlimited".to_owned(),
        (RateSource::Measured, None) => "measuring".to_owned(),
        (RateSource::Measured, Some(bps)) => format!("~{}", human::rate(bps)),
        (RateSource::Share, Some(bps)) => format!("{} (share)", human::rate(bps)),
        (RateSource::Configured | RateSource::Share, bps) => optional(bps, human::rate),
    }
}

fn sent(status: &Status) -> Table {
    let mut table = Table::new([
        Column::left("sent to"),
        Column::right("packets"),
        Column::right("bytes"),
        Column::right("on the link"),
        Column::right("ratio"),
        Column::right("compressed"),
        Column::right("to"),
        Column::right("saved"),
        Column::right("dropped"),
        Column::right("lost"),
        Column::right("waiting"),
        Column::right("p50"),
        Column::right("p99"),
    ]);
    for peer in &status.peers {
        let tx = &peer.tx;
        table.row([
            peer.name.clone(),
            human::count(tx.sent.packets),
            human::bytes(tx.sent.bytes),
            human::bytes(tx.link_bytes),
            human::ratio(tx.link_ratio()),
            human::share(tx.compressed.packets, tx.arrived.packets),
            human::ratio(tx.compressed_ratio()),
            saved(tx.net_saved_bytes),
            human::share(tx.dropped_total().packets, tx.arrived.packets),
            loss(tx.loss),
            human::count(peer.waiting_packets),
            optional(tx.sojourn.p50_ns_if_any(), human::duration),
            optional(tx.sojourn.p99_ns_if_any(), human::duration),
        ]);
    }
    table
}

/// Formats the bytes saved; they are negative if dwell costs more than it saves.
fn saved(bytes: i64) -> String {
    let sign = if bytes < 0 { "-" } else { "" };
    format!("{sign}{}", human::bytes(bytes.unsigned_abs()))
}

fn received(status: &Status) -> Table {
    let mut table = Table::new([
        Column::left("received from"),
        Column::right("packets"),
        Column::right("bytes"),
        Column::right("compressed"),
        Column::right("datagrams"),
        Column::right("bytes"),
        Column::right("lost"),
        Column::right("refused"),
    ]);
    for peer in &status.peers {
        let rx = &peer.rx;
        table.row([
            peer.name.clone(),
            human::count(rx.packets.packets),
            human::bytes(rx.packets.bytes),
            human::share(rx.compressed, rx.compressed + rx.raw),
            human::count(rx.datagrams),
            human::bytes(rx.bytes),
            loss(rx.loss),
            human::count(refused(rx).iter().map(|(_, count)| count).sum()),
        ]);
    }
    table
}

/// Describes the treatment of packets for a peer that is not up.
fn while_not_up(peer: &PeerStatus) -> Option<&'static str> {
    match (peer.state, peer.on_dead.as_str()) {
        (PeerState::Up, _) => None,
        (_, "closed") => Some("packets for it are refused until it is up (on_dead = \"closed\")"),
        (_, "open") => Some(
            "packets for it leave by other routes until it is up, not protected by dwell \
             (on_dead = \"open\")",
        ),
        _ => None,
    }
}

/// Formats the share of datagrams that is lost on the path at present.
fn loss(loss: Option<RecentLoss>) -> String {
    loss.map_or_else(|| NOTHING.to_owned(), |loss| human::share(loss.lost, loss.datagrams))
}

/// Returns the counts of what came from a peer and was not accepted, by reason.
fn refused(rx: &RxStatus) -> [(&'static str, u64); 8] {
    [
        ("replayed", rx.replayed),
        ("auth_failed", rx.auth_failed),
        ("malformed", rx.malformed),
        ("decode_failed", rx.decode_failed),
        ("not_allowed", rx.not_allowed),
        ("hop_limit", rx.hop_limit),
        ("over_budget", rx.over_budget),
        ("too_many_packets", rx.too_many_packets),
    ]
}

/// Explains a peer's numbers by their reasons, where there are any.
fn notes(peer: &PeerStatus) -> String {
    let tx = &peer.tx;
    let dropped: BTreeMap<_, _> =
        tx.dropped.iter().map(|(reason, count)| (reason, count.packets)).collect();
    let not_smaller = ("not_smaller".to_owned(), tx.not_smaller);
    let failed = ("failed".to_owned(), tx.failed);
    let notes = [
        ("dropped", reasons(dropped)),
        ("not compressed", reasons(tx.bypassed.clone().into_iter().chain([not_smaller, failed]))),
        ("not sent", reasons(tx.send_errors.iter().map(|(error, &count)| (error, count)))),
        ("refused", reasons(refused(&peer.rx))),
        ("incomplete", reasons(peer.rx.dropped_records.clone())),
    ];
    let mut out = String::new();
    for (what, reasons) in notes {
        if let Some(reasons) = reasons {
            let _ = writeln!(out, "{}: {what}: {reasons}", peer.name);
        }
    }
    if let Some(fate) = while_not_up(peer) {
        let _ = writeln!(out, "{}: {fate}", peer.name);
    }
    let (rx, tx) = (&peer.rx, &peer.tx);
    for (what, count) in [
        ("datagrams lost on the path from it since the start", rx.lost_datagrams),
        ("datagrams lost on the path to it since the start", tx.peer_lost_datagrams),
        ("datagrams that waited for its next turn", rx.deferred_datagrams),
        ("jumps of its sequence numbers", rx.sequence_jumps),
    ] {
        if count > 0 {
            let _ = writeln!(out, "{}: {what}: {}", peer.name, human::count(count));
        }
    }
    for (what, count) in [
        ("forwarded from it, without decompression", rx.forwarded_compressed),
        ("forwarded to it, without decompression", tx.forwarded_compressed),
        ("forwarded from it, raw or decompressed", rx.forwarded),
    ] {
        if count.packets > 0 {
            let (records, bytes) = (human::count(count.packets), human::bytes(count.bytes));
            let _ = writeln!(out, "{}: {what}: {records}, {bytes}", peer.name);
        }
    }
    out.push_str(&contexts(peer));
    if let Some(bps) = peer.bottleneck_bps {
        let queue = optional(peer.beyond_ns, human::duration);
        let _ = writeln!(
            out,
            "{}: the slowest link carries {}; its queue is {queue}",
            peer.name,
            human::rate(bps)
        );
    }
    if let Some(there) = peer.rx.reported.filter(|there| there.waiting_bytes > 0) {
        let _ = writeln!(
            out,
            "{}: {} wait there for the link to here, for {}",
            peer.name,
            human::bytes(there.waiting_bytes),
            human::duration(there.waiting_ns)
        );
    }
    for class in &peer.traffic {
        let _ = writeln!(
            out,
            "{}: class {}: {} sent, {} compressed, {} dropped, {} received; ratio {}, p99 {}",
            peer.name,
            class.class,
            human::counted(class.sent.packets, "packet"),
            human::count(class.compressed.packets),
            human::count(class.dropped.values().sum()),
            human::count(class.received.packets),
            human::ratio(class.ratio()),
            optional(class.sojourn.p99_ns_if_any(), human::duration),
        );
    }
    for class in &peer.deadlines {
        let _ = writeln!(
            out,
            "{}: class {}: held up to {} of {}; {} of {} too late, by {} at most",
            peer.name,
            class.class,
            human::duration(class.deadline_ns),
            human::duration(class.max_wait_ns),
            human::count(class.late),
            human::count(class.packets),
            human::duration(class.excess_max_ns),
        );
    }
    out
}

fn counted(counts: &BTreeMap<String, u64>) -> Option<String> {
    reasons(counts.iter().map(|(reason, &count)| (reason, count)))
}

/// `1 batch`, `7 batches`.
fn batches(count: u64) -> String {
    let noun = if count == 1 { "batch" } else { "batches" };
    format!("{} {noun}", human::count(count))
}

/// What was compressed with reference to what went before, in either direction.
fn contexts(peer: &PeerStatus) -> String {
    let (tx, rx, name) = (&peer.tx.contexts, &peer.rx.contexts, &peer.name);
    let mut out = peer.dictionary.as_ref().map(|it| dictionary(name, it)).unwrap_or_default();
    if !tx.is_unused() {
        let kept = match tx.kept_bytes {
            0 => String::new(),
            bytes => format!(", and {} kept to be sent again", human::bytes(bytes)),
        };
        let _ = writeln!(
            out,
            "{name}: contexts to it: {}, {}{kept}; {} of {} became {} ({})",
            human::count(tx.open),
            human::bytes(tx.memory_bytes),
            batches(tx.batches),
            human::bytes(tx.bytes_in),
            human::bytes(tx.bytes_out),
            human::ratio((tx.bytes_in > 0).then(|| tx.bytes_out as f64 / tx.bytes_in as f64)),
        );
        if let Some(reasons) = counted(&tx.generations) {
            let cold = human::count(tx.cold_starts);
            let from_dictionary = match tx.dictionary_starts {
                0 => String::new(),
                starts => format!(", {} from the dictionary", human::count(starts)),
            };
            let with_models = match tx.model_generations {
                0 => String::new(),
                count => format!(", {} with a model", human::count(count)),
            };
            let _ = writeln!(
                out,
                "{name}: generations begun: {reasons}; {cold} from nothing{from_dictionary}{with_models}"
            );
        }
        if let Some(codecs) = counted(&tx.codecs) {
            let _ = writeln!(out, "{name}: contexts by codec: {codecs}");
        }
        if tx.alone_batches > 0 {
            let (alone, generations) = (tx.alone_batches, tx.acknowledged_generations);
            let (alone, generations) = (batches(alone), human::counted(generations, "generation"));
            let mode = &tx.mode;
            let _ = writeln!(out, "{name}: of these, {alone} alone, in {generations}; now {mode}");
        } else if tx.mode == "stateless" {
            let _ = writeln!(
                out,
                "{name}: batches refer to nothing at present: on a long way too much is lost, or it is not known yet"
            );
        }
        if tx.encoded_again_packets > 0 {
            let packets = human::counted(tx.encoded_again_packets, "packet");
            let _ = writeln!(out, "{name}: lost with a generation and sent again: {packets}");
        }
        if let Some(reasons) = counted(&tx.without_context) {
            let _ = writeln!(out, "{name}: compressed without a context: {reasons}");
        }
    }
    if !rx.is_unused() {
        let _ = writeln!(
            out,
            "{name}: contexts from it: {}, {}; {}; {}, {} of them given up; waited p99 {}",
            human::count(rx.open),
            human::bytes(rx.memory_bytes),
            batches(rx.batches),
            human::counted(rx.gaps, "gap"),
            human::count(rx.gaps_given_up),
            optional((rx.waited.count > 0).then_some(rx.waited.p99_ns), human::duration),
        );
        if let Some(reasons) = counted(&rx.dropped) {
            let _ = writeln!(out, "{name}: dropped records of contexts: {reasons}");
        }
    }
    out
}

/// The dictionary here, and whether the peer has the same.
fn dictionary(name: &str, dictionary: &DictionaryStatus) -> String {
    let DictionaryStatus { bytes, name: hash, of_peer } = dictionary;
    let there = match of_peer.as_str() {
        "same" => "the peer has the same",
        "other" => "the peer has another one",
        "none" => "the peer has none",
        _ => "nothing is known of the peer's",
    };
    let (bytes, begin) = (human::bytes(*bytes), hash.get(..8).unwrap_or(hash));
    format!("{name}: dictionary {begin} of {bytes}: {there}\n")
}

/// `no_time 12, too_small 3`: the largest first; `None` if all are zero.
fn reasons<S: AsRef<str>>(counts: impl IntoIterator<Item = (S, u64)>) -> Option<String> {
    let mut counts: Vec<_> = counts.into_iter().filter(|&(_, count)| count > 0).collect();
    counts.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    let words: Vec<_> = counts
        .iter()
        .map(|(reason, count)| format!("{} {}", reason.as_ref(), human::count(*count)))
        .collect();
    (!words.is_empty()).then(|| words.join(", "))
}

fn optional(value: Option<u64>, show: impl Fn(u64) -> String) -> String {
    value.map_or_else(|| NOTHING.to_owned(), show)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::example;
    use crate::status::{RxContexts, TxContexts};

    #[test]
    fn a_node_fills_a_screen() {
        let expected = "\
hub: path_mtu for 12.00 s: Datagrams of 1472 bytes do not arrive there. Raise the path's MTU.

site-a: dwell 0.1.0, running for 1 h 0 min, 1.0 % of a CPU
dwell0: MTU 1420, offload on, read 1,000 packets (1.2 MB), wrote 900 packets (90.0 kB)
history: 5.0 MB of 67.1 MB, 2 contexts given up for others
dropped before a peer was known: no_route 3

peer  state  endpoint           security  scheme  codec       rate  round trip  last received
hub   up     198.51.100.7:7733  psk       packet  zstd   10 Mbit/s     42.0 ms     1.00 s ago

sent to  packets   bytes  on the link  ratio  compressed     to     saved  dropped   lost  waiting     p50      p99
hub          950  1.1 MB     640.0 kB  0.561      80.0 %  0.500  499.4 kB    4.0 %  1.5 %       10  2.0 ms  90.0 ms
saved: against the same packets sent without dwell, all headers counted

received from  packets    bytes  compressed  datagrams    bytes   lost  refused
hub                900  90.0 kB      50.0 %        700  70.0 kB  4.0 %        2

hub: dropped: queue_packets 40
hub: not compressed: no_time 150, not_smaller 5
hub: refused: auth_failed 2
hub: incomplete: timed_out 1
hub: datagrams lost on the path from it since the start: 10
hub: datagrams lost on the path to it since the start: 10
hub: forwarded from it, without decompression: 70, 40.0 kB
hub: forwarded to it, without decompression: 30, 12.0 kB
hub: forwarded from it, raw or decompressed: 15, 1.5 kB
hub: 12.0 kB wait there for the link to here, for 9.6 ms
hub: class meters: 70 packets sent, 60 compressed, 5 dropped, 5 received; ratio 0.312, p99 28.1 ms
hub: class meters: held up to 28.0 ms of 50.0 ms; 2 of 70 too late, by 60.0 µs at most
";
        let first = crate::answer(&example());
        assert_eq!(status_text(&example(), 0), format!("{first}\n{expected}"));
    }

    #[test]
    fn contexts_are_described_if_there_are_any() {
        let counts = |name: &str, count| BTreeMap::from([(name.to_owned(), count)]);
        let mut peer = example().peers.remove(0);
        assert_eq!(contexts(&peer), "");
        peer.tx.contexts = TxContexts {
            open: 2,
            memory_bytes: 5_000_000,
            batches: 1_200,
            bytes_in: 4_000_000,
            bytes_out: 1_000_000,
            generations: counts("lost", 3),
            cold_starts: 1,
            dictionary_starts: 2,
            model_generations: 3,
            codecs: [("ppm:6".to_owned(), 2)].into(),
            mode: "acknowledged".to_owned(),
            alone_batches: 1_100,
            acknowledged_generations: 2,
            without_context: counts("none_free", 7),
            ..TxContexts::default()
        };
        peer.rx.contexts = RxContexts {
            open: 1,
            memory_bytes: 1_500_000,
            batches: 900,
            gaps: 4,
            gaps_given_up: 1,
            dropped: counts("late", 2),
            ..RxContexts::default()
        };
        peer.dictionary = Some(DictionaryStatus {
            bytes: 32_000,
            name: "d1c7100ae50001020304050607080900".to_owned(),
            of_peer: "same".to_owned(),
        });
        let expected = "\
hub: dictionary d1c7100a of 32.0 kB: the peer has the same
hub: contexts to it: 2, 5.0 MB; 1,200 batches of 4.0 MB became 1.0 MB (0.250)
hub: generations begun: lost 3; 1 from nothing, 2 from the dictionary, 3 with a model
hub: contexts by codec: ppm:6 2
hub: of these, 1,100 batches alone, in 2 generations; now acknowledged
hub: compressed without a context: none_free 7
hub: contexts from it: 1, 1.5 MB; 900 batches; 4 gaps, 1 of them given up; waited p99 -
hub: dropped records of contexts: late 2
";
        assert_eq!(contexts(&peer), expected);
    }

    #[test]
    fn a_rate_says_where_it_comes_from() {
        let shown = |rate_source, rate_bps| {
            rate(&PeerStatus { rate_source, rate_bps, ..PeerStatus::default() })
        };
        assert_eq!(shown(RateSource::Configured, Some(1000)), "1 kbit/s");
        assert_eq!(shown(RateSource::Measured, Some(1000)), "~1 kbit/s");
        assert_eq!(shown(RateSource::Measured, None), "measuring");
        assert_eq!(shown(RateSource::Share, Some(1000)), "1 kbit/s (share)");
        assert_eq!(shown(RateSource::Unlimited, None), "unlimited");
    }

    #[test]
    fn a_link_further_on_is_reported() {
        let beyond = PeerStatus {
            name: "hub".into(),
            bottleneck_bps: Some(5_000_000),
            beyond_ns: Some(9_000_000),
            ..PeerStatus::default()
        };
        let expected = "hub: the slowest link carries 5 Mbit/s; its queue is 9.0 ms\n";
        assert_eq!(notes(&beyond), expected);
    }

    #[test]
    fn a_peer_that_is_not_up_says_what_becomes_of_its_packets() {
        let said = |state, on_dead: &str| {
            notes(&PeerStatus {
                name: "hub".into(),
                state,
                on_dead: on_dead.into(),
                ..PeerStatus::default()
            })
        };
        for state in [PeerState::Connecting, PeerState::Down] {
            assert!(said(state, "closed").contains("are refused until it is up"));
            assert!(said(state, "open").contains("by other routes until it is up, not protected"));
        }
        assert_eq!(said(PeerState::Up, "open"), "");
    }

    #[test]
    fn an_empty_node_has_no_tables() {
        let text = status_text(&Status { name: "a".into(), ..Status::default() }, 0);
        assert!(text.starts_with("a has no peers"), "{text}");
    }
}
