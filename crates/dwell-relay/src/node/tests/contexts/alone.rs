//! Batches that stand alone, and when they do.

use super::*;

const ALONE: &str = "scheme = \"host-pair\"\ncodec = \"zstd:3\"\nhistory = \"host-pair\"\n\
                     history_mode = \"acknowledged\"";

#[test]
fn nothing_waits_for_what_was_lost_if_batches_stand_alone() {
    for (loss, at_most) in [(0.0, 0), (0.01, 1), (0.03, 3), (0.1, 40)] {
        for seed in extent::seeds(1, 3) {
            let net = run([ALONE; 2], &good_link().with_loss(loss), seed);
            let lost = lost_of_thousand(&net);
            assert!(lost <= at_most, "{loss}, seed {seed}: {lost}");
            for peer in peers(&net) {
                let (tx, rx) = (&peer.tx.contexts, &peer.rx.contexts);
                assert!(rx.alone_batches > 100 && rx.alone_batches == rx.batches, "{rx:?}");
                assert_eq!((rx.gaps, rx.waited.count, rx.held_bytes), (0, 0, 0), "{rx:?}");
                assert!(tx.generations["advanced"] > 2, "{loss}, seed {seed}: {tx:?}");
                // What is missing comes, so that no hole is given up.
                assert_eq!(rx.lost_generations, 0, "{loss}, seed {seed}: {rx:?}");
            }
        }
    }
}

#[test]
fn batches_that_stand_alone_are_smaller_than_those_without_history() {
    let net = run([ALONE; 2], &good_link(), 1);
    let without = run([STATELESS; 2], &good_link(), 1);
    for side in [0, 1] {
        let (with, without) = (net.end(side).peer().tx, without.end(side).peer().tx);
        assert!(with.link_bytes < without.link_bytes, "{} {}", with.link_bytes, without.link_bytes);
    }
}

#[test]
fn batches_that_stand_alone_may_come_twice_and_in_any_order() {
    for seed in 0..4 {
        let link = good_link().with_reorder(0.05).with_duplicate(0.05).with_loss(0.02);
        let net = run([ALONE; 2], &link, seed);
        assert!(lost_of_thousand(&net) <= 2, "seed {seed}");
        let rx = net.end(1).peer().rx.contexts;
        assert_eq!((rx.gaps, rx.lost_generations), (0, 0), "seed {seed}: {rx:?}");
    }
}

#[test]
fn batches_stand_alone_again_with_an_end_that_was_restarted() {
    for side in [0, 1] {
        let mut net = pair_of([ALONE; 2], &good_link().with_loss(0.01), 10);
        net.run_to(2_000);
        net.start_sources(2_000, 24_000, 250 * MICRO_NS);
        net.run_to(3_000);
        let config = config_of(side, true, "9mbit", ALONE);
        net.net.with_node(net.ends[side], |end, now, _| {
            let mut other = End::new(side, &config, 1_000);
            other.env.now.set(now);
            std::mem::swap(&mut end.node, &mut other.node);
        });
        net.run_to(5_000);
        let before = peers(&net).map(|peer| peer.rx.contexts.alone_batches);
        net.run_to(9_000);
        assert_nothing_altered(&net);
        for (peer, before) in peers(&net).iter().zip(before) {
            let rx = &peer.rx.contexts;
            assert!(rx.alone_batches > before + 300 && !is_damaged(peer), "{side}: {rx:?}");
        }
    }
}

#[test]
fn an_end_that_takes_no_batches_that_stand_alone_is_sent_running_ones() {
    let mut net = pair_of([ALONE; 2], &good_link(), 4);
    net.net.with_node(net.ends[1], |end, _, _| end.node.peers[0].offer_running_only());
    net.run_to(2_000);
    net.start_sources(2_000, 4_000, 250 * MICRO_NS);
    net.run_to(6_000);
    assert_sound(&net);
    let [a, b] = peers(&net).map(|peer| peer.tx.contexts);
    assert!(a.batches > 100 && a.alone_batches == 0, "{a:?}");
    assert!(b.batches > 100 && b.alone_batches == b.batches, "{b:?}");
}

#[test]
fn the_mode_follows_what_the_path_loses() {
    let mut net = pair_of([AUTO; 2], &good_link(), 6);
    net.run_to(2_000);
    net.start_sources(2_000, 160_000, 250 * MICRO_NS);
    let mode = |net: &Net| net.end(0).peer().tx.contexts.mode;
    net.run_to(8_000);
    assert_eq!(mode(&net), "running");
    let lossy = good_link().with_loss(0.1);
    net.links.iter().for_each(|&link| net.net.set_link(link, lossy.clone()));
    net.run_to(20_000);
    assert_eq!(mode(&net), "acknowledged");
    let alone = net.end(0).peer().tx.contexts.alone_batches;
    assert!(alone > 300, "{alone}");
    net.links.iter().for_each(|&link| net.net.set_link(link, good_link()));
    net.run_to(40_000);
    assert_eq!(mode(&net), "running");
    assert!(!is_damaged(&net.end(1).peer()));
}

const AUTO: &str = "scheme = \"host-pair\"\ncodec = \"zstd:3\"\nhistory = \"host-pair\"\n\
                    history_mode = \"auto\"";

/// Loss, reordering and duplication, and one way of the path in milliseconds.
#[test]
fn the_mode_changes_where_it_must_and_nothing_is_lost_by_it() {
    let paths = vec![(0.1, 0.0, 50), (0.0, 0.05, 5), (0.01, 0.0, 50), (0.03, 0.05, 5)];
    for (loss, reorder, delay_ms) in extent::cases(2, paths) {
        let link = good_link().with_delay_ns(delay_ms * MILLI_NS).with_loss(loss);
        let mut net = pair_of([AUTO; 2], &link.with_reorder(reorder).with_duplicate(reorder), 3);
        net.run_to(4_000);
        net.start_sources(4_000, 60_000, 250 * MICRO_NS);
        net.run_to(26_000);
        assert_sound(&net);
        let what = format!("{loss} {reorder} {delay_ms}");
        assert_eq!(lost_of_thousand(&net), 0, "{what}");
        for side in [0, 1] {
            let (tx, rx) = (net.end(side).peer().tx.contexts, net.end(side).peer().rx.contexts);
            let is_alone = loss >= 0.1;
            assert_eq!(tx.alone_batches > 30_000, is_alone, "{what}: {tx:?}");
            assert!(tx.batches > 50_000 && tx.generations["switched"] <= 2, "{what}: {tx:?}");
            // What does not come in a second: seven times in a row it was lost, or the request for it.
            assert!(rx.lost_generations == 0 || loss > 0.03, "{what}: {rx:?}");
            let mut delays_ns = net.each_delay_ns(side, 0..=u16::MAX);
            delays_ns.sort_unstable();
            let [median_ns, p90_ns] = [50, 90].map(|part| delays_ns[delays_ns.len() * part / 100]);
            if loss > 0.0 && !is_alone {
                // What waits does so for three quarters of a round trip on average, now; nine of ten packets are
                // there after three and a half times the way.
                let (mean_ns, way_ns) = (rx.waited.mean_ns, delay_ms * MILLI_NS);
                assert!(mean_ns < 2 * way_ns && p90_ns < 5 * way_ns, "{what}: {mean_ns}, {p90_ns}");
                continue;
            }
            // With running history it is 340 ms at 10 %.
            assert!(median_ns < (delay_ms + 10) * MILLI_NS, "{what}: {median_ns}");
        }
    }
}

#[test]
fn an_end_may_be_restarted_and_a_peer_be_older_whatever_the_path_loses() {
    for is_older in [false, true] {
        let link = good_link().with_delay_ns(30 * MILLI_NS).with_loss(0.1);
        let mut net = pair_of([AUTO; 2], &link, 10);
        if is_older {
            net.net.with_node(net.ends[1], |end, _, _| end.node.peers[0].offer_running_only());
        }
        net.run_to(2_000);
        net.start_sources(2_000, 48_000, 250 * MICRO_NS);
        net.run_to(8_000);
        let side = usize::from(!is_older);
        let config = config_of(side, true, "9mbit", AUTO);
        net.net.with_node(net.ends[side], |end, now, _| {
            let mut other = End::new(side, &config, 1_000);
            other.env.now.set(now);
            std::mem::swap(&mut end.node, &mut other.node);
        });
        net.run_to(10_000);
        let before = peers(&net).map(|peer| peer.rx.contexts.batches);
        net.run_to(18_000);
        assert_nothing_altered(&net);
        for (peer, before) in peers(&net).iter().zip(before) {
            let rx = &peer.rx.contexts;
            assert!(rx.batches > before + 300 && !is_damaged(peer), "{is_older}: {rx:?}");
        }
        let alone = peers(&net).map(|peer| peer.tx.contexts.alone_batches);
        assert_eq!(alone.map(|it| it > 0), [!is_older, true], "{alone:?}");
    }
}
