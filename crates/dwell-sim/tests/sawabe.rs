//! The ingress edge of Sawabe et al., "Efficient QoS-aware packet chunking scheme for machine to
//! machine cloud services", section 5: three classes of packets, one link of 10 Gbit/s.
//!
//! The core itself is tested against the paper's tables in its own crate; these tests are about the
//! world around it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use dwell_base::Rate;
use dwell_policy::{FrameCost, PortConfig, QueueLimit, Scheme};
use dwell_sim::plan::{
    CompressionModel, DropTail, Flow, Group, Link, Plan, PortPlan, Queue, Traffic, Window,
};
use dwell_sim::{Outcome, World};

const MICRO_NS: u64 = 1_000;
const LINK_BPS: f64 = 10e9;
const CLASSES: [(&str, u32, u64); 3] =
    [("sensing", 40, 50), ("real-time", 200, 100), ("file", 1500, 200)];

/// `loads` are shares of the link, by class.
fn edge(queue: Queue, loads: [f64; 3], until_ns: u64) -> Plan {
    let mut plan = Plan { nodes: vec!["in".into(), "out".into()], ..Plan::default() };
    plan.links.push(Link {
        name: "edge".into(),
        from: 0,
        to: 1,
        rate: Rate::from_bps(LINK_BPS as u64).unwrap(),
        propagation_ns: 0,
        frame_ns_min: 200, // 5 million packets per second
        queue,
        restored: false,
        medium: dwell_sim::plan::Medium::default(),
    });
    for ((name, packet_bytes, wait_us), load) in CLASSES.into_iter().zip(loads) {
        let wait_ns = wait_us * MICRO_NS;
        plan.groups.push(Group { name: name.into(), wait_ns_max: wait_ns });
        plan.flows.push(Flow {
            group: plan.groups.len() - 1,
            route: vec![0],
            back: Vec::new(),
            max_wait_ns: wait_ns,
            edge: 0,
            service: 0,
            hosts: 0,
            traffic: Traffic::Poisson { packet_bytes, steps: vec![(0, load * LINK_BPS)] },
        });
    }
    plan.window = Window { from_ns: until_ns / 10, until_ns, drain_ns: 5_000_000 };
    plan
}

fn chunking(preset: &str) -> Queue {
    Queue::Port(Box::new(PortPlan {
        config: PortConfig {
            scheme: Scheme::preset(preset).unwrap(),
            rate: Rate::from_bps(LINK_BPS as u64),
            limit: QueueLimit::packets(u32::MAX),
            frame: FrameCost::FREE_CHUNKS,
            ..PortConfig::default()
        },
        compress: CompressionModel::Constant { ratio: 1.0, time_ns: 0 },
        resend_after_ns: None,
        unit_s: None,
    }))
}

fn run(plan: &Plan) -> Outcome {
    World::new(plan, 1).unwrap().run()
}

#[test]
fn chunks_take_a_fortieth_of_the_packets_that_the_router_can_forward() {
    for preset in ["basicq", "chumq", "chutq-dcf", "chutq-tpf"] {
        let m = run(&edge(chunking(preset), [0.3; 3], 50_000_000)).metrics();
        // Table III: η of 0.025 or 0.026, 8.97 Gbit/s.
        let eta = m["edge.frames_per_s"] / 5e6;
        assert!((0.0245..0.0275).contains(&eta), "{preset}: {eta}");
        assert!((m["edge.rate_bps"] / 1e9 - 9.0).abs() < 0.1, "{preset}");
        for (class, ..) in CLASSES {
            assert!(m[&format!("{class}.late_share")] < 0.001, "{preset}, {class}");
        }
    }
}

#[test]
fn without_chunks_the_packet_rate_is_the_limit() {
    // Table III: 0.902 of 5 million packets per second, 3.52 Gbit/s.
    let tail = Queue::DropTail(DropTail { packets: Some(10_000), bytes: None });
    let m = run(&edge(tail, [0.3; 3], 50_000_000)).metrics();
    let delivered: f64 = CLASSES.iter().map(|(name, ..)| m[&format!("{name}.goodput_bps")]).sum();
    assert!((delivered / 1e9 - 3.53).abs() < 0.1, "{delivered}");
}

#[test]
fn invariants_hold_after_every_event() {
    for preset in dwell_policy::PRESETS {
        for load in [0.1, 0.3, 0.4] {
            let mut plan = edge(chunking(preset), [load; 3], 100_000);
            // Longer than any timer; a check takes as long as the queue is, which has no limit.
            plan.window.drain_ns = 300_000;
            plan.check_invariants = true;
            let outcome = run(&plan);
            assert!(outcome.source_packets > 1_000, "{preset}: {}", outcome.source_packets);
        }
    }
}
