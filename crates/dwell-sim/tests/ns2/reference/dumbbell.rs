//! The network of `validate/dumbbell.tcl`: TCP over a dumbbell without compression.

use dwell_base::Rate;
use dwell_base::time::{MILLI_NS, SECOND_NS};

use dwell_sim::plan::{
    DropTail, Flow, Group, Link, Plan, Queue, RandomSource, TcpStart, Traffic, Window,
};
use dwell_sim::tcp::TcpConfig;

/// The number of edges on either side.
const EDGES: usize = 3;

/// Yoshino et al.'s dumbbell (Fig. 2) without compression.
///
/// Flow k enters at edge k mod 3 and leaves at edge ⌊k/3⌋ mod 3. Access links have 100 Mbit/s and 1
/// ms, edge to core 100 Mbit/s and 3 ms, core to core 200 Mbit/s and 5 ms; all queues take 50
/// packets, as ns-2 counts them. Flows begin within the first second; packets acknowledged from 10
/// s to 30 s count.
pub fn dumbbell(flows: usize, tcp: &TcpConfig) -> Plan {
    let mut plan = Plan {
        nodes: vec!["core 1".to_owned(), "core 2".to_owned()],
        groups: vec![Group { name: "tcp".to_owned(), wait_ns_max: 0 }],
        window: Window { from_ns: 10 * SECOND_NS, until_ns: 30 * SECOND_NS, drain_ns: 0 },
        ..Plan::default()
    };
    let core = both_directions(&mut plan, (0, 1), 200, 5);
    let edges: [_; EDGES] = std::array::from_fn(|edge| {
        let ingress = add_node(&mut plan, format!("ingress {edge}"));
        let egress = add_node(&mut plan, format!("egress {edge}"));
        let enters = both_directions(&mut plan, (ingress, 0), 100, 3);
        (ingress, enters, egress, both_directions(&mut plan, (1, egress), 100, 3))
    });
    for k in 0..flows {
        let (ingress, enters, ..) = edges[k % EDGES];
        let (.., egress, leaves) = edges[k / EDGES % EDGES];
        let sender = add_node(&mut plan, format!("sender {k}"));
        let receiver = add_node(&mut plan, format!("receiver {k}"));
        let first = both_directions(&mut plan, (sender, ingress), 100, 1);
        let last = both_directions(&mut plan, (egress, receiver), 100, 1);
        let path = [first, enters, core, leaves, last];
        plan.flows.push(Flow {
            group: 0,
            route: path.iter().map(|&(there, _)| there).collect(),
            back: path.iter().rev().map(|&(_, back)| back).collect(),
            max_wait_ns: 0,
            edge: (k / EDGES % EDGES) as u64,
            service: k as u64,
            hosts: k as u64,
            traffic: Traffic::Tcp(
                *tcp,
                TcpStart { between_ns: (0, SECOND_NS), random: RandomSource::Own },
            ),
        });
    }
    plan
}

fn add_node(plan: &mut Plan, name: String) -> usize {
    plan.nodes.push(name);
    plan.nodes.len() - 1
}

/// A link there and one back.
fn both_directions(
    plan: &mut Plan,
    (a, b): (usize, usize),
    mbps: u64,
    propagation_ms: u64,
) -> (usize, usize) {
    let mut add = |from: usize, to: usize| {
        plan.links.push(Link {
            name: format!("{} to {}", plan.nodes[from], plan.nodes[to]),
            from,
            to,
            rate: Rate::from_mbps(mbps),
            propagation_ns: propagation_ms * MILLI_NS,
            frame_ns_min: 0,
            queue: Queue::DropTail(DropTail { packets: Some(50), bytes: None }),
            restored: false,
            medium: dwell_sim::plan::Medium::default(),
        });
        plan.links.len() - 1
    };
    (add(a, b), add(b, a))
}
