//! The amount of unsent data that the transport should hold.

use crate::config::Config;
use crate::strategy::Strategy;

/// The time in which the link sends the data that should be ready, in nanoseconds: a writer that
/// sleeps, compresses, or shares its processor returns some milliseconds later.
const HOLD_NS: f64 = 8e6;
/// The same for the least that slow links have: it costs nothing there, but that it can't be compressed any
/// more, and who shares a processor may be away for this long.
const HOLD_SLOW_NS: f64 = 40e6;
/// The most bytes that should be ready. While blocks are compressed it is less: TCP wakes a writer
/// when half of it has drained. If that were more than the data in the sender, all of which are
/// compressed by then, the processor would be idle meanwhile.
const LEN_MAX: u32 = 4 << 20;

/// The least: a slow link must not have much before it that could still be compressed, but a block that
/// is being compressed takes its time.
const LEN_MIN: u32 = 32 << 10;

/// A length that follows the link's rate by powers of two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Depth {
    len: u32,
    least: u32,
    /// What it is at first.
    usual: u32,
    /// The most while blocks are compressed.
    compressing_max: u32,
    follows: bool,
    /// True if hardly anything is compressed.
    raw: bool,
}

/// The share of uncompressed blocks from which on hardly anything is compressed, and the share
/// below which that ends.
const RAW_FROM: f64 = 0.9;
const RAW_UNTIL: f64 = 0.7;

impl Depth {
    pub(crate) fn new(config: &Config) -> Self {
        // Mixing sends uncompressed blocks whenever the transport takes them: if that were much
        // more than the data that wait here, there would be nothing left to compress.
        let follows = !matches!(
            config.strategy,
            Strategy::Mix | Strategy::MixInOrder | Strategy::MixOutOfOrder
        );
        let len = config.not_sent_len();
        let compressing_max = (2 * config.buffer_len as u32).min(LEN_MAX).max(len);
        Self { len, least: len.min(LEN_MIN), usual: len, compressing_max, follows, raw: false }
    }

    /// Begins with the least, until the link's rate is known.
    pub(crate) const fn begin_small(&mut self) {
        if self.follows {
            self.len = self.least;
        }
    }

    /// Returns the length in bytes.
    pub(crate) const fn len(self) -> u32 {
        self.len
    }

    /// Follows a link that carries `rate` bytes a second; `raw_share` is the share of blocks that
    /// are sent uncompressed.
    pub(crate) fn follow(&mut self, rate: f64, raw_share: f64) {
        if !self.follows || rate <= 0.0 {
            return;
        }
        let wanted = rate * HOLD_NS / 1e9;
        self.raw = raw_share > if self.raw { RAW_UNTIL } else { RAW_FROM };
        let most = if self.raw { LEN_MAX } else { self.compressing_max };
        while wanted >= 2.0 * f64::from(self.len) && self.len <= most / 2 {
            self.len *= 2;
        }
        // The two thresholds differ, or it would change with every measurement.
        while (wanted < 0.5 * f64::from(self.len) || self.len > most) && self.len / 2 >= self.usual
        {
            self.len /= 2;
        }
        let slow = rate * HOLD_SLOW_NS / 1e9;
        while slow < 0.5 * f64::from(self.len) && self.len / 2 >= self.least {
            self.len /= 2;
        }
        while slow >= f64::from(self.len) && self.len < self.usual {
            self.len *= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_the_link_within_limits() {
        let mut depth = Depth::new(&Config::default());
        let mut at = |mbit: f64| {
            depth.follow(mbit * 125_000.0, 1.0);
            depth.len() >> 10
        };
        assert_eq!([20.0, 5.0, 10.0, 20.0, 50.0].map(&mut at), [128, 32, 64, 128, 128]);
        assert_eq!([5.0, 200.0, 1000.0, 400.0, 200.0].map(&mut at), [32, 128, 512, 512, 256]);
        assert_eq!([1e6, 1.0, f64::INFINITY, f64::NAN].map(&mut at), [4096, 32, 4096, 4096]);
        depth.follow(1e9, 0.8);
        assert_eq!(depth.len(), 4 << 20);
        depth.follow(1e9, 0.6);
        assert_eq!(depth.len(), 512 << 10);
        depth.follow(1e9, 0.8);
        assert_eq!(depth.len(), 512 << 10);
    }

    #[test]
    fn mixing_keeps_what_can_still_be_compressed() {
        let mut depth = Depth::new(&Config::new(Strategy::Mix));
        depth.follow(1e9, 1.0);
        assert_eq!(depth.len(), 128 << 10);
    }
}
