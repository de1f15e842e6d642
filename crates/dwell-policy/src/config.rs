//! The point in the design space that a port is at.

use dwell_base::Rate;
use dwell_base::time::MILLI_NS;
use thiserror::Error;

use crate::backoff::BackOffConfig;
use crate::estimate::{Estimates, LearnedConfig};
use crate::packet::ClassKey;

/// What is pressed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gather {
    /// Each packet by itself.
    Packet,
}

/// What must happen before a gathered unit is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trigger {
    /// Nothing: a unit is complete at once and no packet is ever held back.
    Immediate,
}

/// How waiting packets are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Queues {
    /// One queue, first in, first out.
    One,
}

/// When a unit is pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Press {
    /// Never.
    Never,
    /// Whenever it is not pressed yet.
    Always,
    /// When its waiting time suffices: Eq. (2).
    WaitingTime,
}

/// Which traffic is left alone because pressing it brings nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Skip {
    /// None but the exception list.
    None,
    /// What was learned to be incompressible, with rare retries. Needs
    /// [`Estimates::Learned`]; with fixed estimates there is nothing to learn.
    BackOff(BackOffConfig),
}

/// A scheme: one value on each axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheme {
    /// What is pressed together.
    pub gather: Gather,
    /// When a gathered unit is closed.
    pub trigger: Trigger,
    /// How waiting packets are ordered.
    pub queues: Queues,
    /// When a unit is pressed.
    pub press: Press,
    /// What is left alone.
    pub skip: Skip,
}

/// The names of the presets, in the order in which tables show them.
pub const PRESETS: [&str; 3] = ["none", "all", "packet"];

impl Scheme {
    const BASE: Self = Self {
        gather: Gather::Packet,
        trigger: Trigger::Immediate,
        queues: Queues::One,
        press: Press::Never,
        skip: Skip::None,
    };

    /// Relay only, press nothing.
    pub const fn none() -> Self {
        Self::BASE
    }

    /// Press every packet, at whatever cost (the paper's all-compression scheme).
    pub const fn all() -> Self {
        Self { press: Press::Always, ..Self::BASE }
    }

    /// Press a packet if its waiting time suffices (the paper's proposed scheme), and leave
    /// alone what turned out to be incompressible.
    pub fn packet() -> Self {
        Self {
            press: Press::WaitingTime,
            skip: Skip::BackOff(BackOffConfig::default()),
            ..Self::BASE
        }
    }

    /// The preset of this name, one of [`PRESETS`].
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn preset(name: &str) -> Result<Self, ConfigError> {
        match name {
            "none" => Ok(Self::none()),
            "all" => Ok(Self::all()),
            "packet" => Ok(Self::packet()),
            other => Err(ConfigError::UnknownScheme(other.to_owned())),
        }
    }
}

/// How much may wait in a port. A packet that would go beyond any limit is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimit {
    /// ns-2's drop-tail rule: a packet is dropped if the packets waiting plus this one would
    /// reach this number, so one fewer can wait. What is in the press or on the wire does not
    /// count.
    pub packets: u32,
    /// Most bytes that may wait.
    pub bytes: u64,
    /// Most time that may wait, at the present rate of the link, in nanoseconds. Without a
    /// known rate it does not limit; it never limits to less than `time_floor_bytes`.
    pub time_ns: u64,
    /// What the limit of time leaves room for, however slow the link: a burst of a few full
    /// packets must not be torn apart.
    pub time_floor_bytes: u64,
}

impl QueueLimit {
    /// Room for packets only, as in the paper's simulations.
    pub const fn packets(packets: u32) -> Self {
        Self { packets, bytes: u64::MAX, time_ns: u64::MAX, time_floor_bytes: 0 }
    }
}

impl Default for QueueLimit {
    fn default() -> Self {
        Self { packets: 2000, bytes: 4 << 20, time_ns: 100 * MILLI_NS, time_floor_bytes: 16 << 10 }
    }
}

/// What frames look like on the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameCost {
    /// Bytes that each frame costs beside its units (link, IP, UDP and datagram headers).
    pub frame_bytes: u32,
    /// Bytes that a raw unit costs beside its packet.
    pub raw_unit_bytes: u32,
    /// Bytes that a pressed unit costs beside its compressed bytes.
    pub pressed_unit_bytes: u32,
    /// Most bytes of units, their own headers included, that one frame takes. A unit that is
    /// larger goes alone.
    pub units_bytes_max: u32,
    /// A unit whose bytes and own header are more than this must be the last of its frame: the
    /// frame format can't name its length.
    pub unit_bytes_named: u32,
    /// Most units in one frame.
    pub units_max: u32,
}

impl FrameCost {
    /// One packet, one frame, nothing added: the paper's link.
    pub const FREE: Self = Self {
        frame_bytes: 0,
        raw_unit_bytes: 0,
        pressed_unit_bytes: 0,
        units_bytes_max: 0,
        unit_bytes_named: u32::MAX,
        units_max: 1,
    };
}

/// The configuration of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// The scheme.
    pub scheme: Scheme,
    /// The rate of the link, if known. Without one no packet is believed to wait.
    pub rate: Option<Rate>,
    /// How much may wait.
    pub limit: QueueLimit,
    /// What frames cost.
    pub frame: FrameCost,
    /// Where ratio and time come from.
    pub estimates: Estimates,
    /// Packets below this size are not pressed (but see [`Press::Always`], which obeys too).
    pub press_bytes_min: u32,
    /// Classes that are never pressed, by source or destination port. Any order.
    pub exceptions: Vec<ClassKey>,
}

impl Default for PortConfig {
    fn default() -> Self {
        Self {
            scheme: Scheme::packet(),
            rate: None,
            limit: QueueLimit::default(),
            frame: FrameCost::FREE,
            estimates: Estimates::Learned(LearnedConfig::default()),
            press_bytes_min: 0,
            exceptions: Vec::new(),
        }
    }
}

/// Why a configuration is impossible.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// There is no preset of this name.
    #[error("there is no scheme \"{0}\": use none, all or packet")]
    UnknownScheme(String),
    /// A queue that can't hold a packet.
    #[error("a queue must hold at least one packet: set its limit to 2 packets or more")]
    QueueTooSmall,
    /// Frames without room.
    #[error("a frame must have room for at least one unit")]
    EmptyFrame,
}

impl PortConfig {
    /// Looks for values that make no sense.
    ///
    /// # Errors
    /// The first impossible value.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.limit.packets < 2 {
            return Err(ConfigError::QueueTooSmall);
        }
        if self.frame.units_max == 0 {
            return Err(ConfigError::EmptyFrame);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_exists_and_no_other() {
        for name in PRESETS {
            assert!(Scheme::preset(name).is_ok());
        }
        assert!(Scheme::preset("None").is_err());
    }

    #[test]
    fn impossible_limits_are_told() {
        let mut config = PortConfig::default();
        assert_eq!(config.check(), Ok(()));
        config.limit.packets = 1;
        assert_eq!(config.check(), Err(ConfigError::QueueTooSmall));
    }
}
