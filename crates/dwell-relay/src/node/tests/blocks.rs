//! Blocks of packets between two nodes.

use dwell_base::time::{MICRO_NS, MILLI_NS};
use dwell_testkit::LinkSpec;
use dwell_wire::header::RECORD_HEADER_LEN;
use dwell_wire::{Block, BodyWriter, Fragment};

use super::harness::*;
use crate::node::*;

const MANY: Traffic = Traffic { flows: 20, six: true, payload_max: 1308, random: 0.3 };

fn pair_with(lines: &str, sealed: bool, link: &LinkSpec, seed: u64) -> Net {
    Net::new(&[0, 1].map(|side| config_with(side, sealed, "10mbit", lines)), link, seed)
}

/// Runs 800 packets from each side through a link that is overloaded, and waits for the end.
fn overload(net: &mut Net, start_ms: u64, traffic: Traffic) {
    net.run_to(start_ms);
    net.set_traffic(traffic);
    net.start_sources(start_ms, 800, 100 * MICRO_NS);
    net.run_to(start_ms + 3_000);
}

#[test]
fn blocks_arrive_whole_and_flows_keep_their_order() {
    for lines in [
        "scheme = \"flow\"",
        "scheme = \"service\"",
        "scheme = \"host-pair\"",
        "scheme = \"edge\"",
        "scheme = \"edge\"\nblock_bytes = 60000\nqueue_time = \"1s\"",
        "scheme = \"edge\"\nblock_packets = 5",
        "scheme = \"edge\"\ncolumnar = false",
        "scheme = \"flow\"\nblock_packets = 3\nblock_lead = 0",
    ] {
        for sealed in [true, false] {
            let mut net = pair_with(lines, sealed, &good_link(), 1);
            overload(&mut net, 100, MANY);
            net.assert_nothing_altered_or_doubled();
            net.assert_flows_in_order();
            for side in [0, 1] {
                let (from, to) = (net.end(side).peer(), net.end(1 - side).peer());
                assert!(from.tx.balances() && from.tx.held.packets == 0, "{lines}");
                assert_eq!(net.end(side).node.store.len(), 0, "every place is free again");
                assert_eq!(from.tx.sent.packets, to.rx.packets.packets, "{lines}");
                assert_eq!(from.tx.sent.bytes, to.rx.packets.bytes);
                assert_eq!(from.tx.compressed.packets, to.rx.compressed);
                assert!(to.rx.blocks > 5 && to.rx.blocks < to.rx.compressed / 2, "{lines}: {to:?}");
                assert_eq!(to.rx.malformed + to.rx.decode_failed + to.rx.not_allowed, 0);
                assert!(to.rx.dropped_records.values().all(|&count| count == 0));
                if lines.contains("edge") || lines.contains("-pair") {
                    assert!(to.rx.fragments > 0, "{lines}: blocks are larger than a datagram");
                }
            }
        }
    }
}

#[test]
fn the_port_knows_what_goes_on_the_link() {
    let mut net = pair_with("scheme = \"edge\"", true, &good_link(), 2);
    overload(&mut net, 100, MANY);
    let tx = net.end(0).peer().tx;
    let link = net.net.link_stats(net.links[0]);
    // 28 bytes of IP and UDP, 14 of the link, for each datagram that the link saw.
    let expected = link.bytes_in + 42 * link.packets_in;
    assert_eq!(tx.link_bytes + tx.control_bytes, expected);
    assert_eq!(tx.frames + tx.control_datagrams, link.packets_in);
}

#[test]
fn more_is_gained_the_more_is_compressed_together() {
    let text = Traffic { random: 0.2, payload_max: 500, ..MANY };
    let ratio = |scheme: &str| {
        let mut net = pair_with(&format!("scheme = \"{scheme}\""), true, &good_link(), 3);
        net.run_to(100);
        net.set_traffic(text);
        net.start_sources(100, 3_000, 40 * MICRO_NS);
        net.run_to(3_000);
        net.assert_nothing_altered_or_doubled();
        net.end(0).peer().tx.link_ratio().expect("something was sent")
    };
    let [none, packet, flow, edge] = ["none", "packet", "flow", "edge"].map(ratio);
    assert!(flow < packet && edge < packet && packet < none, "{edge} {flow} {packet} {none}");
}

#[test]
fn headers_side_by_side_take_less() {
    let small = Traffic { random: 0.0, payload_max: 100, ..MANY };
    let ratio = |columnar: bool| {
        let lines = format!("scheme = \"edge\"\ncolumnar = {columnar}");
        let mut net = pair_with(&lines, true, &good_link(), 9);
        net.run_to(100);
        net.set_traffic(small);
        net.start_sources(100, 4_000, 20 * MICRO_NS);
        net.run_to(3_000);
        net.assert_nothing_altered_or_doubled();
        net.assert_flows_in_order();
        net.end(0).peer().tx.compressed_ratio().expect("something was compressed")
    };
    let (with, without) = (ratio(true), ratio(false));
    assert!(with < without, "{with} against {without}");
}

#[test]
fn packets_that_are_too_small_alone_are_worth_it_together() {
    let acks = Traffic { flows: 1, six: false, payload_max: 9, random: 0.0 };
    let mut net = pair_with("scheme = \"flow\"", true, &good_link(), 4);
    net.run_to(100);
    net.set_traffic(acks);
    net.start_sources(100, 3_000, 10 * MICRO_NS);
    net.run_to(3_000);
    net.assert_nothing_altered_or_doubled();
    net.assert_flows_in_order();
    let tx = net.end(0).peer().tx;
    assert!(tx.compressed.packets > 2_000, "{tx:?}");
    assert!(tx.compressed_ratio() < Some(0.5), "{:?}", tx.compressed_ratio());
}

/// As many bytes as fit into 64 datagrams of 576, or a few more.
const CUT_BYTES: usize = 64 * 556;

#[test]
fn a_peer_that_takes_short_datagrams_only_gets_what_fits_into_64_of_them() {
    let lines = "scheme = \"edge\"\nblock_bytes = 60000\nqueue_time = \"2s\"";
    let mut net = pair_with(lines, false, &good_link(), 12);
    net.run_to(100);
    for id in net.ends {
        net.net.with_node(id, |end, _, _| end.node.set_path_datagram_max(0, 576));
    }
    // Blocks that shrink by a little: as long as they may be, compressed.
    overload(&mut net, 200, Traffic { payload_max: 480, random: 0.9, ..MANY });
    net.assert_nothing_altered_or_doubled();
    for side in [0, 1] {
        let end = net.end(side);
        let (from, to) = (end.peer(), net.end(1 - side).peer());
        assert!(from.tx.balances() && from.tx.held.packets == 0);
        assert_eq!(from.tx.send_errors["unwritten"], 0);
        assert_eq!(from.tx.sent.packets, to.rx.packets.packets);
        assert_eq!(to.rx.malformed, 0);
        // Many parts, so that more would have been too many; and no compression was wasted.
        // Rearranged headers may take a little more room before they are compressed.
        assert!((40..=64).contains(&end.parts_max), "{} parts", end.parts_max);
        let given = end.env.compressed_bytes_max;
        assert!((25_000..=CUT_BYTES + 500).contains(&given), "{given} bytes were compressed");
    }
}

#[test]
fn a_block_in_the_compress_that_a_narrower_path_does_not_take_is_sent_raw() {
    // Shrinks, but not to what 64 datagrams of 576 bytes take.
    const LONG_BYTES: usize = 41_000;
    let lines = "scheme = \"edge\"\nblock_bytes = 60000\nqueue_time = \"2s\"";
    let mut net = pair_with(lines, false, &good_link(), 13);
    net.run_to(100);
    net.net.with_node(net.ends[0], |end, _, _| {
        end.env.worker = Some(Vec::new());
        end.traffic = Traffic { payload_max: 720, random: 1.0, ..MANY };
        end.source(at_ms(100), 800, 10 * MICRO_NS);
    });
    net.run_to(120);
    // The first blocks are short, for want of packets; then the worker gets a long one.
    let mut lens = Vec::new();
    for step in 0..200 {
        let len = net.net.with_node(net.ends[0], |end, _, _| {
            let jobs = end.env.worker.iter().flatten();
            jobs.map(|(_, bytes)| bytes.len()).max().unwrap_or(0)
        });
        lens.push(len);
        if len > LONG_BYTES {
            break;
        }
        net.net.with_node(net.ends[0], |end, _, out| {
            end.work();
            end.node.pump_all(&mut end.env);
            end.after(out);
        });
        net.run_to(121 + step);
    }
    assert!(lens.last() > Some(&LONG_BYTES), "no block is long: {lens:?}");
    net.net.with_node(net.ends[0], |end, _, out| {
        end.node.set_path_datagram_max(0, 576);
        end.work();
        end.env.worker = None;
        end.node.pump_all(&mut end.env);
        end.after(out);
    });
    net.run_to(5_000);
    let (from, to) = (net.end(0).peer(), net.end(1).peer());
    assert_eq!((from.tx.send_errors["unwritten"], to.rx.malformed), (0, 0));
    assert_eq!(from.tx.sent.packets, to.rx.packets.packets);
    assert!(from.tx.not_smaller > 0, "{:?}", from.tx);
    assert!(net.end(0).parts_max <= 64, "{} parts", net.end(0).parts_max);
    net.assert_nothing_altered_or_doubled();
}

#[test]
fn a_record_in_64_parts_is_joined_and_one_in_more_is_refused() {
    let packet = inner_packet([10, 1, 0, 5], [10, 2, 0, 9], &[7; 1300]);
    let mut record = vec![0; 2_000];
    let mut writer = BodyWriter::new(&mut record);
    writer.raw(&packet).expect("room");
    let len = writer.len();
    for (parts, is_taken) in [(63, true), (64, true), (65, false), (128, false), (255, false)] {
        let mut net = pair(false, "10mbit", "none", &good_link(), 14);
        net.run_to(1_000);
        let part_len = len.div_ceil(parts);
        // Shorter parts at the end, so that there are as many as it says.
        let cuts = (0..parts).map(|at| (at * len / parts, (at + 1) * len / parts));
        for (index, (from, to)) in cuts.enumerate() {
            assert!(to - from <= part_len && to > from);
            let data = &record[from..to];
            let mut bytes = [0; 600];
            let mut body = BodyWriter::new(&mut bytes);
            body.fragment(&Fragment { id: 9, index: 0, last: 1, data }).expect("room");
            let len = body.len();
            // No writer makes those of which there are too many.
            let at = RECORD_HEADER_LEN + 4;
            (bytes[at], bytes[at + 1]) = (index as u8, (parts - 1) as u8);
            let datagram =
                plain_datagram(&mut net, |body| body.records(&bytes[..len]).expect("room"));
            net.net.inject((net.ends[0], 0), &datagram);
        }
        net.run_to(2_000);
        let rx = net.end(1).peer().rx;
        if is_taken {
            assert_eq!((rx.fragments, rx.malformed), (parts as u64, 0));
            assert_eq!(net.end(1).env.delivered, std::slice::from_ref(&packet));
        } else {
            assert_eq!((rx.fragments, rx.malformed), (0, parts as u64), "{parts} parts");
            assert!(net.end(1).env.delivered.is_empty());
        }
        let incomplete = net.end(1).node.peers[0].reassembly.len();
        assert_eq!(incomplete, 0, "{parts} parts: nothing is kept");
        assert!(net.end(1).is_up());
    }
}

#[test]
fn hostile_links_lose_blocks_but_alter_nothing() {
    let link = good_link()
        .with_jitter_ns(2 * MILLI_NS)
        .with_loss(0.02)
        .with_reorder(0.03)
        .with_duplicate(0.03)
        .with_corrupt(0.02);
    for seed in 0..8u64 {
        let mut net = pair_with("scheme = \"edge\"", seed.is_multiple_of(2), &link, seed);
        // Without a seal nothing shows that a datagram is damaged.
        if seed % 2 == 1 {
            let link = link.clone().with_corrupt(0.0);
            for direction in net.links {
                net.net.set_link(direction, link.clone());
            }
        }
        overload(&mut net, 8_000, MANY);
        net.assert_nothing_altered_or_doubled();
        for side in [0, 1] {
            let (from, to) = (net.end(side).peer(), net.end(1 - side).peer());
            assert!(from.tx.balances(), "seed {seed}");
            assert!(to.rx.packets.packets > 300, "seed {seed}: {:?}", to.rx);
        }
    }
}

#[test]
fn a_slow_worker_delays_blocks_and_loses_none() {
    let mut net = pair_with("scheme = \"edge\"", true, &good_link(), 5);
    net.run_to(1_000);
    net.net.with_node(net.ends[0], |end, _, _| end.env.worker = Some(Vec::new()));
    net.set_traffic(MANY);
    net.start_sources(1_000, 100, MILLI_NS / 2);
    for ms in 0..60 {
        net.run_to(1_000 + ms * 5);
        net.net.with_node(net.ends[0], |end, _, out| {
            end.work();
            end.node.pump_all(&mut end.env);
            end.after(out);
        });
    }
    net.run_to(2_000);
    assert_eq!(net.end(1).env.delivered.len(), 100);
    assert!(net.end(1).peer().rx.blocks > 0);
    assert_eq!(net.end(0).node.store.len(), 0);
    net.assert_nothing_altered_or_doubled();
    net.assert_flows_in_order();
}

#[test]
fn a_block_in_the_compress_of_a_peer_that_is_gone_leaves_nothing_behind() {
    let mut net = pair_with("scheme = \"edge\"\nblock_packets = 4", true, &good_link(), 6);
    net.run_to(1_000);
    net.net.with_node(net.ends[0], |end, _, _| end.env.worker = Some(Vec::new()));
    net.start_sources(1_000, 40, 10 * MICRO_NS);
    net.run_to(1_005);
    net.net.with_node(net.ends[0], |end, _, out| {
        assert!(end.node.peers[0].port.batches().any(|batch| batch.len() > 1));
        let mut new = config(0, false, "10mbit", "edge");
        new.peers[0].name = "third".to_owned();
        let mut random = || -> RandomSource { Box::new(|bytes| bytes.fill(1)) };
        end.node.reconfigure(&new, &[None], &mut random).expect("a good configuration");
        end.work();
        end.node.pump_all(&mut end.env);
        end.after(out);
    });
    net.run_to(1_100);
    assert_eq!(net.end(0).node.store.len(), 0);
}

#[test]
fn another_scheme_begins_when_what_waits_has_left() {
    let mut net = pair_with("scheme = \"packet\"", true, &good_link(), 7);
    net.run_to(1_000);
    net.start_sources(1_000, 200, 100 * MICRO_NS);
    net.run_to(1_010);
    let held = net.end(0).peer().tx.held.packets;
    assert!(held > 10);
    net.net.with_node(net.ends[0], |end, _, out| {
        let new = config(0, true, "10mbit", "edge");
        let endpoint = Some(ADDRESSES[1].parse().expect("an address"));
        let mut random = || -> RandomSource { Box::new(|bytes| bytes.fill(1)) };
        end.node.reconfigure(&new, &[endpoint], &mut random).expect("a good configuration");
        end.node.pump_all(&mut end.env);
        end.after(out);
    });
    net.run_to(2_000);
    let tx = net.end(0).peer().tx;
    assert_eq!((tx.held.packets, tx.dropped["cleared"].packets), (0, 0));
    net.start_sources(2_000, 200, 100 * MICRO_NS);
    net.run_to(4_000);
    assert!(net.end(1).peer().rx.blocks > 0);
    net.assert_nothing_altered_or_doubled();
    // If the port never runs dry, what waits is dropped in the end.
    net.start_sources(4_000, 100_000, 100 * MICRO_NS);
    net.run_to(4_100);
    net.net.with_node(net.ends[0], |end, _, _| {
        let new = config(0, true, "10mbit", "packet");
        let mut random = || -> RandomSource { Box::new(|bytes| bytes.fill(1)) };
        end.node.reconfigure(&new, &[None], &mut random).expect("a good configuration");
    });
    net.run_to(8_000);
    let blocks = net.end(1).peer().rx.blocks;
    net.run_to(9_000);
    assert_eq!(net.end(1).peer().rx.blocks, blocks, "packets are compressed one by one now");
    assert!(net.end(0).peer().tx.dropped["cleared"].packets > 0);
}

#[test]
fn blocks_that_claim_too_much_or_hold_no_packets_are_counted() {
    let mut net = pair(false, "10mbit", "none", &good_link(), 8);
    net.run_to(1_000);
    // 64 KiB from a few bytes, for each codec that there is and for some that there aren't.
    for codec in 0..16 {
        let block = Block { codec, flags: 0, original_len: 65_535, data: &[0xff; 40] };
        let datagram = plain_datagram(&mut net, |body| body.block(&block).expect("room"));
        net.net.inject((net.ends[0], 0), &datagram);
    }
    // A good packet, and rubbish behind it.
    let mut original = inner_packet([10, 1, 0, 5], [10, 2, 0, 9], &[7; 400]);
    original.extend([0x99; 500]);
    let mut data = vec![0; 900];
    let mut compressor = dwell_codec::Compressor::new("lz4".parse().expect("a codec"), None)
        .expect("it is built in");
    let len = compressor.compress(&original, &mut data).expect("lz4 works").expect("it shrinks");
    for flags in [0, 1, 4] {
        let original_len = original.len() as u16;
        let block = Block { codec: 1, flags, original_len, data: &data[..len] };
        let datagram = plain_datagram(&mut net, |body| body.block(&block).expect("room"));
        net.net.inject((net.ends[0], 0), &datagram);
    }
    net.run_to(2_000);
    let rx = net.end(1).peer().rx;
    assert_eq!((rx.decode_failed + rx.malformed, rx.blocks), (16 + 1 + 1 + 1, 1));
    assert_eq!(net.end(1).env.delivered.len(), 1);
    assert!(net.end(1).is_up());
}
