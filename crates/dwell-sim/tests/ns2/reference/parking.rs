//! The network of `validate/parking.tcl`: a parking lot without compression.

use dwell_base::Rate;
use dwell_base::time::SECOND_NS;

use dwell_sim::plan::{
    DropTail, Flow, Group, Link, OnOff, Plan, Queue, RandomSource, Traffic, Window,
};

/// Shimamura et al.'s parking lot (section 5.1, Fig. 2) with Table 2's traffic, drop-tail queues,
/// and the random streams of ns-2.
///
/// Flow 0 goes from S over R1 to Rn and to D. Flow i, for 0 < i < n, goes from Xi over Ri and
/// R(i+1) to Y(i+1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parking {
    /// n: the number of relay nodes.
    pub relays: usize,
    /// Bits per second of a source within a burst; Table 2 has 60 Mbit/s.
    pub peak: Rate,
    /// The limit of the queues between them, as ns-2 counts it.
    pub limit_packets: u32,
    /// Packets sent before this time are compared.
    pub until_ns: u64,
}

/// The time that packets in flight get to arrive.
const DRAIN_NS: u64 = SECOND_NS;

impl Parking {
    /// The number of flows: the target's, and one that crosses each link between relays.
    pub fn flows(&self) -> usize {
        self.relays.max(1)
    }

    /// Returns the source of a flow; flow k draws from ns-2's stream k + 1, as its default
    /// generator takes the first one.
    pub fn traffic(&self, flow: usize) -> OnOff {
        OnOff {
            packet_bytes: 500,
            rate: self.peak,
            on_ns: 250_000.0,
            off_ns: 50_000.0,
            random: RandomSource::Ns2 { stream: flow as u64 + 1 },
        }
    }

    /// Returns the plan with drop-tail queues, as ns-2 has them. Each flow is a group of its own.
    pub fn plan(&self) -> Plan {
        let packets = Some(self.limit_packets);
        self.plan_with(&Queue::DropTail(DropTail { packets, bytes: None }))
    }

    /// Returns the plan with other queues between the relays.
    pub fn plan_with(&self, queue: &Queue) -> Plan {
        let mut plan = Plan {
            window: Window { from_ns: 0, until_ns: self.until_ns, drain_ns: DRAIN_NS },
            ..Plan::default()
        };
        let relays: Vec<usize> =
            (1..=self.relays).map(|i| add_node(&mut plan, format!("R{i}"))).collect();
        let between: Vec<usize> = relays
            .windows(2)
            .map(|pair| add_link(&mut plan, pair[0], pair[1], queue.clone()))
            .collect();
        for flow in 0..self.flows() {
            let (enters, leaves) = if flow == 0 { (0, self.flows() - 1) } else { (flow - 1, flow) };
            let source = add_node(&mut plan, format!("source {flow}"));
            let sink = add_node(&mut plan, format!("sink {flow}"));
            let mut route = vec![add_link(&mut plan, source, relays[enters], Queue::Unlimited)];
            route.extend(&between[enters..leaves]);
            route.push(add_link(&mut plan, relays[leaves], sink, Queue::Unlimited));
            plan.groups.push(Group { name: format!("flow {flow}"), wait_ns_max: 0 });
            plan.flows.push(Flow {
                group: flow,
                route,
                back: Vec::new(),
                max_wait_ns: 0,
                edge: 0,
                service: flow as u64,
                hosts: flow as u64,
                traffic: Traffic::OnOff(self.traffic(flow)),
            });
        }
        plan
    }
}

fn add_node(plan: &mut Plan, name: String) -> usize {
    plan.nodes.push(name);
    plan.nodes.len() - 1
}

fn add_link(plan: &mut Plan, from: usize, to: usize, queue: Queue) -> usize {
    plan.links.push(Link {
        name: format!("{} to {}", plan.nodes[from], plan.nodes[to]),
        from,
        to,
        rate: Rate::from_mbps(100),
        propagation_ns: 0,
        frame_ns_min: 0,
        queue,
        restored: false,
        medium: dwell_sim::plan::Medium::default(),
    });
    plan.links.len() - 1
}
