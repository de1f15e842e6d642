//! How likely it is that a context does not have the next symbol: learned over all contexts of a kind.

use super::arena::{Slot, Slots};
use crate::range::BINARY_BITS;

/// Bits behind the binary point of a mean, and the binary logarithm of what it is taken over in the end.
const PERIOD_BITS: u32 = 7;
/// The largest frequency of a state that contexts of one state are distinguished by.
pub(super) const BINARY_FREQUENCY_MAX: u32 = 128;

/// The kinds of contexts of one state with the same frequency.
const BINARY_KINDS: usize = 64;
/// How likely escapes are at first, less what grows with the frequency, by kind.
const BINARY_START: [u16; 8] = [0x3cdd, 0x1f3f, 0x59bf, 0x48f3, 0x64a1, 0x5abc, 0x6632, 0x6051];
/// The frequency of escapes of a context that gets its second state, by how likely its first one was.
const FIRST_ESCAPE: [u8; 16] = [25, 14, 9, 7, 5, 5, 4, 4, 4, 3, 3, 3, 2, 2, 2, 2];

type BinaryRows = [[u16; BINARY_KINDS]; BINARY_FREQUENCY_MAX as usize];

/// What they are at first. A generation may have one byte: its model must not take long to begin with.
static BINARY_ROWS: BinaryRows = binary_rows();

const fn binary_rows() -> BinaryRows {
    let (mut rows, mut row) = ([[0; BINARY_KINDS]; BINARY_FREQUENCY_MAX as usize], 0);
    while row < rows.len() {
        let mut kind = 0;
        while kind < BINARY_KINDS {
            rows[row][kind] = (1 << BINARY_BITS) - BINARY_START[kind % 8] / (row as u16 + 2);
            kind += 1;
        }
        row += 1;
    }
    rows
}

/// For contexts of one state: the probability that it is the one.
pub(super) struct BinaryTable(Box<BinaryRows>);

impl BinaryTable {
    /// The bytes of a table.
    pub(super) const LEN: usize = size_of::<BinaryRows>();

    pub(super) fn new() -> Self {
        Self(Box::new(BINARY_ROWS))
    }

    pub(super) fn clear(&mut self) {
        *self.0 = BINARY_ROWS;
    }

    /// Returns the probability of a kind, with a frequency of 1 or more.
    #[inline(always)]
    pub(super) fn of(&mut self, frequency: u32, kind: u32) -> &mut u16 {
        let row = (frequency - 1) % BINARY_FREQUENCY_MAX;
        &mut self.0[row as usize][kind as usize % BINARY_KINDS]
    }
}

/// Moves a probability towards what came; returns the frequency of escapes that follows from it.
#[inline(always)]
pub(super) fn learn_outcome(probability: &mut u16, is_likely: bool) -> u8 {
    *probability -= (*probability + (1 << (PERIOD_BITS - 2))) >> PERIOD_BITS;
    if is_likely {
        *probability += 1 << PERIOD_BITS;
    }
    FIRST_ESCAPE[usize::from(*probability >> 10) % FIRST_ESCAPE.len()]
}

/// The frequency of escapes from contexts of a kind.
#[derive(Clone, Copy)]
pub(super) struct Escape {
    /// The mean, shifted.
    sum: u16,
    shift: u8,
    /// Escapes that were not taken until the mean is taken over twice as many.
    until_slower: u8,
}

/// Rows by the number of symbols that are possible, in steps that grow.
const ROWS: usize = 25;
const KINDS: usize = 16;
const FIRST_SHIFT: u8 = PERIOD_BITS as u8 - 4;

/// For contexts of several states, after an escape from a longer one.
pub(super) struct EscapeTable {
    kinds: [[Escape; KINDS]; ROWS],
    /// The row for each number of symbols that are possible, less one.
    row_of: [u8; 256],
}

impl EscapeTable {
    pub(super) fn new() -> Self {
        let unknown = Escape { sum: 0, shift: FIRST_SHIFT, until_slower: 0 };
        let mut table = Self { kinds: [[unknown; KINDS]; ROWS], row_of: rows() };
        table.clear();
        table
    }

    pub(super) fn clear(&mut self) {
        for (row, sum) in self.kinds.iter_mut().zip((10..).step_by(5)) {
            let sum = sum << FIRST_SHIFT;
            row.fill(Escape { sum, shift: FIRST_SHIFT, until_slower: 4 });
        }
    }

    #[inline(always)]
    pub(super) fn of(&mut self, possible: u32, kind: u32) -> &mut Escape {
        let row = usize::from(self.row_of[(possible as usize - 1) % 256]);
        &mut self.kinds[row % ROWS][kind as usize % KINDS]
    }
}

/// 0, 1, 2, then 3 once, 4 twice, 5 three times, and so on.
const fn rows() -> [u8; 256] {
    let (mut rows, mut count, mut row, mut left) = ([0; 256], 0, 0, 1);
    while count < 256 {
        rows[count] = row;
        left -= 1;
        if left == 0 {
            row += 1;
            left = if row < 3 { 1 } else { row - 2 };
        }
        count += 1;
    }
    rows
}

impl Escape {
    /// Takes the mean out of the sum, and returns it, 1 at least.
    #[inline(always)]
    pub(super) fn take_frequency(&mut self) -> u32 {
        let mean = self.sum >> self.shift;
        self.sum -= mean;
        u32::from(mean.max(1))
    }

    /// Learns that there was an escape, from frequencies of this sum.
    #[inline(always)]
    pub(super) fn learn_escape(&mut self, total: u32) {
        self.sum = self.sum.wrapping_add(total as u16);
    }

    /// Learns that there was none.
    #[inline(always)]
    pub(super) fn learn_symbol(&mut self) {
        if u32::from(self.shift) < PERIOD_BITS {
            self.until_slower = self.until_slower.wrapping_sub(1);
            if self.until_slower == 0 {
                self.sum = self.sum.wrapping_mul(2);
                self.until_slower = (3u32 << self.shift) as u8;
                self.shift += 1;
            }
        }
    }
}

/// Returns what is known of escapes from such contexts; none for the root, which has every symbol.
#[inline(always)]
pub(super) fn escape_of<'a>(
    slots: &[Slot],
    escapes: &'a mut EscapeTable,
    (context, kind_of_last): (u32, u32),
    (count, masked): (u32, u32),
) -> Option<&'a mut Escape> {
    if count == 256 {
        return None;
    }
    let possible = count - masked;
    let more_in_suffix = slots.count(slots.suffix(context)).wrapping_sub(count);
    let kind = u32::from(possible < more_in_suffix)
        + 2 * u32::from(slots.head(context) < 11 * count)
        + 4 * u32::from(masked > possible)
        + kind_of_last;
    Some(escapes.of(possible, kind))
}

/// Returns an escape with the frequency that is taken from it; 1 without one.
#[inline(always)]
pub(super) fn frequency_of(escape: Option<&mut Escape>) -> (Option<&mut Escape>, u32) {
    match escape {
        Some(escape) => {
            let frequency = escape.take_frequency();
            (Some(escape), frequency)
        }
        None => (None, 1),
    }
}
