//! A network of one's own: `[link.NAME]` and `[flow.NAME]`.
//!
//! Nodes exist by being the end of a link, or by being listed in `nodes` (then no other may be
//! used, so that a typing error is not a new node). A flow takes the path with the fewest links;
//! `via` names nodes that it must pass. Links with `queue = "port"` run the scheme.

use std::collections::VecDeque;

use dwell_base::text::{printable, suggest};

use crate::plan::{Flow, Medium, Plan, Queue, Traffic};
use crate::scenario::error::Errors;
use crate::scenario::section::Section;
use crate::scenario::source::{self, Inputs};
use crate::scenario::tree::{Table, Value};
use crate::scenario::value;

use super::draft::{Draft, PortDraft, Wire, drop_tail};
use super::medium::{self, MEDIUM_KEYS, ManagedKind, QUEUE_KEYS};
use super::{Parts, buffer_packets};

const LINK_KEYS: [&str; 11] = [
    "from",
    "to",
    "rate",
    "delay",
    "frame_time_min",
    "queue",
    "buffer_packets",
    "resend_after",
    "frames",
    "restored",
    "duplex",
];
const FLOW_KEYS: [&str; 9] =
    ["from", "to", "via", "group", "hold", "edge", "service", "hosts", "count"];
/// The most copies of a flow.
const COUNT_MAX: u32 = 100_000;

/// The first number of services and hosts that no scenario names.
const OWN: u64 = 1 << 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueueKind {
    Unlimited,
    DropTail,
    Managed(ManagedKind),
    Port,
}

pub(super) fn read(
    tree: &Table,
    section: &Section<'_>,
    parts: &Parts,
    inputs: &mut Inputs<'_>,
    errors: &mut Errors,
) -> Option<Plan> {
    section.refuse_unknown(&["kind", "nodes"], errors);
    if let Some(traffic) = tree.get("traffic") {
        let message = "in a graph each flow says what it sends: write [flow.NAME] with kind, \
                       from and to";
        errors.at(traffic.origin, "traffic", message);
    }
    let mut draft = Draft::default();
    let listed = section.list("nodes", "[\"a\", \"b\"]", errors, value::name);
    let is_closed = listed.is_some();
    for name in listed.unwrap_or_default() {
        draft.node(name);
    }
    let links = tables(tree, "link", "from, to and rate", errors)?;
    let flows = tables(tree, "flow", "from, to and kind", errors)?;
    // Ports need to know the groups.
    groups(&flows, &mut draft, errors);
    let mut has_all_links = true;
    for (name, link) in &links {
        let medium = medium::read(link, inputs, errors);
        let read = read_link(name, link, medium, is_closed, parts, &mut draft, errors);
        has_all_links &= read.is_some();
    }
    for (name, flow) in &flows {
        read_flow(name, flow, inputs, has_all_links, &mut draft, errors);
    }
    errors.is_empty().then_some(draft.plan)
}

fn tables<'t>(
    tree: &'t Table,
    name: &str,
    keys: &str,
    errors: &mut Errors,
) -> Option<Vec<(&'t str, Section<'t>)>> {
    let tables = match tree.get(name) {
        Some(_) => Section::of(tree, name, errors)?.all_inner(errors),
        None => Vec::new(),
    };
    if tables.is_empty() {
        let message = format!("there is no {name}: add [{name}.NAME] with {keys}");
        errors.add(None, None, message);
        return None;
    }
    Some(tables)
}

/// Each flow is a group of its own unless it names one.
fn groups(flows: &[(&str, Section<'_>)], draft: &mut Draft, errors: &mut Errors) {
    for (name, flow) in flows {
        let group = flow.or("group", (*name).to_owned(), errors, value::name);
        let max_wait_ns = flow.or("hold", 0, errors, value::time_ns);
        match draft.plan.groups.iter().find(|known| known.name == group) {
            None => {
                draft.group(&group, max_wait_ns);
            }
            Some(known) if known.wait_ns_max != max_wait_ns => {
                let message =
                    "flows of one group must have the same `hold`: change it or the group";
                flow.fail("hold", message, errors);
            }
            Some(_) => {}
        }
    }
}

/// The index of a node; unless the list of nodes is closed, new names are new nodes.
fn node(
    section: &Section<'_>,
    key: &str,
    is_closed: bool,
    draft: &mut Draft,
    errors: &mut Errors,
) -> Option<usize> {
    let name = section.need(key, "\"a\"", errors, value::name)?;
    match find(&name, &draft.plan.nodes) {
        Ok(node) => Some(node),
        Err(_) if !is_closed => Some(draft.node(name)),
        Err(message) => {
            section.fail(key, message, errors);
            None
        }
    }
}

fn find(name: &str, nodes: &[String]) -> Result<usize, String> {
    nodes.iter().position(|node| node == name).ok_or_else(|| {
        let names: Vec<&str> = nodes.iter().map(String::as_str).collect();
        let hint = suggest(name, &names).replace("the keys here", "the nodes");
        format!("there is no node \"{}\": {hint}", printable(name))
    })
}

fn read_link(
    name: &str,
    link: &Section<'_>,
    medium: Medium,
    is_closed: bool,
    parts: &Parts,
    draft: &mut Draft,
    errors: &mut Errors,
) -> Option<()> {
    let keys = [&LINK_KEYS[..], &MEDIUM_KEYS, &QUEUE_KEYS].concat();
    link.refuse_unknown(&keys, errors);
    let from = node(link, "from", is_closed, draft, errors);
    let to = node(link, "to", is_closed, draft, errors);
    let rate = link.need("rate", "\"10mbit\"", errors, value::rate);
    let propagation_ns = link.or("delay", 0, errors, value::time_ns);
    let frame_ns_min = link.or("frame_time_min", 0, errors, value::time_ns);
    let restored = link.or("restored", false, errors, value::truth);
    let duplex = link.or("duplex", false, errors, value::truth);
    let wire = Wire { rate: rate?, propagation_ns, frame_ns_min };
    let queue = queue(link, wire, parts, draft, errors)?;
    let ends = (from?, to?);
    if ends.0 == ends.1 {
        link.fail("to", "a link must lead to another node than the one it leaves", errors);
        return None;
    }
    let back_queue = match &queue {
        Queue::Port(port) => drop_tail(port.config.limit.packets),
        other => other.clone(),
    };
    let there = draft.link(name.to_owned(), ends, wire, queue);
    draft.plan.links[there].medium = medium.clone();
    if restored {
        draft.restore(there);
    }
    if duplex {
        let back = draft.link(format!("{name}-back"), (ends.1, ends.0), wire, back_queue);
        draft.plan.links[back].medium = medium;
    }
    Some(())
}

fn queue(
    link: &Section<'_>,
    wire: Wire,
    parts: &Parts,
    draft: &Draft,
    errors: &mut Errors,
) -> Option<Queue> {
    let packets = link.get("buffer_packets", errors, buffer_packets);
    let has_length = link.has("buffer_packets");
    let default = if has_length { QueueKind::DropTail } else { QueueKind::Unlimited };
    let kind = link.or("queue", default, errors, |found| {
        value::one_of(
            found,
            &[
                ("unlimited", QueueKind::Unlimited),
                ("drop-tail", QueueKind::DropTail),
                ("codel", QueueKind::Managed(ManagedKind::CoDel)),
                ("fq-codel", QueueKind::Managed(ManagedKind::FqCoDel)),
                ("pie", QueueKind::Managed(ManagedKind::Pie)),
                ("port", QueueKind::Port),
            ],
        )
    });
    let resend_after_ns = link.get("resend_after", errors, value::time_ns);
    let has_relay_frames = link.or("frames", false, errors, |found| {
        value::one_of(found, &[("bare", false), ("relay", true)])
    });
    if has_relay_frames && kind != QueueKind::Port {
        link.fail("frames", "those of relays belong to queue = \"port\"", errors);
    }
    let managed = match kind {
        QueueKind::Managed(kind) => Some(kind),
        _ => None,
    };
    medium::refuse_others(managed, link, errors);
    if has_length && packets.is_none() {
        return None; // it is wrong, which is reported, rather than missing
    }
    match (kind, packets) {
        (QueueKind::Managed(kind), packets) => {
            Some(Queue::Managed(medium::managed(kind, packets, link, errors)))
        }
        (QueueKind::Unlimited, None) => Some(Queue::Unlimited),
        (QueueKind::Unlimited, Some(_)) => {
            let message = "an unlimited queue has no limit: remove it, or write \
                           queue = \"drop-tail\"";
            link.fail("buffer_packets", message, errors);
            None
        }
        (QueueKind::DropTail, Some(packets)) => Some(drop_tail(packets)),
        (QueueKind::DropTail, None) => {
            link.fail("queue", "it needs its length: add buffer_packets = 100", errors);
            None
        }
        (QueueKind::Port, packets) => {
            let port = PortDraft { packets, unit: None, resend_after_ns, has_relay_frames };
            draft.port(parts, wire, port, errors)
        }
    }
}

fn read_flow(
    name: &str,
    flow: &Section<'_>,
    inputs: &mut Inputs<'_>,
    has_all_links: bool,
    draft: &mut Draft,
    errors: &mut Errors,
) -> Option<()> {
    let traffic = source::read(flow, &FLOW_KEYS, inputs, errors);
    let group = flow.or("group", name.to_owned(), errors, value::name);
    let max_wait_ns = flow.or("hold", 0, errors, value::time_ns);
    let mut number = |key: &str, default: u64| {
        flow.or(key, default, errors, |v| value::whole(v, 0..=u64::from(u32::MAX)))
    };
    // By default, no two flows have their service or their hosts in common.
    let own = OWN + draft.plan.flows.len() as u64;
    let (edge, service, hosts) = (number("edge", 0), number("service", own), number("hosts", own));
    let stops = stops(flow, draft, errors)?;
    let traffic = traffic?;
    if !has_all_links {
        return None; // a path may lead over what is wrong, and is not missing
    }
    let route = find_path(flow, &stops, draft, "", errors)?;
    let back = match traffic {
        Traffic::Tcp(..) => {
            let backwards: Vec<usize> = stops.iter().rev().copied().collect();
            find_path(flow, &backwards, draft, " for the acknowledgements", errors)?
        }
        _ => Vec::new(),
    };
    let group = draft.plan.groups.iter().position(|known| known.name == group)?;
    let copies = flow.or("count", 1, errors, |v| value::whole32(v, 1..=COUNT_MAX));
    for copy in 0..u64::from(copies) {
        // Copies have services and hosts of their own, unless the scenario names them.
        let own =
            |key: &str, number: u64| if flow.has(key) { number } else { number + (copy << 33) };
        let mut traffic = traffic.clone();
        traffic.set_stream(draft.plan.flows.len() as u64 + 1);
        draft.flow(Flow {
            group,
            route: route.clone(),
            back: back.clone(),
            max_wait_ns,
            edge,
            service: own("service", service),
            hosts: own("hosts", hosts),
            traffic,
        });
    }
    Some(())
}

/// The nodes that a flow must touch, in order.
fn stops(flow: &Section<'_>, draft: &mut Draft, errors: &mut Errors) -> Option<Vec<usize>> {
    let mut stops = vec![node(flow, "from", true, draft, errors)?];
    if flow.has("via") {
        let nodes = &draft.plan.nodes;
        stops.extend(
            flow.list("via", "[\"b\"]", errors, |found: &Value| find(&value::name(found)?, nodes))?,
        );
    }
    stops.push(node(flow, "to", true, draft, errors)?);
    if stops.windows(2).any(|pair| pair[0] == pair[1]) {
        flow.fail("to", "the path must end at another node than the one where it begins", errors);
        return None;
    }
    Some(stops)
}

fn find_path(
    flow: &Section<'_>,
    stops: &[usize],
    draft: &Draft,
    what_for: &str,
    errors: &mut Errors,
) -> Option<Vec<usize>> {
    let mut route = Vec::new();
    for pair in stops.windows(2) {
        let Some(links) = shortest(&draft.plan, pair[0], pair[1]) else {
            let nodes = &draft.plan.nodes;
            let message = format!(
                "no path leads from \"{}\" to \"{}\"{what_for}: add a link (or duplex = true to \
                 one)",
                nodes[pair[0]], nodes[pair[1]]
            );
            flow.fail("to", message, errors);
            return None;
        };
        route.extend(links);
    }
    Some(route)
}

/// Returns the path with the fewest links; of several the one whose links come first.
fn shortest(plan: &Plan, from: usize, to: usize) -> Option<Vec<usize>> {
    let mut reached_by: Vec<Option<usize>> = vec![None; plan.nodes.len()];
    let mut open = VecDeque::from([from]);
    while let Some(here) = open.pop_front() {
        if here == to {
            break;
        }
        for (index, link) in plan.links.iter().enumerate().filter(|(_, link)| link.from == here) {
            if link.to != from && reached_by[link.to].is_none() {
                reached_by[link.to] = Some(index);
                open.push_back(link.to);
            }
        }
    }
    let mut route = Vec::new();
    let mut here = to;
    while here != from {
        let link = reached_by[here]?;
        route.push(link);
        here = plan.links[link].from;
    }
    route.reverse();
    Some(route)
}
