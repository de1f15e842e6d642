//! What came after which bytes, and so what is likely to come next.
//!
//! The contexts of all lengths up to the order, as far as they came, each with the symbols that came in
//! it (its *states*) and how often. A symbol is coded in the longest context that has it, after an *escape*
//! from each longer one. This is variant H of D. Shkarin's PPMd, which he gave to the public. All that
//! changes here depends on the symbols only, so that two models that learn the same bytes stay the same.

use super::arena::{Arena, NONE, Slots, Successor, size_of_units};
use super::escape::{
    BINARY_FREQUENCY_MAX, BinaryTable, EscapeTable, escape_of, frequency_of, learn_outcome,
};
use super::mask::Mask;
use crate::model::Damaged;
use crate::range::{Coder, RangeDecoder};

/// Beyond this frequency those of a context are halved.
const FREQUENCY_MAX: u32 = 124;
/// What a symbol's frequency grows by when it comes.
const STEP: u32 = 4;
/// A byte takes no more memory than this, but for one that many long contexts grow for at once.
const BYTES_FOR_EACH: usize = 192;
/// The longest run of certain symbols that is counted from below zero.
const RUN_MAX: i32 = 12;

/// The model.
pub(super) struct Model {
    arena: Arena,
    order: u32,
    /// The context in which the last symbol was found, then the one for the next.
    context: u32,
    /// The longest context that there is for the next symbol.
    longest: u32,
    /// The state of the last symbol, where it was found.
    found: u32,
    last_symbol: u8,
    /// By how much the context is shorter than the order.
    fall: u32,
    /// The frequency of escapes for contexts that get their second state.
    first_escape: u8,
    /// Of the last symbol: 1 if it was the most likely by far.
    was_likely: u32,
    /// Counts such symbols from a negative number on.
    run: i32,
    /// 8 if the last symbol is a letter or above.
    kind_of_last: u32,
    binary: BinaryTable,
    escapes: EscapeTable,
    /// The memory was full since this was asked for.
    is_restarted: bool,
}

/// Where a symbol was found in the context.
#[derive(Clone, Copy)]
struct Place {
    state: u32,
    frequency: u32,
}

impl Model {
    /// Makes a model of an order of 2 to 12, with so many bytes of memory for text, contexts and their states.
    pub(super) fn new(order: u8, memory_len: u32) -> Self {
        let mut model = Self {
            arena: Arena::new(memory_len),
            order: order.into(),
            context: NONE,
            longest: NONE,
            found: NONE,
            last_symbol: 0,
            fall: 0,
            first_escape: 0,
            was_likely: 0,
            run: 0,
            kind_of_last: 0,
            binary: BinaryTable::new(),
            escapes: EscapeTable::new(),
            is_restarted: false,
        };
        model.clear();
        model
    }

    /// Forgets all, and has this order and memory from now on, as [`new`](Self::new) makes it.
    pub(super) fn renew(&mut self, order: u8, memory_len: u32) {
        self.order = order.into();
        self.arena.resize(memory_len);
        self.clear();
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.arena.clear();
        self.binary.clear();
        self.escapes.clear();
        self.fall = self.order;
        self.run = self.first_run();
        (self.was_likely, self.first_escape, self.kind_of_last) = (0, 0, 0);
        self.last_symbol = 0;
        // The root, in which every symbol came once: there is room for it.
        let root = self.arena.take_unit().unwrap_or(NONE);
        let states = self.arena.take(size_of_units(256 / 2)).unwrap_or(NONE);
        let slots = &mut self.arena.slots[..];
        slots.set_head(root, 256 + 1);
        slots.set_link(root, states);
        slots.set_head(root + 1, 256);
        slots.set_link(root + 1, NONE);
        for (state, symbol) in (states..).zip(0..=255) {
            slots.set_state(state, symbol, 1, Successor::NONE);
        }
        (self.context, self.longest, self.found) = (root, root, states);
        self.is_restarted = false;
    }

    /// Writes something into all memory that was never given out, or was taken back.
    #[cfg(test)]
    pub(super) fn spoil(&mut self, byte: u8) {
        self.arena.slots.fill([byte; 6]);
        self.clear();
    }

    fn first_run(&self) -> i32 {
        -RUN_MAX.min(self.order as i32) - 1
    }

    /// Returns true if the memory was full, and all was forgotten, since this was asked for.
    #[inline(always)]
    pub(super) fn take_restarted(&mut self) -> bool {
        std::mem::take(&mut self.is_restarted)
    }

    /// Returns true if the memory may become full with so many more bytes.
    pub(super) fn may_fill(&self, bytes: usize) -> bool {
        self.arena.gap_bytes() as usize <= bytes.saturating_mul(BYTES_FOR_EACH)
    }

    /// Returns the bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.arena.memory_bytes() + BinaryTable::LEN
    }

    /// Codes a symbol, and learns it.
    #[inline]
    pub(super) fn encode<C: Coder>(&mut self, symbol: u8, coder: &mut C) {
        let slots = &self.arena.slots[..];
        let mut masked;
        let mut count = slots.count(self.context);
        if count == 1 {
            let state = self.context;
            let is_it = slots.symbol(state) == symbol;
            let probability = self.binary_probability();
            coder.outcome(is_it, (*probability).into());
            let first_escape = learn_outcome(probability, is_it);
            if is_it {
                return self.learn_only(state);
            }
            self.first_escape = first_escape;
            masked = Mask::of(self.arena.slots.states(state, 1));
        } else {
            let (first, total) = (slots.link(self.context), slots.head(self.context));
            let states = slots.states(first, count);
            let frequency = u32::from(states[0][1]);
            if states[0][0] == symbol {
                coder.part(0, frequency, total);
                return self.learn_first(Place { state: first, frequency });
            }
            let mut below = frequency;
            for (state, at) in states[1..].iter().zip(first + 1..) {
                let frequency = u32::from(state[1]);
                if state[0] == symbol {
                    coder.part(below, frequency, total);
                    return self.learn_other(Place { state: at, frequency });
                }
                below += frequency;
            }
            coder.part(below, total - below, total);
            masked = Mask::of(states);
            self.kind_of_last = high_kind(self.last_symbol, 3);
        }
        self.was_likely = 0;
        while self.shorten(count) {
            let masked_count = std::mem::replace(&mut count, self.arena.slots.count(self.context));
            let escape = escape_of(
                &self.arena.slots,
                &mut self.escapes,
                (self.context, self.kind_of_last),
                (count, masked_count),
            );
            let (escape, escape_frequency) = frequency_of(escape);
            let slots = &self.arena.slots[..];
            let first = slots.link(self.context);
            let states = slots.states(first, count);
            let mut below = 0;
            let mut place = None;
            for (at, state) in states.iter().enumerate() {
                if state[0] == symbol {
                    place = Some(at);
                    break;
                }
                below += masked.frequency(state);
            }
            if let Some(at) = place {
                let rest = states[at..].iter();
                let total =
                    rest.fold(below + escape_frequency, |sum, state| sum + masked.frequency(state));
                let place = Place { state: first + at as u32, frequency: states[at][1].into() };
                coder.part(below, place.frequency, total);
                if let Some(escape) = escape {
                    escape.learn_symbol();
                }
                return self.learn_after_escape(place);
            }
            let total = below + escape_frequency;
            coder.part(below, escape_frequency, total);
            if let Some(escape) = escape {
                escape.learn_escape(total);
            }
            masked.add(states);
        }
        debug_assert!(false, "the root has every symbol");
    }

    /// Decodes a symbol, and learns it.
    #[inline]
    pub(super) fn decode(&mut self, coder: &mut RangeDecoder<'_>) -> Result<u8, Damaged> {
        let slots = &self.arena.slots[..];
        let mut masked;
        let mut count = slots.count(self.context);
        if count == 1 {
            let state = self.context;
            let symbol = slots.symbol(state);
            let probability = self.binary_probability();
            let is_it = coder.outcome((*probability).into());
            let first_escape = learn_outcome(probability, is_it);
            if is_it {
                self.learn_only(state);
                return Ok(symbol);
            }
            self.first_escape = first_escape;
            masked = Mask::of(self.arena.slots.states(state, 1));
        } else {
            let (first, total) = (slots.link(self.context), slots.head(self.context));
            let states = slots.states(first, count);
            let position = coder.position(total);
            let frequency = u32::from(states[0][1]);
            if position < frequency {
                let symbol = states[0][0];
                coder.take(0, frequency);
                self.learn_first(Place { state: first, frequency });
                return Ok(symbol);
            }
            let mut below = frequency;
            for (state, at) in states[1..].iter().zip(first + 1..) {
                let frequency = u32::from(state[1]);
                if position < below + frequency {
                    let symbol = state[0];
                    coder.take(below, frequency);
                    self.learn_other(Place { state: at, frequency });
                    return Ok(symbol);
                }
                below += frequency;
            }
            if position >= total {
                return Err(Damaged);
            }
            coder.take(below, total - below);
            masked = Mask::of(states);
            self.kind_of_last = high_kind(self.last_symbol, 3);
        }
        self.was_likely = 0;
        while self.shorten(count) {
            let masked_count = std::mem::replace(&mut count, self.arena.slots.count(self.context));
            let escape = escape_of(
                &self.arena.slots,
                &mut self.escapes,
                (self.context, self.kind_of_last),
                (count, masked_count),
            );
            let (escape, escape_frequency) = frequency_of(escape);
            let slots = &self.arena.slots[..];
            let first = slots.link(self.context);
            let states = slots.states(first, count);
            let sum = states.iter().fold(0, |sum, state| sum + masked.frequency(state));
            let total = sum + escape_frequency;
            let position = coder.position(total);
            if position < sum {
                let mut below = 0;
                for (state, at) in states.iter().zip(first..) {
                    let frequency = masked.frequency(state);
                    if position < below + frequency {
                        let symbol = state[0];
                        coder.take(below, frequency);
                        if let Some(escape) = escape {
                            escape.learn_symbol();
                        }
                        self.learn_after_escape(Place { state: at, frequency });
                        return Ok(symbol);
                    }
                    below += frequency;
                }
            }
            if position >= total {
                return Err(Damaged);
            }
            coder.take(sum, escape_frequency);
            if let Some(escape) = escape {
                escape.learn_escape(total);
            }
            masked.add(states);
        }
        // An escape from the root: nothing is coded so.
        Err(Damaged)
    }

    /// Goes to the next shorter context that has more states; false if there is none.
    #[inline(always)]
    fn shorten(&mut self, count: u32) -> bool {
        let slots = &self.arena.slots[..];
        loop {
            self.fall += 1;
            let suffix = slots.suffix(self.context);
            if suffix == NONE {
                return false;
            }
            self.context = suffix;
            if slots.count(suffix) != count {
                return true;
            }
        }
    }

    /// Returns how likely the one state of the context is.
    #[inline(always)]
    fn binary_probability(&mut self) -> &mut u16 {
        let slots = &self.arena.slots[..];
        self.kind_of_last = high_kind(self.last_symbol, 3);
        let among = match slots.count(slots.suffix(self.context)) {
            1 => 0,
            2 => 2,
            3..=11 => 4,
            _ => 6,
        };
        let kind = self.was_likely
            + (self.run as u32 >> 26 & 0x20)
            + among
            + high_kind(slots.symbol(self.context), 4)
            + self.kind_of_last;
        self.binary.of(slots.frequency(self.context), kind)
    }

    /// Learns that the only state of the context came.
    #[inline(always)]
    fn learn_only(&mut self, state: u32) {
        let slots = &mut self.arena.slots[..];
        let frequency = slots.frequency(state);
        slots.set_frequency(state, frequency + u32::from(frequency < BINARY_FREQUENCY_MAX));
        self.was_likely = 1;
        self.run = self.run.saturating_add(1);
        self.found = state;
        self.last_symbol = slots.symbol(state);
        self.follow();
    }

    /// Learns that the first state of the context came.
    #[inline(always)]
    fn learn_first(&mut self, Place { state, frequency }: Place) {
        let total = self.arena.slots.head(self.context);
        self.was_likely = u32::from(2 * frequency > total);
        self.run = self.run.saturating_add(self.was_likely as i32);
        self.grow(Place { state, frequency }, total);
        self.follow();
    }

    /// Learns that another state of the context came: it goes up by one if that is due.
    #[inline(always)]
    fn learn_other(&mut self, Place { state, frequency }: Place) {
        self.was_likely = 0;
        let slots = &mut self.arena.slots[..];
        let total = slots.head(self.context);
        slots.set_head(self.context, total + STEP);
        slots.set_frequency(state, frequency + STEP);
        self.found = state;
        self.last_symbol = slots.symbol(state);
        if frequency + STEP > slots.frequency(state - 1) {
            slots.swap(state as usize, state as usize - 1);
            self.found = state - 1;
            if frequency + STEP > FREQUENCY_MAX {
                self.halve();
            }
        }
        self.follow();
    }

    /// Learns that a state came in a context that is not the longest.
    #[inline(always)]
    fn learn_after_escape(&mut self, place: Place) {
        let total = self.arena.slots.head(self.context);
        self.run = self.first_run();
        self.grow(place, total);
        self.update();
    }

    #[inline(always)]
    fn grow(&mut self, Place { state, frequency }: Place, total: u32) {
        let slots = &mut self.arena.slots[..];
        slots.set_head(self.context, total + STEP);
        slots.set_frequency(state, frequency + STEP);
        self.found = state;
        self.last_symbol = slots.symbol(state);
        if frequency + STEP > FREQUENCY_MAX {
            self.halve();
        }
    }

    /// Goes on to the context for the next symbol.
    #[inline(always)]
    fn follow(&mut self) {
        let successor = self.arena.slots.successor(self.found);
        if self.fall == 0 && successor.is_context() {
            self.context = successor.at();
            self.longest = self.context;
        } else {
            self.update();
        }
    }

    #[inline(never)]
    fn update(&mut self) {
        if self.extend().is_none() {
            self.clear();
            self.is_restarted = true;
        }
    }

    /// Enters the symbol that was found into the contexts that are longer than the one that had it, and
    /// goes on to the context for the next symbol. None if the memory is full.
    fn extend(&mut self) -> Option<()> {
        let symbol = self.last_symbol;
        self.learn_in_suffix(symbol);
        if self.fall == 0 {
            let next = self.make_contexts()?;
            self.arena.slots.set_successor(self.found, Successor::context(next));
            (self.context, self.longest) = (next, next);
            return Some(());
        }
        self.arena.push_text(symbol)?;
        let mut follows = Successor::text(self.arena.text_len());
        let mut next = self.arena.slots.successor(self.found);
        if next.is_none() {
            // For the first time in the root: what follows is in the text, and the context is the root.
            self.arena.slots.set_successor(self.found, follows);
            next = Successor::context(self.context);
        } else {
            if !next.is_context() {
                next = Successor::context(self.make_contexts()?);
            }
            self.fall -= 1;
            if self.fall == 0 {
                follows = next;
                if self.longest != self.context {
                    self.arena.pop_text();
                }
            }
        }
        let found_in = self.context;
        let mut context = self.longest;
        (self.context, self.longest) = (next.at(), next.at());
        if context == found_in {
            return Some(());
        }
        let slots = &self.arena.slots[..];
        let found = Found {
            symbol,
            count: slots.count(found_in),
            frequency: slots.frequency(self.found),
            others: slots.head(found_in)
                - slots.count(found_in)
                - (slots.frequency(self.found) - 1),
        };
        while context != found_in {
            self.add_state(context, found, follows)?;
            context = self.arena.slots.suffix(context);
        }
        Some(())
    }

    /// A symbol that is rare counts in the next shorter context, too.
    fn learn_in_suffix(&mut self, symbol: u8) {
        let slots = &mut self.arena.slots[..];
        let suffix = slots.suffix(self.context);
        if suffix == NONE || slots.frequency(self.found) >= FREQUENCY_MAX / 4 {
            return;
        }
        if slots.count(suffix) == 1 {
            let frequency = slots.frequency(suffix);
            slots.set_frequency(suffix, frequency + u32::from(frequency < 32));
            return;
        }
        let mut state = slots.link(suffix);
        if slots.symbol(state) != symbol {
            state = slots.find(suffix, symbol);
            if slots.frequency(state) >= slots.frequency(state - 1) {
                slots.swap(state as usize, state as usize - 1);
                state -= 1;
            }
        }
        let frequency = slots.frequency(state);
        if frequency < FREQUENCY_MAX - 9 {
            slots.set_frequency(state, frequency + 2);
            let total = slots.head(suffix);
            slots.set_head(suffix, total + 2);
        }
    }

    /// Adds the symbol that was found to a longer context that did not have it.
    #[inline(always)]
    fn add_state(&mut self, context: u32, found: Found, follows: Successor) -> Option<()> {
        let count = self.arena.slots.count(context);
        let mut total;
        let states;
        if count == 1 {
            states = self.arena.take(0)?;
            let slots = &mut self.arena.slots[..];
            let only = slots[context as usize];
            let frequency = u32::from(only[1]);
            let frequency = match frequency < FREQUENCY_MAX / 4 - 1 {
                true => 2 * frequency,
                false => FREQUENCY_MAX - 4,
            };
            slots[states as usize] = only;
            slots.set_frequency(states, frequency);
            slots.set_link(context, states);
            total = frequency + u32::from(self.first_escape) + u32::from(found.count > 3);
        } else {
            let before = self.arena.slots.link(context);
            states = match count % 2 {
                0 => self.arena.expand(before, count / 2)?,
                _ => before,
            };
            let slots = &mut self.arena.slots[..];
            slots.set_link(context, states);
            total = slots.head(context);
            let is_sparse = 4 * count <= found.count && total <= 8 * count;
            total += u32::from(2 * count < found.count) + 2 * u32::from(is_sparse);
        }
        let slots = &mut self.arena.slots[..];
        let share = 2 * (total + 6) * found.frequency;
        let sum = found.others + total;
        let frequency = if share < 6 * sum {
            total += 3;
            1 + u32::from(share > sum) + u32::from(share >= 4 * sum)
        } else {
            let frequency = 4
                + u32::from(share >= 9 * sum)
                + u32::from(share >= 12 * sum)
                + u32::from(share >= 15 * sum);
            total += frequency;
            frequency
        };
        slots.set_state(states + count, found.symbol, frequency, follows);
        slots.set_head(context, total);
        slots.set_head(context + 1, count + 1);
        Some(())
    }

    /// Makes the contexts that a place in the text stands for: that of the state that was found, and of
    /// its symbol in the shorter contexts as far as these have the same place. Returns the longest.
    #[inline(never)]
    fn make_contexts(&mut self) -> Option<u32> {
        let slots = &self.arena.slots[..];
        let symbol = self.last_symbol;
        let place = slots.successor(self.found);
        // One for each context that is shorter than the order, and the one that was found.
        let (mut waiting, mut waiting_len) = ([NONE; WAITING_MAX], 0);
        if self.fall != 0 {
            (waiting[0], waiting_len) = (self.found, 1);
        }
        let mut context = self.context;
        while slots.suffix(context) != NONE {
            context = slots.suffix(context);
            let state = match slots.count(context) {
                1 => context,
                _ => slots.find(context, symbol),
            };
            let successor = slots.successor(state);
            if successor != place {
                context = successor.at();
                if waiting_len == 0 {
                    return Some(context);
                }
                break;
            }
            waiting[waiting_len % WAITING_MAX] = state;
            waiting_len += 1;
        }
        let next_symbol = self.arena.text(place.at());
        let follows = Successor::text(place.at() + 1);
        let frequency = match slots.count(context) {
            1 => slots.frequency(context),
            count => {
                let of_symbol = slots.frequency(slots.find(context, next_symbol)) - 1;
                let others = slots.head(context) - count - of_symbol;
                1 + if 2 * of_symbol <= others {
                    u32::from(5 * of_symbol > others)
                } else {
                    (2 * of_symbol + others - 1) / (2 * others) + 1
                }
            }
        };
        for &state in waiting[..waiting_len.min(WAITING_MAX)].iter().rev() {
            let longer = self.arena.take_unit()?;
            let slots = &mut self.arena.slots[..];
            slots.set_state(longer, next_symbol, frequency, follows);
            slots.set_head(longer + 1, 1);
            slots.set_link(longer + 1, context);
            slots.set_successor(state, Successor::context(longer));
            context = longer;
        }
        Some(context)
    }

    /// Halves the frequencies of the context, sorts its states, and removes those that came too rarely.
    #[inline(never)]
    fn halve(&mut self) {
        let slots = &mut self.arena.slots[..];
        let context = self.context;
        let (first, count) = (slots.link(context), slots.count(context));
        let mut escape = slots.head(context);
        // Only the longest contexts lose symbols.
        let round_up = u32::from(self.fall != 0);
        let states = &mut slots[first as usize..][..count as usize];
        // The one that came goes to the front.
        states[..=(self.found - first) as usize].rotate_right(1);
        escape -= u32::from(states[0][1]);
        let mut total = (u32::from(states[0][1]) + 4 + round_up) / 2;
        states[0][1] = total as u8;
        for at in 1..states.len() {
            escape -= u32::from(states[at][1]);
            let frequency = (u32::from(states[at][1]) + round_up) / 2;
            total += frequency;
            states[at][1] = frequency as u8;
            if states[at][1] > states[at - 1][1] {
                let to =
                    states[..at].iter().position(|state| state[1] < states[at][1]).unwrap_or(at);
                states[to..=at].rotate_right(1);
            }
        }
        let left = states.iter().rposition(|state| state[1] != 0).map_or(1, |last| last + 1) as u32;
        if left != count {
            escape += count - left;
            let units = count.div_ceil(2);
            if left == 1 {
                let mut only = states[0];
                loop {
                    escape /= 2;
                    only[1] = only[1].div_ceil(2);
                    if escape <= 1 {
                        break;
                    }
                }
                slots[context as usize] = only;
                slots.set_head(context + 1, 1);
                self.arena.give(first, size_of_units(units));
                self.found = context;
                return;
            }
            let states = self.arena.shrink(first, units, left.div_ceil(2));
            let slots = &mut self.arena.slots[..];
            slots.set_head(context + 1, left);
            slots.set_link(context, states);
        }
        let slots = &mut self.arena.slots[..];
        slots.set_head(context, total + escape - escape / 2);
        self.found = slots.link(context);
    }
}

/// Contexts that can be made at once: one for each order, and some room.
const WAITING_MAX: usize = 16;

/// A symbol, and the context that had it.
#[derive(Clone, Copy)]
struct Found {
    symbol: u8,
    count: u32,
    frequency: u32,
    /// The frequencies of the others, beyond one each, and of escapes.
    others: u32,
}

/// Returns `1 << bit` for a symbol of 64 and above.
#[inline(always)]
fn high_kind(symbol: u8, bit: u32) -> u32 {
    u32::from(symbol >= 0x40) << bit
}
