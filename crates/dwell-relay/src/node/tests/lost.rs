//! Blocks that were lost on the way, and come again.

use dwell_base::time::MICRO_NS;
use dwell_testkit::LinkSpec;

use dwell_wire::control::Numbers;

use super::harness::*;
use crate::node::link::send_again;

const MANY: Traffic = Traffic { flows: 20, six: true, payload_max: 1308, random: 0.5 };

fn run(lines: &str, link: &LinkSpec, seed: u64) -> Net {
    let configs = [0, 1].map(|side| config_with(side, true, "9mbit", lines));
    let mut net = Net::new(&configs, link, seed);
    net.run_to(8_000); // hellos get lost as well
    net.set_traffic(MANY);
    net.start_sources(8_000, 4_000, 250 * MICRO_NS);
    net.run_to(12_000);
    net.assert_nothing_altered_or_doubled();
    for side in [0, 1] {
        assert!(net.end(side).peer().tx.balances());
        assert_eq!(net.end(side).node.store.len(), 0);
    }
    net
}

/// Packets of 1000 that were sent and did not come; and those that came behind a later one of
/// their flow.
fn lost_and_late(net: &Net) -> (u64, u64) {
    let sent: u64 = [0, 1].iter().map(|&side| net.end(side).peer().tx.sent.packets).sum();
    let came: u64 = [0, 1].iter().map(|&side| net.end(side).peer().rx.packets.packets).sum();
    ((sent - came) * 1000 / sent, net.late_in_flow() as u64 * 1000 / sent)
}

#[test]
fn what_was_lost_comes_again_and_in_order() {
    for (loss, at_most) in [(0.001, 1), (0.01, 3), (0.03, 8)] {
        for seed in 0..3 {
            let link = good_link().with_loss(loss);
            let with = run("scheme = \"edge\"", &link, seed);
            let without = run("scheme = \"edge\"\nretransmit = false", &link, seed);
            let (lost, late) = lost_and_late(&with);
            let (lost_without, _) = lost_and_late(&without);
            assert!(lost <= at_most && late <= 25, "{loss}, seed {seed}: {lost}, {late}");
            assert!(loss < 0.01 || lost_without > lost + 1, "{loss}, {seed}: {lost_without}");
            for side in [0, 1] {
                let (from, to) = (with.end(side).peer(), with.end(1 - side).peer());
                assert!(from.tx.resent_datagrams >= to.rx.recovered_datagrams);
                assert!(loss < 0.01 || to.rx.recovered_datagrams > 3, "{:?}", to.rx);
                let silent = without.end(side).peer();
                assert_eq!((silent.tx.resent_datagrams, silent.rx.recovered_datagrams), (0, 0));
            }
        }
    }
}

#[test]
fn nothing_is_sent_twice_over_a_link_that_only_reorders() {
    let link = good_link().with_reorder(0.02).with_duplicate(0.05);
    let net = run("scheme = \"edge\"", &link, 4);
    let rx = net.end(1).peer().rx;
    assert_eq!(lost_and_late(&net).0, 0);
    assert!(rx.replayed > 0);
}

#[test]
fn what_comes_later_than_its_second_copy_comes_once() {
    for lines in ["scheme = \"edge\"", "scheme = \"edge\"\norder_wait = \"0ms\""] {
        let mut link = good_link().with_reorder(0.05).with_loss(0.01);
        link.reorder_by_ns = Some(40_000 * MICRO_NS); // four round trips
        for seed in 0..4 {
            let net = run(lines, &link, seed);
            let rx = net.end(1).peer().rx;
            assert!(rx.recovered_datagrams > 20 && rx.replayed > 5, "{rx:?}");
        }
    }
}

#[test]
fn a_link_that_takes_no_more_is_not_given_second_copies() {
    let mut net = run("scheme = \"edge\"", &good_link(), 7);
    net.net.with_node(net.ends[0], |end, now, _| {
        let End { node, env, .. } = end;
        let peer = &mut node.peers[0];
        peer.kept.clear();
        let mut missing = Numbers::default();
        for number in 1_000..1_003 {
            peer.kept.keep(now, number as u32, &[7; 100], None);
            assert!(missing.add(number));
        }
        peer.pacer.blocked(now);
        send_again(peer, 0, env, now, &missing);
        assert_eq!(env.sent.len(), 0);
        // The link takes one more, and then the others are asked for again.
        peer.pacer.writable();
        env.link_open = false;
        send_again(peer, 0, env, now, &missing);
        assert_eq!(env.sent.len(), 1);
        peer.pacer.writable();
        env.link_open = true;
        send_again(peer, 0, env, now, &missing);
        assert_eq!(env.sent.len(), 4);
    });
}

#[test]
fn a_long_way_makes_nobody_wait() {
    let link = good_link().with_delay_ns(200 * 1000 * MICRO_NS).with_loss(0.02);
    let net = run("scheme = \"edge\"", &link, 5);
    let (lost, late) = lost_and_late(&net);
    assert!(lost <= 3 && late > 10, "{lost}, {late}");
    assert!(net.end(1).peer().rx.recovered_datagrams > 5);
}

#[test]
fn a_class_may_be_sent_once_only() {
    for scheme in ["edge", "flow", "chutq-dcf"] {
        // With half of the ports, what is pressed together mostly has one of them.
        for ports in ["1000-1019", "1000-1009"] {
            let lines = format!(
                "scheme = \"{scheme}\"\n[[class]]\nname = \"live\"\nmax_wait = \"40ms\"\n\
                 ports = [\"udp/{ports}\"]\nretransmit = false\n"
            );
            let net = run(&lines, &good_link().with_loss(0.02), 6);
            let (from, to) = (net.end(0).peer(), net.end(1).peer());
            if ports.ends_with("19") {
                assert_eq!((from.tx.resent_datagrams, to.rx.recovered_datagrams), (0, 0));
            }
            assert!(to.rx.blocks > 10, "{scheme}: {:?}", to.rx);
            assert!(to.rx.unrecovered_datagrams > 3, "{scheme}: {:?}", to.rx);
        }
    }
}
