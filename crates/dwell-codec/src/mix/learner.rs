//! A model, and the records that it codes.

use super::model::Model;
use super::spec::MixSpec;
use crate::range::{BitCoder, Nowhere, RangeDecoder, RangeEncoder};

/// What both ends have, and learn in the same way.
pub(super) struct Learner {
    spec: MixSpec,
    model: Model,
}

/// No encoder has written that.
pub(super) struct Damaged;

impl Learner {
    pub(super) fn new(spec: MixSpec) -> Self {
        Self { spec, model: Model::new(spec) }
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.model.clear();
    }

    /// Forgets all, and is as [`new`](Self::new) makes it. Memory of the same length is kept.
    pub(super) fn renew(&mut self, spec: MixSpec) {
        if spec == self.spec {
            self.model.clear();
        } else {
            *self = Self::new(spec);
        }
    }

    pub(super) fn spec(&self) -> MixSpec {
        self.spec
    }

    /// Learns bytes as a record.
    pub(super) fn learn(&mut self, bytes: &[u8]) {
        self.code(bytes, &mut Nowhere);
    }

    /// Codes a record, and learns it.
    pub(super) fn encode(&mut self, record: &[u8], out: &mut Vec<u8>) {
        let mut coder = RangeEncoder::new(out);
        self.code(record, &mut coder);
        coder.finish();
    }

    fn code<C: BitCoder>(&mut self, record: &[u8], coder: &mut C) {
        self.model.begin_record();
        for &byte in record {
            self.model.code(byte, coder);
        }
    }

    /// Decodes a record that is as long as `dst`, and learns it.
    pub(super) fn decode(&mut self, src: &[u8], dst: &mut [u8]) -> Result<(), Damaged> {
        let mut coder = RangeDecoder::new(src);
        self.model.begin_record();
        for byte in dst {
            *byte = self.model.code(0, &mut coder);
        }
        if coder.can_end() { Ok(()) } else { Err(Damaged) }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.model.memory_bytes()
    }
}
