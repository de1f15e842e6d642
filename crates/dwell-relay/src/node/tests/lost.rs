//! Blocks that were lost on the path, and are retransmitted.

use dwell_base::time::MICRO_NS;
use dwell_testkit::LinkSpec;

use dwell_wire::control::Numbers;
use dwell_wire::{Control, Datagram, Record, Records};

use super::harness::*;
use crate::node::link::retransmit;

const MANY: Traffic = Traffic { flows: 20, six: true, payload_max: 1308, random: 0.5 };

fn run(lines: &str, link: &LinkSpec, seed: u64) -> Net {
    let configs = [0, 1].map(|side| config_with(side, true, NINE_MBIT, lines));
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
    const SEEDS: u64 = 8;
    for (loss, at_most) in [(0.001, 1), (0.01, 3), (0.03, 8)] {
        // How many are late hangs on a handful of second copies that get lost too.
        let mut late_sum = 0;
        for seed in 0..SEEDS {
            let link = good_link().with_loss(loss);
            let with = run("scheme = \"edge\"", &link, seed);
            let without = run("scheme = \"edge\"\nretransmit = false", &link, seed);
            let (lost, late) = lost_and_late(&with);
            let (lost_without, _) = lost_and_late(&without);
            late_sum += late;
            assert!(lost <= at_most && late <= 60, "{loss}, seed {seed}: {lost}, {late}");
            assert!(loss < 0.01 || lost_without > lost + 1, "{loss}, {seed}: {lost_without}");
            for side in [0, 1] {
                let (from, to) = (with.end(side).peer(), with.end(1 - side).peer());
                assert!(from.tx.resent_datagrams >= to.rx.recovered_datagrams);
                assert!(loss < 0.01 || to.rx.recovered_datagrams > 3, "{:?}", to.rx);
                let silent = without.end(side).peer();
                assert_eq!((silent.tx.resent_datagrams, silent.rx.recovered_datagrams), (0, 0));
            }
        }
        assert!(late_sum <= 20 * SEEDS, "{loss}: {} late", late_sum / SEEDS);
    }
}

/// The retransmission budget suffices for links that lose much.
#[test]
fn what_was_lost_comes_again_though_much_is_lost() {
    const SEEDS: u64 = 8;
    for (loss, at_most, without_at_least) in [(0.05, 2, 40), (0.2, 45, 150)] {
        let mut lost = [0; 2];
        for seed in 0..SEEDS {
            let link = good_link().with_loss(loss);
            for (sum, more) in lost.iter_mut().zip(["", "\nretransmit = false"]) {
                let net = run(&format!("scheme = \"edge\"{more}"), &link, seed);
                *sum += lost_and_late(&net).0;
            }
        }
        let [with, without] = lost.map(|sum| sum / SEEDS);
        assert!(with <= at_most && without >= without_at_least, "{loss}: {with}, {without}");
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
fn second_copies_wait_for_a_link_that_takes_no_more_and_go_first() {
    let mut net = run("scheme = \"edge\"", &good_link(), 7);
    net.net.with_node(net.ends[0], |end, now, _| {
        let End { node, env, .. } = end;
        let peer = &mut node.peers[0];
        peer.retransmit_buffer.clear();
        let before = peer.extra.resent_datagrams;
        let mut missing = Numbers::default();
        for number in 1_000..1_003 {
            peer.retransmit_buffer.keep(now, number as u32, &[7; 100], None);
            assert!(missing.add(number));
        }
        peer.pacer.blocked(now);
        // Who is impatient and asks again gets no more of them.
        for _ in 0..3 {
            retransmit(peer, 0, env, now, &missing);
            assert_eq!((env.sent.len(), peer.to_retransmit.len()), (0, 3));
        }
        // The link takes one more, and then all.
        env.link_open = false;
        node.link_writable(0);
        node.pump(env, 0);
        assert_eq!((env.sent.len(), node.peers[0].to_retransmit.len()), (1, 2));
        env.link_open = true;
        node.link_writable(0);
        node.pump(env, 0);
        assert_eq!((env.sent.len(), node.peers[0].to_retransmit.len()), (3, 0));
        assert_eq!(node.peers[0].extra.resent_datagrams, before + 3);
        // What is not kept any more is reported, however far apart; and there is an end to what waits.
        node.peers[0].pacer.blocked(now);
        for far in 0..100 {
            let mut missing = Numbers::default();
            for number in 0..64 {
                assert!(missing.add(5_000 + far * 1_000 + number));
            }
            retransmit(&mut node.peers[0], 0, env, now, &missing);
        }
        assert_eq!(node.peers[0].to_retransmit.len(), 256);
        node.link_writable(0);
        node.pump(env, 0);
        assert_eq!(
            (env.sent.len(), node.peers[0].to_retransmit.len()),
            (3 + 4, 0),
            "four words of it"
        );
    });
}

/// For ten seconds one end has more to send than its link takes. The other asks 200 times a second for
/// the 64 latest datagrams, all of which it has, or does not. Returns the bytes on the link, those of
/// them that were sent again, and how many packets came.
fn asked_for_all(rate: &str, asks: bool) -> (u64, u64, u64) {
    let configs = [0, 1].map(|side| config_with(side, false, rate, "scheme = \"edge\""));
    let mut net = Net::new(&configs, &good_link(), 21);
    net.run_to(2_000);
    net.set_traffic(Traffic { random: 0.5, payload_max: 1_000, ..Traffic::default() });
    net.net.with_node(net.ends[0], |end, _, _| end.source(at_ms(2_000), 3_000, 4_000 * MICRO_NS));
    let on_link = |net: &Net| {
        let tx = net.end(0).peer().tx;
        let link = net.net.link_stats(net.links[0]);
        (
            link.bytes_in + 42 * link.packets_in,
            tx.resent_bytes,
            net.end(1).peer().rx.packets.packets,
        )
    };
    net.run_to(4_000);
    let before = on_link(&net);
    for step in 0..2_000 {
        let session = net.end(1).node.peers[0].handshake.current();
        let highest = session.expect("a session").window().highest();
        if asks {
            let numbers = Numbers { first: highest.saturating_sub(63).max(1), bits: u64::MAX };
            let missing = Control::Missing(numbers);
            let datagram =
                plain_datagram_of(&mut net, 1, |body| body.control(&missing).expect("room"));
            net.net.inject((net.ends[1], 0), &datagram);
        }
        net.run_to(4_000 + 5 * (step + 1));
    }
    net.assert_nothing_altered_or_doubled();
    let after = on_link(&net);
    (after.0 - before.0, after.1 - before.1, after.2 - before.2)
}

/// It had what it asked for at once, up to three times, whatever its link takes.
#[test]
fn who_asks_for_what_it_has_gets_no_more_than_its_rate() {
    for (rate, bytes) in [("300kbit", 375_000), ("1mbit", 1_250_000)] {
        let (alone, _, packets_alone) = asked_for_all(rate, false);
        let (with, again, packets) = asked_for_all(rate, true);
        // The last datagrams may leave a little before their time.
        let most = bytes + bytes / 50;
        assert!(alone <= most && with <= most, "{rate}: {alone}, {with} of {bytes}");
        assert!(again > bytes / 10 && 2 * again <= with, "{rate}: {again} of {with} again");
        // Answers to 200 requests take 110 kbit/s. Half of the rest is for new packets, in shorter
        // blocks.
        assert!(packets > packets_alone / 6, "{rate}: {packets}, alone {packets_alone}");
    }
}

/// The datagrams that came again, and those that did not, where a socket with a small buffer refuses all but a moment of each 2 ms.
fn lost_over_a_full_link(seed: u64) -> (u64, u64) {
    let lines = "scheme = \"edge\"";
    let configs = [0, 1].map(|side| config_with(side, true, "9mbit", lines));
    let mut net = Net::new(&configs, &good_link().with_loss(0.03), seed);
    net.run_to(8_000);
    net.set_traffic(MANY);
    net.start_sources(8_000, 4_000, 250 * MICRO_NS);
    let open = |net: &mut Net, is_open: bool| {
        net.net.with_node(net.ends[0], |end, _, out| {
            end.env.link_open = is_open;
            if is_open {
                end.node.link_writable(0);
                end.node.pump_all(&mut end.env);
                end.after(out);
                end.env.link_open = false;
            }
        });
    };
    open(&mut net, false);
    for step in 0..2_000 {
        net.run_to(8_000 + 2 * step);
        open(&mut net, true);
    }
    net.assert_nothing_altered_or_doubled();
    let rx = net.end(1).peer().rx;
    (rx.recovered_datagrams, rx.unrecovered_datagrams)
}

/// Some thirty are lost in each, so that one alone says little.
#[test]
fn what_was_lost_comes_again_though_the_link_is_nearly_always_full() {
    let counts = (15..23).map(lost_over_a_full_link);
    let (again, lost) = counts.fold((0, 0), |all, of| (all.0 + of.0, all.1 + of.1));
    assert!(again > 80 && lost < again / 4, "{again} came again, {lost} did not");
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
        // With half of the ports, what is compressed together mostly has one of them.
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

/// Of a batch that is sent once any lost piece loses all: so it is no longer than a block, as for a peer to whom
/// nothing is sent again.
#[test]
fn what_is_sent_once_only_is_in_small_batches() {
    for (retransmit, is_small) in [(false, true), (true, false)] {
        let lines = format!(
            "scheme = \"auto\"\nhistory = \"off\"\nqueue_time = \"1s\"\n[[class]]\nname = \"live\"\n\
             ports = [\"udp/1000-1019\"]\nretransmit = {retransmit}\n"
        );
        let net = run(&lines, &good_link(), 6);
        for side in [0, 1] {
            let longest = net.end(side).env.compressed_bytes_max;
            assert_eq!(longest <= 8 << 10, is_small, "{longest}");
            assert!(net.end(side).peer().rx.blocks > 10);
        }
    }
}

/// A block that leaves no room for the mark of a repeat was not kept, though it said so.
#[test]
fn every_datagram_with_a_block_can_be_sent_again() {
    let lines = "scheme = \"flow\"\ncolumnar = false";
    let configs = [0, 1].map(|side| config_with(side, false, "1mbit", lines));
    let mut net = Net::new(&configs, &good_link(), 7);
    net.run_to(1_000);
    let (mut nearly_full, mut cut, mut blocks) = (0, 0, 0);
    for more in 0..260 {
        net.net.with_node(net.ends[0], |end, _, out| {
            end.log = Some(Vec::new());
            // Each filler is a flow of its own; the link is busy with them while the block is made.
            for (flow, random, zeros) in
                [(1, 1300, 0), (2, 1300, 0), (3, 680, 150), (3, 500 + more, 150)]
            {
                let mut payload = vec![0; random + zeros];
                end.rng.fill(&mut payload[..random]);
                let mut packet = inner_packet([10, 1, 0, 5], [10, 2, 0, 9], &payload);
                packet[20] = flow;
                end.node.packet(&mut end.env, &mut packet);
            }
            end.node.pump_all(&mut end.env);
            end.after(out);
        });
        net.run_to(1_000 + 100 * (more as u64 + 1));
        net.net.with_node(net.ends[0], |end, now, _| {
            let peer = &mut end.node.peers[0];
            let room = peer.units_bytes_max();
            for (_, datagram) in end.log.take().unwrap_or_default() {
                let Ok(Datagram::Data { header, body }) = Datagram::parse(&datagram) else {
                    continue;
                };
                let mut records = Records::new(body).flatten();
                cut += u64::from(records.clone().any(|it| matches!(it, Record::Fragment(_))));
                if !records.any(|record| record.is_kept()) {
                    continue;
                }
                blocks += 1;
                nearly_full += u64::from(body.len() + 40 > room);
                let again = peer.retransmit_buffer.retransmit(now, header.sequence_low);
                assert!(again.is_some(), "{} of {room} bytes are not kept", body.len());
            }
        });
    }
    assert!(blocks > 50 && nearly_full > 5 && cut > 20, "{blocks}, {nearly_full}, {cut}");
    assert_eq!(net.end(1).peer().rx.packets, net.end(0).peer().tx.sent);
}

/// 0 % was reported for minutes while four in ten were lost: only what left the window counted.
#[test]
fn loss_shows_within_seconds_at_both_ends_and_goes_with_it() {
    for scheme in ["packet", "edge"] {
        for seed in 0..3 {
            let mut net = pair(true, "9mbit", scheme, &good_link(), seed);
            net.run_to(2_000);
            net.start_sources(2_000, 2_000, 20_000 * MICRO_NS);
            net.run_to(10_000);
            let clean = |net: &Net| {
                for side in [0, 1] {
                    let (own, reported) =
                        (net.end(side).peer().rx.loss, net.end(1 - side).peer().tx.loss);
                    assert_eq!(own.map(|it| it.lost), Some(0), "{scheme}, {seed}");
                    assert_eq!(reported.map(|it| it.lost), Some(0), "{scheme}, {seed}");
                }
            };
            clean(&net);
            let lossy = good_link().with_loss(0.39).with_seed(seed);
            net.links.iter().for_each(|&link| net.net.set_link(link, lossy.clone()));
            net.run_to(24_000);
            for side in [0, 1] {
                let (there, here) = (net.end(1 - side).peer(), net.end(side).peer());
                let own = here.rx.loss.expect("datagrams came").ppm;
                let reported = there.tx.loss.expect("reports came").ppm;
                assert!((280_000..500_000).contains(&own), "{scheme}, {seed}: {own}");
                assert!(own.abs_diff(reported) < 120_000, "{scheme}, {seed}: {own}, {reported}");
                let lost = here.rx.lost_datagrams + here.rx.recovered_datagrams;
                assert!(lost > 50, "{scheme}, {seed}: {:?}", here.rx);
            }
            net.links.iter().for_each(|&link| net.net.set_link(link, good_link()));
            net.run_to(34_000);
            clean(&net);
        }
    }
}
