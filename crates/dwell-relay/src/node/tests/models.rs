//! Batches that are predicted by models, between nodes.

use dwell_base::time::{MICRO_NS, MILLI_NS};

use super::contexts::{
    assert_sound, is_damaged, lost_of_thousand, pair_of, pair_of_rate, peers, run,
};
use super::harness::*;

const PPM: &str = "scheme = \"auto\"\ncodec = \"ppm\"\nmodel_memory = \"1MiB\"";
const ZSTD: &str = "scheme = \"auto\"\ncodec = \"zstd:6\"";

#[test]
fn batches_are_predicted_and_smaller_than_zstds() {
    let (ppm, zstd) = (run([PPM; 2], &good_link(), 1), run([ZSTD; 2], &good_link(), 1));
    for side in [0, 1] {
        let (tx, rx) = (ppm.end(side).peer().tx, ppm.end(1 - side).peer().rx);
        assert_eq!(tx.sent.packets, rx.packets.packets);
        let (sent, came) = (&tx.contexts, &rx.contexts);
        assert!(sent.batches > 100 && sent.batches == came.batches, "{sent:?}, {came:?}");
        assert_eq!((sent.bytes_in, sent.bytes_out), (came.bytes_out, came.bytes_in));
        assert_eq!((came.gaps, came.lost_generations), (0, 0));
        assert!(sent.model_generations >= 2 && sent.model_generations == came.model_generations);
        let ratio = |of: &Net| {
            let tx = of.end(side).peer().tx.contexts;
            tx.bytes_out as f64 / tx.bytes_in as f64
        };
        assert!(ratio(&ppm) < 0.9 * ratio(&zstd), "{} {}", ratio(&ppm), ratio(&zstd));
    }
    assert_eq!(peers(&ppm)[0].codec, "ppm");
}

#[test]
fn what_was_lost_comes_again_before_what_it_predicts() {
    for (loss, at_most) in [(0.01, 1), (0.1, 40)] {
        for seed in 0..3 {
            let net = run([PPM; 2], &good_link().with_loss(loss).with_reorder(loss), seed);
            let lost = lost_of_thousand(&net);
            assert!(lost <= at_most, "{loss}, seed {seed}: {lost}");
            assert!(net.end(1).peer().rx.contexts.model_generations > 0);
        }
    }
}

/// A peer that takes no models, one that takes fewer and smaller ones, and one that begins again.
#[test]
fn a_peer_is_sent_no_more_models_than_it_takes() {
    let none = format!("{ZSTD}\nmodels_max = 0");
    let one = format!("{ZSTD}\nmodels_max = 1\nmodel_memory = \"2MiB\"");
    let asks = "scheme = \"auto\"\ncodec = \"ppm:8\"\nmodel_memory = \"16MiB\"";
    for (theirs, contexts) in [(&none, 0), (&one, 1)] {
        let mut net = pair_of([asks, theirs], &good_link(), 3);
        net.run_to(2_000);
        net.start_sources(2_000, 12_000, 250 * MICRO_NS);
        net.run_to(4_000);
        let (tx, rx) = (peers(&net)[0].tx.contexts.clone(), peers(&net)[1].rx.contexts.clone());
        // Packets of two pairs of hosts.
        assert_eq!((tx.model_generations, rx.model_generations), (contexts, contexts), "{tx:?}");
        assert!(tx.open == 2 && rx.batches > 100, "{rx:?}");
        let memory = (2 << 20) * contexts + (8 << 20);
        assert!(rx.memory_bytes < memory, "{rx:?}");
        // Nor the other way: nobody asked for it there.
        assert_eq!(peers(&net)[1].tx.contexts.model_generations, 0);
        let config = config_of(1, true, "9mbit", theirs);
        net.restart(1, &config, 1_000);
        net.run_to(8_000);
        for peer in peers(&net) {
            assert!(peer.rx.contexts.batches > 100 && !is_damaged(&peer), "{:?}", peer.rx.contexts);
        }
        assert_eq!(peers(&net)[1].rx.contexts.model_generations, contexts);
    }
}

/// Another order, and zstd: generations of both follow each other.
#[test]
fn another_codec_begins_another_generation_and_loses_nothing() {
    let mut net = pair_of([PPM; 2], &good_link(), 9);
    net.run_to(1_000);
    net.start_sources(1_000, 12_000, 250 * MICRO_NS);
    for (turn, codec) in ["ppm:3", "zstd:3", "ppm:12"].into_iter().enumerate() {
        net.run_to(1_700 + 700 * turn as u64);
        let config = config_of(0, true, "9mbit", &PPM.replace("ppm", codec));
        net.reconfigure(0, &config);
    }
    net.run_to(7_000);
    assert_sound(&net);
    net.assert_flows_in_order();
    assert_eq!(lost_of_thousand(&net), 0);
    let tx = net.end(0).peer().tx.contexts;
    assert_eq!((tx.generations["reconfigured"], tx.model_generations), (2 * 3, 2 * 3), "{tx:?}");
}

/// Nobody has configured a codec: each context has the one that is best for the rate, and nothing is lost
/// when that changes.
#[test]
fn contexts_pick_the_codec_that_carries_most() {
    let auto =
        |more: &str| format!("scheme = \"auto\"\ncodec = \"auto\"\nmodel_memory = \"1MiB\"{more}");
    for (rate, models, wanted) in
        [("1mbit", "", "ppm:"), ("1mbit", "\nmodels_max = 0", "zstd:15"), ("900mbit", "", "zstd:1")]
    {
        let mut net = pair_of_rate([&auto(""), &auto(models)], rate, &good_link(), 5);
        net.run_to(2_000);
        net.start_sources(2_000, 24_000, 250 * MICRO_NS);
        net.run_to(20_000);
        assert_sound(&net);
        net.assert_flows_in_order();
        assert_eq!(lost_of_thousand(&net), 0);
        let tx = net.end(0).peer().tx.contexts;
        let is_wanted = |name: &String| name.starts_with(wanted);
        assert!(tx.codecs.keys().any(is_wanted), "{rate}: {:?}", tx.codecs);
        assert_eq!(net.end(0).peer().codec, "auto");
    }
}

/// Where the path loses too much for batches that refer to all before them, zstd's stand alone; and models
/// come back with a path that is good.
#[test]
fn models_give_way_to_batches_that_stand_alone() {
    let mut net = pair_of([PPM; 2], &good_link().with_delay_ns(30 * MILLI_NS).with_loss(0.1), 6);
    net.run_to(2_000);
    net.start_sources(2_000, 160_000, 250 * MICRO_NS);
    net.run_to(20_000);
    let before = net.end(0).peer().tx.contexts;
    assert_eq!(before.mode, "acknowledged");
    net.links.iter().for_each(|&link| net.net.set_link(link, good_link()));
    net.run_to(40_000);
    let after = net.end(0).peer().tx.contexts;
    assert_eq!(after.mode, "running");
    assert!(after.model_generations > before.model_generations, "{after:?}");
    assert!(!is_damaged(&net.end(1).peer()));
}
