//! The codec of a peer, as it is written.

use std::str::FromStr;

use dwell_base::Rate;
use dwell_codec::{CodecId, CodecSpec, MixSpec, ModelSpec, PPM_ORDER_MAX, PPM_ORDER_MIN, PpmSpec};
use toml::de::DeValue;

use super::{PeerConfig, value};

/// What has no model is compressed with this where a model is configured.
const BESIDE_MODELS: CodecSpec = CodecSpec { id: CodecId::Zstd, level: 6 };
/// Batches for models have so many bytes at most. Longer ones gain nothing, and a model takes tens of
/// microseconds for each kilobyte, at either end. Headers side by side may be a little longer than in a row.
const MODEL_BATCH_BYTES_MAX: u32 = 15 << 10;

/// Models are picked for links up to this rate, in bits a second. On faster ones they lack the time, and long batches
/// are cheaper.
const MODEL_RATE_BPS_MAX: u64 = 30_000_000;
/// The codec that is written for a picked one.
const AUTO: &str = "auto";
/// The highest level of zstd among those that are picked from.
pub(crate) const PICKED_LEVEL_MAX: i32 = 15;
/// What has no context then is compressed with this.
const BESIDE_PICKED: CodecSpec = CodecSpec { id: CodecId::Zstd, level: 1 };

/// A model of batches in contexts, as it is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelKind {
    /// Prediction by partial matching, with this order: see [`PPM_ORDER_MIN`] and [`PPM_ORDER_MAX`].
    Ppm(u8),
    /// Mixing of contexts.
    Mix,
}

impl ModelKind {
    /// Returns the time that it takes for a byte, in picoseconds, until that was measured.
    pub(crate) const fn assumed_ps_per_byte(self) -> u32 {
        match self {
            Self::Ppm(_) => 80_000,
            Self::Mix => 800_000,
        }
    }
}

/// A codec of packets; or the kind of a model for batches in contexts, or none for these, with the codec of
/// all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codec {
    /// The codec of what has no model, and is in no context whose codec is picked.
    pub spec: CodecSpec,
    /// The kind of the models, if that is the codec.
    pub model_kind: Option<ModelKind>,
    /// The codec is picked.
    pub picks: bool,
}

impl FromStr for Codec {
    type Err = String;

    /// Reads `lz4`, `zstd:6`, `ppm:6`, `mix` and the like; an error is a sentence.
    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.eq_ignore_ascii_case(AUTO) {
            return Ok(Self { spec: BESIDE_PICKED, model_kind: None, picks: true });
        }
        let (name, order) = match text.split_once(':') {
            Some((name, order)) => (name, Some(order)),
            None => (text, None),
        };
        if text.eq_ignore_ascii_case(CodecId::Mix.name()) {
            let model_kind = Some(ModelKind::Mix);
            return Ok(Self { spec: BESIDE_MODELS, model_kind, picks: false });
        }
        let ppm = CodecId::Ppm.name();
        if !name.eq_ignore_ascii_case(ppm) {
            let spec = text.parse();
            let spec =
                spec.map_err(|error| format!("{error}; or \"{ppm}\", \"mix\" or \"{AUTO}\""))?;
            return Ok(Self { spec, model_kind: None, picks: false });
        }
        let order = match order {
            None => Some(PpmSpec::default().order),
            Some(order) => order.parse().ok(),
        };
        let order = order.filter(|order| (PPM_ORDER_MIN..=PPM_ORDER_MAX).contains(order));
        let order = order.ok_or_else(|| {
            format!("\"{text}\" has no such order: it can be {PPM_ORDER_MIN} to {PPM_ORDER_MAX}")
        })?;
        Ok(Self { spec: BESIDE_MODELS, model_kind: Some(ModelKind::Ppm(order)), picks: false })
    }
}

pub(super) fn codec(value: &DeValue<'_>) -> Result<Codec, String> {
    value::parse(value, "zstd:1")
}

impl PeerConfig {
    /// Returns the model for batches in contexts, if that is the codec.
    pub fn model(&self) -> Option<ModelSpec> {
        let memory_log = self.model_memory_log;
        Some(match self.model_kind? {
            ModelKind::Ppm(order) => PpmSpec { order, memory_log }.into(),
            ModelKind::Mix => MixSpec { memory_log }.into(),
        })
    }

    /// Returns the codec as users write it.
    pub fn codec_name(&self) -> String {
        match self.model_kind {
            None if self.picks_codec => AUTO.to_owned(),
            None => self.codec.to_string(),
            Some(ModelKind::Mix) => CodecId::Mix.name().to_owned(),
            Some(ModelKind::Ppm(order)) if order == PpmSpec::default().order => {
                CodecId::Ppm.name().to_owned()
            }
            Some(ModelKind::Ppm(order)) => format!("{}:{order}", CodecId::Ppm),
        }
    }

    /// Returns true if what is in no context has a codec that is picked: papers' schemes go on with the one that is written.
    pub(crate) fn picks_alone(&self) -> bool {
        self.picks_codec && (self.scheme.has_contexts() || self.scheme_name == AUTO)
    }

    /// Returns true if batches may have a model, on a link of this rate.
    pub(crate) fn may_have_models(&self, rate: Option<Rate>) -> bool {
        let is_thin = rate.is_some_and(|rate| rate.as_bps() <= MODEL_RATE_BPS_MAX);
        self.model_kind.is_some() || self.picks_codec && is_thin
    }
}

/// Returns the most bytes of a batch, if they have to be short enough for models.
pub(crate) const fn batch_bytes_max(are_short: bool) -> u32 {
    if are_short { MODEL_BATCH_BYTES_MAX } else { u32::MAX }
}
