//! A batch on its way to the compressor in a context, and back.

use dwell_codec::ContextEncoder;

use super::super::env::Ticket;
use super::begin::Begin;

/// A batch to be compressed in a context. The context's encoder travels with it, so that another
/// thread can do it.
#[derive(Debug)]
pub struct ContextJob {
    /// Its name.
    pub ticket: Ticket,
    /// The time that it is expected to take, in nanoseconds.
    pub cost_ns: u64,
    /// The time that it took, in nanoseconds: whoever calls [`Self::run`] writes it down.
    pub took_ns: u64,
    /// The group of its packets.
    pub(super) group: u64,
    /// The context, and the generation as [`Outgoing`](super::outgoing::Outgoing) names it.
    pub(super) context: u8,
    pub(super) epoch: u64,
    pub(super) encoder: Box<ContextEncoder>,
    /// The generation that begins with this batch.
    pub(super) begin: Option<Begin>,
    pub(super) is_columnar: bool,
    pub(super) batch: Vec<u8>,
    /// The result, and whether there is one.
    pub(super) out: Vec<u8>,
    pub(super) is_done: bool,
}

impl ContextJob {
    /// Compresses the batch.
    pub fn run(&mut self) {
        self.out.clear();
        let begun = self.begin.as_ref().map_or(Ok(()), |begin| begin.apply(&mut self.encoder));
        let done = begun.and_then(|()| self.encoder.compress(&self.batch, &mut self.out));
        self.is_done = done.is_ok();
    }

    /// Returns true if a generation begins from other bytes, which takes up to milliseconds.
    pub fn primes(&self) -> bool {
        self.begin.as_ref().is_some_and(|begin| begin.base.len > 0)
    }

    /// Returns the length of the batch, in bytes.
    pub fn batch_len(&self) -> usize {
        self.batch.len()
    }
}
