//! Which packets become the next block.

use super::groups::GroupId;
use super::queue::{Queue, State};
use crate::scheme::BlockOrder;

/// Looks for blocks, and keeps the storage that it needs for it.
#[derive(Clone, Debug, Default)]
pub(super) struct Gatherer {
    runs: Vec<Run>,
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

    /// The head-most candidate that begins a run which is long enough. A group has one run at a
    /// time, and only full groups are looked at, so that there are few.
    fn first_of_run(&mut self, queue: &Queue, packets: usize) -> Option<u32> {
        let runs = &mut self.runs;
        runs.clear();
        for at in queue.iter_from(queue.edge()) {
            let node = queue.node(at);
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
