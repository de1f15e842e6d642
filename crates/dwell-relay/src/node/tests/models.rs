//! Batches that are predicted by models, between nodes.

use dwell_base::Rate;
use dwell_base::time::{MICRO_NS, MILLI_NS};
use dwell_testkit::extent;

use super::contexts::{
    assert_sound, is_damaged, lost_of_thousand, offer_no_prediction, pair_of, pair_of_rate, peers,
    run,
};
use super::harness::*;
use crate::node::NodeEvent;
use dwell_report::status::Problem;

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
        for seed in extent::seeds(1, 3) {
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

/// Nobody has configured a codec: each context has one that carries as much as any does for the rate, and nothing is lost
/// when that changes.
#[test]
fn contexts_pick_the_codec_that_carries_most() {
    let carried = |codec: &str, models: &str| {
        let lines = format!("scheme = \"auto\"\ncodec = \"{codec}\"\nmodel_memory = \"1MiB\"");
        let theirs = format!("{lines}{models}");
        let mut net = pair_of_rate([&lines, &theirs], "1mbit", &good_link(), 5);
        // With predicted headers so little is left of these packets that the processor would be the bound.
        offer_no_prediction(&mut net, [0, 1]);
        net.run_to(2_000);
        net.start_sources(2_000, 60_000, 250 * MICRO_NS);
        net.run_to(10_000);
        let before = net.end(1).peer().rx.packets.packets;
        net.run_to(17_000);
        let packets = net.end(1).peer().rx.packets.packets - before;
        net.run_to(26_000);
        assert_sound(&net);
        net.assert_flows_in_order();
        assert_eq!(lost_of_thousand(&net), 0);
        let tx = net.end(0).peer().tx.contexts;
        assert_eq!(tx.generations["picked"] > 0, codec == "auto", "{:?}", tx.generations);
        assert!(codec.starts_with(&net.end(0).peer().codec));
        (packets, tx.codecs)
    };
    let none = "\nmodels_max = 0";
    let [ppm, zstd] = ["ppm:6", "zstd:15"].map(|codec| carried(codec, "").0);
    let ((with, codecs), (without, others)) = (carried("auto", ""), carried("auto", none));
    // Not from the beginning: it has to find them.
    assert!(with as f64 > 0.95 * ppm.max(zstd) as f64, "{with} {ppm} {zstd} {codecs:?}");
    assert!(without as f64 > 0.95 * zstd as f64, "{without} {zstd} {others:?}");
    assert!(others.keys().all(|name| name.starts_with("zstd:")), "{others:?}");
}

/// A processor of which little was to be had, and then all: that what is compressed has to wait no longer is noticed,
/// also where nobody measures it any more.
#[test]
fn a_processor_that_was_slow_is_not_slow_for_ever() {
    let auto = "scheme = \"auto\"\ncodec = \"auto\"\nmodel_memory = \"1MiB\"";
    for later in [Some(1), None] {
        let mut net = pair_of_rate([auto; 2], "1mbit", &good_link(), 5);
        net.run_to(2_000);
        net.start_sources(2_000, 50_000, MILLI_NS);
        let mut models = Vec::new();
        for (slowdown, until_ms) in [(Some(2_000), 12_000), (later, 50_000)] {
            net.net.with_node(net.ends[0], |end, _, _| end.env.context_slowdown = slowdown);
            net.run_to(until_ms);
            let codecs = net.end(0).peer().tx.contexts.codecs;
            models.push(codecs.keys().any(|name| name.starts_with("ppm:")));
        }
        assert_eq!(models, [false, true], "{later:?}");
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

/// Short batches are decoded at once, but for those with which the model's memory may become full.
#[test]
fn a_model_that_may_learn_again_is_decoded_by_a_thread() {
    /// What short batches are expected to take at most, in nanoseconds.
    const SHORT_NS: u64 = 600 * 64 * 4;
    let short_jobs = |memory: &str| {
        let lines = format!("scheme = \"auto\"\ncodec = \"ppm:6\"\nmodel_memory = \"{memory}\"");
        let mut net = pair_of_rate([&lines; 2], "600kbit", &good_link(), 4);
        net.net.with_node(net.ends[1], |end, _, _| end.env.decode_worker = Some(Vec::new()));
        net.set_traffic(Traffic { flows: 4, six: false, payload_max: 120, random: 0.9 });
        net.run_to(1_000);
        net.start_sources(1_000, 20_000, 1_000 * MICRO_NS);
        let mut short = 0;
        for ms in 1_000..22_000 {
            net.run_to(ms);
            net.net.with_node(net.ends[1], |end, now, out| {
                end.env.now.set(now);
                let jobs = end.env.decode_worker.as_ref().expect("it is there");
                short += jobs.iter().filter(|job| job.cost_ns <= SHORT_NS).count() as u64;
                end.decode_in_contexts();
                end.node.pump_all(&mut end.env);
                end.after(out);
            });
        }
        assert_sound(&net);
        (short, net.end(1).peer().rx.contexts.batches)
    };
    let (small, batches) = short_jobs("1MiB");
    let (large, _) = short_jobs("16MiB");
    println!("{small} with a small memory, {large} with a large one, of {batches} batches");
    assert!(small > 0 && small * 4 < batches && large == 0, "{small} {large} {batches}");
}

/// What comes while a thread decodes waits for it, whatever it is; so does what refers to what is missing.
#[test]
fn a_thread_that_decodes_slowly_keeps_order() {
    for (loss, at_most) in [(0.0, 0), (0.02, 10)] {
        for (seed, every) in [(4, 1), (5, 4), (6, 9)] {
            let link = good_link().with_loss(loss).with_reorder(loss);
            let mut net = pair_of([PPM; 2], &link, seed);
            for id in net.ends {
                net.net.with_node(id, |end, _, _| end.env.decode_worker = Some(Vec::new()));
            }
            net.run_to(1_000);
            net.start_sources(1_000, 4_000, 250 * MICRO_NS);
            let mut went = 0;
            for step in 0..8_000 {
                net.run_to(1_000 + step);
                for id in net.ends {
                    net.net.with_node(id, |end, now, out| {
                        end.env.now.set(now);
                        went += end.env.decode_worker.as_ref().map_or(0, Vec::len);
                        if step % every == 0 {
                            end.decode_in_contexts();
                        }
                        end.node.pump_all(&mut end.env);
                        end.after(out);
                    });
                }
            }
            assert_sound(&net);
            if loss == 0.0 {
                net.assert_flows_in_order();
            }
            let lost = lost_of_thousand(&net);
            assert!(lost <= at_most, "{loss}, seed {seed}: {lost}");
            assert!(went > 50, "{went} jobs");
            for peer in peers(&net) {
                assert!(!is_damaged(&peer) && peer.rx.contexts.held_bytes == 0, "{:?}", peer.rx);
            }
        }
    }
}

/// A node begins again while a thread has its peer's decoder, and the peer does while it has its own.
#[test]
fn a_decoder_that_comes_back_to_another_session_is_of_no_use() {
    let mut net = pair_of([PPM; 2], &good_link(), 7);
    for id in net.ends {
        net.net.with_node(id, |end, _, _| end.env.decode_worker = Some(Vec::new()));
    }
    net.run_to(1_000);
    net.start_sources(1_000, 8_000, MILLI_NS);
    let mut cancelled = 0;
    for step in 0..9_000 {
        net.run_to(1_000 + step);
        if step == 3_000 {
            let config = config_of(1, true, "9mbit", PPM);
            net.restart(1, &config, 1_000);
        }
        for id in net.ends {
            net.net.with_node(id, |end, now, out| {
                end.env.now.set(now);
                // For some seconds nothing comes back.
                if !(2_500..4_500).contains(&step) {
                    end.decode_in_contexts();
                }
                // No thread works for the node that is gone.
                if let (4_400, Some(jobs)) = (step, &end.env.decode_worker) {
                    cancelled += jobs.iter().filter(|job| job.is_cancelled()).count();
                }
                end.node.pump_all(&mut end.env);
                end.after(out);
            });
        }
    }
    assert_sound(&net);
    for peer in peers(&net) {
        let rx = &peer.rx.contexts;
        assert!(rx.batches > 100 && !is_damaged(&peer), "{rx:?}");
        assert_eq!(rx.held_bytes, 0, "{rx:?}");
    }
    assert!(cancelled > 0);
}

/// What came waits for a thread for longer than a peer may be silent, and meanwhile nothing more is read: it is not
/// taken for dead, and all that was sent is decoded in the end.
#[test]
fn a_peer_that_is_not_read_is_not_silent() {
    let mut net = pair_of([PPM; 2], &good_link(), 12);
    net.net.with_node(net.ends[1], |end, _, _| end.env.decode_worker = Some(Vec::new()));
    net.run_to(1_000);
    net.start_sources(1_000, 30_000, 500 * MICRO_NS);
    let mut clogged_ms = 0;
    for step in 0..24_000_u64 {
        net.run_to(1_000 + step);
        net.net.with_node(net.ends[1], |end, now, out| {
            end.env.now.set(now);
            clogged_ms += u64::from(end.node.is_clogged(0));
            // For eight seconds no thread does anything.
            if !(2_000..10_000).contains(&step) {
                end.decode_in_contexts();
            }
            end.node.pump_all(&mut end.env);
            end.after(out);
        });
    }
    assert!(clogged_ms > 6_000, "{clogged_ms} ms");
    assert_sound(&net);
    for end in [0, 1] {
        let downs = net.end(end).env.events.iter().filter(|it| matches!(it, NodeEvent::Down(..)));
        assert_eq!(downs.count(), 0, "{:?}", net.end(end).env.events);
    }
    assert!(!is_damaged(&peers(&net)[1]), "{:?}", peers(&net)[1].rx);
}

/// Where more comes than is decoded no models are offered for a minute: what waits is decoded then, nothing is lost,
/// and what comes is of zstd.
#[test]
fn who_can_not_keep_up_offers_no_models_for_a_while() {
    let mut net = pair_of([PPM; 2], &good_link(), 11);
    net.net.with_node(net.ends[1], |end, _, _| end.env.decode_worker = Some(Vec::new()));
    net.run_to(1_000);
    net.start_sources(1_000, 40_000, 2 * MILLI_NS);
    let (mut with_models, mut changes, mut is_said) = (Vec::new(), Vec::new(), false);
    for step in 0..85_000_u64 {
        net.run_to(1_000 + step);
        net.net.with_node(net.ends[1], |end, now, out| {
            end.env.now.set(now);
            // A batch each 40 ms: a quarter of what comes.
            if step % 40 == 0 {
                end.decode_in_contexts();
            }
            end.node.pump_all(&mut end.env);
            end.after(out);
            let has =
                end.peer().problems.iter().any(|it| it.problem == Problem::DecodesSlowly.name());
            if std::mem::replace(&mut is_said, has) != has {
                changes.push(step);
            }
        });
        if step % 5_000 == 0 {
            with_models.push(net.end(1).peer().rx.contexts.model_generations);
        }
    }
    assert_sound(&net);
    assert_eq!(lost_of_thousand(&net), 0);
    let rx = &peers(&net)[1].rx.contexts;
    assert!(rx.held_bytes == 0 && !is_damaged(&peers(&net)[1]), "{rx:?}");
    // It is a problem for a minute, and then, with all as it was, for longer.
    let [begins, ends, again] = changes[..] else { panic!("it changes at {changes:?} ms") };
    assert!((2_000..5_000).contains(&begins), "{begins}");
    assert!((60_000..60_100).contains(&(ends - begins)), "{begins} to {ends}");
    assert!((2_000..5_000).contains(&(again - ends)), "{again} after {ends}");
    // None begins in the minute, and then they do again.
    let (first, last) = (with_models[2], *with_models.last().unwrap());
    assert!(first > 0 && with_models[3..12].iter().all(|&it| it == first), "{with_models:?}");
    assert!(last > first, "{with_models:?}");
}

/// Over a fast link batches pass contexts by, compressed by lz4, and enter them when it turns out to be a thinner one. Nothing is
/// lost or passed by others of its flow for that.
#[test]
fn over_fast_links_batches_pass_contexts_by() {
    let lines = "scheme = \"auto\"\ncodec = \"auto\"";
    let link = good_link().with_rate(Rate::from_mbps(500));
    let mut net = pair_of_rate([lines; 2], "490mbit", &link, 5);
    net.run_to(2_000);
    net.start_sources(2_000, 300_000, 10 * MICRO_NS);
    let mut batches = 0;
    for (rate, until_ms, is_fast) in [("490mbit", 2_500, true), ("50mbit", 4_000, false)] {
        net.reconfigure(0, &config_of(0, true, rate, lines));
        net.run_to(until_ms);
        let tx = net.end(0).peer().tx;
        let name = if is_fast { "lz4" } else { "zstd:" };
        let codecs = &tx.contexts.codecs;
        assert!(
            !codecs.is_empty() && codecs.keys().all(|it| it.starts_with(name)),
            "{rate}: {tx:?}"
        );
        assert_eq!(tx.contexts.batches > batches, !is_fast, "{rate}: {tx:?}");
        batches = tx.contexts.batches;
    }
    // The receiver leaves order to contexts when nothing came beside them for a while.
    let order_wait_ns = |net: &Net| net.end(1).node.peers[0].waits().order_wait_ns;
    assert!(order_wait_ns(&net) > 0);
    net.run_to(4_900);
    assert_eq!(order_wait_ns(&net), 0);
    net.reconfigure(0, &config_of(0, true, "490mbit", lines));
    net.run_to(10_000);
    assert_sound(&net);
    net.assert_flows_in_order();
    let tx = net.end(0).peer().tx;
    let rx = net.end(1).peer().rx.packets.packets;
    assert_eq!(tx.sent.packets, rx);
    assert!(tx.compressed.packets > tx.sent.packets / 4, "{tx:?}");
}

/// Where a fast link loses and reorders, too, what passes contexts by is sent again, and comes in as good an order as what never has
/// any contexts.
#[test]
fn what_passes_contexts_by_is_sent_again_and_kept_in_order() {
    let link = good_link().with_rate(Rate::from_mbps(500)).with_loss(0.01).with_reorder(0.01);
    let late = |codec: &str, seed: u64| {
        let lines = format!("scheme = \"auto\"\ncodec = \"{codec}\"");
        let mut net = pair_of_rate([&lines; 2], "490mbit", &link, seed);
        net.run_to(2_000);
        net.start_sources(2_000, 100_000, 2 * MICRO_NS);
        net.run_to(6_000);
        let tx = net.end(0).peer().tx;
        assert_eq!(tx.contexts.codecs.keys().eq(["lz4"]), codec == "auto", "{tx:?}");
        assert!(tx.resent_datagrams > 0, "{tx:?}");
        (net.late_in_flow(), net.end(1).peer().rx.packets.packets)
    };
    let of = |codec| {
        let all = extent::seeds(1, 3).map(|seed| late(codec, seed));
        all.fold((0, 0), |(late, came), it| (late + it.0, came + it.1))
    };
    let (auto, lz4) = (of("auto"), of("lz4"));
    assert!(auto.0 <= lz4.0 + lz4.0 / 2 + 20, "{auto:?}, {lz4:?}");
    assert!(auto.1 >= lz4.1 * 97 / 100, "{auto:?}, {lz4:?}");
}
