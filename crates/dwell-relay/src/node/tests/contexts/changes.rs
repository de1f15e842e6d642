//! Contexts through restarts, reloads and other sessions.

use super::*;

#[test]
fn contexts_outlive_new_keys_and_another_address() {
    let mut net = pair_of([HOST_PAIR; 2], &good_link(), 5);
    net.run_to(1_000);
    net.start_sources(1_000, 16_000, 250 * MICRO_NS);
    for turn in 0..6 {
        net.run_to(1_500 + 500 * turn);
        net.net.with_node(net.ends[0], |end, now, out| {
            if turn % 2 == 0 {
                end.node.peers[0].handshake.renew();
            } else {
                end.node.moved_away(&mut end.env, 0);
            }
            virtual_timers(end, now, out);
        });
    }
    net.run_to(8_000);
    assert_sound(&net);
    assert_eq!(lost_of_thousand(&net), 0);
    for peer in peers(&net) {
        let begun: u64 = peer.tx.contexts.generations.values().sum();
        assert!(begun <= 2 && peer.tx.contexts.restarts == 0, "{:?}", peer.tx.contexts);
        assert!(peer.rx.contexts.batches > 300, "{:?}", peer.rx.contexts);
    }
}

#[test]
fn contexts_begin_again_with_an_end_that_was_restarted() {
    for side in [0, 1] {
        for seed in 0..3 {
            let mut net = pair_of([HOST_PAIR; 2], &good_link().with_loss(0.01), 10 + seed);
            net.run_to(2_000);
            net.start_sources(2_000, 24_000, 250 * MICRO_NS);
            net.run_to(3_000 + 7 * seed);
            restart(&mut net, side, 1_000 + seed);
            net.run_to(5_000);
            let before = peers(&net).map(|peer| peer.rx.contexts.batches);
            net.run_to(9_000);
            assert_nothing_altered(&net);
            for (peer, before) in peers(&net).iter().zip(before) {
                let rx = &peer.rx.contexts;
                assert!(rx.batches > before + 300, "{side}, {seed}: {rx:?}");
                assert!(!is_damaged(peer), "{side}, {seed}: {rx:?}");
            }
            let other = &peers(&net)[1 - side];
            assert!(other.tx.contexts.restarts > 0, "{:?}", other.tx.contexts);
        }
    }
}

/// Either end is killed at moments that a seed draws, under load: at both ends the first batches of the new
/// session decode, without waiting for a report.
#[test]
fn after_a_restart_batches_decode_within_a_round_trip_of_the_session() {
    for seed in 0..20 {
        let mut rng = dwell_base::Rng::from_seed(100 + seed);
        let side = (seed % 2) as usize;
        let mut net = pair_of([HOST_PAIR; 2], &good_link(), 20 + seed);
        net.run_to(1_000);
        net.start_sources(1_000, 24_000, 250 * MICRO_NS);
        let moment = 1_200 + rng.below(1_000);
        net.run_to(moment);
        restart(&mut net, side, 2_000 + seed);
        let restarts = peers(&net)[1 - side].tx.contexts.restarts;
        let before = peers(&net).map(|peer| peer.rx.contexts);
        let (mut begun, mut decoded) = ([None; 2], [None; 2]);
        for ms in moment..moment + 1_000 {
            net.run_to(ms);
            let now = peers(&net);
            let is_begun = [net.end(side).is_up(), now[1 - side].tx.contexts.restarts > restarts];
            for (at, end) in [side, 1 - side].into_iter().enumerate() {
                if is_begun[at] && begun[end].is_none() {
                    begun[end] = Some((ms, now[end].rx.contexts.batches));
                }
                let base = begun[end].map_or(u64::MAX, |(_, batches)| batches);
                if now[end].rx.contexts.batches > base {
                    decoded[end].get_or_insert(ms);
                }
            }
        }
        for end in [0, 1] {
            let (Some((begun, _)), Some(decoded)) = (begun[end], decoded[end]) else {
                panic!("{seed}, {end}: {begun:?}, {decoded:?}")
            };
            // A round trip takes 10 ms, and a batch that waits behind a frame a little more.
            assert!(decoded <= begun + 10 + 5, "{seed}, {end}: {begun}, then {decoded} ms");
            let (rx, before) = (&peers(&net)[end].rx.contexts, &before[end]);
            let lost = rx.lost_generations - before.lost_generations;
            assert_eq!((lost, rx.dropped["no_base"]), (0, 0), "{seed}, {end}: {rx:?}");
            assert!(!is_damaged(&peers(&net)[end]));
        }
        assert_nothing_altered(&net);
    }
}

/// A node is killed, and comes back at once without anything that it knew.
fn restart(net: &mut Net, side: usize, seed: u64) {
    let config = config_of(side, true, "9mbit", HOST_PAIR);
    net.restart(side, &config, seed);
}

#[test]
fn another_level_begins_another_generation_and_loses_nothing() {
    let mut net = pair_of([HOST_PAIR; 2], &good_link(), 9);
    net.run_to(1_000);
    net.start_sources(1_000, 12_000, 250 * MICRO_NS);
    for (turn, level) in [1, 9, 1].into_iter().enumerate() {
        net.run_to(1_700 + 700 * turn as u64);
        let lines = HOST_PAIR.replace("zstd:3", &format!("zstd:{level}"));
        let config = config_of(0, true, "9mbit", &lines);
        net.reconfigure(0, &config);
    }
    net.run_to(7_000);
    assert_sound(&net);
    net.assert_flows_in_order();
    assert_eq!(lost_of_thousand(&net), 0);
    let tx = net.end(0).peer().tx.contexts;
    assert_eq!((tx.generations["reconfigured"], tx.cold_starts), (2 * 3, 2), "{tx:?}");
}

#[test]
fn what_waits_is_dropped_and_the_context_goes_on_with_another_generation() {
    let mut net = pair_of([HOST_PAIR; 2], &good_link(), 11);
    net.run_to(1_000);
    net.start_sources(1_000, 8_000, 250 * MICRO_NS);
    net.run_to(2_000);
    net.net.with_node(net.ends[0], |end, now, _| {
        let crate::node::Node { peers, store, flow_watch, .. } = &mut end.node;
        crate::node::outbound::clear((&mut peers[0], 0), store, flow_watch, now);
    });
    net.run_to(6_000);
    net.assert_nothing_altered_or_doubled();
    let [a, b] = peers(&net);
    assert_eq!(a.tx.contexts.generations["dropped"], 2, "{:?}", a.tx.contexts);
    assert_eq!((b.rx.contexts.lost_generations, b.rx.contexts.gaps), (0, 0), "{:?}", b.rx.contexts);
    assert_eq!(b.rx.contexts.generations, 2 * 2);
}

/// A reload to a scheme without contexts while batches wait.
#[test]
fn contexts_can_be_switched_off_while_they_are_used() {
    let mut net = pair_of([HOST_PAIR; 2], &good_link(), 12);
    net.run_to(1_000);
    net.start_sources(1_000, 8_000, 250 * MICRO_NS);
    for (at, lines) in [(1_800, STATELESS), (2_400, HOST_PAIR), (3_000, "scheme = \"packet\"")] {
        net.run_to(at);
        let config = config_of(0, true, "9mbit", lines);
        net.reconfigure(0, &config);
    }
    net.run_to(8_000);
    assert_sound(&net);
    assert_eq!(lost_of_thousand(&net), 0);
}

pub(super) fn virtual_timers(
    end: &mut End,
    now: dwell_base::Instant,
    out: &mut dwell_testkit::virtual_net::Outbox,
) {
    end.env.now.set(now);
    end.node.timers(&mut end.env);
    end.after(out);
}
