//! Managed queues, losses, rates that vary, BBR, marks and transfers that end, as scenarios have them.

use std::collections::BTreeMap;

use dwell_sim::scenario::{Options, Scenario};
use dwell_sim::{World, library};

/// Runs a scenario of one link `l`, with these keys, and a flow `f` with those.
fn run(link: &str, flow: &str) -> BTreeMap<String, f64> {
    run_for(10, link, flow)
}

fn run_for(seconds: u32, link: &str, flow: &str) -> BTreeMap<String, f64> {
    let text = format!(
        "[about]\ntitle = \"one link\"\n[run]\nwarm_up = \"2s\"\nmeasure = \"{seconds}s\"\n\
         [topology]\nkind = \"graph\"\n\
         [link.l]\nfrom = \"a\"\nto = \"b\"\nrate = \"10mbit\"\ndelay = \"10ms\"\n{link}\n\
         [link.back]\nfrom = \"b\"\nto = \"a\"\nrate = \"10mbit\"\ndelay = \"10ms\"\n\
         [flow.f]\nfrom = \"a\"\nto = \"b\"\n{flow}\n[scheme]\npreset = \"packet\"\n\
         [compress]\nratio = 0.5\ntime = \"100us\"\n"
    );
    let file = |name: &str| match name {
        "rates.csv" => Ok("seconds,bps\n0,8000000\n1,0\n2,2000000\n".to_owned()),
        other => Err(format!("there is no {other}")),
    };
    let parsed = Scenario::parse(&text, "one", "one", &Options::default(), &file);
    let scenario = parsed.unwrap_or_else(|errors| panic!("{errors}"));
    let mut plan = scenario.points[0].plan.clone();
    plan.check_invariants = true;
    let metrics = World::new(&plan, 1).expect("a possible plan").run().metrics();
    assert_eq!(metrics, World::new(&plan, 1).expect("the same").run().metrics());
    metrics
}

fn tcp(flavour: &str, more: &str) -> String {
    format!("kind = \"tcp\"\nflavour = \"{flavour}\"\n{more}")
}

const OVERLOAD: &str = "kind = \"poisson\"\npacket_bytes = 1250\nrate = \"11mbit\"";

#[test]
fn managed_queues_keep_the_delay_of_tcp_near_their_targets() {
    let waits = |queue: &str| {
        let metrics = run(queue, &tcp("cubic", ""));
        assert!(metrics["throughput_bps"] > 8.8e6, "{queue}: {}", metrics["throughput_bps"]);
        metrics["l.wait_mean_s"]
    };
    let plain = waits("buffer_packets = 200\nobserve = true");
    assert!(plain > 0.05, "{plain}");
    for (queue, most) in [("codel", 0.012), ("fq-codel", 0.012), ("pie", 0.025)] {
        let wait = waits(&format!("queue = \"{queue}\""));
        assert!(wait < most, "{queue}: {wait}");
    }
}

#[test]
fn marks_take_the_place_of_drops() {
    for queue in ["codel", "fq-codel", "pie"] {
        // PIE drops at a probability of more than 10 %, which the first slow start reaches.
        let marked = run(
            &format!("queue = \"{queue}\"\necn = true"),
            &tcp("newreno", "window = 60\necn = true"),
        );
        assert!(marked["l.queue_marked"] > 3.0, "{queue}");
        assert_eq!(marked["l.queue_dropped"], 0.0, "{queue}");
        // A sender that takes no marks gets drops.
        let plain = run(&format!("queue = \"{queue}\"\necn = true"), &tcp("newreno", ""));
        assert_eq!(plain["l.queue_marked"], 0.0, "{queue}");
        assert!(plain["l.queue_dropped"] > 3.0, "{queue}");
    }
}

#[test]
fn bbr_fills_the_link_without_filling_its_buffer_and_ignores_losses() {
    let metrics = run_for(20, "buffer_packets = 500\nobserve = true", &tcp("bbr", ""));
    assert!(metrics["throughput_bps"] > 9.2e6, "{}", metrics["throughput_bps"]);
    assert!(metrics["l.wait_mean_s"] < 0.02, "{}", metrics["l.wait_mean_s"]);
    let lossy = "buffer_packets = 500\nloss = 0.01";
    let bbr = run_for(20, lossy, &tcp("bbr", "rto_min = \"200ms\""))["throughput_bps"];
    let reno = run_for(20, lossy, &tcp("newreno", "rto_min = \"200ms\""))["throughput_bps"];
    assert!(bbr > 8.5e6 && reno < 0.75 * bbr, "{bbr} {reno}");
}

#[test]
fn losses_and_jitter_befall_any_link() {
    for queue in
        ["queue = \"unlimited\"", "buffer_packets = 100", "queue = \"port\"", "queue = \"codel\""]
    {
        let link = format!("{queue}\nloss = {{ to_bad = 0.02, to_good = 0.25 }}\njitter = \"5ms\"");
        let metrics = run(&link, "kind = \"cbr\"\npacket_bytes = 1250\nrate = \"5mbit\"");
        let share = metrics["l.lost"] / metrics["f.sent"];
        assert!((0.04..0.11).contains(&share), "{queue}: {share}");
        assert_eq!(metrics["f.dropped"], metrics["l.lost"], "{queue}");
        assert!(metrics["f.jitter_mean_s"] > 0.0005, "{queue}");
    }
}

#[test]
fn rates_vary_for_queues_and_ports() {
    // 8 Mbit/s, nothing and 2 Mbit/s for a second each, again and again.
    let steps = "rate_file = \"rates.csv\"\nrate_repeat = \"3s\"";
    let flow = "kind = \"cbr\"\npacket_bytes = 1250\nrate = \"20mbit\"";
    let link = format!("buffer_packets = 50\n{steps}");
    let metrics = run_for(30, &link, flow);
    assert!((3.2e6..3.45e6).contains(&metrics["l.rate_bps"]), "{}", metrics["l.rate_bps"]);
    assert!(metrics["l.wait_max_s"] > 1.0);
    let metrics = run_for(30, &format!("queue = \"port\"\nbuffer_packets = 50\n{steps}"), flow);
    assert!((3.2e6..3.45e6).contains(&metrics["l.rate_bps"]), "{}", metrics["l.rate_bps"]);
    let walk =
        "rate_walk = { sigma = 0.4, correlation = \"500ms\", least = 0.2 }\nbuffer_packets = 50";
    let metrics = run_for(60, walk, OVERLOAD);
    assert!((6e6..10.5e6).contains(&metrics["l.rate_bps"]), "{}", metrics["l.rate_bps"]);
}

#[test]
fn transfers_end_and_their_times_are_known() {
    // 146,000 bytes are 100 packets: 120 ms on the link, and the round trips of SYN and first window.
    let flow = tcp("newreno", "bytes = 146000\nstart = \"3s\"");
    let metrics = run("", &flow);
    assert_eq!((metrics["f.transfers"], metrics["f.completed"]), (1.0, 1.0));
    let seconds = metrics["f.completion_mean_s"];
    assert!((0.15..0.17).contains(&seconds), "{seconds}");
    let many = tcp("cubic", "bytes = 30000\nstart = \"2s\"\nstart_until = \"11s\"");
    let metrics = run("buffer_packets = 100", &format!("{many}\ncount = 200"));
    assert_eq!((metrics["f.transfers"], metrics["f.completed"]), (200.0, 200.0));
    assert!(metrics["f.completion_p99_s"] >= metrics["f.completion_p50_s"]);
}

/// A SYN of 40 bytes and a packet with the 1,000: all that is acknowledged is what was delivered, by its bytes on the wire.
#[test]
fn the_throughput_of_short_transfers_is_that_of_their_bytes() {
    let metrics = run("", &tcp("newreno", "bytes = 1000\ncount = 300\nstart_until = \"11s\""));
    let [acknowledged, delivered] = ["f.throughput_bps", "f.goodput_bps"].map(|name| metrics[name]);
    assert!((acknowledged / delivered - 1.0).abs() < 0.02, "{acknowledged} {delivered}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let refused = |link: &str, flow: &str, why: &str| {
        let text = format!(
            "[about]\ntitle = \"one\"\n[topology]\nkind = \"graph\"\n[link.l]\nfrom = \"a\"\nto = \"b\"\n\
             rate = \"10mbit\"\nduplex = true\n{link}\n[flow.f]\nfrom = \"a\"\nto = \"b\"\n{flow}\n\
             [scheme]\npreset = \"none\"\n"
        );
        let file = |_: &str| Err("no files".to_owned());
        let errors = Scenario::parse(&text, "one", "one", &Options::default(), &file).unwrap_err();
        assert!(errors.to_string().contains(why), "{errors}");
    };
    refused("loss = 1.5", OVERLOAD, "must be a number from 0 to 1");
    refused("loss = { to_bad = 0.1, to_good = 0 }", OVERLOAD, "the bad state must end");
    refused("loss = { to_bad = 0.1 }", OVERLOAD, "need `to_good`");
    refused("target = \"5ms\"", OVERLOAD, "no such key");
    refused("queue = \"pie\"\ninterval = \"5ms\"", OVERLOAD, "no such key");
    refused("rate_steps = [{ at = \"1s\", rate = \"0\" }]", OVERLOAD, "zero for ever");
    let two = "rate_walk = { sigma = 0.5 }\nrate_file = \"x.csv\"";
    refused(two, OVERLOAD, "in one way only");
    refused("rate_walk = { sigma = 9 }", OVERLOAD, "from 0 to 5");
    refused("", &tcp("sack1", "ecn = true"), "takes no marks");
    refused("", &tcp("bbr", "bytes = 0"), "from 1 to");
    refused("", &tcp("newreno", "announced = 3"), "set `read_rate`");
    refused("", &tcp("sack1", "like = \"linux\""), "not for");
    refused("queue = \"pie\"\nlike = \"bsd\"", OVERLOAD, "ns-3");
}

/// In their quick variants; the numbers are for people.
#[test]
fn worked_scenarios_run_and_deliver() {
    for entry in library::WORKED {
        let options = Options { is_quick: true, ..Options::default() };
        let scenario = entry.read(&options).unwrap_or_else(|errors| panic!("{errors}"));
        assert!(!scenario.figures.is_empty(), "{}", entry.id);
        for point in &scenario.points {
            let outcome = World::new(&point.plan, 1).expect("a possible plan").run();
            for group in &outcome.groups {
                assert!(group.delivered > 0, "{}: {}", entry.id, group.name);
            }
        }
    }
}

#[test]
fn a_program_that_reads_slowly_is_what_limits_a_connection() {
    let rate = |more: &str| run("", &tcp("cubic", more))["throughput_bps"];
    // Of 1,500 bytes on the link 1,460 are read.
    let slow = rate("window = 64\nread_rate = \"2mbit\"");
    assert!((slow / (2e6 * 1_500.0 / 1_460.0) - 1.0).abs() < 0.01, "{slow}");
    // Twenty packets for each visit, four times a second.
    let seldom = rate("window = 20\nread_rate = \"9mbit\"\nread_every = \"250ms\"");
    assert!((seldom / (80.0 * 12_000.0) - 1.0).abs() < 0.05, "{seldom}");
    let fast = rate("window = 64\nread_rate = \"1gbit\"");
    assert!(fast > 9.5e6, "{fast}");
}

#[test]
fn results_keep_the_series_that_a_scenario_asks_for() {
    use dwell_sim::results::{Run, Task};
    let text = |series: &str| {
        format!(
            "[about]\ntitle = \"one link\"\n[run]\nmeasure = \"2s\"\ndrain = \"0s\"\nbin = \"500ms\"\n\
             series = [{series}]\n[topology]\nkind = \"graph\"\n\
             [link.l]\nfrom = \"a\"\nto = \"b\"\nrate = \"10mbit\"\nobserve = true\n\
             [flow.f]\nfrom = \"a\"\nto = \"b\"\nkind = \"cbr\"\npacket_bytes = 1250\nrate = \"5mbit\"\n\
             [scheme]\npreset = \"none\"\n"
        )
    };
    let parse = |series: &str| {
        let file = |name: &str| Err(format!("there is no {name}"));
        Scenario::parse(&text(series), "one", "one", &Options::default(), &file)
    };
    let scenario = parse("\"f.goodput_bps\", \"l.queue_mean\", \"l.rate_bps\", \"l.wait_s\"");
    let scenario = scenario.unwrap_or_else(|errors| panic!("{errors}"));
    let tasks: Vec<Task<'_>> = Task::all(&scenario).collect();
    let record = Run::all(&tasks, "test")[0].run().expect("a possible plan");
    // Half of the link's rate, evenly; the first bin has the packet at 0, too.
    let (whole, rest) = record.series["f.goodput_bps"].split_at(4);
    assert!(whole.iter().all(|(_, bps)| (bps - 5e6).abs() <= 20_000.0), "{whole:?}");
    // And a bin for the packet that is sent when the time is over.
    assert!(rest.iter().all(|(_, bps)| *bps <= 20_000.0), "{rest:?}");
    for &(_, bps) in &record.series["l.rate_bps"][..4] {
        assert!((bps - 5e6).abs() <= 20_000.0, "{bps}");
    }
    assert_eq!(record.series["l.queue_mean"].first().map_or(0.0, |&(_, packets)| packets), 0.0);
    assert_eq!(record.series["l.wait_s"].len(), 1, "none waits");
    for unknown in ["f.nothing", "l.delay_s", "k.rate_bps", "l"] {
        let errors = parse(&format!("\"{unknown}\"")).unwrap_err().to_string();
        assert!(errors.contains("there is no series"), "{errors}");
    }
}
