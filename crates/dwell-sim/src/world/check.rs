//! Plans that can't be run, reported before anything runs.

use crate::plan::{Flow, Plan, PlanError, Traffic};

/// Links that one plan may have: compressed packets name theirs in 16 bits.
const LINKS_MAX: usize = 60_000;
/// The most links on a path.
const HOPS_MAX: usize = 200;
/// Bins of a time line.
const BINS_MAX: u64 = 1_000_000;

pub(crate) fn check(plan: &Plan) -> Result<(), PlanError> {
    if plan.flows.is_empty() {
        return Err(PlanError::NoFlows);
    }
    if plan.links.len() > LINKS_MAX {
        return Err(PlanError::Value(format!("more than {LINKS_MAX} links")));
    }
    for link in &plan.links {
        if link.from >= plan.nodes.len() || link.to >= plan.nodes.len() {
            return Err(PlanError::NoSuchNode { link: link.name.clone() });
        }
    }
    for link in &plan.links {
        let managed = match &link.queue {
            crate::plan::Queue::Managed(managed) => Some(managed),
            _ => None,
        };
        let checked = crate::plan::medium::check(managed, &link.medium);
        checked.map_err(|what| PlanError::Link { link: link.name.clone(), what })?;
    }
    let window = plan.window;
    if window.until_ns <= window.from_ns {
        return Err(PlanError::Value("the window is empty: it must end after it begins".into()));
    }
    if let Some(bin_ns) = plan.bin_ns
        && (bin_ns == 0 || window.until_ns.saturating_add(window.drain_ns) / bin_ns > BINS_MAX)
    {
        return Err(PlanError::Value(format!(
            "bins of {bin_ns} ns: a time line has at most {BINS_MAX} of them"
        )));
    }
    for (n, flow) in plan.flows.iter().enumerate() {
        check_flow(plan, flow).map_err(|what| PlanError::Flow { flow: n, what })?;
    }
    Ok(())
}

fn check_flow(plan: &Plan, flow: &Flow) -> Result<(), String> {
    if flow.group >= plan.groups.len() {
        return Err("its group does not exist".into());
    }
    if flow.route.is_empty() {
        return Err("it has no path: name at least one link".into());
    }
    check_path(plan, &flow.route)?;
    check_path(plan, &flow.back)?;
    match &flow.traffic {
        Traffic::OnOff(source) if source.packet_bytes == 0 => Err(no_bytes()),
        Traffic::OnOff(source) if !(source.on_ns >= 0.0 && source.off_ns >= 0.0) => {
            Err("bursts and pauses must not be negative".into())
        }
        Traffic::Cbr { packet_bytes: 0, .. } | Traffic::Poisson { packet_bytes: 0, .. } => {
            Err(no_bytes())
        }
        Traffic::Poisson { steps, .. } if steps.is_empty() => {
            Err("a Poisson source needs a rate".into())
        }
        Traffic::Poisson { steps, .. } if !steps.is_sorted_by_key(|&(at, _)| at) => {
            Err("the steps of a rate must be in order of time".into())
        }
        Traffic::Poisson { steps, .. }
            if steps.iter().any(|&(_, bps)| !(bps.is_finite() && bps >= 0.0)) =>
        {
            Err("a rate must be a number that is not negative".into())
        }
        Traffic::Trace(packets) if !packets.is_sorted_by_key(|&(at, _)| at) => {
            Err("the packets of a trace must be in order of time".into())
        }
        Traffic::Tcp(..) if flow.back.is_empty() => {
            Err("a TCP connection needs a path back for its acknowledgements".into())
        }
        Traffic::Tcp(_, start) if start.between_ns.1 < start.between_ns.0 => {
            Err("it must begin between two times in their order".into())
        }
        _ => Ok(()),
    }
}

fn no_bytes() -> String {
    "packets must have at least one byte".into()
}

fn check_path(plan: &Plan, path: &[usize]) -> Result<(), String> {
    if path.len() > HOPS_MAX {
        return Err(format!("its path has more than {HOPS_MAX} links"));
    }
    if let Some(link) = path.iter().find(|&&link| link >= plan.links.len()) {
        return Err(format!("link {link} of its path does not exist"));
    }
    for pair in path.windows(2) {
        let (first, second) = (&plan.links[pair[0]], &plan.links[pair[1]]);
        if first.to != second.from {
            return Err(format!(
                "its path is broken: link {} does not begin where link {} ends",
                second.name, first.name
            ));
        }
    }
    Ok(())
}
