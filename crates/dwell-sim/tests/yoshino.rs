//! The dumbbell of Yoshino et al., "Adaptive Online Compressing Schemes Using Flow Information
//! on Advanced Relay Nodes", section IV: TCP connections over three ingress edges, two cores and
//! three egress edges, against ns-2.35 on the same network.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use dwell_base::Rate;
use dwell_policy::{Estimate, Estimates, Gather, PortConfig, QueueLimit, Ratio, Scheme};
use dwell_sim::World;
use dwell_sim::plan::{
    CompressionModel, DropTail, Flow, Group, Link, Plan, PortPlan, Queue, RandomSource, TcpStart,
    Traffic, Window,
};
use dwell_sim::tcp::TcpConfig;

const MILLI_NS: u64 = 1_000_000;
const SECOND_NS: u64 = 1_000_000_000;

struct Builder {
    plan: Plan,
}

impl Builder {
    fn node(&mut self, name: String) -> usize {
        self.plan.nodes.push(name);
        self.plan.nodes.len() - 1
    }

    /// Links in both directions; `queue` is the one from `from`.
    fn link(&mut self, from: usize, to: usize, mbps: u64, ms: u64, queue: Queue) -> (usize, usize) {
        let nodes = &self.plan.nodes;
        let forward = format!("{}-{}", nodes[from], nodes[to]);
        let back = format!("{}-{}", nodes[to], nodes[from]);
        let at = self.plan.links.len();
        for (name, from, to, queue) in [(forward, from, to, queue), (back, to, from, fifty())] {
            self.plan.links.push(Link {
                name,
                from,
                to,
                rate: Rate::from_mbps(mbps),
                propagation_ns: ms * MILLI_NS,
                frame_ns_min: 0,
                queue,
                restored: false,
                medium: dwell_sim::plan::Medium::default(),
            });
        }
        (at, at + 1)
    }
}

fn fifty() -> Queue {
    Queue::DropTail(DropTail { packets: Some(50), bytes: None })
}

fn dumbbell(flows: usize, scheme: Option<(Scheme, f64)>) -> Plan {
    let mut b = Builder { plan: Plan::default() };
    let core = ["core1", "core2"].map(|name| b.node(name.into()));
    let (over, over_back) = b.link(core[0], core[1], 200, 5, fifty());
    let port = |(scheme, ratio): (Scheme, f64)| {
        let time_ns = 5 * 120_000;
        let ppm = (ratio * 1e6) as u32;
        let estimate = Estimate { ratio: Ratio::from_ppm(ppm), cost_ns: time_ns };
        Queue::Port(Box::new(PortPlan {
            config: PortConfig {
                scheme,
                rate: Some(Rate::from_mbps(100)),
                limit: QueueLimit::packets(50),
                estimates: Estimates::Fixed(estimate),
                ..PortConfig::default()
            },
            compress: CompressionModel::Constant { ratio, time_ns },
            resend_after_ns: Some(22 * MILLI_NS),
            unit_s: None,
        }))
    };
    let mut edges = Vec::new();
    for n in 0..3 {
        let (ingress, egress) = (b.node(format!("in{n}")), b.node(format!("eg{n}")));
        let queue = scheme.map_or_else(fifty, port);
        let up = b.link(ingress, core[0], 100, 3, queue);
        let down = b.link(core[1], egress, 100, 3, fifty());
        edges.push((ingress, egress, up, down));
    }
    b.plan.groups = vec![Group { name: "tcp".into(), wait_ns_max: 0 }];
    for k in 0..flows {
        let (ingress, _, up, _) = edges[k % 3];
        let (_, egress, _, down) = edges[k / 3 % 3];
        let (sender, receiver) = (b.node(format!("s{k}")), b.node(format!("r{k}")));
        let access = b.link(sender, ingress, 100, 1, fifty());
        let leave = b.link(egress, receiver, 100, 1, fifty());
        b.plan.links[leave.0].restored = true;
        b.plan.flows.push(Flow {
            group: 0,
            route: vec![access.0, up.0, over, down.0, leave.0],
            back: vec![leave.1, down.1, over_back, up.1, access.1],
            max_wait_ns: 0,
            edge: (k / 3 % 3) as u64,
            service: k as u64,
            hosts: k as u64,
            traffic: Traffic::Tcp(
                TcpConfig::sack1(),
                TcpStart { between_ns: (0, SECOND_NS), random: RandomSource::Own },
            ),
        });
    }
    b.plan.window = Window { from_ns: 10 * SECOND_NS, until_ns: 30 * SECOND_NS, drain_ns: 0 };
    b.plan
}

fn throughput_mbps(plan: &Plan, seed: u64) -> f64 {
    World::new(plan, seed).unwrap().run().metrics()["throughput_bps"] / 1e6
}

/// ns-2.35: mean of ten seeds, 95 % interval under 0.6.
#[test]
fn without_compression_tcp_fills_what_it_fills_in_ns2() {
    for (flows, ns2_mbps) in [(9, 183.9), (27, 191.3), (63, 198.4), (99, 199.6)] {
        let ours = throughput_mbps(&dumbbell(flows, None), 1);
        assert!((ours / ns2_mbps - 1.0).abs() < 0.02, "{flows} flows: {ours}, ns-2 {ns2_mbps}");
    }
}

/// 198 flows whose edges gather blocks, compressed to a share of `ratio`.
fn with_blocks(gather: Gather, m: u32, ratio: f64) -> Plan {
    dumbbell(198, Some((Scheme::backlog(gather, m, 5), ratio)))
}

/// The means of metrics over three seeds.
fn means<const N: usize>(plan: &Plan, names: [&str; N]) -> [f64; N] {
    let runs = [1, 2, 3].map(|seed| World::new(plan, seed).unwrap().run().metrics());
    names.map(|name| runs.iter().map(|metrics| metrics[name]).sum::<f64>() / 3.0)
}

/// ns-2.35 with the schemes in its queue, mean of ten seeds: 257.5 with a 95 % interval of 8 for
/// the edge's blocks, 232.4 with one of 3 for the flows'. The tolerances are what the means of
/// its ten and of our three seeds may differ by: single ones stray by 11 and by 4. Without
/// compression it is 199.4, with the flows' blocks of ten 214.1: neither scheme passes for
/// another.
#[test]
fn blocks_carry_what_they_carry_in_ns2() {
    let cases = [(Gather::Edge, 10, 0.5, 257.5, 16.0), (Gather::Flow, 5, 0.6, 232.4, 6.0)];
    for (gather, m, ratio, ns2_mbps, tolerance_mbps) in cases {
        let [bps] = means(&with_blocks(gather, m, ratio), ["throughput_bps"]);
        let ours = bps / 1e6;
        assert!((ours - ns2_mbps).abs() < tolerance_mbps, "{gather:?}: {ours}, ns-2 {ns2_mbps}");
    }
}

/// A block that is lost at the core and stays lost is ten losses for TCP.
#[test]
fn blocks_carry_less_if_lost_ones_stay_lost() {
    let plan = with_blocks(Gather::Edge, 10, 0.5);
    let mut lossy = plan.clone();
    for link in &mut lossy.links {
        if let Queue::Port(port) = &mut link.queue {
            port.resend_after_ns = None;
        }
    }
    let [with, without] = [&plan, &lossy].map(|plan| means(plan, ["returned", "throughput_bps"]));
    assert!(with[0] > 100.0 && without[0] == 0.0, "came back: {} and {}", with[0], without[0]);
    assert!(without[1] < 0.95 * with[1], "{} without, {} with", without[1], with[1]);
}
