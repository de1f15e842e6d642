//! What both ends have, and learn in the same way.

use super::ModelSpec;
use crate::range::{BitCoder, Coder, Nowhere, RangeDecoder, RangeEncoder};
use crate::{mix, ppm};

/// No encoder has written that.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Damaged;

/// A model of one kind: it learns what it codes.
///
/// What has loops over bytes is compiled once for each kind and coder, with that in registers: as a part of something larger, mix
/// compresses a twentieth slower.
pub(crate) trait Learner {
    /// What it is made by.
    type Spec;

    fn new(spec: Self::Spec) -> Self;

    /// Forgets all.
    fn clear(&mut self);

    /// Forgets all, and is as [`new`](Self::new) makes it. Memory of the same length is kept.
    fn renew(&mut self, spec: Self::Spec);

    /// Codes a record.
    fn code<C: Coder + BitCoder>(&mut self, record: &[u8], coder: &mut C);

    /// Finds out the record that was coded, which is as long as `dst`.
    fn restore(&mut self, coder: &mut RangeDecoder<'_>, dst: &mut [u8]) -> Result<(), Damaged>;

    fn memory_bytes(&self) -> usize;

    /// Learns bytes as a record.
    #[inline(never)]
    fn learn(&mut self, bytes: &[u8]) {
        self.code(bytes, &mut Nowhere);
    }

    #[inline(never)]
    fn encode(&mut self, record: &[u8], out: &mut Vec<u8>) {
        let mut coder = RangeEncoder::new(out);
        self.code(record, &mut coder);
        coder.finish();
    }

    #[inline(never)]
    fn decode(&mut self, src: &[u8], dst: &mut [u8]) -> Result<(), Damaged> {
        let mut coder = RangeDecoder::new(src);
        self.restore(&mut coder, dst)?;
        if coder.can_end() { Ok(()) } else { Err(Damaged) }
    }
}

/// A model of either kind. Which it is is asked once for each record.
pub(super) enum AnyLearner {
    Ppm(Box<ppm::Learner>),
    Mix(Box<mix::Learner>),
}

/// The same of a model of either kind.
macro_rules! of_either {
    ($any:expr, $model:ident => $result:expr) => {
        match $any {
            AnyLearner::Ppm($model) => $result,
            AnyLearner::Mix($model) => $result,
        }
    };
}

impl AnyLearner {
    pub(super) fn new(spec: ModelSpec) -> Self {
        match spec {
            ModelSpec::Ppm(spec) => Self::Ppm(Box::new(ppm::Learner::new(spec))),
            ModelSpec::Mix(spec) => Self::Mix(Box::new(mix::Learner::new(spec))),
        }
    }

    pub(super) fn clear(&mut self) {
        of_either!(self, model => model.clear());
    }

    pub(super) fn renew(&mut self, spec: ModelSpec) {
        match (&mut *self, spec) {
            (Self::Ppm(model), ModelSpec::Ppm(spec)) => model.renew(spec),
            (Self::Mix(model), ModelSpec::Mix(spec)) => model.renew(spec),
            _ => *self = Self::new(spec),
        }
    }

    pub(super) fn learn(&mut self, bytes: &[u8]) {
        of_either!(self, model => model.learn(bytes));
    }

    pub(super) fn encode(&mut self, record: &[u8], out: &mut Vec<u8>) {
        of_either!(self, model => model.encode(record, out));
    }

    pub(super) fn decode(&mut self, src: &[u8], dst: &mut [u8]) -> Result<(), Damaged> {
        of_either!(self, model => model.decode(src, dst))
    }

    pub(super) fn may_learn_again(&self, bytes: usize) -> bool {
        matches!(self, Self::Ppm(model) if model.may_learn_again(bytes))
    }

    pub(super) fn memory_bytes(&self) -> usize {
        of_either!(self, model => size_of_val(&**model) + model.memory_bytes())
    }
}
