//! A bottleneck that no back-pressure tells of.

use dwell_base::Rate;
use dwell_base::time::MILLI_NS;
use dwell_report::status::PeerStatus;
use dwell_testkit::LinkSpec;

use super::harness::{Net, config_with, good_link, pair};

/// Twenty seconds of 15 Mbit/s from one end, over what is 10 Mbit/s somewhere; what the sender and
/// the receiver say then.
fn pressed_hard(rate: &str, link: &LinkSpec, seed: u64) -> (PeerStatus, PeerStatus, Net) {
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
        let (auto, _, net) = pressed_hard("auto", &link, seed);
        let found = auto.bottleneck_bps.expect("a bottleneck was found");
        assert!(found.abs_diff(8_000_000) < 800_000, "{found} of 8,000,000");
        assert!(auto.tx.pressed.packets > 1_000, "{:?}", auto.tx);
        assert!(auto.beyond_ns.is_some_and(|ns| ns < 50 * MILLI_NS), "{:?}", auto.beyond_ns);
        net.assert_nothing_altered_or_doubled();
        let (local, ..) = pressed_hard("local", &link, seed);
        assert_eq!(local.bottleneck_bps, None);
        assert_eq!(local.tx.pressed.packets, 0, "nothing waits where it could be pressed");
    }
}

#[test]
fn a_path_with_room_is_not_slowed_down() {
    let link = good_link().with_rate(Rate::from_mbps(100)).with_jitter_ns(4 * MILLI_NS);
    let (auto, ..) = pressed_hard("auto", &link, 1);
    assert_eq!((auto.bottleneck_bps, auto.tx.dropped_total().packets), (None, 0));
}

#[test]
fn the_peer_s_queue_and_losses_are_told() {
    let link = good_link().with_rate(Rate::from_mbps(8)).with_loss(0.02);
    let (from, to, net) = pressed_hard("auto", &link, 1);
    let told = to.rx.reported;
    assert!(told.is_none_or(|told| told.datagrams < 1_000), "only one end sends");
    let lost = from.tx.peer_lost_datagrams;
    let all = from.tx.peer_got_datagrams + lost;
    assert!(lost * 50 > all / 2 && lost * 50 < all * 10, "{lost} of {all}");
    assert!(from.tx.datagrams >= all);
    // What waits at the one end is told to the other with the next report of what came from there.
    drop(net);
}

#[test]
fn an_idle_pair_says_no_more_than_before() {
    let mut net = pair(true, "auto", "packet", &good_link(), 1);
    net.run_to(600_000);
    let tx = net.end(0).peer().tx;
    assert!(tx.control_datagrams < 100, "{tx:?}");
}
