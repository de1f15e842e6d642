//! A batch on its way to the compressor in a context, and back.

use dwell_codec::{Base, CodecError, ContextEncoder, ContextSpec};

use super::super::env::Ticket;

/// How the batches of a generation refer to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Each to all before it.
    Running,
    /// Each to the base only. What is beyond the base stays in the ring, or does not.
    Alone { keeps: bool },
}

/// The generation of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Generation {
    pub(super) number: u64,
    pub(super) spec: ContextSpec,
    pub(super) base: Base,
    pub(super) kind: Kind,
}

impl Generation {
    pub(super) fn is_alone(&self) -> bool {
        matches!(self.kind, Kind::Alone { .. })
    }
}

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
    /// The context, and the generations as [`Outgoing`](super::outgoing::Outgoing) names them.
    pub(super) context: u8,
    pub(super) epoch: u64,
    pub(super) encoder: Box<ContextEncoder>,
    pub(super) generation: Generation,
    /// The generation begins with this batch.
    pub(super) begins: bool,
    pub(super) is_columnar: bool,
    pub(super) batch: Vec<u8>,
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

    fn compress(&mut self) -> Result<bool, CodecError> {
        let Generation { spec, base, kind, .. } = self.generation;
        let encoder = &mut self.encoder;
        match kind {
            _ if !self.begins => {}
            Kind::Running => encoder.begin(spec, base)?,
            Kind::Alone { keeps } => encoder.begin_alone(spec, base, keeps)?,
        }
        self.offset = encoder.offset();
        match kind {
            Kind::Running => encoder.compress(&self.batch, &mut self.out).map(|()| true),
            Kind::Alone { .. } => encoder.compress_alone(&self.batch, &mut self.out),
        }
    }

    /// Returns true if a generation begins from what went before, which takes up to milliseconds.
    pub fn primes(&self) -> bool {
        self.begins && self.generation.base.len > 0
    }

    /// Returns the length of the batch, in bytes.
    pub fn batch_len(&self) -> usize {
        self.batch.len()
    }
}
