//! What histories make of bytes, by the codec that made it.

use dwell_policy::method::{CodecPoint, Processor};

/// It must take off at least this share of what the shared one leaves.
const GAIN_PERCENT: u64 = 3;
/// Sums of what went through a shared history are halved from here on, so that the latest count most.
const REMEMBERED_BYTES: u64 = 1 << 20;

/// The link behind the histories: its bytes a second, and the processor time that compressing for it may take.
pub(super) type Link = (f64, Processor);

/// Bytes before and after compression, and the nanoseconds that it took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shrunk {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) took_ns: u64,
}

impl Shrunk {
    /// Of a batch, or what went raw.
    pub(super) const fn of(from: u64, to: u64, took_ns: u64) -> Self {
        Self { from, to, took_ns }
    }

    pub(super) fn add(&mut self, more: Self) {
        self.from = self.from.saturating_add(more.from);
        self.to = self.to.saturating_add(more.to);
        self.took_ns = self.took_ns.saturating_add(more.took_ns);
    }

    /// The same, and the latest count most.
    pub(super) fn add_lately(&mut self, more: Self) {
        self.add(more);
        if self.from > REMEMBERED_BYTES {
            *self = Self::of(self.from / 2, self.to / 2, self.took_ns / 2);
        }
    }

    /// The same for so many bytes.
    pub(super) fn scaled(self, from: u64) -> Self {
        let scaled = |sum: u64| u128::from(from) * u128::from(sum) / u128::from(self.from.max(1));
        let [to, took_ns] = [self.to, self.took_ns].map(|sum| scaled(sum).min(u64::MAX.into()));
        Self::of(from, to as u64, took_ns as u64)
    }

    /// True if it is as good as the other, or better.
    pub(super) fn is_as_good_as(self, other: Self, link: Option<Link>) -> bool {
        self.takes_off(other, 0, link)
    }

    /// True if it is better than the other by more than the least gain.
    pub(super) fn is_better_than(self, other: Self, link: Option<Link>) -> bool {
        self.takes_off(other, GAIN_PERCENT, link)
    }

    /// True if it takes off at least so much of what the other leaves.
    fn takes_off(self, other: Self, percent: u64, link: Option<Link>) -> bool {
        self.left(link) * 100.0 <= other.left(link) * (100 - percent) as f64
    }

    /// The bytes of the link for each original one. Where there is not the time to compress all that the link would carry,
    /// some has to go raw: so what takes longer leaves more, however small it makes what it gets.
    fn left(self, link: Option<Link>) -> f64 {
        let from = self.from.max(1) as f64;
        let point = CodecPoint::new(self.took_ns as f64 / from, self.to as f64 / from);
        match link {
            Some((bytes_per_s, processor)) if point.ratio > 0.0 => {
                bytes_per_s / processor.carried(bytes_per_s, point).rate
            }
            _ => point.ratio,
        }
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
    pub(super) fn add(&mut self, codec: u64, batch: Shrunk) {
        if self.latest.0 != codec {
            std::mem::swap(&mut self.latest, &mut self.earlier);
        }
        if self.latest.0 != codec {
            self.latest = (codec, Shrunk::default());
        }
        self.latest.1.add_lately(batch);
    }

    /// Counts what went raw beside the batches.
    pub(super) fn add_raw(&mut self, bytes: u64) {
        self.latest.1.add_lately(Shrunk::of(bytes, bytes, 0));
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
