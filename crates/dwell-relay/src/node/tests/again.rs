//! Packets that were lost with a generation of their context and are sent in the next one, and contexts that can't
//! go on and begin again.

use dwell_base::time::{MICRO_NS, MILLI_NS, SECOND_NS};

use super::contexts::{assert_sound, pair_of};
use super::harness::*;

const RUNNING: &str = "scheme = \"host-pair\"\ncodec = \"zstd:3\"\nhistory = \"host-pair\"\n\
                       history_mode = \"running\"";

/// Batches flow for three seconds; in the middle, the path from the first end to the second loses this part for so
/// long. Returns how many packets did not come, and how many were encoded again.
fn lose(seed: u64, (loss, for_ms): (f64, u64), encodes_again: bool) -> (usize, usize) {
    let mut net = pair_of([RUNNING; 2], &good_link(), seed);
    if !encodes_again {
        net.net.with_node(net.ends[0], |end, _, _| {
            end.node.peers[0].contexts.outgoing.forgets_lost = true;
        });
    }
    net.run_to(2_000);
    net.start_sources(2_000, 12_000, 250 * MICRO_NS);
    net.run_to(3_000);
    net.net.set_link(net.links[0], good_link().with_loss(loss).with_seed(seed));
    net.run_to(3_000 + for_ms);
    net.net.set_link(net.links[0], good_link());
    net.run_to(12_000);
    assert_sound(&net);
    let from = net.end(0);
    assert_eq!(from.made.len(), 12_000);
    // What went the other way lost nothing.
    assert_eq!(net.end(0).env.delivered.len(), 12_000);
    let longest_ns = net.each_delay_ns(1, 0..=u16::MAX).into_iter().max().unwrap_or_default();
    assert!(longest_ns < 3 * SECOND_NS + 500 * MILLI_NS, "{longest_ns}: nobody waits for so long");
    let again = from.peer().tx.contexts.encoded_again_packets as usize;
    (from.made.len() - net.end(1).env.delivered.len(), again)
}

/// Nothing passes for longer than the peer waits for what is missing, or most does and is lost in the end.
#[test]
fn packets_that_were_lost_with_a_generation_come_with_the_next() {
    let mut all = 0;
    for case in [(1.0, 300), (1.0, 1_500), (0.5, 1_000)] {
        for seed in 0..3 {
            let (missing, again) = lose(seed, case, true);
            let (missing_without, none) = lose(seed, case, false);
            assert_eq!(none, 0);
            // 256 KiB of each of the two contexts.
            assert!(again > 500 || case.0 < 1.0, "{case:?}, seed {seed}: {again}");
            all += again;
            // Where some pass, more generations may be lost than without.
            let most = missing_without.saturating_sub(again * 9 / 10);
            assert!(
                missing <= most,
                "{case:?}, seed {seed}: {missing} of {missing_without}, {again}"
            );
        }
    }
    assert!(all > 6 * 500 + 200, "{all}");
}

/// All reports are lost for minutes while generations end. Batches enter contexts again, with a session in which
/// both ends begin from nothing, whether reports pass then or not.
#[test]
fn contexts_without_reports_for_minutes_begin_again() {
    let configs = [0, 1].map(|side| config_of(side, true, "200kbit", RUNNING));
    for hears_again in [true, false] {
        let mut net = Net::new(&configs, &good_link(), 4);
        net.set_traffic(Traffic { random: 0.0, ..Traffic::default() });
        net.run_to(1_000);
        net.start_sources(1_000, u64::MAX, 25 * MILLI_NS);
        let tx = |net: &Net| net.end(0).peer().tx.contexts;
        net.net.with_node(net.ends[0], |end, _, _| {
            end.node.peers[0].contexts.outgoing.is_deaf = true;
        });
        let mut s = 1;
        while tx(&net).restarts == 0 {
            s += 1;
            assert!(s < 600, "{:?}", tx(&net));
            net.run_to(s * 1_000 + 100);
            net.net.with_node(net.ends[0], |end, now, _| {
                end.node.peers[0].contexts.outgoing.dropped(now);
            });
        }
        assert!(tx(&net).generations["dropped"] >= 126, "{:?}", tx(&net));
        let batches = net.end(1).peer().rx.contexts.batches;
        net.net.with_node(net.ends[0], |end, _, _| {
            end.node.peers[0].contexts.outgoing.is_deaf = !hears_again;
        });
        net.run_to(s * 1_000 + 5_000);
        let rx = net.end(1).peer().rx.contexts;
        assert!(rx.batches > batches + 50, "{batches}: {rx:?}");
        net.assert_nothing_altered_or_doubled();
    }
}
