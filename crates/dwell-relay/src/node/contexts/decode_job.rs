//! A batch whose decoding takes long, on its way to a thread and back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dwell_codec::{Base, ContextDecoder, ContextDictionary, ModelSpec, Source};
use dwell_wire::Headers;

use crate::node::allowance::Allowance;

/// The base of a generation that begins elsewhere.
#[derive(Debug)]
pub(super) enum OwnedSource {
    Ring(Base),
    Dictionary(Arc<ContextDictionary>, u32),
}

impl OwnedSource {
    fn borrowed(&self) -> Source<'_> {
        match self {
            Self::Ring(base) => Source::Ring(*base),
            Self::Dictionary(dictionary, len) => Source::Dictionary(dictionary, *len),
        }
    }
}

/// Cancels the jobs that were given it, once it is dropped: a peer that begins sessions one after another must not
/// have threads work for those before.
#[derive(Debug, Default)]
pub(super) struct Cancel(Arc<AtomicBool>);

impl Drop for Cancel {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decoded {
    /// The batch is restored.
    Done,
    /// The generation could not begin from its base.
    NoBase,
    /// The batch is damaged.
    Damaged,
}

/// A batch to be decoded in a context. The context's decoder travels with it, so that another thread can
/// do it; what comes of the context meanwhile waits.
#[derive(Debug)]
pub struct DecodeJob {
    /// The peer that it came from, and which of those that had this index.
    pub peer: usize,
    pub(super) peer_generation: u64,
    /// The time that it is expected to take, in nanoseconds.
    pub cost_ns: u64,
    /// The processor time that it took, in nanoseconds: whoever calls [`Self::run`] writes it down, if it is known.
    pub took_ns: u64,
    pub(super) context: u8,
    /// Names the departure: the context may have begun again meanwhile.
    pub(super) serial: u64,
    pub(super) decoder: Box<ContextDecoder>,
    /// A generation begins with it, with this model, from these bytes.
    pub(super) begins: Option<(ModelSpec, OwnedSource)>,
    pub(super) headers: Headers,
    pub(super) data: Vec<u8>,
    /// As long as the batch.
    pub(super) out: Vec<u8>,
    pub(super) packets_left: Allowance,
    pub(super) decoded: Decoded,
    /// Nobody waits for it any more.
    pub(super) is_cancelled: Arc<AtomicBool>,
}

impl DecodeJob {
    pub(super) fn cancelled_by(mut self: Box<Self>, cancel: &Cancel) -> Box<Self> {
        self.is_cancelled = Arc::clone(&cancel.0);
        self
    }

    /// Returns true if nobody waits for it any more.
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    /// Decodes the batch, if somebody waits for it.
    pub fn run(&mut self) {
        if self.is_cancelled() {
            return;
        }
        self.decoded = self.decode();
    }

    fn decode(&mut self) -> Decoded {
        if let Some((model, source)) = &self.begins
            && self.decoder.begin_model(*model, source.borrowed()).is_err()
        {
            return Decoded::NoBase;
        }
        match self.decoder.decode(&self.data, &mut self.out) {
            Ok(()) => Decoded::Done,
            Err(_) => Decoded::Damaged,
        }
    }
}
