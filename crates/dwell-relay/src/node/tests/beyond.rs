//! A bottleneck that no back-pressure shows.

use dwell_base::Rate;
use dwell_base::time::MILLI_NS;
use dwell_report::status::{ClassTraffic, PeerStatus};
use dwell_testkit::LinkSpec;

use super::harness::{Net, Traffic, config, config_with, good_link, pair};

/// Twenty seconds of 15 Mbit/s from one end, over what is 10 Mbit/s somewhere; what the sender and
/// the receiver say then.
fn compressed_hard(rate: &str, link: &LinkSpec, seed: u64) -> (PeerStatus, PeerStatus, Net) {
    let lines = "scheme = \"packet\"\nqueue_time = \"50ms\"";
    let configs = [0, 1].map(|end| config_with(end, true, rate, lines));
    let mut net = Net::new(&configs, link, seed);
    net.run_to(1_000);
    net.net.with_node(net.ends[0], |end, _, _| end.source(at(1_000), 40_000, MILLI_NS / 2));
    net.run_to(20_000);
    let (from, to) = (net.end(0).peer(), net.end(1).peer());
    (from, to, net)
}

fn at(ms: u64) -> dwell_base::Instant {
    super::harness::at_ms(ms)
}

#[test]
fn the_queue_becomes_ours() {
    let link = good_link().with_rate(Rate::from_mbps(8));
    for seed in 1..=3 {
        let (auto, _, net) = compressed_hard("auto", &link, seed);
        let found = auto.bottleneck_bps.expect("a bottleneck was found");
        assert!(found.abs_diff(8_000_000) < 800_000, "{found} of 8,000,000");
        assert!(auto.tx.compressed.packets > 1_000, "{:?}", auto.tx);
        assert!(auto.beyond_ns.is_some_and(|ns| ns < 50 * MILLI_NS), "{:?}", auto.beyond_ns);
        net.assert_nothing_altered_or_doubled();
        let (local, ..) = compressed_hard("local", &link, seed);
        assert_eq!(local.bottleneck_bps, None);
        assert_eq!(local.tx.compressed.packets, 0, "nothing waits where it could be compressed");
    }
}

#[test]
fn a_path_with_room_is_not_slowed_down() {
    let link = good_link().with_rate(Rate::from_mbps(100)).with_jitter_ns(4 * MILLI_NS);
    let (auto, ..) = compressed_hard("auto", &link, 1);
    assert_eq!((auto.bottleneck_bps, auto.tx.dropped_total().packets), (None, 0));
}

#[test]
fn the_peer_s_queue_and_losses_are_reported() {
    let link = good_link().with_rate(Rate::from_mbps(8)).with_loss(0.02);
    let (from, _, _) = compressed_hard("auto", &link, 1);
    let lost = from.tx.peer_lost_datagrams;
    let all = from.tx.peer_got_datagrams + lost;
    assert!(lost * 50 > all / 2 && lost * 50 < all * 10, "{lost} of {all}");
    assert!(from.tx.datagrams >= all);
}

#[test]
fn a_queue_is_reported_to_the_other_end() {
    let configs = [0, 1].map(|end| config(end, true, "2mbit", "none"));
    let mut net = Net::new(&configs, &good_link(), 1);
    net.run_to(1_000);
    // More than the one end can send; the other sends a little, and is notified of what came.
    net.net.with_node(net.ends[0], |end, _, _| end.source(at(1_000), 10_000, MILLI_NS));
    net.net.with_node(net.ends[1], |end, _, _| end.source(at(1_000), 100, 80 * MILLI_NS));
    net.run_to(8_000);
    let there = net.end(1).peer().rx.reported.expect("it was notified what came");
    assert!(there.waiting_bytes > 10_000, "{there:?}");
    assert!(there.waiting_ns > 40 * MILLI_NS, "{there:?}");
}

/// The packets that each class sent, dropped and received add up to the totals.
#[test]
fn classes_are_counted() {
    let classes = "[[class]]\nname = \"low\"\nports = [\"udp/1000-1009\"]\n\
                   [[class]]\nname = \"rest\"\n";
    let held = "[[class]]\nname = \"low\"\nports = [\"udp/1000-1009\"]\nmax_wait = \"200ms\"\n\
                [[class]]\nname = \"rest\"\nmax_wait = \"400ms\"\n";
    for (scheme, classes) in [("packet", classes), ("edge", classes), ("basicq", held)] {
        let lines = format!("scheme = \"{scheme}\"\n{classes}");
        let configs = [0, 1].map(|end| config_with(end, true, "2mbit", &lines));
        let mut net = Net::new(&configs, &good_link(), 1);
        net.set_traffic(Traffic { flows: 20, ..Traffic::default() });
        net.run_to(1_000);
        net.net.with_node(net.ends[0], |end, _, _| end.source(at(1_000), 3_000, MILLI_NS));
        net.run_to(8_000);
        let (from, to) = (net.end(0).peer(), net.end(1).peer());
        let names: Vec<_> = from.traffic.iter().map(|class| class.class.as_str()).collect();
        assert_eq!(names, ["low", "rest"]);
        let sum = |of: &dyn Fn(&ClassTraffic) -> u64| from.traffic.iter().map(of).sum::<u64>();
        assert_eq!(sum(&|class| class.arrived.packets), from.tx.arrived.packets);
        assert_eq!(sum(&|class| class.sent.packets), from.tx.sent.packets);
        assert_eq!(sum(&|class| class.sent.bytes), from.tx.sent.bytes);
        assert_eq!(sum(&|class| class.compressed.packets), from.tx.compressed.packets, "{scheme}");
        assert_eq!(sum(&|class| class.plain_bytes), from.tx.plain_bytes);
        // Each class is rounded to a byte.
        let rounded = sum(&|class| class.link_bytes).abs_diff(from.tx.link_bytes);
        assert!(rounded <= from.traffic.len() as u64, "{scheme}: {rounded}");
        assert!(from.traffic.iter().all(|class| class.link_bytes > 0));
        // Blocks take in what single packets leave out.
        assert!(from.tx.bypassed.values().sum::<u64>() > 0 || scheme != "packet", "{scheme}");
        for (reason, count) in &from.tx.bypassed {
            assert_eq!(sum(&|class| class.bypassed[reason]), *count, "{scheme}: {reason}");
        }
        assert_eq!(sum(&|class| class.dropped.values().sum()), from.tx.dropped_total().packets);
        assert_eq!(sum(&|class| class.sojourn.count), from.tx.sojourn.count);
        assert!(from.tx.compressed.packets > 500 && from.tx.dropped_total().packets > 100);
        let received: u64 = to.traffic.iter().map(|class| class.received.packets).sum();
        assert_eq!(received, to.rx.packets.packets);
        assert!(to.traffic.iter().all(|class| class.received.packets > 500));
    }
}

#[test]
fn an_idle_pair_says_no_more_than_before() {
    let mut net = pair(true, "auto", "packet", &good_link(), 1);
    net.run_to(600_000);
    let tx = net.end(0).peer().tx;
    assert!(tx.control_datagrams < 100, "{tx:?}");
}
