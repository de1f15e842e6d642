//! The contexts by which a byte is predicted.

/// The number of contexts beside the longest repetition.
pub(super) const CONTEXTS: usize = 6;

/// Positions in records beyond this one count as it.
const POSITION_MAX: u32 = 255;

/// Mixes two numbers to one.
#[inline(always)]
pub(super) fn hash(a: u32, b: u32) -> u32 {
    let mixed = a.wrapping_mul(0x9e37_79b1) ^ b.wrapping_mul(0x85eb_ca6b);
    (mixed ^ mixed >> 15).wrapping_mul(0xc2b2_ae35)
}

/// What went before the next byte.
#[derive(Clone, Default)]
pub(super) struct Contexts {
    /// The last eight bytes, the last one lowest.
    bytes: u64,
    /// The letters and digits that end there.
    word: u32,
    /// Fields of a line, as logs and telemetry have them: what the first one of this line was, how many there were
    /// before, and what of this one is there.
    line: u32,
    field: u32,
    begun: u32,
    /// Bytes since the record began.
    position: u32,
}

impl Contexts {
    pub(super) fn begin_record(&mut self) {
        self.position = 0;
    }

    #[inline(always)]
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    #[inline(always)]
    pub(super) fn push(&mut self, byte: u8) {
        let symbol = u32::from(byte);
        self.bytes = self.bytes << 8 | u64::from(byte);
        self.position += 1;
        self.word = match byte {
            b'a'..=b'z' | b'0'..=b'9' | 0x80.. => hash(self.word, symbol + 1),
            b'A'..=b'Z' => hash(self.word, (symbol | 0x20) + 1),
            _ => 0,
        };
        match byte {
            b'\n' => (self.line, self.field, self.begun) = (0, 0, 0),
            b',' | b' ' | b':' | b';' | b'=' | b'|' | b'\t' => {
                if self.field == 0 {
                    self.line = self.begun;
                }
                (self.field, self.begun) = (self.field.wrapping_add(1), 0);
            }
            _ => self.begun = hash(self.begun, symbol + 1),
        }
    }

    /// Returns the hash of each context.
    #[inline(always)]
    pub(super) fn hashes(&self) -> [u32; CONTEXTS] {
        let bytes = self.bytes;
        let last = |count: u32| {
            let bytes = bytes & (u64::MAX >> (64 - 8 * count));
            hash(bytes as u32, (bytes >> 32) as u32)
        };
        let contexts = [
            last(1),
            last(3),
            last(5),
            hash(self.word, bytes as u32 & 0xff),
            hash(hash(self.line, self.field), self.begun),
            self.position.min(POSITION_MAX),
        ];
        let mut number = 0;
        contexts.map(|context| {
            number += 1;
            hash(context, number)
        })
    }
}
