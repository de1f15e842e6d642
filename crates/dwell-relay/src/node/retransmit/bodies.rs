//! The bytes of datagrams that are kept, one behind another in blocks that are used again: memory is asked for once in
//! many datagrams, or never.

use std::collections::VecDeque;

/// A block holds some forty datagrams of the usual length, and each that there can be.
const BLOCK_LEN: usize = 64 << 10;
/// So many empty blocks wait to be used again.
const SPARE_MAX: usize = 2;

/// Where the bytes of one are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Blocks that there were before this one.
    block: u64,
    from: u32,
    len: u32,
}

impl Place {
    pub(super) fn len(self) -> usize {
        self.len as usize
    }
}

/// The bytes of datagrams, in the order in which they are forgotten.
#[derive(Debug, Default)]
pub(super) struct Bodies {
    blocks: VecDeque<Vec<u8>>,
    /// Blocks that there were before the first one.
    gone: u64,
    spare: Vec<Vec<u8>>,
}

impl Bodies {
    /// Puts one behind the others.
    pub(super) fn push(&mut self, body: &[u8]) -> Place {
        let has_room = |block: &Vec<u8>| block.capacity() - block.len() >= body.len();
        if !self.blocks.back().is_some_and(has_room) {
            let spare = self.spare.pop().filter(has_room);
            let new = || Vec::with_capacity(BLOCK_LEN.max(body.len()));
            self.blocks.push_back(spare.unwrap_or_else(new));
        }
        let at = self.blocks.len() - 1;
        let block = &mut self.blocks[at];
        let (from, len) = (block.len() as u32, body.len() as u32);
        block.extend_from_slice(body);
        Place { block: self.gone + at as u64, from, len }
    }

    /// Returns the bytes that are there.
    pub(super) fn get(&self, place: Place) -> &[u8] {
        let at = place.block.checked_sub(self.gone).and_then(|at| usize::try_from(at).ok());
        let (from, len) = (place.from as usize, place.len());
        let block = at.and_then(|at| self.blocks.get(at));
        block.and_then(|block| block.get(from..from + len)).unwrap_or_default()
    }

    /// Forgets all before the one at this place, or all that there are.
    pub(super) fn forget_before(&mut self, first: Option<Place>) {
        let first = first.map_or(u64::MAX, |it| it.block);
        while self.gone < first
            && let Some(mut block) = self.blocks.pop_front()
        {
            self.gone += 1;
            if self.spare.len() < SPARE_MAX {
                block.clear();
                self.spare.push(block);
            }
        }
    }

    /// Gives all memory back.
    pub(super) fn clear(&mut self) {
        *self = Self { gone: self.gone + self.blocks.len() as u64, ..Self::default() };
    }

    #[cfg(test)]
    pub(super) fn blocks(&self) -> usize {
        self.blocks.len() + self.spare.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// What is kept is what was put in, in as many blocks as that needs.
        #[test]
        fn they_are_what_was_put_in(
            steps in prop::collection::vec((0..3_000_usize, any::<u8>(), 0..3_usize), 1..400),
        ) {
            let (mut bodies, mut kept) = (Bodies::default(), VecDeque::new());
            for (len, fill, forgotten) in steps {
                let body = vec![fill; len];
                kept.push_back((bodies.push(&body), body));
                kept.drain(..forgotten.min(kept.len()));
                bodies.forget_before(kept.front().map(|it| it.0));
                for (place, body) in &kept {
                    prop_assert_eq!(bodies.get(*place), &body[..]);
                }
                let bytes: usize = kept.iter().map(|it| it.1.len()).sum();
                prop_assert!(bodies.blocks.len() <= 2 + bytes / (BLOCK_LEN - 3_000));
            }
        }
    }

    #[test]
    fn blocks_are_used_again_and_a_place_that_is_gone_has_nothing() {
        let mut bodies = Bodies::default();
        let first = bodies.push(&[1; 1_400]);
        let mut last = VecDeque::from([first]);
        for number in 0..10_000_u32 {
            last.push_back(bodies.push(&[number as u8; 1_400]));
            if last.len() > 100 {
                last.pop_front();
                bodies.forget_before(last.front().copied());
            }
        }
        // 100 are in three blocks, or four.
        assert!(bodies.blocks() <= 5, "{}", bodies.blocks());
        assert_eq!((bodies.get(first), bodies.get(last[0]).len()), (&[][..], 1_400));
        bodies.forget_before(None);
        assert!(bodies.blocks.is_empty() && !bodies.spare.is_empty());
        bodies.clear();
        assert_eq!(bodies.blocks(), 0);
        let long = bodies.push(&[7; 100_000]);
        assert_eq!(bodies.get(long), [7; 100_000]);
    }
}
