//! The beginning of a generation.

use std::sync::Arc;

use dwell_codec::{Base, CodecError, CodecId, ContextDictionary, ContextEncoder, ContextSpec};
use dwell_wire::{DictionaryName, Start, StartBase};

/// The codec's settings of a generation, and the bytes that it begins from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Begin {
    pub(super) spec: ContextSpec,
    pub(super) base: Base,
    /// The dictionary whose end the base is; none if it is in the ring, or empty.
    pub(super) dictionary: Option<Arc<ContextDictionary>>,
}

impl Begin {
    /// Begins from the ring; from the dictionary if there is nothing in the ring, and there is one.
    pub(super) fn new(
        spec: ContextSpec,
        ring: Base,
        dictionary: Option<&Arc<ContextDictionary>>,
    ) -> Self {
        match dictionary.filter(|_| ring.len == 0) {
            Some(dictionary) => {
                let base = dictionary.base(spec);
                Self { spec, base, dictionary: Some(Arc::clone(dictionary)) }
            }
            None => Self { spec, base: ring, dictionary: None },
        }
    }

    /// Begins the generation.
    pub(super) fn apply(&self, encoder: &mut ContextEncoder) -> Result<(), CodecError> {
        match &self.dictionary {
            Some(dictionary) => encoder.begin_from(self.spec, dictionary, self.base.len),
            None => encoder.begin(self.spec, self.base),
        }
    }

    /// What the first batch says of it.
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
