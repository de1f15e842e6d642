//! Generations, and how they begin.

use std::sync::Arc;

use dwell_codec::{Base, CodecError, CodecId, ContextDictionary, ContextEncoder, ContextSpec};
use dwell_wire::{DictionaryName, Start, StartBase};

/// How the batches of a generation refer to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Each to all before it.
    Running,
    /// Each to the base only. What is beyond the base stays in the ring, or does not.
    Alone { keeps: bool },
}

/// A generation: the codec's settings, and the bytes that it begins from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Generation {
    pub(super) number: u64,
    pub(super) spec: ContextSpec,
    pub(super) base: Base,
    /// The dictionary whose end the base is; none if it is in the ring, or empty.
    pub(super) dictionary: Option<Arc<ContextDictionary>>,
    pub(super) kind: Kind,
}

impl Generation {
    /// None has begun yet.
    pub(super) fn none(spec: ContextSpec) -> Self {
        let (base, dictionary, kind) = (Base::default(), None, Kind::Running);
        Self { number: 0, spec, base, dictionary, kind }
    }

    /// Begins from as much of this base in the ring as the kind can have; from the dictionary if there is
    /// nothing in the ring, and there is one.
    pub(super) fn new(
        number: u64,
        (spec, kind): (ContextSpec, Kind),
        ring: Base,
        dictionary: Option<&Arc<ContextDictionary>>,
    ) -> Self {
        let len_max = match kind {
            Kind::Running => 1 << spec.window_log,
            Kind::Alone { .. } => spec.alone_base_len_max(),
        };
        match dictionary.filter(|_| ring.len == 0) {
            Some(dictionary) => {
                let len = dictionary.base(spec).len.min(len_max);
                let base = Base { offset: len.into(), len };
                Self { number, spec, base, dictionary: Some(Arc::clone(dictionary)), kind }
            }
            None => {
                let base = Base { len: ring.len.min(len_max), ..ring };
                Self { number, spec, base, dictionary: None, kind }
            }
        }
    }

    /// Returns true if it goes on with the ring of the one before.
    pub(super) fn keeps(&self) -> bool {
        self.kind == Kind::Alone { keeps: true }
    }

    pub(super) fn is_alone(&self) -> bool {
        matches!(self.kind, Kind::Alone { .. })
    }

    /// Begins the generation.
    pub(super) fn apply(&self, encoder: &mut ContextEncoder) -> Result<(), CodecError> {
        let Self { spec, base, .. } = *self;
        match (&self.dictionary, self.kind) {
            (Some(dictionary), Kind::Running) => encoder.begin_from(spec, dictionary, base.len),
            (Some(dictionary), _) => encoder.begin_alone_from(spec, dictionary, base.len),
            (None, Kind::Running) => encoder.begin(spec, base),
            (None, Kind::Alone { keeps }) => encoder.begin_alone(spec, base, keeps),
        }
    }

    /// What a batch says of it.
    pub(super) fn start(&self) -> Start {
        let Base { offset, len } = self.base;
        let base = match &self.dictionary {
            Some(dictionary) => StartBase::Dictionary { name: name_of(dictionary).short(), len },
            None => StartBase::Ring { offset, len },
        };
        Start { codec: CodecId::Zstd as u8, window_log: self.spec.window_log, base }
    }
}

/// Returns the dictionary's name in offers.
pub(super) fn name_of(dictionary: &ContextDictionary) -> DictionaryName {
    DictionaryName { len: dictionary.len(), hash: dictionary.name().to_be_bytes() }
}
