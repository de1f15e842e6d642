//! Batches that refer to those before them, between nodes.

mod alone;
mod changes;
mod dictionary;
mod limits;
mod rekey;

use std::sync::Arc;

use dwell_base::Rate;
use dwell_base::time::{MICRO_NS, MILLI_NS};
use dwell_codec::ContextDictionary;
use dwell_report::status::{PeerStatus, Problem};
use dwell_testkit::{LinkSpec, extent};
use dwell_wire::ContextOffer;

use super::harness::*;
use super::row::{Load, Plan, Row};

/// Packets of IPv4 and of IPv6 are of two pairs of hosts, and so in two contexts.
const TEXT: Traffic = Traffic { flows: 20, six: true, payload_max: 1308, random: 0.1 };
const NO_COLUMNS: &str =
    "scheme = \"host-pair\"\ncodec = \"zstd:3\"\nhistory = \"host-pair\"\ncolumnar = false";
const HOST_PAIR: &str = "scheme = \"host-pair\"\ncodec = \"zstd:3\"\nhistory = \"host-pair\"";
const STATELESS: &str = "scheme = \"host-pair\"\ncodec = \"zstd:3\"";

pub(super) fn pair_of(lines: [&str; 2], link: &LinkSpec, seed: u64) -> Net {
    pair_of_rate(lines, NINE_MBIT, link, seed)
}

/// The same with relays that are configured for this rate.
pub(super) fn pair_of_rate(lines: [&str; 2], rate: &str, link: &LinkSpec, seed: u64) -> Net {
    let configs = [0, 1].map(|side| config_of(side, true, rate, lines[side]));
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

/// These ends offer as a version does that knows no predicted headers.
pub(super) fn offer_no_prediction(net: &mut Net, ends: impl IntoIterator<Item = usize>) {
    for side in ends {
        let id = net.ends[side];
        net.net.with_node(id, |end, _, _| {
            let less = |offer| ContextOffer { takes_predicted: false, ..offer };
            end.node.peers[0].offer_less(less);
        });
    }
}

#[test]
fn headers_are_predicted_for_peers_that_restore_them() {
    let small = Traffic { flows: 20, six: true, payload_max: 40, random: 0.0 };
    let mut left = Vec::new();
    for (config, older) in [(HOST_PAIR, 2), (HOST_PAIR, 1), (NO_COLUMNS, 2)] {
        for loss in [0.0, 0.03] {
            let mut net = pair_of([config; 2], &good_link().with_loss(loss), 5);
            net.set_traffic(small);
            offer_no_prediction(&mut net, [older].into_iter().filter(|&it| it < 2));
            net.run_to(2_000);
            net.start_sources(2_000, 8_000, 250 * MICRO_NS);
            net.run_to(6_000);
            assert_sound(&net);
            if loss == 0.0 {
                net.assert_flows_in_order();
            }
            assert!(lost_of_thousand(&net) <= 3);
            left.push(peers(&net).map(|peer| {
                let contexts = peer.tx.contexts;
                assert!(contexts.batches > 20, "{contexts:?}");
                // Bytes after compression of a batch's packets, and those before, of each packet.
                (contexts.bytes_out, contexts.bytes_in / peer.tx.sent.packets)
            }));
        }
    }
    let [both, _, to_older, _, without, _] = left[..] else { panic!("six runs") };
    for side in [0, 1] {
        assert!(10 * both[side].0 < 9 * without[side].0, "{left:?}");
        // Of packets their bytes count, and not what is left of their headers.
        assert!(both[side].1.abs_diff(without[side].1) <= 2, "{left:?}");
    }
    // To the older one headers go in columns, from it as well as to any other.
    assert!(to_older[0].0 != both[0].0 && to_older[1] == both[1], "{left:?}");
}

/// A generation that begins with plain headers begins without knowing any, though they are predicted later in it.
#[test]
fn headers_are_predicted_again_in_a_generation_that_began_without() {
    let small = Traffic { flows: 20, six: true, payload_max: 40, random: 0.0 };
    let mut net = pair_of([HOST_PAIR; 2], &good_link(), 5);
    net.set_traffic(small);
    net.run_to(2_000);
    net.start_sources(2_000, 16_000, 250 * MICRO_NS);
    for (at_ms, level, columnar) in
        [(3_000, 4, false), (3_500, 4, true), (4_000, 3, false), (4_500, 3, true)]
    {
        net.run_to(at_ms);
        let lines = format!(
            "scheme = \"host-pair\"\ncodec = \"zstd:{level}\"\nhistory = \"host-pair\"\ncolumnar = {columnar}"
        );
        net.reconfigure(0, &config_of(0, true, "9mbit", &lines));
    }
    net.run_to(9_000);
    assert_sound(&net);
    net.assert_flows_in_order();
    assert_eq!(lost_of_thousand(&net), 0);
    let [from, to] = peers(&net);
    assert!(from.tx.contexts.generations["reconfigured"] >= 2, "{:?}", from.tx.contexts);
    assert_eq!((to.rx.contexts.lost_generations, to.rx.not_allowed), (0, 0), "{:?}", to.rx);
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
    // Where a tenth is lost, now and then a datagram is so often in a row that its generation ends: in the mean of
    // the seeds 40 of a thousand at most.
    for (loss, at_most, mean_at_most) in [(0.001, 1, 1), (0.01, 1, 1), (0.03, 3, 3), (0.1, 40, 40)]
    {
        let mut sum = 0;
        for seed in 0..4 {
            let net = run([HOST_PAIR; 2], &good_link().with_loss(loss), seed);
            let lost = lost_of_thousand(&net);
            let rx = net.end(1).peer().rx;
            assert!(lost <= at_most, "{loss}, seed {seed}: {lost}, {:?}", rx.contexts);
            assert!(rx.contexts.gaps > 0 || loss < 0.01, "{loss}: {:?}", rx.contexts);
            // A round trip of 10 ms, and what the link has to do meanwhile.
            let p99_ms = rx.contexts.waited.p99_ns / 1_000_000;
            assert!(p99_ms < 250 || loss > 0.03, "{loss}: {p99_ms} ms, {:?}", rx.contexts);
            sum += lost;
        }
        assert!(sum <= 4 * mean_at_most, "{loss}: {sum}");
    }
}

/// At one per cent a request or its answer is lost for every fiftieth gap; as both are repeated within a round trip,
/// 99 of 100 records wait for one and 20 ms more at most. (One gap that lasts longer may be what more than a hundredth waited
/// for: in one run of six.)
#[test]
fn where_little_is_lost_gaps_last_for_one_round_trip() {
    const DELAY_NS: u64 = 20 * MILLI_NS;
    let link = good_link().with_delay_ns(DELAY_NS);
    for loss in [0.001, 0.01] {
        let mut longer = Vec::new();
        for seed in 0..6 {
            let net = run([HOST_PAIR; 2], &link.clone().with_loss(loss), seed);
            let rx = net.end(1).peer().rx.contexts;
            assert!(rx.gaps > 20 || loss < 0.01, "{rx:?}");
            let most_ns = 2 * DELAY_NS + 20 * MILLI_NS;
            if rx.waited.p99_ns > most_ns {
                longer.push((seed, rx.waited));
            }
        }
        assert!(longer.len() <= 1, "{loss}: {longer:?}");
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

/// Batches of several contexts are compressed at the same time, and whichever is done first goes first.
#[test]
fn several_workers_keep_the_order_of_each_flow() {
    for (loss, seed) in [(0.0, 1), (0.01, 2), (0.01, 3)] {
        let mut net = pair_of([AUTO; 2], &good_link().with_loss(loss), seed);
        for id in net.ends {
            net.net.with_node(id, |end, _, _| {
                end.node.set_threads(3);
                end.env.context_worker = Some(Vec::new());
            });
        }
        net.run_to(1_000);
        net.start_sources(1_000, 4_000, 250 * MICRO_NS);
        let mut at_once = 0;
        for step in 0..16_000 {
            net.net.run_until(at_ms(1_000) + 500 * MICRO_NS * step).expect("it comes to rest");
            for id in net.ends {
                net.net.with_node(id, |end, now, out| {
                    end.env.now.set(now);
                    at_once = at_once.max(end.node.peers[0].port.batches().count());
                    end.work_on_latest();
                    end.node.pump_all(&mut end.env);
                    end.after(out);
                });
            }
        }
        assert_sound(&net);
        if loss == 0.0 {
            net.assert_flows_in_order();
        }
        // IPv4 and IPv6.
        assert_eq!(at_once, 2, "batches at the same time");
        assert!(peers(&net)[0].tx.contexts.batches > 50);
        assert!(lost_of_thousand(&net) <= 1);
    }
}

/// The scheme that is made for contexts.
const AUTO: &str = "scheme = \"auto\"\ncodec = \"zstd:3\"";

#[test]
fn flow_queueing_works_with_contexts_over_links_that_lose() {
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

/// What comes over a link of 9 Mbit/s in a context for each flow is reported over one of 64 kbit/s.
#[test]
fn reports_on_contexts_leave_a_thin_link_to_packets() {
    let lines = "scheme = \"flow\"\ncodec = \"zstd:3\"\nhistory = \"flow\"";
    let rates = ["64kbit", NINE_MBIT];
    let configs = [0, 1].map(|side| config_of(side, true, rates[side], lines));
    let mut net = Net::new(&configs, &good_link(), 3);
    net.set_traffic(Traffic { flows: 12, ..TEXT });
    net.run_to(2_000);
    net.start_source(1, 2_000, 6_000, 2 * MILLI_NS);
    net.run_to(4_000);
    let before = net.end(0).peer().tx.control_bytes;
    net.run_to(14_000);
    let (reports, came) = (net.end(0).peer().tx.control_bytes - before, net.end(0).peer().rx);
    assert!(came.contexts.batches > 1_000 && came.contexts.open >= 8, "{:?}", came.contexts);
    // Of 80 kB, with those on the link.
    assert!(reports < 20_000, "{reports} bytes of reports in 10 s");
    assert_sound(&net);
}
