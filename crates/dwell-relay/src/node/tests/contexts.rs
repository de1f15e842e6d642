//! Batches that refer to those before them, between nodes.

use std::sync::Arc;

use dwell_base::Rate;
use dwell_base::time::{MICRO_NS, MILLI_NS};
use dwell_codec::ContextDictionary;
use dwell_report::status::{PeerStatus, Problem};
use dwell_testkit::LinkSpec;

use super::harness::*;
use super::row::{Load, Plan, Row};

/// Packets of IPv4 and of IPv6 are of two pairs of hosts, and so in two contexts.
const TEXT: Traffic = Traffic { flows: 20, six: true, payload_max: 1308, random: 0.1 };
const HOST_PAIR: &str = "scheme = \"host-pair\"\ncodec = \"zstd:3\"\nhistory = \"host-pair\"";
const STATELESS: &str = "scheme = \"host-pair\"\ncodec = \"zstd:3\"";

pub(super) fn pair_of(lines: [&str; 2], link: &LinkSpec, seed: u64) -> Net {
    let configs = [0, 1].map(|side| config_of(side, true, "9mbit", lines[side]));
    let mut net = Net::new(&configs, link, seed);
    net.set_traffic(TEXT);
    net
}

pub(super) fn run(lines: [&str; 2], link: &LinkSpec, seed: u64) -> Net {
    let mut net = pair_of(lines, link, seed);
    net.run_to(8_000); // hellos get lost as well
    net.start_sources(8_000, 8_000, 250 * MICRO_NS);
    net.run_to(14_000);
    assert_sound(&net);
    net
}

/// What came is what was sent, and all is accounted for.
pub(super) fn assert_sound(net: &Net) {
    net.assert_nothing_altered_or_doubled();
    for side in [0, 1] {
        assert!(net.end(side).peer().tx.balances());
        assert_eq!(net.end(side).node.store.len(), 0);
        assert!(!is_damaged(&net.end(side).peer()));
    }
}

pub(super) fn is_damaged(peer: &PeerStatus) -> bool {
    peer.rx.contexts.dropped.get("damaged").is_some_and(|&count| count > 0)
}

pub(super) fn peers(net: &Net) -> [PeerStatus; 2] {
    [0, 1].map(|side| net.end(side).peer())
}

#[test]
fn batches_refer_to_those_before_and_all_come_in_order() {
    let net = run([HOST_PAIR; 2], &good_link(), 1);
    let without = run([STATELESS; 2], &good_link(), 1);
    net.assert_flows_in_order();
    for side in [0, 1] {
        let (tx, rx) = (net.end(side).peer().tx, net.end(1 - side).peer().rx);
        assert_eq!(tx.sent.packets, rx.packets.packets);
        let (sent, came) = (&tx.contexts, &rx.contexts);
        assert!(sent.batches > 100 && sent.batches == came.batches, "{sent:?}, {came:?}");
        assert_eq!((sent.bytes_in, sent.bytes_out), (came.bytes_out, came.bytes_in));
        assert_eq!((came.gaps, came.lost_generations), (0, 0));
        let stateless = without.end(side).peer().tx;
        assert_eq!(stateless.contexts.batches, 0);
        assert!(tx.link_bytes < stateless.link_bytes, "{} {}", tx.link_bytes, stateless.link_bytes);
    }
}

/// The part of the packets that did not come, in thousandths, of what was sent.
pub(super) fn lost_of_thousand(net: &Net) -> u64 {
    let [a, b] = peers(net);
    let sent = a.tx.sent.packets + b.tx.sent.packets;
    let came = a.rx.packets.packets + b.rx.packets.packets;
    (sent - came) * 1000 / sent
}

#[test]
fn what_was_lost_comes_again_and_only_what_needs_it_waits() {
    for (loss, at_most) in [(0.001, 1), (0.01, 1), (0.03, 3), (0.1, 40)] {
        for seed in 0..4 {
            let net = run([HOST_PAIR; 2], &good_link().with_loss(loss), seed);
            let lost = lost_of_thousand(&net);
            let rx = net.end(1).peer().rx;
            assert!(lost <= at_most, "{loss}, seed {seed}: {lost}, {:?}", rx.contexts);
            assert!(rx.contexts.gaps > 0 || loss < 0.01, "{loss}: {:?}", rx.contexts);
            // A round trip of 10 ms, and what the link has to do meanwhile.
            let p99_ms = rx.contexts.waited.p99_ns / 1_000_000;
            assert!(p99_ms < 250 || loss > 0.03, "{loss}: {p99_ms} ms, {:?}", rx.contexts);
        }
    }
}

#[test]
fn the_last_datagram_of_many_is_missed_though_nothing_follows_it() {
    let mut net = pair_of([HOST_PAIR; 2], &good_link().with_loss(0.03), 5);
    net.run_to(2_000);
    // One packet now and then: each is the last one for a while.
    net.start_sources(2_000, 1_000, 150 * MILLI_NS);
    net.run_to(160_000);
    assert_sound(&net);
    assert!(lost_of_thousand(&net) <= 2, "{}", lost_of_thousand(&net));
    for side in [0, 1] {
        let delays_ns = net.each_delay_ns(side, 0..=u16::MAX);
        // 5 ms there, a round trip more for what was lost, and another if that is lost as well; but
        // nothing waits for the next packet.
        let longest_ns = delays_ns.iter().copied().max().unwrap_or_default();
        assert_eq!(delays_ns.len(), 1_000);
        assert!(longest_ns < 100 * MILLI_NS, "{longest_ns}");
    }
}

#[test]
fn what_is_not_the_last_datagram_is_not_followed_by_a_report() {
    // A frame takes 23 ms: longer than a report would wait.
    let configs = [0, 1].map(|side| config_of(side, true, "512kbit", HOST_PAIR));
    let link = good_link().with_rate(Rate::clamped_bps(512_000)).with_loss(0.03);
    let mut net = Net::new(&configs, &link, 6);
    net.set_traffic(Traffic { random: 1.0, ..TEXT });
    net.run_to(2_000);
    net.start_sources(2_000, 2_000, 20 * MILLI_NS);
    net.run_to(40_000);
    for peer in peers(&net) {
        let (control, all) = (peer.tx.control_datagrams, peer.tx.datagrams);
        assert!(all > 1_000 && control < all / 3, "{control} of {all}");
    }
}

#[test]
fn a_link_that_reorders_and_doubles_costs_little() {
    for seed in 0..4 {
        let link = good_link().with_reorder(0.02).with_duplicate(0.05);
        let net = run([HOST_PAIR; 2], &link, seed);
        assert_eq!(lost_of_thousand(&net), 0);
        let rx = net.end(1).peer().rx;
        assert_eq!(rx.contexts.lost_generations, 0, "{:?}", rx.contexts);
    }
}

#[test]
fn an_end_that_can_not_or_must_not_is_sent_what_it_understands() {
    let net = run([HOST_PAIR, STATELESS], &good_link(), 3);
    let [a, b] = peers(&net);
    assert!(a.tx.contexts.batches > 100 && b.tx.contexts.batches == 0);
    assert!(b.tx.compressed.packets > 100, "{:?}", b.tx);
    // One that knows nothing of contexts.
    let mut net = pair_of([HOST_PAIR; 2], &good_link(), 4);
    net.net.with_node(net.ends[1], |end, _, _| end.node.peers[0].offer_no_contexts());
    net.run_to(2_000);
    net.start_sources(2_000, 4_000, 250 * MICRO_NS);
    net.run_to(6_000);
    assert_sound(&net);
    let [a, b] = peers(&net);
    assert!(a.tx.contexts.batches == 0 && a.tx.compressed.packets > 100, "{:?}", a.tx);
    assert!(b.tx.contexts.batches > 100);
}

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
    net.net.with_node(net.ends[side], |end, now, _| {
        let mut other = End::new(side, &config, seed);
        other.env.now.set(now);
        std::mem::swap(&mut end.node, &mut other.node);
    });
}

#[test]
fn a_worker_that_is_slow_keeps_order() {
    let mut net = pair_of([HOST_PAIR; 2], &good_link(), 8);
    for id in net.ends {
        net.net.with_node(id, |end, _, _| end.env.context_worker = Some(Vec::new()));
    }
    net.run_to(1_000);
    net.start_sources(1_000, 4_000, 250 * MICRO_NS);
    for step in 0..8_000 {
        net.run_to(1_000 + step);
        for id in net.ends {
            net.net.with_node(id, |end, now, out| {
                end.env.now.set(now);
                end.work_in_contexts();
                end.node.pump_all(&mut end.env);
                end.after(out);
            });
        }
    }
    assert_sound(&net);
    net.assert_flows_in_order();
    assert_eq!(lost_of_thousand(&net), 0);
    assert!(peers(&net)[0].tx.contexts.batches > 50);
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
        net.net.with_node(net.ends[0], |end, _, _| {
            let endpoint = Some(ADDRESSES[1].parse().expect("an address"));
            let mut random = random_sources(7, 7);
            end.node.reconfigure(&config, &[endpoint], &mut random).expect("a good configuration");
        });
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
        let crate::node::Node { peers, store, .. } = &mut end.node;
        crate::node::outbound::clear(&mut peers[0], store, now);
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
        net.net.with_node(net.ends[0], |end, _, _| {
            let endpoint = Some(ADDRESSES[1].parse().expect("an address"));
            let mut random = random_sources(7, 7);
            end.node.reconfigure(&config, &[endpoint], &mut random).expect("a good configuration");
        });
    }
    net.run_to(8_000);
    assert_sound(&net);
    assert_eq!(lost_of_thousand(&net), 0);
}

/// The scheme that is made for contexts.
#[test]
fn flow_queueing_works_with_contexts_over_links_that_lose() {
    const AUTO: &str = "scheme = \"auto\"\ncodec = \"zstd:3\"";
    for (loss, at_most) in [(0.0, 0), (0.01, 1)] {
        for seed in 0..3 {
            let net = run([AUTO; 2], &good_link().with_loss(loss), seed);
            for peer in peers(&net) {
                assert!(peer.rx.contexts.batches > 20, "{:?}", peer.rx.contexts);
            }
            let lost = lost_of_thousand(&net);
            assert!(lost <= at_most, "{loss}, {seed}: {lost}");
        }
    }
}

#[test]
fn a_core_with_contexts_does_the_same_again() {
    for lines in [HOST_PAIR, "scheme = \"auto\"\ncodec = \"zstd:3\""] {
        let mut net = pair_of([lines; 2], &good_link().with_loss(0.01), 21);
        for id in net.ends {
            net.net.with_node(id, |end, _, _| end.node.keep_journal(0));
        }
        net.run_to(200);
        net.start_sources(200, 3_000, 300 * MICRO_NS);
        net.run_to(2_000);
        for id in net.ends {
            net.net.with_node(id, |end, _, _| {
                let entries = end.node.take_journal(0);
                let lines: Vec<String> = entries.iter().map(dwell_drive::Entry::to_line).collect();
                let read = lines.iter().enumerate();
                let read = read.map(|(n, line)| dwell_drive::Entry::from_line(line, n + 1));
                let (port, actions) = dwell_drive::repeat(read).expect("the same");
                assert!(actions > 500, "{actions}");
                assert_eq!(port.accounts(), end.node.peers[0].port.accounts());
                assert!(end.node.peers[0].contexts.is_active(end.env.now.get(), None));
            });
        }
    }
}

/// What came through contexts enters other ones on the next link; what came self-contained goes on
/// unopened.
#[test]
fn contexts_end_at_each_hop() {
    let link =
        || LinkSpec::new().with_rate(dwell_base::Rate::from_mbps(10)).with_delay_ns(2_000_000);
    for seed in 0..2 {
        for ends in [HOST_PAIR, STATELESS] {
            let lines = [ends, HOST_PAIR, ends].map(|it| format!("{it}\nrate = \"9mbit\""));
            let plans: Vec<_> =
                lines.iter().enumerate().map(|(at, lines)| Plan::in_row(at, 3, lines)).collect();
            let mut row = Row::new(&plans, &link().with_loss(0.002), seed);
            row.run_to(8_000);
            for (at, to) in [(0, [2, 2]), (2, [0, 1])] {
                let spacing_ns = 500 * MICRO_NS;
                row.load(
                    at,
                    Load { to, packets: 2_000, spacing_ns, traffic: TEXT, ttl: 64, full: false },
                );
            }
            row.run_to(13_000);
            let (came, _) = row.check();
            row.assert_accounts();
            assert!(came > 3_900, "{came} came");
            let middle = row.station(1);
            for peer in [0, 1].map(|peer| middle.peer(peer)) {
                let (rx, tx) = (&peer.rx, &peer.tx);
                assert_eq!(rx.contexts.batches > 20, ends == HOST_PAIR, "{:?}", rx.contexts);
                assert_eq!(rx.forwarded_compressed.packets > 20, ends != HOST_PAIR, "{rx:?}");
                assert!(tx.contexts.batches > 20 || ends != HOST_PAIR, "{:?}", tx.contexts);
            }
        }
    }
}

/// A dictionary of text as it is sent, or of something else.
fn dictionary_of(net: &Net, is_right: bool) -> Arc<ContextDictionary> {
    let packets = net.end(0).made.iter().take(40).flatten().copied().collect();
    let bytes = if is_right { packets } else { vec![7; 20_000] };
    Arc::new(ContextDictionary::new(bytes).expect("some bytes"))
}

/// Reloads the configuration of an end with this dictionary.
fn reload(net: &mut Net, side: usize, dictionary: Option<&Arc<ContextDictionary>>) {
    let mut config = config_of(side, true, "9mbit", HOST_PAIR);
    config.peers[0].dictionary = dictionary.cloned();
    net.net.with_node(net.ends[side], |end, now, _| {
        end.env.now.set(now);
        let endpoint = Some(ADDRESSES[1 - side].parse().expect("an address"));
        let mut random = random_sources(7, 7);
        end.node.reconfigure(&config, &[endpoint], &mut random).expect("a good configuration");
    });
}

fn of_peers(net: &Net) -> [Option<String>; 2] {
    peers(net).map(|peer| peer.dictionary.map(|it| it.of_peer))
}

fn mismatches(net: &Net) -> [bool; 2] {
    peers(net).map(|peer| peer.problems.iter().any(|it| it.is(Problem::DictionaryMismatch)))
}

/// Both have it, one has it, they have different ones, and it is removed: each time all that is sent
/// comes, and both ends say what is the matter.
#[test]
fn contexts_begin_from_a_dictionary_only_if_both_ends_have_the_same() {
    let same = Some("same".to_owned());
    let cases = [
        ([Some(true), Some(true)], [same.clone(), same], true),
        ([Some(true), None], [Some("none".to_owned()), None], false),
        ([None, Some(true)], [None, Some("none".to_owned())], false),
        ([Some(true), Some(false)], [Some("other".to_owned()), Some("other".to_owned())], false),
    ];
    let sample = run([HOST_PAIR; 2], &good_link(), 31);
    for (has, of_peer, is_used) in cases {
        let mut net = pair_of([HOST_PAIR; 2], &good_link(), 30);
        net.run_to(1_000);
        for side in [0, 1] {
            let dictionary = has[side].map(|is_right| dictionary_of(&sample, is_right));
            reload(&mut net, side, dictionary.as_ref());
        }
        net.run_to(4_000);
        assert_eq!(of_peers(&net), of_peer, "{has:?}");
        let is_wrong = of_peer.clone().map(|it| it.is_some_and(|it| it != "same"));
        assert_eq!(mismatches(&net), is_wrong, "{has:?}");
        net.start_sources(4_000, 4_000, 250 * MICRO_NS);
        net.run_to(10_000);
        assert_sound(&net);
        assert_eq!(lost_of_thousand(&net), 0);
        for peer in peers(&net) {
            let (tx, rx) = (&peer.tx.contexts, &peer.rx.contexts);
            let begun: u64 = tx.generations.values().sum();
            let wanted = if is_used { (begun, 0) } else { (0, begun) };
            assert_eq!((tx.dictionary_starts, tx.cold_starts), wanted, "{has:?}: {tx:?}");
            assert_eq!(rx.dictionary_starts, wanted.0, "{has:?}: {rx:?}");
            assert_eq!((rx.lost_generations, rx.dropped["no_base"]), (0, 0), "{has:?}: {rx:?}");
        }
        // It is removed at both ends: nobody complains any more, and contexts go on.
        reload(&mut net, 0, None);
        reload(&mut net, 1, None);
        net.run_to(14_000);
        assert_eq!((of_peers(&net), mismatches(&net)), ([None, None], [false; 2]), "{has:?}");
        net.start_sources(14_000, 2_000, 250 * MICRO_NS);
        net.run_to(18_000);
        assert_sound(&net);
        assert_eq!(lost_of_thousand(&net), 0);
    }
}

#[test]
fn an_end_that_was_restarted_begins_from_the_dictionary() {
    let sample = run([HOST_PAIR; 2], &good_link(), 31);
    let dictionary = dictionary_of(&sample, true);
    for side in [0, 1] {
        let mut net = pair_of([HOST_PAIR; 2], &good_link().with_loss(0.01), 32);
        net.run_to(1_000);
        reload(&mut net, 0, Some(&dictionary));
        reload(&mut net, 1, Some(&dictionary));
        net.run_to(4_000);
        net.start_sources(4_000, 24_000, 250 * MICRO_NS);
        net.run_to(5_000);
        let mut config = config_of(side, true, "9mbit", HOST_PAIR);
        config.peers[0].dictionary = Some(Arc::clone(&dictionary));
        net.net.with_node(net.ends[side], |end, now, _| {
            let mut other = End::new(side, &config, 1_000);
            other.env.now.set(now);
            std::mem::swap(&mut end.node, &mut other.node);
        });
        net.run_to(9_000);
        assert_nothing_altered(&net);
        for peer in peers(&net) {
            let tx = &peer.tx.contexts;
            assert!(tx.dictionary_starts >= 2 && tx.cold_starts == 0, "{side}: {tx:?}");
            assert!(!is_damaged(&peer), "{side}: {:?}", peer.rx.contexts);
        }
    }
}

fn virtual_timers(
    end: &mut End,
    now: dwell_base::Instant,
    out: &mut dwell_testkit::virtual_net::Outbox,
) {
    end.env.now.set(now);
    end.node.timers(&mut end.env);
    end.after(out);
}

/// After a restart numbers of packets are not what they were.
fn assert_nothing_altered(net: &Net) {
    for side in [0, 1] {
        let (from, to) = (net.end(1 - side), net.end(side));
        for packet in &to.env.delivered {
            let number = number_of(packet) as usize;
            assert_eq!(Some(packet), from.made.get(number), "{number} is damaged");
        }
    }
}

const ALONE: &str = "scheme = \"host-pair\"\ncodec = \"zstd:3\"\nhistory = \"host-pair\"\n\
                     history_mode = \"acknowledged\"";

#[test]
fn nothing_waits_for_what_was_lost_if_batches_stand_alone() {
    for (loss, at_most) in [(0.0, 0), (0.01, 1), (0.03, 3), (0.1, 40)] {
        for seed in 0..3 {
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
    for (loss, reorder, delay_ms) in
        [(0.0, 0.05, 5), (0.01, 0.0, 50), (0.03, 0.05, 5), (0.1, 0.0, 50)]
    {
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

#[test]
fn a_class_may_have_another_history_or_none() {
    let of_class = |ports: &str, history: &str| {
        let class =
            format!("[[class]]\nname = \"x\"\nports = [\"udp/{ports}\"]\nhistory = {history:?}");
        let lines = format!("{HOST_PAIR}\n{class}\n");
        peers(&run([&lines, &lines], &good_link(), 1))[0].tx.clone()
    };
    let none = of_class("1-65535", "off");
    assert!(none.contexts.batches == 0 && none.compressed.packets > 100, "{none:?}");
    let half = of_class("1000-1009", "off");
    assert!(half.contexts.batches > 100, "{half:?}");
    let [all, peer] = ["host-pair", "peer"].map(|history| of_class("1-65535", history).contexts);
    assert!(all.open > peer.open && peer.open == 1, "{all:?}, {peer:?}");
}

/// Batches that say almost nothing, many of them in a datagram, which wait for one that was lost: each
/// counts with the packets that are in it, and not with the most that its length would allow. So many
/// were taken off what the datagram may hold that the last ones lost packets.
#[test]
fn batches_that_wait_hold_as_many_packets_as_if_they_did_not() {
    let lines = "scheme = \"auto\"\ncodec = \"zstd:3\"\nhistory_mode = \"running\"";
    let configs = [0, 1].map(|side| config_of(side, true, "1mbit", lines));
    let mut net = Net::new(&configs, &good_link(), 3);
    net.run_to(1_000);
    net.net.set_link(net.links[0], good_link().with_loss(0.1));
    for turn in 0..400 {
        net.net.with_node(net.ends[0], |end, _, out| {
            for n in 0..160_u16 {
                let mut packet = inner_packet([10, 1, 0, 5], [10, 2, 0, n as u8 % 16], &[7; 600]);
                packet[20..22].copy_from_slice(&(n % 16).to_be_bytes());
                end.node.packet(&mut end.env, &mut packet);
            }
            end.node.pump_all(&mut end.env);
            end.after(out);
        });
        net.run_to(1_000 + 10 * turn);
    }
    net.run_to(20_000);
    let rx = net.end(1).peer().rx;
    assert!(rx.contexts.gaps > 5, "{:?}", rx.contexts);
    assert_eq!(rx.too_many_packets, 0);
}
