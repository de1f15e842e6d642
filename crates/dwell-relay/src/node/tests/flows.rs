//! What is said of flows adds up to what is said of their peer.

use dwell_base::time::MICRO_NS;

use super::contexts::pair_of;
use super::harness::*;

/// Without compression this is more than the link carries, so that packets wait and are dropped.
fn adds_up(line: &str, drops: bool) {
    let mut net = pair_of([line; 2], &good_link(), 3);
    net.run_to(1_000);
    net.net.with_node(net.ends[0], |end, now, _| end.node.watch_flows(now));
    net.start_sources(1_000, 8_000, 250 * MICRO_NS);
    net.run_to(6_000);
    let tx = net.end(0).peer().tx;
    assert_eq!(tx.held.packets, 0, "all has left the queue");
    assert_eq!(tx.dropped_total().packets > 0, drops, "{tx:?}");
    assert!(tx.sent.packets > 1_000, "{tx:?}");
    let flows = net.end(0).node.flows(at_ms(6_000));
    assert!(flows.len() > 10 && flows.len() < 64, "{} flows", flows.len());
    let sum = |of: fn(&dwell_report::status::FlowStatus) -> u64| flows.iter().map(of).sum::<u64>();
    assert_eq!((sum(|it| it.packets), sum(|it| it.bytes)), (tx.arrived.packets, tx.arrived.bytes));
    assert_eq!(
        (sum(|it| it.sent_packets), sum(|it| it.sent_bytes)),
        (tx.sent.packets, tx.sent.bytes)
    );
    assert_eq!(sum(|it| it.plain_bytes), tx.plain_bytes);
    assert_eq!(sum(|it| it.dropped), tx.dropped_total().packets);
    // Each flow's is rounded.
    assert!(sum(|it| it.link_bytes).abs_diff(tx.link_bytes) <= flows.len() as u64, "{tx:?}");
    assert_eq!(
        sum(|it| u64::from(it.sojourn_max_ns > 0)),
        0,
        "nothing went in the last two seconds"
    );
    // The mean of the histogram is in whole nanoseconds.
    let waits_ns = sum(|it| it.sojourn_sum_ns);
    assert!(waits_ns.abs_diff(tx.sojourn.mean_ns * tx.sojourn.count) <= tx.sojourn.count, "{tx:?}");
}

#[test]
fn flows_add_up_where_packets_go_as_they_are() {
    adds_up("scheme = \"none\"", true);
}

#[test]
fn flows_add_up_where_packets_are_compressed_alone() {
    adds_up("scheme = \"all\"", false);
}

#[test]
fn flows_add_up_where_packets_are_compressed_together() {
    adds_up("scheme = \"host-pair\"\ncodec = \"zstd:3\"\nhistory = \"host-pair\"", false);
    adds_up("scheme = \"host-pair\"\ncodec = \"zstd:3\"", false);
}
