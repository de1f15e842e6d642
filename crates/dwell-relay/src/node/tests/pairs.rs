//! Two nodes: what they carry, lose and survive.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use dwell_base::Rate;
use dwell_base::time::{MICRO_NS, MILLI_NS};
use dwell_codec::{CodecId, CodecSpec, Compressor};
use dwell_report::status::PeerState;
use dwell_wire::CloseReason;
use dwell_wire::header::DATA_HEADER_LEN;
use proptest::prelude::*;

use super::harness::*;
use crate::node::*;

#[test]
fn everything_arrives_in_order_over_a_good_link() {
    for (sealed, scheme) in [(true, "none"), (false, "all"), (true, "all"), (true, "packet")] {
        let mut net = pair(sealed, "10mbit", scheme, &good_link(), 1);
        net.run_to(100);
        assert!(net.end(0).is_up() && net.end(1).is_up());
        net.start_sources(100, 500, 400 * MICRO_NS); // twice what the link takes raw
        net.run_to(2_000);
        net.assert_nothing_altered_or_doubled();
        for side in [0, 1] {
            let (from, to) = (net.end(side).peer(), net.end(1 - side).peer());
            assert!(from.tx.balances() && from.tx.held.packets == 0);
            assert_eq!(net.end(side).node.store.len(), 0, "every place is free again");
            assert_eq!(from.tx.sent.packets, to.rx.packets.packets);
            assert_eq!(from.tx.sent.bytes, to.rx.packets.bytes);
            assert!(from.rtt_ns >= Some(10 * MILLI_NS), "{:?}", from.rtt_ns);
            assert_eq!(from.tx.compressed.packets, to.rx.compressed);
            assert_eq!(from.tx.compressed.packets > 0, scheme != "none", "{scheme}");
            assert_eq!(to.rx.malformed + to.rx.decode_failed + to.rx.not_allowed, 0);
            let numbers: Vec<u64> =
                net.end(1 - side).env.delivered.iter().map(|packet| number_of(packet)).collect();
            assert!(numbers.is_sorted(), "order is broken");
        }
    }
}

#[test]
fn the_paced_queue_is_ours() {
    // The configured rate is the link's: nothing may pile up in the link's own queue.
    let link = good_link().with_queue(dwell_testkit::QueueLimit::Bytes(6_000));
    let mut net = pair(true, "10mbit", "packet", &link, 2);
    net.run_to(100);
    net.start_sources(100, 4_500, 200 * MICRO_NS);
    net.run_to(3_000);
    assert_eq!(net.net.link_stats(net.links[0]).dropped_queue, 0);
    let tx = net.end(0).peer().tx;
    assert!(tx.balances());
    assert!(tx.dropped_total().packets > 0, "the load must exceed the link");
}

#[test]
fn hostile_links_lose_packets_but_nothing_else() {
    let link = good_link()
        .with_jitter_ns(2 * MILLI_NS)
        .with_loss(0.02)
        .with_reorder(0.03)
        .with_duplicate(0.03)
        .with_corrupt(0.02);
    for seed in 0..12 {
        let mut net = pair(true, "9mbit", "packet", &link, seed);
        net.run_to(8_000); // hellos get lost as well
        net.start_sources(8_000, 800, 500 * MICRO_NS);
        net.run_to(12_000);
        net.assert_nothing_altered_or_doubled();
        for side in [0, 1] {
            let (from, to) = (net.end(side).peer(), net.end(1 - side).peer());
            assert!(from.tx.balances(), "seed {seed}");
            assert!(from.tx.sent.packets > 300, "seed {seed}: {:?}", from.tx.sent);
            let lost = from.tx.sent.packets - to.rx.packets.packets;
            assert!(lost > 0 && lost < from.tx.sent.packets / 5, "seed {seed}: {lost} lost");
            let stats = net.net.link_stats(net.links[side]);
            // What is corrupted may name the number of another that came.
            let twice_max = stats.duplicated + stats.corrupted;
            assert!(to.rx.replayed > 0 && to.rx.replayed <= twice_max, "seed {seed}");
            assert!(to.rx.auth_failed > 0, "corrupted datagrams are refused");
        }
    }
}

#[test]
fn without_a_seal_loss_and_duplicates_are_handled_all_the_same() {
    let link = good_link().with_loss(0.02).with_reorder(0.05).with_duplicate(0.05);
    for seed in 0..6 {
        let mut net = pair(false, "9mbit", "all", &link, seed);
        net.run_to(6_000);
        net.start_sources(6_000, 500, 600 * MICRO_NS);
        net.run_to(10_000);
        net.assert_nothing_altered_or_doubled();
        assert!(net.end(1).env.delivered.len() > 300);
        assert!(net.end(0).peer().tx.balances());
    }
}

#[test]
fn a_dead_peer_is_noticed_within_seconds_and_found_again() {
    let mut net = pair(true, "10mbit", "packet", &good_link(), 3);
    net.run_to(1_000);
    net.start_sources(1_000, 20_000, MILLI_NS);
    net.run_to(2_000);
    let dead = good_link().with_loss(1.0);
    for link in net.links {
        net.net.set_link(link, dead.clone());
    }
    net.run_to(8_500); // dead_after is 5 s
    for side in [0, 1] {
        assert_eq!(net.end(side).peer().state, PeerState::Down);
        let last = net.end(side).env.events.last();
        assert!(matches!(last, Some(NodeEvent::Down(0, Parting::Silent { .. }))), "{last:?}");
    }
    for link in net.links {
        net.net.set_link(link, good_link());
    }
    net.run_to(10_500);
    assert!(net.end(0).is_up() && net.end(1).is_up());
    let before = net.end(1).env.delivered.len();
    net.run_to(11_000);
    assert!(net.end(1).env.delivered.len() > before, "traffic resumes");
    assert!(net.end(0).peer().tx.balances());
}

#[test]
fn an_idle_pair_stays_up_and_says_little() {
    let mut net = pair(true, "10mbit", "packet", &good_link(), 4);
    let control =
        |net: &Net| [0, 1].map(|side| net.end(side).peer().tx.control_bytes).iter().sum::<u64>();
    // When they connect they look once whether the path takes long datagrams.
    net.run_to(60_000);
    let before = control(&net);
    assert!(before < 6_000, "{before} bytes for connecting");
    net.run_to(660_000);
    assert!(net.end(0).is_up() && net.end(1).is_up());
    let a_day = (control(&net) - before) * 144;
    assert!(a_day < 1_000_000, "{a_day} bytes a day");
}

#[test]
fn a_restarted_node_is_heard_at_once() {
    let mut net = pair(true, "10mbit", "packet", &good_link(), 5);
    net.run_to(1_000);
    let fresh = End::new(1, &config(1, true, "10mbit", "packet"), 555);
    net.net.with_node(net.ends[1], |end, _, _| *end = fresh);
    net.run_to(1_500);
    assert!(net.end(0).is_up() && net.end(1).is_up());
    assert!(net.end(0).env.events.contains(&NodeEvent::Restarted(0)));
    assert!(!net.end(1).env.events.contains(&NodeEvent::Restarted(0)));
    net.start_sources(1_500, 100, MILLI_NS);
    net.run_to(3_000);
    assert_eq!(net.end(1).env.delivered.len(), 100);
    net.assert_nothing_altered_or_doubled();
}

#[test]
fn a_closing_node_tells_its_peer() {
    let mut net = pair(true, "10mbit", "packet", &good_link(), 6);
    net.run_to(1_000);
    net.net.with_node(net.ends[0], |end, _, out| {
        end.node.close(&mut end.env, CloseReason::ShuttingDown);
        end.after(out);
    });
    net.run_to(1_010);
    assert_eq!(net.end(1).peer().state, PeerState::Down);
}

#[test]
fn a_new_configuration_keeps_what_waits() {
    let mut net = pair(true, "1mbit", "none", &good_link(), 7);
    net.run_to(1_000);
    net.start_sources(1_000, 30, 10 * MICRO_NS);
    net.run_to(1_001);
    let held = net.end(0).peer().tx.held.packets;
    assert!(held > 10);
    net.net.with_node(net.ends[0], |end, _, out| {
        let new = config(0, true, "10mbit", "packet");
        let endpoint = Some(ADDRESSES[1].parse().expect("an address"));
        let mut random = || -> RandomSource { Box::new(|bytes| bytes.fill(1)) };
        end.node.reconfigure(&new, &[endpoint], &mut random).expect("a good configuration");
        end.node.pump_all(&mut end.env);
        end.after(out);
    });
    net.run_to(2_000);
    let tx = net.end(0).peer().tx;
    assert!(tx.balances());
    assert_eq!((tx.held.packets, tx.dropped["cleared"].packets), (0, 0));
    assert_eq!(net.end(1).env.delivered.len() as u64, tx.sent.packets);
}

#[test]
fn a_new_scheme_leaves_frames_of_the_one_before_whole() {
    let schemes = ["edge", "chutq-dcf", "flow", "basicq", "packet"];
    for before in schemes {
        for after in schemes {
            let mut net = pair(true, "2mbit", before, &good_link(), 17);
            net.run_to(1_000);
            net.set_traffic(Traffic { flows: 5, six: true, payload_max: 300, random: 0.3 });
            net.start_sources(1_000, 400, 500 * MICRO_NS);
            for (ms, scheme) in [(1_100, after), (1_150, before), (1_180, after)] {
                net.run_to(ms);
                net.net.with_node(net.ends[0], |end, _, out| {
                    let new = config(0, true, "2mbit", scheme);
                    let endpoint = Some(ADDRESSES[1].parse().expect("an address"));
                    let mut random = || -> RandomSource { Box::new(|bytes| bytes.fill(1)) };
                    let done = end.node.reconfigure(&new, &[endpoint], &mut random);
                    done.expect("a good configuration");
                    end.node.pump_all(&mut end.env);
                    end.after(out);
                });
            }
            net.run_to(6_000);
            let tx = net.end(0).peer().tx;
            assert!(tx.balances() && tx.held.packets == 0);
            let got = net.end(1).env.delivered.len() as u64;
            assert_eq!(got, tx.sent.packets, "{before} to {after}");
            net.assert_nothing_altered_or_doubled();
        }
    }
}

#[test]
fn a_packet_from_a_foreign_source_is_not_let_in() {
    let mut net = pair(false, "10mbit", "none", &good_link(), 8);
    net.run_to(1_000);
    net.net.with_node(net.ends[0], |end, _, out| {
        // From an address that is behind the receiver itself.
        let mut packet = inner_packet([10, 2, 0, 66], [10, 2, 0, 9], b"spoofed");
        end.node.packet(&mut end.env, &mut packet);
        end.node.pump_all(&mut end.env);
        end.after(out);
    });
    net.run_to(2_000);
    assert_eq!(net.end(1).peer().rx.not_allowed, 1);
    assert!(net.end(1).env.delivered.is_empty());
}

#[test]
fn long_and_short_packets_share_a_jumbo_path() {
    let mut net = pair(true, "50mbit", "none", &good_link().with_rate(Rate::from_mbps(50)), 16);
    for id in net.ends {
        net.net.with_node(id, |end, _, _| end.node.set_path_datagram_max(0, 8_972));
    }
    net.run_to(1_000);
    net.net.with_node(net.ends[0], |end, _, out| {
        for (number, len) in [5_000, 20, 4_100, 20, 8_000, 20, 20, 4_095].iter().enumerate() {
            let mut payload = vec![7; *len];
            payload[..8].copy_from_slice(&(number as u64).to_be_bytes());
            let mut packet = inner_packet([10, 1, 0, 5], [10, 2, 0, 9], &payload);
            end.made.push(packet.clone());
            end.node.packet(&mut end.env, &mut packet);
        }
        end.node.pump_all(&mut end.env);
        end.after(out);
    });
    net.run_to(2_000);
    assert_eq!(net.end(1).env.delivered.len(), 8);
    assert_eq!(net.end(0).peer().tx.send_errors["unwritten"], 0);
}

#[test]
fn a_peer_that_moved_is_still_there_after_a_reload() {
    let mut net = pair(true, "10mbit", "none", &good_link(), 17);
    net.run_to(1_000);
    let moved: SocketAddr = "198.51.100.9:4711".parse().expect("an address");
    net.net.with_node(net.ends[0], |end, _, _| {
        end.node.set_endpoint(0, moved);
        let same = config(0, true, "5mbit", "none");
        let configured = Some(ADDRESSES[1].parse().expect("an address"));
        let mut random = || -> RandomSource { Box::new(|bytes| bytes.fill(1)) };
        end.node.reconfigure(&same, &[configured], &mut random).expect("a good configuration");
        assert_eq!(end.node.endpoint(0), Some(moved));
        // Unless it is configured to be elsewhere now.
        let mut elsewhere = config(0, true, "5mbit", "none");
        elsewhere.peers[0].endpoint = Some("192.0.2.77:7733".parse().expect("an endpoint"));
        let there = Some("192.0.2.77:7733".parse().expect("an address"));
        end.node.reconfigure(&elsewhere, &[there], &mut random).expect("a good configuration");
        assert_eq!(end.node.endpoint(0), there);
    });
}

#[test]
fn a_peer_under_a_new_name_takes_the_place_of_the_old_one() {
    let mut net = pair(false, "10mbit", "none", &good_link(), 18);
    net.run_to(1_000);
    net.net.with_node(net.ends[0], |end, _, out| {
        let mut renamed = config(0, false, "10mbit", "none");
        renamed.peers[0].name = "renamed".to_owned();
        renamed.peers[0].endpoint = None;
        let mut random = || -> RandomSource { Box::new(|bytes| bytes.fill(9)) };
        end.node.reconfigure(&renamed, &[None], &mut random).expect("a good configuration");
        assert_eq!(end.node.peer_count(), 1);
        end.after(out);
    });
    // The other end finds it dead, initiates, and is answered.
    net.start_sources(1_000, 9_000, MILLI_NS);
    net.run_to(9_000);
    assert!(net.end(0).is_up() && net.end(1).is_up());
}

#[test]
fn a_hello_may_grow() {
    let mut net = pair(false, "10mbit", "none", &good_link(), 19);
    net.run_to(1_000);
    let mut hello = vec![0x13];
    hello.extend([8; 16]); // salt
    hello.extend([0; 16]); // no echo
    hello.extend([0x05, 0xac, 0x00, 0x06, 0x00, 0x00]);
    hello.extend([0xee; 200]); // of a later version
    net.net.inject((net.ends[0], 0), &hello);
    net.run_to(1_100);
    let drops = net.end(1).node.drops();
    assert_eq!((drops.malformed_datagram, drops.unknown_key), (0, 0));
}

#[test]
fn a_blocked_link_holds_packets_and_loses_none() {
    let mut net = pair(true, "auto", "none", &good_link(), 9);
    net.run_to(1_000);
    net.net.with_node(net.ends[0], |end, _, _| end.env.link_open = false);
    net.start_sources(1_000, 50, 100 * MICRO_NS);
    net.run_to(1_500);
    assert!(net.end(0).peer().tx.held.packets >= 49);
    net.net.with_node(net.ends[0], |end, _, out| {
        end.env.link_open = true;
        end.node.link_writable(0);
        end.node.pump_all(&mut end.env);
        end.after(out);
    });
    net.run_to(2_500);
    assert_eq!(net.end(1).env.delivered.len(), 50);
}

#[test]
fn a_slow_worker_delays_and_loses_nothing() {
    let mut net = pair(true, "10mbit", "all", &good_link(), 14);
    net.run_to(1_000);
    net.net.with_node(net.ends[0], |end, _, _| end.env.worker = Some(Vec::new()));
    net.start_sources(1_000, 20, MILLI_NS);
    for ms in 0..40 {
        net.run_to(1_000 + ms * 5);
        net.net.with_node(net.ends[0], |end, _, out| {
            end.work();
            end.node.pump_all(&mut end.env);
            end.after(out);
        });
    }
    net.run_to(2_000);
    assert_eq!(net.end(1).env.delivered.len(), 20);
    assert_eq!(net.end(0).node.store.len(), 0);
    net.assert_nothing_altered_or_doubled();
}

#[test]
fn a_result_for_a_peer_that_is_gone_is_nobodys() {
    for replaced in [true, false] {
        let mut net = pair(true, "10mbit", "all", &good_link(), 15);
        net.run_to(1_000);
        net.net.with_node(net.ends[0], |end, _, _| end.env.worker = Some(Vec::new()));
        net.start_sources(1_000, 10, 10 * MICRO_NS);
        net.run_to(1_005);
        net.net.with_node(net.ends[0], |end, _, out| {
            // Without a key it is another peer; under another name it is gone.
            let mut new = config(0, !replaced, "10mbit", "all");
            if !replaced {
                new.peers[0].name = "third".to_owned();
            }
            let mut random = || -> RandomSource { Box::new(|bytes| bytes.fill(1)) };
            end.node.reconfigure(&new, &[None], &mut random).expect("a good configuration");
            end.work();
            end.node.pump_all(&mut end.env);
            end.after(out);
        });
        net.run_to(1_100);
        assert_eq!(net.end(0).node.store.len(), 0);
    }
}

#[test]
fn another_codec_while_a_packet_is_in_the_compress_is_distinguished() {
    // The second is one that the peer, by what it said, does not decode.
    for (id, accepted) in [(CodecId::Zstd, true), (CodecId::Lzo, false)] {
        let mut net = pair(true, "10mbit", "all", &good_link(), 16);
        net.run_to(1_000);
        net.net.with_node(net.ends[0], |end, _, _| {
            end.env.worker = Some(Vec::new());
            end.traffic.random = 0.0;
            let hello = end.node.peers[0].hello.as_mut().expect("there is a session");
            hello.codecs &= !(1 << CodecId::Lzo as u8);
        });
        net.start_sources(1_000, 10, 10 * MICRO_NS);
        net.run_to(1_005);
        net.net.with_node(net.ends[0], |end, _, out| {
            let mut new = config(0, true, "10mbit", "all");
            new.peers[0].codec = CodecSpec { id, level: 1 };
            let endpoint = Some(ADDRESSES[1].parse().expect("an address"));
            let mut random = || -> RandomSource { Box::new(|bytes| bytes.fill(1)) };
            end.node.reconfigure(&new, &[endpoint], &mut random).expect("a good configuration");
            assert_eq!(end.node.peers[0].codec_accepted(), accepted);
            end.work();
            end.env.worker = None;
            end.env.compressor = Compressor::new(CodecSpec { id: CodecId::Zstd, level: 1 }, None)
                .expect("zstd is built in");
            end.node.pump_all(&mut end.env);
            end.after(out);
        });
        net.run_to(2_000);
        let rx = net.end(1).peer().rx;
        assert_eq!((rx.decode_failed, net.end(1).env.delivered.len()), (0, 10), "{id:?}: {rx:?}");
        net.assert_nothing_altered_or_doubled();
    }
}

#[test]
fn a_record_that_claims_too_much_is_counted_and_nothing_more() {
    let mut net = pair(false, "10mbit", "none", &good_link(), 10);
    net.run_to(1_000);
    // 64 KiB from a few bytes, for each codec that there is and for some that there aren't.
    for codec in 0..16 {
        let datagram = plain_datagram(&mut net, |body| {
            body.compressed(codec, 0, 65_535, &[0xff; 40]).unwrap();
        });
        net.net.inject((net.ends[0], 0), &datagram);
    }
    net.run_to(2_000);
    let rx = net.end(1).peer().rx;
    assert_eq!(rx.decode_failed + rx.malformed, 16);
    assert!(net.end(1).env.delivered.is_empty() && net.end(1).is_up());
}

#[test]
fn drops_are_named() {
    let mut net = pair(true, "10mbit", "none", &good_link(), 11);
    net.run_to(1_000);
    net.net.with_node(net.ends[0], |end, _, _| {
        let env = &mut end.env;
        end.node.packet(env, &mut [0x45, 0, 0]);
        end.node.packet(env, &mut inner_packet([10, 1, 0, 5], [172, 16, 0, 1], b"x"));
        end.node.packet(env, &mut inner_packet([10, 1, 0, 5], [10, 2, 0, 9], &[0; 1500]));
        let source = "203.0.113.9:1".parse().unwrap();
        end.node.datagram(env, None, source, &mut [0x11; 40]);
        end.node.datagram(env, None, source, &mut [0x12; 70]);
        end.node.datagram(env, None, source, &mut [0xf1; 40]);
    });
    let drops = net.end(0).node.drops();
    let expected = NodeDrops {
        malformed_packet: 1,
        no_route: 1,
        malformed_datagram: 1,
        unknown_source: 1,
        unknown_key: 1,
        hello_replayed: 0,
    };
    assert_eq!(drops, expected);
    assert_eq!(
        net.end(0).peer().tx.send_errors,
        BTreeMap::from([
            ("too_big".to_owned(), 1),
            ("unconnected".to_owned(), 0),
            ("unwritten".to_owned(), 0),
        ])
    );
    // The one that is too big and must not be cut is answered by ICMP.
    assert_eq!(net.end(0).env.delivered[0][20..22], [3, 4]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever comes in, nothing panics, nothing is delivered, and the session lives on.
    #[test]
    fn rubbish_is_counted(rubbish in prop::collection::vec(
        prop::collection::vec(any::<u8>(), 0..200), 1..40,
    ), first in prop::sample::select(vec![0x10u8, 0x11, 0x12, 0x13])) {
        let mut net = pair(true, "10mbit", "none", &good_link(), 12);
        net.run_to(1_000);
        for mut datagram in rubbish {
            if let Some(byte) = datagram.first_mut() {
                *byte = first;
            }
            net.net.inject((net.ends[0], 0), &datagram);
        }
        net.run_to(2_000);
        prop_assert!(net.end(1).env.delivered.is_empty());
        net.start_sources(2_000, 10, MILLI_NS);
        net.run_to(3_000);
        prop_assert_eq!(net.end(1).env.delivered.len(), 10);
    }

    /// Unsealed bodies are anybody's: any record may come, and none may harm.
    #[test]
    fn any_body_is_survived(body in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut net = pair(false, "10mbit", "none", &good_link(), 13);
        net.run_to(1_000);
        let datagram = plain_datagram(&mut net, |writer| {
            // Raw bytes as records: the writer only lends its buffer.
            let _ = writer.raw(&[0x45; 20]);
        });
        let mut hostile = datagram[..DATA_HEADER_LEN].to_vec();
        hostile.extend(body);
        net.net.inject((net.ends[0], 0), &hostile);
        net.run_to(1_050);
        net.end(1).node.assert_invariants();
    }
}

/// Packets that found no room were forgotten by every other poll, and their place with them.
#[test]
fn whatever_finds_no_room_leaves_its_place() {
    for scheme in ["none", "packet", "edge", "basicq"] {
        let mut net = pair(true, "auto", scheme, &good_link(), 5);
        net.run_to(100);
        net.net.with_node(net.ends[0], |end, _, _| {
            let mut packets: Vec<_> = (0..3_000).map(|_| end.make_packet()).collect();
            let now = end.env.now();
            end.node.link_blocked(now, 0);
            for packet in &mut packets {
                end.node.packet(&mut end.env, packet);
            }
            end.node.pump(&mut end.env, 0);
            let held = end.node.peers[0].port.accounts().held.packets;
            assert!(held > 0 && held < 3_000, "{scheme}: {held}");
            assert_eq!(end.node.store.len() as u64, held, "{scheme}");
            let dropped = end.node.peers[0].port.accounts().dropped_total().packets;
            assert_eq!(held + dropped, 3_000, "{scheme}");
        });
    }
}
