//! The diagnosis of a peer that does not answer.

use dwell_base::time::MILLI_NS;
use dwell_report::status::Problem;
use dwell_testkit::LinkSpec;
use dwell_wire::CloseReason;

use super::harness::*;
use super::keys::{KEYS, keyed, secret, with_keys};
use crate::config::Secret;
use crate::node::*;
use crate::trust::public_key;

/// The problems of a side's peer: their names, and all words.
fn problems(net: &Net, side: usize) -> (Vec<String>, String) {
    let found = net.end(side).peer().problems;
    let words = found.iter().map(|it| format!("{} {}", it.why, it.remedy)).collect();
    (found.into_iter().map(|it| it.problem).collect(), words)
}

fn key(byte: u8) -> String {
    public_key(&secret(byte)).expect("a key").to_string()
}

/// Returns how often a problem of the peer began, and how often it ended.
fn reported(net: &Net, side: usize, problem: Problem) -> (usize, usize) {
    let events = &net.end(side).env.events;
    let begins = events.iter().filter(
        |event| matches!(event, NodeEvent::Problem(Some(0), found) if found.problem == problem),
    );
    let ends = events.iter().filter(|event| **event == NodeEvent::Solved(Some(0), problem));
    (begins.count(), ends.count())
}

fn silent_link() -> LinkSpec {
    good_link().with_loss(1.0)
}

#[test]
fn silence_is_no_answer_and_the_words_name_all_that_may_be() {
    let configs = [0, 1].map(|side| keyed(side, "10mbit", "packet"));
    let mut net = Net::new(&configs, &silent_link(), 1);
    net.run_to(2_000);
    assert_eq!(problems(&net, 0).0, Vec::<String>::new(), "it may be far away");
    net.run_to(60_000);
    for side in [0, 1] {
        let (names, words) = problems(&net, side);
        assert_eq!(names, ["no_answer"]);
        for part in [ADDRESSES[1 - side], "firewall", "runs", &key(KEYS[side])] {
            assert!(words.contains(part), "{part} is not in: {words}");
        }
        assert_eq!(reported(&net, side, Problem::NoAnswer), (1, 0), "once in a minute");
    }
    for link in net.links {
        net.net.set_link(link, good_link());
    }
    net.run_to(70_000);
    for side in [0, 1] {
        assert!(net.end(side).is_up() && problems(&net, side).0.is_empty());
        assert_eq!(reported(&net, side, Problem::NoAnswer), (1, 1));
    }
}

#[test]
fn a_wrong_public_key_is_found_by_both_ends_if_they_know_each_others_addresses() {
    // One end has a wrong key for the other one.
    let configs = [with_keys(0, b'a', b'x', "10mbit", "packet"), keyed(1, "10mbit", "packet")];
    let mut net = Net::new(&configs, &good_link(), 2);
    net.run_to(10_000);
    let (names, words) = problems(&net, 0);
    assert_eq!(names, ["wrong_key"]);
    assert!(words.contains(&format!("write public_key = \"{}\"", key(b'b'))), "{words}");
    let (names, words) = problems(&net, 1);
    assert_eq!(names, ["wrong_key"]);
    assert!(words.contains(&format!("public_key = \"{}\" for this node", key(b'b'))), "{words}");
    assert_eq!(reported(&net, 0, Problem::WrongKey), (1, 0));
}

#[test]
fn an_unknown_key_from_elsewhere_is_the_nodes_affair() {
    let configs = [with_keys(0, b'c', b'b', "10mbit", "packet"), keyed(1, "10mbit", "packet")];
    let mut net = Net::new(&configs, &good_link(), 3);
    let elsewhere: SocketAddr = "203.0.113.9:4711".parse().expect("an address");
    net.net.with_node(net.ends[1], |end, _, _| end.received_from = elsewhere);
    net.run_to(5_000);
    let status = net.end(1).node.status(net.end(1).env.now());
    let [problem] = &status.problems[..] else { panic!("{:?}", status.problems) };
    assert_eq!(problem.problem, "unknown_peer");
    assert!(problem.why.contains("203.0.113.9:4711") && problem.why.contains(&key(b'c')));
    assert!(status.drops["unknown_key"] > 0 && status.drops["hello_invalid_mac"] == 0);
    for link in net.links {
        net.net.set_link(link, silent_link());
    }
    net.run_to(80_000);
    assert!(net.end(1).node.status(net.end(1).env.now()).problems.is_empty(), "it is over");
}

/// The same configuration with a pre-shared key of this byte.
fn shared(side: usize, byte: u8, security: &str) -> Config {
    let text = format!(
        "[node]\naddresses = [\"10.{number}.0.1/16\"]\nprivate_key_file = \"{own}\"\n[[peer]]\n\
         name = \"other\"\nendpoint = \"{endpoint}\"\nprefixes = [{prefix}]\n{security}\n",
        number = side + 1,
        own = char::from(KEYS[side]),
        endpoint = ADDRESSES[1 - side],
        prefix = PREFIXES[1 - side],
    );
    let read = |path: &std::path::Path| match path.to_str() {
        Some("psk") => Ok(Secret::new([byte; 32])),
        name => Ok(secret(name.expect("a name").as_bytes()[0])),
    };
    Config::parse(&text, "test.toml", &read).expect("a good configuration")
}

#[test]
fn another_pre_shared_key_is_named() {
    let configs = [0, 1].map(|side| shared(side, 5 + side as u8, "psk_file = \"psk\""));
    let mut net = Net::new(&configs, &good_link(), 4);
    net.run_to(10_000);
    for side in [0, 1] {
        let (names, words) = problems(&net, side);
        assert_eq!(names, ["wrong_key"]);
        assert!(words.contains("psk_file"), "{words}");
    }
    // Beside public keys, the initiator finds that the answers don't open.
    let line =
        |side: usize| format!("psk_file = \"psk\"\npublic_key = \"{}\"", key(KEYS[1 - side]));
    let configs = [0, 1].map(|side| shared(side, 5 + side as u8, &line(side)));
    let mut net = Net::new(&configs, &good_link(), 5);
    net.run_to(10_000);
    for side in [0, 1] {
        let (names, words) = problems(&net, side);
        assert_eq!(names, ["wrong_key"], "{words}");
        assert!(words.contains("psk_file") && words.contains("do not open"), "{words}");
    }
}

#[test]
fn ends_with_different_security_say_so() {
    let keys = format!("public_key = \"{}\"", key(KEYS[1]));
    for (mine, theirs, there) in [
        (keys.as_str(), "psk_file = \"psk\"", "a pre-shared key"),
        ("psk_file = \"psk\"", "security = \"none\"", "no security"),
    ] {
        let configs = [shared(0, 5, mine), shared(1, 5, theirs)];
        let mut net = Net::new(&configs, &good_link(), 6);
        net.run_to(10_000);
        let (names, words) = problems(&net, 0);
        assert_eq!(names, ["security_mismatch"], "{words}");
        assert!(words.contains(&format!("uses {there}")), "{words}");
        assert_eq!(problems(&net, 1).0, ["security_mismatch"]);
    }
}

#[test]
fn a_path_that_leads_one_way_only_is_reported_from_silence() {
    for sealed in [true, false] {
        let mut net = pair(sealed, "10mbit", "packet", &good_link(), 7);
        net.net.set_link(net.links[0], silent_link());
        net.run_to(10_000);
        let (names, words) = problems(&net, 0);
        assert_eq!(names, ["one_way"], "{words}");
        assert_eq!(problems(&net, 1).0, ["no_answer"]);
    }
    let configs = [0, 1].map(|side| keyed(side, "10mbit", "packet"));
    let mut net = Net::new(&configs, &good_link(), 8);
    net.net.set_link(net.links[0], silent_link());
    net.run_to(10_000);
    assert_eq!(
        (problems(&net, 0).0, problems(&net, 1).0),
        (vec!["one_way".to_owned()], vec!["no_answer".to_owned()])
    );
}

#[test]
fn what_the_system_says_is_the_reason() {
    let configs = [0, 1].map(|side| keyed(side, "10mbit", "packet"));
    let mut net = Net::new(&configs, &silent_link(), 9);
    let say = |net: &mut Net, unsent: Unsent| {
        net.net.with_node(net.ends[0], |end, now, _| {
            end.env.now.set(now);
            end.node.unsent(&mut end.env, 0, unsent);
        });
    };
    net.run_to(1_000);
    say(&mut net, Unsent::PortClosed);
    assert_eq!(problems(&net, 0).0, Vec::<String>::new(), "one may be of before");
    net.run_to(2_000);
    say(&mut net, Unsent::PortClosed);
    let (names, words) = problems(&net, 0);
    assert_eq!(names, ["port_closed"]);
    assert!(words.contains("7733") && words.contains("listen"), "{words}");
    for second in 3..5 {
        net.run_to(second * 1_000);
        say(&mut net, Unsent::Unreachable("Network is unreachable".to_owned()));
    }
    let (names, words) = problems(&net, 0);
    assert_eq!(names, ["unreachable"]);
    assert!(words.contains("Network is unreachable") && words.contains("ip route get"));
    net.run_to(30_000);
    assert_eq!(problems(&net, 0).0, ["no_answer"], "it was said long ago");
}

#[test]
fn a_name_that_does_not_resolve_is_named_with_the_resolvers_words() {
    let mut config = keyed(0, "10mbit", "packet");
    config.peers[0].endpoint =
        Some(crate::config::Endpoint::Name { host: "hub.invalid".to_owned(), port: 7733 });
    let mut random = random_sources(1, 1);
    let mut node = Node::new(&config, &[None], &mut random).expect("a good configuration");
    let mut env = TestEnv::new(config.peers[0].codec);
    node.resolved(&mut env, 0, Some("Name or service not known".to_owned()));
    let found = node.status(env.now()).peers.remove(0).problems.remove(0);
    assert_eq!(found.problem, "unresolved");
    assert_eq!(found.why, "The name hub.invalid does not resolve: Name or service not known.");
    node.resolved(&mut env, 0, None);
    assert!(node.status(env.now()).peers[0].problems.is_empty());
    assert_eq!(env.events.len(), 2, "{:?}", env.events);
}

#[test]
fn a_peer_that_was_stopped_is_not_said_to_be_silent() {
    let mut net = pair(true, "10mbit", "packet", &good_link(), 10);
    net.run_to(1_000);
    net.net.with_node(net.ends[1], |end, now, out| {
        end.env.now.set(now);
        end.node.close(&mut end.env, CloseReason::ShuttingDown);
        end.after(out);
        end.asleep = Some(Vec::new());
    });
    net.run_to(1_100);
    let down = NodeEvent::Down(0, Parting::Closed(CloseReason::ShuttingDown));
    assert!(net.end(0).env.events.contains(&down), "{:?}", net.end(0).env.events);
    net.run_to(20_000);
    assert_eq!(problems(&net, 0).0, ["stopped"]);
    let silent = Parting::Silent { for_ns: 5_000 * MILLI_NS }.to_string();
    assert_eq!(silent, "nothing came from it for 5.00 s");
}
