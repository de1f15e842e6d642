//! The properties of a link, as a value and as a text.

use std::fmt;
use std::str::FromStr;

use dwell_base::time::{MICRO_NS, MILLI_NS, SECOND_NS, parse_duration_ns};
use dwell_base::{ByteSize, Rate};
use thiserror::Error;

/// One direction of a link. The default is a perfect wire: no limit, no delay, no loss.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSpec {
    /// The rate of the transmitter; `None` sends at once, so that nothing ever queues.
    pub rate: Option<Rate>,
    /// The time from the end of a packet's transmission to its delivery.
    pub delay_ns: u64,
    /// The delay varies uniformly by up to this much either way (not below zero). Jitter
    /// alone never reorders: a packet that would overtake is delivered together with the
    /// one before it, as in a real queue.
    pub jitter_ns: u64,
    /// Probability that a packet vanishes after it was transmitted. 1 is a link that is down.
    pub loss: f64,
    /// Probability that a packet is held back by an extra delay, so that others overtake it.
    pub reorder: f64,
    /// That extra delay; `None` is 1 ms and three full packets at the link's rate, enough to
    /// be overtaken on a busy link.
    pub reorder_by_ns: Option<u64>,
    /// Probability that a packet arrives twice.
    pub duplicate: f64,
    /// Probability that a packet arrives damaged. The model marks it with random bits
    /// ([`super::Delivered::corrupt`]); users with real bytes apply it.
    pub corrupt: f64,
    /// The most that may wait for the transmitter.
    pub queue: QueueLimit,
    /// The same seed gives the same chances.
    pub seed: u64,
    /// The rate changes at these times, in ascending order.
    pub rate_steps: Vec<RateStep>,
}

/// The most that may wait in a queue, not counting the packet that is being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// This many bytes.
    Bytes(u64),
    /// The bytes that the link sends in this many nanoseconds, but at least two full packets.
    Time(u64),
}

/// A change of a link's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateStep {
    /// The time, in nanoseconds since the origin of the driver's clock.
    pub at_ns: u64,
    /// The rate from then on.
    pub rate: Rate,
}

/// The lower limit of a queue given as time: a link can't work without a queue.
const QUEUE_MIN_BYTES: u64 = 2 * FULL_PACKET_BYTES;
const FULL_PACKET_BYTES: u64 = 1514;

impl QueueLimit {
    /// Returns the limit in bytes on a link of this rate.
    pub fn bytes(self, rate: Rate) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Time(ns) => rate.bytes_in_ns(ns).max(QUEUE_MIN_BYTES),
        }
    }
}

impl Default for QueueLimit {
    /// 100 ms, about what access routers hold.
    fn default() -> Self {
        Self::Time(100 * MILLI_NS)
    }
}

impl Default for LinkSpec {
    fn default() -> Self {
        Self {
            rate: None,
            delay_ns: 0,
            jitter_ns: 0,
            loss: 0.0,
            reorder: 0.0,
            reorder_by_ns: None,
            duplicate: 0.0,
            corrupt: 0.0,
            queue: QueueLimit::default(),
            seed: 1,
            rate_steps: Vec::new(),
        }
    }
}

impl LinkSpec {
    /// Makes a perfect wire, to begin with.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the rate.
    #[must_use]
    pub fn with_rate(mut self, rate: Rate) -> Self {
        self.rate = Some(rate);
        self
    }

    /// Sets the delay.
    #[must_use]
    pub fn with_delay_ns(mut self, delay_ns: u64) -> Self {
        self.delay_ns = delay_ns;
        self
    }

    /// Sets the jitter.
    #[must_use]
    pub fn with_jitter_ns(mut self, jitter_ns: u64) -> Self {
        self.jitter_ns = jitter_ns;
        self
    }

    /// Sets the probability of loss.
    #[must_use]
    pub fn with_loss(mut self, loss: f64) -> Self {
        self.loss = loss;
        self
    }

    /// Sets the probability of being held back and overtaken.
    #[must_use]
    pub fn with_reorder(mut self, reorder: f64) -> Self {
        self.reorder = reorder;
        self
    }

    /// Sets the probability of arriving twice.
    #[must_use]
    pub fn with_duplicate(mut self, duplicate: f64) -> Self {
        self.duplicate = duplicate;
        self
    }

    /// Sets the probability of arriving damaged.
    #[must_use]
    pub fn with_corrupt(mut self, corrupt: f64) -> Self {
        self.corrupt = corrupt;
        self
    }

    /// Sets the queue.
    #[must_use]
    pub fn with_queue(mut self, queue: QueueLimit) -> Self {
        self.queue = queue;
        self
    }

    /// Sets the seed.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Adds a change of the rate.
    #[must_use]
    pub fn with_rate_step(mut self, at_ns: u64, rate: Rate) -> Self {
        self.rate_steps.push(RateStep { at_ns, rate });
        self.rate_steps.sort_by_key(|step| step.at_ns);
        self
    }

    /// Returns the time for which a packet is held back on a link that now has this rate.
    pub(super) fn held_back_ns(&self, rate: Option<Rate>) -> u64 {
        self.reorder_by_ns.unwrap_or_else(|| {
            MILLI_NS + rate.map_or(0, |rate| rate.transmission_ns(3 * FULL_PACKET_BYTES))
        })
    }
}

/// The reason why a text describes no link.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParseLinkError {
    /// The word begins no property.
    #[error(
        "\"{0}\" is no property of a link: use rate, delay, jitter, loss, reorder, reorder-by, \
         duplicate, corrupt, queue, seed or step"
    )]
    Property(String),
    /// The text ends where a value should be.
    #[error("\"{0}\" needs a value, as in \"rate 10mbit delay 20ms loss 1% queue 100ms\"")]
    NoValue(String),
    /// The value is not of the kind that the property needs.
    #[error("{property}: {problem}")]
    Value {
        /// The property.
        property: String,
        /// The mistake in its value.
        problem: String,
    },
}

/// Reads `rate 10mbit delay 20ms jitter 1ms loss 0.01 reorder 2% reorder-by 5ms duplicate
/// 0.01 corrupt 0.001 queue 100ms seed 7 step 5s 2mbit`, in any order, any part of it.
/// `queue` takes a time or a size; `step` may occur several times.
impl FromStr for LinkSpec {
    type Err = ParseLinkError;

    fn from_str(text: &str) -> Result<Self, ParseLinkError> {
        let mut words = text.split([' ', '\t', '\n', ',']).filter(|word| !word.is_empty());
        let mut spec = Self::default();
        while let Some(property) = words.next() {
            spec.read(property, &mut words)?;
        }
        Ok(spec)
    }
}

impl LinkSpec {
    fn read<'a>(
        &mut self,
        property: &str,
        words: &mut impl Iterator<Item = &'a str>,
    ) -> Result<(), ParseLinkError> {
        let mut word = || words.next().ok_or_else(|| ParseLinkError::NoValue(property.to_owned()));
        let bad = |problem| ParseLinkError::Value { property: property.to_owned(), problem };
        match property {
            "rate" => {
                self.rate =
                    Some(word()?.parse().map_err(|e: <Rate as FromStr>::Err| bad(e.to_string()))?);
            }
            "delay" => self.delay_ns = parse_duration_ns(word()?).map_err(bad)?,
            "jitter" => self.jitter_ns = parse_duration_ns(word()?).map_err(bad)?,
            "loss" => self.loss = parse_probability(word()?).map_err(bad)?,
            "reorder" => self.reorder = parse_probability(word()?).map_err(bad)?,
            "reorder-by" => {
                self.reorder_by_ns = Some(parse_duration_ns(word()?).map_err(bad)?);
            }
            "duplicate" => self.duplicate = parse_probability(word()?).map_err(bad)?,
            "corrupt" => self.corrupt = parse_probability(word()?).map_err(bad)?,
            "queue" => self.queue = parse_queue(word()?).map_err(bad)?,
            "seed" => {
                self.seed = word()?.parse().map_err(|_| bad("a seed is a whole number".into()))?;
            }
            "step" => {
                let at_ns = parse_duration_ns(word()?).map_err(bad)?;
                let rate =
                    word()?.parse().map_err(|e: <Rate as FromStr>::Err| bad(e.to_string()))?;
                self.rate_steps.push(RateStep { at_ns, rate });
                self.rate_steps.sort_by_key(|step| step.at_ns);
            }
            other => return Err(ParseLinkError::Property(other.to_owned())),
        }
        Ok(())
    }
}

fn parse_probability(text: &str) -> Result<f64, String> {
    let (number, scale) = match text.strip_suffix('%') {
        Some(percent) => (percent, 0.01),
        None => (text, 1.0),
    };
    match number.parse::<f64>() {
        Ok(value) if (0.0..=1.0).contains(&(value * scale)) => Ok(value * scale),
        _ => Err(format!("\"{text}\" is no probability: write for instance 0.01 or 1%")),
    }
}

fn parse_queue(text: &str) -> Result<QueueLimit, String> {
    if let Ok(ns) = parse_duration_ns(text) {
        return Ok(QueueLimit::Time(ns));
    }
    text.parse::<ByteSize>().map(|size| QueueLimit::Bytes(size.0)).map_err(|_| {
        format!("\"{text}\" is neither a time nor a size: write for instance 100ms or 64KiB")
    })
}

/// Writes a text that [`FromStr`] parses to the same value; leaves out defaults.
impl fmt::Display for LinkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = Self::default();
        let mut parts = Vec::new();
        if let Some(rate) = self.rate {
            parts.push(format!("rate {rate:#}"));
        }
        for (name, ns) in [("delay", self.delay_ns), ("jitter", self.jitter_ns)] {
            if ns > 0 {
                parts.push(format!("{name} {}", exact_duration(ns)));
            }
        }
        for (name, probability) in [
            ("loss", self.loss),
            ("reorder", self.reorder),
            ("duplicate", self.duplicate),
            ("corrupt", self.corrupt),
        ] {
            if probability > 0.0 {
                parts.push(format!("{name} {probability}"));
            }
        }
        if let Some(ns) = self.reorder_by_ns {
            parts.push(format!("reorder-by {}", exact_duration(ns)));
        }
        match self.queue {
            queue if queue == plain.queue => {}
            QueueLimit::Time(ns) => parts.push(format!("queue {}", exact_duration(ns))),
            QueueLimit::Bytes(bytes) => parts.push(format!("queue {bytes}")),
        }
        if self.seed != plain.seed {
            parts.push(format!("seed {}", self.seed));
        }
        for step in &self.rate_steps {
            parts.push(format!("step {} {:#}", exact_duration(step.at_ns), step.rate));
        }
        f.write_str(&parts.join(" "))
    }
}

fn exact_duration(ns: u64) -> String {
    let units = [(SECOND_NS, "s"), (MILLI_NS, "ms"), (MICRO_NS, "us")];
    match units.iter().find(|(unit, _)| ns.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", ns / unit),
        None => format!("{ns}ns"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_a_whole_link() {
        let text = "rate 10mbit delay 20ms jitter 1ms loss 0.01 reorder 2% reorder-by 5ms \
                    duplicate 0.01 corrupt 0.001 queue 64KiB seed 7 step 5s 2mbit";
        let spec: LinkSpec = text.parse().unwrap();
        assert_eq!(spec.rate, Some(Rate::from_mbps(10)));
        assert_eq!((spec.delay_ns, spec.jitter_ns), (20_000_000, 1_000_000));
        assert_eq!((spec.loss, spec.reorder, spec.duplicate), (0.01, 0.02, 0.01));
        assert_eq!(spec.queue, QueueLimit::Bytes(65_536));
        assert_eq!(spec.rate_steps, [RateStep { at_ns: 5_000_000_000, rate: Rate::from_mbps(2) }]);
        assert_eq!("".parse(), Ok(LinkSpec::default()));
    }

    #[test]
    fn says_what_is_wrong() {
        for (bad, why) in [
            ("speed 10mbit", "is no property"),
            ("rate", "needs a value"),
            ("loss 1.5", "is no probability"),
            ("loss nan", "is no probability"),
            ("delay 20", "has no unit"),
            ("queue lots", "neither a time nor a size"),
            ("step 5s", "needs a value"),
            ("rate 10", "has no unit"),
            ("rate 2MB", "write \"2Mbit\" for bits per second, or \"2MB/s\" for bytes"),
        ] {
            let error = bad.parse::<LinkSpec>().unwrap_err().to_string();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    prop_compose! {
        fn specs()(
            bps in prop::option::of(1u64..10_000_000_000),
            delay_ns in 0u64..1 << 40,
            jitter_ns in 0u64..1 << 30,
            loss in 0.0..=1.0,
            reorder in 0.0..=1.0,
            reorder_by_ns in prop::option::of(0u64..1 << 40),
            queue in prop_oneof![(0u64..1 << 40).prop_map(QueueLimit::Bytes), (0u64..1 << 40).prop_map(QueueLimit::Time)],
            seed: u64,
            step in prop::option::of((0u64..1 << 40, 1u64..1 << 30)),
        ) -> LinkSpec {
            let spec = LinkSpec {
                rate: bps.and_then(Rate::from_bps),
                delay_ns, jitter_ns, loss, reorder, reorder_by_ns, queue, seed,
                ..LinkSpec::default()
            };
            match step {
                Some((at_ns, bps)) => spec.with_rate_step(at_ns, Rate::clamped_bps(bps)),
                None => spec,
            }
        }
    }

    proptest! {
        #[test]
        fn text_and_value_are_the_same_thing(spec in specs()) {
            prop_assert_eq!(spec.to_string().parse(), Ok(spec));
        }
    }
}
