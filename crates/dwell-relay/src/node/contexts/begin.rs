//! Generations, and how they begin.

use std::sync::Arc;

use dwell_codec::{
    Base, CodecError, CodecId, ContextDictionary, ContextEncoder, ContextSpec, ModelSpec, Source,
};
use dwell_wire::{DictionaryName, Start, StartBase};

/// What batches are compressed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Coder {
    pub(super) zstd: ContextSpec,
    /// A model in place of zstd, in running generations.
    pub(super) model: Option<ModelSpec>,
}

impl Coder {
    /// Returns a number that no coder has which leaves other lengths.
    pub(super) fn name(&self) -> u64 {
        let level = 2 * self.zstd.level.unsigned_abs() + u32::from(self.zstd.level < 0);
        match self.model {
            Some(ModelSpec::Ppm(model)) => (1 << 32) + u64::from(model.order),
            Some(ModelSpec::Mix(_)) => 2 << 32,
            None => u64::from(level),
        }
    }
}

/// What is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// What batches are compressed with, ...
    pub(super) coder: Coder,
    /// ... unless it is picked, among models of this memory as well.
    pub(super) picks: bool,
    pub(super) memory_log: u8,
    /// Batches are short enough for models.
    pub(super) are_short: bool,
}

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
    pub(super) coder: Coder,
    pub(super) base: Base,
    /// The dictionary whose end the base is; none if it is in the ring, or empty.
    pub(super) dictionary: Option<Arc<ContextDictionary>>,
    pub(super) kind: Kind,
}

impl Generation {
    /// None has begun yet.
    pub(super) fn none(coder: Coder) -> Self {
        let (base, dictionary, kind) = (Base::default(), None, Kind::Running);
        Self { number: 0, coder, base, dictionary, kind }
    }

    /// Begins from as much of this base in the ring as the kind can have; from the dictionary if there is
    /// nothing in the ring, and there is one.
    pub(super) fn new(
        number: u64,
        (coder, kind): (Coder, Kind),
        ring: Base,
        dictionary: Option<&Arc<ContextDictionary>>,
    ) -> Self {
        let len_max = match kind {
            Kind::Running => match coder.model {
                Some(model) => model.prime_len_max() as u32,
                None => 1 << coder.zstd.window_log,
            },
            Kind::Alone { .. } => coder.zstd.alone_base_len_max(),
        };
        match dictionary.filter(|_| ring.len == 0) {
            Some(dictionary) => {
                let len = dictionary.base(coder.zstd).len.min(len_max);
                let base = Base { offset: len.into(), len };
                Self { number, coder, base, dictionary: Some(Arc::clone(dictionary)), kind }
            }
            None => {
                let base = Base { len: ring.len.min(len_max), ..ring };
                Self { number, coder, base, dictionary: None, kind }
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
        let Self { base, coder: Coder { zstd: spec, .. }, .. } = *self;
        let source = match &self.dictionary {
            Some(dictionary) => Source::Dictionary(dictionary, base.len),
            None => Source::Ring(base),
        };
        match (self.model(), self.kind) {
            (Some(model), _) => encoder.begin_model(model, source),
            (None, Kind::Running) => encoder.begin(spec, source),
            (None, Kind::Alone { keeps }) => encoder.begin_alone(spec, source, keeps),
        }
    }

    /// What a batch says of it.
    pub(super) fn start(&self) -> Start {
        let Base { offset, len } = self.base;
        let base = match &self.dictionary {
            Some(dictionary) => StartBase::Dictionary { name: name_of(dictionary).short(), len },
            None => StartBase::Ring { offset, len },
        };
        let (codec, window_log) = self.named();
        Start { codec: codec as u8, window_log, base }
    }

    /// Returns the model that it has: only batches that refer to all before them can.
    pub(super) fn model(&self) -> Option<ModelSpec> {
        self.coder.model.filter(|_| self.kind == Kind::Running)
    }

    /// Returns the codec, and the byte for its window or its model.
    fn named(&self) -> (CodecId, u8) {
        match self.model().and_then(|model| model.to_wire().ok()) {
            Some(named) => named,
            None => (CodecId::Zstd, self.coder.zstd.window_log),
        }
    }
}

/// Returns the dictionary's name in offers.
pub(super) fn name_of(dictionary: &ContextDictionary) -> DictionaryName {
    DictionaryName { len: dictionary.len(), hash: dictionary.name().to_be_bytes() }
}
