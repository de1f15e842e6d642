//! Where contexts are remembered: each context of each half of a byte has a slot.

/// A mark, and the states of the 15 bits that can come in half a byte: behind none, behind 0, 1, behind 00, and so on.
pub(super) type Slot = [u8; 16];

/// The binary logarithm of the slots that are cleared at a time.
const CHUNK_LOG: u32 = 6;

/// The slots that a hash may have: they are in one line of a cache.
const WAYS: [usize; 3] = [0, 1, 2];

/// A table of slots, as if it were cleared at once.
pub(super) struct Slots {
    slots: Vec<Slot>,
    /// By chunk: for which beginning it was cleared. A peer may begin again with each record, and clearing all takes
    /// milliseconds.
    cleared: Vec<u16>,
    beginning: u16,
}

impl Slots {
    pub(super) fn new(log: u32) -> Self {
        let slots = vec![[0; 16]; 1 << log];
        Self { cleared: vec![0; slots.len() >> CHUNK_LOG], slots, beginning: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.beginning = self.beginning.wrapping_add(1);
        if self.beginning == 0 {
            self.slots.fill([0; 16]);
            self.cleared.fill(0);
        }
    }

    #[inline(always)]
    fn index(&self, hash: u32) -> usize {
        hash as usize & (self.slots.len() - 1)
    }

    /// Returns which slot the hash has: that with its mark, or else of three that of which the least was seen, made
    /// empty.
    #[inline(always)]
    pub(super) fn find(&mut self, hash: u32) -> usize {
        let first = self.index(hash);
        if self.cleared[first >> CHUNK_LOG] != self.beginning {
            self.clear_chunk(first >> CHUNK_LOG);
        }
        let mark = ((hash >> 24) as u8).max(1);
        let (mut least, mut least_seen) = (first, u16::MAX);
        for way in WAYS {
            let [found, seen, ..] = self.slots[first ^ way];
            if found == mark {
                return first ^ way;
            }
            let seen = if found == 0 { 0 } else { 1 + u16::from(seen) };
            if seen < least_seen {
                (least, least_seen) = (first ^ way, seen);
            }
        }
        self.slots[least] = [0; 16];
        self.slots[least][0] = mark;
        least
    }

    #[cold]
    fn clear_chunk(&mut self, chunk: usize) {
        self.slots[chunk << CHUNK_LOG..(chunk + 1) << CHUNK_LOG].fill([0; 16]);
        self.cleared[chunk] = self.beginning;
    }

    #[inline(always)]
    pub(super) fn get(&self, index: usize) -> Slot {
        self.slots[index]
    }

    #[inline(always)]
    pub(super) fn set(&mut self, index: usize, slot: Slot) {
        self.slots[index] = slot;
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.slots) + size_of_val(&*self.cleared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slot_of_which_least_was_seen_is_given_to_another() {
        let mut slots = Slots::new(10);
        let hash = |mark: u32| mark << 24 | 0x123;
        let mut fill = |mark: u32, state: u8| {
            let index = slots.find(hash(mark));
            let mut slot = slots.get(index);
            slot[1] = state;
            slots.set(index, slot);
            index
        };
        let found = [fill(1, 30), fill(2, 10), fill(3, 20)];
        assert_eq!(found, [0x123, 0x122, 0x121]);
        assert_eq!(fill(4, 50), 0x122);
        assert_eq!(fill(1, 30), 0x123);
        assert_eq!(fill(0, 60), 0x123, "the mark 0 is that of an empty slot, and stands for 1");
    }

    /// However often it is cleared.
    #[test]
    fn what_was_cleared_is_empty() {
        let mut slots = Slots::new(8);
        for round in 0..70_000u32 {
            let index = slots.find(round.wrapping_mul(0x9e37_79b1));
            assert_eq!(slots.get(index)[1..], [0; 15]);
            slots.set(index, [7; 16]);
            slots.clear();
        }
    }
}
