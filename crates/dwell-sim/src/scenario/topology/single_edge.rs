//! The ingress edge router of Sawabe et al., Figs 6 and 7: many lines in, one line out.
//!
//! Traffic comes in classes, each a Poisson stream (the aggregate of many lines) with its packet
//! size, its acceptable waiting time and its share of the load. The port is called `edge`, and
//! each class is a group.

use crate::moment::Span;
use crate::plan::{Flow, Plan, Traffic};
use crate::scenario::error::Errors;
use crate::scenario::section::Section;
use crate::scenario::source::{rising, step};
use crate::scenario::tree::Table;
use crate::scenario::value;

use super::draft::{Draft, PortDraft, Wire};
use super::{Parts, buffer_packets};

const KEYS: [&str; 5] = ["kind", "rate", "delay", "packets_per_second", "buffer_packets"];
const TRAFFIC_KEYS: [&str; 4] = ["kind", "load", "steps", "class"];
const CLASS_KEYS: [&str; 3] = ["packet_bytes", "hold", "share"];

/// The largest load: a load of ten times the link's capacity is more than anything shows.
const LOAD_MAX: f64 = 10.0;

struct Class<'t> {
    name: &'t str,
    packet_bytes: u32,
    max_wait_ns: u64,
    share: f64,
}

pub(super) fn read(
    tree: &Table,
    section: &Section<'_>,
    parts: &Parts,
    errors: &mut Errors,
) -> Option<Plan> {
    section.refuse_unknown(&KEYS, errors);
    let rate = section.need("rate", "\"10gbit\"", errors, value::rate);
    let delay_ns = section.or("delay", 0, errors, value::time_ns);
    let frames_per_second =
        section.get("packets_per_second", errors, |v| value::number(v, 1e-3..=1e9));
    let packets = section.get("buffer_packets", errors, buffer_packets);
    let traffic = super::traffic(tree, errors)?;
    traffic.refuse_unknown(&TRAFFIC_KEYS, errors);
    let _ = traffic
        .need("kind", "\"classes\"", errors, |found| value::one_of(found, &[("classes", ())]));
    let load = |v: &_| value::number(v, 0.0..=LOAD_MAX);
    let mut steps = vec![(0, traffic.need("load", "0.9", errors, load)?)];
    if traffic.has("steps") {
        let example = "[{ at = \"1.3s\", load = 1.2 }]";
        steps.extend(traffic.list("steps", example, errors, |found| step(found, "load", load))?);
    }
    rising(&traffic, &steps, errors)?;
    let classes = classes(&traffic, errors)?;
    let frame_ns_min = frames_per_second.map_or(0, |number| (1e9 / number).round() as u64);
    let wire = Wire { frame_ns_min, ..Wire::new(rate?, delay_ns) };
    build(wire, packets, &classes, &steps, parts, errors)
}

fn classes<'t>(traffic: &Section<'t>, errors: &mut Errors) -> Option<Vec<Class<'t>>> {
    if !traffic.has("class") {
        let message = "there is no class: add for instance [traffic.class.sensing] with \
                       packet_bytes and hold";
        traffic.fail_whole(message, errors);
        return None;
    }
    let mut out = Vec::new();
    for (name, class) in traffic.inner("class", errors)?.all_inner(errors) {
        class.refuse_unknown(&CLASS_KEYS, errors);
        if !value::is_name(name) {
            let message = "can't be the name of a class: use letters, digits, - and _";
            class.fail_whole(message, errors);
        }
        let packet_bytes = class.need("packet_bytes", "40", errors, value::packet_bytes);
        let max_wait_ns = class.need("hold", "\"50us\"", errors, value::some_time_ns);
        let share = class.or("share", 1.0, errors, |v| value::number(v, 0.0..=1e9));
        out.push(Class { name, packet_bytes: packet_bytes?, max_wait_ns: max_wait_ns?, share });
    }
    if out.iter().map(|class| class.share).sum::<f64>() > 0.0 {
        return Some(out);
    }
    traffic.fail("class", "no class has a share of the load: give one more than 0", errors);
    None
}

fn build(
    wire: Wire,
    packets: Option<u32>,
    classes: &[Class<'_>],
    steps: &[(u64, f64)],
    parts: &Parts,
    errors: &mut Errors,
) -> Option<Plan> {
    let mut draft = Draft::default();
    let ends = (draft.node("edge".to_owned()), draft.node("core".to_owned()));
    for class in classes {
        draft.group(class.name, class.max_wait_ns);
    }
    let port = PortDraft {
        packets,
        unit: Some(Span::default()),
        resend_after_ns: None,
        has_relay_frames: false,
    };
    let queue = draft.port(parts, wire, port, errors)?;
    let edge = draft.link("edge".to_owned(), ends, wire, queue);
    let shares: f64 = classes.iter().map(|class| class.share).sum();
    let link_bps = wire.rate.as_bps() as f64;
    for (group, class) in classes.iter().enumerate() {
        let rate = |load: f64| load * link_bps * class.share / shares;
        draft.flow(Flow {
            group,
            route: vec![edge],
            back: Vec::new(),
            max_wait_ns: class.max_wait_ns,
            edge: 0,
            service: group as u64,
            hosts: group as u64,
            traffic: Traffic::Poisson {
                packet_bytes: class.packet_bytes,
                steps: steps.iter().map(|&(at_ns, load)| (at_ns, rate(load))).collect(),
            },
        });
    }
    Some(draft.plan)
}
