//! Blocks of packets with the same next hop, compressed while they wait: Yoshino et al., section
//! III.
//!
//! All packets wait in one queue for the link. If it is longer than n + m, the CPU takes m raw
//! packets of one group from beyond the first n and compresses them together, which takes about
//! as long as the link needs for those n. They keep their places meanwhile; when they are done,
//! the block stands where its first packet stood.
//!
//! Questions that the paper leaves open are a matter of [`BlockRules`](crate::BlockRules).
//!
//! [`Select::Waiting`] is a rule of ours for the same queue: a block is made at the latest
//! moment, of as much as waits then, and only if Eq. (2) of Shimamura et al. grants the time. If
//! it doesn't to the packets that are next, they leave raw, and the first that has time begins
//! the block. On an idle link the same rule holds with W = 0, so that a packet is compressed first
//! if it leaves the link earlier for it.

mod due;
mod gather;
mod groups;
mod queue;
#[cfg(test)]
mod tests;

use dwell_base::Instant;

use super::common::{Common, Filling, Waiting};
use crate::account::{Bypass, Count, DropReason};
use crate::action::{Action, FramePacket, FrameUnit, SendCause};
use crate::event::{LostBatch, Outcome};
use crate::packet::{Packet, PacketId, learned_as};
use crate::scheme::{BlockOrder, BlockPlace, BlockRules, Gather, Release, Select, Unfinished};
use gather::{Gatherer, Room};
use queue::{NONE, Node, Queue, State};

/// From this many bytes on, the result of a block says something about its packets.
const TELLING_BYTES_MIN: u64 = 1_000;

/// Which packets become a block, and when.
#[derive(Clone, Copy, Debug)]
enum Rule {
    /// [`Select::Backlog`]: m and n.
    Count { packets: usize, lead: usize },
    /// [`Select::Waiting`].
    Waiting { room: Room, lead_ns: u64 },
}

impl Rule {
    /// Why the link got to a packet that could have been compressed.
    fn bypass(self) -> Bypass {
        match self {
            Self::Count { .. } => Bypass::NoBlock,
            Self::Waiting { .. } => Bypass::NoTime,
        }
    }
}

/// A queue whose packets are compressed in blocks.
#[derive(Clone, Debug)]
pub(super) struct Blocks {
    gather: Gather,
    queue: Queue,
    /// The packets that are being compressed, or are about to be.
    members: Vec<u32>,
    is_compressing: bool,
    /// Bytes of all that waits, as it would be sent now.
    bytes: u64,
    /// Bytes of all that is not being compressed, headers of units included.
    units_bytes: u64,
    /// Packets that were put back and wait.
    returned: usize,
    rule: Rule,
    rules: BlockRules,
    gatherer: Gatherer,
    /// The bytes that the packets assessed last needed ahead of them, to have time.
    needed_bytes: u64,
}

impl Blocks {
    pub(super) fn new(gather: Gather) -> Self {
        Self {
            gather,
            queue: Queue::new(),
            members: Vec::new(),
            is_compressing: false,
            bytes: 0,
            units_bytes: 0,
            returned: 0,
            rule: Rule::Count { packets: 1, lead: 0 },
            rules: BlockRules::PAPER,
            gatherer: Gatherer::default(),
            needed_bytes: 0,
        }
    }

    /// Returns the packets that are compressed together.
    pub(super) fn gather(&self) -> Gather {
        self.gather
    }

    /// The configuration changed.
    pub(super) fn recount(&mut self, common: &Common) {
        let scheme = &common.config.scheme;
        let Release::Now(rules) = scheme.release else { return };
        match scheme.select {
            Select::Backlog { packets, lead, .. } => {
                self.queue.configure(packets, lead, rules.slots);
                self.rule = Rule::Count { packets: packets as usize, lead: lead as usize };
            }
            Select::Waiting { bytes_max, packets_max, lead_ns, .. } => {
                self.queue.configure(1, 0, rules.slots);
                let room = Room { bytes: bytes_max, packets: packets_max as usize };
                self.rule = Rule::Waiting { room, lead_ns };
            }
            Select::Nothing | Select::Each(_) | Select::Frame | Select::Slack { .. } => (),
        }
        self.rules = rules;
        let units = self.queue.iter().map(|at| self.queue.node(at));
        let waiting = units.filter(|node| node.state != State::Compressing);
        self.units_bytes = waiting.map(|node| unit_bytes(common, node)).sum();
    }

    pub(super) fn over_limit(&self, common: &Common, packet: &Packet) -> Option<DropReason> {
        let waiting = Waiting { packets: self.queue.slots(), bytes: self.bytes };
        common.over_limit(waiting, packet.bytes)
    }

    pub(super) fn arrive(&mut self, common: &mut Common, now: Instant, packet: &Packet) {
        let class = packet.service();
        let key = learned_as(packet.flow, class, packet.looks_random);
        let state = match common.fixed_bypass(packet) {
            // Together even small ones are worth it.
            Some(Bypass::TooSmall) if self.gather != Gather::Packet => State::Raw,
            Some(reason) => State::Exempt(reason),
            // Noise is of no use to those that come after it.
            None if packet.looks_random && common.config.scheme.has_contexts() => {
                State::Exempt(Bypass::BackOff)
            }
            // Only who could become part of a block is asked: the back-off counts it.
            None if self.queue.reaches_edge() && !common.may_try(key.0, key.1) => {
                State::Exempt(Bypass::BackOff)
            }
            None => State::Raw,
        };
        // Without groups any packet will do, but the order of flows matters all the same.
        let single = self.gather == Gather::Packet;
        let key = if single { packet.flow } else { packet.group };
        let group = Some(self.queue.groups.join(key));
        let mut node = Node::new(packet.id, packet.bytes, now, state);
        (node.class, node.flow, node.group) = (class, packet.flow, group);
        node.looks_random = packet.looks_random;
        node.is_fence = packet.group == Packet::ANY_GROUP;
        node.context = packet.group;
        self.bytes += u64::from(packet.bytes);
        self.units_bytes += unit_bytes(common, &node);
        let at = self.queue.keep(node);
        self.queue.push_back(at);
    }

    /// Puts a unit back, if there is room.
    pub(super) fn put_back(&mut self, common: &Common, now: Instant, unit: &LostBatch<'_>) -> bool {
        let room = common.config.limit.packets as usize;
        let Some((first, followers)) = unit.packets.split_first() else { return false };
        if self.returned + unit.packets.len() > room {
            return false;
        }
        let node = |packet: &FramePacket| {
            let arrived = now.before_ns(packet.sojourn_ns);
            Node::new(packet.id, packet.original_bytes, arrived, State::Compressed)
        };
        let mut head = node(first);
        (head.bytes, head.returned) = (unit.bytes, true);
        self.bytes += u64::from(head.bytes);
        self.units_bytes += unit_bytes(common, &head);
        self.returned += unit.packets.len();
        let at = self.queue.keep(head);
        let mut last = NONE;
        for packet in followers {
            let follower = self.queue.keep(node(packet));
            self.queue.append(at, last, follower);
            last = follower;
        }
        match self.rules.put_back {
            BlockPlace::Front => self.queue.push_front(at),
            BlockPlace::Tail => self.queue.push_back(at),
        }
        true
    }

    /// The members came out of the compressor.
    pub(super) fn compressed(&mut self, common: &mut Common, outcome: Outcome, took_ns: u64) {
        let members = std::mem::take(&mut self.members);
        let bytes = members.iter().map(|&at| self.queue.node(at).bytes).sum();
        let to_bytes = common.book_compress(outcome, (members.len() as u32, bytes), took_ns);
        if outcome.is_telling() {
            self.learn(common, &members, (bytes, to_bytes.unwrap_or(bytes)), took_ns);
        }
        match to_bytes {
            Some(to_bytes) => self.finish(common, &members, (bytes, to_bytes)),
            None => self.give_up(common, &members),
        }
        self.members = members;
        self.members.clear();
        self.is_compressing = false;
    }

    /// Every packet of a block is taken to have shrunk as the whole did.
    fn learn(&self, common: &mut Common, members: &[u32], sizes: (u32, u32), took_ns: u64) {
        let (total, to_total) = (u64::from(sizes.0.max(1)), u64::from(sizes.1));
        // A few small packets do not show what they would come to in company. If they counted, a flow
        // that was left alone once would be tried one by one from then on, always without gain.
        let is_telling = self.gather == Gather::Packet || total >= TELLING_BYTES_MIN;
        if common.learned.is_none() || !is_telling {
            return;
        }
        for &at in members {
            let node = self.queue.node(at);
            let bytes = u64::from(node.bytes);
            // No part is larger than the whole.
            let to_bytes = (bytes * to_total / total) as u32;
            let took_ns = took_ns.saturating_mul(bytes) / total;
            common.learn(node.learned_as(), (node.bytes, to_bytes), took_ns);
        }
    }

    /// The packets become a block.
    fn finish(&mut self, common: &Common, members: &[u32], (from, to): (u32, u32)) {
        let Some((&first, followers)) = members.split_first() else { return };
        self.queue.set_state(first, State::Compressed);
        self.queue.close_up(first, followers);
        self.queue.node_mut(first).bytes = to;
        self.bytes -= u64::from(from);
        self.bytes += u64::from(to);
        self.units_bytes += unit_bytes(common, self.queue.node(first));
        if self.rules.place == BlockPlace::Tail {
            self.queue.move_to_tail(first);
        }
    }

    /// The packets stay what they were, and are not tried again.
    fn give_up(&mut self, common: &Common, members: &[u32]) {
        for &at in members {
            self.queue.set_state(at, State::Tried);
            self.units_bytes += unit_bytes(common, self.queue.node(at));
        }
    }

    pub(super) fn poll(&mut self, common: &mut Common, now: Instant) -> Option<Action> {
        // The link first: what it takes now waits no more.
        if common.link_idle
            && let Some(at) = self.sendable()
        {
            if self.gains_at_once(common, now, at) {
                return Some(self.start(common));
            }
            self.fill_frame(common, now, at);
            return Some(Action::Send);
        }
        if self.is_compressing {
            return None;
        }
        match self.rule {
            Rule::Count { packets, .. } if self.has_backlog() => {
                let Self { queue, members, rules, .. } = self;
                self.gatherer.gather(queue, rules.order, packets, members);
            }
            Rule::Count { .. } => (),
            Rule::Waiting { room, lead_ns } => self.gather_due(common, now, room, lead_ns),
        }
        (!self.members.is_empty()).then(|| self.start(common))
    }

    /// Enough waits, and enough of one group beyond the lead.
    fn has_backlog(&self) -> bool {
        let Rule::Count { packets, lead } = self.rule else { return false };
        self.queue.slots() > lead + packets && self.queue.groups.any_full()
    }

    /// Gives the gathered packets to the compressor.
    fn start(&mut self, common: &mut Common) -> Action {
        let mut bytes = 0;
        for &at in &self.members {
            self.queue.set_state(at, State::Compressing);
            let node = self.queue.node(at);
            self.units_bytes -= unit_bytes(common, node);
            bytes += node.bytes;
            common.batch.push(node.id);
        }
        self.is_compressing = true;
        let first = self.members.first().map(|&first| self.queue.node(first));
        let key = first.map(Node::learned_as).unwrap_or_default();
        let context = first.map(|node| node.context);
        common.begin_job(bytes, key, context.filter(|_| common.config.scheme.has_contexts()))
    }

    /// True if there is a unit that the link may take next.
    pub(super) fn can_send(&self) -> bool {
        self.sendable().is_some()
    }

    /// The unit that the link may take next.
    fn sendable(&self) -> Option<u32> {
        let (queue, head) = (&self.queue, self.queue.head());
        if head == NONE || queue.node(head).state != State::Compressing {
            return (head != NONE).then_some(head);
        }
        if self.rules.unfinished == Unfinished::Wait {
            return None;
        }
        let barred = match self.rules.order {
            BlockOrder::Loose => None,
            BlockOrder::Strict => queue.node(head).group,
        };
        if barred.is_some_and(|group| queue.groups.members(group) == queue.units()) {
            return None; // it is all of one group
        }
        let up_to_fence = |&at: &u32| barred.is_none() || !queue.node(at).is_fence;
        queue.iter().take_while(up_to_fence).find(|&at| {
            let node = queue.node(at);
            node.state != State::Compressing && (barred.is_none() || node.group != barred)
        })
    }

    fn fill_frame(&mut self, common: &mut Common, now: Instant, first: u32) {
        let mut filling = common.open_frame();
        let mut next = Some(first);
        while let Some(at) = next
            && self.take(common, &mut filling, now, at)
        {
            next = if filling.is_closed() { None } else { self.sendable() };
        }
        self.units_bytes -= common.close_frame(&filling, SendCause::Ready, 0);
    }

    /// Moves a unit from the queue to the frame; false if it does not fit.
    fn take(&mut self, common: &mut Common, filling: &mut Filling, now: Instant, at: u32) -> bool {
        let node = *self.queue.node(at);
        if !filling.admit(common, unit_bytes(common, &node)) {
            return false;
        }
        let mut original_bytes = node.original_bytes;
        common.send_held(node.original_bytes);
        for follower in self.queue.iter_from(node.first_follower) {
            let packet = self.queue.node(follower);
            original_bytes += packet.original_bytes;
            common.send_held(packet.original_bytes);
            common.frame.followers.push(FramePacket {
                id: packet.id,
                original_bytes: packet.original_bytes,
                sojourn_ns: now.since_ns(packet.arrived),
            });
        }
        let bypass = match node.state {
            State::Raw => Some(self.rule.bypass()),
            State::Exempt(reason) => Some(reason),
            State::Tried | State::Compressing | State::Compressed => None,
        };
        common.put(FrameUnit {
            id: node.id,
            bytes: node.bytes,
            original_bytes,
            compressed_here: node.state == State::Compressed,
            bypass,
            followers: node.followers,
            sojourn_ns: now.since_ns(node.arrived),
        });
        if let Some(reason) = bypass {
            common.accounts.bypass(reason);
        }
        self.release(at);
        true
    }

    /// Takes a unit out of the queue, with all its packets.
    fn release(&mut self, at: u32) {
        let node = *self.queue.node(at);
        self.queue.unlink(at);
        self.queue.forget(at);
        let mut follower = node.first_follower;
        while follower != NONE {
            let next = self.queue.next(follower);
            self.queue.forget(follower);
            follower = next;
        }
        self.bytes -= u64::from(node.bytes);
        if node.returned {
            self.returned -= 1 + node.followers as usize;
        }
    }

    /// Drops all but what is being compressed.
    pub(super) fn clear(&mut self, common: &mut Common, free: &mut dyn FnMut(PacketId)) {
        let mut next = self.queue.head();
        while next != NONE {
            let at = next;
            next = self.queue.next(at);
            let node = *self.queue.node(at);
            if node.state == State::Compressing {
                continue;
            }
            let mut drop = |packet: &Node| {
                common.drop_held(DropReason::Cleared, packet.original_bytes);
                free(packet.id);
            };
            drop(&node);
            for follower in self.queue.iter_from(node.first_follower) {
                drop(self.queue.node(follower));
            }
            self.release(at);
        }
        self.units_bytes = 0;
    }

    /// Nothing waits for the CPU; units waiting for the link.
    pub(super) fn waiting(&self) -> (usize, usize) {
        (0, self.queue.units() - self.members.len())
    }

    /// Bytes of the units that wait for the link.
    pub(super) fn units_bytes(&self) -> u64 {
        self.units_bytes
    }

    /// Counts the held packets again; verifies the rest.
    ///
    /// # Panics
    /// If an invariant is broken.
    pub(super) fn count(&self, common: &Common) -> Count {
        let (mut held, mut returned) = (Count::default(), 0);
        let (mut bytes, mut units_bytes, mut being_compressed) = (0, 0, 0);
        for at in self.queue.iter() {
            let node = self.queue.node(at);
            held.add(node.original_bytes);
            for follower in self.queue.iter_from(node.first_follower) {
                held.add(self.queue.node(follower).original_bytes);
            }
            bytes += u64::from(node.bytes);
            if node.state == State::Compressing {
                being_compressed += 1;
            } else {
                units_bytes += unit_bytes(common, node);
            }
            returned += if node.returned { 1 + node.followers as usize } else { 0 };
        }
        assert_eq!((bytes, units_bytes), (self.bytes, self.units_bytes), "bytes are miscounted");
        assert_eq!((being_compressed, returned), (self.members.len(), self.returned), "miscounted");
        self.queue.assert_counts();
        assert!(!common.link_idle || self.sendable().is_none(), "the link idles for nothing");
        let idle = !self.is_compressing && self.has_backlog();
        let loose = self.rules.order == BlockOrder::Loose;
        assert!(!(idle && loose), "the CPU idles");
        held
    }

    /// The most units that may wait.
    pub(super) fn packets_max(&self, common: &Common) -> usize {
        common.config.limit.packets as usize
    }
}

fn unit_bytes(common: &Common, node: &Node) -> u64 {
    let compressed =
        matches!(node.state, State::Compressed | State::Exempt(Bypass::AlreadyCompressed));
    common.unit_bytes(node.bytes, compressed)
}
