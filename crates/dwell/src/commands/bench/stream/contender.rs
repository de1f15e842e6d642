//! Who takes part: our strategies, and what others offer.

use std::fmt;

use dwell_stream::{Config, Strategy};

use super::pipes::Pipe;
use super::record::Setting;

/// A way of getting bytes across.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Contender {
    /// One of ours, plain TCP included.
    Stream(Box<Config>),
    /// Another program's.
    Pipe(Pipe),
}

impl Contender {
    /// TCP as it is, with as much in its buffers as the others have.
    pub(super) fn plain(setting: Setting) -> Self {
        let mut config = Config::new(Strategy::Plain);
        config.block_len = setting.block_bytes;
        config.buffer_len = setting.buffer_bytes;
        Self::Stream(Box::new(config))
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
            Self::Pipe(pipe) => f.write_str(pipe.name()),
        }
    }
}
