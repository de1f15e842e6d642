//! Datagrams that are filled while deadlines allow it.

use dwell_base::time::{MICRO_NS, MILLI_NS};
use dwell_policy::ClassKey;

use super::harness::*;

/// Small packets of twenty flows: by their ports, ten of each class.
const METERS: Traffic = Traffic { flows: 20, six: true, payload_max: 90, random: 0.3 };

const CLASSES: &str = "[[class]]\nname = \"fast\"\nports = [\"udp/1000-1009\"]\nmax_wait = \"20ms\"\n\
                       [[class]]\nname = \"slow\"\nports = [\"udp/1010-1019\"]\nmax_wait = \"60ms\"\n";

/// Ten megabits a second and 5 ms each way.
fn chunk_pair(lines: &str, seed: u64) -> Net {
    let lines = format!("{lines}\n{CLASSES}");
    Net::new(&[0, 1].map(|side| config_with(side, true, "10mbit", &lines)), &good_link(), seed)
}

fn run(net: &mut Net, packets: u64, spacing_ns: u64) {
    net.run_to(100);
    // The round trip is not known yet.
    net.set_traffic(METERS);
    net.start_sources(100, 2, MILLI_NS);
    net.run_to(500);
    net.start_sources(500, packets, spacing_ns);
    net.run_to(3_000);
}

#[test]
fn datagrams_are_filled_and_no_packet_comes_late() {
    for scheme in [
        "basicq",
        "chumq",
        "chumq+cea",
        "chutq-dcf",
        "chutq-dcf+cea",
        "chutq-tpf",
        "chutq-tpf+cea",
        "chutq-cef",
        "chutq-cef+cea",
    ] {
        for compress in [true, false] {
            let lines = format!("scheme = \"{scheme}\"\nchunk_compress = {compress}");
            let mut net = chunk_pair(&lines, 1);
            run(&mut net, 2_000, 500 * MICRO_NS);
            net.assert_nothing_altered_or_doubled();
            net.assert_flows_in_order();
            for side in [0, 1] {
                let (from, to) = (net.end(side).peer(), net.end(1 - side).peer());
                assert!(from.tx.balances() && from.tx.held.packets == 0, "{scheme}");
                assert_eq!(net.end(side).node.store.len(), 0);
                assert_eq!((from.tx.sent.packets, to.rx.packets.packets), (2_002, 2_002));
                assert!(from.tx.frames * 8 < from.tx.sent.packets, "{scheme}: {:?}", from.tx);
                assert_eq!(to.rx.blocks > 0, compress, "{scheme}");
                assert_eq!(from.one_way_ns.expect("it was measured") / MILLI_NS, 5);
                for class in &from.deadlines {
                    assert!(class.packets > 900 && class.deadline_ns > 10 * MILLI_NS);
                    // TPF lets urgent packets wait behind large ones. ChuMQ's buffers may become due
                    // at once, and then one waits for the other and for a control message.
                    let past_max = if scheme.starts_with("chumq") { 40 } else { 0 };
                    let late = class.past_deadline > past_max || class.late > 0;
                    assert!(!late || scheme.contains("tpf"), "{scheme}: {class:?}");
                }
                let (_, slowest, _) = net.delays_ns(side, 1000..=1009);
                assert!(slowest <= 20 * MILLI_NS || scheme.contains("tpf"), "{scheme}: {slowest}");
                let (_, slowest, count) = net.delays_ns(side, 1010..=1019);
                assert!(slowest <= 60 * MILLI_NS && count > 900, "{scheme}: {slowest}");
                // The port's accounts are what the link saw.
                let link = net.net.link_stats(net.links[side]);
                let seen = link.bytes_in + 42 * link.packets_in;
                assert_eq!(from.tx.link_bytes + from.tx.control_bytes, seen, "{scheme}");
            }
        }
    }
}

#[test]
fn packets_without_a_deadline_are_never_held() {
    for scheme in ["basicq", "chumq+cea", "chutq-cef"] {
        let lines = format!("scheme = \"{scheme}\"");
        let mut net = Net::new(
            &[0, 1].map(|side| config_with(side, true, "10mbit", &lines)),
            &good_link(),
            2,
        );
        run(&mut net, 200, 5 * MILLI_NS);
        let (_, slowest, count) = net.delays_ns(1, 1000..=1019);
        assert_eq!(count, 202);
        assert!(slowest < 6 * MILLI_NS, "{scheme}: {slowest} ns on an idle link");
        assert!(net.end(0).peer().tx.frames > 180);
    }
}

#[test]
fn a_way_that_takes_too_long_leaves_nothing_to_hold() {
    let mut net = chunk_pair("scheme = \"chutq-dcf\"\none_way_delay = \"30ms\"", 3);
    run(&mut net, 400, 3 * MILLI_NS);
    let [fast, slow] = &net.end(0).peer().deadlines[..] else { panic!("two classes") };
    assert_eq!((fast.deadline_ns, fast.late), (0, 0));
    assert!(slow.deadline_ns > 25 * MILLI_NS && slow.deadline_ns < 30 * MILLI_NS, "{slow:?}");
    let (_, slowest, _) = net.delays_ns(1, 1000..=1009);
    assert!(slowest < 7 * MILLI_NS, "{slowest}");
}

#[test]
fn an_overload_shows_as_violations() {
    let mut net =
        chunk_pair("scheme = \"chutq-dcf\"\nqueue_time = \"1s\"\nchunk_compress = false", 4);
    run(&mut net, 20_000, 50 * MICRO_NS);
    let peer = net.end(0).peer();
    assert!(peer.tx.balances());
    let late: u64 = peer.deadlines.iter().map(|class| class.late).sum();
    assert!(late > 1_000, "{:?}", peer.deadlines);
    let worst = peer.deadlines.iter().max_by_key(|class| class.excess_max_ns).expect("classes");
    assert!(worst.excess_mean_ns > 0 && worst.excess_mean_ns <= worst.excess_max_ns);
    net.assert_flows_in_order();
}

#[test]
fn what_must_not_be_compressed_is_not() {
    let class = "[[class]]\nname = \"secret\"\nports = [\"udp/1000-1009\"]\ncompress = false\n";
    for scheme in ["packet", "edge", "all"] {
        let lines = format!("scheme = \"{scheme}\"\n{class}");
        let mut net =
            Net::new(&[0, 1].map(|side| config_with(side, true, "2mbit", &lines)), &good_link(), 5);
        net.run_to(100);
        net.set_traffic(Traffic { payload_max: 800, ..METERS });
        net.start_sources(100, 400, MILLI_NS);
        net.run_to(5_000);
        let tx = net.end(0).peer().tx;
        assert!(tx.bypassed["exception"] > 100 && tx.compressed.packets > 50, "{scheme}: {tx:?}");
        net.assert_nothing_altered_or_doubled();
        net.assert_flows_in_order();
    }
}

#[test]
fn exceptions_are_not_compressed_in_filled_datagrams_either() {
    let config = |side, exceptions: &[u16]| {
        let lines = format!("scheme = \"chutq-dcf\"\n{CLASSES}");
        let mut config = config_with(side, true, "10mbit", &lines);
        // In no order, as a list that somebody wrote.
        config.peers[0].exceptions =
            exceptions.iter().map(|&port| ClassKey::new(17, port)).collect();
        config
    };
    for (exceptions, blocks) in [(&[][..], true), (&[9, 53, 7], false), (&[9, 54, 7], true)] {
        let mut net = Net::new(&[0, 1].map(|side| config(side, exceptions)), &good_link(), 6);
        run(&mut net, 500, 500 * MICRO_NS);
        net.assert_nothing_altered_or_doubled();
        assert_eq!(net.end(1).env.delivered.len(), 502);
        assert_eq!(net.end(1).peer().rx.blocks > 0, blocks, "{exceptions:?}");
    }
    // Of the sources only some are listed: datagrams with one of them stay as they are.
    let some: Vec<u16> = (1000..1010).collect();
    let mut net = Net::new(&[0, 1].map(|side| config(side, &some)), &good_link(), 7);
    run(&mut net, 500, 500 * MICRO_NS);
    assert!(net.end(1).peer().rx.raw >= 200, "{:?}", net.end(1).peer().rx);
}
