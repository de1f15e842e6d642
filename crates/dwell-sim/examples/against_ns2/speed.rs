//! One run of a workload, for `validate/speed.sh` to measure.

use dwell_base::Rate;
use dwell_base::time::SECOND_NS;
use dwell_policy::{Estimate, Estimates, FrameCost, Method, PortConfig, QueueLimit, Ratio, Scheme};
use dwell_sim::World;
use dwell_sim::plan::{
    CompressionModel, Flow, Group, Link, OnOff, Plan, PortPlan, Queue, RandomSource, Traffic,
    Window,
};
use dwell_sim::tcp::TcpConfig;

use crate::Agreement;
use crate::reference::dumbbell::dumbbell;
use crate::reference::parking::Parking;

/// Runs it, perhaps without the distributions and the jitter of delays, and prints how many packets the sources sent.
pub(crate) fn run(workload: &str, seed: &str, counts_only: bool) -> Agreement {
    let mut plan = match workload {
        "plain" => own_numbers(parking().plan()),
        "none" => own_numbers(parking().plan_with(&port(Scheme::none()))),
        "packet" => own_numbers(parking().plan_with(&port(Scheme::packet()))),
        "dumbbell" => dumbbell(198, &TcpConfig::sack1()),
        "chumq" => chunks("chumq")?,
        _ => return Err(format!("there is no workload \"{workload}\"").into()),
    };
    plan.counts_only = counts_only;
    let outcome = World::new(&plan, seed.parse()?)?.run();
    println!("packets_sent {}", outcome.source_packets);
    Ok(true)
}

/// Thirty seconds of Table 2 of Shimamura et al.
fn parking() -> Parking {
    let peak = Rate::from_mbps(60);
    Parking { relays: 2, peak, limit_packets: 1000, until_ns: 30 * SECOND_NS }
}

/// The paper's compression, with a ratio of 0.95.
fn port(scheme: Scheme) -> Queue {
    let (ratio, time_ns) = (0.95, 200_000);
    let estimate = Estimate { ratio: Ratio::from_ppm((ratio * 1e6) as u32), cost_ns: time_ns };
    Queue::Port(Box::new(PortPlan {
        config: PortConfig {
            scheme: Scheme { method: Method { back_off: None, ..scheme.method }, ..scheme },
            rate: Some(Rate::from_mbps(100)),
            limit: QueueLimit::packets(1000),
            estimates: Estimates::Fixed(estimate),
            ..PortConfig::default()
        },
        compress: CompressionModel::Constant { ratio, time_ns },
        resend_after_ns: None,
        unit_s: None,
    }))
}

/// Gives the plan the simulator's own random numbers, not those of ns-2, which cost more.
fn own_numbers(mut plan: Plan) -> Plan {
    for flow in &mut plan.flows {
        if let Traffic::OnOff(on_off) = flow.traffic {
            flow.traffic = Traffic::OnOff(OnOff { random: RandomSource::Own, ..on_off });
        }
    }
    plan
}

/// The ingress edge of Sawabe et al.: 10 Gbit/s, three classes with a load of 0.3 each.
fn chunks(preset: &str) -> Result<Plan, Box<dyn std::error::Error>> {
    let rate = Rate::from_mbps(10_000);
    let queue = Queue::Port(Box::new(PortPlan {
        config: PortConfig {
            scheme: Scheme::preset(preset)?,
            rate: Some(rate),
            limit: QueueLimit::packets(u32::MAX),
            frame: FrameCost::FREE_CHUNKS,
            ..PortConfig::default()
        },
        compress: CompressionModel::Constant { ratio: 1.0, time_ns: 0 },
        resend_after_ns: None,
        unit_s: None,
    }));
    let mut plan = Plan { nodes: vec!["in".into(), "out".into()], ..Plan::default() };
    plan.links.push(Link {
        name: "edge".into(),
        from: 0,
        to: 1,
        rate,
        propagation_ns: 0,
        frame_ns_min: 200,
        queue,
        restored: false,
        medium: dwell_sim::plan::Medium::default(),
    });
    for (packet_bytes, wait_ns) in [(40, 50_000), (200, 100_000), (1500, 200_000)] {
        let group = plan.groups.len();
        plan.groups.push(Group { name: format!("{packet_bytes} B"), wait_ns_max: wait_ns });
        plan.flows.push(Flow {
            group,
            route: vec![0],
            back: Vec::new(),
            max_wait_ns: wait_ns,
            edge: 0,
            service: group as u64,
            hosts: group as u64,
            traffic: Traffic::Poisson { packet_bytes, steps: vec![(0, 3e9)] },
        });
    }
    plan.window = Window { from_ns: 0, until_ns: SECOND_NS, drain_ns: 0 };
    Ok(plan)
}
