//! A batch on its way to the compressor in a context, and back.

use dwell_codec::{CodecError, ContextEncoder};
use dwell_wire::Headers;

use super::super::env::Ticket;
use super::begin::Generation;
use super::codec::assumed_ns;

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Made {
    /// It is compressed.
    Done,
    /// It stands alone and did not become smaller: the context is as it was.
    NotSmaller,
    Failed,
}

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
    /// The time that passed meanwhile, in nanoseconds, if `took_ns` is only that of the processor.
    pub elapsed_ns: Option<u64>,
    /// The group of its packets.
    pub(super) group: u64,
    /// The context, and the generations as [`Outgoing`](super::outgoing::Outgoing) names them.
    pub(super) context: u8,
    pub(super) epoch: u64,
    pub(super) encoder: Box<ContextEncoder>,
    pub(super) generation: Generation,
    /// The generation begins with this batch.
    pub(super) begins: bool,
    pub(super) headers: Headers,
    pub(super) batch: Vec<u8>,
    /// The bytes of its packets, which it has fewer of if their headers are predicted.
    pub(super) packets_bytes: u64,
    /// The result, what became of it, and the place of the batch in the ring.
    pub(super) out: Vec<u8>,
    pub(super) made: Made,
    pub(super) offset: u64,
}

impl ContextJob {
    /// Compresses the batch.
    pub fn run(&mut self) {
        self.out.clear();
        self.made = match self.compress() {
            Ok(true) => Made::Done,
            Ok(false) => Made::NotSmaller,
            Err(_) => Made::Failed,
        };
    }

    /// The same in virtual time: what it takes is assumed, by its codec.
    pub fn run_in_no_time(&mut self) {
        self.run();
        let primed = if self.begins { self.generation.base.len as usize } else { 0 };
        let bytes = (self.batch.len() + primed) as f64;
        self.took_ns = (assumed_ns(self.generation.coder) * bytes) as u64;
    }

    fn compress(&mut self) -> Result<bool, CodecError> {
        let encoder = &mut self.encoder;
        if self.begins {
            self.generation.apply(encoder)?;
        }
        self.offset = encoder.offset();
        if self.generation.is_alone() {
            return encoder.compress_alone(&self.batch, &mut self.out);
        }
        encoder.compress(&self.batch, &mut self.out).map(|()| true)
    }

    /// Returns true if a generation begins with it.
    pub fn begins(&self) -> bool {
        self.begins
    }

    /// Returns true if a generation begins from other bytes, which takes up to milliseconds.
    pub fn primes(&self) -> bool {
        self.begins && self.generation.base.len > 0
    }

    /// Returns true if it may take milliseconds beside compressing: so does a model that learns again as its memory is full.
    pub fn may_take_long(&self) -> bool {
        self.primes() || !self.begins && self.encoder.may_learn_again(self.batch.len())
    }

    /// Returns the length of the batch, in bytes.
    pub fn batch_len(&self) -> usize {
        self.batch.len()
    }
}
