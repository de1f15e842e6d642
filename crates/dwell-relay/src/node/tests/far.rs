//! Long round trips: what senders mend themselves is not sent again.

use dwell_base::time::{MICRO_NS, MILLI_NS};
use dwell_testkit::{LinkSpec, extent};

use super::contexts::{assert_sound, lost_of_thousand, pair_of};
use super::harness::*;

const AUTO: &str = "scheme = \"host-pair\"\ncodec = \"zstd:3\"\nhistory = \"host-pair\"";
const ONCE: &str = "scheme = \"host-pair\"\ncodec = \"zstd:3\"\nretransmit = false";
const EDGE: &str = "scheme = \"edge\"\ncodec = \"lz4\"";

fn far_link(loss: f64) -> LinkSpec {
    good_link().with_delay_ns(300 * MILLI_NS).with_loss(loss)
}

/// A minute of packets over 600 ms, of TCP or UDP; in the middle third this part of all datagrams is lost. Returns the mode
/// and the datagrams sent again, as the other end asked for them, before that, eight seconds later, and in the end.
fn thirds(lines: &str, is_tcp: bool, loss: f64, seed: u64) -> (Net, [(String, u64); 4]) {
    let mut net = pair_of([lines; 2], &far_link(0.0), seed);
    for id in net.ends {
        net.net.with_node(id, |end, _, _| end.is_tcp = is_tcp);
    }
    net.run_to(4_000);
    // Edge compresses what waits only.
    let random = if lines == EDGE { 0.5 } else { 0.1 };
    net.set_traffic(Traffic { flows: 20, six: true, random, ..Traffic::default() });
    // More than the link takes in either case.
    let spacing_ns = if extent::is_everything() { 250 } else { 500 } * MICRO_NS;
    net.start_sources(4_000, 60_000 * MILLI_NS / spacing_ns, spacing_ns);
    let thirds =
        [(24_000, loss), (32_000, loss), (44_000, 0.0), (84_000, 0.0)].map(|(end_ms, next)| {
            net.run_to(end_ms);
            let tx = net.end(0).peer().tx;
            net.links
                .iter()
                .for_each(|&link| net.net.set_link(link, far_link(next).with_seed(seed)));
            (tx.contexts.mode, tx.resent_datagrams - tx.copied_datagrams)
        });
    assert_sound(&net);
    (net, thirds)
}

#[test]
fn what_senders_mend_is_not_sent_again_and_refers_to_nothing() {
    for (loss, seed) in extent::cases(1, vec![(0.03, 2), (0.01, 1), (0.1, 3)]) {
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

/// Twenty seconds of packets, one each in so many ns, of which this part is lost, over a path that has lost some before.
fn lossy(lines: &str, (loss, random): (f64, f64), spacing_ns: u64, seed: u64) -> Net {
    let mut net = pair_of([lines; 2], &far_link(loss), seed);
    for id in net.ends {
        net.net.with_node(id, |end, _, _| end.is_tcp = true);
    }
    net.run_to(8_000); // hellos get lost as well
    net.set_traffic(Traffic { flows: 20, six: true, random, ..Traffic::default() });
    net.start_sources(8_000, 20_000 * MILLI_NS / spacing_ns, spacing_ns);
    net.run_to(30_000);
    assert_sound(&net);
    net
}

#[test]
fn on_an_idle_link_all_goes_twice_and_few_are_lost() {
    for seed in 1..4 {
        let net = lossy(AUTO, (0.1, 0.1), 20 * MILLI_NS, seed);
        let once = lossy(ONCE, (0.1, 0.1), 20 * MILLI_NS, seed);
        let lost = [&net, &once].map(lost_of_thousand);
        assert!(lost[0] <= 20 && lost[1] >= 70, "{lost:?}");
        // Both come while the sender goes on, so that hardly any is overtaken: an original that comes after its copy is dropped.
        let late = net.late_in_flow();
        assert!(late * 100 < net.end(0).peer().tx.sent.packets as usize, "{late}");
        let rx = net.end(1).peer().rx;
        assert!(rx.recovered_datagrams > 50, "{rx:?}");
    }
}

#[test]
fn nothing_goes_twice_where_nothing_is_lost() {
    let tx = lossy(AUTO, (0.0, 0.1), 20 * MILLI_NS, 1).end(0).peer().tx;
    // Until it is known that nothing is.
    assert!((1..=256).contains(&tx.copied_datagrams), "{}", tx.copied_datagrams);
}

/// Who waits for the link goes first.
#[test]
fn a_full_link_carries_no_copies() {
    let tx = lossy(AUTO, (0.1, 1.0), 250 * MICRO_NS, 1).end(0).peer().tx;
    assert!(tx.copied_datagrams * 100 < tx.frames, "{} of {}", tx.copied_datagrams, tx.frames);
}

#[test]
fn what_must_be_sent_once_is() {
    let class = "[[class]]\nname = \"all\"\nprotocols = [\"tcp\"]\nretransmit = false";
    let net = lossy(&format!("{AUTO}\n{class}"), (0.1, 0.1), 20 * MILLI_NS, 1);
    let tx = net.end(0).peer().tx;
    assert_eq!(tx.copied_datagrams, 0);
    assert!(lost_of_thousand(&net) > 70);
}

#[test]
fn what_is_paid_for_by_the_byte_goes_once() {
    let lines = "scheme = \"auto\"\nobjective = \"bytes\"";
    let tx = lossy(lines, (0.1, 0.1), 20 * MILLI_NS, 1).end(0).peer().tx;
    assert_eq!(tx.copied_datagrams, 0);
}

/// What comes first of a transfer decides how fast it becomes.
#[test]
fn the_first_packets_over_a_long_path_wait_for_nothing() {
    let mut net = pair_of([AUTO; 2], &far_link(0.1), 1);
    for id in net.ends {
        net.net.with_node(id, |end, _, _| end.is_tcp = true);
    }
    // Hellos get lost as well, and nobody speaks for a while.
    net.run_to(30_000);
    net.start_sources(30_000, 250, 4 * MILLI_NS);
    net.run_to(34_000);
    assert_sound(&net);
    for side in [0, 1] {
        let mut delays_ns = net.each_delay_ns(side, 0..=u16::MAX);
        delays_ns.sort_unstable();
        let [typical, late] = [50, 99].map(|part| delays_ns[delays_ns.len() * part / 100]);
        assert!(late < typical + 100 * MILLI_NS, "{typical} {late}");
        assert!(delays_ns.len() > 240, "{}", delays_ns.len());
    }
}
