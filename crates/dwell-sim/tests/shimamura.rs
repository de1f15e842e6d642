//! The parking lot of Shimamura et al., "Compressing Packets Adaptively Inside Networks",
//! section 5, against the paper's own values.
//!
//! Tolerances are the paper's rounding and the spread of ten seeds.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use dwell_base::Rate;
use dwell_policy::{Estimate, Estimates, Method, PortConfig, QueueLimit, Ratio, Scheme};
use dwell_sim::plan::{
    CompressionModel, Flow, Group, Link, OnOff, Plan, PortPlan, Queue, RandomSource, Traffic,
    Window,
};
use dwell_sim::{Outcome, World};

const SECOND_NS: u64 = 1_000_000_000;
const COMPRESS_NS: u64 = 200_000;

/// S → R1 … Rn → D, with a cross source at each relay but the last.
fn parking_lot(relays: usize, scheme: Scheme, ratio: f64) -> Plan {
    let rate = Rate::from_mbps(100);
    let mut plan = Plan { nodes: vec!["s".into(), "d".into()], ..Plan::default() };
    let mut link = |name: String, from, to, queue, restored| {
        plan.links.push(Link {
            name,
            from,
            to,
            rate,
            propagation_ns: 0,
            frame_ns_min: 0,
            queue,
            restored,
            medium: dwell_sim::plan::Medium::default(),
        });
        plan.links.len() - 1
    };
    let relay = |n: usize| 2 + n;
    let cross = |n: usize| 2 + relays + n;
    let estimate = Estimate { ratio: Ratio::from_ppm((ratio * 1e6) as u32), cost_ns: COMPRESS_NS };
    let port = PortPlan {
        config: PortConfig {
            scheme: Scheme { method: Method { back_off: None, ..scheme.method }, ..scheme },
            rate: Some(rate),
            limit: QueueLimit::packets(1000),
            estimates: Estimates::Fixed(estimate),
            ..PortConfig::default()
        },
        compress: CompressionModel::Constant { ratio, time_ns: COMPRESS_NS },
        resend_after_ns: None,
        unit_s: None,
    };
    let mut target = vec![link("s-r1".into(), 0, relay(0), Queue::Unlimited, false)];
    let mut crosses = Vec::new();
    for n in 0..relays - 1 {
        let queue = Queue::Port(Box::new(port.clone()));
        let congested = link(format!("r{}", n + 1), relay(n), relay(n + 1), queue, false);
        target.push(congested);
        let (inn, out) = (format!("x{}-in", n + 1), format!("x{}-out", n + 1));
        let inn = link(inn, cross(n), relay(n), Queue::Unlimited, false);
        let out = link(out, relay(n + 1), cross(n + 1), Queue::Unlimited, true);
        crosses.push(vec![inn, congested, out]);
    }
    target.push(link("rn-d".into(), relay(relays - 1), 1, Queue::Unlimited, true));
    plan.nodes.extend((0..2 * relays).map(|n| format!("node{n}")));
    plan.groups =
        ["target", "cross"].map(|name| Group { name: name.into(), wait_ns_max: 0 }).to_vec();
    let traffic = Traffic::OnOff(OnOff {
        packet_bytes: 500,
        rate: Rate::from_mbps(60),
        on_ns: 250_000.0,
        off_ns: 50_000.0,
        random: RandomSource::Own,
    });
    let flow = |group, route| Flow {
        group,
        route,
        back: Vec::new(),
        max_wait_ns: 0,
        edge: 0,
        service: 0,
        hosts: 0,
        traffic: traffic.clone(),
    };
    plan.flows.push(flow(0, target));
    plan.flows.extend(crosses.into_iter().map(|route| flow(1, route)));
    plan.window = Window { from_ns: 10 * SECOND_NS, until_ns: 30 * SECOND_NS, drain_ns: SECOND_NS };
    plan
}

fn run(plan: &Plan, seed: u64) -> Outcome {
    World::new(plan, seed).unwrap().run()
}

/// The means of metrics over ten seeds, as in the paper.
fn mean<N: AsRef<str>>(plan: &Plan, metrics: &[N]) -> Vec<f64> {
    let mut sums = vec![0.0; metrics.len()];
    for seed in 0..10 {
        let values = run(plan, seed).metrics();
        for (sum, name) in sums.iter_mut().zip(metrics) {
            *sum += values[name.as_ref()] / 10.0;
        }
    }
    sums
}

#[track_caller]
fn near(ours: f64, paper: f64, tolerance: f64) {
    assert!((ours - paper).abs() <= tolerance, "ours {ours}, the paper's {paper} ± {tolerance}");
}

#[test]
fn no_compression_discards_one_in_two_hundred() {
    let plan = parking_lot(2, Scheme::none(), 0.7);
    let m = mean(&plan, &["target.discard", "target.delay_mean_s", "target.delay_max_s"]);
    near(m[0], 0.004, 0.0015);
    near(m[1], 0.0392, 0.0005);
    near(m[2], 0.0401, 0.0001);
}

#[test]
fn the_scheme_discards_nothing_and_compresses_one_in_six() {
    let plan = parking_lot(2, Scheme::packet(), 0.95);
    let names = ["target.discard", "r1.compressed_share", "r1.queue_mean", "target.delay_mean_s"];
    let m = mean(&plan, &names);
    near(m[0], 0.0, 0.0);
    near(m[1], 0.158, 0.006);
    near(m[2], 17.0, 3.0);
    near(m[3], 0.0009, 0.0002);
}

#[test]
fn what_is_compressed_falls_along_the_chain() {
    let mut plan = parking_lot(10, Scheme::packet(), 0.95);
    // Queues are short here and need no long warm-up. The shares of runs of ten seconds spread by
    // 0.006, and that of the paper's second relay lies 0.007 below their mean.
    plan.window = Window { from_ns: SECOND_NS, until_ns: 11 * SECOND_NS, drain_ns: SECOND_NS / 10 };
    let names: Vec<String> = (1..10).map(|n| format!("r{n}.compressed_share")).collect();
    let shares = mean(&plan, &names);
    // Table 3, target and cross together.
    let paper = [0.158, 0.117, 0.102, 0.086, 0.075, 0.063, 0.060, 0.056, 0.050];
    for (ours, paper) in shares.into_iter().zip(paper) {
        near(ours, paper, 0.012);
    }
}

#[test]
fn invariants_hold_after_every_event() {
    for scheme in [Scheme::none(), Scheme::all(), Scheme::packet()] {
        let mut plan = parking_lot(3, scheme, 0.7);
        plan.window = Window { from_ns: 0, until_ns: 20_000_000, drain_ns: 0 };
        plan.check_invariants = true;
        run(&plan, 1);
    }
}

#[test]
fn a_seed_gives_the_same_outcome_again() {
    let mut plan = parking_lot(3, Scheme::packet(), 0.95);
    plan.window = Window { from_ns: 0, until_ns: SECOND_NS, drain_ns: 0 };
    assert_eq!(run(&plan, 5).metrics(), run(&plan, 5).metrics());
    assert_ne!(run(&plan, 5).metrics(), run(&plan, 6).metrics());
}
