//! A plan under construction: nodes and links by their names.

use dwell_base::Rate;
use dwell_drive::link::Link as RelayLink;
use dwell_policy::{PortConfig, QueueLimit};

use crate::moment::Span;
use crate::plan::{DropTail, Flow, Group, Link, Plan, PortPlan, Queue};
use crate::scenario::compress::{Compression, estimates, with_history};
use crate::scenario::error::Errors;

use super::Parts;

/// Packets of fewer bytes are not compressed by relays.
const COMPRESS_BYTES_MIN: u32 = 64;

/// A plan under construction.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// The plan so far.
    pub(super) plan: Plan,
}

/// The properties of a link, except for its queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wire {
    pub(super) rate: Rate,
    pub(super) propagation_ns: u64,
    pub(super) frame_ns_min: u64,
}

impl Wire {
    pub(super) fn new(rate: Rate, propagation_ns: u64) -> Self {
        Self { rate, propagation_ns, frame_ns_min: 0 }
    }
}

/// A port under construction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PortDraft {
    /// The limit by ns-2's rule; none for no limit.
    pub(super) packets: Option<u32>,
    /// The time that compressing a unit takes if the scenario does not say.
    pub(super) unit: Option<Span>,
    /// The time after which lost units come back.
    pub(super) resend_after_ns: Option<u64>,
    /// True if frames cost what they cost relays on Ethernet.
    pub(super) has_relay_frames: bool,
}

impl Draft {
    pub(super) fn node(&mut self, name: String) -> usize {
        self.plan.nodes.push(name);
        self.plan.nodes.len() - 1
    }

    pub(super) fn group(&mut self, name: &str, wait_ns_max: u64) -> usize {
        self.plan.groups.push(Group { name: name.to_owned(), wait_ns_max });
        self.plan.groups.len() - 1
    }

    pub(super) fn link(
        &mut self,
        name: String,
        (from, to): (usize, usize),
        wire: Wire,
        queue: Queue,
    ) -> usize {
        self.plan.links.push(Link {
            name,
            from,
            to,
            rate: wire.rate,
            propagation_ns: wire.propagation_ns,
            frame_ns_min: wire.frame_ns_min,
            queue,
            restored: false,
            medium: crate::plan::Medium::default(),
        });
        self.plan.links.len() - 1
    }

    /// Makes packets travel on this link in their original size.
    pub(super) fn restore(&mut self, link: usize) {
        self.plan.links[link].restored = true;
    }

    pub(super) fn flow(&mut self, flow: Flow) {
        self.plan.flows.push(flow);
    }

    /// Returns the queue of a relay, for the groups that exist now.
    pub(super) fn port(
        &self,
        parts: &Parts,
        wire: Wire,
        port: PortDraft,
        errors: &mut Errors,
    ) -> Option<Queue> {
        let groups: Vec<&str> = self.plan.groups.iter().map(|g| g.name.as_str()).collect();
        // Unused values must not make runs different.
        let compressing =
            if parts.scheme.compresses() { &parts.compressing } else { &Compression::FREE };
        let unit_ns = port.unit.map(|unit| unit.ns);
        let model = compressing.model(&groups, unit_ns, errors)?;
        let has_no_time = matches!(compressing, Compression::Constant { time_ns: None, .. });
        let unit_s = port.unit.filter(|_| has_no_time).map(|unit| unit.s);
        let history = if parts.scheme.has_contexts() { parts.history } else { 1.0 };
        let compress = with_history(model, history);
        let max_waits_ns: Vec<u64> = self.plan.groups.iter().map(|g| g.wait_ns_max).collect();
        let scheme = parts.scheme.scheme(&max_waits_ns, errors)?;
        let (frame, compress_bytes_min) = match port.has_relay_frames {
            true => {
                let link = RelayLink::ethernet(wire.rate);
                (link.relay_frames(scheme.fills_frames()), COMPRESS_BYTES_MIN)
            }
            false => (parts.scheme.frame(), 0),
        };
        let config = PortConfig {
            scheme,
            rate: Some(wire.rate),
            limit: QueueLimit::packets(port.packets.unwrap_or(u32::MAX)),
            estimates: estimates(&compress),
            frame,
            compress_bytes_min,
            objective: parts.scheme.objective(),
            ..PortConfig::default()
        };
        if let Err(error) = config.check() {
            errors.add(None, Some("[scheme]".to_owned()), error.to_string());
            return None;
        }
        let resend_after_ns = port.resend_after_ns;
        Some(Queue::Port(Box::new(PortPlan { config, compress, resend_after_ns, unit_s })))
    }
}

/// Returns a queue that drops by ns-2's rule.
pub(super) fn drop_tail(packets: u32) -> Queue {
    Queue::DropTail(DropTail { packets: Some(packets), bytes: None })
}
