//! Settings of a sender.

use std::fmt;
use std::str::FromStr;

use dwell_codec::{
    CONTEXT_LOG_MAX, CONTEXT_LOG_MIN, CodecId, CodecSpec, ContextSpec, MixSpec, ModelSpec,
    PPM_MEMORY_LOG_MAX, PPM_MEMORY_LOG_MIN, ParseSpecError, PpmSpec, SRC_LEN_MAX,
};
use dwell_policy::method::Referring;
use serde::{Deserialize, Serialize};

use crate::aside::TRIAL_BYTES;
use crate::context::ContextLimits;
use crate::error::ConfigError;
use crate::strategy::Strategy;
use crate::tcpcomp::TcpCompConfig;

/// The shortest block, in bytes.
pub const BLOCK_LEN_MIN: usize = 4 << 10;
/// The longest block, in bytes.
pub const BLOCK_LEN_MAX: usize = SRC_LEN_MAX;
/// The largest buffer of a sender, in bytes.
pub const BUFFER_LEN_MAX: usize = 64 << 20;
/// The most blocks that may overtake another one.
pub(crate) const REORDER_MAX: u8 = 64;
/// Below this level of zstd, and with lz4, references to earlier blocks gain little.
const REFERRING_LEVEL_MIN: i32 = -1;
/// Above this level blocks that stand alone, or with a history, gain less than it takes.
pub(crate) const ALONE_LEVEL_MAX: i32 = 9;
/// The orders of models to choose from: a lower one leaves a little more, and takes a third less time.
const MODEL_ORDERS: [i32; 2] = [4, 6];
/// What a model has beside its memory, in bytes: what it learns again when that is full, and tables.
pub(crate) const MODEL_BESIDE_BYTES: u64 = 192 << 10;
/// The shortest segment: a header, and some payload.
pub(crate) const MSS_MIN: usize = 64;

/// What [`Strategy::Hull`] is to save.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Objective {
    /// Time: a block is compressed if it arrives sooner so.
    #[default]
    Time,
    /// Bytes, as on links that are paid for: each block that can be compressed is, on an idle link, too, and with
    /// what leaves less even where that carries up to four times fewer bytes a second.
    Bytes,
}

impl Objective {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Time, Self::Bytes];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Bytes => "bytes",
        }
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Objective {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|objective| objective.name() == text);
        known.ok_or_else(|| format!("\"{text}\" is no objective: there are time and bytes"))
    }
}

/// The settings of a [`Sender`](crate::Sender). Begin with [`Config::new`] and change fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Config {
    /// The way of deciding.
    pub strategy: Strategy,
    /// What [`Strategy::Hull`] is to save; others save what they save. Default time.
    pub objective: Objective,
    /// The codec of the strategies that have one. Default `zstd:1`; those in segments `deflate:6`.
    pub codec: CodecSpec,
    /// The codecs among which [`Strategy::Hull`] chooses, in any order.
    pub codecs: Vec<CodecSpec>,
    /// The bytes that are compressed at once: a power of two from 4 KiB to 64 KiB. Default 64 KiB:
    /// unlike the 32 KiB that Pu and Singaravelu found best, as today's codecs have larger windows.
    pub block_len: usize,
    /// The most bytes that wait in the sender. Default 256 KiB, at least two blocks. A stream with a running context that is to
    /// have much more ([`Sender::expect_bulk`](crate::Sender::expect_bulk)) has 1 MiB, or as much as the context's window if that is less.
    pub buffer_len: usize,
    /// The payload of a TCP segment in bytes, for the strategies in segments. Default 1448.
    pub mss: usize,
    /// The number of blocks that may overtake one that is being compressed, up to 64, for
    /// [`Strategy::MixOutOfOrder`]. The receiver holds them. Default 16.
    pub reorder_max: u8,
    /// True if [`Strategy::Hull`] may let blocks refer to the 128 KiB before them, where that
    /// carries more: a tenth less on prose and programs, for a third to a half more work. Both ends
    /// hold 192 KiB more then. Default true.
    pub history: bool,
    /// True if what blocks refer to is held while nothing waits, too, so that an answer may refer to the
    /// one before it; at both ends. Otherwise an idle stream holds nothing, and once in a second neither does one that is
    /// busy. Default true.
    pub idle_history: bool,
    /// The binary logarithm of the window of a running context, 15 to 23, to which [`Strategy::Hull`] may let blocks
    /// refer instead of to a history: so also repetitions megabytes ago are found, at less work, but all at one level
    /// at a time. [`Config::context_bytes_max`] says what it takes at this end; the receiver has to accept it
    /// ([`Limits::window_log`](crate::Limits::window_log)). Default 0: none.
    pub window_log: u8,
    /// The binary logarithm of the memory, in bytes, of a model (`ppm`) that [`Strategy::Hull`] may let the running
    /// context be in place of zstd's frame, 20 to 26: it predicts each byte from those before it, takes both ends tens
    /// of nanoseconds for each, and leaves a tenth to a quarter less of text. It takes a window beside it, and the receiver
    /// has to accept it ([`Limits::model_log`](crate::Limits::model_log)). Default 0: none.
    pub model_log: u8,
    /// True if such a model may be of the codec `mix`, too, which leaves a tenth less than `ppm` and takes both ends up to ten times as long, about
    /// a microsecond for each byte; for a receiver that accepts it ([`Limits::mixed_models`](crate::Limits::mixed_models)). Set it before
    /// [`Config::set_model`], which adds it to the codecs. Default false.
    pub mixed_models: bool,
    /// True if a stream that has a history may get a running context in its place on the way, when its receiver grants one
    /// ([`Receiver::grant`](crate::Receiver::grant), [`Sender::get_context`](crate::Sender::get_context)); for a receiver that
    /// knows that. Default false.
    pub may_get_context: bool,
    /// The settings of [`Strategy::TcpComp`].
    pub tcpcomp: TcpCompConfig,
}

impl Config {
    /// Returns the defaults of a strategy.
    pub fn new(strategy: Strategy) -> Self {
        let id = if strategy.is_segmented() { CodecId::Deflate } else { CodecId::Zstd };
        Self {
            strategy,
            objective: Objective::Time,
            codec: CodecSpec::with_default_level(id),
            codecs: hull_codecs(),
            block_len: 64 << 10,
            buffer_len: 256 << 10,
            mss: 1448,
            reorder_max: 16,
            history: true,
            idle_history: true,
            window_log: 0,
            model_log: 0,
            mixed_models: false,
            may_get_context: false,
            tcpcomp: TcpCompConfig::default(),
        }
    }

    /// Returns the settings of a stream that has got a running context.
    pub(crate) fn with_context(&self, limits: ContextLimits) -> Self {
        let mut config = Self { may_get_context: false, ..self.clone() };
        config.set_window(limits.window_log);
        config.set_model(limits.model_log);
        config
    }

    /// Sets the codec: for the strategies with one codec that one, for [`Strategy::Hull`] the only
    /// one.
    ///
    /// # Errors
    /// If the text names no codec of this build.
    pub fn set_codec(&mut self, text: &str) -> Result<(), ParseSpecError> {
        self.codec = text.parse()?;
        self.codecs = vec![self.codec];
        Ok(())
    }

    /// Returns the most unsent bytes that the transport should hold at first, for
    /// `TCP_NOTSENT_LOWAT`. Half of [`Config::buffer_len`]: bytes that TCP holds can't be
    /// compressed any more, and with less it would run empty while a full buffer is compressed.
    /// Fast links need more: [`Sender::not_sent_len`](crate::Sender::not_sent_len) returns how
    /// much.
    pub const fn not_sent_len(&self) -> u32 {
        // A buffer that `check` lets pass is no longer than 64 MiB.
        (self.buffer_len / 2) as u32
    }

    /// Checks that the configuration is possible.
    ///
    /// # Errors
    /// The field that is out of range, or the codec that is not there.
    pub fn check(&self) -> Result<(), ConfigError> {
        let block_len = self.block_len;
        if !block_len.is_power_of_two() || !(BLOCK_LEN_MIN..=BLOCK_LEN_MAX).contains(&block_len) {
            return Err(ConfigError::BlockLen(block_len));
        }
        let buffer_len = self.buffer_len;
        if !(2 * block_len..=BUFFER_LEN_MAX).contains(&buffer_len) {
            return Err(ConfigError::BufferLen { buffer_len, block_len });
        }
        if self.mss < MSS_MIN {
            return Err(ConfigError::Mss(self.mss));
        }
        check_window(self.window_log)?;
        check_model(self.model_log)?;
        if self.model_log != 0 && self.window_log == 0 {
            return Err(ConfigError::Model(self.model_log));
        }
        if self.reorder_max > REORDER_MAX {
            return Err(ConfigError::Reorder(self.reorder_max));
        }
        if !(1..=SRC_LEN_MAX).contains(&self.tcpcomp.target_len) {
            return Err(ConfigError::TargetLen(self.tcpcomp.target_len));
        }
        self.codec.check()?;
        if self.codecs.is_empty() {
            return Err(ConfigError::NoCodecs);
        }
        for codec in &self.codecs {
            self.check_codec(*codec)?;
        }
        Ok(())
    }

    fn check_codec(&self, codec: CodecSpec) -> Result<(), ConfigError> {
        match model(codec, self.model_log) {
            None => drop(codec.check()?),
            Some(_) if self.model_log == 0 => return Err(ConfigError::Model(0)),
            Some(ModelSpec::Mix(_)) if !self.mixed_models => return Err(ConfigError::Mixed),
            // It has no levels.
            Some(ModelSpec::Mix(_)) if codec.level != 1 => drop(codec.check()?),
            Some(model) => drop(model.check()?),
        }
        Ok(())
    }

    /// Sets the window of the running context, and adds the levels of zstd to choose from that only that makes
    /// worthwhile; unless the codecs were set to others than the default ones.
    pub fn set_window(&mut self, window_log: u8) {
        self.window_log = window_log;
        if window_log > 0 && self.codecs == hull_codecs() {
            self.codecs = context_codecs();
        }
    }

    /// Sets the memory of a model, for a context whose window was set before, and adds it to the codecs to choose from;
    /// unless these were set to others than the default ones.
    pub fn set_model(&mut self, model_log: u8) {
        self.model_log = model_log;
        if model_log > 0 && self.codecs == context_codecs() {
            self.codecs.extend(MODEL_ORDERS.map(|level| CodecSpec { id: CodecId::Ppm, level }));
            if self.mixed_models {
                self.codecs.push(CodecSpec::with_default_level(CodecId::Mix));
            }
        }
    }

    /// Returns the codecs to choose from if none are named, with this window and this model.
    pub(crate) fn default_codecs(&self) -> Vec<CodecSpec> {
        let mut defaults = Self::new(self.strategy);
        defaults.mixed_models = self.mixed_models;
        defaults.set_window(self.window_log);
        defaults.set_model(self.model_log);
        defaults.codecs
    }

    /// Returns true if the stream may get a running context on the way.
    pub(crate) fn gets_context(&self) -> bool {
        let refers = self.codecs.iter().any(|&codec| self.may_refer(codec));
        self.may_get_context && refers && self.window_log == 0
    }

    /// Returns the memory of the model that a running context may be; 0 if it is not to be one.
    pub(crate) fn model_log_used(&self) -> u8 {
        let is_model = |codec: &CodecSpec| codec.is_model() && self.may_refer(*codec);
        if self.codecs.iter().any(is_model) { self.model_log } else { 0 }
    }

    /// Returns the most memory that a running context takes at this end, in bytes; 0 if there is none.
    pub fn context_bytes_max(&self) -> u64 {
        let continuing = self.codecs.iter().filter(|codec| self.referring(**codec).continues());
        let window_log = self.window_log;
        let of_zstd = |level| ContextSpec { level, window_log }.encoder_bytes_max();
        let bytes = continuing.map(|codec| match codec.id {
            CodecId::Ppm | CodecId::Mix => of_zstd(1),
            _ => of_zstd(codec.level),
        });
        let of_model = match self.model_log_used() {
            0 => 0,
            // Both are there for a moment when one begins after the other.
            model_log => (1 << model_log) + MODEL_BESIDE_BYTES,
        };
        let of_trial = match of_model > 0 && self.codecs.iter().any(|it| it.id == CodecId::Mix) {
            true => TRIAL_BYTES,
            false => 0,
        };
        // A base may be as long as the window, four MiB at most.
        bytes.max().map_or(0, |bytes| bytes + (3 << 20) + of_model + of_trial)
    }

    /// Returns true if blocks that are compressed with this codec may refer to earlier ones: if the
    /// gain is worth the time.
    pub fn may_refer(&self, codec: CodecSpec) -> bool {
        self.referring(codec) != Referring::Never
    }

    /// Returns what blocks that are compressed with this codec may refer to.
    pub(crate) fn referring(&self, codec: CodecSpec) -> Referring {
        let pays = codec.id == CodecId::Zstd && codec.level >= REFERRING_LEVEL_MIN;
        match self.strategy {
            Strategy::Hull if codec.is_model() => match (self.window_log > 0, codec.id) {
                (true, CodecId::Mix) => Referring::PredictsSlowly,
                (true, _) => Referring::Predicts,
                (false, _) => Referring::Never,
            },
            Strategy::Hull if pays && self.window_log > 0 => match codec.level > ALONE_LEVEL_MAX {
                true => Referring::OnlyContinues,
                false => Referring::Continues,
            },
            Strategy::Hull if pays && self.history => Referring::Rereads,
            _ => Referring::Never,
        }
    }

    /// Returns the codecs that the stream may contain.
    pub(crate) fn codecs_used(&self) -> Vec<CodecSpec> {
        match self.strategy {
            Strategy::Raw | Strategy::Plain => Vec::new(),
            Strategy::Hull => self.codecs.clone(),
            _ => vec![self.codec],
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::new(Strategy::default())
    }
}

/// Checks the window of a running context, of either end.
pub(crate) fn check_window(window_log: u8) -> Result<(), ConfigError> {
    match window_log {
        0 | CONTEXT_LOG_MIN..=CONTEXT_LOG_MAX => Ok(()),
        _ => Err(ConfigError::Window(window_log)),
    }
}

/// Checks the memory of a model, of either end.
pub(crate) fn check_model(model_log: u8) -> Result<(), ConfigError> {
    match model_log {
        0 | PPM_MEMORY_LOG_MIN..=PPM_MEMORY_LOG_MAX => Ok(()),
        _ => Err(ConfigError::Model(model_log)),
    }
}

/// Returns the codecs on the hull of speed and ratio for most data: lz4, and levels of zstd that
/// are some factor apart in speed; and deflate, which does better on columns of numbers.
fn hull_codecs() -> Vec<CodecSpec> {
    let zstd = |level| CodecSpec { id: CodecId::Zstd, level };
    let mut codecs = vec![CodecSpec::with_default_level(CodecId::Lz4)];
    codecs.extend([-5, -1, 1, 3, 6, 9].map(zstd));
    codecs.push(CodecSpec::with_default_level(CodecId::Deflate));
    codecs
}

/// The same, and the levels of zstd that only a running context makes worthwhile.
fn context_codecs() -> Vec<CodecSpec> {
    let heavy = [12, 15, 19].map(|level| CodecSpec { id: CodecId::Zstd, level });
    hull_codecs().into_iter().chain(heavy).collect()
}

/// Returns the model of a codec with so much memory, if it is one of models; the level of ppm is its order.
pub(crate) fn model(codec: CodecSpec, memory_log: u8) -> Option<ModelSpec> {
    let order = u8::try_from(codec.level).unwrap_or(0);
    match codec.id {
        CodecId::Ppm => Some(PpmSpec { order, memory_log }.into()),
        CodecId::Mix => Some(MixSpec { memory_log }.into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_possible() {
        for strategy in Strategy::ALL {
            assert_eq!(Config::new(strategy).check(), Ok(()), "{strategy}");
        }
    }

    #[test]
    fn the_transport_holds_half_of_what_the_sender_may() {
        let mut config = Config::default();
        assert_eq!(config.not_sent_len(), 128 << 10);
        config.buffer_len = BUFFER_LEN_MAX;
        assert_eq!(config.not_sent_len(), 32 << 20);
    }

    #[test]
    fn what_is_out_of_range_is_reported() {
        let reported = |change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            config.check().unwrap_err().to_string()
        };
        assert!(reported(|c| c.block_len = 5000).contains("power of two from 4096 to 65536"));
        assert!(reported(|c| c.block_len = 1 << 17).contains("power of two"));
        assert!(reported(|c| c.buffer_len = 100).contains("two blocks (131072 bytes)"));
        assert!(reported(|c| c.mss = 10).contains("at least 64"));
        assert!(reported(|c| c.reorder_max = 65).contains("at most 64"));
        assert!(reported(|c| c.codecs.clear()).contains("at least one"));
        assert!(reported(|c| c.codec.level = 99).contains("no level 99"));
    }
}
