//! Paths that swallow datagrams, and packets that are refused.

use dwell_base::time::MILLI_NS;
use dwell_report::status::Problem;

use super::harness::*;
use crate::node::*;

fn names(net: &Net, side: usize) -> Vec<String> {
    net.end(side).peer().problems.into_iter().map(|it| it.problem).collect()
}

fn swallow(net: &mut Net, side: usize, above: usize) {
    net.net.with_node(net.ends[side], |end, _, _| end.swallowed_above = above);
}

#[test]
fn a_path_that_swallows_long_datagrams_is_found_and_traffic_goes_on() {
    for sealed in [true, false] {
        let mut net = pair(sealed, "10mbit", "none", &good_link(), 1);
        swallow(&mut net, 0, 1_400);
        net.run_to(4_500);
        assert_eq!(names(&net, 0), ["path_mtu"]);
        assert_eq!(names(&net, 1), Vec::<String>::new(), "the other direction takes all");
        net.run_to(30_000);
        let peer = net.end(0).peer();
        let problem = &peer.problems[0];
        // 24 or 8 bytes of headers, and two of the record.
        let inside = peer.mtu + if sealed { 24 } else { 8 };
        assert!((1_396..=1_400).contains(&inside), "{inside}");
        assert!(problem.why.contains(&format!("at most {} bytes go", peer.mtu)), "{problem:?}");
        assert!(problem.remedy.contains(&(inside + 28).to_string()), "{problem:?}");
        // Everything that fits goes through.
        let payload_max = u64::from(peer.mtu) - 28;
        net.set_traffic(Traffic { payload_max, random: 1.0, ..Traffic::default() });
        net.start_sources(30_000, 500, 2 * MILLI_NS);
        net.run_to(33_000);
        assert_eq!(net.end(1).env.delivered.len(), 500);
        assert_eq!(net.end(0).peer().tx.send_errors["too_big"], 0);
        // The path is mended.
        swallow(&mut net, 0, usize::MAX);
        net.run_to(120_000);
        assert_eq!(names(&net, 0), Vec::<String>::new());
        assert!(net.end(0).peer().mtu > peer.mtu);
        let events = &net.end(0).env.events;
        let reported = |event: &&NodeEvent| matches!(event, NodeEvent::Problem(_, found) if found.problem == Problem::PathMtu);
        assert_eq!(events.iter().filter(reported).count(), 1, "one warning: {events:?}");
        assert!(events.contains(&NodeEvent::Solved(Some(0), Problem::PathMtu)));
    }
}

#[test]
fn a_path_that_becomes_narrow_under_load_is_found() {
    let mut net = pair(true, "10mbit", "none", &good_link(), 2);
    net.set_traffic(Traffic { payload_max: 1_380, random: 1.0, ..Traffic::default() });
    net.start_sources(1_000, 60_000, 2 * MILLI_NS);
    net.run_to(20_000);
    assert_eq!(names(&net, 0), Vec::<String>::new());
    swallow(&mut net, 0, 1_300);
    net.run_to(60_000);
    assert_eq!(names(&net, 0), ["path_mtu"]);
    assert!(net.end(0).peer().mtu <= 1_276);
}

#[test]
fn thin_and_lossy_links_are_not_taken_for_narrow_paths() {
    for (rate, loss) in [(64, 0.0), (1_000, 0.05), (10_000, 0.3)] {
        let link = dwell_testkit::LinkSpec::new()
            .with_rate(dwell_base::Rate::clamped_bps(rate * 1_000))
            .with_delay_ns(300 * MILLI_NS)
            .with_loss(loss);
        let mut net = pair(true, &format!("{rate}kbit"), "packet", &link, 3);
        net.start_sources(5_000, 20_000, 50 * MILLI_NS);
        net.run_to(300_000);
        for side in [0, 1] {
            let events = &net.end(side).env.events;
            let narrow = |event: &NodeEvent| matches!(event, NodeEvent::Problem(_, found) if found.problem == Problem::PathMtu);
            assert!(!events.iter().any(narrow), "{rate} kbit/s, {loss}: {events:?}");
        }
    }
}

#[test]
fn packets_of_which_none_arrives_are_named() {
    let mut net = pair(true, "10mbit", "none", &good_link(), 4);
    net.run_to(2_000);
    // Probes pass, and nothing with a packet in it: whatever a middlebox may think of them.
    swallow(&mut net, 0, 59);
    net.set_traffic(Traffic { payload_max: 1_000, random: 1.0, ..Traffic::default() });
    net.net.with_node(net.ends[0], |end, _, _| end.source(at_ms(2_000), 4_000, 10 * MILLI_NS));
    net.run_to(30_000);
    let problems = net.end(0).peer().problems;
    let found = problems.iter().find(|it| it.is(Problem::NotDelivered)).expect("it is named");
    assert!(found.why.contains("none of them"), "{found:?}");
    swallow(&mut net, 0, usize::MAX);
    net.run_to(60_000);
    assert!(!names(&net, 0).contains(&"not_delivered".to_owned()));
}

#[test]
fn packets_from_elsewhere_than_the_prefixes_are_named() {
    let mut net = pair(true, "10mbit", "none", &good_link(), 5);
    net.run_to(1_000);
    // One end knows nothing of the other one's second network.
    net.net.with_node(net.ends[1], |end, _, _| {
        let mut config = config(1, true, "10mbit", "none");
        config.peers[0].prefixes = vec!["10.77.0.0/16".parse().expect("a prefix")];
        let mut random = random_sources(9, 9);
        end.node.reconfigure(&config, &[None], &mut random).expect("a good configuration");
    });
    net.start_sources(1_000, 3_000, 10 * MILLI_NS);
    net.run_to(25_000);
    let problems = net.end(1).peer().problems;
    let found = problems.iter().find(|it| it.is(Problem::NotAllowed)).expect("it is named");
    assert!(found.why.contains("10.1.0.5"), "{found:?}");
    net.run_to(90_000);
    assert!(!names(&net, 1).contains(&"not_allowed".to_owned()), "it is over");
}
