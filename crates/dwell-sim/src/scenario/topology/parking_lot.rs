//! The parking lot of Shimamura et al., Fig. 2.
//!
//! ```text
//!       S ─► R1 ═► R2 ═► … ═► Rn ─► D
//!            ▲     ▲ │
//!            X1   X2 └► (X1's traffic leaves)
//! ```
//!
//! The target's flow goes from S to D. Each cross source Xi joins it for one congested link, Ri to
//! R(i+1), where the scheme is at work. The other links never queue for long. Rn decompresses.
//! Ports are called `r1`, `r2`, … after the relay that they belong to; groups are `target` and
//! `cross`.

use crate::plan::{Flow, Plan, Queue, Traffic};
use crate::scenario::error::Errors;
use crate::scenario::section::Section;
use crate::scenario::source::{self, Inputs};
use crate::scenario::tree::Table;
use crate::scenario::value;

use super::draft::{Draft, PortDraft, Wire};
use super::{Parts, buffer_packets};

const KEYS: [&str; 5] = ["kind", "relays", "rate", "delay", "buffer_packets"];

pub(super) fn read(
    tree: &Table,
    section: &Section<'_>,
    parts: &Parts,
    inputs: &mut Inputs<'_>,
    errors: &mut Errors,
) -> Option<Plan> {
    section.refuse_unknown(&KEYS, errors);
    let relays = section.need("relays", "2", errors, |v| value::whole32(v, 2..=1000));
    let rate = section.need("rate", "\"100mbit\"", errors, value::rate);
    let delay_ns = section.or("delay", 0, errors, value::time_ns);
    let packets = section.get("buffer_packets", errors, buffer_packets);
    let (target, cross) = sources(tree, inputs, errors)?;
    let wire = Wire::new(rate?, delay_ns);
    let port = PortDraft { packets, unit: None, resend_after_ns: None, has_relay_frames: false };
    build(relays? as usize, wire, port, parts, (&target, &cross), errors)
}

/// The target's source, and that of the cross flows.
fn sources(
    tree: &Table,
    inputs: &mut Inputs<'_>,
    errors: &mut Errors,
) -> Option<(Traffic, Traffic)> {
    let section = super::traffic(tree, errors)?;
    let target = source::read(&section, &["cross"], inputs, errors);
    let cross = match section.has("cross") {
        true => source::read(&section.inner("cross", errors)?, &[], inputs, errors),
        false => target.clone(),
    };
    let (target, cross) = (target?, cross?);
    if [&target, &cross].iter().any(|traffic| matches!(traffic, Traffic::Tcp(..))) {
        let message = "this topology has no path back for acknowledgements: use \"dumbbell\" or \
                       \"graph\" for \"tcp\"";
        section.fail("kind", message, errors);
        return None;
    }
    Some((target, cross))
}

fn build(
    relays: usize,
    wire: Wire,
    port: PortDraft,
    parts: &Parts,
    (target, cross): (&Traffic, &Traffic),
    errors: &mut Errors,
) -> Option<Plan> {
    let mut draft = Draft::default();
    let (target_group, cross_group) = (draft.group("target", 0), draft.group("cross", 0));
    let source = draft.node("s".to_owned());
    let nodes: Vec<usize> = (1..=relays).map(|n| draft.node(format!("r{n}"))).collect();
    let sink = draft.node("d".to_owned());
    let queue = draft.port(parts, wire, port, errors)?;

    let mut route = vec![draft.link("s".to_owned(), (source, nodes[0]), wire, Queue::Unlimited)];
    let congested: Vec<usize> = (1..relays)
        .map(|n| draft.link(format!("r{n}"), (nodes[n - 1], nodes[n]), wire, queue.clone()))
        .collect();
    route.extend(&congested);
    let last = draft.link("d".to_owned(), (nodes[relays - 1], sink), wire, Queue::Unlimited);
    draft.restore(last);
    route.push(last);
    draft.flow(flow(target_group, route, target, 0));
    for n in 1..relays {
        let x = draft.node(format!("x{n}"));
        let access = draft.link(format!("x{n}"), (x, nodes[n - 1]), wire, Queue::Unlimited);
        draft.flow(flow(cross_group, vec![access, congested[n - 1]], cross, n as u64));
    }
    Some(draft.plan)
}

fn flow(group: usize, route: Vec<usize>, traffic: &Traffic, stream: u64) -> Flow {
    let mut traffic = traffic.clone();
    traffic.set_stream(stream);
    Flow {
        group,
        route,
        back: Vec::new(),
        max_wait_ns: 0,
        edge: 0,
        service: stream,
        hosts: stream,
        traffic,
    }
}
