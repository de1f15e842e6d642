//! The memory of a model: text, contexts and their states, and who has which part of it.
//!
//! It has a fixed size, and everything in it is addressed by the number of a *slot* of six bytes. Two
//! slots are a *unit*, which is what is given out, in blocks of 1 to 128. The text grows from the
//! beginning; units are given out from both ends of what is behind it, then from what was given back, and
//! at last from between the text and the lowest unit.
//!
//! A slot has a *head* of two bytes and a *link* of four. What is in them:
//!
//! | | head | link |
//! |---|---|---|
//! | a state | symbol, frequency | what follows it, a [`Successor`] |
//! | a context of many states, first slot | sum of the frequencies | its states |
//! | a context of one state, first slot | symbol, frequency | what follows it |
//! | a context, second slot | number of its states | the next shorter context |
//! | a free block | 0 while blocks are joined | the next free block |
//! | a free block, second slot, while blocks are joined | its units | |

/// Six bytes of the memory.
pub(super) type Slot = [u8; SLOT_LEN];

const SLOT_LEN: usize = 6;
const UNIT_SLOTS: u32 = 2;
/// The bytes in a unit.
pub(super) const UNIT_LEN: u32 = SLOT_LEN as u32 * UNIT_SLOTS;
/// No context, no block.
pub(super) const NONE: u32 = 0;

/// The number of block sizes.
const SIZES: usize = 38;
/// The units of a block of each size: 1, 2, 3, 4, 6, 8, 10, 12, 15, 18, 21, 24, and so on to 128 by fours.
const UNITS: [u8; SIZES] = units();
/// The smallest block size that holds this many units, from one unit on.
const SIZE_OF: [u8; 128] = sizes();
/// How often units are taken from below the lowest one, at least, before free blocks are joined once more.
const TAKEN_BETWEEN_JOINS: u32 = 255;
/// The same for so many free blocks as there were: so the work of joining is bounded for each byte, whatever
/// the data. Text leaves some dozens of them, noise some ten thousand.
const BLOCKS_FOR_EACH_TAKEN: u32 = 16;

const fn units() -> [u8; SIZES] {
    let (mut units, mut size, mut sum) = ([0; SIZES], 0, 0);
    while size < SIZES {
        sum += if size < 12 { size as u8 / 4 + 1 } else { 4 };
        units[size] = sum;
        size += 1;
    }
    units
}

const fn sizes() -> [u8; 128] {
    let (mut sizes, mut count, mut size) = ([0; 128], 0, 0);
    while count < 128 {
        if UNITS[size] as usize <= count {
            size += 1;
        }
        sizes[count] = size as u8;
        count += 1;
    }
    sizes
}

/// Returns the number of slots in the whole units of so many bytes.
const fn slots_in(bytes: u32) -> usize {
    (bytes / UNIT_LEN * UNIT_SLOTS) as usize
}

/// Returns the size of the smallest block of so many units, 1 to 128.
pub(super) const fn size_of_units(units: u32) -> usize {
    SIZE_OF[units as usize - 1] as usize
}

/// What follows a state: nothing yet, the place in the text behind its symbol, or a context.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Successor(u32);

/// Is set in a successor that is a context.
const IS_CONTEXT: u32 = 1 << 31;

impl Successor {
    /// Nothing: the symbol never came in the root.
    pub(super) const NONE: Self = Self(0);

    /// A place in the text.
    pub(super) const fn text(at: u32) -> Self {
        Self(at)
    }

    pub(super) const fn context(at: u32) -> Self {
        Self(at | IS_CONTEXT)
    }

    pub(super) fn is_none(self) -> bool {
        self == Self::NONE
    }

    pub(super) const fn is_context(self) -> bool {
        self.0 & IS_CONTEXT != 0
    }

    /// The slot of a context, or the place in the text.
    pub(super) const fn at(self) -> u32 {
        self.0 & !IS_CONTEXT
    }
}

/// What is in slots.
pub(super) trait Slots {
    fn head(&self, at: u32) -> u32;
    fn set_head(&mut self, at: u32, value: u32);
    fn link(&self, at: u32) -> u32;
    fn set_link(&mut self, at: u32, value: u32);
    fn symbol(&self, state: u32) -> u8;
    fn frequency(&self, state: u32) -> u32;
    fn set_frequency(&mut self, state: u32, value: u32);
    fn successor(&self, state: u32) -> Successor;
    fn set_state(&mut self, state: u32, symbol: u8, frequency: u32, successor: Successor);

    /// Returns the number of a context's states.
    fn count(&self, context: u32) -> u32 {
        self.head(context + 1)
    }

    /// Returns the next shorter context.
    fn suffix(&self, context: u32) -> u32 {
        self.link(context + 1)
    }

    fn set_successor(&mut self, state: u32, successor: Successor) {
        self.set_link(state, successor.0);
    }

    fn states(&self, first: u32, count: u32) -> &[Slot];

    /// Returns the state of a symbol in a context of many states that has it.
    fn find(&self, context: u32, symbol: u8) -> u32 {
        let first = self.link(context);
        let states = self.states(first, self.count(context));
        let at = states.iter().position(|state| state[0] == symbol);
        debug_assert!(at.is_some(), "the shorter context has what the longer one has");
        first + at.unwrap_or(0) as u32
    }
}

impl Slots for [Slot] {
    #[inline(always)]
    fn head(&self, at: u32) -> u32 {
        let slot = &self[at as usize];
        u32::from(u16::from_le_bytes([slot[0], slot[1]]))
    }

    #[inline(always)]
    fn set_head(&mut self, at: u32, value: u32) {
        self[at as usize][..2].copy_from_slice(&(value as u16).to_le_bytes());
    }

    #[inline(always)]
    fn link(&self, at: u32) -> u32 {
        let slot = &self[at as usize];
        u32::from_le_bytes([slot[2], slot[3], slot[4], slot[5]])
    }

    #[inline(always)]
    fn set_link(&mut self, at: u32, value: u32) {
        self[at as usize][2..].copy_from_slice(&value.to_le_bytes());
    }

    #[inline(always)]
    fn symbol(&self, state: u32) -> u8 {
        self[state as usize][0]
    }

    #[inline(always)]
    fn frequency(&self, state: u32) -> u32 {
        u32::from(self[state as usize][1])
    }

    #[inline(always)]
    fn set_frequency(&mut self, state: u32, value: u32) {
        self[state as usize][1] = value as u8;
    }

    #[inline(always)]
    fn successor(&self, state: u32) -> Successor {
        Successor(self.link(state))
    }

    #[inline(always)]
    fn set_state(&mut self, state: u32, symbol: u8, frequency: u32, successor: Successor) {
        let [a, b, c, d] = successor.0.to_le_bytes();
        self[state as usize] = [symbol, frequency as u8, a, b, c, d];
    }

    #[inline(always)]
    fn states(&self, first: u32, count: u32) -> &[Slot] {
        &self[first as usize..][..count as usize]
    }
}

/// The memory, and what of it is free.
pub(super) struct Arena {
    pub(super) slots: Vec<Slot>,
    /// The number of bytes of text.
    text: u32,
    /// The first slot of the lowest unit.
    lowest: u32,
    /// The units from the first to before the second of these slots were never given out.
    low: u32,
    high: u32,
    /// The first free block of each size.
    free: [u32; SIZES],
    /// How often units can be taken from below the lowest one before free blocks are joined.
    until_join: u32,
}

impl Arena {
    /// Takes memory of so many bytes, less what is no unit.
    pub(super) fn new(bytes: u32) -> Self {
        let slots = vec![[0; SLOT_LEN]; slots_in(bytes)];
        let mut arena =
            Self { slots, text: 0, lowest: 0, low: 0, high: 0, free: [NONE; SIZES], until_join: 0 };
        arena.clear();
        arena
    }

    /// Has so many bytes from now on; the memory stays if it has as many. It is to be [cleared](Self::clear) then.
    pub(super) fn resize(&mut self, bytes: u32) {
        if self.slots.len() != slots_in(bytes) {
            // Both are never there at once.
            self.slots = Vec::new();
            self.slots = vec![[0; SLOT_LEN]; slots_in(bytes)];
        }
    }

    /// Takes everything back. The bytes stay what they are, however many were used, as nothing is read before it was
    /// written: so this takes no time.
    pub(super) fn clear(&mut self) {
        let units = self.slots.len() as u32 / UNIT_SLOTS;
        self.high = units * UNIT_SLOTS;
        // An eighth is for the text.
        self.lowest = self.high - units / 8 * 7 * UNIT_SLOTS;
        self.low = self.lowest;
        self.text = 0;
        self.free = [NONE; SIZES];
        self.until_join = 0;
    }

    /// Returns the bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.slots.capacity() * SLOT_LEN
    }

    /// Returns the bytes between the text and the lowest unit: the memory is full when they are used up, and not before.
    pub(super) fn gap_bytes(&self) -> u32 {
        self.lowest * SLOT_LEN as u32 - self.text
    }

    /// Returns the number of bytes of text.
    pub(super) fn text_len(&self) -> u32 {
        self.text
    }

    /// Appends a byte to the text; none if there is no room for another.
    #[inline(always)]
    pub(super) fn push_text(&mut self, byte: u8) -> Option<()> {
        let at = self.text as usize;
        self.slots[at / SLOT_LEN][at % SLOT_LEN] = byte;
        self.text += 1;
        (self.text < self.lowest * SLOT_LEN as u32).then_some(())
    }

    /// Takes the last byte of the text back.
    pub(super) fn pop_text(&mut self) {
        self.text -= 1;
    }

    /// Returns a byte of the text.
    pub(super) fn text(&self, at: u32) -> u8 {
        let at = at as usize;
        self.slots[at / SLOT_LEN][at % SLOT_LEN]
    }

    /// Gives out a unit for a context: the highest first, so that contexts are together.
    #[inline(always)]
    pub(super) fn take_unit(&mut self) -> Option<u32> {
        if self.high != self.low {
            self.high -= UNIT_SLOTS;
            return Some(self.high);
        }
        if self.free[0] != NONE {
            return Some(self.pop(0));
        }
        self.take_elsewhere(0)
    }

    /// Gives out a block of a size.
    pub(super) fn take(&mut self, size: usize) -> Option<u32> {
        if self.free[size] != NONE {
            return Some(self.pop(size));
        }
        let slots = u32::from(UNITS[size]) * UNIT_SLOTS;
        if self.high - self.low >= slots {
            let block = self.low;
            self.low += slots;
            return Some(block);
        }
        self.take_elsewhere(size)
    }

    #[cold]
    #[inline(never)]
    fn take_elsewhere(&mut self, size: usize) -> Option<u32> {
        if self.until_join == 0 {
            self.join();
            if self.free[size] != NONE {
                return Some(self.pop(size));
            }
        }
        if let Some(larger) = (size + 1..SIZES).find(|&size| self.free[size] != NONE) {
            let block = self.pop(larger);
            self.give_rest(block, larger, size);
            return Some(block);
        }
        self.until_join -= 1;
        let slots = u32::from(UNITS[size]) * UNIT_SLOTS;
        let bytes = slots * SLOT_LEN as u32;
        if self.lowest * SLOT_LEN as u32 - self.text <= bytes {
            return None;
        }
        self.lowest -= slots;
        Some(self.lowest)
    }

    /// Takes a block back.
    pub(super) fn give(&mut self, block: u32, size: usize) {
        self.slots.set_link(block, self.free[size]);
        self.free[size] = block;
    }

    fn pop(&mut self, size: usize) -> u32 {
        let block = self.free[size];
        self.free[size] = self.slots.link(block);
        block
    }

    /// Takes back what a block has beyond a smaller size.
    fn give_rest(&mut self, block: u32, size: usize, smaller: usize) {
        let units = u32::from(UNITS[size] - UNITS[smaller]);
        self.give_units(block + u32::from(UNITS[smaller]) * UNIT_SLOTS, units);
    }

    /// Takes back 1 to 128 units as one block, or two if there is no such size.
    fn give_units(&mut self, block: u32, units: u32) {
        let mut size = size_of_units(units);
        if u32::from(UNITS[size]) != units {
            size -= 1;
            let first = u32::from(UNITS[size]);
            // What is left is fewer than four units: there are blocks of each of these sizes.
            self.give(block + first * UNIT_SLOTS, (units - first - 1) as usize);
        }
        self.give(block, size);
    }

    /// Makes a block of `count` units, of which fewer are needed, smaller. Returns where it is then.
    pub(super) fn shrink(&mut self, block: u32, count: u32, fewer: u32) -> u32 {
        let (size, smaller) = (size_of_units(count), size_of_units(fewer));
        if size == smaller {
            return block;
        }
        if self.free[smaller] == NONE {
            self.give_rest(block, size, smaller);
            return block;
        }
        let to = self.pop(smaller);
        self.copy(block, to, fewer);
        self.give(block, size);
        to
    }

    /// Makes room for one more unit in a block of `count` units that is full. Returns where it is then.
    pub(super) fn expand(&mut self, block: u32, count: u32) -> Option<u32> {
        let (size, larger) = (size_of_units(count), size_of_units(count + 1));
        if size == larger {
            return Some(block);
        }
        let to = self.take(larger)?;
        self.copy(block, to, count);
        self.give(block, size);
        Some(to)
    }

    fn copy(&mut self, from: u32, to: u32, units: u32) {
        let from = from as usize;
        self.slots.copy_within(from..from + (units * UNIT_SLOTS) as usize, to as usize);
    }

    /// Joins free blocks that are neighbours.
    #[cold]
    fn join(&mut self) {
        let slots = &mut self.slots[..];
        // Blocks in use have a head that is not 0. What was never given out must look like that.
        if self.low != self.high {
            slots.set_head(self.low, 1);
        }
        let (mut first, mut blocks) = (NONE, 0);
        for (free, units) in self.free.iter_mut().zip(UNITS) {
            let mut next = std::mem::replace(free, NONE);
            while next != NONE {
                let block = next;
                next = slots.link(block);
                slots.set_head(block, 0);
                slots.set_link(block, first);
                slots.set_head(block + 1, u32::from(units));
                first = block;
                blocks += 1;
            }
        }
        self.until_join = TAKEN_BETWEEN_JOINS.max(blocks / BLOCKS_FOR_EACH_TAKEN);
        // Those that became part of another have no units, and are left out.
        let (mut block, mut before) = (first, NONE);
        while block != NONE {
            let next = slots.link(block);
            let mut units = slots.head(block + 1);
            if units == 0 {
                match before {
                    NONE => first = next,
                    before => slots.set_link(before, next),
                }
            } else {
                before = block;
                loop {
                    let neighbour = block + units * UNIT_SLOTS;
                    units += slots.head(neighbour + 1);
                    if slots.head(neighbour) != 0 || units > u32::from(u16::MAX) {
                        break;
                    }
                    slots.set_head(block + 1, units);
                    slots.set_head(neighbour + 1, 0);
                }
            }
            block = next;
        }
        let mut next = first;
        while next != NONE {
            let mut block = next;
            next = self.slots.link(block);
            let mut units = self.slots.head(block + 1);
            if units == 0 {
                continue;
            }
            while units > 128 {
                self.give(block, SIZES - 1);
                block += 128 * UNIT_SLOTS;
                units -= 128;
            }
            self.give_units(block, units);
        }
    }
}
