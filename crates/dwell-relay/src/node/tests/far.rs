//! Long round trips: what senders mend themselves is not sent again.

use dwell_base::time::{MICRO_NS, MILLI_NS};
use dwell_testkit::LinkSpec;

use super::contexts::{assert_sound, pair_of};
use super::harness::*;

const AUTO: &str = "scheme = \"host-pair\"\ncodec = \"zstd:3\"\nhistory = \"host-pair\"";
const EDGE: &str = "scheme = \"edge\"\ncodec = \"lz4\"";

fn far_link(loss: f64) -> LinkSpec {
    good_link().with_delay_ns(300 * MILLI_NS).with_loss(loss)
}

/// A minute of packets over 600 ms, of TCP or UDP; in the middle third this part of all datagrams is lost. Returns the mode
/// and the datagrams sent again before that, eight seconds later, and in the end.
fn thirds(lines: &str, is_tcp: bool, loss: f64, seed: u64) -> (Net, [(String, u64); 4]) {
    let mut net = pair_of([lines; 2], &far_link(0.0), seed);
    for id in net.ends {
        net.net.with_node(id, |end, _, _| end.is_tcp = is_tcp);
    }
    net.run_to(4_000);
    // Edge compresses what waits only.
    let random = if lines == EDGE { 0.5 } else { 0.1 };
    net.set_traffic(Traffic { flows: 20, six: true, random, ..Traffic::default() });
    net.start_sources(4_000, 240_000, 250 * MICRO_NS);
    let thirds =
        [(24_000, loss), (32_000, loss), (44_000, 0.0), (84_000, 0.0)].map(|(end_ms, next)| {
            net.run_to(end_ms);
            let tx = net.end(0).peer().tx;
            net.links
                .iter()
                .for_each(|&link| net.net.set_link(link, far_link(next).with_seed(seed)));
            (tx.contexts.mode, tx.resent_datagrams)
        });
    assert_sound(&net);
    (net, thirds)
}

#[test]
fn what_senders_mend_is_not_sent_again_and_refers_to_nothing() {
    for (loss, seed) in [(0.01, 1), (0.03, 2), (0.1, 3)] {
        let (net, modes) = thirds(AUTO, true, loss, seed);
        let [before, soon, lossy, after] = modes;
        assert_eq!((before.0.as_str(), before.1), ("running", 0), "{loss}");
        assert_eq!((lossy.0.as_str(), after.0.as_str()), ("stateless", "running"), "{loss}");
        // What was under way when the loss began referred to what was lost.
        assert_eq!((soon.1, soon.1), (lossy.1, after.1), "{loss}");
        let rx = net.end(1).peer().rx;
        assert!(rx.blocks > 1_000, "{rx:?}");
    }
}

/// Somebody has to send that again, and whoever says so has it.
#[test]
fn what_nobody_mends_is_sent_again_however_late() {
    let always = format!("{AUTO}\nretransmit = true");
    for (lines, is_tcp) in [(AUTO, false), (&always, true)] {
        let (_, [before, _, lossy, _]) = thirds(lines, is_tcp, 0.03, 4);
        assert_eq!((before.1, lossy.0.as_str()), (0, "acknowledged"));
        assert!(lossy.1 > 150, "{lossy:?}");
    }
}

#[test]
fn blocks_of_what_is_mended_are_not_sent_again_either() {
    let [tcp, udp] = [true, false].map(|is_tcp| thirds(EDGE, is_tcp, 0.03, 5).1[3].1);
    assert!(tcp == 0 && udp > 100, "{tcp} {udp}");
}
