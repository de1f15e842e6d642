//! The dumbbell with edges of Yoshino et al., Fig. 2.
//!
//! ```text
//!   senders ─► ingress 1 ═►┐               ┌─► egress 1 ─► receivers
//!   senders ─► ingress 2 ═►├ core ─► core ─┤─► egress 2 ─► receivers
//!   senders ─► ingress e ═►┘               └─► egress e ─► receivers
//! ```
//!
//! Flow k enters at ingress k mod e and leaves at egress ⌊k/e⌋ mod e. The ingresses compress, the
//! egresses decompress, and a compressed unit that was lost at the core is sent again. All queues
//! are drop-tail. Ports are called `in1`, `in2`, …; the link between the cores is `core`; the one
//! group is `tcp`, or `all` for other traffic.

use crate::moment::Span;
use crate::plan::{Flow, Plan, Traffic};
use crate::scenario::error::Errors;
use crate::scenario::section::Section;
use crate::scenario::source::{self, Inputs};
use crate::scenario::tree::Table;
use crate::scenario::value;

use super::draft::{Draft, PortDraft, Wire, drop_tail};
use super::{Parts, buffer_packets};

const KEYS: [&str; 11] = [
    "kind",
    "edges",
    "flows",
    "access_rate",
    "access_delay",
    "edge_rate",
    "edge_delay",
    "core_rate",
    "core_delay",
    "buffer_packets",
    "resend_after",
];

/// The largest number of flows; with more, the addresses of a site would run out next.
const FLOWS_MAX: u32 = 100_000;

struct Dumbbell {
    edges: usize,
    flows: usize,
    access: Wire,
    edge: Wire,
    core: Wire,
    packets: u32,
    resend_after_ns: Option<u64>,
}

pub(super) fn read(
    tree: &Table,
    section: &Section<'_>,
    parts: &Parts,
    inputs: &mut Inputs<'_>,
    errors: &mut Errors,
) -> Option<Plan> {
    section.refuse_unknown(&KEYS, errors);
    let edges = section.need("edges", "3", errors, |v| value::whole32(v, 1..=1000));
    let flows = section.need("flows", "9", errors, |v| value::whole32(v, 1..=FLOWS_MAX));
    let access = wire(section, "access", "\"100mbit\"", errors);
    let edge = wire(section, "edge", "\"100mbit\"", errors);
    let core = wire(section, "core", "\"200mbit\"", errors);
    let packets = section.need("buffer_packets", "50", errors, buffer_packets);
    let resend_after_ns = section.get("resend_after", errors, value::time_ns);
    let traffic = source::read(&super::traffic(tree, errors)?, &[], inputs, errors);
    let dumbbell = Dumbbell {
        edges: edges? as usize,
        flows: flows? as usize,
        access: access?,
        edge: edge?,
        core: core?,
        packets: packets?,
        resend_after_ns,
    };
    build(&dumbbell, parts, &traffic?, errors)
}

fn wire(section: &Section<'_>, name: &str, example: &str, errors: &mut Errors) -> Option<Wire> {
    let rate = section.need(&format!("{name}_rate"), example, errors, value::rate);
    let delay = section.or(&format!("{name}_delay"), 0, errors, value::time_ns);
    Some(Wire::new(rate?, delay))
}

/// The links between the edges and the cores, in both directions.
struct Middle {
    ingress: Vec<(usize, usize)>,
    core: (usize, usize),
    egress: Vec<(usize, usize)>,
}

fn build(
    dumbbell: &Dumbbell,
    parts: &Parts,
    traffic: &Traffic,
    errors: &mut Errors,
) -> Option<Plan> {
    let mut draft = Draft::default();
    let is_tcp = matches!(traffic, Traffic::Tcp(..));
    let group = draft.group(if is_tcp { "tcp" } else { "all" }, 0);
    let port = PortDraft {
        packets: Some(dumbbell.packets),
        // Compressing takes as long as sending `lead` packets: the paper's section III.A.
        unit: parts.scheme.lead().zip(packet_bytes(traffic)).map(|(lead, bytes)| {
            let ns = u64::from(lead) * dumbbell.edge.rate.transmission_ns(u64::from(bytes));
            let bits = f64::from(lead) * 8.0 * f64::from(bytes);
            Span { ns, s: bits / dumbbell.edge.rate.as_bps() as f64 }
        }),
        resend_after_ns: dumbbell.resend_after_ns,
        has_relay_frames: false,
    };
    let queue = draft.port(parts, dumbbell.edge, port, errors)?;
    let tail = || drop_tail(dumbbell.packets);
    let cores = (draft.node("core1".to_owned()), draft.node("core2".to_owned()));
    let there = draft.link("core".to_owned(), cores, dumbbell.core, tail());
    let back = draft.link("core-back".to_owned(), (cores.1, cores.0), dumbbell.core, tail());
    let mut middle = Middle { ingress: Vec::new(), core: (there, back), egress: Vec::new() };
    let mut nodes = (Vec::new(), Vec::new());
    for n in 1..=dumbbell.edges {
        let ingress = draft.node(format!("ingress{n}"));
        let egress = draft.node(format!("egress{n}"));
        let edge = dumbbell.edge;
        middle.ingress.push((
            draft.link(format!("in{n}"), (ingress, cores.0), edge, queue.clone()),
            draft.link(format!("in{n}-back"), (cores.0, ingress), edge, tail()),
        ));
        middle.egress.push((
            draft.link(format!("out{n}"), (cores.1, egress), edge, tail()),
            draft.link(format!("out{n}-back"), (egress, cores.1), edge, tail()),
        ));
        nodes.0.push(ingress);
        nodes.1.push(egress);
    }
    for k in 0..dumbbell.flows {
        let ends = (k % dumbbell.edges, k / dumbbell.edges % dumbbell.edges);
        let (ingress, egress) = (nodes.0[ends.0], nodes.1[ends.1]);
        let mut flow = pair(&mut draft, dumbbell, k, (ingress, egress));
        let ((into, into_back), (out, out_back)) = (middle.ingress[ends.0], middle.egress[ends.1]);
        flow.route.splice(1..1, [into, middle.core.0, out]);
        flow.back.splice(1..1, [out_back, middle.core.1, into_back]);
        flow.edge = ends.1 as u64;
        flow.group = group;
        flow.traffic = traffic.clone();
        flow.traffic.set_stream(k as u64 + 1);
        if !is_tcp {
            flow.back.clear();
        }
        draft.flow(flow);
    }
    Some(draft.plan)
}

/// Adds sender and receiver number `k` with their access links, but not the links between.
fn pair(
    draft: &mut Draft,
    dumbbell: &Dumbbell,
    k: usize,
    (ingress, egress): (usize, usize),
) -> Flow {
    let tail = || drop_tail(dumbbell.packets);
    let (sender, receiver) = (draft.node(format!("s{k}")), draft.node(format!("d{k}")));
    let access = dumbbell.access;
    let up = draft.link(format!("s{k}"), (sender, ingress), access, tail());
    let up_back = draft.link(format!("s{k}-back"), (ingress, sender), access, tail());
    let down = draft.link(format!("d{k}"), (egress, receiver), access, tail());
    let down_back = draft.link(format!("d{k}-back"), (receiver, egress), access, tail());
    draft.restore(down);
    Flow {
        group: 0,
        route: vec![up, down],
        back: vec![down_back, up_back],
        max_wait_ns: 0,
        edge: 0,
        service: k as u64,
        hosts: k as u64,
        traffic: Traffic::Trace([].into()),
    }
}

/// The size of the packets, if they are all alike.
fn packet_bytes(traffic: &Traffic) -> Option<u32> {
    match traffic {
        Traffic::OnOff(on_off) => Some(on_off.packet_bytes),
        Traffic::Poisson { packet_bytes, .. } | Traffic::Cbr { packet_bytes, .. } => {
            Some(*packet_bytes)
        }
        Traffic::Tcp(config, _) => Some(config.segment_bytes),
        Traffic::Trace(_) | Traffic::Recorded(_) => None,
    }
}
