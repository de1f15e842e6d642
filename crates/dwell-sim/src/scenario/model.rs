//! The predictions of the analytic models for a point, beside which its runs are shown.

use std::collections::BTreeMap;

use dwell_policy::{Queue as CoreQueue, Release};

use crate::analysis::{ChuMq, Class, Reading};
use crate::plan::{Plan, Queue, Traffic};

/// Returns the predictions for a single edge with ChuMQ whose buffers each have one class of
/// traffic, by the model of Sawabe et al., section 6. By class C `model.C.late_lower`,
/// `model.C.late_approx`, `model.C.late_upper` (shares, Eq. (4)), `model.C.timer_share` (Eq. (2)),
/// `model.C.timer_packets_mean` (packets of a chunk that its timer made),
/// `model.C.frame_bytes_mean` (Eq. (5)), and `model.frame_bytes_mean` (Eq. (6)). Empty if there is
/// no model.
pub(super) fn values(plan: &Plan) -> BTreeMap<String, f64> {
    chumq(plan).unwrap_or_default()
}

fn chumq(plan: &Plan) -> Option<BTreeMap<String, f64>> {
    let [link] = &plan.links[..] else { return None };
    let Queue::Port(port) = &link.queue else { return None };
    let scheme = port.config.scheme;
    let (Release::Full { bytes_max, fill }, CoreQueue::PerClass(timers)) =
        (scheme.release, scheme.queue)
    else {
        return None;
    };
    if fill || scheme.compresses() || timers.as_slice().len() != plan.flows.len() {
        return None;
    }
    let link_bps = link.rate.as_bps() as f64;
    let mut classes = Vec::new();
    for flow in &plan.flows {
        let timer_ns = *timers.as_slice().iter().rev().find(|&&ns| ns <= flow.max_wait_ns)?;
        let Traffic::Poisson { packet_bytes, steps } = &flow.traffic else { return None };
        let [(_, bps)] = steps[..] else { return None };
        classes.push(Class { packet_bytes: *packet_bytes, timer_ns, load: bps / link_bps });
    }
    let model = ChuMq::new(link.rate, bytes_max, &classes, Reading::WithHead).ok()?;
    let mut out = BTreeMap::new();
    for (flow, class) in plan.flows.iter().zip(model.classes()) {
        let name = &plan.groups.get(flow.group)?.name;
        let mut put = |key: &str, value: f64| out.insert(format!("model.{name}.{key}"), value);
        put("timer_share", class.timer_share());
        put("timer_packets_mean", class.timer_packets_mean());
        put("frame_bytes_mean", class.chunk_bytes_mean());
        if let Some(late) = class.late_share() {
            put("late_lower", late.lower);
            put("late_approx", late.approximation);
            put("late_upper", late.upper);
        }
    }
    if let Some(mean) = model.chunk_bytes_mean() {
        out.insert("model.frame_bytes_mean".to_owned(), mean);
    }
    Some(out)
}
