//! A model, and the records that it codes.

use super::model::Model;
use super::spec::MixSpec;
use crate::model::{self, Damaged};
use crate::range::{BitCoder, Coder, RangeDecoder};

/// A model with its settings.
pub(crate) struct Learner {
    spec: MixSpec,
    model: Model,
}

impl model::Learner for Learner {
    type Spec = MixSpec;

    fn new(spec: MixSpec) -> Self {
        Self { spec, model: Model::new(spec) }
    }

    fn clear(&mut self) {
        self.model.clear();
    }

    fn renew(&mut self, spec: MixSpec) {
        if spec == self.spec {
            self.model.clear();
        } else {
            *self = Self::new(spec);
        }
    }

    #[inline(always)]
    fn code<C: Coder + BitCoder>(&mut self, record: &[u8], coder: &mut C) {
        self.model.begin_record();
        for &byte in record {
            self.model.code(byte, coder);
        }
    }

    #[inline(always)]
    fn restore(&mut self, coder: &mut RangeDecoder<'_>, dst: &mut [u8]) -> Result<(), Damaged> {
        self.model.begin_record();
        for byte in dst {
            *byte = self.model.code(0, coder);
        }
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        self.model.memory_bytes()
    }
}
