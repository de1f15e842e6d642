//! Batches in no context, whose codec is picked.

use dwell_base::Rate;
use dwell_base::time::{MICRO_NS, MILLI_NS};
use dwell_testkit::LinkSpec;

use super::harness::*;

const TEXT: Traffic = Traffic { flows: 4, six: false, payload_max: 1308, random: 0.0 };

/// Returns the codec in use at the end, and the bytes of packets that came.
fn overload(rate: &str, mbps: u64, codec: &str) -> (Option<String>, u64) {
    let lines = format!("scheme = \"auto\"\nhistory = \"off\"\ncodec = \"{codec}\"");
    let link = LinkSpec::new().with_rate(Rate::from_mbps(mbps)).with_delay_ns(10 * MILLI_NS);
    let mut net = Net::new(&[0, 1].map(|side| config_of(side, true, rate, &lines)), &link, 3);
    net.run_to(100);
    net.set_traffic(TEXT);
    net.start_source(0, 100, 6_000, 500 * MICRO_NS);
    net.run_to(4_000);
    net.assert_nothing_altered_or_doubled();
    net.assert_flows_in_order();
    let from = net.end(0).peer();
    assert!(from.tx.balances(), "{rate}, {codec}");
    (from.tx.contexts.codec_without_context, net.end(1).peer().rx.packets.bytes)
}

#[test]
fn without_history_a_codec_is_picked_for_each_link() {
    let (picked, came) = overload("2mbit", 2, "auto");
    let picked = picked.expect("there were batches");
    assert!(["zstd:6", "zstd:9", "zstd:12"].contains(&&picked[..]), "{picked}");
    let (written, came_with_first) = overload("2mbit", 2, "zstd:1");
    assert_eq!(written, None);
    assert!(came >= came_with_first, "{came} and {came_with_first}");
}
