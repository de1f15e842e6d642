//! Whole networks in virtual time: sans-IO nodes joined by hostile links.
//!
//! The net jumps from event to event: the earliest of all deliveries and all deadlines comes
//! next, deliveries before deadlines, links and nodes in the order in which they were added.
//! The same nodes, specs and seeds therefore give the same run, to the nanosecond.

use std::collections::HashMap;

use dwell_base::Instant;
use thiserror::Error;

use crate::link::{LinkModel, LinkSpec, LinkStats};

/// A participant that is notified of events and answers with datagrams.
pub trait Node {
    /// A datagram arrived at `port`.
    fn receive(&mut self, now: Instant, port: usize, datagram: &[u8], out: &mut Outbox);

    /// Handles the deadline that [`Self::next_deadline`] named.
    fn handle_deadline(&mut self, now: Instant, out: &mut Outbox);

    /// Returns the time of the next [`Self::handle_deadline`]; called after every event.
    fn next_deadline(&self) -> Option<Instant>;
}

/// The datagrams that a node sends while it handles an event.
#[derive(Debug, Default)]
pub struct Outbox(Vec<(usize, Vec<u8>)>);

impl Outbox {
    /// Sends a datagram out of `port`.
    pub fn send(&mut self, port: usize, datagram: &[u8]) {
        self.0.push((port, datagram.to_vec()));
    }
}

/// Names a node of a [`VirtualNet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(usize);

/// Names one direction of a link of a [`VirtualNet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectionId(usize);

/// An end of a link: a node and its port.
pub type End = (NodeId, usize);

/// The net kept taking steps without getting anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("more than {steps} steps before {until}: stuck at {now}")]
pub struct Stuck {
    /// The number of steps that it took.
    pub steps: u64,
    /// The virtual time that it reached.
    pub now: Instant,
    /// The virtual time that it should have reached.
    pub until: Instant,
}

/// Nodes, the links between them, and a clock that only events move.
#[derive(Debug)]
pub struct VirtualNet<N> {
    now: Instant,
    nodes: Vec<N>,
    directions: Vec<Direction>,
    from: HashMap<End, usize>,
    outbox: Outbox,
    unconnected: u64,
    steps_max: u64,
}

#[derive(Debug)]
struct Direction {
    to: End,
    model: LinkModel<Vec<u8>>,
}

/// The next event.
#[derive(Clone, Copy, Debug)]
enum Event {
    Delivery { direction: usize },
    Deadline { node: usize },
}

/// The default limit of steps: enough for minutes of traffic; a node that always wants to be woken
/// at once meets it within a second.
const STEPS_MAX_DEFAULT: u64 = 10_000_000;

impl<N: Node> Default for VirtualNet<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<N: Node> VirtualNet<N> {
    /// Makes an empty net, at time zero.
    pub fn new() -> Self {
        Self {
            now: Instant::ZERO,
            nodes: Vec::new(),
            directions: Vec::new(),
            from: HashMap::new(),
            outbox: Outbox::default(),
            unconnected: 0,
            steps_max: STEPS_MAX_DEFAULT,
        }
    }

    /// Allows this many steps for each [`Self::run_until`].
    pub fn set_steps_max(&mut self, steps_max: u64) {
        self.steps_max = steps_max;
    }

    /// Adds a node.
    pub fn add(&mut self, node: N) -> NodeId {
        self.nodes.push(node);
        NodeId(self.nodes.len() - 1)
    }

    /// Joins two ports; the results name the directions a → b and b → a. A port that was connected
    /// before is connected to the new link.
    pub fn connect(&mut self, a: End, b: End, ab: LinkSpec, ba: LinkSpec) -> [DirectionId; 2] {
        [self.add_direction(a, b, ab), self.add_direction(b, a, ba)]
    }

    fn add_direction(&mut self, from: End, to: End, spec: LinkSpec) -> DirectionId {
        let id = self.directions.len();
        self.directions.push(Direction { to, model: LinkModel::new(spec) });
        self.from.insert(from, id);
        DirectionId(id)
    }

    /// Returns the virtual time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Returns a node, to look at. To change it use [`Self::with_node`].
    pub fn node(&self, id: NodeId) -> &N {
        &self.nodes[id.0]
    }

    /// Returns the counters of one direction of a link.
    pub fn link_stats(&self, id: DirectionId) -> LinkStats {
        self.directions[id.0].model.stats()
    }

    /// Changes one direction of a link from now on: cut it (loss 1), slow it, heal it.
    pub fn set_link(&mut self, id: DirectionId, spec: LinkSpec) {
        self.directions[id.0].model.set_spec(self.now, spec);
    }

    /// Returns the number of datagrams that were sent out of unconnected ports.
    pub fn unconnected(&self) -> u64 {
        self.unconnected
    }

    /// Lets the caller change a node now; the datagrams that it sends are put on their links.
    pub fn with_node<R>(
        &mut self,
        id: NodeId,
        act: impl FnOnce(&mut N, Instant, &mut Outbox) -> R,
    ) -> R {
        let result = act(&mut self.nodes[id.0], self.now, &mut self.outbox);
        self.post(id);
        result
    }

    /// Puts a datagram on a link as if `from` had sent it: forged or replayed traffic.
    pub fn inject(&mut self, from: End, datagram: &[u8]) {
        self.outbox.send(from.1, datagram);
        self.post(from.0);
    }

    /// Processes all events up to `until`, then stands at `until`.
    ///
    /// # Errors
    /// [`Stuck`] if that takes more steps than allowed.
    pub fn run_until(&mut self, until: Instant) -> Result<(), Stuck> {
        for _ in 0..self.steps_max {
            match self.next_event() {
                Some((at, event)) if at <= until => {
                    self.now = self.now.max(at);
                    self.step(event);
                }
                _ => {
                    self.now = self.now.max(until);
                    return Ok(());
                }
            }
        }
        Err(Stuck { steps: self.steps_max, now: self.now, until })
    }

    /// Returns the time of the next event, if there is one.
    pub fn next_event_at(&self) -> Option<Instant> {
        self.next_event().map(|(at, _)| at)
    }

    fn next_event(&self) -> Option<(Instant, Event)> {
        let deliveries = self.directions.iter().enumerate().filter_map(|(direction, link)| {
            Some((link.model.next_delivery()?, Event::Delivery { direction }))
        });
        let deadlines =
            self.nodes.iter().enumerate().filter_map(|(node, value)| {
                Some((value.next_deadline()?, Event::Deadline { node }))
            });
        // `min_by_key` takes the first of equal times.
        deliveries.chain(deadlines).min_by_key(|(at, _)| *at)
    }

    fn step(&mut self, event: Event) {
        match event {
            Event::Delivery { direction } => {
                let Direction { to, model } = &mut self.directions[direction];
                let (node, port) = *to;
                let Some(mut delivered) = model.pop(self.now) else { return };
                let mut datagram = std::mem::take(&mut delivered.packet);
                delivered.damage(&mut datagram);
                self.nodes[node.0].receive(self.now, port, &datagram, &mut self.outbox);
                self.post(node);
            }
            Event::Deadline { node } => {
                self.nodes[node].handle_deadline(self.now, &mut self.outbox);
                self.post(NodeId(node));
            }
        }
    }

    /// Puts the datagrams that `node` has sent on the links.
    fn post(&mut self, node: NodeId) {
        for (port, datagram) in self.outbox.0.drain(..) {
            match self.from.get(&(node, port)) {
                Some(&direction) => {
                    self.directions[direction].model.push(self.now, datagram.len(), datagram);
                }
                None => self.unconnected += 1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use dwell_base::time::{MILLI_NS, SECOND_NS};

    use super::*;

    /// Sends numbered datagrams until each was echoed: stop and wait.
    #[derive(Debug, Default)]
    struct Talker {
        wanted: u8,
        next: u8,
        deadline: Option<Instant>,
        echoes: Vec<(Instant, u8)>,
    }

    const TIMEOUT_NS: u64 = 100 * MILLI_NS;

    impl Talker {
        fn say(&mut self, now: Instant, out: &mut Outbox) {
            self.deadline = (self.next < self.wanted).then(|| now + TIMEOUT_NS);
            if self.deadline.is_some() {
                // The complement shows damage.
                out.send(0, &[self.next, !self.next]);
            }
        }
    }

    impl Node for Talker {
        fn receive(&mut self, now: Instant, port: usize, datagram: &[u8], out: &mut Outbox) {
            let &[number, complement] = datagram else { return };
            if number != !complement {
                return;
            }
            if self.wanted == 0 {
                out.send(port, datagram);
            } else if number == self.next {
                self.echoes.push((now, number));
                self.next += 1;
                self.say(now, out);
            }
        }

        fn handle_deadline(&mut self, now: Instant, out: &mut Outbox) {
            self.say(now, out);
        }

        fn next_deadline(&self) -> Option<Instant> {
            self.deadline
        }
    }

    fn talk(spec: &str) -> (VirtualNet<Talker>, NodeId, [DirectionId; 2]) {
        let spec: LinkSpec = spec.parse().unwrap();
        let mut net = VirtualNet::new();
        let a = net.add(Talker { wanted: 50, ..Talker::default() });
        let b = net.add(Talker::default());
        let link = net.connect((a, 0), (b, 3), spec.clone(), spec.with_seed(2));
        net.with_node(a, |node, now, out| node.say(now, out));
        (net, a, link)
    }

    #[test]
    fn a_good_link_takes_a_round_trip_each() {
        let (mut net, a, _) = talk("delay 10ms");
        net.run_until(Instant::from_ns(SECOND_NS)).unwrap();
        assert_eq!(net.node(a).echoes.len(), 50);
        assert_eq!(net.node(a).echoes[49], (Instant::from_ns(SECOND_NS), 49));
    }

    #[test]
    fn a_hostile_link_is_survived_the_same_way_each_time() {
        let hostile = "rate 64kbit delay 10ms jitter 3ms loss 30% reorder 0.1 duplicate 0.1 \
                       corrupt 0.1";
        let run = || {
            let (mut net, a, link) = talk(hostile);
            net.run_until(Instant::from_ns(60 * SECOND_NS)).unwrap();
            assert!(link.iter().all(|&id| net.link_stats(id).balanced()));
            net.node(a).echoes.clone()
        };
        let echoes = run();
        assert_eq!(echoes.len(), 50);
        assert_eq!(echoes, run());
    }

    #[test]
    fn a_cut_link_can_heal() {
        let (mut net, a, [there, _]) = talk("delay 10ms");
        net.set_link(there, LinkSpec::new().with_loss(1.0));
        net.run_until(Instant::from_ns(SECOND_NS)).unwrap();
        // The first datagram was already under way.
        assert_eq!(net.node(a).echoes.len(), 1);
        net.set_link(there, LinkSpec::new());
        net.run_until(Instant::from_ns(3 * SECOND_NS)).unwrap();
        assert_eq!(net.node(a).echoes.len(), 50);
        assert_eq!(net.next_event_at(), None);
    }

    #[test]
    fn too_many_steps_are_reported() {
        let (mut net, a, _) = talk("loss 1");
        net.run_until(Instant::from_ns(SECOND_NS)).unwrap();
        net.set_steps_max(3);
        assert!(net.run_until(Instant::from_ns(10 * SECOND_NS)).is_err());
        net.inject((a, 9), b"nowhere");
        assert_eq!(net.unconnected(), 1);
    }
}
