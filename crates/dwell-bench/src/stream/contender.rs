//! The contenders: our strategies, and other programs.

use std::fmt;

use dwell_stream::{Config, Strategy};

use super::pipes::Pipe;
use super::record::Setting;

/// A way of getting bytes across.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Contender {
    /// One of ours; also plain TCP, written segment by segment.
    Stream(Box<Config>),
    /// Plain TCP, written as programs do: as much as it takes.
    Tcp(Setting),
    /// Another program's.
    Pipe(Pipe),
}

impl Contender {
    /// TCP in segments, as those strategies that fill segments.
    pub(super) fn plain_in_segments(setting: Setting) -> Self {
        Self::Stream(Box::new(setting.config(Strategy::Plain)))
    }

    /// The codec, if it has one and no more.
    pub(super) fn codec(&self) -> Option<String> {
        match self {
            Self::Stream(config) if has_codec(config.strategy) => Some(config.codec.to_string()),
            _ => None,
        }
    }
}

fn has_codec(strategy: Strategy) -> bool {
    !matches!(strategy, Strategy::Raw | Strategy::Plain | Strategy::Hull)
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream(config) if has_codec(config.strategy) => {
                write!(f, "{}/{}", config.strategy, config.codec)
            }
            Self::Stream(config) => config.strategy.fmt(f),
            Self::Tcp(_) => Strategy::Plain.fmt(f),
            Self::Pipe(pipe) => f.write_str(pipe.name()),
        }
    }
}
