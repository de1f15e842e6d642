//! A queue for each flow, and whose turn it is (RFC 8290, section 4).

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;

use dwell_base::Instant;

use super::codel::{CoDel, Grant};
use super::unit::Entry;
use crate::port::mixer::Mixer;

/// New flows go first, but may not send more than so many times what those that have waited send meanwhile, nor
/// begin with more than so many shares of a round. RFC 8290 lets them go first without an end: where each message has
/// a connection of its own, others would never send.
const NEW_PART: i64 = 2;

/// What a flow has sent beyond its share is remembered up to this many bytes: more than a batch. Who is served out of its turn,
/// because others wait for what is being compressed, has taken nothing from them.
const DEBT_BYTES_MAX: i64 = 128 << 10;

/// Which list a flow is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum List {
    #[default]
    None,
    /// Flows that had nothing waiting before: they send little, or have just begun.
    New,
    Old,
}

/// The queue of a flow.
#[derive(Clone, Debug, Default)]
struct Lane {
    flow: u64,
    queue: VecDeque<Entry>,
    bytes: u64,
    /// The bytes that it may still send in this round; below zero if it sent more.
    deficit: i64,
    list: List,
    codel: CoDel,
}

/// What [`Lanes::first`] finds.
pub(super) enum First {
    /// A packet that is to be dropped, and was taken out.
    Dropped(Entry),
    /// A packet that was marked, and waits.
    Marked(Entry),
    /// A packet that waits.
    Waiting(Entry),
}

/// The queues of all flows.
#[derive(Clone, Debug)]
pub(super) struct Lanes {
    by_flow: HashMap<u64, u32, BuildHasherDefault<Mixer>>,
    lanes: Vec<Lane>,
    free: Vec<u32>,
    new: VecDeque<u32>,
    old: VecDeque<u32>,
    quantum_bytes: i64,
    packets: usize,
    bytes: u64,
    /// Of flows in the list of new ones.
    new_bytes: u64,
    /// Packets that go raw anyhow.
    raw_packets: usize,
    /// The bytes that new flows have sent beyond their part, while others had turns.
    new_in_turn: i64,
}

impl Lanes {
    pub(super) fn new() -> Self {
        Self {
            by_flow: HashMap::default(),
            lanes: Vec::new(),
            free: Vec::new(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            quantum_bytes: 1,
            packets: 0,
            bytes: 0,
            new_bytes: 0,
            raw_packets: 0,
            new_in_turn: 0,
        }
    }

    pub(super) fn set_quantum(&mut self, bytes: u32) {
        self.quantum_bytes = i64::from(bytes.max(1));
    }

    /// Packets that wait.
    pub(super) fn packets(&self) -> usize {
        self.packets
    }

    /// Their bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Those of flows that have just begun to wait.
    pub(super) fn new_bytes(&self) -> u64 {
        self.new_bytes
    }

    /// Returns true if packets wait that go raw anyhow.
    pub(super) fn has_raw(&self) -> bool {
        self.raw_packets > 0
    }

    /// Returns true if a flow has its turns at present.
    pub(super) fn has(&self, flow: u64) -> bool {
        self.by_flow.contains_key(&flow)
    }

    /// Puts a packet into the queue of its flow, and returns the bytes that wait there. If it has no turns yet, one
    /// that is known is not new.
    pub(super) fn push(&mut self, entry: Entry, is_known: bool) -> u64 {
        let at = match self.by_flow.get(&entry.flow) {
            Some(&at) => at,
            None => self.make(entry.flow),
        };
        let lane = &mut self.lanes[at as usize];
        if lane.list == List::None {
            let list;
            lane.deficit = self.quantum_bytes;
            (lane.list, list) = match is_known {
                true => (List::Old, &mut self.old),
                false => (List::New, &mut self.new),
            };
            list.push_back(at);
        }
        self.new_bytes += if lane.list == List::New { u64::from(entry.bytes) } else { 0 };
        lane.bytes += u64::from(entry.bytes);
        lane.queue.push_back(entry);
        self.packets += 1;
        self.raw_packets += usize::from(entry.bypass.is_some());
        self.bytes += u64::from(entry.bytes);
        lane.bytes
    }

    fn make(&mut self, flow: u64) -> u32 {
        let at = self.free.pop().unwrap_or_else(|| {
            self.lanes.push(Lane::default());
            (self.lanes.len() - 1) as u32
        });
        let lane = &mut self.lanes[at as usize];
        (lane.flow, lane.codel) = (flow, CoDel::default());
        self.by_flow.insert(flow, at);
        at
    }

    /// The flow whose turn it is; with `skips_new`, of those that have waited before.
    pub(super) fn next(&mut self, skips_new: bool) -> Option<u32> {
        loop {
            let are_due = self.new_in_turn >= NEW_PART * self.quantum_bytes && !self.old.is_empty();
            let at = match self.new.front() {
                Some(&at) if !skips_new && !are_due => at,
                _ => *self.old.front()?,
            };
            let lane = &mut self.lanes[at as usize];
            let is_new = lane.list == List::New;
            if lane.deficit <= 0 {
                // What it took beyond its share it owes, though nothing of it waits.
                lane.deficit += self.quantum_bytes;
                self.age(at);
            } else if lane.queue.is_empty() {
                // One that sends little from time to time must not be new each time.
                if is_new && !self.old.is_empty() { self.age(at) } else { self.retire(at) }
            } else {
                return Some(at);
            }
        }
    }

    /// A flow for which `suits` is true of its first packet, whether it is its turn or not.
    pub(super) fn find(&self, suits: impl Fn(&Entry) -> bool) -> Option<u32> {
        let first = |at: u32| self.lanes[at as usize].queue.front();
        self.new.iter().chain(&self.old).copied().find(|&at| first(at).is_some_and(&suits))
    }

    /// The flow whose turn it is among those for which `suits` is true of the first packet; with `skips_new`, of those that have
    /// waited before. Others keep their places, and get no share meanwhile.
    pub(super) fn next_of(
        &mut self,
        skips_new: bool,
        suits: impl Fn(&Entry) -> bool,
    ) -> Option<u32> {
        let are_due = self.new_in_turn >= NEW_PART * self.quantum_bytes && !self.old.is_empty();
        let lists = match (skips_new, are_due) {
            (true, _) => [List::Old, List::None, List::None],
            (false, false) => [List::New, List::Old, List::None],
            // A new one that has had its share is among the old ones then.
            (false, true) => [List::Old, List::New, List::Old],
        };
        lists.into_iter().find_map(|list| self.next_in(list, &suits))
    }

    fn next_in(&mut self, list: List, suits: &impl Fn(&Entry) -> bool) -> Option<u32> {
        let mut place = 0;
        loop {
            let flows = match list {
                List::None => return None,
                List::New => &self.new,
                List::Old => &self.old,
            };
            let at = *flows.get(place)?;
            let lane = &mut self.lanes[at as usize];
            match lane.queue.front().is_some_and(suits) {
                false => place += 1,
                true if lane.deficit > 0 => return Some(at),
                true => {
                    lane.deficit += self.quantum_bytes;
                    self.age_from(list, place);
                }
            }
        }
    }

    /// Moves a flow from this place of its list to the end of the old ones.
    fn age_from(&mut self, list: List, place: usize) {
        let flows = if list == List::New { &mut self.new } else { &mut self.old };
        let Some(at) = flows.remove(place) else { return };
        let lane = &mut self.lanes[at as usize];
        self.new_bytes -= if list == List::New { lane.bytes } else { 0 };
        lane.list = List::Old;
        self.old.push_back(at);
    }

    /// Moves the first flow of its list to the end of the old ones.
    fn age(&mut self, at: u32) {
        self.leave(at);
        self.lanes[at as usize].list = List::Old;
        self.old.push_back(at);
    }

    /// Forgets the first flow of its list: nothing of it waits.
    fn retire(&mut self, at: u32) {
        self.leave(at);
        let lane = &mut self.lanes[at as usize];
        lane.list = List::None;
        self.by_flow.remove(&lane.flow);
        self.free.push(at);
    }

    fn leave(&mut self, at: u32) {
        let lane = &self.lanes[at as usize];
        let list = match lane.list {
            List::New => &mut self.new,
            _ => &mut self.old,
        };
        debug_assert_eq!(list.front(), Some(&at));
        list.pop_front();
        self.new_bytes -= if lane.list == List::New { lane.bytes } else { 0 };
    }

    /// True if the flow has just begun to wait.
    pub(super) fn is_new(&self, at: u32) -> bool {
        self.lanes[at as usize].list == List::New
    }

    /// True if the flow may send more in this round.
    pub(super) fn has_credit(&self, at: u32) -> bool {
        self.lanes[at as usize].deficit > 0
    }

    /// The bytes that wait of a flow.
    pub(super) fn bytes_of(&self, at: u32) -> u64 {
        self.lanes[at as usize].bytes
    }

    /// The first packet of a flow, looked at for the first time or again; one that has waited for too long
    /// is dropped or marked.
    pub(super) fn first(&mut self, at: u32, now: Instant, grant: &Grant) -> Option<First> {
        let lane = &mut self.lanes[at as usize];
        let waiting_bytes = lane.bytes;
        let entry = lane.queue.front_mut()?;
        if std::mem::replace(&mut entry.was_seen, true) {
            return Some(First::Waiting(*entry));
        }
        let sojourn_ns = now.since_ns(entry.arrived);
        if !lane.codel.wants_drop(now, (sojourn_ns, waiting_bytes), grant) {
            return Some(First::Waiting(*entry));
        }
        if entry.takes_mark {
            return Some(First::Marked(*entry));
        }
        self.pop(at).map(First::Dropped)
    }

    /// The first packet of a flow.
    pub(super) fn peek(&self, at: u32) -> Option<&Entry> {
        self.lanes[at as usize].queue.front()
    }

    /// The first packet that waits of a flow.
    pub(super) fn first_of(&self, flow: u64) -> Option<&Entry> {
        self.peek(*self.by_flow.get(&flow)?)
    }

    /// The bytes that wait of flows for which `suits` is true of the first packet.
    pub(super) fn bytes_where(&self, suits: impl Fn(&Entry) -> bool) -> u64 {
        let lanes = self.new.iter().chain(&self.old).map(|&at| &self.lanes[at as usize]);
        lanes.filter(|lane| lane.queue.front().is_some_and(&suits)).map(|lane| lane.bytes).sum()
    }

    /// The first packet of a flow, to change it.
    pub(super) fn peek_mut(&mut self, at: u32) -> Option<&mut Entry> {
        self.lanes[at as usize].queue.front_mut()
    }

    /// Takes the first packet of a flow.
    pub(super) fn pop(&mut self, at: u32) -> Option<Entry> {
        let lane = &mut self.lanes[at as usize];
        let entry = lane.queue.pop_front()?;
        let bytes = u64::from(entry.bytes);
        lane.bytes -= bytes;
        self.bytes -= bytes;
        self.packets -= 1;
        self.raw_packets -= usize::from(entry.bypass.is_some());
        self.new_bytes -= if lane.list == List::New { bytes } else { 0 };
        Some(entry)
    }

    /// Books what a flow's packets take of the link against its share.
    pub(super) fn charge(&mut self, at: u32, link_bytes: u64) {
        let lane = &mut self.lanes[at as usize];
        lane.deficit = lane.deficit.saturating_sub_unsigned(link_bytes).max(-DEBT_BYTES_MAX);
        let is_before_others = lane.list == List::New && !self.old.is_empty();
        let link_bytes = i64::try_from(link_bytes).unwrap_or(i64::MAX);
        self.new_in_turn = match is_before_others {
            true => self.new_in_turn.saturating_add(link_bytes),
            false => (self.new_in_turn - NEW_PART.saturating_mul(link_bytes)).max(0),
        };
    }

    /// Takes the first packet of the flow of which the most waits.
    pub(super) fn pop_fattest(&mut self) -> Option<Entry> {
        let lists = self.new.iter().chain(&self.old).copied();
        let at = lists.max_by_key(|&at| self.lanes[at as usize].bytes)?;
        self.pop(at)
    }

    /// Hands every packet that waits to `each`, and forgets all.
    pub(super) fn drain(&mut self, mut each: impl FnMut(Entry)) {
        for at in self.new.drain(..).chain(self.old.drain(..)) {
            let lane = &mut self.lanes[at as usize];
            lane.queue.drain(..).for_each(&mut each);
            (lane.bytes, lane.list) = (0, List::None);
            self.free.push(at);
        }
        self.by_flow.clear();
        (self.packets, self.bytes, self.new_bytes, self.raw_packets) = (0, 0, 0, 0);
        self.new_in_turn = 0;
    }

    /// All packets that wait; counts again what is counted.
    ///
    /// # Panics
    /// If something is miscounted.
    pub(super) fn count(&self, mut each: impl FnMut(&Entry)) {
        let (mut packets, mut bytes, mut new_bytes, mut raw_packets) = (0, 0, 0, 0);
        for &at in self.new.iter().chain(&self.old) {
            let lane = &self.lanes[at as usize];
            let own: u64 = lane.queue.iter().map(|entry| u64::from(entry.bytes)).sum();
            assert_eq!(own, lane.bytes, "a flow is miscounted");
            assert_eq!(self.by_flow.get(&lane.flow), Some(&at), "a flow is lost");
            lane.queue.iter().for_each(&mut each);
            packets += lane.queue.len();
            raw_packets += lane.queue.iter().filter(|entry| entry.bypass.is_some()).count();
            bytes += own;
            new_bytes += if lane.list == List::New { own } else { 0 };
        }
        let counted = (packets, bytes, new_bytes, raw_packets);
        let known = (self.packets, self.bytes, self.new_bytes, self.raw_packets);
        assert_eq!(counted, known, "flows are miscounted");
        assert_eq!(self.by_flow.len(), self.new.len() + self.old.len(), "flows without a list");
        assert_eq!(self.free.len() + self.by_flow.len(), self.lanes.len(), "flows are lost");
    }
}
