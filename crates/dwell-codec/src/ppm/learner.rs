//! A model, and what it begins again from when its memory is full.

use super::history::History;
use super::model::{Damaged, Model};
use super::spec::PpmSpec;
use crate::range::{Coder, Nowhere, RangeDecoder, RangeEncoder};

/// What both ends have, and learn in the same way.
pub(super) struct Learner {
    model: Model,
    history: History,
}

impl Learner {
    pub(super) fn new(spec: PpmSpec) -> Self {
        let model = Model::new(spec.order, spec.memory_len());
        Self { model, history: History::new(spec.history_len()) }
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.model.clear();
        self.history.clear();
    }

    /// Forgets all, and is as [`new`](Self::new) makes it. Memory of the same length is kept.
    pub(super) fn renew(&mut self, spec: PpmSpec) {
        self.model.renew(spec.order, spec.memory_len());
        self.history.renew(spec.history_len());
    }

    /// Learns bytes.
    pub(super) fn learn(&mut self, bytes: &[u8]) {
        self.code(bytes, &mut Nowhere);
    }

    /// Codes a record, and learns it.
    pub(super) fn encode(&mut self, record: &[u8], out: &mut Vec<u8>) {
        let mut coder = RangeEncoder::new(out);
        self.code(record, &mut coder);
        coder.finish();
    }

    fn code<C: Coder>(&mut self, record: &[u8], coder: &mut C) {
        let mut kept = 0;
        for (at, &byte) in record.iter().enumerate() {
            self.model.encode(byte, coder);
            if self.model.take_restarted() {
                self.history.push(&record[kept..=at]);
                kept = at + 1;
                self.learn_again();
            }
        }
        self.history.push(&record[kept..]);
    }

    /// Decodes a record that is as long as `dst`, and learns it.
    pub(super) fn decode(&mut self, src: &[u8], dst: &mut [u8]) -> Result<(), Damaged> {
        let mut coder = RangeDecoder::new(src);
        let mut kept = 0;
        for at in 0..dst.len() {
            dst[at] = self.model.decode(&mut coder)?;
            if self.model.take_restarted() {
                self.history.push(&dst[kept..=at]);
                kept = at + 1;
                self.learn_again();
            }
        }
        self.history.push(&dst[kept..]);
        if coder.can_end() { Ok(()) } else { Err(Damaged) }
    }

    /// The model has forgotten all: learns what is remembered. If the memory is full before that is done,
    /// the model stays as empty as it is then.
    #[cold]
    fn learn_again(&mut self) {
        for &byte in self.history.parts().into_iter().flatten() {
            self.model.encode(byte, &mut Nowhere);
            if self.model.take_restarted() {
                return;
            }
        }
    }

    pub(super) fn may_learn_again(&self, bytes: usize) -> bool {
        self.model.may_fill(bytes)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.model.memory_bytes() + self.history.memory_bytes()
    }
}
