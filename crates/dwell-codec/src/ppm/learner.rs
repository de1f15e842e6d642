//! A model, and what it begins again from when its memory is full.

use super::history::History;
use super::model::Model;
use super::spec::PpmSpec;
use crate::model::{self, Damaged};
use crate::range::{BitCoder, Coder, Nowhere, RangeDecoder};

/// A model that begins again when its memory is full.
pub(crate) struct Learner {
    model: Model,
    history: History,
}

impl model::Learner for Learner {
    type Spec = PpmSpec;

    fn new(spec: PpmSpec) -> Self {
        let model = Model::new(spec.order, spec.memory_len());
        Self { model, history: History::new(spec.history_len()) }
    }

    fn clear(&mut self) {
        self.model.clear();
        self.history.clear();
    }

    fn renew(&mut self, spec: PpmSpec) {
        self.model.renew(spec.order, spec.memory_len());
        self.history.renew(spec.history_len());
    }

    #[inline(always)]
    fn code<C: Coder + BitCoder>(&mut self, record: &[u8], coder: &mut C) {
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

    #[inline(always)]
    fn restore(&mut self, coder: &mut RangeDecoder<'_>, dst: &mut [u8]) -> Result<(), Damaged> {
        let mut kept = 0;
        for at in 0..dst.len() {
            dst[at] = self.model.decode(coder)?;
            if self.model.take_restarted() {
                self.history.push(&dst[kept..=at]);
                kept = at + 1;
                self.learn_again();
            }
        }
        self.history.push(&dst[kept..]);
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        self.model.memory_bytes() + self.history.memory_bytes()
    }
}

impl Learner {
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

    /// Returns true if so many more bytes may fill the memory.
    pub(crate) fn may_learn_again(&self, bytes: usize) -> bool {
        self.model.may_fill(bytes)
    }
}
