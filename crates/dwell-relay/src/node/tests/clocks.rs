//! Peers whose clocks differ.

use dwell_base::time::{MILLI_NS, SECOND_NS};
use dwell_report::status::ProblemStatus;

use super::harness::*;
use super::keys::keyed;
use crate::node::*;

const HOUR_NS: i64 = 3_600 * SECOND_NS as i64;

/// Two ends, of which the second one's clock is ahead by so much.
fn pair_with_clocks(ahead_ns: i64, seed: u64) -> Net {
    let mut net = Net::new(&[0, 1].map(|side| keyed(side, "10mbit", "packet")), &good_link(), seed);
    set_ahead(&mut net, ahead_ns);
    net
}

fn set_ahead(net: &mut Net, by_ns: i64) {
    net.net.with_node(net.ends[1], |end, _, _| {
        end.env.clock_ahead_ns = end.env.clock_ahead_ns.saturating_add_signed(by_ns);
    });
}

fn found(net: &Net, side: usize) -> Option<ProblemStatus> {
    net.end(side).peer().problems.into_iter().find(|it| it.problem == "clock_differs")
}

#[test]
fn both_ends_say_by_how_much_and_that_it_is_over() {
    for (ahead_ns, words) in [
        (2 * HOUR_NS + 330 * SECOND_NS as i64, ["2 h 5 min behind", "2 h 5 min ahead of"]),
        (-30 * HOUR_NS - HOUR_NS / 2, ["1 d 6 h ahead of", "1 d 6 h behind"]),
    ] {
        let mut net = pair_with_clocks(ahead_ns, 31);
        net.run_to(3_000);
        for side in [0, 1] {
            let said = found(&net, side).unwrap_or_else(|| panic!("side {side}, {ahead_ns}"));
            assert!(said.why.contains(words[1 - side]), "side {side}: {}", said.why);
            assert!(said.remedy.contains("timedatectl set-ntp true"), "{}", said.remedy);
        }
        // It is corrected. Traffic renews the session each two minutes.
        set_ahead(&mut net, -ahead_ns);
        net.start_sources(3_000, 8_000, 50 * MILLI_NS);
        net.run_to(405_000);
        for side in [0, 1] {
            assert_eq!(found(&net, side), None, "side {side}, {ahead_ns}");
            let events = &net.end(side).env.events;
            let begins = events.iter().filter(|event| matches!(event, NodeEvent::Problem(..)));
            assert_eq!(begins.count(), 1, "said once: {events:?}");
            let ends = NodeEvent::Solved(Some(0), dwell_report::status::Problem::ClockDiffers);
            assert_eq!(events.iter().filter(|event| **event == ends).count(), 1, "{events:?}");
            let refused = net.end(side).peer().tx.send_errors["unconnected"];
            assert_eq!(refused, 0, "the tunnel does not mind");
        }
        net.assert_nothing_altered_or_doubled();
        assert_eq!(net.end(1).env.delivered.len(), 8_000);
    }
}

#[test]
fn clocks_that_differ_by_less_than_an_hour_are_nothing_to_say() {
    for ahead_ns in [0, HOUR_NS - 60 * SECOND_NS as i64, -(HOUR_NS - 60 * SECOND_NS as i64)] {
        let mut net = pair_with_clocks(ahead_ns, 32);
        net.run_to(10_000);
        assert_eq!((found(&net, 0), found(&net, 1)), (None, None), "{ahead_ns}");
    }
}

#[test]
fn an_initiation_that_somebody_recorded_says_nothing() {
    let mut old = End::new(0, &keyed(0, "10mbit", "packet"), 33);
    old.node.timers(&mut old.env);
    let mut recorded = old.env.sent.pop().expect("an initiation is due at once");
    let mut end = End::new(1, &keyed(1, "10mbit", "packet"), 34);
    end.env.clock_ahead_ns += 5 * HOUR_NS as u64;
    let source = ADDRESSES[0].parse().expect("an address");
    end.node.datagram(&mut end.env, None, source, &mut recorded);
    assert!(end.env.sent.pop().is_some(), "it is answered: it may be the peer's");
    assert!(end.peer().problems.is_empty(), "{:?}", end.peer().problems);
}

/// Until its clock has caught up with the times that it has shown, a node's initiations show no clock; an end that
/// was restarted does not take them for one.
#[test]
fn a_clock_that_was_set_back_is_not_taken_for_right_by_an_end_that_was_restarted() {
    let mut net = pair_with_clocks(5 * HOUR_NS, 35);
    net.run_to(3_000);
    assert!(found(&net, 0).is_some() && found(&net, 1).is_some());
    set_ahead(&mut net, -5 * HOUR_NS);
    net.restart(0, &keyed(0, "10mbit", "packet"), 36);
    net.start_sources(3_000, 3_000, 50 * MILLI_NS);
    net.run_to(150_000);
    assert_eq!((found(&net, 0), found(&net, 1)), (None, None));
}

/// Whoever has a peer's key can show what clock it likes, but not fill the log with it.
#[test]
fn a_clock_that_jumps_with_each_session_is_no_news_each_time() {
    let mut net = pair_with_clocks(0, 37);
    net.run_to(1_000);
    for round in 0..100u64 {
        set_ahead(&mut net, if round % 2 == 0 { 2 * HOUR_NS } else { -2 * HOUR_NS });
        net.net.with_node(net.ends[1], |end, _, _| end.node.peers[0].handshake.renew());
        net.run_to(1_000 + (round + 1) * 1_100);
    }
    let news = |event: &&NodeEvent| matches!(event, NodeEvent::Problem(..) | NodeEvent::Solved(..));
    let count = net.end(0).env.events.iter().filter(news).count();
    assert!((1..=12).contains(&count), "{count} in two minutes");
}
