//! Batches whose contexts are mixed, between nodes.

use dwell_base::time::MICRO_NS;
use dwell_testkit::extent;
use dwell_wire::{ContextOffer, ModelOffer};

use super::contexts::{
    assert_sound, is_damaged, lost_of_thousand, pair_of, pair_of_rate, peers, run,
};
use super::harness::*;

const MIX: &str = "scheme = \"auto\"\ncodec = \"mix\"\nmodel_memory = \"1MiB\"";
const PPM: &str = "scheme = \"auto\"\ncodec = \"ppm:12\"\nmodel_memory = \"1MiB\"";
const AUTO: &str = "scheme = \"auto\"\ncodec = \"auto\"\nmodel_memory = \"4MiB\"";

const LINES: &[u8] = include_bytes!("../../../../../data/telemetry/zed-f9p.nmea");
const PROSE: &[u8] = include_bytes!("../../../../../data/text/alice29.txt");

/// These ends offer as a version does that knows no mixing.
fn offer_no_mixing(net: &mut Net, ends: impl IntoIterator<Item = usize>) {
    let less = |offer: ContextOffer| {
        let models = offer.models.map(|it| ModelOffer { takes_mixed: false, ..it });
        ContextOffer { models, ..offer }
    };
    for side in ends {
        let id = net.ends[side];
        net.net.with_node(id, |end, _, _| end.node.peers[0].offer_less(less));
    }
}

#[test]
fn batches_are_mixed_and_all_come_in_order() {
    let net = run([MIX; 2], &good_link(), 1);
    for side in [0, 1] {
        let (tx, rx) = (net.end(side).peer().tx, net.end(1 - side).peer().rx);
        assert_eq!(tx.sent.packets, rx.packets.packets);
        let (sent, came) = (&tx.contexts, &rx.contexts);
        assert!(sent.batches > 100 && sent.batches == came.batches, "{sent:?}, {came:?}");
        assert_eq!((sent.bytes_in, sent.bytes_out), (came.bytes_out, came.bytes_in));
        assert_eq!((came.gaps, came.lost_generations), (0, 0));
        assert!(sent.model_generations >= 2 && sent.model_generations == came.model_generations);
        assert!(sent.codecs.contains_key("mix"), "{:?}", sent.codecs);
    }
    assert_eq!(peers(&net)[0].codec, "mix");
}

#[test]
fn what_was_lost_comes_again_before_what_it_is_mixed_with() {
    for (loss, at_most) in [(0.01, 1), (0.1, 40)] {
        let net = run([MIX; 2], &good_link().with_loss(loss).with_reorder(loss), 2);
        let lost = lost_of_thousand(&net);
        assert!(lost <= at_most, "{loss}: {lost}");
        assert!(net.end(1).peer().rx.contexts.model_generations > 0);
    }
}

/// A thread has the decoder for long, at the end of each generation's first batch too, and others follow: of ppm, and of
/// zstd.
#[test]
fn another_codec_begins_another_generation_and_loses_nothing() {
    let mut net = pair_of([MIX; 2], &good_link(), 9);
    net.net.with_node(net.ends[1], |end, _, _| end.env.decode_worker = Some(Vec::new()));
    net.run_to(1_000);
    net.start_sources(1_000, 8_000, 400 * MICRO_NS);
    for (turn, codec) in ["ppm:3", "mix", "zstd:3", "mix"].into_iter().enumerate() {
        for ms in 0..700 {
            net.run_to(1_000 + 700 * turn as u64 + ms);
            net.net.with_node(net.ends[1], |end, now, out| {
                end.env.now.set(now);
                end.decode_in_contexts();
                end.node.pump_all(&mut end.env);
                end.after(out);
            });
        }
        let config = config_of(0, true, "9mbit", &MIX.replace("mix", codec));
        net.reconfigure(0, &config);
    }
    for ms in 3_800..9_000 {
        net.run_to(ms);
        net.net.with_node(net.ends[1], |end, now, out| {
            end.env.now.set(now);
            end.decode_in_contexts();
            end.node.pump_all(&mut end.env);
            end.after(out);
        });
    }
    assert_sound(&net);
    net.assert_flows_in_order();
    assert_eq!(lost_of_thousand(&net), 0);
    let tx = net.end(0).peer().tx.contexts;
    assert_eq!((tx.generations["reconfigured"], tx.model_generations), (2 * 4, 2 * 4), "{tx:?}");
}

/// It has zstd instead, as has a peer that takes no models.
#[test]
fn an_older_peer_is_sent_nothing_that_is_mixed() {
    for older in [[0].as_slice(), &[1]] {
        let mut net = pair_of([MIX; 2], &good_link(), 3);
        offer_no_mixing(&mut net, older.iter().copied());
        net.run_to(2_000);
        net.start_sources(2_000, 4_000, 250 * MICRO_NS);
        net.run_to(6_000);
        assert_sound(&net);
        for peer in peers(&net) {
            assert_eq!(peer.tx.contexts.model_generations, 0, "{:?}", peer.tx.contexts);
            assert!(peer.rx.contexts.batches > 100 && !is_damaged(&peer));
        }
    }
    let mut net = pair_of([PPM; 2], &good_link(), 3);
    offer_no_mixing(&mut net, [1]);
    net.run_to(2_000);
    net.start_sources(2_000, 4_000, 250 * MICRO_NS);
    net.run_to(6_000);
    assert!(peers(&net)[1].rx.contexts.model_generations > 0, "ppm it takes");
}

/// What is carried of lines of telemetry and of prose with nothing configured, where both know mixing and where one does not:
/// packets, and the codecs in the end.
fn carried(content: &'static [u8], rate: &str, spacing_ns: u64, mixes: bool) -> (u64, Vec<String>) {
    let mut net = pair_of_rate([AUTO; 2], rate, &good_link(), 5);
    net.set_traffic(Traffic { flows: 4, six: false, payload_max: 94, random: 0.0 });
    for id in net.ends {
        net.net.with_node(id, |end, _, _| end.content = Some(content));
    }
    if !mixes {
        offer_no_mixing(&mut net, [1]);
    }
    net.run_to(2_000);
    // Only one direction: the other one would take as long again.
    let packets = 24_000_000_000 / spacing_ns;
    net.start_source(0, 2_000, packets, spacing_ns);
    net.run_to(12_000);
    let before = net.end(1).peer().rx.packets.packets;
    net.run_to(25_000);
    let after = net.end(1).peer();
    assert!(!is_damaged(&after));
    let codecs = net.end(0).peer().tx.contexts.codecs.into_keys().collect();
    (after.rx.packets.packets - before, codecs)
}

#[test]
fn thin_links_of_lines_are_mixed_where_nothing_is_configured() {
    let rates = vec![("64kbit", 400 * MICRO_NS), ("256kbit", 120 * MICRO_NS)];
    for (rate, spacing_ns) in extent::cases(1, rates) {
        let (with, codecs) = carried(LINES, rate, spacing_ns, true);
        let (without, others) = carried(LINES, rate, spacing_ns, false);
        println!("{rate}: {with} packets with {codecs:?}, {without} with {others:?}");
        assert!(codecs.iter().any(|it| it == "mix"), "{codecs:?}");
        assert!(others.iter().all(|it| it != "mix"), "{others:?}");
        assert!(with * 20 > without * 21, "{rate}: {with} {without}");
    }
}

/// Nor does prose lose by it, of which it leaves as much as ppm or a little more.
#[test]
fn prose_on_thin_links_is_carried_as_before() {
    let rates = vec![("64kbit", 4_000 * MICRO_NS), ("256kbit", 1_000 * MICRO_NS)];
    for (rate, spacing_ns) in extent::cases(1, rates) {
        let (with, codecs) = carried(PROSE, rate, spacing_ns, true);
        let (without, others) = carried(PROSE, rate, spacing_ns, false);
        println!("{rate}: {with} packets with {codecs:?}, {without} with {others:?}");
        assert!(with * 50 > without * 49, "{rate}: {with} {without}");
    }
}
