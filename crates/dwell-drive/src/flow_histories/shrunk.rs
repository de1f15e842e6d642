//! What histories make of bytes, by the codec that made it.

/// It must take off at least this share of what the shared one leaves.
const GAIN_PERCENT: u64 = 3;
/// Sums of what went through a shared history are halved from here on, so that the latest count most.
const REMEMBERED_BYTES: u64 = 1 << 20;

/// Bytes before and after compression.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shrunk {
    pub(super) from: u64,
    pub(super) to: u64,
}

impl Shrunk {
    pub(super) fn add(&mut self, (from, to): (u64, u64)) {
        (self.from, self.to) = (self.from.saturating_add(from), self.to.saturating_add(to));
    }

    /// The same, and the latest count most.
    pub(super) fn add_lately(&mut self, bytes: (u64, u64)) {
        self.add(bytes);
        if self.from > REMEMBERED_BYTES {
            (self.from, self.to) = (self.from / 2, self.to / 2);
        }
    }

    /// True if it shrank further than the other.
    pub(super) fn is_smaller_than(self, other: Self) -> bool {
        self.takes_off(other, 0)
    }

    /// True if it shrank further than the other by more than the least gain.
    pub(super) fn is_better_than(self, other: Self) -> bool {
        self.takes_off(other, GAIN_PERCENT)
    }

    /// True if it takes off at least so much of what the other leaves.
    fn takes_off(self, other: Self, percent: u64) -> bool {
        let of = |one: Self, of: Self| u128::from(one.to) * u128::from(of.from.max(1));
        of(self, other) * 100 <= of(other, self) * u128::from(100 - percent)
    }
}

/// The same by what the bytes were compressed with, of the two codecs that were used last: what one leaves says
/// nothing of what another would.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ByCodec {
    latest: (u64, Shrunk),
    earlier: (u64, Shrunk),
}

impl ByCodec {
    /// Counts what a batch shrank to; the latest count most.
    pub(super) fn add(&mut self, codec: u64, bytes: (u64, u64)) {
        if self.latest.0 != codec {
            std::mem::swap(&mut self.latest, &mut self.earlier);
        }
        if self.latest.0 != codec {
            self.latest = (codec, Shrunk::default());
        }
        self.latest.1.add_lately(bytes);
    }

    /// Counts what went raw beside the batches.
    pub(super) fn add_raw(&mut self, bytes: u64) {
        self.latest.1.add_lately((bytes, bytes));
    }

    /// Returns what became of bytes with the codec in use.
    pub(super) fn latest(&self) -> Shrunk {
        self.latest.1
    }

    /// Returns what became of bytes with this codec, if there were so many of them.
    pub(super) fn of(&self, codec: u64, bytes_min: u64) -> Option<Shrunk> {
        let known = [self.latest, self.earlier].into_iter().find(|it| it.0 == codec)?;
        Some(known.1).filter(|it| it.from >= bytes_min)
    }
}
