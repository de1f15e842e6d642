//! Range coding: of an interval, a part in proportion to each event's probability.
//!
//! Each record is coded by itself, from the whole interval, and ends with as few bytes as name a number in
//! what is left of it; a decoder reads zeros behind them.

/// Parts are taken from intervals of at least this length, so that none is empty.
const LENGTH_MIN: u32 = 1 << 24;
/// Bytes that a decoder is ahead of the encoder.
const AHEAD: usize = 4;

/// The binary logarithm of what probabilities of two outcomes are parts of.
pub(crate) const BINARY_BITS: u32 = 14;

/// The binary logarithm of what probabilities of bits are parts of, where a model predicts bit by bit.
pub(crate) const BIT_BITS: u32 = 16;

/// Takes what a model says about one symbol after another.
pub(crate) trait Coder {
    /// Takes the part from `below` on, as long as `size`, of an interval of `total`.
    fn part(&mut self, below: u32, size: u32, total: u32);
    /// Takes the likely one of two outcomes, or the other.
    fn outcome(&mut self, is_likely: bool, probability: u32);
}

/// Takes what a model says about one bit after another.
pub(crate) trait BitCoder {
    /// Takes a bit that is 1 with this probability, and returns it; or returns the one that was taken at the other end, whatever
    /// this one is.
    fn bit(&mut self, bit: u32, probability: u32) -> u32;
}

/// Writes nothing: what is coded is only learned.
pub(crate) struct Nowhere;

impl BitCoder for Nowhere {
    #[inline(always)]
    fn bit(&mut self, bit: u32, _: u32) -> u32 {
        bit
    }
}

impl Coder for Nowhere {
    #[inline(always)]
    fn part(&mut self, _: u32, _: u32, _: u32) {}
    #[inline(always)]
    fn outcome(&mut self, _: bool, _: u32) {}
}

/// Appends a record to bytes that are there.
pub(crate) struct RangeEncoder<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    /// The beginning of the interval behind what was written; with a 33rd bit, until that is carried.
    low: u64,
    length: u32,
}

impl<'a> RangeEncoder<'a> {
    pub(crate) fn new(out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        Self { out, start, low: 0, length: u32::MAX }
    }

    #[inline(always)]
    fn normalize(&mut self) {
        while self.length < LENGTH_MIN {
            self.length <<= 8;
            self.write_byte();
        }
    }

    #[inline(always)]
    fn write_byte(&mut self) {
        if self.low > u64::from(u32::MAX) {
            self.carry();
        }
        self.out.push((self.low >> 24) as u8);
        self.low = (self.low << 8) & u64::from(u32::MAX);
    }

    /// Adds one to what was written. It does not go beyond the record's beginning: the interval is a part
    /// of the whole.
    #[cold]
    fn carry(&mut self) {
        for byte in self.out[self.start..].iter_mut().rev() {
            *byte = byte.wrapping_add(1);
            if *byte != 0 {
                break;
            }
        }
    }

    /// Writes what names a number of the interval with the fewest bytes, one at least.
    pub(crate) fn finish(mut self) {
        let end = self.low + u64::from(self.length);
        // The number in the interval with the most zeros at its end.
        let number = (0..=AHEAD as u32)
            .rev()
            .map(|zeros| self.low.next_multiple_of(1 << (8 * zeros)))
            .find(|&number| number < end);
        self.low = number.unwrap_or(self.low);
        for _ in 0..AHEAD {
            self.write_byte();
        }
        while self.out.len() > self.start + 1 && self.out.last() == Some(&0) {
            self.out.pop();
        }
    }
}

impl Coder for RangeEncoder<'_> {
    #[inline(always)]
    fn part(&mut self, below: u32, size: u32, total: u32) {
        let length = self.length / total;
        self.low += u64::from(below * length);
        self.length = size * length;
        self.normalize();
    }

    #[inline(always)]
    fn outcome(&mut self, is_likely: bool, probability: u32) {
        let likely = (self.length >> BINARY_BITS) * probability;
        if is_likely {
            self.length = likely;
        } else {
            self.low += u64::from(likely);
            self.length -= likely;
        }
        self.normalize();
    }
}

impl BitCoder for RangeEncoder<'_> {
    #[inline(always)]
    fn bit(&mut self, bit: u32, probability: u32) -> u32 {
        let one = (self.length >> BIT_BITS) * probability;
        if bit != 0 {
            self.length = one;
        } else {
            self.low += u64::from(one);
            self.length -= one;
        }
        self.normalize();
        bit
    }
}

/// Reads a record, any bytes.
pub(crate) struct RangeDecoder<'a> {
    rest: std::slice::Iter<'a, u8>,
    /// Zeros that were read behind the record.
    beyond: usize,
    /// The number that the record names, from the beginning of the interval.
    number: u32,
    length: u32,
}

impl<'a> RangeDecoder<'a> {
    pub(crate) fn new(record: &'a [u8]) -> Self {
        let mut decoder = Self { rest: record.iter(), beyond: 0, number: 0, length: u32::MAX };
        for _ in 0..AHEAD {
            decoder.read_byte();
        }
        decoder
    }

    #[inline(always)]
    fn normalize(&mut self) {
        while self.length < LENGTH_MIN {
            self.length <<= 8;
            self.read_byte();
        }
    }

    #[inline(always)]
    fn read_byte(&mut self) {
        let byte = self.rest.next().copied().unwrap_or_else(|| {
            self.beyond += 1;
            0
        });
        self.number = self.number << 8 | u32::from(byte);
    }

    /// Returns where in an interval of `total` the number is; `total` or more if the record is damaged.
    #[inline(always)]
    pub(crate) fn position(&mut self, total: u32) -> u32 {
        self.length /= total;
        self.number / self.length
    }

    /// Takes a part that has the position, of the interval of which that was asked.
    #[inline(always)]
    pub(crate) fn take(&mut self, below: u32, size: u32) {
        self.number -= below * self.length;
        self.length *= size;
        self.normalize();
    }

    /// Returns which of two outcomes it was.
    #[inline(always)]
    pub(crate) fn outcome(&mut self, probability: u32) -> bool {
        let likely = (self.length >> BINARY_BITS) * probability;
        let is_likely = self.number < likely;
        if is_likely {
            self.length = likely;
        } else {
            self.number -= likely;
            self.length -= likely;
        }
        self.normalize();
        is_likely
    }

    /// Returns true if an encoder can have ended here: nothing of the record is left, and it says where in
    /// the interval.
    pub(crate) fn can_end(&self) -> bool {
        self.rest.len() == 0 && self.number < self.length
    }
}

impl BitCoder for RangeDecoder<'_> {
    #[inline(always)]
    fn bit(&mut self, _: u32, probability: u32) -> u32 {
        let one = (self.length >> BIT_BITS) * probability;
        let bit = u32::from(self.number < one);
        if bit != 0 {
            self.length = one;
        } else {
            self.number -= one;
            self.length -= one;
        }
        self.normalize();
        bit
    }
}
