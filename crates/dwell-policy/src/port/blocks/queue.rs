//! The queue of a port that compresses blocks: packets and blocks in their order, and which of
//! the packets could become a block.
//!
//! A list in a slab, because the link passes over packets being compressed, and blocks close up.
//! The *edge* is the first unit with at least n others before it: raw packets from there on
//! are candidates for blocks, and are counted by group, so that it costs nothing to see that
//! there is no block to be made.

use dwell_base::Instant;

use super::groups::{GroupId, Groups};
use crate::account::Bypass;
use crate::packet::{ClassKey, PacketId, learned_as};
use crate::scheme::BlockSlots;

/// The name of no node.
pub(super) const NONE: u32 = u32::MAX;

/// The state of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// A packet that may be compressed.
    Raw,
    /// A packet that may not be compressed, for this reason.
    Exempt(Bypass),
    /// A packet that did not become smaller being compressed.
    Tried,
    /// A packet that is being compressed.
    Compressing,
    /// A compressed packet, or a block of them.
    Compressed,
}

/// A unit of the queue, or a packet of a block beside its first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) id: PacketId,
    pub(super) original_bytes: u32,
    /// As it would be sent now; of a block, the whole.
    pub(super) bytes: u32,
    pub(super) class: ClassKey,
    pub(super) flow: u64,
    pub(super) arrived: Instant,
    pub(super) group: Option<GroupId>,
    /// The group whose context it would be compressed in.
    pub(super) context: u64,
    pub(super) state: State,
    /// Its content looks random.
    pub(super) looks_random: bool,
    /// It may hold packets of any group.
    pub(super) is_fence: bool,
    /// It was put back.
    pub(super) returned: bool,
    /// The number of packets that follow the first in its block, and the first of them.
    pub(super) followers: u32,
    pub(super) first_follower: u32,
    /// Candidates are beyond the edge.
    beyond: bool,
    previous: u32,
    /// In the queue, in the chain of followers, or in the list of free nodes.
    next: u32,
}

impl Node {
    /// A packet in no queue yet.
    pub(super) fn new(id: PacketId, bytes: u32, arrived: Instant, state: State) -> Self {
        Self {
            id,
            original_bytes: bytes,
            bytes,
            class: ClassKey::default(),
            flow: 0,
            arrived,
            group: None,
            context: 0,
            state,
            looks_random: false,
            is_fence: false,
            returned: false,
            followers: 0,
            first_follower: NONE,
            beyond: false,
            previous: NONE,
            next: NONE,
        }
    }

    /// The flow and the class that its results are learned under.
    pub(super) fn learned_as(&self) -> (u64, ClassKey) {
        learned_as(self.flow, self.class, self.looks_random)
    }

    /// It was compressed, here or upstream: what is in it can't be known.
    pub(super) fn is_opaque(&self) -> bool {
        matches!(self.state, State::Compressed | State::Exempt(Bypass::AlreadyCompressed))
    }
}

/// The queue.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    nodes: Vec<Node>,
    free: u32,
    head: u32,
    tail: u32,
    units: usize,
    /// The length of the queue as the rules count it.
    slots: usize,
    /// The first unit beyond the lead, and the slots before it.
    edge: u32,
    ahead: usize,
    lead: usize,
    block_slots: BlockSlots,
    pub(super) groups: Groups,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            nodes: Vec::with_capacity(256),
            free: NONE,
            head: NONE,
            tail: NONE,
            units: 0,
            slots: 0,
            edge: NONE,
            ahead: 0,
            lead: 0,
            block_slots: BlockSlots::One,
            groups: Groups::new(1),
        }
    }

    /// Takes other rules, and counts again what waits.
    pub(super) fn configure(&mut self, packets: u32, lead: u32, block_slots: BlockSlots) {
        // Without candidates m can change; they are found again below.
        self.lead = usize::MAX;
        self.settle();
        self.groups.set_block_packets(packets);
        self.lead = lead as usize;
        self.block_slots = block_slots;
        self.slots = self.iter().map(|at| self.weight(at)).sum();
        self.ahead = self.slots;
        self.settle();
    }

    pub(super) fn node(&self, at: u32) -> &Node {
        &self.nodes[at as usize]
    }

    pub(super) fn node_mut(&mut self, at: u32) -> &mut Node {
        &mut self.nodes[at as usize]
    }

    pub(super) fn head(&self) -> u32 {
        self.head
    }

    /// The first unit beyond the lead.
    pub(super) fn edge(&self) -> u32 {
        self.edge
    }

    pub(super) fn next(&self, at: u32) -> u32 {
        self.node(at).next
    }

    pub(super) fn units(&self) -> usize {
        self.units
    }

    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    /// True if what is put at the tail would be beyond the lead.
    pub(super) fn reaches_edge(&self) -> bool {
        self.slots >= self.lead
    }

    /// The units from the head on.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.iter_from(self.head)
    }

    /// The units from this one on; of a follower, it and those behind it in its block.
    pub(super) fn iter_from(&self, at: u32) -> impl Iterator<Item = u32> {
        let real = |at| (at != NONE).then_some(at);
        std::iter::successors(real(at), move |&at| real(self.next(at)))
    }

    /// Keeps a node that is not in the queue yet.
    pub(super) fn keep(&mut self, node: Node) -> u32 {
        if self.free == NONE {
            self.nodes.push(node);
            return (self.nodes.len() - 1) as u32;
        }
        let at = self.free;
        self.free = self.next(at);
        self.nodes[at as usize] = node;
        at
    }

    /// Forgets a node that is not in the queue any more.
    pub(super) fn forget(&mut self, at: u32) {
        self.nodes[at as usize].next = self.free;
        self.free = at;
    }

    /// Puts a node behind all others.
    pub(super) fn push_back(&mut self, at: u32) {
        let tail = self.tail;
        let node = self.node_mut(at);
        (node.previous, node.next, node.beyond) = (tail, NONE, false);
        match tail {
            NONE => self.head = at,
            tail => self.node_mut(tail).next = at,
        }
        self.tail = at;
        self.count(at);
        if self.edge == NONE {
            self.ahead += self.weight(at);
            self.settle();
        } else {
            self.enter(at);
        }
    }

    /// Puts a node before all others.
    pub(super) fn push_front(&mut self, at: u32) {
        let head = self.head;
        let node = self.node_mut(at);
        (node.previous, node.next, node.beyond) = (NONE, head, false);
        match head {
            NONE => self.tail = at,
            head => self.node_mut(head).previous = at,
        }
        self.head = at;
        self.count(at);
        self.ahead += self.weight(at);
        self.settle();
    }

    /// Takes a node out of the queue, but keeps it.
    pub(super) fn unlink(&mut self, at: u32) {
        self.detach(at);
        if let Some(group) = self.node(at).group {
            self.groups.leave(group);
        }
    }

    /// Puts a node of the queue behind all others.
    pub(super) fn move_to_tail(&mut self, at: u32) {
        self.detach(at);
        self.push_back(at);
    }

    fn detach(&mut self, at: u32) {
        let weight = self.weight(at);
        let Node { previous, next, beyond, .. } = *self.node(at);
        if self.edge == at {
            self.edge = next;
        }
        if beyond {
            self.leave(at);
        } else {
            self.ahead -= weight;
        }
        match previous {
            NONE => self.head = next,
            previous => self.node_mut(previous).next = next,
        }
        match next {
            NONE => self.tail = previous,
            next => self.node_mut(next).previous = previous,
        }
        self.units -= 1;
        self.slots -= weight;
        self.settle();
    }

    /// Changes what a unit of the queue is.
    pub(super) fn set_state(&mut self, at: u32, state: State) {
        let old = std::mem::replace(&mut self.node_mut(at).state, state);
        let Node { beyond, group: Some(group), .. } = *self.node(at) else { return };
        match (beyond && old == State::Raw, beyond && state == State::Raw) {
            (true, false) => self.groups.remove_candidate(group),
            (false, true) => self.groups.add_candidate(group),
            _ => (),
        }
    }

    /// Takes `followers` out of the queue and into the block of `first`, which has none yet.
    pub(super) fn close_up(&mut self, first: u32, followers: &[u32]) {
        for &at in followers {
            self.unlink(at);
        }
        let mut last = NONE;
        for &at in followers {
            self.append(first, last, at);
            last = at;
        }
        let grown = self.weight(first) - 1;
        self.slots += grown;
        if !self.node(first).beyond {
            self.ahead += grown;
        }
        self.settle();
    }

    /// Chains a node that is not in the queue to those that follow `first` in its block, of
    /// which `last` is the last.
    pub(super) fn append(&mut self, first: u32, last: u32, at: u32) {
        match last {
            NONE => self.node_mut(first).first_follower = at,
            last => self.node_mut(last).next = at,
        }
        self.node_mut(at).next = NONE;
        self.node_mut(first).followers += 1;
    }

    /// Returns the number of slots that a unit takes.
    fn weight(&self, at: u32) -> usize {
        match self.block_slots {
            BlockSlots::One => 1,
            BlockSlots::PerPacket => 1 + self.node(at).followers as usize,
        }
    }

    fn count(&mut self, at: u32) {
        self.units += 1;
        self.slots += self.weight(at);
    }

    /// Moves the edge to where it belongs.
    fn settle(&mut self) {
        while self.edge != NONE && self.ahead < self.lead {
            let at = self.edge;
            self.leave(at);
            self.ahead += self.weight(at);
            self.edge = self.next(at);
        }
        loop {
            let at = if self.edge == NONE { self.tail } else { self.node(self.edge).previous };
            if at == NONE || self.ahead - self.weight(at) < self.lead {
                return;
            }
            self.ahead -= self.weight(at);
            self.edge = at;
            self.enter(at);
        }
    }

    /// A unit is beyond the edge now.
    fn enter(&mut self, at: u32) {
        self.node_mut(at).beyond = true;
        if let Node { state: State::Raw, group: Some(group), .. } = *self.node(at) {
            self.groups.add_candidate(group);
        }
    }

    /// A unit is beyond the edge no more.
    fn leave(&mut self, at: u32) {
        self.node_mut(at).beyond = false;
        if let Node { state: State::Raw, group: Some(group), .. } = *self.node(at) {
            self.groups.remove_candidate(group);
        }
    }

    /// Counts everything again.
    ///
    /// # Panics
    /// If something is miscounted.
    pub(super) fn assert_counts(&self) {
        let (mut units, mut slots, mut packets) = (0, 0, 0);
        let mut groups = std::collections::HashMap::new();
        let mut edge = NONE;
        for at in self.iter() {
            let node = self.node(at);
            if edge == NONE && slots >= self.lead {
                assert_eq!((at, slots), (self.edge, self.ahead), "the edge is misplaced");
                edge = at;
            }
            assert_eq!(node.beyond, edge != NONE, "a unit is on the wrong side of the edge");
            if let Some(group) = node.group {
                let (members, candidates): &mut (u32, u32) = groups.entry(group).or_default();
                *members += 1;
                *candidates += u32::from(node.beyond && node.state == State::Raw);
            }
            units += 1;
            slots += self.weight(at);
            packets += 1 + self.iter_from(node.first_follower).count();
        }
        // Places that nobody finds again would be lost for ever.
        let free = self.iter_from(self.free).count();
        assert_eq!(packets + free, self.nodes.len(), "places are lost");
        assert_eq!(edge, self.edge, "the edge is misplaced");
        assert_eq!((units, slots), (self.units, self.slots), "the queue is miscounted");
        self.groups.assert_counts(&groups);
    }
}
