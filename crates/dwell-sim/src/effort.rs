//! Rough estimates of the work of a run: for the order in which runs are done, and for how long
//! they will take together. Connections are assumed to fill the links that they share, whatever
//! their windows.

use crate::plan::{Flow, Plan, Traffic};

/// Returns the number of packets, acknowledgements too, times the links that they take, estimated
/// from the plan.
pub fn packet_hops(plan: &Plan) -> f64 {
    let until_ns = plan.window.until_ns + plan.window.drain_ns;
    let sharing = tcp_flows_by_link(plan);
    let of_flow = |flow: &Flow| match &flow.traffic {
        Traffic::Tcp(config, _) => {
            // Flows that share a link share it fairly, and the narrowest one limits.
            let share = |&link: &usize| plan.links[link].rate.as_bps() as f64 / sharing[link];
            let bps = flow.route.iter().map(share).fold(f64::INFINITY, f64::min);
            let packets = packets(bps, config.segment_bytes, until_ns);
            packets * (flow.route.len() + flow.back.len()) as f64
        }
        traffic => offered(traffic, until_ns) * flow.route.len() as f64,
    };
    plan.flows.iter().map(of_flow).filter(|hops| hops.is_finite()).sum()
}

fn tcp_flows_by_link(plan: &Plan) -> Vec<f64> {
    let mut flows = vec![0.0; plan.links.len()];
    for flow in plan.flows.iter().filter(|flow| matches!(flow.traffic, Traffic::Tcp(..))) {
        flow.route.iter().for_each(|&link| flows[link] += 1.0);
    }
    flows
}

/// Packets that a source which does not react sends until then, on average.
fn offered(traffic: &Traffic, until_ns: u64) -> f64 {
    match traffic {
        Traffic::OnOff(on_off) => {
            let share = on_off.on_ns / (on_off.on_ns + on_off.off_ns);
            packets(on_off.rate.as_bps() as f64 * share, on_off.packet_bytes, until_ns)
        }
        Traffic::Poisson { packet_bytes, steps } => {
            let ends = steps.iter().skip(1).map(|&(at_ns, _)| at_ns).chain([until_ns]);
            let lasting = |(&(from_ns, bps), to_ns): (&(u64, f64), u64)| {
                packets(bps, *packet_bytes, to_ns.min(until_ns).saturating_sub(from_ns))
            };
            steps.iter().zip(ends).map(lasting).sum()
        }
        Traffic::Cbr { packet_bytes, rate, start_ns } => {
            packets(rate.as_bps() as f64, *packet_bytes, until_ns.saturating_sub(*start_ns))
        }
        Traffic::Trace(packets) => packets.len() as f64,
        Traffic::Recorded(recording) => recording.times().len() as f64,
        Traffic::Tcp(..) => 0.0,
    }
}

fn packets(bps: f64, packet_bytes: u32, time_ns: u64) -> f64 {
    bps / 8.0 * time_ns as f64 / 1e9 / f64::from(packet_bytes.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Options;

    #[test]
    fn steps_of_a_rate_are_added_up() {
        let steps = vec![(1_000_000_000, 8e6), (2_000_000_000, 0.0), (3_000_000_000, 16e6)];
        let traffic = Traffic::Poisson { packet_bytes: 1000, steps };
        assert_eq!(offered(&traffic, 4_000_000_000), 3000.0);
        assert_eq!(offered(&traffic, 1_500_000_000), 500.0);
        assert_eq!(offered(&traffic, 0), 0.0);
    }

    #[test]
    fn connections_share_a_link() {
        let entry = crate::library::find("yoshino/fig-3")[0];
        let scenario = entry.read(&Options::default()).expect("it can be read");
        let effort = |flows: usize| {
            let has = |plan: &&Plan| plan.flows.len() == flows;
            let mut plans = scenario.points.iter().map(|point| &point.plan);
            packet_hops(plans.find(has).expect("there is such a point"))
        };
        let (few, many) = (effort(9), effort(300));
        assert!(few > 0.0 && (0.5..2.0).contains(&(many / few)), "{few}, {many}");
    }
}
