//! What is compressed with what: the part in which the strategies differ.

use dwell_codec::CodecSpec;

use crate::config::Config;
use crate::press::Pressing;
use crate::strategy::Strategy;

/// The decisions of a strategy.
#[derive(Debug)]
pub(crate) enum Steering {
    Raw,
    All(CodecSpec),
    Mix(CodecSpec),
}

impl Steering {
    pub(crate) fn new(config: &Config) -> Self {
        match config.strategy {
            Strategy::Raw => Self::Raw,
            Strategy::All => Self::All(config.codec),
            _ => Self::Mix(config.codec),
        }
    }

    /// Whether a block that could still be compressed may go as it is, now that the link could
    /// take it.
    pub(crate) fn lets_raw_go(&self) -> bool {
        match self {
            Self::Raw | Self::Mix(_) => true,
            Self::All(_) => false,
        }
    }

    /// With what the next block is to be compressed, if at all.
    pub(crate) fn codec(&self) -> Option<CodecSpec> {
        match self {
            Self::Raw => None,
            Self::All(codec) | Self::Mix(codec) => Some(*codec),
        }
    }

    pub(crate) fn pressed(&mut self, _pressing: &Pressing) {}
}
