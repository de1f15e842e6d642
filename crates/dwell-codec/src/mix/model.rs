//! What both ends have: it says how likely a bit is, and learns from it.

use super::contexts::{CONTEXTS, Contexts, hash};
use super::mixer::{INPUTS, Inputs, SUM_MAX, Weights, squash, stretch};
use super::repeats::Repeats;
use super::slots::{Slot, Slots};
use super::spec::MixSpec;
use super::states::{NEXT, first_guess};
use crate::range::BitCoder;

/// The inputs behind those of the contexts.
const REPEATED: usize = 2 * CONTEXTS;
const ALWAYS: usize = REPEATED + 2;
/// What is always there.
const ALWAYS_INPUT: i16 = 256;

/// A learned probability: of 2^22, and in the low bits how often it was learned.
#[derive(Clone, Copy)]
struct Learned(u32);

/// It is learned from so many bits as from all; then, by and by, it is forgotten what was first.
const LEARNED_MAX: u32 = 255;

/// 2^17 / (2 n + 3): how much the bit after *n* counts, of 2^16.
static SHARES: [u32; LEARNED_MAX as usize + 1] = {
    let mut shares = [0; LEARNED_MAX as usize + 1];
    let mut count = 0;
    while count < shares.len() {
        shares[count] = (1 << 17) / (2 * count as u32 + 3);
        count += 1;
    }
    shares
};

impl Learned {
    const fn new(probability: u32) -> Self {
        Self(probability << 10)
    }

    /// Returns it, of 2^12.
    #[inline(always)]
    fn probability(self) -> u32 {
        self.0 >> 20
    }

    #[inline(always)]
    fn learn(&mut self, bit: u32) {
        let (probability, count) = (i64::from(self.0 >> 10), self.0 & LEARNED_MAX);
        let wanted = if bit != 0 { (1 << 22) - 1 } else { 0 };
        let change = ((wanted - probability) * i64::from(SHARES[count as usize])) >> 16;
        self.0 = ((probability + change) as u32) << 10 | (count + 1).min(LEARNED_MAX);
    }

    /// Returns both of its inputs: with little to go by, they differ in what they say.
    #[inline(always)]
    fn inputs(self) -> [i16; 2] {
        let probability = self.probability();
        [stretch(probability), (probability as i16 - 2_048) >> 1]
    }
}

/// Kinds of lengths of repetitions, each with the bit that is expected.
const LENGTHS: usize = 2 * 32;
/// The weights by what is known of the byte, and which bit is expected, if one is; and those by how long the repetition is, how
/// many contexts are known, and which bit of the byte it is.
const BY_BYTE: usize = 3 * 256;
const BY_KNOWN: usize = 6 * 8 * 8;

/// What a sum became, by what is known of the byte, and how long the repetition is.
const REFINED_CONTEXTS: usize = 4 * 256;
const CELLS: usize = 25;
const CELL_LOG: u32 = 8;
const REFINED_RATE: u32 = 6;

/// The weights change faster at the beginning.
const RATE: u32 = 6;
const RATE_MORE: u32 = 10;
const RATE_LOG: u32 = 13;

/// A bit costs something, however sure it seems: of 2^16.
const PROBABILITY_MIN: u32 = 4;

pub(super) struct Model {
    slots: Slots,
    repeats: Repeats,
    contexts: Contexts,
    /// The slot hashes of the next byte.
    hashes: [u32; CONTEXTS],
    /// By context and state.
    states: [[Learned; 256]; CONTEXTS],
    lengths: [Learned; LENGTHS],
    by_byte: Vec<Weights>,
    by_known: Vec<Weights>,
    refined: Vec<[u16; CELLS]>,
    /// Bits that were learned.
    bits: u32,
}

/// What the repetition says of a byte.
#[derive(Clone, Copy)]
struct Expected {
    /// The byte, with a 1 before it; 0 if there is none.
    byte: usize,
    /// Which of 32 kinds its length is, ...
    length: usize,
    /// ... and of 4: none, below 16, below 32, or more.
    class: usize,
}

impl Expected {
    fn new(expected: Option<(u8, u32)>) -> Self {
        let Some((byte, len)) = expected else {
            return Self { byte: 0, length: 0, class: 0 };
        };
        let length = if len < 16 { len } else { 12 + len.ilog2() };
        let class = 1 + (len / 16).min(2);
        Self { byte: usize::from(byte) | 256, length: length as usize, class: class as usize }
    }
}

impl Model {
    pub(super) fn new(spec: MixSpec) -> Self {
        let mut model = Self {
            slots: Slots::new(spec.slots_log()),
            repeats: Repeats::new(spec.history_log(), spec.places_log()),
            contexts: Contexts::default(),
            hashes: [0; CONTEXTS],
            states: [[Learned(0); 256]; CONTEXTS],
            lengths: [Learned(0); LENGTHS],
            by_byte: vec![Weights::FIRST; BY_BYTE],
            by_known: vec![Weights::FIRST; BY_KNOWN],
            refined: vec![[0; CELLS]; REFINED_CONTEXTS],
            bits: 0,
        };
        model.clear();
        model
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.slots.clear();
        self.repeats.clear();
        self.contexts = Contexts::default();
        self.hashes = self.contexts.hashes();
        let first: [Learned; 256] = std::array::from_fn(|state| Learned::new(first_guess(state)));
        self.states = [first; CONTEXTS];
        self.lengths = [Learned::new(1 << 21); LENGTHS];
        self.by_byte.fill(Weights::FIRST);
        self.by_known.fill(Weights::FIRST);
        let cell = |cell| squash(((cell as i32) << CELL_LOG) - SUM_MAX - 1) as u16;
        self.refined.fill(std::array::from_fn(cell));
        self.bits = 0;
    }

    pub(super) fn begin_record(&mut self) {
        self.contexts.begin_record();
        self.hashes = self.contexts.hashes();
    }

    /// Codes a byte, or decodes one, and learns it.
    #[inline(always)]
    pub(super) fn code<C: BitCoder>(&mut self, byte: u8, coder: &mut C) -> u8 {
        let expected = Expected::new(self.repeats.expected());
        let high = self.code_half(1, byte >> 4, expected, coder);
        let low = self.code_half(high, byte & 15, expected, coder);
        let byte = low as u8;
        self.contexts.push(byte);
        self.repeats.push(self.contexts.bytes());
        self.hashes = self.contexts.hashes();
        byte
    }

    /// Codes four bits. Before and after it, `known` is a one and what is known of the byte behind it.
    #[inline(always)]
    fn code_half<C: BitCoder>(
        &mut self,
        known: usize,
        half: u8,
        expected: Expected,
        coder: &mut C,
    ) -> usize {
        let is_low = known > 1;
        let mut hashes = self.hashes;
        if is_low {
            hashes = hashes.map(|it| hash(it, known as u32));
        }
        let places = hashes.map(|it| self.slots.find(it));
        let mut slots = places.map(|place| self.slots.get(place));
        let mut node = 1;
        for at in 0..4 {
            let bit = u32::from(half >> (3 - at) & 1);
            let whole = if is_low { known << at | node & ((1 << at) - 1) } else { node };
            let bit = self.code_bit((whole, node), &mut slots, expected, bit, coder);
            node = node << 1 | bit as usize;
        }
        for (place, slot) in places.into_iter().zip(slots) {
            self.slots.set(place, slot);
        }
        if is_low { known << 4 | node & 15 } else { node }
    }

    #[inline(always)]
    fn code_bit<C: BitCoder>(
        &mut self,
        (known, node): (usize, usize),
        slots: &mut [Slot; CONTEXTS],
        expected: Expected,
        bit: u32,
        coder: &mut C,
    ) -> u32 {
        let (known, node) = (known & 0xff, node & 15);
        let mut inputs: Inputs = [0; INPUTS];
        let mut seen = 0;
        let mut states = [0; CONTEXTS];
        for context in 0..CONTEXTS {
            let state = slots[context][node];
            states[context] = state;
            let [stretched, plain] = self.states[context][usize::from(state)].inputs();
            let mask = -i16::from(state != 0);
            (inputs[2 * context], inputs[2 * context + 1]) = (stretched & mask, plain & mask);
            seen += usize::from(state != 0);
        }
        let at = known.ilog2();
        let goes_on = expected.byte >> (8 - at) == known;
        let expected_bit = expected.byte >> (7 - at) & 1;
        let length = (2 * expected.length + expected_bit) % LENGTHS;
        if goes_on {
            [inputs[REPEATED], inputs[REPEATED + 1]] = self.lengths[length].inputs();
        }
        inputs[ALWAYS] = ALWAYS_INPUT;

        let by_byte = known + if goes_on { 256 * (1 + expected_bit) } else { 0 };
        let class = match goes_on {
            true => expected.class,
            false => {
                if expected.byte == 0 {
                    0
                } else {
                    4
                }
            }
        };
        let by_known = (8 * class + seen) * 8 + at as usize;
        let sums = [self.by_byte[by_byte].sum(&inputs), self.by_known[by_known].sum(&inputs)];
        let sum = (sums[0] + sums[1]) >> 1;

        let from = (sum + SUM_MAX + 1) as u32;
        let (cell, part) = ((from >> CELL_LOG) as usize, from & ((1 << CELL_LOG) - 1));
        let cells = &mut self.refined[256 * expected.class + known];
        let (low, high) = (u32::from(cells[cell]), u32::from(cells[cell + 1]));
        let refined = (low * ((1 << CELL_LOG) - part) + high * part) >> CELL_LOG;
        let probability = (squash(sum) + refined) >> 1;
        let bit = coder.bit(bit, probability.clamp(PROBABILITY_MIN, (1 << 16) - PROBABILITY_MIN));

        let wanted = if bit != 0 { 65_535 } else { 0 };
        let nearer = &mut cells[cell + (part >> (CELL_LOG - 1)) as usize];
        *nearer = (i32::from(*nearer) + ((wanted - i32::from(*nearer)) >> REFINED_RATE)) as u16;
        let rate = (RATE + RATE_MORE.saturating_sub(self.bits >> RATE_LOG)) as i32;
        self.bits = self.bits.saturating_add(1);
        let errors = sums.map(|sum| ((wanted - squash(sum) as i32) * rate) >> 3);
        self.by_byte[by_byte].train(&inputs, errors[0]);
        self.by_known[by_known].train(&inputs, errors[1]);
        for context in 0..CONTEXTS {
            let state = usize::from(states[context]);
            self.states[context][state].learn(bit);
            slots[context][node] = NEXT[state][bit as usize & 1];
        }
        if goes_on {
            self.lengths[length].learn(bit);
        }
        bit
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.slots.memory_bytes()
            + self.repeats.memory_bytes()
            + size_of_val(&*self.by_byte)
            + size_of_val(&*self.by_known)
            + size_of_val(&*self.refined)
    }
}
