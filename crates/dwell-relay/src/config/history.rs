//! The scope of contexts (`history`), and their size.

use dwell_codec::{
    CONTEXT_LOG_MAX, CONTEXT_LOG_MIN, CodecId, PPM_MEMORY_LOG_MAX, PPM_MEMORY_LOG_MIN,
};
use dwell_policy::{History, Reference, Scheme, Select};
use std::ops::RangeInclusive;
use toml::de::DeValue;

use super::{PeerConfig, Retransmit, batch_bytes_max, value};

/// The configured mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HistoryMode {
    /// By what the path does.
    #[default]
    Auto,
    /// Always running.
    Running,
    /// Always acknowledged, if the peer takes that.
    Acknowledged,
}

impl HistoryMode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Running, Self::Acknowledged];

    /// Returns the name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Running => "running",
            Self::Acknowledged => "acknowledged",
        }
    }

    /// Returns the mode of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

pub(super) fn mode(value: &DeValue<'_>) -> Result<HistoryMode, String> {
    let name = value.as_str().ok_or_else(|| {
        format!("must be a string such as \"auto\", not {}", value::describe(value))
    })?;
    HistoryMode::named(name).ok_or_else(|| {
        let names = HistoryMode::ALL.map(HistoryMode::name);
        format!(
            "there is no history mode \"{}\": {}",
            dwell_base::text::printable(name),
            dwell_base::text::suggest(name, &names).replace("the keys here are", "there are")
        )
    })
}

pub(super) fn history(value: &DeValue<'_>) -> Result<History, String> {
    named(value, &History::names().collect::<Vec<_>>())
}

/// A scope that is the same for all packets.
pub(super) fn fixed(value: &DeValue<'_>) -> Result<History, String> {
    named(value, &History::ALL.map(History::name))
}

fn named(value: &DeValue<'_>, names: &[&str]) -> Result<History, String> {
    let name = value.as_str().ok_or_else(|| {
        format!("must be a string such as \"host-pair\", not {}", value::describe(value))
    })?;
    History::named(name).filter(|found| names.contains(&found.name())).ok_or_else(|| {
        format!(
            "there is no history \"{}\": {}",
            dwell_base::text::printable(name),
            dwell_base::text::suggest(name, names).replace("the keys here are", "there are")
        )
    })
}

/// The logarithm of a window, which is a power of two.
pub(super) fn window_log(value: &DeValue<'_>) -> Result<u8, String> {
    power_of_two(value, CONTEXT_LOG_MIN..=CONTEXT_LOG_MAX)
}

/// The logarithm of a model's memory, which is a power of two.
pub(super) fn model_memory_log(value: &DeValue<'_>) -> Result<u8, String> {
    power_of_two(value, PPM_MEMORY_LOG_MIN..=PPM_MEMORY_LOG_MAX)
}

fn power_of_two(value: &DeValue<'_>, logs: RangeInclusive<u8>) -> Result<u8, String> {
    let bytes = value::size_bytes(value, 1 << logs.start()..=1 << logs.end())?;
    if !bytes.is_power_of_two() {
        let next = bytes.next_power_of_two() >> 10;
        return Err(format!("must be a power of two, such as \"{next}KiB\", not {bytes} bytes"));
    }
    Ok(bytes.trailing_zeros() as u8)
}

/// The most bytes that the windows of all contexts of a peer may have together. Both ends take a multiple of it.
const WINDOWS_BYTES_MAX: u64 = 256 << 20;

/// Checks that the contexts of a peer take no more memory than anybody wants to give to one.
pub(super) fn check_memory(config: &PeerConfig) -> Result<(), String> {
    let models = u64::from(config.models_max.min(config.contexts_max));
    let models_max = WINDOWS_BYTES_MAX >> config.model_memory_log;
    if models > models_max {
        return Err(format!(
            "{models} models of {} MiB each take too much memory: write models_max = {models_max}, or a smaller \
             model_memory",
            (1_u64 << config.model_memory_log) >> 20,
        ));
    }
    let (contexts, log) = (u64::from(config.contexts_max), config.context_window_log);
    let most = WINDOWS_BYTES_MAX >> log;
    if contexts <= most {
        return Ok(());
    }
    Err(format!(
        "{contexts} contexts of {} MiB each take too much memory: write contexts_max = {most}, or a smaller \
         context_window",
        (1_u64 << log) >> 20,
    ))
}

/// Checks that what is configured for batches in contexts has such.
pub(super) fn check_model(config: &PeerConfig) -> Result<(), String> {
    if config.model_kind.is_none() {
        return Ok(());
    }
    let codec = config.codec_name();
    if config.history == History::Off {
        return Err(format!(
            "\"{codec}\" predicts from what went before, and there is no history here: write scheme = \"auto\" \
             with history = \"auto\" and retransmit = \"auto\", or another codec"
        ));
    }
    if config.models_max == 0 {
        return Err(format!("\"{codec}\" needs models: write models_max = 1, or more"));
    }
    Ok(())
}

/// Returns the history of a peer and its scheme with that; or why it can't have the one that is
/// written. A scheme that is made for contexts has them if nothing is written.
pub(super) fn scheme(
    config: &PeerConfig,
    written: Option<History>,
) -> Result<(History, Scheme), String> {
    let history = match written {
        Some(history) => history,
        None if config.scheme.has_contexts() && refusal(config).is_none() => History::Auto,
        None => History::Off,
    };
    let mut scheme = config.scheme;
    let Some(scope) = history.gather() else {
        scheme.method.reference = Reference::Nothing;
        // Of a batch that is sent once any lost piece loses all.
        if let Select::Slack { bytes_max, .. } = &mut scheme.select
            && config.retransmit == Retransmit::Never
        {
            *bytes_max = config.blocks.bytes.min(*bytes_max);
        }
        return Ok((history, scheme));
    };
    let name = history.name();
    match &mut scheme.select {
        // Their queues know a flow by its group, which must not change.
        Select::Waiting { packets_max: 2.., .. } if history == History::Auto => {
            return Err(format!(
                "\"{name}\" needs scheme = \"auto\"; \"{}\" can have a fixed one: \"flow\", \"service\", \
                 \"host-pair\" or \"peer\"",
                config.scheme_name,
            ));
        }
        Select::Waiting { gather, packets_max: 2.., bytes_max, .. }
        | Select::Slack { gather, bytes_max, .. } => {
            *gather = scope;
            *bytes_max = batch_bytes_max(config.model_kind.is_some()).min(*bytes_max);
        }
        _ => {
            let packets = config.blocks.packets.map_or("", |_| " with block_packets");
            return Err(format!(
                "\"{name}\" needs a scheme that compresses together what waits, which \"{}\"{packets} \
                 does not: write scheme = \"auto\" (or \"flow\", \"service\", \"host-pair\", \
                 \"edge\" with block_packets = \"auto\"), or history = \"off\"",
                config.scheme_name,
            ));
        }
    }
    match refusal(config) {
        None => Ok((history, scheme.with_contexts())),
        Some(reason) => Err(format!("\"{name}\" {reason}, or history = \"off\"")),
    }
}

/// Returns why a peer can't have contexts, whatever its scheme.
pub(super) fn refusal(config: &PeerConfig) -> Option<String> {
    if config.codec.id != CodecId::Zstd {
        let codec = config.codec;
        return Some(format!(
            "needs zstd, since {codec} can't refer to what went before: write for instance codec = \
             \"zstd:6\""
        ));
    }
    let needed = "needs what was lost to be sent again: write retransmit = \"auto\"";
    (config.retransmit == Retransmit::Never).then(|| needed.to_owned())
}
