//! Whole scenarios: the resulting plans, and the messages about wrong ones.

use super::*;
use crate::plan::{Queue, Ties, Traffic};
use crate::tcp::TcpConfig;

const PARKING_LOT: &str = r#"
[about]
title = "A test"

[run]
warm_up = "1s"
measure = "2s"
replications = 3
quick = { replications = 1, measure = "1s" }

[topology]
kind = "parking-lot"
relays = 3
rate = "100mbit"
buffer_packets = 1000

[traffic]
kind = "on-off"
packet_bytes = 500
rate = "60mbit"
on = "250us"
off = "50us"

[scheme]
preset = "packet"

[compress]
ratio = 0.95
time = "200us"
"#;

const SWEEP: &str = "
[[sweep]]
compress.ratio = [0.7, 0.95]
[[sweep]]
scheme.preset = ['none', 'packet']
";

fn read_with(text: &str, options: &Options) -> Result<Scenario, String> {
    let files = |name: &str| Err(format!("there is no file {name}"));
    Scenario::parse(text, "x.toml", "test/x", options, &files).map_err(|errors| errors.to_string())
}

fn read(text: &str) -> Result<Scenario, String> {
    read_with(text, &Options::default())
}

fn settings(list: &[&str]) -> Options {
    let settings = list.iter().map(|setting| setting.parse().unwrap()).collect();
    Options { settings, is_quick: false }
}

/// The scenario with one text replaced.
fn changed(from: &str, to: &str) -> String {
    assert!(PARKING_LOT.contains(from), "{from}");
    PARKING_LOT.replace(from, to)
}

#[test]
fn a_parking_lot_is_built() {
    let scenario = read(PARKING_LOT).unwrap();
    let [point] = &scenario.points[..] else { panic!("one point") };
    let plan = &point.plan;
    let names: Vec<&str> = plan.links.iter().map(|link| link.name.as_str()).collect();
    assert_eq!(names, ["s", "r1", "r2", "d", "x1", "x2"]);
    assert_eq!(plan.flows.len(), 3);
    assert_eq!(plan.flows[0].route, [0, 1, 2, 3]);
    assert_eq!(plan.flows[2].route, [5, 2]);
    assert!(plan.links[3].restored && !plan.links[2].restored);
    assert!(matches!(plan.links[2].queue, Queue::Port(_)));
    assert_eq!(plan.window.from_ns, 1_000_000_000);
    assert_eq!(plan.window.until_ns, 3_000_000_000);
    assert_eq!(point.seeds().collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(scenario.runs(), 3);
}

#[test]
fn sweeps_make_points_with_plans_of_their_own() {
    let scenario = read(&format!("{PARKING_LOT}{SWEEP}")).unwrap();
    assert_eq!(scenario.points.len(), 4);
    let first = &scenario.points[0];
    assert_eq!(first.swept("scheme.preset"), Some(&Value::Text("none".to_owned())));
    assert!(first.meets(&[("compress.ratio".to_owned(), Value::Real(0.7))]));
    // Keys that are not swept have values too, and times are compared as times.
    assert!(first.meets(&[("compress.time".to_owned(), Value::Text("0.2ms".to_owned()))]));
    assert!(!first.meets(&[("compress.time".to_owned(), Value::Text("0.3ms".to_owned()))]));
    // The ratio makes no difference to a scheme that never compresses.
    let hashes: Vec<u128> = scenario.points.iter().map(|point| point.plan_hash).collect();
    assert_eq!(hashes[0], hashes[2]);
    assert_ne!(hashes[1], hashes[3]);
}

#[test]
fn the_command_line_reaches_every_key() {
    let options = settings(&["topology.relays=2", "compress.time=20us", "scheme.preset=none"]);
    let scenario = read_with(PARKING_LOT, &options).unwrap();
    assert_eq!(scenario.points[0].plan.links.len(), 4);
    let error = read_with(PARKING_LOT, &settings(&["scheme.compressed=1"])).unwrap_err();
    assert!(
        error.contains("--set scheme.compressed: there is no key `compressed` here"),
        "{error}"
    );
    let error = read_with(PARKING_LOT, &settings(&["compress.ratio=2"])).unwrap_err();
    assert!(error.contains("--set compress.ratio: must be a number from"), "{error}");
    for (setting, reported) in [
        ("paper=1", "--set paper: only values that affect runs can be set"),
        ("figure=a", "not [figure]"),
        ("about.title=x", "--set about.title"),
    ] {
        let error = read_with(PARKING_LOT, &settings(&[setting])).unwrap_err();
        assert!(error.contains(reported), "{setting}: {error}");
    }
    let error = read_with(PARKING_LOT, &settings(&["run.bin=1ns"])).unwrap_err();
    assert!(error.contains("--set run.bin: bins of 1 ns: a time line has at most"), "{error}");
    let error = read_with(PARKING_LOT, &settings(&["compres.ratio=1"])).unwrap_err();
    assert!(error.contains("did you mean `compress`?"), "{error}");
}

#[test]
fn the_quick_variant_has_other_keys() {
    let quick = Options { is_quick: true, ..Options::default() };
    let (slow, quick) = (read(PARKING_LOT).unwrap(), read_with(PARKING_LOT, &quick).unwrap());
    assert_eq!((slow.runs(), quick.runs()), (3, 1));
    assert_ne!(slow.points[0].plan_hash, quick.points[0].plan_hash);
    // The number of runs makes no difference to each of them.
    let more = read_with(PARKING_LOT, &settings(&["run.replications=9", "run.seed=5"])).unwrap();
    assert_eq!(slow.points[0].plan_hash, more.points[0].plan_hash);
    assert_eq!(more.points[0].seeds().next(), Some(5));
}

#[test]
fn seeds_are_common_or_each_ones_own() {
    let text = format!("{PARKING_LOT}{SWEEP}");
    let text = text.replace("replications = 3", "replications = 3\nseeds = \"independent\"");
    let scenario = read(&text).unwrap();
    let seeds: std::collections::BTreeSet<u64> =
        scenario.points.iter().flat_map(Point::seeds).collect();
    assert_eq!(seeds.len(), 9, "none is the same at both ratios");
}

#[test]
fn ties_are_decided_by_chance_by_ns2s_clock_or_not_at_all() {
    let ties = |word: &str| {
        let text = changed("replications = 3", &format!("replications = 3\n{word}"));
        read(&text).map(|scenario| scenario.points[0].plan.ties)
    };
    assert_eq!(ties(""), Ok(Ties::Random));
    assert_eq!(ties("ties = 'ns-2'"), Ok(Ties::Ns2));
    assert_eq!(ties("ties = 'jitter'"), Ok(Ties::Jitter(1_000)));
    assert_eq!(ties("ties = 'jitter'\njitter = '5us'"), Ok(Ties::Jitter(5_000)));
    assert!(ties("ties = 'fair'").unwrap_err().contains("\"random\""));
}

#[test]
fn what_is_wrong_is_reported_with_line_key_and_remedy() {
    for (text, reported) in [
        (
            changed("relays = 3", "relay = 3"),
            "x.toml:13: [topology]: there is no key `relay` here: did you mean `relays`?",
        ),
        (
            changed("relays = 3", "relays = 1"),
            "x.toml:13: [topology], `relays`: must be a whole number from 2 to 1000, not 1",
        ),
        (
            changed("rate = \"100mbit\"", "rate = \"0mbit\""),
            "x.toml:14: [topology], `rate`: a rate must be between",
        ),
        (
            changed("rate = \"100mbit\"", "rate = 100"),
            "`rate`: must be a rate with its unit such as \"100mbit\"",
        ),
        (changed("on = \"250us\"", "on = \"-250us\""), "[traffic], `on`: \"-250us\" is negative"),
        (
            changed("on = \"250us\"", "on = 250"),
            "`on`: 250 has no unit: write for instance \"250us\"",
        ),
        (changed("on = \"250us\"\n", ""), "[traffic]: `on` is missing: add for instance on = "),
        (
            changed("\"on-off\"", "\"poisson\""),
            "there is no key `on` here: it belongs to kind = \"on-off\"",
        ),
        (changed("\"on-off\"", "\"onoff\""), "\"onoff\" is unknown: did you mean \"on-off\"?"),
        (
            changed("\"packet\"", "\"pakcet\""),
            "[scheme], `preset`: \"pakcet\" is unknown: did you mean \"packet\"?",
        ),
        (
            changed("measure = \"2s\"", "measure = \"0s\""),
            "[run], `measure`: must be more than zero",
        ),
        (
            changed("[compress]", "[compres]"),
            "there is no table `compres` in a scenario: did you mean `compress`?",
        ),
        (
            changed("kind = \"parking-lot\"", "kind = \"ring\""),
            "must be one of \"parking-lot\", \"dumbbell\"",
        ),
        (changed("[about]\ntitle = \"A test\"", ""), "[about] is missing"),
        (changed("time = \"200us\"", ""), "[compress]: `time` is missing"),
        (
            format!("{PARKING_LOT}[[sweep]]\ncompress.ratios = [0.5]\n"),
            ":31: [[sweep]], `compress.ratios`: there is no key `ratios` here: did you mean `ratio`?",
        ),
        (
            format!("{PARKING_LOT}[[sweep]]\ncompress.ratio = [0.5, 2]\n"),
            ":31: [[sweep]], `compress.ratio`: must be a number",
        ),
        (format!("{PARKING_LOT}[link.a]\nfrom = 'a'\n"), "belong to kind = \"graph\""),
        ("relays = = 3".to_owned(), "x.toml:1: this is not TOML"),
    ] {
        let error = read(&text).unwrap_err();
        assert!(error.contains(reported), "expected {reported}\nin {error}");
    }
}

#[test]
fn all_errors_are_reported_at_once() {
    let text = changed("relays = 3", "relays = 0").replace("ratio = 0.95", "ratio = 95");
    assert_eq!(read(&text).unwrap_err().lines().count(), 2);
}

#[test]
fn files_that_are_missing_are_named() {
    let text = changed("kind = \"on-off\"", "kind = \"trace\"\nfile = \"a.csv\"");
    let error = read(&text).unwrap_err();
    assert!(error.contains("`file`: a.csv: there is no file a.csv"), "{error}");
}

const GRAPH: &str = r#"
about.title = "A graph"
[topology]
kind = "graph"
nodes = ["a", "b", "c"]
[link.ab]
from = "a"
to = "b"
rate = "10mbit"
delay = "5ms"
duplex = true
[link.bc]
from = "b"
to = "c"
rate = "5mbit"
queue = "port"
buffer_packets = 50
[flow.web]
kind = "cbr"
from = "a"
to = "c"
packet_bytes = 100
rate = "1mbit"
"#;

#[test]
fn a_graph_finds_its_paths() {
    let scenario = read(GRAPH).unwrap();
    let plan = &scenario.points[0].plan;
    assert_eq!(plan.flows[0].route, [0, 2]);
    assert_eq!(plan.links[1].name, "ab-back");
    assert_eq!(plan.groups[0].name, "web");
}

#[test]
fn impossible_graphs_are_reported() {
    for (from, to, reported) in [
        ("to = \"c\"\npacket", "to = \"d\"\npacket", "[flow.web], `to`: there is no node \"d\""),
        (
            "from = \"a\"\nto = \"c\"",
            "from = \"c\"\nto = \"a\"",
            "no path leads from \"c\" to \"a\"",
        ),
        (
            "kind = \"cbr\"",
            "kind = \"cbr\"\nvia = [\"x\"]",
            "[flow.web], `via`: there is no node \"x\"",
        ),
        ("from = \"b\"", "from = \"q\"", "[link.bc], `from`: there is no node \"q\""),
        ("buffer_packets = 50", "bufer_packets = 50", "did you mean `buffer_packets`?"),
        ("queue = \"port\"\nbuffer_packets = 50", "queue = \"drop-tail\"", "needs its length"),
        ("to = \"b\"", "to = \"a\"", "must lead to another node"),
    ] {
        let text = GRAPH.replace(from, to);
        assert_ne!(text, GRAPH);
        let error = read(&text).unwrap_err();
        assert!(error.contains(reported), "expected {reported}\nin {error}");
    }
}

#[test]
fn an_edge_has_classes_with_shares() {
    let text = r#"
about.title = "An edge"
[topology]
kind = "single-edge"
rate = "10gbit"
packets_per_second = 5e6
[traffic]
kind = "classes"
load = 0.8
steps = [{ at = "1.3s", load = 1.2 }]
[traffic.class.sensing]
packet_bytes = 40
hold = "50us"
share = 3
[traffic.class.file]
packet_bytes = 1500
hold = "200us"
[scheme]
preset = "chumq"
"#;
    let scenario = read(text).unwrap();
    let plan = &scenario.points[0].plan;
    assert_eq!(plan.links[0].frame_ns_min, 200);
    assert_eq!(plan.groups[1].name, "file");
    let Traffic::Poisson { steps, .. } = &plan.flows[0].traffic else { panic!("not Poisson") };
    assert_eq!(steps.len(), 2);
    assert!((steps[1].1 - 9e9).abs() < 1.0, "{steps:?}");
    let error = read(&text.replace("1.3s", "0s")).unwrap_err();
    assert!(error.contains("times `at` must rise"), "{error}");
}

#[test]
fn a_dumbbell_spreads_its_flows() {
    let text = r#"
about.title = "A dumbbell"
[topology]
kind = "dumbbell"
edges = 3
flows = 9
access_rate = "100mbit"
edge_rate = "100mbit"
core_rate = "200mbit"
core_delay = "5ms"
buffer_packets = 50
resend_after = "22ms"
[traffic]
kind = "tcp"
packet_bytes = 1500
start_until = "1s"
[scheme]
preset = "none"
"#;
    let scenario = read(text).unwrap();
    let plan = &scenario.points[0].plan;
    let path = |flow: usize| -> Vec<&str> {
        plan.flows[flow].route.iter().map(|&link| plan.links[link].name.as_str()).collect()
    };
    assert_eq!(path(0), ["s0", "in1", "core", "out1", "d0"]);
    assert_eq!(path(7), ["s7", "in2", "core", "out3", "d7"]);
    let back: Vec<&str> =
        plan.flows[7].back.iter().map(|&link| plan.links[link].name.as_str()).collect();
    assert_eq!(back, ["d7-back", "out3-back", "core-back", "in2-back", "s7-back"]);
    assert_eq!(plan.flows[7].edge, 2);
    let Traffic::Tcp(config, _) = &plan.flows[0].traffic else { panic!("not TCP") };
    assert_eq!(*config, TcpConfig::sack1());
    let lossy = text.replace("flows = 9", "flows = 0");
    assert!(read(&lossy).unwrap_err().contains("`flows`: must be a whole number from 1"));
}

#[test]
fn a_flavour_of_tcp_brings_its_own_timers_and_windows() {
    let text = GRAPH.replace("kind = \"cbr\"", "kind = \"tcp\"\nflavour = \"vegas\"");
    let text = text.replace("rate = \"1mbit\"", "window = 64");
    let text = text.replace("queue = \"port\"", "queue = \"port\"\nduplex = true");
    let error = read(&text).unwrap_err();
    assert!(error.contains("must be one of \"sack1\", \"newreno\", \"cubic\""), "{error}");
    for (name, expected) in [
        ("sack1", TcpConfig::sack1()),
        ("newreno", TcpConfig::new_reno()),
        ("cubic", TcpConfig::cubic()),
    ] {
        let scenario = read(&text.replace("\"vegas\"", &format!("\"{name}\""))).unwrap();
        let Traffic::Tcp(config, _) = &scenario.points[0].plan.flows[0].traffic else {
            panic!("not TCP")
        };
        let expected = TcpConfig { segment_bytes: 100, window_packets: 64, ..expected };
        assert_eq!(*config, expected, "{name}");
    }
}

#[test]
fn a_paper_can_state_a_range() {
    let paper = "[[paper]]\nplace = '5.2'\nquantity = 'delay'\nmetric = 'target.delay_max_s'\n";
    let read_value = |value: &str| read(&format!("{PARKING_LOT}{paper}value = {value}\n"));
    assert_eq!(read_value("[0, 0.0008]").unwrap().papers[0].value, Some((0.0, 0.0008)));
    for (value, reported) in [
        ("[0.0008, 0]", "the lower end of a range comes first"),
        ("[1, 2, 3]", "a range has two ends"),
        ("[0, 'a']", "must be a number"),
    ] {
        let error = read_value(value).unwrap_err();
        assert!(error.contains(reported), "{value}: {error}");
    }
}

#[test]
fn figures_and_papers_are_read() {
    let text = format!(
        "{PARKING_LOT}{SWEEP}{}",
        r#"
[[figure]]
id = "a"
title = "Discards"
x = "compress.ratio"
y = "target.discard"
y_log = true
floor = 1e-5
series = ["scheme.preset"]

[[paper]]
place = "Fig. 8"
quantity = "change"
where = { compress.ratio = [0.7, 0.95], scheme.preset = "packet" }
against = { scheme.preset = "none" }
metric = "target.delay_mean_s"
value = [-1.0, nan]
reference = [nan, -2.0]
"#
    );
    let scenario = read(&text).unwrap();
    assert_eq!(scenario.figures[0].series, ["scheme.preset"]);
    assert_eq!(scenario.papers.len(), 2);
    assert_eq!(
        (scenario.papers[0].value, scenario.papers[0].reference),
        (Some((-1.0, -1.0)), None)
    );
    assert_eq!((scenario.papers[1].value, scenario.papers[1].reference), (None, Some(-2.0)));
    assert!(scenario.points[2].meets(&scenario.papers[1].only[..1]));
    for (from, to, reported) in [
        (
            "series = [\"scheme.preset\"]",
            "series = [\"scheme.prest\"]",
            "is no key of this scenario",
        ),
        ("floor = 1e-5", "flour = 1e-5", "did you mean `floor`?"),
        ("y = \"target.discard\"", "y = \"target.discard +\"", "is no formula"),
        ("y_log = true", "y_log = true\ny_range = [0, 1]", "can't begin at zero"),
        ("[-1.0, nan]", "[-1.0]", "the lists of one table go together"),
        ("metric = ", "metrik = ", "did you mean `metric`?"),
    ] {
        let error = read(&text.replace(from, to)).unwrap_err();
        assert!(error.contains(reported), "expected {reported}\nin {error}");
    }
}

#[test]
fn the_series_that_results_keep_can_be_set() {
    let set = |value: &str| read_with(PARKING_LOT, &settings(&[value]));
    let scenario = set("run.series=[\"target.delay_s\"]").unwrap();
    assert_eq!(scenario.series, ["target.delay_s"]);
    let error = set("run.series=[\"target.delai_s\"]").unwrap_err();
    assert!(error.contains("--set run.series: there is no series \"target.delai_s\""), "{error}");
    assert!(set("run.series=3").unwrap_err().contains("--set run.series: must be a list"));
    // What is one for all points is neither swept nor a variant of its own.
    let error = set("run.quick.measure=1s").unwrap_err();
    assert!(error.contains("--set run.quick: it is one for the whole scenario"), "{error}");
    let swept = format!("{PARKING_LOT}[[sweep]]\nrun.series = [['target.delay_s']]\n");
    assert!(read(&swept).unwrap_err().contains("`run.series`: it is one for the whole scenario"));
}

#[test]
fn formulas_that_no_run_has_a_value_for_are_refused() {
    let figure = |y: &str, more: &str| {
        format!(
            "{PARKING_LOT}{SWEEP}[[figure]]\nid = 'a'\ntitle = 'A'\nx = 'compress.ratio'\ny = '{y}'\n{more}"
        )
    };
    for good in ["target.discard", "r1.compressions / jain", "r2.compressed.cross", "s.lost"] {
        assert!(read(&figure(good, "")).is_ok(), "{good}: {:?}", read(&figure(good, "")).err());
    }
    for (bad, hint) in [
        ("target.discrad", "did you mean `target.discard`?"),
        ("taget.discard", "did you mean `target.discard`?"),
        ("1 + throughput_bsp", "did you mean `throughput_bps`?"),
        ("r1.compressed.nobody", "no run has a value \"r1.compressed.nobody\""),
        ("r1.loudness", "there are r1.compressed_share, r1.compressions, "),
        ("compress.ratoi", "did you mean `compress.ratio`?"),
        ("office.pages", "groups and links have values (cross, d, "),
    ] {
        let error = read(&figure(bad, "")).unwrap_err();
        assert!(error.contains("[[figure]] \"a\": no run has a value"), "{bad}: {error}");
        assert!(error.contains(hint), "{bad}: {error}");
    }
    let cdf = read(&figure("target.exces_s", "kind = 'cdf'")).unwrap_err();
    assert!(cdf.contains("there is no series \"target.exces_s\""), "{cdf}");
    let paper = "[[paper]]\nplace = '5'\nquantity = 'delay'\nvalue = 1\nmetric = 'target.delay'\n";
    let error = read(&format!("{PARKING_LOT}{paper}")).unwrap_err();
    assert!(error.contains("[[paper]] \"delay\": no run has a value \"target.delay\""), "{error}");
    // A setting may remove what a figure shows, but does not make a wrong name right.
    let fewer = settings(&["topology.relays=2"]);
    assert!(read_with(&figure("r2.compressions", ""), &fewer).is_ok());
    assert!(read_with(&figure("r1.compresions", ""), &fewer).is_err());
}

#[test]
fn what_is_wrong_with_a_link_is_all_that_is_reported() {
    for (from, to, reported) in [
        ("rate = \"5mbit\"", "rate = \"0mbit\"", "[link.bc], `rate`: a rate must be"),
        ("buffer_packets = 50", "buffer_packets = 0", "`buffer_packets`: must be a whole number"),
        (
            "queue = \"port\"\nbuffer_packets = 50",
            "queue = \"drop-tail\"\nbuffer_packets = 0",
            "`buffer_packets`: must be a whole number",
        ),
        (
            "queue = \"port\"\nbuffer_packets = 50",
            "buffer_packets = \"many\"",
            "`buffer_packets`: must be a whole number",
        ),
        (
            "rate = \"5mbit\"",
            "rate = 5\nrate_steps = [{ at = '1s', rate = '1mbit' }]",
            "`rate`: must be a rate",
        ),
        ("queue = \"port\"", "queue = \"prot\"", "\"prot\" is unknown: did you mean \"port\"?"),
    ] {
        let text = GRAPH.replace(from, to);
        assert_ne!(text, GRAPH);
        let error = read(&text).unwrap_err();
        assert!(error.contains(reported), "expected {reported}\nin {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn values_without_any_effect_or_sense_are_refused() {
    for (text, reported) in [
        (
            changed("replications = 3", "replications = 3\njitter = '5us'"),
            "x.toml:9: [run], `jitter`: it belongs to ties = \"jitter\"",
        ),
        (
            changed("replications = 3", "replications = 3\nties = 'jitter'\njitter = '1000000s'"),
            "[run], `jitter`: it is longer than the whole run",
        ),
        (
            GRAPH.replace("rate = \"5mbit\"", "rate = \"5mbit\"\nrate_steps = []"),
            "[link.bc], `rate_steps`: there is no step in it",
        ),
        (
            GRAPH.replace("rate = \"5mbit\"", "rate = \"5mbit\"\nrate_repeat = \"1s\""),
            "[link.bc], `rate_repeat`: there is nothing to repeat",
        ),
        (
            GRAPH.replace("rate = \"5mbit\"", "rate = \"5mbit\"\njitter = \"1000000s\""),
            "[link.bc], `jitter`: it is longer than the whole run",
        ),
        (
            GRAPH.replace("rate = \"1mbit\"", "rate = \"1mbit\"\nstart = \"2s\""),
            "[flow.web], `start`: the run is over then",
        ),
        (
            GRAPH.replace("\"cbr\"", "\"poisson\"\nsteps = []"),
            "[flow.web], `steps`: there is no step in it",
        ),
    ] {
        let error = read(&text).unwrap_err();
        assert!(error.contains(reported), "expected {reported}\nin {error}");
    }
    // One of several points has a use for it, or a setting took it away.
    let swept = changed("replications = 3", "replications = 3\njitter = '5us'");
    assert!(read(&format!("{swept}[[sweep]]\nrun.ties = ['ns-2', 'jitter']\n")).is_ok());
    let jittered = changed("replications = 3", "replications = 3\nties = 'jitter'\njitter = '5us'");
    assert!(read_with(&jittered, &settings(&["run.ties=random"])).is_ok());
    assert!(read_with(PARKING_LOT, &settings(&["run.jitter=5us"])).is_err());
    // A source may be silent in some points, and in a run that a setting made shorter.
    assert!(read_with(GRAPH, &settings(&["flow.web.start=2s"])).is_ok());
    assert!(read(&format!("{GRAPH}[[sweep]]\nflow.web.start = ['0s', '2s']\n")).is_ok());
}
