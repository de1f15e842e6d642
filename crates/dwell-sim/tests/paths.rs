//! Networks of one's own: paths that part, meet themselves, or lead over many links and ports.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use dwell_sim::World;
use dwell_sim::scenario::{Options, Scenario};

fn metrics(scenario: &str) -> BTreeMap<String, f64> {
    let text = format!("[about]\ntitle = \"x\"\n[topology]\nkind = \"graph\"\n{scenario}");
    let options = Options::default();
    let none = |name: &str| Err(format!("no {name}"));
    let scenario = Scenario::parse(&text, "x", "x", &options, &none).unwrap();
    let mut plan = scenario.points[0].plan.clone();
    plan.check_invariants = true;
    World::new(&plan, 1).unwrap().run().metrics()
}

fn link(name: &str, from: &str, to: &str, rest: &str) -> String {
    format!("[link.{name}]\nfrom = \"{from}\"\nto = \"{to}\"\n{rest}\n")
}

fn cbr(name: &str, to: &str, rate: &str) -> String {
    let source = "kind = \"cbr\"\npacket_bytes = 500";
    format!("[flow.{name}]\n{source}\nrate = \"{rate}\"\nfrom = \"s\"\nto = \"{to}\"\n")
}

const BLOCKS: &str = "[scheme]\npreset = \"edge(m,n)\"\nm = 3\nn = 3\n\
                      [compress]\nratio = 0.5\ntime = \"1ms\"\n";
const PORT: &str = "rate = \"10mbit\"\nqueue = \"port\"\nbuffer_packets = 50";

#[test]
fn packets_that_part_before_anyone_opens_units_are_not_compressed_together() {
    let mut text = BLOCKS.to_owned();
    text += &link("sa", "s", "r", "rate = \"100mbit\"");
    text += &link("port", "r", "c", PORT);
    text += &link("near", "c", "x", "rate = \"10mbit\"");
    text += &link("far", "c", "y", "rate = \"10mbit\"\ndelay = \"500ms\"");
    text += &link("farther", "y", "z", "rate = \"10mbit\"");
    text += &cbr("x", "x", "7mbit");
    text += &cbr("z", "z", "6.9mbit");
    let m = metrics(&text);
    assert!(m["compressions"] > 100.0);
    assert!(m["x.delay_max_s"] < 0.1, "took the other's path: {}", m["x.delay_max_s"]);
    assert!(m["z.delay_min_s"] > 0.5);
}

#[test]
fn a_path_may_end_where_another_goes_on() {
    let mut text = BLOCKS.to_owned();
    text += &link("sa", "s", "r", "rate = \"100mbit\"");
    text += &link("port", "r", "c", PORT);
    text += &link("cd", "c", "d", "rate = \"10mbit\"\ndelay = \"500ms\"\nrestored = true");
    text += &cbr("short", "c", "7mbit");
    text += &cbr("long", "d", "6.9mbit");
    let m = metrics(&text);
    assert!(m["compressions"] > 100.0);
    assert!(m["short.delay_max_s"] < 0.1 && m["long.delay_min_s"] > 0.5);
    assert_eq!(m["short.sent"], m["short.delivered"] + m["short.dropped"]);
}

#[test]
fn units_come_back_from_whatever_queue_they_are_lost_in() {
    for queue in ["drop-tail", "port"] {
        let mut text = BLOCKS.replace("0.5", "0.9");
        text += &link("sa", "s", "r", "rate = \"100mbit\"");
        text += &link("in", "r", "c", &format!("{PORT}\nresend_after = \"5ms\""));
        let core = format!("rate = \"5mbit\"\nqueue = \"{queue}\"\nbuffer_packets = 50");
        text += &link("core", "c", "x", &core);
        text += &link("out", "x", "y", "rate = \"100mbit\"\nrestored = true");
        text += &cbr("f", "y", "12mbit");
        let m = metrics(&text);
        assert!(m["in.returned"] > 100.0, "{queue}: {}", m["in.returned"]);
        // Units that come back have not been compressed once more.
        assert!(m["in.compressed_share"] <= 1.0, "{queue}: {}", m["in.compressed_share"]);
    }
}

/// What is put into queues at times in the future fares as what arrives there by events: a flow that never
/// sends makes the difference, since it might feed the second queue, too.
#[test]
fn a_row_of_queues_is_the_same_with_and_without_events() {
    let numbers = |by_events: bool, core: &str, out: &str| {
        let mut text = BLOCKS.replace("0.5", "0.9");
        text += &link("sa", "s", "r", "rate = \"100mbit\"");
        text += &link("in", "r", "c", &format!("{PORT}\nresend_after = \"5ms\""));
        let queue = "queue = \"drop-tail\"\nbuffer_packets = 5\ndelay = \"3ms\"";
        text += &link("core", "c", "x", &format!("rate = \"{core}\"\n{queue}"));
        text += &link("out", "x", "y", &format!("rate = \"{out}\"\n{queue}"));
        text += &link("last", "y", "z", &format!("rate = \"5mbit\"\n{queue}\nrestored = true"));
        text += &cbr("f", "z", "12mbit");
        if by_events {
            text += &link("idle", "i", "x", "rate = \"1mbit\"");
            text += &cbr("never", "y", "1mbit").replace("\"s\"", "\"i\"");
            // What it sends before the end is still on its first link then.
            text += "start = \"1999ms\"\n";
        }
        let mut numbers = metrics(&text);
        numbers.retain(|name, _| !name.starts_with("never.") && !name.contains(".never"));
        numbers
    };
    // Lost at the first queue, at the second, and behind the place where units are opened.
    for (core, out) in [("6mbit", "100mbit"), ("100mbit", "6mbit"), ("100mbit", "100mbit")] {
        let ahead = numbers(false, core, out);
        assert_eq!(ahead, numbers(true, core, out), "{core} {out}");
        assert!(ahead["returned"] > 100.0 || ahead["f.dropped"] > 100.0, "{core} {out}: {ahead:?}");
    }
}

#[test]
fn a_flow_that_comes_to_a_link_twice_meets_itself_there() {
    let mut text = link("ab", "s", "b", "rate = \"10mbit\"");
    text += &link("ba", "b", "s", "rate = \"100mbit\"");
    text += &link("bc", "b", "c", "rate = \"100mbit\"");
    text += &cbr("f", "c", "8mbit").replace("to =", "via = [\"b\", \"s\", \"b\"]\nto =");
    let m = metrics(&text);
    assert!(m["f.delay_max_s"] > 0.1, "twice 8 Mbit/s are too much: {}", m["f.delay_max_s"]);
}

/// Blocks of 40 packets do not come together in a queue of 50 that two flows share, unless both
/// are compressed together.
#[test]
fn schemes_compress_together_what_flows_have_in_common() {
    let compressions = |preset: &str, keys: [&str; 2]| {
        let scheme = BLOCKS.replace("m = 3", "m = 40");
        let mut text = scheme.replace("\"edge(m,n)\"", &format!("\"{preset}\""));
        text += &link("sa", "s", "r", "rate = \"100mbit\"");
        text += &link("port", "r", "c", PORT);
        for (name, key) in ["a", "b"].into_iter().zip(keys) {
            text += &format!("{}{key}\n", cbr(name, "c", "7mbit"));
        }
        metrics(&text)["compressions"]
    };
    for (preset, key) in [("service(m,n)", "service"), ("host-pair(m,n)", "hosts")] {
        let common = [format!("{key} = 7"), format!("{key} = 7")];
        let common = common.each_ref().map(String::as_str);
        assert!(compressions(preset, common) > 10.0, "{preset}");
        assert_eq!(compressions("flow(m,n)", common), 0.0, "{key} is nothing to flows");
        assert_eq!(compressions(preset, ["", ""]), 0.0, "{preset}: each flow has its own");
        let first = format!("{key} = 1");
        assert_eq!(compressions(preset, ["", &first]), 0.0, "{preset}: no number is taken");
        let other = if key == "hosts" { "service = 7" } else { "hosts = 7" };
        assert_eq!(
            compressions(preset, [other, other]),
            0.0,
            "{preset}: {other} is something else"
        );
    }
}

#[test]
fn what_waits_on_its_own_link_at_the_end_was_sent() {
    let mut text = "[run]\nmeasure = \"1s\"\ndrain = \"0s\"\n".to_owned();
    text += &link("a", "s", "r", "rate = \"1mbit\"");
    text += &link("b", "r", "x", "rate = \"10mbit\"");
    text += &cbr("f", "x", "2mbit");
    let m = metrics(&text);
    assert_eq!((m["f.sent"], m["f.offered_bps"]), (500.0, 2e6));
}

/// Nothing can happen behind the port, so that its packets' arrivals are computed at once; they
/// count as if each had been waited for.
#[test]
fn what_arrives_after_the_end_is_not_delivered() {
    for (from_port, delivered) in [("", 500.0), ("delay = \"250ms\"", 250.0)] {
        let mut text = "[run]\nmeasure = \"1s\"\ndrain = \"0s\"\n".to_owned();
        text += &link("port", "s", "c", &format!("{PORT}\n{from_port}"));
        text += &link("far", "c", "x", "rate = \"10mbit\"\ndelay = \"500ms\"");
        text += &cbr("f", "x", "4mbit");
        let m = metrics(&text);
        assert_eq!((m["f.sent"], m["f.delivered"], m["f.dropped"]), (1000.0, delivered, 0.0));
        assert!(m["f.delay_max_s"] < 1.0);
        // A longer drain brings the others.
        let m = metrics(&text.replace("\"0s\"", "\"1s\""));
        assert_eq!(m["f.delivered"], 1000.0);
    }
}

#[test]
fn many_flows_over_many_links_are_no_trouble() {
    let mut text = "[run]\nmeasure = \"1ms\"\n[scheme]\npreset = \"none\"\n".to_owned();
    text += &link("port", "r", "n0", PORT);
    for n in 0..40 {
        let (from, to) = (format!("n{n}"), format!("n{}", n + 1));
        text += &link(&format!("l{n}"), &from, &to, "rate = \"10mbit\"");
    }
    for n in 0..30 {
        text += &link(&format!("a{n}"), &format!("s{n}"), "r", "rate = \"10mbit\"");
        let flow = cbr(&format!("f{n}"), "n40", "100kbit");
        write!(text, "{}", flow.replace("\"s\"", &format!("\"s{n}\""))).unwrap();
    }
    assert!(metrics(&text)["f0.delivered"] >= 1.0);
}

/// The rule of relays, and frames that are compressed as a whole, are rules of scenarios too.
#[test]
fn what_relays_do_can_be_simulated() {
    for (scheme, compresses) in [
        ("preset = \"edge\"\nblock_bytes = 4000", true),
        ("preset = \"basicq\"\nmtu = 4000\nchunk_compress = true", true),
        ("preset = \"basicq\"\nmtu = 4000", false),
    ] {
        let mut text = format!("[scheme]\n{scheme}\n[compress]\nratio = 0.5\ntime = \"1ms\"\n");
        text += &link("sa", "s", "r", "rate = \"100mbit\"");
        text += &link("port", "r", "c", PORT);
        text += &cbr("f", "c", "14mbit");
        let m = metrics(&text);
        assert_eq!(m["compressions"] > 100.0, compresses, "{scheme}: {}", m["compressions"]);
        let carried = m["f.delivered"] / m["f.sent"];
        assert_eq!(carried > 0.8, compresses, "{scheme}: {carried}");
    }
}

/// A queue that grows evenly: delays are distributed evenly, and each packet waits longer than the one
/// before by the same.
#[test]
fn quantiles_and_jitter_are_those_of_the_delays() {
    let mut text = link("sb", "s", "b", "rate = \"10mbit\"");
    text += &cbr("f", "b", "20mbit");
    let m = metrics(&text);
    let (least_s, most_s) = (m["f.delay_min_s"], m["f.delay_max_s"]);
    for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)] {
        let exact_s = least_s + share * (most_s - least_s);
        let quantile_s = m[&format!("f.delay_{name}_s")];
        assert!((quantile_s / exact_s - 1.0).abs() < 0.015, "{name}: {quantile_s}, not {exact_s}");
    }
    let step_s = (most_s - least_s) / (m["f.delivered"] - 1.0);
    assert!((m["f.jitter_mean_s"] / step_s - 1.0).abs() < 0.001);
    assert!(m["f.jitter_max_s"] - m["f.jitter_mean_s"] < 3e-9);
}
