//! Which symbols can't come any more, as a longer context had them.

use super::arena::Slot;

/// The symbols that an escape has excluded.
pub(super) struct Mask([u8; 256]);

impl Mask {
    #[inline(always)]
    pub(super) fn of(states: &[Slot]) -> Self {
        let mut mask = Self([u8::MAX; 256]);
        mask.add(states);
        mask
    }

    #[inline(always)]
    pub(super) fn add(&mut self, states: &[Slot]) {
        for state in states {
            self.0[usize::from(state[0])] = 0;
        }
    }

    /// Returns the frequency of a state; 0 if it is excluded.
    #[inline(always)]
    pub(super) fn frequency(&self, state: &Slot) -> u32 {
        u32::from(state[1] & self.0[usize::from(state[0])])
    }
}
