//! Which packets become the next block.

use super::groups::GroupId;
use super::queue::{Node, Queue, State};
use crate::scheme::BlockOrder;

/// A block's packets are searched at most this far behind its first.
pub(super) const REACH_UNITS: usize = 1024;
/// Flows that are left alone, and that a block must not overtake; with more it ends.
const PASSED_FLOWS_MAX: usize = 16;

/// Looks for blocks, and keeps the storage that it needs for it.
#[derive(Clone, Debug, Default)]
pub(super) struct Gatherer {
    runs: Vec<Run>,
    passed: Vec<u64>,
}

/// The room of a block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Room {
    pub(super) bytes: u32,
    pub(super) packets: usize,
}

/// Packets of one group with nothing else of their group between them.
#[derive(Clone, Copy, Debug)]
struct Run {
    group: GroupId,
    first: u32,
    packets: usize,
}

impl Gatherer {
    /// Puts the `packets` candidates of the next block into `members`; none if there is no
    /// block.
    pub(super) fn gather(
        &mut self,
        queue: &Queue,
        order: BlockOrder,
        packets: usize,
        members: &mut Vec<u32>,
    ) {
        let first = match order {
            BlockOrder::Loose => first_of_full_group(queue),
            BlockOrder::Strict => self.first_of_run(queue, packets),
        };
        let Some(first) = first else { return };
        let group = queue.node(first).group;
        let candidates = queue.iter_from(first).filter(|&at| {
            let node = queue.node(at);
            node.group == group && node.state == State::Raw
        });
        members.extend(candidates.take(packets));
    }

    /// Puts what waits of the group of `first` into `members`, as much as there is room for, and
    /// returns its bytes. A packet that would overtake one of its flow is left out, with all
    /// that come behind it.
    pub(super) fn gather_waiting(
        &mut self,
        queue: &Queue,
        first: u32,
        room: Room,
        members: &mut Vec<u32>,
    ) -> u32 {
        let group = queue.node(first).group;
        self.passed.clear();
        let mut bytes = 0;
        for at in queue.iter_from(first).take(REACH_UNITS) {
            let node = queue.node(at);
            match node.state {
                _ if node.is_fence => break,
                _ if node.group != group => (),
                State::Raw if !self.passed.contains(&node.flow) => {
                    let fits = bytes + node.bytes <= room.bytes && members.len() < room.packets;
                    if !fits && at != first {
                        break;
                    }
                    members.push(at);
                    bytes += node.bytes;
                }
                State::Exempt(_) | State::Tried if self.pass(node) => (),
                // Nobody knows which flows are in what was compressed.
                _ => break,
            }
        }
        bytes
    }

    /// Notes that the block overtakes a packet; false if it must not.
    fn pass(&mut self, node: &Node) -> bool {
        if node.is_opaque() || self.passed.len() == PASSED_FLOWS_MAX {
            return false;
        }
        if !self.passed.contains(&node.flow) {
            self.passed.push(node.flow);
        }
        true
    }

    /// The head-most candidate that begins a run which is long enough. A group has one run at a
    /// time, and only full groups are examined, so that there are few.
    fn first_of_run(&mut self, queue: &Queue, packets: usize) -> Option<u32> {
        let runs = &mut self.runs;
        runs.clear();
        for at in queue.iter_from(queue.edge()) {
            let node = queue.node(at);
            if node.is_fence {
                // Nothing from behind it may come before it.
                runs.retain(|run| run.packets >= packets);
                if let Some(run) = runs.first() {
                    return Some(run.first);
                }
            }
            let full = |&group: &GroupId| queue.groups.is_full(group);
            let Some(group) = node.group.filter(full) else { continue };
            let known = runs.iter().position(|run| run.group == group);
            match (known, node.state == State::Raw) {
                (Some(run), true) => runs[run].packets += 1,
                (None, true) => runs.push(Run { group, first: at, packets: 1 }),
                // Something of the group is between: what comes behind it is a new run.
                (Some(run), false) if runs[run].packets < packets => {
                    runs.remove(run);
                }
                (_, false) => (),
            }
            // The runs are in the order of their first packets.
            if let Some(run) = runs.first().filter(|run| run.packets >= packets) {
                return Some(run.first);
            }
        }
        runs.iter().find(|run| run.packets >= packets).map(|run| run.first)
    }
}

/// The head-most candidate whose group has enough of them.
fn first_of_full_group(queue: &Queue) -> Option<u32> {
    queue.iter_from(queue.edge()).find(|&at| {
        let node = queue.node(at);
        node.state == State::Raw && node.group.is_some_and(|group| queue.groups.is_full(group))
    })
}
