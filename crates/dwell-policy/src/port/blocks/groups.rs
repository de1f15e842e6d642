//! The groups of waiting packets, and how many packets of each could become a block.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use crate::port::mixer::Mixer;

/// A group's place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct GroupId(u32);

#[derive(Clone, Copy, Debug, Default)]
struct Group {
    /// Units in the queue, of whatever state.
    members: u32,
    /// Raw packets beyond the lead.
    candidates: u32,
}

/// Groups nobody is in are forgotten once the table has grown to this, or to double of what
/// is in use.
const IDLE_MIN: usize = 256;

/// All groups with waiting packets, and some that had some lately.
#[derive(Clone, Debug)]
pub(super) struct Groups {
    by_key: HashMap<u64, u32, BuildHasherDefault<Mixer>>,
    groups: Vec<Group>,
    free: Vec<u32>,
    used: usize,
    /// Candidates that make a block, m.
    block_packets: u32,
    /// Groups with that many.
    full: usize,
}

impl Groups {
    pub(super) fn new(block_packets: u32) -> Self {
        Self {
            by_key: HashMap::with_capacity_and_hasher(2 * IDLE_MIN, BuildHasherDefault::default()),
            groups: Vec::with_capacity(IDLE_MIN),
            free: Vec::with_capacity(IDLE_MIN),
            used: 0,
            block_packets,
            full: 0,
        }
    }

    /// Changes m. There must be no candidates.
    pub(super) fn set_block_packets(&mut self, block_packets: u32) {
        self.block_packets = block_packets;
    }

    /// The group with this key, with one member more.
    pub(super) fn join(&mut self, key: u64) -> GroupId {
        let at = match self.by_key.get(&key) {
            Some(&at) => at,
            None => self.make(key),
        };
        let group = &mut self.groups[at as usize];
        self.used += usize::from(group.members == 0);
        group.members += 1;
        GroupId(at)
    }

    /// A member left, no candidate any more.
    pub(super) fn leave(&mut self, id: GroupId) {
        let group = &mut self.groups[id.0 as usize];
        group.members -= 1;
        self.used -= usize::from(group.members == 0);
    }

    /// One more raw packet of the group is beyond the lead.
    pub(super) fn add_candidate(&mut self, id: GroupId) {
        let group = &mut self.groups[id.0 as usize];
        group.candidates += 1;
        self.full += usize::from(group.candidates == self.block_packets);
    }

    /// One less is.
    pub(super) fn remove_candidate(&mut self, id: GroupId) {
        let group = &mut self.groups[id.0 as usize];
        self.full -= usize::from(group.candidates == self.block_packets);
        group.candidates -= 1;
    }

    /// True if some group has enough candidates for a block.
    pub(super) fn any_full(&self) -> bool {
        self.full > 0
    }

    /// True if this one has.
    pub(super) fn is_full(&self, id: GroupId) -> bool {
        self.groups[id.0 as usize].candidates >= self.block_packets
    }

    /// Units of the group in the queue.
    pub(super) fn members(&self, id: GroupId) -> usize {
        self.groups[id.0 as usize].members as usize
    }

    fn make(&mut self, key: u64) -> u32 {
        if self.by_key.len() >= IDLE_MIN.max(2 * self.used) {
            self.forget_idle();
        }
        let group = Group::default();
        let at = if let Some(at) = self.free.pop() {
            self.groups[at as usize] = group;
            at
        } else {
            self.groups.push(group);
            (self.groups.len() - 1) as u32
        };
        self.by_key.insert(key, at);
        at
    }

    fn forget_idle(&mut self) {
        let Self { by_key, groups, free, .. } = self;
        by_key.retain(|_, at| {
            let used = groups[*at as usize].members > 0;
            if !used {
                free.push(*at);
            }
            used
        });
    }

    /// Verifies the members and candidates of every group against those counted.
    ///
    /// # Panics
    /// If they differ.
    pub(super) fn assert_counts(&self, counted: &HashMap<GroupId, (u32, u32)>) {
        for (at, group) in self.groups.iter().enumerate() {
            let expected = counted.get(&GroupId(at as u32)).copied().unwrap_or_default();
            assert_eq!((group.members, group.candidates), expected, "a group is miscounted");
        }
        let full = |group: &&Group| group.candidates >= self.block_packets;
        assert_eq!(self.groups.iter().filter(full).count(), self.full, "full groups");
        assert_eq!(self.groups.iter().filter(|g| g.members > 0).count(), self.used, "used groups");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_does_not_grow_with_groups_that_are_gone() {
        let mut groups = Groups::new(2);
        let stays = groups.join(u64::MAX);
        for key in 0..10_000 {
            let passing = groups.join(key);
            groups.leave(passing);
        }
        assert!(groups.groups.len() <= IDLE_MIN, "{}", groups.groups.len());
        assert_eq!(groups.join(u64::MAX), stays, "it has a member all the time");
        // Where many are in use, as many may be idle.
        let used: Vec<_> = (0..400).map(|key| groups.join(key)).collect();
        for key in 10_000..20_000 {
            let passing = groups.join(key);
            groups.leave(passing);
        }
        assert!(groups.groups.len() <= 2 * 401, "{}", groups.groups.len());
        assert!((0..400).all(|key| groups.join(key) == used[key as usize]));
    }

    /// Flows send in turns: a group is not to be looked for each time that its only packet leaves.
    #[test]
    fn a_group_that_comes_again_soon_has_its_place() {
        for used in [0, 400] {
            let mut groups = Groups::new(2);
            (0..used).for_each(|key| _ = groups.join(key));
            let ours = groups.join(u64::MAX);
            groups.leave(ours);
            for key in 1_000..1_000 + 200 {
                let passing = groups.join(key);
                groups.leave(passing);
            }
            assert_eq!(groups.join(u64::MAX), ours, "{used} in use");
        }
    }
}
